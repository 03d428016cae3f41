"""The profile: two numbers to choose, everything else fixed, and an id over all of it."""

from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from tests import rawcbor as raw
from tests.builders import profile
from tests.expect import faulty, refused
from veen.core.errors import Detail, Fault
from veen.core.profile import Profile

ENCODED_60_0 = (
    "a80171786368616368613230706f6c7931333035026b686b64662d73686132353603676564323535313904667832353531390578"
    "235832353531392d484b44462d5348413235362d4348414348413230504f4c593133303506183c07000866736861323536"
)


def test_the_encoding_is_a_map_with_keys_1_to_8() -> None:
    encoded = profile(epoch_sec=60, pad_block=0).encode()
    assert encoded.hex() == ENCODED_60_0
    assert len(encoded) == 101


@pytest.mark.parametrize(
    ("epoch_sec", "pad_block", "expected"),
    [
        (0, 0, "7b6d324dfa79bdc2928558b784ca937eae43f94534dbe8ad2693ae2033240be1"),
        (60, 0, "d0b01ec0b591c1678c64f2bd6cd9e7d8b3e56f6cd839cb66c0d099299a961281"),
        (60, 256, "1db91032b4bf4cd8b9f56a782b299458e6f782d3a1276f04c50c7b02651038ca"),
    ],
)
def test_the_profile_id_is_the_published_one(epoch_sec: int, pad_block: int, expected: str) -> None:
    made = profile(epoch_sec=epoch_sec, pad_block=pad_block)
    assert made.profile_id.hex() == expected
    assert made.profile_id == sha256(b"veen/profile\x00" + made.encode()).digest()


def test_every_number_gives_another_profile_id() -> None:
    numbers = [0, 1, 60, 256, 1024, 3600, 2**64 - 1]
    ids = {profile(epoch_sec=e, pad_block=p).profile_id for e in numbers for p in numbers}
    assert len(ids) == len(numbers) ** 2


def test_there_is_no_default_for_either_number() -> None:
    make: Any = Profile
    with pytest.raises(TypeError):
        make(epoch_sec=0)
    with pytest.raises(TypeError):
        make(pad_block=0)


@pytest.mark.parametrize("name", ["aead", "kdf", "sig", "dh", "hpke_suite", "mmr_hash"])
def test_no_other_algorithm_exists(name: str) -> None:
    index = [field.name for field in Profile.SHAPE.fields].index(name)
    with faulty(Fault.VALUE, field=name):
        Profile.decode(raw.with_pair(profile().encode(), index + 1, raw.tstr("another")))
    form: Any = profile().to_json()
    with faulty(Fault.VALUE, field=name):
        Profile.from_json({**form, name: "another"})
    other: Any = {name: "another"}
    with refused(Detail.VALUE):
        replace(profile(), **other)


def test_a_profile_with_text_keys_is_refused() -> None:
    pairs = zip(raw.elements(profile().encode())[1::2], Profile.SHAPE.fields, strict=True)
    by_name = sorted((raw.tstr(field.name), value) for value, field in pairs)
    with faulty(Fault.TYPE):
        Profile.decode(raw.mapping(by_name))
