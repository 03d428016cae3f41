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
        "proof.MmrProof._climb = lambda self, seq, height: self.peaks_after[-1]",
    ),
    "the log may be rewritten": (
        "consistency-proofs",
        "consistency.ConsistencyProof.verify = lambda self, **_: None",
    ),
    "more may follow": ("cbor-determinism", "cbor.at_end = lambda *_: None"),
    "maps as they were filled": ("canonical-maps", "cbor.sorted = lambda items, **_: list(items)"),
    "replies to anybody": (
        "rpc",
        "serving.ReaderPublicKey = lambda _: None",
    ),
    "a journal that forgets": (
        "rpc-idempotency",
        "serving.Journal.reply = lambda *_: (False, None)",
    ),
    "days of an hour": ("wallet-names", "wallet_ids.DAY = 3600"),
    "money from nowhere": ("wallet-fold", "wallet._credit = lambda *_: ''"),
    "only the last payment": ("paid-ledger", "monoids._Sum.merge = lambda self, left, right: right"),
    "effects that depend on the grouping": (
        "wallet-merge",
        "wallet_effects._Effects.merge = lambda _, a, b: a._replace(balance=a.balance - b.balance)",
    ),
    "copies that count": (
        "wallet-copies",
        "folding.Annotator._canonical = lambda self, record: (record.msg_id, None)",
    ),
    "a credit that nobody has paid": ("wallet-flow", "wallet.is_unbacked = lambda _: False"),
    "every transfer has the same name": ("wallet-flow", "wallets.transfer_id = lambda *_: bytes(32)"),
    "any chain will do": ("op", "delegation.Delegated._verdict = lambda self, event: None"),
    "nothing is taken back": ("op-access", "access._Ended.after = lambda self, *_: False"),
    "anybody may agree": ("agreement", "agreement.speaks_for = lambda *_: True"),
    "every snapshot is good": ("snapshot", "snapshots.SnapshotCheck.consistent = True"),
    "anybody may approve": ("recovery", "recovery.speaks_for = lambda *_: True"),
    "queries in any order": ("audit", "auditlog.sorted = lambda rows, **_: list(rows)"),
    "anybody is the principal": ("record-events", "replaying.EVENT = None"),
    "whatever is asked is proven": ("record-checkpoints", "replaying.prove = lambda *_: (n for n in ())"),
    "all damage is the same": ("record-tampering", "verdicts.diagnose = lambda *_: (1, 'edited')"),
    "the last one wins": ("crdt", "monoids._Max.merge = lambda self, left, right: right"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_wrong_code_fails_the_step(tmp_path: Path, name: str) -> None:
    step, mistake = MISTAKES[name]
    suite = next(suite for suite in SUITES if step in step_names(suite))
    program = (
        "from veen.core import cbor, consistency, mmr, proof\n"
        "from veen.overlays import folding, monoids, wallet, wallet_effects, wallet_ids\n"
        "from veen.overlays import access, agreement, auditlog, delegation, recovery\n"
        "from veen.client import serving, snapshots, wallets\n"
        "from veen.recorder import replaying, verdicts\n"
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
