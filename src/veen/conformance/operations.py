"""The operations of the adapter: each takes arguments, calls the library and names the results."""

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Protocol

from veen.conformance import folds
from veen.conformance.arguments import Arguments
from veen.conformance.errors import MalformedRequestError
from veen.core.api import data_plane
from veen.core.crypto import hpke
from veen.core.crypto.ed25519 import SigningKey
from veen.core.crypto.hash import sha256, tagged_hash
from veen.core.data_dir.chunk_artifacts import CheckpointIndex, ChunkSummary, PeakSnapshot
from veen.core.encoding import canonical_json
from veen.core.merkle import mmr
from veen.core.merkle.consistency import ConsistencyProof, prove_consistency
from veen.core.merkle.inclusion import MmrProof, prove_inclusion
from veen.core.objects import labels
from veen.core.objects.attachment import att_root
from veen.core.objects.capability import CapToken, Rate
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.entry import Entry
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.core.objects.hub_identity import CheckpointBinding, HubIdentity, KeyMap
from veen.core.objects.msg import Msg, MsgContext, PayloadHeader
from veen.core.objects.receipt import Receipt
from veen.core.objects.sealed_payload import Sealed, open_msg, seal
from veen.core.profile import Profile
from veen.core.types import (
    AuthRef,
    Coid,
    HubId,
    JsonValue,
    Label,
    LeafHash,
    NodeHash,
    ProfileId,
    ReaderPublicKey,
    ReaderSecretKey,
    RoutingKey,
    StreamId,
    VerifyKey,
)

Answer = dict[str, JsonValue]
Operation = Callable[[Arguments], Answer]


class Codec(Protocol):
    """The type behind ``decode`` and ``encode``."""

    def encode(self) -> bytes:
        """Return the bytes of the object."""

    def to_json(self) -> JsonValue:
        """Return the JSON form of the object."""


_Parsers = tuple[Callable[[bytes], Codec], Callable[[JsonValue], Codec]]

_WIRE_TYPES: Final = (
    Msg,
    Receipt,
    Checkpoint,
    PayloadHeader,
    MmrProof,
    ConsistencyProof,
    CapToken,
    Profile,
    ErrorEnvelope,
    ChunkSummary,
    HubIdentity,
    data_plane.SubmitRequest,
    data_plane.SubmitResponse,
    data_plane.StreamRequest,
    data_plane.StreamResponse,
    data_plane.ReceiptRequest,
    data_plane.ProofRequest,
    data_plane.ProofResponse,
    data_plane.CheckpointRequest,
    data_plane.CheckpointResponse,
)
# Types of ``decode`` and ``encode`` by the name of their shape, in lower case.
TYPES: Final[Mapping[str, _Parsers]] = MappingProxyType(
    {cls.SHAPE.name.lower(): (cls.decode, cls.from_json) for cls in _WIRE_TYPES}
    | {"receipt_response": (data_plane.ReceiptResponse.decode, data_plane.ReceiptResponse.from_json)}
    | {
        "entry": (Entry.decode_one, Entry.from_json),
        "peaks": (PeakSnapshot.decode, PeakSnapshot.from_json),
        "checkpoint_index": (CheckpointIndex.decode, CheckpointIndex.from_json),
        "hub_key_map": (KeyMap.decode, KeyMap.from_json),
        "checkpoint_binding": (CheckpointBinding.decode, CheckpointBinding.from_json),
    }
)


def _parsers(args: Arguments) -> _Parsers:
    name = args.text("type")
    parsers = TYPES.get(name) or folds.body_parsers(name)
    if parsers is None:
        raise MalformedRequestError(f"unknown type {name!r}")
    return parsers


def _decode(args: Arguments) -> Answer:
    decoded = _parsers(args)[0](args.hex("data"))
    return {"value": decoded.to_json(), "encoded": decoded.encode().hex()}


def _encode(args: Arguments) -> Answer:
    return {"data": _parsers(args)[1](args.json("value")).encode().hex()}


def _profile_id(args: Arguments) -> Answer:
    profile = Profile(epoch_sec=args.uint("epoch_sec"), pad_block=args.uint("pad_block"))
    return {"profile": profile.encode().hex(), "profile_id": profile.profile_id.hex()}


def _label(args: Arguments) -> Answer:
    label = labels.label(
        RoutingKey(args.hex("routing_key")), StreamId(args.hex("stream_id")), args.uint("epoch")
    )
    return {"label": label.hex()}


def _auth_ref(args: Arguments) -> AuthRef | None:
    ref = args.hex_or_none("auth_ref")
    return None if ref is None else AuthRef(ref)


def _context(args: Arguments, profile_id: ProfileId, client_id: VerifyKey) -> MsgContext:
    return MsgContext(
        profile_id=profile_id,
        label=Label(args.hex("label")),
        client_id=client_id,
        client_seq=args.uint("client_seq"),
        prev_ack=args.uint("prev_ack"),
        auth_ref=_auth_ref(args),
    )


def _sign_msg(args: Arguments) -> Answer:
    key = SigningKey.from_seed(args.key("seed"))
    context = _context(args, ProfileId(args.hex("profile_id")), key.public_key)
    msg = Msg.sign(key, context, args.hex("ciphertext"))
    return {"msg": msg.encode().hex(), "leaf_hash": msg.leaf_hash.hex()}


def _verify_msg(args: Arguments) -> Answer:
    msg = Msg.decode(args.hex("msg"))
    msg.verify()
    return {"leaf_hash": msg.leaf_hash.hex()}


def _sign_receipt(args: Arguments) -> Answer:
    receipt = Receipt.sign(
        SigningKey.from_seed(args.key("seed")),
        label=Label(args.hex("label")),
        stream_seq=args.uint("stream_seq"),
        leaf_hash=LeafHash(args.hex("leaf_hash")),
        mmr_root=NodeHash(args.hex("mmr_root")),
        hub_ts=args.uint("hub_ts"),
    )
    return {"receipt": receipt.encode().hex()}


def _verify_receipt(args: Arguments) -> Answer:
    Receipt.decode(args.hex("receipt")).verify_signature(VerifyKey(args.key("hub_pk")))
    return {}


def _sign_checkpoint(args: Arguments) -> Answer:
    checkpoint = Checkpoint.sign(
        SigningKey.from_seed(args.key("seed")),
        label_prev=Label(args.hex("label_prev")),
        label_curr=Label(args.hex("label_curr")),
        upto_seq=args.uint("upto_seq"),
        mmr_root=NodeHash(args.hex("mmr_root")),
        epoch=args.uint("epoch"),
        witnesses=[SigningKey.from_seed(seed) for seed in args.keys("witness_seeds")],
    )
    return {"checkpoint": checkpoint.encode().hex()}


def _verify_checkpoint(args: Arguments) -> Answer:
    checkpoint = Checkpoint.decode(args.hex("checkpoint"))
    checkpoint.verify_signature(VerifyKey(args.key("hub_pk")))
    witnesses = checkpoint.verify_witnesses(VerifyKey(key) for key in args.keys("witness_pks"))
    return {"witnesses": [key.hex() for key in witnesses]}


def _seal_with(args: Arguments, attachments: list[bytes]) -> Sealed:
    profile = Profile(epoch_sec=args.uint("epoch_sec"), pad_block=args.uint("pad_block"))
    fixed = args.hex_or_none("ephemeral_sk")
    return seal(
        _context(args, profile.profile_id, VerifyKey(args.hex("client_id"))),
        recipient=ReaderPublicKey(args.hex("recipient_pk")),
        header=PayloadHeader.from_json(args.json("hdr")),
        body=args.hex("body"),
        pad_block=profile.pad_block,
        random=os.urandom if fixed is None else lambda _: fixed,
        attachments=attachments,
    )


def _seal(args: Arguments) -> Answer:
    sealed = _seal_with(args, [])
    return {"ciphertext": sealed.ciphertext.hex(), "ct_hash": sealed.ct_hash.hex()}


def _seal_attachments(args: Arguments) -> Answer:
    sealed = _seal_with(args, args.hexes("attachments"))
    return {
        "ciphertext": sealed.ciphertext.hex(),
        "coids": [coid.hex() for coid in sealed.coids],
        "att_root": att_root(sealed.coids).hex(),
        "attachments": [item.hex() for item in sealed.attachments],
    }


def _open(args: Arguments) -> Answer:
    msg = Msg.decode(args.hex("msg"))
    reader = hpke.ReaderKey.from_secret(ReaderSecretKey(args.key("recipient_sk")))
    opened = open_msg(msg, reader, pad_block=args.uint("pad_block"))
    return {"hdr": opened.header.to_json(), "body": opened.body.hex()}


def _mmr_root(args: Arguments) -> Answer:
    peaks = mmr.Peaks.empty()
    roots: list[JsonValue] = []
    for leaf in _leaves(args):
        peaks = peaks.append(leaf)
        roots.append(peaks.root.hex())
    return {"roots": roots, "peaks": [peak.hex() for peak in peaks.hashes]}


def _leaves(args: Arguments) -> list[bytes]:
    return args.keys("leaves")


def _reader(args: Arguments, size: int) -> mmr.ReadNode:
    leaves = _leaves(args)
    if size > len(leaves):
        raise MalformedRequestError(f"{len(leaves)} leaves for a tree of size {size}")
    return mmr.complete_nodes(leaves).__getitem__


def _mmr_proof(args: Arguments) -> Answer:
    size = args.uint("size")
    proof = prove_inclusion(_reader(args, size), stream_seq=args.uint("seq"), mmr_size=size)
    return {"proof": proof.encode().hex()}


def _mmr_verify(args: Arguments) -> Answer:
    MmrProof.decode(args.hex("proof")).verify(
        args.hex("root"), LeafHash(args.hex("leaf")), stream_seq=args.uint("seq"), mmr_size=args.uint("size")
    )
    return {}


def _mmr_consistency(args: Arguments) -> Answer:
    new = args.uint("new")
    proof = prove_consistency(_reader(args, new), old_size=args.uint("old"), new_size=new)
    return {"proof": proof.encode().hex()}


def _mmr_verify_consistency(args: Arguments) -> Answer:
    ConsistencyProof.decode(args.hex("proof")).verify(
        old_root=args.hex("old_root"),
        old_size=args.uint("old"),
        new_root=args.hex("new_root"),
        new_size=args.uint("new"),
    )
    return {}


def _cap_mint(args: Arguments) -> Answer:
    issuer = SigningKey.from_seed(args.key("issuer_seed"))
    rate = args.uints_or_none("rate")
    if rate is not None and len(rate) != 2:
        raise MalformedRequestError("rate must be [per_sec, burst] or null")
    links = args.uint("links")
    if links == 0:
        raise MalformedRequestError("links must be at least 1")
    token = CapToken.mint(
        issuer,
        VerifyKey(args.hex("subject_pk")),
        stream_ids=[StreamId(item) for item in args.hexes("stream_ids")],
        ttl=args.uint("ttl"),
        rate=None if rate is None else Rate(per_sec=rate[0], burst=rate[1]),
    )
    for _ in range(links - 1):
        token = token.renew(issuer)
    return {"token": token.encode().hex(), "auth_ref": token.auth_ref.hex()}


def _cap_verify(args: Arguments) -> Answer:
    token = CapToken.decode(args.hex("token"))
    token.verify()
    return {
        "auth_ref": token.auth_ref.hex(),
        "issuer_pk": token.issuer_pk.hex(),
        "subject_pk": token.subject_pk.hex(),
    }


def _entry(args: Arguments) -> Answer:
    entry = Entry(Msg.decode(args.hex("msg")).encode(), Receipt.decode(args.hex("receipt")))
    return {"entry": entry.encode().hex(), "entry_hash": entry.entry_hash.hex()}


def _canonical_json(args: Arguments) -> Answer:
    text = canonical_json.encode(args.exact("value"))
    return {"text": text.decode(), "hash": sha256(text).hex()}


# Every operation by its name.
OPERATIONS: Final[Mapping[str, Operation]] = MappingProxyType(
    {
        "h": lambda args: {"hash": sha256(args.hex("data")).hex()},
        "ht": lambda args: {"hash": tagged_hash(args.text("tag"), args.hex("data")).hex()},
        "profile_id": _profile_id,
        "hub_id": lambda args: {"hub_id": labels.hub_id(VerifyKey(args.hex("hub_pk"))).hex()},
        "routing_key": lambda args: {"routing_key": labels.routing_key(HubId(args.hex("hub_id"))).hex()},
        "stream_id": lambda args: {"stream_id": labels.stream_id(args.text("name")).hex()},
        "label": _label,
        "schema_id": lambda args: {"schema_id": labels.schema_id(args.text("name")).hex()},
        "public_keys": lambda args: {
            "ed25519": SigningKey.from_seed(args.key("seed")).public_key.hex(),
            "x25519": hpke.public_key(ReaderSecretKey(args.key("seed"))).hex(),
        },
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
        "att_root": lambda args: {"att_root": att_root([Coid(item) for item in args.keys("coids")]).hex()},
        "mmr_root": _mmr_root,
        "mmr_proof": _mmr_proof,
        "mmr_verify": _mmr_verify,
        "mmr_consistency": _mmr_consistency,
        "mmr_verify_consistency": _mmr_verify_consistency,
        "cap_mint": _cap_mint,
        "cap_verify": _cap_verify,
        "entry": _entry,
        "overlay_ids": folds.overlay_ids,
        "fold": folds.fold,
        "canonical_json": _canonical_json,
    }
)
