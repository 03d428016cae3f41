"""Hashes and fixed-width integers."""

from hashlib import sha256

import pytest

from tests.expect import refused
from veen.core.errors import Detail
from veen.core.hashing import h, ht, tag_prefix, trunc_24, u32be, u64be


def test_h_is_plain_sha_256() -> None:
    assert h(b"abc").hex() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert h(b"").hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_a_tagged_hash_separates_tag_and_data_by_a_zero_byte() -> None:
    assert ht("veen/leaf", b"data") == sha256(b"veen/leaf\x00data").digest()
    assert ht("veen/leaf", b"data") == h(tag_prefix("veen/leaf") + b"data")
    assert ht("veen/a", b"b") != ht("veen/ab", b"")


@pytest.mark.parametrize(("value", "expected"), [(0, "00" * 8), (1, "00" * 7 + "01"), (2**64 - 1, "ff" * 8)])
def test_u64be_is_big_endian(value: int, expected: str) -> None:
    assert u64be(value).hex() == expected


@pytest.mark.parametrize(("value", "expected"), [(0, "00000000"), (258, "00000102"), (2**32 - 1, "ffffffff")])
def test_u32be_is_big_endian(value: int, expected: str) -> None:
    assert u32be(value).hex() == expected


def test_numbers_that_do_not_fit_are_refused() -> None:
    for wide in (-1, 2**64):
        with refused(Detail.VALUE):
            u64be(wide)
    for narrow in (-1, 2**32):
        with refused(Detail.VALUE):
            u32be(narrow)


def test_a_nonce_is_the_first_24_bytes() -> None:
    assert trunc_24(bytes(range(32))) == bytes(range(24))
