"""One valid object of each kind, for scenarios that break it."""

from typing import Final

from vectors.generators import fixed, raw
from vectors.generators.fixed import HUB_TS, LABEL, leaves
from vectors.generators.scenario import Fields, Json, ask


def seal(**changes: Json) -> Fields:
    """Seal a short body in the context of these vectors, with changes; return the answer."""
    return ask("seal", **seal_request(**changes))


def seal_request(**changes: Json) -> Fields:
    """Return the fields of that request."""
    request: Fields = {
        "recipient_pk": fixed.READER_PK,
        "epoch_sec": 0,
        "pad_block": 0,
        "label": LABEL,
        "client_id": fixed.CLIENT_ID,
        "client_seq": 1,
        "prev_ack": 0,
        "auth_ref": None,
        "hdr": {"schema": fixed.SCHEMA},
        "body": b"hello",
        "ephemeral_sk": fixed.EPHEMERAL_SK,
    }
    return request | changes


def sign_request(ciphertext: bytes, **changes: Json) -> Fields:
    """Return the fields of a request that signs a ciphertext in the context of these vectors."""
    request: Fields = {
        "seed": fixed.CLIENT_SEED,
        "profile_id": fixed.PROFILE_ID,
        "label": LABEL,
        "client_seq": 1,
        "prev_ack": 0,
        "auth_ref": None,
        "ciphertext": ciphertext,
    }
    return request | changes


def signed(ciphertext: bytes, **changes: Json) -> bytes:
    """Return the MSG with a ciphertext."""
    return bytes.fromhex(ask("sign_msg", **sign_request(ciphertext, **changes))["msg"])


CIPHERTEXT: Final = bytes.fromhex(seal()["ciphertext"])
MSG: Final = signed(CIPHERTEXT)
LEAF: Final = bytes.fromhex(ask("verify_msg", msg=MSG)["leaf_hash"])


def receipt_request(**changes: Json) -> Fields:
    """Return the fields of a request that signs the receipt of MSG as the first entry of its label."""
    request: Fields = {
        "seed": fixed.HUB_SEED,
        "label": LABEL,
        "stream_seq": 1,
        "leaf_hash": LEAF,
        "mmr_root": LEAF,
        "hub_ts": HUB_TS,
    }
    return request | changes


def receipt(**changes: Json) -> bytes:
    """Return a receipt."""
    return bytes.fromhex(ask("sign_receipt", **receipt_request(**changes))["receipt"])


def checkpoint_request(**changes: Json) -> Fields:
    """Return the fields of a request that signs a checkpoint of eleven leaves."""
    request: Fields = {
        "seed": fixed.HUB_SEED,
        "label_prev": LABEL,
        "label_curr": LABEL,
        "upto_seq": 11,
        "mmr_root": root(11),
        "epoch": 0,
        "witness_seeds": [],
    }
    return request | changes


def checkpoint(**changes: Json) -> bytes:
    """Return a checkpoint."""
    return bytes.fromhex(ask("sign_checkpoint", **checkpoint_request(**changes))["checkpoint"])


def root(size: int) -> bytes:
    """Return the root over the first leaves of these vectors."""
    return bytes.fromhex(ask("mmr_root", leaves=leaves(size))["roots"][-1])


def proof(seq: int, size: int) -> bytes:
    """Return an inclusion proof over these leaves."""
    return bytes.fromhex(ask("mmr_proof", leaves=leaves(size), seq=seq, size=size)["proof"])


def consistency(old: int, new: int) -> bytes:
    """Return a consistency proof over these leaves."""
    return bytes.fromhex(ask("mmr_consistency", leaves=leaves(new), old=old, new=new)["proof"])


def mint_request(**changes: Json) -> Fields:
    """Return the fields of a request that mints a token for the client of these vectors."""
    request: Fields = {
        "issuer_seed": fixed.ISSUER_SEED,
        "subject_pk": fixed.CLIENT_ID,
        "stream_ids": [fixed.STREAM_ID],
        "ttl": 3600,
        "rate": None,
        "links": 1,
    }
    return request | changes


def token(**changes: Json) -> bytes:
    """Return a capability token."""
    return bytes.fromhex(ask("cap_mint", **mint_request(**changes))["token"])


def full_header() -> bytes:
    """Return a payload header with every field."""
    return raw.keyed(
        (1, raw.bstr(fixed.SCHEMA)),
        (2, raw.bstr(LEAF)),
        (3, raw.bstr(fixed.h(b"att"))),
        (4, raw.bstr(fixed.AUTH_REF)),
        (5, raw.uint(HUB_TS)),
    )


RECEIPT: Final = receipt()
ENTRY: Final = bytes.fromhex(ask("entry", msg=MSG, receipt=RECEIPT)["entry"])
