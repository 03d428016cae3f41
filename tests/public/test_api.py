"""The public names: complete, unique, cheap to import, and the same as in the snapshot."""

import dataclasses
import importlib
import importlib.util
import inspect
import json
import linecache
import pkgutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

import veen
from tools import public_api

UPDATE = "run: python -m tools.public_api, and review the difference"


def test_signatures_are_those_of_the_snapshot() -> None:
    assert public_api.signatures() == public_api.SIGNATURES.read_text(encoding="utf-8"), UPDATE


_SHOWN = """
from dataclasses import dataclass
from enum import Enum

class Kind(Enum):
    NONE = "none"

@dataclass(frozen=True)
class Item:
    name: str
    count: int = 1
    _hidden: int = 0

    def __getitem__(self, key: str) -> int: ...
    @property
    def total(self) -> int: ...
    async def fetch(self, *, limit: int = 5) -> bytes: ...
    def _helper(self) -> None: ...

def function(item: Item, *, again: bool = False) -> Kind: ...
"""


def _lines_of(source: str, tmp_path: Path) -> list[str]:
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "shown.py").write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("shown", tmp_path / "shown.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "shown", module)
        spec.loader.exec_module(module)
        linecache.clearcache()
        return [
            line
            for name in ("Kind", "Item", "function")
            for line in public_api.lines_of(name, vars(module)[name])
        ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('NONE = "none"', 'NONE = "nothing"'),
        ("frozen=True", "frozen=True, kw_only=True"),
        ("name: str", "name: bytes"),
        ("count: int = 1", "count: int = 2"),
        ("__getitem__(self, key: str)", "__getitem__(self, key: int)"),
        ("    @property\n", ""),
        ("async def fetch", "def fetch"),
        ("limit: int = 5", "limit: int = 6"),
        ("item: Item, *, again", "item: Item, again"),
        ("-> Kind", "-> Item"),
    ],
)
def test_a_change_that_a_program_can_notice_changes_the_snapshot(
    before: str, after: str, tmp_path: Path
) -> None:
    assert before in _SHOWN
    shown = _lines_of(_SHOWN, tmp_path / "before")
    assert _lines_of(_SHOWN.replace(before, after), tmp_path / "after") != shown


def test_a_change_of_what_is_private_does_not(tmp_path: Path) -> None:
    shown = _lines_of(_SHOWN, tmp_path / "before")
    changed = _SHOWN.replace("_hidden: int = 0", "_hidden: int = 9").replace("_helper(self)", "_other(self)")
    assert _lines_of(changed, tmp_path / "after") == shown


def test_every_error_is_in_one_module() -> None:
    classes = public_api.error_classes()
    assert not [name for name, count in Counter(cls.__name__ for cls in classes).items() if count > 1]
    listed = {getattr(veen.errors, name) for name in veen.errors.__all__}
    assert listed == classes, UPDATE
    assert public_api.errors_module() == public_api.ERRORS.read_text(encoding="utf-8"), UPDATE


def test_every_error_is_caught_by_one_name() -> None:
    with pytest.raises(veen.errors.VeenError):
        raise veen.errors.RpcTimeoutError
    assert issubclass(veen.errors.RpcTimeoutError, TimeoutError)


@pytest.mark.parametrize("package", public_api.PACKAGES)
def test_every_public_name_is_there(package: str) -> None:
    module = importlib.import_module(package)
    assert set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        getattr(module, name)
    assert not hasattr(module, "nothing")


@pytest.mark.parametrize("package", public_api.PACKAGES)
def test_no_package_exports_something_else_under_the_name_of_a_submodule(package: str) -> None:
    module = importlib.import_module(package)
    submodules = {item.name for item in pkgutil.iter_modules(getattr(module, "__path__", []))}
    for name in submodules & set(module.__all__):
        assert isinstance(getattr(module, name), ModuleType), f"{package}.{name}"


def test_a_name_means_one_thing() -> None:
    """A name that two packages export is the same object in both."""
    found: dict[str, object] = {}
    for package in public_api.PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            assert found.setdefault(name, getattr(module, name)) is getattr(module, name), name


def test_packages_are_reachable_after_import_veen_alone() -> None:
    code = (
        "import veen; print(veen.recorder.RecorderMiddleware.__name__, veen.pipeline.register.__name__,"
        " veen.core.Receipt.__name__, veen.overlays.KeyedOverlay.__name__, veen.testing.hub.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "RecorderMiddleware register Receipt KeyedOverlay hub\n"


def test_importing_veen_loads_next_to_nothing() -> None:
    code = "import json, sys, veen; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = [name for name in json.loads(done.stdout) if name.partition(".")[0] == "veen"]
    assert loaded == ["veen", "veen.stdx", "veen.stdx.lazy_exports", "veen.version"]


# ``run`` is for those who write operations of their own.
_INTERNAL = {"Client.run", "AsyncClient.run"}
# They do not fail.
_SAFE = {"close", "raw_body"}


def _documented() -> Iterator[tuple[str, str]]:
    """Yield the functions and methods of ``veen`` itself, with their docstrings."""
    names = [*((name, getattr(veen, name)) for name in veen.__all__), ("hub", veen.testing.hub)]
    for name, item in names:
        if isinstance(item, FunctionType):
            yield name, inspect.getdoc(item) or ""
        for member, value in vars(item).items() if isinstance(item, type) else ():
            function = getattr(value, "__func__", value)
            if isinstance(function, FunctionType | property) and not member.startswith("_"):
                yield f"{name}.{member}", inspect.getdoc(function) or ""


@pytest.mark.parametrize(("name", "docstring"), list(_documented()))
def test_every_public_method_says_what_it_does(name: str, docstring: str) -> None:
    assert docstring
    owner, _, member = name.partition(".")
    if name in _INTERNAL or isinstance(vars(getattr(veen, owner, object)).get(member), property):
        return
    assert "\nExample:\n" in docstring
    assert member in _SAFE or "\nRaises:\n" in docstring


@pytest.mark.parametrize("name", [*veen.__all__, *veen.client.__all__])
def test_fields_of_dataclasses_are_described_where_help_shows_them(name: str) -> None:
    item = getattr(veen, name, None) or getattr(veen.client, name)
    if not dataclasses.is_dataclass(item):
        return
    described = (inspect.getdoc(item) or "").partition("\nAttributes:\n")[2]
    fields = [field.name for field in dataclasses.fields(item) if not field.name.startswith("_")]
    assert [field for field in fields if f"\n    {field}: " not in "\n" + described] == []


def test_both_clients_have_the_same_methods_and_keywords() -> None:
    for name, member in vars(veen.Client).items():
        if name.startswith("_"):
            continue
        other = inspect.getattr_static(veen.AsyncClient, name)
        if callable(member):
            assert list(inspect.signature(member).parameters) == list(inspect.signature(other).parameters), (
                name
            )
