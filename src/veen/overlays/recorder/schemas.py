"""Schemas of the recorder: events, checkpoints over all of its streams, changes of streams (SDR lines).

A time is in whole seconds since 1970, as the hub's is (QRY-008), up to the year 9999.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from veen.core.crypto.hash import tagged_hash
from veen.core.encoding.field_types import B32, BYTES, TEXT, UINT, ListOf, constant
from veen.core.encoding.shape import Field, Fields
from veen.core.errors import ProtocolError
from veen.core.merkle.mmr import Peaks
from veen.core.objects.receipt import Receipt
from veen.overlays.errors import InvalidBodyError
from veen.overlays.schema import ANY, ANY_MAP, Inner, Schema

# Name prefixes of recorder streams, and the streams that the recorder itself writes (SDR-004, SDR-008).
STREAMS: Final = "record/"
CHANGES_STREAM: Final = "record/infrastructure/changes"
CHECKPOINTS_STREAM: Final = "record/infrastructure/checkpoints"
# Ten years of 365.25 days: the default for "long term" (SDR-006).
LONG_TERM_SEC: Final = 315_576_000
# 9999-12-31T23:59:59Z.
LAST_TIME: Final = 253_402_300_799


def _has_date(body: Fields) -> None:
    if body["event_time"] > LAST_TIME:
        raise InvalidBodyError("SDR.EVENT_TIME", f"event_time {body['event_time']} is after the year 9999")


_EVENT_FIELDS: Final = (
    Field("subject_id", TEXT),
    # The key that signed the message, in hex; in a copy, the key that signed the original.
    Field("principal_id", TEXT),
    Field("event_type", TEXT),
    Field("event_time", UINT),
    Field("origin", TEXT),
    Field("payload", ANY),
    Field("metadata", ANY_MAP, optional=True),
)
EVENT: Final = Schema("recorder.event.v1", *_EVENT_FIELDS, checks=(_has_date,))


def _is_of_its_receipt(body: Fields) -> None:
    try:
        receipt = Receipt.decode(body["origin_receipt"])
    except ProtocolError as error:
        raise InvalidBodyError("SDR.ORIGIN_RECEIPT", f"origin_receipt is not a receipt: {error}") from None
    if receipt.stream_seq != body["origin_stream_seq"]:
        raise InvalidBodyError("SDR.ORIGIN_SEQ", "origin_stream_seq is not that of origin_receipt")


# A copy in another zone: the content of the event, and its origin (AGB-015, QRY-028, QRY-036).
IMPORTED: Final = Schema(
    "recorder.imported.v1",
    *_EVENT_FIELDS,
    Field("origin_stream", TEXT),
    Field("origin_epoch", UINT),
    Field("origin_stream_seq", UINT),
    Field("origin_hub_id", B32),
    Field("origin_receipt", BYTES),
    Field("import_time", UINT),
    Field("bridge_id", TEXT),
    checks=(_has_date, _is_of_its_receipt),
)

# One label of a recorder stream, up to the position that a checkpoint covers (SDR-013).
CHECKPOINTED: Final = Inner(
    "recorder.checkpoint.stream",
    Field("stream", TEXT),
    Field("epoch", UINT),
    Field("label", B32),
    Field("upto_seq", UINT),
    Field("mmr_root", B32),
    # Hash of the encoded CHECKPOINT that the hub signed.
    Field("checkpoint_hash", B32),
)


def log_root(streams: Iterable[Fields]) -> bytes:
    """Return the root over the entries of a checkpoint, in their order (SDR-013); zeros if there are none."""
    leaves = (tagged_hash("veen/recorder-checkpoint", CHECKPOINTED.write(entry)) for entry in streams)
    peaks = Peaks.empty().extend(leaves)[0]
    return bytes(peaks.root) if peaks.size else bytes(32)


def _is_of_its_streams(body: Fields) -> None:
    places = [(entry["stream"].encode(), entry["epoch"]) for entry in body["streams"]]
    if any(one >= other for one, other in pairwise(places)):
        raise InvalidBodyError(
            "SDR.CHECKPOINT_ORDER", "the streams are not sorted by name and epoch, or repeated"
        )
    if log_root(body["streams"]) != body["log_root"]:
        raise InvalidBodyError("SDR.LOG_ROOT", "log_root is not the root over streams")


CHECKPOINT: Final = Schema(
    "recorder.checkpoint.v1",
    Field("version", constant("sdr0")),
    Field("profile_id", B32),
    Field("hub_id", B32),
    Field("hub_public", B32),
    Field("created_at", UINT),
    Field("log_root", B32),
    Field("streams", ListOf(CHECKPOINTED)),
    checks=(_is_of_its_streams,),
)

# Kinds of changes, with the minimum and maximum number of resulting streams.
_INTO: Final = {"declare": (0, 0), "rename": (1, 1), "split": (2, None), "retire": (0, 0)}


def _is_a_change(body: Fields) -> None:
    kind, into = body["change"], body.get("into") or ()
    if kind not in _INTO:
        raise InvalidBodyError("SDR.CHANGE", f"a change is one of {', '.join(_INTO)}, not {kind!r}")
    min_streams, max_streams = _INTO[kind]
    named = [body["stream"], *into]
    if (
        len(into) < min_streams
        or (max_streams is not None and len(into) > max_streams)
        or len(set(named)) != len(named)
    ):
        raise InvalidBodyError(
            "SDR.INTO", f"a change {kind!r} of {body['stream']} cannot have the targets {list(into)}"
        )
    if not all(name.startswith(STREAMS) for name in named):
        raise InvalidBodyError("SDR.STREAM", f"the name of a recorder stream begins with {STREAMS}")


# Declaration, rename, split and retirement of a stream (SDR-008).
CHANGE: Final = Schema(
    "recorder.change.v1",
    # declare, rename, split or retire.
    Field("change", TEXT),
    Field("stream", TEXT),
    Field("into", ListOf(TEXT), optional=True),
    Field("event_types", ListOf(TEXT), optional=True),
    Field("retention_hint", UINT, optional=True),
    Field("change_time", UINT),
    Field("reason", TEXT, optional=True),
    checks=(_is_a_change,),
)
