"""Random histories: what writers, careless and hostile ones among them, may have put in a log.

One function for each overlay of the registry, added to ``HISTORIES``. A history has few keys, so that events
meet; bad bodies, unknown schemas, sealed entries and copies are mixed in by ``spoil``.
"""

from collections.abc import Callable
from hashlib import sha256
from random import Random

from veen.core import cbor
from veen.overlays.crdt import COUNTER, LWW, ORSET
from veen.overlays.events import Record
from veen.overlays.rpc import REPLY, REQUEST, failure, success
from veen.overlays.schema import Schema

#: Keys of writers.
WRITERS = [sha256(b"writer %d" % nth).digest() for nth in range(4)]
#: A key whose messages with a parent are copies.
BRIDGE = sha256(b"bridge").digest()
T0 = 1_700_000_000

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


def lww(rng: Random, count: int) -> list[Record]:
    """Registers with few keys and few times: ties occur."""
    log = Log(rng)
    while len(log.records) < count:
        if rng.random() < 0.2:
            spoil(log, (LWW,), by_parent=False)
        else:
            log.event(
                LWW, key=b"k%d" % rng.randrange(5), ts=rng.randrange(6), value=b"v%d" % rng.randrange(9)
            )
    return log.records


def orset(rng: Random, count: int) -> list[Record]:
    """A set with ids used twice, and tombs before and after additions."""
    log = Log(rng)
    while len(log.records) < count:
        if rng.random() < 0.2:
            spoil(log, (ORSET,), by_parent=False)
        elif rng.random() < 0.6:
            log.event(ORSET, id=ident(rng.randrange(count)), elem=b"e%d" % rng.randrange(4))
        else:
            log.event(ORSET, tomb=tuple(ident(rng.randrange(count)) for _ in range(rng.randrange(4))))
    return log.records


def counter(rng: Random, count: int) -> list[Record]:
    """Shards with large and small steps."""
    log = Log(rng)
    while len(log.records) < count:
        if rng.random() < 0.2:
            spoil(log, (COUNTER,), by_parent=False)
        else:
            log.event(COUNTER, shard=ident(rng.randrange(3)), delta=rng.choice([0, 1, 7, 2**40]))
    return log.records


def rpc(rng: Random, count: int) -> list[Record]:
    """Calls that are repeated, answered twice, not at all, or by nobody's request."""
    log = Log(rng)
    while len(log.records) < count:
        requests = [record for record in log.records if record.schema == REQUEST.schema_id]
        if rng.random() < 0.2:
            spoil(log, (REQUEST, REPLY), by_parent=False)
        elif rng.random() < 0.5 or not requests:
            idem = rng.choice([None, 1, 2])
            log.event(REQUEST, method=rng.choice(["add", "sub"]), args=[rng.randrange(2)], idem=idem)
        else:
            body = rng.choice([success(None), success(rng.randrange(2)), failure("NO"), failure("NO", "why")])
            parent = rng.choice([None, ident("nobody's"), *(record.msg_id for record in requests)])
            log.add(REPLY, body, parent_id=parent)
    return log.records


HISTORIES: dict[str, History] = {"crdt.lww": lww, "crdt.orset": orset, "crdt.gcnt": counter, "rpc": rpc}
