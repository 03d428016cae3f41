"""Sending: every message once, whatever happens to answers, hubs and states."""

import os
import stat
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.client.conftest import Opens
from tests.client.participants import NOW, Awaiting, Blocking, Person, make_home
from tests.client.proxy import Answer, LostError, Passing, Proxy
from tests.hub.hub_process import HubProcess
from veen.client.errors import BodyError, InvalidResponseError, NetworkError, RejectedError, UnsentError
from veen.client.home.directory import OUTBOX_DIR
from veen.client.keys.keystore import StreamKey
from veen.client.models import Draft, Message, SendOptions
from veen.client.session import Rotation
from veen.client.transport.http import MAX_ANSWER_BYTES
from veen.core.api.data_plane import SubmitResponse
from veen.core.encoding.wire_object import decode_sequence
from veen.core.errors import ProtocolError
from veen.core.objects import labels
from veen.core.objects.capability import CapToken, Rate
from veen.core.objects.msg import Msg


def bodies(messages: list[Message]) -> list[object]:
    return [message.body for message in messages]


def test_a_message_arrives_and_its_receipt_is_checked(opens: Opens, stream: str) -> None:
    alice = opens("alice")
    sent = alice.send(stream, {"text": "hello", "list": [1, "zwei", None, True]})
    assert (sent.position, sent.msg.client_seq, sent.msg.prev_ack) == (1, 1, 0)
    found = alice.read(stream)[0]
    assert found.body == {"text": "hello", "list": [1, "zwei", None, True]}
    assert (found.msg, found.receipt) == (sent.msg, sent.receipt)
    again = alice.send(stream, None)
    assert (again.msg.client_seq, again.msg.prev_ack) == (2, 1), "prev_ack says what was seen"


def _endless() -> list[object]:
    body: list[object] = []
    body.append(body)
    return body


@pytest.mark.parametrize(
    "body",
    [
        *(1.5, {"a": [-1]}, {"n": 1 << 64}, float("nan")),
        *({"when": datetime(2026, 1, 1, tzinfo=UTC)}, {1, 2}, [Ellipsis]),
        *({1.5: 1}, {"a": {True: 1}}, {(1, 2): 3}, _endless()),
    ],
    ids=repr,
)
def test_what_deterministic_cbor_can_not_hold_is_refused_before_anything_is_sent(
    opens: Opens, stream: str, body: object
) -> None:
    alice = opens("alice")
    with pytest.raises(BodyError):
        alice.send(stream, body)  # type: ignore[arg-type]
    assert alice.send(stream, {"n": (1 << 64) - 1}).msg.client_seq == 1


def test_many_messages_keep_their_order(opens: Opens, stream: str) -> None:
    alice = opens("alice")
    sent = alice.send_many(stream, [Draft({"n": number}) for number in range(600)])
    assert [item.position for item in sent] == list(range(1, 601))
    assert bodies(alice.read(stream)) == [{"n": number} for number in range(600)]
    assert alice.send_many(stream, []) == []


def test_others_may_write_in_between(opens: Opens, stream: str) -> None:
    alice, bob = opens("alice"), opens("bob")
    alice.send(stream, 1)
    for number in range(5):
        bob.send(stream, number)
    sent = alice.send(stream, 2)
    assert sent.position == 7
    kept = alice.session.home.load().labels[sent.receipt.label]
    assert (kept.last_seq, kept.peaks.root, kept.prev_ack) == (7, sent.receipt.mmr_root, 7)
    assert alice.verify_state(stream)[0].consistent


class Losing:
    """Loses the answers of the next submits, after the hub has taken them; or the requests, before."""

    def __init__(self, count: int, *, before: bool = False) -> None:
        self.left = count
        self._before = before

    def before(self, passing: Passing) -> None:
        if self._before and passing.path == "/v1/submit" and self.left:
            self.left -= 1
            raise LostError

    def after(self, passing: Passing, answer: Answer) -> Answer:
        if not self._before and passing.path == "/v1/submit" and self.left:
            self.left -= 1
            raise LostError
        return answer


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_lost_answer_makes_no_second_message(
    hub: HubProcess, opens: Opens, stream: str, count: int, where: str
) -> None:
    with Proxy(hub.url) as between:
        alice = opens("alice", between.url)
        alice.send(stream, "first")
        losing = Losing(count, before=where == "before")
        between.before, between.after = losing.before, losing.after
        sent = alice.send(stream, "second")
        assert (sent.position, losing.left) == (2, 0)
        tries = [item.body for item in between.seen if item.path == "/v1/submit"][1:]
        assert len(set(tries)) == 1, "what is sent again is the same, byte for byte"
        assert bodies(alice.read(stream)) == ["first", "second"]


def test_a_lost_answer_to_many_makes_none_twice(hub: HubProcess, opens: Opens, stream: str) -> None:
    with Proxy(hub.url) as between:
        alice = opens("alice", between.url)
        between.after = Losing(1).after
        sent = alice.send_many(stream, [Draft(number) for number in range(20)])
        assert [item.position for item in sent] == list(range(1, 21))
        assert bodies(alice.read(stream)) == list(range(20))


@pytest.mark.parametrize("later", ["send", "flush"])
def test_a_hub_that_stays_away_leaves_the_message_to_the_next_send(
    hub: HubProcess, opens: Opens, stream: str, later: str
) -> None:
    with Proxy(hub.url) as between:
        alice = opens("alice", between.url)
        alice.send(stream, 1)
        between.after = Losing(100).after
        with pytest.raises(NetworkError, match="which is stored"):
            alice.send(stream, 2)
        place = alice.session.home.root / OUTBOX_DIR
        waiting = [path for path in place.iterdir() if path.name.endswith(".msgs")]
        assert len(waiting) == 1
        assert stat.S_IMODE(waiting[0].stat().st_mode) == 0o600
    again = opens("alice")  # another process, straight to the hub
    if later == "flush":
        assert (again.flush(stream), again.flush(stream)) == (1, 0)
    assert again.send(stream, 3).position == 3
    assert bodies(again.read(stream)) == [1, 2, 3]
    assert not list(place.iterdir())


def test_what_the_hub_refuses_later_is_kept_and_told(hub: HubProcess, opens: Opens, stream: str) -> None:
    with Proxy(hub.url) as between:
        alice = opens("alice", between.url)
        alice.send(stream, 1)
        between.before = Losing(100, before=True).before
        with pytest.raises(NetworkError):
            alice.send(stream, 2)
    opens("alice")  # while it is not known, nobody else may take the number
    label = labels.label(
        alice.session.pin.identity.routing_key,  # type: ignore[union-attr]
        labels.stream_id(stream),
        0,
    )
    home = alice.session.home
    waiting = home.outbox(label)[0]
    broken = Msg.decode(waiting.encode())
    home.put_outbox(label, [_with_other_sig(broken)])
    with pytest.raises(UnsentError, match="rejected by the hub") as caught:
        opens("alice").send(stream, 3)
    assert Msg.decode(caught.value.kept.read_bytes()).client_seq == 2
    assert opens("alice").send(stream, 3).position == 2
    assert bodies(opens("alice").read(stream)) == [1, 3]


def _with_other_sig(msg: Msg) -> Msg:
    data = bytearray(msg.encode())
    data[-1] ^= 1
    return Msg.decode(bytes(data))


def test_a_lost_state_is_made_again_from_the_hub(opens: Opens, stream: str) -> None:
    alice = opens("alice")
    for number in range(3):
        alice.send(stream, number)
    (alice.session.home.root / "state.json").unlink()
    sent = opens("alice").send(stream, 3)
    assert (sent.position, sent.msg.client_seq, sent.msg.prev_ack) == (4, 4, 3)


def test_two_processes_do_not_use_one_number(opens: Opens, stream: str) -> None:
    one, two = opens("alice"), opens("alice")
    seqs = [who.send(stream, number).msg.client_seq for number, who in enumerate((one, two, one, two, two))]
    assert seqs == [1, 2, 3, 4, 5]


class Forging:
    """Changes the receipt of a submit."""

    def __init__(self, change: str) -> None:
        self._change = change

    def after(self, passing: Passing, answer: Answer) -> Answer:
        if passing.path != "/v1/submit" or answer.status != 200:
            return answer
        receipt = SubmitResponse.decode(answer.body).receipt.to_json()
        assert isinstance(receipt, list)
        at = {"stream_seq": 2, "leaf_hash": 3, "mmr_root": 4, "hub_ts": 5, "hub_sig": 6}[self._change]
        value = receipt[at]
        other = "ff" if str(value).startswith("00") else "00"
        receipt[at] = value + 1 if isinstance(value, int) else other + str(value)[2:]
        made = SubmitResponse.from_json({"ver": 1, "receipt": receipt})
        return Answer(200, answer.content_type, made.encode())


@pytest.mark.parametrize("change", ["stream_seq", "leaf_hash", "mmr_root", "hub_ts", "hub_sig"])
def test_a_false_receipt_changes_nothing(hub: HubProcess, opens: Opens, stream: str, change: str) -> None:
    with Proxy(hub.url) as between:
        alice = opens("alice", between.url)
        alice.send(stream, 1)
        before = alice.session.home.load()
        between.after = Forging(change).after
        with pytest.raises(ProtocolError):
            alice.send(stream, 2)
        assert alice.session.home.load() == before
        between.after = lambda _, answer: answer
        assert alice.send(stream, 3).position == 3, "what the hub has taken is found again"
        assert bodies(alice.read(stream)) == [1, 2, 3]


def test_what_is_no_answer_of_a_hub(hub: HubProcess, opens: Opens, stream: str) -> None:
    with Proxy(hub.url) as between:
        alice = opens("alice", between.url)
        between.after = lambda _, answer: Answer(answer.status, answer.content_type, b"<html>hello</html>")
        with pytest.raises(InvalidResponseError):
            alice.send(stream, 1)
        between.after = lambda _, __: Answer(502, "text/html", b"bad gateway")
        with pytest.raises(InvalidResponseError, match="502"):
            alice.send(stream, 1)


def test_a_busy_hub_is_asked_again(hub: HubProcess, opens: Opens, stream: str) -> None:
    busy = [503, 503]

    def after(passing: Passing, answer: Answer) -> Answer:
        if passing.path == "/v1/submit" and busy:
            return Answer(busy.pop(), "application/cbor", _UNAVAILABLE)
        return answer

    with Proxy(hub.url) as between:
        between.after = after
        assert opens("alice", between.url).send(stream, 1).position == 1


#: {1: 1, 2: "E.UNAVAILABLE", 3: "busy"}
_UNAVAILABLE = bytes.fromhex("a30101026d") + b"E.UNAVAILABLE" + bytes.fromhex("0364") + b"busy"


@pytest.mark.parametrize("why", ["age", "count"])
def test_a_client_key_that_was_used_enough_is_changed(opens: Opens, stream: str, why: str) -> None:
    bounds = Rotation(max_age_sec=1 << 40, max_msgs=2) if why == "count" else Rotation(max_age_sec=0)
    alice = opens("alice", rotation=bounds)
    keys = [alice.send(stream, number).msg.client_id for number in range(4)]
    assert len(set(keys)) == (2 if why == "count" else 4)
    assert bodies(alice.read(stream)) == [0, 1, 2, 3], "all of them still open"
    assert alice.session.home.load_secrets(lambda: None)[0] == alice.session.secrets


def test_a_key_with_a_token_is_not_changed_by_itself(tmp_path: Path, opens: Opens, stream: str) -> None:
    with HubProcess(tmp_path / "strict", config='require_cap = "true"\ntrust_all_issuers = true\n') as strict:
        alice = opens("alice", strict.url, rotation=Rotation(max_age_sec=0))
        with pytest.raises(RejectedError) as caught:
            alice.send(stream, 1)
        assert caught.value.code == "E.CAP"
        client_id = alice.session.secrets.client.signing_key.public_key
        issuer = alice.session.secrets.identity
        token = CapToken.mint(issuer, client_id, stream_ids=[labels.stream_id(stream)], ttl=3600)
        assert alice.authorize(token).auth_ref == token.auth_ref
        sent = [alice.send(stream, number) for number in range(3)]
        assert {item.msg.client_id for item in sent} == {client_id}
        assert {item.msg.auth_ref for item in sent} == {token.auth_ref}


def test_the_rate_of_a_token_slows_down_and_loses_nothing(tmp_path: Path, opens: Opens, stream: str) -> None:
    with HubProcess(tmp_path / "strict", config='require_cap = "true"\ntrust_all_issuers = true\n') as strict:
        alice = opens("alice", strict.url)
        client_id = alice.session.secrets.client.signing_key.public_key
        token = CapToken.mint(
            alice.session.secrets.identity,
            client_id,
            stream_ids=[labels.stream_id(stream)],
            ttl=3600,
            rate=Rate(per_sec=5, burst=5),
        )
        alice.authorize(token)
        started = time.monotonic()
        sent = alice.send_many(stream, [Draft(number) for number in range(12)])
        assert [item.position for item in sent] == list(range(1, 13))
        assert time.monotonic() - started > 0.5, "the hub asked for patience"
        assert bodies(alice.read(stream)) == list(range(12))


def test_proof_of_work_is_done_when_the_hub_wants_it(tmp_path: Path, opens: Opens, stream: str) -> None:
    with HubProcess(tmp_path / "costly", "--pow-difficulty", "8") as costly:
        alice = opens("alice", costly.url)
        assert alice.send(stream, 1).position == 1
        assert len(alice.send_many(stream, [Draft(number) for number in range(5)])) == 5


def test_labels_follow_the_hubs_epochs(tmp_path: Path, opens: Opens, stream: str) -> None:
    config = f'epoch_sec = 3600\nstreams = ["{stream}"]\n'
    with HubProcess(tmp_path / "rotating", config=config) as rotating:
        alice = opens("alice", rotating.url)
        before = int(time.time()) // 3600
        sent = alice.send(stream, "now")
        assert before <= sent.epoch <= int(time.time()) // 3600
        late = opens("alice", rotating.url)
        late.session.clock = lambda: int(time.time()) - 30 * 3600
        assert late.send(stream, "with a wrong clock").epoch == sent.epoch, "the hub's time is asked for"
        assert bodies(alice.read(stream)) == ["now", "with a wrong clock"]


def test_copies_are_kept_unless_that_is_not_wanted(opens: Opens, stream: str) -> None:
    alice = opens("alice")
    sent = alice.send(stream, 1)
    alice.send_many(stream, [Draft(2)], SendOptions(store_body=False))
    root = alice.session.home.root
    assert decode_sequence((root / "payloads.cborseq").read_bytes(), Msg) == [sent.msg]
    assert (root / "receipts.cborseq").read_bytes().startswith(sent.receipt.encode())


def test_a_new_home_starts_with_nothing(tmp_path: Path) -> None:
    home = make_home(tmp_path / "new", now=NOW)
    assert home.load().labels == {}
    assert os.listdir(home.root).count("lock") == 1  # noqa: PTH208 - names only


def test_what_was_taken_of_many_is_told_before_what_was_not(opens: Opens, stream: str) -> None:
    alice = opens("alice")
    drafts = [Draft(0), Draft(1), Draft("x" * 2_000_000), Draft(3)]
    taken: list[int] = []
    with pytest.raises(ProtocolError, match="exceeds"):
        _collect(alice, stream, drafts, taken)
    assert taken == [1, 2]
    assert bodies(alice.read(stream)) == [0, 1]
    assert alice.send(stream, "on it goes").msg.client_seq == 3


def _collect(who: Person, stream: str, drafts: list[Draft], taken: list[int]) -> None:
    if isinstance(who, Blocking):
        for sent in who.client.iter_send_many(stream, drafts):
            taken.append(sent.position)  # noqa: PERF401 - it may end in the middle
        return
    assert isinstance(who, Awaiting)

    async def all_of_them() -> None:
        async for sent in who.client.iter_send_many(stream, drafts):
            taken.append(sent.position)  # noqa: PERF401 - it may end in the middle

    who.runner.run(all_of_them())


def test_a_hub_that_asks_for_an_hour_is_not_waited_for(hub: HubProcess, opens: Opens, stream: str) -> None:
    later = _UNAVAILABLE.replace(b"\xa3", b"\xa4", 1) + bytes.fromhex("05190e10")

    def after(passing: Passing, answer: Answer) -> Answer:
        return Answer(503, "application/cbor", later) if passing.path == "/v1/submit" else answer

    with Proxy(hub.url) as between:
        alice = opens("alice", between.url)
        between.after = after
        with pytest.raises(RejectedError) as caught:
            alice.send(stream, 1)
        assert caught.value.envelope.retry_after == 3600
        between.after = lambda _, answer: answer
        assert alice.send(stream, 2).position in (1, 2)


def test_keys_that_another_process_has_added_survive_a_rotation(opens: Opens, stream: str) -> None:
    alice, elsewhere = opens("alice", rotation=Rotation(max_age_sec=0)), opens("alice")
    key = StreamKey(stream_id=labels.stream_id("team"), secret=os.urandom(32), created_at=NOW)
    home = elsewhere.session.home
    home.save_secrets(elsewhere.session.secrets.with_stream(key), None, NOW)
    alice.send(stream, 1)
    assert home.load_secrets(lambda: None)[0].stream_key(key.stream_id) == key


def test_the_token_that_came_last_is_used(tmp_path: Path) -> None:
    home = make_home(tmp_path / "alice")
    secrets = home.load_secrets(lambda: None)[0]
    client_id, stream_id = secrets.client.signing_key.public_key, labels.stream_id("s")
    first = CapToken.mint(secrets.identity, client_id, stream_ids=[stream_id], ttl=10)
    path = home.keep_token(first)
    os.utime(path, ns=(1, 1))
    renewed = first.renew(secrets.identity)
    home.keep_token(renewed)
    assert home.token_for(stream_id, client_id) == renewed
    assert home.token_for(labels.stream_id("other"), client_id) is None
    assert home.token_for(stream_id, secrets.identity.public_key) is None


def test_an_answer_without_an_end_is_none(hub: HubProcess, opens: Opens, stream: str) -> None:
    with Proxy(hub.url) as between:
        alice = opens("alice", between.url)
        between.after = lambda _, answer: Answer(200, answer.content_type, bytes(MAX_ANSWER_BYTES + 1))
        with pytest.raises(InvalidResponseError, match="more than"):
            alice.send(stream, 1)
