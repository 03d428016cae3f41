"""The operator's changes to a hub that is not running: the same records, written to its data directory."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from veen.core.encoding.canonical_json import for_json
from veen.core.objects.control_record import ControlRecord, TrustRecord
from veen.core.objects.labels import control_label
from veen.core.objects.new_entry import NewEntry
from veen.core.objects.receipt import Receipt
from veen.core.types import JsonValue, RandomBytes, VerifyKey
from veen.hub import home as homes
from veen.hub.config import Settings
from veen.hub.control.control_plane import describe_revocation, revocation_of
from veen.hub.home import Home, open_home
from veen.hub.keyring import CheckpointSigner, Clock, signing
from veen.hub.policy import read_authority
from veen.storage import Filesystem, Reader, Writer, open_store


class Offline:
    """The data directory of a stopped hub."""

    def __init__(self, fs: Filesystem, *, clock: Clock, random: RandomBytes, owner: str) -> None:
        self._fs = fs
        self._clock = clock
        self._random = random
        self._owner = owner
        self._home = open_home(fs, locked=False)

    @contextmanager
    def _writer(self) -> Iterator[Writer]:
        home = self._home
        signer = CheckpointSigner(
            home.ring,
            epoch_sec=home.settings.epoch_sec,
            max_skew_sec=open_store(self._fs).registries[-1].limits.max_epoch_skew_sec,
            clock=self._clock,
        )
        writer = Writer.open(self._fs, sign_checkpoint=signer, random=self._random, owner=self._owner)
        try:
            self._home = open_home(self._fs)  # reload: a hub may have rotated its keys before we had the lock
            signer.ring = self._home.ring
            yield writer
        finally:
            writer.close()

    def trust(self, issuer: VerifyKey, *, trusted: bool, note: str | None) -> Receipt:
        """Record that an issuer is trusted or is no longer trusted."""
        with self._writer() as writer:
            return self._record(writer, TrustRecord(issuer_pk=issuer, trusted=trusted, note=note))

    def revoke(self, order: JsonValue) -> JsonValue:
        """Record that a client or a token is revoked; return the description."""
        with self._writer() as writer:
            now = max(self._clock(), writer.floor_ts)
            record = revocation_of(order, now)
            self._record(writer, record)
            return for_json({"ok": True, **describe_revocation(record, now)})

    def _record(self, writer: Writer, control_record: ControlRecord) -> Receipt:
        batch = writer.batch()
        record = NewEntry.of_control(control_label(self._home.identity.hub_id), control_record.encode())
        hub_ts = max(self._clock(), batch.floor_ts)
        receipt = batch.append(record, signing(self._home.ring.active(hub_ts), record, hub_ts))
        writer.commit(batch)
        return receipt

    def trusted(self) -> dict[str, Any]:
        """List issuers of the control log; those of the configuration are known only to a running hub."""
        reader = Reader.open(self._fs)
        try:
            authority = read_authority(reader, Settings.model_validate({}))
        finally:
            reader.close()
        keys = sorted(authority.trusted)
        return {
            "trust_all": False,
            "issuers": [{"issuer_pk": key.hex(), "from": "control log"} for key in keys],
        }

    def rotate(self, overlap_sec: int) -> dict[str, Any]:
        """Rotate to a new signing key, in use from the next start on."""
        with self._writer() as writer:  # holds the lock of the directory meanwhile
            at = max(self._clock(), writer.floor_ts)
            self._home = homes.rotate(self._fs, self._home, self._random, at=at, overlap_sec=overlap_sec)
        return describe_keys(self._home, at)


def describe_keys(home: Home, at: int) -> dict[str, Any]:
    """Return the description of the keys after a rotation."""
    return {
        "ok": True,
        "hub_pk": home.ring.active(at).public_key.hex(),
        "hub_keys": [
            {"hub_pk": key.hub_pk.hex(), "valid_from": key.valid_from, "valid_until": key.valid_until}
            for key in home.identity.hub_keys
        ],
    }
