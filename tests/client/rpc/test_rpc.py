"""Calls over a stream, by real clients and a real hub."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.client.participants import QUICK, make_home
from tests.hub.hub_process import HubProcess
from veen.client.client import Client
from veen.client.effects import Submit, run_effect
from veen.client.errors import ClientStateError, NetworkError, RpcError, RpcTimeoutError
from veen.client.fold.interpret import interpret, typed
from veen.client.models import Draft, SendOptions, Sent
from veen.client.rpc.call import PendingCall
from veen.client.rpc.serve import Call, CollectedEvents, Handled, Responder
from veen.client.send import send_draft
from veen.core.types import ReaderPublicKey, VerifyKey
from veen.overlays.builtin.rpc import REPLY, REQUEST, Calls, success

ROTATING = "rotating"


def _open(place: Path, hub: HubProcess) -> Client:
    if not place.exists():
        make_home(place)
    return Client.open(place, hub.url, retry=QUICK, rotation=None)


class Desk:
    """Somebody who answers calls in a thread, until enough are answered."""

    def __init__(self, place: Path, hub: HubProcess, stream: str) -> None:
        self.client = _open(place, hub)
        self.server = Responder(self.client.session, stream)
        self.handled: list[Handled] = []
        self.runs: list[Call] = []

        def add(call: Call) -> Any:
            self.runs.append(call)
            assert isinstance(call.args, list)
            return call.args[0] + call.args[1]

        self.server.add("add", add)

    def answer_all(self, limit: int | None = None) -> list[Handled]:
        """Answer what is there."""
        collected = CollectedEvents()
        try:
            self.client.run(self.server.serve(collected, follow=False, limit=limit))
        finally:
            self.server.close()
        self.handled += collected.done
        return collected.done


@contextmanager
def _answering(desk: Desk, count: int) -> Iterator[None]:
    def work() -> None:
        collected = CollectedEvents()
        desk.client.run(desk.server.serve(collected, limit=count))
        desk.server.close()
        desk.handled += collected.done

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield
    thread.join(timeout=60)
    assert not thread.is_alive()


class Room:
    """A stream, who answers on it, and who calls."""

    def __init__(self, tmp_path: Path, hub: HubProcess, stream: str) -> None:
        self.place = tmp_path
        self.hub = hub
        self.stream = stream
        self._opened: list[Client | Responder] = []
        self.desk = self.new_desk()
        self.to_server = SendOptions(to=self.key_of("server"))

    def new_desk(self) -> Desk:
        """Return a server; another one of the same directory is as after a restart."""
        made = Desk(self.place / "server", self.hub, self.stream)
        self._opened += [made.server, made.client]
        return made

    def person(self, name: str = "caller") -> Client:
        self._opened.append(_open(self.place / name, self.hub))
        assert isinstance(self._opened[-1], Client)
        return self._opened[-1]

    def key_of(self, name: str) -> ReaderPublicKey:
        return self.person(name).session.secrets.card(0).id_dh

    def options(self, **more: Any) -> dict[str, Any]:
        return {"timeout": 20.0, "to": self.to_server.to, **more}

    def ask(self, draft: Draft, name: str = "caller") -> Sent:
        """Send a request, and do not wait."""
        return send_draft(self.person(name), self.stream, draft, self.to_server)

    def close(self) -> None:
        for item in self._opened:
            item.close()


@pytest.fixture
def room(tmp_path: Path, hub: HubProcess, stream: str) -> Iterator[Room]:
    made = Room(tmp_path, hub, stream)
    yield made
    made.close()


def _request(**values: Any) -> Draft:
    return typed(REQUEST, REQUEST.make(**{"method": "add", "args": [1, 2], **values}))


class TestCalling:
    def test_add(self, opens: Any, room: Room, kind: str) -> None:
        caller = opens("somebody")
        with _answering(room.desk, 1):
            called = caller.client.call(room.stream, "add", [1, 2], **room.options())
            assert (called if kind == "blocking" else caller.runner.run(called)) == 3

    def test_only_the_caller_can_read_the_reply(self, room: Room) -> None:
        with _answering(room.desk, 1):
            room.person().call(room.stream, "add", [1, 2], **room.options())
        opened = {
            name: [message.is_open for message in room.person(name).read(room.stream)]
            for name in ("caller", "server", "other")
        }
        assert opened == {"caller": [False, True], "server": [True, False], "other": [False, False]}

    def test_the_same_idem_has_one_effect_and_one_result(self, room: Room) -> None:
        caller, options = room.person(), room.options(idem=7)
        with _answering(room.desk, 3):
            results = [caller.call(room.stream, "add", [1, 2], **options) for _ in range(2)]
            other = caller.call(room.stream, "add", [5, 5], **options)  # the first arguments count
        assert [*results, other] == [3, 3, 3]
        assert len(room.desk.runs) == 1
        assert [handled.ran for handled in room.desk.handled] == [True, False, False]

    def test_the_same_idem_of_another_caller_is_another_call(self, room: Room) -> None:
        options = room.options(idem=7)
        with _answering(room.desk, 2):
            assert room.person().call(room.stream, "add", [1, 2], **options) == 3
            assert room.person("other").call(room.stream, "add", [4, 5], **options) == 9
        assert len(room.desk.runs) == 2

    def test_nobody_answers(self, room: Room) -> None:
        with pytest.raises(TimeoutError) as raised:
            room.person().call(room.stream, "add", [1, 2], **room.options(timeout=0.05))
        assert isinstance(raised.value, RpcTimeoutError)

    def test_a_call_is_repeated_until_somebody_answers(self, room: Room) -> None:
        options = room.options(timeout=0.05, idem=3, repeats=2)
        with pytest.raises(RpcTimeoutError, match="idem 3"):
            room.person().call(room.stream, "add", [1, 2], **options)
        handled = room.desk.answer_all()
        assert len(handled) == 3
        assert len(room.desk.runs) <= 1, "one effect, or none if the caller has given up before"
        assert len({str(item.reply) for item in handled}) == 1

    def test_repeating_needs_idem(self, room: Room) -> None:
        with pytest.raises(ValueError, match="idem"):
            room.person().call(room.stream, "add", [], **room.options(repeats=1))

    def test_a_reply_of_somebody_else_does_not_count(self, room: Room) -> None:
        key = room.key_of("caller")
        sent = room.ask(_request(reply_to=bytes(key)))
        forged = Draft(None, schema=REPLY.schema_id, parent_id=sent.msg_id, encoded=success(4))
        send_draft(room.person("liar"), room.stream, forged, SendOptions(to=key))
        room.desk.answer_all()
        caller = room.person()

        def first(servers: frozenset[VerifyKey]) -> Any:
            waiting = PendingCall(caller.session, room.stream, sent, servers)
            caller.run(caller.session.connect())
            found = caller.run(waiting.reply({sent.msg_id}, until=0))
            assert found is not None
            return found["result"]

        assert first(frozenset()) == 4
        assert first(frozenset({room.desk.client.session.secrets.identity.public_key})) == 3

    def test_waiting_for_a_reply_reads_nothing_for_the_application(self, room: Room) -> None:
        caller = room.person()
        caller.send(room.stream, "for me")
        with _answering(room.desk, 1):
            caller.call(room.stream, "add", [1, 2], **room.options())
        read = list(caller.read(room.stream, resume=True))
        assert [message.position for message in read] == [1, 2, 3]


class TestServing:
    @pytest.mark.parametrize(
        ("draft", "code"),
        [
            (_request(method="sub"), "RPC.UNKNOWN_METHOD"),
            (_request(args=["x", 1]), "RPC.INTERNAL"),
            (Draft(None, schema=REQUEST.schema_id, encoded=b"\xa0"), "RPC.MALFORMED"),
        ],
    )
    def test_what_can_not_be_answered_is_refused_by_name(self, room: Room, draft: Draft, code: str) -> None:
        room.ask(draft)
        [handled] = room.desk.answer_all()
        assert handled.reply["error"]["code"] == code
        assert room.desk.answer_all() == []

    def test_a_method_says_why_it_fails(self, room: Room) -> None:
        def refuse(_: Call) -> Any:
            raise RpcError("MATH.NO", "not today")

        room.desk.server.add("refuse", refuse)
        with _answering(room.desk, 1), pytest.raises(RpcError, match="not today") as raised:
            room.person().call(room.stream, "refuse", 1, **room.options())
        assert raised.value.code == "MATH.NO"

    def test_a_result_that_cbor_can_not_hold(self, room: Room) -> None:
        room.desk.server.add("half", lambda _: 0.5)  # type: ignore[arg-type, return-value] # that is the point
        room.ask(_request(method="half"))
        [handled] = room.desk.answer_all()
        assert handled.reply["error"]["code"] == "RPC.RESULT"

    def test_a_request_that_nobody_waits_for_is_not_run_but_may_be_made_again(self, room: Room) -> None:
        room.ask(_request(timeout_ms=1, idem=1))
        clock = room.desk.client.session.clock
        room.desk.client.session.clock = lambda: clock() + 3600
        [handled] = room.desk.answer_all()
        assert handled.reply["error"]["code"] == "RPC.EXPIRED"
        assert room.desk.runs == []
        room.desk.client.session.clock = clock
        room.ask(_request(timeout_ms=1, idem=1))
        [handled] = room.desk.answer_all()
        assert handled.reply["result"] == 3

    def test_a_method_that_comes_later_answers_a_call_that_is_made_again(self, room: Room) -> None:
        room.ask(_request(method="later", idem=1))
        [handled] = room.desk.answer_all()
        assert handled.reply["error"]["code"] == "RPC.UNKNOWN_METHOD"
        room.desk.server.add("later", lambda _: 1)
        room.ask(_request(method="later", idem=1))
        [handled] = room.desk.answer_all()
        assert (handled.reply["result"], handled.ran) == (1, True)

    @pytest.mark.parametrize("reply_to", [True, False])
    def test_what_is_too_large_to_be_sent_is_told_and_stops_nobody(self, room: Room, reply_to: bool) -> None:  # noqa: FBT001
        key = {"reply_to": bytes(room.key_of("caller"))} if reply_to else {}
        room.desk.server.add("large", lambda _: "x" * 2_000_000)
        room.ask(_request(method="\x00" * 900_000, **key))
        room.ask(_request(method="large", **key))
        room.ask(_request(**key))
        replies = [handled.reply for handled in room.desk.answer_all()]
        assert [reply.get("error", {}).get("code") for reply in replies] == [
            "RPC.UNKNOWN_METHOD",
            "RPC.RESULT",
            None,
        ]

    def test_a_method_that_wants_to_end_the_server_does_not(self, room: Room) -> None:
        def leave(_: Call) -> Any:
            raise SystemExit(3)

        room.desk.server.add("leave", leave)
        room.ask(_request(method="leave"))
        room.ask(_request())
        assert [handled.reply["ok"] for handled in room.desk.answer_all()] == [False, True]

    def test_who_stops_early_runs_nothing_that_he_does_not_tell(self, room: Room) -> None:
        for _ in range(3):
            room.ask(_request())
        [first] = room.desk.answer_all(limit=1)
        assert (first.ran, len(room.desk.runs)) == (True, 1)
        again = room.new_desk()
        assert [handled.ran for handled in again.answer_all()] == [True, True]

    def test_a_server_waits_for_a_hub_that_is_away(self, room: Room, tmp_path: Path) -> None:
        with HubProcess(tmp_path / "other-hub") as other:
            desk = Desk(tmp_path / "elsewhere", other, room.stream)
            desk.client.connect()
        reported: list[NetworkError] = []

        class Interrupting(CollectedEvents):
            def unreachable(self, error: NetworkError) -> None:
                reported.append(error)
                if len(reported) == 2:
                    raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            desk.client.run(desk.server.serve(Interrupting()))
        desk.server.close()
        desk.client.close()
        assert len(reported) == 2

    def test_the_same_call_after_a_rotation_of_keys_is_the_same_call(self, room: Room) -> None:
        caller = room.person()
        with _answering(room.desk, 2):
            for _ in range(2):
                assert caller.call(room.stream, "add", [1, 2], **room.options(idem=7)) == 3
                caller.rotate()
        assert len(room.desk.runs) == 1

    def test_a_key_that_nothing_can_be_sealed_to_stops_nobody(self, room: Room) -> None:
        room.ask(_request(reply_to=bytes(32)))
        room.ask(_request(args=[2, 2]))
        assert [handled.reply["result"] for handled in room.desk.answer_all()] == [3, 4]

    def test_the_fold_of_the_server_s_stream_is_what_happened(self, room: Room) -> None:
        room.ask(_request(idem=1))
        room.desk.answer_all()
        seen = interpret(room.desk.client, Calls(), room.stream).view()
        assert isinstance(seen, list)
        assert [(item["method"], item["idem"]) for item in seen if isinstance(item, dict)] == [("add", 1)]


class TestRestart:
    def test_a_call_that_was_answered_is_not_run_again(self, room: Room) -> None:
        room.ask(_request(idem=1))
        room.desk.answer_all()
        (room.place / "server" / "state.json").unlink()  # it begins at the beginning again
        room.ask(_request(idem=1))
        again = room.new_desk()
        [handled] = again.answer_all()
        assert handled.reply["result"] == 3
        assert not handled.ran
        assert again.runs == []

    def test_a_method_that_was_interrupted_is_not_run_again_unless_it_may_be(self, room: Room) -> None:
        def end(_: Call) -> Any:
            raise KeyboardInterrupt

        for name in ("once", "often"):
            room.ask(_request(method=name))
            room.desk.server.add(name, end, repeatable=name == "often")
        with pytest.raises(KeyboardInterrupt):
            room.desk.answer_all()  # ends in the first one
        second = room.new_desk()
        second.server.add("once", end)
        second.server.add("often", end, repeatable=True)
        with pytest.raises(KeyboardInterrupt):
            second.answer_all()  # answers the first one, ends in the other
        third, seen = room.new_desk(), []

        def often(call: Call) -> Any:
            seen.append(call.again)
            return 2

        third.server.add("often", often, repeatable=True)
        [handled] = third.answer_all()
        assert (handled.method, handled.reply["result"], seen) == ("often", 2, [True])

    def test_what_was_interrupted_is_told_to_the_caller(self, room: Room) -> None:
        def end(_: Call) -> Any:
            raise KeyboardInterrupt

        room.ask(_request(method="once"))
        room.desk.server.add("once", end)
        with pytest.raises(KeyboardInterrupt):
            room.desk.answer_all()
        again = room.new_desk()
        again.server.add("once", lambda _: 1)
        [handled] = again.answer_all()
        assert handled.reply["error"]["code"] == "RPC.INTERRUPTED"

    def test_what_was_done_and_not_answered_is_answered(self, room: Room) -> None:
        room.ask(_request())
        steps = room.desk.server.step()
        outcome: Any = None
        # Drive it until it wants to submit the reply, and end there, as a crash would.
        while not isinstance(effect := steps.send(outcome), Submit):
            outcome = run_effect(effect, room.desk.client.hub, lambda _: None)
        steps.close()
        room.desk.server.close()
        again = room.new_desk()
        [handled] = again.answer_all()
        assert handled.reply["result"] == 3
        assert len(room.desk.runs) + len(again.runs) == 1

    def test_two_servers_of_one_directory(self, room: Room) -> None:
        room.desk.client.run(room.desk.server.step())
        other = room.new_desk()
        with pytest.raises(ClientStateError, match="another process"):
            other.client.run(other.server.step())

    def test_a_journal_that_is_damaged_is_not_made_anew(self, room: Room) -> None:
        room.ask(_request(idem=1))
        room.desk.answer_all()
        [path] = (room.place / "server" / "rpc").glob("*.lmdb")
        good = path.read_bytes()
        for damaged in (b"garbage" * 2000, good[:8192]):
            path.write_bytes(damaged)
            desk = room.new_desk()
            with pytest.raises(ClientStateError, match="move it away"):
                desk.client.run(desk.server.step())
            assert path.read_bytes() == damaged

    def test_a_journal_gives_nothing_away(self, room: Room) -> None:
        room.ask(_request(idem=1))
        room.desk.answer_all()
        [path] = (room.place / "server" / "rpc").glob("*.lmdb")
        assert path.stat().st_mode & 0o777 == 0o600
        assert success(3) not in path.read_bytes()


class TestEpochs:
    @pytest.fixture
    def hub(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
        """Labels change every second."""
        config = f'epoch_sec = 1\nstreams = ["{ROTATING}"]\n'
        with HubProcess(tmp_path_factory.mktemp("rotating") / "data", config=config) as made:
            yield made

    @pytest.fixture
    def stream(self) -> str:
        return ROTATING

    def test_calls_are_answered_whatever_epoch_they_come_in(self, room: Room) -> None:
        caller, epochs = room.person(), set()
        with _answering(room.desk, 3):
            for number in range(3):
                assert caller.call(room.stream, "add", [number, 1], **room.options()) == number + 1
                epochs.add(caller.session.clock())
        assert len(epochs) > 1
