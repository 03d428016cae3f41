"""Replay: the events of a range of positions or time, in order, with receipts and proofs (SDR-014 to 017)."""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from veen.client.client import Client
from veen.client.fold.incremental import record_of
from veen.client.models import Message
from veen.client.read import ReadOptions, read_stream
from veen.client.verify.label import fetch_receipt
from veen.core.api.data_plane import ProofResponse
from veen.core.api.tooling import ProofAtRequest
from veen.core.errors import Detail, ProtocolError
from veen.core.objects import labels
from veen.core.types import Label
from veen.overlays.errors import InvalidBodyError
from veen.overlays.event import Decoder
from veen.overlays.recorder.overlay import Recorder
from veen.overlays.recorder.schemas import EVENT
from veen.recorder.checkpoint import Manifest, Vouched, check_stored, last_seq
from veen.recorder.configuration import stream_labels
from veen.recorder.errors import ManifestError, RangeError
from veen.stdx.grammar import counted


@dataclass(frozen=True, slots=True)
class Recorded:
    """A verified entry of a recorder stream, and its event if it is a readable one."""

    stream: str
    message: Message
    # The name of its schema and its fields; None for other schemas, or if sealed for other readers.
    schema: str | None
    body: dict[str, Any] | None
    # Why it does not count; None if it counts.
    problem: str | None = None

    @property
    def order(self) -> tuple[int, bytes, int, int]:
        """The sort key for events of several streams (SDR-016)."""
        message = self.message
        return (message.receipt.hub_ts, self.stream.encode(), message.epoch, message.position)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, with the fields of the commit (SDR-001) and its receipt."""
        receipt = self.message.receipt
        return {
            "stream": self.stream,
            "epoch": self.message.epoch,
            "hub_commit_seq": receipt.stream_seq,
            "hub_commit_time": receipt.hub_ts,
            "msg_id": receipt.leaf_hash.hex(),
            "client_id": self.message.sender.hex(),
            "problem": self.problem,
            "schema": self.schema,
            "event": self.body,
            "receipt": receipt.encode().hex(),
        }


_DECODER: Final = Decoder(Recorder.schemas)


def recorded(stream: str, message: Message) -> Recorded:
    """Return an entry as an event; one whose principal is not its signer has a problem."""
    if not message.is_open:
        return Recorded(stream, message, None, None, message.problem)
    record = record_of(message)
    schema = _DECODER.schema_of(record)
    if schema is None:
        return Recorded(stream, message, None, None, "not of the recorder")
    try:
        body = _DECODER.decode(record, schema)
    except InvalidBodyError as error:
        return Recorded(stream, message, schema.name, None, f"{error.code}: {error}")
    body_json = schema.to_json(body)
    if schema is EVENT and body["principal_id"] != message.sender.hex():
        return Recorded(
            stream, message, schema.name, body_json, "SDR.PRINCIPAL_MISMATCH: another key signed the message"
        )
    return Recorded(stream, message, schema.name, body_json)


# --- by number ----------------------------------------------------------------------------------------------


def replay_range(
    client: Client, stream: str, from_seq: int, to_seq: int, epoch: int | None = None
) -> Iterator[Recorded]:
    """Yield the entries of a range, both ends included, counted from 1; raise RangeError for a bad range."""
    if from_seq < 1 or to_seq < from_seq:
        raise RangeError(
            f"a range starts at 1 or later and ends at its start or later: not {from_seq} to {to_seq}"
        )
    epochs = dict(stream_labels(client, stream))
    if epoch is None:
        if len(epochs) > 1:
            raise RangeError(
                f"{stream} has entries in {len(epochs)} epochs, and positions start again in each; "
                f"pass one of {', '.join(map(str, list(epochs)[-5:]))}"
            )
        epoch = next(iter(epochs), 0)
    if epoch not in epochs:
        raise RangeError(f"{stream} has no entries in epoch {epoch}")
    head = last_seq(client, epochs[epoch])
    if to_seq > head:
        raise RangeError(f"{stream} ends at entry {head}, before {to_seq}")
    return _read(client, stream, epoch, from_seq, to_seq)


def _read(client: Client, stream: str, epoch: int, first: int, last: int) -> Iterator[Recorded]:
    """Yield exactly these entries; a missing one is an error (SDR-022)."""
    expected = first
    for message in read_stream(client, stream, ReadOptions(start=first, stop=last, epoch=epoch, peek=True)):
        yield recorded(stream, message)
        expected += 1
    if expected != last + 1:
        raise ProtocolError(
            Detail.PROOF_SEQ,
            f"{stream} has no entry {expected}, although later ones were announced",
            stream_seq=expected,
        )


# --- by time ------------------------------------------------------------------------------------------------


def replay_time(client: Client, streams: Iterable[str], start_time: int, end_time: int) -> Iterator[Recorded]:
    """Yield the entries that the hub accepted in a time range, ends included, in one order (SDR-015, 016).

    First and last are found by bisection over receipts: hub time never goes backwards.
    """
    if end_time < start_time:
        raise RangeError(f"the end time {end_time} is before the start time {start_time}")
    parts = []
    for stream in sorted(set(streams), key=str.encode):
        for epoch, label in stream_labels(client, stream):
            head = last_seq(client, label)
            first = 1 + client.run(count_before(client, label, head, start_time))
            last = client.run(count_before(client, label, head, end_time + 1))
            if first <= last:
                parts.append(_read_within(client, (stream, epoch), (first, last), (start_time, end_time)))
    return heapq.merge(*parts, key=lambda entry: entry.order)


async def count_before(client: Client, label: Label, head: int, time: int) -> int:
    """Return how many entries of a label the hub accepted before a time."""
    low, high = 0, head
    while low < high:
        middle = (low + high + 1) // 2
        receipt = await fetch_receipt(client.session, label, middle)
        if receipt is None:  # although a later one exists (SDR-022)
            raise ProtocolError(Detail.PROOF_SEQ, f"there is no entry {middle}", stream_seq=middle)
        if receipt.hub_ts < time:
            low = middle
        else:
            high = middle - 1
    return low


def _read_within(
    client: Client, of: tuple[str, int], span: tuple[int, int], time: tuple[int, int]
) -> Iterator[Recorded]:
    before = time[0]
    for entry in _read(client, *of, *span):
        when = entry.message.receipt.hub_ts
        if not before <= when <= time[1]:
            raise ProtocolError(
                Detail.VALUE,
                f"hub time goes backwards in {of[0]}: {when} after {before}",
                stream_seq=entry.message.position,
            )
        before = when
        yield entry


# --- proofs -------------------------------------------------------------------------------------------------


def proven(
    client: Client, manifest: Manifest, streams: Iterable[str], entries: Iterable[Recorded]
) -> Iterator[Recorded]:
    """Yield entries that a checkpoint covers, each proven; an unproven one is an error (SDR-017).

    The log must contain everything that the checkpoint covers of these streams, including what is not among
    ``entries``: a missing entry is never skipped (SDR-022).
    """
    manifest.verify_hub(client.connect().identity)
    names = set(streams)
    vouched = {entry.place: entry for entry in manifest.streams if entry.stream in names}
    for entry in vouched.values():
        _check_whole(client, entry)
    for item in entries:
        client.run(prove(client, vouched.get((item.stream, item.message.epoch)), item))
        yield item


def _check_whole(client: Client, entry: Vouched) -> None:
    """Check that a label reaches the position that a checkpoint states, with the root that the hub signed."""
    place = (entry.stream, entry.epoch, entry.upto_seq)
    label = client.session.label(labels.stream_id(entry.stream), entry.epoch)
    if entry.label != label:
        raise ManifestError("the checkpoint names another label", *place)
    receipt = client.run(fetch_receipt(client.session, label, entry.upto_seq))
    if receipt is None:
        text = f"the checkpoint covers {counted(entry.upto_seq, 'entry')}, but the log lacks the last one"
        raise ManifestError(text, *place)
    try:
        if receipt.mmr_root != entry.mmr_root:
            raise ProtocolError(Detail.CHECKPOINT_ROOT, "the log leads to another root", field="mmr_root")  # noqa: TRY301 - as a false root is
        check_stored(client, entry)
    except ProtocolError as error:
        raise ManifestError(f"the checkpoint is not proven: {error}", *place) from None


async def prove(client: Client, vouched: Vouched | None, item: Recorded) -> None:
    """Check the inclusion of an entry in the root that a checkpoint covers, and so in its log_root."""
    receipt = item.message.receipt
    place = (item.stream, item.message.epoch, receipt.stream_seq)
    if vouched is None or vouched.upto_seq < receipt.stream_seq:
        upto = 0 if vouched is None else vouched.upto_seq
        text = f"the checkpoint covers {counted(upto, 'entry')}, but not entry {receipt.stream_seq}"
        raise ManifestError(text, *place)
    asked = ProofAtRequest(label=receipt.label, stream_seq=receipt.stream_seq, upto_seq=vouched.upto_seq)
    proof = (await client.session.ask(asked, ProofResponse)).mmr_proof
    try:
        proof.verify(
            vouched.mmr_root, receipt.leaf_hash, stream_seq=receipt.stream_seq, mmr_size=vouched.upto_seq
        )
    except ProtocolError as error:
        raise ManifestError(f"entry {receipt.stream_seq} is not proven: {error}", *place) from None
