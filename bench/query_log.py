"""A log of recorder events to query, and its lake; both are created once and reused."""

import os
from hashlib import sha256
from itertools import islice
from multiprocessing import Pool
from pathlib import Path

from pyspark.sql import SparkSession

from veen.client.keys.keystore import Secrets, StreamKey
from veen.core.crypto import hpke
from veen.core.crypto.ed25519 import SigningKey
from veen.core.data_dir.hub_settings import HubSettings
from veen.core.limits import Limits
from veen.core.objects import labels
from veen.core.objects.msg import Msg, MsgContext, PayloadHeader
from veen.core.objects.new_entry import NewEntry
from veen.core.objects.sealed_payload import seal
from veen.core.profile import Profile
from veen.core.types import Label, ReaderSecretKey
from veen.hub.home import create_home
from veen.hub.keyring import CheckpointSigner, KeyRing, signing
from veen.overlays.recorder.schemas import EVENT
from veen.pipeline.lake.lake import lock_lake
from veen.pipeline.lake_jobs.ingest import Ingest
from veen.pipeline.log.open import open_log
from veen.pipeline.open.keyring import Keyring
from veen.pipeline.shared_keys import sharing
from veen.storage import Binding, RealFilesystem, Writer

STREAM = "record/app/bench"
# Events are spread over thirty days, ordered by time, as a recorder writes them.
START = 1_700_000_000
DAYS = 30
SUBJECTS = 4_000
_TYPES = ("http.request", "login", "logout", "job.done", "job.failed")
_ORIGINS = ("web-1", "web-2", "worker-1")
_CLIENTS = 8
_BATCH = 512
_PROFILE = Profile(epoch_sec=0, pad_block=0)
_SECRET = ReaderSecretKey(sha256(b"the reader of the bench").digest())


def subject(number: int) -> str:
    """Return the name of a subject."""
    return f"user-{number:05d}"


def _client(number: int) -> SigningKey:
    return SigningKey.from_seed(sha256(b"recorder %d" % number).digest())


def _body(number: int, total: int) -> bytes:
    chance = int.from_bytes(sha256(b"event %d" % number).digest()[:8], "big")
    return EVENT.encode(
        EVENT.make(
            subject_id=subject(chance % SUBJECTS),
            principal_id=_client(number % _CLIENTS).public_key.hex(),
            event_type=_TYPES[chance // SUBJECTS % len(_TYPES)],
            event_time=START + number * DAYS * 86_400 // total,
            origin=_ORIGINS[chance // 7 % len(_ORIGINS)],
            payload={"path": f"/items/{chance % 997}", "status": 200 + chance % 5, "ms": chance % 1000},
        )
    )


def _made(order: tuple[Label, int, int]) -> Msg:
    label, number, total = order
    key = _client(number % _CLIENTS)
    context = MsgContext(
        profile_id=_PROFILE.profile_id,
        label=label,
        client_id=key.public_key,
        client_seq=number // _CLIENTS + 1,
        prev_ack=max(number - _CLIENTS + 1, 0),
        auth_ref=None,
    )
    sealed = seal(
        context,
        recipient=hpke.public_key(_SECRET),
        header=PayloadHeader(schema=EVENT.schema_id),
        body=_body(number, total),
        pad_block=0,
        random=os.urandom,
    )
    return Msg.sign(key, context, sealed.ciphertext)


class QueryLog:
    """A hub's data directory with recorder events, and the path of its lake."""

    def __init__(self, root: Path, events: int) -> None:
        self.directory = root / f"events-{events}"
        self.root = self.directory / "hub"
        self.lake = self.directory / "lake"
        self.events = events

    def make(self, spark: SparkSession, processes: int) -> None:
        """Create the log and the lake unless they exist; remove an incomplete directory by hand."""
        if not (self.directory / "written").exists():
            self._write(processes)
            (self.directory / "written").touch()
        if not (self.directory / "ingested").exists():
            self._ingest(spark)
            (self.directory / "ingested").touch()

    def _write(self, processes: int) -> None:
        self.root.mkdir(parents=True)
        fs = RealFilesystem(self.root)
        settings = HubSettings(epoch_sec=0, pad_blocks=(0,), require_cap=False)
        ring = create_home(fs, settings, Limits(), os.urandom).ring
        _fill(fs, ring, self.events, processes)
        fs.close()

    def _ingest(self, spark: SparkSession) -> None:
        secrets = Secrets.generate(os.urandom, START)
        key = StreamKey(stream_id=labels.stream_id(STREAM), secret=_SECRET, created_at=START)
        keyring, log = Keyring(secrets.with_stream(key)), open_log(str(self.root))
        with sharing(spark, keyring) as shared, lock_lake(self.lake, create=True) as lake:
            Ingest(spark, lake, log, keyring=keyring, shared=shared, overlays=()).run()
        log.close()


def _fill(fs: RealFilesystem, ring: KeyRing, events: int, processes: int) -> None:
    clock = START
    signer = CheckpointSigner(
        ring,
        epoch_sec=0,
        max_skew_sec=60,
        clock=lambda: clock,
        hub_ts_of=lambda label, seq: writer.reader.entry(label, seq).receipt.hub_ts,
    )
    writer = Writer.open(fs, sign_checkpoint=signer, random=os.urandom, owner="bench")
    stream = labels.stream_id(STREAM)
    label = labels.label(ring.identity.routing_key, stream, 0)
    key = ring.active(START)
    with Pool(processes) as pool:
        orders = ((label, number, events) for number in range(events))
        messages = pool.imap(_made, orders, chunksize=64)
        done = 0
        while portion := list(islice(messages, _BATCH)):
            batch = writer.batch()
            for msg in portion:
                record = NewEntry.of_msg(msg)
                batch.append(record, signing(key, record, START + done * DAYS * 86_400 // events))
                done += 1
                if batch.binding(label) is None:
                    batch.bind(Binding(stream, 0, label))
            writer.commit(batch)
    writer.close()
