"""Where roots are published, and how it is found out later that they were (ANCHOR0).

``FileLedger`` chains them in a file that may stand anywhere; ``rfc3161.Rfc3161`` has a time stamp authority
sign them, and is imported by those who need it: its libraries take a while to load. Both have
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
