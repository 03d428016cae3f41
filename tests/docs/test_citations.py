"""Every id that is cited is defined in the reference, and the reference says where it is cited."""

from collections import Counter
from pathlib import Path

import pytest

from tools import citations, gen_docs

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
PAGES = (citations.DECISIONS, citations.REQUIREMENTS)

# Ids are made of parts here, or written with another dash: this file cites nothing.
C, AB0 = "C", "AB0"
DECISION_PAGE = f"# Decisions\n\nWhy.\n\n## One\n\n### {C}-01: a\n\nText.\n\n### {C}-02: b\n\nText.\n"
REQUIREMENT_PAGE = f"# Requirements\n\n## {AB0}\n\n- **{AB0}-001** One.\n- **{AB0}-002** Two.\n"


def _spelled(text: str) -> str:
    return text.replace("~", "-")


def _defined() -> list[str]:
    return [one for name in PAGES for one in citations.defined((REFERENCE / name).read_text())]


def test_every_cited_id_is_defined() -> None:
    complaints = citations.undefined(citations.texts(ROOT), _defined())
    assert not complaints, "\n" + "\n".join(complaints)


def test_an_id_is_defined_once() -> None:
    counted = Counter(_defined())
    assert len(counted) > 300
    assert [one for one, times in counted.items() if times > 1] == []


def test_ids_stand_in_the_order_of_their_numbers() -> None:
    for name in PAGES:
        found = [one.rpartition("-") for one in citations.defined((REFERENCE / name).read_text())]
        keys = [(prefix, int(number)) for prefix, _, number in found]
        assert keys == sorted(keys)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("# why (C~1, C~01)", ["C~01"]),
        ("decision C~107.", ["C~107"]),
        ("(C~08 to C~10; row 8)", ["C~08", "C~09", "C~10"]),
        ("C~31, C~46 to C~48 and C~52", ["C~31", "C~46", "C~47", "C~48", "C~52"]),
        ("(AB0~014 to 016)", ["AB0~014", "AB0~015", "AB0~016"]),
        ("AB0~005, 010, 021 to 023.", ["AB0~005", "AB0~010", "AB0~021", "AB0~022", "AB0~023"]),
        ("    # AB0~005,\n    # CD~006 and\n    #: CD~007", ["AB0~005", "CD~006", "CD~007"]),
        ("AB0~001 to CD~003", ["AB0~001", "CD~003"]),
        ("**AB0~001** `AB0~002`", ["AB0~001", "AB0~002"]),
    ],
)
def test_citations_are_found(text: str, ids: list[str]) -> None:
    assert list(citations.cited(_spelled(text))) == [_spelled(one) for one in ids]


@pytest.mark.parametrize(
    "text",
    [
        "SHA~256, P~256, CRC~32, UTF~8, ISO~8601, AES~12",
        "[A-Z0~9], FROM-UPTO~1.parquet, ab-001, xAB0~001",
        "AB0~1, AB0~12, AB0~1234, ABCDEF~001, AB0~001x, AB0~001~2, C~1, C~1234, XC~01",
        "AB0_001, AB0 001, 2026~11~18",
    ],
)
def test_what_is_no_id_is_passed_over(text: str) -> None:
    assert list(citations.cited(_spelled(text))) == []


def test_an_id_that_is_not_defined_is_reported() -> None:
    known = [*citations.defined(DECISION_PAGE), *citations.defined(REQUIREMENT_PAGE)]
    assert known == [f"{C}-01", f"{C}-02", f"{AB0}-001", f"{AB0}-002"]
    good = ("a.py", f"# {C}-01 to {C}-02, {AB0}-001, 002")
    bad = ("b.py", f"# {C}-01 to {C}-03, {AB0}-002 to 004")
    assert citations.undefined([good], known) == []
    complaints = citations.undefined([good, bad], known)
    assert [line.split(" is ")[0] for line in complaints] == [
        f"b.py: {AB0}-003",
        f"b.py: {AB0}-004",
        f"b.py: {C}-03",
    ]


def test_places_are_written_into_the_pages() -> None:
    where = {f"{C}-02": ["src/a.py"], f"{AB0}-001": [f"src/{n}.py" for n in range(citations.MAX_LISTED + 2)]}
    decisions = citations.with_places(DECISION_PAGE, where)
    assert decisions == DECISION_PAGE + "\nCited in `src/a.py`.\n"
    requirements = citations.with_places(REQUIREMENT_PAGE, where)
    listed = ", ".join(f"`src/{n}.py`" for n in range(citations.MAX_LISTED))
    assert requirements == REQUIREMENT_PAGE.replace("One.", f"One.\n  Cited in {listed} and 2 more.")
    for page, bare in ((decisions, DECISION_PAGE), (requirements, REQUIREMENT_PAGE)):
        assert citations.with_places(page, where) == page
        assert citations.with_places(page, {}) == bare


def test_generated_pages_and_what_is_no_text_are_no_places(tmp_path: Path) -> None:
    reference = tmp_path / "docs" / "reference"
    for directory in (reference, tmp_path / "src", tmp_path / "site"):
        directory.mkdir(parents=True)
        (directory / "a.md").write_text(f"{AB0}-001")
    (tmp_path / "README.md").write_text(f"{AB0}-001")
    (tmp_path / "src" / "b.bin").write_bytes(f"\0{AB0}-001".encode())
    assert citations.places(tmp_path, ["a.md"]) == {f"{AB0}-001": ["src/a.md", "README.md"]}


@pytest.mark.parametrize(("name", "page"), [(PAGES[0], DECISION_PAGE), (PAGES[1], REQUIREMENT_PAGE)])
def test_a_page_is_out_of_date_when_a_citation_moves(
    name: str, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference, source = tmp_path / "docs" / "reference", tmp_path / "src"
    reference.mkdir(parents=True)
    source.mkdir()
    monkeypatch.setattr(gen_docs, "ROOT", reference)
    monkeypatch.setattr(gen_docs, "PAGES", {name: gen_docs.PAGES[name]})
    (reference / name).write_text(page)
    assert gen_docs.stale_pages() == []
    (source / "a.py").write_text(f"# {C}-01, {AB0}-001")
    assert gen_docs.stale_pages() == [name]
    (reference / name).write_text(gen_docs.PAGES[name]())
    assert gen_docs.stale_pages() == []
    (source / "a.py").rename(source / "b.py")
    assert gen_docs.stale_pages() == [name]
