"""The overlay that a command uses, from the registry or a user's module, and folding a stream with it."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Final

import typer

from veen.cli.errors import UsageError, as_command_error
from veen.cli.options import hex32
from veen.cli.output import progress, warn
from veen.client.client import Client
from veen.client.fold.interpret import FoldedState, interpret
from veen.core.types import JsonValue
from veen.overlays import registry
from veen.overlays.errors import ParameterError
from veen.overlays.overlay import Overlay
from veen.overlays.parameters import configured

PROVISIONAL: Final = "the state is provisional: new entries may still be ordered before some of those read"


def fold_stream(
    opened: Client,
    overlay: Overlay,
    stream: str,
    upto: int | None = None,
    **more: Any,  # noqa: ANN401
) -> FoldedState:
    """Fold a stream with a progress bar; warn if summaries could not be cached."""
    with progress("entries") as advance:
        state = interpret(opened, overlay, stream, upto=upto, progress=advance, **more)
    for text in state.notes:
        warn(text)
    if state.provisional:
        warn(PROVISIONAL)
    return state


def load_module(text: str) -> ModuleType:
    """Load a user's module: by its name, or a .py file."""
    try:
        if not text.endswith(".py"):
            return importlib.import_module(text)
        path = Path(text).expanduser()
        spec = importlib.util.spec_from_file_location(f"veen_user_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses look up their module there
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever is in it
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UsageError(f"{text} cannot be loaded: {what}") from None
    return module


ModuleOption = Annotated[
    str,
    typer.Option(
        "--overlay-module",
        help="Python module with your own overlays: a module name or a .py file.",
        metavar="MODULE",
    ),
]
ParamOption = Annotated[
    list[str] | None,
    typer.Option("--param", help="Parameter of the overlay, as NAME=VALUE; may be repeated."),
]
BridgeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--bridge",
        help="Public key of a bridge (64 hex digits); may be repeated. Its messages with a parent id "
        "are copies of the parent.",
    ),
]


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


@dataclass(frozen=True, slots=True)
class ChosenOverlay:
    """An overlay with its parameters, and where it comes from."""

    overlay: Overlay
    module: str = ""

    @contextmanager
    def blamed(self, describe: Callable[[Exception], str | None] = _first_line) -> Iterator[None]:
        """Report an error of a user's module in one line: it is not a bug of this program.

        ``describe`` returns that line; None for an error that the module cannot have caused.
        """
        try:
            yield
        except Exception as error:
            line = describe(error) if self.module and as_command_error(error) is None else None
            if line is None:
                raise
            text = (
                f"overlay {self.overlay.name} of {self.module} failed: {line}; see the traceback with "
                "--verbose"
            )
            raise UsageError(text) from error


@dataclass(frozen=True, slots=True)
class OverlayClass:
    """An overlay without its parameters, and where it comes from."""

    overlay: type[Overlay]
    module: str

    def choose(self, values: dict[str, JsonValue]) -> ChosenOverlay:
        """Return it with parameters."""
        try:
            return ChosenOverlay(configured(self.overlay, values), self.module)
        except ParameterError as error:
            raise UsageError(str(error)) from None


def find(name: str, module: str = "") -> OverlayClass:
    """Return the overlay of a name."""
    return OverlayClass(_of_module(name, module) if module else _of_registry(name), module)


def choose(name: str, module: str = "", values: dict[str, JsonValue] | None = None) -> ChosenOverlay:
    """Return the overlay of a name, with parameters."""
    return find(name, module).choose(values or {})


def given_parameters(texts: list[str] | None) -> dict[str, JsonValue]:
    """Parse the values of --param."""
    values: dict[str, JsonValue] = {}
    for text in texts or []:
        name, sign, value = text.partition("=")
        if not sign:
            raise UsageError(f"--param takes NAME=VALUE, not {text!r}")
        values[name] = value
    return values


def given_bridges(texts: list[str] | None) -> frozenset[bytes]:
    """Parse the values of --bridge."""
    return frozenset(hex32(text, "--bridge") for text in texts or [])


def _of_registry(name: str) -> type[Overlay]:
    try:
        return registry.overlay_class(name)
    except KeyError:
        names = ", ".join(registry.names())
        text = f"unknown overlay {name!r}; choose one of {names}, or load your own with --overlay-module"
        raise UsageError(text) from None


def _of_module(name: str, text: str) -> type[Overlay]:
    module = load_module(text)
    overlays = {
        item.name: item
        for item in vars(module).values()
        if inspect.isclass(item)
        and issubclass(item, Overlay)
        and not inspect.isabstract(item)
        and all(hasattr(item, needed) for needed in ("name", "schemas", "tables", "state_class"))
    }
    if name not in overlays:
        names = ", ".join(sorted(overlays)) or "none"
        raise UsageError(f"{text} does not define overlay {name!r}; it defines: {names}")
    return overlays[name]
