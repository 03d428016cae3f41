"""Something to be done in another thread, whose result comes back to the loop."""

from collections.abc import Callable
from typing import Any


class Job:
    """``run`` is called in that thread; ``on_done`` on the loop, with the result or the error."""

    __slots__ = ("error", "on_done", "result", "run")

    def __init__(self, run: Callable[[], Any], on_done: "Callable[[Job], None]") -> None:
        self.run = run
        self.on_done = on_done
        self.result: Any = None
        self.error: Exception | None = None

    def do(self) -> None:
        """Run it; whoever asked is told of any error."""
        try:
            self.result = self.run()
        except Exception as error:  # noqa: BLE001 - see above
            self.error = error
