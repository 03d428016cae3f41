"""The portable set: an exported log for an auditor or a client (PORT-001 to PORT-004).

A directory of append-only CBOR sequences, which serves requests like a hub:

    hub-identity.cbor, .sig   identity of the hub        checkpoints.cborseq   the hub's checkpoints
    receipts.cborseq          receipts, and              sync_state.cborseq    the end of each label
    payloads.cborseq          their messages, in order   attachments/          sealed, by id (optional)
    identity_card.pub, keystore.enc, cap_tokens.cborseq  of a client, if included
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from veen.client.effects import Describe, GetAttachment, Query, Request
from veen.client.errors import ClientStateError, DamagedLogError, ReadOnlyError, rejection_of
from veen.client.home.pins import describe_facts
from veen.core.api import data_plane, tooling
from veen.core.api.data_plane import StreamItem
from veen.core.data_dir import hub_settings
from veen.core.encoding import cbor
from veen.core.encoding.field_types import B32, UINT, VER
from veen.core.encoding.shape import Field, MapShape
from veen.core.encoding.wire_object import Wire, decode_sequence
from veen.core.errors import Detail, ProtocolError, not_found
from veen.core.merkle.consistency import prove_consistency
from veen.core.merkle.inclusion import prove_inclusion
from veen.core.merkle.mmr import complete_nodes
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.core.objects.hub_identity import HubIdentity
from veen.core.objects.msg import Msg, msg_end
from veen.core.objects.receipt import Receipt
from veen.core.types import Label, NodeHash, Signature, StreamId

RECEIPTS: Final = "receipts.cborseq"
PAYLOADS: Final = "payloads.cborseq"
CHECKPOINTS: Final = "checkpoints.cborseq"
SYNC_STATE: Final = "sync_state.cborseq"
PROFILES: Final = hub_settings.SETTINGS
TOKENS: Final = "cap_tokens.cborseq"
ATTACHMENTS_DIR: Final = "attachments"
_PAGE_ITEMS: Final = 1000
_PAGE_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncState(Wire):
    """The end of a label in a set, and the stream of the label."""

    SHAPE: ClassVar = MapShape(
        "sync_state",
        Field("ver", VER, key=1),
        Field("label", B32, key=2),
        Field("last_stream_seq", UINT, key=3),
        Field("last_mmr_root", B32, key=4),
        Field("stream_id", B32, key=5, optional=True),
        Field("epoch", UINT, key=6, optional=True),
    )

    label: Label
    last_stream_seq: int
    last_mmr_root: NodeHash
    stream_id: StreamId | None = None
    epoch: int | None = None


def is_portable(path: Path) -> bool:
    """Return whether a directory is an exported set rather than a data directory."""
    return (path / PAYLOADS).is_file() and not (path / "store.cbor").exists()


@dataclass(frozen=True, slots=True)
class PortableFacts:
    """The content of a set besides its entries."""

    identity: HubIdentity
    sig: Signature
    settings: hub_settings.HubSettings
    checkpoints: tuple[Checkpoint, ...]
    states: tuple[SyncState, ...]

    @classmethod
    def read(cls, path: Path) -> "PortableFacts":
        """Read the files; errors name a missing or damaged one."""
        with _as_client_error(path):
            checkpoints = decode_sequence((path / CHECKPOINTS).read_bytes(), Checkpoint)
            return cls(
                HubIdentity.decode((path / hub_settings.IDENTITY).read_bytes()),
                Signature((path / hub_settings.IDENTITY_SIG).read_bytes()),
                hub_settings.HubSettings.decode((path / PROFILES).read_bytes()),
                tuple(sorted(checkpoints, key=lambda item: (item.label_curr, item.upto_seq))),
                tuple(decode_sequence((path / SYNC_STATE).read_bytes(), SyncState)),
            )


@contextmanager
def _as_client_error(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ClientStateError(f"{path} is not a complete set: {error.filename}: {error.strerror}") from None
    except ProtocolError as error:
        raise DamagedLogError(f"{path} is damaged: {error}") from None


@dataclass(slots=True)
class _Entries:
    """The start and end offsets of the receipts and messages of a label."""

    receipts: list[tuple[int, int]]
    msgs: list[tuple[int, int]]


class PortableSet:
    """An exported set that serves requests like a hub; readers verify all of it, like responses of a hub."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._place = path
        facts = PortableFacts.read(path)
        self.identity, self._sig, self._settings = facts.identity, facts.sig, facts.settings
        self.checkpoints, self.states = facts.checkpoints, facts.states
        with _as_client_error(path):
            self._receipts = (path / RECEIPTS).read_bytes()
            self._msgs = (path / PAYLOADS).read_bytes()
            self._labels = self._scan()
        self._nodes: dict[Label, list[NodeHash]] = {}

    def _scan(self) -> dict[Label, _Entries]:
        """Index the items; a receipt and its message have the same index in their files."""
        by_label: dict[Label, _Entries] = {}
        receipt_start = msg_start = 0
        while receipt_start < len(self._receipts) and msg_start < len(self._msgs):
            receipt_stop, msg_stop = (
                cbor.item_end(self._receipts, receipt_start),
                msg_end(self._msgs, msg_start),
            )
            label = Receipt.decode(self._receipts[receipt_start:receipt_stop]).label
            entries = by_label.setdefault(label, _Entries([], []))
            entries.receipts.append((receipt_start, receipt_stop))
            entries.msgs.append((msg_start, msg_stop))
            receipt_start, msg_start = receipt_stop, msg_stop
        if receipt_start < len(self._receipts) or msg_start < len(self._msgs):
            raise ProtocolError(Detail.ENTRY_LENGTH, "the numbers of messages and receipts differ")
        return by_label

    @property
    def labels(self) -> list[Label]:
        """The labels of the set, in the order of their bytes."""
        return sorted(self._labels)

    def close(self) -> None:
        """Do nothing: no files are open."""

    def answer(self, request: Request) -> Any:  # noqa: ANN401 - by the request
        """Answer from the files, as the hub would."""
        try:
            match request:
                case Describe("/tooling/status" | "/tooling/identity"):
                    return self.describe()
                case Query() if not request.wait_sec:
                    return self._ask(request.request)
                case GetAttachment():
                    return self._attachment(request.coid)
        except ProtocolError as error:
            raise rejection_of(ErrorEnvelope.of(error)) from None
        raise ReadOnlyError(f"{self.name} is an exported set: it can only be read")

    def describe(self) -> dict[str, Any]:
        """Return the hub's description of itself."""
        return describe_facts(self.identity, self._sig, self._settings.profiles)

    def _ask(self, request: Wire) -> Wire:
        match request:
            case data_plane.StreamRequest():
                return self._page(request)
            case data_plane.ReceiptRequest():
                return data_plane.ReceiptResponse(receipt=self._receipt(request.label, request.stream_seq))
            case data_plane.ProofRequest():
                self._receipt(request.label, request.stream_seq)
                read = self._node_reader(request.label)
                return data_plane.ProofResponse(
                    mmr_proof=prove_inclusion(read, stream_seq=request.stream_seq)
                )
            case tooling.ProofAtRequest():
                self._receipt(request.label, request.upto_seq)
                read = self._node_reader(request.label)
                proof_at = prove_inclusion(read, stream_seq=request.stream_seq, mmr_size=request.upto_seq)
                return data_plane.ProofResponse(mmr_proof=proof_at)
            case tooling.ConsistencyRequest():
                self._receipt(request.label, request.new_size)
                read = self._node_reader(request.label)
                proof = prove_consistency(read, old_size=request.old_size, new_size=request.new_size)
                return tooling.ConsistencyResponse(proof=proof)
            case tooling.StreamEpochsRequest():
                return self._epochs(request)
        raise not_found("request", f"an exported set does not answer {type(request).__name__}")

    def _entries(self, label: Label) -> _Entries:
        entries = self._labels.get(label)
        if entries is None:
            raise not_found("label", "there is no such label in this set")
        return entries

    def _receipt(self, label: Label, seq: int) -> Receipt:
        entries = self._entries(label)
        if not 1 <= seq <= len(entries.receipts):
            raise not_found("stream_seq", f"there is no entry {seq}")
        start, end = entries.receipts[seq - 1]
        return Receipt.decode(self._receipts[start:end])

    def _item(self, label: Label, seq: int) -> StreamItem:
        start, end = self._entries(label).msgs[seq - 1]
        return StreamItem(
            stream_seq=seq, msg=Msg.decode(self._msgs[start:end]), receipt=self._receipt(label, seq)
        )

    def _page(self, request: data_plane.StreamRequest) -> data_plane.StreamResponse:
        head = len(self._entries(request.label).receipts)
        start = max(request.from_seq if request.cursor is None else request.cursor, 1)
        end = head if request.to_seq is None else min(request.to_seq, head)
        max_items = min(request.max_items or _PAGE_ITEMS, _PAGE_ITEMS)
        items: list[StreamItem] = []
        size = 0
        for seq in range(start, min(end, start + max_items - 1) + 1):
            items.append(self._item(request.label, seq))
            size += len(items[-1].msg.encode())
            if size >= _PAGE_BYTES:
                break
        last = start + len(items) - 1
        proof = None
        if items and request.with_mmr_proof:
            proof = prove_inclusion(self._node_reader(request.label), stream_seq=last)
        return data_plane.StreamResponse(
            label=request.label,
            from_seq=start,
            items=tuple(items),
            next_cursor=last + 1 if items and last < end else None,
            mmr_proof=proof,
        )

    def _epochs(self, request: tooling.StreamEpochsRequest) -> tooling.StreamEpochsResponse:
        first = request.from_epoch or 0
        epochs = {
            item.epoch
            for item in self.states
            if item.stream_id == request.stream_id and item.epoch is not None and item.epoch >= first
        }
        return tooling.StreamEpochsResponse(epochs=tuple(sorted(epochs)))

    def _node_reader(self, label: Label) -> Callable[[int], NodeHash]:
        if label not in self._nodes:
            entries = self._entries(label)
            leaves = (self._receipt(label, seq).leaf_hash for seq in range(1, len(entries.receipts) + 1))
            self._nodes[label] = complete_nodes(leaves)
        return self._nodes[label].__getitem__

    def _attachment(self, coid: bytes) -> bytes:
        try:
            return (self._place / ATTACHMENTS_DIR / coid.hex()).read_bytes()
        except OSError:
            raise not_found("coid", "the attachment is not part of this set") from None
