"""The examples of tutorial, how-to pages and README run as they are printed."""

from pathlib import Path

import pytest

from tests.docs.pages import examples_of, is_like, run_page
from tests.paths import ROOT

PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "tutorial").glob("*.md")),
    *sorted((ROOT / "docs" / "how-to").glob("*.md")),
]
WITH_EXAMPLES = [path for path in PAGES if examples_of(path.read_text(encoding="utf-8"))]


def is_cold(path: Path) -> bool:
    """Tell whether the commands of a page start as they do for its reader: those that people begin with.

    The commands of other pages are forks of one process, and share one Spark.
    """
    return path.parent.name != "how-to" or path.stem == "verify-on-spark"


@pytest.mark.slow
@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_of_a_page_run(path: Path, tmp_path: Path) -> None:
    problems = run_page(path.read_text(encoding="utf-8"), tmp_path, cold=is_cold(path))
    assert not problems, "\n\n".join(problems)


def test_pages_for_beginners_have_examples() -> None:
    names = {path.stem for path in WITH_EXAMPLES}
    assert names >= {"README", "first-hour", "share-a-stream", "rotate-keys", "verify-offline", "recover"}


@pytest.mark.parametrize(
    ("printed", "shown", "alike"),
    [
        ("ok: yes\n", "ok: yes\n", True),
        ("ok: yes  \n", "ok: yes\n", True),
        ("ok: yes\nmore\n", "ok: yes\n", False),
        ("ok: yes\nmore\n", "ok: yes\n...\n", True),
        ("ok: yes\n", "ok: yes\n...\n", True),
        ("a\nb\nc\n", "...\nc\n", True),
        ("pid: 17\n", "pid: ...\n", True),
        ("id: 0123456789abcdef\n", "id: fedcba9876543210\n", True),
        ("id: 0123456789abcdef0\n", "id: fedcba9876543210\n", False),
        ("ts: 1794827411\n", "ts: 1700000000\n", True),
        ("size: 5\n", "size: 6\n", False),
        ("a.b\n", "axb\n", False),
    ],
)
def test_what_counts_as_alike(printed: str, shown: str, alike: bool) -> None:  # noqa: FBT001 - a case
    assert is_like(printed, shown) is alike


def test_what_is_wrong_is_found(tmp_path: Path) -> None:
    console = "```console\n$ NAME=veen\n$ echo $NAME\nveen\n$ false\n$ echo no\nyes\n```\n"
    python = "```python\nprint(1)\n```\n\n```text\n1\n```\n"
    page = f"{console}\nText.\n\n{python}"
    problems = run_page(page, tmp_path)
    assert [problem.split(":")[0] for problem in problems] == ["failed", "prints something else"]
