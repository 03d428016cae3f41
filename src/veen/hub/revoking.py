"""Revocations over HTTP: which there are, and the operator's order to add one (KEX1+)."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from veen.core.control import RevocationRecord, Target
from veen.core.labels import control_label
from veen.hub.control import describe_revocation, revocation_of
from veen.hub.http.bodies import describe, parse_json, wants_json
from veen.hub.http.message import Request, Response, error_response
from veen.hub.hub import Hub
from veen.hub.job import Job
from veen.hub.refusing import bad_request, hex32, number, unavailable

_MAX_LISTED: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """Which revocations to show."""

    kind: str | None
    since: int
    active: bool
    origin: bytes | None
    limit: int

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "_Asked":
        kind, origin = query.get("kind"), query.get("origin")
        if kind is not None and kind not in set(Target):
            raise bad_request("kind", f"kind is one of {', '.join(Target)}")
        return cls(
            kind=kind,
            since=number(query.get("since", "0"), "since"),
            active=query.get("active", "0") == "1",
            origin=None if origin is None else hex32(origin, "origin"),
            limit=min(number(query.get("limit", "100"), "limit"), _MAX_LISTED),
        )

    def has(self, record: RevocationRecord, now: int) -> bool:
        """Tell whether a revocation is one of them."""
        return (
            record.ts >= self.since
            and (self.kind is None or record.target_kind == self.kind)
            and (self.origin is None or record.origin == self.origin)
            and (not self.active or record.holds_at(now))
        )


class Revoking:
    """Shows revocations, and takes the operator's."""

    def __init__(self, hub: Hub, later: Callable[[Request, Job], None]) -> None:
        self._hub = hub
        self._later = later
        self._label = control_label(hub.home.identity.hub_id)
        #: All of them by time, with what they were sorted from.
        self._sorted: tuple[object, tuple[RevocationRecord, ...]] = None, ()

    def revocations(self, request: Request) -> Response | None:
        """List revocations; who has just sent one may wait for it: ``?origin=HEX&wait=SECONDS``."""
        asked = _Asked.of(request.query)
        wait = min(number(request.query.get("wait", "0"), "wait"), self._hub.settings.max_wait_sec)
        comes = asked.origin is not None and asked.origin not in self._hub.control_plane.applied

        def answer() -> None:
            if self._hub.readers.has_room:
                self._hub.read(lambda: self._list(request, asked), lambda job: self._later(request, job))
            else:
                request.respond(self._overloaded(request, "too many reads"))

        if not (wait and comes) or self._hub.stopping:
            answer()
        elif self._hub.waiting.add(self._label, wait, answer):
            request.hurry = lambda: self._hub.waiting.hurry(self._label, answer)
        else:
            return self._overloaded(request, "too many wait already")
        return None

    def _overloaded(self, request: Request, why: str) -> Response:
        self._hub.metrics.overloaded += 1
        return error_response(unavailable(f"{why}; try again"), as_json=wants_json(request, default=True))

    def _list(self, request: Request, asked: _Asked) -> Response:
        """Answer with what is asked for. For a reader's thread."""
        now = self._hub.sequencer.hub_ts()
        found = list(islice(self._find(asked, now), asked.limit + 1))
        return describe(
            request,
            {
                "revocations": [describe_revocation(record, now) for record in found[: asked.limit]],
                "truncated": len(found) > asked.limit,
            },
        )

    def _find(self, asked: _Asked, now: int) -> Iterator[RevocationRecord]:
        revoked = self._hub.sequencer.authority.revoked
        seen, by_time = self._sorted
        if seen is not revoked:  # sorting takes longer than all the rest
            every = (record for records in revoked.values() for record in records)
            by_time = tuple(sorted(every, key=lambda record: record.ts))
            self._sorted = revoked, by_time
        return (record for record in by_time if asked.has(record, now))

    def revoke(self, request: Request) -> None:
        """Revoke a client or a token: {"kind": text, "target": HEX, "ttl": number?, "reason": text?}."""
        record = revocation_of(parse_json(request.body), self._hub.sequencer.hub_ts())

        def run() -> Response:
            self._hub.control(record)
            now = self._hub.sequencer.hub_ts()
            return describe(request, {"ok": True, **describe_revocation(record, now)})

        self._hub.turn(run, lambda job: self._later(request, job))
