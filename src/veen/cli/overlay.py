"""Which overlay a command uses, ours by name or a user's own module, and the fold of a stream with it."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from veen.cli.client import read_bytes
from veen.cli.errors import UsageError, as_command_error
from veen.cli.options import hex32
from veen.cli.output import progress, warn
from veen.client.client import Client
from veen.client.fold.interpret import FoldedState, interpret
from veen.core.crypto.hash import sha256
from veen.core.types import JsonValue
from veen.overlays import registry
from veen.overlays.errors import ParameterError
from veen.overlays.overlay import Overlay
from veen.overlays.parameters import configured


def fold_stream(
    opened: Client,
    overlay: Overlay,
    stream: str,
    upto: int | None = None,
    **more: Any,  # noqa: ANN401
) -> FoldedState:
    """Fold a stream, with a bar if it takes long; a person is told if summaries could not be kept."""
    with progress("entries") as advance:
        found = interpret(opened, overlay, stream, upto=upto, progress=advance, **more)
    for text in found.notes:
        warn(text)
    if found.provisional:
        warn("entries may still come before some of these: the state is provisional")
    return found


def load_module(text: str) -> ModuleType:
    """Load a module of the user's: by its name, or a .py file."""
    try:
        if not text.endswith(".py"):
            return importlib.import_module(text)
        path = Path(text).expanduser()
        spec = importlib.util.spec_from_file_location(f"veen_user_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses look for their module there
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever is in it
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UsageError(f"{text} can not be loaded: {what}") from None
    return module


ModuleOption = Annotated[
    str,
    typer.Option(
        "--overlay-module",
        help="Module with overlays of your own: its name, or a .py file.",
        metavar="MODULE",
    ),
]
ParamOption = Annotated[
    list[str] | None,
    typer.Option("--param", help="NAME=VALUE, a parameter of the overlay; may be repeated."),
]
BridgeOption = Annotated[
    list[str] | None,
    typer.Option("--bridge", help="Key whose messages with a parent are copies, in hex; may be repeated."),
]


@dataclass(frozen=True, slots=True)
class ChosenOverlay:
    """An overlay, and where it comes from."""

    overlay: Overlay
    module: str = ""
    #: Stands for the code of a module, which changes without anybody counting versions.
    code: bytes = b""

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Tell a mistake in a user's module in one line: it is no fault of the program."""
        try:
            yield
        except Exception as error:
            if not self.module or as_command_error(error) is not None:
                raise
            what = f"{type(error).__name__}: {error}".splitlines()[0]
            text = f"{self.overlay.name} of {self.module} fails: {what}; --verbose shows where"
            raise UsageError(text) from error


@dataclass(frozen=True, slots=True)
class OverlayClass:
    """An overlay without its parameters, and where it comes from."""

    overlay: type[Overlay]
    module: str
    code: bytes

    def choose(self, values: dict[str, JsonValue]) -> ChosenOverlay:
        """Return it with parameters."""
        try:
            return ChosenOverlay(configured(self.overlay, values), self.module, self.code)
        except ParameterError as error:
            raise UsageError(str(error)) from None


def find(name: str, module: str = "") -> OverlayClass:
    """Return the overlay of a name."""
    overlay, code = _of_module(name, module) if module else (_of_registry(name), b"")
    return OverlayClass(overlay, module, code)


def choose(name: str, module: str = "", values: dict[str, JsonValue] | None = None) -> ChosenOverlay:
    """Return the overlay of a name, with parameters."""
    return find(name, module).choose(values or {})


def given_parameters(texts: list[str] | None) -> dict[str, JsonValue]:
    """Read parameters of the command line."""
    found: dict[str, JsonValue] = {}
    for text in texts or []:
        name, sign, value = text.partition("=")
        if not sign:
            raise UsageError(f"--param is NAME=VALUE, not {text!r}")
        found[name] = value
    return found


def given_bridges(texts: list[str] | None) -> frozenset[bytes]:
    """Read keys of bridges of the command line."""
    return frozenset(hex32(text, "--bridge") for text in texts or [])


def _of_registry(name: str) -> type[Overlay]:
    try:
        return registry.overlay_class(name)
    except KeyError:
        names = ", ".join(registry.names())
        text = f"there is no overlay {name!r}; there are: {names}; your own: --overlay-module"
        raise UsageError(text) from None


def _of_module(name: str, text: str) -> tuple[type[Overlay], bytes]:
    module = load_module(text)
    found = {
        item.name: item
        for item in vars(module).values()
        if inspect.isclass(item)
        and issubclass(item, Overlay)
        and not inspect.isabstract(item)
        and all(hasattr(item, needed) for needed in ("name", "schemas", "tables", "state_class"))
    }
    if name not in found:
        names = ", ".join(sorted(found)) or "none"
        raise UsageError(f"{text} has no overlay {name!r}; it has: {names}")
    file = module.__file__
    return found[name], sha256(read_bytes(Path(file))) if file else b""
