"""Folds in SQL beside the fold in one process: the same tables, counts, reports, however spread."""

from collections.abc import Iterable
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.overlays.histories import HISTORIES
from tests.overlays.histories_wallet import ACCOUNTS, IDS, OWN_STREAM, REALM, WALLETS
from tests.overlays.logs import STREAM, T0, WRITERS, Log, ident
from tests.pipeline.fold.histories import frame, same
from tests.pipeline.fold_sql.wallet_logs import many_wallets, transfer
from tests.pipeline.open.test_typed_columns import records_batch
from veen.core.crypto.hash import U64_MAX
from veen.overlays.builtin.crdt import COUNTER, LWW, ORSET, GCounter, LwwMap, OrSet
from veen.overlays.engine import Fold, Summary, fold
from veen.overlays.event import Outcome, Record
from veen.overlays.operations.paid_ledger import PAID, PaidLedger
from veen.overlays.overlay import Overlay
from veen.overlays.wallet import schemas as wal
from veen.overlays.wallet.overlay import Wallets
from veen.overlays.wallet.schemas import wallet_id
from veen.pipeline.fold.inputs import RECORDS_SCHEMA
from veen.pipeline.fold.job import FoldSettings, fold_stream
from veen.pipeline.fold.sql_form import Folded, FoldRange
from veen.pipeline.fold_sql import FORMS
from veen.pipeline.fold_sql import wallet as sqlform_wallet

WHOLE = FoldRange(STREAM)
#: Over how many partitions the rows of a history are spread: each costs a task for each step.
SPREAD = {"crdt.lww": (1, 64), "wallet": (1, 7)}


def rows_of(spark: SparkSession, records: list[Record], partitions: int, overlay: Overlay) -> DataFrame:
    """Return the records of an overlay as rows in no order."""
    ids = {schema.schema_id for schema in overlay.schemas}
    rows = records_batch([record for record in records if record.schema in ids]).to_pylist()
    Random(partitions).shuffle(rows)
    spread = spark.sparkContext.parallelize([tuple(row.values()) for row in rows], partitions)
    return spark.createDataFrame(spread, RECORDS_SCHEMA)


def without_copies(records: Iterable[Record]) -> list[Record]:
    """Return a log in which nothing says that it is a copy: those that did are events of their own."""
    return [record._replace(parent_id=None) for record in records]


def in_process(overlay: Overlay, records: list[Record]) -> Summary:
    """Return the fold in one process, of what the overlay reads."""
    summary = fold(overlay, records, STREAM)
    summary.counts[Outcome.UNKNOWN] = summary.counts[Outcome.UNREADABLE] = 0
    return summary


def folded(spark: SparkSession, overlay: Overlay, records: list[Record], partitions: int) -> Folded | None:
    """Fold with the form of an overlay."""
    return FORMS[type(overlay)](spark, rows_of(spark, records, partitions, overlay), overlay, WHOLE)


def assert_same(found: Folded | None, summary: Summary, overlay: Overlay) -> None:
    """Assert that a fold is that of one process, to the byte."""
    assert found is not None
    assert found.counts == summary.counts
    assert found.reports == summary.reports
    assert found.tables == summary.tables
    made = Summary(summary.runs, found.counts, found.tables, found.reports)
    assert Fold(overlay).encode(made) == Fold(overlay).encode(summary)


def check(spark: SparkSession, overlay: Overlay, records: list[Record], *partitions: int) -> Summary:
    """Assert that all ways to spread a log come to the same."""
    summary = in_process(overlay, records)
    for count in partitions:
        assert_same(folded(spark, overlay, records, count), summary, overlay)
    return summary


@pytest.mark.parametrize(
    "overlay", [LwwMap(), GCounter(), OrSet(), PaidLedger(), Wallets()], ids=lambda o: o.name
)
def test_histories_fold_to_the_bytes_of_one_process(spark: SparkSession, overlay: Overlay) -> None:
    records = without_copies(HISTORIES[overlay.name](Random(overlay.name), 800))
    summary = check(spark, overlay, records, *SPREAD.get(overlay.name, (7,)))
    assert summary.reports


def test_registers_with_ties_hot_keys_and_the_ends_of_numbers(spark: SparkSession) -> None:
    log = Log(Random(1))
    for nth in range(400):
        key = b"hot" if nth % 2 else b"key %d" % (nth % 40)
        log.event(LWW, key=key, ts=log.rng.choice((0, 1, 2**63 - 1, 2**63, U64_MAX)), value=b"%d" % nth)
    check(spark, LwwMap(), log.records, 3)


def test_counters_go_beyond_64_bits(spark: SparkSession) -> None:
    log = Log(Random(1))
    for nth in range(200):
        log.event(COUNTER, shard=ident(nth % 2), delta=U64_MAX - nth % 3)
    summary = check(spark, GCounter(), log.records, 3)
    assert summary.tables["shards"][ident(0)] > U64_MAX


def test_sets_of_ids_that_are_reused_and_removed_before_they_are_added(spark: SparkSession) -> None:
    log = Log(Random(1), epoch=2)
    for _ in range(500):
        ids = [ident(log.rng.randrange(120)) for _ in range(3)]
        if log.rng.random() < 0.7:
            log.event(ORSET, id=ids[0], elem=b"e%d" % log.rng.randrange(3))
        else:
            log.event(ORSET, tomb=(*ids, ids[0]))
    summary = check(spark, OrSet(), log.records, 1, 5)
    assert {report.code for report in summary.reports} == {"CRDT.ID_REUSED"}
    assert summary.tables["removed"]


def test_registers_and_counters_of_a_part_of_a_stream(spark: SparkSession) -> None:
    for overlay in (LwwMap(), GCounter()):
        records = without_copies(HISTORIES[overlay.name](Random(3), 200))
        made = Fold(overlay)
        form = FORMS[type(overlay)]
        since = (0, 80)
        found = form(spark, rows_of(spark, records, 3, overlay), overlay, FoldRange(STREAM, since=since))
        behind = [record for record in records if (record.epoch, record.stream_seq) >= since]
        part = fold(overlay, behind, STREAM)
        assert found is not None
        assert found.tables == made.tables_of(part).tables
        assert found.reports == part.reports


def test_what_a_form_can_not_do_it_leaves(spark: SparkSession) -> None:
    records = without_copies(HISTORIES["wallet"](Random(3), 20))
    rows = rows_of(spark, records, 1, Wallets())
    assert FORMS[Wallets](spark, rows, Wallets(replica=True), WHOLE) is None
    assert FORMS[Wallets](spark, rows, Wallets(), FoldRange(STREAM, has_copies=True)) is None
    assert FORMS[Wallets](spark, rows, Wallets(), FoldRange(STREAM, since=(0, 5))) is None


# --- the ledger ---------------------------------------------------------------------------------------------


def _paid(log: Log, payer: bytes, payee: bytes, amount: int) -> None:
    body = PAID.make(
        operation_type="t",
        operation_args=None,
        payer_account=payer,
        payee_account=payee,
        amount=amount,
        currency_code="EUR",
    )
    log.add(PAID, PAID.encode(body))


def test_ledgers_with_parameters(spark: SparkSession) -> None:
    records = without_copies(HISTORIES["paid.ledger"](Random(8), 400))
    remap = {ACCOUNTS[0]: ACCOUNTS[1], ACCOUNTS[1]: ACCOUNTS[2]}
    overlay = PaidLedger(default_currency="XTS", remap=remap)
    summary = check(spark, overlay, records, 3)
    assert {report.code for report in summary.reports} > {"OP.STALE"}


def test_a_strict_ledger_as_long_as_nothing_is_refused(spark: SparkSession) -> None:
    issuer = ident("issuer")
    log = Log(Random(1))
    for account in ACCOUNTS:
        _paid(log, issuer, account, 1000)
    for _ in range(200):
        payer, payee = log.rng.choices(ACCOUNTS, k=2)
        _paid(log, payer, payee, log.rng.randrange(5))
    overlay = PaidLedger(forbid_negative=True, issuers=frozenset({issuer}))
    check(spark, overlay, log.records, 1, 4)
    _paid(log, ACCOUNTS[0], ACCOUNTS[0], U64_MAX)  # with oneself: changes nothing, never refused
    check(spark, overlay, log.records, 2)
    _paid(log, ACCOUNTS[0], ACCOUNTS[1], U64_MAX)
    assert fold(overlay, log.records, STREAM).reports
    assert folded(spark, overlay, log.records, 2) is None


# --- wallets ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reset", ["neq", "gt"])
def test_many_wallets_of_which_some_break_rules(spark: SparkSession, reset: str) -> None:
    overlay = Wallets(needs_reset=reset)
    codes = set()
    for seed, partitions in ((1, 2), (2, 7)):
        records = many_wallets(Random(seed), 2500, bad=0.05)
        summary = check(spark, overlay, records, partitions)
        codes |= {report.code for report in summary.reports}
    assert codes >= {"WAL.INSUFFICIENT_FUNDS", "WAL.UNBACKED", "WAL.DUPLICATE", "WAL.TS_REGRESSION"}


def test_wallets_of_which_none_breaks_a_rule(spark: SparkSession) -> None:
    summary = check(spark, Wallets(), many_wallets(Random(4), 1500, bad=0), 3)
    assert not summary.reports


def test_wallets_with_other_parameters(spark: SparkSession) -> None:
    records = many_wallets(Random(5), 1500, bad=0.1)
    check(spark, Wallets(unique_withdraw_refs=False), records, 2)
    summary = check(spark, Wallets(institution=frozenset(WRITERS[:1])), records, 2)
    assert "WAL.UNAUTHORIZED_OPERATION" in {report.code for report in summary.reports}


def test_the_own_stream_of_a_wallet_is_folded_as_one_process_does(spark: SparkSession) -> None:
    """Which is one wallet's: its form leaves it, and the way that is then taken finds the same."""
    overlay = Wallets()
    records = without_copies(HISTORIES["wallet"](Random(11), 300))
    rows = rows_of(spark, records, 3, overlay)
    assert FORMS[Wallets](spark, rows, overlay, FoldRange(OWN_STREAM)) is None
    wanted = fold(overlay, records, OWN_STREAM)
    codes = {report.code for report in wanted.reports}
    assert codes >= {"WAL.UNBACKED_CREDIT", "WAL.WRONG_STREAM"}
    assert (
        wanted.tables["wallets"][IDS[0]].balance
        != in_process(overlay, records).tables["wallets"][IDS[0]].balance
    )
    same(
        overlay,
        fold_stream(spark, frame(spark, records, 3), overlay, OWN_STREAM, how=FoldSettings(forms=FORMS)),
        wanted,
    )
    log = Log(Random(1))
    transfer(log, IDS[1], IDS[0], 50, T0)  # which is not even opened
    rows = rows_of(spark, log.records, 1, overlay)
    assert FORMS[Wallets](spark, rows, overlay, FoldRange(OWN_STREAM)) is None
    records = _never_paid()
    wanted = fold(overlay, records, OWN_STREAM)
    assert [report.code for report in wanted.reports] == ["WAL.WRONG_STREAM"] * 4
    same(
        overlay,
        fold_stream(spark, frame(spark, records, 2), overlay, OWN_STREAM, how=FoldSettings(forms=FORMS)),
        wanted,
    )


def _never_paid() -> list[Record]:
    """Return a log in which the first wallet is opened, and never paid: only that says whose stream it is."""
    log = Log(Random(1))
    first, second, third = IDS[:3]
    for ctx, currency, wallet in WALLETS[:3]:
        opened: dict[str, Any] = {"realm_id": REALM, "ctx_id": ctx, "currency": currency}
        log.event(wal.OPEN, wallet_id=wallet, created_at=T0, **opened)
    for wallet in (second, first):
        log.event(wal.DEPOSIT, wallet_id=wallet, amount=50, ts=T0)
    transfer(log, first, second, 20, T0)
    transfer(log, second, third, 10, T0)
    return log.records


def test_one_overdraft_takes_the_money_from_a_whole_chain(spark: SparkSession) -> None:
    log = Log(Random(1))
    chain = []
    for nth in range(12):
        ctx = ident("ctx", nth)
        chain.append(wal_id := wal_of(ctx))
        opened: dict[str, Any] = {
            "realm_id": ident("realm"),
            "ctx_id": ctx,
            "currency": "EUR",
            "created_at": T0,
        }
        log.event(wal.OPEN, wallet_id=wal_id, **opened)
    # The first has nothing; each passes on what it would have got; the last one has enough all the same.
    log.event(wal.DEPOSIT, wallet_id=chain[-2], amount=50, ts=T0)
    for nth, (source, target) in enumerate(pairwise(chain)):
        transfer(log, source, target, 50, T0 + nth)
    summary = check(spark, Wallets(), log.records, 4)
    codes = [report.code for report in summary.reports]
    assert codes.count("WAL.INSUFFICIENT_FUNDS") == 10
    assert codes.count("WAL.UNBACKED") == 10
    assert summary.tables["wallets"][chain[-1]].balance == 50


def test_a_debit_that_counts_after_all_because_another_does_not(spark: SparkSession) -> None:
    log = Log(Random(1))
    first, second, third = (wal_of(ident("ctx", nth)) for nth in range(3))
    for nth, one in enumerate((first, second, third)):
        opened: dict[str, Any] = {"realm_id": ident("realm"), "ctx_id": ident("ctx", nth), "currency": "EUR"}
        log.event(wal.OPEN, wallet_id=one, created_at=T0, **opened)
    log.event(wal.DEPOSIT, wallet_id=second, amount=5, ts=T0)
    transfer(log, first, second, 10, T0)  # refused: so the next is refused too, and the one behind it counts
    transfer(log, second, third, 11, T0)
    transfer(log, second, third, 5, T0)
    log.event(wal.WITHDRAW, wallet_id=third, amount=5, ts=T0)
    check(spark, Wallets(), log.records, 3)


def wal_of(ctx: bytes) -> bytes:
    """Return the wallet of somebody."""
    return wallet_id(ident("realm"), ctx, "EUR")


def test_who_does_not_get_a_credit_is_looked_at_again(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(Random(1))
    poor, rich, saver, lucky, unlucky = (wal_of(ident("ctx", nth)) for nth in range(5))
    for nth, one in enumerate((poor, rich, saver, lucky, unlucky)):
        opened: dict[str, Any] = {"realm_id": ident("realm"), "ctx_id": ident("ctx", nth), "currency": "EUR"}
        log.event(wal.OPEN, wallet_id=one, created_at=T0, **opened)
    for one, amount in ((rich, 1000), (lucky, 5), (unlucky, 5)):
        log.event(wal.DEPOSIT, wallet_id=one, amount=amount, ts=T0)
        log.event(wal.WITHDRAW, wallet_id=one, amount=5, ts=T0)
    for one in (rich, saver, lucky, unlucky):
        transfer(log, poor, one, 10, T0)
    log.event(wal.DEPOSIT, wallet_id=lucky, amount=10, ts=T0)  # in time for what it spends
    for one in (lucky, unlucky):
        log.event(wal.WITHDRAW, wallet_id=one, amount=10, ts=T0)
    overlay = Wallets()
    summary = check(spark, overlay, log.records, 3)
    monkeypatch.setattr(sqlform_wallet, "FEW", 0)  # joined, not named in a query
    check(spark, overlay, log.records, 3)
    codes = [report.code for report in summary.reports]
    assert codes == ["WAL.INSUFFICIENT_FUNDS", "WAL.UNBACKED"] * 4 + ["WAL.INSUFFICIENT_FUNDS"]
    wallets = summary.tables["wallets"]
    assert [wallets[one].balance for one in (rich, saver, lucky, unlucky)] == [995, 0, 0, 0]
    monkeypatch.setattr(sqlform_wallet, "MOST_JUDGED", 3)
    assert folded(spark, overlay, log.records, 2) is None, "too much for the driver"
