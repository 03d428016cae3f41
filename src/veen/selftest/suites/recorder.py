"""Steps about the recorder: events, checkpoints, replay with proofs, and detection of changes."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from veen.client.client import Client
from veen.client.fold.interpret import typed
from veen.client.send import send_draft, send_drafts
from veen.core.crypto.hpke import public_key
from veen.core.data_dir.paths import Domain
from veen.core.errors import Code, ProtocolError
from veen.core.objects.entry import Frame
from veen.core.types import ReaderSecretKey
from veen.overlays.recorder.schemas import EVENT
from veen.recorder.checkpoint import Manifest, make_manifest, newest_manifest, send_manifest
from veen.recorder.configuration import send_change
from veen.recorder.event import RECORDING, event_draft
from veen.recorder.replay import Recorded, proven, replay_range, replay_time
from veen.recorder.verify.judge import judge, to_text
from veen.selftest.context import Context
from veen.selftest.servers import CONFIGS
from veen.selftest.step import Needs, check, equal, rejected, step

_OWN: Final = "it writes to the streams of the recorder itself, so it needs its own hub"
_EVENTS: Final = 12
_EVER: Final = 2**40


class _Office:
    """A producer, and an auditor who reads and checkpoints."""

    def __init__(self, ctx: Context, hub: str = "") -> None:
        self.stream = f"record/{ctx.name('recorder')}"
        self.producer, self.auditor = ctx.client(hub=hub), ctx.client(hub=hub)
        reader = public_key(ReaderSecretKey(self.auditor.session.secrets.id_dh))
        self._options = replace(RECORDING, to=reader)

    def emit(self, count: int, event_type: str) -> None:
        """Record events."""
        drafts = [
            event_draft(
                event_type, subject_id="somebody", origin="selftest", event_time=nth, payload={"n": nth}
            )
            for nth in range(count)
        ]
        equal(len(list(send_drafts(self.producer, self.stream, drafts, self._options))), count, "recorded")

    def lie(self) -> None:
        """Record an event with another client's id as principal."""
        body = EVENT.make(
            subject_id="s", principal_id="00" * 32, event_type="t", event_time=1, origin="o", payload=None
        )
        send_draft(self.producer, self.stream, typed(EVENT, body), self._options)


def _record_too_much() -> None:
    event_draft("t", subject_id="s", origin="o", event_time=0, payload="x" * 99, max_bytes=9)


@step()
def record_events(ctx: Context) -> str:
    """Events are replayed in order, by position and by time; their principal is the key that signed."""
    office = _Office(ctx)
    office.emit(_EVENTS, "t")
    office.lie()
    entries = list(replay_range(office.auditor, office.stream, 1, _EVENTS + 1))
    equal([item.message.position for item in entries], list(range(1, _EVENTS + 2)), "order")
    key = office.producer.session.secrets.client.signing_key.public_key.hex()
    for nth, item in enumerate(entries[:-1]):
        equal(item.problem, None, f"problem of event {nth + 1}")
        assert item.body is not None
        equal((item.body["principal_id"], item.body["payload"]), (key, {"n": nth}), "principal and payload")
    check(str(entries[-1].problem).startswith("SDR.PRINCIPAL_MISMATCH"), "a false principal was accepted")
    by_time = list(replay_time(office.auditor, [office.stream], 0, _EVER))
    equal([item.order for item in by_time], [item.order for item in entries], "replay by time")
    rejected(lambda: replay_range(office.auditor, office.stream, 2, 1), "a range that ends before it begins")
    too_large = rejected(_record_too_much, "a payload beyond its bound")
    check(isinstance(too_large, ProtocolError) and too_large.code is Code.SIZE, "rejected for another reason")
    return f"{_EVENTS} valid events, and an invalid one"


@step(own=_OWN)
def record_checkpoints(ctx: Context) -> str:
    """Checkpoints cover all streams; exactly the entries that they cover can be proved against them."""
    office = _Office(ctx)
    admin, event_type = office.auditor, ctx.name("type")
    send_change(admin, "declare", office.stream, event_types=(event_type,))
    office.emit(_EVENTS, event_type)
    manifest = make_manifest(admin)
    send_manifest(admin, manifest)
    office.emit(2, event_type)
    newest = newest_manifest(admin)
    assert newest is not None
    equal(newest.encode(), manifest.encode(), "the checkpoint, read from the log")
    judged = judge(admin)
    for verdict in ("order", "completeness", "stability", "event_types"):
        equal([to_text(item) for item in judged.findings if item.verdict == verdict], [], verdict)
    equal(len(_proven(office, newest, 1, _EVENTS)), _EVENTS, "proven")
    for first in (_EVENTS, _EVENTS + 1):
        rejected(
            lambda part=first: _proven(office, newest, part, _EVENTS + 1),  # type: ignore[misc] # bound here
            "an event after the checkpoint",
        )
    send_manifest(admin, make_manifest(admin))
    last = newest_manifest(admin)
    assert last is not None
    _proven(office, last, 1, _EVENTS + 2)
    _check_nothing_passed_over(office, last)
    return f"two checkpoints, {_EVENTS + 2} events proven"


def _proven(office: _Office, manifest: Manifest, first: int, last: int) -> list[Recorded]:
    entries = replay_range(office.auditor, office.stream, first, last)
    return list(proven(office.auditor, manifest, [office.stream], entries))


def _check_nothing_passed_over(office: _Office, manifest: Manifest) -> None:
    """Prove an empty range of time by a checkpoint that covers more entries than exist."""
    more = replace(
        manifest, streams=tuple(replace(entry, upto_seq=entry.upto_seq + 1) for entry in manifest.streams)
    )
    nothing = replay_time(office.auditor, [office.stream], _EVER, _EVER)
    rejected(
        lambda: list(proven(office.auditor, more, [office.stream], nothing)), "an event that does not exist"
    )


# --- changed entries ----------------------------------------------------------------------------------------


def _edited(frames: list[bytes], nth: int) -> list[bytes]:
    frame = bytearray(frames[nth])
    frame[len(frame) // 2] ^= 1
    return [*frames[:nth], bytes(frame), *frames[nth + 1 :]]


_CHANGES: Final[dict[str, Callable[[list[bytes], int], list[bytes]]]] = {
    "removed": lambda frames, nth: [*frames[:nth], *frames[nth + 1 :]],
    "reordered": lambda frames, nth: [*frames[:nth], frames[nth + 1], frames[nth], *frames[nth + 2 :]],
    "edited": _edited,
}


@step(own="it changes the files of a hub, so it needs its own hub")
def record_tampering(ctx: Context) -> str:
    """An event that was removed, reordered or edited in the files of a hub is found, and named."""
    hub = ctx.hubs.fresh(CONFIGS[Needs.OPEN])
    office = _Office(ctx, hub.url)
    send_change(office.auditor, "declare", office.stream, event_types=("t",))
    office.emit(_EVENTS, "t")
    manifest = make_manifest(office.auditor)
    send_manifest(office.auditor, manifest)
    home = office.auditor.session.home.root
    for client in (office.producer, office.auditor):
        client.close()
    hub.stop()
    for what, change in _CHANGES.items():
        copy = ctx.scratch / f"record-{what}"
        shutil.copytree(hub.place, copy)
        _change(copy, manifest, office.stream, lambda frames, do=change: do(frames, 4))  # type: ignore[misc] # bound here
        _check_named(
            ctx.client(_copied(home, ctx.scratch / f"auditor-{what}"), str(copy)), office.stream, what
        )
    return f"{', '.join(_CHANGES)}: each found at its position"


def _copied(home: Path, target: Path) -> Path:
    shutil.copytree(home, target)
    return target


def _change(
    data_dir: Path, manifest: Manifest, stream: str, change: Callable[[list[bytes]], list[bytes]]
) -> None:
    """Change the entries of a stream in a copy of the files."""
    (label,) = (entry.label for entry in manifest.streams if entry.stream == stream)
    (file,) = (data_dir / Domain.DATA).glob(f"chunk-{label.hex()}-*")
    data, frames, at = file.read_bytes(), [], 0
    while at < len(data):
        _, end = Frame.read(data, at)
        frames.append(data[at:end])
        at = end
    file.write_bytes(b"".join(change(frames)))


def _check_named(client: Client, stream: str, what: str) -> None:
    judged = judge(client)
    for verdict in ("order", "stability"):  # a checkpoint covers it, which no longer verifies (SDR-022)
        named = [
            (item.code, item.where.stream, item.where.seq)
            for item in judged.findings
            if item.verdict == verdict
        ]
        equal(named[:1], [(what, stream, 5)], f"{verdict} of an event that was {what}")


STEPS: Final = (record_events, record_checkpoints, record_tampering)
