"""The route table of the hub (001 section 10; C-70, C-73)."""

from collections.abc import Mapping

from veen.core.api.data_plane import ProofRequest, ReceiptRequest
from veen.core.api.tooling import (
    CapStatusRequest,
    CheckpointLatestRequest,
    CheckpointRangeRequest,
    ConsistencyRequest,
    EquivocationRequest,
    ProofAtRequest,
    StreamEpochsRequest,
)
from veen.hub.api import describe as descriptions
from veen.hub.api.bodies import describe
from veen.hub.api.legacy import LegacyHandlers
from veen.hub.api.operator import OperatorHandlers, RevocationHandlers
from veen.hub.api.read import ReadHandlers
from veen.hub.api.router import SMALL_BODY, HubErrors, HubRoute
from veen.hub.api.submit import SubmitHandlers
from veen.hub.api.tokens import TokenHandlers
from veen.hub.hub import Hub
from veen.net.http_message import TEXT, Request, Response
from veen.net.http_router import Handler, Router, Routes


class Endpoints:
    """The routes of a hub and their handlers."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._handlers = ReadHandlers(hub, self._answer_error)
        self.app = Router(self._routes(), HubErrors(hub.bug, hub.turned_away), max_body=SMALL_BODY)

    def _routes(self) -> Routes[HubRoute]:
        hub, reads, handlers = self._hub, self._hub.reads, self._handlers
        query, timed = handlers.query, handlers.timed
        submits, tokens = SubmitHandlers(hub), TokenHandlers(hub, handlers.later)
        operator, revocations = OperatorHandlers(hub, handlers.later), RevocationHandlers(hub, handlers.later)
        submit = HubRoute(handler=submits.submit, max_body=submits.max_body, admission=True)
        authorize = HubRoute(handler=tokens.authorize, max_body=tokens.max_body, admission=True)
        report = query(EquivocationRequest, reads.report_equivocation)
        routes: dict[str, Mapping[str, HubRoute]] = {
            "/v1/submit": {"POST": submit},
            "/v1/stream": {"POST": HubRoute(handler=handlers.stream)},
            "/v1/receipt": query(ReceiptRequest, reads.receipt, quick=True),
            "/v1/proof": query(ProofRequest, timed(reads.proof), quick=True),
            "/v1/checkpoint": {"POST": HubRoute(handler=handlers.checkpoint)},
            "/tooling/authorize": {"POST": authorize},
            "/tooling/cap_status": query(CapStatusRequest, tokens.status),
            "/tooling/proof_at": query(ProofAtRequest, timed(reads.proof_at), quick=True),
            "/tooling/consistency": query(ConsistencyRequest, timed(reads.consistency)),
            "/tooling/checkpoint_latest": query(CheckpointLatestRequest, reads.checkpoint_latest),
            "/tooling/checkpoint_range": query(CheckpointRangeRequest, reads.checkpoint_range),
            "/tooling/epochs": query(StreamEpochsRequest, reads.epochs),
            "/tooling/report_equivocation": report,
            "/tooling/status": _get(handlers.status),
            "/tooling/identity": _get(lambda request: describe(request, descriptions.identity(hub))),
            "/tooling/profile": _get(lambda request: describe(request, descriptions.profile(hub))),
            "/tooling/kex_policy": _get(lambda request: describe(request, descriptions.kex_policy(hub))),
            "/tooling/admission": _get(lambda request: describe(request, descriptions.admission(hub))),
            "/tooling/admission_log": _get(handlers.admission_log),
            "/tooling/pow_request": _get(handlers.pow_request),
            "/tooling/revocations": _get(revocations.revocations),
            "/tooling/backup": {"POST": HubRoute(handler=operator.backup)},
            "/tooling/anchor": {"POST": HubRoute(handler=operator.anchor)},
            "/healthz": _get(handlers.health),
            "/readyz": _get(handlers.health),
            "/metrics": _get(lambda _: Response(200, hub.metrics.text(), TEXT)),
            "/admin/trust": {
                "GET": HubRoute(handler=operator.trusted, local=True),
                "POST": HubRoute(handler=operator.trust, local=True),
            },
            "/admin/revoke": {"POST": HubRoute(handler=revocations.revoke, local=True)},
            "/admin/rotate_key": {"POST": HubRoute(handler=operator.rotate, local=True)},
        }
        if hub.attachments is not None:
            routes["/tooling/attachment/"] = handlers.attachment(hub.attachments)
        if hub.settings.legacy_paths:
            legacy = LegacyHandlers(reads, handlers)
            bare = HubRoute(handler=submits.submit_bare, max_body=submits.max_body, admission=True)
            routes |= {
                "/submit": {"POST": bare},
                "/stream": _get(legacy.stream),
                "/authorize": {
                    "POST": HubRoute(handler=tokens.authorize_bare, max_body=tokens.max_body, admission=True)
                },
                "/checkpoint_latest": _get(legacy.checkpoint_latest),
                "/checkpoint_range": _get(legacy.checkpoint_range),
                "/report_equivocation": report,
                "/anchor": {"POST": HubRoute(handler=operator.anchor)},
            }
        return routes

    def _answer_error(self, request: Request, error: Exception) -> Response:
        return self.app.answer_error(request, error)


def _get(handler: Handler) -> Mapping[str, HubRoute]:
    return {"GET": HubRoute(handler=handler)}
