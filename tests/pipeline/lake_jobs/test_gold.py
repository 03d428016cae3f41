"""Which states a lake keeps, what they are folded from and how their files are named; without Spark."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests import builders
from veen.core.objects import labels
from veen.core.types import HubId
from veen.pipeline.fold.state import FoldState
from veen.pipeline.lake.commits import Changes, LabelFact, Missing, State
from veen.pipeline.lake.lake import Lake, lock_lake
from veen.pipeline.lake.table_files import write_durably
from veen.pipeline.lake_jobs import gold

OVERLAY = "crdt.lww"
STREAM = labels.stream_id("stock")
HUB = builders.hub_id()


def label_fact(last: int, *, epoch: int = 0, hub: HubId = HUB, missing: Iterable[Missing] = ()) -> LabelFact:
    label = labels.label(labels.routing_key(hub), STREAM, epoch)
    return LabelFact.of(label, STREAM, epoch, span=(1, last), peaks=builders.peaks(last), missing=missing)


def state_of(*facts: LabelFact, known: dict[str, Any] | None = None) -> State:
    routing = labels.routing_key(HUB)
    found = State(hub_id=HUB.hex(), routing_key=routing.hex(), labels={fact.label: fact for fact in facts})
    if known is not None:
        found.gold[OVERLAY, STREAM.hex()] = known
    return found


def wanted_of(*facts: LabelFact) -> gold.StaleState:
    return gold.StaleState(OVERLAY, STREAM.hex(), facts)


def kept(root: Path, *facts: LabelFact) -> dict[str, Any]:
    """Write the files of a state, and return what a commit says of it."""
    wanted = wanted_of(*facts)
    contents = {
        wanted.rows_path: b"rows",
        wanted.state_path: FoldState.initial(gold.overlay_of(OVERLAY)).encode(),
    }
    for path, content in contents.items():
        write_durably(root / path, content)
    return {
        "overlay": OVERLAY,
        "stream_id": STREAM.hex(),
        "fold": gold.overlay_of(OVERLAY).identity.hex(),
        "reached": [list(item) for item in wanted.reached],
        "files": {path: hashlib.sha256(content).hexdigest() for path, content in contents.items()},
    }


def test_a_label_that_a_fork_has_of_its_parent_is_in_no_state() -> None:
    own, copied = label_fact(2), label_fact(3, hub=builders.hub_id("parent"))
    (found,) = gold.find_wanted(state_of(copied, own), [OVERLAY])
    assert found.labels == (own,)
    gone = Missing(1, 1, ("00" * 32,))
    copied = label_fact(3, hub=builders.hub_id("parent"), missing=[gone])
    assert len(gold.find_wanted(state_of(copied, own), [OVERLAY])) == 1


def test_a_stream_with_a_gap_has_no_state() -> None:
    gone = Missing(1, 1, ("00" * 32,))
    assert gold.find_wanted(state_of(label_fact(2, missing=[gone]), label_fact(3, epoch=1)), [OVERLAY]) == []


def test_files_of_a_state_never_take_the_place_of_those_that_are_committed() -> None:
    before = wanted_of(label_fact(2), label_fact(3, epoch=1))
    late = wanted_of(label_fact(4), label_fact(3, epoch=1))
    assert {before.rows_path, before.state_path}.isdisjoint({late.rows_path, late.state_path})
    assert before.rows_path == wanted_of(label_fact(2), label_fact(3, epoch=1)).rows_path


@pytest.mark.parametrize("harm", ["none", "lost", "changed"])
def test_a_kept_state_is_gone_on_from_only_if_it_is_what_was_committed(tmp_path: Path, harm: str) -> None:
    known = kept(tmp_path, label_fact(2))
    path = tmp_path / wanted_of(label_fact(2)).state_path
    match harm:
        case "lost":
            path.unlink()
        case "changed":
            path.write_bytes(path.read_bytes()[:-1])
    (wanted,) = gold.find_wanted(state_of(label_fact(3), known=known))
    found = gold.resumed(tmp_path, wanted, gold.overlay_of(OVERLAY))
    assert (found is not None) == (harm == "none")


@pytest.mark.parametrize("nth", [0, 1])
def test_a_state_with_a_lost_file_is_made_again(tmp_path: Path, nth: int) -> None:
    known = kept(tmp_path, label_fact(2))
    state = state_of(label_fact(2), known=known)
    assert gold.find_wanted(state, root=tmp_path) == []
    (tmp_path / list(known["files"])[nth]).unlink()
    (wanted,) = gold.find_wanted(state, root=tmp_path)
    assert wanted.known is None


@pytest.mark.parametrize("fold", ["00" * 32, None])
def test_a_state_of_another_version_is_made_anew_from_the_first_record(
    tmp_path: Path, fold: str | None
) -> None:
    known = {**kept(tmp_path, label_fact(2)), "fold": fold}
    if fold is None:  # as of a lake from before they were written down
        del known["fold"]
    (wanted,) = gold.find_wanted(state_of(label_fact(2), known=known), root=tmp_path)
    assert wanted.known is None, "also if nothing has come since"
    assert gold.resumed(tmp_path, wanted, gold.overlay_of(OVERLAY)) is None


def test_files_of_a_state_that_is_dropped_are_removed(tmp_path: Path) -> None:
    with lock_lake(tmp_path, create=True) as lake:
        known = kept(tmp_path, label_fact(2))
        lake.commit(Changes(kind="ingest", labels=[label_fact(2)]), builders.identity())
        lake.commit(Changes(kind="gold", gold=[known]))
        assert all((tmp_path / path).exists() for path in known["files"])
        assert gold.of_streams(lake.state, ["00" * 32, None]) == []
        dropped = gold.of_streams(lake.state, [STREAM.hex()])
        lake.commit(Changes(kind="ingest", dropped=dropped))
        assert not any((tmp_path / path).exists() for path in known["files"])
        (again,) = gold.find_wanted(lake.state, again=dropped)
        assert (again.overlay, again.known) == (OVERLAY, None)
    assert Lake(tmp_path).state.gold == {}
