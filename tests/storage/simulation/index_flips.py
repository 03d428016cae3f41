"""Flips bits of an index and uses it: ``index_flips.py DIR read|write STEP``.

Each use is a process of its own, because LMDB may follow a damaged page out of its file. Prints how many uses
were whole, were refused by name, and ended by a signal; after the latter two, everything is repaired.
"""

import json
import os
import shutil
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.storage.checks import check_receipts, reading, writing
from tests.storage.stores import A, B, Store, make, open_writer
from veen.core.data_dir import paths
from veen.core.objects.receipt import Receipt
from veen.storage.errors import StorageError
from veen.storage.fs import RealFilesystem
from veen.storage.maintain.repair import repair
from veen.storage.read.reader import Reader

_PAGE: Final = 4096
_WHOLE, _REFUSED, _WRONG = range(3)

Use = Callable[[RealFilesystem, list[Receipt]], None]


def filled(root: Path) -> list[Receipt]:
    """Make a store with sealed and open chunks, and stop it."""
    fs = RealFilesystem(root)
    make(fs)
    store = Store(open_writer(fs))
    for _ in range(10):
        store.append(A, B)
        store.tick()
    store.writer.checkpoint(A, 6)
    store.writer.flush()
    store.append(A)
    store.writer.close()
    fs.close()
    return store.receipts


def read_all(reader: Reader, receipts: list[Receipt]) -> None:
    """Check that everything is there, by number and by time; and by id, or not at all."""
    assert set(reader.labels()) == {A, B}
    for label in (A, B):
        assert reader.last_seq(label) == sum(receipt.label == label for receipt in receipts)
    for receipt in receipts:
        label, seq = receipt.label, receipt.stream_seq
        assert reader.entry(label, seq).receipt == receipt
        assert reader.seq_at(label, receipt.hub_ts) == seq
        assert reader.find(receipt.leaf_hash) in ((label, seq), None)
        reader.prove(label, seq).verify(receipt.mmr_root, receipt.leaf_hash, stream_seq=seq)


def use_read(fs: RealFilesystem, receipts: list[Receipt]) -> None:
    """Read as an auditor does."""
    with reading(fs) as reader:
        read_all(reader, receipts)


def use_write(fs: RealFilesystem, receipts: list[Receipt]) -> None:
    """Go on as a hub does."""
    with writing(fs, clock=5_000) as store:
        added = store.append(A, B, client="another")
        assert [item.stream_seq for item in added] == [12, 11]
        store.writer.flush()
        read_all(store.writer.reader, [*receipts, *added])


def mend(fs: RealFilesystem, receipts: list[Receipt]) -> None:
    """Bring everything back."""
    repair(fs, owner="a test")
    with reading(fs) as reader:
        check_receipts(reader, receipts)


def tried(root: Path, receipts: list[Receipt], use: Use) -> int:
    """Use a directory in a process of its own; return how it ended: a number of ours, or minus a signal."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        use(RealFilesystem(root), receipts)
        os._exit(_WHOLE)
    except StorageError as refusal:
        os._exit(_REFUSED if "run: veen" in str(refusal) else _WRONG)
    except BaseException:  # noqa: BLE001 - a fork must not get further than this
        traceback.print_exc()
        os._exit(_WRONG)


def main() -> None:
    """Flip, use, mend."""
    home, name, step = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    use = {"read": use_read, "write": use_write}[name]
    good, root = home / "good", home / "data"
    receipts = filled(good)
    pages = (good / paths.INDEX / "data.mdb").read_bytes()
    used = [at for at in range(0, len(pages), _PAGE) if any(pages[at : at + _PAGE])]
    ends: Counter[str] = Counter()
    for nth in range(0, len(used) * _PAGE, step):
        at = used[nth // _PAGE] + nth % _PAGE
        shutil.copytree(good, root)
        flipped = bytearray(pages)
        flipped[at] ^= 1 << nth % 8
        (root / paths.INDEX / "data.mdb").write_bytes(flipped)
        end = tried(root, receipts, use)
        assert end != _WRONG, f"byte {at}"
        ends["whole" if end == _WHOLE else "refused" if end == _REFUSED else "signal"] += 1
        if end != _WHOLE:
            assert tried(root, receipts, mend) == _WHOLE, f"byte {at} is not mended"
        shutil.rmtree(root)
    print(json.dumps(ends))  # noqa: T201 - what the test reads


if __name__ == "__main__":
    main()
