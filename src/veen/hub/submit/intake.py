"""The path of a message through the hub, from the prefilter to its answer.

    verifier pool (processes) -> sequencer (the loop) -> the disk (a thread) -> answers (the loop)

``Intake`` owns these parts and the outcome of each message: the counters, the log line, the answer.
"""

import logging
from collections.abc import Sequence
from time import perf_counter

from veen.admission.authority import Authority
from veen.admission.stateful import Policy
from veen.admission.stateless import MessageRules
from veen.core.objects.error_envelope import unavailable
from veen.core.types import Label
from veen.hub.config import Settings
from veen.hub.keyring import Clock, KeyRing
from veen.hub.metrics import Failure, Metrics
from veen.hub.submit.events import SubmitEvents
from veen.hub.submit.sequencer import Sequencer
from veen.hub.submit.submission import Submission
from veen.hub.submit.verifier_pool import VerifierPool
from veen.stdx.json_log import log_lines
from veen.storage import Writer

_log = logging.getLogger(__name__)


class Intake:
    """Verifies, sequences, commits and answers messages. All methods are for the loop."""

    def __init__(
        self,
        rules: MessageRules,
        writer: Writer,
        ring: KeyRing,
        policy: Policy,
        authority: Authority,
        *,
        settings: Settings,
        clock: Clock,
        newest: Label | None,
        events: SubmitEvents,
        metrics: Metrics,
    ) -> None:
        self.rules = rules
        self.sequencer = Sequencer(
            writer,
            ring,
            policy,
            authority,
            clock=clock,
            decided=self._decided,
            events=events,
            metrics=metrics,
        )
        self._verifiers = VerifierPool(rules, self._verified, settings, events)
        self._events = events
        self._clock = clock
        self._metrics = metrics
        self._log_submits = settings.log_submits
        # The label of the last commit, of this process or from the log (C-76).
        self.newest = newest

    def start(self) -> None:
        """Start the verifier processes, without waiting until they run."""
        self._verifiers.start()

    def has_room(self, items: int, size: int) -> bool:
        """Return whether the queue has room for that many more messages and bytes."""
        return self._verifiers.has_room(items, size)

    @property
    def depth(self) -> int:
        """How many messages are queued and not answered."""
        return self._verifiers.depth

    @property
    def depth_bytes(self) -> int:
        """Size of these messages in bytes."""
        return self._verifiers.depth_bytes

    def submit(self, messages: Sequence[Submission]) -> None:
        """Queue messages that have passed the prefilter; the caller has checked ``has_room``."""
        self._verifiers.put(messages)

    def reject(self, message: Submission) -> None:
        """Answer a message that was rejected before it was queued."""
        self._answer([message], queued=False)

    def _verified(self, messages: Sequence[Submission], pending: int) -> None:
        good = [item for item in messages if item.error is None]
        # Partitioned first: the sequencer may reject some of the good ones at once, and answer them.
        bad = [item for item in messages if item.error is not None]
        # Even if empty: its batch may be waiting for fewer pending messages.
        self.sequencer.put(good, pending=pending)
        if bad:
            self._answer(bad)

    def _decided(self, messages: Sequence[Submission]) -> None:
        if not messages:
            return
        self._answer(messages)
        self._events.decided(messages)

    def _answer(self, messages: Sequence[Submission], *, queued: bool = True) -> None:
        metrics = self._metrics
        ts = self._clock()
        lines: list[str] = []
        logged = self._log_submits and _log.isEnabledFor(logging.INFO)
        now = perf_counter()
        for item in messages:
            if queued:
                self._verifiers.answered(item)
            metrics.verify_ms.observe(1000 * (item.verified - item.received))
            metrics.commit_ms.observe(1000 * (now - item.verified))
            metrics.end_to_end_ms.observe(1000 * (now - item.received))
            if item.error is None:
                metrics.ok += 1
                assert item.record is not None
                self.newest = item.record.label
            else:
                metrics.rejected(_failure(item, ts))
            if logged:
                lines.append(_line(item, ts, now))
            try:
                item.on_done(item)
            except Exception as error:  # noqa: BLE001 - an internal error must not keep the answers of others
                self._events.bug(error)
        if lines:
            log_lines(_log, lines)

    async def stop(self) -> None:
        """Commit verified messages, reject the others, and end: every queued message is answered."""
        unverified = self._verifiers.stop()
        for item in unverified:
            item.error = unavailable("the hub is stopping; retry later")
        self._answer(unverified)
        self.sequencer.put((), pending=0)
        await self.sequencer.stop()


def _failure(item: Submission, ts: int) -> Failure:
    assert item.error is not None
    record = item.record
    label, client = (
        ("", "") if record is None else (record.label.hex()[:8], (record.client_id or b"").hex()[:8])
    )
    return Failure(ts, item.error.code, item.error.detail_enum, label, client)


def _line(item: Submission, ts: int, now: float) -> str:
    """Return the log line of a message (OBS0-003). Formatted by hand, because it is logged for every message.

    It has prefixes of ids and no content, so that no secret gets into a log.
    """
    record, error = item.record, item.error
    about = ""
    if error is not None:
        about = f'"code":"{error.code}","detail":"{error.detail_enum}",'
    if record is not None:
        about += (
            f'"label":"{record.label.hex()}","client_id_prefix":"{(record.client_id or b"").hex()[:8]}",'
            f'"leaf_hash_prefix":"{record.leaf_hash.hex()[:8]}",'
        )
    return (
        f'{{"ts":{ts},"level":"info","event":"submit",{about}"stream_seq":{item.seq},'
        f'"bytes_in":{item.size},"bytes_out":{len(item.receipt)},'
        f'"verify_ms":{1000 * (item.verified - item.received):.3f},'
        f'"commit_ms":{1000 * (now - item.verified):.3f}}}'
    )
