"""A log at a hub's address, limited to named streams, since hubs list no labels."""

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Final

from veen.client.effects import Query
from veen.client.errors import RejectedError
from veen.client.home.pins import STATUS, read_facts
from veen.client.transport.http import HttpHub
from veen.core.api.data_plane import ProofRequest, ProofResponse, ReceiptRequest, ReceiptResponse
from veen.core.api.tooling import (
    CheckpointRangeRequest,
    CheckpointRangeResponse,
    StreamEpochsRequest,
    StreamEpochsResponse,
)
from veen.core.errors import Code, PrunedError
from veen.core.merkle.mmr import Peaks
from veen.core.objects import labels
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.finding import Finding
from veen.core.objects.receipt import Receipt
from veen.core.types import HubId, Label, StreamId
from veen.pipeline.errors import LogSourceError
from veen.pipeline.log.hub_keys import HubKeys
from veen.pipeline.log.log import MOST_BYTES, LabelHead, Pruned, chosen
from veen.pipeline.log.partition import AtHub, Part

# The assumed size of an entry; it is not known before it is fetched.
_ENTRY_BYTES: Final = 700
_FIRST_GUESS: Final = 1024


class HubLog:
    """The log of streams at a hub."""

    def __init__(self, url: str, streams: Sequence[StreamId], epochs: Container[int] | None = None) -> None:
        if not streams:
            raise LogSourceError(f"{url} is a hub, which lists no labels: name the streams to read")
        self.name = url
        self._hub = HttpHub(url)
        self._streams = streams
        self._wanted = epochs
        self._known: dict[Label, tuple[StreamId, int]] = {}
        facts = read_facts(self._hub.answer(STATUS))
        self.profiles = facts.profiles
        self.keys = HubKeys(facts.identity)

    @property
    def hub_id(self) -> HubId:
        return self.keys.identity.hub_id

    def heads(self) -> dict[Label, LabelHead]:
        heads = {}
        for stream in self._streams:
            for epoch, label in self.labels_of(stream).items():
                newest = self._newest(label)
                if newest is not None:
                    first = self._first(label, newest.stream_seq)
                    seq, root = newest.stream_seq, newest.mmr_root
                    heads[label] = LabelHead(label, stream, epoch, first, seq, root)
        return dict(sorted(heads.items()))

    def labels_of(self, stream_id: StreamId) -> dict[int, Label]:
        """Query the epochs in which a stream has entries."""
        routing = self.keys.identity.routing_key
        epochs = self._epochs(stream_id) if self.profiles[0].epoch_sec else iter((0,))
        by_epoch = {
            epoch: labels.label(routing, stream_id, epoch)
            for epoch in epochs
            if self._wanted is None or epoch in self._wanted
        }
        self._known.update({label: (stream_id, epoch) for epoch, label in by_epoch.items()})
        return by_epoch

    def _epochs(self, stream_id: StreamId) -> Iterator[int]:
        start: int | None = 0
        while start is not None:
            request = StreamEpochsRequest(stream_id=stream_id, from_epoch=start)
            page = self._hub.answer(Query(request, StreamEpochsResponse))
            yield from page.epochs
            start = page.next_epoch if page.epochs and (page.next_epoch or 0) > start else None

    def _receipt(self, label: Label, seq: int) -> Receipt | None:
        try:
            response = self._hub.answer(Query(ReceiptRequest(label=label, stream_seq=seq), ReceiptResponse))
        except RejectedError as error:
            if error.code == Code.NOT_FOUND.value and not isinstance(error, PrunedError):
                return None
            raise
        receipt: Receipt = response.receipt
        return receipt

    def _has(self, label: Label, seq: int) -> bool:
        try:
            return self._receipt(label, seq) is not None
        except RejectedError:
            return True  # pruned

    def _newest(self, label: Label) -> Receipt | None:
        """Return the receipt of the newest entry, with O(log n) requests."""
        if not self._has(label, 1):
            return None
        low, high = 1, _FIRST_GUESS
        while self._has(label, high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._has(label, middle) else (low, middle)
        return self._receipt(label, low)

    def _first(self, label: Label, last: int) -> int:
        """Return the first entry that is not pruned, with O(log n) requests."""
        low, high = 0, last
        while high - low > 1:
            middle = (low + high) // 2
            try:
                self._receipt(label, middle)
            except RejectedError:
                low = middle
            else:
                high = middle
        return high

    def seq_at(self, label: Label, hub_ts: int) -> int:
        """Return the first entry at or after a time, with O(log n) requests."""
        newest = self._newest(label)
        if newest is None:
            return 1
        low, high = self._first(label, newest.stream_seq), newest.stream_seq + 1
        while low < high:
            middle = (low + high) // 2
            receipt = self._receipt(label, middle)
            if receipt is not None and receipt.hub_ts < hub_ts:
                low = middle + 1
            else:
                high = middle
        return low

    def plan(
        self,
        ranges: Mapping[Label, tuple[int, int]] | None = None,
        *,
        parts: int = 1,
        most_bytes: int = MOST_BYTES,
    ) -> list[Part]:
        """Divide entries by position."""
        ranges_to_read = list(chosen(self.heads(), ranges))
        total = sum(last - first + 1 for _, first, last in ranges_to_read)
        each = max(min(most_bytes // _ENTRY_BYTES, -(-total // max(parts, 1))), 1)
        planned = []
        for head, first, last in ranges_to_read:
            for seq in range(first, last + 1, each):
                upto = min(seq + each - 1, last)
                size, origin = (upto - seq + 1) * _ENTRY_BYTES, AtHub(self.name)
                planned.append(Part(head.label, seq, upto, size, origin, self._peaks(head.label, seq - 1)))
        return planned

    def _peaks(self, label: Label, size: int) -> Peaks | None:
        """Return the peaks at an entry, as its proof states."""
        if not size:
            return Peaks.empty()
        try:
            request = ProofRequest(label=label, stream_seq=size)
            proof = self._hub.answer(Query(request, ProofResponse)).mmr_proof
        except RejectedError:
            return None
        return Peaks(size, proof.peaks_after)

    def checkpoints(self, label: Label) -> list[Checkpoint]:
        if label not in self._known:
            self.heads()
        stream_id, epoch = self._known[label]
        checkpoints: list[Checkpoint] = []
        from_seq: int | None = 1
        while from_seq is not None:
            request = CheckpointRangeRequest(
                stream_id=stream_id, epoch_min=epoch, epoch_max=epoch, from_seq=from_seq
            )
            page = self._hub.answer(Query(request, CheckpointRangeResponse))
            checkpoints += page.checkpoints
            goes_on = page.checkpoints and page.next_epoch == epoch and (page.next_seq or 0) > from_seq
            from_seq = page.next_seq if goes_on else None
        return checkpoints

    def pruned(self, label: Label) -> list[Pruned]:
        """Return the pruned range; hubs do not report the clients' state at its end."""
        newest = self._newest(label)
        first = 1 if newest is None else self._first(label, newest.stream_seq)
        peaks = self._peaks(label, first - 1)
        if first == 1 or peaks is None:
            return []
        return [Pruned(1, first - 1, peaks.root, 0, {})]

    def check_others(self) -> list[Finding]:
        """Return nothing: a hub serves nothing but its labels."""
        return []

    def refresh(self) -> None:
        """Do nothing: no answer is cached."""

    def close(self) -> None:
        self._hub.close()
