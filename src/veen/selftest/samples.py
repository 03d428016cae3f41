"""Values of every wire type, by chance: made from their shapes, so that a new type rarely needs a word."""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

import veen.core
from veen.core import kinds
from veen.core.anchor import FILE, RFC3161, AnchorRecord, AnchorRef
from veen.core.artifacts import ChunkRange, ChunkSummary
from veen.core.checkpoint import Checkpoint
from veen.core.control import RevocationBody, RevocationRecord, Target
from veen.core.datadir import Registry, StoreRecord, Tombstone
from veen.core.error_envelope import ErrorEnvelope
from veen.core.errors import ProtocolError
from veen.core.identity import HubIdentity, HubKey
from veen.core.kinds import ListOf
from veen.core.labels import hub_id
from veen.core.limits import Limits
from veen.core.proof import MmrProof, Step
from veen.core.tooling import AnchorResponse, BackupResponse
from veen.core.types import NodeHash, VerifyKey
from veen.core.wire import Nested, Wire
from veen.selftest.steps import StepError

#: Where encodings get longer.
_EDGES: Final = (0, 1, 23, 24, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**63, 2**64 - 1)
_TEXTS: Final = ("", "a", "selftest", "\u00e4\u20ac\U0001f512", "x" * 30)
_ATTEMPTS: Final = 100

Values = dict[str, Any]


def wire_types() -> list[type[Wire]]:
    """Return every type of the protocol that has a shape."""
    names = [module.name for module in pkgutil.iter_modules(veen.core.__path__)]
    found = {
        value
        for name in names
        for value in vars(importlib.import_module(f"veen.core.{name}")).values()
        if isinstance(value, type) and issubclass(value, Wire) and hasattr(value, "SHAPE")
    }
    return sorted(found, key=lambda cls: cls.SHAPE.name)


def sample(random: Random, cls: type[Wire]) -> Wire:
    """Return some value of a type."""
    for _ in range(_ATTEMPTS):
        values = {
            item.name: _value(random, item.kind)
            for item in cls.SHAPE.fields
            if item.kind is not kinds.VER and not (item.optional and random.random() < 0.4)
        }
        if cls in _FITTING:
            values |= _FITTING[cls](random)
        try:
            return cls(**values)
        except ProtocolError:
            continue  # parts that do not fit each other: chance will find some that do
    raise StepError(f"no value of {cls.SHAPE.name} was found; does {__name__} know what it must look like?")


def number(random: Random) -> int:
    """Return a number, often one where the encoding changes its length."""
    return random.choice(_EDGES) if random.random() < 0.5 else random.getrandbits(random.randrange(1, 65))


def _value(random: Random, kind: Any) -> Any:  # noqa: ANN401 - of the field's type
    if isinstance(kind, ListOf):
        return _list(random, kind)
    if isinstance(kind, Nested):
        return sample(random, kind.cls)
    if kind in _SCALARS:
        return _SCALARS[kind](random)
    return getattr(kind, "value", None)  # a constant; anything else is in _FITTING


def _list(random: Random, kind: ListOf) -> tuple[Any, ...]:
    count = random.randrange(0 if kind.may_be_empty else 1, 4)
    made = [_value(random, kind.kind) for _ in range(count)]
    if isinstance(kind.kind, Nested):
        return tuple(sorted(made, key=lambda item: item.encode()))
    # Many lists have to ascend, and none must not.
    return tuple(sorted({item for item in made if item is not None}))


def _envelope(random: Random) -> bytes:
    """Return bytes with the lengths of a ciphertext."""
    hdr, body = random.randbytes(random.randrange(40)), random.randbytes(random.randrange(80))
    sizes = len(hdr).to_bytes(4, "big") + len(body).to_bytes(4, "big")
    return random.randbytes(32) + sizes + hdr + body + bytes(random.randrange(30))


_SCALARS: Final[Mapping[Any, Callable[[Random], Any]]] = {
    kinds.UINT: number,
    kinds.TEXT: lambda random: random.choice(_TEXTS),
    kinds.BOOL: lambda random: random.random() < 0.5,
    kinds.BYTES: lambda random: random.randbytes(random.randrange(16, 33)),
    kinds.B16: lambda random: random.randbytes(16),
    kinds.B32: lambda random: random.randbytes(32),
    kinds.B64: lambda random: random.randbytes(64),
    kinds.B32_OR_NULL: lambda random: random.choice((None, random.randbytes(32))),
    kinds.CIPHERTEXT: _envelope,
}


# --- fields that have to fit each other ---------------------------------------------------------------------


def _span(random: Random) -> Values:
    start = number(random) % 2**62 + 1
    return {"start_seq": start, "end_seq": start + number(random) % 2**60}


def _chunk(random: Random) -> Values:
    span = _span(random)
    return {**span, "entry_count": span["end_seq"] - span["start_seq"] + 1}


def _hub_key(random: Random) -> HubKey:
    valid_from = number(random) % 2**60
    until = random.choice((None, valid_from + 1 + number(random) % 2**60))
    return HubKey.of(VerifyKey(random.randbytes(32)), valid_from, until)


def _key_fields(random: Random) -> Values:
    made = _hub_key(random)
    return {name: getattr(made, name) for name in ("key_id", "hub_pk", "valid_from", "valid_until")}


def _identity(random: Random) -> Values:
    keys = [_hub_key(random) for _ in range(random.randrange(1, 4))]
    keys.sort(key=lambda key: (key.valid_from, key.hub_pk))
    return {"hub_keys": tuple(keys), "hub_id": hub_id(keys[0].hub_pk)}


def _anchor_ref(random: Random) -> Values:
    if random.random() < 0.5:
        return {"backend": RFC3161, "index": None, "entry_hash": None, "token": random.randbytes(50)}
    return {"backend": FILE, "index": number(random), "entry_hash": random.randbytes(32), "token": None}


def _anchored(random: Random) -> Values:
    record = sample(random, AnchorRecord)
    assert isinstance(record, AnchorRecord)
    checkpoint = Checkpoint(
        label_prev=record.label,
        label_curr=record.label,
        upto_seq=record.upto_seq,
        mmr_root=record.mmr_root,
        epoch=number(random),
        hub_sig=_SCALARS[kinds.B64](random),
    )
    return {"record": record, "checkpoint": checkpoint}


def _store(random: Random) -> Values:
    starts = sorted({0, *(number(random) for _ in range(random.randrange(3)))})
    return {"registries": tuple(Registry.of(Limits(), effective_from=start) for start in starts)}


def _registry(_: Random) -> Values:
    made = Registry.of(Limits())
    return {"values": made.values, "compression": made.compression}


def _proof(random: Random) -> Values:
    steps = [Step(random.randrange(2), NodeHash(random.randbytes(32))) for _ in range(random.randrange(5))]
    return {"path": tuple(steps)}


def _detail(random: Random) -> Values:
    pairs = {"field": "label", "actual": number(random), "label": random.randbytes(32), "stage": "commit"}
    names = random.sample(sorted(pairs), random.randrange(len(pairs) + 1))
    return {"detail": random.choice((None, {name: pairs[name] for name in names}))}


_FITTING: Final[Mapping[type[Wire], Callable[[Random], Values]]] = {
    AnchorRecord: lambda random: {"anchor_ref": sample(random, AnchorRef).encode()},
    AnchorRef: _anchor_ref,
    AnchorResponse: _anchored,
    BackupResponse: lambda random: {"started_at": 5, "finished_at": 5 + number(random) % 2**60},
    ChunkRange: _span,
    ChunkSummary: _chunk,
    ErrorEnvelope: _detail,
    HubIdentity: _identity,
    HubKey: _key_fields,
    MmrProof: _proof,
    Registry: _registry,
    RevocationBody: lambda random: {"kind": random.choice(list(Target)).value},
    RevocationRecord: lambda random: {"target_kind": random.choice(list(Target)).value},
    StoreRecord: _store,
    Tombstone: lambda random: {**_span(random), "first_ts": 1, "last_ts": 1 + number(random) % 2**60},
}
