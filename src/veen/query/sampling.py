"""Which rows spot evidence is about: chosen by the query's id, so that nobody can choose later (QRY-040)."""

from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from hashlib import sha256
from typing import Final

from veen.core.hashing import tag_prefix

_PREFIX: Final = tag_prefix("veen/query-sample")
_ALL: Final = 1 << 64


def sampled(query_id: str, indexes: Iterable[int], rate: Decimal) -> list[int]:
    """Return those of the rows, given by their places from 0, that are in the sample."""
    bound = int(Fraction(rate) * _ALL)  # exact, and positive: int rounds down
    if bound >= _ALL:
        return list(indexes)
    # A hash is below the bound's 8 bytes if its own first 8 are.
    threshold = bound.to_bytes(8, "big")
    prefix = _PREFIX + query_id.encode()
    return [index for index in indexes if sha256(prefix + index.to_bytes(8, "big")).digest() < threshold]
