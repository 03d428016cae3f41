"""All commands and groups, by the words that select them."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from typer.core import TyperGroup
from typer.main import get_command

from veen.cli.main import app
from veen.cli.registry import COMMANDS, load

Words = tuple[str, ...]


def _tree(path: Words, command: Any) -> Iterator[tuple[Words, Any]]:
    yield path, command
    if isinstance(command, TyperGroup):
        children = command.commands if path else {name: load(name) for name in COMMANDS}
        for name, child in children.items():
            yield from _tree((*path, name), child)


ALL: Final[Mapping[Words, Any]] = dict(_tree((), get_command(app)))
GROUPS: Final = sorted(path for path, found in ALL.items() if isinstance(found, TyperGroup))
#: What can be run.
LEAVES: Final = sorted(ALL.keys() - set(GROUPS))
