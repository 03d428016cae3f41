"""``veen recorder checkpoint``: one signed statement about all streams, once or regularly."""

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
from veen.stdx.grammar import counted

_LOOK_SEC: Final = 1.0
_EMPTY: Final = "the recorder has no entries yet; see: veen recorder init"


@command
def checkpoint(
    at: ClientOptions,
    stream: Annotated[
        list[str] | None,
        typer.Option("--stream", help="Stream to cover that is not declared; may be repeated."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Create a checkpoint even if there are no new entries.")
    ] = False,
    every: Annotated[
        int | None,
        typer.Option(
            "--every",
            min=1,
            help="Create checkpoints until interrupted, at least at this interval in seconds.",
        ),
    ] = None,
    each: Annotated[
        int | None,
        typer.Option(
            "--each", min=1, help="Create checkpoints until interrupted, at least after this many entries."
        ),
    ] = None,
    anchor: Annotated[bool, typer.Option("--anchor", help="Also anchor the checkpoint at the hub.")] = False,
    despite_false: Annotated[
        bool,
        typer.Option(
            "--despite-false",
            help="Continue although an earlier checkpoint does not match the log; run veen recorder "
            "verify first.",
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to which the checkpoint is also written, on a system that the hub cannot access."
        ),
    ] = None,
) -> None:
    """Create a checkpoint of all streams, signed by the hub.

    The checkpoint is recorded as an event. Exits 4 if entries of the previous checkpoint are missing from the
    log: find out why with veen recorder verify, then create a checkpoint with --despite-false. With --every
    or --each, checkpoints are created until interrupted, whenever there are new entries. The file of --out
    is replaced atomically, and never by a checkpoint that covers less.
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
                work.print_unchanged()
            return
        with contextlib.suppress(KeyboardInterrupt):
            keep_making(work, Pace(Cadence(every, each)), Event().wait)


class _Maker(Protocol):
    """What ``keep_making`` needs of a checkpoint maker."""

    def count_new(self) -> int:
        """Return the number of entries that no checkpoint covers yet."""
        ...

    def make(self, *, force: bool) -> Manifest | None:
        """Create a checkpoint, if there are new entries."""
        ...

    def write(self) -> None:
        """Write the newest checkpoint to its file, if it is pending."""
        ...


def keep_making(work: _Maker, pace: Pace, pause: Callable[[float], object]) -> None:
    """Create checkpoints when they are due.

    Requests to a hub that does not respond, and writes of the file, are retried.
    """
    while True:
        try:
            if pace.is_due(monotonic(), work.count_new):
                work.make(force=False)
                pace.made(monotonic())
        except NetworkError as error:
            warn(f"{error}; retrying")
        except RejectedError as error:
            if not is_passing(error.envelope):
                raise
            warn(f"{error}; retrying")
        work.write()
        pause(_LOOK_SEC)


def _send(opened: Client, manifest: Manifest) -> Sent:
    try:
        return send_manifest(opened, manifest)
    except ProtocolError as error:
        if error.code is not Code.SIZE:
            raise
        raise FailedError(
            f"a checkpoint of {len(manifest.streams)} labels does not fit into a message; labels change "
            f"every {opened.session.profiles[0].epoch_sec} s here; use a hub with longer epochs, or none",
            error.code.value,
        ) from None


class KeptFile:
    """The file with the newest checkpoint, which the hub cannot access."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._owed: bytes | None = None
        self._there: bytes | None = None
        self._told = ""

    @property
    def is_owed(self) -> bool:
        """Whether a checkpoint has not been written to it yet."""
        return self._owed is not None

    def wants(self, manifest: Manifest, last_seq_of: Callable[[Vouched], int]) -> bool:
        """Return whether to write a checkpoint to the file: not if the file covers more.

        Another process may have written the file. If the log is shorter than what the file covers, the
        command fails: such a file is evidence that the hub was reset to an older copy, and must not be
        overwritten.
        """
        reached = {entry.place: entry.upto_seq for entry in manifest.streams}
        vouched = self._vouched(manifest.hub_id)
        ahead = [entry for entry in vouched if reached.get(entry.place, 0) < entry.upto_seq]
        for entry in ahead:
            seq = last_seq_of(entry)
            if seq < entry.upto_seq:
                raise FailedError(
                    f"{self.path} covers {counted(entry.upto_seq, 'entry')} of {entry.stream}, but the log "
                    f"has only {seq}; keep the file, and run: veen recorder verify --checkpoint {self.path}",
                    UNPROVEN,
                )
        # Newer checkpoints omit epochs that have ended; without epochs, there is only number 0.
        return not any(entry.place in reached or not entry.epoch for entry in ahead)

    def owe(self, manifest: Manifest) -> None:
        """Set the checkpoint to write."""
        data = manifest.encode()
        self._owed = None if data == self._there else data

    def _vouched(self, hub_id: bytes) -> tuple[Vouched, ...]:
        """Return what the file covers of a hub; any other content is ignored."""
        try:
            manifest = Manifest.decode(self.path.read_bytes()) if self.path.is_file() else None
        except (OSError, InvalidBodyError, ProtocolError):
            manifest = None
        return () if manifest is None or manifest.hub_id != hub_id else manifest.streams

    def write(self) -> None:
        """Replace the file with the pending checkpoint."""
        if self._owed is not None:
            replace_bytes(self.path, self._owed)
            self._there, self._owed = self._owed, None
            self._told = ""

    def tell(self, problem: str) -> None:
        """Print once why it could not be written, even with --quiet."""
        if problem != self._told:
            typer.echo(f"veen: {plain(problem)}", err=True)
        self._told = problem


class CheckpointMaker:
    """Creates checkpoints; ``lasting`` if it runs until interrupted."""

    def __init__(
        self, opened: Client, streams: list[str], *, anchor: bool, out: Path | None, lasting: bool
    ) -> None:
        self._opened = opened
        self._anchor = anchor
        self._lasting = lasting
        self._standing = CoveredLog(opened)
        self._watch = CadenceWatch(opened, streams, self._standing)
        self._file = None if out is None else KeptFile(out)
        # Labels that have a class, with their streams.
        self._kept: set[tuple[bytes, str]] = set()

    def count_new(self) -> int:
        """Return the number of entries that no checkpoint covers yet, without checkpoints themselves."""
        return self._watch.waiting().count

    def forget_false(self) -> None:
        """Continue after a checkpoint that does not match the log, from what earlier ones cover."""
        for entry in self._standing.forget_false():
            warn(
                f"{entry.stream}: a checkpoint covers {counted(entry.upto_seq, 'entry')}, "
                "but the log does not match it"
            )

    def make(self, *, force: bool) -> Manifest | None:
        """Create a checkpoint, if there are new entries; else write the newest one to the file."""
        self._require_key()
        if not self.count_new() and not force:
            if self._standing.newest is not None and self.wants(self._standing.newest):
                self._owe(self._standing.newest)
            return None
        try:
            manifest = make_manifest(
                self._opened, self._watch.names, self._watch.configuration, standing=self._standing
            )
        except ManifestError as error:
            raise FailedError(
                f"{error}; keep a copy of the hub, and run: veen recorder verify", UNPROVEN
            ) from None
        if not manifest.streams and self._standing.newest is None:
            raise UsageError(_EMPTY)
        is_for_file = self.wants(manifest)  # a rejected checkpoint is not recorded either
        sent = _send(self._opened, manifest)
        self._keep(manifest, sent)
        if is_for_file:
            self._owe(manifest)
        fields: dict[str, Any] = {
            "ok": True,
            "made": True,
            "stream_seq": sent.position,
            "created_at": manifest.created_at,
            "log_root": manifest.log_root.hex(),
            "profile_id": manifest.profile_id.hex(),
            "labels": len(manifest.streams),
            "entries": manifest.events,
            **({"anchor_ref": self._anchored(sent)} if self._anchor else {}),
            **self._written,
        }
        print_result({**fields, "checkpoint": manifest.to_json()} if common.json else fields, common.json)
        return manifest

    def print_unchanged(self) -> None:
        """Print that there are no new entries, and where the newest checkpoint is."""
        if self._file is not None and self._standing.newest is None:
            raise UsageError(_EMPTY)
        fields = {"ok": True, "made": False, "detail": "no new entries since the last checkpoint"}
        print_result({**fields, **self._written}, common.json)

    def write(self) -> None:
        """Write the newest checkpoint to its file, if it is pending.

        If it cannot be written, a lasting maker prints the error once, and continues.
        """
        if self._file is None or not self._file.is_owed:
            return
        try:
            self._file.write()
        except CommandError as error:
            if not self._lasting:
                raise error.with_text(
                    f"{error}; the checkpoint is in the log; run the command again to write the file"
                ) from None
            self._file.tell(f"{error}; retrying")

    def wants(self, manifest: Manifest) -> bool:
        """Return whether to write a checkpoint to the file."""

        def last_seq_of(entry: Vouched) -> int:
            return last_seq(self._opened, entry.label, entry.upto_seq)

        return self._file is not None and self._file.wants(manifest, last_seq_of)

    def _owe(self, manifest: Manifest) -> None:
        assert self._file is not None
        self._file.owe(manifest)
        self.write()

    @property
    def _written(self) -> dict[str, str]:
        return {} if self._file is None or self._file.is_owed else {"file": str(self._file.path)}

    def _require_key(self) -> None:
        """Reject a checkpoint that only this client could read."""
        if not has_readers(self._opened.session.secrets, RECORDING, CHECKPOINTS_STREAM):
            raise UsageError(
                f"this client has no reader key of {CHECKPOINTS_STREAM}, so others could not read the "
                f"checkpoint: {GET_KEY}",
                "E.CLIENT",
            )

    def _keep(self, manifest: Manifest, sent: Sent) -> None:
        """Set the retention of labels of new epochs, also of the checkpoint's own (SDR-006)."""
        streams = {entry.label: entry.stream for entry in manifest.streams}
        new = {**streams, sent.receipt.label: CHECKPOINTS_STREAM}.items() - self._kept
        if not new or not self._opened.session.profiles[0].epoch_sec:
            return
        known = self._watch.configuration
        try:
            keep_labels(self._opened, {label: known.kept_for(stream, LONG_TERM_SEC) for label, stream in new})
        except RejectedError as error:
            warn(f"labels of this epoch have no class: {error}; an admin can set it with: veen recorder init")
            return
        self._kept.update(new)

    def _anchored(self, sent: Sent) -> str | None:
        """Anchor the root at the checkpoint, which covers all others (SDR-028).

        A hub that cannot anchor does not prevent the checkpoint.
        """
        request = AnchorRequest(label=sent.receipt.label, upto_seq=sent.position)
        try:
            answer = self._opened.run(self._opened.session.ask(request, AnchorResponse))
        except RejectedError as error:
            warn(f"the checkpoint is not anchored: {error}")
            return None
        return answer.record.anchor_ref.hex()
