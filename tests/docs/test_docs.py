"""The documentation says what is true: pages are current and complete, links lead somewhere."""

import inspect
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.paths import ROOT
from tools import gen_docs
from veen.cli import errors as cli_errors
from veen.cli.registry import COMMANDS
from veen.client.home import directory
from veen.client.home.state import LabelState, Pin, State, Writer
from veen.client.transport import portable_set
from veen.conformance.operations import OPERATIONS, TYPES
from veen.core.errors import Code, Detail
from veen.core.limits import REASONS
from veen.core.types import HubId, Label, StreamId
from veen.hub.config import Settings

PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / "vectors").glob("*.md")])
LINK = re.compile(r"\]\(([^)#\s]+)?(#[^)\s]+)?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def _page(name: str) -> str:
    return (ROOT / "docs" / "reference" / name).read_text()


def test_generated_pages_are_current() -> None:
    assert gen_docs.stale_pages() == [], "run make docs"


@pytest.mark.slow
def test_generated_pages_are_the_same_for_everybody() -> None:
    elsewhere = os.environ | {
        "HOME": "/nonexistent",
        "COLUMNS": "40",
        "VEEN_HUB": "x",
        "LC_ALL": "C",
        "TERM": "dumb",
    }
    done = subprocess.run(
        [sys.executable, "-m", "tools.gen_docs", "--check"],
        cwd=ROOT,
        env=elsewhere,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_every_command_is_documented() -> None:
    page = _page("cli.md")
    assert [
        name for name in COMMANDS if f"`veen {name}`" not in page and f"### veen {name}\n" not in page
    ] == []
    assert [text for text in ("/root", "/home", str(Path.home())) if text in page] == []


def test_every_exit_code_is_documented() -> None:
    codes = {value for name, value in vars(cli_errors).items() if name.isupper() and isinstance(value, int)}
    assert sorted(codes) == [
        int(code) for code in re.findall(r"^\| ([0-9]) \|", _page("cli.md"), re.MULTILINE)
    ]


def test_every_file_of_a_client_is_documented() -> None:
    page = _page("client-directory.md")
    constants = {
        name: value for name, value in {**vars(directory), **vars(portable_set)}.items() if name.isupper()
    }
    names = [value for name, value in constants.items() if isinstance(value, str) and "PATTERN" not in name]
    assert len(names) > 12
    assert [name for name in names if f"`{name}" not in page] == []
    state = State(labels={Label(bytes(32)): LabelState(HubId(bytes(32)), StreamId(bytes(32)), 0)}).encode()
    fields = {*json.loads(state), *json.loads(state)["labels"]["00" * 32]}
    for part in (Pin, Writer):
        fields |= set(re.findall(r'"(\w+)":', inspect.getsource(part.to_json)))
    assert [name for name in sorted(fields) if not re.search(rf"[`.]{name}[`.]", page)] == []


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
    assert re.search("`receipt`.*`submit`", _page("wire.md"))  # it has no response of its own


def test_every_hash_tag_of_the_code_is_in_the_formulas() -> None:
    source = "".join(path.read_text() for path in (ROOT / "src" / "veen" / "core").rglob("*.py"))
    tags = set(re.findall(r'"(veen/[a-z_-]+)"', source))
    assert len(tags) > 20
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


def test_every_setting_in_an_example_exists() -> None:
    found = [
        (path.name, tomllib.loads(text))
        for path in PAGES
        for text in re.findall(r"^```toml\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL)
    ]
    assert len(found) > 2
    known = {*Settings.model_fields, "limits"}
    assert [(name, sorted(set(values) - known)) for name, values in found if not set(values) <= known] == []
    assert all(set(values.get("limits", {})) <= set(REASONS) for _, values in found)


def test_the_readme_names_only_targets_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = re.findall(r"^make ([a-z]+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert named == ["run", "unit", "test"]
    assert [target for target in named if f"\n{target}:" not in makefile] == []
