"""Backends that publish roots, and verification of published roots (ANCHOR0).

``FileLedger`` chains them in a file at any path; ``rfc3161.Rfc3161`` has a time stamp authority sign them. It
is not imported here, because its libraries are slow to load. Both have
``publish(root, epoch, ts, nonce)``, which returns the anchor_ref, and ``verify(root, anchor_ref)``.
"""

from veen.storage.anchors.backend import Backend, Verdict
from veen.storage.anchors.file_ledger import FileLedger
from veen.storage.anchors.records import anchored, find_record, read_record, store_record
from veen.storage.errors import AnchorError

__all__ = [
    "AnchorError",
    "Backend",
    "FileLedger",
    "Verdict",
    "anchored",
    "find_record",
    "read_record",
    "store_record",
]
