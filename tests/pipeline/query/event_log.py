"""Logs of recorder events for tests of queries: what is in them is known, event by event."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql import SparkSession

from tests import builders
from tests.pipeline.lake.lake_builder import keyring, take
from tests.pipeline.log_builder import Hub, Sent
from tests.query import strategies
from veen.core.crypto.hash import sha256
from veen.core.objects.receipt import Receipt
from veen.overlays.recorder.schemas import EVENT, IMPORTED
from veen.query.descriptor import Descriptor, normalize
from veen.query.fields import Event

EPOCH_SEC = 1000
#: What is there under a path, and what is not.
PAYLOADS: tuple[Any, ...] = (
    *(None, {}, {"a": {"b": 1}}, {"a": {"b": 2}, "n": 2**64 - 1}, {"a": 7}),
    *({"n": 3, "ä": '"\\\n'}, [1, {"a": 2}], "text", True),
)
METADATA: tuple[Any, ...] = (None, {}, {"a": "x"}, {"a": {"b": None}}, {"a": [1, "\U0001f512"]})


@dataclass
class Recorded:
    """A hub with recorder events, and all of them as a query may see them."""

    hub: Hub
    events: list[Event] = field(default_factory=list)
    receipts: dict[bytes, Receipt] = field(default_factory=dict)

    def record(self, stream: str, *, client: str = "ann", principal: str | None = None, **said: Any) -> None:
        """Record an event; with another principal than the client it is no row of any query."""
        body = _said(said, principal or builders.verify_key(client).hex())
        (receipt,) = self.hub.send(stream, [_sent(EVENT, body, client)])
        if principal is None:
            self.events.append(_event(stream, self.hub.clock // EPOCH_SEC, receipt, body))
            self.receipts[self.events[-1].receipt_id] = receipt

    def import_from(self, other: "Recorded", events: Iterable[Event], stream: str) -> None:
        """Write copies of another hub's events."""
        sent = []
        for event in events:
            body = {
                "subject_id": event.subject_id,
                "principal_id": event.principal_id,
                "event_type": event.event_type,
                "event_time": event.event_time,
                "origin": event.origin,
                "payload": None if event.payload is None else json.loads(event.payload),
                "origin_stream": event.stream,
                "origin_epoch": event.epoch,
                "origin_stream_seq": event.seq,
                "origin_hub_id": other.hub.hub_id,
                "origin_receipt": other.receipts[event.receipt_id].encode(),
                "import_time": 5,
                "bridge_id": "a bridge",
            }
            if event.metadata is not None:
                body["metadata"] = json.loads(event.metadata)
            sent.append(_sent(IMPORTED, body, "bridge"))
        self.hub.send(stream, sent)

    def lake(self, spark: SparkSession, place: Path, streams: Sequence[str]) -> Path:
        """Take all of it into a lake."""
        self.hub.close()
        take(spark, place, self.hub.root, keyring(streams))
        self.hub.reopen()
        return place


def _sent(schema: Any, body: dict[str, Any], client: str) -> Sent:
    return Sent(schema.encode(schema.make(**body)), client=client, schema=schema.schema_id)


def _said(said: dict[str, Any], principal: str) -> dict[str, Any]:
    body = {
        "subject_id": "alice",
        "event_type": "login",
        "event_time": 1_700_000_000,
        "origin": "web-1",
        "payload": None,
        **said,
        "principal_id": principal,
    }
    return {name: value for name, value in body.items() if name != "metadata" or value is not None}


def _text(value: Any) -> str | None:
    return None if value is None else strategies.plain_text(value)


def _event(stream: str, epoch: int, receipt: Receipt, body: dict[str, Any]) -> Event:
    return Event(
        stream=stream,
        epoch=epoch,
        seq=receipt.stream_seq,
        hub_ts=receipt.hub_ts,
        subject_id=body["subject_id"],
        principal_id=body["principal_id"],
        event_type=body["event_type"],
        event_time=body["event_time"],
        origin=body["origin"],
        payload=_text(body["payload"]),
        metadata=_text(body.get("metadata")),
        receipt_id=sha256(receipt.encode()),
    )


def record_some(made: Recorded, streams: Sequence[str], count: int, seed: int) -> None:
    """Record events with few distinct values, in two epochs, and some that are no rows."""
    chance = Random(seed)
    for number in range(count):
        made.record(
            chance.choice(streams),
            client=chance.choice(("ann", "bob")),
            principal="ab" * 32 if number % 17 == 0 else None,
            subject_id=chance.choice(strategies.SUBJECTS),
            event_type=chance.choice(strategies.TYPES),
            event_time=1_699_999_990 + chance.randrange(30),
            origin=chance.choice(strategies.ORIGINS),
            payload=chance.choice(PAYLOADS),
            metadata=chance.choice(METADATA),
        )
        if number % 10 == 9:
            made.hub.tick(EPOCH_SEC // 10)


def asked(scope: Sequence[str], **said: Any) -> Descriptor:
    """Return a descriptor, with an id that is always the same."""
    return normalize({"query_id": "q-1", "scope": list(scope), **said}, lambda: "q-1")
