"""Running queries: a few concurrently, each in a thread, in the order in which they were accepted."""

import logging
import re
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from veen.client.errors import NetworkError
from veen.core.errors import VeenError
from veen.query.descriptor import Descriptor, parse_descriptor
from veen.query.digest import ResultDigest
from veen.query.errors import QueryError
from veen.query_service.errors import EngineEndedError, RunCancelledError
from veen.query_service.recorder import recordable
from veen.query_service.settings import ServiceSettings
from veen.query_service.store import Query, State, Store
from veen.stdx.json_log import LogEvent

_log = logging.getLogger(__name__)

# Reports progress: finished tasks, and tasks known so far.
Advance = Callable[[int, int], None]


class Runs(Protocol):
    """Executes queries."""

    def knows(self, stream: str) -> bool:
        """Whether there is a stream of this name.

        Raises IngestBusyError or NetworkError if that is unknown now.
        """

    def run(
        self, descriptor: Descriptor, *, result_id: str, out: Path, executed_at: int, progress: Advance
    ) -> ResultDigest:
        """Execute a query; its rows are in ``out``, durable, when this returns.

        QueryError is a failure of the query, RunCancelledError the end of a cancelled one, NetworkError an
        unreachable log: the query can be run later.
        """

    def cancel(self, result_id: str) -> None:
        """Cancel a run as soon as possible, from another thread; no effect if it is over."""

    def page(
        self, out: Path, digest: ResultDigest, offset: int, limit: int, most_bytes: int
    ) -> Sequence[bytes]:
        """Return rows of an answer in order, each in canonical JSON; fewer if they are long.

        QueryError if the stored rows no longer match the digest.
        """

    def is_gone(self, patience_sec: float) -> bool:
        """Whether the engine has ended, or ends within this time; a restart of the service brings it back."""

    def text_of(self, error: Exception) -> str | None:
        """Return the text for a failure of the engine; None if it is a bug in this program."""


# The directories of an absolute path; matches nothing in URLs and names of streams.
_DIRECTORIES: Final = re.compile(r"(?<![\w.:/-])/(?:[^/\s'\",:]+/)+")


def without_directories(text: str) -> str:
    """Remove directories from an error text: clients should not learn the layout of this machine."""
    return _DIRECTORIES.sub("", text)


def stored_descriptor(query: Query) -> Descriptor:
    """Return the descriptor of a stored query."""
    return parse_descriptor(query.descriptor.encode(), lambda: query.query_id)


class Workers:
    """The threads that run queries, and their progress."""

    def __init__(
        self,
        settings: ServiceSettings,
        store: Store,
        runs: Runs,
        *,
        permit: Callable[[Query], None],
        on_end: Callable[[], None],
        on_fatal: Callable[[Exception], None],
    ) -> None:
        """``permit`` raises QueryError if a query may no longer run; ``on_end`` is called after each run."""
        self._settings = settings
        self._store = store
        self._runs = runs
        self._permit = permit
        self._on_end = on_end
        self._on_fatal = on_fatal
        self._changed = threading.Condition()
        self._ended = False
        # Progress of the running queries, by result id.
        self._progress: dict[str, tuple[int, int]] = {}
        self._threads = [
            threading.Thread(target=self._work, name=f"veen-query-{nth}", daemon=True)
            for nth in range(settings.concurrency)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Signal that a query may be waiting."""
        with self._changed:
            self._changed.notify_all()

    def progress(self, result_id: str) -> tuple[int, int]:
        """Return finished and known tasks of a query."""
        return self._progress.get(result_id, (0, 0))

    def cancel(self, result_id: str) -> None:
        """Cancel a running query, which the store has marked as cancelled."""
        if result_id in self._progress:
            self._runs.cancel(result_id)

    def stop(self, patience_sec: float) -> None:
        """Start no other query; on timeout, cancel the running ones, which the next start runs again."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._progress, patience_sec)
        for result_id in list(self._progress):
            self._runs.cancel(result_id)
        for thread in self._threads:
            thread.join(_LAST_PATIENCE_SEC)

    def _work(self) -> None:
        try:
            while (query := self._next()) is not None:
                if self._settle(query):
                    continue
                with self._changed:
                    self._changed.wait_for(lambda: self._ended, self._settings.retry_sec)
        except Exception as error:  # noqa: BLE001 - no store or no engine: the next start goes on
            self._on_fatal(error)

    def _settle(self, query: Query) -> bool:
        """Run a query; return False if it is to run again later."""
        ended = True
        try:
            self._run(query)
        except Exception as error:  # noqa: BLE001 - a query's failure is the query's, and the thread goes on
            ended = self._fail(query, error)
        finally:
            with self._changed:
                del self._progress[query.result_id]
                if not ended:
                    self._store.put_back(query.result_id)
                self._changed.notify_all()
        self._on_end()
        return ended

    def _next(self) -> Query | None:
        """Wait for a query; None when stopping."""
        with self._changed:
            while not self._ended:
                if self._runs.is_gone(0.0):  # otherwise the next query would fail for it
                    raise EngineEndedError
                query = self._store.begin(self._settings.clock())
                if query is not None:
                    self._progress[query.result_id] = (0, 0)
                    return query
                self._changed.wait()
        return None

    def _run(self, query: Query) -> None:
        self._permit(query)
        out = self._settings.results_dir / query.result_id
        shutil.rmtree(out, ignore_errors=True)  # of an incomplete earlier run

        def advance(done: int, total: int) -> None:
            self._progress[query.result_id] = (done, total)

        started = self._settings.clock()
        if self._is_cancelled(query):  # a cancellation between begin and here did not reach the engine
            raise RunCancelledError
        digest = self._runs.run(
            stored_descriptor(query),
            result_id=query.result_id,
            out=out,
            executed_at=started,
            progress=advance,
        )
        after = self._store.answer(query.result_id, recordable(digest), self._settings.clock())
        _log.info(LogEvent("answered", result_id=query.result_id, rows=digest.row_count))
        if after.state is State.FAILED:
            shutil.rmtree(out, ignore_errors=True)

    def _is_cancelled(self, query: Query) -> bool:
        current = self._store.find(query.result_id)
        return current is not None and current.cancelled

    def _fail(self, query: Query, error: Exception) -> bool:
        """Store why a query failed; return False if it is to be retried."""
        shutil.rmtree(self._settings.results_dir / query.result_id, ignore_errors=True)  # QRY-041: no rows
        if self._is_cancelled(query):
            code, message = "cancelled", "the query was cancelled"
        elif isinstance(error, NetworkError) or (self._ended and not isinstance(error, QueryError)):
            _log.warning(LogEvent("query-put-back", result_id=query.result_id, error=str(error)))
            return False
        elif not isinstance(error, QueryError) and self._runs.is_gone(_DYING_SEC):
            _log.error(LogEvent("engine-gone", error=self._runs.text_of(error) or str(error)))
            raise error  # the engine is gone: the query runs again after the next start
        else:
            code, message = self._described(error)
        _log.warning(LogEvent("query-failed", result_id=query.result_id, code=code, error=message))
        self._store.fail(query.result_id, code, without_directories(message), self._settings.clock())
        return True

    def _described(self, error: Exception) -> tuple[str, str]:
        if isinstance(error, QueryError):
            return error.error_code, error.message
        text = str(error) if isinstance(error, VeenError) else self._runs.text_of(error)
        if text is None:
            _log.error(LogEvent("fault", error=f"{type(error).__name__}: {error}"))
            text = "the query met a fault of the service; see its log"
        return "execution_failed", text


# Time between an engine's last response and its end.
_DYING_SEC: Final = 1.0
# Time for a run to notice its cancellation; after that it is abandoned until the process ends.
_LAST_PATIENCE_SEC: Final = 10.0
