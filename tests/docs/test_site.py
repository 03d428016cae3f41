"""The site: built strictly, complete, and sufficient for itself."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

#: What a browser would fetch by itself; links that a reader may follow are no matter.
LOADED = re.compile(
    r"""<(?:script|img|iframe|source)[^>]*\ssrc="?(https?:)?//|<link[^>]*\shref="?(https?:)?//"""
)


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    done = subprocess.run(
        [*command, "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    made = list((tmp_path / "site").rglob("*.html"))
    pages = [path for path in (ROOT / "docs").rglob("*.md") if path.name != "0000-template.md"]
    assert len(made) == len(pages) + 1  # and the one for what is not found
    assert [str(path) for path in made if LOADED.search(path.read_text(encoding="utf-8"))] == []


def test_decisions_are_listed_by_themselves() -> None:
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "Decisions: []" in settings
    assert not re.search(r"https?://", settings)
