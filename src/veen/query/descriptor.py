"""Query descriptors: validation and one normal form (QRY-009 to QRY-025).

A key that is absent or null gets its default: ``query_id`` a new one, ``filter`` no constraint,
``projection`` ``["*"]``, ``evidence`` mode none; an absent ``version`` is 1. Only ``scope`` is required. The
normal form has all six, the filter has its three keys, ``time`` is null or has both ends, ``["*"]`` is
expanded, ``event_type`` is sorted without repeats, ``sample_rate`` is present for spot only; ``aggregate``
(with ``group_by``, even if empty) and ``meta`` are present if they were in the descriptor. Unknown keys are
rejected everywhere except in ``meta``: ignoring a constraint would widen the result.

The filter's time is ``event_time``, both ends included (QRY-017). An empty ``event_type`` selects nothing.

An aggregate has one row for each group with an event; without ``group_by`` exactly one, even if there is no
event: then ``count`` is 0 and the others are null. Its rows have the fields of ``group_by`` and the metrics,
each under its own name. That list, in this order, is its projection: an explicit one must equal it or be
``["*"]``.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Final, Self

from veen.core.encoding import canonical_json
from veen.core.encoding.canonical_json import Json
from veen.core.errors import ProtocolError
from veen.core.objects import labels
from veen.query.errors import QueryError
from veen.query.fields import DEFAULT_FIELDS, is_field
from veen.query.timestamps import format_time, parse_time

VERSION: Final = 1
# Size limit of a descriptor, as received and in its normal form.
MAX_DESCRIPTOR_BYTES: Final = 65_536
# Nesting limit; answers and files embed a descriptor in objects of their own.
MAX_DEPTH: Final = canonical_json.MAX_DEPTH - 4
MAX_SCOPE: Final = 256
MAX_EVENT_TYPES: Final = 1_024
MAX_PROJECTION: Final = 64
# Size limit of a stream's name.
MAX_STREAM_BYTES: Final = 512

COUNT: Final = "count"
EARLIEST: Final = "min(event_time)"
LATEST: Final = "max(event_time)"
METRICS: Final = (COUNT, EARLIEST, LATEST)

# Ids are opaque; those of clients must have this form (QRY-003).
_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_KEYS: Final = frozenset(
    {"query_id", "version", "scope", "filter", "projection", "evidence", "aggregate", "meta"}
)
_NOT_GROUPED: Final = frozenset({"receipt_id", "payload", "metadata"})
_RANDOM_BYTES: Final = 16


class Mode(StrEnum):
    """How much of the evidence is verified before the answer is returned (QRY-020)."""

    NONE = "none"
    SPOT = "spot"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Filter:
    """Selects events; None is no constraint."""

    subject_id: str | None = None
    event_type: tuple[str, ...] | None = None
    time_from: int | None = None
    time_to: int | None = None

    def to_json(self) -> dict[str, Json]:
        times: dict[str, Json] | None = None
        if self.time_from is not None or self.time_to is not None:
            times = {"from": _time_or_none(self.time_from), "to": _time_or_none(self.time_to)}
        return {
            "subject_id": self.subject_id,
            "event_type": None if self.event_type is None else list(self.event_type),
            "time": times,
        }


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence settings; ``sample_rate`` is present for spot only."""

    mode: Mode = Mode.NONE
    sample_rate: Decimal | None = None

    def to_json(self) -> dict[str, Json]:
        form: dict[str, Json] = {"mode": self.mode.value}
        return form if self.sample_rate is None else {**form, "sample_rate": self.sample_rate}

    @classmethod
    def from_json(cls, value: Json) -> Self:
        document = _object(value, "evidence", frozenset({"mode", "sample_rate"}))
        mode, rate = document.get("mode"), document.get("sample_rate")
        if not isinstance(mode, str) or mode not in tuple(Mode):
            raise _invalid('evidence.mode must be "none", "spot" or "full"')
        if mode != Mode.SPOT:
            if rate is not None:
                raise _invalid("evidence.sample_rate must be left out unless the mode is spot")
            return cls(Mode(mode))
        if isinstance(rate, bool) or not isinstance(rate, int | Decimal) or not 0 < rate <= 1:
            raise _invalid("evidence.sample_rate of mode spot must be a number above 0 and at most 1")
        return cls(Mode.SPOT, Decimal(rate))


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Groups instead of single events."""

    group_by: tuple[str, ...]
    metrics: tuple[str, ...]

    @property
    def fields(self) -> tuple[str, ...]:
        """The names in each row."""
        return self.group_by + self.metrics

    def to_json(self) -> dict[str, Json]:
        return {"group_by": list(self.group_by), "metrics": list(self.metrics)}


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A query in its normal form."""

    query_id: str
    scope: tuple[str, ...]
    filter: Filter
    projection: tuple[str, ...]
    evidence: Evidence
    aggregate: Aggregate | None = None
    meta: Mapping[str, Json] | None = None

    def to_json(self) -> dict[str, Json]:
        form: dict[str, Json] = {
            "query_id": self.query_id,
            "version": VERSION,
            "scope": list(self.scope),
            "filter": self.filter.to_json(),
            "projection": list(self.projection),
            "evidence": self.evidence.to_json(),
        }
        if self.aggregate is not None:
            form["aggregate"] = self.aggregate.to_json()
        if self.meta is not None:
            form["meta"] = dict(self.meta)
        return form

    def encode(self) -> bytes:
        """Return the normal form in canonical JSON, as recorded."""
        return canonical_json.encode(self.to_json())


# --- ids ----------------------------------------------------------------------------------------------------


def new_query_id(random_bytes: Callable[[int], bytes]) -> str:
    """Return a new id of a query."""
    return f"q-{random_bytes(_RANDOM_BYTES).hex()}"


def new_result_id(random_bytes: Callable[[int], bytes]) -> str:
    """Return a new id of a result."""
    return f"r-{random_bytes(_RANDOM_BYTES).hex()}"


def is_id(text: str) -> bool:
    """Whether a text is a valid id of a query or a result."""
    return _ID.fullmatch(text) is not None


# --- parsing ------------------------------------------------------------------------------------------------


def parse_descriptor(data: bytes, new_id: Callable[[], str]) -> Descriptor:
    """Parse the descriptor that a client has sent; QueryError says what is wrong with it."""
    if len(data) > MAX_DESCRIPTOR_BYTES:
        raise _invalid(f"a descriptor has at most {MAX_DESCRIPTOR_BYTES} bytes, not {len(data)}")
    try:
        value = canonical_json.parse(data)
    except ProtocolError as error:
        raise QueryError("invalid_json", error.message) from None
    return normalize(value, new_id)


def normalize(value: Json, new_id: Callable[[], str]) -> Descriptor:
    """Validate a descriptor and fill in its defaults; ``new_id`` returns an id if it has none."""
    if not isinstance(value, dict):
        raise _invalid("a descriptor must be a JSON object")
    try:
        canonical_json.encode(value)
    except ProtocolError as error:
        raise QueryError("invalid_json", error.message) from None
    version = value.get("version", VERSION)
    if isinstance(version, bool) or version != VERSION:  # first, since all other keys depend on the version
        raise QueryError("unsupported_version", f"version {VERSION} is supported, not {_shown(version)}")
    document = _object(value, "the descriptor", _KEYS)
    aggregate = _aggregate(document.get("aggregate"))
    evidence = document.get("evidence")
    descriptor = Descriptor(
        query_id=_query_id(document.get("query_id"), new_id),
        scope=_scope(document.get("scope")),
        filter=_filter(document.get("filter")),
        projection=_projection(document.get("projection"), aggregate),
        evidence=Evidence() if evidence is None else Evidence.from_json(evidence),
        aggregate=aggregate,
        meta=_meta(document.get("meta")),
    )
    size = len(descriptor.encode())
    if size > MAX_DESCRIPTOR_BYTES:  # 1e999 is shorter than its normal form
        raise _invalid(
            f"a descriptor has at most {MAX_DESCRIPTOR_BYTES} bytes in its normal form, not {size}"
        )
    return descriptor


def from_json(value: Json) -> Descriptor:
    """Return a stored descriptor; raises unless it is in its normal form."""
    if not isinstance(value, dict) or not isinstance(value.get("query_id"), str):
        raise _invalid("a stored descriptor must be a JSON object with a query_id")
    descriptor = normalize(value, lambda: "")
    if descriptor.to_json() != value:
        raise _invalid("the descriptor is not in its normal form")
    return descriptor


def _invalid(message: str) -> QueryError:
    return QueryError("invalid_query_descriptor", message)


def _shown(value: Json) -> str:
    """Return a value for an error message, truncated if it is long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


def _object(value: Json, name: str, known: frozenset[str]) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise _invalid(f"{name} must be an object")
    for key in value:
        if key not in known:
            raise _invalid(f"{name} has an unknown key {_shown(key)}; there are {', '.join(sorted(known))}")
    return value


def _texts(value: Json, name: str, max_items: int) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _invalid(f"{name} must be an array of strings")
    if len(value) > max_items:
        raise _invalid(f"{name} has at most {max_items} items, not {len(value)}")
    return tuple(item for item in value if isinstance(item, str))


def _once(items: tuple[str, ...], name: str) -> tuple[str, ...]:
    if len(set(items)) != len(items):
        raise _same(name)
    return items


def _same(name: str) -> QueryError:
    return _invalid(f"{name} names the same twice")


def _query_id(value: Json, new_id: Callable[[], str]) -> str:
    if value is None:
        return new_id()
    if not isinstance(value, str) or not is_id(value):
        raise _invalid("query_id must have 1 to 128 characters of A-Z a-z 0-9 . _ : -")
    return value


def _scope(value: Json) -> tuple[str, ...]:
    names = _texts(value, "scope", MAX_SCOPE)
    if not names:
        raise _invalid("scope must name at least one stream")
    for name in names:
        if not 1 <= len(name.encode()) <= MAX_STREAM_BYTES:
            raise _invalid(f"a stream in scope must have a name of 1 to {MAX_STREAM_BYTES} bytes")
    if len({labels.stream_id(name) for name in names}) != len(names):  # a name may be an id in hex
        raise _same("scope")
    return names


def _filter(value: Json) -> Filter:
    if value is None:
        return Filter()
    document = _object(value, "filter", frozenset({"subject_id", "event_type", "time"}))
    subject, types, times = (document.get(key) for key in ("subject_id", "event_type", "time"))
    if subject is not None and not isinstance(subject, str):
        raise _invalid("filter.subject_id must be a string or null")
    bounds = {} if times is None else _object(times, "filter.time", frozenset({"from", "to"}))
    start, end = (_time(bounds.get(key), f"filter.time.{key}") for key in ("from", "to"))
    if start is not None and end is not None and start > end:
        raise _invalid("filter.time.from is after filter.time.to")
    chosen = None if types is None else _texts(types, "filter.event_type", MAX_EVENT_TYPES)
    # Text sorts by code points, which is the order of its UTF-8 bytes.
    return Filter(subject, None if chosen is None else tuple(sorted(set(chosen))), start, end)


def _time(value: Json, name: str) -> int | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise _invalid(f"{name} must be a time of the form 2026-01-31T23:59:59Z, or null")
    try:
        return parse_time(value)
    except ValueError as error:
        raise _invalid(f"{name}: {error}") from None


def _time_or_none(seconds: int | None) -> str | None:
    return None if seconds is None else format_time(seconds)


def _fields(value: Json, name: str) -> tuple[str, ...]:
    fields = _once(_texts(value, name, MAX_PROJECTION), name)
    for field in fields:
        if not is_field(field):
            raise _invalid(f"{name} has an unknown field {_shown(field)}")
    return fields


def _projection(value: Json, aggregate: Aggregate | None) -> tuple[str, ...]:
    if value is None or value == ["*"]:
        return DEFAULT_FIELDS if aggregate is None else aggregate.fields
    if aggregate is not None:
        names = _texts(value, "projection", MAX_PROJECTION + len(METRICS))
        if names != aggregate.fields:
            raise _invalid(f'projection of an aggregate must be ["*"] or {_shown(list(aggregate.fields))}')
        return names
    if isinstance(value, list) and "*" in value:
        raise _invalid('projection must not have other fields beside "*"')
    fields = _fields(value, "projection")
    if not fields:
        raise _invalid("projection must name at least one field")
    return fields


def _aggregate(value: Json) -> Aggregate | None:
    if value is None:
        return None
    document = _object(value, "aggregate", frozenset({"group_by", "metrics"}))
    grouped = document.get("group_by")
    group_by = () if grouped is None else _fields(grouped, "aggregate.group_by")
    for field in group_by:
        if field in _NOT_GROUPED:
            raise _invalid(f"aggregate.group_by cannot be {field}")
    metrics = _once(_texts(document.get("metrics"), "aggregate.metrics", len(METRICS)), "aggregate.metrics")
    if not metrics:
        raise _invalid("aggregate.metrics must name at least one metric")
    for metric in metrics:
        if metric not in METRICS:
            raise _invalid(
                f"aggregate.metrics has an unknown {_shown(metric)}; there are {', '.join(METRICS)}"
            )
    return Aggregate(group_by, metrics)


def _meta(value: Json) -> Mapping[str, Json] | None:
    if value is not None and not isinstance(value, dict):
        raise _invalid("meta must be an object")
    if 1 + _depth(value) > MAX_DEPTH:
        raise _invalid(f"a descriptor must not be nested deeper than {MAX_DEPTH} levels")
    return value


def _depth(value: Json) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, value), default=0)
    return 0
