"""Handlers that read: queries, streams, checkpoints, descriptions, attachments."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import Final, TypeVar

from veen.core.api.data_plane import CheckpointRequest, CheckpointResponse, StreamRequest, StreamResponse
from veen.core.api.tooling import PowChallenge
from veen.core.encoding.wire_object import W, Wire
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.error_envelope import unavailable
from veen.core.objects.proof_of_work import issue_challenge
from veen.core.types import Label
from veen.hub.api import describe as descriptions
from veen.hub.api.bodies import decode, describe, encode, wants_json
from veen.hub.api.parameters import hex32, number
from veen.hub.api.router import HubRoute
from veen.hub.hub import Hub
from veen.hub.read.thread_pool import Job
from veen.net.http_message import (
    CBOR,
    IMMUTABLE,
    JSON,
    OCTETS,
    Request,
    Response,
    encode_json,
    error_response,
)
from veen.storage import Attachments, StoreFullError, coid_of
from veen.storage.read.requests import SERVER_VERSION

_MAX_LISTED: Final = 1000

T = TypeVar("T")


class ReadHandlers:
    """Handlers of all reads but revocations; they answer at once or from a reader's thread."""

    def __init__(self, hub: Hub, answer_error: Callable[[Request, Exception], Response]) -> None:
        self._hub = hub
        self._answer_error = answer_error

    # --- ways to answer -------------------------------------------------------------------------------------

    def query(
        self, cls: type[W], operation: Callable[[W], Wire], *, quick: bool = False
    ) -> Mapping[str, HubRoute]:
        """Return the route of a read-only operation.

        A ``quick`` one, a few small reads, runs on the loop if its data is in memory, because handing it to
        a thread takes longer (docs/adr/0008); otherwise in a thread, so that others do not wait for the disk.
        """

        def handle(request: Request) -> Response | None:
            message = decode(request, cls, self._hub.limits)
            if quick and not self._holds_too_much(request):
                with suppress(BlockingIOError), self._hub.fs.impatient():
                    return encode(request, operation(message))
            return self.read(request, lambda: operation(message), partial(encode, request))

        return {"POST": HubRoute(handler=handle)}

    def _holds_too_much(self, request: Request) -> bool:
        return self._hub.memory.is_full and not request.local

    def read(
        self, request: Request, run: Callable[[], T], answer: Callable[[T], Response]
    ) -> Response | None:
        """Read in a reader's thread and respond with the result; the queue is bounded."""
        if not self._hub.readers.has_room:
            return self._overloaded(request, "too many reads are queued")

        def work() -> Response:
            if self._holds_too_much(request):
                raise StoreFullError("response buffers are full because clients read too slowly; retry later")
            return answer(run())

        self._hub.read(work, lambda job: self.later(request, job))
        return None

    def _overloaded(self, request: Request, why: str) -> Response:
        self._hub.metrics.overloaded += 1
        return error_response(unavailable(f"{why}; retry later"), as_json=wants_json(request))

    def later(self, request: Request, job: Job) -> None:
        """Respond with the result or the error of a job."""
        if job.error is not None:
            request.respond(self._answer_error(request, job.error))
        else:
            request.respond(job.result)

    def timed(self, operation: Callable[[W], Wire]) -> Callable[[W], Wire]:
        """Return an operation that measures its latency as that of a proof."""

        def run(message: W) -> Wire:
            started = perf_counter()
            response = operation(message)
            self._hub.metrics.proof_ms.observe(1000 * (perf_counter() - started))
            return response

        return run

    # --- streams and checkpoints ----------------------------------------------------------------------------

    def stream(self, request: Request) -> Response | None:
        """Return a page of a label; with ``wait``, as a long poll."""
        stream_request = decode(request, StreamRequest, self._hub.limits)
        wait = _wait(request, self._hub.settings.max_wait_sec)
        if wait and self._hub.reads.waits(stream_request) and not self._hub.stopping:
            wake = partial(self._page, request, stream_request)
            if self._hub.long_polls.add(stream_request.label, wait, wake):
                request.wait(lambda: self._hub.long_polls.hurry(stream_request.label, wake))
                return None
            return self._overloaded(request, "too many requests are waiting")
        self._page(request, stream_request)
        return None

    def _page(self, request: Request, stream_request: StreamRequest) -> None:
        def answer(page: bytes) -> Response:
            if wants_json(request):
                return Response(200, encode_json(StreamResponse.decode(page).to_json()), JSON)
            return Response(200, page, CBOR)

        overloaded = self.read(request, lambda: self._hub.reads.page(stream_request), answer)
        if overloaded is not None:
            request.respond(overloaded)

    def checkpoint(self, request: Request) -> Response | None:
        """Return the checkpoint of a position; sign one if there is none."""
        position = decode(request, CheckpointRequest, self._hub.limits)
        hub = self._hub

        def make() -> Response:
            return answer(hub.writer.checkpoint(position.label, position.upto_seq))

        def answer(checkpoint: Checkpoint) -> Response:
            return encode(request, CheckpointResponse(checkpoint=checkpoint, server_version=SERVER_VERSION))

        def looked(job: Job) -> None:
            if job.error is not None or job.result is not None:
                self.later(request, job)
            elif not hub.has_turn:
                request.respond(self._overloaded(request, "too many checkpoints are being signed"))
            else:
                hub.turn(make, lambda job: self.later(request, job))

        def look() -> Response | None:
            stored = hub.reader.checkpoint(position.label, position.upto_seq)
            return None if stored is None else answer(stored)

        if not hub.readers.has_room:
            return self._overloaded(request, "too many reads are queued")
        hub.read(look, looked)
        return None

    # --- descriptions ---------------------------------------------------------------------------------------

    def status(self, request: Request) -> Response:
        """Describe the hub, or one label."""
        text = request.query.get("label")
        return describe(
            request, descriptions.status(self._hub, None if text is None else Label(hex32(text, "label")))
        )

    def health(self, request: Request) -> Response:
        """Report whether the hub accepts messages."""
        health = descriptions.health(self._hub)
        return describe(request, health, 200 if health["ok"] else 503)

    def admission_log(self, request: Request) -> Response:
        """List the most recently rejected messages."""
        query = request.query
        limit = number(query.get("limit", "100"), "limit")
        codes = {code for code in query.get("codes", "").split(",") if code}
        return describe(request, descriptions.admission_log(self._hub, min(limit, _MAX_LISTED), codes))

    def pow_request(self, request: Request) -> Response:
        """Issue a challenge for a proof of work."""
        settings = self._hub.settings
        expires = self._hub.clock() + settings.pow_ttl_sec
        challenge = issue_challenge(self._hub.home.secrets.pow_key, expires)
        challenge_response = PowChallenge(
            challenge=challenge, difficulty=settings.pow_difficulty, expires_at=expires
        )
        if wants_json(request, default=True):
            return Response(200, encode_json(challenge_response.to_json()), JSON)
        return Response(200, challenge_response.encode(), CBOR)

    # --- attachments ----------------------------------------------------------------------------------------

    def attachment(self, store: Attachments) -> Mapping[str, HubRoute]:
        """Return the routes of attachments, which are addressed by their hash."""

        def put(request: Request) -> Response | None:
            coid, body = coid_of(request.last), request.body
            if not self._hub.putters.has_room:
                return self._overloaded(request, "too many attachments are being stored")
            if not self._hub.has_space(len(body)):
                raise StoreFullError("no space is left for attachments")

            def work() -> Response:
                return Response(201 if store.put(coid, body) else 200, b"", OCTETS)

            self._hub.putters.put(Job(work, lambda job: self.later(request, job)))
            return None

        def get(request: Request) -> Response | None:
            coid = coid_of(request.last)
            return self.read(
                request,
                lambda: store.get(coid),
                lambda data: Response(200, data, OCTETS, {"cache-control": IMMUTABLE}),
            )

        return {
            "PUT": HubRoute(handler=put, max_body=lambda _: store.max_item_bytes),
            "GET": HubRoute(handler=get),
        }


def _wait(request: Request, max_sec: int) -> int:
    """Return how long a stream request may wait: ``?wait=SECONDS``, not part of the specification."""
    return min(number(request.query.get("wait", "0"), "wait"), max_sec)
