"""A hub that has its own keys, and uses them to deceive: by what it signs, and by what it leaves out."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests import builders
from tests.client.conftest import Opens
from tests.client.participants import Awaiting, Blocking, Person
from tests.client.proxy import Answer, Passing, Proxy
from tests.hub.hub_process import HubProcess
from veen.client.errors import DivergenceError, PinError
from veen.client.home.pins import read_facts
from veen.client.models import Draft
from veen.client.read import ReadOptions, StreamReader
from veen.client.send import rotate
from veen.core.api.data_plane import StreamRequest, StreamResponse, SubmitRequest, SubmitResponse
from veen.core.api.tooling import StreamEpochsResponse
from veen.core.crypto.ed25519 import SigningKey
from veen.core.crypto.hpke import public_key
from veen.core.errors import Code, Detail, ProtocolError
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.core.objects.receipt import Receipt
from veen.core.types import NodeHash, ReaderSecretKey, RoutingKey, Signature
from veen.hub.home import SECRETS, HubSecrets

CBOR = "application/cbor"
NOT_FOUND = Answer(
    404, CBOR, ErrorEnvelope.of(ProtocolError(Detail.VALUE, "no", code=Code.NOT_FOUND, field="x")).encode()
)


@pytest.fixture
def between(hub: HubProcess) -> Iterator[Proxy]:
    with Proxy(hub.url) as made:
        yield made


def _key(hub: HubProcess) -> SigningKey:
    return SigningKey.from_seed(HubSecrets.decode((hub.place / SECRETS).read_bytes()).seeds[0])


def test_a_receipt_for_a_place_that_is_taken(
    hub: HubProcess, opens: Opens, between: Proxy, stream: str
) -> None:
    """The hub signs that a message is entry 2, where another was seen before."""
    alice = opens("alice", between.url)
    alice.send_many(stream, [Draft(number) for number in range(4)])

    def after(passing: Passing, answer: Answer) -> Answer:
        if passing.path != "/v1/submit":
            return answer
        msg = SubmitRequest.decode(passing.body).msg
        false = Receipt.sign(
            _key(hub),
            label=msg.label,
            stream_seq=2,
            leaf_hash=msg.leaf_hash,
            mmr_root=NodeHash(builders.leaf(7)),
            hub_ts=SubmitResponse.decode(answer.body).receipt.hub_ts,
        )
        return Answer(200, CBOR, SubmitResponse(receipt=false).encode())

    between.after = after
    with pytest.raises(DivergenceError, match="two contents for entry 2"):
        alice.send(stream, "mine")


def test_entries_that_were_seen_do_not_vanish(opens: Opens, between: Proxy, stream: str) -> None:
    alice = opens("alice", between.url)
    alice.send_many(stream, [Draft(number) for number in range(5)])

    def after(passing: Passing, answer: Answer) -> Answer:
        if passing.path == "/v1/receipt":
            return NOT_FOUND
        if passing.path != "/v1/stream":
            return answer
        page = StreamResponse.decode(answer.body)
        items = tuple(item for item in page.items if item.stream_seq <= 3)
        return Answer(200, CBOR, replace(page, items=items, next_cursor=None).encode())

    between.after = after
    for act in (
        lambda: alice.read(stream),
        lambda: alice.read(stream, ReadOptions(start=4)),
        lambda: alice.resync(stream),
    ):
        with pytest.raises(ProtocolError, match="signed entry 5"):
            act()


def test_a_hub_can_not_have_entries_skipped(opens: Opens, between: Proxy, stream: str) -> None:
    """Own messages advance what is known; the hub denies the place where reading had come to."""
    alice = opens("alice", between.url)
    alice.send(stream, "read")
    assert len(alice.read(stream, ReadOptions(resume=True))) == 1
    opens("bob").send(stream, "for alice")
    alice.send(stream, "behind it")
    between.after = lambda passing, answer: NOT_FOUND if passing.path == "/v1/receipt" else answer
    with pytest.raises(ProtocolError, match="reports that there is no entry 1"):
        alice.read(stream, ReadOptions(resume=True))
    between.after = lambda _, answer: answer
    assert [item.position for item in alice.read(stream, ReadOptions(resume=True))] == [2, 3]


def test_from_behind_the_end(opens: Opens, stream: str) -> None:
    opens("alice").send_many(stream, [Draft(number) for number in range(3)])
    bob = opens("bob")
    assert bob.read(stream, ReadOptions(start=100)) == [], "he has not asked for what is before"
    assert [item.position for item in bob.read(stream, ReadOptions(start=3))] == [3]


def test_what_came_before_a_false_signature_is_handed_out(opens: Opens, between: Proxy, stream: str) -> None:
    opens("alice").send_many(stream, [Draft(number) for number in range(4)])
    bob = opens("bob", between.url)

    def after(passing: Passing, answer: Answer) -> Answer:
        if passing.path != "/v1/stream":
            return answer
        page = StreamResponse.decode(answer.body)
        items = [
            replace(item, receipt=replace(item.receipt, hub_sig=Signature(bytes(64))))
            if item.stream_seq == 3 and item.receipt is not None
            else item
            for item in page.items
        ]
        return Answer(200, CBOR, replace(page, items=tuple(items)).encode())

    between.after = after
    assert [item.position for item in bob.read(stream, most=2)] == [1, 2]
    with pytest.raises(ProtocolError, match="signature"):
        bob.read(stream)


def test_a_reader_and_a_sender_who_are_shown_different_logs(
    hub: HubProcess, opens: Opens, between: Proxy, stream: str
) -> None:
    """One client: what its reader has seen must be a part of what its sender sees."""
    opens("bob").send_many(stream, [Draft(number) for number in range(2)])
    alice, again = opens("alice", between.url), opens("alice")
    reader = StreamReader(alice.session, stream, ReadOptions())
    assert _fetch(alice, reader) == [1, 2]
    again.send(stream, "another log")  # entry 3 of what the sender is shown

    def after(passing: Passing, answer: Answer) -> Answer:
        if passing.path.partition("?")[0] != "/v1/stream" or StreamRequest.decode(passing.body).from_seq != 3:
            return answer
        page = StreamResponse.decode(answer.body)
        true = page.items[0].receipt
        assert true is not None
        false = Receipt.sign(
            _key(hub),
            label=true.label,
            stream_seq=3,
            leaf_hash=true.leaf_hash,
            mmr_root=NodeHash(builders.leaf(9)),
            hub_ts=true.hub_ts,
        )
        return Answer(200, CBOR, replace(page, items=(replace(page.items[0], receipt=false),)).encode())

    between.after = after
    with pytest.raises(DivergenceError, match="two contents for entry 3"):
        _fetch(alice, reader)


def _fetch(who: Person, reader: StreamReader) -> list[int]:
    """Read one page."""
    if isinstance(who, Awaiting):
        found = who.runner.run(who.client.run(reader.fetch()))
    else:
        assert isinstance(who, Blocking)
        found = who.client.run(reader.fetch())
    return [item.position for item in found]


def test_a_reader_opens_what_is_sealed_to_keys_that_came_later(opens: Opens, stream: str) -> None:
    alice, bob = opens("alice"), opens("bob")
    bob.send(stream, "before")
    reader = StreamReader(alice.session, stream, ReadOptions())
    assert _fetch(alice, reader) == [1]
    with alice.session.home.hold():
        rotate(alice.session)
    newest = public_key(ReaderSecretKey(alice.session.secrets.prekeys[-1].secret))
    bob.send(stream, "after", to=newest)
    client = alice.client if isinstance(alice, Blocking) else None
    if client is not None:
        assert [item.body for item in client.run(reader.fetch())] == ["after"]


def test_a_list_of_epochs_that_does_not_end(between: Proxy, opens: Opens, stream: str) -> None:
    def after(passing: Passing, answer: Answer) -> Answer:
        if passing.path == "/tooling/status":
            said = json.loads(answer.body)
            profile = builders.profile(epoch_sec=60)
            said["profiles"] = [
                {"profile_id": profile.profile_id.hex(), "epoch_sec": 60, "pad_block": profile.pad_block}
            ]
            return Answer(200, answer.content_type, json.dumps(said).encode())
        if passing.path == "/tooling/epochs":
            return Answer(200, CBOR, StreamEpochsResponse(epochs=(5,), next_epoch=0).encode())
        return answer

    between.after = after
    with pytest.raises(ProtocolError, match="out of order"):
        opens("alice", between.url).read(stream)


def test_another_routing_key_is_not_the_hub_that_was_seen(
    hub: HubProcess, between: Proxy, opens: Opens, stream: str
) -> None:
    opens("alice", between.url).send(stream, 1)

    def after(passing: Passing, answer: Answer) -> Answer:
        if passing.path != "/tooling/status":
            return answer
        said = json.loads(answer.body)
        other = replace(read_facts(said).identity, routing_key=RoutingKey(bytes(32)))
        said |= {"identity": other.encode().hex(), "identity_sig": other.sign(_key(hub)).hex()}
        return Answer(200, answer.content_type, json.dumps(said).encode())

    between.after = after
    with pytest.raises(PinError, match="routing key"):
        opens("alice", between.url).read(stream)


def test_a_pinned_hub_does_not_answer_in_the_name_of_another(
    hub: HubProcess, between: Proxy, opens: Opens, stream: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with HubProcess(tmp_path_factory.mktemp("second") / "data") as second:
        opens("alice", between.url).send(stream, 1)
        opens("alice", second.url).send(stream, 2)
        between.target = second.url
        with pytest.raises(PinError, match="was hub"):
            opens("alice", between.url).send(stream, "meant for the first")
        state = opens("alice").session.home.load()
        moved = next(key for key, pin in state.pins.items() if second.url in pin.names)
        opens("alice", between.url, hub_id=moved).send(stream, "meant for the second")
        opens("alice", between.url).send(stream, "and again: the name was moved")
        between.target = hub.url
        with pytest.raises(PinError, match="was hub"):
            opens("alice", between.url).send(stream, 3)
