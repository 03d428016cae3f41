"""The house rules that a program can check, checked over the source itself.

Each rule is a function from a file to complaints, tested below on a line that breaks it: a rule that cannot
fail is no rule. Nothing here needs git; the tree is walked as it lies on disk.
"""

import ast
import io
import re
import tokenize
import tomllib
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

import pytest

import veen
from tests.paths import ROOT

Rule = Callable[[str, str], Iterator[str]]

MAX_MODULE_LINES = 500
MAX_LISTED_MODULE_LINES = 800
MAX_FUNCTION_LINES = 70

LONG_MODULES: dict[str, str] = {
    # "src/veen/...py": "why it is better in one piece",
}

PURE_PACKAGES = ("src/veen/admission", "src/veen/core", "src/veen/overlays", "src/veen/query")

# Made by tools, never by hand.
SKIPPED_DIRECTORIES = {"__pycache__", "build", "dist", "htmlcov", "node_modules", "site", "spark-warehouse"}


# --- the tree -----------------------------------------------------------------------------------------------


def files(directory: Path) -> Iterator[Path]:
    """Every file that belongs to the project, in a stable order."""
    for path in sorted(directory.iterdir()):
        if path.is_symlink():
            continue
        if path.is_dir():
            hidden = path.name.startswith(".") and path.name != ".ci"
            if not hidden and path.name not in SKIPPED_DIRECTORIES and path.suffix != ".egg-info":
                yield from files(path)
        elif path.suffix != ".pyc" and path.name != ".setup.lock" and not path.name.startswith(".coverage"):
            yield path


def texts() -> Iterator[tuple[str, str]]:
    """Every text file as (path from the root, content); what is not UTF-8 or holds a NUL is not text."""
    for path in files(ROOT):
        content = path.read_bytes()
        if b"\0" in content:
            continue
        try:
            yield path.relative_to(ROOT).as_posix(), content.decode()
        except UnicodeDecodeError:
            continue


def modules() -> Iterator[tuple[str, str]]:
    for path, text in texts():
        if path.endswith(".py"):
            yield path, text


def is_pure(path: str) -> bool:
    return any(path.startswith(f"{package}/") for package in PURE_PACKAGES)


# --- the rules ----------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)  # of the module that the rules look at, one after the other
def nodes(text: str) -> list[ast.AST]:
    """All nodes of a module, itself first."""
    return list(ast.walk(ast.parse(text)))


def long_module(path: str, text: str) -> Iterator[str]:
    lines = len(text.splitlines())
    limit = MAX_LISTED_MODULE_LINES if path in LONG_MODULES else MAX_MODULE_LINES
    if lines > limit:
        yield f"{path}: {lines} lines, at most {limit}; split it, or list it in LONG_MODULES with a reason"


def long_functions(path: str, text: str) -> Iterator[str]:
    for node in nodes(text):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            lines = node.end_lineno - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield f"{path}:{node.lineno}: {node.name} has {lines} lines, at most {MAX_FUNCTION_LINES}"


def missing_docstring(path: str, text: str) -> Iterator[str]:
    module = nodes(text)[0]
    assert isinstance(module, ast.Module)
    if ast.get_docstring(module) is None:
        yield f"{path}: the module has no docstring"


def swallowed_errors(path: str, text: str) -> Iterator[str]:
    for node in nodes(text):
        if not isinstance(node, ast.ExceptHandler):
            continue
        types = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        broad = any(kind is None or ast.unparse(kind) in {"Exception", "BaseException"} for kind in types)
        does_nothing = all(isinstance(step, ast.Pass | ast.Continue | ast.Expr) for step in node.body)
        calls = any(isinstance(part, ast.Call) for step in node.body for part in ast.walk(step))
        if broad and does_nothing and not calls:
            yield f"{path}:{node.lineno}: an error of any kind is caught and forgotten"


def unowned_todos(path: str, text: str) -> Iterator[str]:
    if not re.search("TODO|FIXME|XXX", text):
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and re.search(r"\b(?:TODO|FIXME|XXX)\b(?!\(#\d+\))", token.string):
            yield f"{path}:{token.start[0]}: name the issue, as in TODO(#12)"


IMPURE_CALLS = {"breakpoint", "input", "open", "print"}
IMPURE_CLOCKS = {"fromtimestamp", "now", "today", "utcnow"}
IMPURE_MODULES = {
    "asyncio",
    "logging",
    "os",
    "pathlib",
    "random",
    "secrets",
    "shutil",
    "socket",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "uuid",
}


def impurities(path: str, text: str) -> Iterator[str]:
    """Clock, chance, files and terminal in a package that must have none of them."""
    for node in nodes(text):
        found: list[str] = []
        match node:
            case ast.Import(names=names):
                found = [name.name for name in names if name.name.partition(".")[0] in IMPURE_MODULES]
            case ast.ImportFrom(module=str(module), level=0) if module.partition(".")[0] in IMPURE_MODULES:
                found = [module]
            case ast.Call(func=ast.Name(id=name)) if name in IMPURE_CALLS:
                found = [f"{name}()"]
            case ast.Attribute(value=value, attr=attr) if attr in IMPURE_CLOCKS:
                owner = ast.unparse(value)
                found = [f"{owner}.{attr}"] if owner.rpartition(".")[2] in {"date", "datetime"} else []
            case _:
                continue
        yield from (f"{path}:{node.lineno}: {name} in a pure package" for name in found)


# Written in pieces, so that this file does not break its own rule.
REGISTRY_HOST = re.compile(
    r"\b(?:"
    r"pypi\.(?:python\.)?org|[\w.]*pythonhosted\.org|[\w.]*npmjs\.(?:org|com)|"
    r"(?:deb|ftp|security|snapshot)[\w.]*\.debian\.org|(?:archive|security|ports)\.ubuntu\.com|"
    r"[\w.]*maven\.(?:apache\.)?org|repo1?\.maven\b"
    r")",
    re.IGNORECASE,
)
MACHINE_PATH = re.compile(r"(?<![\w.})-])/(?:work|root|home|Users)/")


def places(path: str, text: str) -> Iterator[str]:
    """Names of registries, and paths of somebody's machine: a clone must work anywhere."""
    for number, line in enumerate(text.splitlines(), start=1):
        for pattern, what in ((REGISTRY_HOST, "registry host"), (MACHINE_PATH, "machine path")):
            if found := pattern.search(line):
                yield f"{path}:{number}: {what} {found[0]}"


def lock_lines(path: str, text: str) -> Iterator[str]:
    """A lock holds pins with hashes and nothing else: no options, no addresses."""
    for entry in re.sub(r" *\\\n *", " ", text).splitlines():
        if not re.fullmatch(r"[a-z0-9-]+==\S+(?: ; [^\\]+?)?(?: --hash=sha256:[0-9a-f]{64})+", entry):
            yield f"{path}: not a pin with sha256 hashes: {entry[:60]}"


def changelog_form(path: str, text: str) -> Iterator[str]:
    headings = [line for line in text.splitlines() if re.match(r"##? *\[", line)]
    if not headings or headings[0] != "## [Unreleased]":
        yield f"{path}: the first version heading must be '## [Unreleased]'"
    for heading in headings[1:]:
        if not re.fullmatch(r"## \[\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2}", heading):
            yield f"{path}: not a version heading: {heading}"
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    for line in text.splitlines():
        if line.startswith("### ") and line[4:] not in kinds:
            yield f"{path}: {line[4:]} is none of {', '.join(sorted(kinds))}"


# --- applied to the source ----------------------------------------------------------------------------------


def assert_none(complaints: list[str]) -> None:
    assert not complaints, "\n" + "\n".join(complaints)


RULES: tuple[Rule, ...] = (long_module, long_functions, missing_docstring, swallowed_errors, unowned_todos)


def test_every_module_keeps_the_rules() -> None:
    assert_none([complaint for path, text in modules() for rule in RULES for complaint in rule(path, text)])


def test_pure_packages_are_pure() -> None:
    pure = [(path, text) for path, text in modules() if is_pure(path)]
    assert pure
    assert_none([complaint for path, text in pure for complaint in impurities(path, text)])


def test_no_file_names_a_registry_or_a_machine() -> None:
    assert_none([complaint for path, text in texts() for complaint in places(path, text)])


def test_locks_hold_only_pins_with_hashes() -> None:
    locks = [(path, text) for path, text in texts() if path.endswith(".lock")]
    assert [path for path, _ in locks] == [
        "requirements-build.lock",
        "requirements-hub.lock",
        "requirements.lock",
    ]
    assert_none([complaint for path, text in locks for complaint in lock_lines(path, text)])


def test_the_changelog_has_its_form() -> None:
    assert_none(list(changelog_form("CHANGELOG.md", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))))


def test_listed_long_modules_are_still_long() -> None:
    lengths = {path: len(text.splitlines()) for path, text in modules()}
    assert [path for path in LONG_MODULES if lengths.get(path, 0) <= MAX_MODULE_LINES] == []


def test_package_and_project_state_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert veen.__version__ == project["version"]


# --- the rules can fail -------------------------------------------------------------------------------------

STATEMENT = "x = 1\n"
LOCKED = "a==1 \\\n    --hash=sha256:" + "0" * 64 + "\n"
REGISTRY = "pypi" + ".org"


@pytest.mark.parametrize(
    ("rule", "bad"),
    [
        (long_module, STATEMENT * (MAX_MODULE_LINES + 1)),
        (long_functions, "def f():\n" + "    x = 1\n" * MAX_FUNCTION_LINES),
        (long_functions, "class C:\n  async def f():\n" + "    x = 1\n" * MAX_FUNCTION_LINES),
        (missing_docstring, STATEMENT),
        (missing_docstring, ""),
        (swallowed_errors, "try:\n    f()\nexcept Exception:\n    pass\n"),
        (swallowed_errors, "try:\n    f()\nexcept:\n    ...\n"),
        (
            swallowed_errors,
            "for i in x:\n  try:\n    f()\n  except (OSError, BaseException):\n    continue\n",
        ),
        (unowned_todos, "x = 1  # TODO: later\n"),
        (unowned_todos, "# FIXME\n"),
        (impurities, "import time\n"),
        (impurities, "import os.path\n"),
        (impurities, "from random import choice\n"),
        (impurities, "def f():\n    import socket\n"),
        (impurities, "print(1)\n"),
        (impurities, "with open(p) as f: pass\n"),
        (impurities, "input()\n"),
        (impurities, "datetime.datetime.now()\n"),
        (impurities, "clock = datetime.utcnow\n"),
        (places, f"see https://{REGISTRY}/simple"),
        (places, "https://files.python" + "hosted.org/x"),
        (places, "deb http://deb.debian" + ".org/debian stable main"),
        (places, "https://repo1.mav" + "en.org/maven2"),
        (places, "cd /" + "work/main"),
        (places, "PATH=/" + "root/bin"),
        (places, '"/' + 'home/me/x"'),
        (lock_lines, "a==1\n"),
        (lock_lines, "--index-url https://example.org\n" + LOCKED),
        (lock_lines, LOCKED + "b @ https://example.org/b.whl\n"),
        (changelog_form, "# Changelog\n"),
        (changelog_form, "## [1.0.0] - 2026-01-01\n"),
        (changelog_form, "## [Unreleased]\n## [1.0] - soon\n"),
        (changelog_form, "## [Unreleased]\n### Improved\n"),
    ],
)
def test_a_rule_complains(rule: Rule, bad: str) -> None:
    assert list(rule("src/veen/core/x.py", bad))


@pytest.mark.parametrize(
    ("rule", "good"),
    [
        (long_module, STATEMENT * MAX_MODULE_LINES),
        (long_functions, "def f():\n" + "    x = 1\n" * (MAX_FUNCTION_LINES - 1)),
        (missing_docstring, '"""What."""\n'),
        (swallowed_errors, "try:\n    f()\nexcept OSError:\n    pass\n"),
        (swallowed_errors, "try:\n    f()\nexcept Exception:\n    log()\n"),
        (swallowed_errors, "try:\n    f()\nexcept BaseException:\n    raise\n"),
        (unowned_todos, "# TODO(#12): later\n"),
        (unowned_todos, 'x = "TODO"\n'),
        (impurities, "import struct\nfrom . import time\n"),
        (impurities, "def f(now, source): return source.open(now.date)\n"),
        (places, "src/work/x, ./home/x, $HOME/.cache, https://example.org/root/x, ${DIR}/work/"),
        (lock_lines, LOCKED),
        (lock_lines, LOCKED.replace("==1", "==1 ; python_full_version < '3.12'")),
        (changelog_form, "## [Unreleased]\n### Added\n## [1.0.0] - 2026-01-01\n"),
    ],
)
def test_a_rule_is_content(rule: Rule, good: str) -> None:
    assert list(rule("src/veen/core/x.py", good)) == []
