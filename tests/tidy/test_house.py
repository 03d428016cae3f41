"""The rules of the house: where modules live and what they are called (docs/explanation/architecture.md).

Each rule is a function from the tree to complaints, and is tested below on a small tree that breaks it.
Layers are import contracts, in ``pyproject.toml``.
"""

import ast
import importlib
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import PurePosixPath

import grimp
import pytest

from tests.paths import ROOT
from tests.tidy.tree import Rule, Tree, parsed, small_tree, source
from veen.cli.registry import COMMANDS

MAX_MODULES_IN_FOLDER = 20
MAX_SIBLINGS_WITH_PREFIX = 4
#: package/room/module, and one more below cli/commands.
MAX_DEPTH = 3
COMMAND_FOLDER = PurePosixPath("cli/commands")
#: Nouns that end in -ing.
NOUNS = {"encoding", "finding", "keyring", "testing", "tooling"}
#: Lines with a ``noqa`` in src. It may only fall: lower it when one goes.
MAX_NOQA = 246
#: Also without the space, and for a whole file.
SUPPRESSION = re.compile(r"#\s*(?:ruff:\s*)?noqa\b", re.IGNORECASE)
#: Packages that programs import from: docs/reference/api.md.
PUBLIC_PACKAGES = ("client", "core", "overlays", "pipeline", "recorder")


def entry_points() -> dict[str, str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return dict(project["scripts"])


def is_module(path: PurePosixPath) -> bool:
    return path.name != "__init__.py"


# --- names --------------------------------------------------------------------------------------------------


def gerunds(tree: Tree) -> Iterator[str]:
    names = {(path.parent / name).as_posix(): name for path in tree for name in (path.stem, path.parent.name)}
    for path, name in sorted(names.items()):
        if name.rpartition("_")[2].endswith("ing") and name.rpartition("_")[2] not in NOUNS:
            yield f"{path}: a module is called by what it is, not by what it does"


def commands_by_word(tree: Tree) -> Iterator[str]:
    words = {word.replace("-", "_") for word in COMMANDS}
    for path in tree:
        if path.is_relative_to(COMMAND_FOLDER) and len(path.parts) > 2:
            name = PurePosixPath(path.parts[2]).stem
            if name not in {*words, "__init__"}:
                yield f"{path}: no command is called {name}"


def bound_names(body: list[ast.stmt]) -> Iterator[str]:
    """What a module imports or defines."""
    for node in body:
        match node:
            case ast.ImportFrom(names=names) | ast.Import(names=names):
                yield from (name.asname or name.name for name in names)
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Try(body=inner):
                yield from bound_names(inner)
            case ast.If(body=inner):
                yield from bound_names(inner)
            case _:
                continue


def exports_hide_modules(tree: Tree) -> Iterator[str]:
    """A package that exports ``x`` beside a submodule ``x``: which one is found depends on the imports."""
    for path, text in tree.items():
        if is_module(path):
            continue
        package = ".".join(("veen", *path.parent.parts))
        inside = {other.stem for other in tree if other.parent == path.parent and is_module(other)}
        inside |= {other.parent.name for other in tree if other.parent.parent == path.parent != other.parent}
        modules = {
            name.name
            for node in ast.walk(parsed(text))
            if isinstance(node, ast.ImportFrom) and node.module == package
            for name in node.names
        }
        yield from (
            f"{path}: exports {name}, which is a submodule"
            for name in sorted({*bound_names(parsed(text).body)} & inside - modules)
        )


def repeated_classes(tree: Tree) -> Iterator[str]:
    homes: defaultdict[tuple[str, str], list[PurePosixPath]] = defaultdict(list)
    for path, text in tree.items():
        for node in parsed(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[path.parts[0], node.name].append(path)
    for (_, name), paths in homes.items():
        if len(paths) > 1:
            yield f"class {name} is in {' and '.join(map(str, paths))}"


def repeated_exports(tree: Tree) -> Iterator[str]:
    exported: defaultdict[str, list[str]] = defaultdict(list)
    for package in PUBLIC_PACKAGES:
        text = tree.get(PurePosixPath(package, "__init__.py"), "")
        for node in parsed(text).body:
            match node:
                case (
                    ast.Assign(targets=[ast.Name(id="__all__")], value=value)
                    | ast.AnnAssign(target=ast.Name(id="__all__"), value=ast.expr() as value)
                ):
                    for name in ast.literal_eval(value):
                        exported[name].append(package)
                case _:
                    continue
    for name, packages in exported.items():
        if len(packages) > 1:
            yield f"{name} is exported by {' and '.join(packages)}"


def imported_exports(tree: Tree) -> Iterator[str]:
    """Our own code imports modules: what a public package exports is for programs, and is loaded lazily."""
    packages = {"veen", "veen.errors", *(f"veen.{package}" for package in PUBLIC_PACKAGES)}
    modules = {".".join(("veen", *path.with_suffix("").parts)).removesuffix(".__init__") for path in tree}
    for path, text in tree.items():
        for node in ast.walk(parsed(text)):
            if isinstance(node, ast.ImportFrom) and node.module in packages:
                for name in node.names:
                    if f"{node.module}.{name.name}" not in modules:
                        yield f"{path}:{node.lineno}: import {name.name} from the module that defines it"


# --- sizes --------------------------------------------------------------------------------------------------


def full_folders(tree: Tree) -> Iterator[str]:
    for folder, count in Counter(path.parent for path in tree if is_module(path)).items():
        if count > MAX_MODULES_IN_FOLDER and folder != COMMAND_FOLDER:
            yield f"{folder}: {count} modules, at most {MAX_MODULES_IN_FOLDER}; make rooms"


def common_prefixes(tree: Tree) -> Iterator[str]:
    prefixes = Counter((path.parent, path.stem.partition("_")[0]) for path in tree if is_module(path))
    for (folder, prefix), count in prefixes.items():
        if count > MAX_SIBLINGS_WITH_PREFIX:
            yield f"{folder}: {count} modules begin with {prefix}; make a folder {prefix}"


def deep_modules(tree: Tree) -> Iterator[str]:
    for path in tree:
        limit = MAX_DEPTH + path.is_relative_to(COMMAND_FOLDER)
        if len(path.parts) > limit:
            yield f"{path}: deeper than package/room/module"


def missing_packages(tree: Tree) -> Iterator[str]:
    for folder in sorted({path.parent for path in tree}):
        if folder / "__init__.py" not in tree:
            yield f"{folder}: no __init__.py that says what the room is for"


def count_suppressions(tree: Tree) -> int:
    return sum(len(SUPPRESSION.findall(text)) for text in tree.values())


def suppressions(tree: Tree) -> Iterator[str]:
    count = count_suppressions(tree)
    if count > MAX_NOQA:
        yield f"{count} lines with noqa, at most {MAX_NOQA}"


def references(module: ast.AST) -> Iterator[str]:
    """Names that a piece of source uses; strings too, because registries name functions so."""
    for node in ast.walk(module):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                yield name
            case ast.Constant(value=str(text)):
                yield text
            case _:
                continue


def unused_functions(tree: Tree) -> Iterator[str]:
    """Functions that nothing in the source uses but themselves; what only tests need is theirs."""
    used = Counter(name for text in tree.values() for name in references(parsed(text)))
    used.update(target.partition(":")[2] for target in entry_points().values())
    for path, text in tree.items():
        for node in parsed(text).body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.decorator_list:
                continue
            by_itself = sum(name == node.name for name in references(node))
            if used[node.name] == by_itself and not node.name.startswith("__"):
                yield f"{path}:{node.lineno}: nothing uses {node.name}"


#: Bases by whose name a class is an exception.
EXCEPTION = re.compile(r"\w*(?:Error|Exception|Interrupt|Warning)")


def last_name(base: ast.expr) -> str:
    """Return the name of a class that is derived from, without its module and parameters."""
    return ast.unparse(base).partition("[")[0].rpartition(".")[2]


def stray_exceptions(tree: Tree) -> Iterator[str]:
    """An exception is a VeenError in the ``errors.py`` of its package; private control flow is exempt."""
    bases: defaultdict[str, set[str]] = defaultdict(set)
    classes = [
        (path, node)
        for path, text in tree.items()
        for node in ast.walk(parsed(text))
        if isinstance(node, ast.ClassDef)
    ]
    for _, node in classes:
        bases[node.name] |= {last_name(base) for base in node.bases}

    def is_ours(name: str) -> bool:
        return name == "VeenError" or any(is_ours(base) for base in bases[name])

    def is_exception(name: str) -> bool:
        return bool(EXCEPTION.fullmatch(name)) or any(is_exception(base) for base in bases.get(name, ()))

    for path, node in classes:
        if node.name.startswith("_") or not any(is_exception(last_name(base)) for base in node.bases):
            continue
        if path.name != "errors.py" or len(path.parts) != 2:
            yield f"{path}:{node.lineno}: {node.name} belongs into {path.parts[0]}/errors.py"
        if not is_ours(node.name):
            yield f"{path}:{node.lineno}: {node.name} is not a VeenError"


RULES: tuple[Rule, ...] = (
    gerunds,
    commands_by_word,
    exports_hide_modules,
    repeated_classes,
    repeated_exports,
    imported_exports,
    full_folders,
    common_prefixes,
    deep_modules,
    missing_packages,
    suppressions,
    unused_functions,
    stray_exceptions,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_source_follows_the_rule(rule: Rule) -> None:
    complaints = list(rule(source()))
    assert not complaints, "\n" + "\n".join(complaints)


def test_no_more_suppressions_are_allowed_than_there_are() -> None:
    count = count_suppressions(source())
    assert count == MAX_NOQA, f"lower MAX_NOQA to {count}"


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/explanation/architecture.md"])
def test_a_page_names_files_that_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[a-z0-9_]+/)+[a-z0-9_]+\.py)`", text))
    assert len(named) > 9
    assert [
        path for path in named if not (ROOT / path).exists() and PurePosixPath(path) not in source()
    ] == []


def test_no_modules_import_each_other() -> None:
    graph = grimp.build_graph("veen", cache_dir=None, exclude_type_checking_imports=True)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(imports).prepare()  # raises CycleError, which names the modules


def public_lists() -> list[PurePosixPath]:
    return [path for path, text in source().items() if re.search(r"^__all__ = ", text, re.MULTILINE)]


@pytest.mark.parametrize("path", public_lists(), ids=str)
def test_a_module_has_what_it_lists(path: PurePosixPath) -> None:
    assert len(re.findall(r"^__all__ = ", source()[path], re.MULTILINE)) == 1
    name = ".".join(("veen", *path.with_suffix("").parts)).removesuffix(".__init__")
    module = importlib.import_module(name)
    assert [item for item in module.__all__ if not hasattr(module, item)] == []


def test_every_script_has_a_function() -> None:
    for script, target in entry_points().items():
        module, _, function = target.partition(":")
        path = PurePosixPath(*module.split(".")[1:]).with_suffix(".py")
        assert function in bound_names(parsed(source()[path]).body), f"{script}: {target}"


@pytest.mark.parametrize(
    ("rule", "bad"),
    [
        (gerunds, {"core/walking.py": ""}),
        (gerunds, {"core/walking/x.py": ""}),
        (gerunds, {"core/label_walking.py": ""}),
        (commands_by_word, {"cli/commands/fetch.py": ""}),
        (commands_by_word, {"cli/commands/fetch/show.py": ""}),
        (exports_hide_modules, {"query/__init__.py": "from veen.query.x import x", "query/x.py": ""}),
        (exports_hide_modules, {"query/__init__.py": "def x(): ...", "query/x/y.py": ""}),
        (repeated_classes, {"hub/a.py": "class Kept: ...", "hub/b/c.py": "class Kept: ..."}),
        (repeated_exports, {"core/__init__.py": '__all__ = ["X"]', "client/__init__.py": '__all__ = ["X"]'}),
        (full_folders, {f"hub/m{number}.py": "" for number in range(MAX_MODULES_IN_FOLDER + 1)}),
        (common_prefixes, {f"hub/fold_{number}.py": "" for number in range(MAX_SIBLINGS_WITH_PREFIX + 1)}),
        (deep_modules, {"hub/a/b/c.py": ""}),
        (deep_modules, {"cli/commands/hub/a/b.py": ""}),
        (missing_packages, {"hub/a.py": ""}),
        (suppressions, {"hub/a.py": "x = 1  # noqa: E501\n" * (MAX_NOQA + 1)}),
        (common_prefixes, {f"hub/fold{end}.py": "" for end in ("", "_a", "_b", "_c", "_d")}),
        (exports_hide_modules, {"query/__init__.py": "x = 1", "query/x.py": ""}),
        (
            repeated_exports,
            {"core/__init__.py": '__all__: T = ["X"]', "client/__init__.py": '__all__ = ["X"]'},
        ),
        (suppressions, {"hub/a.py": "#noqa\n# ruff: noqa\n" * MAX_NOQA}),
        (imported_exports, {"hub/a.py": "from veen.core import Receipt", "core/__init__.py": ""}),
        (imported_exports, {"hub/a.py": "def load():\n    from veen import Client"}),
        (unused_functions, {"hub/a.py": "def unused(): ..."}),
        (unused_functions, {"hub/a.py": "def unused(): unused()"}),
        (stray_exceptions, {"hub/a.py": "class StrangeError(VeenError): ..."}),
        (stray_exceptions, {"hub/a/errors.py": "class StrangeError(VeenError): ..."}),
        (stray_exceptions, {"hub/errors.py": "class StrangeError(ValueError): ..."}),
        (
            stray_exceptions,
            {"hub/errors.py": "class Gone(StrangeError): ...\nclass StrangeError(OSError): ..."},
        ),
        (stray_exceptions, {"hub/a.py": "def f():\n    class Left(Exception): ..."}),
    ],
)
def test_a_rule_complains(rule: Rule, bad: dict[str, str]) -> None:
    assert list(rule(small_tree(bad)))


@pytest.mark.parametrize(
    ("rule", "good"),
    [
        (gerunds, {"core/encoding/x.py": "", "hub/keyring.py": "", "core/walk.py": ""}),
        (commands_by_word, {"cli/commands/verify_receipt.py": "", "cli/commands/hub/show.py": ""}),
        (exports_hide_modules, {"query/__init__.py": "from veen.query import x", "query/x.py": ""}),
        (repeated_classes, {"hub/a.py": "class Kept: ...", "core/c.py": "class Kept: ..."}),
        (full_folders, {f"cli/commands/m{number}.py": "" for number in range(MAX_MODULES_IN_FOLDER + 1)}),
        (deep_modules, {"hub/a/b.py": "", "cli/commands/hub/b.py": ""}),
        (missing_packages, {"hub/__init__.py": "", "hub/a.py": ""}),
        (imported_exports, {"hub/a.py": "from veen.core import limits", "core/limits.py": ""}),
        (unused_functions, {"hub/a.py": "def used(): ...", "hub/b.py": "used()"}),
        (stray_exceptions, {"hub/a.py": "class _Left(Exception): ...", "hub/b.py": "class Found: ..."}),
        (
            stray_exceptions,
            {
                "core/errors.py": "class VeenError(Exception): ...\nclass OwnError(VeenError, OSError): ...",
                "hub/errors.py": "class OtherError(errors.OwnError): ...",
            },
        ),
    ],
)
def test_a_rule_is_content(rule: Rule, good: dict[str, str]) -> None:
    assert list(rule(small_tree(good))) == []
