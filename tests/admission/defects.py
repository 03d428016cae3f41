"""One valid request, and for each row of the admission table the smallest change that breaks it alone.

A case says everything about a request and the hub it meets; a defect is a change of some of its values.
Two defects that change different values can be had together.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from tests import builders, rawcbor
from tests.admission.memory_hub import (
    EPOCH_SEC,
    LIMITS,
    NOW,
    POW,
    PROFILE,
    Hub,
    epoch_at,
    label_of,
    policy,
    worked,
)
from veen.admission.authority import Authority
from veen.admission.stages import Admitted, Authentic
from veen.core.crypto.hash import sha256, tagged_hash
from veen.core.data_dir.store_records import StreamEpoch
from veen.core.errors import ADMISSION_TABLE, Code, Detail, DetailValue
from veen.core.objects.capability import Bucket, CapToken, effective_rate
from veen.core.objects.control_record import ControlRecord, RevocationRecord, Target
from veen.core.objects.msg import MsgContext
from veen.core.objects.new_entry import NewEntry
from veen.core.types import Label, ProfileId


@dataclass(frozen=True, kw_only=True)
class Case:
    """The client's third message to a label, with a token that it has used for the first two."""

    # The request
    padding: int = 0
    has_cookie: bool = True
    cut: int = 0
    # The message
    body_len_added: int = 0
    ver: int = 1
    profile_id: ProfileId = PROFILE.profile_id
    extra_byte: bytes = b""
    hashed: bytes | None = None
    signer: str = "client"
    client_seq: int = 3
    prev_ack: int = 2
    # The token
    authorized: bool = True
    subject: str = "client"
    streams: tuple[str, ...] = ("other", "stream")
    ttl: int = 3_600
    rate: tuple[int, int] = (1, 10)
    # The hub
    issuers: tuple[str, ...] = ("issuer",)
    is_primary: bool = True
    client_revoked: bool = False
    auth_ref_revoked: bool = False
    token_revoked: bool = False
    max_client_msgs: int | None = None
    max_client_lifetime_sec: int | None = None
    #: When the first two messages were accepted, and when the client made the label of all three.
    before: int = NOW - 20

    @property
    def label(self) -> Label:
        return label_of(hub_ts=self.before)

    @property
    def issued_at(self) -> int:
        """When the token was authorized."""
        return self.before - 10

    @property
    def token(self) -> CapToken:
        per_sec, burst = self.rate
        return builders.cap_token(
            subject=self.subject, streams=self.streams, ttl=self.ttl, rate=builders.rate(per_sec, burst)
        )

    # --- the request

    def request(self) -> tuple[bytes, str | None]:
        """Return the body and the header with the proof of work."""
        message = rawcbor.array(self._fields(self.client_seq, self.prev_ack))
        whole = rawcbor.mapping([(rawcbor.uint(1), rawcbor.uint(1)), (rawcbor.uint(2), message)])
        body = whole[: len(whole) - self.cut]
        return body, worked(body) if self.has_cookie else None

    def _fields(self, client_seq: int, prev_ack: int) -> list[bytes]:
        context = MsgContext(
            profile_id=self.profile_id,
            label=self.label,
            client_id=builders.verify_key(),
            client_seq=client_seq,
            prev_ack=prev_ack,
            auth_ref=self.token.auth_ref,
        )
        ciphertext = self._ciphertext(context)
        signed = [
            rawcbor.uint(self.ver),
            rawcbor.bstr(context.profile_id),
            rawcbor.bstr(context.label),
            rawcbor.bstr(context.client_id),
            rawcbor.uint(client_seq),
            rawcbor.uint(prev_ack),
            rawcbor.bstr(self.token.auth_ref),
            rawcbor.bstr(sha256(ciphertext if self.hashed is None else self.hashed)),
            rawcbor.bstr(ciphertext),
        ]
        digest = tagged_hash("veen/sig", rawcbor.array(signed))
        return [*signed, rawcbor.bstr(builders.signing_key(self.signer).sign(digest))]

    def _ciphertext(self, context: MsgContext) -> bytes:
        sealed = builders.sealed(context, pad_block=PROFILE.pad_block).ciphertext
        body_len = int.from_bytes(sealed[36:40], "big") + self.body_len_added
        return sealed[:36] + body_len.to_bytes(4, "big") + sealed[40:] + bytes(self.padding) + self.extra_byte

    # --- the hub

    def hub(self) -> Hub:
        """Return the hub that the request meets."""
        hub = Hub(
            policy=policy(
                is_primary=self.is_primary,
                max_client_msgs=self.max_client_msgs,
                max_client_lifetime_sec=self.max_client_lifetime_sec,
            ),
            authority=Authority.of(map(builders.verify_key, self.issuers)).after(self._revocations()),
        )
        if self.authorized:
            hub.view.authorize(self.token, self.issued_at)
        stream: StreamEpoch | None = StreamEpoch(builders.stream(), epoch_at(self.before))
        rate = effective_rate(self.token, LIMITS)
        bucket = Bucket.full(rate, self.before)
        for record in self.history():
            bucket = bucket.take(rate, self.before)
            hub.view.accept(Admitted(Authentic(record), self.before, stream, bucket))
            stream = None
        return hub

    def history(self) -> list[NewEntry]:
        """Return the two messages before."""
        made = []
        for seq in (1, 2):
            context = builders.context(
                profile_id=PROFILE.profile_id,
                label=self.label,
                client_seq=seq,
                prev_ack=seq - 1,
                auth_ref=self.token.auth_ref,
            )
            made.append(NewEntry.of_msg(builders.msg(context)))
        return made

    def _revocations(self) -> list[ControlRecord]:
        named = (
            (self.client_revoked, Target.CLIENT_ID, builders.verify_key()),
            (self.auth_ref_revoked, Target.AUTH_REF, self.token.auth_ref),
            (self.token_revoked, Target.CAP_TOKEN, sha256(self.token.encode())),
        )
        return [
            RevocationRecord(target_kind=kind.value, target=target, ts=NOW)
            for asked, kind, target in named
            if asked
        ]


Fields = dict[str, DetailValue]


@dataclass(frozen=True)
class Defect:
    """A change that breaks one row, and what the refusal says besides the row's code, stage and detail."""

    detail: Detail
    variant: str
    changes: Mapping[str, Any]
    fields: Callable[[Case], Fields]
    other_code: Code | None = None

    @property
    def name(self) -> str:
        return f"{self.row.row} {self.variant}"

    @property
    def row(self) -> Any:
        return next(row for row in ADMISSION_TABLE if row.detail == self.detail)

    def expected(self, case: Case) -> tuple[Code, str, Detail, Fields]:
        return self.other_code or self.row.code, self.row.stage, self.detail, self.fields(case)


def _defect(
    detail: Detail,
    variant: str,
    fields: Callable[[Case], Fields] | Fields,
    *,
    other_code: Code | None = None,
    **changes: Any,
) -> Defect:
    fixed = fields if callable(fields) else lambda _: dict(fields)
    return Defect(detail, variant, MappingProxyType(changes), fixed, other_code)


def _sealed_body_len(case: Case) -> int:
    # "hello" and its tag, whatever else is wrong
    return 5 + 16 + case.body_len_added


BASELINE = Case()

#: In the order in which they are to be found.
DEFECTS: tuple[Defect, ...] = (
    _defect(
        Detail.SIZE_PREFILTER,
        "too large",
        lambda case: {"actual": len(case.request()[0]), "max_allowed": 2_052},
        padding=7 * 256,
    ),
    _defect(Detail.PREFILTER_REJECT, "no cookie", {"expected": POW.difficulty}, has_cookie=False),
    _defect(Detail.CBOR_INVALID, "cut off", {"field": "msg.sig"}, cut=1),
    _defect(
        Detail.FIELD_SIZE,
        "body_len",
        lambda case: {
            "field": "msg.ciphertext",
            "actual": _sealed_body_len(case),
            "max_allowed": LIMITS.max_body_bytes,
        },
        body_len_added=LIMITS.max_body_bytes,
    ),
    _defect(Detail.VERSION, "ver", {"field": "msg.ver", "expected": 1, "actual": 2}, ver=2),
    _defect(
        Detail.PROFILE,
        "of another hub",
        {"field": "profile_id", "actual": builders.profile(pad_block=7).profile_id},
        profile_id=builders.profile(pad_block=7).profile_id,
    ),
    _defect(
        Detail.CT_PADDING,
        "one byte too many",
        lambda case: {"field": "ciphertext", "expected": 256, "actual": 256 + case.padding + 1},
        extra_byte=b"\0",
    ),
    _defect(Detail.CT_HASH, "of something else", {"field": "ct_hash"}, hashed=b"something else"),
    _defect(Detail.SIG_INVALID, "of somebody else", {}, signer="somebody else"),
    _defect(Detail.CAP_MISSING, "not authorized", {"field": "auth_ref"}, authorized=False),
    _defect(
        Detail.CAP_INVALID,
        "issuer not trusted",
        {"field": "issuer_pk", "actual": builders.verify_key("issuer")},
        issuers=(),
    ),
    _defect(Detail.AUTH_REF, "subject", {"field": "client_id"}, subject="somebody else"),
    _defect(Detail.AUTH_REF, "scope", {"field": "label"}, streams=("other",)),
    _defect(Detail.NOT_PRIMARY, "replica", {"field": "label"}, is_primary=False),
    _defect(Detail.REVOKED, "client-id", {"field": "client_id"}, client_revoked=True),
    _defect(Detail.REVOKED, "auth-ref", {"field": "auth_ref"}, other_code=Code.CAP, auth_ref_revoked=True),
    _defect(Detail.REVOKED, "cap-token", {"field": "auth_ref"}, other_code=Code.CAP, token_revoked=True),
    _defect(
        Detail.CLIENT_LIFETIME,
        "count",
        {"field": "client_seq", "actual": 2, "max_allowed": 2},
        max_client_msgs=2,
    ),
    _defect(
        Detail.CLIENT_LIFETIME,
        "age",
        lambda case: {"field": "client_id", "actual": NOW - case.before, "max_allowed": 19},
        max_client_lifetime_sec=19,
    ),
    _defect(Detail.CAP_TTL, "expired", lambda case: {"expected": case.issued_at + 19, "actual": NOW}, ttl=19),
    _defect(Detail.CAP_RATE, "used up", {"max_allowed": 0}, rate=(0, 2)),
    _defect(
        Detail.PREV_ACK, "beyond the head", {"field": "prev_ack", "actual": 3, "max_allowed": 2}, prev_ack=3
    ),
    _defect(Detail.PREV_ACK, "went back", {"field": "prev_ack", "actual": 0, "expected": 1}, prev_ack=0),
    _defect(Detail.DUPLICATE, "used", {"field": "client_seq", "expected": 3, "actual": 1}, client_seq=1),
    _defect(Detail.CLIENT_SEQ, "gap", {"field": "client_seq", "expected": 3, "actual": 4}, client_seq=4),
    _defect(
        Detail.EPOCH,
        "long ago",
        lambda case: {"field": "label", "expected": epoch_at(NOW), "actual": epoch_at(case.before)},
        before=NOW - 5 * EPOCH_SEC,
    ),
)


def with_all(*defects: Defect) -> Case:
    """Return the request and hub with all these defects."""
    changes: dict[str, Any] = {}
    for defect in defects:
        assert not changes.keys() & defect.changes.keys(), "a value can not be wrong in two ways"
        changes.update(defect.changes)
    return replace(BASELINE, **changes)
