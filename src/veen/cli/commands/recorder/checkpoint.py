"""``veen recorder checkpoint``: one signed statement over all streams of the recorder, now or regularly."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Annotated, Any, Final, Protocol

import typer

from veen.cli.client import ClientOptions, check_replaceable, replace_bytes
from veen.cli.commands.recorder.admin import record_stream
from veen.cli.commands.recorder.replay import UNPROVEN
from veen.cli.errors import CommandError, FailedError, UsageError
from veen.cli.output import command, plain, print_result, warn
from veen.cli.settings import common
from veen.client.client import Client
from veen.client.errors import NetworkError, RejectedError
from veen.client.models import Sent
from veen.client.retry import is_passing
from veen.core.api.tooling import AnchorRequest, AnchorResponse
from veen.core.errors import Code, ProtocolError
from veen.overlays.errors import InvalidBodyError
from veen.overlays.recorder.schemas import CHECKPOINTS_STREAM, LONG_TERM_SEC
from veen.recorder.cadence import Cadence, CadenceWatch, Pace
from veen.recorder.checkpoint import CoveredLog, Manifest, Vouched, last_seq, make_manifest, send_manifest
from veen.recorder.configuration import GET_KEY, has_readers, keep_labels
from veen.recorder.errors import ManifestError
from veen.recorder.event import RECORDING

_LOOK_SEC: Final = 1.0
_EMPTY: Final = "the recorder has no entries yet; see: veen recorder init"


@command
def checkpoint(
    at: ClientOptions,
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
    checkpoints are made beside the work until interrupted; none when nothing is new. --out is then the newest
    one of the log; it is replaced as a whole, and never by one that vouches for less.
    """
    names = [record_stream(name) for name in stream or ()]
    if out is not None:
        check_replaceable(out)
    lasting = every is not None or each is not None
    with at.open() as opened:
        work = CheckpointMaker(opened, names, anchor=anchor, out=out, lasting=lasting)
        if despite_false:
            work.forget_false()
        if not lasting:
            if work.make(force=force or despite_false) is None:
                work.tell_nothing_is_new()
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

    def write(self) -> None:
        """Write the newest one to its file, if that is still to be done."""
        ...


def keep_making(work: _Maker, pace: Pace, pause: Callable[[float], object]) -> None:
    """Make checkpoints when they are due; a hub that does not answer, or not now, is asked again.

    So is a file that could not be written.
    """
    while True:
        try:
            if pace.is_due(monotonic(), work.count_new):
                work.make(force=False)
                pace.made(monotonic())
        except NetworkError as error:
            warn(f"{error}; trying again")
        except RejectedError as error:
            if not is_passing(error.envelope):
                raise
            warn(f"{error}; trying again")
        work.write()
        pause(_LOOK_SEC)


def _send(opened: Client, made: Manifest) -> Sent:
    try:
        return send_manifest(opened, made)
    except ProtocolError as error:
        if error.code is not Code.SIZE:
            raise
        raise FailedError(
            f"a checkpoint of {len(made.streams)} labels does not fit into a message; labels change every "
            f"{opened.session.profiles[0].epoch_sec} s here: record at a hub with longer epochs, or none",
            error.code.value,
        ) from None


class KeptFile:
    """The file that holds the newest checkpoint, out of the hub's reach."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._owed: bytes | None = None
        self._there: bytes | None = None
        self._told = ""

    @property
    def is_owed(self) -> bool:
        """Whether there is a checkpoint that it does not hold yet."""
        return self._owed is not None

    def wants(self, made: Manifest, last_seq_of: Callable[[Vouched], int]) -> bool:
        """Tell whether it is to hold a checkpoint: not, if it holds one that vouches for more.

        Somebody else may have written that. If the log does not go so far, it is refused: such a file shows
        that a hub has gone back to an older copy, and is not given up for one that the copy has made.
        """
        reached = {entry.place: entry.upto_seq for entry in made.streams}
        vouched = self._vouched(made.hub_id)
        ahead = [entry for entry in vouched if reached.get(entry.place, 0) < entry.upto_seq]
        for entry in ahead:
            seq = last_seq_of(entry)
            if seq < entry.upto_seq:
                raise FailedError(
                    f"{self.path} vouches for {entry.upto_seq} entries of {entry.stream}, and there are "
                    f"{seq}; keep it, and see: veen recorder verify --checkpoint {self.path}",
                    UNPROVEN,
                )
        # Newer ones leave out epochs that are over; where labels do not change there is but one, of number 0.
        return not any(entry.place in reached or not entry.epoch for entry in ahead)

    def owe(self, made: Manifest) -> None:
        """Take the checkpoint that it is to hold."""
        data = made.encode()
        self._owed = None if data == self._there else data

    def _vouched(self, hub_id: bytes) -> tuple[Vouched, ...]:
        """Return what the file says of a hub; whatever else is in it does not count."""
        try:
            found = Manifest.decode(self.path.read_bytes()) if self.path.is_file() else None
        except (OSError, InvalidBodyError, ProtocolError):
            found = None
        return () if found is None or found.hub_id != hub_id else found.streams

    def write(self) -> None:
        """Replace the file, by what it is to hold."""
        if self._owed is not None:
            replace_bytes(self.path, self._owed)
            self._there, self._owed = self._owed, None
            self._told = ""

    def tell(self, problem: str) -> None:
        """Say why it could not be written; once, and also to who wants to hear of errors only."""
        if problem != self._told:
            typer.echo(f"veen: {plain(problem)}", err=True)
        self._told = problem


class CheckpointMaker:
    """What checkpoints are made with; ``lasting`` if they are made again and again."""

    def __init__(
        self, opened: Client, streams: list[str], *, anchor: bool, out: Path | None, lasting: bool
    ) -> None:
        self._opened = opened
        self._anchor = anchor
        self._lasting = lasting
        self._standing = CoveredLog(opened)
        self._watch = CadenceWatch(opened, streams, self._standing)
        self._file = None if out is None else KeptFile(out)
        #: Labels that have a class, with their streams.
        self._kept: set[tuple[bytes, str]] = set()

    def count_new(self) -> int:
        """Return how many entries no checkpoint vouches for yet; checkpoints need none themselves."""
        return self._watch.waiting().count

    def forget_false(self) -> None:
        """Go on behind a checkpoint that is not true, by what is true in those before."""
        for entry in self._standing.forget_false():
            warn(
                f"{entry.stream}: {entry.upto_seq} entries were vouched for, and the hub does not confirm it"
            )

    def make(self, *, force: bool) -> Manifest | None:
        """Make one, if anything is new; else the newest one is what the file is to hold."""
        self._require_key()
        if not self.count_new() and not force:
            if self._standing.newest is not None and self.wants(self._standing.newest):
                self._owe(self._standing.newest)
            return None
        try:
            made = make_manifest(
                self._opened, self._watch.names, self._watch.configuration, standing=self._standing
            )
        except ManifestError as error:
            raise FailedError(
                f"{error}; see: veen recorder verify, and keep a copy of the hub", UNPROVEN
            ) from None
        if not made.streams and self._standing.newest is None:
            raise UsageError(_EMPTY)
        wanted = self.wants(made)  # what is refused is not recorded either
        sent = _send(self._opened, made)
        self._keep(made, sent)
        if wanted:
            self._owe(made)
        found: dict[str, Any] = {
            "ok": True,
            "made": True,
            "stream_seq": sent.position,
            "created_at": made.created_at,
            "log_root": made.log_root.hex(),
            "profile_id": made.profile_id.hex(),
            "labels": len(made.streams),
            "entries": made.events,
            **({"anchor_ref": self._anchored(sent)} if self._anchor else {}),
            **self._written,
        }
        print_result({**found, "checkpoint": made.to_json()} if common.json else found, common.json)
        return made

    def tell_nothing_is_new(self) -> None:
        """Say why there is no new one, and where the newest one is."""
        if self._file is not None and self._standing.newest is None:
            raise UsageError(_EMPTY)
        said = {"ok": True, "made": False, "detail": "nothing is new since the last one"}
        print_result({**said, **self._written}, common.json)

    def write(self) -> None:
        """Write the newest one to its file, if that is still to be done.

        Who makes them again and again is told once that it can not be done, and goes on.
        """
        if self._file is None or not self._file.is_owed:
            return
        try:
            self._file.write()
        except CommandError as error:
            if not self._lasting:
                raise error.with_text(
                    f"{error}; the checkpoint is in the log: run this again to have it written"
                ) from None
            self._file.tell(f"{error}; trying again")

    def wants(self, made: Manifest) -> bool:
        """Tell whether a checkpoint is to be written to the file."""

        def last_seq_of(entry: Vouched) -> int:
            return last_seq(self._opened, entry.label, entry.upto_seq)

        return self._file is not None and self._file.wants(made, last_seq_of)

    def _owe(self, made: Manifest) -> None:
        assert self._file is not None
        self._file.owe(made)
        self.write()

    @property
    def _written(self) -> dict[str, str]:
        return {} if self._file is None or self._file.is_owed else {"file": str(self._file.path)}

    def _require_key(self) -> None:
        """Refuse to record a checkpoint that nobody but this client could read."""
        if not has_readers(self._opened.session.secrets, RECORDING, CHECKPOINTS_STREAM):
            raise UsageError(
                f"this client has no key of {CHECKPOINTS_STREAM}, so that others could not read the "
                f"checkpoint: {GET_KEY}",
                "E.CLIENT",
            )

    def _keep(self, made: Manifest, sent: Sent) -> None:
        """Have labels of new epochs kept as long as their streams, that of the checkpoint too (SDR-006)."""
        streams = {entry.label: entry.stream for entry in made.streams}
        new = {**streams, sent.receipt.label: CHECKPOINTS_STREAM}.items() - self._kept
        if not new or not self._opened.session.profiles[0].epoch_sec:
            return
        known = self._watch.configuration
        try:
            keep_labels(self._opened, {label: known.kept_for(stream, LONG_TERM_SEC) for label, stream in new})
        except RejectedError as error:
            warn(f"labels of this epoch have no class: {error}; an admin sets it with: veen recorder init")
            return
        self._kept.update(new)

    def _anchored(self, sent: Sent) -> str | None:
        """Have the hub publish a root that the checkpoint leads to; it leads to all others (SDR-028).

        A hub that can not is no reason to make no checkpoint.
        """
        request = AnchorRequest(label=sent.receipt.label, upto_seq=sent.position)
        try:
            answer = self._opened.run(self._opened.session.ask(request, AnchorResponse))
        except RejectedError as error:
            warn(f"the checkpoint is not anchored: {error}")
            return None
        return answer.record.anchor_ref.hex()
