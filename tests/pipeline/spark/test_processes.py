"""SIGINT and SIGTERM while Spark starts or works: one ending, one line, and nothing left."""

import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.log_builder import varied
from veen.pipeline.spark.environment import DEFAULT_MASTER, environment_of
from veen.pipeline.spark.processes import Descendants, SignalHandler, children_with, held_back
from veen.pipeline.spark.session import _hush

PATIENCE_SEC = 60.0


def test_a_signal_acts_at_once_and_raises_at_the_end() -> None:
    told: list[str] = []
    before = signal.getsignal(signal.SIGINT)

    def interrupted() -> None:
        with held_back(lambda: told.append("act")):
            signal.raise_signal(signal.SIGINT)
            told.append("goes on")
            raise ValueError("what failed because of it")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert told == ["act", "goes on"]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_handler_of_somebody_else_keeps_its_signal() -> None:
    told: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: told.append(number))
    try:
        with held_back(lambda: None):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert told == [signal.SIGINT]


def test_a_signal_that_got_lost_is_remembered() -> None:
    ending = SignalHandler(lambda: None, at_once=True)
    with pytest.raises(SystemExit):
        ending(signal.SIGTERM, None)
    with pytest.raises(SystemExit) as caught:
        ending.check()
    assert caught.value.code == 143


def test_children_are_found_by_what_they_were_told() -> None:
    command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", "veen-mark-7"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"\n"
        assert children_with("veen-mark-7") == [child.pid]
        assert children_with("veen-mark-8") == []


def test_what_py4j_logs_in_the_name_of_all_is_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    root = logging.getLogger()
    _hush(verbose=False)
    try:
        record = root.makeRecord("root", logging.ERROR, "/x/py4j/java_gateway.py", 1, "py4j", (), None)
        other = root.makeRecord("root", logging.ERROR, "/x/mine.py", 1, "mine", (), None)
        root.handle(record)
        root.handle(other)
    finally:
        _hush(verbose=True)
    assert [found.getMessage() for found in caplog.records] == ["mine"]


#: A Java that never gets Spark to run; asked for its version it answers, so that it is taken.
HANGING = """#!/bin/bash
case "$*" in
  *-version*) exec {java} "$@" ;;
esac
echo started > {ready}
read line < {never}
"""


@pytest.mark.parametrize(
    ("number", "code", "detail"), [(signal.SIGINT, 1, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_signal_while_spark_starts_ends_all_in_one_line(
    tmp_path: Path, number: signal.Signals, code: int, detail: str
) -> None:
    ready, never, java = tmp_path / "ready", tmp_path / "never", tmp_path / "java" / "bin" / "java"
    os.mkfifo(ready)
    os.mkfifo(never)
    real = environment_of(DEFAULT_MASTER, {})["JAVA_HOME"]
    java.parent.mkdir(parents=True)
    java.write_text(HANGING.format(java=f"{real}/bin/java", ready=ready, never=never))
    java.chmod(0o755)
    hub = varied(tmp_path / "hub", 6)
    hub.close()
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with subprocess.Popen(
        [sys.executable, "-m", "veen.cli.main", "--json", "pipeline", "verify", str(hub.root)],
        env={**os.environ, "JAVA_HOME": str(java.parent.parent), "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert ready.read_text() == "started\n"
        below = Descendants(process.pid)
        process.send_signal(number)
        out, told = process.communicate(timeout=PATIENCE_SEC)
        left = below.wait(PATIENCE_SEC)
        below.end(0.0)
    assert json.loads(out) == {"ok": False, "code": "E.INTERRUPTED", "detail": detail}
    assert (process.returncode, told.strip(), left) == (code, "", ())
    assert list(temporary.iterdir()) == []
