"""Steps about RPC and CRDTs over a log."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from veen.client.client import Client
from veen.client.errors import RpcError, RpcTimeoutError
from veen.client.fold.interpret import interpret, typed
from veen.client.models import Draft, SendOptions
from veen.client.rpc.call import CallOptions, call
from veen.client.rpc.serve import Call, Responder
from veen.core.encoding.cbor import Value
from veen.overlays.builtin.crdt import COUNTER, LWW, ORSET, GCounter, LwwMap, OrSet
from veen.overlays.overlay import Overlay
from veen.selftest.context import Context
from veen.selftest.errors import StepFailedError
from veen.selftest.step import PATIENCE_SEC, check, equal, step

_MANY: Final = 40
_KEYS: Final = (b"red", b"green", b"blue")


class _Desk:
    """A server that adds numbers, and counts its calls."""

    def __init__(self, ctx: Context, stream: str) -> None:
        self.client = ctx.client()
        self.server = Responder(self.client.session, stream)
        self.server.add("add", self._add)
        self.runs = 0
        self.failure: Exception | None = None
        sending = SendOptions(to=self.client.identity.seal_key(ctx.clock()))
        self.options = CallOptions(timeout_ms=int(PATIENCE_SEC * 1000), sending=sending)

    def _add(self, call: Call) -> Value:
        self.runs += 1
        if not isinstance(call.args, list):
            raise RpcError("MATH.NUMBERS", "only numbers can be added")
        return sum(item for item in call.args if isinstance(item, int))

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Serve calls within the block."""
        stop = threading.Event()

        def work() -> None:
            try:
                while not stop.is_set():
                    self.client.run(self.server.step(wait_sec=1))
            except Exception as error:  # noqa: BLE001 - reported at the end of the step
                self.failure = error

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(PATIENCE_SEC)
            self.server.close()
        if self.failure is not None:
            raise StepFailedError(f"the server has failed: {self.failure}")


@step()
def rpc(ctx: Context) -> str:
    """Only the server answers a call, and only its caller gets the reply; rejections are reported to it."""
    stream = ctx.name("rpc")
    desk, caller, other = _Desk(ctx, stream), ctx.client(), ctx.client()
    with desk.answering():
        equal(_call(caller, stream, "add", [1, 2], desk.options), 3, "the result of add(1, 2)")
        equal(_code(caller, stream, "add", "x", desk.options), "MATH.NUMBERS", "an error of the method")
        equal(
            _code(caller, stream, "nothing", None, desk.options),
            "RPC.UNKNOWN_METHOD",
            "a method that does not exist",
        )
    opened = [message.is_open for message in caller.read(stream)]
    equal(opened, [False, True] * 3, "what the caller can open: the replies")
    check(not any(message.is_open for message in other.read(stream)), "a third party can read a call")
    return "one call answered, two rejected"


def _call(caller: Client, stream: str, method: str, args: Value, options: CallOptions) -> Value:
    return caller.run(call(caller.session, stream, method, args, options))


def _code(caller: Client, stream: str, method: str, args: Value, options: CallOptions) -> str:
    try:
        _call(caller, stream, method, args, options)
    except RpcError as error:
        return error.code
    except RpcTimeoutError:
        return "no reply"
    return "a result"


@step()
def rpc_idempotency(ctx: Context) -> str:
    """A repeated call has one effect and one result, also after a restart of the server."""
    stream = ctx.name("idem")
    desk, caller = _Desk(ctx, stream), ctx.client()
    options = CallOptions(timeout_ms=desk.options.timeout_ms, idem=7, sending=desk.options.sending)
    with desk.answering():
        results = [_call(caller, stream, "add", [2, 3], options) for _ in range(2)]
    desk.server = Responder(desk.client.session, stream)
    desk.server.add("add", desk._add)  # noqa: SLF001 - of this module
    with desk.answering():
        results.append(_call(caller, stream, "add", [2, 3], options))
    equal(results, [5, 5, 5], "results of one call")
    equal(desk.runs, 1, "effects of one call")
    return "one call made three times, one effect"


@step()
def crdt(ctx: Context) -> str:
    """Registers, sets and counters have the same state for every reader."""
    stream = ctx.name("crdt")
    writer, drafts = ctx.client(), _drafts(ctx)
    sent = [item for draft in drafts for item in writer.send_many(stream, [draft])]
    half = sent[len(sent) // 2].position
    for overlay, expected in ((LwwMap(), _registers), (OrSet(), _elements), (GCounter(), _totals)):
        for upto in (half, sent[-1].position):
            state = _state(writer, overlay, stream, upto)
            equal(state, expected(drafts[:upto]), f"{overlay.name} at entry {upto}")
            equal(_state(writer, overlay, stream, upto), state, f"{overlay.name}, read again")
    return f"{len(sent)} events, three kinds of state, each at two positions"


def _state(client: Client, overlay: Overlay, stream: str, upto: int) -> object:
    return interpret(client, overlay, stream, upto=upto).view()


def _drafts(ctx: Context) -> list[Draft]:
    rng = ctx.random
    ids = [rng.randbytes(32) for _ in range(_MANY)]
    drafts: list[Draft] = []
    for nth in range(_MANY):
        key = rng.choice(_KEYS)
        drafts.append(typed(LWW, LWW.make(key=key, ts=rng.randrange(9), value=b"%d" % nth)))
        if rng.random() < 0.6:
            drafts.append(typed(ORSET, ORSET.make(id=ids[nth], elem=key)))
        else:
            drafts.append(typed(ORSET, ORSET.make(tomb=tuple(rng.sample(ids, 3)))))
        drafts.append(typed(COUNTER, COUNTER.make(shard=ids[nth % 3], delta=rng.randrange(100))))
    return drafts


def _bodies(drafts: list[Draft], schema: bytes) -> Iterator[dict[str, object]]:
    known = {item.schema_id: item for item in (LWW, ORSET, COUNTER)}
    for draft in drafts:
        if draft.schema == schema and isinstance(draft.encoded, bytes):
            yield known[draft.schema].decode(draft.encoded)


def _registers(drafts: list[Draft]) -> object:
    best: dict[bytes, tuple[int, int, bytes]] = {}
    for nth, body in enumerate(_bodies(drafts, LWW.schema_id)):
        key, ts, value = (body[name] for name in ("key", "ts", "value"))
        assert isinstance(key, bytes)
        assert isinstance(ts, int)
        assert isinstance(value, bytes)
        best[key] = max(best.get(key, (-1, -1, b"")), (ts, nth, value))
    return {key.decode(): best[key][2].decode() for key in sorted(best, key=lambda key: (len(key), key))}


def _elements(drafts: list[Draft]) -> object:
    bodies = list(_bodies(drafts, ORSET.schema_id))
    gone = {one for body in bodies if isinstance(tomb := body.get("tomb"), list) for one in tomb}
    present = {body["elem"] for body in bodies if "elem" in body and body["id"] not in gone}
    return sorted(elem.decode() for elem in present if isinstance(elem, bytes))


def _totals(drafts: list[Draft]) -> object:
    shards: dict[str, int] = {}
    for body in _bodies(drafts, COUNTER.schema_id):
        shard, delta = body["shard"], body["delta"]
        assert isinstance(shard, bytes)
        assert isinstance(delta, int)
        shards[shard.hex()] = shards.get(shard.hex(), 0) + delta
    return {"total": sum(shards.values()), "shards": dict(sorted(shards.items()))}


STEPS: Final = (rpc, rpc_idempotency, crdt)
