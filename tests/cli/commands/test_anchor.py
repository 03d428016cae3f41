"""``veen anchor`` as people and scripts meet it: what it prints, and how it exits."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests import builders
from tests.hub.hub_process import Client, HubProcess, veen
from tests.storage.anchors.timestamp_authority import Authority, needs_openssl, served
from veen.cli.main import app
from veen.core.data_dir import paths
from veen.core.objects import labels
from veen.core.objects.anchor import AnchorRecord, AnchorRef
from veen.core.objects.checkpoint import Checkpoint
from veen.core.types import RoutingKey

STREAM = "readings"
NONCE = builders.digest("nonce").hex()


def run(*args: str | Path, **env: str) -> Result:
    """Run a command in this process, which is faster than in one of its own."""
    return CliRunner(env=env).invoke(app, [str(arg) for arg in args], prog_name="veen")


def ok(*args: str | Path, **env: str) -> dict[str, Any]:
    done = run(*args, "--json", **env)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def failed(code: int, *args: str | Path) -> Result:
    done = run(*args)
    assert done.exit_code == code, done.output
    return done


def start(place: Path, config: str) -> Iterator[HubProcess]:
    with HubProcess(place, config=config) as hub:
        routing = RoutingKey(bytes.fromhex(hub.get("/tooling/identity")["routing_key"]))
        with hub.api() as api:
            Client(labels.label(routing, builders.stream(STREAM), 0)).send_many(api, 4)
        yield hub


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    yield from start(tmp_path_factory.mktemp("hub") / "data", 'anchor_backend = "file"\nanchor_ask_sec = 1\n')


@pytest.fixture(scope="module")
def anchored(hub: HubProcess, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """What publishing said, and the checkpoint that it is about."""
    file = tmp_path_factory.mktemp("checkpoint") / "checkpoint.cbor"
    said = ok("anchor", "publish", "--hub", hub.place, "--stream", STREAM, "--nonce", NONCE, "--out", file)
    return said, file


def test_an_anchor_is_published_and_verified(hub: HubProcess, anchored: tuple[dict[str, Any], Path]) -> None:
    said, file = anchored
    record = AnchorRecord.decode(Path(said["record"]).read_bytes())
    assert record.anchor_ref.hex() == said["anchor_ref"]
    assert (said["backend"], said["upto_seq"], said["nonce"]) == ("file", 4, NONCE)
    checkpoint = Checkpoint.decode(file.read_bytes())
    assert checkpoint.mmr_root.hex() == said["mmr_root"] == record.mmr_root.hex()
    for places in (
        ("--data-dir", hub.place),
        ("--anchors", hub.place / "anchors"),
        ("--anchor-ref", said["anchor_ref"], "--ledger", hub.place / "anchors" / paths.LEDGER),
        ("--anchor-ref", said["anchor_ref"], "--data-dir", f"file://{hub.place}"),
    ):
        for command in (("anchor", "verify"), ("verify-anchor",)):
            found = ok(*command, "--checkpoint", file, *places)
            assert (found["ok"], found["anchor_ref"]) == (True, said["anchor_ref"])
            assert found["reason"].startswith("entry ")
    assert ok("anchor", "verify", "--checkpoint", file, VEEN_DATA_DIR=str(hub.place))["ok"] is True


def test_for_people_it_is_lines(hub: HubProcess, anchored: tuple[dict[str, Any], Path]) -> None:
    said, file = anchored
    again = veen("hub", "anchor", "--hub", hub.url, "--stream", STREAM)
    assert f"anchor_ref: {said['anchor_ref']}\n" in again.stdout, "one that is there is not made again"
    assert again.returncode == 0
    assert f"record: anchors/anchor-{said['label']}-" in again.stdout
    done = veen("anchor", "verify", "--checkpoint", file, "--data-dir", hub.place)
    assert done.stdout.startswith("ok: yes\nreason: entry ")
    assert done.returncode == 0
    assert veen("verify-anchor", "--checkpoint", file, "--anchor-ref", "00").returncode == 3


def test_who_asks_by_url_gets_anchors_too_but_not_any(hub: HubProcess) -> None:
    by_label = ("--label", builders.some_label("by url").hex())
    with hub.api() as api:
        Client(builders.some_label("by url")).send_many(api, 2)
    said = ok("anchor", "publish", "--hub", hub.url, *by_label, "--upto-seq", "1")
    assert said["upto_seq"] == 1
    done = failed(4, "anchor", "publish", "--hub", hub.url, *by_label, "--nonce", NONCE)
    assert "E.FORBIDDEN" in done.stderr
    chosen = ("--ts", "7", "--epoch", "8", "--nonce", NONCE)
    said = ok("anchor", "publish", "--hub", hub.place, *by_label, *chosen)
    assert (said["ts"], said["epoch"], said["nonce"], said["upto_seq"]) == (7, 8, NONCE, 2)
    done = failed(4, "anchor", "publish", "--hub", hub.place, *by_label, "--ts", "9")
    assert "E.CONFLICT" in done.stderr


def test_a_checkpoint_of_another_root_is_not_bound(
    hub: HubProcess, anchored: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    said, _ = anchored
    other = tmp_path / "other.cbor"
    other.write_bytes(builders.checkpoint().encode())
    place = ("--data-dir", hub.place)
    chosen = ("--anchor-ref", said["anchor_ref"], "--json")
    done = failed(4, "anchor", "verify", "--checkpoint", other, *place, *chosen)
    assert json.loads(done.stdout)["ok"] is False
    assert "another root" in json.loads(done.stdout)["reason"]
    missing = failed(4, "anchor", "verify", "--checkpoint", other, *place, "--json")
    assert json.loads(missing.stdout)["code"] == "E.NOT_FOUND"


def test_an_altered_ledger_is_not_believed(
    hub: HubProcess, anchored: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    _, file = anchored
    altered = bytearray((hub.place / "anchors" / paths.LEDGER).read_bytes())
    altered[40] ^= 1
    (tmp_path / "ledger").write_bytes(altered)
    arguments = ("--checkpoint", file, "--data-dir", hub.place, "--ledger", tmp_path / "ledger")
    assert "ok: no\n" in failed(4, "anchor", "verify", *arguments).stdout


def test_mistakes_are_told(hub: HubProcess, anchored: tuple[dict[str, Any], Path], tmp_path: Path) -> None:
    _, file = anchored
    (tmp_path / "junk").write_bytes(b"junk")
    publishing, verifying = ("anchor", "publish", "--hub", hub.place), ("anchor", "verify", "--checkpoint")
    for code, says, args in (
        (1, "--stream or --label", publishing),
        (1, "--stream or --label", (*publishing, "--stream", "x", "--label", "00" * 32)),
        (1, "--nonce", (*publishing, "--stream", STREAM, "--nonce", "xyz")),
        (1, "--nonce: a nonce must have", (*publishing, "--stream", STREAM, "--nonce", "00")),
        (1, "--label", (*publishing, "--label", "00")),
        (4, "E.NOT_FOUND", (*publishing, "--stream", "nobody writes here")),
        (4, "E.NOT_FOUND", (*publishing, "--label", "00" * 32)),
        (1, "no/file", (*publishing, "--stream", STREAM, "--out", tmp_path / "no" / "file")),
        (1, "none", (*verifying, tmp_path / "none", "--data-dir", hub.place)),
        (3, "junk", (*verifying, tmp_path / "junk", "--data-dir", hub.place)),
        (1, "--anchor-ref", (*verifying, file)),
        (1, "none", (*verifying, file, "--anchors", tmp_path / "none")),
        (1, "--anchor-ref", (*verifying, file, "--anchor-ref", "xyz")),
        (3, "not an anchor_ref", (*verifying, file, "--anchor-ref", "00")),
    ):
        done = failed(code, *args)
        assert says in done.stderr, done.stderr


@needs_openssl
def test_a_time_stamp_is_verified_with_the_certificate_and_not_without(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path / "authority")
    file = tmp_path / "checkpoint.cbor"
    with served(authority.stamp) as service:
        config = f'anchor_backend = "rfc3161"\nanchor_url = "{service.url}"\n'
        for hub in start(tmp_path / "data", config):
            said = ok("anchor", "publish", "--hub", hub.place, "--stream", STREAM, "--out", file)
            assert AnchorRef.decode(bytes.fromhex(said["anchor_ref"])).token
    arguments = ("anchor", "verify", "--checkpoint", file, "--data-dir", tmp_path / "data")
    assert ok(*arguments, "--tsa-cert", authority.root)["reason"].startswith("time stamp of ")
    assert "ok: no" in failed(4, *arguments).stdout
    assert str(tmp_path / "none") in failed(1, *arguments, "--tsa-cert", tmp_path / "none").stderr
