"""Overlays behind the adapter: ids, bodies, and folds of given events."""

import json
from hashlib import sha256
from random import Random
from typing import Any

import pytest

from tests.overlays.histories import BRIDGE, HISTORIES
from tests.overlays.histories_wallet import OWN_STREAM
from veen.conformance.adapter import answer
from veen.core.crypto.hash import ZERO_32, tagged_hash
from veen.core.types import StreamId
from veen.overlays import registry
from veen.overlays.engine import Fold
from veen.overlays.engine import fold as fold_records
from veen.overlays.event import Record

ALICE = sha256(b"alice").hexdigest()


def ask(**request: Any) -> dict[str, Any]:
    return dict(json.loads(json.dumps(answer(json.dumps(request).encode()))))


def lww(seq: int, ts: int, value: str, **more: Any) -> dict[str, Any]:
    body = {"key": b"k".hex(), "ts": ts, "value": value.encode().hex()}
    fixed = {"stream_seq": seq, "client_id": ALICE, "client_seq": seq, "hub_ts": 1_700_000_000 + seq}
    return {**fixed, "schema": "crdt.lww.v1", "body": body, **more}


def test_a_fold() -> None:
    events = [lww(1, 1, "A"), lww(2, 2, "B"), lww(3, 1, "C")]
    found = ask(op="fold", overlay="crdt.lww", events=events)
    assert (found["ok"], found["state"], found["rejected"]) == (True, {"k": "B"}, [])
    assert found["state_hash"] == tagged_hash("veen/state-lww.map", bytes.fromhex("a1416b4142")).hex()
    assert ask(op="fold", overlay="crdt.lww", events=events, upto=1)["state"] == {"k": "A"}
    assert ask(op="fold", overlay="lww.map", events=events[::-1])["state_hash"] == found["state_hash"]
    assert (
        ask(op="fold", overlay="crdt.lww", events=[*events, events[0]])["state_hash"] == found["state_hash"]
    )


def test_what_is_wrong_with_an_event_is_told() -> None:
    events = [lww(1, 1, "A"), lww(2, 2, "B", body="a0"), lww(3, 3, "C", schema="00" * 32, body="")]
    found = ask(op="fold", overlay="crdt.lww", events=events)
    assert [(item["stream_seq"], item["code"]) for item in found["rejected"]] == [(2, "BODY.MISSING_KEY")]
    assert found["counts"] == {"events": 1, "duplicates": 0, "rejected": 1, "unknown": 1, "unreadable": 0}


@pytest.mark.parametrize("name", registry.names())
def test_every_overlay_folds_as_the_library_does(name: str) -> None:
    records = [record for record in HISTORIES[name](Random(5), 60) if record.schema is not None]
    records = [record._replace(stream_seq=nth) for nth, record in enumerate(records, 1)]
    overlay = registry.overlay_class(name)()
    asked: dict[str, Any] = {"events": list(map(event_of, records)), "bridges": [BRIDGE.hex()]}
    for stream in (ZERO_32, OWN_STREAM):
        expected = fold_records(overlay, records, StreamId(stream), frozenset({BRIDGE}))
        named = {} if stream == ZERO_32 else {"stream_id": stream.hex()}
        found = ask(op="fold", overlay=name, **asked, **named)
        assert found["ok"], found
        assert found["state_hash"] == Fold(overlay).state_hash(expected).hex()
        assert found["state"] == json.loads(json.dumps(Fold(overlay).view(expected)))
        assert found["rejected"] == [
            {"stream_seq": report.stream_seq, "code": report.code, "detail": report.detail}
            for report in expected.reports
        ]


def event_of(record: Record) -> dict[str, Any]:
    shown = {name: item.hex() if isinstance(item, bytes) else item for name, item in record._asdict().items()}
    return {name: item for name, item in shown.items() if item is not None}


def test_ids() -> None:
    wallet = ask(op="overlay_ids", realm="realm-x", ctx_id="22" * 32, currency="JPY")
    assert wallet["wallet_id"] == "e8699924c6a4a5d088b2fe8efd0b9f652190e83da85f84f8d42becc0400a64cd"
    assert wallet["wallet_stream"] == "d28b211bb167c0ff745302308f7fb8601ee29130a82b9e8c2d3bde0eb295a4bf"
    message = "101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f"
    assert ask(op="overlay_ids", msg_id=message)["operation_id"] == (
        "0b291b5d828323fb4427604f8875c0e97f8a14f2f05d08edba7fdfdae37a95dc"
    )
    transfer = ask(op="overlay_ids", label="11" * 32, client_id="22" * 32, client_seq=3)["transfer_id"]
    assert (
        transfer
        == tagged_hash("wallet/xfer", bytes([0x11] * 32 + [0x22] * 32) + (3).to_bytes(8, "big")).hex()
    )


def test_bodies() -> None:
    value = {"key": "6b", "ts": 1, "value": ""}
    made = ask(op="encode", type="crdt.lww.v1", value=value)["data"]
    assert ask(op="decode", type="crdt.lww.v1", data=made)["value"] == value
    assert ask(op="decode", type="crdt.lww.v1", data=made)["encoded"] == made
    swapped = "a3" + "627473" + "01" + "636b6579" + "416b" + "6576616c7565" + "40"
    refused = ask(op="decode", type="crdt.lww.v1", data=swapped)
    assert (refused["code"], refused["stage"]) == ("BODY.KEY_ORDER", "overlay")


@pytest.mark.parametrize(
    "request_",
    [
        {"op": "fold", "overlay": "nothing", "events": []},
        {"op": "fold", "overlay": "crdt.lww", "events": [1]},
        {"op": "fold", "overlay": "crdt.lww", "events": [{}]},
        {"op": "fold", "overlay": "crdt.lww", "events": [lww(1, 1, "A"), lww(1, 2, "B")]},
        {"op": "fold", "overlay": "wallet", "events": [], "stream_id": "00"},
        {"op": "overlay_ids"},
        {"op": "overlay_ids", "msg_id": "00"},
    ],
)
def test_bad_requests(request_: dict[str, Any]) -> None:
    assert ask(**request_)["code"] == "USAGE"
