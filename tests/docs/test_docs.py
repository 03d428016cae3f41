"""The documentation says what is true: pages are current, links lead somewhere, examples run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools import gen_docs
from veen.conformance.operations import OPERATIONS, TYPES
from veen.core.errors import Code, Detail
from veen.core.limits import REASONS

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / "vectors").glob("*.md")])
LINK = re.compile(r"\]\(([^)#\s]+)?(#[^)\s]+)?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
EXAMPLE = re.compile(r"<!-- example: (\S+) -->\n```python\n(.*?)```", re.DOTALL)
TUTORIAL = ROOT / "docs" / "tutorial" / "first-look.md"


def _page(name: str) -> str:
    return (ROOT / "docs" / "reference" / name).read_text()


def test_generated_pages_are_current() -> None:
    assert gen_docs.stale_pages() == [], "run make docs"


def test_every_error_is_documented() -> None:
    page = _page("errors.md")
    missing = [str(item) for item in [*Detail, *Code] if f"`{item}`" not in page]
    assert missing == []


def test_every_limit_is_documented() -> None:
    page = _page("limits.md")
    assert [name for name in REASONS if f"`{name}`" not in page] == []


def test_every_operation_and_type_of_the_adapter_is_documented() -> None:
    page = _page("conformance.md")
    assert [name for name in OPERATIONS if f"`{name}`" not in page] == []
    wire = _page("wire.md").lower()
    undocumented = [name for name in TYPES if f"### {name}\n" not in wire]
    assert [name for name in undocumented if f"`{name}`" not in page] == ["receipt_response"]
    assert "`receipt` answers in the same map as `submit`" in _page("wire.md")


def test_every_hash_tag_of_the_code_is_in_the_formulas() -> None:
    source = "".join(path.read_text() for path in (ROOT / "src" / "veen" / "core").glob("*.py"))
    tags = set(re.findall(r'"(veen/[a-z_-]+)"', source))
    pages = _page("formulas.md") + _page("files.md")
    assert sorted(tag for tag in tags if f'"{tag}"' not in pages) == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    broken = []
    for target, anchor in LINK.findall(path.read_text()):
        if target.startswith(("http:", "https:")):
            continue
        other = path if not target else (path.parent / target).resolve()
        if not other.exists() or (anchor and not _has_anchor(other, anchor[1:])):
            broken.append(target + anchor)
    assert broken == []


def _has_anchor(path: Path, anchor: str) -> bool:
    slugs = {
        re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in HEADING.findall(path.read_text())
    }
    return anchor in slugs


@pytest.mark.parametrize(("name", "code"), EXAMPLE.findall(TUTORIAL.read_text()))
def test_examples_of_the_tutorial_run(name: str, code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (
        done.stdout.splitlines()[0]
        == {
            "seal-and-open": "b'hello'",
            "break": "E.FORMAT structural CBOR_INVALID",
        }[name]
    )


def test_the_readme_names_only_targets_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = re.findall(r"^make ([a-z]+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert named == ["run", "test"]
    assert [target for target in named if f"\n{target}:" not in makefile] == []
