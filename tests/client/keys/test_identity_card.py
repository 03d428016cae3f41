"""Cards and shared keys: signed by who gives them, useless to others."""

import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.participants import NOW
from veen.client.keys.identity_card import IdentityCard
from veen.client.keys.keystore import Secrets, StreamKey
from veen.client.keys.stream_keys import SealedKey, SharedKey, accept, share
from veen.core.crypto import hpke
from veen.core.errors import Detail, ProtocolError
from veen.core.objects import labels
from veen.core.types import ReaderSecretKey

ALICE, BOB, EVE = (Secrets.generate(os.urandom, NOW, name) for name in ("Alice", "Bob", "Eve"))
KEY = StreamKey(stream_id=labels.stream_id("team"), secret=os.urandom(32), created_at=NOW, name="team")
CARD = BOB.card(NOW).encode()


@given(st.integers(0, len(CARD) - 1), st.integers(0, 7))
def test_no_bit_of_a_card_can_change_unseen(at: int, bit: int) -> None:
    data = bytearray(CARD)
    data[at] ^= 1 << bit
    with pytest.raises(ProtocolError):
        IdentityCard.read(bytes(data))


def test_a_prekey_of_somebody_else_does_not_fit_into_a_card() -> None:
    mixed = IdentityCard.make(
        BOB.identity,
        id_dh=BOB.card(NOW).id_dh,
        client_id=BOB.card(NOW).client_id,
        created_at=NOW,
        prekeys=EVE.card(NOW).prekeys,
        name=None,
    )
    with pytest.raises(ProtocolError):
        IdentityCard.read(mixed.encode())


def test_a_member_gets_the_key_and_knows_from_whom() -> None:
    sealed = share(ALICE, KEY, BOB.card(NOW), NOW, os.urandom)
    got = accept(BOB, SealedKey.decode(sealed.encode()))
    assert (got.key, got.giver) == (KEY, ALICE.identity.public_key)


def test_a_key_sealed_to_a_prekey_opens_after_rotation() -> None:
    sealed = share(ALICE, KEY, BOB.card(NOW), NOW, os.urandom)
    assert accept(BOB.rotated(os.urandom, NOW + 1), sealed).key == KEY


def test_a_key_does_not_go_under_the_name_of_another_stream() -> None:
    sealed = share(EVE, replace(KEY, name="something harmless"), BOB.card(NOW), NOW, os.urandom)
    with pytest.raises(ProtocolError, match="another stream"):
        accept(BOB, sealed)


def test_nobody_else_opens_it() -> None:
    sealed = share(ALICE, KEY, BOB.card(NOW), NOW, os.urandom)
    for other in (ALICE, EVE):
        with pytest.raises(ProtocolError, match="not shared with this client"):
            accept(other, sealed)


def test_what_was_given_to_one_can_not_be_passed_on_in_the_givers_name() -> None:
    given_to_bob = SharedKey.sign(ALICE.identity, BOB.identity.public_key, KEY)
    enc, context = hpke.setup_sender(EVE.card(NOW).id_dh, ReaderSecretKey(os.urandom(32)), b"veen/stream-key")
    passed_on = SealedKey(enc=enc, sealed=context.seal(b"", given_to_bob.encode()))
    with pytest.raises(ProtocolError) as caught:
        accept(EVE, passed_on)
    assert caught.value.detail is Detail.HDR_AEAD


def test_a_giver_can_not_be_made_up() -> None:
    false = SharedKey(
        giver=ALICE.identity.public_key, taker=BOB.identity.public_key, key=KEY, sig=EVE.identity.sign(b"x")
    )
    enc, context = hpke.setup_sender(BOB.card(NOW).id_dh, ReaderSecretKey(os.urandom(32)), b"veen/stream-key")
    with pytest.raises(ProtocolError, match="signature"):
        accept(BOB, SealedKey(enc=enc, sealed=context.seal(b"", false.encode())))
