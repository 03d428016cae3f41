"""A real file system without space: writes are refused, reads go on, and nothing acknowledged is lost."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.storage.simulation.oneshots import start

#: Where space runs out: in the journal, in chunk files, or in the index.
_KILOBYTES: Final = (1500, 1800, 2222, 3000)


def _why_not() -> str | None:
    unshare = shutil.which("unshare")
    if unshare is None:
        return "unshare is not installed"
    mount = ["mount", "-t", "tmpfs", "none", "/mnt"]
    done = subprocess.run([unshare, "--map-root-user", "--mount", *mount], capture_output=True, check=False)
    return None if done.returncode == 0 else "mounting in a namespace is not allowed here"


_REASON: Final = _why_not()


@pytest.mark.slow
@pytest.mark.skipif(_REASON is not None, reason=_REASON or "")
@pytest.mark.parametrize("kilobytes", _KILOBYTES)
def test_a_full_disk_refuses_writes_and_keeps_everything(tmp_path: Path, kilobytes: int) -> None:
    script = [sys.executable, "-m", "tests.storage.simulation.full_disk", str(tmp_path), str(kilobytes)]
    with start(["unshare", "--map-root-user", "--mount", *script]) as process:
        said, error = process.communicate()
    assert process.returncode == 0, error
    assert said in ("refused\n", "stopped\n")
