"""Capability tokens: minting, renewing, the chain of signatures, and what makes a token malformed."""

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any

import cbor2
import pytest

from tests import rawcbor as raw
from tests.builders import cap_token, digest, rate, signing_key, stream, unsigned, verify_key
from tests.expect import faulty, refused
from veen.core.crypto import ed25519
from veen.core.errors import Code, Detail, Fault, Stage
from veen.core.limits import Limits
from veen.core.objects.capability import Allow, CapToken
from veen.core.types import Signature, StreamId, VerifyKey


def link_digest(token: CapToken, prev: bytes) -> bytes:
    """Return what a link signs, written out: the first four pairs as a map, and the link before."""
    content = cbor2.loads(token.encode())
    unsigned_map = cbor2.dumps({key: content[key] for key in (1, 2, 3, 4)}, canonical=True)
    assert unsigned_map[0] == 0xA4
    return sha256(b"veen/cap-link\x00" + unsigned_map + prev).digest()


@pytest.mark.parametrize("with_rate", [None, rate()])
@pytest.mark.parametrize("links", [1, 2, 8])
def test_each_link_signs_the_token_without_its_chain_and_the_link_before(links: int, with_rate: Any) -> None:
    token = cap_token(links=links, rate=with_rate, streams=("a", "b"))
    prev = bytes(64)
    for link in token.sig_chain:
        ed25519.verify(token.issuer_pk, link_digest(token, prev), link)
        prev = link
    token.verify()
    CapToken.decode(token.encode()).verify()
    CapToken.from_json(token.to_json()).verify()


def test_the_auth_ref_is_over_the_whole_token() -> None:
    token = cap_token(links=2)
    assert token.auth_ref == sha256(b"veen/cap\x00" + token.encode()).digest()


def test_minting_is_deterministic_and_orders_the_streams() -> None:
    assert cap_token(streams=("a", "b", "c")).encode() == cap_token(streams=("c", "a", "b", "a")).encode()
    ids = cap_token(streams=("a", "b", "c")).allow.stream_ids
    assert list(ids) == sorted({stream("a"), stream("b"), stream("c")})


def test_a_renewal_is_one_more_link_and_another_auth_ref() -> None:
    token = cap_token()
    renewed = token.renew(signing_key("issuer"))
    assert renewed.sig_chain[:-1] == token.sig_chain
    assert renewed.auth_ref != token.auth_ref
    assert renewed.allow == token.allow
    renewed.verify()
    assert renewed.encode() == cap_token(links=2).encode()


def test_every_prefix_of_a_chain_is_a_token_of_its_own() -> None:
    token = cap_token(links=8)
    refs = set()
    for length in range(1, 9):
        prefix = replace(token, sig_chain=token.sig_chain[:length])
        prefix.verify()
        refs.add(prefix.auth_ref)
    assert len(refs) == 8


def test_a_token_can_be_renewed_seven_times() -> None:
    longest = cap_token(links=8)
    with refused(Detail.FIELD_SIZE, field="sig_chain") as caught:
        longest.renew(signing_key("issuer"))
    assert caught.value.fields["max_allowed"] == 8
    assert "issue one with another" in caught.value.message


def test_only_the_issuer_renews() -> None:
    with refused(Detail.CAP_INVALID, field="issuer_pk"):
        cap_token().renew(signing_key("client"))


# --- signatures ---------------------------------------------------------------------------------------------

CHANGES: list[Callable[[CapToken], CapToken]] = [
    lambda token: replace(token, issuer_pk=verify_key("other")),
    lambda token: replace(token, subject_pk=verify_key("other")),
    lambda token: replace(token, allow=replace(token.allow, ttl=token.allow.ttl + 1)),
    lambda token: replace(token, allow=replace(token.allow, rate=None)),
    lambda token: replace(token, allow=replace(token.allow, rate=rate(6, 10))),
    lambda token: replace(token, allow=replace(token.allow, stream_ids=(stream("other"),))),
    lambda token: replace(token, sig_chain=token.sig_chain[::-1]),
    lambda token: replace(token, sig_chain=token.sig_chain[1:]),
    lambda token: replace(token, sig_chain=(*token.sig_chain, token.sig_chain[-1])),
    lambda token: replace(token, sig_chain=(token.sig_chain[0], token.sig_chain[0])),
    lambda token: replace(token, sig_chain=(*token.sig_chain, unsigned())),
    lambda token: replace(token, sig_chain=(unsigned(), *token.sig_chain)),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_anywhere_breaks_the_chain(change: Callable[[CapToken], CapToken]) -> None:
    token = cap_token(links=3, rate=rate())
    with refused(Detail.CAP_INVALID, field="sig_chain", code=Code.CAP) as caught:
        change(token).verify()
    assert caught.value.stage == Stage.AUTH


def test_a_link_by_another_key_is_refused_there_is_no_delegation() -> None:
    token = cap_token()
    by_subject = signing_key("client").sign(link_digest(token, token.sig_chain[-1]))
    with refused(Detail.CAP_INVALID, field="sig_chain") as caught:
        replace(token, sig_chain=(*token.sig_chain, by_subject)).verify()
    assert "link 2" in caught.value.message


def test_the_older_link_preimage_is_refused() -> None:
    token = cap_token()
    old = token.issuer_pk + token.subject_pk + token.allow.encode() + bytes(32)
    link = signing_key("issuer").sign(sha256(b"veen/cap-link\x00" + old).digest())
    with refused(Detail.CAP_INVALID):
        replace(token, sig_chain=(link,)).verify()


def test_a_chain_signed_over_the_hash_of_the_link_before_is_refused() -> None:
    token = cap_token()
    hashed = sha256(token.sig_chain[0]).digest() + bytes(32)
    link = signing_key("issuer").sign(link_digest(token, hashed))
    with refused(Detail.CAP_INVALID):
        replace(token, sig_chain=(*token.sig_chain, link)).verify()


def test_an_issuer_key_of_small_order_is_refused() -> None:
    weak = VerifyKey(b"\x01" + bytes(31))
    always_valid = Signature(b"\x01" + bytes(63))
    with refused(Detail.CAP_INVALID):
        replace(cap_token(), issuer_pk=weak, sig_chain=(always_valid,)).verify()


# --- malformed ----------------------------------------------------------------------------------------------


def with_ids(ids: list[bytes]) -> bytes:
    """Return the bytes of a token that names these streams as they are."""
    token = cap_token()
    allow = raw.with_pair(token.allow.encode(), 1, raw.array([raw.bstr(item) for item in ids]))
    return raw.with_pair(token.encode(), 4, allow)


def test_streams_must_ascend_without_repetition_and_there_must_be_one() -> None:
    low, high = sorted([digest("a"), digest("b")])
    assert CapToken.decode(with_ids([low, high])).allow.stream_ids == (low, high)
    for wrong in ([], [high, low], [low, low], [low, high, high]):
        with refused(Detail.CAP_INVALID, field="allow.stream_ids", code=Code.CAP):
            CapToken.decode(with_ids(wrong))
        with refused(Detail.CAP_INVALID, field="stream_ids"):
            Allow(stream_ids=tuple(StreamId(item) for item in wrong), ttl=1)
    with refused(Detail.CAP_INVALID, field="stream_ids"):
        cap_token(streams=())


def test_at_least_one_link_and_at_most_eight() -> None:
    token = cap_token()
    with refused(Detail.CAP_INVALID, field="sig_chain"):
        replace(token, sig_chain=())
    with refused(Detail.CAP_INVALID, field="sig_chain", code=Code.CAP):
        CapToken.decode(raw.with_pair(token.encode(), 5, b"\x80"))
    nine = raw.array([raw.bstr(bytes(64))] * 9)
    with refused(Detail.FIELD_SIZE, field="sig_chain", code=Code.SIZE):
        CapToken.decode(raw.with_pair(token.encode(), 5, nine))
    with refused(Detail.FIELD_SIZE, field="sig_chain"):
        replace(token, sig_chain=(unsigned(),) * 9)


def test_the_number_of_streams_is_limited() -> None:
    ids = sorted(digest(str(number)) for number in range(257))
    assert len(CapToken.decode(with_ids(ids[:256])).allow.stream_ids) == 256
    with refused(Detail.FIELD_SIZE, field="allow.stream_ids", code=Code.SIZE) as caught:
        CapToken.decode(with_ids(ids))
    assert (caught.value.fields["actual"], caught.value.fields["max_allowed"]) == (257, 256)
    with refused(Detail.FIELD_SIZE, field="allow.stream_ids"):
        CapToken.decode(with_ids(ids[:3]), Limits(max_cap_stream_ids=2))


def test_the_size_of_a_token_is_judged_before_it_is_parsed() -> None:
    with refused(Detail.FIELD_SIZE, code=Code.SIZE) as caught:
        CapToken.decode(b"\xff" * 16_385)
    assert caught.value.fields == {"actual": 16_385, "max_allowed": 16_384}


def test_an_absent_rate_is_left_out_and_never_null() -> None:
    token = cap_token()
    assert token.allow.rate is None
    assert len(raw.pairs(token.allow.encode())) == 2
    allow = raw.with_pair(token.allow.encode(), 3, raw.NULL)
    with faulty(Fault.NULL, field="allow.rate"):
        CapToken.decode(raw.with_pair(token.encode(), 4, allow))


def test_unknown_keys_are_refused_at_all_three_levels() -> None:
    token = cap_token(rate=rate())
    extra_rate = raw.with_pair(rate().encode(), 3, raw.uint(0))
    extra_allow = raw.with_pair(token.allow.encode(), 4, raw.uint(0))
    for wrong in (
        raw.with_pair(token.encode(), 6, raw.uint(0)),
        raw.with_pair(token.encode(), 4, extra_allow),
        raw.with_pair(token.encode(), 4, raw.with_pair(token.allow.encode(), 3, extra_rate)),
    ):
        with faulty(Fault.UNKNOWN_KEY):
            CapToken.decode(wrong)
