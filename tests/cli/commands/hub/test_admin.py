"""Orders of the operator, to a hub that runs and to one that does not: whom it trusts, and a new key."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.builders import cap_token, counted_random, stream, verify_key
from tests.hub.hub_process import Api, Client, HubProcess, Refused, check_no_secrets, check_sound, veen
from veen.cli.main import app
from veen.core.api.tooling import AuthorizeRequest, AuthorizeResponse, BackupRequest, BackupResponse
from veen.core.crypto import ed25519
from veen.core.data_dir import hub_settings
from veen.core.errors import ProtocolError
from veen.core.objects import labels
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.hub_identity import HubIdentity
from veen.core.objects.receipt import Receipt
from veen.core.types import Label, RoutingKey, VerifyKey
from veen.hub import home
from veen.hub.home import HubSecrets, open_home, rotate
from veen.storage import RealFilesystem

ISSUER = verify_key("issuer").hex()


def order(place: Path, *args: str) -> dict[str, Any]:
    """Give an order, in this process."""
    done = CliRunner().invoke(app, ["hub", *args, "--data-dir", str(place), "--json"], prog_name="veen")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def refusal(place: Path, *args: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["hub", *args, "--data-dir", str(place)], prog_name="veen")
    assert done.exit_code
    assert done.stderr.count("\n") == 1
    return done.exit_code, done.stderr


def a_writer(hub: HubProcess, name: str) -> Client:
    """A client with a token of the issuer, which the hub may know or not."""
    routing = RoutingKey(bytes.fromhex(hub.get("/tooling/status")["routing_key"]))
    token = cap_token(issuer="issuer", subject=name)
    return Client(labels.label(routing, stream(), 0), name, auth_ref=token.auth_ref)


def authorize(api: Api, name: str) -> None:
    asked = AuthorizeRequest(cap_token=cap_token(issuer="issuer", subject=name))
    api.post("/tooling/authorize", asked, AuthorizeResponse)


def check_refused(act: Callable[[], object]) -> None:
    """Check that the hub does not take a token, or a message with one, because of its issuer."""
    with pytest.raises(Refused) as caught:
        act()
    refused = caught.value
    assert (refused.envelope.code, refused.detail["detail_enum"]) == ("E.CAP", "CAP_INVALID")


# --- trust --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_trust_counts_at_once_and_after_a_restart(tmp_path: Path) -> None:
    place = tmp_path / "data"
    with HubProcess(place, "--require-cap", "true") as hub, hub.api() as api:
        writer = a_writer(hub, "writer")
        check_refused(lambda: authorize(api, "writer"))
        assert order(place, "trust", "list") == {"trust_all": False, "issuers": []}
        assert order(place, "trust", "add", ISSUER, "--note", "a friend")["trusted"] is True
        assert order(place, "trust", "list")["issuers"] == [{"issuer_pk": ISSUER, "from": "control log"}]
        authorize(api, "writer")
        writer.send(api)
        order(place, "trust", "remove", ISSUER)
        check_refused(lambda: writer.send(api))
        check_refused(lambda: authorize(api, "another"))
        hub.kill()
    with HubProcess(place) as hub, hub.api() as api:
        check_refused(lambda: writer.send(api))
        order(place, "trust", "add", ISSUER)
        writer.send(api)
        hub.stop()
    check_sound(place)
    assert list((place / "control").iterdir()), "it is on record"


@pytest.mark.slow
def test_trust_while_the_hub_is_stopped(tmp_path: Path) -> None:
    place = tmp_path / "data"
    with HubProcess(place, "--require-cap", "true") as hub:
        writer = a_writer(hub, "writer")
        hub.stop()
    order(place, "trust", "add", ISSUER, "--note", "x" * 200)
    assert order(place, "trust", "list")["issuers"] == [{"issuer_pk": ISSUER, "from": "control log"}]
    check_sound(place)
    with HubProcess(place) as hub, hub.api() as api:
        authorize(api, "writer")
        writer.send(api)
        hub.stop()
    order(place, "trust", "remove", ISSUER)
    assert order(place, "trust", "list")["issuers"] == []
    with HubProcess(place) as hub, hub.api() as api:
        check_refused(lambda: writer.send(api))
        hub.stop()
    check_sound(place)


@pytest.mark.slow
def test_a_copy_trusts_the_same(tmp_path: Path) -> None:
    place, copies = tmp_path / "data", tmp_path / "copies"
    with HubProcess(place, "--require-cap", "true", config=f'backup_dir = "{copies}"\n') as hub:
        writer = a_writer(hub, "writer")
        order(place, "trust", "add", ISSUER)
        with hub.api() as api:
            authorize(api, "writer")
            writer.send(api)
            api.post("/tooling/backup", BackupRequest(name="one"), BackupResponse)
        hub.stop()
    copy = copies / "one"
    check_no_secrets(place, *(path.read_bytes() for path in copy.rglob("*") if path.is_file()))
    check_sound(copy)
    assert home.SECRETS in veen("hub", "start", "--data-dir", copy, "--listen", "127.0.0.1:0").stderr
    shutil.copy(place / home.SECRETS, copy / home.SECRETS)  # in place of the first, which is stopped
    with HubProcess(copy) as hub, hub.api() as api:
        assert hub.banner["require_cap"] is True
        writer.send(api)
        assert order(copy, "trust", "list")["issuers"] == [{"issuer_pk": ISSUER, "from": "control log"}]
        hub.stop()
    check_sound(copy)


def test_an_issuer_of_the_configuration_stays(tmp_path: Path) -> None:
    place = tmp_path / "data"
    with HubProcess(place, "--trust-issuer", ISSUER) as hub:
        assert order(place, "trust", "list")["issuers"] == [{"issuer_pk": ISSUER, "from": "configuration"}]
        code, said = refusal(place, "trust", "remove", ISSUER)
        assert (code, "trust_issuers" in said) == (4, True)
        assert order(place, "trust", "list")["issuers"] == [{"issuer_pk": ISSUER, "from": "configuration"}]
        hub.stop()


def test_trust_in_everybody_is_said(tmp_path: Path) -> None:
    with HubProcess(tmp_path / "data", config="trust_all_issuers = true\n") as hub:
        done = CliRunner().invoke(app, ["hub", "trust", "list", "--data-dir", str(tmp_path / "data")])
        assert "every issuer is trusted" in done.stdout
        with hub.api() as api:
            authorize(api, "anybody")
        hub.stop()


def test_orders_come_through_the_directory_only(tmp_path: Path) -> None:
    with HubProcess(tmp_path / "data") as hub, hub.api() as api:
        for path in ("/admin/trust", "/admin/rotate_key"):
            assert api.ask("POST", path, b"{}", "application/json")[0] == 404
        hub.stop()
    assert refusal(tmp_path / "none", "trust", "list")[0] == 1
    (tmp_path / "empty").mkdir()
    assert refusal(tmp_path / "empty", "rotate-key")[0] == 1
    assert list((tmp_path / "empty").iterdir()) == []


# --- a new key ----------------------------------------------------------------------------------------------


def identity_of(place: Path) -> HubIdentity:
    """Return the identity, checked as any client can: hub_id names the key that has signed it."""
    found = HubIdentity.decode((place / hub_settings.IDENTITY).read_bytes())
    assert found.hub_id == labels.hub_id(found.hub_keys[0].hub_pk)
    found.verify_signature(found.hub_keys[0].hub_pk, (place / hub_settings.IDENTITY_SIG).read_bytes())
    assert found.key_map().encode() == (place / hub_settings.KEY_MAP).read_bytes()
    assert json.loads((place / hub_settings.IDENTITY_JSON).read_text()) == found.to_json()
    return found


def signed_by(receipt: Receipt, key: str) -> bool:
    try:
        receipt.verify_signature(VerifyKey(bytes.fromhex(key)))
    except ProtocolError:
        return False
    return True


def checkpoint(place: Path, label: Label) -> Checkpoint:
    done = CliRunner().invoke(
        app, ["hub", "checkpoint", "--hub", str(place), "--label", label.hex(), "--json"], prog_name="veen"
    )
    return Checkpoint.decode(bytes.fromhex(json.loads(done.stdout)["checkpoint"]))


def verify_rotation(file: Path, old: str, new: str) -> tuple[int, str]:
    words = ["hub", "verify-rotation", "--checkpoint", str(file), "--old-key", old, "--new-key", new]
    done = CliRunner().invoke(app, words, prog_name="veen")
    return done.exit_code, done.stdout


def test_a_new_key_of_a_running_hub(tmp_path: Path) -> None:
    place = tmp_path / "data"
    client = Client(Label(verify_key("label")))
    with HubProcess(place) as hub, hub.api() as api:
        first = hub.get("/tooling/identity")["hub_pk"]
        client.send(api)
        done = order(place, "rotate-key", "--overlap-sec", "1000")
        second = done["hub_pk"]
        assert [key["hub_pk"] for key in done["hub_keys"]] == [first, second]
        assert done["hub_keys"][0]["valid_until"] == done["hub_keys"][1]["valid_from"] + 1000
        client.send(api)
        old, new = client.receipts
        assert (signed_by(old, first), signed_by(new, first), signed_by(new, second)) == (True, False, True)
        found = hub.get("/tooling/identity")
        assert (found["hub_pk"], found["hub_id"]) == (second, hub.banner["hub_id"])
        assert bytes.fromhex(found["identity"]) == identity_of(place).encode()

        made = checkpoint(place, client.label)
        made.verify_signature(VerifyKey(bytes.fromhex(second)))
        assert made.witness_sigs is not None
        for sig, key in zip(made.witness_sigs, (first, second), strict=True):
            ed25519.verify(VerifyKey(bytes.fromhex(key)), made.signing_digest(), sig)
        (tmp_path / "both").write_bytes(made.encode())
        assert verify_rotation(tmp_path / "both", first, second) == (
            0,
            "ok: yes\nold_key: yes\nnew_key: yes\n",
        )
        assert verify_rotation(tmp_path / "both", first, ISSUER)[0] == 4
        hub.stop()
    for receipt in client.receipts:
        identity_of(place).verify_receipt(receipt)
    check_sound(place)


def test_a_checkpoint_without_an_overlap_is_no_rotation(tmp_path: Path) -> None:
    place = tmp_path / "data"
    client = Client(Label(verify_key("label")))
    with HubProcess(place) as hub, hub.api() as api:
        client.send(api)
        key = hub.get("/tooling/identity")["hub_pk"]
        (tmp_path / "one").write_bytes(checkpoint(place, client.label).encode())
    code, said = verify_rotation(tmp_path / "one", key, key)
    assert (code, said) == (4, "ok: no\nold_key: no\nnew_key: no\n")


@pytest.mark.slow
def test_many_new_keys(tmp_path: Path) -> None:
    """One after the other, running and stopped, within a second: each receipt verifies with the identity."""
    place = tmp_path / "data"
    client = Client(Label(verify_key("label")))
    with HubProcess(place) as hub, hub.api() as api:
        for overlap in ("0", "5", "100"):
            client.send(api)
            order(place, "rotate-key", "--overlap-sec", overlap)
            client.send(api)
            identity_of(place)
        hub.kill()
    for _ in range(2):
        order(place, "rotate-key")
        check_sound(place)
    with HubProcess(place) as hub, hub.api() as api:
        client.send(api)
        hub.stop()
    found = identity_of(place)
    assert len(found.hub_keys) == 6
    assert [key.valid_until is None for key in found.hub_keys] == [False] * 5 + [True]
    for receipt in client.receipts:
        found.verify_receipt(receipt)
    check_sound(place)


@pytest.mark.parametrize("overlap", ["-1", "99999999999999999999999"])
def test_an_overlap_out_of_bounds(tmp_path: Path, overlap: str) -> None:
    place = tmp_path / "data"
    with HubProcess(place) as hub:
        secrets = (place / home.SECRETS).read_bytes()
        assert veen("hub", "rotate-key", "--data-dir", place, "--overlap-sec", overlap).returncode == 1
        assert (place / home.SECRETS).read_bytes() == secrets
        hub.stop()


def test_a_directory_in_use_gets_no_new_key_by_the_back_door(tmp_path: Path) -> None:
    """The operator's socket is gone, but the hub is not."""
    place = tmp_path / "data"
    with HubProcess(place) as hub:
        before = (place / home.SECRETS).read_bytes()
        (place / "state/admin.sock").unlink()
        code, said = refusal(place, "rotate-key")
        assert (code, f"process {hub.pid} " in said) == (1, True)
        assert (place / home.SECRETS).read_bytes() == before


# --- a rotation cut short -----------------------------------------------------------------------------------


def a_half_rotated(tmp_path: Path) -> tuple[Path, dict[str, bytes], dict[str, bytes]]:
    """A stopped hub with one entry; its files of before and of after a rotation."""
    place = tmp_path / "data"
    with HubProcess(place) as hub, hub.api() as api:
        Client(Label(verify_key("label"))).send(api)
        hub.stop()
    names = (
        home.SECRETS,
        hub_settings.IDENTITY,
        hub_settings.IDENTITY_SIG,
        hub_settings.IDENTITY_JSON,
        hub_settings.KEY_MAP,
    )
    before = {name: (place / name).read_bytes() for name in names}
    fs = RealFilesystem(place)
    rotate(fs, open_home(fs), counted_random("rotation"), at=2_000_000_000, overlap_sec=100)
    fs.close()
    return place, before, {name: (place / name).read_bytes() for name in names}


#: How far the rotation came: what is new on disk when the hub dies.
_CUTS = (
    (home.SECRETS,),
    (home.SECRETS, hub_settings.PENDING),
    (home.SECRETS, hub_settings.PENDING, hub_settings.IDENTITY),
    (home.SECRETS, hub_settings.PENDING, hub_settings.IDENTITY, hub_settings.IDENTITY_SIG),
    (
        home.SECRETS,
        hub_settings.PENDING,
        hub_settings.IDENTITY,
        hub_settings.IDENTITY_SIG,
        hub_settings.IDENTITY_JSON,
    ),
    (
        home.SECRETS,
        hub_settings.PENDING,
        hub_settings.IDENTITY,
        hub_settings.IDENTITY_SIG,
        hub_settings.IDENTITY_JSON,
        hub_settings.KEY_MAP,
    ),
)


@pytest.mark.slow
def test_a_rotation_cut_short_anywhere_is_finished_or_undone(tmp_path: Path) -> None:
    place, before, after = a_half_rotated(tmp_path)
    after[hub_settings.PENDING] = after[hub_settings.IDENTITY_SIG] + after[hub_settings.IDENTITY]
    for cut in _CUTS:
        for name in before:
            (place / name).write_bytes(after[name] if name in cut else before[name])
        if hub_settings.PENDING in cut:
            (place / hub_settings.PENDING).write_bytes(after[hub_settings.PENDING])
        check_sound(place)
        done = order(place, "rotate-key")
        assert not (place / hub_settings.PENDING).exists()
        assert len(done["hub_keys"]) == (3 if hub_settings.PENDING in cut else 2)
        identity_of(place)
        check_sound(place)


def test_a_hub_starts_behind_a_rotation_cut_short(tmp_path: Path) -> None:
    place, before, after = a_half_rotated(tmp_path)
    (place / hub_settings.IDENTITY_SIG).write_bytes(before[hub_settings.IDENTITY_SIG])
    (place / hub_settings.PENDING).write_bytes(
        after[hub_settings.IDENTITY_SIG] + after[hub_settings.IDENTITY]
    )
    with HubProcess(place) as hub:
        assert len(hub.get("/tooling/identity")["hub_keys"]) == 2
        hub.stop()
    assert len(HubSecrets.decode((place / home.SECRETS).read_bytes()).seeds) == 2
    identity_of(place)
    check_sound(place)


@pytest.mark.slow
@pytest.mark.parametrize("at", [0, 70])
def test_a_damaged_rotation_is_refused_by_name(tmp_path: Path, at: int) -> None:
    place, _, after = a_half_rotated(tmp_path)
    bad = bytearray(after[hub_settings.IDENTITY_SIG] + after[hub_settings.IDENTITY])
    bad[at] ^= 1
    (place / hub_settings.PENDING).write_bytes(bad)
    done = veen("hub", "start", "--data-dir", place, "--listen", "127.0.0.1:0")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert re.search(r"hub-identity\.next.*backup", done.stderr), done.stderr
    assert {name: (place / name).read_bytes() for name in after} == after
