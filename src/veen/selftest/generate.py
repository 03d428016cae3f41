"""Random inputs from a seed: values of every wire type, generated from its shape, and mutations of bytes.

Most mutations are nearly valid, which is where parsers fail.
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final

import veen.core
from veen.core.api.tooling import AnchorResponse, BackupResponse
from veen.core.data_dir.chunk_artifacts import ChunkRange, ChunkSummary
from veen.core.data_dir.store_records import Registry, StoreRecord, Tombstone
from veen.core.encoding import field_types
from veen.core.encoding.field_types import ListOf
from veen.core.encoding.wire_object import Nested, Wire
from veen.core.errors import ProtocolError
from veen.core.limits import Limits
from veen.core.merkle.inclusion import MmrProof, Step
from veen.core.objects.anchor import FILE, RFC3161, AnchorRecord, AnchorRef
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.control_record import RevocationBody, RevocationRecord, Target
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.core.objects.hub_identity import HubIdentity, HubKey
from veen.core.objects.labels import hub_id
from veen.core.types import NodeHash, VerifyKey
from veen.selftest.errors import StepFailedError

# Enough to make any parser fail.
_MAX_BYTES: Final = 8192
# Short items of every kind, good and bad.
ITEMS: Final = tuple(
    bytes.fromhex(text)
    for text in (
        *(
            "00",
            "17",
            "1817",
            "18ff",
            "190000",
            "1b0000000100000000",
            "1bffffffffffffffff",
            "20",
            "40",
            "5820",
        ),
        *("5f4100ff", "5bffffffffffffffff", "60", "61ff", "7f6161ff", "7bffffffffffffffff", "80", "9f00ff"),
        *(
            "9bffffffffffffffff",
            "a0",
            "a10000",
            "a200000000",
            "bf0000ff",
            "bbffffffffffffffff",
            "c000",
            "d9d9f700",
        ),
        *("f4", "f6", "f7", "f8ff", "f90000", "fb0000000000000000", "ff", "1c", "5d", ""),
    )
)
# Nested containers, far deeper than in any message.
NESTED: Final = (b"\x81" * 5000, b"\xa1\x00" * 5000, b"\x9f" * 5000, b"\x81" * 20 + b"\x00")

Mutation = Callable[[Random, bytes, Sequence[bytes]], bytes]


def _place(random: Random, data: bytes) -> int:
    return random.randrange(len(data)) if data else 0


def flip_bit(random: Random, data: bytes, _: Sequence[bytes] = ()) -> bytes:
    """Flip one bit."""
    at = _place(random, data)
    return data[:at] + bytes(byte ^ 1 << random.randrange(8) for byte in data[at : at + 1]) + data[at + 1 :]


def _set_byte(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = _place(random, data)
    return (
        data[:at] + bytes((random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256))),)) + data[at + 1 :]
    )


def _cut(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    return data[: _place(random, data)]


def _extend(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    return data + random.choice((b"\x00", b"\xf6", random.randbytes(random.randrange(1, 40)), data))


def _splice(random: Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    other = random.choice(corpus)
    return data[: _place(random, data)] + other[_place(random, other) :]


def _drop(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = _place(random, data)
    return data[:at] + data[at + random.randrange(1, 40) :]


def _repeat(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = _place(random, data)
    return data[: at + random.randrange(1, 40)] + data[at:]


def _insert(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = _place(random, data)
    return data[:at] + random.choice(ITEMS) + data[at:]


def _overwrite(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at, item = _place(random, data), random.choice(ITEMS)
    return data[:at] + item + data[at + len(item) :]


def _count_more(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """Change the declared size of the outermost item."""
    change = random.choice((-2, -1, 1, 2))
    return bytes(byte & 0xE0 | (byte + change) & 0x1F for byte in data[:1]) + data[1:]


MUTATIONS: Final[tuple[Mutation, ...]] = (
    flip_bit,
    _set_byte,
    _cut,
    _extend,
    _splice,
    _drop,
    _repeat,
    _insert,
    _overwrite,
    _count_more,
)


def mutate(random: Random, corpus: Sequence[bytes]) -> bytes:
    """Return one of the inputs with one to four mutations; never one of the inputs."""
    data = random.choice(corpus)
    while data in corpus:
        for _ in range(random.choice((1, 1, 1, 2, 3, 4))):
            data = random.choice(MUTATIONS)(random, data, corpus)[:_MAX_BYTES]
    return data


# Values at which the length of the encoding changes.
_EDGES: Final = (0, 1, 23, 24, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**63, 2**64 - 1)
_TEXTS: Final = ("", "a", "selftest", "\u00e4\u20ac\U0001f512", "x" * 30)
_ATTEMPTS: Final = 100

Values = dict[str, Any]


def wire_types() -> list[type[Wire]]:
    """Return every type of the protocol that has a shape."""
    names = [module.name for module in pkgutil.walk_packages(veen.core.__path__, "veen.core.")]
    types = {
        value
        for name in names
        for value in vars(importlib.import_module(name)).values()
        if isinstance(value, type) and issubclass(value, Wire) and hasattr(value, "SHAPE")
    }
    return sorted(types, key=lambda cls: cls.SHAPE.name)


def sample(random: Random, cls: type[Wire]) -> Wire:
    """Return some value of a type."""
    for _ in range(_ATTEMPTS):
        values = {
            item.name: _value(random, item.kind)
            for item in cls.SHAPE.fields
            if item.kind is not field_types.VER and not (item.optional and random.random() < 0.4)
        }
        if cls in _FITTING:
            values |= _FITTING[cls](random)
        try:
            return cls(**values)
        except ProtocolError:
            continue  # fields that do not fit each other; another attempt may have better ones
    raise StepFailedError(f"no value of {cls.SHAPE.name} was found; add it to {__name__}")


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
    items = [_value(random, kind.kind) for _ in range(count)]
    if isinstance(kind.kind, Nested):
        return tuple(sorted(items, key=lambda item: item.encode()))
    # Many lists must ascend, and all may.
    return tuple(sorted({item for item in items if item is not None}))


def _envelope(random: Random) -> bytes:
    """Return bytes with the lengths of a ciphertext."""
    hdr, body = random.randbytes(random.randrange(40)), random.randbytes(random.randrange(80))
    sizes = len(hdr).to_bytes(4, "big") + len(body).to_bytes(4, "big")
    return random.randbytes(32) + sizes + hdr + body + bytes(random.randrange(30))


_SCALARS: Final[Mapping[Any, Callable[[Random], Any]]] = {
    field_types.UINT: number,
    field_types.TEXT: lambda random: random.choice(_TEXTS),
    field_types.BOOL: lambda random: random.random() < 0.5,
    field_types.BYTES: lambda random: random.randbytes(random.randrange(16, 33)),
    field_types.B16: lambda random: random.randbytes(16),
    field_types.B32: lambda random: random.randbytes(32),
    field_types.B64: lambda random: random.randbytes(64),
    field_types.B32_OR_NULL: lambda random: random.choice((None, random.randbytes(32))),
    field_types.CIPHERTEXT: _envelope,
}


# --- fields that must fit each other ------------------------------------------------------------------------


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
    hub_key = _hub_key(random)
    return {name: getattr(hub_key, name) for name in ("key_id", "hub_pk", "valid_from", "valid_until")}


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
        hub_sig=_SCALARS[field_types.B64](random),
    )
    return {"record": record, "checkpoint": checkpoint}


def _store(random: Random) -> Values:
    starts = sorted({0, *(number(random) for _ in range(random.randrange(3)))})
    return {"registries": tuple(Registry.of(Limits(), effective_from=start) for start in starts)}


def _registry(_: Random) -> Values:
    registry = Registry.of(Limits())
    return {"values": registry.values, "compression": registry.compression}


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
