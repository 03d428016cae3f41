"""A log for the pipeline: real messages, sealed and signed, in a hub's data directory."""

import os
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from multiprocessing import Pool
from pathlib import Path
from time import time

from veen.client.home.directory import ClientHome
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
from veen.hub.home import create_home, open_home
from veen.hub.keyring import CheckpointSigner, KeyRing, signing
from veen.storage import Binding, RealFilesystem, Writer

# Shares in percent: a few busy streams, and quiet ones.
_SHARES = (40, 25, 20, 10, 5)
STREAMS = tuple(f"stream {nth}" for nth in range(len(_SHARES)))
_CLIENTS = 16
_BATCH = 512
_SCHEMA = labels.schema_id("chat.v1")
# Sealed, signed and framed with its receipt, an entry has about 640 bytes.
_BODY = b'{"text": "a line of a chat, as long as people write them"}'
_START = 1_700_000_000
_PROFILE = Profile(epoch_sec=0, pad_block=0)


@dataclass(frozen=True, slots=True)
class _Order:
    """A message to create."""

    label: Label
    client: int
    client_seq: int
    prev_ack: int


def _client(number: int) -> SigningKey:
    return SigningKey.from_seed(sha256(b"client %d" % number).digest())


def reader_secret() -> bytes:
    """Return the key that opens all messages."""
    return sha256(b"the reader of the bench").digest()


def _made(order: _Order) -> Msg:
    key = _client(order.client)
    context = MsgContext(
        profile_id=_PROFILE.profile_id,
        label=order.label,
        client_id=key.public_key,
        client_seq=order.client_seq,
        prev_ack=order.prev_ack,
        auth_ref=None,
    )
    sealed = seal(
        context,
        recipient=hpke.public_key(ReaderSecretKey(reader_secret())),
        header=PayloadHeader(schema=_SCHEMA),
        body=_BODY,
        pad_block=0,
        random=os.urandom,
    )
    return Msg.sign(key, context, sealed.ciphertext)


class BenchLog:
    """A data directory that can grow, and a client that can read it."""

    def __init__(self, root: Path) -> None:
        self.root = root / "hub"
        self.client = root / "client"
        self._fs = RealFilesystem(self.root)
        if (self.root / "store.cbor").exists():
            self._ring: KeyRing = open_home(self._fs).ring
        else:
            self.root.mkdir(parents=True)
            settings = HubSettings(epoch_sec=0, pad_blocks=(0,), require_cap=False)
            self._ring = create_home(self._fs, settings, Limits(), os.urandom).ring
            self._make_client()
        routing = self._ring.identity.routing_key
        self._streams = [labels.stream_id(name) for name in STREAMS]
        self._labels = [labels.label(routing, stream, 0) for stream in self._streams]

    def _make_client(self) -> None:
        streams = tuple(
            StreamKey(stream_id=labels.stream_id(name), secret=reader_secret(), created_at=_START)
            for name in STREAMS
        )
        fresh = Secrets.generate(os.urandom, int(time()))
        secrets = Secrets(
            id_sign=fresh.id_sign,
            id_dh=fresh.id_dh,
            clients=fresh.clients,
            prekeys=fresh.prekeys,
            streams=streams,
        )
        ClientHome.create(self.client, secrets, now=int(time()))

    def grow(self, count: int, processes: int = 0) -> None:
        """Add entries; messages are created by this many processes, or by this one, which stores them."""
        signer = CheckpointSigner(
            self._ring,
            epoch_sec=0,
            max_skew_sec=60,
            clock=lambda: _START,
            hub_ts_of=lambda label, seq: writer.reader.entry(label, seq).receipt.hub_ts,
        )
        writer = Writer.open(self._fs, sign_checkpoint=signer, random=os.urandom, owner="bench")
        key = self._ring.active(_START)
        start = sum(writer.reader.last_seq(label) for label in self._labels)
        orders = self._orders(writer, start, count)
        with Pool(processes) if processes else nullcontext() as pool:
            messages = map(_made, orders) if pool is None else pool.imap(_made, orders, chunksize=64)
            done = start
            while portion := list(islice(messages, _BATCH)):
                batch = writer.batch()
                for msg in portion:
                    record = NewEntry.of_msg(msg)
                    batch.append(record, signing(key, record, _START + done // 100))
                    done += 1
                    if batch.binding(msg.label) is None:
                        stream = self._streams[self._labels.index(msg.label)]
                        batch.bind(Binding(stream, 0, msg.label))
                writer.commit(batch)
        writer.close()

    def _orders(self, writer: Writer, start: int, count: int) -> Iterator[_Order]:
        by_hundred = sorted(range(100), key=lambda at: sha256(b"%d" % at).digest())
        shares = [nth for nth, share in enumerate(_SHARES) for _ in range(share)]
        heads = {label: writer.reader.last_seq(label) for label in self._labels}
        known: dict[tuple[Label, int], tuple[int, int]] = {}
        for number in range(start, start + count):
            label = self._labels[shares[by_hundred[number % 100]]]
            client = number * 7 % _CLIENTS
            client_of_label = label, client
            if client_of_label not in known:
                cursor = writer.reader.client(label, _client(client).public_key)
                known[client_of_label] = cursor.client_seq, cursor.prev_ack
            seq, ack = known[client_of_label]
            yield _Order(label, client, seq + 1, ack)
            heads[label] += 1
            known[client_of_label] = seq + 1, heads[label]

    def close(self) -> None:
        """Close the directory."""
        self._fs.close()
