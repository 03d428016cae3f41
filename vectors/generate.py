"""Write the vector files, or compare them with what would be written.

    python vectors/generate.py            writes all files, removes those without a scenario
    python vectors/generate.py --check    writes nothing; exit status 1 and a summary if a file differs

The same library gives the same files, byte for byte: keys are fixed and nothing is drawn at random.
"""

import argparse
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))  # a script does not have its parent directory on the path

from vectors.generators import all_scenarios  # noqa: E402


def made() -> dict[str, str]:
    """Return the content of every vector file by its path under this directory."""
    return {f"{scenario.name}.json": scenario.text() for scenario in all_scenarios()}


def stored(directory: Path = HERE) -> dict[str, str]:
    """Return the content of every existing vector file."""
    files = sorted(directory.glob("*/*.json"))
    return {path.relative_to(directory).as_posix(): path.read_text(encoding="utf-8") for path in files}


def _cases(text: str) -> dict[str, object]:
    return {case["name"]: case for case in json.loads(text)["cases"]}


def _difference(old: str, new: str) -> str:
    """Describe which cases of a file differ."""
    before, after = _cases(old), _cases(new)
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    shown = ", ".join(repr(name) for name in names[:5])
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"cases {shown}{more}" if names else "layout or description"


def differences(wanted: dict[str, str], present: dict[str, str]) -> list[str]:
    """Return one line for each file that is missing, left over or different."""
    lines = []
    for name in sorted({**wanted, **present}):
        if name not in present:
            lines.append(f"missing: {name}")
        elif name not in wanted:
            lines.append(f"no scenario: {name}")
        elif wanted[name] != present[name]:
            lines.append(f"differs: {name}: {_difference(present[name], wanted[name])}")
    return lines


def write(wanted: dict[str, str], directory: Path = HERE) -> None:
    """Write all files and remove those that are no longer generated."""
    for name in stored(directory).keys() - wanted.keys():
        (directory / name).unlink()
    for name, text in wanted.items():
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")


def main(arguments: list[str] | None = None) -> int:
    """Run the program; return its exit status."""
    parser = argparse.ArgumentParser(description="Write the vector files.")
    parser.add_argument(
        "--check", action="store_true", help="compare, write nothing, exit 1 if a file differs"
    )
    wanted = made()
    if not parser.parse_args(arguments).check:
        write(wanted)
        print(f"{len(wanted)} files, {sum(len(_cases(text)) for text in wanted.values())} cases")
        return 0
    lines = differences(wanted, stored())
    print("\n".join(lines) if lines else f"{len(wanted)} files are up to date")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
