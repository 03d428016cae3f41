"""Random events and descriptors, with few distinct values, so that filters and groups meet them."""

import json
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from veen.query.fields import Event

STREAMS = ("record/app/a", "record/app/b", "record/ä", "record/\uffff", "record/\U0001f512")
SUBJECTS = ("alice", "bob", "", 'a "quoted"\n\\ name', "\x00\x1f\x7f\u2028", "\U0001f512é")
TYPES = ("http.request", "login", "logout", "x")
ORIGINS = ("web-1", "web-2")
PRINCIPALS = ("ab" * 32, "cd" * 32)
PATHS = (
    "payload.a",
    "payload.a.b",
    "payload.ä",
    "payload.n",
    "metadata.a",
    "metadata.a.b",
    "payload.missing.x",
)
BASE = (
    "subject_id", "principal_id", "event_type", "event_time", "origin", "receipt_id",
    "stream", "hub_commit_seq", "hub_commit_time",
)  # fmt: skip
METRICS = ("count", "min(event_time)", "max(event_time)")
#: Times close to each other, so that bounds of filters fall on them, and the ends of what there is.
TIMES = st.one_of(st.integers(1_699_999_990, 1_700_000_010), st.sampled_from((0, 253_402_300_799)))

#: Text without lone surrogates, with what JSON escapes and what sorts differently in UTF-16.
TEXT = st.text(
    st.one_of(
        st.characters(codec="utf-8"),
        st.sampled_from('"\\/\x00\x1f\x7f\n\t\b\f\r\u2028\uffff\U00010000'),
    ),
    max_size=8,
)
NAMES = st.one_of(st.sampled_from(("a", "b", "n", "ä", "")), TEXT)
#: What payloads hold: CBOR has neither fractions nor negative numbers here.
PLAIN = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(0, 2**64 - 1), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=6,
)


def plain_text(value: Any) -> str:
    """A value as the lake's tables hold it."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


PAYLOADS = st.one_of(
    PLAIN,
    st.fixed_dictionaries({"a": st.fixed_dictionaries({"b": st.integers(0, 3)})}),
    st.fixed_dictionaries({"n": st.integers(0, 3)}, optional={"ä": TEXT}),
)
METADATA = st.one_of(st.none(), st.dictionaries(NAMES, PLAIN, max_size=3))


@st.composite
def events(draw: st.DrawFn, stream: str, epoch: int, seq: int) -> Event:
    """One event at a place."""
    payload, metadata = draw(PAYLOADS), draw(METADATA)
    return Event(
        stream=stream,
        epoch=epoch,
        seq=seq,
        hub_ts=draw(TIMES),
        subject_id=draw(st.sampled_from(SUBJECTS)),
        principal_id=draw(st.sampled_from(PRINCIPALS)),
        event_type=draw(st.sampled_from(TYPES)),
        event_time=draw(TIMES),
        origin=draw(st.sampled_from(ORIGINS)),
        payload=None if payload is None else plain_text(payload),
        metadata=None if metadata is None else plain_text(metadata),
        receipt_id=draw(st.binary(min_size=32, max_size=32)),
    )


@st.composite
def logs(draw: st.DrawFn, max_events: int = 12) -> list[Event]:
    """Events at distinct places of several streams and epochs, in no order."""
    places = draw(
        st.lists(
            st.tuples(st.sampled_from(STREAMS), st.integers(0, 1), st.integers(0, 20)),
            max_size=max_events,
            unique=True,
        )
    )
    return [draw(events(*place)) for place in places]


def _stamps() -> st.SearchStrategy[str]:
    return st.integers(0, 20).map(lambda second: f"2023-11-14T22:13:{10 + second}Z")


@st.composite
def _filters(draw: st.DrawFn) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if draw(st.booleans()):
        made["subject_id"] = draw(st.one_of(st.none(), st.sampled_from(SUBJECTS)))
    if draw(st.booleans()):
        made["event_type"] = draw(st.one_of(st.none(), st.lists(st.sampled_from(TYPES), max_size=4)))
    if draw(st.booleans()):
        ends = sorted((draw(_stamps()), draw(_stamps())))
        made["time"] = {
            key: draw(st.one_of(st.none(), st.just(end)))
            for key, end in zip(("from", "to"), ends, strict=True)
            if draw(st.booleans())
        }
    return made


@st.composite
def descriptors(draw: st.DrawFn) -> dict[str, Any]:
    """A descriptor as a client would send it: parts left out, null or given."""
    made: dict[str, Any] = {"scope": draw(st.lists(st.sampled_from(STREAMS), min_size=1, unique=True))}
    if draw(st.booleans()):
        made["filter"] = draw(st.one_of(st.none(), _filters()))
    if draw(st.booleans()):
        made["query_id"] = draw(st.from_regex(r"[A-Za-z0-9._:-]{1,20}", fullmatch=True))
    if draw(st.booleans()):
        fields = st.lists(st.sampled_from(tuple(set(BASE) - {"receipt_id"}) + PATHS), max_size=3, unique=True)
        made["aggregate"] = {
            "group_by": draw(fields),
            "metrics": draw(st.lists(st.sampled_from(METRICS), min_size=1, unique=True)),
        }
    elif draw(st.booleans()):
        every = (*BASE, "payload", "metadata", *PATHS)
        made["projection"] = draw(st.lists(st.sampled_from(every), min_size=1, unique=True))
    if draw(st.booleans()):
        rate = st.decimals(Decimal("0.0001"), 1, places=4)
        made["evidence"] = draw(
            st.one_of(
                st.sampled_from(({"mode": "none"}, {"mode": "full", "sample_rate": None})),
                st.builds(lambda value: {"mode": "spot", "sample_rate": value}, rate),
            )
        )
    if draw(st.booleans()):
        made["meta"] = draw(st.dictionaries(TEXT, PLAIN, max_size=2))
    return made
