"""Steps about durability: files of the hub and the state of a client, also after a crash."""

import base64
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from veen.client.client import Client
from veen.client.errors import NetworkError
from veen.client.home.directory import STATE
from veen.client.models import Draft, Message, Sent
from veen.core.data_dir import paths as layout
from veen.core.data_dir.paths import Domain
from veen.core.merkle.mmr import Peaks
from veen.core.types import Label, NodeHash
from veen.selftest.context import Context
from veen.selftest.servers import CHUNK_ENTRIES, CONFIGS, TempHub, veen
from veen.selftest.step import Needs, check, equal, step

_FILES: Final = "it reads the hub's files, so it needs its own hub"
_ACCIDENT: Final = "it kills or stops the hub, so it needs its own hub"
_MANY: Final = 1000
# At an existing hub, where the messages remain.
_SOME: Final = 50


@step(own=_FILES)
def no_plaintext(ctx: Context) -> str:
    """No plaintext is in the files or logs of the hub, in any usual encoding."""
    client, text = ctx.client(), ctx.marker()
    stream, schema = f"{text}/stream", {"secret": text, "again": [text, text.upper()]}
    for _ in range(3):
        client.send(stream, schema, attachments=[text.encode() * 3])
    check([item.body for item in client.read(stream)], "the reader cannot open anything")
    forms = (
        text.encode(),
        text.upper().encode(),
        text.encode().hex().encode(),
        base64.b64encode(text.encode() * 3)[4:40],
        bytes.fromhex(text.partition("-")[2]),
    )
    paths = [ctx.hub.log, *(path for path in ctx.hub.place.rglob("*") if path.is_file())]
    for path in paths:
        data = path.read_bytes()
        for form in forms:
            check(form not in data, f"{path.relative_to(ctx.scratch)} contains what was sent")
    return f"{len(paths)} files searched"


@step(own=_ACCIDENT)
def rotation(ctx: Context) -> str:
    """Chunks are sealed when they are full, each with its index files, and all entries stay readable."""
    hub, stream = ctx.hubs.fresh(CONFIGS[Needs.OPEN]), ctx.name("rotation")
    client = ctx.client(hub=hub.url)
    count = 3 * CHUNK_ENTRIES + 5
    sent = list(client.send_many(stream, [Draft(n) for n in range(count)]))
    label, home = sent[0].receipt.label, client.session.home.root
    client.close()
    hub.stop()
    spans = [(end - CHUNK_ENTRIES + 1, end) for end in range(CHUNK_ENTRIES, count, CHUNK_ENTRIES)]
    expected = [
        *(layout.chunk(Domain.DATA, label, *span) for span in spans),
        *(layout.summary(Domain.DATA, label, *span) for span in spans),
        *(layout.peaks(Domain.DATA, label, end) for _, end in spans),
        *(layout.checkpoint(Domain.DATA, label, end) for _, end in spans),
        layout.checkpoint_index(Domain.DATA, label),
        layout.nodes(Domain.DATA, label),
    ]
    # A chunk may be compressed once it is sealed.
    here = {path.relative_to(hub.place).as_posix().removesuffix(".bz2") for path in hub.place.glob("log/*")}
    missing = [name for name in expected if name not in here]
    check(not missing, f"{len(missing)} files are missing, the first is {missing[:1]}")
    report = _retention(ctx, hub, label)
    sealed = [(item["start_seq"], item["end_seq"]) for item in report["chunks"] if item["state"] == "sealed"]
    equal(sealed, spans, "sealed chunks, by veen retention show")
    equal((report["first_seq"], report["last_seq"]), (1, count), "entries that are retained")
    offline = ctx.client(home, str(hub.place))
    equal([item.body for item in offline.read(stream)], list(range(count)), "the stream")
    return f"{len(spans)} chunks of {CHUNK_ENTRIES} entries, {len(expected)} files"


def _retention(ctx: Context, hub: TempHub, label: Label) -> dict[str, Any]:
    done = veen(ctx.scratch, "retention", "show", "--data-dir", hub.place, "--json")
    equal(done.returncode, 0, f"exit code of veen retention show ({done.stderr.strip()})")
    labels: list[dict[str, Any]] = json.loads(done.stdout)["labels"]
    return next(item for item in labels if item["label"] == label.hex())


# --- state of a client --------------------------------------------------------------------------------------


@step()
def resync(ctx: Context) -> str:
    """A client that lost its state recovers it by a resync, and resumes where it was."""
    client, stream = ctx.client(), ctx.name("resync")
    count = _SOME if ctx.url else _MANY
    sent = list(client.send_many(stream, [Draft(n) for n in range(count)]))
    before = client.session.home.load().labels[sent[0].receipt.label]
    root = client.session.home.root
    client.close()
    (root / STATE).unlink()
    reopened = ctx.client(root)
    (done,) = reopened.resync(stream)
    equal((done.last_stream_seq, done.read, done.rebuilt), (count, count, True), "entries read again")
    equal(done.last_mmr_root, sent[-1].receipt.mmr_root, "root")
    after = reopened.session.home.load().labels[sent[0].receipt.label]
    equal(after.peaks, before.peaks, "peaks")
    equal(after.prev_ack, before.prev_ack, "prev_ack")
    equal(after.writers[sent[0].msg.client_id].client_seq, count, "client_seq")
    consistent(reopened, stream)
    equal(reopened.send(stream, "more").position, count + 1, "position of the next message")
    return f"{count} messages read again, the same root"


def consistent(client: Client, stream: str) -> None:
    """Fail unless the client's state of a stream agrees with the hub."""
    for item in client.verify_state(stream):
        check(item.consistent, f"the state differs from entry {item.first_mismatch} on: {item.why}")


@step()
def verify_state(ctx: Context) -> str:
    """A client detects whether its state agrees with the hub, and where they begin to differ."""
    client, stream, count = ctx.client(), ctx.name("verify"), 16
    (*_, last) = client.send_many(stream, [Draft(n) for n in range(count)])
    consistent(client, stream)
    home = client.session.home
    state = home.load()
    # A range of 16 leaves has one peak, which is its root.
    false_root = NodeHash(ctx.random.randbytes(32))
    label_state = state.labels[last.receipt.label]
    label_state.peaks = Peaks(count, (false_root,))
    label_state.receipt = replace(last.receipt, mmr_root=false_root)
    home.save(state)
    consistencies = ctx.client(home.root).verify_state(stream)
    check(any(not item.consistent for item in consistencies), "a false root was accepted")
    return "the true root confirmed, a false one detected"


# --- crashes ------------------------------------------------------------------------------------------------


@step(own=_ACCIDENT)
def killed_hub(ctx: Context) -> str:
    """A hub that is killed under load has every message that has a receipt, and resumes."""
    hub, stream = ctx.hubs.fresh('require_cap = "false"\n'), ctx.name("killed")
    home = ctx.home()
    sent: list[Sent] = []
    enough = threading.Event()
    sender = threading.Thread(target=_send_until_dead, args=(ctx.client(home, hub.url), stream, sent, enough))
    sender.start()
    try:
        check(enough.wait(20), "the hub accepts too few messages")
    finally:
        hub.kill()
        sender.join()
    hub.start()
    client = ctx.client(home, hub.url)
    # A pending message is resent first: it has its position if it was accepted, else it gets a new one.
    last = client.send(stream, "after")
    messages = list(client.read(stream))
    equal(
        [item.receipt for item in messages[: len(sent)]],
        [item.receipt for item in sent],
        f"the {len(sent)} receipts given before",
    )
    check(len(sent) + 1 <= len(messages) <= len(sent) + 2, f"{len(messages)} entries of {len(sent)} receipts")
    equal(messages[-1].msg_id, last.msg_id, "the last entry")
    equal([item.body for item in messages[:-1]], list(range(len(messages) - 1)), "the stream")
    consistent(client, stream)
    hub.kill()
    return f"killed after {len(sent)} receipts, all are in the log"


def _send_until_dead(client: Client, stream: str, sent: list[Sent], enough: threading.Event) -> None:
    try:
        while True:
            sent.append(client.send(stream, len(sent)))
            if len(sent) >= _SOME:
                enough.set()
    except NetworkError:
        client.close()


@step(own=_ACCIDENT)
def offline_read(ctx: Context) -> str:
    """Reading a hub's directory without the hub gives the same results as the hub."""
    hub, stream = ctx.hubs.fresh('require_cap = "false"\n'), ctx.name("offline")
    client = ctx.client(hub=hub.url)
    for n in range(40):
        client.send(stream, {"n": n}, attachments=[ctx.random.randbytes(64)] if n % 10 == 0 else ())
    live = list(_everything(client, stream))
    root = client.session.home.root
    client.close()
    hub.stop()
    offline = ctx.client(root, str(hub.place))
    equal(list(_everything(offline, stream)), live, "the stream, read from files")
    consistent(offline, stream)
    done = veen(ctx.scratch, "fsck", hub.place)
    equal(done.returncode, 0, f"exit code of veen fsck ({done.stdout.strip()} {done.stderr.strip()})")
    return f"{len(live)} entries, the same from files"


def _everything(client: Client, stream: str) -> Iterator[tuple[Any, ...]]:
    for item in client.read(stream):
        yield item.msg.encode(), item.receipt.encode(), str(item.body), _files_of(client, item)


def _files_of(client: Client, message: Message) -> list[bytes]:
    return [client.attachment(message, index) for index in range(len(message.attachments))]


STEPS: Final = (
    no_plaintext,
    rotation,
    resync,
    verify_state,
    killed_hub,
    offline_read,
)
