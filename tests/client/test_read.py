"""Reading: every entry checked, from any place, across epochs, from a hub or from files."""

import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.client.conftest import Opens
from tests.client.participants import NOW
from tests.client.proxy import Answer, Passing, Proxy
from tests.hub.hub_process import HubProcess
from veen.client.body import Attachment, with_attachments
from veen.client.errors import BodyError, ClientStateError, RejectedError
from veen.client.keys.keystore import StreamKey
from veen.client.keys.stream_keys import accept, share
from veen.client.models import Draft, Sent
from veen.client.read import ReadOptions
from veen.core.api.data_plane import StreamResponse
from veen.core.encoding.field_types import TEXT, UINT
from veen.core.encoding.shape import Field
from veen.core.errors import ProtocolError
from veen.core.objects import labels
from veen.core.types import Coid, LeafHash
from veen.overlays.errors import InvalidBodyError
from veen.overlays.schema import Schema


def test_from_any_place_to_any_place(opens: Opens, stream: str) -> None:
    alice = opens("alice")
    alice.send_many(stream, [Draft(number) for number in range(1, 21)])
    for start, end in ((0, 20), (1, 3), (7, 7), (8, 16), (20, 20), (21, 30)):
        found = opens("alice").read(stream, ReadOptions(start=start, stop=end, prove=True))
        assert [item.body for item in found] == list(range(max(start, 1), min(end, 20) + 1))


def test_a_reader_who_has_seen_less_checks_that_the_log_has_only_grown(opens: Opens, stream: str) -> None:
    alice, bob = opens("alice"), opens("bob")
    alice.send_many(stream, [Draft(number) for number in range(3)])
    bob.read(stream)
    alice.send_many(stream, [Draft(number) for number in range(50)])
    assert len(bob.read(stream, ReadOptions(start=40))) == 14
    assert bob.verify_state(stream)[0].checked == 53


def test_reading_goes_on_where_it_had_come_to(opens: Opens, stream: str) -> None:
    alice = opens("alice")
    alice.send_many(stream, [Draft(number) for number in range(5)])
    resume = ReadOptions(resume=True)
    assert len(alice.read(stream, resume)) == 5
    assert alice.read(stream, resume) == []
    alice.send(stream, 5)
    assert [item.body for item in opens("alice").read(stream, resume)] == [5]


def test_what_was_not_dealt_with_comes_again(opens: Opens, stream: str) -> None:
    alice = opens("alice")
    alice.send_many(stream, [Draft(number) for number in range(5)])
    resume = ReadOptions(resume=True)
    assert len(alice.read(stream, resume, most=2)) == 2, "the reader stops in the middle of a page"
    assert len(opens("alice").read(stream, resume)) == 5


def test_following_waits_for_what_comes(hub: HubProcess, opens: Opens, stream: str) -> None:
    alice = opens("alice")
    with Proxy(hub.url) as between:
        written: list[Sent] = []

        def before(passing: Passing) -> None:
            if "wait=" in passing.path and not written:
                written.append(opens("carol").send(stream, "late", to=to))

        bob = opens("bob", between.url)
        to = bob.session.secrets.card(NOW).id_dh
        alice.send(stream, "early", to=to)
        between.before = before
        found = bob.read(stream, most=2)
        assert [item.body for item in found] == ["early", "late"]


def test_a_stream_that_nobody_has_written_to(opens: Opens, stream: str) -> None:
    assert opens("alice").read(stream) == []


def test_messages_for_others_are_shown_as_such(opens: Opens, stream: str) -> None:
    alice, bob = opens("alice"), opens("bob")
    alice.send(stream, "mine")
    alice.send(stream, "for bob", to=bob.session.identity)
    assert [item.body for item in bob.read(stream)] == [None, "for bob"]
    first = bob.read(stream)[0]
    assert (first.is_open, first.problem) == (False, "sealed to another reader")
    assert [item.is_open for item in alice.read(stream)] == [True, False]


def test_members_of_a_stream_read_each_other(opens: Opens, stream: str) -> None:
    alice, bob, eve = opens("alice"), opens("bob"), opens("eve")
    key = StreamKey(stream_id=labels.stream_id(stream), secret=os.urandom(32), created_at=NOW)
    alice.session.secrets = alice.session.secrets.with_stream(key)
    sealed = share(alice.session.secrets, key, bob.session.secrets.card(NOW), NOW, os.urandom)
    bob.session.secrets = bob.session.secrets.with_stream(accept(bob.session.secrets, sealed).key)
    alice.send(stream, "from alice")
    bob.send(stream, "from bob")
    for member in (alice, bob):
        assert [item.body for item in member.read(stream)] == ["from alice", "from bob"]
    assert [item.body for item in eve.read(stream)] == [None, None]


def test_header_fields_arrive(opens: Opens, stream: str) -> None:
    alice = opens("alice")
    first = alice.send(stream, 1)
    schema_id = labels.schema_id("chat.v1")
    alice.send(stream, 2, schema="chat.v1", parent_id=first, expires_at=NOW)
    alice.send(
        stream, 3, schema=schema_id.hex(), parent_id=first.msg_id, expires_at=datetime.fromtimestamp(NOW, UTC)
    )
    alice.send(stream, 4, schema=schema_id, parent_id=alice.read(stream)[0], expires_at=NOW)
    for message in alice.read(stream)[1:]:
        header = message.header
        assert header is not None
        assert (header.schema, header.parent_id, header.expires_at) == (
            schema_id,
            LeafHash(first.msg_id),
            NOW,
        )


def test_a_time_without_a_zone_is_rejected(opens: Opens, stream: str) -> None:
    with pytest.raises(ValueError, match="time zone"):
        opens("alice").send(stream, 1, expires_at=datetime(2030, 1, 1))  # noqa: DTZ001 - that is the point


def test_a_schema_checks_and_encodes_the_body(opens: Opens, stream: str) -> None:
    alice = opens("alice")
    vote = Schema("example.vote.v1", Field("choice", TEXT), Field("weight", UINT))
    alice.send(stream, {"weight": 2, "choice": "tea"}, schema=vote)
    message = alice.read(stream)[0]
    assert message.header is not None
    assert message.header.schema == vote.schema_id
    assert vote.decode(message.raw_body()) == {"choice": "tea", "weight": 2}
    with pytest.raises(InvalidBodyError):
        alice.send(stream, {"choice": "tea"}, schema=vote)
    with pytest.raises(BodyError):
        alice.send(stream, "tea", schema=vote)
    assert len(alice.read(stream)) == 1


def test_who_a_client_is(opens: Opens, stream: str) -> None:
    alice = opens("alice")
    sent = alice.send(stream, 1)
    client = alice.client  # type: ignore[attr-defined]
    message = alice.read(stream)[0]
    assert message.sender == sent.msg.client_id == client.client_id
    assert (
        (message.position, message.timestamp) == (sent.position, sent.timestamp) == (1, sent.receipt.hub_ts)
    )
    assert client.identity.client_id == client.client_id
    assert client.home == client.session.home.root
    assert client.hub_id == client.session.pin.identity.hub_id


def test_a_receipt_is_saved(opens: Opens, stream: str, tmp_path: Path) -> None:
    sent = opens("alice").send(stream, 1)
    sent.save(tmp_path / "one.receipt")
    assert (tmp_path / "one.receipt").read_bytes() == sent.receipt.encode()


def test_attachments_arrive_as_they_were(tmp_path: Path, opens: Opens, stream: str) -> None:
    file = tmp_path / "photo.jpg"
    file.write_bytes(os.urandom(300_000))
    alice = opens("alice")
    alice.send(stream, {"text": "look"}, attachments=[file, b"", b"small"])
    message = alice.read(stream)[0]
    assert [(item.name, item.size) for item in message.attachments] == [
        ("photo.jpg", 300_000),
        ("", 0),
        ("", 5),
    ]
    assert alice.attachment(message, 0) == file.read_bytes()
    assert [alice.attachment(message, index) for index in (1, 2)] == [b"", b"small"]
    with pytest.raises(ClientStateError, match="3 attachments"):
        alice.attachment(message, 3)


def test_an_attachment_that_was_changed_is_refused(hub: HubProcess, opens: Opens, stream: str) -> None:
    opens("alice").send(stream, None, attachments=[b"content"])

    def after(passing: Passing, answer: Answer) -> Answer:
        if "/attachment/" not in passing.path:
            return answer
        return Answer(200, answer.content_type, answer.body[:-1] + bytes([answer.body[-1] ^ 1]))

    with Proxy(hub.url) as between:
        alice = opens("alice", between.url)
        between.after = after
        message = alice.read(stream)[0]
        with pytest.raises(ProtocolError):
            alice.attachment(message, 0)


def test_a_sender_who_lies_about_attachments_is_found_out(opens: Opens, stream: str) -> None:
    alice = opens("alice")
    lie = with_attachments({"text": "x"}, [Attachment(Coid(os.urandom(32)), 5, "none")])
    alice.send(stream, lie)
    alice.send(stream, {"attachments": [{"coid": b"short", "size": 1}]})
    alice.send(stream, "the stream goes on")
    found = alice.read(stream)
    assert [item.problem is None for item in found] == [False, False, True]
    assert "att_root" in str(found[0].problem)


def test_an_attachment_that_the_hub_does_not_have(hub: HubProcess, opens: Opens, stream: str) -> None:
    alice = opens("alice")
    coid = alice.send(stream, None, attachments=[b"gone"]).attachments[0].coid
    (hub.place / "attachments" / coid.hex()[:2] / coid.hex()).unlink()
    with pytest.raises(RejectedError, match="no such attachment"):
        alice.attachment(alice.read(stream)[0], 0)


CHANGES = ("msg", "receipt", "order", "missing", "repeated", "without receipt", "other label")


@pytest.mark.parametrize("change", CHANGES)
def test_a_page_that_was_changed_stops_the_stream_at_its_entry(
    hub: HubProcess, opens: Opens, stream: str, change: str
) -> None:
    opens("alice").send_many(stream, [Draft(number) for number in range(5)])
    opens("alice").send("elsewhere", 1)
    other = opens("alice").read("elsewhere")[0]

    def after(passing: Passing, answer: Answer) -> Answer:
        if not passing.path.startswith("/v1/stream"):
            return answer
        page = StreamResponse.decode(answer.body).to_json()
        assert isinstance(page, dict)
        items: Any = page["items"]
        if _numbers(items)[2:4] == [3, 4]:
            _change(items, change, other.receipt.to_json())
        elif change == "receipt" and 3 in _numbers(items):
            items[_numbers(items).index(3)]["receipt"][5] += (
                1  # asked for again: perhaps the hub has a new key
            )
        return Answer(200, answer.content_type, StreamResponse.from_json(page).encode())

    with Proxy(hub.url) as between:
        bob = opens("bob", between.url)
        between.after = after
        with pytest.raises(ProtocolError) as caught:
            bob.read(stream)
        assert caught.value.fields.get("stream_seq", 3) in (2, 3, 4)
        kept = bob.session.home.load().labels
        assert all(item.last_seq < 3 for item in kept.values())


def _numbers(items: list[Any]) -> list[int]:
    return [item["stream_seq"] for item in items]


def _change(items: list[Any], change: str, other: object) -> None:
    third = items[2]
    match change:
        case "msg":
            msg = third["msg"]
            msg[8] = msg[8][:-2] + ("00" if msg[8][-2:] != "00" else "01")
        case "receipt":
            third["receipt"][5] += 1
        case "order":
            items[2], items[3] = items[3], items[2]
        case "missing":
            del items[2]
        case "repeated":
            items[2] = items[1]
        case "without receipt":
            del third["receipt"]
        case "other label":
            third["receipt"] = other


def test_good_entries_before_a_bad_one_are_delivered(hub: HubProcess, opens: Opens, stream: str) -> None:
    opens("alice").send_many(stream, [Draft(number) for number in range(5)])

    def after(passing: Passing, answer: Answer) -> Answer:
        if not passing.path.startswith("/v1/stream"):
            return answer
        page = StreamResponse.decode(answer.body).to_json()
        _change(page["items"], "receipt", None)  # type: ignore[index, arg-type, call-overload]
        return Answer(200, answer.content_type, StreamResponse.from_json(page).encode())

    with Proxy(hub.url) as between:
        alice = opens("alice", between.url)
        between.after = after
        assert [item.body for item in alice.read(stream, most=2)] == [0, 1]


def test_epochs_are_read_in_order(tmp_path: Path, opens: Opens, stream: str) -> None:
    config = f'epoch_sec = 60\nstreams = ["{stream}"]\n[limits]\nmax_epoch_skew_sec = 600\n'
    with HubProcess(tmp_path / "rotating", config=config) as rotating:
        now = int(time.time())
        alice = opens("alice", rotating.url)
        for back in (8, 3, 0, 3):
            alice.session.clock = lambda back=back: now - 60 * back  # type: ignore[misc]
            alice.send(stream, back)
        found = opens("bob", rotating.url).read(stream)
        assert [(item.epoch, item.position) for item in found] == [
            (now // 60 - 8, 1),
            (now // 60 - 3, 1),
            (now // 60 - 3, 2),
            (now // 60, 1),
        ]
        only = opens("carol", rotating.url).read(stream, ReadOptions(epoch=now // 60 - 3))
        assert [item.position for item in only] == [1, 2]
        again = opens("alice", rotating.url)
        assert [item.epoch for item in again.resync(stream)] == [now // 60 - 8, now // 60 - 3, now // 60]
        rotating.stop()
        assert len(opens("bob", str(rotating.place)).read(stream)) == 4
