"""The keystore: what opens it, what does not, and what it shows of itself."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.participants import NOW, make_home
from veen.client.errors import KeystoreError
from veen.client.home.directory import CARD, KEY_FILE, KEYSTORE, ClientHome
from veen.client.keys.keystore import PREKEY_SEC, SealedKeystore, Secrets, StreamKey, asker, given_passphrase
from veen.core.errors import ProtocolError
from veen.core.objects import labels

SECRETS = Secrets.generate(os.urandom, NOW, "Alice")
SEALED = SealedKeystore.seal(SECRETS, b"k" * 32, os.urandom, passphrase=False)


def nobody() -> bytes | None:
    return None


def test_a_passphrase_opens_what_it_sealed_and_another_does_not() -> None:
    sealed = SealedKeystore.seal(SECRETS, b"correct horse", os.urandom, passphrase=True)
    assert SealedKeystore.decode(sealed.encode()).open(b"correct horse") == SECRETS
    with pytest.raises(KeystoreError, match="the passphrase does not open"):
        sealed.open(b"wrong horse")


def test_sealing_twice_never_gives_the_same_bytes() -> None:
    other = SealedKeystore.seal(SECRETS, b"k" * 32, os.urandom, passphrase=False)
    assert other.nonce != SEALED.nonce
    assert other.sealed != SEALED.sealed


@given(st.integers(0, len(SEALED.encode()) - 1), st.integers(0, 7))
def test_no_bit_of_the_file_can_change_unseen(at: int, bit: int) -> None:
    data = bytearray(SEALED.encode())
    data[at] ^= 1 << bit
    with pytest.raises((ProtocolError, KeystoreError)):
        SealedKeystore.decode(bytes(data)).open(b"k" * 32)


@pytest.mark.parametrize(
    ("name", "value"), [("memory", 1 << 40), ("memory", 1), ("passes", 0), ("passes", 1000)]
)
def test_a_file_from_elsewhere_can_not_take_all_memory_or_time(name: str, value: int) -> None:
    with pytest.raises(ProtocolError):
        SealedKeystore.from_json({**SEALED.to_json(), name: value})  # type: ignore[dict-item]


def test_no_secret_is_shown() -> None:
    key = StreamKey(stream_id=labels.stream_id("s"), secret=os.urandom(32), created_at=NOW)
    shown = repr(SECRETS.with_stream(key)) + repr(key) + repr(SECRETS.clients) + repr(SECRETS.prekeys)
    for secret in (
        SECRETS.id_sign,
        SECRETS.id_dh,
        SECRETS.client.seed,
        SECRETS.prekeys[0].secret,
        key.secret,
    ):
        assert repr(secret) not in shown
        assert secret.hex() not in shown


def test_only_the_owner_can_read_the_files(tmp_path: Path) -> None:
    home = make_home(tmp_path / "alice")
    modes = {
        name: stat.S_IMODE((home.root / name).stat().st_mode) for name in (KEYSTORE, KEY_FILE, "state.json")
    }
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(home.root.stat().st_mode) == 0o700
    assert stat.S_IMODE((home.root / CARD).stat().st_mode) == 0o644


def test_an_identity_is_not_overwritten_unless_that_is_asked_for(tmp_path: Path) -> None:
    home = make_home(tmp_path / "alice")
    before = (home.root / KEYSTORE).read_bytes()
    with pytest.raises(KeystoreError, match="already contains an identity"):
        make_home(tmp_path / "alice")
    assert (home.root / KEYSTORE).read_bytes() == before
    ClientHome.create(home.root, SECRETS, now=NOW, replace=True)
    assert home.load_secrets(nobody)[0] == SECRETS


def test_with_a_passphrase_there_is_no_key_beside_the_keystore(tmp_path: Path) -> None:
    home = ClientHome.create(tmp_path / "alice", SECRETS, now=NOW, passphrase=b"words")
    assert not (home.root / KEY_FILE).exists()
    assert home.load_secrets(lambda: b"words") == (SECRETS, b"words")
    with pytest.raises(KeystoreError, match="VEEN_KEYSTORE_PASSPHRASE"):
        home.load_secrets(nobody)


def test_a_missing_or_damaged_keystore_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(KeystoreError, match="veen keygen"):
        ClientHome(tmp_path / "nobody").load_secrets(nobody)
    home = make_home(tmp_path / "alice")
    (home.root / KEYSTORE).write_bytes(b"garbage")
    with pytest.raises(KeystoreError, match="damaged"):
        home.load_secrets(nobody)
    home = make_home(tmp_path / "bob")
    (home.root / KEY_FILE).unlink()
    with pytest.raises(KeystoreError, match=KEY_FILE):
        home.load_secrets(nobody)


def test_where_a_passphrase_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "words"
    file.write_text("of a file\n")
    assert given_passphrase({"VEEN_KEYSTORE_PASSPHRASE_FILE": str(file)}) == b"of a file"
    both = {"VEEN_KEYSTORE_PASSPHRASE": "of a variable", "VEEN_KEYSTORE_PASSPHRASE_FILE": str(file)}
    assert asker(both, lambda: "typed")() == b"of a variable"
    assert asker({}, lambda: "typed")() == b"typed"
    assert asker({}, nobody_types)() is None
    with pytest.raises(KeystoreError, match="cannot be read"):
        given_passphrase({"VEEN_KEYSTORE_PASSPHRASE_FILE": str(tmp_path / "none")})


def nobody_types() -> str | None:
    return None


def test_rotation_changes_the_client_key_and_keeps_what_opens_old_messages() -> None:
    later = SECRETS.rotated(os.urandom, NOW + 5)
    assert later.client.signing_key.public_key != SECRETS.client.signing_key.public_key
    assert later.identity.public_key == SECRETS.identity.public_key
    assert later.prekeys[0] == SECRETS.prekeys[0]
    assert SECRETS.client_ids() < later.client_ids()
    stream = labels.stream_id("s")
    old = {key.public_key for key in SECRETS.reader_keys(stream)}
    assert old < {key.public_key for key in later.reader_keys(stream)}


def test_a_card_shows_only_prekeys_that_are_good() -> None:
    later = SECRETS.rotated(os.urandom, NOW + PREKEY_SEC)
    card = later.card(NOW + PREKEY_SEC)
    card.verify()
    assert [item.expires_at for item in card.prekeys] == [NOW + 2 * PREKEY_SEC]
    assert card.seal_key(NOW + PREKEY_SEC) == card.prekeys[0].key
    assert card.seal_key(NOW + 2 * PREKEY_SEC) == card.id_dh, "an expired prekey is not sealed to"
