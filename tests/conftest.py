"""Settings of all tests, and which of them share a process."""

import signal
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# Wall-clock deadlines fail on a busy machine for no fault of the code; examples are bounded instead.
settings.register_profile("veen", deadline=None, max_examples=60, print_blob=True)
settings.load_profile("veen")

# A run in the background ignores interrupts, and the programs that tests start and interrupt would too.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parents[1]
#: Modules with one of these words use Spark in the process of the tests.
SPARK = ("spark: SparkSession", 'usefixtures("spark")', "cluster: Cluster", 'xdist_group("spark")')


#: Modules with this have something that is costly to make, a hub for the most part.
SHARED = 'scope="module"'
#: Others are divided: whole modules would leave one process with the longest of them at the end. Not into
#: single tests: for each that ends, xdist looks through all that it has given out.
PORTIONS = 8


class OneSpark(LoadScopeScheduling):  # type: ignore[misc] # xdist has no types of its own
    """Tests go where there is room; modules that use Spark share a process, so that only one Spark runs.

    The groups of xdist 3.8 do not reach pytest 9, which keeps the ids of tests elsewhere.
    """

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        if _uses_spark(module):
            return "spark"
        return module if SHARED in _text(module) else f"{module} {crc32(nodeid.encode()) % PORTIONS}"


@cache
def _text(module: str) -> str:
    return (ROOT / module).read_text(encoding="utf-8")


def _uses_spark(module: str) -> bool:
    return any(word in _text(module) for word in SPARK)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Any:
    """Schedule as above, whatever ``--dist`` says."""
    return OneSpark(config, log)
