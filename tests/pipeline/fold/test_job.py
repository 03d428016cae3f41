"""Folds on Spark come to the bytes that one process comes to, whatever the partitions are."""

import os
from itertools import cycle
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.overlays.histories import HISTORIES, WRITERS, Log, ident
from tests.overlays.histories_wallet import OWN_STREAM
from tests.overlays.logs import STREAM
from tests.pipeline.fold.histories import BRIDGES, NONE, expected, frame, history, made, same
from tests.pipeline.fold.test_kernels import users_overlay
from veen.core.merkle.mmr import Peaks
from veen.overlays import registry
from veen.overlays.builtin.crdt import LWW, GCounter, LwwMap
from veen.overlays.event import Outcome, Record
from veen.overlays.overlay import Overlay
from veen.overlays.summary_tree.reader import Place
from veen.overlays.wallet.overlay import Wallets
from veen.pipeline.errors import IncompleteStreamError
from veen.pipeline.fold.inputs import roots_of
from veen.pipeline.fold.job import FoldSettings, FoldState, fold_stream
from veen.pipeline.fold.sql_form import Folded, FoldRange
from veen.pipeline.fold_sql import FORMS

#: How many parts the records of each overlay come in, so that all numbers are met.
PARTS = dict(zip(registry.names(), cycle((1, 2, 7, 3)), strict=False))
#: No forms in SQL: these have tests of their own.
PLAIN = FoldSettings(partitions=3)
#: As commands fold.
FORMED = FoldSettings(forms=FORMS)
KEEPING = FoldSettings(forms=FORMS, keeps=True)


@pytest.mark.parametrize("name", registry.names())
def test_every_overlay_with_copies_and_epochs(spark: SparkSession, name: str) -> None:
    overlay, records = made(name), history(name)
    found = fold_stream(
        spark, frame(spark, records, PARTS[name]), overlay, OWN_STREAM, bridges=BRIDGES, how=PLAIN
    )
    wanted = expected(overlay, records, BRIDGES)
    same(overlay, found, wanted)
    assert wanted.counts[Outcome.DUPLICATE]
    assert wanted.counts[Outcome.UNKNOWN]
    assert wanted.counts[Outcome.UNREADABLE]


#: One for each way: in ranges, in groups, in order.
WAYS = ["crdt.lww", "agreement", "recovery"]


#: More parts than the history has chunks.
MANY_PARTS = int(os.environ.get("VEEN_FOLD_PARTS", "64"))


@pytest.mark.parametrize("parts", [1, 7, MANY_PARTS])
@pytest.mark.parametrize("name", WAYS)
def test_any_number_of_parts(spark: SparkSession, name: str, parts: int) -> None:
    overlay, records = made(name), history(name, copies=False)
    how = FoldSettings(partitions=parts, small=0 if parts == 7 else 1000)
    given = frame(spark, records, 3 if overlay.grouped else parts, seed=parts)
    found = fold_stream(spark, given, overlay, OWN_STREAM, bridges=BRIDGES, how=how)
    same(overlay, found, expected(overlay, records, BRIDGES))


@pytest.mark.parametrize(
    ("name", "since", "upto"),
    [
        *((name, (10, 30), (14, 30)) for name in WAYS),
        ("agreement", None, (11, 99)),
        ("crdt.lww", (99, 1), None),
        ("recovery", (10, 1), (10, 12)),
    ],
)
def test_any_range(spark: SparkSession, name: str, since: Place | None, upto: Place | None) -> None:
    overlay, records = made(name), history(name, copies=False)
    found = fold_stream(spark, frame(spark, records), overlay, OWN_STREAM, since=since, upto=upto, how=PLAIN)
    same(overlay, found, expected(overlay, records, since=since, upto=upto))


def test_a_range_with_copies_of_what_was_before_it(spark: SparkSession) -> None:
    overlay, records = made("wallet"), history("wallet")
    found = fold_stream(
        spark, frame(spark, records), overlay, STREAM, bridges=BRIDGES, since=(14, 2), how=PLAIN
    )
    same(overlay, found, expected(overlay, records, BRIDGES, since=(14, 2), stream_id=STREAM))


class TestGoingOn:
    """A fold that goes on from a state is the fold of everything."""

    @pytest.mark.parametrize("name", ["crdt.lww", "agreement", "wallet"])
    def test_from_any_place(self, spark: SparkSession, name: str) -> None:
        overlay, records = made(name), history(name, copies=name == "wallet")
        whole = frame(spark, records)
        how = FoldSettings(forms=FORMS, keeps=True, partitions=2)
        bridges = BRIDGES if name == "wallet" else NONE
        state = FoldState.initial(overlay, bridges)
        for upto in ((10, 25), (14, 40), None):
            found = fold_stream(
                spark, whole, overlay, OWN_STREAM, bridges=bridges, upto=upto, resume=state, how=how
            )
            same(overlay, found, expected(overlay, records, bridges, upto=upto))
            assert found.state is not None
            state = FoldState.decode(overlay, found.state.encode(), bridges)
        at_once = fold_stream(spark, whole, overlay, OWN_STREAM, bridges=bridges, how=how)
        assert at_once.state is not None
        assert state.encode() == at_once.state.encode()

    def test_a_range_behind_a_state(self, spark: SparkSession) -> None:
        overlay, records = made("agreement"), history("agreement", copies=False)
        whole = frame(spark, records)
        state = fold_stream(spark, whole, overlay, OWN_STREAM, upto=(14, 9), how=KEEPING).state
        found = fold_stream(spark, whole, overlay, OWN_STREAM, resume=state, since=(14, 20), how=FORMED)
        wanted = expected(overlay, records, since=(14, 20))
        assert (found.tables, found.counts, found.reports) == (wanted.tables, wanted.counts, wanted.reports)
        with pytest.raises(ValueError, match="must begin after the state"):
            fold_stream(spark, whole, overlay, OWN_STREAM, resume=state, since=(14, 9))
        with pytest.raises(ValueError, match="cannot be resumed"):
            fold_stream(spark, whole, overlay, OWN_STREAM, since=(14, 9), how=KEEPING)

    def test_what_was_folded_already_is_not_folded_again(self, spark: SparkSession) -> None:
        overlay, records = GCounter(), history("crdt.gcnt", copies=False)
        state = fold_stream(spark, frame(spark, records), overlay, OWN_STREAM, how=KEEPING).state
        found = fold_stream(spark, frame(spark, records), overlay, OWN_STREAM, resume=state, how=FORMED)
        same(overlay, found, expected(overlay, records))

    def test_what_is_missing_in_between_is_found_out(self, spark: SparkSession) -> None:
        overlay, records = GCounter(), history("crdt.gcnt", copies=False)
        state = fold_stream(spark, frame(spark, records[:30]), overlay, OWN_STREAM, how=KEEPING).state
        with pytest.raises(IncompleteStreamError, match="starts with entry 33, not with 31"):
            fold_stream(spark, frame(spark, records[32:40]), overlay, OWN_STREAM, resume=state)


class TestIncomplete:
    """What is not a whole stream is not folded."""

    def test_entries_in_the_middle(self, spark: SparkSession) -> None:
        records = history("crdt.lww")
        with pytest.raises(IncompleteStreamError, match="1 entry of epoch 10 missing between 1 and 40"):
            fold_stream(spark, frame(spark, records[:20] + records[21:]), LwwMap(), OWN_STREAM)

    def test_entries_at_the_beginning(self, spark: SparkSession) -> None:
        with pytest.raises(IncompleteStreamError, match="epoch 10 starts with entry 6, not with 1"):
            fold_stream(spark, frame(spark, history("crdt.lww")[5:]), LwwMap(), OWN_STREAM)

    def test_entries_that_are_there_twice_in_place_of_others(self, spark: SparkSession) -> None:
        records = history("crdt.lww")
        with pytest.raises(IncompleteStreamError, match="duplicate entries of epoch 10"):
            fold_stream(spark, frame(spark, [*records[:20], records[3], *records[21:]]), LwwMap(), OWN_STREAM)


def test_a_stream_without_entries(spark: SparkSession) -> None:
    for overlay in (LwwMap(), Wallets()):
        found = fold_stream(spark, frame(spark, []), overlay, OWN_STREAM, how=KEEPING)
        same(overlay, found, expected(overlay, []))
        assert found.runs == []


def test_a_stream_of_which_nothing_can_be_read(spark: SparkSession) -> None:
    log = Log(Random(1))
    for _ in range(5):
        log.add(None, b"")
    log.add(ident("another schema"), b"\xa0")
    found = fold_stream(spark, frame(spark, log.records), LwwMap(), OWN_STREAM, since=(0, 3), how=FORMED)
    same(LwwMap(), found, expected(LwwMap(), log.records, since=(0, 3)))
    assert (found.counts[Outcome.UNREADABLE], found.counts[Outcome.UNKNOWN]) == (3, 1)


def test_a_message_that_a_log_has_twice_counts_once_where_copies_are_looked_for(spark: SparkSession) -> None:
    records = [
        *history("crdt.gcnt", 30, copies=False),
        history("crdt.gcnt", 30, copies=False)[25]._replace(stream_seq=20),
    ]
    for bridges in (NONE, BRIDGES):
        found = fold_stream(spark, frame(spark, records), GCounter(), OWN_STREAM, bridges=bridges, how=PLAIN)
        same(GCounter(), found, expected(GCounter(), records, bridges))


def test_numbers_and_texts_from_the_edges(spark: SparkSession) -> None:
    log = Log(Random(1))
    for ts, value in ((2**64 - 1, b"\x00"), (2**63, b"\xff" * 4000), (0, b""), (2**64 - 1, b"last")):
        log.event(LWW, WRITERS[0], key=b"k", ts=ts, value=value)
        log.event(LWW, WRITERS[0], key=value, ts=ts, value=b"v")
        log.records[-1] = log.records[-1]._replace(expires_at=ts, hub_ts=2**62)
    found = fold_stream(spark, frame(spark, log.records), LwwMap(), OWN_STREAM, how=PLAIN)
    same(LwwMap(), found, expected(LwwMap(), log.records))


def test_an_overlay_of_a_users_file(spark: SparkSession, tmp_path: Path) -> None:
    overlay = users_overlay(tmp_path, step=2)
    schema, log = overlay.schemas[0], Log(Random(1))
    for word in (b"a", b"b", b"a"):
        log.event(schema, word=word)
    found = fold_stream(spark, frame(spark, log.records), overlay, OWN_STREAM, how=FORMED)
    same(overlay, found, expected(overlay, log.records))
    assert overlay.view(found.memory(overlay)) == {"0x61": 4, "0x62": 2}


class _Formed(LwwMap):
    """One with a form."""

    name = "formed"


def test_a_form_is_used_where_it_knows_enough(spark: SparkSession) -> None:
    asked: list[FoldRange] = []

    def form(spark: SparkSession, records: DataFrame, overlay: Overlay, stretch: FoldRange) -> Folded | None:
        asked.append(stretch)
        if stretch.has_copies:
            return None
        assert records.sparkSession is spark
        return Folded({name: {} for name in overlay.tables}, {Outcome.EVENT: records.count()}, [])

    how = FoldSettings(forms={_Formed: form})
    plain, copied = history("crdt.lww", copies=False), history("crdt.lww")
    found = fold_stream(
        spark, frame(spark, plain), _Formed(), OWN_STREAM, bridges=BRIDGES, upto=(11, 1), how=how
    )
    assert found.tables == {"registers": {}}
    assert sum(found.counts.values()) == 41
    other = fold_stream(spark, frame(spark, copied), _Formed(), OWN_STREAM, bridges=BRIDGES, how=how)
    same(_Formed(), other, expected(_Formed(), copied, BRIDGES))
    assert [item.has_copies for item in asked] == [False, True]
    assert asked[0].upto == (11, 1)
    for how in (
        FoldSettings(),
        FoldSettings(forms={LwwMap: form}),
        FoldSettings(forms={_Formed: form}, keeps=True),
    ):
        again = fold_stream(spark, frame(spark, plain), _Formed(), OWN_STREAM, bridges=BRIDGES, how=how)
        same(_Formed(), again, expected(_Formed(), plain, BRIDGES))
    assert len(asked) == 2


def _root(records: list[Record], epoch: int) -> bytes:
    peaks, _ = Peaks.empty().extend(item.msg_id for item in records if item.epoch == epoch)
    return bytes(peaks.root)


def test_roots_follow_from_the_records(spark: SparkSession) -> None:
    records = HISTORIES["crdt.gcnt"](Random(1), 300)
    records += [item._replace(epoch=3) for item in records[:77]]
    found = roots_of(frame(spark, records, 7), 3)
    assert found == {0: _root(records, 0), 3: _root(records, 3)}
    assert roots_of(frame(spark, [])) == {}
