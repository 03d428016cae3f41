"""What a hub that anchors has made, and what it says about it."""

from pathlib import Path
from typing import Any, Final

from tests import builders
from tests.hub.hub_process import HubProcess
from tests.hub.hub_thread import Service
from veen.cli.hub_connection import HubClient
from veen.core.api.tooling import AnchorRequest, AnchorResponse
from veen.core.data_dir import paths
from veen.core.encoding.wire_object import decode_sequence
from veen.core.objects.anchor import AnchorRecord, LedgerEntry
from veen.core.types import Label
from veen.storage.anchors import FileLedger
from veen.storage.fs import RealFilesystem

NONCE: Final = builders.digest("nonce")[:20]


def records(place: Path) -> dict[tuple[Label, int], AnchorRecord]:
    """Return the anchors of a data directory, each checked against its name."""
    found = {}
    for path in sorted((place / "anchors").glob("anchor-*.cbor")):
        record = AnchorRecord.decode(path.read_bytes())
        assert paths.parse_anchor(path.name) == (record.label, record.upto_seq)
        found[record.label, record.upto_seq] = record
    return found


def sizes(place: Path, label: Label) -> list[int]:
    return [upto for of, upto in records(place) if of == label]


def ledger_of(place: Path) -> FileLedger:
    return FileLedger(RealFilesystem(place / "anchors"), paths.LEDGER)


def check_bound(place: Path) -> None:
    """Check that every anchor is in the ledger."""
    for record in records(place).values():
        verdict = ledger_of(place).verify(record.mmr_root, record.anchor_ref)
        assert verdict, verdict


def entries(place: Path) -> list[LedgerEntry]:
    return decode_sequence((place / "anchors" / paths.LEDGER).read_bytes(), LedgerEntry)


def local(service: Service, asked: AnchorRequest) -> AnchorResponse:
    """Ask through the operator's socket."""
    client = HubClient.operator(service.data_dir)
    assert client is not None
    return client.post("/tooling/anchor", asked, AnchorResponse)


def metric(service: Service, name: str) -> float:
    for line in service.get("/metrics").body.decode().splitlines():
        if line.startswith(name + " "):
            return float(line.split()[1])
    raise AssertionError(f"there is no metric {name}")


def alarms(service: Service) -> list[dict[str, Any]]:
    return [line for line in service.log if line["event"] == "anchor-failed"]


def status(hub: HubProcess) -> dict[str, Any]:
    found: dict[str, Any] = hub.get("/tooling/status")["anchoring"]
    return found
