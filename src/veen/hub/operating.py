"""What operators ask of a running hub: trust, keys, copies."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from veen.core.errors import Code, Detail, ProtocolError
from veen.core.tooling import AnchorRequest, BackupLabel, BackupRequest, BackupResponse
from veen.core.types import JsonValue, VerifyKey
from veen.hub.http.bodies import decode, describe, encode, parse_json, wants_json
from veen.hub.http.message import Request, Response, error_response
from veen.hub.hub import Hub
from veen.hub.job import Job
from veen.hub.keyring import MAX_OVERLAP_SEC
from veen.hub.offline import describe_keys
from veen.hub.refusing import bad_request, hex32, unavailable
from veen.storage import FullError, RealFilesystem, clone
from veen.storage.public import read_public

_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}")
#: Copies beside each other: whoever may ask for one must not be able to fill the disk.
_MAX_COPIES: Final = 16


class Operating:
    """Takes orders; those that change the hub come through its own socket only."""

    def __init__(self, hub: Hub, later: Callable[[Request, Job], None]) -> None:
        self._hub = hub
        self._later = later
        self._copying = False

    def trusted(self, request: Request) -> Response:
        """List the issuers whose tokens count."""
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
        """Trust an issuer, or no longer: {"issuer_pk": HEX, "trusted": bool, "note": text?}."""
        match parse_json(request.body):
            case {"issuer_pk": str(issuer), "trusted": bool(trusted), **rest}:
                note = rest.get("note")
            case _:
                raise bad_request("issuer_pk", "send issuer_pk and trusted")
        key, text = VerifyKey(hex32(issuer, "issuer_pk")), note if isinstance(note, str) else None
        if not trusted and key in self._hub.sequencer.authority.configured:
            raise ProtocolError(
                Detail.VALUE,
                "the issuer is trusted by the configuration; remove it there (trust_issuers) and restart",
                code=Code.CONFLICT,
                field="issuer_pk",
            )
        self._turn(request, lambda: self._hub.trust(key, trusted=trusted, note=text))

    def rotate(self, request: Request) -> None:
        """Take a new signing key into use: {"overlap_sec": number?}."""
        body: JsonValue = parse_json(request.body)
        overlap = body.get("overlap_sec") if isinstance(body, dict) else None
        seconds = overlap if isinstance(overlap, int) else self._hub.settings.rotation_window_sec
        if not 0 <= seconds <= MAX_OVERLAP_SEC:
            raise bad_request("overlap_sec", f"overlap_sec is from 0 to {MAX_OVERLAP_SEC}")
        self._turn(request, lambda: self._hub.rotate(seconds))

    def _turn(self, request: Request, order: Callable[[], None]) -> None:
        def run() -> Response:
            order()
            return describe(request, describe_keys(self._hub.home, self._hub.sequencer.hub_ts()))

        self._hub.turn(run, lambda job: self._later(request, job))

    def anchor(self, request: Request) -> Response | None:
        """Publish the root of a label; the operator as often as wanted, others as the settings allow."""
        asked = decode(request, AnchorRequest, self._hub.limits)
        anchoring = self._hub.anchoring
        if anchoring is None:
            raise ProtocolError(
                Detail.VALUE,
                "this hub makes no anchors: anchor_backend is not set",
                code=Code.FORBIDDEN,
                field="label",
            )
        if self._hub.stopping or not anchoring.has_room:
            return error_response(
                unavailable("too many anchors are being made; try again"), as_json=wants_json(request)
            )
        anchoring.ask(
            Job(
                lambda: encode(request, anchoring.answer(asked, local=request.local)),
                lambda job: self._later(request, job),
            )
        )
        return None

    # --- copies ---------------------------------------------------------------------------------------------

    def backup(self, request: Request) -> Response | None:
        """Copy the log beside the hub at work, into the directory that the operator has set aside for it."""
        asked = decode(request, BackupRequest, self._hub.limits)
        place = self._hub.settings.backup_dir
        if place is None:
            raise ProtocolError(
                Detail.VALUE,
                "this hub makes no copies: backup_dir is not set",
                code=Code.FORBIDDEN,
                field="name",
            )
        if not _NAME.fullmatch(asked.name):
            raise bad_request("name", "a name has up to 64 letters, digits, dots, dashes and underscores")
        if self._copying:  # a copy reads everything: one at a time, or nobody else would get to read
            return error_response(
                unavailable("a copy is being made; try again", retry_after=5), as_json=wants_json(request)
            )
        target = place / asked.name

        def done(job: Job) -> None:
            self._copying = False
            self._later(request, job)

        self._copying = True
        self._hub.read(lambda: encode(request, self._copy(asked.name, target)), done)
        return None

    def _copy(self, name: str, target: Path) -> BackupResponse:
        hub = self._hub
        if target.exists():
            raise ProtocolError(
                Detail.VALUE, "there is a copy of this name; choose another", code=Code.CONFLICT, field="name"
            )
        if target.parent.is_dir() and len(list(target.parent.iterdir())) >= _MAX_COPIES:
            raise ProtocolError(
                Detail.VALUE,
                f"there are {_MAX_COPIES} copies already; the operator has to move some away",
                code=Code.LIMIT,
                max_allowed=_MAX_COPIES,
            )
        if not hub.has_space(0):
            raise FullError("there is no space left for copies")
        started = hub.clock()
        target.parent.mkdir(parents=True, exist_ok=True)
        files = RealFilesystem(target)
        try:
            heads = [(label, hub.reader.head(label)) for label in sorted(hub.reader.labels())]
            clone(hub.reader, files)
            read_public(files)  # a key that was changed meanwhile may have been copied in part
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)  # what was copied would keep the disk full
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
