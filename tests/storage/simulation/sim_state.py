"""What is on a simulated disk: contents and names, as they are read and as a power loss would leave them."""

import errno
import os
from collections.abc import Iterator
from random import Random
from typing import NamedTuple, Self

from tests.storage.simulation.sim_index import IndexFile
from tests.storage.simulation.sim_loss import Change, Loss, changed, kept_names, survived
from tests.storage.simulation.sim_plan import chance


def os_error(code: int, path: str) -> OSError:
    """Return the error of the operating system: a FileNotFoundError for ENOENT, and so on."""
    return OSError(code, os.strerror(code), path)


def split(path: str) -> tuple[str, str]:
    directory, _, name = path.rpartition("/")
    return directory, name


class Inode:
    """A file: what readers see, what is durable, and the changes that lead from one to the other.

    Changes can also be missing from ``pending`` although they are in ``cached``: those that a sync has failed
    on, or that the disk has lied about. They are gone after a power loss, whatever is synced until then.
    """

    __slots__ = ("cached", "durable", "holder", "index", "pending")

    def __init__(self, content: bytes = b"", *, index: IndexFile | None = None) -> None:
        self.cached: bytes | bytearray = content
        self.durable: bytes | bytearray = content
        self.pending: list[Change] = []
        self.index = index
        self.holder: object | None = None

    def content(self) -> bytes:
        return bytes(self.cached) if self.index is None else self.index.content()

    def __len__(self) -> int:
        return len(self.cached) if self.index is None else len(self.index.content())

    def change(self, offset: int, data: bytes | None) -> None:
        assert self.index is None, "only LMDB writes to the file of the index"
        self.cached = changed(self.cached, (offset, data))
        self.pending.append((offset, data))

    def sync(self) -> None:
        for change in self.pending:
            self.durable = changed(self.durable, change)
        self.pending.clear()

    def fail_sync(self, decide: Random) -> None:
        """Count everything as clean; the page cache may have kept it, dropped it, or kept the size alone."""
        way = decide.randrange(3)
        if way == 1:
            self.cached = bytes(self.durable)
        elif way == 2:
            self.cached = bytes(self.durable) + bytes(max(len(self.cached) - len(self.durable), 0))
        self.pending.clear()

    def lose_write(self, offset: int, data: bytes, decide: Random) -> None:
        """Show the bytes to readers and never write them; the size, which is elsewhere, may get to disk."""
        self.cached = changed(self.cached, (offset, data))
        if decide.random() < 0.5:
            self.pending.append((offset, bytes(len(data))))

    def frozen(self) -> "FrozenInode":
        # Kept as bytes, and shared until the next change: a snapshot of a quiet file costs nothing.
        self.cached, self.durable = bytes(self.cached), bytes(self.durable)
        image = None if self.index is None else self.index.content()
        return FrozenInode(self.cached, self.durable, tuple(self.pending), image)


class FrozenInode(NamedTuple):
    """A file in a snapshot."""

    cached: bytes
    durable: bytes
    pending: tuple[Change, ...]
    image: bytes | None

    def thaw(self) -> Inode:
        inode = Inode(self.durable, index=None if self.image is None else IndexFile(self.image))
        inode.cached = self.cached
        inode.pending = list(self.pending)
        return inode


class NameChange(NamedTuple):
    """A name that goes, a name that comes, or both at once: a rename is one change and never half done."""

    gone: str | None
    there: str | None
    number: int

    def names(self) -> tuple[str, ...]:
        return tuple(name for name in (self.gone, self.there) if name is not None)

    def touches(self, directories: list[str]) -> bool:
        return any(split(name)[0] in directories for name in self.names())

    def apply(self, tables: dict[str, dict[str, int]]) -> None:
        if self.gone is not None:
            directory, name = split(self.gone)
            tables[directory].pop(name, None)
        if self.there is not None:
            directory, name = split(self.there)
            tables[directory][name] = self.number


class FrozenPlatter(NamedTuple):
    """A snapshot."""

    inodes: dict[int, FrozenInode]
    cached: dict[str, dict[str, int]]
    durable: dict[str, dict[str, int]]
    pending: tuple[NameChange, ...]
    stalled: tuple[NameChange, ...]
    last: int


def _copied(tables: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    return {directory: dict(names) for directory, names in tables.items()}


class Platter:
    """All files and directories. Directories are durable at once; names in them after ``sync_dir``."""

    def __init__(self) -> None:
        self.inodes: dict[int, Inode] = {}
        self.cached: dict[str, dict[str, int]] = {}
        self.durable: dict[str, dict[str, int]] = {}
        self.pending: list[NameChange] = []
        #: Changes that a sync has failed on: forgotten, until the directory is written for another reason.
        self.stalled: list[NameChange] = []
        self.last = 0

    # --- names ----------------------------------------------------------------------------------------------

    def missing(self, path: str) -> OSError:
        """Return the error for a path at which there is no file."""
        if path in self.cached:
            return os_error(errno.EISDIR, path)
        above = split(path)[0]
        while above:
            directory, name = split(above)
            if name in self.cached.get(directory, {}):
                return os_error(errno.ENOTDIR, path)
            above = directory
        return os_error(errno.ENOENT, path)

    def table(self, directory: str) -> dict[str, int]:
        found = self.cached.get(directory)
        if found is None:
            error = self.missing(f"{directory}/" if directory else "")
            raise error
        return found

    def find(self, path: str) -> Inode | None:
        directory, name = split(path)
        number = self.cached.get(directory, {}).get(name)
        return None if number is None else self.inodes[number]

    def get(self, path: str) -> Inode:
        inode = self.find(path)
        if inode is None:
            raise self.missing(path)
        return inode

    def make_dir(self, path: str) -> None:
        if path in self.cached:
            return
        if self.find(path) is not None:
            raise os_error(errno.EEXIST, path)
        if path:
            self.table(split(path)[0])
        self.cached[path] = {}
        self.durable[path] = {}

    def create(self, path: str, index: IndexFile | None = None) -> None:
        self.table(split(path)[0])
        self.last += 1
        self.inodes[self.last] = Inode(index=index)
        self._name(NameChange(None, path, self.last))

    def rename(self, old: str, new: str) -> None:
        if old in self.cached:
            raise NotImplementedError("the seam renames files only")
        self.get(old)
        if new in self.cached:
            raise os_error(errno.EISDIR, new)
        self.table(split(new)[0])
        directory, name = split(old)
        if old != new:
            self._name(NameChange(old, new, self.cached[directory][name]))

    def unlink(self, path: str) -> None:
        self.get(path)
        self._name(NameChange(path, None, 0))

    def _name(self, change: NameChange) -> None:
        if self.stalled:
            directories = [split(name)[0] for name in change.names()]
            revived = [old for old in self.stalled if old.touches(directories)]
            self.stalled = [old for old in self.stalled if old not in revived]
            self.pending = revived + self.pending
        change.apply(self.cached)
        self.pending.append(change)

    def sync_dir(self, directory: str) -> None:
        self.table(directory)
        for change in self._take(directory):
            change.apply(self.durable)

    def fail_sync_dir(self, directory: str, decide: Random) -> None:
        """Count its changes as clean, so that the next sync does nothing; or leave them pending."""
        self.table(directory)
        if decide.random() < 0.7:
            self.stalled += self._take(directory)

    def _take(self, directory: str) -> list[NameChange]:
        """Take the changes of a directory, and those of other directories that they build on."""
        needed: dict[str, None] = {}
        taken: list[NameChange] = []
        left: list[NameChange] = []
        for change in reversed(self.pending):
            names = change.names()
            if change.touches([directory]) or any(name in needed for name in names):
                needed.update(dict.fromkeys(names))
                taken.append(change)
            else:
                left.append(change)
        self.pending = left[::-1]
        return taken[::-1]

    def paths(self, *, durable: bool = False) -> Iterator[tuple[str, Inode]]:
        """Return all files by path, sorted."""
        tables = self.durable if durable else self.cached
        for directory in sorted(tables):
            for name in sorted(tables[directory]):
                path = f"{directory}/{name}" if directory else name
                yield path, self.inodes[tables[directory][name]]

    # --- damage ---------------------------------------------------------------------------------------------

    def misdirect(self, inode: Inode, offset: int, data: bytes, decide: Random) -> None:
        """Overwrite another place, of this file or another; where the bytes belong, there are zeros."""
        victims = [victim for _, victim in self.paths() if victim.index is None and len(victim)]
        if victims:
            victim = decide.choice(victims)
            spot = decide.randrange(len(victim))
            for side in ("cached", "durable"):
                content = getattr(victim, side)
                fitting = data[: max(len(content) - spot, 0)]
                setattr(victim, side, changed(content, (spot, fitting)) if fitting else content)
        inode.change(offset, bytes(len(data)))

    def power_loss(self, seed: int, *, harsh: bool) -> None:
        """Decide what of everything pending has reached the disk; the rest was never there."""
        decide = chance(seed)
        kept = [self.pending[place] for place in kept_names([c.names() for c in self.pending], seed, decide)]
        stale = [bytes(inode.durable) for inode in self.inodes.values() if inode.durable]
        for change in kept:
            change.apply(self.durable)
        self.cached = _copied(self.durable)
        self.pending, self.stalled = [], []
        inodes: dict[int, Inode] = {}
        for names in self.cached.values():
            for number in names.values():
                inode = self.inodes[number]
                content = bytes(inode.durable)
                if inode.pending:
                    content = survived(content, inode.pending, Loss(seed, decide, stale, harsh))
                inodes[number] = Inode(content, index=inode.index)
        self.inodes = dict(sorted(inodes.items()))

    # --- copies ---------------------------------------------------------------------------------------------

    def frozen(self) -> FrozenPlatter:
        numbers = [number for names in self.cached.values() for number in names.values()]
        numbers += [number for names in self.durable.values() for number in names.values()]
        numbers += [change.number for change in self.pending + self.stalled if change.there is not None]
        inodes = {number: self.inodes[number].frozen() for number in sorted(dict.fromkeys(numbers))}
        pending, stalled = tuple(self.pending), tuple(self.stalled)
        return FrozenPlatter(inodes, _copied(self.cached), _copied(self.durable), pending, stalled, self.last)

    @classmethod
    def thawed(cls, frozen: FrozenPlatter) -> Self:
        platter = cls()
        platter.inodes = {number: inode.thaw() for number, inode in frozen.inodes.items()}
        platter.cached = _copied(frozen.cached)
        platter.durable = _copied(frozen.durable)
        platter.pending, platter.stalled = list(frozen.pending), list(frozen.stalled)
        platter.last = frozen.last
        return platter
