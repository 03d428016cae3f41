"""The query service without its network: access control, and the life cycle of queries."""

import logging
import shutil
from collections.abc import Sequence
from typing import Any, Final

from veen.client.errors import NetworkError
from veen.core.crypto.hash import sha256
from veen.core.encoding import canonical_json
from veen.core.encoding.hexadecimal import is_hex32
from veen.query.descriptor import is_id, new_query_id, new_result_id, parse_descriptor
from veen.query.digest import ResultDigest
from veen.query.errors import QueryError, not_a_stream
from veen.query.policy import Principal, may_read
from veen.query.timestamps import format_time
from veen.query_service.errors import (
    BusyError,
    DuplicateQueryError,
    EngineEndedError,
    IngestBusyError,
    QueueFullError,
)
from veen.query_service.grants import PolicyFile
from veen.query_service.recorder import Recorder, Sender
from veen.query_service.settings import ServiceEvents, ServiceSettings
from veen.query_service.store import Kind, Query, RecordedAt, State, Store
from veen.query_service.workers import Runs, Workers, stored_descriptor
from veen.stdx.grammar import counted
from veen.stdx.json_log import LogEvent

_log = logging.getLogger(__name__)

DEFAULT_LIMIT: Final = 1000
MOST_LIMIT: Final = 10_000
# A page ends before the row that would exceed this, but has at least one row.
MOST_PAGE_BYTES: Final = 16 << 20


class QueryService:
    """Accepts queries, runs them, records them, and returns their results. Thread-safe."""

    def __init__(
        self,
        settings: ServiceSettings,
        policy: PolicyFile,
        runs: Runs,
        sender: Sender,
        store: Store,
        *,
        events: ServiceEvents,
    ) -> None:
        settings.results_dir.mkdir(mode=0o700, exist_ok=True)
        self._settings = settings
        self.policy = policy
        self._runs = runs
        self._store = store
        self._events = events
        self._recorder = Recorder(store, sender, settings.clock, on_step=self._stepped, on_fatal=self._fatal)
        self._workers = Workers(
            settings,
            store,
            runs,
            permit=self._require_still,
            on_end=self._recorder.wake,
            on_fatal=self._fatal,
        )
        self.stopping = False

    def start(self) -> None:
        """Recover the state of the last run, and start."""
        requeued = self._store.recover(self._settings.clock())
        if requeued:
            _log.info(LogEvent("running-again", queries=requeued))
        self._remove_rows()
        self._recorder.start()
        self._workers.start()

    def _remove_rows(self) -> None:
        """Remove rows that can never be returned, of incomplete runs."""
        for directory in self._settings.results_dir.iterdir():
            query = self._store.find(directory.name)
            if query is not None and query.state not in (State.COMMITTING, State.COMPLETED):
                shutil.rmtree(directory, ignore_errors=True)

    def stop(self) -> None:
        """Shut down cleanly: the next start continues with unfinished queries."""
        self.stopping = True
        self._workers.stop(self._settings.drain_sec)
        self._recorder.stop()
        self._store.close()

    @property
    def is_ready(self) -> bool:
        """Whether queries can be accepted, recorded and run now."""
        return not self.stopping and self._recorder.is_working and not self._runs.is_gone(0.0)

    def look(self) -> None:
        """Check that queries can still be run; to be called periodically, also when idle."""
        if not self.stopping and self._runs.is_gone(0.0):
            _log.error(LogEvent("engine-gone"))
            self._events.fatal(str(EngineEndedError()))

    def _stepped(self, query: Query) -> None:
        if query.state is State.PENDING:
            self._workers.wake()
        self._events.recorded(query.result_id)

    def _fatal(self, error: Exception) -> None:
        _log.error(LogEvent("fault", error=f"{type(error).__name__}: {error}"))
        self._events.fatal(str(error))

    # --- submitting -----------------------------------------------------------------------------------------

    def submit(self, principal: Principal, data: bytes) -> Query:
        """Accept a query; it runs when its request is in the log (QRY-045)."""
        descriptor = parse_descriptor(data, lambda: new_query_id(self._settings.random))
        self._require_streams(principal, descriptor.scope)
        if self.stopping:
            raise BusyError("the service is stopping")
        query = Query(
            result_id=new_result_id(self._settings.random),
            query_id=descriptor.query_id,
            principal=principal.name,
            identity=principal.identity.hex(),
            descriptor=descriptor.encode().decode(),
            state=State.RECEIVED,
            received_at=self._settings.clock(),
        )
        try:
            self._store.receive(query, max_waiting=self._settings.max_waiting)
        except DuplicateQueryError:
            raise self._duplicate(principal, query.query_id) from None
        except QueueFullError:
            raise BusyError(
                f"{counted(self._settings.max_waiting, 'query')} waiting already; try again later"
            ) from None
        _log.info(
            LogEvent("received", query_id=query.query_id, result_id=query.result_id, principal=principal.name)
        )
        self._recorder.wake()
        return query

    def _require_streams(self, principal: Principal, scope: Sequence[str]) -> None:
        """Reject missing and unreadable streams with the same error, to hide which it is (QRY-012)."""
        for stream in scope:
            # Streams are found by name: an id would have no rows.
            if is_hex32(stream) or not may_read(principal, stream):
                raise not_a_stream(stream)
        try:
            for stream in scope:
                if not self._runs.knows(stream):
                    raise not_a_stream(stream)
        except (IngestBusyError, NetworkError) as error:
            _log.warning(LogEvent("log-not-asked", error=str(error)))
            raise BusyError("the streams of the log cannot be listed now; retry later") from None

    def _duplicate(self, principal: Principal, query_id: str) -> QueryError:
        existing = self._store.find_query(query_id)
        mine = existing is not None and _owns(principal, existing)
        where = f"; its result is {existing.result_id}" if existing is not None and mine else ""
        return QueryError("duplicate_query_id", f"query_id {query_id} was used before{where}")

    def is_accepted(self, result_id: str) -> bool:
        """Whether the request of a query is in the log."""
        return self._store.place(result_id, Kind.REQUEST) is not None

    def cancel(self, principal: Principal, result_id: str) -> dict[str, Any]:
        """Cancel a query of the caller; one that has ended stays as it is."""
        query = self._visible(principal, self._store.find(result_id) if is_id(result_id) else None)
        if not _owns(principal, query):
            raise _not_found()
        after = self._store.cancel(result_id, self._settings.clock())
        if after.cancelled:
            self._workers.cancel(result_id)
        self._recorder.wake()
        return self._status(after)

    # --- reading --------------------------------------------------------------------------------------------

    def status(self, principal: Principal, result_id: str) -> dict[str, Any]:
        """Return the status of a query (QRY-048)."""
        return self._status(self._by_result(principal, result_id))

    def _status(self, query: Query) -> dict[str, Any]:
        done, total = self._workers.progress(query.result_id)
        return {
            "query_id": query.query_id,
            "result_id": query.result_id,
            "status": query.state.public_name,
            "error_code": query.error_code,
            "message": query.message,
            "progress": {"tasks_done": done, "tasks_total": total} if query.state is State.RUNNING else None,
            "received_at": format_time(query.received_at),
            "started_at": None if query.started_at is None else format_time(query.started_at),
            "ended_at": None if query.ended_at is None else format_time(query.ended_at),
        }

    def result(self, principal: Principal, result_id: str, offset: int, limit: int) -> bytes:
        """Return a page of an answer, in JSON (QRY-049, QRY-050)."""
        query = self._by_result(principal, result_id)
        if query.state is State.FAILED:
            code = query.error_code if query.error_code == "cancelled" else "execution_failed"
            raise QueryError(code, query.message or "the query has failed")
        if query.state is not State.COMPLETED:
            raise QueryError(
                "result_not_ready", f"the query is {query.state.public_name}; ask for its status"
            )
        assert query.digest is not None, "who is completed has a digest"
        digest = ResultDigest.from_json(canonical_json.parse(query.digest.encode()))
        total = digest.row_count
        count = min(limit, max(0, total - offset))
        place = self._settings.results_dir / result_id
        rows = self._runs.page(place, digest, offset, count, MOST_PAGE_BYTES) if count else ()
        if count and not rows:  # an empty page would send the client into an endless loop
            raise QueryError(
                "execution_failed", f"row {offset} of {result_id} is no longer stored; submit the query again"
            )
        end = offset + len(rows)
        if not _owns(principal, query):
            self._store.note_read(result_id, principal.identity.hex(), self._settings.clock())
            self._recorder.wake()
        page = {
            "offset": offset,
            # The actual limit: smaller than the requested one if the rows are long.
            "limit": len(rows) if len(rows) < count else limit,
            "total": total,
            "has_more": end < total,
            "next_offset": end if end < total else None,
        }
        event = self._store.place(query.result_id, Kind.RESULT)
        assert event is not None, "completed means recorded (QRY-057)"
        return b'{"result_digest":%s,"record_event":%s,"receipt":"%s","page":%s,"rows":[%s]}' % (
            query.digest.encode(),
            canonical_json.encode(_event(event)),
            event.receipt.hex().encode(),
            canonical_json.encode(page),
            b",".join(rows),
        )

    def descriptor(self, principal: Principal, query_id: str) -> bytes:
        """Return the descriptor, and its position in the log (QRY-051)."""
        query = self._visible(principal, self._store.find_query(query_id) if is_id(query_id) else None)
        place = self._store.place(query.result_id, Kind.REQUEST)
        event = None if place is None else _event(place)
        return b'{"descriptor":%s,"record_event":%s,"result_id":%s}' % (
            query.descriptor.encode(),
            canonical_json.encode(event),
            canonical_json.encode(query.result_id),
        )

    def _by_result(self, principal: Principal, result_id: str) -> Query:
        return self._visible(principal, self._store.find(result_id) if is_id(result_id) else None)

    def _visible(self, principal: Principal, query: Query | None) -> Query:
        """Return a query that the principal may see: as owner or auditor, and with access to all its streams.

        For others the error is the same as for a query that does not exist.
        """
        if query is None or not (_owns(principal, query) or principal.auditor):
            raise _not_found()
        if not all(may_read(principal, stream) for stream in stored_descriptor(query).scope):
            raise _not_found()
        return query

    def _require_still(self, query: Query) -> None:
        """Reject a query whose owner has lost access since it was submitted."""
        current = next((item for item in self.policy.now().principals if _owns(item, query)), None)
        for stream in stored_descriptor(query).scope:
            if current is None or not may_read(current, stream):
                raise QueryError("forbidden_scope", f"{query.principal} may not query {stream} any more")


def _owns(principal: Principal, query: Query) -> bool:
    """Whether a query belongs to a principal: by identity, which outlives tokens, certificates and names.

    A later principal with the same name has another identity.
    """
    return principal.identity.hex() == query.identity


def _not_found() -> QueryError:
    return QueryError("query_not_found", "there is no such query, or you may not see it")


def _event(place: RecordedAt) -> dict[str, Any]:
    return {
        "stream": place.stream,
        "epoch": place.epoch,
        "seq": place.seq,
        "hub_id": place.hub_id,
        "receipt_id": sha256(place.receipt).hex(),
    }
