"""A disk that forgets, tears, fails and lies, always in the same way for the same seed.

``SimDisk`` has the durable and the volatile state; ``filesystem()`` gives a process its view of it: a
``veen.storage.fs.Filesystem``. What the disk promises is what the seam promises and no more:

* contents are durable after a sync of the file, names after ``sync_dir``, directories at once;
* after a power loss, of everything else any part may be there: each sector as it was at some moment, whole,
  torn or as garbage, whatever became of the others; a size without its data, data without their size; of the
  names any subset that respects the order of changes to one name;
* after the end of a process alone nothing is lost but what was in the process: handles, locks, transactions;
* a byte that is durable changes only where something writes to it (no sector takes its neighbours along);
* the index is LMDB: a commit is atomic and durable; the names of its files are as those of all files.

Not modelled: a reader's environment sees the index as it was when it was opened, and directories stay where
they are.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import NoReturn, Self

import lmdb

from tests.storage.simulation.sim_index import DATA, LOCK, IndexFile, OpenIndex, is_open
from tests.storage.simulation.sim_plan import Crash, Fault, Op, Operation, Plan, chance
from tests.storage.simulation.sim_state import FrozenPlatter, Inode, Platter, os_error, split
from veen.storage.fs import Write

__all__ = ["Crash", "Fault", "Op", "Operation", "Plan", "SimDisk", "SimFilesystem", "Snapshot"]

_FULL = (Fault.ENOSPC, Fault.SHORT)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A disk at a moment, with what is pending. Any number of disks can start from it."""

    platter: FrozenPlatter
    scratch: Path


class SimDisk:
    """A disk; ``scratch`` is an existing directory for the environments of LMDB. Close it after use."""

    def __init__(self, scratch: Path) -> None:
        self.platter = Platter()
        self.mutex = RLock()
        self.scratch = scratch
        self._processes: list[SimFilesystem] = []
        self._corpses: list[OpenIndex] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def filesystem(self, *plans: Plan, seed: int = 0) -> "SimFilesystem":
        """Start a process; the first plan that hits an operation decides, ``seed`` the order in write_all."""
        self._bury()
        process = SimFilesystem(self, plans, seed)
        self._processes.append(process)
        return process

    def process_crash(self) -> None:
        """End all processes; what they have written stays as it is, unsynced or not."""
        for process in self._processes:
            process.end("the process has ended")
        self._processes.clear()
        self._bury()

    def power_loss(self, seed: int, *, harsh: bool = False) -> None:
        """End all processes and lose what is pending: with 0 all of it, with 1 nothing, else some.

        ``harsh`` lets also writes to one sector be kept, lost and reordered independently of each other.
        """
        self.process_crash()
        self.platter.power_loss(seed, harsh=harsh)

    def close(self) -> None:
        """End all processes and remove what they have left in the scratch directory."""
        self.process_crash()

    def leave(self, environments: Sequence[OpenIndex]) -> None:
        """Take over the environments of a dead process.

        They stay open until nobody can be inside of them: a crash must unwind the stack as a crash and not
        turn into errors of closed transactions.
        """
        self._corpses.extend(environments)

    def _bury(self) -> None:
        for corpse in self._corpses:
            corpse.discard()
        self._corpses.clear()

    # --- from outside ---------------------------------------------------------------------------------------

    def files(self) -> dict[str, bytes]:
        """Return all files as they are read now, without the index."""
        return {path: inode.content() for path, inode in self.platter.paths() if inode.index is None}

    def durable_files(self) -> dict[str, bytes]:
        """Return what would be left if everything pending were lost, without the index."""
        found = self.platter.paths(durable=True)
        return {path: bytes(inode.durable) for path, inode in found if inode.index is None}

    def flip(self, path: str, byte: int, bit: int) -> None:
        """Flip one bit, durably; of the index too, while it is closed."""
        content = bytearray(self.platter.get(path).content())
        content[byte] ^= 1 << bit
        self.overwrite(path, bytes(content))

    def truncate_file(self, path: str, size: int) -> None:
        """Cut a file, durably."""
        self.overwrite(path, self.platter.get(path).content()[:size])

    def overwrite(self, path: str, content: bytes) -> None:
        """Give an existing file another content, durably."""
        inode = self.platter.get(path)
        if inode.index is not None:
            inode.index.replace(content)
            return
        inode.cached = inode.durable = content
        inode.pending.clear()

    def snapshot(self) -> Snapshot:
        """Copy everything but the processes."""
        return Snapshot(self.platter.frozen(), self.scratch)

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot) -> Self:
        """Return a disk of its own that starts like the snapshot."""
        disk = cls(snapshot.scratch)
        disk.platter = Platter.thawed(snapshot.platter)
        return disk


def _index_error(code: int, where: str) -> lmdb.Error:
    kind = lmdb.DiskError if code == errno.ENOSPC else lmdb.Error
    return kind(f"{where}: {os.strerror(code)}")


class SimFilesystem:
    """What one process sees and does. After a crash, every further call is the same crash."""

    def __init__(self, disk: SimDisk, plans: Sequence[Plan], seed: int) -> None:
        self.operations: list[Operation] = []
        self._disk = disk
        self._plans = plans
        self._order = chance(seed)
        self._ended: str | None = None
        self._indexes: list[OpenIndex] = []

    # --- life and death -------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        return self._ended is None

    def end(self, why: str) -> None:
        """End the process: locks are free, transactions vanish."""
        if self._ended is not None:
            return
        self._ended = why
        for opened in self._indexes:
            opened.settle()
        self._disk.leave(self._indexes)
        self._indexes = []

    def close(self) -> None:
        """Do nothing, like the real one does when no file is open for reading."""

    def check(self) -> None:
        """Raise the crash again, if there was one."""
        if self._ended is not None:
            raise Crash(self._ended)

    def _crash(self, why: str) -> NoReturn:
        self.end(why)
        raise Crash(why)

    def _count(self, op: Op, path: str, size: int) -> Plan | None:
        self.check()
        operation = Operation(len(self.operations) + 1, op, path, size)
        self.operations.append(operation)
        hit = None
        for plan in self._plans:
            if plan.take(operation) and hit is None:
                hit = plan
        return hit

    def do(
        self,
        op: Op,
        path: str,
        effect: Callable[[], None],
        *,
        size: int = 0,
        partly: Callable[[int], None] | None = None,
        bent: Callable[[Plan], None] | None = None,
        error: Callable[[int, str], Exception] = os_error,
    ) -> None:
        """Count a step and do it, or what the plan has for it instead.

        ``partly`` does a prefix of a write, ``bent`` what only this kind of step can suffer.
        """
        with self._disk.mutex:
            plan = self._count(op, path, size)
            if plan is None:
                effect()
                return
            fault = plan.fault
            if fault in (Fault.CRASH_AFTER, Fault.EIO_AFTER):
                with contextlib.suppress(OSError, lmdb.Error):
                    effect()
            elif fault in (Fault.FAILED_SYNC, Fault.MISDIRECTED, Fault.LOST_WRITE):
                assert bent is not None
                bent(plan)
            elif fault is not Fault.CRASH_BEFORE and partly is not None and size:
                partly(plan.prefix(size))
            if fault in (Fault.CRASH_BEFORE, Fault.CRASH_INSIDE, Fault.CRASH_AFTER):
                self._crash(f"{fault} {self.operations[-1]}")
            if fault not in (Fault.MISDIRECTED, Fault.LOST_WRITE):
                raise error(errno.ENOSPC if fault in _FULL else errno.EIO, path)

    def _look(self, op: Op, path: str) -> None:
        if self._count(op, path, 0) is not None:
            raise os_error(errno.EIO, path)

    # --- steps on one file ----------------------------------------------------------------------------------

    def write_step(self, inode: Inode, path: str, offset: int, data: bytes) -> None:
        if not data:
            return

        def bent(plan: Plan) -> None:
            if plan.fault is Fault.LOST_WRITE:
                inode.lose_write(offset, data, plan.random)
            else:
                self._disk.platter.misdirect(inode, offset, data, plan.random)

        self.do(
            Op.WRITE,
            path,
            lambda: inode.change(offset, data),
            size=len(data),
            partly=lambda length: inode.change(offset, data[:length]) if length else None,
            bent=bent,
        )

    def sync_step(self, inode: Inode, path: str) -> None:
        self.do(Op.SYNC, path, inode.sync, bent=lambda plan: inode.fail_sync(plan.random))

    def truncate_step(self, inode: Inode, path: str, size: int) -> None:
        if size < 0:
            raise os_error(errno.EINVAL, path)
        self.do(Op.TRUNCATE, path, lambda: inode.change(size, None))

    def _create_step(self, path: str) -> Inode:
        platter = self._disk.platter
        if platter.find(path) is None:
            platter.table(split(path)[0])
            if path in platter.cached:
                raise os_error(errno.EISDIR, path)
            self.do(Op.CREATE, path, lambda: platter.create(path))
        return platter.get(path)

    # --- the seam -------------------------------------------------------------------------------------------

    def make_dir(self, path: str) -> None:
        self.do(Op.MAKE_DIR, path, lambda: self._disk.platter.make_dir(path))

    def names(self, directory: str) -> list[str]:
        with self._disk.mutex:
            self._look(Op.NAMES, directory)
            try:
                return sorted(self._disk.platter.table(directory))
            except FileNotFoundError:
                return []

    def size(self, path: str) -> int | None:
        with self._disk.mutex:
            self._look(Op.SIZE, path)
            try:
                return len(self._disk.platter.get(path))
            except FileNotFoundError:
                return None

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        with self._disk.mutex:
            self._look(Op.READ, path)
            inode = self._disk.platter.get(path)
            if offset < 0:
                raise os_error(errno.EINVAL, path)
            end = None if length is None else offset + length
            return bytes(inode.cached[offset:end] if inode.index is None else inode.content()[offset:end])

    def read_each(self, path: str, offsets: Sequence[int], length: int) -> list[bytes]:
        return [self.read(path, offset, length) for offset in offsets]

    def write_all(self, writes: Sequence[Write]) -> None:
        self.check()
        order = list(writes)
        self._order.shuffle(order)
        for write in order:
            inode = self._create_step(write.path)
            if len(inode) != write.offset:
                raise OSError(errno.EIO, f"{len(inode)} bytes long instead of {write.offset}", write.path)
            self.write_step(inode, write.path, write.offset, write.data)
            self.sync_step(inode, write.path)

    def truncate(self, path: str, size: int) -> None:
        inode = self._opened(path)
        self.truncate_step(inode, path, size)
        self.sync_step(inode, path)

    def rename(self, old: str, new: str) -> None:
        self.do(Op.RENAME, new, lambda: self._disk.platter.rename(old, new))

    def unlink(self, path: str) -> None:
        self.do(Op.UNLINK, path, lambda: self._disk.platter.unlink(path))

    def sync_dir(self, directory: str) -> None:
        platter = self._disk.platter
        self.do(
            Op.SYNC_DIR,
            directory,
            lambda: platter.sync_dir(directory),
            bent=lambda plan: platter.fail_sync_dir(directory, plan.random),
        )

    def open_append(self, path: str) -> "SimAppend":
        return SimAppend(self, self._opened(path), path)

    def _opened(self, path: str) -> Inode:
        with self._disk.mutex:
            self._look(Op.OPEN, path)
            return self._disk.platter.get(path)

    def lock(self, path: str, owner: bytes) -> "SimLock":
        self.check()
        inode = self._create_step(path)

        def take() -> None:
            holder = inode.holder
            if isinstance(holder, SimFilesystem) and holder.alive:
                raise os_error(errno.EAGAIN, path)
            inode.holder = self

        self.do(Op.LOCK, path, take)
        try:
            self.truncate_step(inode, path, 0)
            self.write_step(inode, path, 0, owner)
        except OSError:
            inode.holder = None
            raise
        return SimLock(self, inode)

    def open_index(self, path: str, *, readonly: bool, create: bool = False) -> lmdb.Environment:
        with self._disk.mutex:
            self.check()
            if readonly and self._count(Op.OPEN, path, 0) is not None:
                raise _index_error(errno.EIO, path)
            found = self._disk.platter.find(f"{path}/{DATA}")
            file = None if found is None else found.index
            if file is None and (readonly or not create):
                raise _index_error(errno.ENOENT, path)
            if file is not None and any(opened.uses(file) for opened in self._indexes):
                raise lmdb.Error(f"The environment {path!r} is already open in this process.")
            if readonly and file is not None:
                self._open_index(file, readonly=True)
            else:
                self.do(Op.OPEN_INDEX, path, lambda: self._create_index(path), error=_index_error)
            return self._indexes[-1].environment

    def _create_index(self, path: str) -> None:
        platter = self._disk.platter
        if platter.find(path) is not None:
            raise _index_error(errno.ENOTDIR, path)
        table = platter.table(path)
        for name in (DATA, LOCK):
            if name not in table:
                platter.create(f"{path}/{name}", IndexFile(b""))
        file = platter.get(f"{path}/{DATA}").index
        assert file is not None
        self._open_index(file, readonly=False)

    def _open_index(self, file: IndexFile, *, readonly: bool) -> None:
        for before in self._indexes:
            if not is_open(before.environment):
                before.discard()
        self._indexes = [before for before in self._indexes if is_open(before.environment)]
        self._indexes.append(OpenIndex(self._disk.scratch, file, readonly=readonly))

    def remove_index(self, path: str) -> None:
        for name in (DATA, LOCK):
            if self._disk.platter.find(f"{path}/{name}") is not None:
                self.unlink(f"{path}/{name}")
        self.sync_dir(path)

    def commit(self, txn: lmdb.Transaction) -> None:
        def failed(code: int, _: str) -> Exception:
            txn.abort()
            return _index_error(code, "mdb_txn_commit")

        self.do(Op.COMMIT, "", txn.commit, error=failed)


class SimAppend:
    """A file that is open for appending."""

    def __init__(self, process: SimFilesystem, inode: Inode, path: str) -> None:
        self._process = process
        self._inode = inode
        self._path = path
        self._open = True

    def _check(self) -> None:
        self._process.check()
        if not self._open:
            raise os_error(errno.EBADF, self._path)

    def write(self, data: bytes) -> None:
        self._check()
        self._process.write_step(self._inode, self._path, len(self._inode), data)

    def sync(self) -> None:
        self._check()
        self._process.sync_step(self._inode, self._path)

    def truncate(self, size: int) -> None:
        self._check()
        self._process.truncate_step(self._inode, self._path, size)

    def close(self) -> None:
        """Close it; also after a crash, because what only tidies up may do so."""
        self._open = False


class SimLock:
    """A lock that is held."""

    def __init__(self, process: SimFilesystem, inode: Inode) -> None:
        self._process = process
        self._inode = inode

    def release(self) -> None:
        """Let go of it; after a crash it may be somebody else's already."""
        if self._inode.holder is self._process:
            self._inode.holder = None
