"""A valid request for every operation of the conformance adapter, and one for every type it decodes."""

import json
from collections.abc import Iterator

from fuzz.files import every_file
from tests import builders as make
from tests.examples import every_wire_object
from veen.core.types import JsonValue

_SEED = make.digest("seed").hex()
_LEAVES: list[JsonValue] = [leaf.hex() for leaf in make.leaves(7)]


def _hashing() -> Iterator[dict[str, JsonValue]]:
    hub = make.hub_id().hex()
    yield {"op": "h", "data": "00ff"}
    yield {"op": "ht", "tag": "veen/leaf", "data": ""}
    yield {"op": "profile_id", "epoch_sec": 60, "pad_block": 256}
    yield {"op": "hub_id", "hub_pk": make.verify_key("hub").hex()}
    yield {"op": "routing_key", "hub_id": hub}
    yield {"op": "stream_id", "name": "orders"}
    yield {"op": "schema_id", "name": "chat.v1"}
    yield {
        "op": "label",
        "routing_key": make.routing_key().hex(),
        "stream_id": make.stream().hex(),
        "epoch": 1,
    }
    yield {"op": "public_keys", "seed": _SEED}


def _signing() -> Iterator[dict[str, JsonValue]]:
    label, root = make.some_label().hex(), make.peaks(3).root.hex()
    message, receipt = make.msg(), make.receipt()
    checkpoint = make.checkpoint(witnesses=("w1",))
    hub = make.verify_key("hub").hex()
    yield {
        "op": "sign_msg",
        "seed": _SEED,
        "profile_id": make.profile().profile_id.hex(),
        "label": label,
        "client_seq": 1,
        "prev_ack": 0,
        "auth_ref": None,
        "ciphertext": message.ciphertext.hex(),
    }
    yield {"op": "verify_msg", "msg": message.encode().hex()}
    yield {
        "op": "sign_receipt",
        "seed": _SEED,
        "label": label,
        "stream_seq": 3,
        "leaf_hash": make.leaf(3).hex(),
        "mmr_root": root,
        "hub_ts": 5,
    }
    yield {"op": "verify_receipt", "receipt": receipt.encode().hex(), "hub_pk": hub}
    yield {
        "op": "sign_checkpoint",
        "seed": _SEED,
        "label_prev": label,
        "label_curr": label,
        "upto_seq": 3,
        "mmr_root": root,
        "epoch": 0,
        "witness_seeds": [_SEED],
    }
    yield {
        "op": "verify_checkpoint",
        "checkpoint": checkpoint.encode().hex(),
        "hub_pk": hub,
        "witness_pks": [make.verify_key("w1").hex()],
    }
    yield {"op": "entry", "msg": message.encode().hex(), "receipt": make.receipt(of=message).encode().hex()}


def _sealing() -> Iterator[dict[str, JsonValue]]:
    common: dict[str, JsonValue] = {
        "recipient_pk": make.reader_public().hex(),
        "epoch_sec": 0,
        "pad_block": 256,
        "label": make.some_label().hex(),
        "client_id": make.verify_key().hex(),
        "client_seq": 1,
        "prev_ack": 0,
        "auth_ref": make.cap_token().auth_ref.hex(),
        "hdr": make.payload_header().to_json(),
        "body": "00ff",
        "ephemeral_sk": make.digest("ephemeral").hex(),
    }
    yield {"op": "seal", **common}
    yield {"op": "seal_attachments", **common, "attachments": ["00", ""]}
    yield {
        "op": "open",
        "msg": make.msg().encode().hex(),
        "recipient_sk": make.reader_secret().hex(),
        "pad_block": 256,
    }
    yield {"op": "att_root", "coids": [make.digest("coid").hex()]}


def _proving() -> Iterator[dict[str, JsonValue]]:
    yield {"op": "mmr_root", "leaves": _LEAVES}
    yield {"op": "mmr_proof", "leaves": _LEAVES, "seq": 3, "size": 7}
    yield {
        "op": "mmr_verify",
        "proof": make.inclusion_proof(3, 7).encode().hex(),
        "root": make.peaks(7).root.hex(),
        "leaf": make.leaf(3).hex(),
        "seq": 3,
        "size": 7,
    }
    yield {"op": "mmr_consistency", "leaves": _LEAVES, "old": 3, "new": 7}
    yield {
        "op": "mmr_verify_consistency",
        "proof": make.consistency_proof(3, 7).encode().hex(),
        "old_root": make.peaks(3).root.hex(),
        "old": 3,
        "new_root": make.peaks(7).root.hex(),
        "new": 7,
    }
    yield {
        "op": "cap_mint",
        "issuer_seed": _SEED,
        "subject_pk": make.verify_key().hex(),
        "stream_ids": [make.stream().hex()],
        "ttl": 60,
        "rate": [5, 10],
        "links": 2,
    }
    yield {"op": "cap_verify", "token": make.cap_token().encode().hex()}


# Parts that are never sent alone: the adapter has no names for them.
_PARTS = {"allow", "rate", "chunk_range", "indexed_checkpoint", "hub_key", "bound_checkpoint", "stream_item"}
# Not objects of the protocol: records of this hub, and the contents of request headers.
_OTHERS = {"trust_record", "revocation_record", "revocation", "pow_cookie"}


def _objects() -> Iterator[dict[str, JsonValue]]:
    for item in every_wire_object():
        if item.SHAPE.name in _PARTS | _OTHERS:
            continue
        name = item.SHAPE.name.lower()
        yield {"op": "decode", "type": name, "data": item.encode().hex()}
        yield {"op": "encode", "type": name, "value": item.to_json()}
    for name, file in every_file().items():
        yield {"op": "decode", "type": name, "data": file.encode().hex()}
        yield {"op": "encode", "type": name, "value": file.to_json()}


def _overlays() -> Iterator[dict[str, JsonValue]]:
    yield {"op": "overlay_ids", "realm": "default", "ctx_id": make.digest("ctx").hex(), "currency": "EUR"}
    event: dict[str, JsonValue] = {
        "stream_seq": 1,
        "client_id": make.verify_key().hex(),
        "client_seq": 1,
        "hub_ts": 1_790_000_000,
        "schema": "crdt.lww.v1",
        "body": {"key": "6b", "ts": 1, "value": "76"},
    }
    later: dict[str, JsonValue] = {**event, "stream_seq": 2, "client_seq": 2, "body": "a0", "epoch": 3}
    yield {"op": "fold", "overlay": "crdt.lww", "events": [event, later], "upto": 2, "now": 1}
    yield {"op": "canonical_json", "value": {"b": [1, "\u00e4\n", None], "a": {"": True}}}


def _all() -> Iterator[dict[str, JsonValue]]:
    yield from _hashing()
    yield from _signing()
    yield from _sealing()
    yield from _proving()
    yield from _objects()
    yield from _overlays()


# One line each, as the adapter reads them.
REQUESTS = tuple(json.dumps({"id": number, **request}).encode() for number, request in enumerate(_all()))
