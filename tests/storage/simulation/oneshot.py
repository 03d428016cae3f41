"""A process that writes to a data directory and says what it was promised: ``oneshot.py DIR BATCHES``.

A line with a receipt in hex goes to standard output after its batch was committed, and not before. 0 batches:
until somebody ends it.
"""

import sys
from itertools import count
from pathlib import Path

from tests.storage.stores import A, B, Store, make, open_writer
from veen.storage.errors import StorageError
from veen.storage.fs import RealFilesystem

_BODIES = (5, 300, 900)


def main() -> int:
    """Write, and report."""
    root, batches = Path(sys.argv[1]), int(sys.argv[2])
    fs = RealFilesystem(root)
    if not (root / "store.cbor").exists():
        make(fs)
    store = Store(open_writer(fs, segment_bytes=8_000))
    store.clock = store.writer.floor_ts + 1
    # One at a time is easier to interrupt at a chosen place; at once with others is what a hub does.
    if not batches:
        store.writer.start_background(interval_sec=0.01)
    for number in range(batches) if batches else count():
        for receipt in store.append(A, B, A, client=f"client {number % 3}", body_size=_BODIES[number % 3]):
            sys.stdout.write(receipt.encode().hex() + "\n")
        sys.stdout.flush()
        store.tick()
    store.writer.stop_background()
    store.writer.close()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (StorageError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(3)
