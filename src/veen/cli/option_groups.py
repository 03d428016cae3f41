"""Option groups: a dataclass of options that several commands share, as one parameter of a command."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from functools import wraps
from typing import Any


def expand_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Expand the option groups among the parameters of a command to single options.

    Required options come first in its help, then its own options, then those of its groups.
    """
    flat = sorted(_flat(command), key=lambda item: 0 if item[1].default is item[1].empty else 1 + item[0])
    options = {parameter.name: parameter for _, parameter in flat}
    assert len(options) == len(flat), f"{command.__name__} has an option in two of its groups"

    @wraps(command)
    def run(**given: Any) -> None:  # noqa: ANN401 - of any command
        command(**_parts(command, given))

    signature = inspect.Signature(list(options.values()), return_annotation=None)
    run.__signature__ = signature  # type: ignore[attr-defined] # of functions that inspect is to see so
    run.__annotations__ = {name: parameter.annotation for name, parameter in options.items()}
    return run


def _flat(taker: Callable[..., Any], depth: int = 0) -> Iterator[tuple[int, inspect.Parameter]]:
    """Yield the options of a command or group, with how deep in groups they are."""
    for parameter in inspect.signature(taker, eval_str=True).parameters.values():
        if _is_group(parameter.annotation):
            yield from _flat(parameter.annotation, depth + 1)
        else:
            yield depth, parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)


def _parts(taker: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a command or group, built from the options."""
    return {
        name: parameter.annotation(**_parts(parameter.annotation, values))
        if _is_group(parameter.annotation)
        else values[name]
        for name, parameter in inspect.signature(taker, eval_str=True).parameters.items()
    }


def _is_group(annotation: Any) -> bool:  # noqa: ANN401 - of any parameter
    return isinstance(annotation, type) and is_dataclass(annotation)
