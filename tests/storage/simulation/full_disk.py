"""A process that fills a small disk: ``full_disk.py DIR KILOBYTES``, in a mount namespace of its own.

It mounts a file system of this size, lets a writer go on until there is no space, reads, makes space, goes
on and stops. At the end every receipt that it was given is checked.
"""

import subprocess
import sys
from pathlib import Path

from tests.storage.checks import check_receipts, reading
from tests.storage.stores import A, B, Store, make, open_writer
from veen.storage.errors import StoreFullError, WriterStoppedError
from veen.storage.fs import RealFilesystem
from veen.storage.fsck import check

#: Taken away at first, and given back when the disk is full.
_BALLAST_BYTES = 1 << 20
_SEGMENT_BYTES = 64_000
#: Nothing of a batch that was refused may be kept, or come back.
_REFUSALS = 3


def main() -> None:
    """Fill, read, make space, go on."""
    disk = Path(sys.argv[1])
    options = f"size={int(sys.argv[2])}k"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(disk)], check=True)  # noqa: S607
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(_BALLAST_BYTES))
    fs = RealFilesystem(disk / "data")
    make(fs)
    store = Store(open_writer(fs, _SEGMENT_BYTES))
    stopped = not until_full(store)
    receipts = store.receipts
    check_receipts(store.writer.reader, receipts)  # reading goes on
    ballast.unlink()
    if stopped:
        store.writer.abandon()
        store = Store(open_writer(fs, _SEGMENT_BYTES))
    for _ in range(50):
        store.append(A, B)
    receipts = receipts + store.receipts if stopped else store.receipts
    check_receipts(store.writer.reader, receipts)
    store.writer.close()
    with reading(fs) as reader:
        check_receipts(reader, receipts)
        assert (reader.last_seq(A), reader.last_seq(B)) == (len(receipts) // 2, len(receipts) // 2)
    report = check(fs)
    assert report.ok, report.findings
    print("stopped" if stopped else "refused")  # noqa: T201 - what the test reads


def until_full(store: Store) -> bool:
    """Write until the disk is full, and a little longer; return whether the writer still runs.

    It stops if the index was cut off in the middle of a write: LMDB calls that an error of the disk.
    """
    refusals = 0
    while refusals < _REFUSALS:
        try:
            store.append(A, B, body_size=900)
        except StoreFullError:
            refusals += 1
        except WriterStoppedError:
            return False
    return True


if __name__ == "__main__":
    main()
