"""Rows 3 to 9: what a message shows by itself."""

import pytest

from tests import builders, rawcbor
from tests.admission.defects import BASELINE
from tests.admission.memory_hub import LIMITS, PROFILE
from tests.expect import refused
from veen.admission.prefilter import prefilter
from veen.admission.stages import Sized
from veen.admission.stateless import MessageRules, authenticate, read_msg, read_request
from veen.core.crypto.hash import sha256
from veen.core.errors import Code, Detail
from veen.core.limits import DEFAULT_LIMITS
from veen.core.objects.msg import Msg
from veen.core.objects.new_entry import NewEntry
from veen.core.types import AuthRef

UNPADDED = builders.profile(pad_block=0)
RULES = MessageRules(LIMITS, {PROFILE.profile_id: 256, UNPADDED.profile_id: 0})


def message(ciphertext: bytes | None = None, *, padded: bool = True) -> Msg:
    profile = PROFILE if padded else UNPADDED
    context = builders.context(profile_id=profile.profile_id)
    return builders.msg(context, ciphertext=ciphertext, pad_block=256 if padded else 0)


def test_a_request_and_a_bare_message_are_read_alike() -> None:
    msg = message()
    request = builders.submit_request(msg).encode()
    for read in (read_request(Sized(request), RULES), read_msg(Sized(msg.encode()), RULES)):
        assert read == msg
        assert authenticate(read) == NewEntry.of_msg(msg)


def test_a_bare_message_has_the_limit_of_a_message() -> None:
    at_most = Msg.sign(
        builders.signing_key(),
        builders.context(profile_id=UNPADDED.profile_id),
        message(padded=False).ciphertext.ljust(2_048 - 210, b"\0"),
    )
    assert len(at_most.encode()) == 2_048
    read_msg(Sized(at_most.encode()), RULES)
    read_request(Sized(builders.submit_request(at_most).encode()), RULES)
    more = Msg.sign(builders.signing_key(), at_most.context, at_most.ciphertext + b"\0")
    with refused(Detail.SIZE_PREFILTER, code=Code.SIZE):
        read_msg(Sized(more.encode()), RULES)


@pytest.mark.parametrize(
    ("auth_ref", "largest"), [(None, 1_048_272), (AuthRef(builders.digest("a token")), 1_048_239)]
)
def test_the_largest_body_that_fits(auth_ref: AuthRef | None, largest: int) -> None:
    """LIM-011: with a minimal header, the limit on the message is the one that bites."""
    rules = MessageRules(DEFAULT_LIMITS, {UNPADDED.profile_id: 0})
    context = builders.context(profile_id=UNPADDED.profile_id, auth_ref=auth_ref)

    def request(body_len: int) -> bytes:
        ciphertext = builders.sealed(context, body=bytes(body_len - 16), pad_block=0).ciphertext
        assert int.from_bytes(ciphertext[36:40], "big") == body_len
        return builders.submit_request(builders.msg(context, ciphertext=ciphertext)).encode()

    fits = request(largest)
    assert len(fits) == 1_048_580
    authenticate(read_request(prefilter(fits, DEFAULT_LIMITS, None, None, 0), rules))
    with refused(Detail.SIZE_PREFILTER, code=Code.SIZE):
        prefilter(request(largest + 1), DEFAULT_LIMITS, None, None, 0)


@pytest.mark.parametrize("ver", [0, 2, 2**64 - 1])
def test_the_version_of_the_envelope_counts_too(ver: int) -> None:
    pairs = [(rawcbor.uint(1), rawcbor.uint(ver)), (rawcbor.uint(2), message().encode())]
    with refused(Detail.VERSION, field="ver", code=Code.FORMAT):
        read_request(Sized(rawcbor.mapping(pairs)), RULES)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda _: b"",
        lambda good: good + b"\0",
        lambda good: good[4:],
        lambda good: b"\xa3" + good[1:] + b"\x03\x00",
        lambda good: b"\xb8\x02" + good[1:],
        lambda good: b"\xbf" + good[1:] + b"\xff",
    ],
    ids=["empty", "trailing", "no envelope", "unknown key", "longer head", "indefinite"],
)
def test_what_is_not_the_canonical_envelope_is_refused(spoil: object) -> None:
    assert callable(spoil)
    with refused(Detail.CBOR_INVALID, code=Code.FORMAT):
        read_request(Sized(spoil(builders.submit_request(message()).encode())), RULES)


def test_an_unknown_profile_is_named() -> None:
    rules = MessageRules(LIMITS, {UNPADDED.profile_id: 0})
    with refused(Detail.PROFILE, field="profile_id") as caught:
        read_msg(Sized(message().encode()), rules)
    assert caught.value.fields["actual"] == PROFILE.profile_id


def test_padding_is_zeros_in_any_number_of_blocks() -> None:
    good = message().ciphertext
    read_msg(Sized(message(good + bytes(512)).encode()), RULES)
    for bad in (good[:-1] + b"\1", good + bytes(255), good[:-1]):
        with refused(Detail.CT_PADDING, field="ciphertext", code=Code.FORMAT):
            read_msg(Sized(message(bad).encode()), RULES)


def test_without_a_block_trailing_zeros_are_fine_and_others_are_not() -> None:
    good = message(padded=False).ciphertext
    for fine in (good, good + b"\0", good + bytes(100)):
        read_msg(Sized(message(fine, padded=False).encode()), RULES)
    with refused(Detail.CT_PADDING, field="ciphertext"):
        read_msg(Sized(message(good + b"\0\1", padded=False).encode()), RULES)


def test_the_padding_is_that_of_the_message_s_own_profile() -> None:
    unpadded = message(padded=False).ciphertext
    assert len(unpadded) % 256
    read_msg(Sized(message(unpadded, padded=False).encode()), RULES)
    with refused(Detail.CT_PADDING):
        read_msg(Sized(message(unpadded).encode()), RULES)


def test_a_signature_is_checked_under_the_client_of_the_message() -> None:
    encoded = bytearray(message().encode())
    encoded[-1] ^= 1
    read = read_msg(Sized(bytes(encoded)), RULES)
    with refused(Detail.SIG_INVALID, code=Code.SIG):
        authenticate(read)


def test_no_row_of_a_hub_needs_what_is_sealed() -> None:
    """ADM-018, ADM-031: a body of any bytes is admitted, whatever attachments it speaks of."""
    sealed = builders.sealed(builders.context(profile_id=PROFILE.profile_id)).ciphertext
    noise = (sha256(sealed) * 8)[: len(sealed) - 40]
    lengths = (0).to_bytes(4, "big") + len(noise).to_bytes(4, "big")
    msg = message(sealed[:32] + lengths + noise)
    assert authenticate(read_msg(Sized(msg.encode()), RULES)).leaf_hash == msg.leaf_hash


def test_the_pipeline_gives_the_record_that_is_stored() -> None:
    body, _ = BASELINE.request()
    rules = MessageRules(LIMITS, {PROFILE.profile_id: 256})
    record = authenticate(read_request(Sized(body), rules))
    assert record == NewEntry.of_msg(Msg.decode(record.content))
    assert body.endswith(record.content)
