"""The page of the Python API, from its source: signatures and docstrings."""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Final

from tools.cli_docs import table
from tools.ruff import formatted
from veen.client import errors
from veen.client.async_client import AsyncClient
from veen.client.body import Attachment
from veen.client.client import Client
from veen.client.fold.interpret import FoldedState
from veen.client.home.pins import Trust
from veen.client.models import Draft, Message, Sent
from veen.client.resync import Consistency, Resynced
from veen.client.retry import Retry
from veen.client.rpc.async_serve import AsyncRpcServer
from veen.client.rpc.serve import Call, Handled, RpcServer
from veen.client.session import Rotation
from veen.client.tokens import Authorized
from veen.client.verify.offline import (
    ProvedFraud,
    VerifiedReceipt,
    verify_fraud,
    verify_proof,
    verify_receipt,
)
from veen.testing import hub

# The name of the page, for the formatter of its examples.
_PAGE: Final = Path("docs/reference/api.md")

_VALUES: Final = (
    *(Draft, Sent, Message, Attachment, FoldedState, Call, Handled, VerifiedReceipt, ProvedFraud),
    *(Authorized, Resynced, Consistency, Trust, Retry, Rotation),
)
_ERRORS: Final = (
    errors.ClientError,
    errors.NetworkError,
    errors.InvalidResponseError,
    errors.RejectedError,
    errors.UnsentError,
    errors.DivergenceError,
    errors.PinError,
    errors.KeystoreError,
    errors.ClientStateError,
    errors.ReadOnlyError,
    errors.BodyError,
)
# Methods of context managers, and of programs that define operations.
_LEFT_OUT: Final = frozenset({"__init__", "__enter__", "__exit__", "__aenter__", "__aexit__", "run"})

# Sections of docstrings, with their headings.
_TITLES: Final = {"Args": "Parameters:", "Raises": "Raises:", "Example": "", "Attributes": ""}
# References to the specification, which users do not need.
_CITED: Final = re.compile(r" \([A-Z][A-Z0-9+]*(?:-[0-9]+)?(?:, [A-Z][A-Z0-9+]*-[0-9]+)*\)")

_HEAD: Final = """# Python API
{note}
For examples see [Use the library](../how-to/use-the-library.md). All names are in `veen.client`; those that
most programs need are in `veen` as well, and all errors are in `veen.errors`. Everything is typed.

`stream` is the name of a stream, or its id of 64 hex digits. A body (`Value`) consists of `None`, `bool`,
`int` from 0 to 2^64 - 1, `str`, `bytes`, lists, and maps with `str` or `int` keys: the values of
deterministic CBOR. Floats and negative numbers are rejected.
"""

_ERRORS_HEAD: Final = """## Errors

Data that breaks a rule of the protocol is a `ProtocolError`, with `code`, `stage` and `detail`. Every error
is a `VeenError`; all of them are in `veen.errors`.

"""


def api_page(note: str) -> str:
    """Return the page of the Python client."""
    parts = [_HEAD.format(note=note), *_client()]
    parts += [*_servers(), *_checks()]
    parts.append("## Values\n")
    parts += [_value(cls) for cls in _VALUES]
    rows = [
        (f"`{cls.__name__}`", f"`{cls.__mro__[1].__name__}`", _doc(_tree(cls)), _properties(cls))
        for cls in _ERRORS
    ]
    parts.append(_ERRORS_HEAD + table(("error", "is a", "when", "has"), rows))
    return formatted("\n".join(parts), _PAGE)


def _client() -> Iterator[str]:
    tree, other = _tree(Client), {item.name: item for item in _functions(_tree(AsyncClient))}
    yield f"## Client\n\n{_doc(tree)}\n"
    for item in _functions(tree):
        assert item.name in other, f"AsyncClient has no {item.name}"
        kind = "".join(f"@{mark}\n" for mark in ("classmethod", "property") if _is_marked(item, mark))
        yield f"### {item.name}\n\n```py\n{kind}{_signature(item)}\n```\n\n{_doc(item)}\n"
    iterators = [name for name, item in other.items() if _is_iterator(item)]
    listed = " and ".join(f"`{name}`" for name in sorted(iterators))
    yield (
        f"## AsyncClient\n\n{_doc(_tree(AsyncClient))}\n\n"
        f"It has the same methods with the same parameters, to be awaited; `open` too. {listed} give "
        "async iterators.\n"
    )


def _servers() -> Iterator[str]:
    for cls in (RpcServer, AsyncRpcServer):
        yield f"## {cls.__name__}\n\n{_doc(_tree(cls))}\n"
        for item in _functions(_tree(cls)):
            if not _is_marked(item, "overload"):
                yield f"### {item.name}\n\n```py\n{_signature(item)}\n```\n\n{_doc(item)}\n"


def _checks() -> Iterator[str]:
    yield "## Without a client\n"
    for function in (verify_receipt, verify_proof, verify_fraud, hub):
        tree = ast.parse(inspect.getsource(function)).body[0]
        assert isinstance(tree, ast.FunctionDef)
        yield f"### {_where(function)}.{tree.name}\n\n```py\n{_signature(tree)}\n```\n\n{_doc(tree)}\n"


def _where(function: Callable[..., object]) -> str:
    return "veen.testing" if function.__module__ == "veen.testing" else "veen"


def _is_iterator(item: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return item.returns is not None and ast.unparse(item.returns).startswith("AsyncIterator")


def _value(cls: type) -> str:
    tree = _tree(cls)
    head = f"### {cls.__name__}\n\n{_doc(tree)}\n"
    attributes = _attributes(tree)
    rows: list[tuple[str, str, str, str]] = []
    for item in tree.body:
        match item:
            case ast.AnnAssign(target=ast.Name(id=name)) if not name.startswith("_"):
                default = "" if item.value is None else f"`{ast.unparse(item.value)}`"
                kind = f"`{ast.unparse(item.annotation)}`"
                rows.append((f"`{name}`", kind, default, attributes.get(name, "")))
            case ast.Assign(targets=[ast.Name(id=name)]) if issubclass(cls, Enum):
                rows.append((f"`{name}`", "", f"`{ast.unparse(item.value)}`", attributes.get(name, "")))
            case ast.FunctionDef(name=name) if not name.startswith("_") and _is_marked(item, "property"):
                returns = "" if item.returns is None else f"`{ast.unparse(item.returns)}`"
                rows.append((f"`{name}`", returns, "", _doc(item)))
            case ast.FunctionDef(name=name) if not name.startswith("_"):
                rows.append((f"`{name}()`", "", "", _doc(item)))
    return head + "\n" + table(("field", "type", "default", ""), rows)


def _properties(cls: type) -> str:
    tree = _tree(cls)
    names = [item.name for item in _functions(tree)]
    init = next(
        (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"), None
    )
    names += [
        node.attr
        for node in (ast.walk(init) if init is not None else ())
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    ]
    return ", ".join(f"`{name}`" for name in sorted(names))


def _tree(cls: type) -> ast.ClassDef:
    node = ast.parse(inspect.getsource(cls)).body[0]
    assert isinstance(node, ast.ClassDef)
    return node


def _functions(tree: ast.ClassDef) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [
        item
        for item in tree.body
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)
        and item.name not in _LEFT_OUT
        and not item.name.startswith("_")
    ]


def _is_marked(item: ast.FunctionDef | ast.AsyncFunctionDef, mark: str) -> bool:
    return any(ast.unparse(decorator) == mark for decorator in item.decorator_list)


def _doc(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return a docstring in Markdown, without the attributes: they are in a table."""
    text = _CITED.sub("", ast.get_docstring(node) or "").replace("``", "`")
    return "\n\n".join(_section(*part) for part in _sections(text) if part[0] != "Attributes").strip()


def _attributes(tree: ast.ClassDef) -> dict[str, str]:
    """Return the attributes that the docstring of a class describes."""
    text = _CITED.sub("", ast.get_docstring(tree) or "").replace("``", "`")
    items = next((body for title, body in _sections(text) if title == "Attributes"), "")
    return dict(_items(items))


def _sections(text: str) -> list[tuple[str, str]]:
    """Return the sections of a docstring with their titles; plain text has none."""
    sections: list[tuple[str, list[str]]] = [("", [])]
    for line in text.splitlines():
        title = line.removesuffix(":")
        if line.endswith(":") and title in _TITLES:
            sections.append((title, []))
        elif line and not line.startswith(" ") and sections[-1][0]:
            sections.append(("", [line]))
        else:
            sections[-1][1].append(line)
    return [(title, textwrap.dedent("\n".join(lines)).strip("\n")) for title, lines in sections if lines]


def _section(title: str, body: str) -> str:
    match title:
        case "":
            return body.strip()
        case "Example":
            return f"```py\n{body}\n```"
    return f"{_TITLES[title]}\n\n" + "\n".join(
        f"- `{name}`: {description}" for name, description in _items(body)
    )


def _items(body: str) -> Iterator[tuple[str, str]]:
    """Yield the entries of a section: a name and its description."""
    for entry in re.split(r"\n(?! )", body):
        name, _, description = entry.partition(": ")
        if description:
            yield name, " ".join(description.split())


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    return ast.unparse(argument) + ("" if default is None else f" = {ast.unparse(default)}")


def _signature(item: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    arguments = item.args
    plain = [argument for argument in arguments.args if argument.arg not in ("self", "cls")]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + arguments.defaults
    texts = [_parameter(*pair) for pair in zip(plain, defaults, strict=True)]
    texts += ["*"] if arguments.kwonlyargs else []
    texts += [_parameter(*pair) for pair in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    texts += [f"**{ast.unparse(arguments.kwarg)}"] if arguments.kwarg is not None else []
    returns = "" if item.returns is None else f" -> {ast.unparse(item.returns)}"
    line = f"def {item.name}({', '.join(texts)}){returns}"
    if len(line) <= 90:
        return line
    inside = "".join(f"    {text},\n" for text in texts)
    return f"def {item.name}(\n{inside}){returns}"
