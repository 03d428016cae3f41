"""An engine in plain Python over events of a file, and a service with it.

Run as ``python -m tests.query_service.plain_service``.

While a file ``hold`` is beside the events, queries that run wait; the file ``fail`` makes them fail.
While ``slow`` is there nobody hears which streams there are.
With a file ``gone`` there is no engine any more; with ``unreachable`` no log. With ``wide`` an answer names
more labels than a message of the log can hold.
"""

import json
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.query import reference
from veen.client.client import Client
from veen.client.errors import NetworkError
from veen.client.retry import Retry
from veen.net.host_names import served_names
from veen.query.descriptor import Descriptor
from veen.query.digest import NONE_HASH, Position, ResultDigest
from veen.query.errors import QueryError
from veen.query.fields import Event
from veen.query_service.errors import RunCancelledError
from veen.query_service.grants import PolicyFile
from veen.query_service.recorder import Sender
from veen.query_service.server import STORE, ListenSettings, Server, StateDirectory, bind_all
from veen.query_service.service import QueryService
from veen.query_service.settings import ServiceEvents, ServiceSettings
from veen.query_service.store import Store
from veen.query_service.workers import Advance
from veen.stdx.json_log import json_lines, to_stderr

ROWS = "rows.jsonl"


def event(stream: str, seq: int, **more: Any) -> dict[str, Any]:
    """Return an event as files of events have it."""
    made = {
        "stream": stream,
        "epoch": 0,
        "seq": seq,
        "hub_ts": 1_800_000_000 + seq,
        "subject_id": f"user-{seq % 7}",
        "principal_id": "aa" * 32,
        "event_type": "login" if seq % 3 else "logout",
        "event_time": 1_799_999_000 + seq,
        "origin": "web",
        "payload": f'{{"n":{seq}}}',
        "metadata": None,
        "receipt_id": f"{seq:064x}",
    }
    return {**made, **more}


class PlainRuns:
    """Answers queries as the reference of the tests does."""

    def __init__(self, events: Path) -> None:
        self._hold, self._broken = events.with_name("hold"), events.with_name("fail")
        self._gone, self._wide = events.with_name("gone"), events.with_name("wide")
        self._unreachable, self._slow = events.with_name("unreachable"), events.with_name("slow")
        self._cancelled: dict[str, threading.Event] = {}
        self._events = [
            Event(**{**line, "receipt_id": bytes.fromhex(line["receipt_id"])})
            for line in map(json.loads, events.read_text().splitlines())
        ]

    def knows(self, stream: str) -> bool:
        while self._slow.exists():
            threading.Event().wait(0.01)
        return any(item.stream == stream for item in self._events)

    def run(
        self, descriptor: Descriptor, *, result_id: str, out: Path, executed_at: int, progress: Advance
    ) -> ResultDigest:
        cancelled = self._cancelled[result_id] = threading.Event()
        progress(1, 2)
        while self._hold.exists():
            if cancelled.wait(0.01):
                raise RunCancelledError
        if self._gone.exists():
            raise ConnectionResetError
        if self._unreachable.exists():
            raise NetworkError("the hub can not be reached")
        if self._broken.exists():
            raise QueryError(
                "execution_failed", "the evidence of row 3 of /srv/lake/a.parquet does not verify"
            )
        form: Any = json.loads(descriptor.encode())
        rows = reference.answer(form, self._events)
        out.mkdir()
        (out / ROWS).write_text("".join(f"{reference.canonical(row)}\n" for row in rows))
        progress(2, 2)
        return ResultDigest(
            query_id=descriptor.query_id,
            result_id=result_id,
            row_count=len(rows),
            evidence_policy=descriptor.evidence,
            rows_hash=reference.rows_hash(rows),
            evidence_hash=NONE_HASH,
            executed_at=executed_at,
            hub_id="bb" * 32,
            upto=(Position("s", 0, "cc" * 32, 1, "dd" * 32),) * 6000 if self._wide.exists() else (),
        )

    def cancel(self, result_id: str) -> None:
        self._cancelled[result_id].set()

    def page(
        self,
        out: Path,
        digest: ResultDigest,  # noqa: ARG002 - of the protocol
        offset: int,
        limit: int,
        most_bytes: int,  # noqa: ARG002 - of the protocol
    ) -> Sequence[bytes]:
        return (out / ROWS).read_bytes().splitlines()[offset : offset + limit]

    def is_gone(self, patience_sec: float) -> bool:  # noqa: ARG002 - of the protocol
        return self._gone.exists()

    def text_of(self, error: Exception) -> str | None:  # noqa: ARG002 - of the protocol
        return None


def open_sender(place: Path, hub: str, timeout_sec: float = 5.0) -> Sender:
    retry = Retry(attempts=2, base_sec=0.05, cap_sec=0.1)
    return Sender(Client.open(place / "client", hub, retry=retry, timeout=timeout_sec))


class NoEvents:
    """Nobody listens."""

    def recorded(self, result_id: str) -> None:
        pass

    def fatal(self, reason: str) -> None:
        pass


def make_service(
    place: Path,
    sender: Sender,
    *,
    store: Store | None = None,
    events: ServiceEvents | None = None,
    **settings: Any,
) -> QueryService:
    """Make a service whose things are all in one directory."""
    state = place / "state"
    state.mkdir(exist_ok=True)
    return QueryService(
        ServiceSettings(state_dir=state, **settings),
        PolicyFile(place / "policy.toml"),
        PlainRuns(place / "events.jsonl"),
        sender,
        store or Store(state / STORE),
        events=events or NoEvents(),
    )


def main(place: Path, options: dict[str, Any]) -> int:
    """Serve; ``options`` are those that tests choose."""
    chosen: dict[str, Any] = {
        name: options[name] for name in ("record_wait_sec", "max_bytes") if name in options
    }
    chosen |= {name: Path(options[name]) for name in ("tls_cert", "tls_key", "client_ca") if name in options}
    listening = ListenSettings(addresses=("127.0.0.1:0",), names=served_names(("queries",)), **chosen)
    state = StateDirectory(place / "state")
    sockets, context = bind_all(listening)
    sender = open_sender(place, options["hub"], float(options.get("timeout_sec", 5)))

    def make(events: ServiceEvents) -> QueryService:
        return make_service(place, sender, events=events, **options.get("settings", {}))

    def ready(urls: tuple[str, ...]) -> None:
        sys.stdout.write(json.dumps({"ok": True, "listen": urls}) + "\n")
        sys.stdout.flush()

    with json_lines(to_stderr(), "info"):
        code = Server(make, listening, ready).run(sockets, context)
    state.close()
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), json.loads(sys.argv[2])))
