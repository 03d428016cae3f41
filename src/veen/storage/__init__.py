"""The data directory: the only package that touches it. Acknowledged means on disk.

``Writer`` appends, ``Reader`` answers, ``plan`` and ``read_partition`` divide a log among workers. ``repair``
makes derived files anew; ``clone`` and ``fork`` take a log elsewhere. ``veen.storage.fsck`` checks it all,
and shares no code with the rest. The files are described in docs/reference/data-directory.md.
"""

from veen.storage.attachments import Attachments, coid_of
from veen.storage.background import BackgroundFlush
from veen.storage.batch import Batch
from veen.storage.copying import Forked, clone, fork
from veen.storage.directory import create_store, open_store
from veen.storage.errors import (
    BusyError,
    DamagedError,
    FullError,
    NotAStoreError,
    StaleIndexError,
    StoppedError,
    StorageError,
)
from veen.storage.fs import Filesystem, RealFilesystem
from veen.storage.journal import Binding
from veen.storage.kept import Kept
from veen.storage.migration import change_registry
from veen.storage.partitions import Partition, plan, read_frames, read_partition
from veen.storage.reader import Reader
from veen.storage.repair import Repaired, repair
from veen.storage.rows import Manifest
from veen.storage.sidecars import newest_label
from veen.storage.staging import Record
from veen.storage.state import AuthRecord, ClientCursor, Head, StreamEpoch
from veen.storage.writer import Options, Writer

__all__ = [
    "Attachments",
    "AuthRecord",
    "BackgroundFlush",
    "Batch",
    "Binding",
    "BusyError",
    "ClientCursor",
    "DamagedError",
    "Filesystem",
    "Forked",
    "FullError",
    "Head",
    "Kept",
    "Manifest",
    "NotAStoreError",
    "Options",
    "Partition",
    "Reader",
    "RealFilesystem",
    "Record",
    "Repaired",
    "StaleIndexError",
    "StoppedError",
    "StorageError",
    "StreamEpoch",
    "Writer",
    "change_registry",
    "clone",
    "coid_of",
    "create_store",
    "fork",
    "newest_label",
    "open_store",
    "plan",
    "read_frames",
    "read_partition",
    "repair",
]
