"""The laws of the building blocks, on values that events give and that joining gives."""

from random import Random
from typing import Any

import pytest

from veen.overlays import monoid
from veen.overlays.monoid import COUNT, FIRST, LOWEST, MAX, MIN, SET, SUM, Monoid, first


def _place(rng: Random) -> tuple[int, int, bytes]:
    """Return a place that no other event has."""
    return (rng.randrange(2), rng.randrange(9), rng.randbytes(16))


def _one(kind: Monoid, rng: Random) -> Any:
    """Return the summary of one event."""
    place = _place(rng)
    made: dict[str, Any] = {
        "MAX": ((rng.randrange(4), *place), rng.randbytes(1)),
        "MIN": (place, rng.randbytes(1)),
        "FIRST": first(place, bytes([rng.randrange(3)]), rng.randrange(9)),
        "SUM": rng.choice([0, 1, -5, 2**70]),
        "CNT": (1, place, place),
        "SET": {rng.randbytes(1): rng.randrange(3)},
        "PFX": (delta := rng.randrange(-5, 6), min(0, delta)),
    }
    return made[kind.name]


def _some(kind: Monoid, rng: Random) -> Any:
    found = _one(kind, rng)
    for _ in range(rng.randrange(6)):
        found = kind.merge(found, _one(kind, rng))
    return found


@pytest.mark.parametrize("kind", monoid.ALL, ids=lambda kind: kind.name)
class TestLaws:
    def test_joining_is_associative(self, kind: Monoid) -> None:
        rng = Random(1)
        for _ in range(400):
            a, b, c = (_some(kind, rng) for _ in range(3))
            assert kind.merge(kind.merge(a, b), c) == kind.merge(a, kind.merge(b, c))

    def test_joining_in_the_other_order(self, kind: Monoid) -> None:
        rng = Random(2)
        pairs = [(_some(kind, rng), _some(kind, rng)) for _ in range(400)]
        same = [kind.merge(a, b) == kind.merge(b, a) for a, b in pairs]
        assert all(same) if kind.commutes else not all(same)

    def test_a_summary_is_its_bytes(self, kind: Monoid) -> None:
        rng = Random(3)
        for _ in range(200):
            found = _some(kind, rng)
            data = monoid.encode(kind, found)
            assert monoid.decode(kind, data) == found
            assert monoid.encode(kind, monoid.decode(kind, data)) == data


def test_what_they_keep() -> None:
    early, late = (0, 1, b"a"), (0, 2, b"b")
    assert MAX.merge((early, 1), (late, 2)) == (late, 2)
    assert MIN.merge((late, 2), (early, 1)) == (early, 1)
    assert FIRST.merge(first(late, b"x", 2), first(early, b"y", 1)) == ((early, b"y", 1), (late, b"x", 2))
    assert FIRST.merge(first(early, b"x", 1), first(late, b"x", 1)) == ((early, b"x", 1), None)
    assert SUM.merge(-(2**64), 2**65) == 2**64
    assert COUNT.merge((1, early, early), (2, early, late)) == (3, early, late)
    assert SET.merge({b"a": 1}, {b"a": 2, b"b": 3}) == {b"a": 1, b"b": 3}
    assert LOWEST.merge((-3, -3), (5, -1)) == (2, -4)


def test_a_summary_may_be_larger_than_any_message() -> None:
    many = {number.to_bytes(4, "big"): 0 for number in range(70_000)}
    assert monoid.decode(SET, monoid.encode(SET, many)) == many
