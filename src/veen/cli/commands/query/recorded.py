"""Recorded queries in a lake: requests and digests, by result id."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from veen.cli.errors import CommandError, FailedError, MalformedError
from veen.core.encoding import canonical_json
from veen.core.encoding.canonical_json import Json
from veen.core.errors import ProtocolError
from veen.query.descriptor import Descriptor, from_json, new_query_id, normalize
from veen.query.digest import ResultDigest
from veen.query.errors import QueryError

if TYPE_CHECKING:
    from veen.pipeline.query.engine import Engine as Queries


# Where requests and digests are recorded, and by which type of event (QRY-026, QRY-037).
_REQUESTED: Final = ("record/query/requests", "query.submitted")
_ANSWERED: Final = ("record/query/results", "query.result")


def find(queries: "Queries", result_id: str, directory: Path) -> tuple[Descriptor, ResultDigest]:
    """Return the recorded descriptor and digest of a result."""
    request = next(_recorded(queries, _REQUESTED, result_id, directory), None)
    if request is None:
        raise FailedError(f"the lake does not contain a request for {result_id}")
    answers = _recorded(queries, _ANSWERED, result_id, directory)
    answer = next((item for item in answers if item.principal_id == request.principal_id), None)
    if answer is None:
        raise FailedError(
            f"the lake does not contain a digest of {result_id} by the principal that recorded the request"
        )
    digest = digest_of(answer.text.encode(), result_id)
    if digest.result_id != result_id:
        raise FailedError(f"the digest that is recorded for {result_id} is of {digest.result_id}")
    return descriptor_of(request.text.encode(), result_id), digest


class _Noted(NamedTuple):
    """An event about a query: its principal, and its payload."""

    principal_id: str
    text: str


def _recorded(
    queries: "Queries", where: tuple[str, str], result_id: str, directory: Path
) -> Iterator[_Noted]:
    """Yield the recorded events of a result, in order.

    The first request is that of the service that answered: before it, no other writer knew the result id.
    Other writers of the stream may have added more later.
    """
    for row in _rows(queries, where, ["metadata.result_id", "principal_id", "payload"], directory):
        if row["metadata.result_id"] == result_id and isinstance(row["payload"], str):
            yield _Noted(row["principal_id"], row["payload"])


def require_new(queries: "Queries", query_id: str, directory: Path) -> None:
    """Reject a query id that the lake contains (QRY-047)."""
    if queries.knows(_REQUESTED[0]):
        for row in _rows(queries, _REQUESTED, ["payload"], directory):
            with suppress(CommandError):
                if descriptor_of(str(row["payload"]).encode(), "").query_id == query_id:
                    raise QueryError("duplicate_query_id", f"query {query_id} already exists")


def _rows(
    queries: "Queries", where: tuple[str, str], projection: list[Json], directory: Path
) -> Iterator[dict[str, Any]]:
    """Yield events of one type, in order."""
    stream, event_type = where
    descriptor = normalize(
        {"scope": [stream], "filter": {"event_type": [event_type]}, "projection": projection},
        lambda: new_query_id(os.urandom),
    )
    answer = queries.run(
        descriptor,
        result_id=descriptor.query_id,
        out=directory / descriptor.query_id,
        executed_at=int(time.time()),
    )
    yield from (json.loads(row) for row in answer.rows.iterate())


def request_of(queries: "Queries", result_id: str, directory: Path) -> Descriptor | None:
    """Return the recorded descriptor of a result; None if the lake does not contain it."""
    if not queries.knows(_REQUESTED[0]):
        return None
    request = next(_recorded(queries, _REQUESTED, result_id, directory), None)
    return None if request is None else descriptor_of(request.text.encode(), result_id)


def descriptor_of(data: bytes, name: str) -> Descriptor:
    """Parse a descriptor in normal form, alone or as the service and ``veen query run`` print it."""
    document = parse_json(data, name)
    if isinstance(document, dict) and "descriptor" in document:
        document = document["descriptor"]
    try:
        return from_json(document)
    except QueryError as error:
        raise MalformedError(f"{name}: {error.message}") from None


def digest_of(data: bytes, name: str) -> ResultDigest:
    """Parse a digest, alone or as the service and ``veen query run`` print it."""
    document = parse_json(data, name)
    if isinstance(document, dict) and "result_digest" in document:
        document = document["result_digest"]
    try:
        return ResultDigest.from_json(document)
    except ProtocolError as error:
        raise MalformedError(f"{name}: {error.message}") from None


def parse_json(data: bytes, name: str) -> Json:
    """Parse JSON of a file or an event, which has a name."""
    try:
        return canonical_json.parse(data)
    except ProtocolError as error:
        raise MalformedError(f"{name} is not JSON: {error.message}") from None
