"""Reference folds: one event after the other, written from the specification, without summaries or merging.

They know nothing of ``veen.overlays`` but the records: bodies are decoded with another library. Each returns
the state as ``Overlay.view`` gives it. One function for each overlay, added to ``REFERENCES``.
"""

from collections.abc import Iterable
from typing import Any

import cbor2

from tests.overlays.histories_recorder import RECORDER_REFERENCES
from tests.overlays.reference_decoder import Reference, bodies, name_id
from tests.overlays.reference_operations import OPERATION_REFERENCES
from tests.overlays.reference_wallet import STREAM_REFERENCES, WALLET_REFERENCES
from veen.overlays.event import Record


def _text(data: bytes) -> str:
    return data.decode()


def lww(records: Iterable[Record]) -> Any:
    best: dict[bytes, tuple[int, int, bytes]] = {}
    for _, body, record, _ in bodies(records, {name_id("crdt.lww.v1"): "lww"}):
        if list(body) != ["key", "ts", "value"]:
            continue
        key, new = body["key"], (body["ts"], record.stream_seq, body["value"])
        if key not in best or new[:2] > best[key][:2]:
            best[key] = new
    return {_text(key): _text(best[key][2]) for key in sorted(best, key=cbor2.dumps)}


def orset(records: Iterable[Record]) -> Any:
    adds: dict[bytes, bytes] = {}
    tombs: set[bytes] = set()
    for _, body, _, _ in bodies(records, {name_id("crdt.orset.v1"): "orset"}):
        if list(body) == ["id", "elem"]:
            adds.setdefault(body["id"], body["elem"])
        elif list(body) == ["tomb"]:
            tombs.update(body["tomb"])
    return sorted({_text(elem) for one, elem in adds.items() if one not in tombs})


def counter(records: Iterable[Record]) -> Any:
    shards: dict[bytes, int] = {}
    for _, body, _, _ in bodies(records, {name_id("crdt.gcnt.v1"): "gcnt"}):
        if list(body) == ["shard", "delta"]:
            shards[body["shard"]] = shards.get(body["shard"], 0) + body["delta"]
    return {"total": sum(shards.values()), "shards": {shard.hex(): shards[shard] for shard in sorted(shards)}}


def _is_request(body: dict[str, Any]) -> bool:
    order = ["method", "args", "timeout_ms", "reply_to", "idem"]
    return [name for name in order if name in body] == list(body) and {"method", "args"} <= set(body)


def _is_reply(body: dict[str, Any]) -> bool:
    return list(body) in (["ok", "result"], ["ok", "error"]) and body["ok"] == ("result" in body)


def rpc(records: Iterable[Record]) -> Any:
    calls: dict[tuple[Any, ...], dict[str, Any]] = {}
    replies: dict[bytes, Any] = {}
    names = {name_id("rpc.v1"): "request", name_id("rpc.res.v1"): "reply"}
    for name, body, record, canonical in bodies(records, names):
        if name == "request" and _is_request(body):
            idem = body.get("idem")
            key = (canonical,) if idem is None else (body["method"], record.client_id, idem)
            said = (body["method"], body["args"])
            call = calls.setdefault(key, {"said": said, "request": canonical, "seq": record.stream_seq})
            call["reused"] = call.get("reused", False) or call["said"] != said
            call["idem"] = idem
        elif name == "reply" and _is_reply(body) and record.parent_id is not None:
            replies.setdefault(record.parent_id, body)
    return [
        {
            "request": call["request"].hex(),
            "stream_seq": call["seq"],
            "method": call["said"][0],
            "idem": call["idem"],
            "reply": replies.get(call["request"]),
            "reused": call["reused"],
        }
        for call in calls.values()
    ]


REFERENCES: dict[str, Reference] = {
    "crdt.lww": lww,
    "crdt.orset": orset,
    "crdt.gcnt": counter,
    "rpc": rpc,
    **OPERATION_REFERENCES,
    **WALLET_REFERENCES,
    **RECORDER_REFERENCES,
}


def refer(name: str, records: Iterable[Record], stream_id: bytes) -> Any:
    """Return the state of a stream, by the reference of an overlay."""
    if name in STREAM_REFERENCES:
        return STREAM_REFERENCES[name](records, stream_id)
    return REFERENCES[name](records)
