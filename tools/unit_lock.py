"""Print the entries of requirements.lock that the unit tests need and this environment lacks.

The lock has versions and hashes, but no dependencies between packages: these are read from the metadata of
the packages that are already installed. tools/setup.sh installs the printed ones, and repeats until none is
missing.
"""

import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Final, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parents[1]
# The extras and dependency groups of pyproject.toml that the unit tests need, besides its dependencies.
EXTRAS: Final = ("hub",)
GROUPS: Final = ("unit",)


class Pin(NamedTuple):
    """One entry of a lock file: a version, and its text with the hashes."""

    version: str
    text: str


def is_needed(requirement: Requirement) -> bool:
    """Report whether a requirement applies to this interpreter, without any extra."""
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


def pins_of(lock: str) -> dict[str, Pin]:
    """Return the pins of a lock file that apply to this interpreter, by package."""
    pins: dict[str, Pin] = {}
    for entry in lock.replace("\\\n", "\\").splitlines():
        requirement = Requirement(entry.partition("\\")[0])
        if is_needed(requirement):
            version = next(iter(requirement.specifier)).version
            pins[canonicalize_name(requirement.name)] = Pin(version, entry.replace("\\", "\\\n") + "\n")
    return pins


def names_of(requirements: Iterable[str]) -> Iterator[str]:
    """Yield the names of the requirements that apply to this interpreter."""
    for requirement in map(Requirement, requirements):
        if is_needed(requirement):
            yield canonicalize_name(requirement.name)


def direct_needs() -> set[str]:
    """Return the packages that pyproject.toml names."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = pyproject["project"]
    return {
        *names_of(project["dependencies"]),
        *(name for extra in EXTRAS for name in names_of(project["optional-dependencies"][extra])),
        *(name for group in GROUPS for name in names_of(pyproject["dependency-groups"][group])),
    }


def missing(pins: dict[str, Pin]) -> set[str]:
    """Return the known required packages that are not installed in the pinned version."""
    installed = {str(canonicalize_name(pin.name)): pin for pin in metadata.distributions()}
    needed, lacking = direct_needs(), set()
    todo = list(needed)
    while todo:
        name = todo.pop()
        pin = installed.get(name)
        if pin is None or pin.version != pins[name].version:
            lacking.add(name)
            continue
        more = set(names_of(pin.requires or ())) - needed
        needed |= more
        todo += more
    return lacking


def main() -> None:
    """Print the missing packages as a lock file."""
    pins = pins_of((ROOT / "requirements.lock").read_text(encoding="utf-8"))
    for name in sorted(missing(pins)):
        sys.stdout.write(pins[name].text)


if __name__ == "__main__":
    main()
