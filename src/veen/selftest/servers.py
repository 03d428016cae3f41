"""Servers of a run: processes of the real program, in their own directories, ended with the run.

A signal ends a run at any time, except within operations that must be completed.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from veen.selftest.errors import ServerStartError, StepFailedError
from veen.selftest.step import PATIENCE_SEC, Needs

_STOP: Final = (signal.SIGINT, signal.SIGTERM)


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Within the block, SIGTERM is like Ctrl-C: everything is cleaned up."""
    if not _is_main():
        yield
        return

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Complete the block, whatever signals arrive; handle the first one afterwards."""
    if not _is_main():
        yield
        return
    signals: list[int] = []
    # Handlers, not a mask: processes that are started inside would inherit a mask.
    before = [signal.signal(number, lambda received, _: signals.append(received)) for number in _STOP]
    try:
        yield
    finally:
        for number, handler in zip(_STOP, before, strict=True):
            signal.signal(number, handler)
    if signals:
        signal.raise_signal(signals[0])


# The program, as a command.
VEEN: Final = (sys.executable, "-m", "veen.cli.main")
# Entries of a label of the open hub after which it is anchored, and after which a chunk is sealed.
ANCHOR_EVERY: Final = 5
CHUNK_ENTRIES: Final = 32
# The only stream that may be written at the hub whose labels rotate.
ROTATING_STREAM: Final = "selftest/rotating"
EPOCH_SEC: Final = 3600
_SERVICE: Final = ("NOTIFY_SOCKET", "INVOCATION_ID")

CONFIGS: Final[Mapping[Needs, str]] = {
    Needs.OPEN: f"""
require_cap = "false"
anchor_backend = "file"
anchor_every_receipts = {ANCHOR_EVERY}
anchor_ask_sec = 0
[limits]
max_checkpoint_interval = {CHUNK_ENTRIES}
""",
    Needs.GUARDED: 'require_cap = "true"\n',
    Needs.ROTATING: f'require_cap = "false"\nepoch_sec = {EPOCH_SEC}\nstreams = ["{ROTATING_STREAM}"]\n',
}


def environment(scratch: Path) -> dict[str, str]:
    """Return our environment without the settings that refer to the user's hub and keys."""
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in _SERVICE and not name.startswith("VEEN_")
    }
    return {**env, "HOME": str(scratch), "XDG_CONFIG_HOME": str(scratch / ".config"), "TMPDIR": str(scratch)}


def veen(
    scratch: Path, *args: object, command: Sequence[str] = VEEN, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run a command of the program."""
    return subprocess.run(  # noqa: S603 - our own program
        [*command, *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        env=environment(scratch),
        cwd=scratch,
    )


class Server:
    """A command of the program that serves, prints one line of JSON when it does, and ends at SIGTERM."""

    # Its name in messages.
    what = "the server"
    patience_sec = PATIENCE_SEC

    def __init__(self, scratch: Path, name: str, command: Sequence[str]) -> None:
        self.log = scratch / f"{name}.log"
        self._scratch = scratch
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._banner: dict[str, Any] = {}

    @property
    def url(self) -> str:
        return str(self._banner["listen"][0])

    @property
    def pid(self) -> int:
        return int(self._banner["pid"])

    def start(self) -> None:
        """Start it and wait until it serves."""
        assert self._process is None
        with self.log.open("ab") as sink, undisturbed():  # a started process is always registered
            # In its own session, so that Ctrl-C reaches only us.
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=sink,
                env=environment(self._scratch),
                cwd=self._scratch,
                start_new_session=True,
            )
        try:
            self._banner = self._read_banner(self._process)
        except BaseException:
            self.kill()
            raise

    def _read_banner(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        assert process.stdout is not None
        ready = select.select([process.stdout], [], [], self.patience_sec)[0]
        line = process.stdout.readline() if ready else b""
        try:
            banner: dict[str, Any] = json.loads(line)
        except ValueError:
            raise ServerStartError(f"{self.what} did not start: {self.tail()}") from None
        if not banner.get("ok"):
            raise ServerStartError(f"{self.what} did not start: {banner.get('detail')}")
        return banner

    @property
    def is_alive(self) -> bool:
        """Whether the process is running."""
        return self._process is not None and self._process.poll() is None

    def tail(self) -> str:
        """Return the last line of its log."""
        lines = self.log.read_text(errors="replace").strip().splitlines() if self.log.exists() else []
        return lines[-1][:300] if lines else "its log is empty"

    def stop(self) -> None:
        """Stop it as an operator does."""
        assert self._process is not None
        os.kill(self.pid, signal.SIGTERM)
        try:
            code = self._process.wait(self.patience_sec)
        except subprocess.TimeoutExpired:
            raise StepFailedError(f"{self.what} does not stop") from None
        finally:
            self.kill()
        if code != 0:
            raise StepFailedError(f"{self.what} stopped with exit code {code}: {self.tail()}")

    def close(self) -> None:
        """End it when the run is over."""
        self.kill()

    def kill(self) -> None:
        """Kill it and its helper processes; does nothing if it is not running."""
        process, self._process = self._process, None
        if process is None:
            return
        # Helpers have their own sessions. They end by themselves after it, but we wait for that.
        helpers = _children({process.pid, int(self._banner.get("pid", process.pid))})
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for helper in helpers:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(helper, signal.SIGKILL)
            select.select([helper], [], [], PATIENCE_SEC)
            os.close(helper)
        assert process.stdout is not None
        process.stdout.close()


class TempHub(Server):
    """``veen hub start --foreground`` on a port that the system chooses."""

    what = "the hub"

    def __init__(self, scratch: Path, name: str, config: str, command: Sequence[str] = VEEN) -> None:
        """``command`` is the command that starts the program."""
        self.place = scratch / f"hub-{name}"
        settings = scratch / f"hub-{name}.toml"
        settings.write_text(config, encoding="utf-8")
        words = [
            *command,
            *("hub", "start", "--foreground", "--json", "--listen", "127.0.0.1:0"),
            *("--data-dir", str(self.place), "--config", str(settings)),
        ]
        super().__init__(scratch, f"hub-{name}", words)


def _children(pids: set[int]) -> list[int]:
    """Return descriptors of the child processes of these."""
    descriptors = []
    for pid in pids:
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
            descriptors += [os.pidfd_open(int(word)) for word in text.split()]
    return descriptors
