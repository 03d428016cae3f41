"""The data directory: no other package reads or writes it. Acknowledged means durable on disk.

``Writer`` appends, ``Reader`` reads, ``plan`` and ``read_partition`` partition a log for parallel readers.
``repair`` rebuilds derived files; ``clone`` and ``fork`` copy a log. ``veen.storage.fsck`` checks everything,
and shares no code with the rest. The files are described in docs/reference/data-directory.md.
"""

from veen.storage.attachments import Attachments, coid_of
from veen.storage.directory import change_registry, create_store, open_store
from veen.storage.errors import (
    DamagedStoreError,
    NotAStoreError,
    StaleIndexError,
    StorageError,
    StoreBusyError,
    StoreFullError,
    WriterStoppedError,
)
from veen.storage.fs import Filesystem, RealFilesystem
from veen.storage.index.label_state import Head
from veen.storage.index.rows import Manifest
from veen.storage.journal.journal import Binding
from veen.storage.maintain.copy import Forked, clone, fork
from veen.storage.maintain.repair import Repaired, repair
from veen.storage.read.partitions import Partition, plan, read_frames, read_partition
from veen.storage.read.reader import Reader
from veen.storage.write.batch import Batch
from veen.storage.write.sidecars import newest_label
from veen.storage.write.writer import Options, Writer

__all__ = [
    "Attachments",
    "Batch",
    "Binding",
    "DamagedStoreError",
    "Filesystem",
    "Forked",
    "Head",
    "Manifest",
    "NotAStoreError",
    "Options",
    "Partition",
    "Reader",
    "RealFilesystem",
    "Repaired",
    "StaleIndexError",
    "StorageError",
    "StoreBusyError",
    "StoreFullError",
    "Writer",
    "WriterStoppedError",
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
