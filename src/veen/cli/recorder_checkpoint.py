"""``veen recorder checkpoint``: one signed statement over all streams of the recorder, now or regularly."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Annotated, Any, Final, Protocol

import typer

from veen.cli.errors import REFUSED, USAGE, CommandError
from veen.cli.printing import note, reporting, show
from veen.cli.recorder_replay import UNPROVEN, record_streams
from veen.cli.settings import common
from veen.cli.using import At, write_bytes
from veen.client.client import Client
from veen.client.errors import NetworkError, RefusedError
from veen.client.retrying import is_passing
from veen.client.sending import Sent
from veen.core.errors import Code, ProtocolError
from veen.core.tooling import AnchorRequest, AnchorResponse
from veen.overlays.recorder_schemas import CHECKPOINTS_STREAM, LONG_TERM_SEC
from veen.recorder.configuring import keep_labels, read_configuration
from veen.recorder.counting import Waiting
from veen.recorder.manifest import Manifest, ManifestError, Standing, make_manifest, send_manifest
from veen.recorder.pacing import Cadence, Pace

_LOOK_SEC: Final = 1.0


@reporting
def checkpoint(
    at: At,
    stream: Annotated[
        list[str] | None, typer.Option("--stream", help="A stream that is not declared; may be repeated.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Make one even if nothing is new.")] = False,
    every: Annotated[
        int | None, typer.Option("--every", min=1, help="Keep making them: at least so often, in seconds.")
    ] = None,
    each: Annotated[
        int | None, typer.Option("--each", min=1, help="Keep making them: at least after so many entries.")
    ] = None,
    anchor: Annotated[
        bool, typer.Option("--anchor", help="Have the hub publish a root of it outside as well.")
    ] = False,
    despite_false: Annotated[
        bool,
        typer.Option("--despite-false", help="Go on though an earlier one is not true; verify first."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write it to this file too: keep it where the hub can not reach it.")
    ] = None,
) -> None:
    """Have the hub vouch for all streams of the recorder, and record that as an event.

    What the checkpoint before vouches for must still be there, else the command ends with code 4; when
    veen recorder verify has shown why, --despite-false makes one all the same. With --every or --each
    checkpoints are made beside the work until interrupted; none when nothing is new.
    """
    with at.open() as opened:
        work = _Work(opened, stream or [], anchor=anchor, out=out)
        if despite_false:
            work.forget_false()
        if every is None and each is None:
            made = work.make(force=force or despite_false)
            if made is None:
                show({"ok": True, "made": False, "detail": "nothing is new since the last one"}, common.json)
            return
        with contextlib.suppress(KeyboardInterrupt):
            keep_making(work, Pace(Cadence(every, each)), Event().wait)


class _Maker(Protocol):
    """Who makes checkpoints."""

    def count_new(self) -> int:
        """Return how many entries no checkpoint vouches for yet."""
        ...

    def make(self, *, force: bool) -> Manifest | None:
        """Make one, if anything is new."""
        ...


def keep_making(work: _Maker, pace: Pace, pause: Callable[[float], object]) -> None:
    """Make checkpoints when they are due; a hub that does not answer, or not now, is asked again."""
    while True:
        try:
            if pace.is_due(monotonic(), work.count_new):
                work.make(force=False)
                pace.made(monotonic())
        except NetworkError as error:
            note(f"{error}; trying again")
        except RefusedError as error:
            if not is_passing(error.envelope):
                raise
            note(f"{error}; trying again")
        pause(_LOOK_SEC)


def _send(opened: Client, made: Manifest) -> Sent:
    try:
        return send_manifest(opened, made)
    except ProtocolError as error:
        if error.code is not Code.SIZE:
            raise
        raise CommandError(
            f"a checkpoint of {len(made.streams)} labels does not fit into a message; labels change every "
            f"{opened.session.profiles[0].epoch_sec} s here: record at a hub with longer epochs, or none",
            REFUSED,
            error.code.value,
        ) from None


class _Work:
    """What checkpoints are made with."""

    def __init__(self, opened: Client, streams: list[str], *, anchor: bool, out: Path | None) -> None:
        self._opened = opened
        self._streams = streams
        self._anchor = anchor
        self._out = out
        self._standing = Standing(opened)
        #: Labels that have a class, with their streams.
        self._kept: set[tuple[bytes, str]] = set()

    @property
    def _names(self) -> set[str]:
        return {*self._streams, *record_streams(self._opened)}

    def count_new(self) -> int:
        """Return how many entries no checkpoint vouches for yet; checkpoints need none themselves."""
        return Waiting(self._opened, self._names, self._standing).count

    def forget_false(self) -> None:
        """Go on behind a checkpoint that is not true, by what is true in those before."""
        for entry in self._standing.forget_false():
            note(
                f"{entry.stream}: {entry.upto_seq} entries were vouched for, and the hub does not confirm it"
            )

    def make(self, *, force: bool) -> Manifest | None:
        """Make one, if anything is new."""
        if not force and not self.count_new():
            return None
        try:
            made = make_manifest(self._opened, self._names, standing=self._standing)
        except ManifestError as error:
            raise CommandError(
                f"{error}; see: veen recorder verify, and keep a copy of the hub", REFUSED, UNPROVEN
            ) from None
        if not made.streams and self._standing.newest is None:
            raise CommandError("the recorder has no entries yet; see: veen recorder init", USAGE)
        sent = _send(self._opened, made)
        self._keep(made, sent)
        if self._out is not None:
            write_bytes(self._out, made.encode())
        found: dict[str, Any] = {
            "ok": True,
            "made": True,
            "stream_seq": sent.stream_seq,
            "created_at": made.created_at,
            "log_root": made.log_root.hex(),
            "profile_id": made.profile_id.hex(),
            "labels": len(made.streams),
            "entries": made.events,
            **({"anchor_ref": self._anchored(sent)} if self._anchor else {}),
            **({} if self._out is None else {"file": str(self._out)}),
        }
        show({**found, "checkpoint": made.to_json()} if common.json else found, common.json)
        return made

    def _keep(self, made: Manifest, sent: Sent) -> None:
        """Have labels of new epochs kept as long as their streams, that of the checkpoint too (SDR-006)."""
        streams = {entry.label: entry.stream for entry in made.streams}
        new = {**streams, sent.receipt.label: CHECKPOINTS_STREAM}.items() - self._kept
        if not new or not self._opened.session.profiles[0].epoch_sec:
            return
        known = read_configuration(self._opened)
        try:
            keep_labels(self._opened, {label: known.kept_for(stream, LONG_TERM_SEC) for label, stream in new})
        except RefusedError as error:
            note(f"labels of this epoch have no class: {error}; an admin sets it with: veen recorder init")
            return
        self._kept.update(new)

    def _anchored(self, sent: Sent) -> str | None:
        """Have the hub publish a root that the checkpoint leads to; it leads to all others (SDR-028).

        A hub that can not is no reason to make no checkpoint.
        """
        request = AnchorRequest(label=sent.receipt.label, upto_seq=sent.stream_seq)
        try:
            answer = self._opened.run(self._opened.session.ask(request, AnchorResponse))
        except RefusedError as error:
            note(f"the checkpoint is not anchored: {error}")
            return None
        return answer.record.anchor_ref.hex()
