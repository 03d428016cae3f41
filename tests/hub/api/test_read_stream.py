"""POST /v1/stream: pages, cursors, proofs, waiting; and that a page does not depend on where entries lie."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.hub.hub_thread import CBOR_SEQ, JSON, Answer, Raw, Sender, Service, eventually, serving
from veen.core.api.data_plane import ReceiptRequest, StreamRequest, StreamResponse, SubmitResponse
from veen.core.encoding import cbor
from veen.core.merkle.inclusion import MmrProof
from veen.core.objects.labels import authorize_label, control_label
from veen.core.objects.msg import Msg
from veen.core.objects.receipt import Receipt

SIZE = 23
MAX_ITEMS = 10


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    place = tmp_path_factory.mktemp("hub") / "data"
    with serving(place, max_page_items=MAX_ITEMS, max_waiters=3, max_wait_sec=2) as service:
        yield service
        service.check_healthy()


@pytest.fixture(scope="module")
def log(hub: Service) -> Sender:
    """A label with some entries, which nobody adds to."""
    sender = Sender(hub, "log", "log")
    sender.send(SIZE)
    return sender


def ask(sender: Sender, path: str = "/v1/stream", **fields: Any) -> Answer:
    request = StreamRequest(label=sender.label, **{"from_seq": 1, **fields})
    return sender.service.post(path, request)


def page(sender: Sender, **fields: Any) -> StreamResponse:
    return ask(sender, **fields).decode(StreamResponse)


def seqs(found: StreamResponse) -> list[int]:
    return [item.stream_seq for item in found.items]


# --- pages --------------------------------------------------------------------------------------------------


def test_a_page_holds_messages_in_order(log: Sender) -> None:
    found = page(log)
    assert found.label == log.label
    assert seqs(found) == list(range(1, MAX_ITEMS + 1))
    assert [item.msg for item in found.items] == [log.make(seq) for seq in range(1, MAX_ITEMS + 1)]
    assert all(item.receipt is None for item in found.items)
    assert (found.from_seq, found.to_seq, found.next_cursor) == (1, None, MAX_ITEMS + 1)
    assert found.mmr_proof is None
    assert found.server_version == log.service.status()["version"]


#: (request) to (seqs, from_seq, to_seq, next_cursor); PAGE-001 to PAGE-007 and the corners of C-72.
CORNERS: list[tuple[dict[str, int], list[int], int, int | None, int | None]] = [
    ({"from_seq": 0, "max_items": 2}, [1, 2], 1, None, 3),
    ({"from_seq": 5, "max_items": 2}, [5, 6], 5, None, 7),
    ({"from_seq": 5, "to_seq": 6}, [5, 6], 5, 6, None),
    ({"from_seq": 5, "to_seq": 5}, [5], 5, 5, None),
    ({"from_seq": 5, "to_seq": 9, "max_items": 3}, [5, 6, 7], 5, 9, 8),
    ({"from_seq": 5, "to_seq": 7, "max_items": 3}, [5, 6, 7], 5, 7, None),
    ({"from_seq": 5, "to_seq": 99, "max_items": 3}, [5, 6, 7], 5, SIZE, 8),
    ({"from_seq": 20, "to_seq": 2**64 - 1}, [20, 21, 22, 23], 20, SIZE, None),
    ({"from_seq": SIZE}, [SIZE], SIZE, None, None),
    ({"from_seq": SIZE + 1}, [], SIZE + 1, None, None),
    ({"from_seq": SIZE + 1, "to_seq": SIZE + 9}, [], SIZE + 1, SIZE, None),
    ({"from_seq": 2**64 - 1}, [], 2**64 - 1, None, None),
    ({"from_seq": 20, "max_items": 4}, [20, 21, 22, 23], 20, None, None),
    ({"from_seq": 20, "max_items": 2**64 - 1}, [20, 21, 22, 23], 20, None, None),
    ({"from_seq": 1, "max_items": MAX_ITEMS + 1}, list(range(1, 11)), 1, None, 11),
    ({"from_seq": 1, "cursor": 20}, [20, 21, 22, 23], 20, None, None),
    ({"from_seq": 99, "cursor": 22}, [22, 23], 22, None, None),
    ({"from_seq": 1, "cursor": 0, "max_items": 1}, [1], 1, None, 2),
    ({"from_seq": 1, "cursor": 4, "to_seq": 6}, [4, 5, 6], 4, 6, None),
    ({"from_seq": 1, "cursor": 4, "to_seq": 6, "max_items": 2}, [4, 5], 4, 6, 6),
    ({"from_seq": 1, "cursor": 7, "to_seq": 6}, [], 7, 6, None),
    ({"from_seq": 9, "cursor": 4, "to_seq": 6}, [4, 5, 6], 4, 6, None),
    ({"from_seq": 1, "cursor": SIZE + 1}, [], SIZE + 1, None, None),
]


@pytest.mark.parametrize(("asked", "items", "bounds"), [(item[0], item[1], item[2:]) for item in CORNERS])
def test_ranges_and_cursors(
    log: Sender, asked: dict[str, Any], items: list[int], bounds: tuple[int | None, ...]
) -> None:
    found = page(log, **asked)
    assert seqs(found) == items
    assert (found.from_seq, found.to_seq, found.next_cursor) == bounds
    as_json = log.service.post("/v1/stream", StreamRequest(label=log.label, **asked), JSON)
    assert as_json.from_json(StreamResponse) == found


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"from_seq": 6, "to_seq": 5}, "to_seq"),
        ({"from_seq": 1, "to_seq": 0}, "to_seq"),
        ({"from_seq": 0, "to_seq": 0}, "to_seq"),
        ({"max_items": 0}, "max_items"),
        ({"max_items": 0, "cursor": 1}, "max_items"),
    ],
)
def test_what_can_not_be_meant_is_refused(log: Sender, asked: dict[str, int], field: str) -> None:
    for path in ("/v1/stream", "/v1/stream?wait=2"):
        error = ask(log, path, **asked).error()
        assert (error.code, (error.detail or {})["field"]) == ("E.BAD_REQUEST", field)


def test_an_unknown_label_is_not_found(hub: Service) -> None:
    nobody = Sender(hub, "nobody", "nowhere")
    for asked in ({}, {"from_seq": 5}, {"cursor": 5}, {"with_mmr_proof": True}):
        assert ask(nobody, **asked).error().code == "E.NOT_FOUND"


@pytest.mark.parametrize("path", ["/v1/stream", "/v1/stream?wait=1"])
def test_the_hubs_own_logs_are_not_streams(hub: Service, path: str) -> None:
    for own in (authorize_label, control_label):
        request = StreamRequest(label=own(hub.identity.hub_id), from_seq=1)
        error = hub.post(path, request).error()
        assert (error.code, (error.detail or {})["field"]) == ("E.FORBIDDEN", "label")


def test_receipts_come_if_they_are_asked_for(log: Sender) -> None:
    found = page(log, with_receipts=True)
    for item in found.items:
        assert item.receipt is not None
        log.service.identity.verify_receipt(item.receipt)
        assert (item.receipt.stream_seq, item.receipt.leaf_hash) == (item.stream_seq, item.msg.leaf_hash)
    assert page(log, with_receipts=False) == page(log)


@pytest.mark.parametrize("start", [1, 2, 8, 20, SIZE])
@pytest.mark.parametrize("with_receipts", [False, True])
def test_the_proof_of_a_page_is_for_its_last_item(log: Sender, start: int, *, with_receipts: bool) -> None:
    found = page(log, from_seq=start, with_mmr_proof=True, with_receipts=with_receipts)
    last = found.items[-1]
    asked = ReceiptRequest(label=log.label, stream_seq=last.stream_seq)
    receipt = log.service.post("/v1/receipt", asked).decode(SubmitResponse).receipt
    assert found.mmr_proof is not None
    found.mmr_proof.verify(receipt.mmr_root, last.msg.leaf_hash, stream_seq=last.stream_seq)


def test_an_empty_page_has_no_proof(log: Sender) -> None:
    assert page(log, from_seq=SIZE + 1, with_mmr_proof=True).mmr_proof is None


def test_pages_are_walked_also_while_the_log_grows(hub: Service) -> None:
    sender = Sender(hub, "growing", "growing")
    sender.send(5)
    got: list[int] = []
    found = page(sender, max_items=3)
    while True:
        got += seqs(found)
        if sender.client_seq < 60:
            sender.send(4)
        if found.next_cursor is None:
            break
        found = page(sender, cursor=found.next_cursor, max_items=3)
    assert got == list(range(1, len(got) + 1))
    assert len(got) >= 60


def test_a_walk_over_a_range_ends_where_the_range_ends(log: Sender) -> None:
    got: list[int] = []
    found = page(log, from_seq=3, to_seq=17, max_items=4)
    while found.next_cursor is not None:
        got += seqs(found)
        found = page(log, from_seq=3, to_seq=17, max_items=4, cursor=found.next_cursor)
    assert got + seqs(found) == list(range(3, 18))


def test_a_page_has_a_bound_in_bytes_but_is_never_empty(tmp_path_factory: pytest.TempPathFactory) -> None:
    place = tmp_path_factory.mktemp("hub") / "data"
    with serving(place, max_page_bytes=5_000) as hub:
        sender = Sender(hub)
        for size in (100, 100, 20_000, 100, 20_000):
            hub.accept(sender.next(bytes(size)))
        assert [seqs(page(sender, cursor=at)) for at in (1, 3, 4)] == [[1, 2, 3], [3], [4, 5]]
        first = page(sender, with_mmr_proof=True)
        assert first.next_cursor == 4
        assert first.mmr_proof is not None
        assert first.mmr_proof.leaf_hash == first.items[-1].msg.leaf_hash


# --- older releases -----------------------------------------------------------------------------------------


def legacy_items(answer: Answer) -> list[dict[int, bytes]]:
    """Return the items of a sequence, each with the bytes of its values."""
    assert answer.status == 200
    assert answer.content_type == CBOR_SEQ
    found, at = [], 0
    while at < len(answer.body):
        count, at = cbor.read_map(answer.body, at)
        item = {}
        for _ in range(count):
            key, at = cbor.read_uint(answer.body, at)
            end = cbor.item_end(answer.body, at)
            item[key] = answer.body[at:end]
            at = end
        found.append(item)
    return found


def test_older_clients_get_a_sequence(log: Sender) -> None:
    hub = log.service
    found = legacy_items(hub.get(f"/stream?label={log.label.hex()}&from=5&with_proof=1"))
    assert len(found) == MAX_ITEMS
    for seq, item in enumerate(found, 5):
        receipt, msg = Receipt.decode(item[1]), Msg.decode(item[2])
        hub.identity.verify_receipt(receipt)
        assert receipt.stream_seq == seq
        MmrProof.decode(item[3]).verify(receipt.mmr_root, msg.leaf_hash, stream_seq=seq)
    plain = legacy_items(hub.get(f"/stream?label={log.label.hex()}"))
    assert [sorted(item) for item in plain] == MAX_ITEMS * [[1, 2]]
    assert legacy_items(hub.get(f"/stream?label={log.label.hex()}&from={SIZE + 1}")) == []


@pytest.mark.parametrize(
    "query", ["", "?label=", "?label=xyz", "?label={}&from=x", "?label={}&from=-1", f"?label={'A' * 64}"]
)
def test_older_clients_make_mistakes_too(log: Sender, query: str) -> None:
    answer = log.service.get("/stream" + query.format(log.label.hex()))
    assert answer.error().code == "E.BAD_REQUEST"


# --- waiting ------------------------------------------------------------------------------------------------


def begin(sender: Sender, wait: int, **fields: Any) -> Raw:
    """Ask, and do not wait for the answer."""
    raw = sender.service.connect()
    request = StreamRequest(label=sender.label, **{"from_seq": 1, **fields})
    raw.ask("POST", f"/v1/stream?wait={wait}", request.encode())
    return raw


def waiters(hub: Service) -> int:
    return hub.hub.long_polls.count


@pytest.fixture
def alone(hub: Service) -> Iterator[Service]:
    """The hub, with nobody waiting."""
    eventually(lambda: waiters(hub) == 0)
    yield hub
    eventually(lambda: waiters(hub) == 0)


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A hub where the end of a wait comes too late for a test."""
    with serving(tmp_path_factory.mktemp("patient") / "data", max_wait_sec=600) as service:
        yield service
        service.check_healthy()


def test_who_waits_gets_the_next_entry_when_it_comes(patient: Service) -> None:
    sender = Sender(patient, "awaited", "awaited")
    sender.send()
    with begin(sender, 600, from_seq=2) as raw:
        eventually(lambda: waiters(patient) == 1)
        receipt = patient.accept(sender.next())
        found = raw.answer().decode(StreamResponse)
    assert seqs(found) == [receipt.stream_seq] == [2]
    assert waiters(patient) == 0


def test_entries_of_other_labels_wake_nobody(alone: Service) -> None:
    quiet, busy = Sender(alone, "quiet", "quiet"), Sender(alone, "busy", "busy")
    quiet.send()
    with begin(quiet, 1, from_seq=2) as raw:
        eventually(lambda: waiters(alone) == 1)
        busy.send(3)
        found = raw.answer().decode(StreamResponse)
    assert seqs(found) == []
    assert found.next_cursor is None


def test_a_label_can_be_awaited_before_it_exists(patient: Service) -> None:
    sender = Sender(patient, "unborn", "unborn")
    with begin(sender, 600) as raw:
        eventually(lambda: waiters(patient) == 1)
        sender.send(2)
        assert seqs(raw.answer().decode(StreamResponse)) == [1, 2]


def test_a_label_that_never_comes_is_not_found(alone: Service) -> None:
    assert ask(Sender(alone, "never", "never"), "/v1/stream?wait=1").error().code == "E.NOT_FOUND"


def test_what_is_there_is_not_waited_for(log: Sender) -> None:
    assert seqs(ask(log, "/v1/stream?wait=2", from_seq=SIZE).decode(StreamResponse)) == [SIZE]
    assert seqs(ask(log, "/v1/stream?wait=0", from_seq=SIZE + 1).decode(StreamResponse)) == []
    # A range that has ended will have no more entries.
    ended = ask(log, "/v1/stream?wait=2", cursor=6, to_seq=5).decode(StreamResponse)
    assert seqs(ended) == []


@pytest.mark.parametrize("wait", ["x", "-1", "1.5", "", "9" * 30])
def test_a_wait_is_a_number(log: Sender, wait: str) -> None:
    assert ask(log, f"/v1/stream?wait={wait}").error().code == "E.BAD_REQUEST"


def test_a_wait_is_cut_to_what_the_hub_allows(alone: Service) -> None:
    sender = Sender(alone, "long", "long")
    sender.send()
    assert seqs(ask(sender, "/v1/stream?wait=999999", from_seq=2).decode(StreamResponse)) == []


def test_there_is_a_bound_on_who_waits(alone: Service) -> None:
    sender = Sender(alone, "crowd", "crowd")
    sender.send()
    most = alone.settings.max_waiters
    crowd = [begin(sender, 30, from_seq=2) for _ in range(most)]
    try:
        eventually(lambda: waiters(alone) == most)
        error = ask(sender, "/v1/stream?wait=1", from_seq=2).error()
        assert (error.code, error.retry_after) == ("E.UNAVAILABLE", 1)
        # What is wrong is refused and not waited for, and who does not want to wait is served.
        assert ask(sender, "/v1/stream?wait=1", from_seq=2, max_items=0).error().code == "E.BAD_REQUEST"
        own = StreamRequest(label=authorize_label(alone.identity.hub_id), from_seq=1)
        assert alone.post("/v1/stream?wait=1", own).error().code == "E.FORBIDDEN"
        assert seqs(page(sender)) == [1]
        sender.send()
        assert [seqs(raw.answer().decode(StreamResponse)) for raw in crowd] == most * [[2]]
    finally:
        for raw in crowd:
            raw.__exit__()


def test_who_leaves_waits_no_more(tmp_path: Path) -> None:
    """Otherwise clients that come and go would take all places."""
    with serving(tmp_path / "data", max_wait_sec=600, max_waiters=1) as hub:
        sender = Sender(hub)
        sender.send()
        for _ in range(5):
            with begin(sender, 600, from_seq=2):
                eventually(lambda: waiters(hub) == 1)
            eventually(lambda: waiters(hub) == 0)
        # It may have closed one side only: then it is answered, and at once.
        with begin(sender, 600, from_seq=2) as raw:
            raw.sock.shutdown(socket.SHUT_WR)
            assert seqs(raw.answer().decode(StreamResponse)) == []
            assert raw.ended()


def test_who_waits_is_answered_when_the_hub_stops(tmp_path_factory: pytest.TempPathFactory) -> None:
    with ThreadPoolExecutor(1) as pool, serving(tmp_path_factory.mktemp("hub") / "data") as hub:
        sender = Sender(hub)
        sender.send()
        with begin(sender, 30, from_seq=2) as raw:
            eventually(lambda: waiters(hub) == 1)
            last = pool.submit(raw.answer)
            hub.server.stop()
            assert seqs(last.result(30).decode(StreamResponse)) == []


# --- where entries lie --------------------------------------------------------------------------------------


def test_a_page_is_the_same_from_the_journal_and_from_chunks(tmp_path: Path) -> None:
    """Before a restart entries are in the journal and memory; a clean stop moves them into chunk files."""
    requests: list[dict[str, Any]] = [
        {},
        {"with_receipts": True},
        {"with_receipts": True, "with_mmr_proof": True},
        {"from_seq": 7, "max_items": 5, "with_mmr_proof": True},
        {"from_seq": 30},
    ]
    with serving(tmp_path / "data") as hub:
        sender = Sender(hub)
        sender.send(29)
        before = [ask(sender, **asked).body for asked in requests]
    with serving(tmp_path / "data") as hub:
        sender = Sender(hub, client_seq=29)
        assert [ask(sender, **asked).body for asked in requests] == before
        # And half in chunks, half in the journal.
        sender.send(11)
        found = page(sender, with_receipts=True, with_mmr_proof=True)
        assert seqs(found) == list(range(1, 41))
        whole = ask(sender, with_receipts=True, with_mmr_proof=True).body
    with serving(tmp_path / "data") as hub:
        assert ask(Sender(hub), with_receipts=True, with_mmr_proof=True).body == whole


def test_a_page_is_the_same_when_chunks_are_made_meanwhile(tmp_path: Path) -> None:
    """Small chunks: the background moves entries out of the journal while they are read."""
    limits = {"max_msg_bytes": 8_000, "max_body_bytes": 7_000, "max_chunk_bytes": 10_000}
    with serving(tmp_path / "data", limits=limits) as hub:
        sender = Sender(hub)
        seen: dict[int, tuple[bytes, bytes]] = {}
        for _ in range(15):
            sender.send(10)
            cursor: int | None = 1
            while cursor is not None:
                found = page(sender, cursor=cursor, with_receipts=True)
                for item in found.items:
                    assert item.receipt is not None
                    now = item.msg.encode(), item.receipt.encode()
                    assert seen.setdefault(item.stream_seq, now) == now
                cursor = found.next_cursor
        assert sorted(seen) == list(range(1, 151))
