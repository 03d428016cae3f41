"""One of each: what is written in one module is not written again in another."""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.tidy.tree import Tree, parsed, small_tree, source


class Single(NamedTuple):
    """A concept, recognised by a pattern in the source."""

    concept: str
    #: A regular expression over the text of a module, with MULTILINE.
    pattern: str
    #: The modules or folders, below src/veen, that may contain it.
    homes: tuple[str, ...]
    #: Source that breaks the rule.
    breach: str


SINGLES = (
    Single(
        "public names that are loaded at first use: stdx.lazy_exports",
        r"^(?:    )?def __getattr__\(name",
        (),
        "def __getattr__(name: str) -> Any: ...",
    ),
    Single(
        "singular and plural of counts: stdx.grammar",
        r"\{'(?:e?s|ies)' (?:if|\*)",
        (),
        """text = f"{count} label{'s' if count > 1 else ''}\"""",
    ),
    Single(
        "the test whether a text is a URL or a path: HubAddress.parse or is_http_url",
        r"""startswith\(\(?["']http|^_URL_SCHEMES""",
        ("client/hub_address.py",),
        'if hub.startswith(("http://", "https://")): pass',
    ),
    Single(
        "a listening server: net.listener",
        r"loop\.create_(?:unix_)?server\(|\badd_signal_handler\(",
        ("net/listener.py", "net/sockets.py"),
        "server = await loop.create_server(connect, sock=sock)",
    ),
    Single(
        "routing with one error boundary: net.http_router",
        r"^class \w*Router\b",
        ("net/http_router.py",),
        "class ToolingRouter: ...",
    ),
    Single(
        "the test whether a host is this machine: stdx.loopback",
        r"\bip_address\(|\bis_loopback\(host",
        ("stdx/loopback.py",),
        "if ip_address(host).is_loopback: pass",
    ),
    Single(
        "loggers are named by their module, and stdx.json_log has the handler",
        r"\bgetLogger\((?!__name__\)|\))|\blogging\.(?:debug|info|warning|error|exception|critical|basicConfig)\(",
        (
            "stdx/json_log.py",
            "pipeline/spark/session.py",  # those of Spark
        ),
        'log = logging.getLogger("veen.hub")',
    ),
    Single(
        "decisions by the text of an error: code decides by class or enum",
        r"\bin str\(|\bstr\(\w+\) (?:==|!=) "
        r"""|\.(?:args\[0\]|code|detail|stage)(?:\.value)? (?:==|!=|(?:not )?in) [\[({]?['"]""",
        (
            "storage/index/index.py",  # LMDB has no class for it
            "pipeline/lake_sql/views.py",  # nor Spark
            "query_service/grants.py",  # whether it was logged before
        ),
        'if error.detail == "pruned": pass',
    ),
    Single(
        "32 bytes in hex: core.encoding.hexadecimal, cli.options",
        r"\{64\}|\bdef \w*hex_?32\w*|_ID_DIGITS\b",
        (
            "core/encoding/hexadecimal.py",
            "cli/options.py",
            "hub/api/parameters.py",  # of a URL: another error
            "pipeline/lake/layout.py",
        ),
        '_HEX32: Final = re.compile(r"[0-9a-f]{64}")',
    ),
    Single(
        "file locks: stdx.file_lock",
        r"\bflock\(|\bimport fcntl",
        (
            "stdx/file_lock.py",
            "storage/fs.py",  # all of a data directory, so that tests can simulate its disk
        ),
        "fcntl.flock(fd, fcntl.LOCK_EX)",
    ),
    Single(
        "LRU caches: stdx.lru, or functools",
        r"\bOrderedDict\b|\.pop\(next\(iter\(",
        (
            "stdx/lru.py",
            "storage/fs.py",  # open files: what is in use is not in the cache, and eviction closes
        ),
        "self._rows: OrderedDict[int, bytes] = OrderedDict()",
    ),
    Single(
        "backoff: stdx.backoff",
        r"\*\* ?(?:min\()?\w*fail|<< ?(?:min\()?\w*fail|\bmin\(2(?:\.0)? ?\* ?\w*(?:pause|wait|delay)",
        ("stdx/backoff.py",),
        "pause = min(2 * pause, LAST)",
    ),
    Single(
        "atomic writes: stdx.atomic_file; in a data directory storage.atomic_file",
        # str.replace has two arguments, other methods of the name have keywords
        r"\.rename\(|\bos\.replace\(|\.replace\((?:[^,=()]|\([^()]*\))*\)|\bNamedTemporaryFile\b|\bmkstemp\b",
        (
            "stdx/atomic_file.py",
            "storage/fs.py",  # all of a data directory, so that tests can simulate its disk
            "storage/atomic_file.py",
            "storage/write/flush.py",
            # Scratch of a job: whole or absent, but not durable, or made durable with one sync of many.
            "pipeline/query/evidence.py",
            "pipeline/query/result_rows.py",
            "pipeline/spark/directories.py",
        ),
        "beside.replace(path)",
    ),
)


def elsewhere(single: Single, tree: Tree) -> Iterator[str]:
    for path, text in tree.items():
        if any(path.is_relative_to(home) for home in single.homes):
            continue
        for match in re.finditer(single.pattern, text, re.MULTILINE):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{path}:{line}: {match.group().strip()!r}; there is one of {single.concept}"


@pytest.mark.parametrize("single", SINGLES, ids=lambda single: single.concept)
def test_there_is_one(single: Single) -> None:
    complaints = list(elsewhere(single, source()))
    assert not complaints, "\n" + "\n".join(complaints)


@pytest.mark.parametrize("single", SINGLES, ids=lambda single: single.concept)
def test_a_second_one_is_found(single: Single) -> None:
    assert list(elsewhere(single, small_tree({"hub/another.py": f"x = 1\n{single.breach}\n"})))


@pytest.mark.parametrize(
    "breach",
    [
        "def __getattr__(name): ...",
        "if url.startswith('https://'): pass",
        "loop.add_signal_handler(SIGTERM, stop)",
        "def parse_hex32(text): ...",
        "import fcntl",
        "rows.pop(next(iter(rows)))",
        "pause = FIRST * 2 ** failures",
        "os.replace(temporary, path)",
        "temporary.rename(path)",
        "fd, name = tempfile.mkstemp()",
        "logging.warning('the disk is full')",
        "if 'locked' in str(error): pass",
        "if str(error) == 'locked': pass",
        "if error.code in ('E.SIZE', 'E.TIME'): pass",
        "if error.detail.value != 'pruned': pass",
    ],
)
def test_other_forms_are_found(breach: str) -> None:
    tree = small_tree({"hub/another.py": f"{breach}\n"})
    assert [single for single in SINGLES for _ in elsewhere(single, tree)]


@pytest.mark.parametrize("single", SINGLES, ids=lambda single: single.concept)
def test_a_home_is_used(single: Single) -> None:
    for home in single.homes:
        texts = [text for path, text in source().items() if path.is_relative_to(home)]
        assert any(re.search(single.pattern, text, re.MULTILINE) for text in texts), f"remove {home}"


def test_a_home_may_contain_the_pattern() -> None:
    single = Single("x", r"\bx\(", ("stdx/x.py", "storage"), "x()")
    assert not list(elsewhere(single, small_tree({"stdx/x.py": "x()", "storage/a/b.py": "x()"})))


def lazy_packages(tree: Tree) -> Iterator[str]:
    """A package with ``lazy_exports`` lists the same names for types, for readers and for loading."""
    for path, text in tree.items():
        module = parsed(text)
        package = ".".join(("veen", *path.parent.parts))
        tables = [
            {
                (f"{package}.{home}", name)
                for home, names in ast.literal_eval(node.args[1]).items()
                for name in names
            }
            | {
                (package, name)
                for keyword in node.keywords
                if keyword.arg == "submodules"
                for name in ast.literal_eval(keyword.value)
            }
            for node in ast.walk(module)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "lazy_exports"
        ]
        if not tables:
            continue
        typed = {
            (inner.module, name.name)
            for node in module.body
            if isinstance(node, ast.If)
            for inner in node.body
            if isinstance(inner, ast.ImportFrom)
            for name in inner.names
        }
        listed = {
            name
            for node in module.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
            for name in ast.literal_eval(node.value)
        }
        loaded = set.union(*tables)
        if loaded != typed:
            yield f"{path}: {sorted(loaded ^ typed)}: not both imported for types and loaded"
        if missing := {name for _, name in loaded} - listed:
            yield f"{path}: {sorted(missing)}: not in __all__"


def test_lazy_packages_agree_with_themselves() -> None:
    assert not list(lazy_packages(source()))


LAZY = """
if TYPE_CHECKING:
    from veen.client.a import A
__all__ = ["A"]
if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, {"a": ("A",)})
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("import A", "import B"),
        ("client.a", "client.b"),
        ('["A"]', '["B"]'),
        ('"a": ("A",)', '"a": ("A", "B")'),
        ('"a": ("A",)', ""),
    ],
)
def test_a_lazy_package_that_contradicts_itself_is_found(old: str, new: str) -> None:
    assert not list(lazy_packages(small_tree({"client/__init__.py": LAZY})))
    assert not list(lazy_packages(small_tree({"__init__.py": LAZY.replace('{"a"', '{"client.a"')})))
    assert list(lazy_packages(small_tree({"client/__init__.py": LAZY.replace(old, new)})))
