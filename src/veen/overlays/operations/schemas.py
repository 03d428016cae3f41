"""Schemas of the operation profiles, except that of payments, which is in ``paid_ledger``.

Encoders write absent fields as null, decoders accept both forms (OVR-020). Conditions within one body are
checked here; conditions that depend on other events, by the overlays.
"""

from collections.abc import Mapping
from typing import Any, Final

from veen.core.encoding import cbor
from veen.core.encoding.field_types import B32, TEXT, UINT, ListOf, Scalar
from veen.core.encoding.shape import Field, Fields
from veen.core.objects import labels
from veen.core.types import JsonValue
from veen.overlays.errors import InvalidBodyError
from veen.overlays.event import Event
from veen.overlays.schema import ANY, Schema

PARENT: Final = Field("parent_operation_id", B32, optional=True)
METADATA: Final = Field("metadata", ANY, optional=True)
REASON: Final = Field("reason", TEXT, optional=True)


def normal(schema: Schema, body: Fields) -> bytes:
    """Return the canonical encoding of a body, in whichever form its absent fields were written."""
    return schema.encode({field.name: body.get(field.name) for field in schema.fields})


def operation_body(event: Event) -> bytes:
    """Return the canonical encoding of an event's body; reuse the received one if it omits nothing."""
    schema, body = event.schema, event.body
    return event.record.body if len(body) == len(schema.fields) else normal(schema, body)


# --- access -------------------------------------------------------------------------------------------------


def _grants_something(body: Fields) -> None:
    if not body["allowed_stream_ids"]:  # ACC-011
        raise InvalidBodyError("OP.GRANT_STREAMS", "a grant names at least one stream")
    if body.get("maximum_burst") is not None and body.get("maximum_rate_per_second") is None:  # ACC-010
        raise InvalidBodyError("OP.GRANT_BURST", "maximum_burst needs maximum_rate_per_second")


GRANT: Final = Schema(
    "access.grant.v1",
    Field("subject_identity", B32),
    Field("subject_label", TEXT, optional=True),
    Field("allowed_stream_ids", ListOf(B32)),
    Field("expiry_time", UINT),
    Field("maximum_rate_per_second", UINT, optional=True),
    Field("maximum_burst", UINT, optional=True),
    Field("maximum_amount", UINT, optional=True),
    Field("currency_code", TEXT, optional=True),
    REASON,
    PARENT,
    nulls=True,
    checks=(_grants_something,),
)
REVOKE: Final = Schema(
    "access.revoke.v1",
    Field("subject_identity", B32),
    Field("target_capability_reference", B32, optional=True),
    REASON,
    PARENT,
    nulls=True,
)


# --- delegation ---------------------------------------------------------------------------------------------


class _Body(Scalar):
    """The body of another schema, as the bytes that this schema encodes."""

    name = "any"
    python_type = bytes

    def read(self, buf: bytes, pos: int) -> tuple[bytes, int]:
        """Read one item; maps in it are in the order of their schema."""
        end = cbor.item_end(buf, pos)
        data = buf[pos:end]
        cbor.decode_listed(data)
        return data, end

    def write(self, raw: bytes) -> bytes:
        """Return the bytes."""
        return raw

    def lower(self, value: Any) -> Any:
        """Return the bytes of a body that was encoded."""
        cbor.decode_listed(super().lower(value))
        return value

    def to_json(self, raw: bytes) -> JsonValue:
        """Return plain JSON; byte strings as hex."""
        return ANY.to_json(cbor.decode_listed(raw))

    def from_json(self, value: JsonValue) -> bytes:
        """Accept plain JSON for a schema that is not known here."""
        return cbor.encode(ANY.from_json(value))


_DELEGATED: Final = "delegated.execution.v1"


def _one_level(body: Fields) -> None:
    if not body["delegation_chain"]:  # DEL-002
        raise InvalidBodyError("OP.DELEGATION_EMPTY", "delegation_chain names at least one capability")
    if body["operation_schema"] == labels.schema_id(_DELEGATED):  # DEL-011
        raise InvalidBodyError("OP.DELEGATION_NESTED", "a delegated execution cannot contain another one")


DELEGATED: Final = Schema(
    _DELEGATED,
    Field("principal_identity", B32),
    Field("agent_identity", B32),
    Field("delegation_chain", ListOf(B32)),
    Field("operation_schema", B32),
    Field("operation_body", _Body()),
    PARENT,
    METADATA,
    nulls=True,
    checks=(_one_level,),
)


# --- agreement ----------------------------------------------------------------------------------------------


def _has_parties(body: Fields) -> None:
    parties = body["parties"]
    if not parties or len(set(parties)) != len(parties):  # AGR-012
        raise InvalidBodyError(
            "OP.AGREEMENT_PARTIES", "an agreement has at least one party, and each party once"
        )


DEFINITION: Final = Schema(
    "agreement.definition.v1",
    Field("agreement_id", B32),
    Field("version", UINT),
    Field("terms_hash", B32),
    Field("terms_attachment_root", B32, optional=True),
    Field("parties", ListOf(B32)),
    Field("effective_time", UINT, optional=True),
    Field("expiry_time", UINT, optional=True),
    METADATA,
    nulls=True,
    checks=(_has_parties,),
)
CONFIRMATION: Final = Schema(
    "agreement.confirmation.v1",
    Field("agreement_id", B32),
    Field("version", UINT),
    Field("party_identity", B32),
    Field("decision", TEXT),
    Field("decision_time", UINT, optional=True),
    PARENT,
    METADATA,
    nulls=True,
)


# --- publication, snapshot ----------------------------------------------------------------------------------

PUBLICATION: Final = Schema(
    "data.publication.v1",
    Field("publication_id", B32),
    Field("publisher_identity", B32),
    Field("content_root", B32),
    Field("content_class", TEXT),
    Field("version", TEXT),
    Field("labels", ListOf(TEXT), optional=True),
    Field("source_uri", TEXT, optional=True),
    METADATA,
    nulls=True,
)
SNAPSHOT: Final = Schema(
    "state.checkpoint.v1",
    Field("state_id", B32),
    Field("upto_stream_seq", UINT),
    Field("mmr_root", B32),
    Field("state_hash", B32),
    Field("state_class", TEXT),
    METADATA,
    nulls=True,
)


# --- recovery -----------------------------------------------------------------------------------------------

RECOVERY_REQUEST: Final = Schema(
    "recovery.request.v1",
    Field("target_identity", B32),
    Field("requested_new_identity", B32),
    REASON,
    Field("request_time", UINT, optional=True),
    METADATA,
    nulls=True,
)
RECOVERY_APPROVAL: Final = Schema(
    "recovery.approval.v1",
    Field("target_identity", B32),
    Field("requested_new_identity", B32),
    Field("approver_identity", B32),
    Field("policy_group_id", B32, optional=True),
    Field("decision", TEXT),
    Field("decision_time", UINT, optional=True),
    PARENT,
    METADATA,
    nulls=True,
)
RECOVERY_EXECUTION: Final = Schema(
    "recovery.execution.v1",
    Field("target_identity", B32),
    Field("new_identity", B32),
    Field("applied_time", UINT, optional=True),
    Field("approval_references", ListOf(B32)),
    METADATA,
    nulls=True,
)


# --- audit, mirror ------------------------------------------------------------------------------------------

QUERY: Final = Schema(
    "query.audit.v1",
    Field("requester_identity", B32),
    Field("resource_identifier", TEXT),
    Field("resource_class", TEXT),
    Field("query_parameters", ANY, optional=True),
    Field("purpose_code", TEXT, optional=True),
    Field("result_digest", B32, optional=True),
    Field("request_time", UINT, optional=True),
    METADATA,
    nulls=True,
)


def _is_counted(body: Fields) -> None:
    if body["source_stream_seq"] == 0:
        raise InvalidBodyError("OP.MIRROR_SEQ", "positions are counted from 1")


MIRROR: Final = Schema(
    "federation.mirror.v1",
    Field("source_hub_identifier", TEXT),
    Field("source_label", B32),
    Field("source_stream_seq", UINT),
    Field("source_leaf_hash", B32),
    Field("source_receipt_root", B32),
    Field("target_label", B32),
    Field("mirror_time", UINT, optional=True),
    METADATA,
    nulls=True,
    checks=(_is_counted,),
)

# All schemas by name.
SCHEMAS: Final[Mapping[str, Schema]] = {
    schema.name: schema
    for schema in (
        GRANT,
        REVOKE,
        DELEGATED,
        DEFINITION,
        CONFIRMATION,
        PUBLICATION,
        SNAPSHOT,
        RECOVERY_REQUEST,
        RECOVERY_APPROVAL,
        RECOVERY_EXECUTION,
        QUERY,
        MIRROR,
    )
}
