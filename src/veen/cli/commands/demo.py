"""``veen demo``: a hub, two people and an auditor, in commands to copy.

Every command runs for real, as a process of its own, in a directory that is removed afterwards.
"""

import contextlib
import importlib.util
import json
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from veen.cli.data_dir import running_pid
from veen.cli.errors import FAILED, FailedError, UsageError
from veen.cli.output import command, print_result, warn
from veen.cli.settings import common
from veen.core.data_dir import paths
from veen.stdx.grammar import counted

_STREAM: Final = "team/plan"
_DOOR: Final = "record/app/door"
_QUERY: Final = {
    "query_id": "who-was-there",
    "scope": [_DOOR],
    "filter": {"event_type": ["door.open"]},
    "projection": ["subject_id", "event_time", "payload.door", "receipt_id"],
    "evidence": {"mode": "full"},
}
_WORDS: Final = "meet at nine, bring the blue folder"
# Spark on a busy machine takes longer than anything else here.
_TIMEOUT_SEC: Final = 180
_HEX: Final = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{20,}\b")
_MOST_LINES: Final = 8


@dataclass(slots=True)
class Done:
    """A command that was run, and its output."""

    command: str
    exit_code: int
    output: str


@dataclass(slots=True)
class Step:
    """A step: its title, its meaning, and its commands."""

    title: str
    means: str
    commands: list[Done] = field(default_factory=list)


class Demo:
    """The steps, which are printed as they run."""

    def __init__(self, directory: Path, console: Console | None) -> None:
        self._directory = directory
        self._console = console
        self.steps: list[Step] = []

    # --- printing -------------------------------------------------------------------------------------------

    def _step(self, title: str, means: str) -> None:
        self.steps.append(Step(title, means))
        if self._console is not None:
            self._console.print(Text(f"\n{len(self.steps)}. {title}", style="bold"))
            self._console.print(Padding(Text(means), (0, 0, 0, 3)))

    def _veen(self, *words: str, expect: int = 0) -> str:
        return self._run(["veen", *words], [sys.executable, "-m", "veen.cli.main", *words], expect)

    def _run(self, words: list[str], command: list[str], expect: int) -> str:
        text = shlex.join(words)
        if self._console is not None:
            self._console.print(Text(f"   $ {text}", style="cyan"), soft_wrap=True)
        done = subprocess.run(  # noqa: S603 - our own program, or one named here
            command,
            cwd=self._directory,
            env=_environment(self._directory),
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_SEC,
            stdin=subprocess.DEVNULL,
        )
        output = (done.stdout + done.stderr).strip()
        self.steps[-1].commands.append(Done(text, done.returncode, output))
        if self._console is not None:
            self._show(output, done.returncode)
        if done.returncode != expect:
            raise FailedError(f"the demo failed: {text} exited with status {done.returncode}: {output}")
        return done.stdout

    def _show(self, output: str, exit_code: int) -> None:
        assert self._console is not None
        lines = [_HEX.sub(r"\1…", line) for line in output.splitlines()]
        for line in lines[:_MOST_LINES]:
            self._console.print(Text(f"     {line}", style="dim"), soft_wrap=True)
        if len(lines) > _MOST_LINES:
            more = len(lines) - _MOST_LINES
            self._console.print(Text(f"     … {counted(more, 'more line')}", style="dim"))
        if exit_code:
            self._console.print(Text(f"     (exit code {exit_code})", style="yellow"))

    # --- the steps ------------------------------------------------------------------------------------------

    def play(self) -> None:
        """Run all steps."""
        self._identities()
        self._hub()
        self._share()
        self._send_and_read()
        self._reject()
        self._state()
        self._record()
        self._kill()
        self._audit()
        self._tables()
        self._tamper()
        self._step("The end", "The hub completes pending requests, flushes its files and stops.")
        self._veen("hub", "stop", "--data-dir", "hub")

    def _identities(self) -> None:
        self._step(
            "Two people",
            "Each has keys, in a directory that no other user can read, and an identity card to share.",
        )
        for name in ("Alice", "Bob"):
            self._veen("keygen", "--out", name.lower(), "--name", name)

    def _hub(self) -> None:
        self._step(
            "A hub",
            "The hub orders messages and signs receipts. It accepts messages only from clients with a "
            "token issued by Alice.",
        )
        self._veen(
            *("hub", "start", "--data-dir", "hub", "--listen", "127.0.0.1:0"),
            *("--require-cap", "true", "--trust-issuer", "alice/identity_card.pub"),
        )
        self._veen(
            *("cap", "issue", "--issuer", "alice", "--subject", "alice"),
            *("--stream", _STREAM, "--ttl", "86400", "--out", "alice.cap"),
        )
        self._veen("cap", "authorize", "--hub", "hub", "--client", "alice", "--cap", "alice.cap")

    def _share(self) -> None:
        self._step(
            "A shared stream",
            "Messages to the stream are sealed to one key. Alice creates it, and seals a copy to Bob's "
            "card. The file can be sent over any channel.",
        )
        self._veen("reader", "new", "--client", "alice", "--stream", _STREAM)
        self._veen(
            *("reader", "share", "--client", "alice", "--stream", _STREAM),
            *("--to", "bob/identity_card.pub", "--out", "for-bob.key"),
        )
        self._veen("reader", "accept", "for-bob.key", "--client", "bob", "--from", "alice/identity_card.pub")

    def _send_and_read(self) -> None:
        (self._directory / "plan.txt").write_text("The plan, in detail.\n" * 50)
        self._step(
            "A message with an attachment",
            "Alice seals and signs it. The hub stores it on disk and returns a receipt, which her "
            "client verifies.",
        )
        body = json.dumps({"text": _WORDS})
        self._veen(
            *("send", "--hub", "hub", "--client", "alice", "--stream", _STREAM),
            *("--body", body, "--attach", "plan.txt"),
        )
        self._step(
            "Bob reads",
            "Signatures, hashes, order and the root of the log are verified before anything is printed.",
        )
        self._veen("stream", "--hub", "hub", "--client", "bob", "--stream", _STREAM)
        self._veen(
            *("attachment", "get", "--hub", "hub", "--client", "bob", "--stream", _STREAM),
            *("--seq", "1", "--out", "bobs-plan.txt"),
        )
        self._run(["cmp", "plan.txt", "bobs-plan.txt"], ["cmp", "plan.txt", "bobs-plan.txt"], 0)
        self._step("What the hub sees", "No plaintext: grep does not find the text in its files.")
        self._run(["grep", "-r", _WORDS, "hub"], ["grep", "-r", _WORDS, "hub"], 1)

    def _reject(self) -> None:
        self._step(
            "A rejection",
            "Bob can read the stream, but has no token to write to it. The hub rejects the message with "
            "an error code.",
        )
        answer = (
            *("send", "--hub", "hub", "--client", "bob", "--stream", _STREAM),
            *("--body", '{"text": "I will"}'),
        )
        self._veen(*answer, expect=FAILED)
        self._step(
            "A capability", "Alice issues a token for Bob: this stream, one day, five messages per second."
        )
        self._veen(
            *("cap", "issue", "--issuer", "alice", "--subject", "bob/identity_card.pub"),
            *("--stream", _STREAM, "--ttl", "86400", "--rate", "5,10", "--out", "bob.cap"),
        )
        self._veen("cap", "authorize", "--hub", "hub", "--client", "bob", "--cap", "bob.cap")
        self._veen(*answer)

    def _state(self) -> None:
        self._step(
            "A shared state",
            "Both set the place to meet. State is a fold of the log: all readers of the log get the same "
            "state. Alice signs it, and Bob verifies the signed state by folding the log again.",
        )
        at = ("--hub", "hub", "--stream", _STREAM, "--client")
        for name, place in (("alice", "north gate"), ("bob", "south gate")):
            self._veen("crdt", "lww", "set", *at, name, "--key", "place", "--value", place)
        self._veen("interpret", "crdt.lww", *at, "bob")
        certificate = "place.veen-state"
        self._veen("state", "certify", "crdt.lww", *at, "alice", "--out", certificate)
        self._veen("state", "verify", certificate, "--hub", "hub", "--client", "bob")

    def _record(self) -> None:
        self._step(
            "A flight recorder",
            "Bob's server can append to one stream of the recorder, and do nothing else. If recorded "
            "events are removed, reordered or edited, the verification fails.",
        )
        self._veen(
            *("recorder", "grant", "--issuer", "alice", "--producer", "bob/identity_card.pub"),
            *("--stream", _DOOR, "--ttl", "86400", "--out", "door.cap"),
        )
        self._veen("cap", "authorize", "--hub", "hub", "--client", "bob", "--cap", "door.cap")
        for visitor in ("visitor:7", "visitor:8"):
            event = ("--type", "door.open", "--subject", visitor, "--payload", '{"door": 3}', "--to", "bob")
            self._veen("recorder", "emit", "--hub", "hub", "--client", "bob", "--stream", _DOOR, *event)
        selection = ("--hub", "hub", "--client", "bob", "--stream", _DOOR, "--from", "1", "--to", "2")
        self._veen("recorder", "replay", *selection)

    def _kill(self) -> None:
        self._step(
            "The hub is killed",
            "SIGKILL ends it without warning. Acknowledged messages are on disk: after a restart, none "
            "is missing.",
        )
        pid = running_pid(self._directory / "hub")
        assert pid is not None
        self._run(["kill", "-9", str(pid)], ["kill", "-9", str(pid)], 0)
        _wait_for_end(pid)
        self._veen("hub", "start", "--data-dir", "hub", "--listen", "127.0.0.1:0")
        self._veen("stream", "--hub", "hub", "--client", "alice", "--stream", _STREAM)
        self._veen("verify-state", "--hub", "hub", "--client", "alice", "--stream", _STREAM)

    def _audit(self) -> None:
        self._step(
            "An auditor",
            "The auditor has an exported set and the id of the hub, but no keys, and verifies all "
            "signatures, hashes and roots.",
        )
        hub_id = self._veen("hub-id", "--hub", "hub").strip()
        self._veen("export", "--hub", "hub", "--stream", _STREAM, "--out", "audit")
        self._veen("import", "audit", "--hub-id", hub_id)
        self._veen("clone", "hub", "copy")
        self._veen("fsck", "copy")

    def _tables(self) -> None:
        if importlib.util.find_spec("pyspark") is None:
            return  # an extra
        self._step(
            "The whole log on Spark",
            "Spark verifies the log with one process per core. Messages that Bob's keys open become "
            "tables, which are bound to the roots of the log and can be queried in SQL. With --master, "
            "the same commands run on a cluster.",
        )
        self._veen("pipeline", "verify", "copy")
        self._veen("pipeline", "ingest", "copy", "--lake", "lake", "--keyring", "bob")
        query = "SELECT stream_seq, hub_ts, length(body) AS bytes FROM silver_records ORDER BY stream_seq"
        self._veen("pipeline", "sql", "--lake", "lake", query)
        self._step(
            "A query with a verifiable result",
            "Every row is traced to signed entries of the log. The same query over the same log gives "
            "the same hashes: tomorrow, on a copy, or in another zone.",
        )
        (self._directory / "query.json").write_text(json.dumps(_QUERY))
        self._veen("query", "run", "query.json", "--lake", "lake", "--unrecorded")

    def _tamper(self) -> None:
        self._step(
            "Tampering",
            "One bit in a file of the copy is flipped. fsck detects it, and prints the file and the offset.",
        )
        chunk = next((self._directory / "copy" / paths.Domain.DATA).glob("chunk-*.log"), None)
        if chunk is None:  # not moved out of the journal yet
            chunk = next((self._directory / "copy" / paths.STATE_DIR).glob("journal-*.wal"))
        data = bytearray(chunk.read_bytes())
        data[-1] ^= 1  # of the hub's signature
        chunk.write_bytes(data)
        self._veen("fsck", "copy", expect=FAILED)


def _environment(directory: Path) -> dict[str, str]:
    """Return an environment without the settings of the user."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("VEEN_", "XDG_"))
    }
    for name in ("NOTIFY_SOCKET", "INVOCATION_ID"):
        environment.pop(name, None)
    return {**environment, "HOME": str(directory), "COLUMNS": "120"}


def _wait_for_end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        fd = os.pidfd_open(pid)
        try:
            select.select([fd], [], [], _TIMEOUT_SEC)
        finally:
            os.close(fd)


@contextlib.contextmanager
def _scene(keep: Path | None) -> Iterator[Path]:
    """Create the directory of the demo; at the end, stop its hub and remove the directory."""
    with contextlib.ExitStack() as stack:
        if keep is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="veen-demo-")))
        else:
            directory = keep.expanduser().absolute()
            if directory.exists() and any(directory.iterdir()):
                raise UsageError(f"{directory} is not empty; choose another directory for --keep")
            directory.mkdir(parents=True, exist_ok=True)
        try:
            yield directory
        finally:
            pid = running_pid(directory / "hub")
            if pid is not None:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
                _wait_for_end(pid)


@command
def demo(
    keep: Annotated[
        Path | None,
        typer.Option(help="Directory to create, which is not removed. Default: a temporary directory."),
    ] = None,
) -> None:
    """Run a demo: a hub, two people and an auditor.

    Prints and runs each command.
    """
    console = None if common.json or common.quiet else Console(highlight=False)
    with _scene(keep) as directory:
        demo_run = Demo(directory, console)
        demo_run.play()
    if common.json:
        steps: list[dict[str, Any]] = [
            {
                "title": step.title,
                "means": step.means,
                "commands": [
                    {"command": item.command, "exit_code": item.exit_code, "output": item.output}
                    for item in step.commands
                ],
            }
            for step in demo_run.steps
        ]
        print_result({"ok": True, "steps": steps}, as_json=True)
        return
    if console is not None:
        console.print(Text("\nThe demo succeeded.", style="green"))
    if keep is not None:
        warn(f"all files are in {keep}; to continue, run: veen hub start --data-dir {keep}/hub")
