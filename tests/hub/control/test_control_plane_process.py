"""Revocations at a real hub: by an admin through its socket, and by the operator, running or stopped."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.builders import digest, some_label, verify_key
from tests.hub.admins import ADMIN, Admin
from tests.hub.hub_process import Api, Client, HubProcess, Refused, check_no_secrets, check_sound, veen
from veen.cli.main import app
from veen.core.objects.control_record import Target
from veen.core.objects.hub_identity import HubIdentity
from veen.core.objects.msg import Msg
from veen.core.objects.receipt import Receipt

LABEL = some_label()


def admin_of(hub: HubProcess) -> Admin:
    return Admin(HubIdentity.decode(bytes.fromhex(hub.get("/tooling/identity")["identity"])))


def revoked(hub: HubProcess, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = hub.get(f"/tooling/revocations{query}")["revocations"]
    return found


def applied(hub: HubProcess, order: Msg) -> list[dict[str, Any]]:
    return revoked(hub, f"?origin={order.leaf_hash.hex()}&wait=20")


def check_revoked(client: Client, api: Api) -> None:
    with pytest.raises(Refused) as caught:
        client.send(api)
    assert (caught.value.envelope.code, caught.value.detail["detail_enum"]) == ("E.AUTH", "REVOKED")


def give(place: Path, *args: str) -> dict[str, Any]:
    """Give an order as the operator, in this process."""
    done = CliRunner().invoke(
        app, ["hub", "revoke", *args, "--data-dir", str(place), "--json"], prog_name="veen"
    )
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_an_order_of_an_admin_outlives_the_process(tmp_path: Path) -> None:
    place, key_file = tmp_path / "data", tmp_path / "admin.pub"
    key_file.write_text(ADMIN + "\n")
    victim, other = Client(LABEL, "victim"), Client(LABEL, "other")
    with HubProcess(place, "--admin", str(key_file), "--admin", verify_key("second").hex()) as hub:
        assert len(hub.get("/tooling/kex_policy")["revocation_stream"]) == 64
        admin = admin_of(hub)
        with hub.api() as api:
            victim.send(api)
            order = admin.revoke(Target.CLIENT_ID, verify_key("victim"), reason="lost")
            api.submit(order)
            check_revoked(victim, api)  # it was sent behind the receipt
            assert applied(hub, order)[0]["reason"] == "lost"
            other.send(api)
        hub.kill()
    with HubProcess(place) as hub, hub.api() as api:
        check_revoked(victim, api)
        assert [item["origin"] for item in revoked(hub)] == [order.leaf_hash.hex()]
        hub.stop()
    check_sound(place)
    check_no_secrets(place, hub.log.read_bytes())


def test_a_hub_that_did_not_read_catches_up_before_it_serves(tmp_path: Path) -> None:
    place = tmp_path / "data"
    victim = Client(LABEL, "victim")
    with HubProcess(place) as hub, hub.api() as api:
        admin = admin_of(hub)
        api.submit(admin.revoke(Target.CLIENT_ID, verify_key("victim")))
        victim.send(api)
        assert revoked(hub) == []
        hub.kill()
    with HubProcess(place, env={"VEEN_ADMINS": ADMIN}) as hub, hub.api() as api:
        check_revoked(victim, api)
        assert len(revoked(hub)) == 1
        hub.stop()
    assert '"event": "control-caught-up"' in hub.log.read_text()
    check_sound(place)


@pytest.mark.slow
def test_every_order_that_has_a_receipt_counts_whenever_the_hub_is_killed(tmp_path: Path) -> None:
    place = tmp_path / "data"
    orders: list[Msg] = []
    admin: Admin | None = None
    for batch in (1, 2, 5, 40):
        with HubProcess(place, "--admin", ADMIN) as hub, hub.api() as api:
            admin = admin or admin_of(hub)
            fresh = [
                admin.revoke(Target.AUTH_REF, digest(f"token {nth}"), ts=nth)
                for nth in range(len(orders), len(orders) + batch)
            ]
            assert all(isinstance(answer, Receipt) for answer in api.submit_many(fresh))
            hub.kill()  # some of them are read by now, or none
            orders += fresh
    with HubProcess(place, "--admin", ADMIN) as hub:
        found = [item["origin"] for item in revoked(hub, "?limit=1000")]
        assert found == [order.leaf_hash.hex() for order in orders]
        hub.stop()
    check_sound(place)


def test_the_operator_revokes_at_a_running_and_at_a_stopped_hub(tmp_path: Path) -> None:
    place = tmp_path / "data"
    first, second = Client(LABEL, "first"), Client(LABEL, "second")
    with HubProcess(place) as hub, hub.api() as api:
        first.send(api)
        target = verify_key("first").hex()
        made = give(place, "--kind", "client-id", "--target", target.upper(), "--reason", "x")
        assert made == {
            "ok": True,
            "kind": "client-id",
            "target": target,
            "ts": made["ts"],
            "ttl": None,
            "active_now": True,
            "reason": "x",
            "origin": None,
        }
        check_revoked(first, api)
        assert api.ask("POST", "/admin/revoke", b"{}", "application/json")[0] == 404
        hub.stop()
    gone = give(place, "--kind", "client-id", "--target", verify_key("second").hex(), "--ttl", "100000")
    assert (gone["ttl"], gone["active_now"]) == (100_000, True)
    check_sound(place)
    with HubProcess(place) as hub, hub.api() as api:
        check_revoked(first, api)
        check_revoked(second, api)
        assert [item["target"] for item in revoked(hub)] == [made["target"], gone["target"]]
        hub.stop()


def test_an_order_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "data"
    bad = (("hub", verify_key().hex()), ("client-id", "abcd"), ("client-id", "xyz"))

    def check(where: Path, kind: str, target: str) -> None:
        done = veen("hub", "revoke", "--kind", kind, "--target", target, "--data-dir", where)
        assert done.returncode
        assert done.stderr.count("\n") == 1, done.stderr

    with HubProcess(place) as hub:
        for kind, target in bad:
            check(place, kind, target)
        assert revoked(hub) == []
        hub.stop()
    for kind, target in bad:
        check(place, kind, target)
    check(tmp_path / "none", "client-id", verify_key().hex())
