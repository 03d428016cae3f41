"""Attachments of the vectors, opened again: the adapter has no operation for it."""

from itertools import pairwise
from typing import Any

import pytest

from tests.expect import refused
from tests.vectors import files
from veen.core.crypto.hpke import ReaderKey
from veen.core.errors import Detail
from veen.core.objects.msg import Msg
from veen.core.objects.sealed_payload import OpenedPayload, open_msg
from veen.core.types import ReaderSecretKey

READER = ReaderKey.from_secret(ReaderSecretKey(bytes([0x51]) * 32))


def _sealed() -> list[tuple[list[bytes], list[bytes], bytes]]:
    """Return (plaintexts, ciphertexts, message) of each case that seals attachments and opens the message."""
    cases = files.cases("attachments/seal")
    found = []
    for case, following in pairwise(cases):
        if following["request"]["op"] == "open":
            plain = [bytes.fromhex(item) for item in case["request"]["attachments"]]
            sealed = [bytes.fromhex(item) for item in case["expect"]["attachments"]]
            found.append((plain, sealed, bytes.fromhex(following["request"]["msg"])))
    return found


def _open(msg: bytes) -> OpenedPayload:
    return open_msg(Msg.decode(msg), READER, pad_block=0)


@pytest.mark.parametrize(
    ("plain", "sealed", "msg"), _sealed(), ids=[f"{len(plain)} attachments" for plain, _, _ in _sealed()]
)
def test_attachments_open(plain: list[bytes], sealed: list[bytes], msg: bytes) -> None:
    opened = _open(msg)
    sizes = [len(item) for item in plain]
    assert opened.open_attachments(sealed, sizes) == tuple(plain)
    for index, item in enumerate(sealed):
        assert opened.open_attachment(index, item) == plain[index]


def _three() -> tuple[list[bytes], list[int], OpenedPayload]:
    plain, sealed, msg = next(found for found in _sealed() if len(found[0]) == 3)
    return sealed, [len(item) for item in plain], _open(msg)


def _changes() -> dict[str, Any]:
    return {
        "one missing": lambda sealed, sizes: (sealed[:2], sizes),
        "one missing, and not declared": lambda sealed, sizes: (sealed[:2], sizes[:2]),
        "one too many": lambda sealed, sizes: ([*sealed, sealed[0]], sizes),
        "another order": lambda sealed, sizes: (sealed[::-1], sizes[::-1]),
        "a size too small": lambda sealed, sizes: (sealed, [sizes[0] - 1, *sizes[1:]]),
        "a size too large": lambda sealed, sizes: (sealed, [*sizes[:2], sizes[2] + 1]),
        "a flipped bit": lambda sealed, sizes: (
            [bytes([sealed[0][0] ^ 1]) + sealed[0][1:], *sealed[1:]],
            sizes,
        ),
        "none": lambda _sealed, _sizes: ([], []),
    }


@pytest.mark.parametrize("change", _changes().values(), ids=_changes())
def test_other_attachments_are_refused(change: Any) -> None:
    sealed, sizes, opened = _three()
    with refused(Detail.ATT_ROOT):
        opened.open_attachments(*change(sealed, sizes))


def test_an_attachment_opens_only_at_its_index() -> None:
    sealed, _, opened = _three()
    for index, other in ((0, 1), (1, 0), (0, 2), (3, 0)):
        with refused(Detail.ATT_AEAD):
            opened.open_attachment(index, sealed[other])


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17])
def test_bytes_that_are_no_attachment_do_not_open(size: int) -> None:
    with refused(Detail.ATT_AEAD):
        _three()[2].open_attachment(0, bytes(size))
