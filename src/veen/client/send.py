"""Sending: seal, sign, store, submit, verify the receipt, save. In this order, a crash loses nothing.

Sequence numbers are used under the lock of the client directory. Before a message is sent, its bytes are
stored in the outbox; until it is acknowledged, the same bytes are resent (C-63, CLNT-015).
"""

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, takewhile
from pathlib import Path
from typing import Final

from veen.client.body import Attachment
from veen.client.effects import Blocking, Describe, PutAttachment, Submit
from veen.client.errors import (
    ClientStateError,
    EpochError,
    InvalidResponseError,
    NetworkError,
    ReadOnlyError,
    RejectedError,
    UnsentError,
    rejection_of,
)
from veen.client.home.pins import read_epoch
from veen.client.home.state import LabelState, State
from veen.client.keys.identity_card import IdentityCard
from veen.client.models import NO_OPTIONS, Draft, SendOptions, Sent
from veen.client.resync import rebuild
from veen.client.retry import is_passing, with_retry
from veen.client.session import Driver, Session
from veen.client.transport.http import single
from veen.client.verify.label import LabelCheck, absorb, check_receipts, fetch_receipt, start_at, walk
from veen.core.api.data_plane import StreamItem, SubmitResponse
from veen.core.crypto.ed25519 import SigningKey
from veen.core.crypto.hash import sha256
from veen.core.crypto.hpke import public_key
from veen.core.encoding.cbor import Value
from veen.core.errors import Code, Detail
from veen.core.objects import labels
from veen.core.objects.capability import CapToken
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.core.objects.msg import Msg, MsgContext
from veen.core.objects.proof_of_work import PowCookie, solve
from veen.core.objects.receipt import Receipt
from veen.core.objects.sealed_payload import Sealer
from veen.core.profile import Profile
from veen.core.types import (
    Label,
    LeafHash,
    ReaderPublicKey,
    ReaderSecretKey,
    VerifyKey,
)

# Messages per request.
BATCH: Final = 256
_BATCH_BYTES: Final = 4 << 20
# Bits of proof of work that the client does at most, in some minutes; more would be a denial of service.
MAX_POW_BITS: Final = 26
# Nonces tried in one step, and in total: more than that difficulty ever needs.
_NONCES_PER_STEP, _MAX_NONCES = 1 << 16, 1 << 32
_LOST_STATE: Final = frozenset({Detail.DUPLICATE, Detail.CLIENT_SEQ, Detail.PREV_ACK})


class Sender:
    """Sends messages to one stream."""

    def __init__(self, session: Session, stream: str, options: SendOptions) -> None:
        self._session = session
        self._stream = stream
        self._options = options
        self._epoch: int | None = None

    async def send(self, drafts: Sequence[Draft]) -> list[Sent]:
        """Send messages in order, as many as one request holds; return those that the hub accepted.

        They are the first ones, and at least one. If a later one is rejected, sending it again raises the
        error.
        """
        session = self._session
        await session.connect()
        async with session.lock():
            return await self._send_some(drafts)

    async def flush(self) -> int:
        """Resend unacknowledged messages of all epochs; return how many the hub has now."""
        session = self._session
        await session.connect()
        async with session.lock():
            state = session.locked_state = await Blocking(session.home.load)
            stream_id = labels.stream_id(self._stream)
            count = 0
            for label, label_state in state.labels.items():
                if label_state.stream_id == stream_id:
                    count += len(await Blocking(partial(session.home.outbox, label)))
                    await self._flush(state, label, label_state)
            return count

    async def _send_some(self, drafts: Sequence[Draft]) -> list[Sent]:
        """Send as many as one request holds; once more if the local state turns out to be outdated."""
        session = self._session
        for attempt in (1, 2):
            state = session.locked_state = await Blocking(session.home.load)
            profile = session.profile(self._options.profile_id)
            labels_before = len(state.labels)
            label, label_state = session.label_state(state, self._stream, self._epoch_of(profile))
            if len(state.labels) > labels_before:  # flush finds the outbox of a label only if it is saved
                await Blocking(partial(session.home.save, state))
            await self._flush(state, label, label_state)
            await self._rotate(label_state)
            batch = await self._seal(drafts, profile, label, label_state)
            try:
                return await self._deliver(state, label, label_state, batch)
            except RejectedError as error:
                if attempt == 2 or not await self._can_recover(error, state, label, label_state):
                    raise
        raise AssertionError("the second attempt returns or raises")

    def _epoch_of(self, profile: Profile) -> int:
        if self._epoch is None:
            return labels.epoch_at(self._session.clock(), profile.epoch_sec)
        return self._epoch

    async def _can_recover(
        self, error: RejectedError, state: State, label: Label, label_state: LabelState
    ) -> bool:
        """Recover the numbers used before the state was lost, or the hub's epoch; False if neither."""
        if isinstance(error, EpochError):
            status = await with_retry(Describe("/tooling/status"), self._session.retry, self._session.random)
            self._epoch = read_epoch(status)
            return True
        if error.code == Code.SEQ and error.detail in _LOST_STATE:
            await rebuild(self._session, state, label, label_state)
            return True
        return False

    # --- sealing --------------------------------------------------------------------------------------------

    async def _rotate(self, label_state: LabelState) -> None:
        """Rotate the client key when it is due, unless a token is bound to the key (C-50, C-96)."""
        session, bounds = self._session, self._session.rotation
        if bounds is None or self._options.as_identity or self._options.keep_key:
            return
        key = session.secrets.client
        client_id = key.signing_key.public_key
        writer = label_state.writers.get(client_id)
        is_old = session.clock() - key.created_at >= bounds.max_age_sec
        if not is_old and (writer is None or writer.client_seq < bounds.max_msgs):
            return
        if await Blocking(lambda: self._token(client_id)) is not None:
            return
        await Blocking(lambda: rotate(session))

    def _signing_key(self) -> SigningKey:
        secrets = self._session.secrets
        return secrets.identity if self._options.as_identity else secrets.client.signing_key

    def _token(self, client_id: VerifyKey) -> CapToken | None:
        if self._options.token is not None:
            return self._options.token
        return self._session.home.token_for(labels.stream_id(self._stream), client_id)

    def _recipient(self) -> ReaderPublicKey:
        to = self._options.to
        if to is not None:
            return to.seal_key(self._session.clock()) if isinstance(to, IdentityCard) else to
        secrets = self._session.secrets
        shared = secrets.stream_key(labels.stream_id(self._stream))
        return shared.public_key if shared is not None else public_key(ReaderSecretKey(secrets.id_dh))

    async def _seal(
        self, drafts: Sequence[Draft], profile: Profile, label: Label, label_state: LabelState
    ) -> list[tuple[Msg, tuple[Attachment, ...]]]:
        key = self._signing_key()
        token = await Blocking(lambda: self._token(key.public_key))
        context = MsgContext(
            profile_id=profile.profile_id,
            label=label,
            client_id=key.public_key,
            client_seq=label_state.writer(key.public_key).client_seq,
            prev_ack=label_state.prev_ack,
            auth_ref=None if token is None else token.auth_ref,
        )
        batch: list[tuple[Msg, tuple[Attachment, ...]]] = []
        size = 0
        for draft in drafts[:BATCH]:
            context = replace(context, client_seq=context.client_seq + 1)
            try:
                msg, attached = await self._seal_one(draft, context, key, profile)
            except Exception:
                if batch:
                    break  # send those before it; the error is raised when this one comes first
                raise
            size += len(msg.encode())
            if batch and size > _BATCH_BYTES:
                break
            batch.append((msg, attached))
        return batch

    async def _seal_one(
        self, draft: Draft, context: MsgContext, key: SigningKey, profile: Profile
    ) -> tuple[Msg, tuple[Attachment, ...]]:
        session = self._session
        sealer = Sealer(context, recipient=self._recipient(), random=session.random, limits=session.limits)
        attached = []
        for source in draft.attachments:  # one at a time: only one is in memory
            if isinstance(source, bytes):
                name, plain = "", source
            else:
                path = Path(source)
                name, plain = path.name, await Blocking(path.read_bytes)
            sealed = sealer.attach(plain)
            coid = sealer.coids[-1]
            attached.append(Attachment(coid, len(plain), name))
            await with_retry(PutAttachment(coid, sealed), session.retry, session.random)
        header, body = draft.header(context.auth_ref), draft.encode(context, attached)
        sealed_msg = sealer.finish(header=header, body=body, pad_block=profile.pad_block)
        return Msg.sign(key, context, sealed_msg.ciphertext), tuple(attached)

    # --- submission -----------------------------------------------------------------------------------------

    async def _deliver(
        self,
        state: State,
        label: Label,
        label_state: LabelState,
        batch: Sequence[tuple[Msg, tuple[Attachment, ...]]],
    ) -> list[Sent]:
        msgs = [msg for msg, _ in batch]
        await Blocking(lambda: self._session.home.put_outbox(label, msgs))
        try:
            receipts, error = await self._submit(label, label_state, msgs, unsure=False)
        except NetworkError as unsure:
            raise NetworkError(
                f"{unsure}; it is unknown whether it has the message, which is stored: the next send to this "
                "stream delivers it first"
            ) from None
        except (ReadOnlyError, RejectedError):
            await Blocking(lambda: self._session.home.clear_outbox(label))
            raise
        if receipts:
            await self._save_accepted(state, label, label_state, msgs[: len(receipts)], receipts)
        else:
            await Blocking(lambda: self._session.home.clear_outbox(label))
        if error is not None and not receipts:
            raise error
        epoch = label_state.epoch
        pairs = zip(batch, receipts, strict=False)
        return [Sent(msg, receipt, epoch, attached) for (msg, attached), receipt in pairs]

    async def _submit(
        self, label: Label, label_state: LabelState, msgs: list[Msg], *, unsure: bool
    ) -> tuple[list[Receipt], RejectedError | None]:
        """Submit until all are accepted or one is rejected; return the receipts of those before it.

        ``unsure``: they may have been accepted before, and then a rejection does not prove otherwise.
        """
        session = self._session
        receipts: list[Receipt] = []
        failures = 0
        while len(receipts) < len(msgs):
            pending = msgs[len(receipts) :]
            request = Submit(tuple(msg.encode() for msg in pending), await self._pow_headers(pending))
            try:
                answers: list[SubmitResponse | ErrorEnvelope] = await request
            except NetworkError:
                failures, unsure = failures + 1, True
                if failures >= session.retry.attempts:
                    raise
                await session.retry.pause(failures, None, session.random)
                continue
            except RejectedError as error:  # the request as a whole
                answers = [error.envelope] * len(pending)
            accepted, rejection = await self._receipts_of(label, pending, answers)
            receipts += accepted
            if rejection is None:
                continue
            failures = 1 if accepted else failures + 1
            if session.retry.gives_up(failures, rejection.envelope):
                if unsure:
                    receipts += await self._find_accepted(
                        label, label_state, msgs[len(receipts) :], rejection
                    )
                return receipts, None if len(receipts) == len(msgs) else rejection
            await session.retry.pause(failures, rejection.envelope.retry_after, session.random)
        return receipts, None

    async def _find_accepted(
        self, label: Label, label_state: LabelState, msgs: list[Msg], rejection: RejectedError
    ) -> list[Receipt]:
        """Return the receipts of messages that are rejected now, but were accepted before (CLNT-015)."""
        if is_passing(rejection.envelope):
            raise NetworkError(str(rejection)) from None  # it may still be accepted
        by_leaf: dict[LeafHash, Receipt] = {}

        def note(item: StreamItem) -> None:
            if item.receipt is not None:
                by_leaf[item.receipt.leaf_hash] = item.receipt

        try:
            check = await start_at(self._session, label, label_state, msgs[0].prev_ack + 1)
            await walk(self._session, check, note=note)
        except RejectedError as error:
            raise NetworkError(f"{rejection}; and its log cannot be read: {error}") from None
        accepted = takewhile(
            lambda receipt: receipt is not None, (by_leaf.get(msg.leaf_hash) for msg in msgs)
        )
        return [receipt for receipt in accepted if receipt is not None]

    async def _receipts_of(
        self, label: Label, msgs: list[Msg], answers: list[SubmitResponse | ErrorEnvelope]
    ) -> tuple[list[Receipt], RejectedError | None]:
        receipts: list[Receipt] = []
        for msg, answer in zip(msgs, answers, strict=True):
            if isinstance(answer, SubmitResponse):
                receipts.append(answer.receipt)
                continue
            error = rejection_of(answer)
            receipt = await self._accepted_before(label, msg, error)
            if receipt is None:
                return receipts, error
            receipts.append(receipt)
        return receipts, None

    async def _accepted_before(self, label: Label, msg: Msg, error: RejectedError) -> Receipt | None:
        """Return the receipt of a message that the hub already has, by the position it reports (C-63)."""
        seq = error.field("stream_seq")
        if error.code != Code.SEQ or not isinstance(seq, int):
            return None
        receipt = await fetch_receipt(self._session, label, seq)
        return receipt if receipt is not None and receipt.leaf_hash == msg.leaf_hash else None

    async def _pow_headers(self, msgs: list[Msg]) -> dict[str, str]:
        """Return the header with the proof of work, if the hub requires one."""
        cookie = self._options.pow_cookie
        if cookie is None:
            difficulty = self._session.pow_difficulty
            if not difficulty:
                return {}
            bodies = [msg.encode() for msg in msgs]
            challenge = sha256(single(bodies[0]) if len(bodies) == 1 else b"".join(bodies))
            cookie = await _solve(challenge, difficulty)
        return {"veen-pow": cookie.encode().hex()}

    # --- receipts -------------------------------------------------------------------------------------------

    async def _save_accepted(
        self,
        state: State,
        label: Label,
        label_state: LabelState,
        msgs: list[Msg],
        receipts: list[Receipt],
        *,
        pending: Sequence[Msg] = (),
    ) -> None:
        """Verify receipts and add them to the state; if one is invalid, nothing changes (CLI-059).

        ``pending`` messages stay in the outbox.
        """
        session = self._session
        pin = await session.check_signed(lambda pin: check_receipts(pin, msgs, receipts))
        check = LabelCheck(pin, label, label_state.peaks, label_state.receipt, label_state)
        await absorb(session, check, receipts)
        if check.receipt is not None:
            label_state.advance(check.peaks, check.receipt)
        writer = label_state.writer(msgs[0].client_id)
        writer.client_seq = max(writer.client_seq, msgs[-1].client_seq)
        writer.first_sent_at = writer.first_sent_at or session.clock()
        label_state.prev_ack = max(label_state.prev_ack, receipts[-1].stream_seq)
        stored = msgs if self._options.store_body else []
        await Blocking(lambda: session.home.keep_sent(stored, receipts))
        await Blocking(lambda: session.home.save(state))
        if pending:
            await Blocking(lambda: session.home.put_outbox(label, list(pending)))
        else:
            await Blocking(lambda: session.home.clear_outbox(label))

    async def _flush(self, state: State, label: Label, label_state: LabelState) -> None:
        """Resend unacknowledged messages byte for byte; set those aside that are rejected now, and raise."""
        home = self._session.home
        waiting = await Blocking(lambda: home.outbox(label))
        if not waiting:
            return
        if any(msg.label != label for msg in waiting):
            raise ClientStateError(
                f"{home.root} has messages of another label in its outbox: it was tampered with"
            )
        receipts, error = await self._submit(label, label_state, waiting, unsure=True)
        rejected = waiting[len(receipts) :]
        if receipts:
            await self._save_accepted(
                state, label, label_state, waiting[: len(receipts)], receipts, pending=rejected
            )
        if error is None:
            return
        paths = await Blocking(lambda: [home.set_aside(label, msg) for msg in rejected])
        await Blocking(lambda: home.clear_outbox(label))
        raise UnsentError(
            f"{len(rejected)} earlier message{'s were' if len(rejected) > 1 else ' was'} rejected by the hub "
            f"({error}) and stored as {paths[0]}; this message was not sent: send it again",
            paths[0],
        )


def draft_of(item: Draft | Value) -> Draft:
    """Return a draft, or a draft of a body."""
    return item if isinstance(item, Draft) else Draft(item)


def send_drafts(
    driver: Driver, stream: str, drafts: Iterable[Draft | Value], options: SendOptions = NO_OPTIONS
) -> Iterator[Sent]:
    """Send messages in order, many in one request; yield them as the hub accepts them."""
    waiting = map(draft_of, drafts)
    while batch := list(islice(waiting, BATCH)):
        while batch:
            sent = driver.run(Sender(driver.session, stream, options).send(batch))
            yield from sent
            del batch[: len(sent)]


async def batches_of(
    drafts: Iterable[Draft | Value] | AsyncIterable[Draft | Value],
) -> AsyncIterator[list[Draft]]:
    """Yield drafts in batches of at most one request."""
    waiting: list[Draft] = []
    async for item in _each(drafts):
        waiting.append(draft_of(item))
        if len(waiting) == BATCH:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


async def _each(
    drafts: Iterable[Draft | Value] | AsyncIterable[Draft | Value],
) -> AsyncIterator[Draft | Value]:
    if isinstance(drafts, AsyncIterable):
        async for draft in drafts:
            yield draft
    else:
        for draft in drafts:
            yield draft


def send_draft(driver: Driver, stream: str, draft: Draft, options: SendOptions = NO_OPTIONS) -> Sent:
    """Send one message; return when the hub has it on disk and its receipt is verified."""
    return driver.run(Sender(driver.session, stream, options).send([draft]))[0]


async def _solve(challenge: bytes, difficulty: int) -> PowCookie:
    """Find a proof of work, in steps, between which the operation can be cancelled."""
    if not 0 <= difficulty <= MAX_POW_BITS:
        raise InvalidResponseError(
            f"the hub requires {difficulty} bits of proof of work; the client does at most {MAX_POW_BITS}"
        )
    for start in range(0, _MAX_NONCES, _NONCES_PER_STEP):
        cookie = await Blocking(partial(solve, challenge, difficulty, range(start, start + _NONCES_PER_STEP)))
        if cookie is not None:
            return cookie
    raise InvalidResponseError("no proof of work could be found")


def rotate(session: Session) -> None:
    """Replace the client key; nothing in the log links it to the old one (CLI-056).

    The caller holds the lock. The keystore is read again: another process may have added keys.
    """
    newest, _ = session.home.load_secrets(lambda: session.passphrase)
    session.secrets = newest.rotated(session.random, session.clock())
    session.home.save_secrets(session.secrets, session.passphrase, session.clock())
