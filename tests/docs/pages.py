"""Running the examples of a page, in their order, in one place, as a reader would.

A ``console`` fence has commands behind ``$``, each with what it prints. All of a page share one shell and one
empty home. A command must succeed; one that must not is written ``command; echo $?``. What is shown must be
what is printed, line by line, but for:

- a command without any lines after it: nothing is compared;
- ``...``: any text within a line; alone in a line, any lines;
- hexadecimal ids of 16 digits and more, and times: any other of their kind.

A ``python`` fence is a program; a ``text`` fence right behind it is what it prints. Others are not run.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.docs.warm import warm

_FENCE: Final = re.compile(
    r"^```(console|python)\n(.*?)^```$(?:\s*^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL
)
_VARIABLE: Final = re.compile(r"(\.\.\.|\b[0-9a-f]{16,}\b|\b1[0-9]{9}\b)")
#: Far more than a page needs; for machines that do other things as well.
_PAGE_SEC: Final = 240


@dataclass(frozen=True, slots=True)
class Example:
    """A command of a page, and what it is to print; None if the page does not say."""

    command: str
    shown: str | None


def examples_of(page: str) -> list[Example]:
    """Return the examples of a page, in order."""
    found: list[Example] = []
    for kind, text, printed in _FENCE.findall(page):
        if kind == "python":
            found.append(Example(f"python - <<'END_OF_EXAMPLE'\n{text}END_OF_EXAMPLE", printed or None))
        else:
            assert not printed, "what a command prints stands behind it, in the same fence"
            found += _commands(text)
    return found


def _commands(text: str) -> Iterator[Example]:
    lines = text.splitlines()
    assert lines[0].startswith("$ "), f"a console fence begins with a command, not with {lines[0]!r}"
    while lines:
        command = lines.pop(0)[2:]
        while command.endswith("\\"):
            command += "\n" + lines.pop(0)
        shown = []
        while lines and not lines[0].startswith("$ "):
            shown.append(lines.pop(0))
        yield Example(command, "\n".join(shown) + "\n" if shown else None)


def is_like(printed: str, shown: str) -> bool:
    """Tell whether what was printed is what a page shows, but for what differs each time."""
    pattern = ""
    for line in shown.splitlines():
        if line.strip() == "...":
            pattern += r"(?:.*\n)*"
            continue
        pattern += "".join(map(_as_pattern, _VARIABLE.split(line.rstrip())))
        pattern += r"\n"
    plain = "".join(line.rstrip() + "\n" for line in printed.splitlines())
    return re.fullmatch(pattern, plain) is not None


def _as_pattern(part: str) -> str:
    if part == "...":
        return ".*"
    return f"[0-9a-f]{{{len(part)}}}" if _VARIABLE.fullmatch(part) else re.escape(part)


def run_page(page: str, place: Path, *, cold: bool = True) -> list[str]:
    """Run the examples of a page in an empty directory; returns what is not as the page says.

    If not ``cold``, commands are forks of a process that has imported the program, or share one Spark.
    """
    examples = examples_of(page)
    home = place / "home"
    logs = place / "printed"
    home.mkdir()
    logs.mkdir()
    script = "".join(
        f"{{ {example.command}\n}} >{logs}/{nth} 2>&1 </dev/null; code=$?; echo $code >{logs}/{nth}.code\n"
        for nth, example in enumerate(examples)
    )
    environment = _environment(home)
    spark = any("veen pipeline" in example.command for example in examples)
    with nullcontext() if cold else warm(place, environment, home, spark=spark) as programs:
        _run(script, home, environment | ({"PATH": f"{programs}:{environment['PATH']}"} if programs else {}))
    return [
        problem
        for nth, example in enumerate(examples)
        for problem in _problems(example, logs / str(nth), logs / f"{nth}.code")
    ]


def _run(script: str, home: Path, environment: dict[str, str]) -> None:
    shell = subprocess.Popen(
        ["bash"],  # noqa: S607 - as a reader has it
        cwd=home,
        env=environment,
        stdin=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    try:
        shell.communicate(script, timeout=_PAGE_SEC)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
        _end_hubs(home)


def _problems(example: Example, output: Path, code: Path) -> Iterator[str]:
    printed = output.read_text(encoding="utf-8") if output.exists() else "(it was not run)"
    said = f"$ {example.command}\n{printed}"
    if not code.exists() or code.read_text().strip() != "0":
        yield f"failed:\n{said}"
    elif example.shown is not None and not is_like(printed, example.shown):
        yield f"prints something else:\n{said}\nand not\n{example.shown}"


def _environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("VEEN_", "XDG_"))}
    programs = Path(sys.executable).parent
    return kept | {
        "HOME": str(home),
        "PATH": f"{programs}:{kept['PATH']}",
        "VEEN_LISTEN": "127.0.0.1:0",  # whichever port is free, where a page takes the default
        "COLUMNS": "110",
    }


def _end_hubs(home: Path) -> None:
    """End hubs that a page has left running; each has its number in its directory."""
    for path in home.rglob("hub.pid"):
        with suppress(ValueError, ProcessLookupError):
            os.kill(int(path.read_text()), signal.SIGKILL)
