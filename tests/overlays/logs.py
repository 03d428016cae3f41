"""Logs that tests write: records one after the other, and what no fold may stumble over."""

from collections.abc import Callable
from hashlib import sha256
from random import Random

from veen.core.encoding import cbor
from veen.core.types import StreamId
from veen.overlays.event import Record
from veen.overlays.schema import Schema

#: Keys of writers.
WRITERS = [sha256(b"writer %d" % nth).digest() for nth in range(4)]
#: A key whose messages with a parent are copies.
BRIDGE = sha256(b"bridge").digest()
T0 = 1_700_000_000
#: A stream that several share.
STREAM = StreamId(sha256(b"stream").digest())

History = Callable[[Random, int], list[Record]]


def ident(*parts: object) -> bytes:
    """Return 32 bytes that are the same for the same parts."""
    return sha256(repr(parts).encode()).digest()


class Log:
    """A log that is being written."""

    def __init__(self, rng: Random, epoch: int = 0) -> None:
        self.rng = rng
        self.epoch = epoch
        self.records: list[Record] = []
        self._numbers: dict[bytes, int] = {}
        self._salt = rng.getrandbits(64)

    def add(self, schema: Schema | bytes | None, body: bytes, **more: object) -> Record:
        """Append a record; returns it."""
        rng = self.rng
        client_id = more.pop("client_id", None) or rng.choice(WRITERS)
        assert isinstance(client_id, bytes)
        number = self._numbers[client_id] = self._numbers.get(client_id, 0) + 1
        seq = len(self.records) + 1
        record = Record(
            stream_seq=seq,
            msg_id=ident(self._salt, self.epoch, seq),
            client_id=client_id,
            client_seq=number,
            hub_ts=T0 + seq,
            schema=schema.schema_id if isinstance(schema, Schema) else schema,
            body=body,
            epoch=self.epoch,
        )
        record = record._replace(**more)  # type: ignore[arg-type] # names of fields
        self.records.append(record)
        return record

    def event(self, schema: Schema, client_id: bytes | None = None, **values: object) -> Record:
        """Append an event with a body that the schema accepts."""
        return self.add(schema, schema.encode(schema.make(**values)), client_id=client_id)


def spoil(log: Log, schemas: tuple[Schema, ...], *, by_parent: bool) -> None:
    """Append something that no fold may stumble over."""
    rng = log.rng
    kind = rng.randrange(6)
    if kind == 0:
        log.add(ident("some other schema"), b"\xa0")
    elif kind == 1:
        log.add(None, b"")
    elif kind == 2:
        log.add(rng.choice(schemas), rng.choice([b"", b"\xff", b"\xa0", b"\x80", cbor.encode({"key": 1})]))
    elif kind == 3 and log.records:
        source = rng.choice(log.records)
        log.add(source.schema, source.body + b"\x00")  # trailing bytes
    elif log.records:
        source = rng.choice(log.records)
        writer = BRIDGE if not by_parent or rng.random() < 0.5 else None
        log.add(source.schema, source.body, client_id=writer, parent_id=source.parent_id or source.msg_id)
