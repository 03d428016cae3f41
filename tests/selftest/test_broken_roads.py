"""The same over a road that lies: what a bad hub would say is noticed, by the step that is about it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub.hub_process import HubProcess
from tests.selftest.runs import Answer, assert_fails, only, report_of, road, selftest
from veen.core.api.data_plane import StreamRequest, StreamResponse, SubmitResponse
from veen.core.objects.error_envelope import ErrorEnvelope

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("hub") / "hub") as running:
        yield running


def _flipped(data: bytes, at: int = -1) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


class _Liar:
    """Ways to change answers; each is one that a hub must not be able to get away with."""

    def __init__(self) -> None:
        self._receipt = b""

    def false_receipt_signature(self, answer: Answer) -> None:
        if answer.path == "/v1/submit" and answer.status == 200:
            answer.body = _flipped(answer.body, answer.body.rindex(b"\x58\x40") + 10)

    def false_proof(self, answer: Answer) -> None:
        if answer.path == "/v1/proof" and answer.status == 200:
            answer.body = _flipped(answer.body, 50)

    def false_checkpoint(self, answer: Answer) -> None:
        if answer.path == "/v1/checkpoint" and answer.status == 200:
            answer.body = _flipped(answer.body, 100)

    def answers_cut(self, answer: Answer) -> None:
        if "cbor-seq" in answer.headers.get("content-type", ""):
            answer.body = answer.body[:-1]

    def false_page(self, answer: Answer) -> None:
        if answer.path.startswith("/v1/stream") and answer.status == 200 and len(answer.body) > 300:
            answer.body = _flipped(answer.body, len(answer.body) // 2)

    def entry_withheld(self, answer: Answer) -> None:
        if answer.path.startswith("/v1/stream") and answer.status == 200:
            page = StreamResponse.decode(answer.body)
            asked = StreamRequest.decode(answer.asked)
            kept = tuple(item for item in page.items if item.stream_seq != 40)
            answer.body = StreamResponse(label=page.label, from_seq=asked.from_seq, items=kept).encode()

    def false_attachment(self, answer: Answer) -> None:
        if answer.method == "GET" and "/attachment/" in answer.path and answer.body:
            answer.body = _flipped(answer.body)

    def attachment_taken_unseen(self, answer: Answer) -> None:
        if answer.method == "PUT":
            answer.status, answer.body = 200, b""

    def fresh_receipt_for_everything(self, answer: Answer) -> None:
        """Answer what is refused as if it had been taken."""
        if answer.path != "/v1/submit":
            return
        if answer.status == 200:
            self._receipt = answer.body
        elif self._receipt:
            answer.status, answer.body = 200, self._receipt

    def other_code(self, answer: Answer) -> None:
        if answer.path == "/v1/submit" and answer.status != 200:
            answer.status = 400
            answer.body = ErrorEnvelope(code="E.FORMAT", message="no").encode()

    def broken_in_place_of_an_error(self, answer: Answer) -> None:
        if answer.status == 400:
            answer.status, answer.body = 500, b"Internal Server Error"

    def wrong_place(self, answer: Answer) -> None:
        if answer.status == 409:
            found = ErrorEnvelope.decode(answer.body)
            detail = {**(found.detail or {}), "stream_seq": 77}
            answer.body = ErrorEnvelope(code=found.code, message=found.message, detail=detail).encode()

    def no_root_in_health(self, answer: Answer) -> None:
        if answer.path == "/healthz":
            answer.body = answer.body.replace(b"last_mmr_root", b"mmr_root")

    def stale_status(self, answer: Answer) -> None:
        if answer.path.startswith("/tooling/status?"):
            answer.body = answer.body.replace(b'"last_stream_seq":6', b'"last_stream_seq":5')

    def renamed_metric(self, answer: Answer) -> None:
        if answer.path == "/metrics":
            answer.body = answer.body.replace(b"veen_commit_latency_ms", b"commit_ms")

    def counter_that_stands_still(self, answer: Answer) -> None:
        if answer.path == "/metrics":
            lines = [
                b"veen_submit_ok_total 5.0" if line.startswith(b"veen_submit_ok_total ") else line
                for line in answer.body.splitlines()
            ]
            answer.body = b"\n".join(lines)

    def other_encoding(self, answer: Answer) -> None:
        """Add a version text in a longer form than needed."""
        if answer.path == "/v1/receipt" and answer.status == 200:
            found = SubmitResponse.decode(answer.body)
            answer.body = b"\xb8\x02" + found.encode()[1:]


LIES: dict[str, tuple[str, ...]] = {
    "false_receipt_signature": ("send-receive", "bulk", "damaged-receipts"),
    "false_page": ("send-receive", "verify-state"),
    "false_proof": ("receipts-and-proofs", "damaged-proofs"),
    "false_checkpoint": ("damaged-checkpoints",),
    "other_encoding": ("reencoding",),
    "false_attachment": ("attachments",),
    "attachment_taken_unseen": ("attachment-mutation",),
    "fresh_receipt_for_everything": ("duplicates", "sequence-errors", "truncated-messages"),
    "other_code": ("forgeries", "bounds"),
    "broken_in_place_of_an_error": (
        "profile-mismatch",
        "malformed-cbor",
        "mutated-messages",
        "mutated-requests",
        "rude-connections",
    ),
    "wrong_place": ("duplicates", "duplicate-rejection"),
    "entry_withheld": ("resync",),
    "answers_cut": ("mutated-sequences", "bulk"),
    "no_root_in_health": ("health",),
    "stale_status": ("health-follows",),
    "renamed_metric": ("metrics",),
    "counter_that_stands_still": ("metrics",),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_fails_the_steps(tmp_path: Path, hub: HubProcess, lie: str) -> None:
    with road(hub.url, getattr(_Liar(), lie)) as url:
        done = selftest(tmp_path, "all", *only(*LIES[lie]), "--hub", url, "--json")
    assert_fails(done, *LIES[lie])


def test_an_honest_road_fails_nothing(tmp_path: Path, hub: HubProcess) -> None:
    """Whatever fails above fails by the lie, not by the road."""
    with road(hub.url, lambda _: None) as url:
        done = selftest(tmp_path, "core", "--hub", url, "--json")
    found = report_of(done)
    assert done.returncode == 0, found
    ran = {item["name"] for item in found["steps"] if not item["skipped"]}
    assert {"send-receive", "duplicates", "resync", "metrics", "attachments"} <= ran
    skipped = [item for item in found["steps"] if item["skipped"]]
    assert {item["name"] for item in skipped} >= {"killed-hub", "rotation", "anchor-cadence", "capability"}
    assert all(item["detail"] for item in skipped)
