"""What steps about queries share: a hub with recorded events, and a query service over its log."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from veen.client.client import Client
from veen.client.http import Message
from veen.client.pins import read_facts
from veen.client.sending import Sent
from veen.core import canonical_json
from veen.core.hpke import public_key
from veen.core.types import ReaderSecretKey
from veen.overlays.recorder_schemas import EVENT
from veen.query.digest import RowsHasher
from veen.recorder.emitting import RECORDING, event_draft
from veen.selftest.context import STATUS, Context
from veen.selftest.hubs import CONFIGS, Server, TempHub, veen
from veen.selftest.steps import Needs, StepError, check, equal, poll

STREAM: Final = "record/selftest/logins"
_REQUESTS, _RESULTS = "record/query/requests", "record/query/results"
#: Where the service says who has asked what.
AUDIT: Final = "record/query/audit/service"
_EVENTS: Final = 90
_LOGIN, _LOGOUT = "login", "logout"
_FIELDS: Final = ["subject_id", "event_time", "hub_commit_time", "payload.n", "receipt_id"]
#: Spark takes its time.
SPARK_SEC: Final = 180.0
_FIRST_TIME: Final = 1_700_000_000


class TempService(Server):
    """``veen query serve`` on a port that the system chooses."""

    what = "the query service"
    patience_sec = SPARK_SEC

    def close(self) -> None:
        """End it as an operator does: Spark has processes of its own, which are to end with it."""
        with contextlib.suppress(StepError):
            if self.is_alive:
                self.stop()
        self.kill()


def said(number: int) -> dict[str, Any]:
    """Return what an event says, but for who has recorded it."""
    return {
        "subject_id": f"user-{number % 7}",
        "event_type": _LOGIN if number % 3 else _LOGOUT,
        "event_time": _FIRST_TIME + number,
        "origin": "selftest",
        "payload": {"n": number},
    }


@dataclass(frozen=True, slots=True)
class Desk:
    """A service, and what the log has that it answers from."""

    hub: TempHub
    hub_id: bytes
    service: TempService
    #: The client that the service records with, and that events are sealed to.
    home: Path
    lake: Path
    token: str
    #: The events, as the hub has taken them.
    sent: Sequence[Sent]

    def logins(self) -> list[tuple[int, Sent]]:
        """Return the events that queries here ask for, with their numbers."""
        return [pair for pair in enumerate(self.sent) if said(pair[0])["event_type"] == _LOGIN]

    def ask(self, ctx: Context, method: str, path: str, body: Any = None) -> Any:  # noqa: ANN401 - JSON
        """Ask the service; what it refuses is a failure."""
        data = None if body is None else canonical_json.encode(body)
        headers = {"authorization": f"Bearer {self.token}"}
        kind = "" if data is None else "application/json"
        message = Message(method, f"/api/query/{path}", data, kind, headers)
        reply = ctx.http(self.service.url).exchange(message)
        check(reply.status in (200, 202), f"{method} {path}: {reply.status} {reply.body[:200]!r}")
        return canonical_json.parse(reply.body)

    def submit(self, ctx: Context, **more: Any) -> str:  # noqa: ANN401 - JSON
        """Ask for all logins; returns the id of the result."""
        asked = {"scope": [STREAM], "filter": {"event_type": [_LOGIN]}, "projection": _FIELDS, **more}
        return str(self.ask(ctx, "POST", "submit", asked)["result_id"])

    def ended(self, ctx: Context, result_id: str) -> dict[str, Any]:
        """Wait for the end of a query; returns its status."""
        found: dict[str, Any] = {}

        def is_over() -> bool:
            found.update(self.ask(ctx, "GET", f"status/{result_id}"))
            return found["status"] in ("completed", "failed")

        poll(is_over, f"the end of query {result_id}", SPARK_SEC)
        return found

    def complete(self, ctx: Context, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """Ask, and return the whole answer."""
        result_id = self.submit(ctx, **more)
        end = self.ended(ctx, result_id)
        equal(end["status"], "completed", f"the end of a query ({end['message']})")
        return self.page(ctx, result_id, 0, 10_000)

    def page(self, ctx: Context, result_id: str, offset: int, limit: int) -> dict[str, Any]:
        """Return some rows of an answer, and its digest."""
        path = f"result/{result_id}?offset={offset}&limit={limit}"
        found: dict[str, Any] = self.ask(ctx, "GET", path)
        return found

    def reader(self, ctx: Context) -> Client:
        """Open the log with the keys of the service."""
        return ctx.client(self.home, self.hub.url)


def rows_hash(rows: Sequence[Any]) -> str:
    """Hash rows, as anybody can who has got them."""
    hasher = RowsHasher()
    hasher.extend(map(canonical_json.encode, rows))
    return hasher.rows_hash


def recorded(client: Client, stream: str, result_id: str) -> Iterator[dict[str, Any]]:
    """Yield the events about a result in a stream of the service."""
    for message in client.stream(stream):
        body = EVENT.decode(message.raw_body())
        if (body.get("metadata") or {}).get("result_id") == result_id:
            yield body


def requests(client: Client, result_id: str) -> list[str]:
    """Return the descriptors that the log has of a result."""
    return [body["payload"] for body in recorded(client, _REQUESTS, result_id)]


def digests(client: Client, result_id: str) -> list[str]:
    """Return the digests that the log has of a result."""
    return [body["payload"] for body in recorded(client, _RESULTS, result_id)]


def make_desk(ctx: Context) -> Desk:
    """Record events, and start a service that takes them in."""
    hub = ctx.hubs.fresh(CONFIGS[Needs.OPEN])
    home, place = ctx.home(), ctx.scratch / "query"
    auditor = ctx.client(home, hub.url)
    reader = public_key(ReaderSecretKey(auditor.session.secrets.id_dh))
    hub_id = read_facts(ctx.http(hub.url).answer(STATUS)).identity.hub_id
    drafts = [event_draft(**said(number)) for number in range(_EVENTS)]
    options = replace(RECORDING, to=reader)
    sent = list(ctx.client(hub=hub.url).send_many(STREAM, drafts, options=options))
    place.mkdir()
    policy = ("--policy", place / "policy.toml")
    granted = veen(
        ctx.scratch, "query", "grant", "selftest", *policy, "--scope", "record/selftest/*", "--json"
    )
    equal(granted.returncode, 0, f"exit code of query grant ({granted.stderr})")
    words = (
        *("query", "serve", "--json", "--listen", "127.0.0.1:0", *policy, "--stream", STREAM),
        *("--hub", hub.url, "--log", hub.place, "--client", home, "--keyring", home),
        *("--lake", place / "lake", "--state", place / "state"),
    )
    service = TempService(ctx.scratch, "query-service", [*ctx.hubs.command, *map(str, words)])
    ctx.hubs.start(service)
    return Desk(hub, hub_id, service, home, place / "lake", json.loads(granted.stdout)["token"], sent)
