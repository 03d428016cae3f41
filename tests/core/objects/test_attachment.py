"""Attachments: sealed apart from the message, addressed by content, and committed to by one root."""

from hashlib import sha256
from typing import Any

import pytest
from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_decrypt as decrypt

from tests.builders import (
    context,
    counted_random,
    digest,
    msg,
    payload_header,
    reader_key,
    reader_public,
    sealed,
)
from tests.expect import refused
from veen.core.crypto import hpke
from veen.core.errors import Code, Detail, Stage
from veen.core.limits import DEFAULT_LIMITS, Limits
from veen.core.objects.attachment import EMPTY_ATT_ROOT, att_root, check_counts, verify_root
from veen.core.objects.msg import attachment_nonce
from veen.core.objects.sealed_payload import OpenedPayload, Sealed, Sealer, open_msg
from veen.core.types import Coid

FILES = (b"first", b"", b"third " * 100)
SIZES = tuple(len(item) for item in FILES)


def coids(number: int) -> list[Coid]:
    return [Coid(digest(f"coid {index}")) for index in range(number)]


def node(left: bytes, right: bytes) -> bytes:
    return sha256(b"veen/att-node\x00" + left + right).digest()


def root(*peaks: bytes) -> bytes:
    return sha256(b"veen/att-root\x00" + b"".join(peaks)).digest()


# --- the root -----------------------------------------------------------------------------------------------


def test_the_root_is_always_hashed_for_no_one_and_many_peaks() -> None:
    a, b, c, d, e = coids(5)
    assert att_root([]) == root() == EMPTY_ATT_ROOT
    assert att_root([a]) == root(a)
    assert att_root([a, b]) == root(node(a, b))
    assert att_root([a, b, c]) == root(c, node(a, b))
    assert att_root([a, b, c, d]) == root(node(node(a, b), node(c, d)))
    assert att_root([a, b, c, d, e]) == root(e, node(node(a, b), node(c, d)))


def test_the_empty_root_is_the_published_one() -> None:
    assert EMPTY_ATT_ROOT.hex() == "d8502e2b7365f07d065ff0ef5d1237b733d31554ac4b5e7dd806b6e15552d311"


def test_a_lone_coid_is_not_its_own_root() -> None:
    (only,) = coids(1)
    assert att_root([only]) != only


def test_order_and_number_matter() -> None:
    made = coids(7)
    roots = {att_root(made), att_root(made[::-1]), att_root(made[:-1]), att_root([*made, made[0]])}
    assert len(roots) == 4


def test_a_coid_of_another_length_is_refused() -> None:
    for count in (0, 1, 2):
        with refused(Detail.FIELD_SIZE):
            att_root([*coids(count), Coid(b"short")])


def test_a_declared_root_is_compared_with_the_attachments_at_hand() -> None:
    made = coids(3)
    verify_root(att_root(made), made)
    verify_root(None, [])
    verify_root(EMPTY_ATT_ROOT, [])
    for declared, given in (
        (None, made),
        (att_root(made), made[:2]),
        (att_root(made), made[::-1]),
        (att_root(made), []),
        (EMPTY_ATT_ROOT, made),
        (made[0], made[:1]),
    ):
        with refused(Detail.ATT_ROOT, field="att_root", code=Code.FORMAT) as caught:
            verify_root(declared, given)
        assert caught.value.stage == Stage.STRUCTURAL


# --- sealing and opening ------------------------------------------------------------------------------------


def make(files: tuple[bytes, ...] = FILES) -> tuple[Sealed, OpenedPayload]:
    made = sealed(attachments=files)
    return made, open_msg(msg(ciphertext=made.ciphertext), reader_key(), pad_block=256)


def test_an_attachment_is_what_its_formula_says() -> None:
    made, _ = make()
    receiver = hpke.setup_receiver(made.ciphertext[:32], reader_key())
    for index, (item, plaintext) in enumerate(zip(made.attachments, FILES, strict=True)):
        number = index.to_bytes(8, "big")
        key = receiver.export(b"veen/att-k" + number)
        nonce = sha256(b"veen/att-nonce\x00" + context().aad() + number).digest()[:24]
        assert nonce == attachment_nonce(context().aad(), index)
        assert decrypt(item, b"", nonce, key) == plaintext
        assert made.coids[index] == sha256(item).digest()
        assert len(item) == len(plaintext) + 16


def test_the_header_commits_to_the_attachments() -> None:
    made, opened = make()
    assert opened.header.att_root == made.att_root == att_root(made.coids)
    without, opened_without = make(())
    assert opened_without.header.att_root is without.att_root is None
    assert (without.attachments, without.coids) == ((), ())


def test_a_reader_opens_all_of_them_or_one_by_its_index() -> None:
    made, opened = make()
    assert opened.open_attachments(made.attachments, SIZES) == FILES
    assert opened.open_attachment(2, made.attachments[2]) == FILES[2]
    assert make(())[1].open_attachments([], []) == ()


def test_equal_attachments_have_different_ciphertexts() -> None:
    made, _ = make((b"same", b"same"))
    assert made.attachments[0] != made.attachments[1]


def test_attachments_sealed_one_by_one_are_the_same() -> None:
    made, _ = make()
    sealer = Sealer(context(), recipient=reader_public(), random=counted_random())
    assert tuple(sealer.attach(item) for item in FILES) == made.attachments
    done = sealer.finish(header=payload_header(), body=b"hello", pad_block=256)
    assert (done.ciphertext, done.coids, done.att_root) == (made.ciphertext, made.coids, made.att_root)


def test_a_given_att_root_must_be_the_one_of_the_attachments() -> None:
    made, _ = make()
    again = sealed(header=payload_header(att_root=made.att_root), attachments=FILES)
    assert again.ciphertext == made.ciphertext
    with refused(Detail.ATT_ROOT, field="att_root"):
        sealed(header=payload_header(att_root=digest("other")), attachments=FILES)
    with refused(Detail.ATT_ROOT, field="att_root"):
        sealed(header=payload_header(att_root=EMPTY_ATT_ROOT), attachments=FILES)


# --- what is refused ----------------------------------------------------------------------------------------


def test_missing_added_swapped_or_changed_attachments_are_refused() -> None:
    made, opened = make()
    first, second, third = made.attachments
    with refused(Detail.ATT_ROOT, field="att_root"):
        opened.open_attachments([third, second, first], [SIZES[2], SIZES[1], SIZES[0]])
    with refused(Detail.ATT_ROOT, field="att_root"):
        opened.open_attachments([first, second], SIZES[:2])
    with refused(Detail.ATT_ROOT, field="att_root"):
        opened.open_attachments([], [])
    with refused(Detail.ATT_ROOT, field="att_root"):
        opened.open_attachments([*made.attachments, first], [*SIZES, SIZES[0]])
    changed = bytes((first[0] ^ 1,)) + first[1:]
    with refused(Detail.ATT_ROOT, field="att_root"):
        opened.open_attachments([changed, second, third], SIZES)


def test_number_and_sizes_must_be_those_that_the_body_declares() -> None:
    made, opened = make()
    with refused(Detail.ATT_ROOT, field="attachments") as caught:
        opened.open_attachments(made.attachments, SIZES[:2])
    assert caught.value.fields == {"field": "attachments", "expected": 2, "actual": 3}
    for difference in (-1, 1):
        with refused(Detail.ATT_ROOT, field="attachments"):
            opened.open_attachments(made.attachments, [SIZES[0] + difference, *SIZES[1:]])
    with refused(Detail.ATT_ROOT, field="attachments"):
        opened.open_attachments([b"x", *made.attachments[1:]], SIZES)


def test_a_message_without_attachments_takes_none() -> None:
    opened = make(())[1]
    with refused(Detail.ATT_ROOT, field="att_root"):
        opened.open_attachments([bytes(16)], [0])


def test_one_that_is_not_of_this_message_does_not_open() -> None:
    made, opened = make()
    for index, wrong in (
        (1, made.attachments[0]),
        (0, made.attachments[0][:-1]),
        (0, made.attachments[0] + b"\x00"),
        (0, b""),
        (0, bytes(15)),
        (0, bytes(16)),
        (2**64 - 1, made.attachments[0]),
    ):
        with refused(Detail.ATT_AEAD, code=Code.OPEN) as caught:
            opened.open_attachment(index, wrong)
        assert caught.value.stage == Stage.OPEN
    other = sealed(context(client_seq=2), attachments=FILES, random=counted_random("other"))
    with refused(Detail.ATT_AEAD):
        opened.open_attachment(0, other.attachments[0])


def test_an_attachment_is_bound_to_its_message_even_under_one_hpke_context() -> None:
    made, opened = make()
    same_context = sealed(context(client_seq=2), attachments=FILES)
    assert same_context.ciphertext[:32] == made.ciphertext[:32]
    with refused(Detail.ATT_AEAD):
        opened.open_attachment(0, same_context.attachments[0])


# --- limits -------------------------------------------------------------------------------------------------


def test_the_number_is_limited_for_senders_and_readers() -> None:
    files = (b"a", b"b", b"c")
    made, opened = make(files)
    limits = Limits(max_attachments_per_msg=2)
    with refused(Detail.FIELD_SIZE, field="attachments", code=Code.SIZE) as caught:
        sealed(attachments=files, limits=limits)
    assert caught.value.fields["max_allowed"] == 2
    with refused(Detail.FIELD_SIZE, field="attachments"):
        opened.open_attachments(made.attachments, [1, 1, 1], limits)
    assert len(sealed(attachments=files[:2], limits=limits).coids) == 2


def test_1024_attachments_are_accepted_and_1025_are_not() -> None:
    files = (b"",) * 1_024
    made, opened = make(files)
    assert opened.open_attachments(made.attachments, [0] * 1_024) == files
    with refused(Detail.FIELD_SIZE, field="attachments"):
        sealed(attachments=(b"",) * 1_025)
    with refused(Detail.FIELD_SIZE, field="attachments"):
        check_counts([b""] * 1_025, [0] * 1_025, DEFAULT_LIMITS)


def test_the_size_of_each_is_limited_for_senders_and_readers() -> None:
    limits = Limits(max_attachment_bytes=10)
    made, opened = make((bytes(10), bytes(11)))
    with refused(Detail.FIELD_SIZE, field="attachments") as caught:
        sealed(attachments=(bytes(10), bytes(11)), limits=limits)
    assert (caught.value.fields["actual"], caught.value.fields["max_allowed"]) == (11, 10)
    with refused(Detail.FIELD_SIZE, field="attachments"):
        opened.open_attachments(made.attachments, [10, 11], limits)
    assert sealed(attachments=(bytes(10),), limits=limits).coids


def test_number_and_sizes_are_judged_before_the_root_is_computed() -> None:
    _, opened = make()
    wrong: Any = [None] * 1_025
    with refused(Detail.FIELD_SIZE, field="attachments"):
        opened.open_attachments(wrong, [0] * 1_025)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8, 9])
def test_the_root_a_sender_writes_is_the_one_that_a_reader_computes(count: int) -> None:
    files = tuple(bytes((index,)) for index in range(count))
    made, opened = make(files)
    assert opened.open_attachments(made.attachments, [1] * count) == files
