"""``veen clone``, ``veen fork`` and ``veen replay``: copies of a data directory."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from veen.cli.data_dir import open_data_dir
from veen.cli.errors import FAILED, UsageError
from veen.cli.extras import needing_hub
from veen.cli.options import OUT_DIR_HELP, hex32, parse_number
from veen.cli.output import command, print_result, warn
from veen.cli.settings import common
from veen.core.objects import labels
from veen.core.types import Label
from veen.storage import Reader, RealFilesystem, clone
from veen.storage.directory import read_public

SourceArgument = Annotated[
    Path, typer.Argument(metavar="SOURCE", help="Data directory of a hub, which may be running.")
]
TargetArgument = Annotated[Path, typer.Argument(metavar="TARGET", help=OUT_DIR_HELP)]


@contextmanager
def _source(directory: Path) -> Iterator[Reader]:
    with open_data_dir(directory.expanduser()) as fs, closing(Reader.open(fs)) as reader:
        yield reader


@contextmanager
def _target(directory: Path) -> Iterator[RealFilesystem]:
    where = directory.expanduser()
    try:
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{where} cannot be created: {error.strerror}") from None
    fs = RealFilesystem(where)
    try:
        yield fs
    finally:
        fs.close()


@command
def clone_command(source: SourceArgument, target: TargetArgument) -> None:
    """Copy the data directory of a hub.

    The copy contains everything that was acknowledged. It can be read, verified, and started instead of the
    original.
    """
    with _source(source) as reader, _target(target) as fs:
        clone(reader, fs)
        count = reader.label_count()
    print_result(
        {"ok": True, "clone": str(target), "hub_id": reader.store.hub_id.hex(), "labels": count}, common.json
    )
    warn("a clone has the same identity as the original; from now on, start only one of them")


@command
def fork_command(
    source: SourceArgument,
    target: TargetArgument,
    cut: Annotated[
        list[str] | None,
        typer.Option(
            help="Cut a label at this checkpoint, as LABEL=SEQ; may be repeated. Default: each label at "
            "its last checkpoint."
        ),
    ] = None,
) -> None:
    """Fork a log into a new hub.

    Existing entries do not change; new entries get new labels and keys.
    """
    with _source(source) as reader, _target(target) as fs:
        identity, done = needing_hub("veen.hub.home").fork_home(reader, fs, os.urandom, _cuts(cut))
    left_out = [label.hex() for label in done.left_out]
    print_result(
        {
            "ok": True,
            "fork": str(target),
            "hub_id": identity.hub_id.hex(),
            "parent_hub_id": done.record.parent_hub_id.hex(),
            "checkpoints": {item.label_curr.hex(): item.upto_seq for item in done.record.checkpoints},
            "left_out": left_out,
        },
        common.json,
    )
    if left_out:
        warn(
            "labels without a checkpoint were omitted; create one first with: veen hub checkpoint "
            "--label LABEL"
        )


def _cuts(texts: list[str] | None) -> dict[Label, int] | None:
    if not texts:
        return None
    cuts = {}
    for text in texts:
        name, _, number = text.partition("=")
        seq = parse_number(number)
        if seq is None:
            raise UsageError(f"--cut takes LABEL=SEQ, not {text!r}")
        cuts[Label(hex32(name, "--cut"))] = seq
    return cuts


@command
def replay_command(
    source: SourceArgument,
    into: Annotated[
        Path | None, typer.Option(help="Directory to rebuild into. Default: a temporary directory.")
    ] = None,
) -> None:
    """Rebuild a hub from its log alone, and compare.

    Compares the heads and roots of all labels. Exits 4 if they differ.
    """
    with contextlib.ExitStack() as stack:
        directory = into or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="veen-replay-")))
        reader = stack.enter_context(_source(source))
        fs = stack.enter_context(_target(directory))
        clone(reader, fs)
        copy = Reader.open(fs)
        stack.callback(copy.close)
        differing = [_difference(label, reader, copy) for label in sorted(reader.labels())]
        identity, _ = read_public(reader.fs)
        reserved = {labels.authorize_label(identity.hub_id), labels.control_label(identity.hub_id)}
        entries = sum(copy.last_seq(label) for label in copy.labels() if label not in reserved)
    differences = [item for item in differing if item is not None]
    result: dict[str, Any] = {
        "ok": not differences,
        "equal": not differences,
        "labels": len(differing),
        "entries": entries,
    }
    print_result(result | ({"differences": differences} if differences else {}), common.json)
    if differences:
        raise typer.Exit(FAILED)


def _difference(label: Label, live: Reader, copy: Reader) -> dict[str, Any] | None:
    """Return how a label differs; entries that were added during the copy are ignored."""
    head = copy.head(label)
    if head is None:
        return {"label": label.hex(), "why": "it is missing"}
    receipt = live.entry(label, head.seq).receipt
    if (receipt.mmr_root, receipt.leaf_hash, receipt.hub_ts) != (head.root, head.leaf_hash, head.hub_ts):
        return {"label": label.hex(), "stream_seq": head.seq, "why": "the roots differ"}
    return None
