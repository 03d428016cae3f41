"""Feed random and mutated input to the parsers."""

import argparse
import secrets
import sys
import time

from fuzz.runner import Target, outcome, run
from fuzz.targets import all_targets
from veen.stdx.grammar import counted


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of the whole run (default 60)")
    parser.add_argument("--target", help="only the target of this name, or those whose names begin with it")
    parser.add_argument("--seed", type=int, help="repeat the run with this seed")
    parser.add_argument(
        "--replay", metavar="HEX", help="run only this input, on the target given by --target"
    )
    parser.add_argument("--list", action="store_true", help="list the targets")
    return parser.parse_args(argv)


def _chosen(targets: list[Target], name: str | None) -> list[Target]:
    exact = [target for target in targets if target.name == name]
    return exact or [target for target in targets if target.name.startswith(name or "")]


def _replay(target: Target, data: bytes) -> int:
    error = outcome(target, data)
    if error is None:
        print(f"{target.name}: a value or one of our errors, as expected")
        return 0
    raise error


def _show(line: str) -> None:
    print(f"\r{line:<100}", end="", file=sys.stderr, flush=True)


def main(argv: list[str] | None = None, all_of_them: list[Target] | None = None) -> int:
    """Fuzz; return 1 if there are findings."""
    args = _arguments(argv)
    targets = _chosen(all_targets() if all_of_them is None else all_of_them, args.target)
    if args.list:
        print("\n".join(target.name for target in targets))
        return 0
    if not targets or (args.replay is not None and (args.target is None or len(targets) != 1)):
        print("--target must name a target (and exactly one with --replay): see --list", file=sys.stderr)
        return 2
    if args.replay is not None:
        return _replay(targets[0], bytes.fromhex(args.replay))
    seed = secrets.randbits(32) if args.seed is None else args.seed
    print(f"{counted(len(targets), 'target')}, {args.seconds:g} s, seed {seed}")
    start = time.monotonic()
    on_terminal = sys.stderr.isatty()
    findings, cases = run(targets, seconds=args.seconds, seed=seed, progress=_show if on_terminal else None)
    if on_terminal:
        print(file=sys.stderr)
    for finding in findings:
        print(finding)
    print(f"{cases} cases in {time.monotonic() - start:.0f} s, {counted(len(findings), 'finding')}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
