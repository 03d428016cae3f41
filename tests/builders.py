"""One builder per object, every option defaulted: a test states only what it is about.

Keys and identifiers are hashes of their names, so that equal names mean equal bytes in every test.
"""

from collections.abc import Iterable, Sequence
from itertools import count

from veen.core.api import data_plane
from veen.core.crypto import hpke
from veen.core.crypto.ed25519 import SigningKey
from veen.core.crypto.hash import sha256, u64be
from veen.core.data_dir.chunk_artifacts import CheckpointIndex, ChunkRange, ChunkSummary, IndexedCheckpoint
from veen.core.errors import DetailValue
from veen.core.limits import DEFAULT_LIMITS, Limits
from veen.core.merkle.consistency import ConsistencyProof, prove_consistency
from veen.core.merkle.inclusion import MmrProof, prove_inclusion
from veen.core.merkle.mmr import Peaks, complete_nodes
from veen.core.objects import labels
from veen.core.objects.capability import CapToken, Rate
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.control_record import RevocationBody, RevocationRecord, Target, TrustRecord
from veen.core.objects.entry import Entry
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.core.objects.hub_identity import BoundCheckpoint, ForkParent, HubIdentity, HubKey, key_id
from veen.core.objects.msg import Msg, MsgContext, PayloadHeader
from veen.core.objects.proof_of_work import PowCookie
from veen.core.objects.receipt import Receipt
from veen.core.objects.sealed_payload import Sealed, seal
from veen.core.profile import Profile
from veen.core.types import (
    AuthRef,
    HubId,
    Label,
    LeafHash,
    NodeHash,
    ProfileId,
    RandomBytes,
    ReaderPublicKey,
    ReaderSecretKey,
    RoutingKey,
    SchemaId,
    Signature,
    StreamId,
    VerifyKey,
)

# --- names to bytes -----------------------------------------------------------------------------------------


def digest(name: str) -> bytes:
    """Return 32 bytes that stand for a name."""
    return sha256(name.encode())


def signing_key(name: str = "client") -> SigningKey:
    return SigningKey.from_seed(digest(f"seed of {name}"))


def verify_key(name: str = "client") -> VerifyKey:
    return signing_key(name).public_key


def reader_secret(name: str = "reader") -> ReaderSecretKey:
    return ReaderSecretKey(digest(f"secret of {name}"))


def reader_key(name: str = "reader") -> hpke.ReaderKey:
    return hpke.ReaderKey.from_secret(reader_secret(name))


def reader_public(name: str = "reader") -> ReaderPublicKey:
    return reader_key(name).public_key


def some_label(name: str = "label") -> Label:
    return Label(digest(name))


def stream(name: str = "stream") -> StreamId:
    return labels.stream_id(name)


def hub_id(name: str = "hub") -> HubId:
    return labels.hub_id(verify_key(name))


def routing_key(name: str = "hub") -> RoutingKey:
    return labels.routing_key(hub_id(name))


def leaf(number: int) -> LeafHash:
    """Return leaf ``number`` of the logs that tests are about."""
    return LeafHash(sha256(u64be(number)))


def leaves(size: int) -> list[LeafHash]:
    return [leaf(number) for number in range(1, size + 1)]


def counted_random(name: str = "random") -> RandomBytes:
    """Return a source of bytes that never repeats itself, and is the same in every run."""
    numbers = count()

    def draw(length: int) -> bytes:
        blocks = -(-length // 32)
        return b"".join(digest(f"{name} {next(numbers)}") for _ in range(blocks))[:length]

    return draw


# --- protocol objects ---------------------------------------------------------------------------------------


def profile(*, epoch_sec: int = 0, pad_block: int = 256) -> Profile:
    return Profile(epoch_sec=epoch_sec, pad_block=pad_block)


def context(
    *,
    profile_id: ProfileId | None = None,
    label: Label | None = None,
    client: str = "client",
    client_seq: int = 1,
    prev_ack: int = 0,
    auth_ref: AuthRef | None = None,
) -> MsgContext:
    return MsgContext(
        profile_id=profile().profile_id if profile_id is None else profile_id,
        label=some_label() if label is None else label,
        client_id=verify_key(client),
        client_seq=client_seq,
        prev_ack=prev_ack,
        auth_ref=auth_ref,
    )


def payload_header(
    *,
    schema: str = "chat.v1",
    parent_id: LeafHash | None = None,
    att_root: bytes | None = None,
    cap_ref: AuthRef | None = None,
    expires_at: int | None = None,
) -> PayloadHeader:
    return PayloadHeader(
        schema=labels.schema_id(schema),
        parent_id=parent_id,
        att_root=att_root,
        cap_ref=cap_ref,
        expires_at=expires_at,
    )


def full_payload_header() -> PayloadHeader:
    """Return a header with every field, each as long as it can be."""
    return PayloadHeader(
        schema=SchemaId(digest("schema")),
        parent_id=leaf(1),
        att_root=digest("att_root"),
        cap_ref=AuthRef(digest("cap_ref")),
        expires_at=2**64 - 1,
    )


def sealed(
    ctx: MsgContext | None = None,
    *,
    header: PayloadHeader | None = None,
    body: bytes = b"hello",
    pad_block: int = 256,
    attachments: Sequence[bytes] = (),
    reader: str = "reader",
    random: RandomBytes | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Sealed:
    return seal(
        context() if ctx is None else ctx,
        recipient=reader_public(reader),
        header=payload_header() if header is None else header,
        body=body,
        pad_block=pad_block,
        random=counted_random() if random is None else random,
        attachments=attachments,
        limits=limits,
    )


def msg(
    ctx: MsgContext | None = None,
    *,
    ciphertext: bytes | None = None,
    signer: str = "client",
    body: bytes = b"hello",
    pad_block: int = 256,
    attachments: Sequence[bytes] = (),
) -> Msg:
    ctx = context(client=signer) if ctx is None else ctx
    if ciphertext is None:
        ciphertext = sealed(ctx, body=body, pad_block=pad_block, attachments=attachments).ciphertext
    return Msg.sign(signing_key(signer), ctx, ciphertext)


def receipt(
    *,
    of: Msg | None = None,
    label: Label | None = None,
    stream_seq: int = 1,
    leaf_hash: LeafHash | None = None,
    mmr_root: NodeHash | None = None,
    hub_ts: int = 1_700_000_000,
    signer: str = "hub",
) -> Receipt:
    if leaf_hash is None:
        leaf_hash = leaf(stream_seq) if of is None else of.leaf_hash
    if label is None:
        label = some_label() if of is None else of.label
    return Receipt.sign(
        signing_key(signer),
        label=label,
        stream_seq=stream_seq,
        leaf_hash=leaf_hash,
        mmr_root=NodeHash(leaf_hash) if mmr_root is None else mmr_root,
        hub_ts=hub_ts,
    )


def checkpoint(
    *,
    label_prev: Label | None = None,
    label_curr: Label | None = None,
    upto_seq: int = 1,
    mmr_root: NodeHash | None = None,
    epoch: int = 0,
    signer: str = "hub",
    witnesses: Iterable[str] = (),
) -> Checkpoint:
    curr = some_label() if label_curr is None else label_curr
    return Checkpoint.sign(
        signing_key(signer),
        label_prev=curr if label_prev is None else label_prev,
        label_curr=curr,
        upto_seq=upto_seq,
        mmr_root=peaks(upto_seq).root if mmr_root is None else mmr_root,
        epoch=epoch,
        witnesses=[signing_key(name) for name in witnesses],
    )


def cap_token(
    *,
    issuer: str = "issuer",
    subject: str = "client",
    streams: Iterable[str] = ("stream",),
    ttl: int = 3_600,
    rate: Rate | None = None,
    links: int = 1,
) -> CapToken:
    token = CapToken.mint(
        signing_key(issuer),
        verify_key(subject),
        stream_ids=[stream(name) for name in streams],
        ttl=ttl,
        rate=rate,
    )
    for _ in range(links - 1):
        token = token.renew(signing_key(issuer))
    return token


def rate(per_sec: int = 5, burst: int = 10) -> Rate:
    return Rate(per_sec=per_sec, burst=burst)


# --- logs and proofs ----------------------------------------------------------------------------------------


def peaks(size: int) -> Peaks:
    """Return the peaks of the log of ``leaf(1)`` to ``leaf(size)``."""
    made = Peaks.empty()
    for number in range(1, size + 1):
        made = made.append(leaf(number))
    return made


def nodes(size: int) -> list[NodeHash]:
    return complete_nodes(leaves(size))


def inclusion_proof(stream_seq: int = 3, mmr_size: int = 7) -> MmrProof:
    return prove_inclusion(nodes(mmr_size).__getitem__, stream_seq=stream_seq, mmr_size=mmr_size)


def consistency_proof(old_size: int = 3, new_size: int = 7) -> ConsistencyProof:
    return prove_consistency(nodes(new_size).__getitem__, old_size=old_size, new_size=new_size)


def entry(*, message: Msg | None = None, stream_seq: int = 1) -> Entry:
    message = msg() if message is None else message
    return Entry(message.encode(), receipt(of=message, stream_seq=stream_seq))


# --- files --------------------------------------------------------------------------------------------------


def chunk_summary(*, start_seq: int = 1, end_seq: int = 3, entry_count: int | None = None) -> ChunkSummary:
    return ChunkSummary(
        label=some_label(),
        start_seq=start_seq,
        end_seq=end_seq,
        mmr_root_end=NodeHash(digest("root")),
        entry_count=end_seq - start_seq + 1 if entry_count is None else entry_count,
        total_bytes=4_096,
        entry_hashes_root=NodeHash(digest("entry hashes")),
    )


def indexed_checkpoint(*, start_seq: int = 1, end_seq: int = 3) -> IndexedCheckpoint:
    return IndexedCheckpoint(
        mmr_root=NodeHash(digest(f"root {end_seq}")),
        chunk_range=ChunkRange(start_seq=start_seq, end_seq=end_seq),
        peaks_ref=f"peaks-{end_seq:020}.cbor",
    )


def checkpoint_index(upto_seqs: Iterable[int] = (3, 40, 900)) -> CheckpointIndex:
    return CheckpointIndex({upto: indexed_checkpoint(end_seq=upto) for upto in upto_seqs})


def hub_key(name: str = "hub", *, valid_from: int = 0, valid_until: int | None = None) -> HubKey:
    return HubKey.of(verify_key(name), valid_from, valid_until)


def identity(
    keys: Sequence[HubKey] | None = None,
    *,
    anchoring: str = "pinned",
    control_pk: str | None = None,
    parent: str | None = None,
) -> HubIdentity:
    keys = [hub_key()] if keys is None else keys
    first = labels.hub_id(keys[0].hub_pk)
    return HubIdentity(
        hub_id=first,
        hub_keys=tuple(keys),
        anchoring=anchoring,
        routing_key=labels.routing_key(first),
        control_pk=None if control_pk is None else reader_public(control_pk),
        parent=None if parent is None else ForkParent(hub_id=hub_id(parent), fork_hash=digest("fork")),
    )


def bound_checkpoint(*, label: Label | None = None, epoch: int = 0, upto_seq: int = 3) -> BoundCheckpoint:
    return BoundCheckpoint(
        label=some_label() if label is None else label,
        epoch=epoch,
        upto_seq=upto_seq,
        hub_id=hub_id(),
        key_id=key_id(verify_key("hub")),
        mmr_root=NodeHash(digest("root")),
    )


# --- requests and responses ---------------------------------------------------------------------------------


def submit_request(message: Msg | None = None) -> data_plane.SubmitRequest:
    return data_plane.SubmitRequest(msg=msg() if message is None else message)


def submit_response(*, server_version: str | None = None) -> data_plane.SubmitResponse:
    return data_plane.SubmitResponse(receipt=receipt(), server_version=server_version)


def stream_request(
    *,
    from_seq: int = 1,
    to_seq: int | None = None,
    max_items: int | None = None,
    cursor: int | None = None,
    with_receipts: bool | None = None,
    with_mmr_proof: bool | None = None,
) -> data_plane.StreamRequest:
    return data_plane.StreamRequest(
        label=some_label(),
        from_seq=from_seq,
        to_seq=to_seq,
        max_items=max_items,
        cursor=cursor,
        with_receipts=with_receipts,
        with_mmr_proof=with_mmr_proof,
    )


def stream_response(items: int = 2, *, full: bool = True) -> data_plane.StreamResponse:
    """Return a page; ``full`` has every optional field."""
    page = [
        data_plane.StreamItem(stream_seq=seq, msg=msg(), receipt=receipt(stream_seq=seq) if full else None)
        for seq in range(1, items + 1)
    ]
    return data_plane.StreamResponse(
        label=some_label(),
        from_seq=1,
        to_seq=items if full else None,
        items=tuple(page),
        next_cursor=items + 1 if full else None,
        mmr_proof=inclusion_proof(stream_seq=1, mmr_size=1) if full else None,
        server_version="0.0.1" if full else None,
    )


def receipt_request(stream_seq: int = 1) -> data_plane.ReceiptRequest:
    return data_plane.ReceiptRequest(label=some_label(), stream_seq=stream_seq)


def proof_request(stream_seq: int = 1) -> data_plane.ProofRequest:
    return data_plane.ProofRequest(label=some_label(), stream_seq=stream_seq)


def proof_response(*, server_version: str | None = None) -> data_plane.ProofResponse:
    return data_plane.ProofResponse(mmr_proof=inclusion_proof(), server_version=server_version)


def checkpoint_request(upto_seq: int = 1) -> data_plane.CheckpointRequest:
    return data_plane.CheckpointRequest(label=some_label(), upto_seq=upto_seq)


def checkpoint_response(*, server_version: str | None = None) -> data_plane.CheckpointResponse:
    return data_plane.CheckpointResponse(
        checkpoint=checkpoint(witnesses=("w1", "w2")), server_version=server_version
    )


def error_envelope(
    *, code: str = "E.FORMAT", message: str = "no", detail: dict[str, DetailValue] | None = None
) -> ErrorEnvelope:
    return ErrorEnvelope(code=code, message=message, detail=detail)


def full_error_envelope() -> ErrorEnvelope:
    return ErrorEnvelope(
        code="E.SIZE",
        message="too long",
        detail={"field": "label", "actual": 33, "label": digest("label"), "expected": 32},
        retry_after=3,
        request_id="r-1",
    )


def unsigned(length: int = 64) -> Signature:
    """Return bytes in the place of a signature that nobody made."""
    return Signature(bytes(length))


# --- control records and proof of work ----------------------------------------------------------------------


def trust_record(*, issuer: str = "issuer", trusted: bool = True, note: str | None = None) -> TrustRecord:
    return TrustRecord(issuer_pk=verify_key(issuer), trusted=trusted, note=note)


def revocation_record(
    *,
    target_kind: str = Target.CLIENT_ID,
    target: str = "target",
    ts: int = 1_000,
    ttl: int | None = None,
    reason: str | None = None,
    origin: str | None = None,
) -> RevocationRecord:
    return RevocationRecord(
        target_kind=str(target_kind),
        target=digest(target),
        ts=ts,
        ttl=ttl,
        reason=reason,
        origin=None if origin is None else LeafHash(digest(origin)),
    )


def revocation_body(
    *,
    kind: str = Target.CLIENT_ID,
    target: str = "target",
    ts: int = 1_000,
    ttl: int | None = None,
    reason: str | None = None,
) -> RevocationBody:
    return RevocationBody(kind=str(kind), target=digest(target), ts=ts, ttl=ttl, reason=reason)


def pow_cookie(*, nonce: int = 300, difficulty: int = 8) -> PowCookie:
    return PowCookie(challenge=digest("challenge"), nonce=nonce, difficulty=difficulty)
