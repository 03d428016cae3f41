"""A lake open for writing, by one process at a time."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from veen.core.objects.hub_identity import HubIdentity
from veen.core.types import HubId
from veen.pipeline.errors import DamagedLakeError, LakeBusyError, LakeError
from veen.pipeline.lake import layout
from veen.pipeline.lake.commits import Changes, Commits, State
from veen.pipeline.lake.table_files import (
    create_file,
    make_directory,
    make_private_directory,
    remove_all,
    write_durably,
)
from veen.stdx.atomic_file import sync_dir
from veen.stdx.file_lock import lock, unlock


class Lake:
    """A lake locked by this process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._commits = Commits(root)
        self.state = self._commits.load()
        # Files in the directories of tables that no run has written; found during a cleanup.
        self.foreign: list[str] = []

    def require_hub(self, hub_id: HubId) -> None:
        """Reject the log of another hub."""
        if self.state.hub_id not in (None, hub_id.hex()):
            text = (
                f"the lake {self.root} is of hub {self.state.hub_id}, and this is the log of {hub_id.hex()}"
            )
            raise DamagedLakeError(text)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Mark tables as being written: if the block fails, the next process to lock the lake cleans up."""
        write_durably(self.root / layout.WRITING, b"")
        yield
        self._done()

    def _done(self) -> None:
        (self.root / layout.WRITING).unlink()
        sync_dir(self.root / layout.META)

    def recover(self) -> None:
        """Clean up after an unfinished run."""
        if (self.root / layout.WRITING).exists():
            self.clean()
            self._done()

    def clean(self) -> int:
        """Remove files of killed runs, which no commit names. Foreign files stay."""
        hub = {f"{layout.HUB}/{item.sha256}" for item in self.state.hub.values()}
        known = {
            *self.state.files,
            *hub,
            *self._files_of_states(),
        }
        here = self.root / layout.META
        found = [*layout.tables_in(self.root), *(path for path in here.rglob(f"{layout.UNFINISHED}*"))]
        if (self.root / layout.HUB).is_dir():
            found += (self.root / layout.HUB).iterdir()
        left = sorted({str(path.relative_to(self.root)) for path in found} - known)
        self.foreign = [path for path in left if not layout.is_ours(path)]
        return remove_all(self.root / path for path in left if layout.is_ours(path))

    def commit(self, changes: Changes, identity: HubIdentity | None = None) -> None:
        """Commit changes; ``identity`` is the hub's, for the first commit."""
        if not changes:
            return
        states = self._files_of_states()
        self._commits.add(self.state, changes, identity)
        gone = {*changes.removed, *(states - self._files_of_states())}
        remove_all(self.root / path for path in sorted(gone))

    def _files_of_states(self) -> set[str]:
        return {path for item in self.state.gold.values() for path in item["files"]}


@contextmanager
def lock_lake(root: Path, *, create: bool = False) -> Iterator[Lake]:
    """Lock a lake; fail at once if another process holds the lock."""
    if not create and not (root / layout.META).is_dir():
        raise LakeError(f"{root} is not a lake; create one with: veen pipeline ingest LOG --lake {root}")
    if create and root.is_dir() and not (root / layout.META).is_dir() and any(root.iterdir()):
        raise LakeError(f"{root} is neither a lake nor empty; choose another directory")
    make_directory(root.parent)
    make_private_directory(root)
    make_directory(root / layout.META)
    with suppress(FileExistsError):
        create_file(root / layout.LOCK).close()
    fd = lock(root / layout.LOCK, wait=False)
    if fd is None:
        raise LakeBusyError(f"another process writes to the lake {root}")
    try:
        lake = Lake(root)
        lake.recover()
        yield lake
    finally:
        unlock(fd)


def load(root: Path) -> State:
    """Return the current state of a lake, for reading."""
    if not (root / layout.META).is_dir():
        raise LakeError(f"{root} is not a lake; create one with: veen pipeline ingest LOG --lake {root}")
    return Commits(root).load()
