"""Random histories of the recorder's streams, and of the classes of labels; and what they amount to."""

from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

import cbor2

from tests import builders as make
from tests.overlays.logs import T0, WRITERS, Log, ident, spoil
from tests.overlays.reference_decoder import bodies, name_id
from veen.overlays.control.label_class import CLASS
from veen.overlays.event import Record
from veen.overlays.recorder.schemas import CHANGE, CHECKPOINT, EVENT, IMPORTED, log_root

NAMES = ["record/a", "record/b", "record/c"]
TYPES = ["login", "logout", "order"]
#: Receipts of some entries of another hub.
RECEIPTS = [make.receipt(stream_seq=seq) for seq in range(1, 8)]


def event_body(principal: bytes, **more: Any) -> dict[str, Any]:
    """Return what an event of somebody says."""
    return {
        "subject_id": "somebody",
        "principal_id": principal.hex(),
        "event_type": "login",
        "event_time": T0,
        "origin": "test",
        "payload": {"n": 1},
        **more,
    }


def _checkpointed(rng: Random) -> list[dict[str, Any]]:
    return [
        {
            "stream": name,
            "epoch": epoch,
            "label": ident("label", name, epoch),
            "upto_seq": rng.randrange(1, 50),
            "mmr_root": ident("root", name),
            "checkpoint_hash": ident("checkpoint", name),
        }
        for name in NAMES[: rng.randrange(4)]
        for epoch in range(rng.randrange(1, 3))
    ]


def _changed(rng: Random) -> dict[str, Any]:
    kind = rng.choice(["declare", "declare", "rename", "split", "retire"])
    names = rng.sample(NAMES, 3)
    into = {"rename": (names[1],), "split": tuple(names[1:])}.get(kind)
    types = rng.choice([None, (), tuple(rng.sample(TYPES, 2))])
    return {
        "change": kind,
        "stream": names[0],
        "into": into,
        "event_types": types,
        "retention_hint": rng.choice([None, 0, 60]),
        "change_time": T0,
    }


def recorder(rng: Random, count: int) -> list[Record]:
    """Events with true and false principals, copies, checkpoints and changes, in one stream."""
    log = Log(rng)
    while len(log.records) < count:
        writer, kind = rng.choice(WRITERS), rng.random()
        if kind < 0.15:
            spoil(log, (EVENT, IMPORTED, CHECKPOINT, CHANGE), by_parent=False)
        elif kind < 0.55:
            said = event_body(rng.choice([writer, writer, WRITERS[0]]), event_type=rng.choice(TYPES))
            if rng.random() < 0.5:
                said["metadata"] = {"trace": "x"}
            log.event(EVENT, client_id=writer, **said)
        elif kind < 0.7:
            receipt = rng.choice(RECEIPTS)
            log.event(
                IMPORTED,
                **event_body(ident("far away")),
                origin_stream=rng.choice(NAMES),
                origin_epoch=rng.randrange(2),
                origin_stream_seq=receipt.stream_seq,
                origin_hub_id=ident("far hub"),
                origin_receipt=receipt.encode(),
                import_time=T0,
                bridge_id="bridge",
            )
        elif kind < 0.8:
            streams = tuple(_checkpointed(rng))
            log.event(
                CHECKPOINT,
                version="sdr0",
                profile_id=ident("profile"),
                hub_id=ident("hub"),
                hub_public=ident("hub key"),
                created_at=T0 + rng.randrange(100),
                log_root=log_root(streams),
                streams=streams,
            )
        else:
            log.event(CHANGE, **_changed(rng))
    return log.records[:count]


def label_class(rng: Random, count: int) -> list[Record]:
    """Few labels, many words on them."""
    log = Log(rng)
    while len(log.records) < count:
        if rng.random() < 0.3:
            spoil(log, (CLASS,), by_parent=False)
            continue
        said: dict[str, Any] = {
            "label": ident("label", rng.randrange(4)),
            "class": rng.choice(["user", "record"]),
            "sensitivity": rng.choice([None, "low", "high"]),
            "retention_hint": rng.choice([None, 0, 2**40]),
        }
        log.event(CLASS, **said)
    return log.records[:count]


# --- references ---------------------------------------------------------------------------------------------


def _prefixed(name: str) -> bytes:
    return name_id(f"veen/schema:{name}")


_READ = {_prefixed(f"recorder.{name}.v1"): name for name in ("event", "imported", "checkpoint", "change")}


class _Recorded:
    """The state of the recorder, as one event after the other changes it."""

    def __init__(self) -> None:
        self.covered: dict[int, list[int]] = {}
        self.types: dict[str, list[Any]] = {}
        self.principals: dict[str, list[Any]] = {}
        self.imported: dict[tuple[bytes, str, int], list[int]] = {}
        self.checkpoints: list[Any] = []
        self.admins: dict[str, list[Any]] = {}
        self.streams: dict[str, dict[str, Any]] = {}

    def event(self, body: dict[str, Any], record: Record) -> None:
        if body["principal_id"] != record.client_id.hex():
            return
        place = _place(record)
        self.covered.setdefault(record.epoch, []).append(record.stream_seq)
        self.types.setdefault(body["event_type"], []).append(place)
        self.principals.setdefault(body["principal_id"], []).append(place)

    def copied(self, body: dict[str, Any], record: Record) -> None:
        del record
        key = (body["origin_hub_id"], body["origin_stream"], body["origin_epoch"])
        self.imported.setdefault(key, []).append(body["origin_stream_seq"])

    def checkpoint(self, body: dict[str, Any], record: Record) -> None:
        self.checkpoints.append(
            {
                "stream_seq": record.stream_seq,
                "created_at": body["created_at"],
                "log_root": body["log_root"].hex(),
                "profile_id": body["profile_id"].hex(),
                "events": sum(entry["upto_seq"] for entry in body["streams"]),
            }
        )

    def change(self, body: dict[str, Any], record: Record) -> None:
        self.admins.setdefault(record.client_id.hex(), []).append(_place(record))
        kind, into = body["change"], body.get("into") or []
        types = sorted(set(body.get("event_types") or []))
        declared = {
            "state": "declared",
            "into": [],
            "event_types": types,
            "retention_hint": body.get("retention_hint"),
        }
        gone: dict[str, Any] = {"into": into, "event_types": [], "retention_hint": None}
        if kind == "declare":
            self.streams[body["stream"]] = declared
        elif kind == "retire":
            self.streams[body["stream"]] = {"state": "retired", **gone}
        elif kind == "split":
            self.streams[body["stream"]] = {"state": "split", **gone}
        else:
            self.streams[body["stream"]] = {"state": "renamed", **gone}
            self.streams[into[0]] = declared

    def view(self) -> Any:
        shared: dict[str, list[str]] = {}
        for stream, said in _sorted(self.streams):
            for each in said["event_types"]:
                shared.setdefault(each, []).append(stream)
        return {
            "covered": [
                {"epoch": epoch, "events": len(seqs), "first_seq": min(seqs), "last_seq": max(seqs)}
                for (epoch,), seqs in _sorted({(key,): seqs for key, seqs in self.covered.items()})
            ],
            "types": {key: _run(places) for key, places in _sorted(self.types)},
            "principals": {key: _run(places) for key, places in _sorted(self.principals)},
            "admins": {key: _run(places) for key, places in _sorted(self.admins)},
            "imported": [
                {
                    "origin_hub_id": hub.hex(),
                    "origin_stream": stream,
                    "origin_epoch": epoch,
                    "copies": len(seqs),
                    "first_seq": min(seqs),
                    "last_seq": max(seqs),
                }
                for (hub, stream, epoch), seqs in _sorted(self.imported)
            ],
            "checkpoints": {"count": len(self.checkpoints), **_last(self.checkpoints)},
            "streams": dict(_sorted(self.streams)),
            "shared_types": {key: shared[key] for key in sorted(shared) if len(shared[key]) > 1},
        }


def _place(record: Record) -> dict[str, int]:
    return {"hub_ts": record.hub_ts, "epoch": record.epoch, "stream_seq": record.stream_seq}


def _sorted(found: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    return sorted(found.items(), key=lambda row: cbor2.dumps(row[0]))


def _run(places: list[Any]) -> dict[str, Any]:
    return {"events": len(places), "first": places[0], "last": places[-1]}


def _last(found: list[Any]) -> dict[str, Any]:
    return {"last": found[-1]} if found else {}


def _recorded(records: Iterable[Record]) -> Any:
    state = _Recorded()
    enter = {
        "event": state.event,
        "imported": state.copied,
        "checkpoint": state.checkpoint,
        "change": state.change,
    }
    for name, body, record, _ in bodies(records, _READ):
        if body and "key" not in body:  # what is spoilt has no fields, or one of no schema here
            enter[name](body, record)
    return state.view()


def _classed(records: Iterable[Record]) -> Any:
    classes: dict[bytes, Any] = {}
    for _, body, record, _ in bodies(records, {name_id("veen.label.class.v1"): "class"}):
        if "label" in body:
            classes[body["label"]] = {
                "label": body["label"].hex(),
                "class": body["class"],
                "sensitivity": body.get("sensitivity"),
                "retention_hint": body.get("retention_hint"),
                "client_id": record.client_id.hex(),
            }
    return [said for _, said in _sorted(classes)]


RECORDER_HISTORIES = {"recorder": recorder, "label.class": label_class}
RECORDER_REFERENCES = {"recorder": _recorded, "label.class": _classed}
