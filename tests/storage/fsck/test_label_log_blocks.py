"""Files larger than what is read at once: the checker goes through them block by block."""

from collections.abc import Callable

import pytest

from tests import builders
from tests.storage.handmade import Disk, Hub
from veen.core.crypto.hash import sha256, u64be
from veen.core.data_dir import paths
from veen.core.data_dir.paths import Domain
from veen.core.merkle.mmr import complete_nodes
from veen.core.objects.finding import Level
from veen.core.objects.receipt import Receipt
from veen.core.types import NodeHash
from veen.storage.fsck.context import Context, rules_of, widest_limits
from veen.storage.fsck.files import LabelFiles
from veen.storage.fsck.keys import Keys
from veen.storage.fsck.label import LabelFacts
from veen.storage.fsck.label_log import NodeStore, chain, node_bytes
from veen.storage.fsck.sequence_files import ReceiptsCheck
from veen.storage.fsck.source import Source

LEAVES = 20_000


def nodes() -> list[NodeHash]:
    return complete_nodes(sha256(u64be(number)) for number in range(LEAVES))


class Counting(Disk):
    """A disk that knows the largest piece that was read at once."""

    largest = 0

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        data = super().read(path, offset, length)
        self.largest = max(self.largest, len(data))
        return data


@pytest.mark.parametrize(
    ("change", "differs_at"),
    [
        (lambda data: data, None),
        (lambda data: data[:1_200_000] + b"?" + data[1_200_001:], 1_200_000),
        (lambda data: data[:1_100_000], 1_100_000),
        (lambda data: b"?" + data[1:], 0),
    ],
)
def test_a_large_node_store(change: Callable[[bytes], bytes], differs_at: int | None) -> None:
    expected = nodes()
    data = b"".join(expected)
    assert len(data) == node_bytes(LEAVES) > 1 << 20
    disk = Counting({"nodes": change(data)})
    store = NodeStore(Source(disk, None), "nodes")
    for start in range(0, len(expected), 1_000):
        store.feed(expected[start : start + 1_000])
    store.finish()
    assert store.differs_at == differs_at
    assert disk.largest < 1.1 * (1 << 20)


def test_a_large_node_store_by_entry() -> None:
    data = b"".join(nodes())
    disk = Counting({"nodes": data})
    parts = list(NodeStore(Source(disk, None), "nodes").by_entry(LEAVES))
    assert b"".join(part for _, _, part in parts) == data
    assert all(len(part) == length for _, length, part in parts)
    assert disk.largest <= 1 << 20


def test_a_large_file_of_receipts() -> None:
    hub = Hub()
    label = builders.some_label()
    sample = builders.receipt(label=label)
    count = 7_000
    encoded = [
        Receipt.sign(
            builders.signing_key("hub"),
            label=label,
            stream_seq=number,
            leaf_hash=sample.leaf_hash,
            mmr_root=sample.mmr_root,
            hub_ts=1_000,
        ).encode()
        for number in range(1, count + 1)
    ]
    hashed = b""
    for item in encoded:
        hashed = chain(hashed, item)
    data = b"".join(encoded)
    assert len(data) > 1 << 20
    for content, stale in (
        (data, False),
        (data[:-1], True),
        (data[: len(data) // 2], True),
        (data + b"\x87", True),
    ):
        disk = Counting({paths.RECEIPTS: content})
        context = Context(
            source=Source(disk, None),
            level=Level.ROOTS,
            limits=widest_limits(hub.store),
            rules=rules_of(hub.store),
            keys=Keys(hub.store.hub_id),
            reserved={},
        )
        facts = LabelFacts(
            files=LabelFiles(Domain.DATA, label),
            run=None,
            unfinished=frozenset(),
            pruned_to=0,
            settled=count,
            receipts_hash=hashed,
            head=count,
            next_chunk="",
            sound=True,
        )
        made = ReceiptsCheck(context, {label: facts}, partial=False, size_before=len(content))
        made.check()
        assert bool(made.found.total) == stale
        assert disk.largest <= 1 << 20
        offsets = [item.where.offset for item in made.found.kept]
        assert offsets == ([] if not stale else offsets[:1])
