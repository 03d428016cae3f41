"""The page of all commands, generated from the commands, independently of terminal and home directory."""

import re
from collections.abc import Iterable, Mapping
from html import escape
from textwrap import dedent, indent
from typing import Any, Final

import typer
from typer.core import TyperGroup

from veen.cli import errors
from veen.cli.registry import COMMANDS, load
from veen.cli.settings import DEFAULT_TIMEOUT_MS
from veen.client.contexts import DEFAULT_CLIENT, DEFAULT_DATA_DIR, KEYS
from veen.client.keys.keystore import FILE_VARIABLE, VARIABLE

# Flags of every command, which are described once.
_COMMON: Final[Mapping[str, str]] = {
    "--json": "Print one JSON document on standard output, and nothing else. A failure is "
    '`{"ok": false, "code": ..., "detail": ...}`.',
    "--quiet": "Print errors only.",
    "--verbose": "Print more on standard error; an error with its traceback.",
    "--timeout-ms": f"Time limit for one response of the hub; {DEFAULT_TIMEOUT_MS} by default.",
    "--env": "Descriptor of an environment that names the hub. Requires `--hub-name`.",
    "--hub-name": "The hub in the descriptor.",
    "--help": "Show what the command does, and its options.",
}
_EXIT_CODES: Final[Mapping[int, tuple[str, str]]] = {
    errors.OK: ("done", ""),
    errors.USAGE: (
        "wrong usage: arguments, files, keys; or interrupted",
        "correct the command as the message says",
    ),
    errors.NETWORK: (
        "the hub cannot be reached, or only its files are available",
        "retry; a message that the hub may have accepted is stored, and the next send asks for it first",
    ),
    errors.MALFORMED: ("the response is not that of a working hub", "check the address"),
    errors.FAILED: (
        "rejected by the hub, or failed verification: a signature, a proof, a file, a pin",
        "find the cause before you retry: `veen explain-error CODE`",
    ),
    errors.SELFTEST: ("a selftest failed", "save its output"),
}
# Names of older releases and other implementations, and the commands they stand for.
_ALIASES: Final[Mapping[str, str]] = {
    "send-with-attachment": "veen send --attach",
    "verify-attachment": "veen attachment verify --index 0",
    "crdt-lww": "veen crdt lww",
    "crdt-orset": "veen crdt orset",
    "crdt-counter": "veen crdt counter",
    "revoke": "veen cap revoke",
    "verify-anchor": "veen anchor verify",
}
_PROGRAMS: Final[Mapping[str, str]] = {
    "veen-cli": "veen",
    "veen-hub": "veen hub; `veen-hub` alone, `veen-hub run` and `veen-hub start` start a hub",
    "veen-selftest": "veen selftest",
}
_VARIABLES: Final[Mapping[str, str]] = {
    "VEEN_HUB": "URL or data directory of the hub",
    "VEEN_CLIENT": "directory of the client",
    "VEEN_ADMIN": "directory of the client that signs administrative records",
    "VEEN_DATA_DIR": "data directory, for commands that work on one",
    VARIABLE: "passphrase of the keystore",
    FILE_VARIABLE: "file that contains the passphrase",
    "XDG_CONFIG_HOME": "directory of `veen/config.toml`, instead of `~/.config`",
}
_EXTRAS: Final = re.compile(r"(.*?)\s*\[([^\[\]]*)\]$", re.DOTALL)

_HEAD: Final = """# Commands
{note}
`veen COMMAND --help` prints the same. Output is one `name: value` per line, or one JSON document with
`--json`, for scripts.

## Which client and which hub

The client is the first of: `--client`, `VEEN_CLIENT`, the setting of `veen config set client`, `{client}`.
The hub is the first of: `--hub`, `--env` with `--hub-name`, `VEEN_HUB`, the setting of `veen config set hub`,
the one in `{hub}`. A hub is a URL, a data directory (whether its hub is running or not) or a set written by
`veen export`.

{config}
{variables}
## Common flags

Every command accepts them, before or after its name.

{common}
## Exit codes

{codes}
"""


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown."""
    lines = ["| " + " | ".join(head) + " |"]
    lines.append("|" + "---|" * (lines[0].count("|") - 1))
    lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Return a cell; a bar in code is written in a form that all Markdown parsers read alike."""
    bar = "&#124;"
    text = re.sub(r"`([^`]*\|[^`]*)`", lambda match: f"<code>{escape(match[1])}</code>", text)
    return text.replace("|", bar)


def cli_page(note: str) -> str:
    """Return the page of all commands."""
    parts = [
        _HEAD.format(
            note=note,
            client=DEFAULT_CLIENT,
            hub=DEFAULT_DATA_DIR,
            config=table(("setting of `veen config`", "meaning"), ((f"`{k}`", v) for k, v in KEYS.items())),
            variables=table(("variable", "meaning"), ((f"`{k}`", v) for k, v in _VARIABLES.items())),
            common=table(("flag", "meaning"), ((f"`{k}`", v) for k, v in _COMMON.items())),
            codes=table(
                ("code", "meaning", "what to do"),
                ((str(code), what, then) for code, (what, then) in sorted(_EXIT_CODES.items())),
            ),
        )
    ]
    for heading in dict.fromkeys(entry.heading for entry in COMMANDS.values() if entry.heading):
        parts.append(f"## {heading}\n")
        parts += [
            _command(load(name), f"veen {name}", 3)
            for name, entry in COMMANDS.items()
            if entry.heading == heading
        ]
    parts.append(_aliases())
    return "\n".join(parts)


def _aliases() -> str:
    hidden = [name for name, entry in COMMANDS.items() if not entry.heading]
    assert sorted(hidden) == sorted(_ALIASES), "say in tools/cli_docs.py what a hidden command stands for"
    rows = [(f"`{name}`", _code_first(text)) for name, text in _PROGRAMS.items()]
    rows += [(f"`veen {name}`", f"`{_ALIASES[name]}`") for name in hidden]
    return f"## Other names\n\n{table(('name', 'stands for'), rows)}"


def _code_first(text: str) -> str:
    name, mark, rest = re.fullmatch(r"([a-z ]+?)( \(|;|$)(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
    return f"`{name}`{mark}{rest}"


def _command(command: Any, path: str, level: int) -> str:  # noqa: ANN401 - of click
    context = typer.Context(command, info_name=path)
    pieces = " ".join(command.collect_usage_pieces(context))
    parts = [f"{'#' * level} {path}\n", f"{_text(command.help)}\n"]
    if isinstance(command, TyperGroup):
        listed = [(name, child) for name, child in command.commands.items() if not child.hidden]
        own = _options(command, context)
        if own:
            parts += [f"    {path} {pieces}\n", own]
        parts += [_command(child, f"{path} {name}", level + 1) for name, child in listed]
        return "\n".join(parts)
    parts += [f"    {path} {pieces}\n", _options(command, context), _example(command.epilog)]
    return "\n".join(filter(None, parts))


def _example(epilog: str | None) -> str:
    """Return the commands that end a page of help, as code."""
    _, mark, commands = (epilog or "").partition(":\n")
    assert mark, "every command has an example (veen.cli.examples)"
    return f"Example:\n\n{indent(dedent(commands), '    ')}\n"


def _text(help_text: str | None) -> str:
    return dedent(help_text or "").strip().replace("\n    ", "\n")


def _options(command: Any, context: typer.Context) -> str:  # noqa: ANN401 - of click
    rows = []
    for parameter in command.params:
        names = {*parameter.opts, *parameter.secondary_opts}
        record = parameter.get_help_record(context)
        if record is None or getattr(parameter, "hidden", False) or names & set(_COMMON):
            continue
        name, meaning = record
        match = _EXTRAS.fullmatch(meaning)
        meaning, extras = match.groups() if match else (meaning, "")
        rows.append((f"`{name.strip()}`", _text(meaning), _bounds(extras)))
    return table(("option", "meaning", "default and bounds"), rows) if rows else ""


def _bounds(extras: str) -> str:
    known = [item.strip().removeprefix("default: ") for item in extras.split(";")]
    return "; ".join(item.replace("env var:", "env:") for item in known if item)
