"""A recorder with an admin, producers and an auditor, all of whom read its streams."""

import json
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from veen.client.client import Client
from veen.client.home.directory import ClientHome
from veen.client.home.pins import Trust
from veen.client.keys.keystore import Secrets, StreamKey
from veen.client.models import Sent
from veen.client.send import send_drafts
from veen.core.objects import labels
from veen.overlays.recorder.schemas import CHANGES_STREAM, CHECKPOINTS_STREAM, LONG_TERM_SEC
from veen.recorder.configuration import class_stream, label_now, send_change, set_class
from veen.recorder.event import RECORDING, event_draft
from veen.recorder.verify.judge import Judgement

LOGINS, ORDERS = "record/security/logins", "record/app/orders"
T0 = 1_700_000_000
#: What belongs to a hub that runs.
NOT_COPIED = shutil.ignore_patterns("*.sock", "hub.json", "hub.pid")


class Company:
    """Whoever works with one recorder; each in a directory of his own, with the same reader keys."""

    def __init__(self, root: Path, hub: str, streams: Iterable[str] = (LOGINS, ORDERS)) -> None:
        self.root = root
        self.hub = hub
        names = [*streams, CHANGES_STREAM, CHECKPOINTS_STREAM, class_stream()]
        self._keys = [
            StreamKey(stream_id=labels.stream_id(name), secret=os.urandom(32), created_at=T0, name=name)
            for name in names
        ]

    def home(self, name: str) -> Path:
        """Return the directory of somebody; made when it is asked for first."""
        place = self.root / name
        if not place.exists():
            secrets = Secrets.generate(os.urandom, T0)
            for key in self._keys:
                secrets = secrets.with_stream(key)
            ClientHome.create(place, secrets, now=T0)
        return place

    def client(
        self, name: str, hub: str | Path = "", *, clock: Callable[[], int] | None = None, **options: Any
    ) -> Client:
        """Open the client of a party; with a clock of its own, if one is given."""
        client = Client.open(self.home(name), str(hub or self.hub), trust=Trust.FIRST_USE, **options)
        if clock is not None:
            client.session.clock = clock
        return client

    def found(self, **types: Iterable[str]) -> None:
        """Declare the streams, and that they are kept."""
        declared = types or {LOGINS: ("login",), ORDERS: ("order",)}
        with self.client("admin") as admin:
            for stream, listed in declared.items():
                send_change(admin, "declare", stream, event_types=tuple(listed), retention_hint=LONG_TERM_SEC)
            for stream in (*declared, CHANGES_STREAM, CHECKPOINTS_STREAM):
                set_class(admin, label_now(admin, stream), "record", retention_hint=LONG_TERM_SEC)


def told(found: Judgement) -> list[tuple[str, str, str | None, int | None]]:
    """Return what was found, in short."""
    return [(item.verdict, item.code, item.where.stream, item.where.seq) for item in found.findings]


def emit(client: Client, stream: str, event_type: str, count: int = 1, **more: Any) -> list[Sent]:
    """Record some events."""
    drafts = [
        event_draft(
            event_type, subject_id="somebody", origin="test", event_time=T0 + nth, payload={"n": nth}, **more
        )
        for nth in range(count)
    ]
    return list(send_drafts(client, stream, drafts, RECORDING))


def aside_line(stream: str = "record/x", **event: Any) -> bytes:
    """Return a line that a feed has set aside."""
    known = {"event_type": "again", "event_time": 5, "subject_id": "anna", "origin": "shop", "metadata": None}
    return json.dumps({"stream": stream, "reason": "r", "event": {**known, **event}}).encode()
