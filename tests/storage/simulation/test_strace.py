"""Errors and sudden ends at the system calls of a real process on a real file system (Linux, strace).

The simulated disk covers far more; this shows that the real one is used the way the simulation assumes.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.storage.simulation.oneshots import check_kept, command, receipts, start

_BATCHES: Final = 4
#: Calls that change the disk; the interpreter's own start makes hardly any of them.
_CALLS: Final = ("write", "fdatasync", "fsync", "rename", "unlink")
#: At which of the calls, at most: the first ones, then in steps; a run that meets none is the last.
_AT: Final = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89)


def _why_not() -> str | None:
    strace = shutil.which("strace")
    if strace is None:
        return "strace is not installed"
    done = subprocess.run([strace, "-f", "-o", "/dev/null", "true"], capture_output=True, check=False)
    return None if done.returncode == 0 else "ptrace is not allowed here"


_REASON: Final = _why_not()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(_REASON is not None, reason=_REASON or "")]


@pytest.mark.parametrize("call", _CALLS)
@pytest.mark.parametrize("fault", ["error=EIO", "error=ENOSPC", "signal=SIGKILL"])
def test_a_fault_at_a_system_call_loses_nothing(tmp_path: Path, call: str, fault: str) -> None:
    injected = 0
    log = tmp_path / "trace"
    for at in _AT:
        root = tmp_path / f"data-{at}"
        inject = ["-e", f"trace={call}", "-e", f"inject={call}:{fault}:when={at}"]
        with start(["strace", "-f", "-o", str(log), *inject, *command(root, _BATCHES)]) as process:
            out, _ = process.communicate(timeout=60)
        met = "INJECTED" in log.read_text(errors="replace") or process.returncode < 0
        injected += met
        check_kept(root, receipts(out.splitlines(keepends=True)))
        if not met:
            break
    assert injected, f"{call} was never met"
