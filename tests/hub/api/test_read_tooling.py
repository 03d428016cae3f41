"""Receipts, proofs, checkpoints, equivocation, attachments and copies, over HTTP."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import builders
from tests.hub.hub_thread import CBOR_SEQ, JSON, Sender, Service, serving
from veen.core.api.data_plane import (
    CheckpointRequest,
    CheckpointResponse,
    ProofRequest,
    ProofResponse,
    ReceiptRequest,
    SubmitResponse,
)
from veen.core.api.tooling import (
    BackupRequest,
    BackupResponse,
    CheckpointLatestRequest,
    CheckpointRangeRequest,
    CheckpointRangeResponse,
    ConsistencyRequest,
    ConsistencyResponse,
    EquivocationRequest,
    EquivocationResponse,
    ProofAtRequest,
)
from veen.core.crypto.ed25519 import SigningKey
from veen.core.crypto.hash import sha256
from veen.core.encoding.wire_object import Wire, decode_sequence
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.receipt import Receipt
from veen.core.types import NodeHash

SIZE = 21
ATTACHMENT_BYTES = 1000
LIMITS = {"max_attachment_bytes": ATTACHMENT_BYTES}


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    base = tmp_path_factory.mktemp("hub")
    with serving(base / "data", limits=LIMITS, backup_dir=base / "copies") as service:
        yield service
        service.check_healthy()


@pytest.fixture(scope="module")
def log(hub: Service) -> Sender:
    """A label with some entries, which nobody adds to."""
    sender = Sender(hub, "log", "log")
    sender.send(SIZE)
    return sender


@pytest.fixture(scope="module")
def receipts(log: Sender) -> list[Receipt]:
    """The receipts of its entries, behind one that stands for none."""
    got = [log.service.post("/v1/receipt", ReceiptRequest(label=log.label, stream_seq=1))]
    got += [
        log.service.post("/v1/receipt", ReceiptRequest(label=log.label, stream_seq=seq))
        for seq in range(1, SIZE + 1)
    ]
    return [answer.decode(SubmitResponse).receipt for answer in got]


# --- receipts and proofs ------------------------------------------------------------------------------------


def test_receipts_are_kept(log: Sender, receipts: list[Receipt]) -> None:
    for seq, receipt in enumerate(receipts[1:], 1):
        log.service.identity.verify_receipt(receipt)
        assert (receipt.stream_seq, receipt.leaf_hash) == (seq, log.make(seq).leaf_hash)


def test_an_entry_is_proved_under_its_own_receipt(log: Sender, receipts: list[Receipt]) -> None:
    for seq in range(1, SIZE + 1):
        asked = ProofRequest(label=log.label, stream_seq=seq)
        proof = log.service.post("/v1/proof", asked).decode(ProofResponse).mmr_proof
        proof.verify(receipts[seq].mmr_root, log.make(seq).leaf_hash, stream_seq=seq)


def test_an_entry_is_proved_under_any_later_receipt(log: Sender, receipts: list[Receipt]) -> None:
    for seq, size in ((1, 1), (1, SIZE), (8, 9), (8, SIZE), (SIZE, SIZE), (3, 16)):
        asked = ProofAtRequest(label=log.label, stream_seq=seq, upto_seq=size)
        proof = log.service.post("/tooling/proof_at", asked).decode(ProofResponse).mmr_proof
        proof.verify(receipts[size].mmr_root, log.make(seq).leaf_hash, stream_seq=seq, mmr_size=size)


def test_a_log_is_shown_to_have_only_grown(log: Sender, receipts: list[Receipt]) -> None:
    for old, new in ((1, 1), (1, SIZE), (7, 8), (8, SIZE), (SIZE, SIZE)):
        asked = ConsistencyRequest(label=log.label, old_size=old, new_size=new)
        proof = log.service.post("/tooling/consistency", asked).decode(ConsistencyResponse).proof
        proof.verify(
            old_root=receipts[old].mmr_root, old_size=old, new_root=receipts[new].mmr_root, new_size=new
        )


def requests_for(sender: Sender, seq: int) -> list[tuple[str, Wire]]:
    """Every request about one entry."""
    label = sender.label
    return [
        ("/v1/receipt", ReceiptRequest(label=label, stream_seq=seq)),
        ("/v1/proof", ProofRequest(label=label, stream_seq=seq)),
        ("/v1/checkpoint", CheckpointRequest(label=label, upto_seq=seq)),
        ("/tooling/proof_at", ProofAtRequest(label=label, stream_seq=1, upto_seq=max(seq, 1))),
        ("/tooling/consistency", ConsistencyRequest(label=label, old_size=1, new_size=max(seq, 1))),
        ("/tooling/checkpoint_latest", CheckpointLatestRequest(label=label)),
    ]


def test_there_is_no_entry_beyond_the_head(log: Sender) -> None:
    for seq in (SIZE + 1, 2**64 - 1):
        for path, asked in requests_for(log, seq)[:5]:
            assert log.service.post(path, asked).error().code == "E.NOT_FOUND", path


def test_there_is_no_entry_zero(log: Sender) -> None:
    for path, asked in requests_for(log, 0)[:3]:
        assert log.service.post(path, asked).error().code == "E.NOT_FOUND", path
    zero = ProofAtRequest(label=log.label, stream_seq=0, upto_seq=3)
    assert log.service.post("/tooling/proof_at", zero).error().code == "E.NOT_FOUND"


def test_nothing_is_known_of_an_unknown_label(hub: Service) -> None:
    for path, asked in requests_for(Sender(hub, "nobody", "nowhere"), 1):
        assert hub.post(path, asked).error().code == "E.NOT_FOUND", path


@pytest.mark.parametrize(("old", "new"), [(0, 1), (0, 0), (5, 4)])
def test_a_log_does_not_shrink(log: Sender, old: int, new: int) -> None:
    asked = ConsistencyRequest(label=log.label, old_size=old, new_size=new)
    assert log.service.post("/tooling/consistency", asked).error().code == "E.BAD_REQUEST"


def test_an_entry_is_not_proved_before_it_was_there(log: Sender) -> None:
    asked = ProofAtRequest(label=log.label, stream_seq=5, upto_seq=4)
    assert log.service.post("/tooling/proof_at", asked).error().code == "E.BAD_REQUEST"


# --- checkpoints --------------------------------------------------------------------------------------------


def verify(hub: Service, checkpoint: Checkpoint) -> None:
    hub.identity.verify_checkpoint(checkpoint, epoch_sec=0, max_skew_sec=60)


def test_a_checkpoint_is_made_once(log: Sender, receipts: list[Receipt]) -> None:
    asked = CheckpointRequest(label=log.label, upto_seq=13)
    first = log.service.post("/v1/checkpoint", asked)
    made = first.decode(CheckpointResponse).checkpoint
    verify(log.service, made)
    made.verify_labels(log.service.identity.routing_key, builders.stream("log"))
    assert (made.upto_seq, made.mmr_root, made.epoch) == (13, receipts[13].mmr_root, 0)
    assert log.service.post("/v1/checkpoint", asked).body == first.body
    again = log.service.post("/v1/checkpoint", asked, JSON).from_json(CheckpointResponse)
    assert again.checkpoint == made


def test_the_newest_checkpoint_is_that_of_most_entries(hub: Service) -> None:
    sender = Sender(hub, "newest", "newest")
    sender.send(9)
    latest = CheckpointLatestRequest(label=sender.label)
    assert hub.post("/tooling/checkpoint_latest", latest).error().code == "E.NOT_FOUND"
    for upto in (4, 9, 6):
        hub.post("/v1/checkpoint", CheckpointRequest(label=sender.label, upto_seq=upto))
    found = hub.post("/tooling/checkpoint_latest", latest).decode(CheckpointResponse).checkpoint
    assert found.upto_seq == 9
    legacy = hub.get(f"/checkpoint_latest?label={sender.label.hex()}")
    assert legacy.decode(Checkpoint) == found
    assert hub.get("/checkpoint_latest?label=12").error().code == "E.BAD_REQUEST"
    assert hub.get(f"/checkpoint_latest?label={'00' * 32}").error().code == "E.NOT_FOUND"


def test_checkpoints_of_a_stream_come_in_pages(hub: Service) -> None:
    sender = Sender(hub, "many", "many")
    sender.send(300)
    for upto in range(1, 301):
        assert hub.post("/v1/checkpoint", CheckpointRequest(label=sender.label, upto_seq=upto)).status == 200
    found: list[int] = []
    epoch: int | None = 0
    start = None
    pages = 0
    while epoch is not None:
        asked = CheckpointRangeRequest(
            stream_id=builders.stream("many"), epoch_min=epoch, epoch_max=3_000, from_seq=start
        )
        page = hub.post("/tooling/checkpoint_range", asked).decode(CheckpointRangeResponse)
        for item in page.checkpoints:
            verify(hub, item)
            found.append(item.upto_seq)
        epoch, start = page.next_epoch, page.next_seq
        pages += 1
    assert found == list(range(1, 301))
    assert pages == 4, "two for the many checkpoints, and the epochs in thousands"
    query = f"stream_id={builders.stream('many').hex()}&epoch_min=0&epoch_max=0"
    legacy = hub.get(f"/checkpoint_range?{query}")
    assert legacy.content_type == CBOR_SEQ
    assert [item.upto_seq for item in decode_sequence(legacy.body, Checkpoint)] == found[:256]


def test_a_stream_without_checkpoints_has_an_empty_range(hub: Service) -> None:
    asked = CheckpointRangeRequest(stream_id=builders.stream("unheard of"), epoch_min=0, epoch_max=9)
    page = hub.post("/tooling/checkpoint_range", asked).decode(CheckpointRangeResponse)
    assert (page.checkpoints, page.next_epoch, page.next_seq) == ((), None, None)


def test_epochs_do_not_go_back(hub: Service) -> None:
    asked = CheckpointRangeRequest(stream_id=builders.stream(), epoch_min=2, epoch_max=1)
    assert hub.post("/tooling/checkpoint_range", asked).error().code == "E.BAD_REQUEST"
    last = CheckpointRangeRequest(stream_id=builders.stream(), epoch_min=2**64 - 1, epoch_max=2**64 - 1)
    page = hub.post("/tooling/checkpoint_range", last).decode(CheckpointRangeResponse)
    assert page.next_epoch is None


# --- equivocation -------------------------------------------------------------------------------------------


def signed_by_the_hub(hub: Service, receipt: Receipt, **changes: Any) -> Receipt:
    """Return what a dishonest hub would sign: its key is in its data directory."""
    key = SigningKey.from_seed(hub.secrets.seeds[0])
    values = {
        name: getattr(receipt, name) for name in ("label", "stream_seq", "leaf_hash", "mmr_root", "hub_ts")
    }
    return Receipt.sign(key, **{**values, **changes})


def report(hub: Service, first: Receipt, second: Receipt, path: str = "/tooling/report_equivocation") -> bool:
    asked = EquivocationRequest(first=first, second=second)
    return hub.post(path, asked).decode(EquivocationResponse).ok


def test_two_receipts_that_contradict_each_other_are_proof(hub: Service, receipts: list[Receipt]) -> None:
    one = receipts[5]
    other_leaf = signed_by_the_hub(hub, one, leaf_hash=builders.leaf(99))
    other_root = signed_by_the_hub(hub, one, mmr_root=NodeHash(builders.digest("root")))
    for path in ("/tooling/report_equivocation", "/report_equivocation"):
        assert report(hub, one, other_leaf, path)
        assert report(hub, other_root, one, path)
    assert not report(hub, one, one)
    assert not report(hub, one, receipts[6])
    assert not report(hub, one, signed_by_the_hub(hub, one, hub_ts=one.hub_ts + 1))
    assert not report(hub, one, signed_by_the_hub(hub, one, label=builders.some_label()))


def test_receipts_that_the_hub_has_not_signed_prove_nothing(hub: Service, receipts: list[Receipt]) -> None:
    strange = builders.receipt(label=receipts[5].label, stream_seq=5)
    for first, second, field in ((strange, receipts[5], "first"), (receipts[5], strange, "second")):
        asked = EquivocationRequest(first=first, second=second)
        error = hub.post("/tooling/report_equivocation", asked).error()
        assert (error.code, (error.detail or {})["field"]) == ("E.BAD_REQUEST", field)


# --- attachments --------------------------------------------------------------------------------------------


def place_of(data: bytes) -> str:
    return f"/tooling/attachment/{sha256(data).hex()}"


def test_an_attachment_is_kept_under_its_hash(hub: Service) -> None:
    data = b"an attachment"
    assert hub.get(place_of(data)).error().code == "E.NOT_FOUND"
    assert hub.call("PUT", place_of(data), data).status == 201
    assert hub.call("PUT", place_of(data), data).status == 200
    found = hub.get(place_of(data))
    assert (found.status, found.body, found.content_type) == (200, data, "application/octet-stream")
    assert "immutable" in found.headers["cache-control"]


def test_an_attachment_may_be_empty(hub: Service) -> None:
    assert hub.call("PUT", place_of(b""), b"").status == 201
    assert hub.get(place_of(b"")).body == b""


@pytest.mark.parametrize("name", ["xyz", "00", "A" * 64, "0" * 63, "0" * 65, "..", "%2e%2e"])
def test_a_name_is_a_hash(hub: Service, name: str) -> None:
    for method in ("PUT", "GET"):
        answer = hub.call(method, f"/tooling/attachment/{name}", b"data" if method == "PUT" else None)
        assert answer.error().code == "E.BAD_REQUEST"


def test_a_name_is_the_hash_of_the_bytes(hub: Service) -> None:
    assert hub.call("PUT", place_of(b"other"), b"data").error().code == "E.BAD_REQUEST"
    assert hub.get(place_of(b"other")).error().code == "E.NOT_FOUND"


def test_attachments_have_a_bound(hub: Service) -> None:
    most = ATTACHMENT_BYTES + 16  # and the tag of its encryption
    assert hub.call("PUT", place_of(bytes(most)), bytes(most)).status == 201
    refused = hub.call("PUT", place_of(bytes(most + 1)), bytes(most + 1))
    assert refused.refusal() == ("E.LIMIT", "FIELD_SIZE")


def test_a_damaged_attachment_is_lost_until_it_is_sent_again(hub: Service) -> None:
    data = b"will be damaged"
    hub.call("PUT", place_of(data), data)
    (stored,) = (hub.data_dir / "attachments").rglob(sha256(data).hex())
    stored.chmod(0o600)
    stored.write_bytes(b"x" + data[1:])
    assert hub.get(place_of(data)).error().code == "E.NOT_FOUND"
    assert hub.call("PUT", place_of(data), data).status == 201
    assert hub.get(place_of(data)).body == data


def test_the_store_has_a_bound_and_what_is_sent_again_counts_once(tmp_path: Path) -> None:
    with serving(tmp_path / "data", max_attachment_store_bytes=100) as hub:
        data = bytes(60)
        assert hub.call("PUT", place_of(data), data).status == 201
        (stored,) = (hub.data_dir / "attachments").rglob(sha256(data).hex())
        for _ in range(3):
            stored.chmod(0o600)
            stored.write_bytes(b"damaged".ljust(60))
            assert hub.call("PUT", place_of(data), data).status == 201
        error = hub.call("PUT", place_of(bytes(41)), bytes(41)).error()
        assert (error.code, error.retry_after) == ("E.UNAVAILABLE", 5)
        assert hub.call("PUT", place_of(bytes(40)), bytes(40)).status == 201


def test_a_hub_may_keep_no_attachments(tmp_path: Path) -> None:
    with serving(tmp_path / "data", attachments=False) as hub:
        for method in ("PUT", "GET"):
            assert hub.call(method, place_of(b"data")).error().code == "E.NOT_FOUND"


# --- copies -------------------------------------------------------------------------------------------------


def test_a_hub_makes_no_copies_unless_it_is_told_where(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as hub:
        assert hub.post("/tooling/backup", BackupRequest(name="copy")).error().code == "E.FORBIDDEN"


def test_a_copy_is_made_beside_the_hub_at_work(hub: Service, log: Sender) -> None:
    hub.call("PUT", place_of(b"copied"), b"copied")
    made = hub.post("/tooling/backup", BackupRequest(name="one-2.copy")).decode(BackupResponse)
    heads = {item.label: item for item in made.labels}
    assert heads[log.label].last_stream_seq == SIZE
    copies = hub.settings.backup_dir
    assert copies is not None
    checked = subprocess.run(
        [sys.executable, "-m", "veen.cli.main", "fsck", str(copies / "one-2.copy")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert not (copies / "one-2.copy" / "hub-secrets.cbor").exists()
    again = hub.post("/tooling/backup", BackupRequest(name="one-2.copy"))
    assert again.error().code == "E.CONFLICT"


@pytest.mark.parametrize("name", ["", ".", "..", "../out", "a/b", ".hidden", "a" * 65, "a b", "ä", "a\0"])
def test_a_copy_stays_where_copies_are(hub: Service, name: str) -> None:
    assert hub.post("/tooling/backup", BackupRequest(name=name)).error().code == "E.BAD_REQUEST"
