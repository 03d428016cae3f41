"""``veen interpret`` and ``veen state``: any overlay over any log, and certificates of what it amounts to."""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_runner import User
from tests.hub.hub_process import HubProcess
from veen.client.fold.summary_cache import OVERLAYS_DIR
from veen.core.crypto.ed25519 import SigningKey
from veen.core.crypto.hash import tagged_hash
from veen.core.types import Signature
from veen.overlays.certificate import StateCertificate
from veen.overlays.wallet.overlay import Wallets

_names = count(1)

MODULE = """
from veen.overlays import SUM, TEXT, Field, KeyedOverlay, Schema

VOTE = Schema("example.vote.v1", Field("for", TEXT))


class Votes(KeyedOverlay):
    name, schemas, monoid = "votes", (VOTE,), SUM

    weight: int = 1

    def cell(self, event):
        return event.body["for"], self.weight
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("interpret") / "data") as made:
        yield made


@pytest.fixture
def stream() -> str:
    return f"interpret/{next(_names)}"


@pytest.fixture
def user(tmp_path: Path, hub: HubProcess) -> User:
    made = User(tmp_path, VEEN_HUB=hub.url)
    made.ok("keygen")
    return made


def put(user: User, stream: str, **values: str) -> None:
    for key, value in values.items():
        user.ok("crdt", "lww", "set", "--stream", stream, "--key", key, "--value", value)


def test_the_state_at_the_end_and_at_an_entry(user: User, stream: str) -> None:
    put(user, stream, a="1", b="2", c="3")
    user.ok("send", "--stream", stream, "--body", "1")
    found = user.ok("interpret", "crdt.lww", "--stream", stream)
    assert found["state"] == {"a": "1", "b": "2", "c": "3"}
    assert found["counts"] == {"events": 3, "unknown": 1}
    assert (found["overlay"], found["stream"], found["reports"]) == ("crdt.lww", stream, 0)
    assert found["provisional"] is False
    assert [item["upto_seq"] for item in found["reached"]] == [4]
    earlier = user.ok("interpret", "lww.map", "--stream", stream, "--upto", "2")
    assert earlier["state"] == {"a": "1", "b": "2"}
    assert earlier["state_hash"] != found["state_hash"]
    one = user.ok("interpret", "crdt.lww", "--stream", stream, "--key", "b")
    assert one["state"]["value"] == "2"
    assert "state_hash" not in one, "one key is read without the others"
    assert user.ok("interpret", "crdt.lww", "--stream", stream, "--key", "z")["state"] is None
    again = user.ok("interpret", "crdt.lww", "--stream", stream, "--no-cache")
    assert again == found
    shown = user.run("interpret", "crdt.lww", "--stream", stream)
    assert '"a": "1"' in shown.stdout
    assert found["state_hash"] in shown.stdout


def test_what_is_wrong_is_listed(user: User, stream: str) -> None:
    user.ok("send", "--stream", stream, "--schema", "crdt.lww.v1", "--body", '{"key": "text"}')
    found = user.ok("interpret", "crdt.lww", "--stream", stream, "--reports")
    assert found["counts"] == {"rejected": 1}
    assert [(item["stream_seq"], item["code"].split(".")[0]) for item in found["reports"]] == [(1, "BODY")]
    assert "BODY." in user.run("interpret", "crdt.lww", "--stream", stream, "--reports").stderr
    assert "--reports" in user.run("interpret", "crdt.lww", "--stream", stream).stderr


def test_from_the_directory_of_a_hub_that_does_not_run(user: User, stream: str, tmp_path: Path) -> None:
    with HubProcess(tmp_path / "other", config=f'streams = ["{stream}"]\n') as other:
        at = User(tmp_path, VEEN_HUB=other.url)
        put(at, stream, a="1")
        running = at.ok("interpret", "crdt.lww", "--stream", stream)
        other.stop()
    stopped = user.ok("interpret", "crdt.lww", "--stream", stream, "--hub", tmp_path / "other")
    assert stopped == running


def test_mistakes_are_told(user: User, stream: str) -> None:
    told = user.fails(1, "interpret", "crdt.llw", "--stream", stream)["detail"]
    assert "crdt.lww" in told
    user.fails(1, "interpret", "crdt.gcnt", "--stream", stream, "--key", "not hex")
    user.fails(1, "interpret", "crdt.lww", "--stream", stream, "--param", "x=1")
    user.fails(1, "interpret", "crdt.lww", "--stream", stream, "--param", "x")
    user.fails(1, "interpret", "crdt.lww", "--stream", stream, "--bridge", "abc")
    user.fails(1, "interpret", "crdt.lww", "--stream", stream, "--overlay-module", "no_such_module")
    user.fails(2, "interpret", "crdt.lww", "--stream", stream, "--hub", "/nowhere/at/all")


def test_an_overlay_of_ones_own(user: User, stream: str, tmp_path: Path) -> None:
    module = tmp_path / "votes.py"
    module.write_text(MODULE)
    for who in ("ada", "bob", "ada"):
        body = json.dumps({"for": who})
        user.ok("send", "--stream", stream, "--schema", "example.vote.v1", "--body", body)
    words = ("interpret", "votes", "--stream", stream, "--overlay-module", module)
    assert user.ok(*words)["state"] == {"ada": 2, "bob": 1}
    assert user.ok(*words, "--key", "ada")["state"] == 2
    assert user.ok(*words, "--param", "weight=10")["state"] == {"ada": 20, "bob": 10}
    user.fails(1, *words, "--param", "weight=much")
    assert "votes" in user.fails(1, "interpret", "volts", *words[2:])["detail"]
    module.write_text(MODULE.replace("self.weight", "5"))
    assert user.ok(*words)["state"] == {"ada": 10, "bob": 5}, "other code is another fold"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import nothing_of_this_name", "ModuleNotFoundError"),
        ("def broken(:", "SyntaxError"),
        ("raise SystemExit(7)", "SystemExit"),
        (MODULE.replace('event.body["for"]', 'event.body["what"]'), "KeyError"),
        (MODULE.replace("KeyedOverlay)", "object)"), "does not define"),
        (MODULE.replace("def cell", "def sell"), "no method cell"),
        (MODULE.replace('return event.body["for"],', "return"), "Votes.cell returned 1"),
        (MODULE.replace("self.weight", "1.5"), "Votes.cell returned the value 1.5"),
    ],
)
def test_a_module_with_mistakes(user: User, stream: str, tmp_path: Path, text: str, told: str) -> None:
    module = tmp_path / "votes.py"
    module.write_text(text)
    user.ok("send", "--stream", stream, "--schema", "example.vote.v1", "--body", '{"for": "ada"}')
    words = ("interpret", "votes", "--stream", stream, "--overlay-module", module)
    assert told in user.fails(1, *words)["detail"]


def test_summaries_may_be_deleted(user: User, stream: str, tmp_path: Path) -> None:
    put(user, stream, a="1")
    found = user.ok("interpret", "crdt.lww", "--stream", stream)
    (place,) = tmp_path.rglob(OVERLAYS_DIR)
    assert list(place.iterdir())
    for file in place.iterdir():
        file.unlink()
    assert user.ok("interpret", "crdt.lww", "--stream", stream) == found


class TestCertificates:
    @pytest.fixture
    def made(self, user: User, stream: str, tmp_path: Path) -> Path:
        put(user, stream, a="1", b="2")
        user.ok("state", "certify", "crdt.lww", "--stream", stream, "--out", tmp_path / "state.cert")
        put(user, stream, c="3")
        return tmp_path / "state.cert"

    def test_anybody_who_reads_the_stream_can_check_it(self, user: User, stream: str, made: Path) -> None:
        checked = user.ok("state", "verify", made)
        found = user.ok("interpret", "crdt.lww", "--stream", stream, "--upto", "2")
        assert checked["state_hash"] == found["state_hash"]
        assert (checked["upto_seq"], checked["mmr_root"]) == (2, found["reached"][0]["mmr_root"])
        assert user.ok("state", "verify", made, "--cached") == checked

    def test_it_is_the_same_bytes_however_it_was_made(self, user: User, stream: str, made: Path) -> None:
        words = ("state", "certify", "crdt.lww", "--stream", stream, "--upto", "2", "--out", f"{made}2")
        user.ok(*words)
        assert Path(f"{made}2").read_bytes() == made.read_bytes()
        user.ok(*words, "--no-cache")
        assert Path(f"{made}2").read_bytes() == made.read_bytes()

    def test_bytes_that_were_changed_are_found(self, user: User, made: Path, tmp_path: Path) -> None:
        data = made.read_bytes()
        for place in range(0, len(data), 7):
            forged = bytearray(data)
            forged[place] ^= 1
            (tmp_path / "forged").write_bytes(forged)
            done = user.run("state", "verify", tmp_path / "forged")
            assert done.exit_code in (3, 4), (place, done.output)
        (tmp_path / "forged").write_bytes(data[:-1])
        user.fails(3, "state", "verify", tmp_path / "forged")

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ({"state_hash": bytes(32)}, "state_hash"),
            ({"overlay_version": 99}, "version 99"),
            ({"schemas": ()}, "schemas"),
            ({"state_class": "other"}, "state_class"),
            ({"mmr_root": bytes(32)}, "the root at entry 2"),
            ({"upto_seq": 40}, "3 entries"),
            ({"label": bytes(32)}, "another label"),
        ],
    )
    def test_what_an_issuer_lies_about_is_said(
        self, user: User, made: Path, tmp_path: Path, change: dict[str, Any], told: str
    ) -> None:
        honest = StateCertificate.decode(made.read_bytes())
        if change.keys() & {"mmr_root", "upto_seq", "label"}:
            change = {"labels": (replace(honest.labels[0], **change),)}
        lie = _signed(replace(honest, **change))
        (tmp_path / "lie").write_bytes(lie.encode())
        found = user.fails(4, "state", "verify", tmp_path / "lie")
        assert told in found["detail"]

    def test_another_version_may_have_had_other_parameters(
        self, user: User, made: Path, tmp_path: Path
    ) -> None:
        honest = StateCertificate.decode(made.read_bytes())
        old = replace(honest, overlay="wallet", overlay_version=2, parameters='{"wallets": []}')
        (tmp_path / "old").write_bytes(_signed(old).encode())
        found = user.fails(4, "state", "verify", tmp_path / "old")
        assert (found["code"], str(Wallets.version) in found["detail"]) == ("E.STATE", True)

    def test_an_overlay_that_is_not_here(self, user: User, made: Path, tmp_path: Path) -> None:
        honest = StateCertificate.decode(made.read_bytes())
        (tmp_path / "other").write_bytes(_signed(replace(honest, overlay="votes")).encode())
        assert "--overlay-module" in user.fails(1, "state", "verify", tmp_path / "other")["detail"]
        user.fails(1, "state", "verify", tmp_path / "nothing")

    def test_a_stream_without_entries(self, user: User, tmp_path: Path) -> None:
        user.fails(1, "state", "certify", "crdt.lww", "--stream", "empty", "--out", tmp_path / "none")
        assert not (tmp_path / "none").exists()

    def test_a_reader_without_the_keys_is_told_so(self, user: User, made: Path, tmp_path: Path) -> None:
        stranger = User(tmp_path / "stranger", VEEN_HUB=user.hub)
        (tmp_path / "stranger").mkdir()
        stranger.ok("keygen")
        assert "could not be opened" in stranger.fails(4, "state", "verify", made)["detail"]


def _signed(changed: StateCertificate) -> StateCertificate:
    """Sign with a key of our own: a liar can."""
    key = SigningKey.from_seed(bytes(31) + b"\x01")
    unsigned = replace(changed, issuer_pk=key.public_key, sig=Signature(bytes(64)))
    return replace(unsigned, sig=key.sign(tagged_hash("veen/state-certificate", unsigned.encode())))
