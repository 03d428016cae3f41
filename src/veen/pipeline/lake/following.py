"""Taking in a log for as long as it grows: the same step again and again, until somebody says stop."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from veen.pipeline.lake.ingesting import Ingest, Taken
from veen.pipeline.logs import Log

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stoppable() -> Iterator[threading.Event]:
    """Have an event that an interrupt sets: what is being done is done to its end, and nothing after it."""
    stopped = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopped.set()

    before = {number: signal.signal(number, stop) for number in _SIGNALS}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def follow(
    ingest: Ingest,
    log: Log,
    stopped: threading.Event,
    *,
    interval_sec: float,
    told: Callable[[Taken], None] = lambda _: None,
) -> Taken:
    """Take in what comes, looking for it every so often; ``told`` hears of each run that took something."""
    total = Taken()
    while not stopped.is_set():
        taken = ingest.run()
        if taken.commits or taken.states:
            total.join(taken)
            told(taken)
        else:
            stopped.wait(interval_sec)
        log.refresh()
    return total
