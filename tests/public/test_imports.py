"""Documentation, examples and the tests of the goals use the public packages alone."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.paths import ROOT
from tools.public_api import PACKAGES

_FENCE = re.compile(r"^```(?:python|py|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_IMPORT = re.compile(r"^\s*(?:from (veen[\w.]*) import|import (veen[\w.]*))", re.MULTILINE)
# The encodings of a query are specified here; whoever implements them compares with ours.
_INTERNALS = {ROOT / "docs" / "reference" / "query.md"}


def _pages() -> list[Path]:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    return sorted({*pages, *(ROOT / "deploy").rglob("*.md")} - _INTERNALS)


def _imports(text: str) -> Iterator[str]:
    for from_, plain in _IMPORT.findall(text):
        yield from_ or plain


@pytest.mark.parametrize("path", _pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_pages_import_public_packages(path: Path) -> None:
    examples = "\n".join(_FENCE.findall(path.read_text(encoding="utf-8")))
    assert not [name for name in _imports(examples) if name not in PACKAGES]


@pytest.mark.parametrize("path", sorted((ROOT / "tests" / "goals").glob("*.py")), ids=lambda path: path.stem)
def test_goals_import_public_packages(path: Path) -> None:
    """Those of the test itself, and those of the programs in its texts."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    names = [name for text in (*texts, path.read_text(encoding="utf-8")) for name in _imports(text)]
    assert not [name for name in names if name not in PACKAGES]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("import veen\nfrom veen.client import Retry\n", ["veen", "veen.client"]),
        ("    from veen.client.send import Draft\n", ["veen.client.send"]),
        ("import veendor\nfrom venn import x\n", ["veendor"]),
        ("# veen is imported elsewhere\n", []),
    ],
)
def test_what_counts_as_an_import(text: str, names: list[str]) -> None:
    assert list(_imports(text)) == names
