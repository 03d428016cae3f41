"""What the checkers have in common."""

from veen.core.errors import Detail
from veen.core.objects.finding import INTEGRITY, Finding, Level, Location
from veen.core.types import Label
from veen.storage.fsck import LEVELS


def test_levels_include_those_before_them() -> None:
    assert [level.name for level in sorted(Level)] == ["NONE", "FRAMES", "HASHES", "ROOTS", "FULL"]
    assert tuple(level for level in Level if level > Level.NONE) == LEVELS


def test_a_location_names_what_is_known() -> None:
    label = Label(bytes(32))
    assert str(Location("log/1")) == "log/1"
    assert str(Location("log/1", 7)) == "log/1 at byte 7"
    assert str(Location("log/1", 7, label, seq=3)) == f"{'00' * 32} entry 3, log/1 at byte 7"
    assert str(Location(label=label)) == "00" * 32
    assert str(Location(stream="orders", epoch=2, seq=3)) == "orders entry 3"
    assert not str(Location())


def test_a_finding_is_one_line_with_its_code() -> None:
    finding = Finding(Location("log/1", 7), Detail.ENTRY_HASH, "does not match")
    assert str(finding) == "log/1 at byte 7: does not match [ENTRY_HASH]"
    assert finding.verdict == INTEGRITY
