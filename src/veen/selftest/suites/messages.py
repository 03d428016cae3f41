"""Steps about messages: what a hub accepts, serves and rejects."""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from veen.client.effects import Query, Submit
from veen.client.models import Draft, SendOptions
from veen.client.send import send_draft
from veen.client.transport.http import HttpHub, to_message
from veen.core.api import data_plane
from veen.core.api.data_plane import (
    ProofRequest,
    ProofResponse,
    ReceiptRequest,
    ReceiptResponse,
    StreamRequest,
    StreamResponse,
)
from veen.core.api.tooling import ConsistencyRequest, ConsistencyResponse
from veen.core.encoding.wire_object import W, Wire
from veen.core.errors import Code, Detail
from veen.core.objects import labels
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.core.objects.hub_identity import HubIdentity
from veen.core.objects.msg import Msg
from veen.core.objects.receipt import Receipt
from veen.core.types import LeafHash, NodeHash, ProfileId, Signature
from veen.selftest.authors import Author, submit
from veen.selftest.context import Context
from veen.selftest.servers import ROTATING_STREAM
from veen.selftest.step import Needs, check, equal, refused, rejected, step

if TYPE_CHECKING:
    from veen.core.encoding.cbor import Value

_FEW: Final = 12


def author_of(ctx: Context, of: str) -> Author:
    """Return an author who writes to a new stream."""
    return Author(ctx.http(), ctx.facts(), ctx.name(of))


@step()
def send_receive(ctx: Context) -> str:
    """Messages arrive unchanged and in order, and only their reader can open them."""
    alice, bob, stream = ctx.client(), ctx.client(), ctx.name("send")
    bodies: list[Value] = [{"n": n, "text": ctx.random.randbytes(n * 7).hex()} for n in range(_FEW)]
    to_bob = SendOptions(to=bob.session.secrets.card(ctx.clock()).seal_key(ctx.clock()))
    sent = [send_draft(alice, stream, Draft(body), to_bob) for body in bodies]
    equal([item.position for item in sent], list(range(1, _FEW + 1)), "positions in the stream")
    messages = list(bob.read(stream, prove=True))
    equal([item.body for item in messages], bodies, "bodies that the reader has read")
    equal([item.receipt for item in messages], [item.receipt for item in sent], "receipts")
    equal(
        [item.msg.encode() for item in messages],
        [item.msg.encode() for item in sent],
        "bytes of the messages",
    )
    closed = list(alice.read(stream))
    equal([item.is_open for item in closed], [False] * _FEW, "messages that only the reader may open")
    return f"{_FEW} messages sent, received, checked and opened"


@step()
def receipts_and_proofs(ctx: Context) -> str:
    """Receipts, inclusion proofs and consistency proofs verify, and altered ones do not."""
    author = author_of(ctx, "proofs")
    receipts = [author.write()[1] for _ in range(_FEW)]
    last = receipts[-1]
    for receipt in receipts:
        label, seq = receipt.label, receipt.stream_seq
        served = ask(author.hub, ReceiptRequest(label=label, stream_seq=seq), ReceiptResponse).receipt
        equal(served.encode(), receipt.encode(), f"receipt {seq}, fetched again")
        proof = ask(author.hub, ProofRequest(label=label, stream_seq=seq), ProofResponse).mmr_proof
        proof.verify(receipt.mmr_root, receipt.leaf_hash, stream_seq=seq)
        wrong = NodeHash(_flipped(receipt.mmr_root))
        rejected(
            lambda: proof.verify(wrong, receipt.leaf_hash, stream_seq=seq),  # noqa: B023 - called at once
            "a proof for another root",
        )
        grown = ask(
            author.hub,
            ConsistencyRequest(label=label, old_size=seq, new_size=last.stream_seq),
            ConsistencyResponse,
        ).proof
        grown.verify(
            old_root=receipt.mmr_root, old_size=seq, new_root=last.mmr_root, new_size=last.stream_seq
        )
        _check_altered(author.facts.identity, receipt)
    return f"{_FEW} receipts, each with its proofs"


def _check_altered(identity: HubIdentity, receipt: Receipt) -> None:
    altered = (
        replace(receipt, stream_seq=receipt.stream_seq + 1),
        replace(receipt, leaf_hash=LeafHash(_flipped(receipt.leaf_hash))),
        replace(receipt, mmr_root=NodeHash(_flipped(receipt.mmr_root))),
        replace(receipt, hub_sig=Signature(_flipped(receipt.hub_sig))),
    )
    for item in altered:
        rejected(lambda: identity.verify_receipt(item), "an altered receipt")  # noqa: B023 - called at once


def _flipped(data: bytes) -> bytes:
    return bytes((data[0] ^ 1,)) + data[1:]


def ask(hub: HttpHub, request: Wire, answer: type[W]) -> W:
    """Send a request to a hub, once."""
    response: W = hub.answer(Query(request, answer))
    return response


@step()
def reencoding(ctx: Context) -> str:
    """What the hub sends is canonical: decoded and encoded again, it has the same bytes."""
    author = author_of(ctx, "reencoding")
    msgs = [author.write()[0] for _ in range(_FEW)]
    label = author.label()
    page = StreamRequest(label=label, from_seq=1, with_receipts=True, with_mmr_proof=True)
    pairs: list[tuple[Wire, type[Wire]]] = [
        (page, StreamResponse),
        (ReceiptRequest(label=label, stream_seq=3), ReceiptResponse),
        (ProofRequest(label=label, stream_seq=5), ProofResponse),
        (data_plane.CheckpointRequest(label=label, upto_seq=_FEW), data_plane.CheckpointResponse),
        (ConsistencyRequest(label=label, old_size=3, new_size=_FEW), ConsistencyResponse),
    ]
    for request, answer in pairs:
        reply = author.hub.exchange(to_message(Query(request, answer)))
        equal(reply.status, 200, f"answer to {request.SHAPE.name}")
        decoded = answer.decode(reply.body)
        equal(rebuilt(decoded), reply.body, f"{answer.SHAPE.name}, encoded again")
    response = ask(author.hub, page, StreamResponse)
    equal([rebuilt(item.msg) for item in response.items], [msg.encode() for msg in msgs], "messages")
    return f"{len(pairs)} kinds of responses and {_FEW} messages"


def rebuilt(item: Wire) -> bytes:
    """Return the encoding of an object made from its fields alone, not the bytes that it was read from."""
    return type(item).from_json(item.to_json()).encode()


@step()
def duplicates(ctx: Context) -> str:
    """A message that is sent again is answered with its position, and is in the log once."""
    author = author_of(ctx, "duplicates")
    written = [author.write() for _ in range(3)]
    for msg, receipt in written:
        error = refused(lambda: submit(author.hub, msg.encode()), Code.SEQ)  # noqa: B023 - called at once
        equal(error.field("stream_seq"), receipt.stream_seq, "position of the duplicate")
    newest = written[-1][0]
    refused(lambda: submit(author.hub, newest.encode()), Code.SEQ, Detail.DUPLICATE)
    other = author.with_(client_seq=2)
    refused(lambda: submit(author.hub, other.encode()), Code.SEQ)
    page = ask(author.hub, StreamRequest(label=author.label(), from_seq=1), StreamResponse)
    equal(len(page.items), 3, "entries in the log")
    return "3 messages sent twice, 3 in the log"


@step()
def safe_retry(ctx: Context) -> str:
    """A client that got no answer resends the same bytes, and loses and duplicates nothing."""
    client, stream = ctx.client(), ctx.name("retry")
    first = client.send(stream, "first")
    # As if the process had ended between request and response.
    home, session = client.session.home, client.session
    key = session.secrets.client.signing_key
    author = Author(ctx.http(), ctx.facts(), stream, key=key, client_seq=1, prev_ack=first.position)
    lost = author.msg()
    home.put_outbox(lost.label, [lost])
    receipt = submit(author.hub, lost.encode())
    reopened = ctx.client(home.root)
    third = reopened.send(stream, "third")
    equal(third.position, receipt.stream_seq + 1, "position of the next message")
    equal(third.msg.client_seq, 3, "number of the next message")
    entries = [item.msg_id for item in reopened.read(stream)]
    equal(entries, [first.msg_id, lost.leaf_hash, third.msg_id], "entries in the log")
    return "the response was lost, the message was not"


@step()
def sequence_errors(ctx: Context) -> str:
    """Sequence numbers that are skipped, reused or too high are rejected."""
    author = author_of(ctx, "sequence")
    for seq in (0, 2, 7):
        skipped = author.with_(client_seq=seq)
        refused(lambda: submit(author.hub, skipped.encode()), Code.SEQ, Detail.CLIENT_SEQ)  # noqa: B023
    author.write()
    author.write()
    gap, old = author.with_(client_seq=5), author.with_(client_seq=1)
    refused(lambda: submit(author.hub, gap.encode()), Code.SEQ, Detail.CLIENT_SEQ)
    refused(lambda: submit(author.hub, old.encode()), Code.SEQ)
    ahead = author.with_(prev_ack=99)
    refused(lambda: submit(author.hub, ahead.encode()), Code.SEQ, Detail.PREV_ACK)
    _, receipt = author.write()
    equal(receipt.stream_seq, 3, "position of the next valid message")
    return "6 wrong numbers rejected, the log is unaffected"


@step()
def profile_mismatch(ctx: Context) -> str:
    """A message of a profile that the hub does not serve, or with wrong padding, is rejected."""
    author = author_of(ctx, "profile")
    foreign = author.with_(profile_id=ProfileId(ctx.random.randbytes(32)))
    refused(lambda: submit(author.hub, foreign.encode()), Code.FORMAT, Detail.PROFILE)
    if author.profile.pad_block > 1:
        context = author.context()
        loose = Msg.sign(author.key, context, author.msg(context).ciphertext + bytes(1))
        refused(lambda: submit(author.hub, loose.encode()), Code.FORMAT, Detail.CT_PADDING)
    author.write()
    return "an unknown profile and wrong padding rejected"


@step()
def forgeries(ctx: Context) -> str:
    """A message that was changed after it was signed, or signed with another key, is rejected."""
    author, other = author_of(ctx, "forgeries"), author_of(ctx, "forgeries")
    good = author.msg()
    changed = replace(good, prev_ack=0, sig=Signature(_flipped(good.sig)))
    refused(lambda: submit(author.hub, changed.encode()), Code.SIG, Detail.SIG_INVALID)
    stolen = replace(good, client_id=other.client_id)
    refused(lambda: submit(author.hub, stolen.encode()), Code.SIG, Detail.SIG_INVALID)
    cut = replace(good, ct_hash=_flipped(good.ct_hash))
    refused(lambda: submit(author.hub, cut.encode()), Code.FORMAT, Detail.CT_HASH)
    submit(author.hub, good.encode())
    return "3 forgeries rejected, the original accepted"


@step(Needs.ROTATING)
def time_window(ctx: Context) -> str:
    """A message for a past or far future epoch is rejected; one for the current epoch is accepted."""
    now = int(ctx.status()["epoch"])
    author = Author(ctx.http(), ctx.facts(), ROTATING_STREAM, epoch=now)
    for distance in (-5, -3, 3, 5):
        stale = author.with_(label=author.label(now + distance))
        refused(lambda: submit(author.hub, stale.encode()), Code.TIME, Detail.EPOCH)  # noqa: B023
    _, receipt = author.write()
    equal(receipt.label, author.label(now), "label of the receipt")
    client = ctx.client()
    sent = client.send(ROTATING_STREAM, "now")
    late = labels.epoch_at(sent.receipt.hub_ts, author.profile.epoch_sec) - sent.epoch
    check(late in (0, 1), f"a client used an epoch that is {late} too old")
    return "4 epochs rejected, the current one accepted"


@step()
def bounds(ctx: Context) -> str:
    """A request that is too large is rejected by its size, before its content is read."""
    http, facts = ctx.http(), ctx.status()
    limit = int(facts["limits"]["max_msg_bytes"])
    for size in (limit + 1, limit + 4096):
        garbage = ctx.random.randbytes(size)
        error = refused(lambda: submit(http, garbage), Code.SIZE, Detail.SIZE_PREFILTER)  # noqa: B023
        equal(error.field("stage"), "prefilter", "stage")
    fitting = ctx.random.randbytes(limit)
    error = refused(lambda: submit(http, fitting), Code.FORMAT)
    equal(error.field("stage"), "structural", "stage")
    author = author_of(ctx, "bounds")
    # A message with a wrong signature and a wrong length: the length is checked first.
    msg = author.msg()
    ciphertext = msg.ciphertext[:32] + b"\xff" * 8 + msg.ciphertext[40:]
    bad = replace(msg, ciphertext=ciphertext, sig=Signature(_flipped(msg.sig)))
    refused(lambda: submit(http, bad.encode()), Code.SIZE, Detail.FIELD_SIZE)
    return "size, then encoding, then signature"


@step()
def bulk(ctx: Context) -> str:
    """Each message of a bulk request has its own answer, and an invalid one affects no other."""
    author, forger = author_of(ctx, "bulk"), author_of(ctx, "bulk")
    bodies, expected = [], []
    for _ in range(_FEW):
        bodies.append(author.msg().encode())
        author.client_seq += 1
        forged = forger.msg()
        bodies.append(replace(forged, sig=Signature(_flipped(forged.sig))).encode())
        expected += ["accepted", str(Code.SIG)]
    answers = author.hub.answer(Submit(tuple(bodies)))
    outcomes = [item.code if isinstance(item, ErrorEnvelope) else "accepted" for item in answers]
    equal(outcomes, expected, "answers")
    for answer in answers[::2]:
        author.facts.identity.verify_receipt(answer.receipt)
    page = ask(author.hub, StreamRequest(label=author.label(), from_seq=1), StreamResponse)
    equal([item.msg.encode() for item in page.items], bodies[::2], "the log")
    return f"{2 * _FEW} messages in one request, every other one forged"


STEPS: Final = (
    send_receive,
    receipts_and_proofs,
    reencoding,
    bulk,
    duplicates,
    safe_retry,
    sequence_errors,
    profile_mismatch,
    forgeries,
    time_window,
    bounds,
)
