"""Revocations by admins over HTTP: who is refused, what is ignored, what is shown (C-54, C-107)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import builders
from tests.hub.admins import ADMIN, ISSUER, VICTIM, Admin
from tests.hub.api.test_tokens import authorize, holder, status, token_for
from tests.hub.hub_thread import Sender, Service, eventually, serving
from veen.core.crypto.hash import sha256
from veen.core.objects import labels
from veen.core.objects.control_record import REVOCATION_STREAM as STREAM
from veen.core.objects.control_record import RevocationBody, Target, decode_control
from veen.core.objects.msg import Msg


def listing(hub: Service, query: str = "") -> list[dict[str, Any]]:
    found = hub.get(f"/tooling/revocations{query}").json()
    assert not found["truncated"]
    listed: list[dict[str, Any]] = found["revocations"]
    return listed


def applied(hub: Service, message: Msg) -> list[dict[str, Any]]:
    """Return what became of an admin's message, once it was read."""
    return listing(hub, f"?origin={message.leaf_hash.hex()}&wait=30")


def metric(hub: Service, name: str) -> float:
    for line in hub.get("/metrics").body.decode().splitlines():
        if line.startswith(f"{name} "):
            return float(line.split()[1])
    return 0


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Service]:
    with serving(tmp_path / "data", admins=[ADMIN], trust_issuers=[ISSUER]) as service:
        yield service


# --- over HTTP ----------------------------------------------------------------------------------------------


def test_a_client_that_an_admin_has_revoked_is_refused(hub: Service) -> None:
    victim, other = Sender(hub, "victim"), Sender(hub, "other")
    victim.send()
    order = Admin(hub.identity).revoke(Target.CLIENT_ID, VICTIM, reason="its key was lost")
    hub.accept(order)
    expected = {
        "kind": "client-id",
        "target": VICTIM.hex(),
        "ts": 1,
        "ttl": None,
        "active_now": True,
        "reason": "its key was lost",
        "origin": order.leaf_hash.hex(),
    }
    assert applied(hub, order) == [expected]
    assert listing(hub) == [expected]
    assert hub.submit(victim.next()).refusal() == ("E.AUTH", "REVOKED")
    other.send()
    assert metric(hub, "veen_control_applied_total") == 1


def test_tokens_are_revoked_by_their_reference_or_their_hash(hub: Service) -> None:
    admin = Admin(hub.identity)
    by_ref, by_hash, kept = (token_for(name) for name in ("by ref", "by hash", "kept"))
    for token, name in ((by_ref, "by ref"), (by_hash, "by hash"), (kept, "kept")):
        authorize(hub, token)
        holder(hub, token, name).send()
    orders = [
        admin.revoke(Target.AUTH_REF, by_ref.auth_ref),
        admin.revoke(Target.CAP_TOKEN, sha256(by_hash.encode())),
        admin.revoke(Target.AUTH_REF, sha256(kept.encode())),  # the other kind's target: of no token at all
    ]
    for order in orders:
        hub.accept(order)
        assert applied(hub, order)
    assert hub.submit(holder(hub, by_ref, "by ref").make(2)).refusal() == ("E.CAP", "REVOKED")
    assert hub.submit(holder(hub, by_hash, "by hash").make(2)).refusal() == ("E.CAP", "REVOKED")
    assert hub.submit(holder(hub, kept, "kept").make(2)).status == 200
    assert status(hub, by_ref).revocation_kind == Target.AUTH_REF
    assert status(hub, by_hash).revocation_kind == Target.CAP_TOKEN
    assert not status(hub, kept).revoked


def test_where_tokens_are_needed_admins_need_them_too(tmp_path: Path) -> None:
    given = {"admins": [ADMIN], "trust_issuers": [ISSUER], "require_cap": "true"}
    with serving(tmp_path / "data", **given) as hub:
        admin = Admin(hub.identity)
        assert hub.submit(admin.revoke(Target.CLIENT_ID, VICTIM)).refusal() == ("E.CAP", "CAP_MISSING")
        token = token_for("admin", streams=[STREAM.hex()])
        authorize(hub, token)
        order = Admin(hub.identity, auth_ref=token.auth_ref).revoke(Target.CLIENT_ID, VICTIM)
        hub.accept(order)
        assert len(applied(hub, order)) == 1


def test_what_is_no_order_of_an_admin_changes_nothing(hub: Service) -> None:
    admin, stranger = Admin(hub.identity), Admin(hub.identity, "stranger")
    body = RevocationBody(kind="client-id", target=VICTIM, ts=1).encode()
    ignored = {
        "NOT_ADMIN": stranger.order(body),
        "HDR_AEAD": admin.order(body, recipient=builders.reader_public()),
        "CBOR_INVALID": admin.order(b"garbage"),
        "VALUE": admin.order(body, schema=labels.schema_id("chat.v1")),
        "FIELD_SIZE": admin.order(body.replace(b"\x58\x20" + VICTIM, b"\x41\x00")),
    }
    for message in ignored.values():
        hub.accept(message)
    last = admin.revoke(Target.CLIENT_ID, builders.verify_key("another"))
    hub.accept(last)
    assert len(applied(hub, last)) == 1
    assert listing(hub) == applied(hub, last)
    Sender(hub, "victim").send()
    for why in ignored:
        assert metric(hub, f'veen_control_ignored_total{{why="{why}"}}') == 1, why
    lines = [line for line in hub.log if line["event"] == "control-ignored"]
    assert [line["why"] for line in lines] == list(ignored)
    assert {line["level"] for line in lines} == {"warn"}
    assert all(len(line["client_id_prefix"]) == 8 for line in lines)


def test_a_flood_of_strangers_has_one_line_for_all_that_came_together(hub: Service) -> None:
    stranger = Admin(hub.identity, "stranger")
    hub.bulk([stranger.order(b"garbage") for _ in range(50)])
    eventually(lambda: metric(hub, 'veen_control_ignored_total{why="NOT_ADMIN"}') == 50)

    def lines() -> list[dict[str, Any]]:  # the last may come right after it was counted
        return [line for line in hub.log if line["event"] == "control-ignored"]

    eventually(lambda: sum(line["count"] for line in lines()) == 50)
    assert len(lines()) < 50


def test_many_orders_at_once_are_all_taken(hub: Service) -> None:
    admin = Admin(hub.identity)
    orders = [admin.revoke(Target.AUTH_REF, builders.digest(f"token {nth}"), ts=nth) for nth in range(100)]
    hub.bulk(orders)
    eventually(lambda: len(listing(hub, "?limit=1000")) == 100)
    found = listing(hub, "?limit=1000")
    assert [item["origin"] for item in found] == [order.leaf_hash.hex() for order in orders]


def test_listing(hub: Service) -> None:
    admin = Admin(hub.identity)
    orders = [
        admin.revoke(Target.CLIENT_ID, VICTIM, ts=300),
        admin.revoke(Target.AUTH_REF, builders.digest("a"), ts=100, ttl=50),
        admin.revoke(Target.CAP_TOKEN, builders.digest("b"), ts=200),
        admin.revoke(Target.CAP_TOKEN, builders.digest("c"), ts=2**40),
    ]
    for order in orders:
        hub.accept(order)
    assert applied(hub, orders[-1])
    assert [item["ts"] for item in listing(hub)] == [100, 200, 300, 2**40]
    assert [item["ts"] for item in listing(hub, "?since=200")] == [200, 300, 2**40]
    assert [item["ts"] for item in listing(hub, "?active=1")] == [200, 300]
    assert [item["ts"] for item in listing(hub, "?kind=cap-token")] == [200, 2**40]
    assert [item["active_now"] for item in listing(hub)] == [False, True, True, False]
    cut = hub.get("/tooling/revocations?limit=2").json()
    assert ([item["ts"] for item in cut["revocations"]], cut["truncated"]) == ([100, 200], True)
    for query, name in (
        ("kind=hub", "kind"),
        ("since=x", "since"),
        ("limit=-1", "limit"),
        ("origin=ff", "origin"),
        ("wait=soon", "wait"),
    ):
        error = hub.get(f"/tooling/revocations?{query}").error()
        assert (error.code, (error.detail or {})["field"]) == ("E.BAD_REQUEST", name)


def test_whoever_waits_for_an_order_that_never_comes_is_told_so(hub: Service) -> None:
    assert listing(hub, f"?origin={bytes(32).hex()}") == []
    assert listing(hub, f"?origin={bytes(32).hex()}&wait=1") == []


def test_a_long_reason_is_kept_and_shown_in_part(hub: Service) -> None:
    order = Admin(hub.identity).revoke(Target.CLIENT_ID, VICTIM, reason="x" * 5_000)
    hub.accept(order)
    assert applied(hub, order)[0]["reason"] == "x" * 1_000
    reader = hub.hub.reader
    kept = decode_control(reader.entry(labels.control_label(hub.identity.hub_id), 1).msg_bytes)
    assert getattr(kept, "reason", None) == "x" * 5_000


def test_what_a_hub_says_about_it(tmp_path: Path) -> None:
    def said(hub: Service) -> tuple[str | None, bool]:
        features = hub.get("/tooling/profile").json()["features"]
        return hub.get("/tooling/kex_policy").json()["revocation_stream"], features["kex1_plus"]

    with serving(tmp_path / "data") as hub:
        assert said(hub) == (None, False)
        assert listing(hub) == []
    with serving(tmp_path / "data", admins=[ADMIN]) as hub:
        assert said(hub) == (STREAM.hex(), True)
    with serving(tmp_path / "data", admins=[ADMIN], role="replica") as hub:
        assert said(hub) == (None, False)
