"""The durable state of the query service, in SQLite: queries with their states, and pending records.

Each step is durable before the next begins, and no step leaves COMPLETED or FAILED (QRY-055): the tables
enforce this themselves.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from threading import RLock
from typing import Any, Final

from veen.query_service.errors import DuplicateQueryError, QueueFullError, StoreError
from veen.stdx.grammar import counted

# Maximum number of crashes of the service while it runs a query; the query may be their cause.
MOST_ATTEMPTS: Final = 3
_FIELDS: Final = (
    "result_id, query_id, principal, identity, descriptor, state, received_at, started_at, ended_at,"
    " attempts, cancelled, error_code, message, digest"
)
_VERSION: Final = 2

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS queries (
    result_id TEXT PRIMARY KEY,
    query_id TEXT NOT NULL UNIQUE,
    principal TEXT NOT NULL,
    identity TEXT NOT NULL,
    descriptor TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN
        ('RECEIVED', 'PENDING', 'RUNNING', 'COMMITTING', 'COMPLETED', 'FAILED')),
    received_at INTEGER NOT NULL,
    started_at INTEGER,
    ended_at INTEGER,
    attempts INTEGER NOT NULL DEFAULT 0,
    cancelled INTEGER NOT NULL DEFAULT 0,
    error_code TEXT,
    message TEXT,
    digest TEXT,
    CHECK ((state = 'FAILED') = (error_code IS NOT NULL)),
    CHECK ((state IN ('COMMITTING', 'COMPLETED')) = (digest IS NOT NULL))
) STRICT;
CREATE INDEX IF NOT EXISTS queries_by_state ON queries (state);
CREATE TRIGGER IF NOT EXISTS no_way_back BEFORE UPDATE ON queries
WHEN OLD.state IN ('COMPLETED', 'FAILED')
BEGIN SELECT RAISE(ABORT, 'a final state does not change'); END;
CREATE TRIGGER IF NOT EXISTS known_steps BEFORE UPDATE OF state ON queries
WHEN OLD.state || '>' || NEW.state NOT IN
    ('RECEIVED>PENDING', 'RECEIVED>FAILED', 'PENDING>RUNNING', 'PENDING>FAILED', 'RUNNING>PENDING',
     'RUNNING>COMMITTING', 'RUNNING>FAILED', 'COMMITTING>COMPLETED', 'COMMITTING>FAILED')
BEGIN SELECT RAISE(ABORT, 'no such step'); END;
CREATE TRIGGER IF NOT EXISTS no_deletion BEFORE DELETE ON queries
BEGIN SELECT RAISE(ABORT, 'queries are kept'); END;
CREATE TABLE IF NOT EXISTS records (
    id INTEGER PRIMARY KEY,
    result_id TEXT NOT NULL REFERENCES queries,
    kind TEXT NOT NULL CHECK (kind IN ('request', 'result', 'audit', 'read')),
    reader TEXT NOT NULL DEFAULT '',
    at INTEGER NOT NULL DEFAULT 0,
    tried INTEGER NOT NULL DEFAULT 0,
    stream TEXT,
    epoch INTEGER,
    seq INTEGER,
    hub_id TEXT,
    receipt BLOB,
    UNIQUE (result_id, kind, reader),
    CHECK ((kind = 'read') = (reader <> ''))
) STRICT;
CREATE INDEX IF NOT EXISTS records_to_make ON records (id) WHERE receipt IS NULL;
"""


class State(StrEnum):
    """The state of a query."""

    # Accepted; its request is not confirmed in the log yet.
    RECEIVED = "RECEIVED"
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    # Rows and digest are durable; the digest is not confirmed in the log yet.
    COMMITTING = "COMMITTING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"

    @property
    def public_name(self) -> str:
        """The state in terms of the interface (QRY-048)."""
        return {State.RECEIVED: "pending", State.COMMITTING: "running"}.get(self, self.value.lower())


class Kind(StrEnum):
    """The kinds of records about a query."""

    REQUEST = "request"
    RESULT = "result"
    AUDIT = "audit"
    # Another principal has read its rows.
    READ = "read"


@dataclass(frozen=True, slots=True)
class Query:
    """The stored state of a query."""

    result_id: str
    query_id: str
    # Name and identity (in hex) of the owner.
    principal: str
    identity: str
    # Normalized, in canonical JSON.
    descriptor: str
    state: State
    received_at: int
    started_at: int | None = None
    ended_at: int | None = None
    attempts: int = 0
    cancelled: bool = False
    error_code: str | None = None
    message: str | None = None
    # In canonical JSON.
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class RecordedAt:
    """Position of an event in the log, with its encoded receipt."""

    stream: str
    epoch: int
    seq: int
    hub_id: str
    receipt: bytes


@dataclass(frozen=True, slots=True)
class PendingRecord:
    """A record to be written to the log; if ``tried``, it may be there already."""

    number: int
    kind: Kind
    query: Query
    tried: bool
    # For a read: the identity of the reader, in hex, and the time.
    reader: str = ""
    at: int = 0


def _query(row: tuple[Any, ...]) -> Query:
    query = Query(*row)
    return replace(query, state=State(query.state), cancelled=bool(query.cancelled))


class Store:
    """The state of one service. Thread-safe; one call at a time."""

    def __init__(self, path: Path) -> None:
        self._lock = RLock()
        try:
            path.touch(mode=0o600)  # SQLite creates its other files with the same mode
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute("PRAGMA foreign_keys=ON")
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            if version == 0:  # another process may create the tables too: hence IF NOT EXISTS
                self._db.executescript(f"BEGIN IMMEDIATE;{_SCHEMA}PRAGMA user_version={_VERSION};COMMIT")
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"{path} cannot be used: {error}") from None
        if version not in (0, _VERSION):
            raise StoreError(f"{path} is of another version of this program ({version}, not {_VERSION})")

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._db.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # a full disk has already ended it
                    self._db.execute("ROLLBACK")
                raise

    # --- reading --------------------------------------------------------------------------------------------

    def find(self, result_id: str) -> Query | None:
        """Return a query by the id of its result."""
        return self._find("result_id", result_id)

    def find_query(self, query_id: str) -> Query | None:
        """Return a query by its id."""
        return self._find("query_id", query_id)

    def _find(self, column: str, value: str) -> Query | None:
        with self._lock:
            row = self._db.execute(
                f"SELECT {_FIELDS} FROM queries WHERE {column} = ?",  # noqa: S608 - ours, both
                (value,),
            ).fetchone()
        return None if row is None else _query(row)

    def _get(self, result_id: str) -> Query:
        query = self.find(result_id)
        assert query is not None, "queries are not forgotten"
        return query

    def count(self, *states: State) -> int:
        """Count the queries in some states."""
        marks = ",".join("?" * len(states))
        with self._lock:
            (total,) = self._db.execute(
                f"SELECT count(*) FROM queries WHERE state IN ({marks})",  # noqa: S608 - question marks
                states,
            ).fetchone()
        return int(total)

    def place(self, result_id: str, kind: Kind) -> RecordedAt | None:
        """Return the position of a record of a query in the log; None if it is not confirmed."""
        with self._lock:
            row = self._db.execute(
                "SELECT stream, epoch, seq, hub_id, receipt FROM records"
                " WHERE result_id = ? AND kind = ? AND receipt IS NOT NULL",
                (result_id, kind),
            ).fetchone()
        return None if row is None else RecordedAt(*row)

    # --- the life of a query --------------------------------------------------------------------------------

    def receive(self, query: Query, *, max_waiting: int) -> None:
        """Store a new query; of concurrent ones with the same id, one succeeds (QRY-047)."""
        with self._writing() as db:
            if self.find_query(query.query_id) is not None:
                raise DuplicateQueryError(query.query_id)
            if self.count(State.RECEIVED, State.PENDING) >= max_waiting:
                raise QueueFullError(f"{counted(max_waiting, 'query')} waiting")
            db.execute(
                "INSERT INTO queries"
                " (result_id, query_id, principal, identity, descriptor, received_at, state)"
                " VALUES (?, ?, ?, ?, ?, ?, 'RECEIVED')",
                (
                    query.result_id,
                    query.query_id,
                    query.principal,
                    query.identity,
                    query.descriptor,
                    query.received_at,
                ),
            )
            self._to_record(query.result_id, Kind.REQUEST)

    def begin(self, now: int) -> Query | None:
        """Start the oldest waiting query and return it; None if there is none, or it has to wait.

        A query that was running during a crash runs alone: if it is the cause, the crash counts against no
        other query.
        """
        if not self.count(State.PENDING):
            return None
        with self._writing() as db:
            row = db.execute(
                "SELECT result_id, attempts FROM queries WHERE state = 'PENDING'"
                " ORDER BY received_at, rowid LIMIT 1"
            ).fetchone()
            if row is None:
                return None
            running, max_attempts = db.execute(
                "SELECT count(*), coalesce(max(attempts), 0) FROM queries WHERE state = 'RUNNING'"
            ).fetchone()
            if max_attempts > 1 or (running and row[1]):
                return None
            db.execute(
                "UPDATE queries SET state = 'RUNNING', started_at = ?, attempts = attempts + 1"
                " WHERE result_id = ?",
                (now, row[0]),
            )
            return self._get(row[0])

    def answer(self, result_id: str, digest: str, now: int) -> Query:
        """Store the digest, since the rows are durable; a query that was cancelled meanwhile fails."""
        with self._writing() as db:
            if self._get(result_id).cancelled:
                self._fail(result_id, "cancelled", "the query was cancelled", now)
            else:
                db.execute(
                    "UPDATE queries SET state = 'COMMITTING', digest = ?, ended_at = ? WHERE result_id = ?",
                    (digest, now, result_id),
                )
                self._to_record(result_id, Kind.RESULT)
            return self._get(result_id)

    def fail(self, result_id: str, error_code: str, message: str, now: int) -> None:
        """End a query without an answer."""
        with self._writing():
            self._fail(result_id, error_code, message, now)

    def _fail(self, result_id: str, error_code: str, message: str, now: int) -> None:
        self._db.execute(
            "UPDATE queries SET state = 'FAILED', digest = NULL, error_code = ?, message = ?, ended_at = ?"
            " WHERE result_id = ?",
            (error_code, message, now, result_id),
        )
        self._to_record(result_id, Kind.AUDIT)

    def put_back(self, result_id: str) -> None:
        """Requeue a running query, without counting the attempt: the failure is not its own."""
        with self._writing() as db:
            db.execute(
                "UPDATE queries SET state = 'PENDING', attempts = attempts - 1 WHERE result_id = ?",
                (result_id,),
            )

    def cancel(self, result_id: str, now: int) -> Query:
        """Cancel a query: at once if it waits; a running one is ended by its worker, without an answer."""
        with self._writing() as db:
            query = self._get(result_id)
            if query.state is State.PENDING:
                self._fail(result_id, "cancelled", "the query was cancelled before it ran", now)
            elif query.state in (State.RECEIVED, State.RUNNING):
                db.execute("UPDATE queries SET cancelled = 1 WHERE result_id = ?", (result_id,))
            return self._get(result_id)

    def give_up(self, record: PendingRecord, message: str, now: int) -> None:
        """Fail a query whose record can never be written to the log."""
        with self._writing() as db:
            self._fail(record.query.result_id, "execution_failed", message, now)
            db.execute("DELETE FROM records WHERE id = ?", (record.number,))

    def recover(self, now: int) -> int:
        """Recover queries that were running when the service ended; return how many will run again."""
        with self._writing() as db:
            requeued = 0
            for row in db.execute(f"SELECT {_FIELDS} FROM queries WHERE state = 'RUNNING'").fetchall():  # noqa: S608 - ours
                query = _query(row)
                if query.cancelled:
                    self._fail(query.result_id, "cancelled", "the query was cancelled", now)
                elif query.attempts >= MOST_ATTEMPTS:
                    why = f"the service ended {counted(query.attempts, 'time')} while it ran this query"
                    self._fail(query.result_id, "execution_failed", why, now)
                else:
                    db.execute("UPDATE queries SET state = 'PENDING' WHERE result_id = ?", (query.result_id,))
                    requeued += 1
            return requeued

    # --- pending records ------------------------------------------------------------------------------------

    def _to_record(self, result_id: str, kind: Kind) -> None:
        self._db.execute("INSERT INTO records (result_id, kind) VALUES (?, ?)", (result_id, kind))

    def note_read(self, result_id: str, reader: str, now: int) -> None:
        """Add a record of another principal reading the rows of a query; only the first read counts."""
        with self._lock:
            known = self._db.execute(
                "SELECT 1 FROM records WHERE result_id = ? AND kind = 'read' AND reader = ?",
                (result_id, reader),
            ).fetchone()
        if known is None:
            with self._writing() as db:
                db.execute(
                    "INSERT OR IGNORE INTO records (result_id, kind, reader, at) VALUES (?, 'read', ?, ?)",
                    (result_id, reader, now),
                )

    def next_record(self, after: int = 0) -> PendingRecord | None:
        """Return the first pending record with a number above ``after``."""
        with self._lock:
            row = self._db.execute(
                "SELECT id, kind, result_id, tried, reader, at FROM records"
                " WHERE receipt IS NULL AND id > ? ORDER BY id LIMIT 1",
                (after,),
            ).fetchone()
        if row is None:
            return None
        number, kind, result_id, tried, reader, at = row
        return PendingRecord(number, Kind(kind), self._get(result_id), bool(tried), reader, at)

    def trying(self, record: PendingRecord) -> None:
        """Mark a record as possibly in the log, before it is sent."""
        with self._writing() as db:
            db.execute("UPDATE records SET tried = 1 WHERE id = ?", (record.number,))

    def recorded(self, record: PendingRecord, place: RecordedAt, now: int) -> Query:
        """Store the position of a record, and make the state change that waited for it."""
        with self._writing() as db:
            db.execute(
                "UPDATE records SET stream = ?, epoch = ?, seq = ?, hub_id = ?, receipt = ? WHERE id = ?",
                (place.stream, place.epoch, place.seq, place.hub_id, place.receipt, record.number),
            )
            query = self._get(record.query.result_id)
            if record.kind is Kind.RESULT:
                db.execute("UPDATE queries SET state = 'COMPLETED' WHERE result_id = ?", (query.result_id,))
                self._to_record(query.result_id, Kind.AUDIT)
            elif record.kind is Kind.REQUEST and query.cancelled:
                self._fail(query.result_id, "cancelled", "the query was cancelled before it ran", now)
            elif record.kind is Kind.REQUEST:
                db.execute("UPDATE queries SET state = 'PENDING' WHERE result_id = ?", (query.result_id,))
            return self._get(query.result_id)

    def last_place(self, stream: str) -> tuple[int, int]:
        """Return epoch and number of the last confirmed event of a stream.

        Unconfirmed ones can only come after it: events are sent one after the other.
        """
        with self._lock:
            row = self._db.execute(
                "SELECT epoch, seq FROM records WHERE stream = ? AND receipt IS NOT NULL"
                " ORDER BY epoch DESC, seq DESC LIMIT 1",
                (stream,),
            ).fetchone()
        return (0, 0) if row is None else (row[0], row[1])
