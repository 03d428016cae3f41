"""Reading a data directory, for the hub, the command line and Spark. Needs no lock.

Every result is checked against the journal or the chunk files: lengths, header, entry hash (C-90), and for
proofs the root of a receipt. Each lookup is a bounded number of seeks.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Final

from veen.core.data_dir import paths
from veen.core.data_dir.store_records import AuthRecord, ClientCursor, StoreRecord, StreamEpoch
from veen.core.errors import ProtocolError, PrunedError, not_found
from veen.core.merkle.consistency import ConsistencyProof, prove_consistency
from veen.core.merkle.inclusion import MmrProof, assemble_proof, check_seq, proof_positions
from veen.core.merkle.mmr import Peaks, ReadNode, leaf_position, read_peaks
from veen.core.objects.capability import CapToken
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.entry import Entry
from veen.core.objects.labels import authorize_label
from veen.core.types import AuthRef, Label, LeafHash, NodeHash, StreamId, VerifyKey
from veen.stdx.lru import LruCache
from veen.storage import chunk_lookup
from veen.storage.atomic_file import read_file
from veen.storage.chunk_lookup import StoredEntry, decode_token, locate, read_nodes
from veen.storage.directory import domains_of, open_store
from veen.storage.errors import DamagedStoreError, StaleIndexError
from veen.storage.fs import Filesystem
from veen.storage.index.index import Index, Snapshot
from veen.storage.index.label_state import Head
from veen.storage.index.rows import Manifest
from veen.storage.journal.replay import load_tails
from veen.storage.journal.right_edge import check_absent
from veen.storage.journal.tail import Tail

# Files may be renamed while they are read; a retry finds them. More retries indicate an error.
_ATTEMPTS: Final = 5
# Proofs at an entry's own size never change, and clients request the newest: size of their cache.
_KEPT_PROOFS: Final = 1024
_KEPT_TOKENS: Final = 1024

Tails = Callable[[], Sequence[Tail]]


class Reader:
    """A view of a data directory that follows its writer."""

    def __init__(
        self, fs: Filesystem, index: Index, store: StoreRecord, tails: Tails, *, attached: bool = True
    ) -> None:
        """``attached``: the tails are the writer's own, and never behind the files."""
        self.fs = fs
        self.store = store
        self.domain_of = domains_of(store.hub_id)
        self._index = index
        self._tails = tails
        self._attached = attached
        self._proofs: LruCache[tuple[Label, int], MmrProof] = LruCache(_KEPT_PROOFS)
        self._tokens: LruCache[AuthRef, CapToken] = LruCache(_KEPT_TOKENS)

    @classmethod
    def open(cls, fs: Filesystem) -> "Reader":
        """Open a directory that another process may write; sees the entries acknowledged by now."""
        store = open_store(fs)
        index = Index.open(fs, readonly=True)
        try:
            tails = load_tails(fs, index, store)
        except BaseException:
            index.close()
            raise
        return cls(fs, index, store, lambda: tails, attached=False)

    def close(self) -> None:
        """Close the index; only for readers from ``open``, not for a writer's own."""
        self._index.close()

    def refresh(self) -> None:
        """See the entries acknowledged since; only for readers from ``open``."""
        tails = load_tails(self.fs, self._index, self.store)
        self._tails = lambda: tails

    # --- heads and cursors ----------------------------------------------------------------------------------

    def head(self, label: Label) -> Head | None:
        """Return the head of a label; None for a label without entries."""
        for tail in reversed(self._tails()):
            label_tail = tail.labels.get(label)
            if label_tail is not None:
                return label_tail.head
        with self._index.view() as view:
            state = view.label(label)
            self._check_known(view, label, known=state is not None)
            return state.head if state is not None and state.head.seq else None

    def last_seq(self, label: Label) -> int:
        """Return the number of the newest entry; 0 for a label without entries."""
        for tail in reversed(self._tails()):
            label_tail = tail.labels.get(label)
            if label_tail is not None:
                return label_tail.head.seq
        with self._index.view() as view:
            ref = view.ref(label)
            self._check_known(view, label, known=ref is not None)
            return 0 if ref is None else ref.seq

    def _check_known(self, view: Snapshot, label: Label, *, known: bool) -> None:
        """Raise if a label that is in no tail has files: a damaged index has lost it.

        A writer in another process may have begun it meanwhile, so this is only checked if there is none.
        """
        if not known and (self._attached or view.meta().clean):
            check_absent(self.fs, self.domain_of(label), label)

    def labels(self) -> list[Label]:
        """Return all labels with entries: those in chunks in byte order, then the new ones."""
        tails = self._tails()  # first: entries flushed meanwhile are then in the index
        with self._index.view() as view:
            labels = dict.fromkeys(ref.label for ref in view.refs() if ref.seq)
        for tail in tails:
            labels.update(dict.fromkeys(list(tail.labels)))
        return list(labels)

    def label_count(self) -> int:
        """Return how many labels there are, without listing them."""
        tails = self._tails()  # first: entries flushed meanwhile are then in the index
        with self._index.view() as view:
            fresh = {label for tail in tails for label in list(tail.labels) if view.ref(label) is None}
            return view.label_count() + len(fresh)

    @property
    def floor_ts(self) -> int:
        """The minimum hub_ts of the next entry (C-15)."""
        newest = max((tail.last_ts for tail in self._tails()), default=0)
        if not newest:
            with self._index.view() as view:
                newest = view.meta().last_ts
        return max(newest, self.store.registries[-1].effective_from)

    def client(self, label: Label, client_id: VerifyKey) -> ClientCursor:
        """Return the cursor of a client in a label."""
        for tail in reversed(self._tails()):
            cursor = tail.clients.get((label, client_id))
            if cursor is not None:
                return cursor
        with self._index.view() as view:
            ref = view.ref(label)
            stored = None if ref is None else view.client(ref.number, client_id)
            return stored or ClientCursor()

    def client_since(self, client_id: VerifyKey) -> int | None:
        """Return when a client was first seen, in any label."""
        tails = self._tails()  # first: entries flushed meanwhile are then in the index
        with self._index.view() as view:
            known = view.client_since(client_id)
        unflushed = [tail.since[client_id] for tail in tails if client_id in tail.since]
        return min([*unflushed, *([] if known is None else [known])], default=None)

    def auth(self, auth_ref: AuthRef) -> AuthRecord | None:
        """Return the record of a token: when it was first seen, and its rate bucket."""
        tails = self._tails()  # first: entries flushed meanwhile are then in the index
        with self._index.view() as view:
            known = view.auth(auth_ref)
        for tail in tails:
            unflushed = tail.auths.get(auth_ref)
            if unflushed is not None:
                known = known.merged(unflushed) if known else unflushed
        return known

    def token(self, auth_ref: AuthRef) -> CapToken | None:
        """Return an authorized token. Tokens never change, so they are cached."""
        cached = self._tokens.get(auth_ref)
        if cached is not None:
            return cached
        record = self.auth(auth_ref)
        if record is None or not record.authorize_seq:
            return None
        seq = record.authorize_seq
        stored = next(self.entries(authorize_label(self.store.hub_id), seq, seq))
        token = decode_token(stored, self.store)
        self._tokens.put(auth_ref, token)
        return token

    def binding(self, label: Label) -> StreamEpoch | None:
        """Return the stream and epoch of a label, if known."""
        for tail in self._tails():
            if label in tail.bindings:
                return tail.bindings[label]
        with self._index.view() as view:
            return view.binding(label)

    def is_frozen(self, label: Label) -> bool:
        """Return whether a label was copied by a fork, so that no entry may follow."""
        with self._index.view() as view:
            state = view.label(label)
            return state is not None and state.frozen

    def label_of(self, stream: StreamEpoch) -> Label | None:
        """Return the label of a stream in an epoch, if it has been used."""
        for tail in self._tails():
            if stream in tail.streams:
                return tail.streams[stream]
        with self._index.view() as view:
            return view.stream(stream)

    def labels_of(self, stream_id: StreamId) -> list[Label]:
        """Return the labels of a stream that have been used, in the order of epochs."""
        tails = self._tails()  # first: entries flushed meanwhile are then in the index
        with self._index.view() as view:
            bound = dict(view.labels_of(stream_id))
        for tail in tails:
            bound |= {key: label for key, label in list(tail.streams.items()) if key.stream_id == stream_id}
        return [bound[key] for key in sorted(bound)]

    # --- entries --------------------------------------------------------------------------------------------

    def entry(self, label: Label, seq: int) -> Entry:
        """Return an entry with its receipt."""
        stored = self._in_tails(label, seq) or self._plain(label, seq)
        return (stored or next(self.entries(label, seq, seq))).entry

    def _plain(self, label: Label, seq: int) -> StoredEntry | None:
        """Return an entry by one index lookup and one read: the fast path."""
        with self._index.view() as view:
            location = locate(view, label, seq)
        if location is None:
            return None
        span = location.offset, location.length
        return chunk_lookup.read_one(self.fs, location.ref, location.row, seq=seq, span=span)

    def entries(self, label: Label, start: int, end: int) -> Iterator[StoredEntry]:
        """Return entries ``start`` to ``end`` that exist, with their locations.

        A ``start`` before the first or after the last entry is E.NOT_FOUND, a pruned entry too.
        """
        seq = start
        while seq <= end:
            staged = self._in_tails(label, seq)
            if staged is not None:
                yield staged
                seq += 1
                continue
            any_stored = False
            for stored in self._stored(label, seq, end):
                any_stored = True
                yield stored
                seq += 1
            if not any_stored and seq == start:
                self.last_seq(label)  # raises if the index has lost the label
                raise not_found("stream_seq", f"there is no entry {seq}")
            if not any_stored:
                return

    def _in_tails(self, label: Label, seq: int) -> StoredEntry | None:
        for tail in self._tails():
            label_tail = tail.labels.get(label)
            staged = label_tail.entry(seq) if label_tail else None
            if staged is not None:
                return StoredEntry(paths.journal(tail.segment), None, staged.stored)
        return None

    def _stored(self, label: Label, start: int, end: int) -> Iterator[StoredEntry]:
        """Return entries that are in chunk files, up to the end of the first chunk."""
        for attempt in range(_ATTEMPTS):
            with self._index.view() as view:
                location = locate(view, label, start)
            if location is None:
                return
            ref, row, offset, _ = location
            try:
                seqs = range(start, min(end, ref.seq) + 1)
                for stored in chunk_lookup.read(self.fs, ref, row, seqs=seqs, offset=offset):
                    yield stored
                    start += 1
            except FileNotFoundError:
                # Sealed, compressed or pruned meanwhile.
                if attempt == _ATTEMPTS - 1:
                    path = chunk_lookup.path_of(ref, row)
                    raise DamagedStoreError(path, None, "file is missing") from None
            else:
                return

    def find(self, leaf_hash: LeafHash) -> tuple[Label, int] | None:
        """Return the position of a message, by its id."""
        for tail in self._tails():
            if leaf_hash in tail.leaves:
                return tail.leaves[leaf_hash]
        with self._index.view() as view:
            candidates = view.leaves(leaf_hash)
        for label, seq in candidates:
            if seq <= self.last_seq(label) and self.leaf(label, seq) == leaf_hash:
                return label, seq
        return None

    def seq_at(self, label: Label, hub_ts: int) -> int:
        """Return the first entry at or after a time that is not pruned; head + 1 if there is none."""
        tails = self._tails()  # first: entries flushed meanwhile are then in the index
        with self._index.view() as view:
            ref = view.ref(label)
            stored = None if ref is None else view.seq_at(ref.number, hub_ts)
        first = 1 if ref is None else ref.pruned_upto + 1
        if stored is not None:
            return self._checked_time(label, max(stored, first), first, hub_ts)
        for tail in tails:
            entries = tail.labels[label].entries if label in tail.labels else []
            nth = bisect_left(entries, hub_ts, key=lambda staged: staged.head.hub_ts)
            if nth < len(entries):
                return self._checked_time(label, entries[nth].head.seq, first, hub_ts)
        return self._checked_time(label, self.last_seq(label) + 1, first, hub_ts)

    def _checked_time(self, label: Label, seq: int, first: int, hub_ts: int) -> int:
        """Return ``seq``; raise if the entry before it is not older, which the index then lacks."""
        if seq == first:
            return seq
        try:
            before = self.entry(label, seq - 1).receipt.hub_ts
        except StaleIndexError:
            raise
        except DamagedStoreError:
            return seq  # reading that entry raises the error; others are readable
        if before >= hub_ts:
            raise StaleIndexError(paths.INDEX, None, f"entry {seq - 1} is missing among the times")
        return seq

    # --- proofs ---------------------------------------------------------------------------------------------

    def leaf(self, label: Label, seq: int) -> LeafHash:
        """Return the leaf of an entry: from its receipt or, if pruned, from the node store."""
        try:
            return self.entry(label, seq).receipt.leaf_hash
        except PrunedError:
            return LeafHash(self._nodes(label, seq)(leaf_position(seq)))

    def peaks(self, label: Label, size: int) -> Peaks:
        """Return the peaks of the first ``size`` entries."""
        return read_peaks(self._nodes(label, size), size)

    def prove(self, label: Label, seq: int, size: int | None = None) -> MmrProof:
        """Prove an entry at a size, by default its own. The proof is verified before it is returned."""
        size = seq if size is None else size
        own = seq == size
        cached = self._proofs.get((label, seq)) if own else None
        if cached is not None:
            return cached
        if not own:
            self._nodes(label, size)  # raises if the log is shorter
            check_seq(seq, size)
        leaf, root = self._leaf_and_root(label, seq, size)
        proof = assemble_proof(self._read_nodes(label, proof_positions(seq, size)), seq, size)
        with self._blaming_nodes(label):
            proof.verify(root, leaf, stream_seq=seq, mmr_size=size)
        if own:
            self._proofs.put((label, seq), proof)
        return proof

    def _leaf_and_root(self, label: Label, seq: int, size: int) -> tuple[LeafHash, NodeHash]:
        """Return the leaf and root of a proof; at an entry's own size both are in its receipt."""
        if seq == size:
            with suppress(PrunedError):
                receipt = self.entry(label, seq).receipt
                return receipt.leaf_hash, receipt.mmr_root
        return self.leaf(label, seq), self.root(label, size)

    def prove_consistency(self, label: Label, old_size: int, new_size: int) -> ConsistencyProof:
        """Prove that the first ``new_size`` entries continue the first ``old_size``."""
        proof = prove_consistency(self._nodes(label, new_size), old_size=old_size, new_size=new_size)
        old_root, new_root = self.root(label, old_size), self.root(label, new_size)
        with self._blaming_nodes(label):
            proof.verify(old_root=old_root, old_size=old_size, new_root=new_root, new_size=new_size)
        return proof

    @contextmanager
    def _blaming_nodes(self, label: Label) -> Iterator[None]:
        # A damaged node store must raise an error here, not result in a proof that the client rejects.
        try:
            yield
        except ProtocolError as error:
            raise StaleIndexError(paths.nodes(self.domain_of(label), label), None, str(error)) from error

    def root(self, label: Label, size: int) -> NodeHash:
        """Return the root after an entry: from its receipt or, if pruned, from the node store."""
        try:
            return self.entry(label, size).receipt.mmr_root
        except PrunedError:
            return self.peaks(label, size).root

    def _nodes(self, label: Label, size: int) -> ReadNode:
        if not 1 <= size <= self.last_seq(label):
            raise not_found("stream_seq", f"there is no entry {size}")
        return self._node_reader(label)

    def _node_reader(self, label: Label) -> ReadNode:
        return lambda position: self._read_nodes(label, (position,))[0]

    def _read_nodes(self, label: Label, positions: Sequence[int]) -> list[NodeHash]:
        """Return the nodes at some positions."""
        tails = [tail.labels[label] for tail in self._tails() if label in tail.labels]
        nodes = {at: node for at in positions for tail in tails if (node := tail.node(at)) is not None}
        stored = [at for at in positions if at not in nodes]
        if stored:
            nodes.update(zip(stored, read_nodes(self.fs, self.domain_of(label), label, stored), strict=True))
        return [nodes[at] for at in positions]

    # --- checkpoints and manifest ---------------------------------------------------------------------------

    def checkpoint(self, label: Label, upto_seq: int) -> Checkpoint | None:
        checkpoint = self.stated_checkpoint(label, upto_seq)
        if checkpoint is None or any(upto_seq in tail.checkpoints.get(label, {}) for tail in self._tails()):
            return checkpoint  # those of a tail were made or checked with it
        path = paths.checkpoint(self.domain_of(label), label, upto_seq)
        # Verifying the signature needs the hub's key; what it signs is compared here.
        stated = (checkpoint.label_curr, checkpoint.upto_seq, checkpoint.mmr_root)
        pruned = upto_seq <= self._pruned_upto(label)
        root = checkpoint.mmr_root if pruned else self.entry(label, upto_seq).receipt.mmr_root
        if stated != (label, upto_seq, root):
            raise DamagedStoreError(path, 0, "checkpoint does not state the root of the log")
        return checkpoint

    def stated_checkpoint(self, label: Label, upto_seq: int) -> Checkpoint | None:
        """Return a stored checkpoint without comparing it with the log."""
        for tail in self._tails():
            unflushed = tail.checkpoints.get(label, {}).get(upto_seq)
            if unflushed is not None:
                return unflushed
        path = paths.checkpoint(self.domain_of(label), label, upto_seq)
        stored = read_file(self.fs, path)
        try:
            return None if stored is None else Checkpoint.decode(stored)
        except ProtocolError as error:
            raise DamagedStoreError(path, 0, str(error)) from error

    def _pruned_upto(self, label: Label) -> int:
        with self._index.view() as view:
            ref = view.ref(label)
            return 0 if ref is None else ref.pruned_upto

    def latest_checkpoint(self, label: Label, upto_seq: int | None = None) -> Checkpoint | None:
        """Return the newest checkpoint, or the newest at or before an entry."""
        limit = self.last_seq(label) if upto_seq is None else upto_seq
        best = 0
        for tail in self._tails():
            best = max([best, *(seq for seq in tail.checkpoints.get(label, {}) if seq <= limit)])
        with self._index.view() as view:
            ref = view.ref(label)
            row = None if ref is None else view.checkpoint_at(ref.number, limit)
        best = max(best, row.upto_seq if row else 0)
        return self.checkpoint(label, best) if best else None

    def checkpoints(
        self, label: Label, start: int, end: int, max_items: int | None = None
    ) -> list[Checkpoint]:
        """Return the first ``max_items`` checkpoints of entries ``start`` to ``end``, in order."""
        seqs = self.checkpoint_seqs(label, start, end, max_items)
        stored = (self.checkpoint(label, seq) for seq in seqs)
        return [item for item in stored if item is not None]

    def checkpoint_seqs(self, label: Label, start: int, end: int, max_items: int | None = None) -> list[int]:
        """Return which of entries ``start`` to ``end`` have a checkpoint."""
        seqs = {seq for tail in self._tails() for seq in tail.checkpoints.get(label, {})}
        with self._index.view() as view:
            ref = view.ref(label)
            if ref is not None:
                for row in islice(view.checkpoints(ref.number, start), max_items):
                    if row.upto_seq > end:
                        break
                    seqs.add(row.upto_seq)
        return sorted(seq for seq in seqs if start <= seq <= end)[:max_items]

    def manifest(self, label: Label) -> Manifest:
        """Return the chunks and bounds of a label, from the index."""
        head = self.head(label)
        if head is None:
            raise not_found("label", "there is no such label")
        with self._index.view() as view:
            ref = view.ref(label)
            rows = () if ref is None else tuple(view.chunks(ref.number))
        stored = ref.seq if ref else 0
        first = ref.pruned_upto + 1 if ref else 1
        return Manifest(label, head, rows, max(head.seq - stored, 0), first)

    def is_clean(self) -> bool:
        """Return whether the last writer closed cleanly, and none has started since."""
        with self._index.view() as view:
            return view.meta().clean

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Open a snapshot of the index; for the partition planner."""
        with self._index.view() as view:
            yield view
