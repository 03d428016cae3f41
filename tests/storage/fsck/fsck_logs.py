"""What tests of the checker share: small logs, entries that are wrong, and answers in short."""

from dataclasses import replace

from tests.storage.handmade import Admitted, Disk, Hub, Tree
from veen.core.objects.entry import Entry
from veen.core.objects.finding import Finding, Level
from veen.core.objects.receipt import Receipt
from veen.core.types import Label
from veen.storage.fsck import check


def a_log(count: int = 10, *, size: int = 8) -> tuple[Hub, Label]:
    """Return a hub with one label: two chunks of four, and a half."""
    hub = Hub()
    label = hub.label("stream")
    for number in range(count):
        hub.send(label, f"client {number % 2}", size=size)
    return hub, label


def several_labels() -> tuple[Hub, Label, Label]:
    """Return a hub with 16 events: two labels of different sizes, and checkpoints that were asked for."""
    hub = Hub()
    one, two = hub.label("one"), hub.label("two")
    for number in range(14):
        hub.send(two if number % 3 == 1 else one, f"client {number % 2}", size=400 if number % 3 == 1 else 8)
        if number in (4, 10):
            hub.ask(one)
    return hub, one, two


def found(tree: Tree, level: Level = Level.FULL) -> list[Finding]:
    """Return the findings in a directory, which must have some."""
    report = check(Disk(tree), level)
    assert not report.ok
    assert report.findings_total == len(report.findings) > 0
    return list(report.findings)


def first(tree: Tree, level: Level = Level.FULL) -> tuple[str, int | None, str]:
    finding = found(tree, level)[0]
    return finding.where.file, finding.where.offset, finding.code


def replaced(hub: Hub, label: Label, seq: int, new: Admitted) -> None:
    """Put another entry into the hub's history."""
    hub.events[hub.events.index(hub.entries(label)[seq - 1])] = new


def reissued(hub: Hub, item: Admitted, **changes: object) -> Admitted:
    """Return an entry with another receipt, signed like the first."""
    receipt = item.receipt
    fields: dict[str, object] = {
        "label": receipt.label,
        "stream_seq": receipt.stream_seq,
        "leaf_hash": receipt.leaf_hash,
        "mmr_root": receipt.mmr_root,
        "hub_ts": receipt.hub_ts,
    }
    made = Receipt.sign(hub.key_at(0), **(fields | changes))  # type: ignore[arg-type]
    body = Entry.decode(item.frame)[0].msg_bytes
    return replace(item, receipt=made, frame=Entry(body, made).encode())
