"""``veen op publish``, ``snapshot`` and ``query-audit``."""

from pathlib import Path
from time import time
from typing import Annotated

import typer

from veen.cli.client import read_bytes
from veen.cli.commands.op.operation import (
    MetadataOption,
    OperationOptions,
    described,
    json_or_none,
    make_body,
    own_identity,
    present,
)
from veen.cli.errors import FailedError, UsageError
from veen.cli.options import UPTO_HELP, hex32, hex32_or_none
from veen.cli.output import command, print_result, progress
from veen.cli.overlay import fold_stream
from veen.cli.settings import common
from veen.client.fold.snapshots import make_snapshot
from veen.client.operations import parts_of
from veen.core.crypto.hash import U64_MAX, sha256
from veen.overlays.errors import InvalidBodyError
from veen.overlays.operations.publication import Publications, content_root
from veen.overlays.operations.schemas import PUBLICATION, QUERY, SNAPSHOT


def _root(paths: list[Path]) -> tuple[bytes, int]:
    parts = parts_of(paths)
    try:
        return content_root(parts), len(parts)
    except InvalidBodyError as error:
        raise UsageError(str(error)) from None


@command
def publish(
    paths: Annotated[
        list[Path], typer.Argument(help="Files and directories to publish.", metavar="FILE_OR_DIR...")
    ],
    at: OperationOptions,
    publication_id: Annotated[str, typer.Option(help="Id of the publication: 64 hex digits.")],
    version: Annotated[str, typer.Option(help="Version, for example 1.2.")],
    content_class: Annotated[str, typer.Option(help="Class of the content.")] = "dataset",
    label: Annotated[
        list[str] | None, typer.Option(help="Label of the publication; may be repeated.")
    ] = None,
    source_uri: Annotated[str, typer.Option(help="URI where the content is available.")] = "",
    metadata_json: MetadataOption = "",
    check: Annotated[
        bool,
        typer.Option("--check", help="Compare the files with the publication, and do not publish anything."),
    ] = False,
) -> None:
    """Publish the root hash of files.

    The files themselves are not sent. With --check, compares files with a publication, and exits 4 if they
    differ.
    """
    root, count = _root(paths)
    one = hex32(publication_id, "--publication-id")
    if check:
        _check(at, one, version, root)
        return
    with at.open() as opened:
        body = make_body(
            PUBLICATION,
            publication_id=one,
            publisher_identity=own_identity(opened),
            content_root=root,
            content_class=content_class,
            version=version,
            labels=tuple(label) if label else None,
            source_uri=source_uri or None,
            metadata=json_or_none(metadata_json, "--metadata-json"),
        )
        sent = at.send(opened, PUBLICATION, body)
    print_result({**described(PUBLICATION, sent), "content_root": root.hex(), "files": count}, common.json)


def _check(at: OperationOptions, publication_id: bytes, version: str, root: bytes) -> None:
    """Compare files with the first publication of a version; its receipt was verified (PUB-005)."""
    publications = Publications()
    with at.open() as opened:
        tables = fold_stream(opened, publications, at.stream).tables
    edition = publications.edition(tables, publication_id, version)
    if edition is None:
        raise FailedError(f"version {version} was not published in {at.stream}", "E.CONTENT")
    if edition["content_root"] != root.hex():
        text = f"the files have the root {root.hex()}, but {edition['content_root']} was published"
        raise FailedError(text, "E.CONTENT")
    names = ("stream_seq", "publisher_identity", "signed_by_publisher", "conflict")
    fields = {"ok": True, "content_root": root.hex(), **{name: edition[name] for name in names}}
    print_result(present(fields), common.json)


@command
def snapshot(
    at: OperationOptions,
    state_class: Annotated[
        str, typer.Option(help="Class of the state: lww.map, orset, counter.map, wallet.ledger, ...")
    ],
    state_id: Annotated[
        str, typer.Option(help="Id of the state, a wallet or an account: 64 hex digits. Default: the stream.")
    ] = "",
    upto_stream_seq: Annotated[int | None, typer.Option(min=1, max=U64_MAX, help=UPTO_HELP)] = None,
    metadata_json: MetadataOption = "",
) -> None:
    """Record a snapshot of a state.

    Folds the state, and records its hash with the root of the log that it covers.
    """
    with at.open() as opened:
        with progress("entries") as advance:
            body = make_snapshot(
                opened,
                at.stream,
                state_class=state_class,
                state_id=hex32_or_none(state_id, "--state-id"),
                upto=upto_stream_seq,
                progress=advance,
            )
        body = make_body(SNAPSHOT, **{**body, "metadata": json_or_none(metadata_json, "--metadata-json")})
        sent = at.send(opened, SNAPSHOT, body)
    fields = SNAPSHOT.to_json(body)
    print_result({**described(SNAPSHOT, sent), **fields}, common.json)


@command
def query_audit(
    at: OperationOptions,
    resource_identifier: Annotated[str, typer.Option(help="Resource that was queried.")],
    resource_class: Annotated[str, typer.Option(help="Class of the resource.")],
    requester_identity: Annotated[
        str, typer.Option(help="Identity of the requester: 64 hex digits. Default: this client's identity.")
    ] = "",
    purpose_code: Annotated[str, typer.Option(help="Purpose of the query.")] = "",
    query_parameters_json: Annotated[str, typer.Option(help="Parameters of the query, in JSON.")] = "",
    result_digest: Annotated[str, typer.Option(help="Hash of the result: 64 hex digits.")] = "",
    result_file: Annotated[
        Path | None, typer.Option(help="File of the result; its hash is recorded.")
    ] = None,
    request_time: Annotated[
        int | None,
        typer.Option(min=0, max=U64_MAX, help="Time of the query, in seconds since 1970. Default: now."),
    ] = None,
    metadata_json: MetadataOption = "",
) -> None:
    """Record a query for audits."""
    if result_digest and result_file is not None:
        raise UsageError("give either --result-digest or --result-file")
    digest = hex32_or_none(result_digest, "--result-digest")
    with at.open() as opened:
        body = make_body(
            QUERY,
            requester_identity=hex32_or_none(requester_identity, "--requester-identity")
            or own_identity(opened),
            resource_identifier=resource_identifier,
            resource_class=resource_class,
            query_parameters=json_or_none(query_parameters_json, "--query-parameters-json"),
            purpose_code=purpose_code or None,
            result_digest=digest if result_file is None else sha256(read_bytes(result_file)),
            request_time=int(time()) if request_time is None else request_time,
            metadata=json_or_none(metadata_json, "--metadata-json"),
        )
        sent = at.send(opened, QUERY, body)
    print_result(described(QUERY, sent), common.json)
