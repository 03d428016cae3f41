"""Read operations on a log: pages, receipts, proofs, checkpoints. For a hub, or on its files alone.

All lookups go through the index; nothing here waits for the sequencer. Thread-safe.

A stream has a label for each of its epochs (C-42).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from veen.core.api.data_plane import (
    CheckpointResponse,
    ProofRequest,
    ProofResponse,
    ReceiptRequest,
    StreamRequest,
    SubmitResponse,
)
from veen.core.api.tooling import (
    CheckpointLatestRequest,
    CheckpointRangeRequest,
    CheckpointRangeResponse,
    ConsistencyRequest,
    ConsistencyResponse,
    EquivocationRequest,
    EquivocationResponse,
    ProofAtRequest,
    StreamEpochsRequest,
    StreamEpochsResponse,
)
from veen.core.encoding import cbor
from veen.core.errors import Code, Detail, ProtocolError, bad_request, not_found
from veen.core.objects import labels
from veen.core.objects.hub_identity import HubIdentity
from veen.core.objects.receipt import Receipt
from veen.core.types import Label, RoutingKey, StreamId
from veen.storage.read.reader import Reader
from veen.version import __version__

if TYPE_CHECKING:
    from veen.core.objects.checkpoint import Checkpoint


def epochs_of(reader: Reader, routing: RoutingKey, stream: StreamId) -> list[int]:
    """Return the epochs in which a stream has entries, ascending.

    Where labels never change, a hub may not know the stream of a label, so epoch 0 is checked by its label.
    """
    bound = (reader.binding(label) for label in reader.labels_of(stream))
    epochs = {binding.epoch for binding in bound if binding is not None}
    if reader.last_seq(labels.label(routing, stream, 0)):
        epochs.add(0)
    return sorted(epochs)


SERVER_VERSION: Final = __version__
_VERSION_TEXT: Final = cbor.write_text(SERVER_VERSION)
# Maximum of epochs that one request for checkpoints reads, and of checkpoints that it returns.
_MAX_EPOCHS: Final = 1024
_MAX_CHECKPOINTS: Final = 256
_MAX_LISTED_EPOCHS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PageBounds:
    """Maximum size of a page."""

    max_items: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class _Range:
    """The entries of a request: ``start`` to ``end``, of a label whose last entry is ``head``."""

    start: int
    end: int
    head: int

    @property
    def is_empty(self) -> bool:
        return self.start > self.end


class ReadRequests:
    """The read operations."""

    def __init__(self, reader: Reader, identity: HubIdentity, bounds: PageBounds) -> None:
        self._reader = reader
        self._bounds = bounds
        self.identity = identity
        self._reserved = {labels.authorize_label(identity.hub_id), labels.control_label(identity.hub_id)}

    # --- pages ----------------------------------------------------------------------------------------------

    def waits(self, request: StreamRequest) -> bool:
        """Return whether a request is for entries that do not exist yet."""
        self._check(request)
        start = max(request.from_seq if request.cursor is None else request.cursor, 1)
        bound = request.to_seq is not None and request.to_seq < start
        return not bound and start > self._reader.last_seq(request.label)

    def page(self, request: StreamRequest) -> bytes:
        """Return an encoded page, built from stored bytes: messages are not decoded."""
        span = self._range(request)
        items: list[bytes] = []
        size, seq = 0, span.start - 1
        for seq, msg, receipt in self._frames(request.label, span):
            item = b"\x01" + cbor.write_uint(seq) + b"\x02" + msg
            item = b"\xa3" + item + b"\x03" + receipt if request.with_receipts else b"\xa2" + item
            items.append(item)
            size += len(item)
            if size >= self._bounds.max_bytes:
                break
        fields = [
            b"\x01\x01",
            b"\x02" + cbor.write_bytes(request.label),
            b"\x03" + cbor.write_uint(span.start),
        ]
        if request.to_seq is not None:
            fields.append(b"\x04" + cbor.write_uint(min(request.to_seq, span.head)))
        fields.append(b"\x05" + cbor.head(cbor.MAJOR_ARRAY, len(items)) + b"".join(items))
        bound = span.head if request.to_seq is None else min(request.to_seq, span.head)
        if items and seq < bound:
            fields.append(b"\x06" + cbor.write_uint(seq + 1))
        if items and request.with_mmr_proof:
            fields.append(b"\x07" + self._reader.prove(request.label, seq).encode())
        fields.append(b"\x08" + _VERSION_TEXT)
        return cbor.head(cbor.MAJOR_MAP, len(fields)) + b"".join(fields)

    def sequence(self, label: Label, start: int, *, with_proof: bool) -> bytes:
        """Return a page for older clients: a sequence of {1: receipt, 2: msg, 3: mmr_proof?} (C-70)."""
        span = self._range(StreamRequest(label=label, from_seq=start))
        parts: list[bytes] = []
        size = 0
        for seq, msg, receipt in self._frames(label, span):
            item = b"\x01" + receipt + b"\x02" + msg
            if with_proof:
                item = b"\xa3" + item + b"\x03" + self._reader.prove(label, seq).encode()
            else:
                item = b"\xa2" + item
            parts.append(item)
            size += len(item)
            if size >= self._bounds.max_bytes:
                break
        return b"".join(parts)

    def _frames(self, label: Label, span: _Range) -> Iterator[tuple[int, bytes, bytes]]:
        if span.is_empty:
            return
        seq = span.start
        for stored in self._reader.entries(label, span.start, span.end):
            yield seq, stored.frame.msg_bytes, stored.frame.receipt_bytes
            seq += 1

    def _check(self, request: StreamRequest) -> None:
        """Raise if a request is invalid independently of the log (C-72)."""
        if request.label in self._reserved:
            raise ProtocolError(
                Detail.VALUE,
                "the label belongs to a log of the hub itself",
                code=Code.FORBIDDEN,
                field="label",
            )
        if request.max_items == 0:
            raise bad_request("max_items", "max_items must be at least 1")
        if (
            request.cursor is None
            and request.to_seq is not None
            and max(request.from_seq, 1) > request.to_seq
        ):
            raise bad_request("to_seq", "from_seq is beyond to_seq")

    def _range(self, request: StreamRequest) -> _Range:
        """Return the range of entries of a request (C-72)."""
        self._check(request)
        start = max(request.from_seq if request.cursor is None else request.cursor, 1)
        head = self._head(request.label)
        max_items = min(request.max_items or self._bounds.max_items, self._bounds.max_items)
        end = min(head, start + max_items - 1)
        if request.to_seq is not None:
            end = min(end, request.to_seq)
        return _Range(start, end, head)

    def _head(self, label: Label) -> int:
        head = self._reader.last_seq(label)
        if not head:
            raise not_found("label", "there is no such label")
        return head

    def _check_entry(self, label: Label, seq: int) -> None:
        """Raise if the entry does not exist; entries are numbered from 1 (C-72)."""
        if not 1 <= seq <= self._head(label):
            raise not_found("stream_seq", f"there is no entry {seq}")

    # --- receipts and proofs --------------------------------------------------------------------------------

    def receipt(self, request: ReceiptRequest) -> SubmitResponse:
        self._check_entry(request.label, request.stream_seq)
        receipt = self._reader.entry(request.label, request.stream_seq).receipt
        return SubmitResponse(receipt=receipt, server_version=SERVER_VERSION)

    def proof(self, request: ProofRequest) -> ProofResponse:
        """Return the proof of an entry at its own size; it never changes (C-24)."""
        self._check_entry(request.label, request.stream_seq)
        proof = self._reader.prove(request.label, request.stream_seq)
        return ProofResponse(mmr_proof=proof, server_version=SERVER_VERSION)

    def proof_at(self, request: ProofAtRequest) -> ProofResponse:
        """Return the proof of an entry at a later size."""
        self._check_entry(request.label, request.stream_seq)
        if request.stream_seq > request.upto_seq:
            raise bad_request("upto_seq", "the size must not be smaller than the position of the entry")
        proof = self._reader.prove(request.label, request.stream_seq, request.upto_seq)
        return ProofResponse(mmr_proof=proof, server_version=SERVER_VERSION)

    def consistency(self, request: ConsistencyRequest) -> ConsistencyResponse:
        """Return the proof that a log has only been appended to."""
        self._head(request.label)
        if not 1 <= request.old_size <= request.new_size:
            raise bad_request("old_size", "old_size must be between 1 and new_size")
        return ConsistencyResponse(
            proof=self._reader.prove_consistency(request.label, request.old_size, request.new_size)
        )

    def report_equivocation(self, request: EquivocationRequest) -> EquivocationResponse:
        """Return whether two receipts of this hub contradict each other (API-064)."""
        for name, receipt in (("first", request.first), ("second", request.second)):
            self._verify(name, receipt)
        return EquivocationResponse(ok=request.first.contradicts(request.second))

    def _verify(self, name: str, receipt: Receipt) -> None:
        try:
            self.identity.verify_receipt(receipt)
        except ProtocolError as error:
            raise ProtocolError(
                error.detail,
                f"the {name} receipt was not signed by this hub: {error.message}",
                code=Code.BAD_REQUEST,
                field=name,
            ) from None

    # --- checkpoints ----------------------------------------------------------------------------------------

    def checkpoint_latest(self, request: CheckpointLatestRequest) -> CheckpointResponse:
        """Return the newest checkpoint of a label."""
        self._head(request.label)
        checkpoint = self._reader.latest_checkpoint(request.label)
        if checkpoint is None:
            raise not_found("checkpoint", "the label has no checkpoint yet; ask /v1/checkpoint to make one")
        return CheckpointResponse(checkpoint=checkpoint, server_version=SERVER_VERSION)

    def checkpoint_range(self, request: CheckpointRangeRequest) -> CheckpointRangeResponse:
        """Return the checkpoints of a stream by epoch, as many as one response holds."""
        if request.epoch_min > request.epoch_max:
            raise bad_request("epoch_max", "epoch_min is beyond epoch_max")
        checkpoints: list[Checkpoint] = []
        last = min(request.epoch_max, request.epoch_min + _MAX_EPOCHS - 1)
        start = request.from_seq or 1
        for epoch in range(request.epoch_min, last + 1):
            label = labels.label(self.identity.routing_key, request.stream_id, epoch)
            head = self._reader.last_seq(label)
            room = _MAX_CHECKPOINTS - len(checkpoints)
            of_label = self._reader.checkpoints(label, start, head, room + 1) if head else []
            checkpoints += of_label[:room]
            if len(of_label) > room:
                return CheckpointRangeResponse(
                    checkpoints=tuple(checkpoints), next_epoch=epoch, next_seq=of_label[room].upto_seq
                )
            start = 1
        more = last + 1 if last < request.epoch_max else None
        return CheckpointRangeResponse(checkpoints=tuple(checkpoints), next_epoch=more)

    def epochs(self, request: StreamEpochsRequest) -> StreamEpochsResponse:
        """Return the epochs in which a stream has entries, as many as one response holds."""
        first = request.from_epoch or 0
        epochs = epochs_of(self._reader, self.identity.routing_key, request.stream_id)
        epochs = [epoch for epoch in epochs if epoch >= first]
        more = epochs[_MAX_LISTED_EPOCHS] if len(epochs) > _MAX_LISTED_EPOCHS else None
        return StreamEpochsResponse(epochs=tuple(epochs[:_MAX_LISTED_EPOCHS]), next_epoch=more)
