"""The options of the source, as strings from Spark to values; named and meant as Kafka's where both exist."""

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

#: As in Kafka's offsets: from the first entry that there is, or behind the last one.
EARLIEST: Final = -2
LATEST: Final = -1
_WORDS: Final[Mapping[str, int]] = {"earliest": EARLIEST, "latest": LATEST}
_FLAGS: Final[Mapping[str, bool]] = {"true": True, "false": False}
#: Spark's long integers end here, and so do the columns of the source.
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
#: What Spark adds to the options of a table of its catalog.
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
        """The same for the kernel."""
        return Level[self.name]


class Mode(StrEnum):
    """What becomes of an entry that does not hold: the query stops, or the row says so."""

    FAILFAST = "FAILFAST"
    PERMISSIVE = "PERMISSIVE"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where to begin or to end: one answer for all labels, and others for some."""

    default: int
    of: Mapping[Label, int]

    def at(self, label: Label) -> int:
        return self.of.get(label, self.default)


class Times(NamedTuple):
    """Times by the hub's clock, in its seconds; None: not bounded."""

    #: The first second that is asked for, and the first that is not any more.
    since: int | None = None
    until: int | None = None

    def meet(self, first_ts: int, last_ts: int) -> bool:
        """Tell whether one of the times from the first to the last, which is included, is asked for."""
        if self.is_empty:
            return False
        return (self.since is None or self.since <= last_ts) and (self.until is None or first_ts < self.until)

    @property
    def is_empty(self) -> bool:
        """Whether no time at all is asked for."""
        return self.since is not None and self.until is not None and self.since >= self.until


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a query asks of the source."""

    place: str
    hub_id: HubId | None = None
    columns: tuple[str, ...] | None = None
    streams: tuple[str, ...] = ()
    labels: frozenset[Label] | None = None
    epochs: range | None = None
    #: None: not said, which is "earliest" for a batch and "latest" for a stream.
    starting: Bounds | None = None
    ending: Bounds | None = None
    times: Times = Times()  # noqa: RUF009 - does not change
    max_offsets: int | None = None
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    verify: Verify = Verify.FRAMES
    mode: Mode = Mode.FAILFAST


def parse(given: Mapping[str, str]) -> Options:
    """Read the options; names in any case, as Spark has them."""
    if {key.lower() for key in given} >= _OF_TABLES:
        raise OptionError(f"a log cannot be a table of Spark's catalog: {_NO_TABLES}")
    said = {_known(key): value for key, value in given.items()}
    if not said.get("path"):
        raise OptionError(
            "no log is named: give a data directory, an exported set or an address to load() or as path "
            f"(a table of Spark's catalog can not: {_NO_TABLES})"
        )
    return Options(
        place=_located(said["path"]),
        hub_id=HubId(_hash("hubId", said["hubId"])) if "hubId" in said else None,
        columns=_words("columns", said["columns"]) if "columns" in said else None,
        streams=_words("stream", said["stream"]) if "stream" in said else (),
        labels=frozenset(map(Label, _hashes(said, "label"))) if "label" in said else None,
        epochs=_epochs(said["epoch"]) if "epoch" in said else None,
        starting=_bounds("startingOffsets", said.get("startingOffsets"), rest=EARLIEST),
        ending=_bounds("endingOffsets", said.get("endingOffsets"), rest=LATEST),
        times=_times(said),
        max_offsets=_count("maxOffsetsPerTrigger", said.get("maxOffsetsPerTrigger")),
        min_partitions=_count("minPartitions", said.get("minPartitions")),
        fail_on_data_loss=_flag("failOnDataLoss", said.get("failOnDataLoss", "true")),
        verify=_choice(Verify, "verify", said.get("verify", Verify.FRAMES).lower()),
        mode=_choice(Mode, "mode", said.get("mode", Mode.FAILFAST).upper()),
    )


def for_batch(options: Options) -> Options:
    """Refuse what only streams can have."""
    if options.max_offsets is not None:
        raise OptionError("maxOffsetsPerTrigger is for streams; a batch has endingOffsets")
    starting, ending = options.starting, options.ending
    if starting is not None and LATEST in (starting.default, *starting.of.values()):
        raise OptionError("startingOffsets: a batch cannot start at the latest entry")
    if ending is not None and EARLIEST in (ending.default, *ending.of.values()):
        raise OptionError("endingOffsets: a batch cannot end at the earliest entry")
    return options


def for_stream(options: Options) -> Options:
    """Refuse what only batches can have."""
    if options.ending is not None:
        raise OptionError("endingOffsets is for batches; a stream has no end, or one by endingTimestamp")
    return options


def _located(place: str) -> str:
    """Return a place as all processes find it. Spark plans where it was started, and works elsewhere."""
    return HubAddress.parse(place).name


def _known(key: str) -> str:
    name = _BY_KEY.get(key.lower())
    if name is None:
        near = get_close_matches(key.lower(), _BY_KEY, n=1)
        hint = f"did you mean {_BY_KEY[near[0]]}?" if near else f"there are {', '.join(NAMES)}"
        raise OptionError(f"the source has no option {key}: {hint}")
    return name


def _words(name: str, text: str) -> tuple[str, ...]:
    """Return a list with commas, or a JSON array for names that have commas themselves."""
    if text.lstrip().startswith("["):
        found = _json(name, text)
        if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
            raise OptionError(f"{name}: a list of names was expected, not {text!r}")
    else:
        found = [word.strip() for word in text.split(",")]
    if not found or not all(found):
        raise OptionError(f"{name}: there is an empty name in {text!r}")
    return tuple(found)


def _hashes(said: Mapping[str, str], name: str) -> list[bytes]:
    return [_hash(name, word) for word in _words(name, said[name])] if name in said else []


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
    """``rest``: for labels that the offsets do not name."""
    if text is None:
        return None
    if text.strip().lower() in _WORDS:
        return Bounds(_WORDS[text.strip().lower()], {})
    found = _json(name, text)
    if not isinstance(found, dict):
        raise OptionError(f'{name}: earliest, latest or {{"label": number}} was expected, not {text!r}')
    of: dict[Label, int] = {}
    for key, value in found.items():
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
    found = _number(text)
    if not found:
        raise OptionError(f"{name}: a number from 1 was expected, not {text!r}")
    return found


def _number(text: str) -> int | None:
    """Return a number as it is written with digits; None if it is none, or larger than Spark has them."""
    digits = text.strip()
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > len(str(_MOST)) or int(digits) > _MOST:
        return None
    return int(digits)


def _epochs(text: str) -> range:
    found = _EPOCHS.fullmatch(text.strip())
    first = None if found is None else _number(found[1])
    last = first if found is None or found[2] is None else _number(found[2])
    if first is None or last is None:
        raise OptionError(f"epoch: a number, or the first and the last like 3-5, was expected, not {text!r}")
    if last < first:
        raise OptionError(f"epoch: {text!r} ends before it starts")
    return range(first, last + 1)


def _times(said: Mapping[str, str]) -> Times:
    """Return the times that are asked for; Kafka's source prefers them to offsets, and tells nobody."""
    for time, offsets in (("startingTimestamp", "startingOffsets"), ("endingTimestamp", "endingOffsets")):
        if time in said and offsets in said:
            raise OptionError(f"{time} and {offsets} exclude each other: give one of them")
    since, until = _millis(said, "startingTimestamp"), _millis(said, "endingTimestamp")
    if since is not None and until is not None and until < since:
        raise OptionError(f"endingTimestamp {until} is before startingTimestamp {since}")
    return Times(_seconds(since), _seconds(until))


def _millis(said: Mapping[str, str], name: str) -> int | None:
    found = _number(said.get(name, ""))
    if found is None and name in said:
        raise OptionError(f"{name}: expected milliseconds since 1970, not {said[name]!r}")
    return found


def _seconds(millis: int | None) -> int | None:
    """Return the first second that does not begin before: receipts have no fractions."""
    return None if millis is None else -(-millis // _MILLIS)


def _flag(name: str, text: str) -> bool:
    if text.lower() not in _FLAGS:
        raise OptionError(f"{name}: true or false was expected, not {text!r}")
    return _FLAGS[text.lower()]


def _choice(kind: type[E], name: str, text: str) -> E:
    try:
        return kind(text)
    except ValueError:
        raise OptionError(f"{name}: {text!r} is none of {', '.join(kind)}") from None
