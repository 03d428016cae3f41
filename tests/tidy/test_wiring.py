"""What a part calls is given to its constructor: no callback is assigned later, and none is missing."""

import ast
from collections.abc import Iterator

import pytest

from tests.tidy.tree import Tree, parsed, small_tree, source


def _targets(node: ast.stmt) -> tuple[list[ast.expr], ast.expr | None]:
    match node:
        case ast.Assign():
            return node.targets, node.value
        case ast.AnnAssign():
            return [node.target], node.value
    return [], None


def _does_nothing(value: ast.expr | None) -> bool:
    """Report whether a value is a function that returns None at once: there for others to replace."""
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "staticmethod" and value.args:
        value = value.args[0]
    return isinstance(value, ast.Lambda) and ast.unparse(value.body) == "None"


def assigned_callbacks(tree: Tree) -> Iterator[str]:
    for path, text in tree.items():
        module = parsed(text)
        in_classes = {
            statement
            for node in ast.walk(module)
            if isinstance(node, ast.ClassDef) and not node.decorator_list  # a dataclass has defaults
            for statement in node.body
        }
        for node in ast.walk(module):
            if not isinstance(node, ast.stmt):
                continue
            targets, value = _targets(node)
            for target in targets:
                attribute = isinstance(target, ast.Attribute)
                if (attribute or node in in_classes) and _does_nothing(value):
                    yield f"{path}:{node.lineno}: {ast.unparse(target)} does nothing until it is assigned"
                elif (
                    isinstance(target, ast.Attribute)
                    and ast.unparse(target.value) != "self"
                    and (target.attr.startswith("on_") or isinstance(value, ast.Lambda))
                ):
                    yield f"{path}:{node.lineno}: {ast.unparse(target)} is assigned after construction"


def test_no_callback_is_assigned_after_construction() -> None:
    complaints = list(assigned_callbacks(source()))
    assert not complaints, "\n" + "\n".join(complaints)


@pytest.mark.parametrize(
    "breach",
    [
        "class A:\n    def __init__(self):\n        self.on_end = lambda _: None",
        "class A:\n    def __init__(self):\n        self.on_end: Callable[[], None] = lambda: None",
        "class A:\n    on_end = staticmethod(lambda _: None)",
        "class A:\n    on_end: Callable[[], None] = lambda: None",
        "made.on_end = end",
        "self._part.on_end = self._ended",
        "part.coming = lambda: 3",
    ],
)
def test_one_that_is_assigned_is_found(breach: str) -> None:
    assert len(list(assigned_callbacks(small_tree({"hub/another.py": f"{breach}\n"})))) == 1


def test_what_a_constructor_is_given_may_be_stored() -> None:
    fine = "class A:\n    def __init__(self, on_end):\n        self._end = self.on_end = on_end\n"
    defaults = "def find(progress=lambda _: None):\n    key = lambda item: None\n"
    assert not list(assigned_callbacks(small_tree({"hub/another.py": fine + defaults})))
