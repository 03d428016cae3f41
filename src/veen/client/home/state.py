"""state.json: what a client has verified, and the sequence numbers it has used (RSY0-005, CLI-076)."""

import json
from dataclasses import dataclass, field
from typing import Any, Final

from veen.client.errors import ClientStateError
from veen.core.errors import ProtocolError
from veen.core.merkle.mmr import Peaks
from veen.core.objects.hub_identity import HubIdentity
from veen.core.objects.receipt import Receipt
from veen.core.types import HubId, Label, NodeHash, Signature, StreamId, VerifyKey

_VERSION: Final = 1


@dataclass(slots=True)
class Writer:
    """The last sequence number that a client key has used in a label."""

    client_seq: int = 0
    first_sent_at: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"client_seq": self.client_seq, "first_sent_at": self.first_sent_at}


@dataclass(slots=True)
class LabelState:
    """The verified prefix of a label: entries 1 to ``peaks.size``, and the last receipt."""

    hub_id: HubId
    stream_id: StreamId
    epoch: int
    stream: str | None = None
    peaks: Peaks = field(default_factory=Peaks.empty)
    receipt: Receipt | None = None
    prev_ack: int = 0
    # The last entry that the application has consumed; reading resumes after it.
    read_seq: int = 0
    writers: dict[VerifyKey, Writer] = field(default_factory=dict)

    @property
    def last_seq(self) -> int:
        """The last verified entry; 0 for none."""
        return self.peaks.size

    def advance(self, peaks: Peaks, receipt: Receipt) -> None:
        """Set a longer prefix; ignore a shorter one."""
        if peaks.size > self.peaks.size:
            self.peaks, self.receipt = peaks, receipt

    def writer(self, client_id: VerifyKey) -> Writer:
        """Return the counters of a client key."""
        return self.writers.setdefault(client_id, Writer())

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "hub_id": self.hub_id.hex(),
            "stream_id": self.stream_id.hex(),
            "stream": self.stream,
            "epoch": self.epoch,
            "last_stream_seq": self.last_seq,
            "last_mmr_root": self.peaks.root.hex() if self.last_seq else None,
            "peaks": [peak.hex() for peak in self.peaks.hashes],
            "last_receipt": None if self.receipt is None else self.receipt.encode().hex(),
            "prev_ack": self.prev_ack,
            "read_seq": self.read_seq,
            "writers": {key.hex(): item.to_json() for key, item in sorted(self.writers.items())},
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "LabelState":
        """Parse the JSON form; receipt and peaks must agree."""
        peaks = Peaks(
            value["last_stream_seq"], tuple(NodeHash(bytes.fromhex(text)) for text in value["peaks"])
        )
        receipt = value["last_receipt"]
        label_state = cls(
            hub_id=HubId(bytes.fromhex(value["hub_id"])),
            stream_id=StreamId(bytes.fromhex(value["stream_id"])),
            stream=value["stream"],
            epoch=value["epoch"],
            peaks=peaks,
            receipt=None if receipt is None else Receipt.decode(bytes.fromhex(receipt)),
            prev_ack=value["prev_ack"],
            read_seq=value["read_seq"],
            writers={
                VerifyKey(bytes.fromhex(key)): Writer(item["client_seq"], item["first_sent_at"])
                for key, item in value["writers"].items()
            },
        )
        last = label_state.receipt
        if (last is None) != (peaks.size == 0):
            raise ValueError("peaks without a receipt")
        if last is not None and (last.stream_seq, last.mmr_root) != (peaks.size, peaks.root):
            raise ValueError("the peaks are not those of the last receipt")
        return label_state


@dataclass(frozen=True, slots=True)
class Pin:
    """A hub that this client trusts: its signed identity, and why it is trusted."""

    identity: HubIdentity
    sig: Signature
    how: str
    pinned_at: int
    profile_id: str
    # Every name by which it was reached, the most recent last.
    names: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name by which it was reached last."""
        return self.names[-1] if self.names else ""

    def reached(self, name: str) -> tuple[str, ...]:
        """Return the names with this one as the most recent."""
        return (*(item for item in self.names if item != name), name)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "identity": self.identity.encode().hex(),
            "identity_sig": self.sig.hex(),
            "how": self.how,
            "pinned_at": self.pinned_at,
            "profile_id": self.profile_id,
            "names": list(self.names),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Pin":
        """Parse the JSON form."""
        return cls(
            identity=HubIdentity.decode(bytes.fromhex(value["identity"])),
            sig=Signature(bytes.fromhex(value["identity_sig"])),
            how=value["how"],
            pinned_at=value["pinned_at"],
            profile_id=value["profile_id"],
            names=tuple(map(str, value["names"])),
        )


@dataclass(slots=True)
class State:
    """The state of a client."""

    pins: dict[HubId, Pin] = field(default_factory=dict)
    labels: dict[Label, LabelState] = field(default_factory=dict)

    @property
    def profile_id(self) -> str | None:
        """The profile of the most recently pinned hub."""
        newest = max(self.pins.values(), key=lambda pin: pin.pinned_at, default=None)
        return None if newest is None else newest.profile_id

    def encode(self) -> bytes:
        """Encode the file; equal states give equal bytes."""
        value = {
            "version": _VERSION,
            "profile_id": self.profile_id,
            "hubs": {key.hex(): pin.to_json() for key, pin in sorted(self.pins.items())},
            "labels": {key.hex(): item.to_json() for key, item in sorted(self.labels.items())},
        }
        return json.dumps(value, indent=1).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> "State":
        """Decode the file."""
        try:
            value = json.loads(data)
            if value["version"] != _VERSION:
                raise ClientStateError(f"state.json has version {value['version']}; a newer release wrote it")
            return cls(
                {HubId(bytes.fromhex(key)): Pin.from_json(pin) for key, pin in value["hubs"].items()},
                {
                    Label(bytes.fromhex(key)): LabelState.from_json(item)
                    for key, item in value["labels"].items()
                },
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ProtocolError) as error:
            raise ClientStateError(
                f"state.json is damaged ({error}); remove it, and run veen resync for each stream: "
                "everything in it but the pins is fetched from the hub again"
            ) from None
