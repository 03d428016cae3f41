"""Limits of a mebibyte and the like: what the vectors leave out because the files would be large.

Each limit is tried at its value and one beyond, through the same operations that the vectors use.
"""

import json
from functools import cache
from typing import Any

import pytest

from veen.conformance.adapter import answer
from veen.core.crypto.hash import sha256, u32be

MAX_MSG = 1_048_576
MAX_BODY_LEN = 1_048_320
MAX_HDR_LEN = 16_384
ZERO = bytes(32)


def ask(op: str, /, **fields: Any) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(item) for item in value]
        return value.hex() if isinstance(value, bytes) else value

    request = {"op": op} | {name: plain(value) for name, value in fields.items()}
    return dict(answer(json.dumps(request).encode()))


def refusal(given: dict[str, Any]) -> tuple[Any, ...]:
    assert not given["ok"]
    return given["code"], given["stage"], given["detail"]


FIELD_SIZE = ("E.SIZE", "structural", "FIELD_SIZE")
SIZE_PREFILTER = ("E.SIZE", "prefilter", "SIZE_PREFILTER")
SEED = bytes([0x11]) * 32


@cache
def keys(seed: bytes) -> dict[str, Any]:
    return ask("public_keys", seed=seed)


def seal_request(body: bytes = b"", auth_ref: bytes | None = None, pad_block: int = 0) -> dict[str, Any]:
    return {
        "recipient_pk": keys(bytes([0x51]) * 32)["x25519"],
        "epoch_sec": 0,
        "pad_block": pad_block,
        "label": ZERO,
        "client_id": keys(SEED)["ed25519"],
        "client_seq": 1,
        "prev_ack": 0,
        "auth_ref": auth_ref,
        "hdr": {"schema": "00" * 32},
        "body": body,
        "ephemeral_sk": bytes([0x61]) * 32,
    }


def seal(body: bytes, auth_ref: bytes | None = None, pad_block: int = 0) -> dict[str, Any]:
    return ask("seal", **seal_request(body, auth_ref, pad_block))


def sign(ciphertext: str | bytes, auth_ref: bytes | None = None) -> str:
    given = ask(
        "sign_msg",
        seed=SEED,
        profile_id=ZERO,
        label=ZERO,
        client_seq=1,
        prev_ack=0,
        auth_ref=auth_ref,
        ciphertext=ciphertext,
    )
    assert given["ok"], given
    return str(given["msg"])


def envelope(hdr_len: int, body_len: int, size: int | None = None) -> bytes:
    """Return a ciphertext of zeros with these lengths."""
    needed = hdr_len + body_len if size is None else size
    return bytes(32) + u32be(hdr_len) + u32be(body_len) + bytes(needed)


@pytest.mark.parametrize(
    ("auth_ref", "largest"),
    [(None, 1_048_272), (sha256(b"ref"), 1_048_239)],
    ids=["without auth_ref", "with auth_ref"],
)
def test_largest_body_of_a_message(auth_ref: bytes | None, largest: int) -> None:
    fits = seal(bytes(largest - 16), auth_ref)
    assert int(fits["ciphertext"][72:80], 16) == largest
    msg = sign(fits["ciphertext"], auth_ref)
    assert len(msg) == 2 * MAX_MSG
    assert ask("decode", type="msg", data=msg)["ok"]
    assert ask("verify_msg", msg=msg)["ok"]
    too_long = sign(seal(bytes(largest - 15), auth_ref)["ciphertext"], auth_ref)
    assert len(too_long) == 2 * (MAX_MSG + 1)
    assert refusal(ask("decode", type="msg", data=too_long)) == SIZE_PREFILTER
    assert refusal(ask("verify_msg", msg=too_long)) == SIZE_PREFILTER


def test_submit_request_adds_four_bytes() -> None:
    msg = sign(seal(bytes(1_048_272 - 16))["ciphertext"])
    assert ask("decode", type="submit_request", data="a2010102" + msg)["ok"]
    too_long = sign(seal(bytes(1_048_273 - 16))["ciphertext"])
    assert refusal(ask("decode", type="submit_request", data="a2010102" + too_long)) == SIZE_PREFILTER


def test_body_len_is_limited_with_its_tag() -> None:
    assert ask("decode", type="msg", data=sign(envelope(0, MAX_BODY_LEN)))["ok"]
    assert refusal(ask("decode", type="msg", data=sign(envelope(0, MAX_BODY_LEN + 1)))) == FIELD_SIZE


def test_hdr_len_is_limited_with_its_tag() -> None:
    assert ask("decode", type="msg", data=sign(envelope(MAX_HDR_LEN, 0)))["ok"]
    assert refusal(ask("decode", type="msg", data=sign(envelope(MAX_HDR_LEN + 1, 0)))) == FIELD_SIZE


def test_padding_counts_for_the_message_and_not_for_the_body() -> None:
    assert ask("decode", type="msg", data=sign(envelope(0, 0, MAX_MSG - 212 - 40)))["ok"]
    beyond = sign(envelope(0, 0, MAX_MSG - 212 - 40 + 1))
    assert refusal(ask("decode", type="msg", data=beyond)) == SIZE_PREFILTER


def test_a_sender_leaves_room_for_the_tag() -> None:
    """The limit on body_len counts the tag, so a sender's body has 16 bytes less."""
    assert seal(bytes(MAX_BODY_LEN - 16))["ok"]
    assert refusal(seal(bytes(MAX_BODY_LEN - 15))) == FIELD_SIZE


@pytest.mark.parametrize("pad_block", [MAX_MSG + 1, 2**32, 2**64 - 1])
def test_a_block_that_no_message_holds_is_refused_without_making_it(pad_block: int) -> None:
    assert refusal(seal(b"x", pad_block=pad_block)) == FIELD_SIZE


@pytest.mark.parametrize("kind", ["stream_response", "submit_request"])
def test_a_message_inside_another_object_has_the_same_limit(kind: str) -> None:
    """Wherever a MSG is embedded it has at most as many bytes as alone."""
    shell = {
        "submit_request": "a2010102{}",
        "stream_response": "a40101025820" + "00" * 32 + "03010581a2010102{}",
    }[kind]
    at_most = sign(envelope(0, 0, MAX_MSG - 212 - 40))
    assert ask("decode", type=kind, data=shell.format(at_most))["ok"]
    beyond = sign(envelope(0, 0, MAX_MSG - 212 - 40 + 1))
    assert refusal(ask("decode", type=kind, data=shell.format(beyond)))[0] == "E.SIZE"


def test_number_of_attachments() -> None:
    def attach(count: int) -> dict[str, Any]:
        return ask("seal_attachments", **seal_request(), attachments=[b""] * count)

    assert len(attach(1_024)["coids"]) == 1_024
    assert refusal(attach(1_025)) == FIELD_SIZE


def test_number_of_streams_of_a_token() -> None:
    def mint(count: int) -> dict[str, Any]:
        streams = [sha256(number.to_bytes(4, "big")) for number in range(count)]
        return ask(
            "cap_mint", issuer_seed=SEED, subject_pk=ZERO, stream_ids=streams, ttl=1, rate=None, links=1
        )

    at_most = mint(256)["token"]
    assert ask("cap_verify", token=at_most)["ok"]
    assert ask("decode", type="cap_token", data=at_most)["encoded"] == at_most
    assert refusal(ask("cap_verify", token=mint(257)["token"])) == FIELD_SIZE


def test_largest_entry() -> None:
    msg = sign(envelope(0, 0, MAX_MSG - 212 - 40))
    largest = 2**64 - 1
    receipt = ask(
        "sign_receipt",
        seed=SEED,
        label=ZERO,
        stream_seq=largest,
        leaf_hash=ZERO,
        mmr_root=ZERO,
        hub_ts=largest,
    )["receipt"]
    entry = ask("entry", msg=msg, receipt=receipt)["entry"]
    assert len(entry) == 2 * (82 + MAX_MSG + 188)
    assert ask("decode", type="entry", data=entry)["encoded"] == entry


@pytest.mark.parametrize("size", [255, 256, 65_535, 65_536, 1_000_003])
def test_bodies_of_any_size_open_again(size: int) -> None:
    body = bytes(number % 251 for number in range(size))
    given = seal(body)
    profile_id = ask("profile_id", epoch_sec=0, pad_block=0)["profile_id"]
    msg = ask(
        "sign_msg",
        seed=SEED,
        profile_id=profile_id,
        label=ZERO,
        client_seq=1,
        prev_ack=0,
        auth_ref=None,
        ciphertext=given["ciphertext"],
    )["msg"]
    opened = ask("open", recipient_sk=bytes([0x51]) * 32, msg=msg, pad_block=0)
    assert opened["body"] == body.hex()
