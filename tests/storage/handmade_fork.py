"""Forks made by hand: another hub's log up to its checkpoints, and that hub in the archive."""

from dataclasses import replace

from tests import builders
from tests.storage.handmade import Admitted, Asked, Event, Hub, Tree, chunk_files, directory
from veen.core.data_dir import paths
from veen.core.data_dir.store_records import ForkRecord
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.hub_identity import ForkParent


def cut(hub: Hub) -> tuple[Hub, list[Checkpoint]]:
    """Return a hub's messages up to the last checkpoint of each label, and these checkpoints."""
    uptos = {item.label: 0 for item in hub.entries_of(paths.Domain.DATA)}
    for path in chunk_files(hub, hub.events):
        name = paths.parse(path.removeprefix("log/"))
        if name is not None and name.kind is paths.FileKind.CHECKPOINT:
            uptos[name.label] = max(uptos[name.label], name.end_seq or 0)
    uptos = {label: upto for label, upto in uptos.items() if upto}
    events: list[Event] = [
        item for item in hub.events if isinstance(item, Admitted) and item.seq <= uptos.get(item.label, 0)
    ]
    asked = [item.checkpoint for item in hub.events if isinstance(item, Asked)]
    kept = {(item.label_curr, item.upto_seq): item for item in asked}
    last = [kept.get((label, uptos[label]), hub.checkpoint(label, uptos[label])) for label in sorted(uptos)]
    kept |= {(item.label_curr, item.upto_seq): item for item in last}
    # Of a chunk that ended because the next entry did not fit, the checkpoint stays without that entry.
    return replace(hub, events=events + [Asked(item) for item in kept.values()]), last


def fork(parent: Hub, child: Hub) -> Tree:
    """Return a fork: the parent's log up to its checkpoints, and what the child admits to its own labels."""
    shortened, checkpoints = cut(parent)
    record = ForkRecord(parent_hub_id=parent.identity.hub_id, checkpoints=tuple(checkpoints))
    child = replace(child, parent=ForkParent(hub_id=record.parent_hub_id, fork_hash=record.fork_hash))
    copied, own = chunk_files(shortened, shortened.events), chunk_files(child, child.events)
    both = {path: copied[path] + own[path] for path in (paths.RECEIPTS, paths.CHECKPOINTS)}
    parents = directory(parent)
    archived = {path: parents[path] for path in parents if path.startswith(("authorize/", "control/"))}
    archived |= {path: parents[path] for path in (paths.STORE, "hub-identity.cbor", "hub-identity.sig")}
    return (
        copied
        | own
        | both
        | {
            paths.STORE: child.store.encode(),
            paths.FORK: record.encode(),
            "hub-identity.cbor": child.identity.encode(),
            "hub-identity.sig": child.identity.sign(builders.signing_key(child.name)),
        }
        | {f"archive/{path}": content for path, content in archived.items() if not path.endswith(".mmr")}
    )
