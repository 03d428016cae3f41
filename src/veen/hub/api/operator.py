"""Operator requests to a running hub: trust, keys, copies and revocations (KEX1+)."""

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from veen.core.api.tooling import AnchorRequest, BackupLabel, BackupRequest, BackupResponse
from veen.core.errors import Code, Detail, ProtocolError, bad_request
from veen.core.objects.control_record import RevocationRecord, Target
from veen.core.objects.error_envelope import unavailable
from veen.core.objects.labels import control_label
from veen.core.types import JsonValue, VerifyKey
from veen.hub.api.bodies import decode, describe, encode, parse_json, wants_json
from veen.hub.api.parameters import hex32, number
from veen.hub.control.control_plane import describe_revocation, revocation_of
from veen.hub.control.offline_orders import describe_keys
from veen.hub.hub import Hub
from veen.hub.keyring import MAX_OVERLAP_SEC
from veen.hub.read.thread_pool import Job
from veen.net.http_message import Request, Response, error_response
from veen.storage import RealFilesystem, StoreFullError, clone
from veen.storage.directory import read_public

_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}")
# Copies in backup_dir: a client that may request them must not be able to fill the disk.
_MAX_COPIES: Final = 16


class OperatorHandlers:
    """Handlers of the operator's requests; changes of the hub are accepted on the admin socket only."""

    def __init__(self, hub: Hub, later: Callable[[Request, Job], None]) -> None:
        self._hub = hub
        self._later = later
        self._copying = False

    def trusted(self, request: Request) -> Response:
        """List the trusted issuers of tokens."""
        authority = self._hub.sequencer.authority
        return describe(
            request,
            {
                "trust_all": authority.trust_all,
                "issuers": [
                    {
                        "issuer_pk": key,
                        "from": "configuration" if key in authority.configured else "control log",
                    }
                    for key in sorted(authority.trusted)
                ],
            },
        )

    def trust(self, request: Request) -> None:
        """Trust an issuer or revoke the trust: {"issuer_pk": HEX, "trusted": bool, "note": text?}."""
        match parse_json(request.body):
            case {"issuer_pk": str(issuer), "trusted": bool(trusted), **rest}:
                note = rest.get("note")
            case _:
                raise bad_request("issuer_pk", "issuer_pk and trusted are required")
        key, text = VerifyKey(hex32(issuer, "issuer_pk")), note if isinstance(note, str) else None
        if not trusted and key in self._hub.sequencer.authority.configured:
            raise ProtocolError(
                Detail.VALUE,
                "the configuration trusts the issuer; remove it from trust_issuers and restart the hub",
                code=Code.CONFLICT,
                field="issuer_pk",
            )
        self._turn(request, lambda: self._hub.trust(key, trusted=trusted, note=text))

    def rotate(self, request: Request) -> None:
        """Rotate to a new signing key: {"overlap_sec": number?}."""
        body: JsonValue = parse_json(request.body)
        overlap = body.get("overlap_sec") if isinstance(body, dict) else None
        seconds = overlap if isinstance(overlap, int) else self._hub.settings.rotation_window_sec
        if not 0 <= seconds <= MAX_OVERLAP_SEC:
            raise bad_request("overlap_sec", f"overlap_sec must be between 0 and {MAX_OVERLAP_SEC}")
        self._turn(request, lambda: self._hub.rotate(seconds))

    def _turn(self, request: Request, order: Callable[[], None]) -> None:
        def run() -> Response:
            order()
            return describe(request, describe_keys(self._hub.home, self._hub.sequencer.hub_ts()))

        self._hub.turn(run, lambda job: self._later(request, job))

    def anchor(self, request: Request) -> Response | None:
        """Publish the root of a label: for the operator always, for other clients as the settings allow."""
        anchor_request = decode(request, AnchorRequest, self._hub.limits)
        anchorer = self._hub.anchorer
        if anchorer is None:
            raise ProtocolError(
                Detail.VALUE,
                "this hub publishes no anchors: anchor_backend is not set",
                code=Code.FORBIDDEN,
                field="label",
            )
        if self._hub.stopping or not anchorer.has_room:
            return error_response(
                unavailable("too many anchors are being published; retry later"), as_json=wants_json(request)
            )
        anchorer.ask(
            Job(
                lambda: encode(request, anchorer.answer(anchor_request, local=request.local)),
                lambda job: self._later(request, job),
            )
        )
        return None

    # --- copies ---------------------------------------------------------------------------------------------

    def backup(self, request: Request) -> Response | None:
        """Copy the log of the running hub into ``backup_dir``."""
        backup_request = decode(request, BackupRequest, self._hub.limits)
        backup_dir = self._hub.settings.backup_dir
        if backup_dir is None:
            raise ProtocolError(
                Detail.VALUE,
                "this hub writes no backups: backup_dir is not set",
                code=Code.FORBIDDEN,
                field="name",
            )
        if not _NAME.fullmatch(backup_request.name):
            raise bad_request(
                "name", "a name consists of at most 64 letters, digits, dots, dashes and underscores"
            )
        if self._copying:  # a copy reads the whole log: a second one would starve other readers
            return error_response(
                unavailable("another backup is being written; retry later", retry_after=5),
                as_json=wants_json(request),
            )
        target = backup_dir / backup_request.name

        def done(job: Job) -> None:
            self._copying = False
            self._later(request, job)

        self._copying = True
        self._hub.read(lambda: encode(request, self._copy(backup_request.name, target)), done)
        return None

    def _copy(self, name: str, target: Path) -> BackupResponse:
        hub = self._hub
        if target.exists():
            raise ProtocolError(
                Detail.VALUE,
                "a backup of this name exists; choose another name",
                code=Code.CONFLICT,
                field="name",
            )
        if target.parent.is_dir() and len(list(target.parent.iterdir())) >= _MAX_COPIES:
            raise ProtocolError(
                Detail.VALUE,
                f"there are {_MAX_COPIES} backups already; the operator must move some away",
                code=Code.LIMIT,
                max_allowed=_MAX_COPIES,
            )
        if not hub.has_space(0):
            raise StoreFullError("no space is left for backups")
        started = hub.clock()
        target.parent.mkdir(parents=True, exist_ok=True)
        files = RealFilesystem(target)
        try:
            heads = [(label, hub.reader.head(label)) for label in sorted(hub.reader.labels())]
            clone(hub.reader, files)
            read_public(files)  # a key rotated meanwhile may be copied only partly
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)  # a partial copy would only occupy the disk
            raise
        finally:
            files.close()
        return BackupResponse(
            name=name,
            profile_id=hub.home.settings.profiles[0].profile_id,
            labels=tuple(
                BackupLabel(label=label, last_stream_seq=head.seq, last_mmr_root=head.root)
                for label, head in heads
                if head is not None
            ),
            started_at=started,
            finished_at=max(started, hub.clock()),
        )


_MAX_LISTED: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class _RevocationFilter:
    kind: str | None
    since: int
    active: bool
    origin: bytes | None
    limit: int

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "_RevocationFilter":
        kind, origin = query.get("kind"), query.get("origin")
        if kind is not None and kind not in set(Target):
            raise bad_request("kind", f"kind must be one of {', '.join(Target)}")
        return cls(
            kind=kind,
            since=number(query.get("since", "0"), "since"),
            active=query.get("active", "0") == "1",
            origin=None if origin is None else hex32(origin, "origin"),
            limit=min(number(query.get("limit", "100"), "limit"), _MAX_LISTED),
        )

    def has(self, record: RevocationRecord, now: int) -> bool:
        return (
            record.ts >= self.since
            and (self.kind is None or record.target_kind == self.kind)
            and (self.origin is None or record.origin == self.origin)
            and (not self.active or record.holds_at(now))
        )


class RevocationHandlers:
    """Handlers that list revocations and add the operator's."""

    def __init__(self, hub: Hub, later: Callable[[Request, Job], None]) -> None:
        self._hub = hub
        self._later = later
        self._label = control_label(hub.home.identity.hub_id)
        # All revocations by time, with the collection that they were sorted from.
        self._sorted: tuple[object, tuple[RevocationRecord, ...]] = None, ()

    def revocations(self, request: Request) -> Response | None:
        """List revocations; its sender can wait until one is listed: ``?origin=HEX&wait=SECONDS``."""
        selection = _RevocationFilter.of(request.query)
        wait = min(number(request.query.get("wait", "0"), "wait"), self._hub.settings.max_wait_sec)
        unapplied = selection.origin is not None and selection.origin not in self._hub.control_plane.applied

        def answer() -> None:
            if self._hub.readers.has_room:
                self._hub.read(lambda: self._list(request, selection), lambda job: self._later(request, job))
            else:
                request.respond(self._overloaded(request, "too many reads are queued"))

        if not (wait and unapplied) or self._hub.stopping:
            answer()
        elif self._hub.long_polls.add(self._label, wait, answer):
            request.wait(lambda: self._hub.long_polls.hurry(self._label, answer))
        else:
            return self._overloaded(request, "too many requests are waiting")
        return None

    def _overloaded(self, request: Request, why: str) -> Response:
        self._hub.metrics.overloaded += 1
        return error_response(unavailable(f"{why}; retry later"), as_json=wants_json(request, default=True))

    def _list(self, request: Request, selection: _RevocationFilter) -> Response:
        """Return the revocations that match a filter. For a reader's thread."""
        now = self._hub.sequencer.hub_ts()
        records = list(islice(self._find(selection, now), selection.limit + 1))
        return describe(
            request,
            {
                "revocations": [describe_revocation(record, now) for record in records[: selection.limit]],
                "truncated": len(records) > selection.limit,
            },
        )

    def _find(self, selection: _RevocationFilter, now: int) -> Iterator[RevocationRecord]:
        revoked = self._hub.sequencer.authority.revoked
        sorted_from, by_time = self._sorted
        if sorted_from is not revoked:  # sorting is the most expensive part
            every_record = (record for records in revoked.values() for record in records)
            by_time = tuple(sorted(every_record, key=lambda record: record.ts))
            self._sorted = revoked, by_time
        return (record for record in by_time if selection.has(record, now))

    def revoke(self, request: Request) -> None:
        """Revoke a client or a token: {"kind": text, "target": HEX, "ttl": number?, "reason": text?}."""
        record = revocation_of(parse_json(request.body), self._hub.sequencer.hub_ts())

        def run() -> Response:
            self._hub.control(record)
            now = self._hub.sequencer.hub_ts()
            return describe(request, {"ok": True, **describe_revocation(record, now)})

        self._hub.turn(run, lambda job: self._later(request, job))
