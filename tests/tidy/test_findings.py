"""What is wrong is said in one way: one class for a finding, one for the level of a check."""

import re
from collections.abc import Iterator

from tests.tidy.tree import Tree, small_tree, source

HOME = "core/objects/finding.py"
ONCE = re.compile(r"^class (Finding|Level)\b", re.MULTILINE)


def other_findings(tree: Tree) -> Iterator[str]:
    for path, text in tree.items():
        if path.as_posix() != HOME:
            for name in ONCE.findall(text):
                yield f"{path}: {name} is a class of {HOME}"


def test_there_is_one_finding() -> None:
    assert ONCE.findall(next(text for path, text in source().items() if path.as_posix() == HOME))
    assert list(other_findings(source())) == []


def test_another_finding_is_reported() -> None:
    assert list(
        other_findings(small_tree({"hub/a.py": "class Finding(NamedTuple): ...", HOME: "class Level: ..."}))
    )
