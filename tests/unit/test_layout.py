"""Names of the files of a data directory: what is written, and what is recognised."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import some_label
from veen.core import layout
from veen.core.layout import Domain, FileName, Kind
from veen.core.types import Label

LABEL = some_label()
HEX = LABEL.hex()
ONE, FOUR = "0" * 19 + "1", "0" * 19 + "4"
LAST = 2**64 - 1

seqs = st.integers(min_value=0, max_value=LAST)
labels = st.binary(min_size=32, max_size=32)


def inside(path: str) -> str:
    return path.rpartition("/")[2]


@pytest.mark.parametrize("domain", list(Domain))
def test_names_are_as_documented(domain: Domain) -> None:
    where = {Domain.DATA: "log", Domain.AUTHORIZE: "authorize", Domain.CONTROL: "control"}[domain]
    assert layout.chunk(domain, LABEL, 1, 4) == f"{where}/chunk-{HEX}-{ONE}-{FOUR}.log"
    assert layout.open_chunk(domain, LABEL, 1) == f"{where}/chunk-{HEX}-{ONE}-open.log"
    assert layout.summary(domain, LABEL, 1, 4) == f"{where}/chunk-{HEX}-{ONE}-{FOUR}.summary"
    assert layout.tombstone(domain, LABEL, 1, 4) == f"{where}/pruned-{HEX}-{ONE}-{FOUR}.cbor"
    assert layout.peaks(domain, LABEL, 4) == f"{where}/peaks-{HEX}-{FOUR}.cbor"
    assert layout.checkpoint(domain, LABEL, 4) == f"{where}/checkpoint-{HEX}-{FOUR}.cbor"
    assert layout.checkpoint_index(domain, LABEL) == f"{where}/checkpoint-index-{HEX}.cbor"
    assert layout.nodes(domain, LABEL) == f"{where}/nodes-{HEX}.mmr"


def test_names_outside_the_chunk_directories_are_as_documented() -> None:
    assert layout.journal(12) == "state/journal-00000000000000000012.wal"
    assert (layout.STORE, layout.FORK) == ("store.cbor", "fork.cbor")
    assert (layout.RECEIPTS, layout.CHECKPOINTS) == ("receipts.cborseq", "checkpoints.cborseq")
    assert (layout.STATE_DIR, layout.LOCK, layout.INDEX) == ("state", "state/lock", "state/index")
    assert (layout.ANCHORS_DIR, layout.COMPRESSED) == ("anchors", ".bz2")


@given(label=labels, start=seqs, end=seqs, domain=st.sampled_from(Domain))
def test_every_name_says_what_it_was_made_from(label: bytes, start: int, end: int, domain: Domain) -> None:
    label = Label(label)
    chunk = inside(layout.chunk(domain, label, start, end))
    for name, kind, first, last, packed in (
        (chunk, Kind.CHUNK, start, end, False),
        (chunk + layout.COMPRESSED, Kind.CHUNK, start, end, True),
        (layout.open_chunk(domain, label, start), Kind.OPEN_CHUNK, start, None, False),
        (layout.summary(domain, label, start, end), Kind.SUMMARY, start, end, False),
        (layout.tombstone(domain, label, start, end), Kind.TOMBSTONE, start, end, False),
        (layout.peaks(domain, label, end), Kind.PEAKS, None, end, False),
        (layout.checkpoint(domain, label, end), Kind.CHECKPOINT, None, end, False),
        (layout.checkpoint_index(domain, label), Kind.CHECKPOINT_INDEX, None, None, False),
        (layout.nodes(domain, label), Kind.NODES, None, None, False),
    ):
        assert layout.parse(inside(name)) == FileName(kind, label, first, last, packed)


@given(number=seqs)
def test_a_journal_name_says_its_number(number: int) -> None:
    assert layout.parse_journal(inside(layout.journal(number))) == number


@given(st.lists(seqs, unique=True))
def test_names_sort_as_numbers_do(numbers: list[int]) -> None:
    by_name = sorted(layout.peaks(Domain.DATA, LABEL, number) for number in numbers)
    assert by_name == [layout.peaks(Domain.DATA, LABEL, number) for number in sorted(numbers)]
    journals = sorted(layout.journal(number) for number in numbers)
    assert journals == [layout.journal(number) for number in sorted(numbers)]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "README",
        f"chunk-{HEX}-{ONE}-{FOUR}.log.tmp",
        f"chunk-{HEX}-{ONE}-{FOUR}.log.bz2.tmp",
        f"chunk-{HEX}-{ONE}-{FOUR}.log.gz",
        f"chunk-{HEX}-{ONE}-{FOUR}.log\n",
        f"chunk-{HEX}-{ONE}-open.log.bz2",
        f"chunk-{HEX}-{ONE}-{FOUR}",
        f"chunk-{HEX}-1-4.log",
        f"chunk-{HEX}-0{ONE}-{FOUR}.log",
        f"chunk-{HEX[:-1]}-{ONE}-{FOUR}.log",
        f"chunk-{HEX.upper()}-{ONE}-{FOUR}.log",
        f"chunk-{HEX}-{ONE}-{LAST + 1}.log",
        f"chunk-{HEX}-{LAST + 1}-open.log",
        f"chunk-{HEX}-{ONE}-{FOUR[:-1]}٤.log",
        f"log/chunk-{HEX}-{ONE}-{FOUR}.log",
        f"peaks-{HEX}.cbor",
        f"checkpoint-{HEX}.cbor",
        f"checkpoint-{HEX}-{LAST + 1}.cbor",
        f"checkpoint-index-{HEX}-{ONE}.cbor",
        f"nodes-{HEX}.mmr.tmp",
        f"pruned-{HEX}-{ONE}.cbor",
    ],
)
def test_other_names_are_not_ours(name: str) -> None:
    assert layout.parse(name) is None


def test_the_last_sequence_number_has_a_name() -> None:
    assert layout.parse(f"checkpoint-{HEX}-{LAST}.cbor") == FileName(Kind.CHECKPOINT, LABEL, end_seq=LAST)


@pytest.mark.parametrize(
    "name",
    [
        "journal-1.wal",
        f"journal-{ONE}.wal.tmp",
        f"journal-{ONE}.log",
        f"state/journal-{ONE}.wal",
        f"journal-{ONE[:-1]}٤.wal",
        "lock",
    ],
)
def test_other_names_are_no_journal(name: str) -> None:
    assert layout.parse_journal(name) is None
