"""The options of the source, parsed. Where Spark's Kafka source has an option too, name and meaning agree."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

from veen.client.hub_address import HubAddress
from veen.core.encoding.hexadecimal import parse_hex32
from veen.core.objects.finding import Level
from veen.core.types import HubId, Label
from veen.pipeline.errors import OptionError

E = TypeVar("E", bound=StrEnum)

# As in Kafka's offsets: at the first available entry, or after the last one.
EARLIEST: Final = -2
LATEST: Final = -1
_WORDS: Final[Mapping[str, int]] = {"earliest": EARLIEST, "latest": LATEST}
_FLAGS: Final[Mapping[str, bool]] = {"true": True, "false": False}
# The largest long integer of Spark, and so of the columns of the source.
_MOST: Final = (1 << 63) - 1
_EPOCHS: Final = re.compile(r"([0-9]+)(?:\s*-\s*([0-9]+))?")
_MILLIS: Final = 1000

NAMES: Final = (
    "path",
    "hubId",
    "columns",
    "stream",
    "label",
    "epoch",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "verify",
    "mode",
)
_BY_KEY: Final = {name.lower(): name for name in NAMES}
# Spark adds these to the options of a table of its catalog.
_OF_TABLES: Final = frozenset({"owner", "provider"})
_NO_TABLES: Final = (
    "Spark passes no options to the source when such a table is read; "
    "use CREATE TEMPORARY VIEW name USING veen OPTIONS (path '...')"
)


class Verify(StrEnum):
    """How much is checked of each entry that is read."""

    NONE = "none"
    FRAMES = "frames"
    ROOTS = "roots"
    FULL = "full"

    @property
    def level(self) -> Level:
        """The level of the kernel's checks."""
        return Level[self.name]


class Mode(StrEnum):
    """What happens if an entry fails its checks: the query fails, or the row has a fault."""

    FAILFAST = "FAILFAST"
    PERMISSIVE = "PERMISSIVE"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where to start or end: a default, and exceptions for single labels."""

    default: int
    of: Mapping[Label, int]

    def at(self, label: Label) -> int:
        return self.of.get(label, self.default)


class Times(NamedTuple):
    """A time range in seconds of the hub's clock, ``until`` exclusive; None: unbounded."""

    since: int | None = None
    until: int | None = None

    def meet(self, first_ts: int, last_ts: int) -> bool:
        """Return whether the range overlaps the times from ``first_ts`` to ``last_ts`` (inclusive)."""
        if self.is_empty:
            return False
        return (self.since is None or self.since <= last_ts) and (self.until is None or first_ts < self.until)

    @property
    def is_empty(self) -> bool:
        return self.since is not None and self.until is not None and self.since >= self.until


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The parsed options of a query."""

    place: str
    hub_id: HubId | None = None
    columns: tuple[str, ...] | None = None
    streams: tuple[str, ...] = ()
    labels: frozenset[Label] | None = None
    epochs: range | None = None
    # None: not given, which means "earliest" for a batch and "latest" for a stream.
    starting: Bounds | None = None
    ending: Bounds | None = None
    times: Times = Times()  # noqa: RUF009 - does not change
    max_offsets: int | None = None
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    verify: Verify = Verify.FRAMES
    mode: Mode = Mode.FAILFAST


def parse(raw: Mapping[str, str]) -> Options:
    """Parse the options; names are case-insensitive, as everywhere in Spark."""
    if {key.lower() for key in raw} >= _OF_TABLES:
        raise OptionError(f"a log cannot be a table of Spark's catalog: {_NO_TABLES}")
    values = {_known(key): value for key, value in raw.items()}
    if not values.get("path"):
        raise OptionError(
            "no log is named: pass a data directory, an exported set or an address to load(), or as path "
            f"(a table of Spark's catalog cannot be one: {_NO_TABLES})"
        )
    return Options(
        place=_located(values["path"]),
        hub_id=HubId(_hash("hubId", values["hubId"])) if "hubId" in values else None,
        columns=_words("columns", values["columns"]) if "columns" in values else None,
        streams=_words("stream", values["stream"]) if "stream" in values else (),
        labels=frozenset(map(Label, _hashes(values, "label"))) if "label" in values else None,
        epochs=_epochs(values["epoch"]) if "epoch" in values else None,
        starting=_bounds("startingOffsets", values.get("startingOffsets"), rest=EARLIEST),
        ending=_bounds("endingOffsets", values.get("endingOffsets"), rest=LATEST),
        times=_times(values),
        max_offsets=_count("maxOffsetsPerTrigger", values.get("maxOffsetsPerTrigger")),
        min_partitions=_count("minPartitions", values.get("minPartitions")),
        fail_on_data_loss=_flag("failOnDataLoss", values.get("failOnDataLoss", "true")),
        verify=_choice(Verify, "verify", values.get("verify", Verify.FRAMES).lower()),
        mode=_choice(Mode, "mode", values.get("mode", Mode.FAILFAST).upper()),
    )


def for_batch(options: Options) -> Options:
    """Reject options that only streams can have."""
    if options.max_offsets is not None:
        raise OptionError("maxOffsetsPerTrigger is for streams; a batch has endingOffsets")
    starting, ending = options.starting, options.ending
    if starting is not None and LATEST in (starting.default, *starting.of.values()):
        raise OptionError("startingOffsets: a batch cannot start at the latest entry")
    if ending is not None and EARLIEST in (ending.default, *ending.of.values()):
        raise OptionError("endingOffsets: a batch cannot end at the earliest entry")
    return options


def for_stream(options: Options) -> Options:
    """Reject options that only batches can have."""
    if options.ending is not None:
        raise OptionError("endingOffsets is for batches; a stream has no end, or one by endingTimestamp")
    return options


def _located(place: str) -> str:
    """Return the log's address in a form valid in all processes: Spark's tasks run in other directories."""
    return HubAddress.parse(place).name


def _known(key: str) -> str:
    name = _BY_KEY.get(key.lower())
    if name is None:
        near = get_close_matches(key.lower(), _BY_KEY, n=1)
        hint = f"did you mean {_BY_KEY[near[0]]}?" if near else f"there are {', '.join(NAMES)}"
        raise OptionError(f"the source has no option {key}: {hint}")
    return name


def _words(name: str, text: str) -> tuple[str, ...]:
    """Parse a comma-separated list, or a JSON array for names that contain commas."""
    if text.lstrip().startswith("["):
        items = _json(name, text)
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise OptionError(f"{name}: a list of names was expected, not {text!r}")
    else:
        items = [word.strip() for word in text.split(",")]
    if not items or not all(items):
        raise OptionError(f"{name}: there is an empty name in {text!r}")
    return tuple(items)


def _hashes(values: Mapping[str, str], name: str) -> list[bytes]:
    return [_hash(name, word) for word in _words(name, values[name])] if name in values else []


def _hash(name: str, text: str) -> bytes:
    try:
        return parse_hex32(text)
    except ValueError:
        raise OptionError(f"{name}: 32 bytes in hexadecimal were expected, not {text!r}") from None


def _json(name: str, text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise OptionError(f"{name}: {text!r} is not JSON: {error}") from None


def _bounds(name: str, text: str | None, *, rest: int) -> Bounds | None:
    """Parse offsets; ``rest`` is the bound of labels that they do not name."""
    if text is None:
        return None
    if text.strip().lower() in _WORDS:
        return Bounds(_WORDS[text.strip().lower()], {})
    offsets = _json(name, text)
    if not isinstance(offsets, dict):
        raise OptionError(f'{name}: earliest, latest or {{"label": number}} was expected, not {text!r}')
    of: dict[Label, int] = {}
    for key, value in offsets.items():
        if not isinstance(value, int) or isinstance(value, bool) or not (value >= 1 or value in (-2, -1)):
            raise OptionError(
                f"{name}: {value!r} is not the position of an entry: a number from 1, "
                f"{EARLIEST} for the earliest or {LATEST} for the latest"
            )
        of[Label(_hash(name, key))] = value
    return Bounds(rest, of)


def _count(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    count = _number(text)
    if not count:
        raise OptionError(f"{name}: a number from 1 was expected, not {text!r}")
    return count


def _number(text: str) -> int | None:
    """Parse a decimal number; None if it is not one, or exceeds Spark's long integers."""
    digits = text.strip()
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > len(str(_MOST)) or int(digits) > _MOST:
        return None
    return int(digits)


def _epochs(text: str) -> range:
    match = _EPOCHS.fullmatch(text.strip())
    first = None if match is None else _number(match[1])
    last = first if match is None or match[2] is None else _number(match[2])
    if first is None or last is None:
        raise OptionError(f"epoch: a number, or the first and the last like 3-5, was expected, not {text!r}")
    if last < first:
        raise OptionError(f"epoch: {text!r} ends before it starts")
    return range(first, last + 1)


def _times(values: Mapping[str, str]) -> Times:
    """Parse the time range. Kafka's source silently prefers times to offsets; here both are an error."""
    for time, offsets in (("startingTimestamp", "startingOffsets"), ("endingTimestamp", "endingOffsets")):
        if time in values and offsets in values:
            raise OptionError(f"{time} and {offsets} exclude each other: give one of them")
    since, until = _millis(values, "startingTimestamp"), _millis(values, "endingTimestamp")
    if since is not None and until is not None and until < since:
        raise OptionError(f"endingTimestamp {until} is before startingTimestamp {since}")
    return Times(_seconds(since), _seconds(until))


def _millis(values: Mapping[str, str], name: str) -> int | None:
    millis = _number(values.get(name, ""))
    if millis is None and name in values:
        raise OptionError(f"{name}: expected milliseconds since 1970, not {values[name]!r}")
    return millis


def _seconds(millis: int | None) -> int | None:
    """Round up to a whole second: receipts have no fractions."""
    return None if millis is None else -(-millis // _MILLIS)


def _flag(name: str, text: str) -> bool:
    if text.lower() not in _FLAGS:
        raise OptionError(f"{name}: true or false was expected, not {text!r}")
    return _FLAGS[text.lower()]


def _choice(kind: type[E], name: str, text: str) -> E:
    try:
        return kind(text)
    except ValueError:
        raise OptionError(f"{name}: {text!r} is not one of {', '.join(kind)}") from None
