"""``veen retention``: what a data directory retains, and in which files."""

from contextlib import closing
from typing import Any

import typer

from veen.cli.commands.hub.start import DataDir
from veen.cli.data_dir import open_data_dir
from veen.cli.hub_connection import directory_of
from veen.cli.output import command, print_result
from veen.cli.settings import common
from veen.client.contexts import DEFAULT_DATA_DIR
from veen.core.data_dir import paths
from veen.stdx.grammar import counted
from veen.storage import Manifest, Reader

app = typer.Typer(help="Show what a hub retains.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Show what a hub retains."""


@app.command("show")
@command
def show_retention(data_dir: DataDir = DEFAULT_DATA_DIR) -> None:
    """Show the retention rules, files and entries of a hub."""
    directory = directory_of(data_dir).expanduser()
    with open_data_dir(directory) as fs, closing(Reader.open(fs)) as reader:
        manifests = [reader.manifest(label) for label in sorted(reader.labels())]
        limits = reader.store.registries[-1].limits
        sizes = {name: fs.size(name) for name in (paths.RECEIPTS, paths.CHECKPOINTS)}
    fields: dict[str, Any] = {
        "receipts": "kept for ever",
        "payloads": "kept until chunks are pruned",
        "checkpoints": "kept for ever",
        "chunk_bytes": limits.max_chunk_bytes,
        "chunk_entries": limits.max_checkpoint_interval,
        "derived_files": sizes,
        "labels": [_label(item) for item in manifests],
    }
    if common.json:
        print_result(fields, as_json=True)
        return
    print_result({name: value for name, value in fields.items() if name != "labels"}, as_json=False)
    for item in fields["labels"]:
        typer.echo(f"label {item['label']}: entries {item['first_seq']} to {item['last_seq']}")
        for chunk in item["chunks"]:
            last = chunk["end_seq"] or "..."
            typer.echo(
                f"  {chunk['start_seq']} to {last}  {counted(chunk['bytes'], 'byte')}  {chunk['state']}"
            )


def _label(manifest: Manifest) -> dict[str, Any]:
    return {
        "label": manifest.label.hex(),
        "first_seq": manifest.first_seq,
        "last_seq": manifest.head.seq,
        "journal_entries": manifest.journal_entries,
        "chunks": [
            {
                "start_seq": row.start_seq,
                "end_seq": row.end_seq or None,
                "bytes": row.total_bytes,
                "state": "pruned" if row.pruned else "sealed" if row.end_seq else "open",
            }
            for row in manifest.chunks
        ],
    }
