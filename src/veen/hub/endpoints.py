"""What the hub serves, path by path (001 section 10; C-70, C-73)."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import Final, TypeVar

from veen.core.api import (
    CheckpointRequest,
    CheckpointResponse,
    ProofRequest,
    ReceiptRequest,
    StreamRequest,
    StreamResponse,
)
from veen.core.checkpoint import Checkpoint
from veen.core.pow import issue_challenge
from veen.core.tooling import (
    CapStatusRequest,
    CheckpointLatestRequest,
    CheckpointRangeRequest,
    ConsistencyRequest,
    EquivocationRequest,
    PowChallenge,
    ProofAtRequest,
    StreamEpochsRequest,
)
from veen.core.types import Label, StreamId
from veen.core.wire import W, Wire, encode_sequence
from veen.hub import describing
from veen.hub.authorizing import Authorizing
from veen.hub.http.app import App, Handler, Route, Routes
from veen.hub.http.bodies import decode, describe, encode, wants_json
from veen.hub.http.message import (
    CBOR,
    CBOR_SEQ,
    IMMUTABLE,
    JSON,
    OCTETS,
    TEXT,
    Request,
    Response,
    encode_json,
    error_response,
)
from veen.hub.hub import Hub
from veen.hub.job import Job
from veen.hub.operating import Operating
from veen.hub.refusing import hex32, number, unavailable
from veen.hub.revoking import Revoking
from veen.hub.submitting import Submitting
from veen.storage import Attachments, FullError, coid_of
from veen.storage.answers import SERVER_VERSION

_MAX_LISTED: Final = 1000

T = TypeVar("T")


class Endpoints:
    """The routes of one hub."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.app = App(self._routes(), hub.bug, hub.turned_away)

    def _routes(self) -> Routes:
        hub, reads = self._hub, self._hub.reads
        submitting, authorizing = Submitting(hub), Authorizing(hub, self._later)
        operating, revoking = Operating(hub, self._later), Revoking(hub, self._later)
        authorize = Route(handler=authorizing.authorize, max_body=authorizing.max_body, admission=True)
        report = self._query(EquivocationRequest, reads.report_equivocation)
        routes: dict[str, Mapping[str, Route]] = {
            "/v1/submit": {
                "POST": Route(handler=submitting.submit, max_body=submitting.max_body, admission=True)
            },
            "/v1/stream": {"POST": Route(handler=self._stream)},
            "/v1/receipt": self._query(ReceiptRequest, reads.receipt, quick=True),
            "/v1/proof": self._query(ProofRequest, self._timed(reads.proof), quick=True),
            "/v1/checkpoint": {"POST": Route(handler=self._checkpoint)},
            "/tooling/authorize": {"POST": authorize},
            "/tooling/cap_status": self._query(CapStatusRequest, authorizing.status),
            "/tooling/proof_at": self._query(ProofAtRequest, self._timed(reads.proof_at), quick=True),
            "/tooling/consistency": self._query(ConsistencyRequest, self._timed(reads.consistency)),
            "/tooling/checkpoint_latest": self._query(CheckpointLatestRequest, reads.checkpoint_latest),
            "/tooling/checkpoint_range": self._query(CheckpointRangeRequest, reads.checkpoint_range),
            "/tooling/epochs": self._query(StreamEpochsRequest, reads.epochs),
            "/tooling/report_equivocation": report,
            "/tooling/status": self._get(self._status),
            "/tooling/identity": self._get(lambda request: describe(request, describing.identity(hub))),
            "/tooling/profile": self._get(lambda request: describe(request, describing.profile(hub))),
            "/tooling/kex_policy": self._get(lambda request: describe(request, describing.kex_policy(hub))),
            "/tooling/admission": self._get(lambda request: describe(request, describing.admission(hub))),
            "/tooling/admission_log": self._get(self._admission_log),
            "/tooling/pow_request": self._get(self._pow_request),
            "/tooling/revocations": self._get(revoking.revocations),
            "/tooling/backup": {"POST": Route(handler=operating.backup)},
            "/tooling/anchor": {"POST": Route(handler=operating.anchor)},
            "/healthz": self._get(self._health),
            "/readyz": self._get(self._health),
            "/metrics": self._get(lambda _: Response(200, hub.metrics.text(), TEXT)),
            "/admin/trust": {
                "GET": Route(handler=operating.trusted, local=True),
                "POST": Route(handler=operating.trust, local=True),
            },
            "/admin/revoke": {"POST": Route(handler=revoking.revoke, local=True)},
            "/admin/rotate_key": {"POST": Route(handler=operating.rotate, local=True)},
        }
        if hub.attachments is not None:
            routes["/tooling/attachment/"] = self._attachment(hub.attachments)
        if hub.settings.legacy_paths:
            bare = Route(handler=submitting.submit_bare, max_body=submitting.max_body, admission=True)
            routes |= {
                "/submit": {"POST": bare},
                "/stream": self._get(self._legacy_stream),
                "/authorize": {
                    "POST": Route(
                        handler=authorizing.authorize_bare, max_body=authorizing.max_body, admission=True
                    )
                },
                "/checkpoint_latest": self._get(self._legacy_latest),
                "/checkpoint_range": self._get(self._legacy_range),
                "/report_equivocation": report,
                "/anchor": {"POST": Route(handler=operating.anchor)},
            }
        return routes

    # --- ways to answer -------------------------------------------------------------------------------------

    def _get(self, handler: Handler) -> Mapping[str, Route]:
        return {"GET": Route(handler=handler)}

    def _query(
        self, cls: type[W], operation: Callable[[W], Wire], *, quick: bool = False
    ) -> Mapping[str, Route]:
        """Return the route of an operation that only reads.

        One that is ``quick``, a few small reads, is done at once if they are in memory: a thread would take
        longer to get it and give it back (docs/adr/0008). If they are not, nobody else waits for the disk.
        """

        def handle(request: Request) -> Response | None:
            asked = decode(request, cls, self._hub.limits)
            if quick and not self._holds_too_much(request):
                with suppress(BlockingIOError), self._hub.fs.impatient():
                    return encode(request, operation(asked))
            return self._read(request, lambda: operation(asked), partial(encode, request))

        return {"POST": Route(handler=handle)}

    def _holds_too_much(self, request: Request) -> bool:
        return self._hub.memory.is_full and not request.local

    def _read(
        self, request: Request, run: Callable[[], T], answer: Callable[[T], Response]
    ) -> Response | None:
        """Have something read, and answer with it; there is a bound on how much may wait."""
        if not self._hub.readers.has_room:
            return self._overloaded(request, "too many reads")

        def work() -> Response:
            if self._holds_too_much(request):
                raise FullError("clients do not take their answers; try again")
            return answer(run())

        self._hub.read(work, lambda job: self._later(request, job))
        return None

    def _overloaded(self, request: Request, why: str) -> Response:
        self._hub.metrics.overloaded += 1
        return error_response(unavailable(f"{why}; try again"), as_json=wants_json(request))

    def _later(self, request: Request, job: Job) -> None:
        """Answer with what a thread has made."""
        if job.error is not None:
            request.respond(self.app.answer_error(request, job.error))
        else:
            request.respond(job.result)

    def _timed(self, operation: Callable[[W], Wire]) -> Callable[[W], Wire]:
        def run(asked: W) -> Wire:
            started = perf_counter()
            made = operation(asked)
            self._hub.metrics.proof_ms.observe(1000 * (perf_counter() - started))
            return made

        return run

    # --- streams and checkpoints ----------------------------------------------------------------------------

    def _stream(self, request: Request) -> Response | None:
        asked = decode(request, StreamRequest, self._hub.limits)
        wait = _wait(request, self._hub.settings.max_wait_sec)
        if wait and self._hub.reads.waits(asked) and not self._hub.stopping:
            wake = partial(self._page, request, asked)
            if self._hub.waiting.add(asked.label, wait, wake):
                request.hurry = lambda: self._hub.waiting.hurry(asked.label, wake)
                return None
            return self._overloaded(request, "too many wait already")
        self._page(request, asked)
        return None

    def _page(self, request: Request, asked: StreamRequest) -> None:
        def answer(page: bytes) -> Response:
            if wants_json(request):
                return Response(200, encode_json(StreamResponse.decode(page).to_json()), JSON)
            return Response(200, page, CBOR)

        refused = self._read(request, lambda: self._hub.reads.page(asked), answer)
        if refused is not None:
            request.respond(refused)

    def _checkpoint(self, request: Request) -> Response | None:
        asked = decode(request, CheckpointRequest, self._hub.limits)
        hub = self._hub

        def make() -> Response:
            return answer(hub.writer.checkpoint(asked.label, asked.upto_seq))

        def answer(found: Checkpoint) -> Response:
            return encode(request, CheckpointResponse(checkpoint=found, server_version=SERVER_VERSION))

        def looked(job: Job) -> None:
            if job.error is not None or job.result is not None:
                self._later(request, job)
            elif not hub.has_turn:
                request.respond(self._overloaded(request, "too many checkpoints are being made"))
            else:
                hub.turn(make, lambda job: self._later(request, job))

        def look() -> Response | None:
            found = hub.reader.checkpoint(asked.label, asked.upto_seq)
            return None if found is None else answer(found)

        if not hub.readers.has_room:
            return self._overloaded(request, "too many reads")
        hub.read(look, looked)
        return None

    # --- descriptions ---------------------------------------------------------------------------------------

    def _status(self, request: Request) -> Response:
        text = request.query.get("label")
        return describe(
            request, describing.status(self._hub, None if text is None else Label(hex32(text, "label")))
        )

    def _health(self, request: Request) -> Response:
        found = describing.health(self._hub)
        return describe(request, found, 200 if found["ok"] else 503)

    def _admission_log(self, request: Request) -> Response:
        query = request.query
        limit = number(query.get("limit", "100"), "limit")
        codes = {code for code in query.get("codes", "").split(",") if code}
        return describe(request, describing.admission_log(self._hub, min(limit, _MAX_LISTED), codes))

    def _pow_request(self, request: Request) -> Response:
        settings = self._hub.settings
        expires = self._hub.clock() + settings.pow_ttl_sec
        challenge = issue_challenge(self._hub.home.secrets.pow_key, expires)
        made = PowChallenge(challenge=challenge, difficulty=settings.pow_difficulty, expires_at=expires)
        if wants_json(request, default=True):
            return Response(200, encode_json(made.to_json()), JSON)
        return Response(200, made.encode(), CBOR)

    # --- attachments ----------------------------------------------------------------------------------------

    def _attachment(self, store: Attachments) -> Mapping[str, Route]:
        def put(request: Request) -> Response | None:
            coid, body = coid_of(request.last), request.body
            if not self._hub.putters.has_room:
                return self._overloaded(request, "too many attachments are being stored")
            if not self._hub.has_space(len(body)):
                raise FullError("there is no space left for attachments")

            def work() -> Response:
                return Response(201 if store.put(coid, body) else 200, b"", OCTETS)

            self._hub.putters.put(Job(work, lambda job: self._later(request, job)))
            return None

        def get(request: Request) -> Response | None:
            coid = coid_of(request.last)
            return self._read(
                request,
                lambda: store.get(coid),
                lambda data: Response(200, data, OCTETS, {"cache-control": IMMUTABLE}),
            )

        return {"PUT": Route(handler=put, max_body=lambda _: store.max_item_bytes), "GET": Route(handler=get)}

    # --- the paths of older releases ------------------------------------------------------------------------

    def _legacy_stream(self, request: Request) -> Response | None:
        query = request.query
        label = Label(hex32(query.get("label", ""), "label"))
        start = number(query.get("from", "1"), "from")
        with_proof = query.get("with_proof", "0") == "1"
        return self._read(
            request,
            lambda: self._hub.reads.sequence(label, start, with_proof=with_proof),
            lambda body: Response(200, body, CBOR_SEQ),
        )

    def _legacy_latest(self, request: Request) -> Response | None:
        label = Label(hex32(request.query.get("label", ""), "label"))
        return self._read(
            request,
            lambda: self._hub.reads.checkpoint_latest(CheckpointLatestRequest(label=label)).checkpoint,
            lambda found: Response(200, found.encode(), CBOR),
        )

    def _legacy_range(self, request: Request) -> Response | None:
        query = request.query
        asked = CheckpointRangeRequest(
            stream_id=StreamId(hex32(query.get("stream_id", ""), "stream_id")),
            epoch_min=number(query.get("epoch_min", "0"), "epoch_min"),
            epoch_max=number(query.get("epoch_max", "0"), "epoch_max"),
        )
        return self._read(
            request,
            lambda: self._hub.reads.checkpoint_range(asked).checkpoints,
            lambda found: Response(200, encode_sequence(found), CBOR_SEQ),
        )


def _wait(request: Request, most: int) -> int:
    """Return how long a stream request may wait: ``?wait=SECONDS``, an addition of ours."""
    return min(number(request.query.get("wait", "0"), "wait"), most)
