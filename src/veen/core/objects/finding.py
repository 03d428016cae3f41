"""What the checkers of a log have in common: how much they check."""

from enum import IntEnum


class Level(IntEnum):
    """How much is checked; each level includes those before it."""

    NONE = 0
    FRAMES = 1
    HASHES = 2
    ROOTS = 3
    FULL = 4
