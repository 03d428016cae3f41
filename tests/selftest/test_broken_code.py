"""The same for laws: an installation whose code is wrong fails the step that is about it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.selftest.runs import assert_fails, only, surroundings
from veen.selftest import SUITES, step_names

#: Code that a run executes before it begins.
MISTAKES: dict[str, tuple[str, str]] = {
    "peaks folded the other way": (
        "mmr-splits",
        "mmr.fold_peaks = lambda peaks, fold=mmr.fold_peaks: fold(tuple(reversed(peaks)))",
    ),
    "any path will do": (
        "proof-minimality",
        "inclusion.MmrProof._climb = lambda self, seq, height: self.peaks_after[-1]",
    ),
    "the log may be rewritten": (
        "consistency-proofs",
        "consistency.ConsistencyProof.verify = lambda self, **_: None",
    ),
    "more may follow": ("cbor-determinism", "cbor.at_end = lambda *_: None"),
    "maps as they were filled": ("canonical-maps", "cbor.sorted = lambda items, **_: list(items)"),
    "replies to anybody": (
        "rpc",
        "serve.ReaderPublicKey = lambda _: None",
    ),
    "a journal that forgets": (
        "rpc-idempotency",
        "serve.Journal.reply = lambda *_: (False, None)",
    ),
    "days of an hour": ("wallet-names", "wallet_schemas.DAY = 3600"),
    "money from nowhere": ("wallet-fold", "wallet._credit = lambda *_: ''"),
    "only the last payment": ("paid-ledger", "monoid._Sum.merge = lambda self, left, right: right"),
    "effects that depend on the grouping": (
        "wallet-merge",
        "effects._Effects.merge = lambda _, a, b: a._replace(balance=a.balance - b.balance)",
    ),
    "copies that count": (
        "wallet-copies",
        "engine.Annotator._canonical = lambda self, record: (record.msg_id, None)",
    ),
    "a credit that nobody has paid": ("wallet-flow", "wallet.is_unbacked = lambda _: False"),
    "every transfer has the same name": ("wallet-flow", "wallets.transfer_id = lambda *_: bytes(32)"),
    "any chain will do": ("op", "delegation.Delegated._verdict = lambda self, event: None"),
    "nothing is taken back": ("op-access", "access._Ended.after = lambda self, *_: False"),
    "anybody may agree": ("agreement", "agreement.speaks_for = lambda *_: True"),
    "every snapshot is good": ("snapshot", "snapshots.SnapshotCheck.consistent = True"),
    "anybody may approve": ("recovery", "recovery.speaks_for = lambda *_: True"),
    "queries in any order": ("audit", "query_audit.sorted = lambda rows, **_: list(rows)"),
    "anybody is the principal": ("record-events", "replay.EVENT = None"),
    "whatever is asked is proven": ("record-checkpoints", "replay.prove = lambda *_: (n for n in ())"),
    "all damage is the same": ("record-tampering", "judge.diagnose = lambda *_: (1, 'edited')"),
    "the last one wins": ("crdt", "monoid._Max.merge = lambda self, left, right: right"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_wrong_code_fails_the_step(tmp_path: Path, name: str) -> None:
    step, mistake = MISTAKES[name]
    suite = next(suite for suite in SUITES if step in step_names(suite))
    program = (
        "from veen.core.encoding import cbor\n"
        "from veen.core.merkle import consistency, inclusion, mmr\n"
        "from veen.overlays import engine, monoid\n"
        "from veen.overlays.operations import access, agreement, delegation, query_audit, recovery\n"
        "from veen.overlays.wallet import effects, overlay as wallet, schemas as wallet_schemas\n"
        "from veen.client import wallets\n"
        "from veen.client.fold import snapshots\n"
        "from veen.client.rpc import serve\n"
        "from veen.recorder import replay\n"
        "from veen.recorder.verify import judge\n"
        f"{mistake}\nfrom veen.cli.main import main\nmain()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "selftest", suite, *only(step), "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=surroundings(tmp_path),
        cwd=tmp_path,
    )
    assert_fails(done, step)
