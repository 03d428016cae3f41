"""Execute queries: from a descriptor to rows on disk and their digest, the same bytes on every backend."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.parquet as pq
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from veen.core.objects.hub_identity import HubIdentity
from veen.pipeline.errors import DamagedLakeError
from veen.pipeline.lake.commits import State
from veen.pipeline.lake.committed_files import require_sizes
from veen.pipeline.lake.lake import load
from veen.pipeline.lake_jobs.file_hashes import require_committed
from veen.pipeline.log.hub_keys import HubKeys
from veen.pipeline.query.backend import Backend, LocalBackend, SparkBackend
from veen.pipeline.query.columns import Needs
from veen.pipeline.query.coverage import unread
from veen.pipeline.query.event_sources import Sources
from veen.pipeline.query.evidence import Evidence
from veen.pipeline.query.local_backend import pick
from veen.pipeline.query.result_rows import ResultRows
from veen.pipeline.query.result_writer import ResultWriter
from veen.pipeline.query.scope import Scope, find_stream, own_labels, resolve
from veen.pipeline.spark.progress import Advance, in_group, track_progress
from veen.query.descriptor import Descriptor
from veen.query.digest import NONE_HASH, EvidenceHasher, Position, ResultDigest
from veen.query.errors import QueryError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Answer(NamedTuple):
    """The digest of an answer, and its rows, which are durable."""

    digest: ResultDigest
    rows: ResultRows


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """A query that is to be executed, and where its answer goes."""

    descriptor: Descriptor
    result_id: str
    out: Path
    executed_at: int
    upto: Sequence[Position] | None
    # The result id that evidence is computed with: that of the answer being replayed (QRY-036).
    evidence_id: str
    # A replay should be compared with the log, not with tables that may be damaged.
    is_replay: bool


@dataclass(frozen=True)
class Engine:
    """Executes queries over a lake."""

    spark: "SparkSession"
    root: Path
    # Local names of other zones' streams; names that begin with export/ need none (QRY-061).
    names: Mapping[str, str] = field(default_factory=dict)
    # Hubs of other zones, whose receipts copies contain, by id.
    origins: Mapping[bytes, HubIdentity] = field(default_factory=dict)
    # The hub's keys, for a lake without them: one ingested from a set or from a hub's address.
    keys: Callable[[], HubKeys | None] = lambda: None
    # Queries that touch at most this many rows are executed without Spark.
    few_rows: int = 1 << 16

    def knows(self, stream: str) -> bool:
        """Return whether the lake has a stream of this name, or copies of it."""
        try:
            find_stream(own_labels(self.root), stream, self.names)
        except QueryError:
            return False
        return True

    def run(
        self,
        descriptor: Descriptor,
        *,
        result_id: str,
        out: Path,
        executed_at: int,
        upto: Sequence[Position] | None = None,
        replay_of: ResultDigest | None = None,
        progress: Advance | None = None,
    ) -> Answer:
        """Execute a query, in a job group named after its result.

        With ``upto``, over the log as it was there. ``replay_of`` is the answer that is repeated: its
        positions count, unless others are given, and evidence is summed up under its name.
        """
        order = Execution(
            descriptor=descriptor,
            result_id=result_id,
            out=out,
            executed_at=executed_at,
            upto=replay_of.upto if upto is None and replay_of is not None else upto,
            evidence_id=result_id if replay_of is None else replay_of.result_id,
            is_replay=replay_of is not None,
        )
        context, state = self.spark.sparkContext, load(self.root)
        group = in_group(context, result_id, f"query {descriptor.query_id}")
        with group, nullcontext() if progress is None else track_progress(context, progress):
            try:
                return self._execute(order, state)
            except (PySparkException, Py4JError, FileNotFoundError, QueryError):
                now = load(self.root)
                if state.files.keys() <= now.files.keys():
                    raise
            # A commit has replaced files that were being read: the current files have the same events.
            return self._execute(order, now)

    def _execute(self, order: Execution, state: State) -> Answer:
        descriptor = order.descriptor
        scope = resolve(
            self.root, state, descriptor.scope, called=self.names, upto=order.upto, origins=self.origins
        )
        sources = Sources(self.root, state, scope, descriptor.filter)
        needs = Needs(descriptor)
        self._require_files(sources, by_hash=needs.has_evidence or order.is_replay)
        making = self._making(sources, needs, order.out)
        making.write()
        rows = ResultRows(order.out)
        evidence_hash = NONE_HASH
        if needs.has_evidence:
            evidence_hash = self._verified(order, state, scope, making)
        making.clean()
        assert state.hub_id is not None, "a lake with streams is of a hub"
        digest = ResultDigest(
            query_id=descriptor.query_id,
            result_id=order.result_id,
            row_count=rows.count,
            evidence_policy=descriptor.evidence,
            rows_hash=rows.rows_hash(),
            evidence_hash=evidence_hash,
            executed_at=order.executed_at,
            hub_id=state.hub_id,
            upto=scope.positions,
            unread=unread(self.root, state, scope),
        )
        return Answer(digest, rows)

    def _making(self, sources: Sources, needs: Needs, out: Path) -> ResultWriter[Any]:
        """Execute in this process if few rows are touched: tasks would take longer to start."""
        picked = pick(sources, self.few_rows)
        work: Backend[Any] = SparkBackend(self.spark) if picked is None else LocalBackend(picked)
        return ResultWriter(work, sources, needs, out)

    def _require_files(self, sources: Sources, *, by_hash: bool) -> None:
        """Reject tables that differ from the commit, as far as names and sizes show it."""
        try:
            if by_hash:
                require_committed(self.spark.sparkContext, self.root, sources.files)
            else:
                require_sizes(self.root, sources.files)
        except DamagedLakeError as error:
            raise QueryError("execution_failed", str(error)) from None

    def _verified(self, order: Execution, state: State, scope: Scope, making: ResultWriter[Any]) -> str:
        policy = order.descriptor.evidence
        hasher = EvidenceHasher(order.descriptor.query_id, order.evidence_id, policy.mode, policy.sample_rate)
        streams = {fact.label: stream.local for stream in scope.streams for fact in stream.labels}
        places = making.places()
        events = sum(pq.read_metadata(path).num_rows for path in places)
        leaves = sum(fact.upto_seq for stream in scope.streams for fact in stream.labels)
        # Leaves are hashed once or twice; signatures take fifty times as long.
        is_little = leaves + 50 * events <= self.few_rows
        work: Backend[Any] = LocalBackend() if is_little else SparkBackend(self.spark)
        context = self.spark.sparkContext
        evidence = Evidence(
            work, context, self.root, state, streams=streams, origins=self.origins, keys=self.keys
        )
        evidence.verify(places, order.out, hasher)
        return hasher.evidence_hash
