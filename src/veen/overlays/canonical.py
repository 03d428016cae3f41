"""The bytes of a state, and its hash (SNP-003, SNP-004).

Deterministic CBOR as everywhere, with two things more that states need: byte strings as keys of maps, and
negative numbers. Numbers beyond 64 bits can not be written (C-112).
"""

from collections.abc import Mapping
from typing import Any

from veen.core import cbor
from veen.core.hashing import ht


def encode_state(value: Any) -> bytes:
    """Return the one encoding of a state; maps are sorted by their encoded keys."""
    match value:
        case bool() | None | str() | bytes():
            return cbor.encode(value)
        case int():
            return cbor.write_int(value)
        case Mapping():
            pairs = sorted((encode_state(key), encode_state(item)) for key, item in value.items())
            return cbor.head(cbor.MAJOR_MAP, len(pairs)) + b"".join(key + item for key, item in pairs)
        case list() | tuple():
            return cbor.head(cbor.MAJOR_ARRAY, len(value)) + b"".join(map(encode_state, value))
    raise TypeError(f"a state does not hold {type(value).__name__}")


def state_hash(state_class: str, value: Any) -> bytes:
    """Return the hash of a state of a class."""
    return ht(f"veen/state-{state_class}", encode_state(value))
