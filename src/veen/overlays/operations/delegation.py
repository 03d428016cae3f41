"""Delegated execution: an operation that an agent sends for a principal, under a chain of capabilities.

Capability tokens are pinned inputs of the fold, each with the time at which its hub accepted it.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

from veen.core.crypto.hash import sha256
from veen.core.encoding.hexadecimal import parse_hex32
from veen.core.errors import ProtocolError
from veen.core.objects import capability
from veen.core.objects.capability import CapToken
from veen.core.objects.control_record import RevocationRecord, Target
from veen.core.types import JsonValue
from veen.overlays.errors import InvalidBodyError
from veen.overlays.event import Event
from veen.overlays.monoid import COUNT, MIN, Monoid
from veen.overlays.operations.schemas import DELEGATED, operation_body
from veen.overlays.overlay import Key, Lowered, Overlay, Tables
from veen.overlays.schema import Schema


class KnownToken(NamedTuple):
    """A token, and the time of the record that introduced it (C-46)."""

    token: CapToken
    issued_at: int

    @property
    def expires_at(self) -> int:
        """The last second in which it is valid."""
        return capability.expires_at(self.token, self.issued_at)


_INNER = "inner."
# The outcome under which valid executions are counted.
APPLIED = "applied"

Verdict = tuple[str, str]


class Delegated(Overlay):
    """Executions by agent and principal; with ``inner``, the operations themselves are folded too."""

    name: ClassVar[str] = "delegated"
    version: ClassVar[int] = 2
    about: ClassVar[str] = "Operations that agents send for principals, and whether their chains hold."
    schemas: ClassVar[tuple[Schema, ...]] = (DELEGATED,)
    tables: ClassVar[Mapping[str, Monoid]] = {"executions": MIN, "counts": COUNT}
    state_class: ClassVar[str] = "delegated"
    needs_past: ClassVar[bool] = False

    # Known tokens, from the hub's log of tokens.
    tokens: tuple[KnownToken, ...] = ()
    revocations: tuple[RevocationRecord, ...] = ()
    # The folded stream: chains have to end in a token for it. Empty: any.
    stream_id: bytes = b""
    # Folds the operations that count, together with those that principals send themselves (DEL-007).
    inner: Overlay | None = None

    def __post_init__(self) -> None:
        """Take over schemas, tables and copy rules of the inner fold."""
        if self.inner is None:
            return
        kinds = type(self).tables
        more = {f"{_INNER}{name}": kind for name, kind in self.inner.tables.items()}
        indexes = {f"{_INNER}{name}": kind for name, kind in self.inner.indexes.items()}
        object.__setattr__(self, "schemas", (DELEGATED, *self.inner.schemas))
        object.__setattr__(self, "tables", {**kinds, **more})
        object.__setattr__(self, "indexes", indexes)
        for name in ("copies_by_parent", "needs_past", "grouped"):
            object.__setattr__(self, name, getattr(self.inner, name))

    @cached_property
    def _tokens(self) -> Mapping[bytes, KnownToken]:
        return {bytes(known.token.auth_ref): known for known in self.tokens}

    @cached_property
    def _by_target(self) -> Mapping[tuple[str, bytes], list[RevocationRecord]]:
        by_target: dict[tuple[str, bytes], list[RevocationRecord]] = {}
        for record in self.revocations:
            by_target.setdefault((record.target_kind, record.target), []).append(record)
        return by_target

    def lower(self, event: Event, before: Tables) -> Lowered:
        """Validate the chain; a valid execution is folded as the principal's own operation."""
        if event.schema is not DELEGATED:
            return self._inside(event, before)
        body, record = event.body, event.record
        verdict = self._verdict(event)
        done = Lowered()
        if verdict is None:
            try:
                done = self._carried(event, before)
            except InvalidBodyError as error:
                verdict = ("OP.DELEGATION_BODY", f"{error.code}: {error}")
        code = APPLIED if verdict is None else verdict[0]
        pair = (body["principal_identity"], body["agent_identity"], code)
        entry = (event.position, record.client_id, code, operation_body(event))
        return Lowered(
            (
                ("executions", event.canonical_id, entry),
                ("counts", pair, (1, event.position, event.position)),
                *done.cells,
            ),
            (*(() if verdict is None else (verdict,)), *done.reports),
        )

    def group(self, event: Event) -> Key:
        """Return the group of the operation; an execution that does not count changes nothing."""
        assert self.inner is not None
        if event.schema is not DELEGATED:
            return self.inner.group(event)
        try:
            operation = self._operation(event)
        except InvalidBodyError:
            operation = None
        return b"" if operation is None else self.inner.group(operation)

    def _carried(self, event: Event, before: Tables) -> Lowered:
        """Return the effect of the operation."""
        operation = self._operation(event)
        return Lowered() if operation is None else self._inside(operation, before)

    def _operation(self, event: Event) -> Event | None:
        """Return the carried operation as an event; its identity is that of the message that carries it."""
        body = event.body
        schemas = () if self.inner is None else self.inner.schemas
        schema = next((item for item in schemas if item.schema_id == body["operation_schema"]), None)
        if schema is None:
            return None
        record = event.record._replace(
            client_id=body["principal_identity"], schema=schema.schema_id, body=body["operation_body"]
        )
        return event._replace(record=record, schema=schema, body=schema.decode(record.body))

    def _inside(self, event: Event, before: Tables) -> Lowered:
        assert self.inner is not None
        cells, reports = self.inner.lower(event, _Within(before))
        return Lowered([(f"{_INNER}{table}", key, summary) for table, key, summary in cells], reports)

    def _verdict(self, event: Event) -> Verdict | None:
        """Return the first rule that a chain breaks; None if it is valid."""
        body, record = event.body, event.record
        chain: list[KnownToken] = []
        for number, ref in enumerate(body["delegation_chain"], start=1):
            known = self._tokens.get(ref)
            if known is None:  # DEL-003
                return ("OP.DELEGATION_UNKNOWN", f"capability {number} is unknown")
            chain.append(known)
        last = chain[-1].token
        if chain[0].token.subject_pk != body["principal_identity"]:  # DEL-004
            return ("OP.DELEGATION_PRINCIPAL", "the first capability is not the principal's")
        if last.subject_pk not in (body["agent_identity"], record.client_id):
            return (
                "OP.DELEGATION_AGENT",
                "the subject of the last capability is neither the agent nor the sender",
            )
        if self.stream_id and self.stream_id not in last.allow.stream_ids:
            return ("OP.DELEGATION_SCOPE", "the last capability does not allow this stream")
        return _broken_link(chain) or self._not_in_force(chain, record.hub_ts)

    def _not_in_force(self, chain: Iterable[KnownToken], hub_ts: int) -> Verdict | None:
        for number, known in enumerate(chain, start=1):  # DEL-008
            fault, names = _facts(known.token)
            if fault is not None:
                return ("OP.DELEGATION_SIGNATURE", f"capability {number}: {fault}")
            if not known.issued_at <= hub_ts <= known.expires_at:
                return ("OP.DELEGATION_EXPIRED", f"capability {number} is not valid at {hub_ts}")
            if any(item.holds_at(hub_ts) for name in names for item in self._by_target.get(name, ())):
                return ("OP.DELEGATION_REVOKED", f"capability {number} is revoked at {hub_ts}")
        return None

    def parse_key(self, text: str) -> Key:
        """Parse the id of a message: hex."""
        return parse_hex32(text)

    def view_key(self, tables: Tables, key: Key, now: int | None = None) -> JsonValue:  # noqa: ARG002
        """Return an execution with its chain (DEL-009)."""
        execution = tables.get("executions", key)
        return None if execution is None else _shown(key, execution)

    def view(self, tables: Tables, now: int | None = None) -> JsonValue:
        """Return executions in log order, their number for each pair, and the inner state."""
        rows = sorted(tables.items("executions"), key=lambda row: row[1][0])
        state: dict[str, JsonValue] = {
            "executions": [_shown(key, entry) for key, entry in rows],
            "counts": [
                {"principal": pair[0].hex(), "agent": pair[1].hex(), "outcome": pair[2], "count": counted[0]}
                for pair, counted in tables.items("counts")
                if isinstance(pair, tuple)
            ],
        }
        if self.inner is not None:
            state["operations"] = self.inner.view(_Within(tables), now)
        return state

    def serialized(self, tables: Tables) -> list[Any]:
        """Return the number of executions for each pair, and the inner state."""
        counts = [[*pair, counted[0]] for pair, counted in tables.items("counts")]
        return [counts, None if self.inner is None else self.inner.serialized(_Within(tables))]


class _Within:
    """The tables of the inner fold."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def get(self, table: str, key: Key) -> Any:
        return self._tables.get(f"{_INNER}{table}", key)

    def items(self, table: str) -> Iterable[tuple[Key, Any]]:
        return self._tables.items(f"{_INNER}{table}")


def _broken_link(chain: list[KnownToken]) -> Verdict | None:
    """Return what is wrong between two capabilities of a chain (DEL-006)."""
    for number, (above, below) in enumerate(pairwise(chain), start=2):
        if above.token.subject_pk != below.token.issuer_pk:
            return (
                "OP.DELEGATION_LINK",
                f"capability {number} was not issued by the subject of the previous one",
            )
        if not set(below.token.allow.stream_ids) <= set(above.token.allow.stream_ids):
            return ("OP.DELEGATION_STREAMS", f"capability {number} allows more streams than the previous one")
        if below.expires_at > above.expires_at:
            return ("OP.DELEGATION_OUTLIVES", f"capability {number} expires later than the previous one")
    return None


@lru_cache(maxsize=1024)
def _facts(token: CapToken) -> tuple[str | None, tuple[tuple[str, bytes], ...]]:
    """Return what is wrong with the signatures of a token, and its names in revocations (C-55)."""
    fault = None
    try:
        token.verify()
    except ProtocolError as error:
        fault = error.message
    return fault, (
        (Target.AUTH_REF, bytes(token.auth_ref)),
        (Target.CAP_TOKEN, sha256(token.encode())),
        (Target.CLIENT_ID, bytes(token.subject_pk)),
    )


def _shown(key: Key, entry: Any) -> JsonValue:
    place, client_id, code, body = entry
    assert isinstance(key, bytes)
    return {
        "msg_id": key.hex(),
        "stream_seq": place[1],
        "client_id": client_id.hex(),
        "outcome": code,
        **DELEGATED.to_json(DELEGATED.decode(body)),
    }
