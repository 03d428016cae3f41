"""Messages of admins, opened and read: what they ask for, and that nothing but an order is one."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders
from tests.expect import refused
from veen.core.errors import Detail, ProtocolError
from veen.core.limits import DEFAULT_LIMITS
from veen.core.objects.control_record import REVOCATION_SCHEMA, RevocationBody, Target
from veen.core.objects.msg import MsgContext, PayloadHeader
from veen.core.objects.new_entry import NewEntry
from veen.core.types import AuthRef, JsonValue
from veen.hub.control.control_plane import Orders, describe_revocation, revocation_of

PROFILE = builders.profile()
ORDERS = Orders(builders.reader_key("control"), {PROFILE.profile_id: PROFILE.pad_block}, DEFAULT_LIMITS)
HEADER = PayloadHeader(schema=REVOCATION_SCHEMA)
BODY = builders.revocation_body(ttl=60, reason="lost")


def order(
    body: bytes,
    *,
    header: PayloadHeader = HEADER,
    context: MsgContext | None = None,
    reader: str = "control",
) -> NewEntry:
    """Return a message as it is in the log."""
    context = context or builders.context()
    sealed = builders.sealed(context, header=header, body=body, reader=reader)
    return NewEntry.of_msg(builders.msg(context, ciphertext=sealed.ciphertext))


def test_an_order_becomes_a_record_that_names_its_message() -> None:
    message = order(BODY.encode())
    assert ORDERS.read(message) == BODY.record(message.leaf_hash)


def test_what_was_sealed_to_another_or_changed_since_does_not_open() -> None:
    with refused(Detail.HDR_AEAD):
        ORDERS.read(order(BODY.encode(), reader="somebody else"))
    good = order(BODY.encode())
    moved = builders.msg(
        builders.context(client_seq=2), ciphertext=builders.sealed(header=HEADER, reader="control").ciphertext
    )
    assert ORDERS.read(good).origin == good.leaf_hash
    with refused(Detail.HDR_AEAD):  # the same ciphertext in another place
        ORDERS.read(NewEntry.of_msg(moved))


def test_other_schemas_are_no_orders() -> None:
    with refused(Detail.VALUE, field="schema"):
        ORDERS.read(order(BODY.encode(), header=builders.payload_header()))


def test_an_order_names_the_token_that_it_came_with_or_none() -> None:
    context = builders.context(auth_ref=AuthRef(builders.digest("token")))
    for header in (HEADER, replace(HEADER, cap_ref=context.auth_ref)):
        assert ORDERS.read(order(BODY.encode(), header=header, context=context)).target == BODY.target
    with refused(Detail.AUTH_REF, field="cap_ref"):
        wrong = replace(HEADER, cap_ref=AuthRef(builders.digest("another")))
        ORDERS.read(order(BODY.encode(), header=wrong, context=context))


def check(body: bytes) -> None:
    """Fail unless a body is an order, the one that it says, or is refused as it should be."""
    try:
        found = ORDERS.read(order(body))
    except ProtocolError:
        return
    assert RevocationBody.decode(body).record(found.origin) == found


@given(st.binary(max_size=200))
def test_any_body_is_an_order_or_is_refused(body: bytes) -> None:
    check(body)


@given(st.binary(min_size=1, max_size=3), st.integers(0, len(BODY.encode()) - 1))
def test_a_damaged_body_is_an_order_or_is_refused(damage: bytes, at: int) -> None:
    body = BODY.encode()
    check(body[:at] + damage + body[at + len(damage) :])


# --- the operator's -----------------------------------------------------------------------------------------


def test_an_order_in_json_is_for_now_unless_it_says_when() -> None:
    target = builders.digest("target")
    asked: dict[str, JsonValue] = {"kind": Target.AUTH_REF.value, "target": target.hex()}
    assert revocation_of(asked, 7) == RevocationBody(kind="auth-ref", target=target, ts=7).record()
    assert revocation_of({**asked, "ts": 5, "ttl": 9, "reason": "x"}, 7).ts == 5
    wrong: list[JsonValue] = [
        None,
        [],
        {},
        {**asked, "until": 9},
        {**asked, "ttl": "9"},
        {**asked, "kind": ""},
    ]
    for item in wrong:
        with pytest.raises(ProtocolError):
            revocation_of(item, 7)


def test_what_is_shown_depends_on_the_time() -> None:
    record = builders.revocation_record(ts=10, ttl=5, origin="admin")
    assert [describe_revocation(record, now)["active_now"] for now in (9, 10, 14, 15)] == [
        False,
        True,
        True,
        False,
    ]
    assert describe_revocation(record, 10)["origin"] == builders.digest("admin")
