"""Values of options."""

import pytest

from veen.cli.errors import USAGE, CommandError
from veen.cli.options import hex32, hex32_or_none, parse_number


def test_an_id_in_hex() -> None:
    assert hex32("Ab" * 32, "--label") == b"\xab" * 32
    assert hex32_or_none("ab" * 32, "--label") == b"\xab" * 32
    assert hex32_or_none("", "--label") is None


@pytest.mark.parametrize("text", ["", "ab", "ab" * 33, "ab " * 32, "zz" * 32])
def test_another_text_is_a_usage_error(text: str) -> None:
    with pytest.raises(CommandError, match="--label takes 64 hex digits, not ") as raised:
        hex32(text, "--label")
    assert raised.value.exit_code == USAGE


def test_a_number_has_the_size_of_64_bits() -> None:
    assert parse_number("0") == 0
    assert parse_number("18446744073709551615") == 2**64 - 1


@pytest.mark.parametrize("text", ["", "-1", "1.0", "\u00b2", "\u0663", "9" * 5000])
def test_another_text_is_not_a_number(text: str) -> None:
    assert parse_number(text) is None
