"""The source as the rules of tests/tidy see it."""

import ast
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import PurePosixPath

from tests.paths import ROOT

#: Modules by path below ``src/veen``.
Tree = Mapping[PurePosixPath, str]
#: From the tree to complaints.
Rule = Callable[[Tree], Iterator[str]]


@cache
def source() -> Tree:
    root = ROOT / "src" / "veen"
    return {
        PurePosixPath(path.relative_to(root)): path.read_text(encoding="utf-8")
        for path in sorted(root.rglob("*.py"))
    }


@cache
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


def small_tree(modules: Mapping[str, str]) -> Tree:
    return {PurePosixPath(path): text for path, text in modules.items()}
