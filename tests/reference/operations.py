"""The operations of the conformance adapter, answered by the reference."""

import json
import struct
from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.reference import canonical, codec, folds, merkle, objects, rfc8032, sealing
from tests.reference.basics import Fields, Json, Refused, h, hexed, ht, need, sized, u64, unhexed

Answer = tuple[Fields, Fields]


def sign(seed: bytes, message: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(sized(seed)).sign(message)


def public_key(seed: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(sized(seed)).public_key().public_bytes_raw()


def _first(kind: codec.Array, value: Fields, count: int) -> bytes:
    """Encode the first fields of an array as an array of their own."""
    names = list(kind.fields)[:count]
    part = codec.Array({name: kind.fields[name] for name in names})
    return codec.encode(part, {name: value[name] for name in names})


# --- hashes and identifiers ---------------------------------------------------------------------------------


def _hash(r: Fields) -> Answer:
    return {"hash": h(r["data"])}, {}


def _tagged(r: Fields) -> Answer:
    return {"hash": ht(r["tag"], r["data"])}, {}


def _profile(epoch_sec: int, pad_block: int) -> bytes:
    fixed = {name: kind.value for name, (_, kind) in objects.PROFILE.fields.items() if hasattr(kind, "value")}
    return codec.encode(objects.PROFILE, fixed | {"epoch_sec": epoch_sec, "pad_block": pad_block})


def _profile_id(r: Fields) -> Answer:
    profile = _profile(r["epoch_sec"], r["pad_block"])
    return {"profile": profile, "profile_id": ht("veen/profile", profile)}, {}


def _hub_id(r: Fields) -> Answer:
    return {"hub_id": ht("veen/hub-id", sized(r["hub_pk"]))}, {}


def _routing_key(r: Fields) -> Answer:
    return {"routing_key": ht("veen/routing_key", sized(r["hub_id"]))}, {}


def _stream_id(r: Fields) -> Answer:
    name = r["name"]
    is_id = len(name) == 64 and all(digit in "0123456789abcdefABCDEF" for digit in name)
    return {"stream_id": bytes.fromhex(name) if is_id else h(name.encode())}, {}


def _schema_id(r: Fields) -> Answer:
    families = {"id", "wallet", "rpc", "crdt", "disc", "veen"}
    bare = r["name"] == "chat.v1" or ("." in r["name"] and r["name"].split(".")[0] in families)
    prefix = "" if bare else "veen/schema:"
    preimage = (prefix + r["name"]).encode()
    return {"schema_id": h(preimage)}, {"preimage": preimage}


def _label(r: Fields) -> Answer:
    preimage = sized(r["routing_key"]) + sized(r["stream_id"]) + u64(r["epoch"])
    return {"label": ht("veen/label", preimage)}, {"preimage": preimage}


def _public_keys(r: Fields) -> Answer:
    return {"ed25519": public_key(r["seed"]), "x25519": sealing.x25519_public(r["seed"])}, {}


# --- objects ------------------------------------------------------------------------------------------------


def _frame(msg: bytes, receipt: bytes) -> bytes:
    value = codec.decode(objects.RECEIPT, receipt)
    digest = h(b"veen/entry" + msg + receipt)
    fields = (1, 0, value["label"], value["stream_seq"], len(msg), len(receipt), digest)
    return struct.pack(">BB32sQII32s", *fields) + msg + receipt


def _split_frame(data: bytes) -> tuple[bytes, bytes]:
    need(len(data) >= 82, "header")
    msg_len, receipt_len = struct.unpack(">II", data[42:50])
    need(len(data) == 82 + msg_len + receipt_len, "lengths")
    msg, receipt = data[82 : 82 + msg_len], data[82 + msg_len :]
    codec.decode(objects.MSG, msg)
    need(_frame(msg, receipt) == data, "header")
    return msg, receipt


def _entry_json(data: bytes) -> Json:
    msg, receipt = _split_frame(data)
    value = codec.decode(objects.RECEIPT, receipt)
    return {
        "entry_ver": data[0],
        "flags": data[1],
        "label": value["label"].hex(),
        "stream_seq": value["stream_seq"],
        "msg_len": len(msg),
        "receipt_len": len(receipt),
        "entry_hash": data[50:82].hex(),
        "msg": objects.MSG.to_json(codec.decode(objects.MSG, msg)),
        "receipt": objects.RECEIPT.to_json(value),
    }


def _decode(r: Fields) -> Answer:
    if r["type"] == "entry":
        return {"value": _entry_json(r["data"]), "encoded": r["data"]}, {}
    kind = objects.TYPES[r["type"]]
    value = codec.decode(kind, r["data"])
    return {"value": kind.to_json(value), "encoded": codec.encode(kind, value)}, {}


def _encode(r: Fields) -> Answer:
    if r["type"] == "entry":
        need(isinstance(r["value"], dict) and {"msg", "receipt"} <= set(r["value"]), "entry")
        msg = codec.encode(objects.MSG, objects.MSG.from_json(r["value"]["msg"]))
        receipt = codec.encode(objects.RECEIPT, objects.RECEIPT.from_json(r["value"]["receipt"]))
        data = _frame(msg, receipt)
        forms = (json.dumps(form, sort_keys=True) for form in (_entry_json(data), r["value"]))
        need(len(set(forms)) == 1, "header")
        return {"data": data}, {}
    kind = objects.TYPES[r["type"]]
    return {"data": codec.encode(kind, kind.from_json(r["value"]))}, {}


def _leaf_preimage(msg: Fields) -> bytes:
    fields = msg["label"] + msg["profile_id"] + msg["ct_hash"] + msg["client_id"]
    return bytes(fields + u64(msg["client_seq"]))


def _sign_msg(r: Fields) -> Answer:
    names = ("profile_id", "label", "client_seq", "prev_ack", "auth_ref", "ciphertext")
    msg: Fields = {"ver": 1} | {name: r[name] for name in names}
    msg |= {"client_id": public_key(r["seed"]), "ct_hash": h(r["ciphertext"])}
    anything = codec.Array(objects.MSG.fields | {"ciphertext": codec.Bytes()})  # any bytes can be signed
    ordered = {name: msg[name] for name in anything.fields if name != "sig"}
    signed = _first(anything, ordered, 9)
    digest = ht("veen/sig", signed)
    ordered["sig"] = sign(r["seed"], digest)
    trace = {"ct_hash": ordered["ct_hash"], "signed": signed, "signing_digest": digest, "sig": ordered["sig"]}
    trace["leaf_preimage"] = _leaf_preimage(ordered)
    leaf = ht("veen/leaf", trace["leaf_preimage"])
    return {"msg": codec.encode(anything, ordered), "leaf_hash": leaf}, trace


def _verify_msg(r: Fields) -> Answer:
    msg = codec.decode(objects.MSG, r["msg"])
    need(h(msg["ciphertext"]) == msg["ct_hash"], "ct_hash")
    digest = ht("veen/sig", _first(objects.MSG, msg, 9))
    need(rfc8032.verify(msg["client_id"], digest, msg["sig"]), "sig")
    return {"leaf_hash": ht("veen/leaf", _leaf_preimage(msg))}, {}


def _sign_receipt(r: Fields) -> Answer:
    names = list(objects.RECEIPT.fields)[1:6]
    receipt: Fields = {"ver": 1} | {name: r[name] for name in names}
    signed = _first(objects.RECEIPT, receipt, 6)
    digest = ht("veen/sig", signed)
    receipt["hub_sig"] = sign(r["seed"], digest)
    encoded = codec.encode(objects.RECEIPT, receipt)
    return {"receipt": encoded}, {"signed": signed, "signing_digest": digest}


def _verify_receipt(r: Fields) -> Answer:
    receipt = codec.decode(objects.RECEIPT, r["receipt"])
    digest = ht("veen/sig", _first(objects.RECEIPT, receipt, 6))
    need(rfc8032.verify(r["hub_pk"], digest, receipt["hub_sig"]), "hub_sig")
    return {}, {}


def _sign_checkpoint(r: Fields) -> Answer:
    names = list(objects.CHECKPOINT.fields)[1:6]
    checkpoint: Fields = {"ver": 1} | {name: r[name] for name in names}
    signed = _first(objects.CHECKPOINT, checkpoint, 6)
    digest = ht("veen/sig", signed)
    checkpoint["hub_sig"] = sign(r["seed"], digest)
    if r["witness_seeds"]:
        checkpoint["witness_sigs"] = [sign(seed, digest) for seed in r["witness_seeds"]]
    encoded = codec.encode(objects.CHECKPOINT, checkpoint)
    return {"checkpoint": encoded}, {"signed": signed, "signing_digest": digest}


def _verify_checkpoint(r: Fields) -> Answer:
    checkpoint = codec.decode(objects.CHECKPOINT, r["checkpoint"])
    digest = ht("veen/sig", _first(objects.CHECKPOINT, checkpoint, 6))
    need(rfc8032.verify(r["hub_pk"], digest, checkpoint["hub_sig"]), "hub_sig")
    sigs = checkpoint.get("witness_sigs", [])
    known = sorted(set(r["witness_pks"]))
    return {"witnesses": [key for key in known if any(rfc8032.verify(key, digest, sig) for sig in sigs)]}, {}


# --- ciphertexts --------------------------------------------------------------------------------------------


def _seal_all(r: Fields, attachments: list[bytes]) -> Answer:
    profile_id = ht("veen/profile", _profile(r["epoch_sec"], r["pad_block"]))
    numbers = r["client_seq"], r["prev_ack"]
    context = sealing.Context(profile_id, r["label"], r["client_id"], *numbers, r["auth_ref"])
    header = objects.PAYLOAD_HDR.from_json(r["hdr"])
    objects.PAYLOAD_HDR.check(header)
    keys = r["recipient_pk"], r["ephemeral_sk"]
    letter = sealing.Letter(*keys, header, r["body"], r["pad_block"], attachments)
    result, trace = sealing.seal(context, letter)
    return result, trace | {"profile_id": profile_id}


def _seal(r: Fields) -> Answer:
    result, trace = _seal_all(r, [])
    return {name: result[name] for name in ("ciphertext", "ct_hash")}, trace


def _seal_attachments(r: Fields) -> Answer:
    result, trace = _seal_all(r, r["attachments"])
    del result["ct_hash"]
    return result, trace


def _open(r: Fields) -> Answer:
    msg = codec.decode(objects.MSG, r["msg"])
    need(h(msg["ciphertext"]) == msg["ct_hash"], "ct_hash")
    names = ("profile_id", "label", "client_id", "client_seq", "prev_ack", "auth_ref")
    context = sealing.Context(*(msg[name] for name in names))
    secret, ciphertext = r["recipient_sk"], msg["ciphertext"]
    header, body = sealing.open_ciphertext(context, secret, ciphertext, r["pad_block"])
    return {"hdr": objects.PAYLOAD_HDR.to_json(header), "body": body}, {}


def _att_root(r: Fields) -> Answer:
    return {"att_root": merkle.att_root(r["coids"])}, {"peaks": merkle.peaks(r["coids"], "veen/att-node")}


# --- ranges and proofs --------------------------------------------------------------------------------------


def _mmr_root(r: Fields) -> Answer:
    leaves = r["leaves"]
    prefixes = [leaves[:size] for size in range(1, len(leaves) + 1)]
    after = [
        {
            "size": len(prefix),
            "peaks": merkle.peaks(prefix),
            "peak_positions": merkle.peak_positions(len(prefix)),
        }
        for prefix in prefixes
    ]
    roots = [merkle.root(prefix) for prefix in prefixes]
    return {"roots": roots, "peaks": merkle.peaks(leaves)}, {"nodes": merkle.nodes(leaves), "after": after}


def _mmr_proof(r: Fields) -> Answer:
    proof = merkle.inclusion(r["leaves"], r["seq"], r["size"])
    shape = merkle.inclusion_shape(r["seq"], r["size"])
    return {"proof": codec.encode(objects.MMR_PROOF, proof)}, shape


def _mmr_verify(r: Fields) -> Answer:
    proof = codec.decode(objects.MMR_PROOF, r["proof"])
    merkle.verify_inclusion(proof, r["root"], r["leaf"], r["seq"], r["size"])
    return {}, {}


def _mmr_consistency(r: Fields) -> Answer:
    proof = merkle.consistency(r["leaves"], r["old"], r["new"])
    return {"proof": codec.encode(objects.CONSISTENCY_PROOF, proof)}, proof


def _mmr_verify_consistency(r: Fields) -> Answer:
    proof = codec.decode(objects.CONSISTENCY_PROOF, r["proof"])
    merkle.verify_consistency(proof, r["old_root"], r["old"], r["new_root"], r["new"])
    return {}, {}


# --- capability tokens and entries --------------------------------------------------------------------------


def _without_chain(token: Fields) -> bytes:
    fields = {name: field for name, field in objects.CAP_TOKEN.fields.items() if name != "sig_chain"}
    return codec.encode(codec.Map(fields), {name: token[name] for name in fields})


def _cap_mint(r: Fields) -> Answer:
    allow: Fields = {"stream_ids": sorted(set(r["stream_ids"])), "ttl": r["ttl"]}
    if r["rate"] is not None:
        allow["rate"] = dict(zip(("per_sec", "burst"), r["rate"], strict=True))
    token: Fields = {"ver": 1, "issuer_pk": public_key(r["issuer_seed"])}
    token |= {"subject_pk": r["subject_pk"], "allow": allow}
    unsigned = _without_chain(token)
    chain, digests = [bytes(64)], []
    for _ in range(r["links"]):
        digests.append(ht("veen/cap-link", unsigned + chain[-1]))
        chain.append(sign(r["issuer_seed"], digests[-1]))
    encoded = codec.encode(objects.CAP_TOKEN, token | {"sig_chain": chain[1:]})
    trace = {"unsigned": unsigned, "link_digests": digests, "token_hash": h(encoded)}
    return {"token": encoded, "auth_ref": ht("veen/cap", encoded)}, trace


def _cap_verify(r: Fields) -> Answer:
    token = codec.decode(objects.CAP_TOKEN, r["token"])
    unsigned, previous = _without_chain(token), bytes(64)
    for link in token["sig_chain"]:
        digest = ht("veen/cap-link", unsigned + previous)
        need(rfc8032.verify(token["issuer_pk"], digest, link), "link")
        previous = link
    names = ("issuer_pk", "subject_pk")
    return {"auth_ref": ht("veen/cap", r["token"])} | {name: token[name] for name in names}, {}


def _entry(r: Fields) -> Answer:
    codec.decode(objects.MSG, r["msg"])
    frame = _frame(r["msg"], r["receipt"])
    return {"entry": frame, "entry_hash": frame[50:82]}, {}


OPERATIONS: dict[str, Callable[[Fields], Answer]] = {
    "h": _hash,
    "ht": _tagged,
    "profile_id": _profile_id,
    "hub_id": _hub_id,
    "routing_key": _routing_key,
    "stream_id": _stream_id,
    "schema_id": _schema_id,
    "label": _label,
    "public_keys": _public_keys,
    "decode": _decode,
    "encode": _encode,
    "sign_msg": _sign_msg,
    "verify_msg": _verify_msg,
    "sign_receipt": _sign_receipt,
    "verify_receipt": _verify_receipt,
    "sign_checkpoint": _sign_checkpoint,
    "verify_checkpoint": _verify_checkpoint,
    "seal": _seal,
    "open": _open,
    "seal_attachments": _seal_attachments,
    "att_root": _att_root,
    "mmr_root": _mmr_root,
    "mmr_proof": _mmr_proof,
    "mmr_verify": _mmr_verify,
    "mmr_consistency": _mmr_consistency,
    "mmr_verify_consistency": _mmr_verify_consistency,
    "cap_mint": _cap_mint,
    "cap_verify": _cap_verify,
    "entry": _entry,
    "overlay_ids": lambda r: (folds.overlay_ids(r), {}),
    "fold": lambda r: (folds.fold(r), {}),
    "canonical_json": lambda r: (canonical.canonical_json(r), {}),
}

#: Request fields that are not hex.
_PLAIN = {"op", "type", "value", "hdr", "tag", "name", "realm", "currency", "overlay", "events"}


def _parsed(name: str, value: Json) -> Json:
    if name in _PLAIN or value is None or isinstance(value, int):
        return value
    if isinstance(value, list):
        return [_parsed(name, item) for item in value]
    return unhexed(value)


def answer(request: Fields) -> Answer:
    """Answer a request: the fields of its answer and the values between, as JSON; or refuse."""
    given = {name: _parsed(name, value) for name, value in request.items()}
    result, trace = OPERATIONS[request["op"]](given)
    return hexed(result), hexed(trace)


__all__ = ["OPERATIONS", "Refused", "answer"]
