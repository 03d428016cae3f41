"""``veen query submit``, ``status``, ``result``, ``descriptor`` and ``cancel``: a query service's client."""

import http.client
import os
import re
import ssl
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final
from urllib.parse import urlsplit

import typer

from veen.cli.client import read_bytes
from veen.cli.errors import CommandError, FailedError, MalformedError, UsageError, as_command_error
from veen.cli.hub_connection import read_address
from veen.cli.options import ROWS_OUT_HELP
from veen.cli.output import command, plain_json, print_result, warn
from veen.cli.settings import common
from veen.client.errors import ClientError, NetworkError
from veen.client.hub_address import is_http_url
from veen.client.transport.http import HttpHub, HttpRequest
from veen.core.encoding import canonical_json
from veen.core.errors import ProtocolError
from veen.query.descriptor import is_id
from veen.query.digest import ResultDigest, RowsHasher
from veen.stdx.atomic_file import open_replacement
from veen.stdx.backoff import backoff_sec
from veen.stdx.grammar import counted

_TOKEN: Final = "VEEN_QUERY_TOKEN"  # noqa: S105 - the name of a variable
_TOKEN_FORM: Final = re.compile(rb"[A-Za-z0-9._~+/=-]{1,512}")
_PREFIX: Final = "/api/query/"
_PAGE: Final = 5000
_MOST_PAUSE_SEC: Final = 2.0
_UNAVAILABLE: Final = 503

UrlOption = Annotated[
    str, typer.Option("--url", envvar="VEEN_QUERY_URL", help="URL of the query service.", show_default=False)
]
TokenOption = Annotated[
    Path | None,
    typer.Option("--token-file", help=f"File with your token.  [env var: {_TOKEN}, the token itself]"),
]
CaOption = Annotated[Path | None, typer.Option("--ca", help="CA certificates of the service (PEM).")]
CertOption = Annotated[Path | None, typer.Option("--cert", help="Your client certificate (PEM).")]
KeyOption = Annotated[
    Path | None, typer.Option("--key", help="Private key of your client certificate (PEM).")
]
ResultArgument = Annotated[
    str, typer.Argument(metavar="RESULT_ID", help="Id of the result.", show_default=False)
]


class _BusyError(FailedError):
    """The service is temporarily unavailable."""


class _Host(HttpHub):
    """The service at a URL, optionally with a client certificate."""

    def __init__(self, url: str, timeout_sec: float, context: ssl.SSLContext | None) -> None:
        super().__init__(url, timeout_sec)
        self._context = context

    def connect(self) -> http.client.HTTPConnection:
        """Return a new connection."""
        parts = urlsplit(self.name)
        if self._context is None or parts.scheme != "https" or not parts.hostname:
            return super().connect()
        return http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=self.timeout_sec, context=self._context
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Options of the query service and the caller's credentials (see ``option_groups``)."""

    url: UrlOption = ""
    token_file: TokenOption = None
    ca: CaOption = None
    cert: CertOption = None
    key: KeyOption = None

    def ask(self, method: str, path: str, body: bytes | None = None) -> Any:  # noqa: ANN401 - JSON
        """Send a request; a request that is rejected exits 4."""
        if not is_http_url(self.url):
            raise UsageError("give the query service with --url URL, or in VEEN_QUERY_URL")
        read_address(self.url)
        host = _Host(self.url.rstrip("/"), common.timeout_ms / 1000, self._context())
        token = self._token()
        headers = {"authorization": f"Bearer {token}"} if token else {}
        try:
            reply = host.exchange(
                HttpRequest(method, _PREFIX + path, body, "application/json" if body else "", headers)
            )
        finally:
            host.close()
        response = self._read(reply.body)
        if reply.status < 400:
            return response
        if not isinstance(response.get("error_code"), str) or not isinstance(response.get("message"), str):
            raise MalformedError(f"{self.url} is not a query service: status {reply.status}")
        failure = _BusyError if reply.status == _UNAVAILABLE else FailedError
        raise failure(response["message"], response["error_code"])

    def _read(self, body: bytes) -> dict[str, Any]:
        try:
            document: Any = canonical_json.parse(body)
        except ProtocolError:
            document = None
        if not isinstance(document, dict):
            raise MalformedError(f"{self.url} is not a query service: the response is not JSON")
        return document

    def _token(self) -> str:
        """Return the token; error texts never contain the value."""
        if self.token_file is not None:
            data, where = read_bytes(self.token_file.expanduser()).strip(), str(self.token_file)
        else:
            data, where = os.environb.get(_TOKEN.encode(), b"").strip(), f"the variable {_TOKEN}"
            if not data:
                return ""
        if not _TOKEN_FORM.fullmatch(data):
            raise UsageError(
                f"{where} does not contain a token: one line of at most 512 letters, digits and . _ "
                "~ + / = -",
            )
        return data.decode()

    def _context(self) -> ssl.SSLContext | None:
        if self.ca is None and self.cert is None:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(f"the certificates cannot be used: {error}") from None
        return context

    def wait(self, result_id: str) -> Any:  # noqa: ANN401 - JSON
        """Wait until a query has completed; exit 4 if it failed.

        The query continues while the service is unreachable, which is tolerated for the usual timeout. An
        error names the result, so that the caller can ask for it later.
        """
        polls, since = 0, time.monotonic()
        while True:
            polls += 1
            try:
                query = self.ask("GET", f"status/{result_id}")
                since = time.monotonic()
            except (NetworkError, _BusyError) as error:
                if time.monotonic() - since > common.timeout_ms / 1000:
                    raise _naming(result_id, error) from None
            except (ClientError, CommandError) as error:
                raise _naming(result_id, error) from None
            else:
                if query["status"] == "failed":
                    text = f"the query of {result_id} failed: {query['message']}"
                    raise FailedError(text, str(query["error_code"]))
                if query["status"] == "completed":
                    return query
            time.sleep(backoff_sec(polls, first_sec=0.1, cap_sec=_MOST_PAUSE_SEC))


def _naming(result_id: str, error: Exception) -> CommandError:
    """Return an error that names the query."""
    known = as_command_error(error)
    assert known is not None, "errors of clients and of commands are known"
    text = f"{known}; the query was accepted, check it with: veen query status {result_id}"
    return known.with_text(text)


def checked_id(text: str) -> str:
    """Return an id that is safe in a path."""
    if not is_id(text):
        raise UsageError(f"{text!r} is not the id of a query or a result")
    return text


def read_descriptor(file: str) -> bytes:
    """Read a descriptor: a file, or ``-`` for standard input."""
    return sys.stdin.buffer.read() if file == "-" else read_bytes(Path(file).expanduser())


def show_json(value: dict[str, Any]) -> None:
    """Print values with exact decimals; people see only those that are set."""
    if common.json:
        typer.echo(plain_json(canonical_json.encode({"ok": True, **value})))
    else:
        print_result({name: item for name, item in value.items() if item is not None}, as_json=False)


FileArgument = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="File of the descriptor (JSON); - reads standard input.", show_default=False
    ),
]


@command
def submit_command(
    file: FileArgument,
    service: Service,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the query has completed.")] = False,
) -> None:
    """Submit a query.

    Returns when the request is recorded in the log.
    """
    accepted = service.ask("POST", "submit", read_descriptor(file))
    if wait:
        result_id = checked_id(str(accepted["result_id"]))
        warn(f"accepted: {result_id}")  # to find the result if the connection is lost
        accepted = service.wait(result_id)
    show_json(accepted)


@command
def status_command(result_id: ResultArgument, service: Service) -> None:
    """Show the status of a query."""
    show_json(service.ask("GET", f"status/{checked_id(result_id)}"))


@command
def cancel_command(result_id: ResultArgument, service: Service) -> None:
    """Cancel one of your queries.

    A query that has ended does not change.
    """
    show_json(service.ask("POST", f"cancel/{checked_id(result_id)}", b"{}"))


@command
def descriptor_command(
    query_id: Annotated[str, typer.Argument(metavar="QUERY_ID", help="Id of the query.", show_default=False)],
    service: Service,
) -> None:
    """Show the descriptor of a query, in normal form."""
    response = service.ask("GET", f"descriptor/{checked_id(query_id)}")
    if common.json:
        show_json(response)
    else:
        typer.echo(plain_json(canonical_json.encode(response["descriptor"])))
        show_json({"record_event": response["record_event"], "result_id": response["result_id"]})


@contextmanager
def rows_out(out: Path | None) -> Iterator[BinaryIO | None]:
    """Open the file that rows are written to, one per line; None if there is none.

    An existing file is replaced when all rows are written. A new one is readable by its owner only.
    """
    if out is None:
        yield None
        return
    try:
        target = out.expanduser()
        is_plain = (target.is_file() or not target.exists()) and not target.is_relative_to("/dev")
        # A pipe or a device cannot be replaced by a file.
        with _replacing(target.resolve()) if is_plain else target.open("wb") as file:
            yield file
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}") from None


@contextmanager
def _replacing(target: Path) -> Iterator[BinaryIO]:
    """Open a file that replaces another one when it is complete."""
    with open_replacement(target) as file:
        if target.exists():
            os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
        yield file


@command
def result_command(
    result_id: ResultArgument,
    service: Service,
    every: Annotated[bool, typer.Option("--all", help="Fetch all rows, page by page.")] = False,
    offset: Annotated[int, typer.Option(min=0, help="First row, from 0.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of rows.")] = 1000,
    out: Annotated[Path | None, typer.Option(help=ROWS_OUT_HELP, show_default=False)] = None,
) -> None:
    """Show the digest and the rows of a result.

    If all rows are fetched, their hash is compared with the digest; exits 4 if they differ.
    """
    if every and offset:
        raise UsageError("--all and --offset exclude each other")
    hasher = RowsHasher()
    rows: list[Any] = []
    with rows_out(out) as sink:
        while True:
            at = hasher.count + offset
            page = service.ask(
                "GET", f"result/{checked_id(result_id)}?offset={at}&limit={_PAGE if every else limit}"
            )
            for row in page["rows"]:
                encoded = canonical_json.encode(row)
                hasher.add(encoded)
                if sink is not None:
                    sink.write(encoded + b"\n")
                elif common.json:
                    rows.append(row)
                elif not common.quiet:
                    typer.echo(plain_json(encoded))
            if not every or not page["page"]["has_more"]:
                break
            if not page["rows"]:
                raise MalformedError(f"{service.url} returned an empty page before the last row")
        whole = offset == 0 and not page["page"]["has_more"]
        if whole:
            _require_hash(page["result_digest"], hasher)
    answer = {"result_digest": page["result_digest"], "record_event": page["record_event"]}
    answer |= {"rows": hasher.count if sink is not None or not common.json else rows, "verified": whole}
    show_json(answer)


def _require_hash(digest: Any, hasher: RowsHasher) -> None:  # noqa: ANN401 - JSON
    try:
        stated = ResultDigest.from_json(digest)
    except ProtocolError as error:
        raise MalformedError(f"the service did not return a valid digest: {error}") from None
    if (hasher.count, hasher.rows_hash) != (stated.row_count, stated.rows_hash):
        raise FailedError(
            f"the hash of the {counted(hasher.count, 'row')} is {hasher.rows_hash}, but the digest states"
            f" {counted(stated.row_count, 'row')} with {stated.rows_hash}: do not use the rows",
            "E.PROOF",
        )
