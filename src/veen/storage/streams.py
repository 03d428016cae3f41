"""Streams across their epochs: which labels of a stream have entries (C-42)."""

from veen.core import labels
from veen.core.types import RoutingKey, StreamId
from veen.storage.reader import Reader


def epochs_of(reader: Reader, routing: RoutingKey, stream: StreamId) -> list[int]:
    """Return the epochs in which a stream has entries, ascending.

    Where labels never change, a hub need not have found out which stream a label is of: epoch 0 is looked at.
    """
    bound = (reader.binding(label) for label in reader.labels_of(stream))
    found = {binding.epoch for binding in bound if binding is not None}
    if reader.last_seq(labels.label(routing, stream, 0)):
        found.add(0)
    return sorted(found)
