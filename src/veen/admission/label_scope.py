"""Which stream and epoch a label belongs to: a label is a hash, so it is looked up among candidates.

A hub cannot derive the stream from a label (C-31). It knows the streams that a token names, and
computes their labels for the epochs around the current one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from veen.core.data_dir.store_records import StreamEpoch
from veen.core.errors import Detail, ProtocolError
from veen.core.limits import EPOCH_PROBE
from veen.core.objects.capability import CapToken, candidate_labels
from veen.core.types import Label, RoutingKey, StreamId

# Cached sets of candidates: those for the window, one for each token in use ...
_MAX_CACHED: Final = 256
# ... and those for the epochs around it. Few: they are large, and only rejected messages need them.
_MAX_CACHED_AROUND: Final = 16

_Candidates = Mapping[Label, StreamEpoch]
_Key = tuple[tuple[StreamId, ...], range]


class CandidateCache(Protocol):
    """A cache of candidates. Eviction affects latency, never a decision."""

    def get(self, key: _Key, /) -> _Candidates | None:
        """Return the cached candidates, or None."""

    def put(self, key: _Key, value: _Candidates, /) -> None:
        """Cache candidates."""


class Scopes:
    """Finds labels among the streams of a token, or those that the configuration lists."""

    def __init__(
        self,
        routing: RoutingKey,
        *,
        rotates: bool,
        new_cache: Callable[[int], CandidateCache],
        streams: Sequence[StreamId] = (),
        reserved: Iterable[Label] = (),
    ) -> None:
        """``new_cache`` creates a cache for at most that many sets of candidates."""
        self._routing = routing
        self._rotates = rotates
        self._streams = tuple(streams)
        self._reserved = frozenset(reserved)
        self._inside = new_cache(_MAX_CACHED)
        self._around = new_cache(_MAX_CACHED_AROUND)

    def resolve(
        self, label: Label, token: CapToken | None, known: StreamEpoch | None, window: range
    ) -> StreamEpoch | None:
        """Return the stream and epoch of a label; reject one outside a token's scope (C-32).

        Without a token, None means that nothing is known about the label.
        """
        if label in self._reserved:
            raise ProtocolError(Detail.AUTH_REF, "the label is reserved for the hub's own log", field="label")
        streams = self._streams if token is None else token.allow.stream_ids
        derived_from = known or self._search(label, streams, window)
        if token is not None and (derived_from is None or derived_from.stream_id not in streams):
            raise ProtocolError(
                Detail.AUTH_REF, "the token is not for the stream of this label", field="label"
            )
        return derived_from

    def _search(self, label: Label, streams: tuple[StreamId, ...], window: range) -> StreamEpoch | None:
        if not streams:
            return None
        derived_from = self._candidates(self._inside, streams, window).get(label)
        if derived_from is None and self._rotates:
            around = range(max(0, window.start - EPOCH_PROBE), window.stop + EPOCH_PROBE)
            derived_from = self._candidates(self._around, streams, around).get(label)
        return derived_from

    def _candidates(self, cache: CandidateCache, streams: tuple[StreamId, ...], epochs: range) -> _Candidates:
        key = streams, epochs
        candidates = cache.get(key)
        if candidates is None:
            labels = candidate_labels(streams, self._routing, epochs)
            candidates = {label: StreamEpoch(*derived_from) for label, derived_from in labels.items()}
            cache.put(key, candidates)
        return candidates
