"""Which key signs a checkpoint: the one of its last entry, or of its epoch."""

import pytest

from tests import builders
from veen.core.crypto.ed25519 import SEED_BYTES, SigningKey
from veen.core.data_dir.store_records import StreamEpoch
from veen.core.errors import not_found
from veen.core.objects.checkpoint import Checkpoint
from veen.core.types import Label, NodeHash
from veen.hub.keyring import CheckpointSigner, KeyRing, new_identity

_LABEL = builders.some_label()
_SEEDS = tuple(builders.digest(name)[:SEED_BYTES] for name in ("first", "second"))
_STREAM = builders.stream()


def _ring() -> KeyRing:
    """Two keys: one until 1100, one from 1000 on."""
    first = SigningKey.from_seed(_SEEDS[0])
    old = KeyRing.of(new_identity(first, builders.reader_public(), None), _SEEDS[:1])
    return old.rotated(_SEEDS[1], 1000, 100)


def _made(*, now: int, hub_ts: int | None, epoch_sec: int = 0, epoch: int = 0) -> tuple[KeyRing, Checkpoint]:
    """Make a checkpoint of an entry of a time; None: it is pruned."""
    ring = _ring()

    def hub_ts_of(label: Label, seq: int) -> int:
        assert (label, seq) == (_LABEL, 7)
        if hub_ts is None:
            raise not_found("stream_seq", "it is pruned")
        return hub_ts

    signer = CheckpointSigner(
        ring, epoch_sec=epoch_sec, max_skew_sec=10, clock=lambda: now, hub_ts_of=hub_ts_of
    )
    return ring, signer(_LABEL, 7, NodeHash(builders.digest("root")), StreamEpoch(_STREAM, epoch))


def _signed_by(ring: KeyRing, made: Checkpoint, *, epoch_sec: int) -> int:
    used = ring.identity.verify_checkpoint(made, epoch_sec=epoch_sec, max_skew_sec=10)
    return ring.identity.hub_keys.index(used)


@pytest.mark.parametrize(
    ("now", "hub_ts", "key"),
    [
        (5000, 999, 0),
        (5000, 1000, 1),  # of those that may, the newest
        (5000, 4000, 1),
        (500, 1200, 1),  # the clock has gone back since
        (5000, None, 1),
        (500, None, 0),
    ],
)
def test_a_checkpoint_has_the_key_of_its_last_entry(now: int, hub_ts: int | None, key: int) -> None:
    ring, made = _made(now=now, hub_ts=hub_ts)
    assert _signed_by(ring, made, epoch_sec=0) == key


@pytest.mark.parametrize(
    ("epoch", "hub_ts", "key"),
    [
        (9, 950, 0),  # both count for the epoch 900 to 1000, with its skew
        (9, 1005, 1),
        (9, None, 1),
        (10, 1050, 1),
        (3, 5000, 0),  # only one counts, and the entry is none of its time
        (20, 500, 1),
    ],
)
def test_with_epochs_it_is_one_that_counts_for_the_epoch(epoch: int, hub_ts: int | None, key: int) -> None:
    ring, made = _made(now=5000, hub_ts=hub_ts, epoch_sec=100, epoch=epoch)
    assert _signed_by(ring, made, epoch_sec=100) == key
