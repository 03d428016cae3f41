"""What the checkers have in common."""

from veen.core.objects.finding import Level
from veen.storage.fsck import LEVELS


def test_levels_include_those_before_them() -> None:
    assert [level.name for level in sorted(Level)] == ["NONE", "FRAMES", "HASHES", "ROOTS", "FULL"]
    assert tuple(level for level in Level if level > Level.NONE) == LEVELS
