"""Names of the files of a data directory: what is written, and what is recognised."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import some_label
from veen.core.data_dir import paths
from veen.core.data_dir.paths import Domain, FileKind, FileName
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
    assert paths.chunk(domain, LABEL, 1, 4) == f"{where}/chunk-{HEX}-{ONE}-{FOUR}.log"
    assert paths.open_chunk(domain, LABEL, 1) == f"{where}/chunk-{HEX}-{ONE}-open.log"
    assert paths.summary(domain, LABEL, 1, 4) == f"{where}/chunk-{HEX}-{ONE}-{FOUR}.summary"
    assert paths.tombstone(domain, LABEL, 1, 4) == f"{where}/pruned-{HEX}-{ONE}-{FOUR}.cbor"
    assert paths.peaks(domain, LABEL, 4) == f"{where}/peaks-{HEX}-{FOUR}.cbor"
    assert paths.checkpoint(domain, LABEL, 4) == f"{where}/checkpoint-{HEX}-{FOUR}.cbor"
    assert paths.checkpoint_index(domain, LABEL) == f"{where}/checkpoint-index-{HEX}.cbor"
    assert paths.nodes(domain, LABEL) == f"{where}/nodes-{HEX}.mmr"


def test_names_outside_the_chunk_directories_are_as_documented() -> None:
    assert paths.journal(12) == "state/journal-00000000000000000012.wal"
    assert (paths.STORE, paths.FORK) == ("store.cbor", "fork.cbor")
    assert (paths.RECEIPTS, paths.CHECKPOINTS) == ("receipts.cborseq", "checkpoints.cborseq")
    assert (paths.STATE_DIR, paths.LOCK, paths.INDEX) == ("state", "state/lock", "state/index")
    assert (paths.ANCHORS_DIR, paths.COMPRESSED) == ("anchors", ".bz2")


@given(label=labels, start=seqs, end=seqs, domain=st.sampled_from(Domain))
def test_every_name_says_what_it_was_made_from(label: bytes, start: int, end: int, domain: Domain) -> None:
    label = Label(label)
    chunk = inside(paths.chunk(domain, label, start, end))
    for name, kind, first, last, packed in (
        (chunk, FileKind.CHUNK, start, end, False),
        (chunk + paths.COMPRESSED, FileKind.CHUNK, start, end, True),
        (paths.open_chunk(domain, label, start), FileKind.OPEN_CHUNK, start, None, False),
        (paths.summary(domain, label, start, end), FileKind.SUMMARY, start, end, False),
        (paths.tombstone(domain, label, start, end), FileKind.TOMBSTONE, start, end, False),
        (paths.peaks(domain, label, end), FileKind.PEAKS, None, end, False),
        (paths.checkpoint(domain, label, end), FileKind.CHECKPOINT, None, end, False),
        (paths.checkpoint_index(domain, label), FileKind.CHECKPOINT_INDEX, None, None, False),
        (paths.nodes(domain, label), FileKind.NODES, None, None, False),
    ):
        assert paths.parse(inside(name)) == FileName(kind, label, first, last, packed)


@given(number=seqs)
def test_a_journal_name_says_its_number(number: int) -> None:
    assert paths.parse_journal(inside(paths.journal(number))) == number


@given(st.lists(seqs, unique=True))
def test_names_sort_as_numbers_do(numbers: list[int]) -> None:
    by_name = sorted(paths.peaks(Domain.DATA, LABEL, number) for number in numbers)
    assert by_name == [paths.peaks(Domain.DATA, LABEL, number) for number in sorted(numbers)]
    journals = sorted(paths.journal(number) for number in numbers)
    assert journals == [paths.journal(number) for number in sorted(numbers)]


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
    assert paths.parse(name) is None


def test_the_last_sequence_number_has_a_name() -> None:
    assert paths.parse(f"checkpoint-{HEX}-{LAST}.cbor") == FileName(FileKind.CHECKPOINT, LABEL, end_seq=LAST)


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
    assert paths.parse_journal(name) is None
