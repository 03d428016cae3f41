"""Running queries on Spark: one session for all, over a lake that ingests the log before each query."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from veen.client.errors import NetworkError
from veen.client.hub_address import is_http_url
from veen.core.objects import labels
from veen.core.types import HubId, Label, StreamId
from veen.pipeline.lake.lake import lock_lake
from veen.pipeline.lake_jobs.ingest import Ingest
from veen.pipeline.log.hub_keys import HubKeys
from veen.pipeline.log.log import Log
from veen.pipeline.log.open import open_log
from veen.pipeline.open.keyring import Keyring
from veen.pipeline.query.engine import Engine
from veen.pipeline.query.result_rows import ResultRows
from veen.pipeline.query.scope import local_names
from veen.pipeline.shared_keys import sharing
from veen.pipeline.spark import failures, session
from veen.pipeline.spark.progress import in_group, track_progress
from veen.query.descriptor import Descriptor
from veen.query.digest import ResultDigest
from veen.query_service.errors import IngestBusyError, RunCancelledError
from veen.query_service.workers import Advance
from veen.stdx.lru import SingleFlightCache

if TYPE_CHECKING:
    from veen.pipeline.spark.session import SparkSession

# Size of the cache of answers with verified rows; the files of an answer never change.
_MOST_OPEN: Final = 64
# Polling interval for cancellation, both when waiting for the lake and to cancel Spark jobs.
_LOOK_SEC: Final = 0.5
# How long the shutdown waits for an ingest; the next start cleans up after an aborted one.
_CLOSE_SEC: Final = 5.0


class LakeRefresh:
    """A lake that ingests a log: the streams that it has, that were named, or that queries request.

    Labels do not reveal the name of their stream: a stream can only be looked up by its name.
    """

    def __init__(
        self,
        spark: "SparkSession",
        lake: Path,
        place: str,
        hub_id: HubId | None,
        keyring: Keyring | None,
        *,
        patience_sec: float = 2.0,
    ) -> None:
        """``patience_sec``: how long the lookup of a stream waits for an ingest in progress."""
        self._spark = spark
        self._place = place
        self._hub_id = hub_id
        self._keyring = keyring
        # Guards the lake and the log; held during an ingest.
        self._lock = threading.Lock()
        self._patience_sec = patience_sec
        # Streams found in the log: they never disappear.
        self._found: set[str] = set()
        self._stack = ExitStack()
        self._shared = None if keyring is None else self._stack.enter_context(sharing(spark, keyring))
        self._lake = self._stack.enter_context(lock_lake(lake, create=True))
        self._naming = threading.Lock()
        self._names: frozenset[str] = frozenset()
        # The streams for which the log was opened.
        self._streams_taken: frozenset[StreamId] = frozenset()
        self._log: Log | None = None
        self._ingest: Ingest | None = None
        # Last ingested number of each label.
        self._taken: dict[Label, int] = {}

    def close(self, patience_sec: float = _CLOSE_SEC) -> None:
        """Close log and lake.

        On timeout, an ingest in progress keeps them open until the process ends, as after a crash.
        """
        if not self._lock.acquire(timeout=patience_sec):
            return
        try:
            self._close_log()
            self._stack.close()
        finally:
            self._lock.release()

    def _close_log(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def add(self, names: Iterable[str]) -> None:
        """Add streams to be ingested."""
        with self._naming:
            self._names |= frozenset(names)

    def has(self, name: str) -> bool:
        """Whether the log has entries of a stream; IngestBusyError while an ingest prevents the lookup."""
        if name not in self._found and self._look_for(name):
            self._found.add(name)
        return name in self._found

    def _look_for(self, name: str) -> bool:
        if is_http_url(self._place):  # the log of a hub serves only the streams named when it is opened
            with closing(open_log(self._place, self._hub_id, [name])) as log:
                return bool(log.heads())
        # Only one reader per process may use a data directory.
        if not self._lock.acquire(timeout=self._patience_sec):
            raise IngestBusyError("the log is being ingested")
        try:
            log = self._opened()
            log.refresh()
            return bool(log.labels_of(labels.stream_id(name)))
        finally:
            self._lock.release()

    def keys(self) -> HubKeys:
        """Return the keys of the hub, as stated in the log."""
        with self._lock:
            return self._opened().keys

    def run(self, is_cancelled: Callable[[], bool] = lambda: False) -> None:
        """Ingest new entries of the log; RunCancelledError if cancelled.

        NetworkError if the log cannot be reached, from this process or from Spark tasks.
        """
        while not self._lock.acquire(timeout=_LOOK_SEC):
            if is_cancelled():
                raise RunCancelledError
        try:
            if self._streams():
                with _unreached():
                    self._take_in(self._opened(), is_cancelled)
        except BaseException:
            self._close_log()  # reopened by the next run
            raise
        finally:
            self._lock.release()

    def _take_in(self, log: Log, is_cancelled: Callable[[], bool]) -> None:
        log.refresh()
        heads = self._meant(log)
        if is_cancelled():
            raise RunCancelledError
        if heads != self._taken and self._ingest is not None:
            self._lake.recover()  # after a cancelled run, or one that lost the log
            self._ingest.run()
            self._taken = heads

    def _meant(self, log: Log) -> dict[Label, int]:
        """Return the last numbers of ingested labels; records of the service do not count as new."""
        heads = log.heads()
        labels_of = [label for stream in self._streams_taken for label in log.labels_of(stream).values()]
        return {label: heads[label].last_seq for label in labels_of if label in heads}

    def _opened(self) -> Log:
        streams = self._streams()
        if streams != self._streams_taken:
            self._close_log()
        if self._log is None:
            self._log = open_log(self._place, self._hub_id, sorted(stream.hex() for stream in streams))
            self._streams_taken = streams
            # Without streams, Ingest would ingest all.
            self._ingest = self._make_ingest(self._log, streams) if streams else None
            self._taken = {}
        return self._log

    def _make_ingest(self, log: Log, streams: Iterable[StreamId]) -> Ingest:
        return Ingest(
            self._spark,
            self._lake,
            log,
            keyring=self._keyring,
            shared=self._shared,
            overlays=None,
            streams=streams,
        )

    def _streams(self) -> frozenset[StreamId]:
        here = {fact.stream for fact in self._lake.state.labels.values() if fact.stream is not None}
        return frozenset(here | {*map(labels.stream_id, self._names)})


class SparkRuns:
    """Runs queries with the engine of the pipeline."""

    def __init__(self, engine: Engine, intake: LakeRefresh | None) -> None:
        self._spark = engine.spark
        self._engine = engine
        self._intake = intake
        self._cancelled: set[str] = set()
        # Answers whose rows match their digests.
        self._rows: SingleFlightCache[Path, ResultRows] = SingleFlightCache(_MOST_OPEN)

    def knows(self, stream: str) -> bool:
        """Whether the lake or the log has a stream."""
        if self._engine.knows(stream):
            return True
        intake, names = self._intake, local_names(stream, self._engine.names)
        return intake is not None and any(intake.has(name) for name in names)

    def run(
        self, descriptor: Descriptor, *, result_id: str, out: Path, executed_at: int, progress: Advance
    ) -> ResultDigest:
        """Ingest what is new, then execute the query."""
        before = (0, 0)

        def advance(done: int, total: int) -> None:
            nonlocal before
            before = done, total
            progress(done, total)

        try:
            with self._ending(result_id):
                self._take_in(descriptor, result_id, advance)
                taken, tasks = before  # finished tasks of the ingest still count
                answer = self._engine.run(
                    descriptor,
                    result_id=result_id,
                    out=out,
                    executed_at=executed_at,
                    progress=lambda done, total: progress(taken + done, tasks + total),
                )
        finally:
            self._cancelled.discard(result_id)
        self._rows.put(out, answer.rows)
        return answer.digest

    @contextmanager
    def _ending(self, result_id: str) -> Iterator[None]:
        """Cancel the Spark jobs of a cancelled query, including those that start after the cancellation."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(_LOOK_SEC):
                if result_id in self._cancelled:
                    with suppress(Exception):  # if Spark has ended, the run itself fails
                        self._cancel_jobs(result_id)

        thread = threading.Thread(target=watch, name=f"veen-ending-{result_id}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _take_in(self, descriptor: Descriptor, result_id: str, progress: Advance) -> None:
        """Ingest the streams in scope; they may be new here if another process accepted the query."""
        if self._intake is None:
            return
        names, context = self._engine.names, self._spark.sparkContext
        self._intake.add(local for stream in descriptor.scope for local in local_names(stream, names))
        group = in_group(context, result_id, f"taking in, for {descriptor.query_id}")
        with group, track_progress(context, progress):
            self._intake.run(lambda: result_id in self._cancelled)
        if result_id in self._cancelled:
            raise RunCancelledError

    def cancel(self, result_id: str) -> None:
        """Cancel the jobs of a query, including those that would start now."""
        self._cancelled.add(result_id)
        self._cancel_jobs(result_id)

    def _cancel_jobs(self, result_id: str) -> None:
        self._spark.sparkContext.cancelJobGroup(result_id)

    def page(
        self, out: Path, digest: ResultDigest, offset: int, limit: int, most_bytes: int
    ) -> Sequence[bytes]:
        """Return rows of an answer, read from their files without Spark; all are verified once."""

        def find() -> ResultRows:
            rows = ResultRows(out)
            rows.require(digest)
            return rows

        return self._rows.get(out, find).page(offset, limit, most_bytes)

    def is_gone(self, patience_sec: float) -> bool:
        """Whether Spark's JVM has ended."""
        return session.has_ended(patience_sec)

    def text_of(self, error: Exception) -> str | None:
        """Return the reason of a failure in Spark."""
        return session.reason_of(error)


@contextmanager
def _unreached() -> Iterator[None]:
    """Convert a failure of tasks to reach the log to the NetworkError of a local failure."""
    try:
        yield
    except Exception as error:
        if failures.cause_of(error) is not NetworkError:
            raise
        raise NetworkError(session.reason_of(error)) from None
