"""Publications, the root of their content, and snapshots."""

from hashlib import sha256
from typing import Any

import pytest

from tests.overlays.logs import WRITERS, ident
from tests.overlays.operation_log import Operations
from veen.overlays import registry
from veen.overlays.builtin.snapshot import Snapshots
from veen.overlays.errors import InvalidBodyError
from veen.overlays.operations.publication import Part, Publications, content_root, leaf
from veen.overlays.operations.schemas import PUBLICATION, SNAPSHOT

ONE = ident("publication")


class Books(Operations):
    """Publications."""

    def publish(self, version: str, text: str, by: bytes = WRITERS[0]) -> None:
        """Append a publication."""
        values: dict[str, Any] = {
            "publisher_identity": WRITERS[0],
            "content_class": "c",
            "content_root": ident(text),
        }
        self.op(PUBLICATION, by, publication_id=ONE, version=version, **values)


def test_of_a_version_the_first_content_holds() -> None:
    log = Books()
    for text in ("a", "a", "b", "c"):
        log.publish("1", text)
    overlay = Publications()
    assert log.codes(overlay) == [
        (2, "OP.PUBLICATION_DUPLICATE"),
        (3, "OP.PUBLICATION_CONFLICT"),
        (4, "OP.PUBLICATION_CONFLICT"),
    ]
    found = overlay.edition(log.fold(overlay)[0], ONE, "1")
    assert found is not None
    assert (found["content_root"], found["conflict"]) == (ident("a").hex(), ident("b").hex())


def test_the_latest_is_the_version_that_came_last_not_one_that_came_again() -> None:
    log = Books()
    for version in ("2", "10", "2"):
        log.publish(version, "a")
    overlay = Publications()
    tables = log.fold(overlay)[0]
    assert overlay.latest(tables, ONE) == "10"
    found: Any = overlay.view_key(tables, overlay.parse_key(ONE.hex()))
    assert (found["latest"], list(found["versions"])) == ("10", ["2", "10"])
    assert overlay.view_key(tables, ident("another")) is None


def test_it_is_told_whether_the_publisher_has_signed() -> None:
    log = Books()
    log.publish("1", "a")
    log.publish("2", "a", by=WRITERS[1])
    overlay = Publications()
    found = [overlay.edition(log.fold(overlay)[0], ONE, version) for version in ("1", "2")]
    assert [item and item["signed_by_publisher"] for item in found] == [True, False]


# --- content ------------------------------------------------------------------------------------------------


def _part(name: str, data: bytes = b"data") -> Part:
    return Part(name, len(data), sha256(data).digest())


def _tagged(tag: str, data: bytes) -> bytes:
    return sha256(tag.encode() + b"\x00" + data).digest()


def test_a_leaf_binds_name_size_and_content() -> None:
    data = (3).to_bytes(8, "big") + b"a/b" + (4).to_bytes(8, "big") + sha256(b"data").digest()
    assert leaf(_part("a/b")) == _tagged("veen/content-leaf", data)


def test_the_root_of_three_files_by_hand() -> None:
    a, b, c = (leaf(_part(name)) for name in "abc")
    node = _tagged("veen/content-node", a + b)
    assert content_root([_part("c"), _part("a"), _part("b")]) == _tagged("veen/content-root", c + node)
    assert content_root([_part("a")]) == _tagged("veen/content-root", a)


def test_any_change_is_another_root() -> None:
    parts = [_part(name) for name in ("a", "b", "c", "d", "e")]
    root = content_root(parts)
    changed = [
        [*parts[:4], _part("f")],
        [*parts[:4], _part("e", b"other")],
        [*parts[:4], parts[4]._replace(size=5)],
        parts[:4],
        [*parts, _part("f")],
    ]
    roots = {content_root(other) for other in changed}
    assert len(roots) == len(changed)
    assert root not in roots


def test_names_are_sorted_by_their_bytes() -> None:
    first, second = leaf(_part("Z")), leaf(_part("é"))
    node = _tagged("veen/content-node", first + second)
    assert content_root([_part("é"), _part("Z")]) == _tagged("veen/content-root", node)


@pytest.mark.parametrize(
    ("parts", "code"), [([], "OP.CONTENT_EMPTY"), ([_part("a"), _part("a", b"x")], "OP.CONTENT_NAMES")]
)
def test_what_has_no_root(parts: list[Part], code: str) -> None:
    with pytest.raises(InvalidBodyError) as error:
        content_root(parts)
    assert error.value.code == code


# --- snapshots ----------------------------------------------------------------------------------------------


class States(Operations):
    """Snapshots."""

    def take(self, upto: int, root: str = "root", state_class: str = "orset") -> None:
        """Append a snapshot."""
        values: dict[str, Any] = {
            "mmr_root": ident(root),
            "state_hash": ident("state"),
            "state_class": state_class,
        }
        self.op(SNAPSHOT, WRITERS[0], state_id=ONE, upto_stream_seq=upto, **values)


def test_a_snapshot_is_of_what_is_there() -> None:
    log = States()
    for upto in (0, 2, 4, 5):
        log.take(upto)
    assert log.codes(Snapshots()) == [
        (1, "OP.SNAPSHOT_AHEAD"),
        (3, "OP.SNAPSHOT_AHEAD"),
        (4, "OP.SNAPSHOT_AHEAD"),
    ]
    tables = log.fold(Snapshots())[0]
    assert Snapshots().find(tables, ONE, 2, "orset") is not None
    assert Snapshots().find(tables, ONE, 4, "orset") is None


def test_with_epochs_a_number_may_be_of_an_earlier_label_and_the_root_belongs_to_it() -> None:
    log = States()
    log.epoch = 7
    log.take(5, "of another label")
    log.take(5, "of this one")
    log.take(0)
    log.take(5, "of this one")
    overlay = Snapshots()
    assert log.codes(overlay) == [(3, "OP.SNAPSHOT_AHEAD")]
    tables = log.fold(overlay)[0]
    found = overlay.find(tables, ONE, 5, "orset")
    earlier = overlay.find(tables, ONE, 5, "orset", ident("of another label"))
    assert found is not None
    assert earlier is not None
    assert (found.stream_seq, earlier.stream_seq) == (4, 1)
    assert len(overlay.serialized(tables)) == 2
    shown: Any = overlay.view_key(tables, (ONE, 5, "orset"))
    assert shown["stream_seq"] == 4


def test_the_last_snapshot_of_a_state_and_place_is_preferred() -> None:
    log = States()
    log.take(1, "first")
    log.take(1, "second")
    log.take(1, "other", "lww.map")
    overlay = Snapshots()
    tables = log.fold(overlay)[0]
    found = overlay.find(tables, ONE, 1, "orset")
    assert found is not None
    assert (found.mmr_root, found.stream_seq) == (ident("second"), 2)
    shown: Any = overlay.view_key(tables, overlay.parse_key(f"{ONE.hex()}:1:lww.map"))
    assert shown["mmr_root"] == ident("other").hex()
    assert len(overlay.serialized(tables)) == 2
    for bad in ("", f"{ONE.hex()}:0:orset", f"{ONE.hex()}:1", "xy:1:orset"):
        with pytest.raises(ValueError, match=r".+"):
            overlay.parse_key(bad)


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("snapshot", "a:b", "STATE_ID:UPTO:CLASS"),
        ("snapshot", f"{ONE.hex()}:x:orset", "not the number"),
        ("snapshot", f"{ONE.hex()}:0:orset", "not the number"),
        ("federation.mirror", "a", "HUB,SOURCE_LABEL,TARGET_LABEL"),
    ],
)
def test_a_key_that_is_none_is_told_how_it_is_written(name: str, text: str, wanted: str) -> None:
    with pytest.raises(ValueError, match=wanted):
        registry.overlay_class(name)().parse_key(text)
