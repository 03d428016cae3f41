"""Opening entries: from verified bytes to the table of records, with the keys that a reader has.

What a reader sees of an entry here is what ``veen.client.reading`` shows of it, word for word. Nothing that a
sender can write raises: an entry that can not be read is a row with a reason.
"""

import pickle
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from veen.client.bodies import attachments_of, decode_body
from veen.core import attachments as att
from veen.core.errors import Detail, ProtocolError
from veen.core.hpke import ReaderKey
from veen.core.limits import DEFAULT_LIMITS, Limits
from veen.core.msg import Msg
from veen.core.payload import PayloadHeader
from veen.core.profile import Profile
from veen.core.sealing import Opened, open_msg
from veen.core.types import Label, ProfileId, StreamId
from veen.pipeline.frames import Entries, binary, parse
from veen.pipeline.kernel import Level, check
from veen.pipeline.keyring import Keyring, ReaderKeys, SharedKeys, load_keyring, sharing
from veen.pipeline.records import RECORDS, RECORDS_SCHEMA, U64

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from veen.pipeline.logs import Log
    from veen.pipeline.parts import Part

__all__ = [
    "Keyring",
    "Opener",
    "ReaderKeys",
    "SharedKeys",
    "load_keyring",
    "open_entries",
    "open_records",
    "sharing",
]

SEALED: Final = "sealed for somebody else"
#: The key does not fit: another one may.
_NOT_THIS_KEY: Final = (Detail.HDR_AEAD, Detail.DH_ZERO)


class Content(NamedTuple):
    """What a message says to us; no header if it does not."""

    header: PayloadHeader | None
    body: bytes
    reason: str | None


class Opener:
    """Opens the messages of a stream with any key that fits; the last one that did is tried first."""

    def __init__(
        self, keys: Iterable[ReaderKey], profiles: Iterable[Profile], limits: Limits = DEFAULT_LIMITS
    ) -> None:
        self._keys = list(keys)
        self._pad_blocks: dict[bytes, int] = {item.profile_id: item.pad_block for item in profiles}
        self._limits = limits

    def open(self, msg: Msg) -> Content:
        """Open a message that was checked."""
        try:
            pad_block = self._pad_block(msg.profile_id)
            opened = self._open(msg, pad_block)
        except ProtocolError as error:
            return Content(None, b"", f"does not open: {error}")
        if opened is None:
            return Content(None, b"", SEALED)
        return Content(opened.header, opened.body, _problem(msg, opened))

    def _pad_block(self, profile_id: ProfileId) -> int:
        found = self._pad_blocks.get(profile_id)
        if found is None:
            text = f"the hub does not serve profile {profile_id.hex()}"
            raise ProtocolError(Detail.PROFILE, text, field="profile_id")
        return found

    def _open(self, msg: Msg, pad_block: int) -> Opened | None:
        for nth, key in enumerate(self._keys):
            try:
                opened = open_msg(msg, key, pad_block=pad_block, limits=self._limits)
            except ProtocolError as error:
                if error.detail not in _NOT_THIS_KEY:
                    raise
                continue
            if nth:
                self._keys.insert(0, self._keys.pop(nth))
            return opened
        return None


def _problem(msg: Msg, opened: Opened) -> str | None:
    """Check what only a reader can: a sender may have written anything."""
    try:
        opened.header.verify_cap_ref(msg.auth_ref)
        listed = attachments_of(decode_body(opened.body))
        att.verify_root(opened.header.att_root, [item.coid for item in listed])
    except ProtocolError as error:
        return str(error)
    return None


def open_entries(
    entries: Entries,
    keys: ReaderKeys,
    profiles: Iterable[Profile],
    stream_id: StreamId | None,
    epoch: int,
) -> pa.RecordBatch:
    """Open entries that were checked: a row for each, opened or with the reason why not."""
    opener = Opener(keys.of(stream_id), profiles)
    contents = [opener.open(Msg.decode(entries.msg_bytes(nth))) for nth in range(len(entries))]
    return pa.RecordBatch.from_arrays(
        [*_positions(entries, stream_id, epoch), *_said(contents)], schema=RECORDS
    )


def _positions(entries: Entries, stream_id: StreamId | None, epoch: int) -> Iterator[pa.Array]:
    count = len(entries)
    yield _repeated(stream_id, count, pa.binary())
    yield _repeated(epoch, count, pa.int64())
    yield _repeated(bytes(entries.frames.label), count, pa.binary())
    yield pa.array(entries.stream_seq)
    yield binary(entries.leaf_hash)
    yield binary(entries.client_id)
    yield pa.array(entries.client_seq)
    yield pa.array(entries.hub_ts)
    yield binary(entries.auth_ref, entries.has_auth_ref)


def _repeated(value: Any, count: int, kind: pa.DataType) -> pa.Array:  # noqa: ANN401 - of any column
    return pa.repeat(pa.scalar(value, kind), count)


def _said(contents: list[Content]) -> Iterator[pa.Array]:
    for name in ("schema", "parent_id", "cap_ref", "att_root"):
        values = [None if item.header is None else getattr(item.header, name) for item in contents]
        yield pa.array(values, pa.binary())
    expiries = [None if item.header is None else item.header.expires_at for item in contents]
    yield pa.array([None if item is None else Decimal(item) for item in expiries], U64)
    yield pa.array([item.body for item in contents], pa.binary())
    yield pa.array([item.reason for item in contents], pa.string())


def open_records(
    spark: "SparkSession",
    log: "Log",
    stream: StreamId,
    keys: SharedKeys,
    *,
    ranges: Mapping[Label, tuple[int, int]] | None = None,
    parts: int = 1,
) -> "DataFrame":
    """Return the entries of a stream, opened; with ``ranges``, only these of these labels.

    Entries are compared with their hashes where they are read. Whether they are the log is for ``verifying``
    to say. The keys must be shared for as long as the table is used.
    """
    epochs = {label: epoch for epoch, label in log.labels_of(stream).items()}
    heads = {label: head for label, head in log.heads().items() if label in epochs}
    whole = {label: (head.first_seq, head.last_seq) for label, head in heads.items()}
    wanted = whole if ranges is None else {label: span for label, span in ranges.items() if label in epochs}
    planned = log.plan(wanted, parts=parts) if wanted else []
    profiles = tuple(log.profiles)
    rows = [(nth, pickle.dumps(part)) for nth, part in enumerate(planned)]
    listed = spark.createDataFrame(rows, "nth int, part binary").repartitionByRange(max(len(rows), 1), "nth")
    return listed.mapInArrow(lambda given: _opened(given, keys, profiles, stream, epochs), RECORDS_SCHEMA)


def _opened(
    given: Iterable[pa.RecordBatch],
    keys: SharedKeys,
    profiles: tuple[Profile, ...],
    stream: StreamId,
    epochs: Mapping[Label, int],
) -> Iterator[pa.RecordBatch]:
    reading = keys.open()
    for batch in given:
        for data in batch.column("part").to_pylist():
            part: Part = pickle.loads(data)  # noqa: S301 - our own driver has made it
            entries = parse(part.read())
            for fault in check(entries, Level.FRAMES).faults:
                at = int(entries.starts[fault.seq - part.first_seq])
                raise entries.frames.refused(fault.seq, at, fault.detail, fault.text)
            yield open_entries(entries, reading, profiles, stream, epochs[part.label])
