"""Ed25519 at its edges: where verifiers differ, all parties of VEEN must agree.

A signature is valid if the cofactorless equation [S]B = R + [k]A of RFC 8032 holds, S is below the group
order, R and A are canonical encodings of points, and A is not of small order.
"""

from collections.abc import Iterator

from vectors.generators import edwards as ed
from vectors.generators import fixed, raw, samples
from vectors.generators.fixed import HUB_PK, HUB_SEED, HUB_TS, ht
from vectors.generators.scenario import CAP_INVALID, SIG_INVALID, Scenario

_SECRET = ed.scalar(HUB_SEED)
_NONCE = ed.scalar(b"nonce")
_R_POINT = ed.times(_NONCE, ed.BASE)


def _digest(hub_ts: int) -> bytes:
    """Return the signed digest of the sample receipt at another time: one message per second."""
    items = raw.split(samples.RECEIPT)
    return ht("veen/sig", raw.array(*items[:5], raw.uint(hub_ts)))


def _receipt(hub_ts: int, sig: bytes) -> bytes:
    items = raw.split(samples.RECEIPT)
    return raw.array(*items[:5], raw.uint(hub_ts), raw.bstr(sig))


def _second(r: bytes, r_part: int, key: bytes, key_part: int, *, cancels: bool = True) -> int:
    """Return the first second in which the small parts of R and [k]A cancel out, or do not.

    Parts are multiples of a point of order 8; k depends on the message, and so on the second.
    """
    return next(
        hub_ts
        for hub_ts in range(HUB_TS, HUB_TS + 10_000)
        if ((r_part + ed.challenge(r, key, _digest(hub_ts)) * key_part) % 8 == 0) is cancels
    )


def _honest(message: bytes) -> tuple[bytes, int]:
    r = ed.encode(_R_POINT)
    return r, (_NONCE + ed.challenge(r, HUB_PK, message) * _SECRET) % ed.L


def large_s() -> Scenario:
    """Return values of S at and above the group order."""
    s = Scenario(
        "ed25519/large_s", "S below the group order L counts; S + L, which means the same, does not."
    )
    message = _digest(HUB_TS)
    r, good = _honest(message)
    s.ok("S", "verify_receipt", receipt=_receipt(HUB_TS, ed.joined(r, good)), hub_pk=HUB_PK)
    for name, number in (
        ("S + L", good + ed.L),
        ("S + 2 L", good + 2 * ed.L),
        ("S + 14 L", good + 14 * ed.L),
        ("S = L", ed.L),
        ("S = 0", 0),
        ("S = 2^256 - 1", 2**256 - 1),
        ("highest bit of S set", good | 1 << 255),
        ("S negated", ed.L - good),
    ):
        s.fails(
            name, SIG_INVALID, "verify_receipt", receipt=_receipt(HUB_TS, ed.joined(r, number)), hub_pk=HUB_PK
        )
    identity = ed.encode(ed.IDENTITY)
    zero = _receipt(HUB_TS, ed.joined(identity, ed.L))
    s.fails("R the identity and S = L", SIG_INVALID, "verify_receipt", receipt=zero, hub_pk=HUB_PK)
    return s


def small_order_keys() -> Scenario:
    """Return keys of small order, under which anyone can sign."""
    s = Scenario(
        "ed25519/small_order_keys",
        "A public key of small order is refused in every encoding, even where the equation holds.",
    )
    for index in range(8):
        key = ed.encode(ed.times(index, ed.TORSION))
        opposite = (8 - index) % 8
        r = ed.encode(ed.times(opposite, ed.TORSION))
        second = _second(r, opposite, key, index)  # with S = 0 the equation asks for R = -[k]A
        s.fails(
            f"multiple {index} of a point of order 8, equation holds",
            SIG_INVALID,
            "verify_receipt",
            receipt=_receipt(second, ed.joined(r, 0)),
            hub_pk=key,
        )
    for name, key in _other_encodings():
        sig = ed.joined(ed.encode(ed.IDENTITY), 0)
        s.fails(name, SIG_INVALID, "verify_receipt", receipt=_receipt(HUB_TS, sig), hub_pk=key)
    return s


def _other_encodings() -> tuple[tuple[str, bytes], ...]:
    """Return encodings of small points that are not canonical."""
    sign = 1 << 255
    return tuple(
        (name, number.to_bytes(32, "little"))
        for name, number in (
            ("y = 1 with the sign of no x", 1 | sign),
            ("y = p - 1 with the sign of no x", ed.P - 1 | sign),
            ("y = p, which is 0", ed.P),
            ("y = p, which is 0, with sign", ed.P | sign),
            ("y = p + 1, which is 1", ed.P + 1),
            ("y = p + 1, which is 1, with sign", ed.P + 1 | sign),
        )
    )


def small_order_r() -> Scenario:
    """Return signatures whose R is of small order."""
    s = Scenario(
        "ed25519/small_order_r",
        "R of small order counts where the cofactorless equation holds: it says nothing against the key.",
    )
    message = _digest(HUB_TS)
    identity = ed.encode(ed.IDENTITY)
    good = ed.challenge(identity, HUB_PK, message) * _SECRET % ed.L
    s.ok(
        "R the identity", "verify_receipt", receipt=_receipt(HUB_TS, ed.joined(identity, good)), hub_pk=HUB_PK
    )
    for index in range(1, 8):
        r = ed.encode(ed.times(index, ed.TORSION))
        number = ed.challenge(r, HUB_PK, message) * _SECRET % ed.L
        s.fails(
            f"R multiple {index} of a point of order 8, only the cofactored equation holds",
            SIG_INVALID,
            "verify_receipt",
            receipt=_receipt(HUB_TS, ed.joined(r, number)),
            hub_pk=HUB_PK,
        )
    for name, r in _other_encodings():
        number = ed.challenge(r, HUB_PK, message) * _SECRET % ed.L
        s.fails(
            f"R {name}",
            SIG_INVALID,
            "verify_receipt",
            receipt=_receipt(HUB_TS, ed.joined(r, number)),
            hub_pk=HUB_PK,
        )
    return s


def mixed_order() -> Scenario:
    """Return keys and R with a component of small order beside a regular one."""
    s = Scenario(
        "ed25519/mixed_order",
        "Points with a part of small order are no small points: the cofactorless equation alone decides.",
    )
    message = _digest(HUB_TS)
    for index in range(1, 8):
        torsion = ed.times(index, ed.TORSION)
        r = ed.encode(ed.add(_R_POINT, torsion))
        number = (_NONCE + ed.challenge(r, HUB_PK, message) * _SECRET) % ed.L
        s.fails(
            f"R with part {index}, only the cofactored equation holds",
            SIG_INVALID,
            "verify_receipt",
            receipt=_receipt(HUB_TS, ed.joined(r, number)),
            hub_pk=HUB_PK,
        )
        key = ed.encode(ed.add(ed.times(_SECRET, ed.BASE), torsion))
        for part in (0, 1, 4):
            r = ed.encode(ed.add(_R_POINT, ed.times(part, ed.TORSION)))
            for cancels in (True, False):
                if cancels and part % (index & -index):
                    continue  # no multiple of the key's part is the part of R
                second = _second(r, part, key, index, cancels=cancels)
                number = (_NONCE + ed.challenge(r, key, _digest(second)) * _SECRET) % ed.L
                receipt = _receipt(second, ed.joined(r, number))
                name = f"key with part {index}, R with part {part}"
                if cancels:
                    s.ok(f"{name}: they cancel out", "verify_receipt", receipt=receipt, hub_pk=key)
                else:
                    s.fails(
                        f"{name}: they do not", SIG_INVALID, "verify_receipt", receipt=receipt, hub_pk=key
                    )
    return s


def not_points() -> Scenario:
    """Return 32 bytes that do not encode a point."""
    s = Scenario("ed25519/not_points", "Bytes that encode no point of the curve are neither keys nor R.")
    _, good = _honest(_digest(HUB_TS))
    for name, data in (
        ("y = 2", (2).to_bytes(32, "little")),
        ("y = p + 3, not canonical", (ed.P + 3).to_bytes(32, "little")),
        ("y = 2^255 - 1", b"\xff" * 31 + b"\x7f"),
        ("all bits set", b"\xff" * 32),
    ):
        r, number = _honest(_digest(HUB_TS))
        s.fails(
            f"key: {name}",
            SIG_INVALID,
            "verify_receipt",
            receipt=_receipt(HUB_TS, ed.joined(r, number)),
            hub_pk=data,
        )
        s.fails(
            f"R: {name}",
            SIG_INVALID,
            "verify_receipt",
            receipt=_receipt(HUB_TS, ed.joined(data, good)),
            hub_pk=HUB_PK,
        )
    return s


def everywhere() -> Scenario:
    """Return the same edges in every object that is signed."""
    s = Scenario(
        "ed25519/everywhere", "One verification for all: messages, receipts, checkpoints, witnesses, tokens."
    )
    identity = ed.encode(ed.IDENTITY)
    anybody = raw.bstr(ed.joined(identity, 0))
    msg = raw.split(samples.MSG)
    s.fails(
        "message of a client of small order",
        SIG_INVALID,
        "verify_msg",
        msg=raw.array(*msg[:3], raw.bstr(identity), *msg[4:9], anybody),
    )
    s.fails("message, S + L", SIG_INVALID, "verify_msg", msg=raw.array(*msg[:9], _plus_l(msg[9])))
    s.fails(
        "receipt of a hub of small order",
        SIG_INVALID,
        "verify_receipt",
        receipt=raw.array(*raw.split(samples.RECEIPT)[:6], anybody),
        hub_pk=identity,
    )
    one = raw.split(samples.checkpoint(witness_seeds=fixed.WITNESS_SEEDS[:1]))
    s.fails(
        "checkpoint of a hub of small order",
        SIG_INVALID,
        "verify_checkpoint",
        checkpoint=raw.array(*one[:6], anybody),
        hub_pk=identity,
        witness_pks=[],
    )
    s.fails(
        "checkpoint, S + L",
        SIG_INVALID,
        "verify_checkpoint",
        checkpoint=raw.array(*one[:6], _plus_l(one[6])),
        hub_pk=HUB_PK,
        witness_pks=[],
    )
    witness = fixed.key(fixed.WITNESS_SEEDS[0]).public_key
    s.ok(
        "witness, S + L: not counted",
        "verify_checkpoint",
        hub_pk=HUB_PK,
        witness_pks=[witness],
        checkpoint=raw.array(*one[:7], raw.array(_plus_l(raw.split(one[7])[0]))),
    )
    s.ok(
        "witness of small order: not counted",
        "verify_checkpoint",
        hub_pk=HUB_PK,
        witness_pks=[identity, witness],
        checkpoint=raw.array(*one[:7], raw.array(anybody)),
    )
    _tokens(s)
    return s


def _tokens(s: Scenario) -> None:
    identity = ed.encode(ed.IDENTITY)
    anybody = raw.bstr(ed.joined(identity, 0))
    token = raw.split_map(samples.token())
    chain = raw.split(token[4][1])
    s.fails(
        "token of an issuer of small order",
        CAP_INVALID,
        "cap_verify",
        token=raw.mapping(
            token[0], (raw.uint(2), raw.bstr(identity)), *token[2:4], (raw.uint(5), raw.array(anybody))
        ),
    )
    s.fails(
        "token, S + L",
        CAP_INVALID,
        "cap_verify",
        token=raw.mapping(*token[:4], (raw.uint(5), raw.array(_plus_l(chain[0])))),
    )


def _plus_l(sig: bytes) -> bytes:
    """Return an encoded signature with L added to its S."""
    r, s = sig[2:34], int.from_bytes(sig[34:], "little")
    return raw.bstr(ed.joined(r, s + ed.L))


def scenarios() -> Iterator[Scenario]:
    """Yield the scenarios of this module."""
    yield large_s()
    yield small_order_keys()
    yield small_order_r()
    yield mixed_order()
    yield not_points()
    yield everywhere()
