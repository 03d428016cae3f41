"""``veen rpc``: call methods over a stream, and serve them."""

import json
import subprocess
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from veen.cli.client import ClientOptions, StreamOption, parse_json, read_card
from veen.cli.errors import FailedError, UnreachableError, UsageError
from veen.cli.options import hex32
from veen.cli.output import command, plain, print_result, warn
from veen.cli.overlay import load_module
from veen.cli.settings import common
from veen.client.body import encode_body, to_json
from veen.client.errors import BodyError, NetworkError, RpcError, RpcTimeoutError
from veen.client.models import SendOptions
from veen.client.rpc.call import CallOptions, call
from veen.client.rpc.serve import Call, Handled, Method, Responder
from veen.core.crypto.hash import U64_MAX
from veen.core.encoding.cbor import Value
from veen.core.types import VerifyKey
from veen.overlays.builtin.rpc import REPLY

app = typer.Typer(help="Call methods over a stream, or serve them.", no_args_is_help=True)

_DEFAULT_WAIT_MS: Final = 10_000
_MOST_WAIT_MS: Final = 86_400_000
# How long a program of --exec may run; callers have timeouts of their own.
_EXEC_SEC: Final = 300


@app.command("call")
@command
def call_command(
    stream: StreamOption,
    method: Annotated[str, typer.Option(help="Name of the method.")],
    at: ClientOptions,
    args: Annotated[
        str, typer.Option(help="Arguments, in JSON; @FILE reads a file, @- standard input.")
    ] = "null",
    to: Annotated[
        str,
        typer.Option(
            help="Identity card of the server, whose replies are accepted. Required unless the stream is "
            "shared."
        ),
    ] = "",
    wait_ms: Annotated[
        int,
        typer.Option(
            "--timeout-ms", min=1, max=_MOST_WAIT_MS, help="Time to wait for the reply, in milliseconds."
        ),
    ] = _DEFAULT_WAIT_MS,
    idem: Annotated[
        int | None,
        typer.Option(
            min=0, max=U64_MAX, help="Idempotency number of the call; calls with the same number run once."
        ),
    ] = None,
    repeats: Annotated[
        int, typer.Option(min=0, max=16, help="Number of times to repeat the call. Requires --idem.")
    ] = 0,
    server_key: Annotated[
        list[str] | None,
        typer.Option(help="Accept only replies signed with this key (64 hex digits); may be repeated."),
    ] = None,
) -> None:
    """Call a method, and print its result.

    Exits 4 if the method returns an error, and 2 if no reply arrives in time.
    """
    if repeats and idem is None:
        raise UsageError("--repeats requires --idem; without it, each repetition would be a new call")
    arguments = _arguments(args)
    card = read_card(to) if to else None
    keys = [VerifyKey(hex32(key, "--server-key")) for key in server_key or ()]
    options = CallOptions(
        timeout_ms=wait_ms,
        idem=idem,
        repeats=repeats,
        servers=frozenset(keys),
        sending=SendOptions(to=card),
    )
    with at.open() as opened:
        try:
            result = opened.run(call(opened.session, stream, method, arguments, options))
        except RpcError as error:
            raise FailedError(str(error), f"E.{error.code}") from None
        except RpcTimeoutError as error:
            raise UnreachableError(f"timeout: {error}", "E.TIMEOUT") from None
    print_result({"ok": True, "result": to_json(result)}, common.json)


def _arguments(text: str) -> Value:
    value: Value = parse_json(text, "--args")
    try:
        encode_body(value)
    except BodyError as error:
        raise UsageError(str(error).replace("the body", "--args", 1)) from None
    return value


@app.command("serve")
@command
def serve_command(
    stream: StreamOption,
    at: ClientOptions,
    module: Annotated[
        Path | None,
        typer.Option(
            help="Python file whose functions are the methods; a list is passed as positional arguments, "
            "a map as keywords."
        ),
    ] = None,
    run: Annotated[
        list[str] | None,
        typer.Option(
            "--exec",
            metavar="METHOD=COMMAND",
            help="Run a program for a method; it reads the arguments and prints the result, both in JSON.",
        ),
    ] = None,
    repeatable: Annotated[
        bool,
        typer.Option("--repeatable", help="Run methods again that were interrupted when the server stopped."),
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after this many calls.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Answer the pending calls, and stop.")] = False,
) -> None:
    """Serve methods on a stream until interrupted.

    Each call is answered once, even across restarts. Give each server a client directory of its own: a server
    resumes where its client stopped reading.
    """
    methods = _methods(module, run or [])
    printed = _PrintedEvents()
    with at.open() as opened:
        server = Responder(opened.session, stream)
        for name, method in methods.items():
            server.add(name, method, repeatable=repeatable)
        opened.connect()
        warn(f"serving {', '.join(methods)} on {stream}; stop with Ctrl-C")
        try:
            opened.run(server.serve(printed, follow=not once, limit=limit))
        except KeyboardInterrupt:
            warn("stopped")
        finally:
            server.close()
    if not common.json:
        print_result({"calls": printed.count}, as_json=False)


class _PrintedEvents:
    """Prints what a server does."""

    def __init__(self) -> None:
        self.count = 0

    def handled(self, handled: Handled) -> None:
        """Print the answer to a call."""
        _print_handled(handled)
        self.count += 1

    def unreachable(self, error: NetworkError) -> None:
        """Print that the hub cannot be reached."""
        warn(f"{error}; retrying")


def _print_handled(handled: Handled) -> None:
    if common.json:
        fields = {"msg_id": handled.msg_id.hex(), "method": handled.method, "ran": handled.ran}
        typer.echo(json.dumps({**fields, "reply": REPLY.to_json(handled.reply)}))
        return
    outcome = "ok" if handled.reply["ok"] else handled.reply["error"]["code"]
    repeated = "  (again)" if handled.repeated else ""
    typer.echo(plain(f"{handled.msg_id.hex()[:16]}  {handled.method[:60]}  {outcome}{repeated}"))
    if handled.error is not None:
        warn(f"{handled.method} raised {type(handled.error).__name__}: {handled.error}")


def _methods(module: Path | None, commands: list[str]) -> Mapping[str, Method]:
    methods: dict[str, Method] = {} if module is None else _functions(module)
    for text in commands:
        name, equals, command = text.partition("=")
        if not (name and equals and command):
            raise UsageError(f"--exec takes METHOD=COMMAND, not {text!r}")
        methods[name] = partial(_execute, command)
    if not methods:
        raise UsageError("nothing to serve: give --module FILE.py or --exec METHOD=COMMAND")
    return methods


def _functions(path: Path) -> dict[str, Method]:
    loaded = load_module(str(path))
    functions = {
        name: partial(_apply, item)
        for name, item in vars(loaded).items()
        if callable(item) and not name.startswith("_") and getattr(item, "__module__", "") == loaded.__name__
    }
    if not functions:
        raise UsageError(f"{path} does not define any functions")
    return dict(functions)


def _apply(function: Callable[..., Any], call: Call) -> Value:
    match call.args:
        case list():
            value: Value = function(*call.args)
        case dict():
            value = function(**call.args)
        case None:
            value = function()
        case _:
            value = function(call.args)
    return value


def _execute(command: str, call: Call) -> Value:
    arguments = json.dumps(to_json(call.args))
    try:
        done = subprocess.run(  # noqa: S602 - the operator's own command line
            command,
            shell=True,
            input=arguments,
            capture_output=True,
            text=True,
            timeout=_EXEC_SEC,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RpcError("RPC.TIMEOUT", f"the program did not finish within {_EXEC_SEC} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"the program exited with status {done.returncode}"]
        raise RpcError("RPC.FAILED", lines[-1])
    try:
        return json.loads(done.stdout)  # type: ignore[no-any-return] # any JSON
    except ValueError:
        raise RpcError("RPC.RESULT", "the program did not print JSON") from None
