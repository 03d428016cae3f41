"""The four outcomes: a log cloned, forked, replayed; and revoking, retention and evidence, by command."""

import json
from pathlib import Path

import pytest

from tests.cli.command_runner import User
from tests.hub.hub_process import HubProcess
from veen.storage import Reader, RealFilesystem

STREAM = "core/main"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[User, Path]:
    """Return a user and the directory of a hub that is stopped, with two streams."""
    home = tmp_path_factory.mktemp("copies")
    user = User(home)
    user.ok("keygen")
    with HubProcess(home / "data") as hub:
        for stream in (STREAM, "other"):
            user.ok("bench", "send", "--hub", hub.url, "--stream", stream, "--count", "40")
        user.ok("hub", "checkpoint", "--hub", hub.url, "--stream", STREAM)
        user.ok("send", "--hub", hub.url, "--stream", STREAM, "--body", '"after the checkpoint"')
        hub.stop()
    return user, home / "data"


def _heads(place: Path) -> dict[bytes, tuple[int, bytes]]:
    fs = RealFilesystem(place)
    reader = Reader.open(fs)
    try:
        heads = {label: reader.head(label) for label in reader.labels()}
        return {
            bytes(label): (head.seq, bytes(head.root)) for label, head in heads.items() if head is not None
        }
    finally:
        reader.close()
        fs.close()


def test_a_clone_is_equal_and_can_be_read(place: tuple[User, Path], tmp_path: Path) -> None:
    user, data = place
    user.ok("clone", data, tmp_path / "clone")
    assert _heads(tmp_path / "clone") == _heads(data)
    assert json.loads(user.run("fsck", tmp_path / "clone", "--json").stdout)["ok"] is True
    assert len(user.ok("stream", "--hub", tmp_path / "clone", "--stream", STREAM)) == 41
    assert not (tmp_path / "clone/hub-secrets.cbor").exists(), "secrets stay where they are"
    user.fails(1, "clone", data, tmp_path / "clone")
    user.fails(1, "clone", tmp_path / "none", tmp_path / "x")


def test_two_forks_from_one_prefix_both_verify_and_go_their_ways(
    place: tuple[User, Path], tmp_path: Path
) -> None:
    user, data = place
    forks = [user.ok("fork", data, tmp_path / name) for name in ("left", "right")]
    assert len({item["hub_id"] for item in forks}) == 2
    assert {item["parent_hub_id"] for item in forks} == {user.ok("hub-id", "--hub", data)["hub_id"]}
    assert list(forks[0]["checkpoints"].values()) == [40], "at the checkpoint, not at the head"
    assert len(forks[0]["left_out"]) == 1, "the other stream has no checkpoint"
    for name in ("left", "right"):
        with HubProcess(tmp_path / name) as hub:
            sent = user.ok("send", "--hub", hub.url, "--stream", STREAM, "--body", json.dumps(name))
            assert sent["stream_seq"] == 1, "a label of its own"
            hub.stop()
        report = json.loads(user.run("fsck", tmp_path / name, "--json").stdout)
        assert report["ok"] is True, report
    user.fails(4, "fork", data, tmp_path / "bad", "--cut", "ab" * 32 + "=3")
    user.fails(1, "fork", data, tmp_path / "bad", "--cut", "nonsense")


def test_replay_gives_what_the_hub_has(place: tuple[User, Path], tmp_path: Path) -> None:
    user, data = place
    assert user.ok("replay", data) == {"ok": True, "equal": True, "labels": 2, "entries": 81}
    user.ok("replay", data, "--into", tmp_path / "again")
    assert _heads(tmp_path / "again") == _heads(data)


def test_what_is_kept_and_where(place: tuple[User, Path]) -> None:
    user, data = place
    found = user.ok("retention", "show", "--data-dir", data)
    assert sorted(item["last_seq"] for item in found["labels"]) == [40, 41]
    assert found["derived_files"]["receipts.cborseq"] > 0
    shown = user.run("retention", "show", "--data-dir", data).stdout
    assert "entries 1 to 41" in shown


def test_export_all_and_import(place: tuple[User, Path], tmp_path: Path) -> None:
    user, data = place
    done = user.ok("export", "--hub", data, "--all", "--out", tmp_path / "set")
    assert (done["labels"], done["entries"]) == (2, 81)
    checked = user.ok("import", tmp_path / "set", "--hub-id", done["hub_id"])
    assert sum(item["entries"] for item in checked["labels"]) == 81
    user.fails(1, "export", "--hub", data, "--out", tmp_path / "x")
    user.fails(1, "export", "--hub", data, "--stream", "nothing", "--out", tmp_path / "x")
    assert not (tmp_path / "x").exists()
    user.fails(1, "export", "--hub", data, "--all", "--out", tmp_path / "set")
    user.fails(1, "import", tmp_path / "set", "--out", tmp_path / "client")


def test_a_verified_receipt_without_a_hub(place: tuple[User, Path], tmp_path: Path) -> None:
    user, data = place
    items = user.ok("stream", "--hub", data, "--stream", STREAM, "--from", "41")
    fs = RealFilesystem(data)
    reader = Reader.open(fs)
    label = next(label for label in reader.labels() if reader.last_seq(label) == 41)
    entry = reader.entry(label, 41)
    reader.close()
    fs.close()
    (tmp_path / "r").write_bytes(entry.receipt.encode())
    (tmp_path / "m").write_bytes(entry.msg_bytes)
    found = user.ok(
        "verify-receipt",
        "--hub",
        data,
        "--receipt",
        tmp_path / "r",
        "--msg",
        tmp_path / "m",
        "--stream",
        STREAM,
    )
    assert (found["stream_seq"], found["mmr_root"]) == (items[0]["stream_seq"], True)


def test_revoking(tmp_path: Path) -> None:
    user = User(tmp_path)
    user.ok("keygen")
    admin = user.ok("keygen", "--out", tmp_path / "admin")
    words = f'admins = ["{admin["id_sign_public"]}"]\n'
    with HubProcess(tmp_path / "data", config=words) as hub:
        user.ok("config", "set", "hub", hub.url)
        user.ok("config", "set", "admin", str(tmp_path / "admin"))
        user.ok("send", "--stream", "s", "--body", "1")
        client_id = user.ok("id", "show")["client_id"]
        done = user.ok(
            "cap", "revoke", "--kind", "client-id", "--target", client_id, "--reason", "lost", "--ttl", "900"
        )
        assert (done["kind"], done["target"], done["active_now"]) == ("client-id", client_id, True)
        assert user.fails(4, "send", "--stream", "s", "--body", "2")["code"] == "E.AUTH"
        for alias in (("revoke",), ("revoke", "publish")):
            user.ok(*alias, "--kind", "auth-ref", "--target", "ab" * 32)
        listed = user.ok("cap", "revocations", "--active-only")["revocations"]
        assert [item["kind"] for item in listed] == ["client-id", "auth-ref", "auth-ref"]
        assert len(user.ok("cap", "revocations", "--kind", "client-id")["revocations"]) == 1
        user.fails(1, "cap", "revoke", "--kind", "nonsense", "--target", "ab" * 32)
        user.fails(1, "cap", "revoke", "--kind", "auth-ref", "--target", "short")
        user.ok("id", "rotate")
        assert user.ok("send", "--stream", "s", "--body", "2")["stream_seq"] == 2, (
            "a new key is another client"
        )


def test_a_file_that_is_no_evidence(tmp_path: Path) -> None:
    user = User(tmp_path)
    (tmp_path / "x.veen-fraud").write_bytes(b"nothing")
    user.fails(1, "verify-fraud", tmp_path / "x.veen-fraud")
    user.fails(1, "verify-fraud", tmp_path / "none")
