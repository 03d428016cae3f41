"""Data directories for tests of the pipeline: a real log, written by the storage engine."""

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests import builders
from veen.core.data_dir.hub_settings import HubSettings
from veen.core.limits import Limits
from veen.core.objects import labels
from veen.core.objects.msg import Msg, MsgContext, PayloadHeader
from veen.core.objects.new_entry import NewEntry
from veen.core.objects.receipt import Receipt
from veen.core.objects.sealed_payload import seal
from veen.core.types import AuthRef, HubId, Label, LeafHash, SchemaId, VerifyKey
from veen.hub.home import create_home, open_home, rotate
from veen.hub.keyring import CheckpointSigner, signing
from veen.storage import Binding, Options, RealFilesystem, Writer

#: A chunk takes twenty small entries, so that a hundred messages make several.
SMALL = Limits(max_chunk_bytes=40_000, max_msg_bytes=20_000, max_checkpoint_interval=20)
CHAT = labels.schema_id("chat.v1")
START = 1_700_000_000


@dataclass(frozen=True)
class Sent:
    """What is to be written: by whom, for whom, of which schema."""

    body: bytes
    client: str = "ann"
    reader: str = "reader"
    schema: SchemaId = CHAT
    parent_id: LeafHash | None = None
    cap_ref: AuthRef | None = None
    expires_at: int | None = None


@dataclass
class Hub:
    """A log being written; ``clock`` is the hub's time. ``close`` or ``leave`` before this process reads."""

    root: Path
    epoch_sec: int = 0
    limits: Limits = SMALL
    name: str = "hub"
    segment_bytes: int = 1 << 20
    clock: int = START
    #: Whether it takes note of which stream a label is of.
    binds: bool = True
    receipts: list[Receipt] = field(default_factory=list)
    _acks: dict[tuple[Label, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        self.fs = RealFilesystem(self.root)
        self.random = builders.counted_random(self.name)
        settings = HubSettings(epoch_sec=self.epoch_sec, pad_blocks=(256,), require_cap=False)
        self.home = create_home(self.fs, settings, self.limits, self.random)
        self.profile = settings.profiles[0]
        self.writer = self._open()

    def _open(self) -> Writer:
        writer: Writer | None = None

        def hub_ts_of(label: Label, seq: int) -> int | None:
            return None if writer is None else writer.reader.entry(label, seq).receipt.hub_ts

        signer = CheckpointSigner(
            self.home.ring,
            epoch_sec=self.epoch_sec,
            max_skew_sec=60,
            clock=lambda: self.clock,
            hub_ts_of=hub_ts_of,
        )
        writer = Writer.open(
            self.fs,
            sign_checkpoint=signer,
            random=self.random,
            owner="a test",
            options=Options(segment_bytes=self.segment_bytes),
        )
        return writer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Move everything into chunks and let go."""
        self.writer.close()
        self.fs.close()

    def leave(self) -> None:
        """Let go as a killed hub does: what was acknowledged last is in the journal only."""
        self.writer.abandon()
        self.fs.close()

    def reopen(self) -> None:
        """Open the directory again, as its writer."""
        self.fs = RealFilesystem(self.root)
        self.home = open_home(self.fs)
        self.writer = self._open()

    @property
    def hub_id(self) -> HubId:
        return self.home.identity.hub_id

    def label(self, stream: str) -> Label:
        """Return the label of a stream at the time that it is."""
        epoch = labels.epoch_at(self.clock, self.epoch_sec)
        return labels.label(self.home.identity.routing_key, labels.stream_id(stream), epoch)

    def tick(self, seconds: int = 1) -> None:
        self.clock += seconds

    def rotate(self) -> None:
        """Give the hub another key, from now on."""
        self.writer.close()
        self.home = rotate(self.fs, self.home, self.random, at=self.clock, overlap_sec=1)
        self.writer = self._open()

    def write(self, stream: str, *bodies: bytes, client: str = "ann") -> list[Receipt]:
        """Write messages of a client, in one batch."""
        return self.send(stream, [Sent(body, client) for body in bodies])

    def send(self, stream: str, items: Iterable[Sent]) -> list[Receipt]:
        """Write messages, in one batch."""
        label, stream_id = self.label(stream), labels.stream_id(stream)
        epoch = labels.epoch_at(self.clock, self.epoch_sec)
        batch = self.writer.batch()
        made: list[Receipt] = []
        for item in items:
            position = batch.client(label, builders.verify_key(item.client))
            msg = self._sealed(label, item, position.client_seq + 1, position.prev_ack)
            record = NewEntry.of_msg(msg)
            key = self.home.ring.active(self.clock)
            made.append(batch.append(record, signing(key, record, self.clock)))
            if self.binds and batch.binding(label) is None:
                batch.bind(Binding(stream_id, epoch, label))
            self._acks[label, item.client] = made[-1].stream_seq
        self.writer.commit(batch)
        self.receipts += made
        return made

    def _sealed(self, label: Label, item: Sent, client_seq: int, acked: int) -> Msg:
        context = MsgContext(
            profile_id=self.profile.profile_id,
            label=label,
            client_id=VerifyKey(builders.verify_key(item.client)),
            client_seq=client_seq,
            prev_ack=max(self._acks.get((label, item.client), 0), acked),
            auth_ref=None,
        )
        header = PayloadHeader(
            schema=item.schema,
            parent_id=item.parent_id,
            cap_ref=item.cap_ref,
            expires_at=item.expires_at,
        )
        sealed = seal(
            context,
            recipient=builders.reader_public(item.reader),
            header=header,
            body=item.body,
            pad_block=self.profile.pad_block,
            random=self.random,
        )
        return Msg.sign(builders.signing_key(item.client), context, sealed.ciphertext)


def varied(root: Path, count: int = 300, **options: object) -> Hub:
    """Return a log with several labels, writers, times, a new key on the way, and a tail in the journal."""
    hub = Hub(root, **options)  # type: ignore[arg-type]
    for number in range(count):
        stream = ("alpha", "beta", "beta", "gamma")[number % 4]
        client = ("ann", "bob", "cid")[number * 7 % 3]
        hub.write(stream, f"message {number}".encode() * (1 + number % 5), client=client)
        if number % 10 == 9:
            hub.tick(7)
        if number == count // 2:
            hub.writer.flush()
            hub.tick()
            hub.rotate()
            hub.tick()
    return hub


def prune(root: Path, label: Label, upto: int) -> None:
    """Prune a label of a directory that nobody writes, in another process: this one may be reading it."""
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from veen.hub.home import open_home\n"
        "from veen.hub.keyring import CheckpointSigner\n"
        "from veen.storage import RealFilesystem, Writer\n"
        "fs = RealFilesystem(Path(sys.argv[1]))\n"
        "signer = CheckpointSigner(open_home(fs).ring, epoch_sec=0, max_skew_sec=60, clock=lambda: 0)\n"
        "writer = Writer.open(fs, sign_checkpoint=signer, random=os.urandom, owner='a test')\n"
        "writer.prune(bytes.fromhex(sys.argv[2]), int(sys.argv[3]))\n"
        "writer.close()\n"
    )
    subprocess.run([sys.executable, "-c", script, str(root), label.hex(), str(upto)], check=True, timeout=60)
