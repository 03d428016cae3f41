"""POST /v1/submit, one message or many: from the bytes of a request to the bytes of its response."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from veen.admission.prefilter import check_work, prefilter, sized
from veen.core.api.data_plane import SubmitRequest, SubmitResponse
from veen.core.encoding import cbor
from veen.core.errors import Detail, ProtocolError
from veen.core.objects.error_envelope import ErrorEnvelope, unavailable
from veen.core.objects.msg import msg_end
from veen.hub.api.bodies import JSON_FACTOR, parse_json, require_cbor, wants_json
from veen.hub.hub import Hub
from veen.hub.submit.submission import MessageForm, Submission
from veen.net.http_message import CBOR, CBOR_SEQ, JSON, Request, Response, encode_json, error_response
from veen.stdx.grammar import counted
from veen.storage.read.requests import SERVER_VERSION

# The response is {1: 1, 2: receipt, 3: server_version}; these are the bytes around the receipt.
_BEFORE: Final = bytes.fromhex("a3010102")
_BEHIND: Final = b"\x03" + cbor.write_text(SERVER_VERSION)


class SubmitHandlers:
    """Handlers of submit requests; they respond when the hub has decided."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def max_body(self, content_type: str) -> int:
        """Return the maximum size of a request."""
        match content_type:
            case "application/cbor-seq":
                return self._hub.settings.max_bulk_bytes
            case "application/json":
                return JSON_FACTOR * self._hub.limits.max_submit_bytes
        return self._hub.limits.max_submit_bytes

    def submit(self, request: Request) -> Response | None:
        """Submit {1: ver, 2: msg}, or a sequence of messages."""
        answer = _answer_json if wants_json(request) else _answer_cbor
        match request.content_type:
            case "application/cbor":
                return self._take_one(request, MessageForm.REQUEST, request.body, answer)
            case "application/cbor-seq":
                return self._take_many(request)
            case "application/json":
                return self._take_one(request, MessageForm.MSG, None, answer)
        raise ProtocolError(
            Detail.CBOR_INVALID,
            f"send {CBOR}, {JSON} or {CBOR_SEQ}, not {request.content_type[:80]!r}",
            field="content-type",
        )

    def submit_bare(self, request: Request) -> Response | None:
        """Submit a bare message; respond with a bare receipt, as older releases do (C-70)."""
        require_cbor(request)
        return self._take_one(request, MessageForm.MSG, request.body, _answer_bare)

    def _take_one(
        self,
        request: Request,
        form: MessageForm,
        body: bytes | None,
        answer: Callable[[Submission], Response],
    ) -> Response | None:
        hub = self._hub
        if hub.stopping or not hub.intake.has_room(1, len(request.body)):
            return self._overloaded(request)
        item = Submission(form, len(request.body), lambda item: request.respond(answer(item)))
        try:
            if body is None:  # JSON: the size of the message is known after parsing
                self._check_work(request)
                msg = SubmitRequest.from_json(parse_json(request.body), hub.limits).msg
                item.accept(sized(msg.encode(), hub.limits, bare=True))
            else:
                cookie, bare = request.headers.get("veen-pow"), form is MessageForm.MSG
                item.accept(prefilter(body, hub.limits, hub.pow, cookie, hub.clock(), bare=bare))
        except ProtocolError as error:
            item.reject(error)
            hub.intake.reject(item)
        else:
            hub.intake.submit((item,))
        return None

    def _check_work(self, request: Request) -> None:
        hub = self._hub
        if hub.pow is not None:
            check_work(request.body, hub.pow, request.headers.get("veen-pow"), hub.clock())

    def _overloaded(self, request: Request) -> Response:
        self._hub.metrics.overloaded += 1
        why = "is stopping" if self._hub.stopping else "is overloaded"
        return error_response(unavailable(f"the hub {why}; retry later"), as_json=wants_json(request))

    # --- many -----------------------------------------------------------------------------------------------

    def _take_many(self, request: Request) -> Response | None:
        hub = self._hub
        try:
            self._check_work(request)
            bodies, broken = _split(request.body, hub.settings.max_queue)
        except ProtocolError as error:
            size = len(request.body)
            whole = Submission(MessageForm.MSG, size, lambda item: request.respond(_answer_cbor(item)))
            whole.reject(error)
            hub.intake.reject(whole)
            return None
        if hub.stopping or not hub.intake.has_room(len(bodies), len(request.body)):
            return self._overloaded(request)
        answers = _Answers(request, len(bodies), broken)
        if not answers.left:
            return answers.response()
        items = [
            Submission(MessageForm.MSG, len(body), partial(answers.put, nth))
            for nth, body in enumerate(bodies)
        ]
        good = []
        for item, body in zip(items, bodies, strict=True):
            try:
                item.accept(sized(body, hub.limits, bare=True))
            except ProtocolError as error:
                item.reject(error)
                hub.intake.reject(item)
            else:
                good.append(item)
        if good:
            hub.intake.submit(good)
        return None


class _Answers:
    """Collects the answers to the messages of one request, which arrive in any order."""

    def __init__(self, request: Request, count: int, broken: ErrorEnvelope | None) -> None:
        self._request = request
        self._parts = [b""] * count
        self._last = b"" if broken is None else broken.encode()
        self.left = count

    def put(self, nth: int, item: Submission) -> None:
        """Store an answer; the last one completes the response."""
        self._parts[nth] = item.error.encode() if item.error is not None else _accepted(item)
        self.left -= 1
        if not self.left:
            self._request.respond(self.response())

    def response(self) -> Response:
        """Return all answers, in the order of the messages."""
        return Response(200, b"".join(self._parts) + self._last, CBOR_SEQ)


def _split(body: bytes, max_items: int) -> tuple[Sequence[bytes], ErrorEnvelope | None]:
    """Split a sequence into its items; also return the error of the first malformed one."""
    items: list[bytes] = []
    at = 0
    while at < len(body):
        try:
            end = msg_end(body, at)
        except ProtocolError as error:
            return items, ErrorEnvelope.of(error)
        items.append(body[at:end])
        if len(items) > max_items:  # an item may be one byte, and its overhead is far larger
            raise ProtocolError(
                Detail.SIZE_PREFILTER,
                f"more than {counted(max_items, 'message')} in one request",
                max_allowed=max_items,
            )
        at = end
    return items, None


def _accepted(item: Submission) -> bytes:
    return _BEFORE + item.receipt + _BEHIND


def _answer_cbor(item: Submission) -> Response:
    if item.error is not None:
        return error_response(item.error, as_json=False)
    return Response(200, _accepted(item))


def _answer_bare(item: Submission) -> Response:
    if item.error is not None:
        return error_response(item.error, as_json=False)
    return Response(200, item.receipt)


def _answer_json(item: Submission) -> Response:
    if item.error is not None:
        return error_response(item.error, as_json=True)
    return Response(200, encode_json(SubmitResponse.decode(_accepted(item)).to_json()), JSON)
