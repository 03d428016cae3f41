"""Which tests share a process: all that use Spark, and those that share a costly fixture of their module.

With xdist, workers collect the tests and the controller hands them out, knowing only their ids. Workers write
the group of each test into a file, and the scheduler of the controller reads it.
"""

import json
import sys
from collections.abc import Generator, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple
from zlib import crc32

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

#: Fixtures that start Spark. Tests that start one in another way carry ``@pytest.mark.xdist_group("spark")``.
SPARK_FIXTURES: Final = frozenset({"spark", "cluster"})
SPARK: Final = "spark"
#: Tests that share nothing are divided by id: whole modules would leave one process with the longest at
#: the end. Not into single tests: for each that ends, xdist looks through all that it has handed out.
PORTIONS: Final = 8

_DIRECTORY: Final = pytest.StashKey[TemporaryDirectory[str]]()
_INPUT: Final = "process_groups"
_GATEWAY: Final = pytest.StashKey[object]()


class Needs(NamedTuple):
    """What decides on the group of a test: does it use Spark, and does it share a fixture of its module?"""

    nodeid: str
    spark: bool
    shares: bool

    @property
    def module(self) -> str:
        return self.nodeid.partition("::")[0]


def needs_of(item: pytest.Item) -> Needs:
    """Return what a collected test needs, by its fixtures and marks."""
    marked = any(mark.args == (SPARK,) for mark in item.iter_markers("xdist_group"))
    if not isinstance(item, pytest.Function):
        return Needs(item.nodeid, marked, shares=False)
    fixtures = item._fixtureinfo.name2fixturedefs
    shares = any(found[-1].scope == "module" for found in fixtures.values())
    return Needs(item.nodeid, marked or not SPARK_FIXTURES.isdisjoint(fixtures), shares)


def groups(tests: Iterable[Needs]) -> list[str]:
    """Return the group of each test.

    What a module shares is made once: if one of the tests that share it uses Spark, all of them go there.
    """
    found = list(tests)
    with_spark = {test.module for test in found if test.spark and test.shares}

    def group(test: Needs) -> str:
        if test.spark or (test.shares and test.module in with_spark):
            return SPARK
        return test.module if test.shares else f"{test.module} {crc32(test.nodeid.encode()) % PORTIONS}"

    return [group(test) for test in found]


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc] # xdist has no types of its own
    """Groups go where there is room, as the workers have named them.

    The groups of xdist itself do not reach pytest 9, which keeps the ids of tests in another attribute.
    """

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        self._groups: dict[str, str] = {}

    def schedule(self) -> None:
        if not self._groups:
            node, nodeids = next(iter(self.registered_collections.items()))
            names = json.loads(Path(node.workerinput[_INPUT]).read_text(encoding="utf-8"))
            self._groups = dict(zip(nodeids, names, strict=True))
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return self._groups[nodeid]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker where to write the groups."""
    config: pytest.Config = node.config
    if _DIRECTORY not in config.stash:
        made = config.stash[_DIRECTORY] = TemporaryDirectory(prefix="veen-tests-")
        config.add_cleanup(made.cleanup)
    node.workerinput[_INPUT] = str(Path(config.stash[_DIRECTORY].name, node.gateway.id))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Write the groups, before xdist tells the controller that the tests are collected."""
    given: dict[str, str] = getattr(session.config, "workerinput", {})
    if _INPUT in given:
        names = groups(needs_of(item) for item in session.items)
        Path(given[_INPUT]).write_text(json.dumps(names), encoding="utf-8")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling:
    """Schedule by groups, whatever ``--dist`` says."""
    return GroupScheduling(config, log)


def running_spark() -> object:
    """Return the gateway to the Spark that this process has started; ``None`` without one."""
    module = sys.modules.get("pyspark")
    return None if module is None else module.SparkContext._gateway


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """Remember which Spark runs before any fixture of the test."""
    item.stash[_GATEWAY] = running_spark()
    yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Fail a test that has started Spark and belongs to another group."""
    yield
    if running_spark() is not item.stash[_GATEWAY] and not needs_of(item).spark:
        pytest.fail(
            'it starts Spark: give it the fixture "spark" or the mark xdist_group("spark")', pytrace=False
        )
