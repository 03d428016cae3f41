"""Capability tokens: minting, renewal, and tokens that must not verify (001 section 6)."""

from collections.abc import Iterator

from vectors.generators import fixed, raw, samples
from vectors.generators.fixed import CLIENT_ID, ISSUER_PK, ISSUER_SEED, STREAM_ID, U64_MAX, ZERO_32, h, ht
from vectors.generators.scenario import (
    CAP_INVALID,
    CBOR_INVALID,
    FIELD_SIZE,
    VERSION,
    Failure,
    Fields,
    Scenario,
    ask,
)

_STREAMS = sorted(h(f"stream {number}".encode()) for number in range(3))
_FIRST_PREV = bytes(64)


def _allow(streams: list[bytes], ttl: int = 3600, rate: bytes | None = None) -> bytes:
    pairs = [(1, raw.array(*map(raw.bstr, streams))), (2, raw.uint(ttl))]
    return raw.keyed(*pairs, *([] if rate is None else [(3, rate)]))


def _unsigned(allow: bytes, issuer_pk: bytes = ISSUER_PK) -> list[tuple[int, bytes]]:
    return [(1, raw.uint(1)), (2, raw.bstr(issuer_pk)), (3, raw.bstr(CLIENT_ID)), (4, allow)]


def _digest(unsigned: list[tuple[int, bytes]], previous: bytes) -> bytes:
    return ht("veen/cap-link", raw.keyed(*unsigned) + previous)


def _signed(unsigned: list[tuple[int, bytes]], *links: bytes) -> bytes:
    """Return the token with these links, or with one valid link."""
    if not links:
        links = (fixed.key(ISSUER_SEED).sign(_digest(unsigned, _FIRST_PREV)),)
    return raw.keyed(*unsigned, (5, raw.array(*map(raw.bstr, links))))


def _trace(token: bytes) -> Fields:
    """Return the digest that each link of a token signs."""
    pairs = raw.split_map(token)
    unsigned = raw.mapping(*pairs[:4])
    digests = []
    previous = _FIRST_PREV
    for link in raw.split(pairs[4][1]):
        digests.append(ht("veen/cap-link", unsigned + previous))
        previous = link[2:]
    return {"unsigned": unsigned, "link_digests": digests, "token_hash": h(token)}


def _mints(s: Scenario, name: str, **changes: object) -> None:
    token = samples.token(**changes)
    s.ok(name, "cap_mint", intermediate=_trace(token), **samples.mint_request(**changes))
    s.ok(f"{name}, verified", "cap_verify", token=token)
    s.round_trip(f"{name}, decoded", "cap_token", token)


def minting() -> Scenario:
    """Return minted tokens."""
    s = Scenario(
        "cap_token/mint",
        "Each link signs the token without its chain and the link before; auth_ref hashes the whole token.",
    )
    _mints(s, "one stream, no rate")
    _mints(s, "with a rate", rate=[5, 10])
    _mints(s, "three streams", stream_ids=_STREAMS)
    _mints(s, "ttl 0", ttl=0)
    _mints(s, "largest numbers", ttl=U64_MAX, rate=[U64_MAX, U64_MAX])
    _mints(s, "rate of zeros", rate=[0, 0])
    unsorted = [_STREAMS[2], _STREAMS[0], _STREAMS[1], _STREAMS[0]]
    s.ok("streams are sorted, repetitions dropped", "cap_mint", **samples.mint_request(stream_ids=unsorted))
    _mints(s, "issuer as subject", subject_pk=ISSUER_PK)
    return s


def renewal() -> Scenario:
    """Return renewed tokens."""
    s = Scenario(
        "cap_token/renew",
        "A renewal appends a link, seven times at most; every prefix of a chain is a token too.",
    )
    for links in range(1, 9):
        _mints(s, f"{links} links", links=links)
    s.fails("nine links", FIELD_SIZE, "cap_mint", **samples.mint_request(links=9))
    return s


def chains_refused() -> Scenario:
    """Return tokens whose chain does not verify."""
    s = Scenario(
        "cap_token/chains_refused", "Every link verifies under the issuer, over these bytes, in this order."
    )
    issuer, subject, stranger = (
        fixed.key(ISSUER_SEED),
        fixed.key(fixed.CLIENT_SEED),
        fixed.key(fixed.OTHER_CLIENT_SEED),
    )
    unsigned = _unsigned(_allow([STREAM_ID]))
    plain = raw.keyed(*unsigned)
    pairs = raw.split_map(samples.token(links=3))
    one, two, three = (link[2:] for link in raw.split(pairs[4][1]))
    allow = unsigned[3][1]
    legacy = ISSUER_PK + CLIENT_ID + allow
    legacy_one = issuer.sign(ht("veen/cap-link", legacy + ZERO_32))
    legacy_two = issuer.sign(ht("veen/cap-link", legacy + h(legacy_one)))
    cases: tuple[tuple[str, tuple[bytes, ...]], ...] = (
        ("first link forged", (bytes(64),)),
        ("last link forged", (one, two, bytes(64))),
        ("middle link forged", (one, bytes(64), three)),
        ("links exchanged", (two, one)),
        ("first link missing", (two, three)),
        ("middle link missing", (one, three)),
        ("a link twice", (one, one)),
        ("signed by the subject", (subject.sign(_digest(unsigned, _FIRST_PREV)),)),
        ("delegated: second link by the subject", (one, subject.sign(_digest(unsigned, one)))),
        ("second link by a stranger", (one, stranger.sign(_digest(unsigned, one)))),
        ("second link over zeros instead of the first", (one, issuer.sign(_digest(unsigned, _FIRST_PREV)))),
        ("second link over the hash of the first", (one, issuer.sign(_digest(unsigned, h(one))))),
        ("first link over nothing", (issuer.sign(_digest(unsigned, b"")),)),
        ("first link over 32 zero bytes", (issuer.sign(_digest(unsigned, ZERO_32)),)),
        ("the bytes themselves signed, not hashed", (issuer.sign(plain + _FIRST_PREV),)),
        ("the older tag", (issuer.sign(ht("vesn/cap-link", plain + _FIRST_PREV)),)),
        ("the tag of auth_ref", (issuer.sign(ht("veen/cap", plain + _FIRST_PREV)),)),
        ("a map head of five", (issuer.sign(ht("veen/cap-link", b"\xa5" + plain[1:] + _FIRST_PREV)),)),
        ("an empty chain in what is signed",
         (issuer.sign(ht("veen/cap-link", raw.keyed(*unsigned, (5, raw.array())) + _FIRST_PREV)),)),
        ("fields joined, as older documents had it", (legacy_one,)),
        ("fields joined, two links", (legacy_one, legacy_two)),
    )  # fmt: skip
    for name, links in cases:
        s.fails(name, CAP_INVALID, "cap_verify", token=_signed(unsigned, *links))
    s.refuses("no links", CAP_INVALID, "cap_token", raw.keyed(*unsigned, (5, raw.array())))
    s.fails("no links, verified", CAP_INVALID, "cap_verify", token=raw.keyed(*unsigned, (5, raw.array())))
    nine = [one]
    while len(nine) < 9:
        nine.append(issuer.sign(_digest(unsigned, nine[-1])))
    s.ok("eight links", "cap_verify", token=_signed(unsigned, *nine[:8]))
    s.fails("nine links, all of them good", FIELD_SIZE, "cap_verify", token=_signed(unsigned, *nine))
    return s


def altered() -> Scenario:
    """Return tokens that were changed after signing."""
    s = Scenario("cap_token/altered", "Whatever of a token is changed after signing, it does not verify.")
    pairs = raw.split_map(samples.token(rate=[5, 10]))
    issuer = raw.bstr(fixed.key(fixed.OTHER_CLIENT_SEED).public_key)

    def rate(per_sec: int, burst: int) -> bytes:
        return raw.keyed((1, raw.uint(per_sec)), (2, raw.uint(burst)))

    for name, key, item in (
        ("issuer_pk", 2, issuer),
        ("subject_pk", 3, raw.bstr(ZERO_32)),
        ("stream", 4, _allow([ZERO_32], rate=rate(5, 10))),
        ("a stream more", 4, _allow(sorted([STREAM_ID, ZERO_32]), rate=rate(5, 10))),
        ("ttl", 4, _allow([STREAM_ID], ttl=3601, rate=rate(5, 10))),
        ("per_sec", 4, _allow([STREAM_ID], rate=rate(6, 10))),
        ("burst", 4, _allow([STREAM_ID], rate=rate(5, 11))),
        ("rate dropped", 4, _allow([STREAM_ID])),
    ):
        changed = raw.mapping(*pairs[: key - 1], (raw.uint(key), item), *pairs[key:])
        s.fails(name, CAP_INVALID, "cap_verify", token=changed)
    bare = raw.split_map(samples.token())
    added = raw.mapping(*bare[:3], (raw.uint(4), _allow([STREAM_ID], rate=rate(1, 1))), bare[4])
    s.fails("rate added", CAP_INVALID, "cap_verify", token=added)
    return s


def grants_refused() -> Scenario:
    """Return tokens with valid signatures that grant what cannot be granted."""
    s = Scenario(
        "cap_token/grants_refused",
        "Streams ascend strictly and are at least one; maps hold known keys only, no null.",
    )
    stream, ttl = raw.array(raw.bstr(STREAM_ID)), raw.uint(1)
    rate = raw.keyed((1, raw.uint(1)), (2, raw.uint(1)))
    cases: tuple[tuple[str, Failure, bytes], ...] = (
        ("streams descending", CAP_INVALID, _allow(_STREAMS[::-1])),
        ("two streams exchanged", CAP_INVALID, _allow([_STREAMS[0], _STREAMS[2], _STREAMS[1]])),
        ("a stream twice", CAP_INVALID, _allow([STREAM_ID, STREAM_ID])),
        ("no streams", CAP_INVALID, _allow([])),
        ("stream of 31 bytes", FIELD_SIZE, _allow([bytes(31)])),
        ("stream of 33 bytes", FIELD_SIZE, _allow([bytes(33)])),
        ("stream null", CBOR_INVALID, raw.keyed((1, raw.array(raw.NULL)), (2, ttl))),
        ("stream as text", CBOR_INVALID, raw.keyed((1, raw.array(raw.tstr("test"))), (2, ttl))),
        ("a lone stream, not in a list", CBOR_INVALID, raw.keyed((1, raw.bstr(STREAM_ID)), (2, ttl))),
        ("ttl missing", CBOR_INVALID, raw.keyed((1, stream))),
        ("ttl null", CBOR_INVALID, raw.keyed((1, stream), (2, raw.NULL))),
        ("ttl negative", CBOR_INVALID, raw.keyed((1, stream), (2, b"\x20"))),
        ("streams missing", CBOR_INVALID, raw.keyed((2, ttl))),
        ("rate null", CBOR_INVALID, raw.keyed((1, stream), (2, ttl), (3, raw.NULL))),
        ("rate as a list", CBOR_INVALID, raw.keyed((1, stream), (2, ttl), (3, raw.array(ttl, ttl)))),
        ("rate empty", CBOR_INVALID, raw.keyed((1, stream), (2, ttl), (3, raw.keyed()))),
        ("burst missing", CBOR_INVALID, raw.keyed((1, stream), (2, ttl), (3, raw.keyed((1, ttl))))),
        ("per_sec missing", CBOR_INVALID, raw.keyed((1, stream), (2, ttl), (3, raw.keyed((2, ttl))))),
        ("per_sec as text", CBOR_INVALID,
         raw.keyed((1, stream), (2, ttl), (3, raw.keyed((1, raw.tstr("1")), (2, ttl))))),
        ("unknown key in the rate", CBOR_INVALID,
         raw.keyed((1, stream), (2, ttl), (3, raw.keyed((1, ttl), (2, ttl), (3, ttl))))),
        ("keys of the rate exchanged", CBOR_INVALID,
         raw.keyed((1, stream), (2, ttl), (3, raw.keyed((2, ttl), (1, ttl))))),
        ("unknown key in the grant", CBOR_INVALID, raw.keyed((1, stream), (2, ttl), (3, rate), (4, ttl))),
        ("keys of the grant exchanged", CBOR_INVALID, raw.keyed((2, ttl), (1, stream))),
    )  # fmt: skip
    for name, failure, allow in cases:
        s.fails(name, failure, "cap_verify", token=_signed(_unsigned(allow)))
    two = [(1, raw.uint(2)), *_unsigned(_allow([STREAM_ID]))[1:]]
    s.fails("version 2", VERSION, "cap_verify", token=_signed(two))
    issued = [
        *_unsigned(_allow([STREAM_ID])),
        (5, raw.array(raw.bstr(bytes(64)))),
        (6, raw.uint(fixed.HUB_TS)),
    ]
    s.fails("an issued_at field", CBOR_INVALID, "cap_verify", token=raw.keyed(*issued))
    return s


def references() -> Scenario:
    """Return auth_ref, and the other hash of a token."""
    s = Scenario(
        "cap_token/references",
        "Messages refer to a token by Ht over it; a revocation of the token itself refers to it by plain H.",
    )
    for links in (1, 2):
        token = samples.token(links=links)
        s.ok(f"{links} links: auth_ref", "ht", tag="veen/cap", data=token)
        s.ok(f"{links} links: target of a revocation", "h", data=token)
        assert ask("cap_verify", token=token)["auth_ref"] == ht("veen/cap", token).hex()
    return s


def scenarios() -> Iterator[Scenario]:
    """Yield the scenarios of this module."""
    yield minting()
    yield renewal()
    yield chains_refused()
    yield altered()
    yield grants_refused()
    yield references()
