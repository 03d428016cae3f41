"""What a store must answer: a plain list of entries for each label, and everything that follows from it.

Nothing here knows files. Roots and proofs come from ``veen.core``, chunk boundaries from the rule in
data-directory.md, cursors and first uses from walking the list.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import NamedTuple

import pytest

from tests.storage.stores import AUTHORIZE, CONTROL, HUB, HUB_ID, left_of
from veen.core.data_dir.store_records import NO_COMPRESSION, AuthRecord, ClientCursor, Registry, StreamEpoch
from veen.core.errors import Code, ProtocolError
from veen.core.limits import Limits
from veen.core.merkle.consistency import prove_consistency
from veen.core.merkle.inclusion import prove_inclusion
from veen.core.merkle.mmr import Peaks, complete_nodes
from veen.core.objects import labels
from veen.core.objects.capability import Bucket, CapToken
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.entry import Entry
from veen.core.objects.new_entry import NewEntry
from veen.core.objects.receipt import Receipt
from veen.core.types import AuthRef, Label, LeafHash, NodeHash, StreamId, VerifyKey
from veen.storage.fsck import Report
from veen.storage.read.reader import Reader

RESERVED = {AUTHORIZE, CONTROL}


@cache
def label_of(stream: StreamId) -> Label:
    """Return the label of a stream at a hub without epochs."""
    return labels.label(labels.routing_key(HUB_ID), stream, 0)


class Kept(NamedTuple):
    """An entry with its place."""

    record: NewEntry
    receipt: Receipt

    @property
    def frame(self) -> bytes:
        return Entry(self.record.content, self.receipt).encode()


class ChunkFacts(NamedTuple):
    """A chunk without what only files know of it."""

    start_seq: int
    end_seq: int
    total_bytes: int
    first_ts: int
    last_ts: int


@dataclass(frozen=True)
class Pending:
    """Something that was asked for and of which nobody knows whether it happened."""

    entries: tuple[Kept, ...] = ()
    bindings: Mapping[Label, StreamEpoch] = field(default_factory=dict)
    checkpoint: Checkpoint | None = None


@dataclass
class Model:
    """The log as whoever got the answers knows it."""

    registries: tuple[Registry, ...]
    logs: dict[Label, list[Kept]] = field(default_factory=dict)
    bindings: dict[Label, StreamEpoch] = field(default_factory=dict)
    #: A repair finds bindings again if it can; it need not.
    bindings_known: bool = True
    checkpoints: dict[tuple[Label, int], Checkpoint] = field(default_factory=dict)
    pruned: dict[Label, int] = field(default_factory=dict)
    #: Up to here entries may be pruned: that was asked for, and did not come to its end.
    prunable: dict[Label, int] = field(default_factory=dict)
    #: Labels of which a pruned chunk may still be there, so that a repair may find it.
    leftovers: set[Label] = field(default_factory=set)
    maybe: Pending | None = None
    ever_compressed: bool = False

    # --- what happened --------------------------------------------------------------------------------------

    def commit(self, pending: Pending) -> None:
        """Take what was acknowledged, or seen after a start."""
        for kept in pending.entries:
            self.logs.setdefault(kept.receipt.label, []).append(kept)
        self.bindings.update(pending.bindings)
        made = pending.checkpoint
        if made is not None:
            self.checkpoints[made.label_curr, made.upto_seq] = made

    def settle(self, reader: Reader) -> None:
        """Find out what became of what was unknown: all of it, or nothing."""
        pending, self.maybe = self.maybe, None
        if pending is not None and self._happened(pending, reader):
            self.commit(pending)

    def _happened(self, pending: Pending, reader: Reader) -> bool:
        made = pending.checkpoint
        if made is not None:
            stored = reader.checkpoint(made.label_curr, made.upto_seq)
            return stored is not None and stored.encode() == made.encode()
        if not pending.entries:
            return all(reader.binding(label) == bound for label, bound in pending.bindings.items())
        found = {kept.receipt.stream_seq <= reader.last_seq(kept.receipt.label) for kept in pending.entries}
        assert len(found) == 1, "a part of a batch is there"
        return found.pop()

    def with_pending(self) -> "Model":
        """Return the model as it is if the unknown has happened."""
        other = replace(
            self,
            logs={label: list(log) for label, log in self.logs.items()},
            bindings=dict(self.bindings),
            checkpoints=dict(self.checkpoints),
            maybe=None,
        )
        if self.maybe is not None:
            other.commit(self.maybe)
        return other

    # --- what follows ---------------------------------------------------------------------------------------

    def head(self, label: Label) -> int:
        return len(self.logs.get(label, ()))

    @property
    def last_ts(self) -> int:
        return max((log[-1].receipt.hub_ts for log in self.logs.values() if log), default=0)

    def leaves(self, label: Label) -> list[LeafHash]:
        return [kept.record.leaf_hash for kept in self.logs.get(label, ())]

    def client(self, label: Label, client_id: VerifyKey) -> ClientCursor:
        for kept in reversed(self.logs.get(label, ())):
            if kept.record.client_id == client_id:
                return ClientCursor(kept.record.client_seq, kept.record.prev_ack)
        return ClientCursor()

    def clients(self) -> set[tuple[Label, VerifyKey]]:
        return {
            (label, kept.record.client_id)
            for label, log in self.logs.items()
            for kept in log
            if kept.record.client_id is not None
        }

    def auths(self) -> dict[AuthRef, AuthRecord]:
        """Return when each token was first seen, and its first place in the authorize log."""
        found: dict[AuthRef, AuthRecord] = {}
        for label, log in self.logs.items():
            for kept in log:
                if kept.record.auth_ref is not None:
                    place = kept.receipt.stream_seq if label == AUTHORIZE else 0
                    seen = AuthRecord(kept.receipt.hub_ts, place)
                    known = found.get(kept.record.auth_ref)
                    found[kept.record.auth_ref] = known.merged(seen) if known else seen
        return found

    def since(self) -> dict[VerifyKey, int]:
        """Return when each client was first seen."""
        found: dict[VerifyKey, int] = {}
        for kept in (kept for log in self.logs.values() for kept in log):
            client, hub_ts = kept.record.client_id, kept.receipt.hub_ts
            if client is not None:
                found[client] = min(found.get(client, hub_ts), hub_ts)
        return found

    def buckets(self) -> dict[AuthRef, Bucket | None]:
        """Return what is left of tokens, where that is certain.

        A repair does not know which came first in one second, a token or a message that names it; no hub
        takes the message first.
        """
        authorized: dict[AuthRef, int] = {}
        for kept in self.logs.get(AUTHORIZE, ()):
            assert kept.record.auth_ref is not None
            authorized.setdefault(kept.record.auth_ref, kept.receipt.hub_ts)
        uses: dict[AuthRef, list[int]] = {ref: [] for ref in authorized}
        for kept in (kept for log in self.logs.values() for kept in log):
            if kept.record.client_id is not None and kept.record.auth_ref in uses:
                uses[kept.record.auth_ref].append(kept.receipt.hub_ts)
        tokens = {
            token.auth_ref: token
            for token in (CapToken.decode(kept.record.content) for kept in self.logs.get(AUTHORIZE, ()))
        }
        return {
            ref: left_of(tokens[ref], [at for at in times if at > authorized[ref]], self._limits_at)
            for ref, times in uses.items()
            if authorized[ref] not in times
        }

    def _limits_at(self, hub_ts: int) -> Limits:
        return next(r.limits for r in reversed(self.registries) if r.effective_from <= hub_ts)

    def places(self) -> dict[LeafHash, set[tuple[Label, int]]]:
        found: dict[LeafHash, set[tuple[Label, int]]] = {}
        for label, log in self.logs.items():
            for kept in log:
                found.setdefault(kept.record.leaf_hash, set()).add((label, kept.receipt.stream_seq))
        return found

    def chunks(self, label: Label, count: int) -> list[ChunkFacts]:
        """Return the chunks of the first ``count`` entries."""
        made: list[ChunkFacts] = []
        current: ChunkFacts | None = None
        for kept in self.logs.get(label, ())[:count]:
            seq, hub_ts, size = kept.receipt.stream_seq, kept.receipt.hub_ts, len(kept.frame)
            limits = self._limits_at(hub_ts)
            if current is not None and current.total_bytes + size > limits.max_chunk_bytes:
                made.append(current._replace(end_seq=seq - 1))
                current = None
            if current is None:
                current = ChunkFacts(seq, 0, 0, hub_ts, hub_ts)
            current = current._replace(total_bytes=current.total_bytes + size, last_ts=hub_ts)
            if seq - current.start_seq + 1 >= limits.max_checkpoint_interval:
                made.append(current._replace(end_seq=seq))
                current = None
        return made if current is None else [*made, current]

    # --- comparing ------------------------------------------------------------------------------------------

    def fits(self, reader: Reader) -> None:
        """Compare a view in which the unknown may have happened, or not, with everything else."""
        model = self
        if self.maybe is not None and self._happened(self.maybe, reader):
            model = self.with_pending()
        compare(model, reader)

    def observe_pruned(self, reader: Reader) -> None:
        """Take over how far labels are pruned, if that is as far as was asked for, or less."""
        for label, target in self.prunable.items():
            before, now = self.pruned.get(label, 0), reader.manifest(label).first_seq - 1
            ends = {row.end_seq for row in self.chunks(label, self.head(label)) if row.end_seq}
            assert now == before or (before < now <= target and now in ends), (before, now, target)
            self.pruned[label] = now
        self.prunable = {}


def compare(model: Model, reader: Reader) -> None:
    """Ask for everything that a store can be asked for, and compare it with the model."""
    model.observe_pruned(reader)
    compare_heads(model, reader)
    places = model.places()
    for label, log in model.logs.items():
        _compare_entries(model, reader, label, log)
        _compare_proofs(model, reader, label)
        _compare_times(model, reader, label)
        _compare_manifest(model, reader, label)
    for leaf, found in places.items():
        assert reader.find(leaf) in found
    assert reader.find(LeafHash(bytes(32))) is None
    for (label, upto), made in model.checkpoints.items():
        stored = reader.checkpoint(label, upto)
        assert stored is not None
        assert stored.encode() == made.encode()
    for label in model.logs:
        _compare_checkpoints(model, reader, label)


def compare_heads(model: Model, reader: Reader) -> None:
    """Compare what the next append depends on: heads, cursors, tokens, bindings."""
    assert set(reader.labels()) == {label for label, log in model.logs.items() if log}
    for label, log in model.logs.items():
        head = reader.head(label)
        assert head is not None
        assert head.seq == reader.last_seq(label) == len(log)
        assert head.hub_ts == log[-1].receipt.hub_ts
        assert head.leaf_hash == log[-1].record.leaf_hash
        assert head.root == log[-1].receipt.mmr_root == _roots(model.leaves(label))[-1]
    for label, client_id in model.clients():
        assert reader.client(label, client_id) == model.client(label, client_id)
    pruned = any(model.pruned.values()) or model.prunable  # then a repair knows less
    for client_id, since in model.since().items():
        known = reader.client_since(client_id)
        assert known is not None
        assert known == since or (pruned and known < since)
    for auth_ref, record in model.auths().items():
        found = reader.auth(auth_ref)
        assert found is not None
        assert found._replace(bucket=None) == record
    for auth_ref, left in model.buckets().items() if not pruned else ():
        found = reader.auth(auth_ref)
        assert found is not None
        assert found.bucket == left
    for label, bound in model.bindings.items():
        allowed = (bound,) if model.bindings_known else (bound, None)
        assert reader.binding(label) in allowed
        if model.bindings_known:
            assert reader.label_of(bound) == label


def _roots(leaves: Sequence[LeafHash]) -> list[NodeHash]:
    peaks, made = Peaks.empty(), []
    for leaf in leaves:
        peaks = peaks.append(leaf)
        made.append(peaks.root)
    return made


def _compare_entries(model: Model, reader: Reader, label: Label, log: Sequence[Kept]) -> None:
    first = model.pruned.get(label, 0) + 1
    stored = (
        [place.entry.encode() for place in reader.entries(label, first, len(log) + 5)]
        if log[first - 1 :]
        else []
    )
    assert stored == [kept.frame for kept in log[first - 1 :]]
    for seq in (first - 1, len(log) + 1):
        with pytest.raises(ProtocolError) as caught:
            reader.entry(label, seq)
        assert caught.value.code is Code.NOT_FOUND
    if log[first - 1 :]:
        assert reader.entry(label, len(log)).encode() == log[-1].frame


def _compare_proofs(model: Model, reader: Reader, label: Label) -> None:
    leaves = model.leaves(label)
    nodes, roots, head = complete_nodes(leaves), _roots(leaves), len(leaves)
    # Some each time, other ones after each entry: all of them would take longer than everything else.
    for seq in range(head, 0, -3):
        for size in {seq, head}:
            proof = reader.prove(label, seq, size)
            assert proof == prove_inclusion(nodes.__getitem__, stream_seq=seq, mmr_size=size)
            proof.verify(roots[size - 1], leaves[seq - 1], stream_seq=seq, mmr_size=size)
    for seq in range(max(head - 1, 1), 0, -5):
        made = reader.prove_consistency(label, seq, head)
        assert made == prove_consistency(nodes.__getitem__, old_size=seq, new_size=head)


def _compare_times(model: Model, reader: Reader, label: Label) -> None:
    times = [kept.receipt.hub_ts for kept in model.logs[label]]
    first = model.pruned.get(label, 0) + 1
    for asked in {0, *times, *(time + 1 for time in times)}:
        assert reader.seq_at(label, asked) == max(bisect_left(times, asked) + 1, first)


def _compare_manifest(model: Model, reader: Reader, label: Label) -> None:
    manifest = reader.manifest(label)
    stored = model.head(label) - manifest.journal_entries
    pruned = model.pruned.get(label, 0)
    assert manifest.first_seq == pruned + 1
    assert [ChunkFacts(*row[:5]) for row in manifest.chunks] == model.chunks(label, stored)
    for row in manifest.chunks:
        assert row.pruned == (0 < row.end_seq <= pruned)
        assert model.ever_compressed or not row.compressed


def _compare_checkpoints(model: Model, reader: Reader, label: Label) -> None:
    """Every chunk that is sealed has a checkpoint, and every checkpoint is the hub's over this log."""
    head, roots = model.head(label), _roots(model.leaves(label))
    stored = head - reader.manifest(label).journal_entries
    found = {made.upto_seq: made for made in reader.checkpoints(label, 1, head)}
    ends = {row.end_seq for row in model.chunks(label, stored) if row.end_seq}
    asked = {upto for owner, upto in model.checkpoints if owner == label}
    assert ends | asked <= found.keys()
    for upto, made in found.items():
        assert made.label_curr == label
        assert made.mmr_root == roots[upto - 1]
        made.verify_signature(HUB.public_key)
    newest = reader.latest_checkpoint(label)
    assert (newest.upto_seq if newest else None) == max(found, default=None)


def compare_report(model: Model, report: Report) -> None:
    """Compare what the checker says about a directory that was closed: nothing wrong, and the same heads."""
    assert report.ok, [str(finding) for finding in report.findings]
    assert report.signatures == "ok"
    assert report.completeness == "ok"
    assert {item.label: (item.head_seq, item.head_root) for item in report.labels} == {
        label: (len(log), log[-1].receipt.mmr_root) for label, log in model.logs.items()
    }
    for item in report.labels:  # a prune that did not come to its end leaves tombstones beside chunks
        assert item.label in model.leftovers or item.pruned_to == model.pruned.get(item.label, 0)


def new_model(compression: str, registry: Registry) -> Model:
    return Model((registry,), ever_compressed=compression != NO_COMPRESSION)
