"""Being told to stop: at any time but in the middle of what must not be left half done."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Final

_STOP: Final = (signal.SIGINT, signal.SIGTERM)


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM end what is inside the way Ctrl-C does: tidied up."""
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
    """Do what is inside to its end, however often somebody says stop; then stop."""
    if not _is_main():
        yield
        return
    heard: list[int] = []
    # Handlers and no mask: a mask would be inherited by processes that are started inside.
    before = [signal.signal(number, lambda got, _: heard.append(got)) for number in _STOP]
    try:
        yield
    finally:
        for number, handler in zip(_STOP, before, strict=True):
            signal.signal(number, handler)
    if heard:
        signal.raise_signal(heard[0])
