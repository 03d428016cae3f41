"""32 bytes as 64 hexadecimal digits."""

import re

import pytest

from veen.core.encoding.hexadecimal import HEX32_PATTERN, is_hex32, parse_hex32

DATA = bytes(range(0xE0, 0x100))
NO_HEX32 = (
    "",
    "e0",
    DATA.hex()[2:],
    DATA.hex() + "00",
    DATA.hex() + "\n",
    " " + DATA.hex(),
    DATA.hex(" "),
    DATA.hex()[:-1] + "g",
    "0x" + DATA.hex()[2:],
    DATA.hex()[:-1] + "\u0661",
)


@pytest.mark.parametrize("lower", [False, True])
def test_64_digits_are_32_bytes(*, lower: bool) -> None:
    assert parse_hex32(DATA.hex(), lower=lower) == DATA
    assert is_hex32(DATA.hex(), lower=lower)
    assert re.fullmatch(HEX32_PATTERN, DATA.hex())


@pytest.mark.parametrize("text", NO_HEX32)
@pytest.mark.parametrize("lower", [False, True])
def test_another_text_is_rejected(text: str, *, lower: bool) -> None:
    assert not is_hex32(text, lower=lower)
    with pytest.raises(ValueError, match="64 "):
        parse_hex32(text, lower=lower)


def test_upper_case_is_rejected_where_one_form_is_required() -> None:
    text = DATA.hex().upper()
    assert parse_hex32(text) == DATA
    assert not is_hex32(text, lower=True)
    with pytest.raises(ValueError, match="lowercase"):
        parse_hex32(text, lower=True)
