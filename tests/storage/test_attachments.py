"""Attachments on a disk that gets full: whole, or not there."""

import errno
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.storage.checks import Faulty
from veen.core.crypto.hash import sha256
from veen.core.limits import Limits
from veen.core.types import Coid
from veen.storage import Attachments, RealFilesystem, StoreFullError
from veen.storage.fs import Write


class CutShort(Faulty):
    """A disk that gets full while it writes."""

    def write_all(self, writes: Sequence[Write]) -> None:
        RealFilesystem.write_all(self, [write._replace(data=write.data[:5]) for write in writes])
        self.meet("write", writes[0].path)


@pytest.mark.parametrize("call", ["write", "rename"])
def test_an_attachment_that_could_not_be_written_leaves_nothing_behind(tmp_path: Path, call: str) -> None:
    fs = CutShort(tmp_path)
    store = Attachments(fs, Limits(), 1000)
    data = b"an attachment"
    coid = Coid(sha256(data))
    fs.fail(call, "attachments", errno.ENOSPC)
    for _ in range(3):
        with pytest.raises(StoreFullError):
            store.put(coid, data)
        assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    fs.close()
