"""The protocol end to end, in one process: what a newcomer runs first.

A message is sealed, signed, ordered, receipted, stored, proved, verified and opened; then someone
tampers with the file and is found out. Every value shown is real and fresh.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from veen.core import labels, layout
from veen.core.captoken import CapToken
from veen.core.checkpoint import Checkpoint
from veen.core.context import MsgContext
from veen.core.ed25519 import SigningKey
from veen.core.entry import Entry
from veen.core.hpke import ReaderKey
from veen.core.limits import DEFAULT_LIMITS
from veen.core.msg import Msg
from veen.core.payload import PayloadHeader
from veen.core.profile import Profile
from veen.core.receipt import Receipt
from veen.core.sealing import open_msg, seal
from veen.core.types import Label, NodeHash, RandomBytes, ReaderSecretKey
from veen.storage import RealFilesystem, Record, StreamEpoch, Writer, create_store
from veen.storage.fsck import check

TEXTS = ("door opened", "badge 4711 accepted", "door closed", "alarm armed", "lights off")


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens: who does what, and the values that come of it."""

    title: str
    says: str
    values: dict[str, str] = field(default_factory=dict)


def _short(data: bytes) -> str:
    return data.hex()[:16] + "…"


class Demo:
    """One hub, one writer and one reader, each with fresh keys."""

    def __init__(self, random: RandomBytes, now: Callable[[], int], root: Path) -> None:
        """Make keys for everybody, and a data directory at ``root``."""
        self.random = random
        self.now = now
        self.root = root
        self.hub = SigningKey.from_seed(random(32))
        self.writer = SigningKey.from_seed(random(32))
        self.issuer = SigningKey.from_seed(random(32))
        self.reader = ReaderKey.from_secret(ReaderSecretKey(random(32)))
        self.profile = Profile(epoch_sec=0, pad_block=256)
        self.routing = labels.routing_key(labels.hub_id(self.hub.public_key))
        self.stream = labels.stream_id("demo")
        self.label = labels.label(self.routing, self.stream, 0)
        self.token = CapToken.mint(self.issuer, self.writer.public_key, stream_ids=[self.stream], ttl=3600)
        self.fs = RealFilesystem(root)
        create_store(self.fs, labels.hub_id(self.hub.public_key), DEFAULT_LIMITS)
        self.store = Writer.open(self.fs, sign_checkpoint=self._checkpoint, random=random, owner="veen demo")

    def _checkpoint(self, label: Label, upto_seq: int, root: NodeHash, _: StreamEpoch | None) -> Checkpoint:
        return Checkpoint.sign(
            self.hub, label_prev=label, label_curr=label, upto_seq=upto_seq, mmr_root=root, epoch=0
        )

    def write(self, client_seq: int, text: str) -> Msg:
        """Seal and sign, as a client does."""
        context = MsgContext(
            profile_id=self.profile.profile_id,
            label=self.label,
            client_id=self.writer.public_key,
            client_seq=client_seq,
            prev_ack=client_seq - 1,
            auth_ref=self.token.auth_ref,
        )
        sealed = seal(
            context,
            recipient=self.reader.public_key,
            header=PayloadHeader(schema=labels.schema_id("chat.v1")),
            body=text.encode(),
            pad_block=self.profile.pad_block,
            random=self.random,
        )
        return Msg.sign(self.writer, context, sealed.ciphertext)

    def order(self, msg: Msg) -> Entry:
        """Verify, append, receipt and make durable, as a hub does."""
        msg.verify()
        batch = self.store.batch()
        hub_ts = max(self.now(), batch.floor_ts)

        def sign(stream_seq: int, mmr_root: NodeHash) -> Receipt:
            return Receipt.sign(
                self.hub,
                label=msg.label,
                stream_seq=stream_seq,
                leaf_hash=msg.leaf_hash,
                mmr_root=mmr_root,
                hub_ts=hub_ts,
            )

        receipt = batch.append(Record.of_msg(msg), sign)
        self.store.commit(batch)  # only now may the receipt leave the hub
        return Entry(msg.encode(), receipt)

    def steps(self) -> Iterator[Step]:
        """Run the whole story."""
        yield self._keys()
        entries = [self.order(self.write(number, text)) for number, text in enumerate(TEXTS, start=1)]
        yield from self._first_message(entries[0])
        yield from self._proofs(entries)
        yield self._opened(entries[1])
        self.store.close()
        yield self._checked()
        yield self._tampered()
        self.fs.close()

    def _keys(self) -> Step:
        self.token.verify()
        return Step(
            "Keys and a stream",
            "The hub signs receipts, the writer signs messages, the reader alone can open them. The writer "
            "holds a capability token for one stream.",
            {
                "hub_id": _short(labels.hub_id(self.hub.public_key)),
                "writer": _short(self.writer.public_key),
                "stream": f"demo = {_short(self.stream)}",
                "label": _short(self.label),
                "auth_ref": _short(self.token.auth_ref),
            },
        )

    def _first_message(self, entry: Entry) -> Iterator[Step]:
        msg = entry.verify(self.hub.public_key)
        yield Step(
            "Sealed and signed",
            f"{TEXTS[0]!r} is encrypted for the reader, padded so that its length says nothing, and signed.",
            {
                "MSG": f"{len(entry.msg_bytes)} bytes, ciphertext {len(msg.ciphertext)} of them",
                "msg_id": _short(msg.leaf_hash),
            },
        )
        yield Step(
            "Ordered and receipted",
            "The hub sees no plaintext. It appends the message to the label's log and signs where it stands. "
            "The receipt leaves when the entry is on disk.",
            {
                "RECEIPT": f"{len(entry.receipt.encode())} bytes",
                "stream_seq": str(entry.receipt.stream_seq),
                "mmr_root": _short(entry.receipt.mmr_root),
                "log entry": f"{len(entry.encode())} bytes on disk, hash {_short(entry.entry_hash)}",
            },
        )

    def _proofs(self, entries: list[Entry]) -> Iterator[Step]:
        size = len(entries)
        reader = self.store.reader
        checkpoint = self.store.checkpoint(self.label, size)
        checkpoint.verify_signature(self.hub.public_key)
        checkpoint.verify_labels(self.routing, self.stream)
        proof = reader.prove(self.label, 2, size)
        second = entries[1].receipt
        proof.verify(checkpoint.mmr_root, second.leaf_hash, stream_seq=2, mmr_size=checkpoint.upto_seq)
        yield Step(
            "Proved",
            f"A checkpoint commits to all {size} entries. Anyone can check that message 2 is among them, "
            "offline and without secrets.",
            {
                "CHECKPOINT": f"upto_seq {checkpoint.upto_seq}, root {_short(checkpoint.mmr_root)}",
                "inclusion proof": f"{len(proof.encode())} bytes, {len(proof.path)} steps",
            },
        )
        history = reader.prove_consistency(self.label, 2, size)
        history.verify(
            old_root=second.mmr_root, old_size=2, new_root=checkpoint.mmr_root, new_size=checkpoint.upto_seq
        )
        yield Step(
            "Nothing was rewritten",
            "A consistency proof shows that the log at receipt 2 is a prefix of the log at the checkpoint.",
            {"consistency proof": f"{len(history.encode())} bytes"},
        )

    def _opened(self, entry: Entry) -> Step:
        msg = entry.verify(self.hub.public_key)
        opened = open_msg(msg, self.reader, pad_block=self.profile.pad_block)
        return Step(
            "Opened",
            "The reader verifies receipt and message, then decrypts.",
            {"message 2": repr(opened.body.decode())},
        )

    def _checked(self) -> Step:
        report = check(self.fs, hub_keys=(self.hub.public_key,))
        assert report.ok, report.findings
        return Step(
            "Checked offline",
            "The hub is stopped. An auditor with the files and the hub's public key checks everything: "
            "frames, hashes, roots, signatures.",
            {
                "files": f"{sum(path.is_file() for path in self.root.rglob('*'))} in the data directory",
                "integrity": report.integrity,
            },
        )

    def _tampered(self) -> Step:
        chunk = self.root / layout.open_chunk(layout.Domain.DATA, self.label, 1)
        data = bytearray(chunk.read_bytes())
        data[200] ^= 1
        chunk.write_bytes(data)
        report = check(self.fs, hub_keys=(self.hub.public_key,))
        assert not report.ok, "a flipped bit went unnoticed"
        first = report.findings[0]
        return Step(
            "Tampered with",
            "Someone flips one bit of the chunk file.",
            {"found out": f"{first.path} at byte {first.offset}: {first.reason}"},
        )
