"""One flipped bit anywhere in the index: what it says is right, or it is refused and can be repaired.

LMDB has no checksums. Rows carry their own, and what rows that are gone would hide is compared with the
log. Two things can not be: that a message is not found by its id, and that a client has never sent.
"""

import json
import os
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.storage.simulation.oneshots import start

pytestmark = pytest.mark.sweep

#: Of the bytes on pages in use; each costs a start. Long runs (make faults) take ten times as many.
_STEP: Final = 40 * int(os.environ.get("VEEN_FLIP_STEP", "10"))


@pytest.mark.slow
@pytest.mark.parametrize("use", ["read", "write"])
def test_a_flipped_bit_in_the_index_is_refused_or_harmless(tmp_path: Path, use: str) -> None:
    words = [sys.executable, "-m", "tests.storage.simulation.index_flips", str(tmp_path), use, str(_STEP)]
    with start(words) as process:
        said, error = process.communicate()
    assert process.returncode == 0, error
    ends = json.loads(said)
    assert ends["refused"] >= 5
    # Where LMDB itself follows a damaged page, the process may end; nothing is answered then either.
    assert ends.get("signal", 0) <= ends["refused"] // 4
    assert ends["whole"]
