"""Random histories: what writers, careless and hostile ones among them, may have put in a log.

One function for each overlay of the registry, added to ``HISTORIES``. A history has few keys, so that events
meet; bad bodies, unknown schemas, sealed entries and copies are mixed in by ``spoil``.
"""

from collections.abc import Mapping
from random import Random
from typing import Any

from tests.overlays.histories_operations import OPERATION_HISTORIES, OPERATION_PARAMETERS
from tests.overlays.histories_recorder import RECORDER_HISTORIES
from tests.overlays.histories_wallet import OWN_STREAM, WALLET_HISTORIES
from tests.overlays.logs import BRIDGE, STREAM, T0, WRITERS, History, Log, ident, spoil
from veen.core.types import StreamId
from veen.overlays.builtin.crdt import COUNTER, LWW, ORSET
from veen.overlays.builtin.rpc import REPLY, REQUEST, failure, success
from veen.overlays.event import Record

__all__ = [
    "BRIDGE",
    "HISTORIES",
    "PARAMETERS",
    "STREAM",
    "T0",
    "WRITERS",
    "Log",
    "ident",
    "spoil",
    "stream_of",
]


def stream_of(seed: int) -> StreamId:
    """Return the stream that a history stands in: a shared one, and for odd seeds the own one of a wallet."""
    return OWN_STREAM if seed % 2 else STREAM


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


HISTORIES: dict[str, History] = {
    "crdt.lww": lww,
    "crdt.orset": orset,
    "crdt.gcnt": counter,
    "rpc": rpc,
    **OPERATION_HISTORIES,
    **WALLET_HISTORIES,
    **RECORDER_HISTORIES,
}
#: What a fold is configured with where its history is interesting only then.
PARAMETERS: dict[str, Mapping[str, Any]] = {**OPERATION_PARAMETERS}
