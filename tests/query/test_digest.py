"""Digests: hashes that were computed by hand, streams of rows and evidence, reading what others wrote."""

import hashlib
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen.core.encoding import canonical_json
from veen.core.errors import ProtocolError
from veen.query import comparison
from veen.query import descriptor as descriptors
from veen.query.descriptor import Descriptor, Evidence, Mode
from veen.query.digest import NONE_HASH, EvidenceHasher, Position, ResultDigest, RowsHasher

#: printf '[]' | sha256sum, and the same of {"mode":"none"}.
EMPTY_ROWS = "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"
MODE_NONE = "7f517f97e00a688b0b402e4005866127e5c928bf44a94ca53477ac34e24b5ef1"

DIGEST = ResultDigest(
    query_id="q-1",
    result_id="r-1",
    row_count=2,
    evidence_policy=Evidence(Mode.SPOT, Decimal("0.5")),
    rows_hash="11" * 32,
    evidence_hash="22" * 32,
    executed_at=1_700_000_000,
    hub_id="33" * 32,
    upto=(Position("record/é", 2, "44" * 32, 9, "55" * 32),),
)


def test_hashes_that_anyone_can_compute() -> None:
    assert RowsHasher().rows_hash == EMPTY_ROWS
    assert NONE_HASH == MODE_NONE


def test_the_canonical_form() -> None:
    assert (
        DIGEST.encode()
        == (
            '{"evidence_hash":"' + "22" * 32 + '","evidence_policy":{"mode":"spot","sample_rate":0.5},'
            '"executed_at":"2023-11-14T22:13:20Z","hub_id":"'
            + "33"
            * 32
            + '","query_id":"q-1","result_id":"r-1",'
            '"row_count":2,"rows_hash":"' + "11" * 32 + '","upto":[{"epoch":2,"label":"' + "44" * 32 + '",'
            '"mmr_root":"' + "55" * 32 + '","stream":"record/é","upto_seq":9}],"version":1}'
        ).encode()
    )


@pytest.mark.parametrize("profile_id", [None, "66" * 32])
def test_there_and_back(profile_id: str | None) -> None:
    made = ResultDigest(**{name: getattr(DIGEST, name) for name in _names()} | {"profile_id": profile_id})
    assert ResultDigest.from_json(canonical_json.parse(made.encode())) == made
    assert ("profile_id" in made.to_json()) == (profile_id is not None)


def _names() -> tuple[str, ...]:
    return tuple(ResultDigest.__dataclass_fields__)


def test_what_a_later_version_of_us_adds_is_passed_over() -> None:
    form = DIGEST.to_json()
    form["cost"] = {"seconds": 3}
    assert isinstance(form["upto"], list)
    form["upto"] = [{**item, "files": 1} for item in form["upto"] if isinstance(item, dict)]
    assert ResultDigest.from_json(form) == DIGEST


def test_a_digest_of_somebody_who_does_not_say_how_far() -> None:
    form = DIGEST.to_json()
    del form["upto"]
    read = ResultDigest.from_json(form)
    assert read.upto is None
    assert read.to_json() == form
    found = comparison.compare(_query(), DIGEST, _query(), read)
    assert found.equal
    assert "upto" not in [item.name for item in found.items]


WRONG: dict[str, Any] = {
    "version": 2,
    "query_id": "a b",
    "result_id": 7,
    "row_count": -1,
    "evidence_policy": {"mode": "all"},
    "rows_hash": "AA" * 32,
    "evidence_hash": "22" * 31,
    "executed_at": "yesterday",
    "hub_id": None,
    "upto": {},
    "profile_id": 7,
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_digests_are_refused(name: str) -> None:
    with pytest.raises(ProtocolError, match=name):
        ResultDigest.from_json(DIGEST.to_json() | {name: WRONG[name]})
    without = {key: item for key, item in DIGEST.to_json().items() if key != name}
    if name not in {"upto", "profile_id"}:
        with pytest.raises(ProtocolError, match=name):
            ResultDigest.from_json(without)


@pytest.mark.parametrize(
    "value", [None, [], "x", {"version": True}, {"version": 1}, DIGEST.to_json() | {"upto": [{}]}]
)
def test_things_that_are_no_digest(value: Any) -> None:
    with pytest.raises(ProtocolError):
        ResultDigest.from_json(value)


ROWS = st.lists(
    st.dictionaries(st.text("ab"), st.one_of(st.none(), st.integers(), st.text("é\n"))), max_size=6
)


@given(ROWS, st.integers(0, 6))
def test_rows_are_hashed_as_one_array(rows: list[Any], cut: int) -> None:
    encoded = [canonical_json.encode(row) for row in rows]
    hasher = RowsHasher()
    hasher.extend(encoded[:cut])
    assert hasher.rows_hash == hashlib.sha256(canonical_json.encode(rows[:cut])).hexdigest()
    for row in encoded[cut:]:
        hasher.add(row)
    assert hasher.rows_hash == hashlib.sha256(canonical_json.encode(rows)).hexdigest()
    assert hasher.count == len(rows)


@pytest.mark.parametrize("rate", [None, Decimal("0.10"), Decimal(1)])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_evidence_is_hashed_as_one_object(rate: Decimal | None, count: int) -> None:
    mode = Mode.FULL if rate is None else Mode.SPOT
    verified = [(bytes([number]) * 32, b"\xaa" * 32, b"\xbb" * 32) for number in range(count)]
    hasher = EvidenceHasher("q-1", "r-1", mode, rate)
    for item in verified:
        hasher.add(*item)
    summary: dict[str, Any] = {
        "query_id": "q-1",
        "result_id": "r-1",
        "mode": mode.value,
        "verified": [
            {"receipt_id": receipt.hex(), "mmr_root": root.hex(), "hub_id": hub.hex()}
            for receipt, root, hub in verified
        ],
    }
    if rate is not None:
        summary["sample_rate"] = float(rate) if rate != 1 else 1
    text = json.dumps(summary, sort_keys=True, separators=(",", ":"))
    assert hasher.evidence_hash == hashlib.sha256(text.encode()).hexdigest()
    assert hasher.count == count


# --- comparing ----------------------------------------------------------------------------------------------


def _query(**more: Any) -> Descriptor:
    return descriptors.normalize({"query_id": "q-1", "scope": ["record/é"], **more}, lambda: "")


def _changed(**more: Any) -> ResultDigest:
    return ResultDigest(**{name: getattr(DIGEST, name) for name in _names()} | more)


def test_the_same_answer_by_another_hub_at_another_time() -> None:
    other = _changed(result_id="r-2", executed_at=1_800_000_000, hub_id="99" * 32)
    found = comparison.compare(_query(), DIGEST, _query(), other)
    assert found.equal
    names = ("descriptor", "query_id", "row_count", "rows_hash", "evidence_hash", "upto")
    assert found.to_json() == {"equal": True, "items": {name: {"equal": True} for name in names}}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("query_id", "q-2"),
        ("row_count", 3),
        ("rows_hash", "77" * 32),
        ("evidence_hash", "88" * 32),
        ("upto", ()),
    ],
)
def test_what_differs_is_named_with_both_values(name: str, value: Any) -> None:
    found = comparison.compare(_query(), DIGEST, _query(), _changed(**{name: value}))
    assert (found.equal, found.differing) == (False, (name,))
    form: Any = found.to_json()
    assert form["items"][name] == {
        "equal": False,
        "a": DIGEST.to_json()[name],
        "b": [] if name == "upto" else value,
    }
    assert canonical_json.parse(canonical_json.encode(form)) == form


def test_another_question_is_not_the_same() -> None:
    found = comparison.compare(_query(), DIGEST, _query(meta={"reason": "x"}), DIGEST)
    assert found.differing == ("descriptor",)


def test_evidence_of_other_settings_is_told_and_its_hash_is_not_compared() -> None:
    other = _changed(evidence_policy=Evidence(Mode.FULL), evidence_hash="88" * 32)
    found = comparison.compare(_query(), DIGEST, _query(), other)
    assert found.differing == ("evidence_policy",)
    assert "evidence_hash" not in [item.name for item in found.items]
