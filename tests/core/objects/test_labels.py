"""Identifiers and epochs: the published values, and the window in which a label is valid."""

from hashlib import sha256

import pytest

from tests.builders import digest, hub_id, verify_key
from tests.expect import refused
from veen.core.errors import Detail
from veen.core.objects import labels
from veen.core.types import HubId, RealmId, RoutingKey, StreamId, VerifyKey

ZERO_ROUTING = RoutingKey(bytes(32))


def test_the_published_labels() -> None:
    stream = labels.stream_id("test")
    assert stream.hex() == "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    assert labels.label(ZERO_ROUTING, stream, 0).hex() == (
        "2ed0dbcbbecf93de9c71f533cdd7568b342e702471b00d4a40831697f85ff83a"
    )
    assert labels.label(ZERO_ROUTING, stream, 1).hex() == (
        "c5015f244f150fffbb9485f61cebb40879df042117ccc992be3947dbfe966397"
    )


def test_a_label_is_the_hash_of_routing_key_stream_and_epoch() -> None:
    routing, stream = RoutingKey(digest("routing")), StreamId(digest("stream"))
    preimage = b"veen/label\x00" + routing + stream + (7).to_bytes(8, "big")
    assert labels.label(routing, stream, 7) == sha256(preimage).digest()


def test_the_routing_key_follows_from_the_first_key_of_the_hub() -> None:
    key = verify_key("hub")
    hub = labels.hub_id(key)
    assert hub == sha256(b"veen/hub-id\x00" + key).digest()
    assert labels.routing_key(hub) == sha256(b"veen/routing_key\x00" + hub).digest()


def test_reserved_labels_are_apart_from_each_other_and_from_those_of_other_hubs() -> None:
    mine, other = hub_id("hub"), hub_id("other")
    assert labels.authorize_label(mine) == sha256(b"veen/authorize\x00" + mine).digest()
    assert labels.control_label(mine) == sha256(b"veen/control\x00" + mine).digest()
    reserved = {make(hub) for make in (labels.authorize_label, labels.control_label) for hub in (mine, other)}
    assert len(reserved) == 4


def test_a_stream_name_is_hashed_and_64_hex_digits_are_the_id_itself() -> None:
    assert labels.stream_id("orders") == sha256(b"orders").digest()
    assert labels.stream_id("ü") == sha256("ü".encode()).digest()
    raw = digest("raw id")
    assert labels.stream_id(raw.hex()) == labels.stream_id(raw.hex().upper()) == raw
    for almost in (raw.hex()[:-1], raw.hex() + "0", raw.hex()[:-1] + "g", raw.hex() + "\n"):
        assert labels.stream_id(almost) == sha256(almost.encode()).digest()


def test_the_stream_of_revocations_follows_from_the_realm() -> None:
    default = sha256(b"id/realm\x00default").digest()
    assert labels.realm_id() == labels.realm_id("default") == default
    assert labels.revocation_stream(labels.realm_id()) == sha256(b"veen/revocation\x00" + default).digest()
    raw = digest("a realm")
    assert labels.realm_id(raw.hex()) == raw
    assert labels.realm_id("other") == sha256(b"id/realm\x00other").digest()
    with refused(Detail.FIELD_SIZE, field="realm_id"):
        labels.revocation_stream(RealmId(bytes(31)))


def test_schema_names_of_operation_profiles_are_hashed_under_a_prefix() -> None:
    assert labels.schema_id("chat.v1") == sha256(b"chat.v1").digest()
    assert labels.schema_id("paid.operation.v1") == sha256(b"veen/schema:paid.operation.v1").digest()


def test_a_name_without_a_utf_8_form_is_refused() -> None:
    with refused(Detail.VALUE, field="name"):
        labels.stream_id("\ud800")
    with refused(Detail.VALUE, field="name"):
        labels.schema_id("\ud800")


@pytest.mark.parametrize("size", [0, 31, 33])
def test_identifiers_have_32_bytes(size: int) -> None:
    wrong = bytes(size)
    with refused(Detail.FIELD_SIZE, field="hub_pk"):
        labels.hub_id(VerifyKey(wrong))
    with refused(Detail.FIELD_SIZE, field="hub_id"):
        labels.routing_key(HubId(wrong))
    with refused(Detail.FIELD_SIZE, field="hub_id"):
        labels.authorize_label(HubId(wrong))
    with refused(Detail.FIELD_SIZE, field="hub_id"):
        labels.control_label(HubId(wrong))
    with refused(Detail.FIELD_SIZE, field="routing_key"):
        labels.label(RoutingKey(wrong), StreamId(bytes(32)), 0)
    with refused(Detail.FIELD_SIZE, field="stream_id"):
        labels.label(ZERO_ROUTING, StreamId(wrong), 0)


def test_an_epoch_is_64_bits() -> None:
    for epoch in (-1, 2**64):
        with refused(Detail.VALUE):
            labels.label(ZERO_ROUTING, StreamId(bytes(32)), epoch)


@pytest.mark.parametrize(
    ("unix_sec", "epoch_sec", "epoch"),
    [
        (1_700_000_000, 0, 0),
        (0, 60, 0),
        (59, 60, 0),
        (60, 60, 1),
        (119, 60, 1),
        (3_599, 3_600, 0),
        (3_600, 3_600, 1),
        (1_700_000_000, 3_600, 472_222),
        (2**64 - 1, 1, 2**64 - 1),
    ],
)
def test_an_epoch_begins_at_each_multiple_of_its_length(unix_sec: int, epoch_sec: int, epoch: int) -> None:
    assert labels.epoch_at(unix_sec, epoch_sec) == epoch


@pytest.mark.parametrize(
    ("epoch", "epoch_sec", "skew", "window"),
    [
        (0, 0, 0, [0]),
        (0, 0, 3_600, [0]),
        (100, 60, 0, [100]),
        (100, 60, 59, [100]),
        (100, 60, 60, [99, 100, 101]),
        (100, 60, 119, [99, 100, 101]),
        (100, 60, 120, [98, 99, 100, 101, 102]),
        (0, 60, 60, [0, 1]),
        (1, 60, 180, [0, 1, 2, 3, 4]),
        (5, 3_600, 3_599, [5]),
        (5, 3_600, 3_600, [4, 5, 6]),
    ],
)
def test_the_window_is_whole_epochs_on_both_sides_and_never_below_0(
    epoch: int, epoch_sec: int, skew: int, window: list[int]
) -> None:
    assert list(labels.epoch_window(epoch, epoch_sec, skew)) == window


def test_crossing_a_boundary_opens_the_new_epoch_at_once() -> None:
    before = labels.epoch_window(labels.epoch_at(119, 60), 60, 60)
    after = labels.epoch_window(labels.epoch_at(120, 60), 60, 60)
    assert (list(before), list(after)) == ([0, 1, 2], [1, 2, 3])
