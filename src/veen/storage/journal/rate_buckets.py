"""Rate buckets of tokens, computed from the log alone (C-52).

A hub updates them as it admits messages. Here they are recomputed when the log is replayed: at a start after
a crash, by a reader without a writer, and by a repair.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from veen.core.data_dir.store_records import StoreRecord
from veen.core.objects.capability import Bucket, CapToken, effective_rate
from veen.core.types import AuthRef
from veen.storage.directory import limits_by_time

# Length of an array of uses at which it is first merged.
_FIRST_MERGE: Final = 4096


class Buckets:
    """Updates buckets from entries in the order of the log."""

    def __init__(
        self,
        store: StoreRecord,
        read_token: Callable[[AuthRef], CapToken | None],
        read_bucket: Callable[[AuthRef], Bucket | None],
    ) -> None:
        self._limits_at = limits_by_time(store)
        self._read_token = read_token
        self._read_bucket = read_bucket
        self._tokens: dict[AuthRef, CapToken | None] = {}
        self._buckets: dict[AuthRef, Bucket | None] = {}

    def learn(self, auth_ref: AuthRef, token: CapToken) -> None:
        """Add an authorized token."""
        self._tokens[auth_ref] = token

    def after(self, auth_ref: AuthRef, hub_ts: int, count: int = 1) -> Bucket | None:
        """Return the bucket after accepted messages; None for a token that is not in the log."""
        if auth_ref not in self._tokens:
            self._tokens[auth_ref] = self._read_token(auth_ref)
        token = self._tokens[auth_ref]
        if token is None:
            return None
        if auth_ref not in self._buckets:
            self._buckets[auth_ref] = self._read_bucket(auth_ref)
        rate = effective_rate(token, self._limits_at(hub_ts))
        bucket = self._buckets[auth_ref] or Bucket.full(rate, hub_ts)
        spent = self._buckets[auth_ref] = bucket.spend(rate, hub_ts, count)
        return spent


class Uses:
    """Counts the uses of tokens per second, for a repair, which reads label by label.

    The counts are complete only after the last label. Each second in which a token was used takes 16 bytes,
    however many labels used it, and up to twice that before a merge.
    """

    def __init__(self) -> None:
        self._tokens: dict[AuthRef, CapToken] = {}
        self._since: dict[AuthRef, int] = {}
        self._uses: dict[AuthRef, array[int]] = {}
        self._merge_at: dict[AuthRef, int] = {}

    def authorized(self, auth_ref: AuthRef, token: CapToken, hub_ts: int) -> None:
        """Add a token and the time of its authorization."""
        self._tokens[auth_ref] = token
        self._since.setdefault(auth_ref, hub_ts)

    def used(self, auth_ref: AuthRef, hub_ts: int) -> None:
        """Count one accepted message."""
        uses = self._uses.setdefault(auth_ref, array("Q"))
        if uses and uses[-2] == hub_ts:
            uses[-1] += 1
            return
        if len(uses) >= self._merge_at.get(auth_ref, _FIRST_MERGE):
            merged = (number for pair in _by_second(uses) for number in pair)
            uses = self._uses[auth_ref] = array("Q", merged)
            self._merge_at[auth_ref] = max(_FIRST_MERGE, 2 * len(uses))
        uses.extend((hub_ts, 1))

    def buckets(self, store: StoreRecord) -> Mapping[AuthRef, Bucket]:
        """Return the bucket of each token; the order within a second makes no difference.

        Messages before the authorization of a token did not count then, and do not now.
        """
        folded = Buckets(store, self._tokens.get, lambda _: None)
        buckets: dict[AuthRef, Bucket] = {}
        for auth_ref, uses in self._uses.items():
            since = self._since.get(auth_ref, 0)
            for hub_ts, count in _by_second(uses):
                bucket = folded.after(auth_ref, hub_ts, count) if hub_ts >= since else None
                if bucket is not None:
                    buckets[auth_ref] = bucket
        return buckets


def _by_second(uses: "array[int]") -> list[tuple[int, int]]:
    """Return each second once, ascending, with its number of messages."""
    counts: Counter[int] = Counter()
    for hub_ts, count in zip(uses[::2], uses[1::2], strict=True):
        counts[hub_ts] += count
    return sorted(counts.items())
