"""Measure the cost of the library, as ratios to bare primitives measured in the same run."""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from bench.core import Subjects
from bench.growth import measure_storage
from bench.hub.suite import measure_hub
from bench.measure import Result, best_us, ratio, time_all
from bench.overlays import measure_overlays
from bench.pipeline import measure_pipeline
from bench.query import measure_query
from bench.recorder import measure_recorder


@dataclass(frozen=True, slots=True)
class Target:
    """A row of the report: what is measured, compared with what, and its limits."""

    subject: str
    floor: str
    max_ratio: float | None = None
    max_us: float | None = None

    def bounds(self, us: float, factor: float) -> list[tuple[str, bool]]:
        """Return each limit as text, and whether it was met."""
        bounds = []
        if self.max_us is not None:
            bounds.append((f"<= {self.max_us:g} us", us <= self.max_us))
        if self.max_ratio is not None:
            bounds.append((f"<= {self.max_ratio:g} x", factor <= self.max_ratio))
        return bounds


TARGETS = [
    Target("decode MSG", "bare verify", max_ratio=0.3, max_us=15),
    Target("verify MSG", "bare verify", max_ratio=1.4),
    Target("seal + sign", "bare primitives", max_ratio=1.6),
    Target("MMR append + root", "bare verify", max_us=12),
    Target("verify inclusion", "bare verify", max_us=60),
    # Without a target: these show what to optimize next.
    Target("decode + verify inclusion", "bare verify"),
    Target("verify consistency", "bare verify"),
    Target("open MSG", "bare x25519 exchange"),
    Target("sign RECEIPT", "bare sign"),
    Target("verify RECEIPT", "bare verify"),
    Target("HPKE seal + export", "pyhpke seal + export"),
    Target("decode MSG", "cbor2 loads + dumps"),
]


def measure_core(rounds: int, batch_sec: float) -> list[Result]:
    """Measure the core and compare it with its targets."""
    times = time_all(Subjects().works(), rounds=rounds, batch_sec=batch_sec)
    results = []
    for target in TARGETS:
        us, factor = best_us(times, target.subject), ratio(times, target.subject, target.floor)
        bounds = target.bounds(us, factor)
        results.append(
            Result(
                target.subject,
                round(us, 2),
                target.floor,
                round(factor, 3),
                ", ".join(text for text, _ in bounds),
                all(met for _, met in bounds) if bounds else None,
            )
        )
    return results


def _measure(args: argparse.Namespace) -> Iterator[Result]:
    if args.suite in ("all", "core"):
        yield from measure_core(args.rounds, args.batch_ms / 1000)
    if args.suite in ("all", "hub"):
        yield from measure_hub(args.hub_rounds)
    if args.suite in ("all", "storage"):
        yield from measure_storage(args.entries, args.labels, args.rounds)
    if args.suite in ("all", "overlays"):
        yield from measure_overlays(args.events, args.rounds)
    if args.suite in ("all", "pipeline"):
        yield from measure_pipeline(args.log_entries, args.log)
    if args.suite in ("all", "query"):
        yield from measure_query(args.recorded, args.log)
    if args.suite in ("all", "recorder"):
        yield from measure_recorder(args.fed)


def _row(result: Result) -> str:
    verdict = {True: "met", False: "MISSED", None: ""}[result.met]
    return (
        f"{result.subject:<40}{result.us:>11.2f}  {result.floor:<24}{result.ratio:>8.3f}  "
        f"{result.target:<18} {verdict}"
    ).rstrip()


def main() -> int:
    """Print the report; with --strict, fail if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object per row")
    parser.add_argument(
        "--rounds", type=int, default=25, help="measuring rounds of the core (default %(default)s)"
    )
    parser.add_argument(
        "--batch-ms", type=float, default=15, help="milliseconds per subject and round (default %(default)s)"
    )
    parser.add_argument(
        "--suite",
        choices=("all", "core", "hub", "storage", "overlays", "pipeline", "query", "recorder"),
        default="all",
        help="which part to measure (default %(default)s)",
    )
    parser.add_argument(
        "--entries",
        type=int,
        default=250_000,
        help="entries of the large log in storage (default %(default)s, full run: 5000000)",
    )
    parser.add_argument(
        "--labels",
        type=int,
        default=20_000,
        help="labels in one writer (default %(default)s, full run: 100000)",
    )
    parser.add_argument(
        "--events",
        type=int,
        default=200_000,
        help="events of the stream to fold (default %(default)s, full run: 1000000)",
    )
    parser.add_argument(
        "--log-entries",
        type=int,
        default=100_000,
        help="entries of the log on Spark (default %(default)s, full run: 1000000, 25 minutes)",
    )
    parser.add_argument(
        "--recorded",
        type=int,
        default=50_000,
        help="recorded events to query (default %(default)s, full run: 1000000)",
    )
    parser.add_argument(
        "--fed", type=int, default=4_000, help="events sent through a feed (default %(default)s)"
    )
    parser.add_argument("--log", default="", help="directory that stores the generated logs for later runs")
    parser.add_argument(
        "--hub-rounds", type=int, default=7, help="measuring rounds of the hub (default %(default)s)"
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    args = parser.parse_args()
    results = []
    if not args.json:
        print(f"{'what':<40}{'best us':>11}  {'beside':<24}{'ratio':>8}  target")
    for result in _measure(args):
        results.append(result)
        print(json.dumps(asdict(result)) if args.json else _row(result), flush=True)
    return 1 if args.strict and any(result.met is False for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
