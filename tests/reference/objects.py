"""The shapes of all objects, for the codec: fields, kinds, and the rules that their values keep."""

from tests.reference.basics import Fields, Json, h, ht, need, unhexed
from tests.reference.codec import (
    U64_END,
    Array,
    Bool,
    Bytes,
    Constant,
    Detail,
    Items,
    Kind,
    Map,
    Rule,
    Table,
    Text,
    Uint,
    Version,
)


def _envelope(ciphertext: bytes) -> None:
    need(len(ciphertext) >= 40, "40 bytes")
    hdr_len = int.from_bytes(ciphertext[32:36], "big")
    body_len = int.from_bytes(ciphertext[36:40], "big")
    need(hdr_len <= 16_384 and body_len <= 1_048_320, "limits")
    need(len(ciphertext) >= 40 + hdr_len + body_len, "lengths")


def _counts_from_one(name: str) -> Rule:
    return lambda value: need(value[name] >= 1, f"{name} counts from 1")


def _ascending_streams(value: Fields) -> None:
    streams = value["stream_ids"]
    need(streams and streams == sorted(set(streams)), "streams ascend")


def _step_side(value: Fields) -> None:
    need(value["dir"] in (0, 1), "dir")


def _chunk(value: Fields) -> None:
    need(1 <= value["start_seq"] <= value["end_seq"], "range")
    need(value["entry_count"] == value["end_seq"] - value["start_seq"] + 1, "count")


def _hub_key(value: Fields) -> None:
    need(value["key_id"] == h(value["hub_pk"])[:16], "key_id")
    need(value.get("valid_until", U64_END) > value["valid_from"], "validity")


def _identity(value: Fields) -> None:
    keys = [(key["valid_from"], key["hub_pk"]) for key in value["hub_keys"]]
    need(keys and keys == sorted(keys) and len({pk for _, pk in keys}) == len(keys), "keys")
    need(value["hub_id"] == ht("veen/hub-id", keys[0][1]), "hub_id")


def _range(value: Fields) -> None:
    need(1 <= value["start_seq"] <= value["end_seq"], "range")


def _number(name: str) -> int:
    need(name.isascii() and name.isdigit() and (name == "0" or name[0] != "0"), "decimal")
    return int(name)


def _no_zero(value: Json) -> None:
    need(0 not in value, "seq 0")


def _key_ids(value: Json) -> None:
    need(all(key == h(pk)[:16] for key, pk in value.items()), "key_id")


VER, UINT, TEXT, BOOL, B32, B64 = Version(), Uint(), Text(), Bool(), Bytes(32), Bytes(64)

MSG = Array(
    {
        "ver": VER,
        "profile_id": B32,
        "label": B32,
        "client_id": B32,
        "client_seq": UINT,
        "prev_ack": UINT,
        "auth_ref": Bytes(32, nullable=True),
        "ct_hash": B32,
        "ciphertext": Bytes(rule=_envelope),
        "sig": B64,
    }
)
RECEIPT = Array(
    {
        "ver": VER,
        "label": B32,
        "stream_seq": UINT,
        "leaf_hash": B32,
        "mmr_root": B32,
        "hub_ts": UINT,
        "hub_sig": B64,
    },
    rule=_counts_from_one("stream_seq"),
)
CHECKPOINT = Array(
    {
        "ver": VER,
        "label_prev": B32,
        "label_curr": B32,
        "upto_seq": UINT,
        "mmr_root": B32,
        "epoch": UINT,
        "hub_sig": B64,
        "witness_sigs": Items(B64, least=1, most=64),
    },
    trimmed=True,
    rule=_counts_from_one("upto_seq"),
)
PAYLOAD_HDR = Map(
    {
        "schema": (1, B32),
        "parent_id": (2, B32),
        "att_root": (3, B32),
        "cap_ref": (4, B32),
        "expires_at": (5, UINT),
    },
    optional=("parent_id", "att_root", "cap_ref", "expires_at"),
)
STEP = Map({"dir": (1, UINT), "sib": (2, B32)}, rule=_step_side)
MMR_PROOF = Map(
    {
        "ver": (1, VER),
        "leaf_hash": (2, B32),
        "path": (3, Items(STEP, most=64)),
        "peaks_after": (4, Items(B32, most=64)),
    }
)
NODES = Items(B32, most=64)
CONSISTENCY_PROOF = Map(
    {"ver": (1, VER), "old_peaks": (2, NODES), "siblings": (3, NODES), "new_peaks": (4, NODES)}
)
RATE = Map({"per_sec": (1, UINT), "burst": (2, UINT)})
ALLOW = Map(
    {"stream_ids": (1, Items(B32, most=256)), "ttl": (2, UINT), "rate": (3, RATE)},
    optional=("rate",),
    rule=_ascending_streams,
)
CAP_TOKEN = Map(
    {
        "ver": (1, VER),
        "issuer_pk": (2, B32),
        "subject_pk": (3, B32),
        "allow": (4, ALLOW),
        "sig_chain": (5, Items(B64, least=1, most=8)),
    }
)
PROFILE = Map(
    {
        "aead": (1, Constant("xchacha20poly1305")),
        "kdf": (2, Constant("hkdf-sha256")),
        "sig": (3, Constant("ed25519")),
        "dh": (4, Constant("x25519")),
        "hpke_suite": (5, Constant("X25519-HKDF-SHA256-CHACHA20POLY1305")),
        "epoch_sec": (6, UINT),
        "pad_block": (7, UINT),
        "mmr_hash": (8, Constant("sha256")),
    }
)
ERROR = Map(
    {
        "ver": (1, VER),
        "code": (2, TEXT),
        "message": (3, TEXT),
        "detail": (4, Detail()),
        "retry_after": (5, UINT),
        "request_id": (6, TEXT),
    },
    optional=("detail", "retry_after", "request_id"),
)
CHUNK_SUMMARY = Array(
    {
        "label": B32,
        "start_seq": UINT,
        "end_seq": UINT,
        "mmr_root_end": B32,
        "entry_count": UINT,
        "total_bytes": UINT,
        "entry_hashes_root": B32,
    },
    rule=_chunk,
)
HUB_KEY = Map(
    {"key_id": (1, Bytes(16)), "hub_pk": (2, B32), "valid_from": (3, UINT), "valid_until": (4, UINT)},
    optional=("valid_until",),
    rule=_hub_key,
)
HUB_IDENTITY = Map(
    {
        "ver": (1, VER),
        "hub_id": (2, B32),
        "hub_keys": (3, Items(HUB_KEY)),
        "anchoring": (4, TEXT),
        "routing_key": (5, B32),
        "control_pk": (6, B32),
        "parent": (7, Map({"hub_id": (1, B32), "fork_hash": (2, B32)})),
    },
    optional=("control_pk", "parent"),
    rule=_identity,
)

INDEXED = Array(
    {
        "mmr_root": B32,
        "chunk_range": Array({"start_seq": UINT, "end_seq": UINT}, rule=_range),
        "peaks_ref": TEXT,
    }
)
BOUND = Array(
    {"label": B32, "epoch": UINT, "upto_seq": UINT, "hub_id": B32, "key_id": Bytes(16), "mmr_root": B32}
)


class Binding(Items):
    """Lines in order, each once."""

    def check(self, value: Json) -> None:
        super().check(value)
        places = [(line["label"], line["epoch"], line["upto_seq"]) for line in value]
        need(places == sorted(set(places)), "order of lines")


def _response(name: str, kind: Kind) -> Map:
    fields = {"ver": (1, VER), name: (2, kind), "server_version": (3, TEXT)}
    return Map(fields, optional=("server_version",))


def _query(number: str) -> Map:
    return Map({"ver": (1, VER), "label": (2, B32), number: (3, UINT)})


STREAM_ITEM = Map({"stream_seq": (1, UINT), "msg": (2, MSG), "receipt": (3, RECEIPT)}, optional=("receipt",))

TYPES: dict[str, Kind] = {
    "msg": MSG,
    "receipt": RECEIPT,
    "checkpoint": CHECKPOINT,
    "payload_hdr": PAYLOAD_HDR,
    "mmr_proof": MMR_PROOF,
    "consistency_proof": CONSISTENCY_PROOF,
    "cap_token": CAP_TOKEN,
    "profile": PROFILE,
    "error": ERROR,
    "chunk_summary": CHUNK_SUMMARY,
    "hub_identity": HUB_IDENTITY,
    "peaks": NODES,
    "checkpoint_index": Table(UINT, INDEXED, str, _number, _no_zero),
    "hub_key_map": Table(Bytes(16), B32, bytes.hex, unhexed, _key_ids),
    "checkpoint_binding": Binding(BOUND),
    "submit_request": Map({"ver": (1, VER), "msg": (2, MSG)}),
    "submit_response": _response("receipt", RECEIPT),
    "receipt_response": _response("receipt", RECEIPT),
    "proof_response": _response("mmr_proof", MMR_PROOF),
    "checkpoint_response": _response("checkpoint", CHECKPOINT),
    "receipt_request": _query("stream_seq"),
    "proof_request": _query("stream_seq"),
    "checkpoint_request": _query("upto_seq"),
    "stream_request": Map(
        {
            "ver": (1, VER),
            "label": (2, B32),
            "from_seq": (3, UINT),
            "to_seq": (4, UINT),
            "max_items": (5, UINT),
            "cursor": (6, UINT),
            "with_receipts": (7, BOOL),
            "with_mmr_proof": (8, BOOL),
        },
        optional=("to_seq", "max_items", "cursor", "with_receipts", "with_mmr_proof"),
    ),
    "stream_response": Map(
        {
            "ver": (1, VER),
            "label": (2, B32),
            "from_seq": (3, UINT),
            "to_seq": (4, UINT),
            "items": (5, Items(STREAM_ITEM)),
            "next_cursor": (6, UINT),
            "mmr_proof": (7, MMR_PROOF),
            "server_version": (8, TEXT),
        },
        optional=("to_seq", "next_cursor", "mmr_proof", "server_version"),
    ),
}
