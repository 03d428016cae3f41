"""The suite about queries: well once, and once with a service whose every promise is broken."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.selftest.runs import assert_fails, assert_nothing_left, report_of, selftest, surroundings
from veen.selftest import step_names

#: What a service, and whoever verifies, does wrong; and what the step says that finds it out. One run has
#: all of them, because Spark starts slowly.
MISTAKES: dict[str, tuple[str, str]] = {
    "query-digest": (
        "recorder._audit = lambda *said, do=recorder._audit: {**do(*said), 'result_digest': None}",
        "audit records of the query",
    ),
    "query-pages": (
        "Runs.page = lambda me, out, it, at, *most, do=Runs.page: do(me, out, it, at - at % 2, *most)",
        "rows of the pages",
    ),
    "query-evidence": ("Evidence._sum_up = none", "evidence_hash of mode full"),
    "query-damage": (
        "evidence.require_committed = Evidence._check_events = Evidence._check_roots = none",
        "the end of the query",
    ),
    "query-elsewhere": (
        "Engine._execute = lambda me, it, of, do=Engine._execute: do(me, own(it), of)",
        "differences in the other zone: ['evidence_hash']",
    ),
}


@pytest.mark.slow
def test_queries_are_well(tmp_path: Path) -> None:
    done = selftest(tmp_path, "query", "--json")
    found = report_of(done)
    assert done.returncode == 0, found
    assert [item["name"] for item in found["steps"] if not item["skipped"]] == step_names("query")
    assert_nothing_left(tmp_path)


@pytest.mark.slow
def test_a_service_that_breaks_its_promises_fails_every_step(tmp_path: Path) -> None:
    script = tmp_path / "wrong.py"
    mistakes = "".join(f"    {code}\n" for code, _ in MISTAKES.values())
    script.write_text(
        "import sys\n"
        "from dataclasses import replace\n"
        "none, own = lambda *_: None, lambda it: replace(it, evidence_id=it.result_id)\n"
        "if sys.argv[1] == 'query':\n"
        "    from veen.pipeline.query.engine import Engine\n"
        "    from veen.pipeline.query import evidence\n"
        "    from veen.pipeline.query.evidence import Evidence\n"
        "    from veen.query_service import recorder\n"
        "    from veen.query_service.spark_runner import SparkRuns as Runs\n"
        f"{mistakes}"
        "from veen.cli.main import main\n"
        "main()\n"
    )
    done = selftest(tmp_path, "query", "--json", VEEN_SELFTEST_HUB=shlex.join([sys.executable, str(script)]))
    details = assert_fails(done, *MISTAKES)
    for step, (_, says) in MISTAKES.items():
        assert says in details[step]
    assert_nothing_left(tmp_path)


def test_without_spark_it_is_told_what_to_install(tmp_path: Path) -> None:
    program = "import sys; sys.modules['pyspark'] = None; from veen.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "selftest", "query"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=surroundings(tmp_path),
        cwd=tmp_path,
    )
    assert done.returncode == 1
    assert "pip install 'PATH_OF_THE_CLONE[spark]'" in done.stderr
    assert "Traceback" not in done.stderr
