"""The commands by name; each is loaded when it is run, so that the program starts fast.

Every command accepts the common flags, before or after its name.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from veen.cli.examples import EXAMPLES, epilog
from veen.cli.options import ENV_HELP, HUB_NAME_HELP, JSON_HELP, QUIET_HELP, TIMEOUT_HELP, VERBOSE_HELP
from veen.cli.settings import DEFAULT_TIMEOUT_MS, MAX_TIMEOUT_MS, common


@dataclass(frozen=True, slots=True)
class Entry:
    """The module of a command, and the heading it is listed under; aliases have none."""

    module: str
    name: str
    heading: str = ""


_KEYS, _MESSAGES, _AUTHORITY = "Keys and identities", "Messages", "Authority"
_STATE = "State"
_CHECKING, _HUBS, _HELP = "Verification and copies", "Hubs", "Help and diagnostics"
_SPARK = "Logs on Spark"

COMMANDS: Final[Mapping[str, Entry]] = {
    "keygen": Entry("id", "keygen", _KEYS),
    "id": Entry("id", "app", _KEYS),
    "reader": Entry("reader", "app", _KEYS),
    "pin": Entry("pin", "app", _KEYS),
    "config": Entry("config", "app", _KEYS),
    "send": Entry("send", "send", _MESSAGES),
    "send-with-attachment": Entry("send", "send_with_attachment"),
    "stream": Entry("stream", "stream", _MESSAGES),
    "attachment": Entry("attachment", "app", _MESSAGES),
    "verify-attachment": Entry("attachment", "verify_first_attachment"),
    "resync": Entry("resync", "resync_command", _MESSAGES),
    "verify-state": Entry("resync", "verify_state_command", _MESSAGES),
    "interpret": Entry("state", "interpret_command", _STATE),
    "state": Entry("state", "app", _STATE),
    "bench": Entry("bench", "app", _MESSAGES),
    "rpc": Entry("rpc", "app", _STATE),
    "crdt": Entry("crdt", "crdt_app", _STATE),
    "crdt-lww": Entry("crdt", "lww_app"),
    "crdt-orset": Entry("crdt", "orset_app"),
    "crdt-counter": Entry("crdt", "counter_app"),
    "schema-id": Entry("schema_id", "schema_id_command", _STATE),
    "wallet": Entry("wallet", "app", _STATE),
    "op": Entry("op", "app", _STATE),
    "agreement": Entry("agreement", "app", _STATE),
    "snapshot": Entry("snapshot", "app", _STATE),
    "recovery": Entry("recovery", "app", _STATE),
    "recorder": Entry("recorder", "app", _STATE),
    "label-class": Entry("label_class", "app", _STATE),
    "audit": Entry("audit", "app", _CHECKING),
    "cap": Entry("cap", "app", _AUTHORITY),
    "revoke": Entry("cap", "revoke_alias"),
    "pow": Entry("pow", "app", _AUTHORITY),
    "verify-receipt": Entry("verify_receipt", "verify_receipt", _CHECKING),
    "verify-fraud": Entry("verify_receipt", "verify_fraud", _CHECKING),
    "anchor": Entry("anchor", "anchor_app", _CHECKING),
    "verify-anchor": Entry("anchor", "verify"),
    "export": Entry("export", "export_command", _CHECKING),
    "import": Entry("export", "import_command", _CHECKING),
    "fsck": Entry("fsck", "fsck", _CHECKING),
    "repair": Entry("repair", "repair_command", _CHECKING),
    "clone": Entry("clone", "clone_command", _CHECKING),
    "fork": Entry("clone", "fork_command", _CHECKING),
    "replay": Entry("clone", "replay_command", _CHECKING),
    "pipeline": Entry("pipeline", "app", _SPARK),
    "query": Entry("query", "app", _SPARK),
    "hub": Entry("hub", "app", _HUBS),
    "hub-id": Entry("hub.show", "hub_id", _HUBS),
    "retention": Entry("retention", "app", _HUBS),
    "demo": Entry("demo", "demo", _HELP),
    "selftest": Entry("selftest", "app", _HELP),
    "explain-error": Entry("explain_error", "explain_error", _HELP),
    "version": Entry("version", "version", _HELP),
    "conformance": Entry("conformance", "conformance", _HELP),
}


# Options of typer that belong to the program, and not to each of its groups.
_OF_THE_ROOT: Final = ("install_completion", "show_completion")


def _flags(
    _json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
    _quiet: Annotated[bool, typer.Option("--quiet", help=QUIET_HELP)] = False,
    _verbose: Annotated[bool, typer.Option("--verbose", help=VERBOSE_HELP)] = False,
    _timeout_ms: Annotated[
        int | None,
        typer.Option("--timeout-ms", help=f"{TIMEOUT_HELP}  [default: {DEFAULT_TIMEOUT_MS}]"),
    ] = None,
    _env: Annotated[
        str,
        typer.Option("--env", hidden=True, help=ENV_HELP),
    ] = "",
    _hub_name: Annotated[str, typer.Option("--hub-name", hidden=True, help=HUB_NAME_HELP)] = "",
) -> None:
    """Declare the flags of every command; never run."""


@cache
def _common_options() -> tuple[Any, ...]:
    """Return the flags of every command, as this version of typer creates them."""
    app = typer.Typer(add_completion=False)
    app.command()(_flags)
    return tuple(get_command(app).params)


def note_common(values: dict[str, Any]) -> None:
    """Move the common flags from the arguments to ``common``; absent flags change nothing."""
    for name in ("json", "quiet", "verbose", "timeout_ms", "env", "hub_name"):
        value = values.pop(f"_{name}", None)
        if name == "timeout_ms" and value is not None and not 1 <= value <= MAX_TIMEOUT_MS:
            raise typer.BadParameter(f"--timeout-ms takes a number from 1 to {MAX_TIMEOUT_MS}")
        if value:
            setattr(common, name, value)


def _with_common(command: TyperCommand | TyperGroup) -> None:
    """Add the common flags to a command, except those that it declares itself."""
    declared = {text for parameter in command.params for text in getattr(parameter, "opts", [])}
    command.params += [option for option in _common_options() if option.opts[0] not in declared]
    inner: Callable[..., Any] | None = command.callback
    assert inner is not None

    def run(**given: Any) -> Any:  # noqa: ANN401 - of any command
        note_common(given)
        if "as_json" in given:
            common.json = given["as_json"] = given["as_json"] or common.json
        if given.get("timeout_ms") == DEFAULT_TIMEOUT_MS:
            given["timeout_ms"] = common.timeout_ms
        return inner(**given)

    command.callback = run


def _each(command: Any, path: str) -> list[tuple[str, TyperCommand]]:  # noqa: ANN401 - a group or a command
    if isinstance(command, TyperGroup):
        return [entry for name, child in command.commands.items() for entry in _each(child, f"{path} {name}")]
    return [(path, command)]


def load(name: str) -> Any:  # noqa: ANN401 - a group or a command
    """Load a command."""
    entry = COMMANDS[name]
    member = getattr(importlib.import_module(f"veen.cli.commands.{entry.module}"), entry.name)
    if isinstance(member, typer.Typer):
        app = member
    else:
        app = typer.Typer(add_completion=False)
        app.command(name)(member)
    app.rich_markup_mode = None
    loaded = get_command(app)
    loaded.name = name
    loaded.hidden = not entry.heading
    loaded.params = [item for item in loaded.params if item.name not in _OF_THE_ROOT]
    for path, command in _each(loaded, name):
        _with_common(command)
        command.epilog = epilog("Example:", EXAMPLES[path])
    if isinstance(loaded, TyperGroup) and loaded.invoke_without_command:
        _with_common(loaded)
    return loaded


class LazyGroup(TyperGroup):
    """The root group: lists all commands, loads the one that is run."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002 - of click
        """Return the names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401, ARG002 - of click
        """Load a command."""
        return load(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - of click
        """List the commands under their headings; aliases are not listed."""
        width = max(len(name) for name, entry in COMMANDS.items() if entry.heading)
        for heading in dict.fromkeys(entry.heading for entry in COMMANDS.values() if entry.heading):
            names = [name for name, entry in COMMANDS.items() if entry.heading == heading]
            room = formatter.width - width - 6
            rows = [
                (f"{name:<{width}}", self.get_command(ctx, name).get_short_help_str(room)) for name in names
            ]
            with formatter.section(heading):
                formatter.write_dl(rows)
