"""The overlay rows of the report: the cost of lookups and of folding more events as the log grows."""

from collections.abc import Iterator
from hashlib import sha256
from itertools import islice
from os import urandom
from pathlib import Path
from random import Random
from time import perf_counter

from bench.folding import measure_folds
from bench.measure import Result, Work, best_us, ratio, time_all
from bench.storage import scratch
from veen.client.fold.summary_cache import SummaryFile
from veen.client.keys.keystore import Secrets
from veen.client.keys.row_vault import Vault
from veen.core.types import StreamId
from veen.overlays.builtin.crdt import LWW, LwwMap
from veen.overlays.event import Record
from veen.overlays.summary_tree.reader import TreeReader
from veen.overlays.summary_tree.writer import TreeWriter

_SMALL = 10_000
_PORTION = 1_000
_BATCH = 20_000
_KEYS = 1_000
_WRITER = sha256(b"writer").digest()
_STREAM = StreamId(sha256(b"stream").digest())


def measure_overlays(events: int, rounds: int) -> Iterator[Result]:
    """Measure folds, lookups and incremental folds."""
    yield from measure_folds(rounds)
    with scratch() as root:
        yield from _growth(root, events, rounds)


def _events(start: int) -> Iterator[Record]:
    """Yield writes to registers in random order of keys; numbers begin at ``start``."""
    seq = start
    while True:
        key = sha256(seq.to_bytes(8, "big")).digest()
        body = LWW.encode(
            {"key": b"key %d" % (int.from_bytes(key[:4], "big") % _KEYS), "ts": seq, "value": key[:8]}
        )
        yield Record(seq, key, _WRITER, seq, 0, LWW.schema_id, body)
        seq += 1


class _Log:
    """Summaries of a stream, stored in a file as in a client directory."""

    def __init__(self, root: Path, events: int) -> None:
        root.mkdir()
        self._file = SummaryFile(root, Vault(Secrets.generate(urandom, 0), b"bench", urandom))
        self._events = _events(1)
        self.count = 0
        self.build_sec = 0.0
        self._fill(events)
        self._rng = Random(7)  # noqa: S311 - any positions will do
        self.tree = TreeReader(self._file.snapshot(), LwwMap())

    def _fill(self, events: int) -> None:
        with self._file.writing() as writing:
            writer = TreeWriter(writing.rows, LwwMap(), _STREAM)
            while self.count < events:
                self._append(writer, min(_BATCH, events - self.count))
                writing.commit()

    def _append(self, writer: TreeWriter, count: int) -> None:
        portion = list(islice(self._events, count))
        start = perf_counter()
        for record in portion:
            writer.append(record)
        writer.flush()
        self.build_sec += perf_counter() - start
        self.count += count

    def add(self) -> None:
        """Fold the next events, like a client that returns later, and store their summaries."""
        with self._file.writing() as writing:
            self._append(TreeWriter(writing.rows, LwwMap(), _STREAM), _PORTION)

    def _key(self) -> bytes:
        return b"key %d" % self._rng.randrange(_KEYS)

    def works(self, name: str) -> dict[str, Work]:
        """Return the lookups."""
        return {
            f"key at a position, {name}": self.look_up,
            f"key over a range, {name}": self.look_up_range,
            f"key at the end, {name}": self.look_up_latest,
        }

    def look_up(self) -> object:
        """Return the state of one key at a random position."""
        return self.tree.tables((0, self._rng.randrange(1, self.count))).get("registers", self._key())

    def look_up_range(self) -> object:
        """Return the changes of one key in a range."""
        first, last = sorted((self._rng.randrange(1, self.count), self._rng.randrange(1, self.count)))
        return self.tree.tables((0, last), (0, first)).get("registers", self._key())

    def look_up_latest(self) -> object:
        """Return the state of one key at the end."""
        return self.tree.tables(self.tree.end).get("registers", self._key())


# Lookups, and the microseconds that each may take.
_LOOKS = {"key at a position": 5000, "key over a range": None, "key at the end": None}


def _growth(root: Path, events: int, rounds: int) -> Iterator[Result]:
    small, large = _Log(root / "small", _SMALL), _Log(root / "large", events)
    us = large.build_sec / events * 1e6
    yield Result("summaries of an event, stored", round(us, 2), "events/s", round(1e6 / us), "", None)
    times = time_all({**small.works("small"), **large.works("large")}, rounds=rounds, batch_sec=0.02)
    for what, most_us in _LOOKS.items():
        us = best_us(times, f"{what}, large")
        growth = ratio(times, f"{what}, large", f"{what}, small")
        if most_us is not None:
            yield Result(
                f"{what}, {events}", round(us, 2), "us", round(us), f"<= {most_us} us", us <= most_us
            )
        yield _beside_small(f"{what}, {events}", us, growth, judged=what != "key over a range")
    times = time_all({"small": small.add, "large": large.add}, rounds=5, batch_sec=0)
    growth = ratio(times, "large", "small")
    yield _beside_small(f"+ {_PORTION} events, {events}", best_us(times, "large"), growth)


def _beside_small(subject: str, us: float, growth: float, *, judged: bool = True) -> Result:
    target, met = ("<= 2 x", growth <= 2) if judged else ("", None)
    return Result(subject, round(us, 2), f"same, {_SMALL}", round(growth, 3), target, met)
