"""Something that is wrong with a log, and where."""

from typing import Any, NamedTuple

from veen.core.types import Label


class Finding(NamedTuple):
    """Something that is wrong, and where."""

    label: Label
    seq: int
    file: str
    offset: int | None
    detail: str
    text: str

    def __str__(self) -> str:
        file = self.file or "the log"
        place = file if self.offset is None else f"{file} at byte {self.offset}"
        if not self.label:
            return f"{place}: {self.text} ({self.detail})"
        return f"{self.label.hex()} entry {self.seq}, {place}: {self.text} ({self.detail})"

    def to_json(self) -> dict[str, Any]:
        """Return names and values."""
        return {**self._asdict(), "label": self.label.hex()}
