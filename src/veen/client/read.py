"""Reading a stream page by page: every entry is verified, and decrypted if this client can."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from time import monotonic
from typing import Final

from veen.client.body import Attachment, attachments_of, decode_body
from veen.client.effects import Blocking, Sleep
from veen.client.errors import DivergenceError
from veen.client.home.state import LabelState, State
from veen.client.keys.keystore import Secrets
from veen.client.models import Message
from veen.client.session import Driver, Session
from veen.client.verify.label import PAGE_ITEMS, LabelCheck, agree, fetch_page, start_at
from veen.core.api.data_plane import StreamRequest, StreamResponse
from veen.core.api.tooling import StreamEpochsRequest, StreamEpochsResponse
from veen.core.crypto.hpke import ReaderKey
from veen.core.errors import Detail, ProtocolError, VeenError
from veen.core.objects import attachment as att
from veen.core.objects import labels
from veen.core.objects.msg import Msg
from veen.core.objects.receipt import Receipt
from veen.core.objects.sealed_payload import OpenedPayload, open_msg

# How long after its end an epoch may still get entries; hubs allow a minute or an epoch.
LATE_SEC: Final = 600
# Duration of one long poll; the hub bounds it too.
FOLLOW_SEC: Final = 25
# How often to poll for the first entry of a stream whose labels rotate.
_NEW_STREAM_SEC: Final = 1.0


def open_any(msg: Msg, secrets: Secrets) -> OpenedPayload | None:
    """Open a message of any stream and profile with the keys of a client; None if none fits."""
    for key in secrets.all_reader_keys():
        try:
            # The profile is not known here; the hub has checked the padding.
            return open_msg(msg, key, pad_block=0)
        except ProtocolError as error:
            if error.detail not in (Detail.HDR_AEAD, Detail.DH_ZERO):
                raise
    return None


class Opener:
    """Opens the messages of a stream with any key that fits; the key that fitted last is tried first."""

    def __init__(self, session: Session, keys: list[ReaderKey]) -> None:
        self._session = session
        self._keys = keys

    def open(self, epoch: int, msg: Msg, receipt: Receipt) -> Message:
        """Open a verified message; one that cannot be decrypted is returned without content."""
        try:
            pad_block = self._session.pad_block(msg.profile_id)
        except ProtocolError as error:
            return Message(epoch, msg, receipt, problem=f"does not open: {error}")
        for index, key in enumerate(self._keys):
            try:
                opened = open_msg(msg, key, pad_block=pad_block, limits=self._session.limits)
            except ProtocolError as error:
                if error.detail in (Detail.HDR_AEAD, Detail.DH_ZERO):
                    continue
                return Message(epoch, msg, receipt, problem=f"does not open: {error}")
            if index:
                self._keys.insert(0, self._keys.pop(index))
            return _read(epoch, msg, receipt, opened)
        return Message(epoch, msg, receipt, problem="sealed to another reader")


def _read(epoch: int, msg: Msg, receipt: Receipt, opened: OpenedPayload) -> Message:
    """Check what only a reader can check: the hub does not see the content."""
    body = decode_body(opened.body)
    attachments: tuple[Attachment, ...] = ()
    problem = None
    try:
        opened.header.verify_cap_ref(msg.auth_ref)
        attachments = attachments_of(body)
        att.verify_root(opened.header.att_root, [item.coid for item in attachments])
    except ProtocolError as error:
        problem = str(error)
    return Message(epoch, msg, receipt, opened.header, body, attachments, problem, opened)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The range of a stream to read, and how.

    Attributes:
        start: Position of the first entry, in the first epoch that is read.
        stop: Position of the last entry, in each epoch.
        epoch: Only this epoch.
        limit: At most this many entries.
        prove: Request an inclusion proof of each page as well.
        resume: Continue after the entries that this client has consumed.
        peek: Do not count the entries as consumed, for a later ``resume``.
    """

    start: int = 1
    stop: int | None = None
    epoch: int | None = None
    limit: int | None = None
    prove: bool = False
    resume: bool = False
    peek: bool = False


READ_ALL: Final = ReadOptions()


@dataclass(slots=True)
class _Epoch:
    """A label of the stream that is being read."""

    epoch: int
    check: LabelCheck
    # Position of the first requested entry.
    first: int = 1
    # The last entry that was returned and is not saved in the state yet; 0 for none.
    delivered: int = 0


class StreamReader:
    """Reads a stream across its epochs."""

    def __init__(self, session: Session, stream: str, options: ReadOptions = READ_ALL) -> None:
        self._session = session
        self._stream = stream
        self._options = options
        # In the first epoch; later ones are read from their first entry.
        self._start = max(options.start, 1)
        # How many more entries to return; None: no limit.
        self._remaining = options.limit
        self._epochs: list[_Epoch] = []
        self._opener: Opener | None = None
        self._secrets = session.secrets
        self._has_reconnected = False
        # The error to raise once the valid entries before it have been returned.
        self._failure: VeenError | None = None
        self.at_end = False

    @property
    def position(self) -> tuple[int, int]:
        """The newest epoch, and the last verified entry in it."""
        return (self._epochs[-1].epoch, self._epochs[-1].check.peaks.size) if self._epochs else (0, 0)

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached."""
        return self._remaining is not None and self._remaining <= 0

    async def fetch(self, wait_sec: int = 0) -> list[Message]:
        """Return the next entries; empty at the end, if none arrives within ``wait_sec``.

        The entries returned before count as consumed: after a restart, reading resumes after them.
        """
        started = monotonic()
        await self._session.connect()
        await self.settle()
        if self._failure is not None:
            raise self._failure
        if self.is_full:
            self.at_end = True
            return []
        secrets = self._session.secrets
        if self._opener is None or self._secrets is not secrets:  # replaced when a key is added
            keys = await Blocking(lambda: secrets.reader_keys(labels.stream_id(self._stream)))
            self._opener, self._secrets = Opener(self._session, keys), secrets
        found_more = not self._epochs and await self._look_for_epochs()
        while True:
            for item in list(self._epochs):
                newest = item is self._epochs[-1]
                wait = self._max_wait(item.epoch, wait_sec) if newest and not found_more else 0
                messages = await self._page(item, wait)
                if messages:
                    self.at_end = False
                    self._remaining = None if self._remaining is None else self._remaining - len(messages)
                    return messages
            found_more = await self._look_for_epochs()
            if not found_more:
                break
        if wait_sec and monotonic() - started < _NEW_STREAM_SEC:
            await Sleep(_NEW_STREAM_SEC)  # there is no label to long-poll yet, or the hub does not support it
        self.at_end = True
        return []

    def _max_wait(self, epoch: int, wait_sec: int) -> int:
        """Return how long to wait for entries of an epoch: at most to its end, when the next one begins."""
        epoch_sec = self._session.profiles[0].epoch_sec
        if not epoch_sec or not wait_sec:
            return wait_sec
        remaining = (epoch + 1) * epoch_sec - self._session.clock()
        return max(1, min(wait_sec, remaining))

    async def settle(self) -> None:
        """Save in the state which entries the application has consumed."""
        delivered = [item for item in self._epochs if item.delivered]
        if not delivered:
            return

        newer: list[tuple[LabelCheck, LabelState]] = []

        def save(state: State) -> None:
            for item in delivered:
                _, label_state = self._session.label_state(state, self._stream, item.epoch)
                if not self._options.peek:
                    label_state.read_seq = max(label_state.read_seq, item.delivered)
                if label_state.receipt != item.check.known.receipt:
                    newer.append((item.check, label_state))  # another process or task has read on meanwhile
                elif item.check.receipt is not None:
                    label_state.advance(item.check.peaks, item.check.receipt)
                    item.check.known = label_state

        await self._session.update(save)
        for item in delivered:
            item.delivered = 0
        for check, label_state in newer:
            await agree(self._session, check, label_state)

    async def _look_for_epochs(self) -> bool:
        """Start to read epochs that have appeared since; False if there are none.

        An old epoch is read until the hub no longer accepts messages for it.
        """
        session = self._session
        epoch_sec = session.profiles[0].epoch_sec
        last = self._epochs[-1].epoch if self._epochs else -1
        only = self._options.epoch
        if only is not None or not epoch_sec:
            new_epochs = [] if self._epochs else [only or 0]
        else:
            new_epochs = await list_epochs(session, self._stream, last + 1)
        for epoch in new_epochs:
            state = await Blocking(session.home.load)
            label, label_state = session.label_state(state, self._stream, epoch)
            start, self._start = self._start, 1
            start = label_state.read_seq + 1 if self._options.resume else start
            check = await start_at(session, label, label_state, start)
            self._epochs.append(_Epoch(epoch, check, start))
        if epoch_sec and self._epochs:
            oldest = self._epochs[-1].epoch - LATE_SEC // epoch_sec - 1
            self._epochs = [item for item in self._epochs if item.epoch >= oldest or item.epoch in new_epochs]
        return bool(new_epochs)

    async def _page(self, item: _Epoch, wait_sec: int) -> list[Message]:
        check, session, opener = item.check, self._session, self._opener
        assert opener is not None
        stop, prove = self._options.stop, self._options.prove
        if stop is not None and check.next_seq > stop:
            return []
        max_items = PAGE_ITEMS if self._remaining is None else min(PAGE_ITEMS, self._remaining)
        request = StreamRequest(
            label=check.label,
            from_seq=check.next_seq,
            to_seq=stop,
            max_items=max_items,
            with_receipts=True,
            with_mmr_proof=prove or None,
        )
        page = await fetch_page(session, request, wait_sec)
        page = replace(page, items=page.items[:max_items])
        messages: list[Message] = []
        try:
            if not page.items:
                check.end()
            await Blocking(lambda: _open_each(opener, item, page, messages))
            if prove and messages:
                _verify_page_proof(page, messages[-1])
        except ProtocolError as error:
            if error.detail in (Detail.SIG_INVALID, Detail.KEY_INACTIVE) and not self._has_reconnected:
                self._has_reconnected = True  # the hub may have a new key; one attempt is enough
                try:
                    await session.reconnect()
                    check.pin = await session.connect()
                    messages += await self._page(item, 0)
                except VeenError as retry_error:
                    if not messages:
                        raise
                    self._failure = retry_error
            else:
                self._failure = error
        except DivergenceError as error:
            self._failure = error
        if not messages and self._failure is not None:
            raise self._failure
        item.delivered = check.peaks.size if messages else item.delivered
        self._has_reconnected = False
        return [message for message in messages if message.position >= item.first]


def read_stream(
    driver: Driver, stream: str, options: ReadOptions = READ_ALL, *, follow: bool = False
) -> Iterator[Message]:
    """Yield the entries of a stream, each verified; with ``follow``, wait for more at its end."""
    reader = StreamReader(driver.session, stream, options)
    while not reader.at_end or (follow and not reader.is_full):
        yield from driver.run(reader.fetch(FOLLOW_SEC if follow else 0))


def _open_each(opener: Opener, item: _Epoch, page: StreamResponse, messages: list[Message]) -> None:
    messages.extend(opener.open(item.epoch, each.msg, item.check.accept(each)) for each in page.items)


def _verify_page_proof(page: StreamResponse, last: Message) -> None:
    if page.mmr_proof is None:
        raise ProtocolError(Detail.PROOF_PATH, "the hub omitted the proof", stream_seq=last.position)
    receipt = last.receipt
    page.mmr_proof.verify(receipt.mmr_root, receipt.leaf_hash, stream_seq=receipt.stream_seq)


async def list_epochs(session: Session, stream: str, from_epoch: int) -> list[int]:
    """Return the epochs in which a stream has entries, from ``from_epoch`` on."""
    epochs: list[int] = []
    start: int | None = from_epoch
    while start is not None:
        request = StreamEpochsRequest(stream_id=labels.stream_id(stream), from_epoch=start)
        page = await session.ask(request, StreamEpochsResponse)
        ascending = all(earlier < later for earlier, later in zip(page.epochs, page.epochs[1:], strict=False))
        after = page.next_epoch
        advances = after is None or not page.epochs or after > page.epochs[-1]
        if not ascending or not advances or (page.epochs and page.epochs[0] < start):
            raise ProtocolError(Detail.VALUE, "the epochs are out of order", field="epochs")
        epochs += page.epochs
        start = page.next_epoch if page.epochs else None
    return epochs
