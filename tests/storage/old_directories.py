"""Makes the data directories that every later release must open: tests/storage/data (see its test).

    python -m tests.storage.old_directories v1        makes v1-clean and v1-journal there

A directory once made is never changed; when the format grows, new ones are made beside it. The index is
left out, because it depends on the machine; it is derived. Beside each directory, a JSON file says what a
reader must find in it.
"""

import json
import shutil
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests import builders
from tests.storage.stores import CONTROL, TINY, A, B, Store, make, message, open_writer
from veen.core.data_dir import paths
from veen.core.objects import labels
from veen.core.objects.new_entry import NewEntry
from veen.core.types import AuthRef, Label
from veen.storage.directory import change_registry
from veen.storage.fs import RealFilesystem
from veen.storage.journal.journal import Binding
from veen.storage.read.reader import Reader

DATA = Path(__file__).parent / "data"
TOKENS = [builders.cap_token(ttl=ttl, streams=("stream",)) for ttl in (100, 200)]
CLIENTS = ("client", "another")


def bound_label(store: Store) -> Label:
    """Return the label of the stream that the tokens are for."""
    return labels.label(labels.routing_key(store.writer.store.hub_id), builders.stream(), 0)


def use(store: Store, label: Label, client: str, auth: AuthRef | None = None) -> None:
    """Commit one message."""
    seq = store.writer.reader.client(label, builders.verify_key(client)).client_seq + 1
    store.record(NewEntry.of_msg(message(label, client, seq, 5, auth)))
    store.tick()


def begin(fs: RealFilesystem) -> Store:
    """Write what both directories have: labels with sealed and open chunks, tokens, control records."""
    make(fs)
    store = Store(open_writer(fs))
    label = bound_label(store)
    for token in TOKENS:
        store.authorize(token)
    store.record(NewEntry.of_control(CONTROL, b"a control record"))
    first = NewEntry.of_msg(message(label, "client", 1, 5, TOKENS[0].auth_ref))
    store.record(first, [Binding(builders.stream(), 0, label)])
    for number in range(9):
        use(store, A, CLIENTS[number % 2])
        use(store, label, "client", TOKENS[number % 2].auth_ref)
    use(store, B, "client")
    store.writer.checkpoint(A, 6)
    store.writer.flush()
    store.writer.prune(A, 4)
    return store


def make_clean(fs: RealFilesystem) -> Store:
    """Make a directory that was stopped cleanly, and whose limits were changed once."""
    store = begin(fs)
    store.writer.close()
    change_registry(
        fs,
        type(TINY)(max_msg_bytes=2_000, max_chunk_bytes=2_300, max_checkpoint_interval=100),
        "bzip2-9",
        owner="make_old",
    )
    later = Store(open_writer(fs), clock=store.clock, receipts=store.receipts)
    for _ in range(8):
        use(later, A, "client")
    later.writer.close()
    return later


def make_journal(fs: RealFilesystem) -> Store:
    """Make a directory whose writer died: with entries in the journal only, and a torn batch at its end."""
    store = begin(fs)
    for label in (A, B, bound_label(store)):
        use(store, label, "another")
    store.writer.checkpoint(B, 1)
    store.authorize(builders.cap_token(ttl=300))
    journal = fs.root / paths.journal(2)
    whole = journal.stat().st_size
    receipts = list(store.receipts)
    use(store, A, "client")
    store.receipts = receipts
    store.writer.abandon()
    journal.write_bytes(journal.read_bytes()[: whole + 300])
    return store


def description(reader: Reader, store: Store) -> dict[str, Any]:
    """Return what is in a directory, as its test will look for it."""
    places = {label: reader.manifest(label) for label in reader.labels()}
    return {
        "receipts": [
            {
                "receipt": item.encode().hex(),
                "content": _content(reader, item.label, item.stream_seq)
                if item.stream_seq >= places[item.label].first_seq
                else None,
            }
            for item in store.receipts
        ],
        "labels": {
            label.hex(): {
                "last": manifest.head.seq,
                "first": manifest.first_seq,
                "checkpoints": [
                    item.encode().hex() for item in reader.checkpoints(label, 1, manifest.head.seq)
                ],
                "clients": {
                    name: reader.client(label, builders.verify_key(name)).client_seq for name in CLIENTS
                },
                "bound": reader.binding(label) is not None,
            }
            for label, manifest in places.items()
        },
        "tokens": {token.auth_ref.hex(): (reader.auth(token.auth_ref) or ())[:2] for token in TOKENS},
    }


def _content(reader: Reader, label: Label, seq: int) -> str:
    return sha256(reader.entry(label, seq).msg_bytes).hexdigest()


MAKERS: dict[str, Callable[[RealFilesystem], Store]] = {"clean": make_clean, "journal": make_journal}


def write(kind: str, place: Path) -> None:
    """Make one directory at a place that is free, and its JSON file beside it."""
    fs = RealFilesystem(place)
    store = MAKERS[kind](fs)
    reader = Reader.open(fs)
    described = description(reader, store)
    reader.close()
    fs.close()
    shutil.rmtree(place / paths.INDEX)
    for path in place.iterdir():
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()  # git does not keep it either
    text = json.dumps(described, indent=1) + "\n"
    place.with_suffix(".json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    DATA.mkdir(exist_ok=True)
    for made in MAKERS:
        write(made, DATA / f"{sys.argv[1]}-{made}")
