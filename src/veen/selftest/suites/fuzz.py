"""Steps with garbage: a hub answers it with an error that says what is wrong, and is not affected."""

import contextlib
import os
import socket
from collections.abc import Callable, Iterable
from typing import Final
from urllib.parse import urlsplit

from veen.client.transport.http import CBOR, CBOR_SEQ, PATHS, HttpHub, HttpRequest, Reply, single
from veen.core.api.data_plane import (
    CheckpointRequest,
    CheckpointResponse,
    ProofRequest,
    ProofResponse,
    ReceiptRequest,
    StreamRequest,
    StreamResponse,
)
from veen.core.api.tooling import (
    AnchorRequest,
    AuthorizeRequest,
    CapStatusRequest,
    CheckpointLatestRequest,
    CheckpointRangeRequest,
    ConsistencyRequest,
    EquivocationRequest,
    EquivocationResponse,
    ProofAtRequest,
    StreamEpochsRequest,
)
from veen.core.crypto.ed25519 import SigningKey
from veen.core.crypto.hash import sha256
from veen.core.encoding import cbor
from veen.core.encoding.wire_object import Wire
from veen.core.errors import HTTP_STATUS, Code, ProtocolError
from veen.core.merkle.inclusion import MmrProof
from veen.core.objects.capability import CapToken
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.core.objects.labels import stream_id
from veen.core.objects.receipt import Receipt
from veen.core.types import AuthRef, Label
from veen.selftest.authors import Author
from veen.selftest.context import Context
from veen.selftest.errors import StepFailedError
from veen.selftest.generate import ITEMS, NESTED, flip_bit, mutate
from veen.selftest.step import check, equal, step
from veen.selftest.suites.messages import ask, author_of

_SUBMIT: Final = "/v1/submit"
_MUTANTS: Final = 300
_OF_EACH: Final = 40
_FLIPS: Final = 200
# The errors that a hub may report for garbage; not that it is overloaded or broken.
_ORDERLY: Final = {code.value: status for code, status in HTTP_STATUS.items() if code is not Code.UNAVAILABLE}


def _post(hub: HttpHub, path: str, body: bytes, content_type: str = CBOR) -> Reply:
    return hub.exchange(HttpRequest("POST", path, body, content_type))


def orderly(reply: Reply, what: str) -> ErrorEnvelope:
    """Fail unless a response is an error of the protocol, with the status of its code."""
    try:
        envelope = ErrorEnvelope.decode(reply.body)
    except ProtocolError:
        raise StepFailedError(f"{what}: status {reply.status} without an error envelope") from None
    check(envelope.code in _ORDERLY, f"{what} was answered {envelope.code}: {envelope.message}")
    equal(reply.status, _ORDERLY[envelope.code], f"status of {envelope.code}")
    return envelope


def _well(ctx: Context, author: Author) -> None:
    """Fail unless the hub is unaffected: healthy, the same process, and accepts a valid message."""
    equal(ctx.get("/healthz").status, 200, "status of /healthz")
    author.write()
    if not ctx.url:
        check(ctx.hub.is_alive, "the hub has died")
        os.kill(ctx.hub.pid, 0)


def _refused_all(ctx: Context, author: Author, path: str, bodies: Iterable[bytes]) -> int:
    tried = list(bodies)
    for body in tried:
        orderly(_post(author.hub, path, body), f"{path} with {body[:30].hex()} ({len(body)} bytes)")
    _well(ctx, author)
    return len(tried)


# --- messages -----------------------------------------------------------------------------------------------


@step()
def malformed_cbor(ctx: Context) -> str:
    """Every path rejects CBOR that is not canonical, whatever depth or size it declares."""
    author = author_of(ctx, "malformed")
    author.write()
    bodies = [*ITEMS, *NESTED, *(ctx.random.randbytes(ctx.random.randrange(1, 300)) for _ in range(20))]
    count = 0
    for path in (_SUBMIT, *PATHS.values()):
        count += _refused_all(ctx, author, path, bodies)
    return f"{count} requests on {len(PATHS) + 1} paths"


@step()
def truncated_messages(ctx: Context) -> str:
    """A message that is truncated anywhere is rejected."""
    author = author_of(ctx, "truncated")
    author.write()
    whole = single(author.msg().encode())
    count = _refused_all(ctx, author, _SUBMIT, (whole[:size] for size in range(len(whole))))
    return f"truncated at each of {count} offsets"


@step()
def mutated_messages(ctx: Context) -> str:
    """A damaged message is rejected, and never enters the log."""
    author = author_of(ctx, "mutated")
    author.write()
    good = [single(author.msg(body=cbor.encode("x" * size)).encode()) for size in (0, 10, 500)]
    count = _refused_all(ctx, author, _SUBMIT, (mutate(ctx.random, good) for _ in range(_MUTANTS)))
    page = ask(author.hub, StreamRequest(label=author.label(), from_seq=1), StreamResponse)
    equal(len(page.items), 2, "entries in the log")
    return f"{count} damaged messages, none in the log"


@step()
def mutated_sequences(ctx: Context) -> str:
    """A bulk request with damaged messages is answered for each message, or rejected as a whole."""
    author = author_of(ctx, "sequences")
    author.write()
    for _ in range(_OF_EACH):
        items = [author.msg().encode() for _ in range(4)]
        items[ctx.random.randrange(4)] = mutate(ctx.random, items)
        good = b"".join(items)
        body = good if ctx.random.random() < 0.5 else mutate(ctx.random, [good])
        reply = _post(author.hub, _SUBMIT, body, CBOR_SEQ)
        if reply.status != 200:
            orderly(reply, "a sequence of messages")
        else:
            at = 0
            while at < len(reply.body):  # each response is complete
                at = cbor.item_end(reply.body, at)
        # The hub may have accepted some: continue with a new author.
        author = author_of(ctx, "sequences")
        author.write()
    _well(ctx, author)
    return f"{_OF_EACH} sequences"


# --- requests -----------------------------------------------------------------------------------------------


def _requests(label: Label, receipts: list[Receipt]) -> list[Wire]:
    token = CapToken.mint(
        SigningKey.from_seed(sha256(b"issuer")),
        SigningKey.from_seed(sha256(b"subject")).public_key,
        stream_ids=[stream_id("a")],
        ttl=60,
        rate=None,
    )
    return [
        StreamRequest(label=label, from_seq=1, to_seq=3, max_items=5, cursor=1, with_receipts=True),
        ReceiptRequest(label=label, stream_seq=1),
        ProofRequest(label=label, stream_seq=2),
        CheckpointRequest(label=label, upto_seq=2),
        AuthorizeRequest(cap_token=token),
        CapStatusRequest(auth_ref=AuthRef(token.auth_ref)),
        ProofAtRequest(label=label, stream_seq=1, upto_seq=2),
        AnchorRequest(label=label, upto_seq=2, epoch=0, ts=1, nonce=bytes(16)),
        ConsistencyRequest(label=label, old_size=1, new_size=2),
        CheckpointLatestRequest(label=label),
        CheckpointRangeRequest(stream_id=stream_id("a"), epoch_min=0, epoch_max=1),
        StreamEpochsRequest(stream_id=stream_id("a"), from_epoch=0),
        EquivocationRequest(first=receipts[0], second=receipts[1]),
    ]


@step()
def mutated_requests(ctx: Context) -> str:
    """A damaged request is rejected, or answered as the valid request that it has become."""
    author = author_of(ctx, "requests")
    receipts = [author.write()[1] for _ in range(3)]
    requests = _requests(author.label(), receipts)
    equal({type(item) for item in requests}, set(PATHS), "kinds of requests")
    count = 0
    for request in requests:
        path, good = PATHS[type(request)], request.encode()
        for size in range(0, len(good), max(1, len(good) // 60)):
            orderly(_post(author.hub, path, good[:size]), f"{path}, cut after {size} bytes")
            count += 1
        for _ in range(_OF_EACH):
            bad = mutate(ctx.random, [good])
            reply = _post(author.hub, path, bad)
            if reply.status != 200:
                orderly(reply, f"{path} with {bad[:40].hex()}")
            count += 1
    _well(ctx, author)
    return f"{count} requests of {len(requests)} kinds"


# --- what hubs sign -----------------------------------------------------------------------------------------


def _damaged(ctx: Context, good: bytes, believe: Callable[[bytes], None], what: str) -> int:
    """Fail unless an object is rejected when it is truncated anywhere, or damaged in any way."""
    believe(good)
    bad = [good[:size] for size in range(len(good))]
    bad += [flip_bit(ctx.random, good) for _ in range(_FLIPS)]
    bad += [mutate(ctx.random, [good]) for _ in range(_FLIPS)]
    for data in bad:
        try:
            believe(data)
        except ProtocolError:
            continue
        raise StepFailedError(f"a damaged {what} was accepted: {data[:60].hex()}")
    return len(bad)


@step()
def damaged_receipts(ctx: Context) -> str:
    """A truncated or changed receipt is rejected by the client and by the hub that signed it."""
    author = author_of(ctx, "receipts")
    receipts = [author.write()[1] for _ in range(2)]

    def believe(data: bytes) -> None:
        author.facts.identity.verify_receipt(Receipt.decode(data))

    count = _damaged(ctx, receipts[1].encode(), believe, "receipt")
    good = EquivocationRequest(first=receipts[0], second=receipts[1]).encode()
    path = PATHS[EquivocationRequest]
    for _ in range(_OF_EACH):
        bad = flip_bit(ctx.random, good)
        reply = _post(author.hub, path, bad)
        if reply.status == 200:  # a receipt with a flipped bit that still decodes is not evidence
            check(not EquivocationResponse.decode(reply.body).ok, "a false receipt was accepted as evidence")
        else:
            orderly(reply, path)
    _well(ctx, author)
    return f"{count} damaged receipts"


@step()
def damaged_checkpoints(ctx: Context) -> str:
    """A truncated or changed checkpoint is rejected."""
    author = author_of(ctx, "checkpoints")
    for _ in range(3):
        author.write()
    request = CheckpointRequest(label=author.label(), upto_seq=3)
    good = ask(author.hub, request, CheckpointResponse).checkpoint
    epoch_sec = author.profile.epoch_sec

    def believe(data: bytes) -> None:
        checkpoint = Checkpoint.decode(data)
        # Signatures of witnesses are not the hub's: adding one does not change its statement.
        check_hub = author.facts.identity.verify_checkpoint
        check_hub(checkpoint, epoch_sec=epoch_sec, max_skew_sec=60)

    count = _damaged(ctx, good.encode(), believe, "checkpoint")
    _well(ctx, author)
    return f"{count} damaged checkpoints"


@step()
def damaged_proofs(ctx: Context) -> str:
    """A truncated or changed proof is rejected."""
    author = author_of(ctx, "proofs")
    receipts = [author.write()[1] for _ in range(13)]
    receipt = receipts[10]
    request = ProofRequest(label=author.label(), stream_seq=receipt.stream_seq)
    good = ask(author.hub, request, ProofResponse).mmr_proof

    def believe(data: bytes) -> None:
        MmrProof.decode(data).verify(receipt.mmr_root, receipt.leaf_hash, stream_seq=receipt.stream_seq)

    count = _damaged(ctx, good.encode(), believe, "proof")
    _well(ctx, author)
    return f"{count} damaged proofs"


# --- beneath the requests -----------------------------------------------------------------------------------

_RUDE: Final = (
    b"",
    b"\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"BREW /v1/submit HTTP/1.1\r\nhost: a\r\n\r\n",
    b"GET /nowhere HTTP/1.1\r\nhost: a\r\n\r\n",
    b"GET /../../etc/passwd HTTP/1.1\r\nhost: a\r\n\r\n",
    b"GET /tooling/attachment/%2e%2e%2fhub-secrets.cbor HTTP/1.1\r\nhost: a\r\n\r\n",
    b"POST /v1/submit HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n",
    b"POST /v1/submit HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999999999999999\r\n\r\n",
    b"POST /v1/submit HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nabcde",
    b"POST /v1/submit HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    b"POST /v1/submit HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n",
    b"POST /v1/submit HTTP/1.1\r\nhost: a\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\n{}",
    b"GET /healthz HTTP/1.1\r\nhost: a\r\n" + b"x: y\r\n" * 5000 + b"\r\n",
    b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nhost: a\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nhost: a\r\nx: \x00\x01\r\n\r\n",
)


@step()
def rude_connections(ctx: Context) -> str:
    """Invalid HTTP is answered with an error or disconnected, and affects no other client."""
    author = author_of(ctx, "rude")
    author.write()
    for text in _RUDE:
        answer = _say(ctx.hub_url, text)
        if answer:
            check(answer.startswith(b"HTTP/1.1 4"), f"{text[:40]!r} was answered {answer[:40]!r}")
    _well(ctx, author)
    return f"{len(_RUDE)} kinds of invalid HTTP"


def _say(url: str, text: bytes) -> bytes:
    """Send bytes, and return the beginning of the response; empty if there was none."""
    parts = urlsplit(url)
    with (
        contextlib.suppress(ConnectionError),
        socket.create_connection((parts.hostname, parts.port), 10) as sock,
    ):
        sock.sendall(text)
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_WR)
        return sock.recv(65_536)
    return b""


STEPS: Final = (
    malformed_cbor,
    truncated_messages,
    mutated_messages,
    mutated_sequences,
    mutated_requests,
    damaged_receipts,
    damaged_checkpoints,
    damaged_proofs,
    rude_connections,
)
