"""Wallets and the ledger beside their references: states and verdicts, over many random logs.

``make folds`` does the same for millions of events.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from random import Random
from typing import Any

import pytest

from tests.overlays import reference_wallet as reference
from tests.overlays.histories_wallet import ACCOUNTS, CURRENCIES, IDS, OWN_STREAM, WALLET_HISTORIES, WALLETS
from tests.overlays.logs import BRIDGE, STREAM, T0, WRITERS
from veen.overlays.engine import Fold, Summary, annotate, fold
from veen.overlays.event import Decoder, Event, Outcome, Record
from veen.overlays.operations.paid_ledger import PaidLedger
from veen.overlays.overlay import Overlay
from veen.overlays.wallet import schemas as wal
from veen.overlays.wallet.effects import INITIAL, State
from veen.overlays.wallet.literal import IDENTITY, LITERAL, Table, applied, literal_cells
from veen.overlays.wallet.overlay import IN, TOLD, Wallets, pending_of, wallet_of
from veen.overlays.wallet.reconcile import reconcile
from veen.overlays.wallet.schemas import wallet_stream

pytestmark = pytest.mark.sweep

#: Events for all configurations together.
EVENTS = int(os.environ.get("VEEN_FOLD_EVENTS", "200000"))
LOG = 250
BRIDGES = frozenset({BRIDGE})
#: Two accounts that have become one.
REMAP = {ACCOUNTS[0]: ACCOUNTS[1]}
#: Without one nobody ever has anything.
ISSUERS = frozenset({ACCOUNTS[3]})


@cache
def _pool(name: str) -> list[Record]:
    """Return records to make logs of: making them costs more than folding them."""
    return [record for seed in range(20) for record in WALLET_HISTORIES[name](Random(seed), LOG)]


def logs(name: str, count: int) -> Iterator[list[Record]]:
    """Yield random logs with so many records in all; copies are of records of the same log."""
    pool = _pool(name)
    for seed in range(max(count // LOG, 1)):
        rng = Random(f"{name}/{seed}")
        made: list[Record] = []
        for seq in range(1, LOG + 1):
            source = rng.choice(pool)
            copied = None
            writer = WRITERS[seq % 4]
            if made and rng.random() < 0.05:
                source = rng.choice(made)
                copied, writer = source.msg_id, rng.choice((BRIDGE, writer))
            made.append(
                source._replace(
                    stream_seq=seq,
                    msg_id=b"%032d" % (seed * LOG + seq),
                    client_id=writer,
                    client_seq=seq,
                    hub_ts=T0 + seq,
                    parent_id=copied,
                )
            )
        yield made


#: Overlay, reference with the same parameters, history, and share of the events.
CASES: dict[str, tuple[Overlay, Callable[[list[Record]], Any], str, float]] = {
    "wallet": (Wallets(), lambda records: reference.Wallets(records, STREAM), "wallet", 0.3),
    "wallet, alone": (Wallets(), lambda records: reference.Wallets(records, OWN_STREAM), "wallet", 0.1),
    "wallet, days go forward only": (
        Wallets(needs_reset="gt"),
        lambda records: reference.Wallets(records, STREAM, forward_only=True),
        "wallet",
        0.15,
    ),
    "wallet, references may repeat": (
        Wallets(unique_withdraw_refs=False),
        lambda records: reference.Wallets(records, STREAM, unique_refs=False),
        "wallet",
        0.1,
    ),
    "ledger": (PaidLedger(), reference.Ledger, "paid.ledger", 0.15),
    "ledger, strict": (
        PaidLedger(default_currency="XTS", forbid_negative=True, issuers=ISSUERS),
        lambda records: reference.Ledger(records, default="XTS", strict=True, issuers=ISSUERS),
        "paid.ledger",
        0.1,
    ),
    "ledger, strict with remap": (
        PaidLedger(forbid_negative=True, issuers=ISSUERS, remap=REMAP),
        lambda records: reference.Ledger(records, strict=True, issuers=ISSUERS, remap=REMAP),
        "paid.ledger",
        0.1,
    ),
}


def _shown(made: Any) -> Any:
    return reference.shown_wallets(made) if isinstance(made, reference.Wallets) else reference.shown(made)


@pytest.mark.parametrize("case", CASES)
def test_states_and_verdicts_are_those_of_the_reference(case: str) -> None:
    overlay, refer, history, share = CASES[case]
    folding = Fold(overlay)
    seen: set[str] = set()
    stream = OWN_STREAM if case == "wallet, alone" else STREAM
    for log in logs(history, int(EVENTS * share)):
        summary = fold(overlay, log, stream, BRIDGES)
        made = refer(log)
        assert folding.view(summary) == _shown(made)
        verdicts = [
            (report.stream_seq, report.code)
            for report in summary.reports
            if not report.code.startswith(("BODY.", "COPY."))
        ]
        assert verdicts == made.verdicts
        seen |= {code for _, code in verdicts}
    wanted = _WALLET_CODES if history == "wallet" else _LEDGER_CODES[case]
    if stream == OWN_STREAM:
        wanted = wanted | {"WAL.UNBACKED_CREDIT", "WAL.WRONG_STREAM"}
    assert seen == wanted, "the logs reach every verdict"


#: What the logs must reach; what makes a body or a copy bad, and what parameters ask for, is tried elsewhere.
_WALLET_CODES = {
    "WAL.CLOSED",
    "WAL.DAILY_LIMIT_EXCEEDED",
    "WAL.DUPLICATE",
    "WAL.FROZEN",
    "WAL.ID_MISMATCH",
    "WAL.INSUFFICIENT_FUNDS",
    "WAL.NEGATIVE_ADJUST",
    "WAL.NOT_FOUND",
    "WAL.OVERFLOW",
    "WAL.REOPENED",
    "WAL.SELF_TRANSFER",
    "WAL.TS_REGRESSION",
    "WAL.UNBACKED",
}


_LEDGER_CODES = {
    "ledger": {"OP.STALE", "OP.CURRENCY_MISSING"},
    "ledger, strict": {"OP.STALE", "OP.NEGATIVE_BALANCE"},
    "ledger, strict with remap": {"OP.STALE", "OP.CURRENCY_MISSING", "OP.NEGATIVE_BALANCE"},
}


# --- conservation -------------------------------------------------------------------------------------------

#: Why a credit does not come in although it was paid.
_NOBODY_TAKES_IT = {"WAL.NOT_FOUND", "WAL.CLOSED", "WAL.OVERFLOW"}


def test_in_its_own_stream_a_wallet_has_no_more_than_was_put_into_it() -> None:
    overlay, own = Wallets(), IDS[0]
    refused = 0
    for log in logs("wallet", EVENTS // 20):
        summary = fold(overlay, log, OWN_STREAM, BRIDGES)
        tables = Fold(overlay).tables_of(summary)
        effect = summary.tables["wallets"].get(own)
        if effect is None:
            continue
        assert effect.balance <= effect.deposited + effect.adjusted - effect.withdrawn
        moved = [key for key in summary.tables["transfers"] if key[:2] == (own, IN)]
        waiting = pending_of(tables, own)
        assert moved == []
        refused += len(waiting)
        assert {item.place[1] for item in waiting} <= {
            report.stream_seq for report in summary.reports if report.code == "WAL.UNBACKED_CREDIT"
        }
        assert all(money.holds for money in reconcile([tables]).currencies.values())
    assert refused > EVENTS // 1000, "the logs have credits from nowhere"


def test_money_is_neither_made_nor_lost_but_where_nobody_takes_it() -> None:
    overlay, currency_of = Wallets(), {wallet: currency for _, currency, wallet in WALLETS}
    decoder = Decoder(overlay.schemas)
    lost = 0
    for log in logs("wallet", EVENTS // 10):
        summary = Fold(overlay).empty()
        expected = dict.fromkeys(CURRENCIES, 0)
        for record, item in zip(log, annotate(overlay, log, STREAM, BRIDGES), strict=True):
            Fold(overlay).step(summary, item)
            schema = decoder.schema_of(record)
            if item.outcome is not Outcome.EVENT or schema is None:
                continue
            body = decoder.decode(record, schema)
            codes = {report.code for report in item.reports} - TOLD
            if schema is wal.TRANSFER and not codes & {"WAL.UNBACKED", "WAL.DUPLICATE"}:
                assert codes <= _NOBODY_TAKES_IT
                expected[currency_of[body["wallet_id"]]] -= body["amount"]
                if codes:
                    lost += 1
                else:  # into another currency it is as many of those
                    expected[currency_of[body["to_wallet_id"]]] += body["amount"]
            elif not codes and schema in (wal.DEPOSIT, wal.WITHDRAW, wal.ADJUST):
                sign = -1 if schema is wal.WITHDRAW else 1
                change = body["delta"] if schema is wal.ADJUST else sign * body["amount"]
                expected[currency_of[body["wallet_id"]]] += change
        found = dict.fromkeys(CURRENCIES, 0)
        for wallet, effect in summary.tables["wallets"].items():
            found[currency_of[wallet_of(wallet)]] += effect.balance
        assert found == expected
        assert all(money.holds for money in reconcile([Fold(overlay).tables_of(summary)]).currencies.values())
    assert lost, "the logs reach credits that nobody takes"


# --- the literal summary ------------------------------------------------------------------------------------


def _tables(log: list[Record], wallet: bytes) -> tuple[list[tuple[int, Table]], Summary]:
    """Return the literal summaries of a wallet's events, with their places; and the fold with the rules.

    In its own stream: the other side of a transfer is elsewhere.
    """
    overlay, stream = Wallets(), wallet_stream(wallet)
    decoder = Decoder(overlay.schemas)
    summary = Fold(overlay).empty()
    found: list[tuple[int, Table]] = []
    for record, item in zip(log, annotate(overlay, log, stream, BRIDGES), strict=True):
        Fold(overlay).step(summary, item)
        dropped = {report.code for report in item.reports} & _DROPPED
        schema = decoder.schema_of(record)
        if item.outcome is not Outcome.EVENT or dropped or schema is None:
            continue
        event = Event(record, schema, decoder.decode(record, schema), record.msg_id, stream)
        found += [(record.stream_seq, table) for whose, _, table in literal_cells(event) if whose == wallet]
    return found, summary


#: Known without a state, so that they are never entered.
_DROPPED = {"WAL.DUPLICATE", "WAL.SELF_TRANSFER", "WAL.UNBACKED_CREDIT", "WAL.WRONG_STREAM"}
#: Known by a state only.
_RULES = {
    "WAL.DAILY_LIMIT_EXCEEDED",
    "WAL.INSUFFICIENT_FUNDS",
    "WAL.NEGATIVE_ADJUST",
    "WAL.OVERFLOW",
}


def _joined(tables: list[Table]) -> Table:
    whole = IDENTITY
    for table in tables:
        whole = LITERAL.merge(whole, table)
    return whole


@pytest.mark.parametrize("seed", range(4))
def test_literal_summaries_join_in_any_grouping_to_the_same_bytes(seed: int) -> None:
    rng = Random(seed)
    log = list(logs("wallet", 4 * LOG))[seed]
    for wallet in IDS:
        tables = [table for _, table in _tables(log, wallet)[0]]
        for _ in range(30):
            low, high = sorted(rng.sample(range(len(tables) + 1), 2))
            a, b, c = (_joined(part) for part in (tables[:low], tables[low:high], tables[high:]))
            left = LITERAL.merge(LITERAL.merge(a, b), c)
            assert left == LITERAL.merge(a, LITERAL.merge(b, c))
            assert LITERAL.unpack(LITERAL.pack(left)) == left


def enforced(events: Sequence[Table], start: State = INITIAL) -> tuple[State, list[int]]:
    """Return the state of one wallet with its rules enforced, and which events broke one and do not count.

    On a tree of summaries: one look for each event that breaks a rule.
    """
    size = 1 << max(len(events) - 1, 0).bit_length()
    nodes = [IDENTITY] * size + [*events] + [IDENTITY] * (size - len(events))
    for node in range(size - 1, 0, -1):
        nodes[node] = LITERAL.merge(nodes[2 * node], nodes[2 * node + 1])
    found: list[int] = []
    while True:
        after, broken = applied(nodes[1], start)
        if not broken:
            return after, found
        node, state = 1, start
        while node < size:
            node *= 2
            passed, broken = applied(nodes[node], state)
            if not broken:
                node, state = node + 1, passed
        found.append(node - size)
        nodes[node] = IDENTITY
        while node > 1:
            node //= 2
            nodes[node] = LITERAL.merge(nodes[2 * node], nodes[2 * node + 1])


def test_a_tree_of_literal_summaries_finds_what_breaks_a_rule() -> None:
    seen: set[str] = set()
    for log in logs("wallet", EVENTS // 40):
        for wallet in IDS:
            events, summary = _tables(log, wallet)
            state, found = enforced([table for _, table in events])
            assert state == Wallets().state(Fold(Wallets()).tables_of(summary), wallet)
            told = {
                report.stream_seq: report.code
                for report in summary.reports
                if report.code in _RULES and wallet.hex() in report.detail
            }
            assert {events[nth][0] for nth in found} == set(told)
            seen |= set(told.values())
    assert seen == _RULES


def test_a_literal_summary_holds_from_any_state_in_the_middle() -> None:
    rng = Random(5)
    for log in logs("wallet", 4 * LOG):
        for wallet in IDS:
            tables = [table for _, table in _tables(log, wallet)[0]]
            cut = rng.randrange(len(tables) + 1)
            start, first = applied(_joined(tables[:cut]), State())
            after, second = applied(_joined(tables[cut:]), start)
            whole, broken = applied(_joined(tables), State())
            assert (after, first or second) == (whole, broken)
