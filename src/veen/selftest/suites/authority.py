"""Steps about capability tokens and attachments."""

from typing import Final

from veen.client.client import Client
from veen.client.effects import GetAttachment, PutAttachment
from veen.client.errors import RejectedError
from veen.core.crypto.ed25519 import SigningKey
from veen.core.errors import Code, Detail
from veen.core.objects import attachment as att
from veen.core.objects import labels
from veen.core.objects.capability import CapToken, Rate
from veen.selftest.context import Context
from veen.selftest.errors import StepFailedError
from veen.selftest.step import Needs, check, equal, poll, refused, rejected, step

_HOUR: Final = 3600


def _token(
    ctx: Context, client: Client, stream: str, *, ttl: int = _HOUR, rate: Rate | None = None
) -> CapToken:
    subject = client.session.secrets.client.signing_key.public_key
    return CapToken.mint(ctx.hubs.issuer, subject, stream_ids=[labels.stream_id(stream)], ttl=ttl, rate=rate)


@step(Needs.GUARDED)
def capability(ctx: Context) -> str:
    """An authorized token lets its subject write, and the hub reports its state."""
    client, stream = ctx.client(), ctx.name("cap")
    token = _token(ctx, client, stream)
    check(not client.cap_status(token).hub_known, "the hub knows a token that it has never seen")
    granted = client.authorize(token)
    equal(granted.auth_ref, token.auth_ref, "auth_ref")
    sent = client.send(stream, "with a token")
    equal(sent.msg.auth_ref, token.auth_ref, "auth_ref of the message")
    status = client.cap_status(token)
    check(status.hub_known and status.hub_currently_valid, "the hub does not know an accepted token")
    equal([item.body for item in client.read(stream)], ["with a token"], "the stream")
    return "issued, authorized, used"


@step(Needs.GUARDED)
def capability_missing(ctx: Context) -> str:
    """Without a token, or with one for another stream or another client, nothing can be written."""
    client, other, stream = ctx.client(), ctx.client(), ctx.name("missing")
    refused(lambda: client.send(stream, "no token"), Code.CAP, Detail.CAP_MISSING)
    elsewhere = ctx.name("elsewhere")
    token = _token(ctx, client, elsewhere)
    client.authorize(token)
    client.send(elsewhere, "may be written")
    refused(lambda: client.send(stream, "still none"), Code.CAP, Detail.CAP_MISSING)
    others = _token(ctx, other, stream)
    client.authorize(others)  # any client may authorize a token; only its subject may use it
    refused(lambda: client.send(stream, "not mine"), Code.CAP, Detail.CAP_MISSING)
    other.session.home.keep_token(others)
    other.send(stream, "its subject")
    return "rejected without a token, for another stream, and for another client"


@step(Needs.GUARDED)
def capability_issuer(ctx: Context) -> str:
    """A token of an issuer that the hub does not trust is rejected."""
    client, stream = ctx.client(), ctx.name("issuer")
    stranger = SigningKey.from_seed(ctx.random.randbytes(32))
    subject = client.session.secrets.client.signing_key.public_key
    token = CapToken.mint(stranger, subject, stream_ids=[labels.stream_id(stream)], ttl=_HOUR, rate=None)
    refused(lambda: client.authorize(token), Code.CAP)
    refused(lambda: client.send(stream, "no token"), Code.CAP, Detail.CAP_MISSING)
    return "token of an untrusted issuer rejected"


@step(Needs.GUARDED)
def capability_rate(ctx: Context) -> str:
    """Messages above the rate of a token are rejected."""
    client, stream, burst, attempts = ctx.client(), ctx.name("rate"), 3, 40
    client.authorize(_token(ctx, client, stream, rate=Rate(per_sec=1, burst=burst)))
    began = ctx.clock()
    for count in range(attempts):
        try:
            client.send(stream, count)
        except RejectedError as error:
            equal(
                f"{error.code} {error.detail}",
                f"{Code.RATE} {Detail.CAP_RATE}",
                "code and detail of the rejection",
            )
            allowed = burst + ctx.clock() - began + 1
            check(burst <= count <= allowed, f"{count} messages accepted, {burst} to {allowed} allowed")
            return f"{count} messages accepted, the next one rejected"
    raise StepFailedError(f"{attempts} messages were accepted with a rate of 1 per second")


@step(Needs.GUARDED)
def capability_expired(ctx: Context) -> str:
    """A token is valid until it expires."""
    client, stream = ctx.client(), ctx.name("expired")
    token = _token(ctx, client, stream, ttl=1)
    granted = client.authorize(token)

    def expired() -> bool:
        try:
            client.send(stream, "in time")
        except RejectedError as error:
            equal(
                f"{error.code} {error.detail}",
                f"{Code.TIME} {Detail.CAP_TTL}",
                "code and detail of the rejection",
            )
            return True
        return False

    poll(expired, "the end of a token with a life of a second", 8)
    check(int(ctx.status()["hub_ts"]) >= granted.expires_at, "the token was rejected before it expired")
    check(not client.cap_status(token).hub_currently_valid, "the hub calls an expired token valid")
    return "rejected after it expired"


# --- attachments --------------------------------------------------------------------------------------------


@step()
def attachments(ctx: Context) -> str:
    """Files of all sizes, including empty ones, come back unchanged."""
    client, stream = ctx.client(), ctx.name("files")
    sizes = (0, 1, 255, 65_536, 300_000)
    files = [ctx.random.randbytes(size) for size in sizes]
    sent = client.send(stream, {"about": "files"}, attachments=files)
    equal([item.size for item in sent.attachments], list(sizes), "sizes")
    (message,) = client.read(stream)
    equal(message.problem, None, "the message")
    received = [client.attachment(message, index) for index in range(len(files))]
    equal([len(item) for item in received], list(sizes), "sizes of the files that were fetched")
    check(received == files, "a fetched file differs")
    return f"{len(sizes)} files of up to {max(sizes)} bytes"


@step()
def attachment_mutation(ctx: Context) -> str:
    """Hub and reader detect a file with one changed bit, or one in the place of another."""
    client, stream = ctx.client(), ctx.name("mutation")
    client.send(stream, None, attachments=[ctx.random.randbytes(1000), ctx.random.randbytes(1000)])
    (message,) = client.read(stream)
    first, second = (ctx.http().answer(GetAttachment(message.attachments[index].coid)) for index in (0, 1))
    for _ in range(8):
        offset = ctx.random.randrange(len(first))
        wrong = bytearray(first)
        wrong[offset] ^= 1 << ctx.random.randrange(8)
        rejected(lambda: message.open_attachment(0, bytes(wrong)), "a changed file")  # noqa: B023
        coid = message.attachments[0].coid
        refused(lambda: ctx.http().answer(PutAttachment(coid, bytes(wrong))), Code.BAD_REQUEST)  # noqa: B023
        check(att.coid(bytes(wrong)) != coid, "two files have the same id")
    rejected(lambda: message.open_attachment(0, second), "another file")
    rejected(lambda: message.open_attachment(0, first[:-1]), "a truncated file")
    equal(message.open_attachment(0, first), client.attachment(message, 0), "the file itself")
    return "8 changed files, an exchanged and a truncated one detected"


STEPS: Final = (
    attachments,
    attachment_mutation,
    capability,
    capability_missing,
    capability_issuer,
    capability_rate,
    capability_expired,
)
