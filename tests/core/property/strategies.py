"""Generated objects: every field of every type, over its whole range."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.builders import signing_key
from veen.core.api import data_plane
from veen.core.data_dir.chunk_artifacts import CheckpointIndex, ChunkRange, ChunkSummary, IndexedCheckpoint
from veen.core.encoding.wire_object import Wire
from veen.core.merkle.consistency import ConsistencyProof
from veen.core.merkle.inclusion import MmrProof, Step
from veen.core.objects import labels
from veen.core.objects.capability import Allow, CapToken, Rate
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.control_record import RevocationBody, RevocationRecord, Target, TrustRecord
from veen.core.objects.entry import Entry
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.core.objects.hub_identity import BoundCheckpoint, HubIdentity, HubKey
from veen.core.objects.msg import Msg, PayloadHeader
from veen.core.objects.proof_of_work import PowCookie
from veen.core.objects.receipt import Receipt
from veen.core.profile import Profile
from veen.core.types import VerifyKey

#: Small numbers and the places where an encoding gets longer are as likely as all the rest.
edges = [0, 1, 23, 24, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**63, 2**64 - 1]
uints = st.one_of(st.sampled_from(edges), st.integers(0, 2**64 - 1))
positive = uints.filter(bool)
b16 = st.binary(min_size=16, max_size=16)
b32: Any = st.binary(min_size=32, max_size=32)
b64: Any = st.binary(min_size=64, max_size=64)
texts = st.text(max_size=40)


def maybe(strategy: Any) -> Any:
    return st.none() | strategy


@st.composite
def ciphertexts(draw: Callable[..., Any]) -> bytes:
    """Return bytes whose inner lengths add up, as a reader demands."""
    hdr, body, rest = (draw(st.binary(max_size=60)) for _ in range(3))
    lengths = len(hdr).to_bytes(4, "big") + len(body).to_bytes(4, "big")
    return bytes(draw(b32) + lengths + hdr + body + rest)


msgs = st.builds(
    Msg,
    profile_id=b32,
    label=b32,
    client_id=b32,
    client_seq=uints,
    prev_ack=uints,
    auth_ref=maybe(b32),
    ct_hash=b32,
    ciphertext=ciphertexts(),
    sig=b64,
)
receipts = st.builds(
    Receipt, label=b32, stream_seq=positive, leaf_hash=b32, mmr_root=b32, hub_ts=uints, hub_sig=b64
)
checkpoints = st.builds(
    Checkpoint,
    label_prev=b32,
    label_curr=b32,
    upto_seq=positive,
    mmr_root=b32,
    epoch=uints,
    hub_sig=b64,
    witness_sigs=maybe(st.lists(b64, min_size=1, max_size=5).map(tuple)),
)
profiles = st.builds(Profile, epoch_sec=uints, pad_block=uints)
payload_headers = st.builds(
    PayloadHeader,
    schema=b32,
    parent_id=maybe(b32),
    att_root=maybe(b32),
    cap_ref=maybe(b32),
    expires_at=maybe(uints),
)
hash_lists = st.lists(b32, max_size=8).map(tuple)
proofs = st.builds(
    MmrProof,
    leaf_hash=b32,
    path=st.lists(st.builds(Step, st.sampled_from([0, 1]), b32), max_size=8).map(tuple),
    peaks_after=hash_lists,
)
consistency_proofs = st.builds(
    ConsistencyProof, old_peaks=hash_lists, siblings=hash_lists, new_peaks=hash_lists
)
rates = st.builds(Rate, per_sec=uints, burst=uints)
allows = st.builds(
    Allow,
    stream_ids=st.sets(b32, min_size=1, max_size=5).map(lambda ids: tuple(sorted(ids))),
    ttl=uints,
    rate=maybe(rates),
)
cap_tokens = st.builds(
    CapToken,
    issuer_pk=b32,
    subject_pk=b32,
    allow=allows,
    sig_chain=st.lists(b64, min_size=1, max_size=8).map(tuple),
)
details = st.dictionaries(
    texts | st.just("label"), st.one_of(uints, texts, st.binary(max_size=40)), max_size=6
)
error_envelopes = st.builds(
    ErrorEnvelope,
    code=texts,
    message=texts,
    detail=maybe(details),
    retry_after=maybe(uints),
    request_id=maybe(texts),
)


@st.composite
def ranges(draw: Callable[..., Any]) -> tuple[int, int]:
    first, second = draw(positive), draw(positive)
    return min(first, second), max(first, second)


@st.composite
def chunk_summaries(draw: Callable[..., Any]) -> ChunkSummary:
    start, end = draw(ranges().filter(lambda pair: pair[1] - pair[0] + 1 < 2**64))
    return ChunkSummary(
        label=draw(b32),
        start_seq=start,
        end_seq=end,
        mmr_root_end=draw(b32),
        entry_count=end - start + 1,
        total_bytes=draw(uints),
        entry_hashes_root=draw(b32),
    )


chunk_ranges = ranges().map(lambda pair: ChunkRange(start_seq=pair[0], end_seq=pair[1]))
indexed_checkpoints = st.builds(IndexedCheckpoint, mmr_root=b32, chunk_range=chunk_ranges, peaks_ref=texts)
checkpoint_indexes = st.dictionaries(positive, indexed_checkpoints, max_size=5).map(CheckpointIndex)


@st.composite
def hub_keys(draw: Callable[..., Any]) -> HubKey:
    valid_from = draw(st.integers(0, 2**64 - 2))
    return HubKey.of(VerifyKey(draw(b32)), valid_from, draw(maybe(st.integers(valid_from + 1, 2**64 - 1))))


@st.composite
def identities(draw: Callable[..., Any]) -> HubIdentity:
    keys = draw(st.lists(hub_keys(), min_size=1, max_size=4, unique_by=lambda key: key.hub_pk))
    keys.sort(key=lambda key: (key.valid_from, key.hub_pk))
    return HubIdentity(
        hub_id=labels.hub_id(keys[0].hub_pk),
        hub_keys=tuple(keys),
        anchoring=draw(texts),
        routing_key=draw(b32),
        control_pk=draw(maybe(b32)),
    )


bound_checkpoints = st.builds(
    BoundCheckpoint, label=b32, epoch=uints, upto_seq=uints, hub_id=b32, key_id=b16, mmr_root=b32
)
stream_items = st.builds(data_plane.StreamItem, stream_seq=uints, msg=msgs, receipt=maybe(receipts))

WIRE: dict[type[Wire], Any] = {
    Msg: msgs,
    Receipt: receipts,
    Checkpoint: checkpoints,
    Profile: profiles,
    PayloadHeader: payload_headers,
    MmrProof: proofs,
    ConsistencyProof: consistency_proofs,
    Rate: rates,
    Allow: allows,
    CapToken: cap_tokens,
    ErrorEnvelope: error_envelopes,
    ChunkSummary: chunk_summaries(),
    ChunkRange: chunk_ranges,
    IndexedCheckpoint: indexed_checkpoints,
    HubKey: hub_keys(),
    HubIdentity: identities(),
    BoundCheckpoint: bound_checkpoints,
    data_plane.SubmitRequest: st.builds(data_plane.SubmitRequest, msg=msgs),
    data_plane.SubmitResponse: st.builds(
        data_plane.SubmitResponse, receipt=receipts, server_version=maybe(texts)
    ),
    data_plane.StreamRequest: st.builds(
        data_plane.StreamRequest,
        label=b32,
        from_seq=uints,
        to_seq=maybe(uints),
        max_items=maybe(uints),
        cursor=maybe(uints),
        with_receipts=maybe(st.booleans()),
        with_mmr_proof=maybe(st.booleans()),
    ),
    data_plane.StreamItem: stream_items,
    data_plane.StreamResponse: st.builds(
        data_plane.StreamResponse,
        label=b32,
        from_seq=uints,
        to_seq=maybe(uints),
        items=st.lists(stream_items, max_size=2).map(tuple),
        next_cursor=maybe(uints),
        mmr_proof=maybe(proofs),
        server_version=maybe(texts),
    ),
    data_plane.ReceiptRequest: st.builds(data_plane.ReceiptRequest, label=b32, stream_seq=uints),
    data_plane.ProofRequest: st.builds(data_plane.ProofRequest, label=b32, stream_seq=uints),
    data_plane.ProofResponse: st.builds(
        data_plane.ProofResponse, mmr_proof=proofs, server_version=maybe(texts)
    ),
    data_plane.CheckpointRequest: st.builds(data_plane.CheckpointRequest, label=b32, upto_seq=uints),
    data_plane.CheckpointResponse: st.builds(
        data_plane.CheckpointResponse, checkpoint=checkpoints, server_version=maybe(texts)
    ),
}

WIRE |= {
    TrustRecord: st.builds(TrustRecord, issuer_pk=b32, trusted=st.booleans(), note=maybe(texts)),
    RevocationRecord: st.builds(
        RevocationRecord,
        target_kind=st.sampled_from([str(kind) for kind in Target]),
        target=b32,
        ts=uints,
        ttl=maybe(uints),
        reason=maybe(texts),
        origin=maybe(b32),
    ),
    RevocationBody: st.builds(
        RevocationBody,
        kind=st.sampled_from([str(kind) for kind in Target]),
        target=b32,
        ts=uints,
        reason=maybe(texts),
        ttl=maybe(uints),
    ),
    PowCookie: st.builds(PowCookie, challenge=st.binary(max_size=60), nonce=uints, difficulty=uints),
}

entries = st.builds(lambda message, receipt: Entry(message.encode(), receipt), msgs, receipts)
signing_keys = st.sampled_from([signing_key(name) for name in ("a", "b", "c")])
