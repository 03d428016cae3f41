"""What is recorded of a query: its request, the digest of its answer, and that somebody has asked (QAL).

Bodies follow from what is stored, byte for byte: so an event that may have been sent is found again by them.
"""

from dataclasses import dataclass
from typing import Any, Final

from veen.core import canonical_json
from veen.core.limits import DEFAULT_LIMITS
from veen.core.types import VerifyKey
from veen.overlays.operation_schemas import QUERY
from veen.overlays.recorder_schemas import EVENT
from veen.overlays.schema import Schema
from veen.query.digest import ResultDigest
from veen.query.errors import QueryError
from veen.service.store import Kind, Query, State

REQUESTS: Final = "record/query/requests"
RESULTS: Final = "record/query/results"
AUDIT: Final = "record/query/audit/service"
STREAMS: Final = {Kind.REQUEST: REQUESTS, Kind.RESULT: RESULTS, Kind.AUDIT: AUDIT, Kind.READ: AUDIT}
#: The component that events say they come from, and the class that audit records have.
ORIGIN: Final = "veen-query"
RESOURCE_CLASS: Final = "record"
#: What an event about a digest has beside it, at most.
_BESIDE_BYTES: Final = 4096
#: Of a digest: what fits in one message.
MOST_DIGEST_BYTES: Final = DEFAULT_LIMITS.max_plain_body_bytes - _BESIDE_BYTES


@dataclass(frozen=True, slots=True)
class Event:
    """A message that is to be in the log."""

    stream: str
    schema: Schema
    body: dict[str, Any]

    def encode(self) -> bytes:
        """Return its body."""
        return self.schema.encode(self.body)


def recordable(digest: ResultDigest) -> str:
    """Return a digest as it is recorded; one that no message holds is a failure of the query."""
    data = digest.encode()
    if len(data) > MOST_DIGEST_BYTES:
        raise QueryError(
            "execution_failed",
            f"the digest has {len(data)} bytes, and a message of the log takes {MOST_DIGEST_BYTES}: it names"
            f" {len(digest.upto or ())} labels, so ask for fewer streams at once",
        )
    return data.decode()


def event_of(kind: Kind, query: Query, signer: VerifyKey) -> Event:
    """Return an event about a query, as the key signs it that records (QRY-026, QRY-037)."""
    if kind is Kind.AUDIT:
        return Event(AUDIT, QUERY, _audit(query, query.identity, query.received_at))
    if kind is Kind.REQUEST:
        event_type, when, payload = "query.submitted", query.received_at, query.descriptor
    else:
        assert query.digest is not None, "an answer has a digest before it is recorded"
        assert query.ended_at is not None, "and a time"
        event_type, when, payload = "query.result", query.ended_at, query.digest
    metadata = {"result_id": query.result_id}
    if kind is Kind.REQUEST:
        # Who signs is the service: the principal of an event is its key (SDR-002).
        metadata["requester_identity"] = query.identity
    body = EVENT.make(
        subject_id=query.principal,
        principal_id=signer.hex(),
        event_type=event_type,
        event_time=when,
        origin=ORIGIN,
        payload=payload,
        metadata=metadata,
    )
    return Event(STREAMS[kind], EVENT, body)


def read_event(query: Query, reader: str, at: int) -> Event:
    """Return the audit record of somebody else who reads the rows of a query."""
    return Event(AUDIT, QUERY, _audit(query, reader, at))


def _audit(query: Query, requester: str, at: int) -> dict[str, Any]:
    descriptor: Any = canonical_json.parse(query.descriptor.encode())
    reason = (descriptor.get("meta") or {}).get("reason") if requester == query.identity else None
    # Each stream by itself: an auditor looks for one by its name (QAL-004).
    outcome: dict[str, Any] = {
        "result_id": query.result_id,
        "status": query.state.shown,
        "resources": descriptor["scope"],
    }
    if query.error_code is not None:
        outcome["error_code"] = query.error_code
    digest = None
    if query.state is State.COMPLETED and query.digest is not None:
        found: Any = canonical_json.parse(query.digest.encode())
        digest = bytes.fromhex(found["rows_hash"])  # QAL-002
    return QUERY.make(
        requester_identity=bytes.fromhex(requester),
        resource_identifier=",".join(descriptor["scope"]),
        resource_class=RESOURCE_CLASS,
        # As text: a rate is a fraction, which bodies do not have.
        query_parameters=query.descriptor,
        purpose_code=reason if isinstance(reason, str) else None,
        result_digest=digest,
        request_time=at,
        metadata=outcome,
    )
