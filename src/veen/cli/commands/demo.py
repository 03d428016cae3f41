"""``veen demo``: a hub, two people and an auditor, in commands that a person could type.

Every command is run for real, as a process of its own, in a directory that is removed afterwards.
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

from veen.cli.errors import FAILED, FailedError, UsageError
from veen.cli.output import command, print_result, warn
from veen.cli.settings import common
from veen.core.data_dir import paths

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
#: Spark on a busy machine takes longer than anything else here.
_TIMEOUT_SEC: Final = 180
_HEX: Final = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{20,}\b")
_MOST_LINES: Final = 8


@dataclass(slots=True)
class Done:
    """A command that was run, and what it said."""

    command: str
    exit_code: int
    output: str


@dataclass(slots=True)
class Step:
    """One thing that happens, what it means, and the commands that do it."""

    title: str
    means: str
    commands: list[Done] = field(default_factory=list)


class Demo:
    """The story. Steps are shown as they happen."""

    def __init__(self, place: Path, console: Console | None) -> None:
        self._place = place
        self._console = console
        self.steps: list[Step] = []

    # --- telling --------------------------------------------------------------------------------------------

    def _tell(self, title: str, means: str) -> None:
        self.steps.append(Step(title, means))
        if self._console is not None:
            self._console.print(Text(f"\n{len(self.steps)}. {title}", style="bold"))
            self._console.print(Padding(Text(means), (0, 0, 0, 3)))

    def _veen(self, *words: str, expect: int = 0) -> str:
        return self._run(["veen", *words], [sys.executable, "-m", "veen.cli.main", *words], expect)

    def _run(self, shown: list[str], command: list[str], expect: int) -> str:
        text = shlex.join(shown)
        if self._console is not None:
            self._console.print(Text(f"   $ {text}", style="cyan"), soft_wrap=True)
        done = subprocess.run(  # noqa: S603 - our own program, or one named here
            command,
            cwd=self._place,
            env=_environment(self._place),
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_SEC,
            stdin=subprocess.DEVNULL,
        )
        said = (done.stdout + done.stderr).strip()
        self.steps[-1].commands.append(Done(text, done.returncode, said))
        if self._console is not None:
            self._show(said, done.returncode)
        if done.returncode != expect:
            raise FailedError(f"the demo failed: {text} ended with {done.returncode}: {said}")
        return done.stdout

    def _show(self, said: str, exit_code: int) -> None:
        assert self._console is not None
        lines = [_HEX.sub(r"\1…", line) for line in said.splitlines()]
        for line in lines[:_MOST_LINES]:
            self._console.print(Text(f"     {line}", style="dim"), soft_wrap=True)
        if len(lines) > _MOST_LINES:
            self._console.print(Text(f"     … {len(lines) - _MOST_LINES} more lines", style="dim"))
        if exit_code:
            self._console.print(Text(f"     (exit code {exit_code})", style="yellow"))

    # --- the story ------------------------------------------------------------------------------------------

    def play(self) -> None:
        """Run all of it."""
        self._identities()
        self._hub()
        self._share()
        self._send_and_read()
        self._refuse()
        self._state()
        self._record()
        self._kill()
        self._audit()
        self._tables()
        self._tamper()
        self._tell("The end", "The hub stops in order: everything is flushed, nothing waits.")
        self._veen("hub", "stop", "--data-dir", "hub")

    def _identities(self) -> None:
        self._tell(
            "Two people",
            "Each has keys of their own, in a directory that only they can read, and a card to hand out.",
        )
        for name in ("Alice", "Bob"):
            self._veen("keygen", "--out", name.lower(), "--name", name)

    def _hub(self) -> None:
        self._tell(
            "A hub",
            "It orders messages and signs receipts. It takes messages only from people with a token that "
            "Alice has issued.",
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
        self._tell(
            "A shared stream",
            "Messages to the stream are sealed to one key. Alice makes it, and seals a copy to Bob's card: "
            "the file could be sent by any postman.",
        )
        self._veen("reader", "new", "--client", "alice", "--stream", _STREAM)
        self._veen(
            *("reader", "share", "--client", "alice", "--stream", _STREAM),
            *("--to", "bob/identity_card.pub", "--out", "for-bob.key"),
        )
        self._veen("reader", "accept", "for-bob.key", "--client", "bob", "--from", "alice/identity_card.pub")

    def _send_and_read(self) -> None:
        (self._place / "plan.txt").write_text("The plan, in detail.\n" * 50)
        self._tell(
            "A message with an attachment",
            "Sealed and signed by Alice; a receipt comes when it is on the hub's disk, and she checks it.",
        )
        body = json.dumps({"text": _WORDS})
        self._veen(
            *("send", "--hub", "hub", "--client", "alice", "--stream", _STREAM),
            *("--body", body, "--attach", "plan.txt"),
        )
        self._tell(
            "Bob reads",
            "Signatures, hashes, order and the root of the log are checked before anything is shown.",
        )
        self._veen("stream", "--hub", "hub", "--client", "bob", "--stream", _STREAM)
        self._veen(
            *("attachment", "get", "--hub", "hub", "--client", "bob", "--stream", _STREAM),
            *("--seq", "1", "--out", "bobs-plan.txt"),
        )
        self._run(["cmp", "plan.txt", "bobs-plan.txt"], ["cmp", "plan.txt", "bobs-plan.txt"], 0)
        self._tell("What the hub sees", "No plaintext: grep does not find the words in its files.")
        self._run(["grep", "-r", _WORDS, "hub"], ["grep", "-r", _WORDS, "hub"], 1)

    def _refuse(self) -> None:
        self._tell("A refusal", "Bob may read, and has no token to write: the hub says so, with a code.")
        answer = (
            "send",
            "--hub",
            "hub",
            "--client",
            "bob",
            "--stream",
            _STREAM,
            "--body",
            '{"text": "I will"}',
        )
        self._veen(*answer, expect=FAILED)
        self._tell(
            "A capability", "Alice issues a token for Bob: this stream, one day, five messages a second."
        )
        self._veen(
            *("cap", "issue", "--issuer", "alice", "--subject", "bob/identity_card.pub"),
            *("--stream", _STREAM, "--ttl", "86400", "--rate", "5,10", "--out", "bob.cap"),
        )
        self._veen("cap", "authorize", "--hub", "hub", "--client", "bob", "--cap", "bob.cap")
        self._veen(*answer)

    def _state(self) -> None:
        self._tell(
            "What it amounts to",
            "Both set where to meet. State is a fold of the log: who reads the same log has the same state. "
            "Alice signs it, and Bob checks it by folding the log himself.",
        )
        at = ("--hub", "hub", "--stream", _STREAM, "--client")
        for name, place in (("alice", "north gate"), ("bob", "south gate")):
            self._veen("crdt", "lww", "set", *at, name, "--key", "place", "--value", place)
        self._veen("interpret", "crdt.lww", *at, "bob")
        certificate = "place.veen-state"
        self._veen("state", "certify", "crdt.lww", *at, "alice", "--out", certificate)
        self._veen("state", "verify", certificate, "--hub", "hub", "--client", "bob")

    def _record(self) -> None:
        self._tell(
            "A flight recorder",
            "Bob's server may append to one stream of the recorder, and do nothing else. Nobody can remove, "
            "reorder or edit what is recorded without being found out.",
        )
        self._veen(
            *("recorder", "grant", "--issuer", "alice", "--producer", "bob/identity_card.pub"),
            *("--stream", _DOOR, "--ttl", "86400", "--out", "door.cap"),
        )
        self._veen("cap", "authorize", "--hub", "hub", "--client", "bob", "--cap", "door.cap")
        for visitor in ("visitor:7", "visitor:8"):
            said = ("--type", "door.open", "--subject", visitor, "--payload", '{"door": 3}', "--to", "bob")
            self._veen("recorder", "emit", "--hub", "hub", "--client", "bob", "--stream", _DOOR, *said)
        asked = ("--hub", "hub", "--client", "bob", "--stream", _DOOR, "--from", "1", "--to", "2")
        self._veen("recorder", "replay", *asked)

    def _kill(self) -> None:
        self._tell(
            "The hub is killed",
            "With SIGKILL, at once. Acknowledged means on disk: after a restart all is there.",
        )
        pid = _pid(self._place / "hub")
        assert pid is not None
        self._run(["kill", "-9", str(pid)], ["kill", "-9", str(pid)], 0)
        _wait_for_end(pid)
        self._veen("hub", "start", "--data-dir", "hub", "--listen", "127.0.0.1:0")
        self._veen("stream", "--hub", "hub", "--client", "alice", "--stream", _STREAM)
        self._veen("verify-state", "--hub", "hub", "--client", "alice", "--stream", _STREAM)

    def _audit(self) -> None:
        self._tell(
            "An auditor",
            "She has files and the hub's id, and no key: she checks every signature, hash, root and number.",
        )
        hub_id = self._veen("hub-id", "--hub", "hub").strip()
        self._veen("export", "--hub", "hub", "--stream", _STREAM, "--out", "audit")
        self._veen("import", "audit", "--hub-id", hub_id)
        self._veen("clone", "hub", "copy")
        self._veen("fsck", "copy")

    def _tables(self) -> None:
        if importlib.util.find_spec("pyspark") is None:
            return  # an extra
        self._tell(
            "The whole log on Spark",
            "Checked by as many processes as there are cores; then opened with Bob's keys into tables, which "
            "are tied to the roots of the log, and asked in SQL. With --master the same runs on a cluster.",
        )
        self._veen("pipeline", "verify", "copy")
        self._veen("pipeline", "ingest", "copy", "--lake", "lake", "--keyring", "bob")
        query = "SELECT stream_seq, hub_ts, length(body) AS bytes FROM silver_records ORDER BY stream_seq"
        self._veen("pipeline", "sql", "--lake", "lake", query)
        self._tell(
            "A question whose answer can be checked",
            "Every row is verified down to the signatures. Whoever asks the same log the same gets the same "
            "hashes: tomorrow, on a copy, in another zone.",
        )
        (self._place / "query.json").write_text(json.dumps(_QUERY))
        self._veen("query", "run", "query.json", "--lake", "lake", "--unrecorded")

    def _tamper(self) -> None:
        self._tell(
            "Somebody tampers",
            "One bit of one file is flipped, in the copy: it is found, and its place is named.",
        )
        chunk = next((self._place / "copy" / paths.Domain.DATA).glob("chunk-*.log"), None)
        if chunk is None:  # not moved out of the journal yet
            chunk = next((self._place / "copy" / paths.STATE_DIR).glob("journal-*.wal"))
        data = bytearray(chunk.read_bytes())
        data[-1] ^= 1  # of the hub's signature
        chunk.write_bytes(data)
        self._veen("fsck", "copy", expect=FAILED)


def _environment(place: Path) -> dict[str, str]:
    """Return an environment in which nothing of the user's is found."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("VEEN_", "XDG_"))}
    for name in ("NOTIFY_SOCKET", "INVOCATION_ID"):
        kept.pop(name, None)
    return {**kept, "HOME": str(place), "COLUMNS": "120"}


def _pid(hub: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError, KeyError):
        return int(json.loads((hub / paths.HUB_RUNNING).read_text(encoding="ascii"))["pid"])
    return None


def _wait_for_end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        fd = os.pidfd_open(pid)
        try:
            select.select([fd], [], [], _TIMEOUT_SEC)
        finally:
            os.close(fd)


@contextlib.contextmanager
def _scene(keep: Path | None) -> Iterator[Path]:
    """Give the demo a place; whatever happens, no hub outlives it, and nothing unwanted is left."""
    with contextlib.ExitStack() as stack:
        if keep is None:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="veen-demo-")))
        else:
            place = keep.expanduser().absolute()
            if place.exists() and any(place.iterdir()):
                raise UsageError(f"{place} is not empty; choose another directory for --keep")
            place.mkdir(parents=True, exist_ok=True)
        try:
            yield place
        finally:
            pid = _pid(place / "hub")
            if pid is not None:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
                _wait_for_end(pid)


@command
def demo(
    keep: Annotated[
        Path | None, typer.Option(help="Leave everything in this directory, to look at and go on with.")
    ] = None,
) -> None:
    """Show a hub, two people and an auditor at work: each step is a command that you could type."""
    console = None if common.json or common.quiet else Console(highlight=False)
    with _scene(keep) as place:
        story = Demo(place, console)
        story.play()
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
            for step in story.steps
        ]
        print_result({"ok": True, "steps": steps}, as_json=True)
        return
    if console is not None:
        console.print(Text("\nEverything went as it should.", style="green"))
    if keep is not None:
        warn(f"all files are in {keep}; go on with: veen hub start --data-dir {keep}/hub")
