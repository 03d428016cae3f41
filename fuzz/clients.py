"""Seeds: objects in files of a client. Other processes write some of them, and any may be damaged."""

from collections.abc import Callable
from typing import Any

from tests import builders as make
from veen.client.fraud import Fraud
from veen.client.keys.identity_card import IdentityCard
from veen.client.keys.keystore import SealedKeystore, Secrets, StreamKey
from veen.client.keys.stream_keys import share
from veen.client.transport.portable_set import SyncState
from veen.core.encoding.wire_object import Wire
from veen.core.objects import labels

_NOW = 1_790_000_000
_SECRETS = Secrets.generate(make.counted_random("client"), _NOW, "Alice")
_KEY = StreamKey(stream_id=make.stream(), secret=make.digest("stream key"), created_at=_NOW, name="team")
_IDENTITY = make.identity()


def _fraud() -> Fraud:
    key = make.signing_key("hub")
    return Fraud(
        identity=_IDENTITY,
        identity_sig=_IDENTITY.sign(key),
        first=make.receipt(),
        second=make.receipt(stream_seq=1),
    )


def client_objects() -> list[Wire]:
    """Return one of each."""
    random = make.counted_random("sealing")
    card = _SECRETS.card(_NOW)
    return [
        card,
        card.prekeys[0],
        SealedKeystore.seal(_SECRETS, make.digest("key file"), random, passphrase=False),
        _SECRETS.with_stream(_KEY),
        share(_SECRETS, _KEY, card, _NOW, random),
        _fraud(),
        SyncState(
            label=make.some_label(),
            last_stream_seq=7,
            last_mmr_root=make.peaks(7).root,
            stream_id=labels.stream_id("s"),
            epoch=0,
        ),
    ]


def client_forgeries() -> list[tuple[Wire, Callable[[Any], None]]]:
    """Return signed objects, and the functions that verify them."""
    return [(_SECRETS.card(_NOW), IdentityCard.verify)]
