"""Looking into a log while planning: which labels are meant, what is missing, what is at single entries."""

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from veen.core import labels as naming
from veen.core.types import Label
from veen.pipeline.frames import Entries
from veen.pipeline.kernel import Level
from veen.pipeline.logs import LabelHead, Log, PlaceError, Pruned, open_log
from veen.pipeline.source.losses import Has
from veen.pipeline.source.options import OptionError, Options, Times
from veen.storage.errors import DamagedError

T = TypeVar("T")

#: How often a query is planned if a hub prunes at the same time.
_TRIES: Final = 3
#: Labels of so many epochs are worked out, each time that a log is looked at.
MOST_EPOCHS: Final = 1000


def opened(options: Options) -> Log:
    """Open the log that is asked for."""
    return open_log(options.place, options.hub_id, options.streams, options.epochs)


class PrunedMeanwhileError(PlaceError):
    """Entries were pruned while a query was planned, and what was found out of them fits no more."""


def steadily(log: Log, plan: Callable[[dict[Label, LabelHead]], T]) -> T:
    """Return what is planned with the heads of a log, planned again if entries were pruned meanwhile.

    Else what was pruned in between would be missing without a verdict: heads tell that it is there, and a
    search for a time, or the parts to read, begin behind it.
    """
    for _ in range(_TRIES):
        known = log.heads()
        try:
            found = plan(known)
        except PrunedMeanwhileError:
            continue
        now = log.heads()
        if all(now[label].first_seq == head.first_seq for label, head in known.items() if label in now):
            return found
    raise PrunedMeanwhileError(f"{log.name}: entries are pruned while the query is planned; run it again")


def selected(log: Log, heads: Mapping[Label, LabelHead], options: Options) -> dict[Label, LabelHead]:
    """Return the labels that the options leave; those of named streams are known to be of them."""
    if options.labels is not None:
        heads = {label: head for label, head in heads.items() if label in options.labels}
    epochs = options.epochs
    if options.streams and epochs is not None and epochs[-1] - epochs[0] < MOST_EPOCHS:
        return _computed(log, heads, options.streams, epochs)
    if options.streams:
        left, heads = heads, _of_streams(log, heads, options.streams)
        if epochs is not None and any(profile.epoch_sec for profile in log.profiles):
            heads |= {
                label: head for label, head in left.items() if head.stream_id is None and label not in heads
            }
    if epochs is None:
        return dict(heads)
    _refuse_unknown_epochs(log, heads)
    return {label: head for label, head in heads.items() if head.epoch in epochs}


def _computed(
    log: Log, heads: Mapping[Label, LabelHead], streams: tuple[str, ...], epochs: range
) -> dict[Label, LabelHead]:
    """Return the labels of streams in epochs, whatever the log says or does not say of them."""
    found: dict[Label, LabelHead] = {}
    for routing in {log.keys.identity_of(label).routing_key for label in heads}:
        for stream in map(naming.stream_id, streams):
            for epoch in epochs:
                label = naming.label(routing, stream, epoch)
                if label in heads:
                    found[label] = heads[label]._replace(stream_id=stream, epoch=epoch)
    return {label: found[label] for label in sorted(found)}


def _of_streams(
    log: Log, heads: Mapping[Label, LabelHead], streams: tuple[str, ...]
) -> dict[Label, LabelHead]:
    found: dict[Label, LabelHead] = {}
    for name in streams:
        stream = naming.stream_id(name)
        for epoch, label in log.labels_of(stream).items():
            if label in heads:
                found[label] = heads[label]._replace(stream_id=stream, epoch=epoch)
    return {label: found[label] for label in sorted(found)}


def _refuse_unknown_epochs(log: Log, heads: Mapping[Label, LabelHead]) -> None:
    """Refuse to choose among labels if one may be of any epoch: its entries would be left out by chance.

    What a log says of a label is not believed: stream and epoch make the label.
    """
    unknown = [
        label
        for label, head in heads.items()
        if head.stream_id is None
        or naming.label(log.keys.identity_of(label).routing_key, head.stream_id, head.epoch) != label
    ]
    if unknown:
        more = f" and of {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise OptionError(
            f"epoch: the log does not tell the epoch of {unknown[0].hex()}{more}; "
            f"name the streams by the option stream, and no more than {MOST_EPOCHS} epochs"
        )


def has(
    log: Log, head: LabelHead | None, first: int, options: Options, of_time: tuple[int, int] | None = None
) -> Has:
    """Return what a log has of a label, for a verdict on entries from ``first`` on.

    ``of_time``: which entries of it are of the times asked for. If one that is left is older than these,
    those that were pruned before it are older still.
    """
    if head is None:
        return Has()
    if first >= head.first_seq:
        return Has(head.first_seq, head.last_seq)  # what was pruned before does not matter
    if options.times.is_empty or (of_time is not None and of_time[0] > head.first_seq):
        return Has(head.first_seq, head.last_seq, unasked=((1, head.first_seq - 1),))
    try:
        pruned = log.pruned(head.label)
    except DamagedError:  # what would say so is missing itself
        pruned = []
    unasked = [item for item in pruned if not _may_be_of(options.times, item, options.verify.level)]
    return Has(head.first_seq, head.last_seq, _spans(pruned), _spans(unasked))


def _may_be_of(times: Times, item: Pruned, level: Level) -> bool:
    """Tell whether pruned entries may be asked for; of which times they were, nobody has signed."""
    return item.first_ts is None or level >= Level.FULL or times.meet(item.first_ts, item.last_ts)


def _spans(items: list[Pruned]) -> tuple[tuple[int, int], ...]:
    return tuple((item.first_seq, item.last_seq) for item in items)


def look_at(log: Log, places: Mapping[Label, int]) -> dict[Label, Entries]:
    """Return single entries, one of each label; those that there are."""
    if not places:
        return {}
    parts = log.plan({label: (seq, seq) for label, seq in places.items()})
    return {part.label: part.entries() for part in parts}


def roots_at(log: Log, heads: Mapping[Label, LabelHead], places: Mapping[Label, int]) -> dict[Label, bytes]:
    """Return the roots in the receipts of entries; those that there are."""
    found: dict[Label, bytes] = {}
    others: dict[Label, int] = {}
    for label, seq in places.items():
        head = heads.get(label)
        if head is not None and seq == head.last_seq:
            found[label] = head.mmr_root
        elif head is not None and head.first_seq <= seq < head.last_seq:
            others[label] = seq
    return found | {label: one.mmr_root[0].tobytes() for label, one in look_at(log, others).items()}
