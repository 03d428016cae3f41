"""State certificates: a signed statement that a log, up to given roots, folds to a state.

Any reader of the log can verify it: the log must have these roots and fold to this hash. The signature names
the issuer.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Self

from veen.core.crypto import ed25519
from veen.core.crypto.hash import tagged_hash
from veen.core.encoding.field_types import B32, B64, TEXT, UINT, VER, ListOf
from veen.core.encoding.shape import Field, MapShape
from veen.core.encoding.wire_object import Nested, Wire
from veen.core.errors import Detail, ProtocolError
from veen.core.types import JsonValue, Label, Signature, StreamId, VerifyKey
from veen.overlays.overlay import Overlay
from veen.stdx.grammar import counted

_TAG: Final = "veen/state-certificate"
_UNSIGNED: Final = Signature(bytes(ed25519.SIGNATURE_BYTES))


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifiedLabel(Wire):
    """A label up to and including an entry, with the root at that position."""

    SHAPE: ClassVar = MapShape(
        "certified_label",
        Field("epoch", UINT, key=1),
        Field("label", B32, key=2),
        Field("upto_seq", UINT, key=3),
        Field("mmr_root", B32, key=4),
    )

    epoch: int
    label: Label
    upto_seq: int
    mmr_root: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCertificate(Wire):
    """Stream, overlay and position of a fold, and the hash of its state."""

    SHAPE: ClassVar = MapShape(
        "state_certificate",
        Field("ver", VER, key=1),
        Field("overlay", TEXT, key=2),
        Field("overlay_version", UINT, key=3),
        Field("parameters", TEXT, key=4),
        Field("schemas", ListOf(B32), key=5),
        Field("bridges", ListOf(B32), key=6),
        Field("stream_id", B32, key=7),
        Field("labels", ListOf(Nested(CertifiedLabel)), key=8),
        Field("state_class", TEXT, key=9),
        Field("state_hash", B32, key=10),
        Field("issuer_pk", B32, key=11),
        Field("sig", B64, key=12),
    )

    overlay: str
    overlay_version: int
    # JSON with sorted names.
    parameters: str
    schemas: tuple[bytes, ...]
    bridges: tuple[bytes, ...]
    stream_id: StreamId
    labels: tuple[CertifiedLabel, ...]
    state_class: str
    state_hash: bytes
    issuer_pk: VerifyKey
    sig: Signature

    def _validate(self) -> None:
        epochs = [item.epoch for item in self.labels]
        if epochs != sorted(set(epochs)):
            raise ProtocolError(Detail.VALUE, "labels must be sorted by epoch", field="labels")
        try:
            parameters = json.loads(self.parameters)
        except (ValueError, RecursionError):
            parameters = None
        if not isinstance(parameters, dict):
            raise ProtocolError(Detail.VALUE, "parameters are not a JSON object", field="parameters")

    @classmethod
    def issue(
        cls,
        issuer: ed25519.SigningKey,
        overlay: Overlay,
        *,
        stream_id: StreamId,
        labels: Sequence[CertifiedLabel],
        state_hash: bytes,
        bridges: frozenset[bytes] = frozenset(),
    ) -> Self:
        """Certify a state; equal inputs give equal bytes."""
        unsigned = cls(
            **_described(overlay),
            bridges=tuple(sorted(bridges)),
            stream_id=stream_id,
            labels=tuple(labels),
            state_hash=state_hash,
            issuer_pk=issuer.public_key,
            sig=_UNSIGNED,
        )
        return replace(unsigned, sig=issuer.sign(unsigned._digest()))

    def _digest(self) -> bytes:
        return tagged_hash(_TAG, replace(self, sig=_UNSIGNED).encode())

    def verify(self) -> None:
        """Check the signature."""
        ed25519.verify(self.issuer_pk, self._digest(), self.sig)

    def parameter_values(self) -> dict[str, JsonValue]:
        """Return the parameters of the overlay."""
        values: dict[str, JsonValue] = json.loads(self.parameters)
        return values

    def differences(self, overlay: Overlay, labels: Sequence[CertifiedLabel], state_hash: bytes) -> list[str]:
        """Return the differences between another fold and the certificate; empty if there are none."""
        texts = [
            f"{name} is {getattr(self, name)!r} in the certificate, but {value!r} here"
            for name, value in _described(overlay).items()
            if getattr(self, name) != value and name != "schemas"
        ]
        if self.schemas != _described(overlay)["schemas"]:
            texts.append("the schemas differ from those of the local overlay")
        texts += _label_differences(self.labels, labels)
        if self.state_hash != state_hash:
            texts.append(
                f"state_hash is {self.state_hash.hex()} in the certificate, but {state_hash.hex()} here"
            )
        return texts


def _described(overlay: Overlay) -> dict[str, Any]:
    """Return the fields that identify the fold."""
    return {
        "overlay": overlay.name,
        "overlay_version": overlay.version,
        "parameters": json.dumps(overlay.parameters(), sort_keys=True),
        "schemas": tuple(sorted(schema.schema_id for schema in overlay.schemas)),
        "state_class": overlay.state_class,
    }


def _label_differences(there: Sequence[CertifiedLabel], here: Sequence[CertifiedLabel]) -> list[str]:
    mine = {item.epoch: item for item in here}
    differences = [
        f"the log has entries in epoch {epoch}, the certificate does not"
        for epoch in mine.keys() - {item.epoch for item in there}
    ]
    for item in there:
        other = mine.get(item.epoch)
        if other is None:
            differences.append(f"the log does not have entries in epoch {item.epoch}")
        elif other.label != item.label:
            differences.append(f"epoch {item.epoch} has another label: it is another hub or stream")
        elif other.upto_seq != item.upto_seq:
            differences.append(
                f"epoch {item.epoch} has {counted(other.upto_seq, 'entry')}, not {item.upto_seq}"
            )
        elif other.mmr_root != item.mmr_root:
            differences.append(f"the root at entry {item.upto_seq} of epoch {item.epoch} differs")
    return differences
