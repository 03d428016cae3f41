"""The page of all commands, from the commands themselves; neither terminal nor home matter."""

import re
from collections.abc import Iterable, Mapping
from html import escape
from textwrap import dedent
from typing import Any, Final

import typer
from typer.core import TyperGroup

from veen.cli import errors
from veen.cli.registry import COMMANDS, load
from veen.cli.settings import DEFAULT_TIMEOUT_MS
from veen.client.contexts import DEFAULT_CLIENT, DEFAULT_DATA_DIR, KEYS
from veen.client.keys.keystore import FILE_VARIABLE, VARIABLE

#: Flags of every command; they are described once.
_COMMON: Final[Mapping[str, str]] = {
    "--json": "One JSON document on standard output, and nothing else there. A failure is "
    '`{"ok": false, "code": ..., "detail": ...}`.',
    "--quiet": "Print errors only.",
    "--verbose": "Say more, on standard error; an error is shown with its trace.",
    "--timeout-ms": f"Time for one answer of the hub; {DEFAULT_TIMEOUT_MS} by default.",
    "--env": "Descriptor of an environment: take the hub from there. Goes with `--hub-name`.",
    "--hub-name": "Which of the hubs in the descriptor.",
    "--help": "What the command does, and its options.",
}
_EXIT_CODES: Final[Mapping[int, tuple[str, str]]] = {
    errors.OK: ("done", ""),
    errors.USAGE: (
        "wrong use: arguments, files, keys; or interrupted",
        "the message says what to write instead",
    ),
    errors.NETWORK: (
        "the hub can not be reached, or only its files are there",
        "try again; a message that may have been taken is kept, and asked for first",
    ),
    errors.MALFORMED: ("what answered is no hub, or a broken one", "look at the address"),
    errors.FAILED: (
        "refused by the hub, or not true: a signature, a proof, a file, a pin",
        "do not try again before you know why: `veen explain-error CODE`",
    ),
    errors.SELFTEST: ("a selftest has failed", "keep its output"),
}
#: Names of older releases and other implementations, and what they stand for.
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
    FILE_VARIABLE: "file that holds it",
    "XDG_CONFIG_HOME": "where `veen/config.toml` is, in place of `~/.config`",
}
_EXTRAS: Final = re.compile(r"(.*?)\s*\[([^\[\]]*)\]$", re.DOTALL)

_HEAD: Final = """# Commands
{note}
`veen COMMAND --help` says the same. Output is for people, one `name: value` a line, or with `--json` for
scripts.

## Which client and which hub

A command uses the client of `--client`, else of `VEEN_CLIENT`, else of `veen config set client`, else
`{client}`. It uses the hub of `--hub`, else of `--env` and `--hub-name`, else of `VEEN_HUB`, else of
`veen config set hub`, else the one in `{hub}`. A hub is a URL, a data directory (its hub may run or not) or a
set that `veen export` has made.

{config}
{variables}
## Common flags

Every command takes them, before its name or behind it.

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
    """Return a cell; a bar in code is written so that every reader of Markdown agrees."""
    bar = "&#124;"
    text = re.sub(r"`([^`]*\|[^`]*)`", lambda found: f"<code>{escape(found[1])}</code>", text)
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
    parts.append(f"    {path} {pieces}\n")
    found = _options(command, context)
    return "\n".join([*parts, found] if found else parts)


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
