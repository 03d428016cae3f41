"""A ``veen`` that begins at once: one process has imported the program, and each command is a fork of it.

A page has dozens of commands, and nearly all of the time of each goes into imports. What the shell starts
hands its arguments, place, variables and standard files over, and ends as the fork does. Long runs start by
themselves.
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
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

_PROGRAM: Final = """#!{python} -IS
import json, os, socket, sys
words = sys.argv[1:]
if words[:1] in (["demo"], ["pipeline"], ["selftest"]) or words[:2] == ["hub", "start"]:
    os.execv({real!r}, ["veen", *words])
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.connect({address!r})
told = json.dumps([words, os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [told], [0, 1, 2])
code = int(server.recv(16))
if code < 0:
    os.kill(os.getpid(), -code)
sys.exit(code)
"""
_MOST_BYTES: Final = 1 << 17


@contextmanager
def warm(place: Path, environment: dict[str, str], cwd: Path) -> Iterator[Path]:
    """Give a directory for the path of programs, with a ``veen`` that begins at once."""
    real = Path(sys.executable).parent / "veen"
    programs = place / "programs"
    programs.mkdir()
    program = programs / "veen"
    with TemporaryDirectory(prefix="warm-") as short:  # the path of a socket has at most 108 bytes
        address = f"{short}/socket"
        program.write_text(_PROGRAM.format(python=sys.executable, real=str(real), address=address))
        program.chmod(0o755)
        with subprocess.Popen(
            [sys.executable, __file__, address],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        ) as server:
            assert server.stdout is not None
            try:
                assert server.stdout.readline() == b"ready\n"
                yield programs
            finally:
                os.killpg(server.pid, signal.SIGKILL)


def _serve(address: str) -> None:
    """Fork for each command; never returns in the first process, and in others when the command is to run."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # which buries those that have ended
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(address)
        server.listen()
        print("ready", flush=True)  # noqa: T201 - to whoever waits for it
        os.dup2(0, 1)
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
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    words, cwd, environment = json.loads(told)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["veen", *words]


if __name__ == "__main__":
    from veen.cli.commands import COMMANDS
    from veen.cli.main import main

    for entry in COMMANDS.values():
        if not entry.module.startswith("pipeline"):
            import_module(f"veen.cli.{entry.module}")
    gc.freeze()
    assert threading.active_count() == 1, "a fork would have one of them"
    _serve(sys.argv[1])
    main()
