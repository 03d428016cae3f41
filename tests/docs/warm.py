"""A ``veen`` that begins at once: one process has imported the program, and each command is a fork of it.

A page has dozens of commands, and nearly all of the time of each goes into imports. What the shell starts
hands its arguments, place, variables and standard files over, and ends as the fork does. Commands on Spark
are run by another process, one after the other, in the session that it has: starting one is nearly all of
their time. Long runs start by themselves.
"""

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from veen.cli.main import main
from veen.cli.registry import COMMANDS

_PROGRAM: Final = """#!{python} -IS
import json, os, socket, sys
words = sys.argv[1:]
if words[:1] in (["demo"], ["selftest"]) or words[:2] == ["hub", "start"]:
    os.execv({real!r}, ["veen", *words])
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.connect({spark!r} if words[:1] == ["pipeline"] else {address!r})
told = json.dumps([words, os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [told], [0, 1, 2])
code = int(server.recv(16))
if code < 0:
    os.kill(os.getpid(), -code)
sys.exit(code)
"""
_MOST_BYTES: Final = 1 << 17
_STOP_SEC: Final = 30.0


@contextmanager
def warm(place: Path, environment: dict[str, str], cwd: Path, *, spark: bool = False) -> Iterator[Path]:
    """Give a directory for the path of programs, with a ``veen`` that begins at once; on Spark if wanted."""
    real = Path(sys.executable).parent / "veen"
    programs = place / "programs"
    programs.mkdir()
    program = programs / "veen"
    with TemporaryDirectory(prefix="warm-") as short, ExitStack() as stack:
        address, on_spark = f"{short}/socket", f"{short}/spark"  # their paths have at most 108 bytes
        program.write_text(
            _PROGRAM.format(python=sys.executable, real=str(real), address=address, spark=on_spark)
        )
        program.chmod(0o755)
        stack.enter_context(_server(["fork", address], environment, cwd))
        if spark:
            stack.enter_context(_server(["spark", on_spark], environment, cwd))
        yield programs


@contextmanager
def _server(words: list[str], environment: dict[str, str], cwd: Path) -> Iterator[None]:
    """Run one of the servers below."""
    with subprocess.Popen(
        [sys.executable, __file__, *words],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as server:
        assert server.stdout is not None
        try:
            assert server.stdout.readline() == b"ready\n"
            yield
        finally:
            if words[0] == "spark":
                server.terminate()  # so that nothing of Spark is left
                with suppress(subprocess.TimeoutExpired):
                    server.wait(_STOP_SEC)
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)


@contextmanager
def _listening(address: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(address)
        server.listen()
        print("ready", flush=True)  # noqa: T201 - to whoever waits for it
        os.dup2(0, 1)
        yield server


def _become(told: bytes, files: list[int]) -> None:
    """Take over the arguments, place, variables and standard files of whoever asks."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    words, cwd, environment = json.loads(told)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["veen", *words]


def _fork_for_each(address: str) -> None:
    """Never returns in the first process, and in others when the command is to run."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # which buries those that have ended
    with _listening(address) as server:
        while True:
            asked, _ = server.accept()
            if not os.fork():
                break
            asked.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    told, files, _, _ = socket.recv_fds(asked, _MOST_BYTES, 3)
    if command := os.fork():
        for file in files:
            os.close(file)
        _, status = os.waitpid(command, 0)
        asked.send(str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    asked.close()
    _become(told, files)


def _run_on_spark(address: str) -> None:
    """Run one command after the other, in one session, until somebody ends this process."""
    session = import_module("veen.pipeline.spark.session")  # here, so that forks do without it
    nowhere = os.open(os.devnull, os.O_RDWR)
    with session.running(oneshot=True), _listening(address) as server:
        while True:
            asked, _ = server.accept()
            told, files, _, _ = socket.recv_fds(asked, _MOST_BYTES, 3)
            _become(told, files)
            code = 0
            try:
                main()
            except SystemExit as end:
                code = int(end.code or 0)
            sys.stdout.flush()
            sys.stderr.flush()
            for number in (0, 1, 2):
                os.dup2(nowhere, number)
            asked.send(str(code).encode())
            asked.close()


def _import_commands() -> None:
    for entry in COMMANDS.values():
        if not entry.module.startswith("pipeline"):
            import_module(f"veen.cli.commands.{entry.module}")
    gc.freeze()
    assert threading.active_count() == 1, "a fork would have one of them"


if __name__ == "__main__":
    kind, address = sys.argv[1:]
    if kind == "spark":
        _run_on_spark(address)
    else:
        _import_commands()
        _fork_for_each(address)
        main()
