"""Hashes and fixed-width integers."""

import hashlib

import pytest

from tests.expect import refused
from veen.core.crypto.hash import sha256, tag_prefix, tagged_hash, trunc_24, u32be, u64be
from veen.core.errors import Detail


def test_h_is_plain_sha_256() -> None:
    assert sha256(b"abc").hex() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256(b"").hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_a_tagged_hash_separates_tag_and_data_by_a_zero_byte() -> None:
    assert tagged_hash("veen/leaf", b"data") == hashlib.sha256(b"veen/leaf\x00data").digest()
    assert tagged_hash("veen/leaf", b"data") == sha256(tag_prefix("veen/leaf") + b"data")
    assert tagged_hash("veen/a", b"b") != tagged_hash("veen/ab", b"")


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
