"""Which stream and epoch a label belongs to: a label is a hash, so it is looked up among candidates.

A hub can not turn a label back into its stream (C-31). It knows the streams that a token names, and
computes their labels for the epochs around now.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from veen.core.capability import candidate_labels
from veen.core.captoken import CapToken
from veen.core.errors import Detail, ProtocolError
from veen.core.limits import EPOCH_PROBE
from veen.core.types import Label, RoutingKey, StreamId
from veen.storage import Kept, StreamEpoch

#: Sets of candidates kept: those for the window, one for each token in use ...
_KEPT: Final = 256
#: ... and those for the epochs around it. Few: they are large, and only messages that are refused need them.
_KEPT_AROUND: Final = 16

_Candidates = Mapping[Label, StreamEpoch]
_Made = Kept[tuple[tuple[StreamId, ...], range], _Candidates]


class Scopes:
    """Finds labels among the streams of a token, or those that the configuration lists."""

    def __init__(
        self,
        routing: RoutingKey,
        *,
        rotates: bool,
        streams: Sequence[StreamId] = (),
        reserved: Iterable[Label] = (),
    ) -> None:
        self._routing = routing
        self._rotates = rotates
        self._streams = tuple(streams)
        self._reserved = frozenset(reserved)
        # What is in here can be computed again: it changes the time a decision takes, never the decision.
        self._inside: _Made = Kept(_KEPT)
        self._around: _Made = Kept(_KEPT_AROUND)

    def resolve(
        self, label: Label, token: CapToken | None, known: StreamEpoch | None, window: range
    ) -> StreamEpoch | None:
        """Return the stream and epoch of a label; refuse one outside a token's scope (C-32).

        Without a token, None means that nothing is known about the label.
        """
        if label in self._reserved:
            raise ProtocolError(Detail.AUTH_REF, "the label is reserved for the hub's own log", field="label")
        streams = self._streams if token is None else token.allow.stream_ids
        found = known or self._search(label, streams, window)
        if token is not None and (found is None or found.stream_id not in streams):
            raise ProtocolError(
                Detail.AUTH_REF, "the token is not for the stream of this label", field="label"
            )
        return found

    def _search(self, label: Label, streams: tuple[StreamId, ...], window: range) -> StreamEpoch | None:
        if not streams:
            return None
        found = self._candidates(self._inside, streams, window).get(label)
        if found is None and self._rotates:
            around = range(max(0, window.start - EPOCH_PROBE), window.stop + EPOCH_PROBE)
            found = self._candidates(self._around, streams, around).get(label)
        return found

    def _candidates(self, kept: _Made, streams: tuple[StreamId, ...], epochs: range) -> _Candidates:
        key = streams, epochs
        made = kept.get(key)
        if made is None:
            found = candidate_labels(streams, self._routing, epochs)
            made = {label: StreamEpoch(*place) for label, place in found.items()}
            kept.put(key, made)
        return made
