"""``veen pipeline fold`` prints what ``veen interpret`` prints: from a log, from a hub, from a lake."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.cli.command_runner import User
from tests.cli.commands.test_state import MODULE
from tests.hub.hub_process import HubProcess
from veen.client.fold.incremental import Reached
from veen.core.objects import labels
from veen.core.types import Label, NodeHash
from veen.overlays.wallet.schemas import wallet_id, wallet_stream
from veen.pipeline.errors import RootMismatchError
from veen.pipeline.fold.inputs import FoldInput
from veen.pipeline.log.log import LabelHead

STREAM = "fold/all"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    place = tmp_path_factory.mktemp("fold") / "data"
    with HubProcess(place, config=f'streams = ["{STREAM}"]\n') as made:
        yield made


@pytest.fixture(scope="module")
def user(hub: HubProcess, tmp_path_factory: pytest.TempPathFactory) -> User:
    """Somebody who has written registers, votes, and nonsense."""
    made = User(tmp_path_factory.mktemp("user"), VEEN_HUB=hub.url)
    made.ok("keygen")
    for number, key in enumerate("abcab"):
        made.ok("crdt", "lww", "set", "--stream", STREAM, "--key", key, "--value", str(number))
        body = json.dumps({"for": key})
        made.ok("send", "--stream", STREAM, "--schema", "example.vote.v1", "--body", body)
    made.ok("send", "--stream", STREAM, "--schema", "crdt.lww.v1", "--body", '{"key": "text"}')
    made.ok("send", "--stream", STREAM, "--body", "1")
    return made


@pytest.fixture(scope="module")
def keyring(user: User) -> Path:
    (found,) = user.home.rglob("keystore.enc")
    return found.parent


def fold(user: User, *words: str | Path) -> Any:
    return user.ok("pipeline", "fold", *words, "--stream", STREAM, "--now", "5")


def interpret(user: User, *words: str | Path) -> Any:
    return user.ok("interpret", *words, "--stream", STREAM, "--now", "5")


@pytest.mark.usefixtures("spark")
class TestFold:
    def test_from_the_directory_of_a_hub(self, user: User, hub: HubProcess, keyring: Path) -> None:
        words = (hub.place, "--keyring", keyring)
        found = fold(user, "crdt.lww", *words, "--reports")
        assert found == interpret(user, "crdt.lww", "--reports")
        assert found["counts"] == {"events": 5, "rejected": 1, "unknown": 6}
        assert list(found) == list(interpret(user, "crdt.lww"))
        upto = ("--upto", "4")
        assert fold(user, "lww.map", *words, *upto) == interpret(user, "lww.map", *upto)
        one = fold(user, "crdt.lww", *words, "--key", "a", "--level", "roots")
        assert one == interpret(user, "crdt.lww", "--key", "a")

    def test_what_entries_from_one_on_did(self, user: User, hub: HubProcess, keyring: Path) -> None:
        found = fold(user, "crdt.lww", hub.place, "--keyring", keyring, "--since", "7", "--level", "frames")
        assert found["state"] == {"a": "3", "b": "4"}
        assert found["counts"] == {"events": 2, "rejected": 1, "unknown": 3}
        assert found["reached"] == interpret(user, "crdt.lww")["reached"]
        last = ("--since", str(2**64 - 1), "--level", "frames")
        assert fold(user, "crdt.lww", hub.place, "--keyring", keyring, *last)["state"] == {}

    def test_from_a_hub_that_answers(self, user: User, hub: HubProcess, keyring: Path) -> None:
        found = fold(user, "crdt.lww", hub.url, "--keyring", keyring, "--hub-id", hub.banner["hub_id"])
        assert found == interpret(user, "crdt.lww")

    def test_from_a_lake(self, user: User, hub: HubProcess, keyring: Path, tmp_path: Path) -> None:
        lake = tmp_path / "lake"
        user.ok("pipeline", "ingest", hub.place, "--lake", lake, "--keyring", keyring, "--no-gold")
        assert fold(user, "crdt.lww", "--lake", lake) == interpret(user, "crdt.lww")
        upto = ("--upto", "6")
        assert fold(user, "crdt.lww", "--lake", lake, *upto) == interpret(user, "crdt.lww", *upto)
        nothing = user.ok("pipeline", "fold", "crdt.lww", "--lake", lake, "--stream", "no/such")
        assert (nothing["state"], nothing["reached"], nothing["counts"]) == ({}, [], {})

    def test_files_that_nobody_has_committed_are_not_folded(
        self, user: User, hub: HubProcess, keyring: Path, tmp_path: Path
    ) -> None:
        lake, cert = tmp_path / "l[1]*", tmp_path / "cert"
        user.ok("pipeline", "ingest", hub.place, "--lake", lake, "--keyring", keyring, "--no-gold")
        assert fold(user, "crdt.lww", "--lake", lake) == interpret(user, "crdt.lww"), "whatever its name"
        (path,) = (path for path in (lake / "silver/records").rglob("*.parquet"))
        table = pq.read_table(path)
        forged = table.set_column(
            table.schema.get_field_index("client_id"),
            table.schema.field("client_id"),
            pa.array([b"x" * 32] * len(table), pa.binary()),
        )
        pq.write_table(forged, path)
        words = ("pipeline", "fold", "crdt.lww", "--lake", lake, "--stream", STREAM)
        told = user.fails(4, *words, "--keyring", keyring, "--certificate", cert)
        assert path.name in told["detail"]
        assert not cert.exists()
        path.unlink()
        assert user.fails(4, *words)["code"] == "E.PROOF"
        assert user.fails(1, *words[:4], tmp_path / "none", *words[5:])["code"] == "E.LAKE"

    def test_an_overlay_of_ones_own(self, user: User, hub: HubProcess, keyring: Path, tmp_path: Path) -> None:
        module = tmp_path / "votes.py"
        module.write_text(MODULE)
        more = ("--overlay-module", module, "--param", "weight=10")
        found = fold(user, "votes", hub.place, "--keyring", keyring, "--level", "frames", *more)
        assert found == interpret(user, "votes", *more)
        module.write_text(MODULE.replace('event.body["for"]', 'event.body["what"]'))
        text = f"overlay votes of {module} failed: KeyError: 'what'"
        one_process = ("interpret", "votes", "--stream", STREAM, *more[:2])
        assert user.fails(1, *one_process)["detail"].startswith(text)
        spark = ("pipeline", "fold", "votes", hub.place, "--keyring", keyring, "--stream", STREAM)
        failed = user.fails(1, *spark, "--level", "frames", *more[:2])  # the log is not to blame
        assert failed["detail"].startswith(text)

    def test_a_certificate_is_that_of_one_process(
        self, user: User, hub: HubProcess, keyring: Path, tmp_path: Path
    ) -> None:
        mine, other = tmp_path / "spark.cert", tmp_path / "one.cert"
        fold(user, "crdt.lww", hub.place, "--keyring", keyring, "--upto", "8", "--certificate", mine)
        words = ("state", "certify", "crdt.lww", "--stream", STREAM)
        user.ok(*words, "--upto", "8", "--out", other)
        assert mine.read_bytes() == other.read_bytes()
        user.ok("state", "verify", mine)

    def test_whatever_shows_a_wallet_with_a_stream_to_itself_shows_the_same(self, tmp_path: Path) -> None:
        with HubProcess(tmp_path / "data") as hub:
            user = User(tmp_path, VEEN_HUB=hub.url)
            user.ok("keygen")
            identity = bytes.fromhex(user.ok("id", "show")["id_sign_public"])
            mine = wallet_id(labels.realm_id(), identity, "EUR")
            at = ("--stream", wallet_stream(mine).hex())
            user.ok("wallet", "open", "--currency", "EUR", *at)
            user.ok("wallet", "deposit", "--amount", "5", *at)
            user.ok(
                "wallet", "transfer", "--from", "ab" * 32, "--to", mine.hex(), "--amount", "9", "--force", *at
            )
            (keystore,) = user.home.rglob("keystore.enc")
            keys, lake = ("--keyring", keystore.parent), tmp_path / "lake"
            wanted = user.ok("interpret", "wallet", *at, "--now", "5", "--reports")
            (shown,) = wanted["state"].values()
            assert (shown["balance"], shown["pending"][0]["amount"]) == (5, 9)
            words = ("pipeline", "fold", "wallet", *at, "--now", "5", "--reports")
            assert user.ok(*words, hub.place, *keys, "--level", "frames") == wanted
            user.ok("pipeline", "ingest", hub.place, "--lake", lake, *keys, *at)
            assert user.ok(*words, "--lake", lake) == wanted
        asked = "select `table`, value from gold_wallet order by `table`"
        told = user.run("pipeline", "sql", "--lake", lake, "--format", "jsonl", asked)
        rows = [json.loads(line) for line in told.stdout.splitlines()]
        gold = {row["table"]: json.loads(row["value"]) for row in rows}
        assert list(gold) == ["opened", "own", "pending", "pending.count", "wallets"]
        assert (gold["wallets"][6], gold["pending"][3]) == ("5", 9)

    def test_mistakes_are_told(self, user: User, hub: HubProcess, keyring: Path, tmp_path: Path) -> None:
        words = ("pipeline", "fold", "crdt.lww", "--stream", STREAM)
        assert "--lake" in user.fails(1, *words)["detail"]
        assert "--keyring" in user.fails(1, *words, hub.place)["detail"]
        user.fails(1, *words, hub.place, "--keyring", tmp_path / "none")
        user.fails(1, *words, hub.place, "--keyring", keyring, "--level", "all")
        told = user.fails(
            1, *words, hub.place, "--keyring", keyring, "--since", "2", "--certificate", tmp_path / "c"
        )
        assert "--since" in told["detail"]
        user.fails(1, *words, tmp_path, "--keyring", keyring)


def _opened(spark: SparkSession, epoch_sec: int, *epochs: int) -> FoldInput:
    heads = {epoch: LabelHead(Label(bytes(32)), None, epoch, 1, 5, NodeHash(b"r" * 32)) for epoch in epochs}
    return FoldInput(spark.range(0), heads, (max(epochs), 5), epoch_sec)


def test_what_may_get_entries_still_is_provisional(spark: SparkSession) -> None:
    opened, day = _opened(spark, 86_400, 18, 19, 20), 86_400
    last, before = (opened.reached([(epoch, 1, 4)], {epoch: b""}) for epoch in (20, 19))
    assert opened.is_provisional(last, 20 * day + 300), "the day before may still get some"
    assert not opened.is_provisional(last, 20 * day + 700)
    assert not opened.is_provisional(before, 20 * day + 300)
    assert opened.is_provisional(last, 18 * day), "whatever the clock says"
    assert not _opened(spark, 0, 0).is_provisional(last, 5)


def test_records_that_do_not_make_up_the_root_are_refused(spark: SparkSession) -> None:
    opened = _opened(spark, 0, 0)
    with pytest.raises(RootMismatchError, match="epoch 0"):
        opened.reached([(0, 1, 5)], {0: b"x" * 32})
    assert opened.reached([(0, 1, 5)], {0: b"r" * 32}) == [Reached(0, Label(bytes(32)), 5, b"r" * 32)]
    assert opened.reached([(0, 1, 4)], {0: b"x" * 32})[0].mmr_root == b"x" * 32
