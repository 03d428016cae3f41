"""POST /v1/submit over real connections: one message, many, in CBOR and JSON, taken and refused."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests import builders, rawcbor
from tests.hub.hub_thread import CBOR, CBOR_SEQ, JSON, Answer, Sender, Service, answers, serving
from veen.admission.stages import Authentic, Sized
from veen.admission.stateless import MessageRules
from veen.core.api.data_plane import ReceiptRequest, SubmitRequest, SubmitResponse
from veen.core.api.tooling import PowChallenge
from veen.core.crypto.hash import sha256
from veen.core.encoding import cbor
from veen.core.errors import HTTP_STATUS, Code, Detail
from veen.core.limits import SUBMIT_ENVELOPE_BYTES
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.core.objects.labels import authorize_label, control_label
from veen.core.objects.msg import Msg
from veen.core.objects.proof_of_work import solve
from veen.core.objects.receipt import Receipt
from veen.hub.submit import verifier_process
from veen.hub.submit.submission import MessageForm

#: Small, so that a message at the limit is small.
LIMITS = {"max_msg_bytes": 4096, "max_body_bytes": 3000}


@pytest.fixture(scope="module", params=[0, 1], ids=["alone", "worker"])
def hub(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A hub that checks messages by itself, and one that has a process for it."""
    place = tmp_path_factory.mktemp("hub") / "data"
    with serving(place, limits=LIMITS, verify_workers=request.param, max_queue=500) as service:
        yield service
        service.check_healthy()


@pytest.fixture
def sender(hub: Service, request: pytest.FixtureRequest) -> Sender:
    """A client and a stream of the test's own."""
    return Sender(hub, request.node.name, request.node.name)


def seq_of(item: SubmitResponse | ErrorEnvelope) -> int | str:
    """Return the place of a message that was taken, or why it was not."""
    if isinstance(item, SubmitResponse):
        return item.receipt.stream_seq
    return str((item.detail or {})["detail_enum"])


# --- taken --------------------------------------------------------------------------------------------------


def test_a_message_is_answered_with_its_receipt(hub: Service, sender: Sender) -> None:
    message = sender.next()
    answer = hub.submit(message)
    assert answer.content_type == CBOR
    got = answer.decode(SubmitResponse)
    hub.identity.verify_receipt(got.receipt)
    assert got.receipt.leaf_hash == message.leaf_hash
    assert bytes(got.receipt.mmr_root) == bytes(message.leaf_hash)
    assert got.receipt.stream_seq == 1
    assert got.server_version == hub.status()["version"]


def test_places_times_and_roots_follow_each_other(hub: Service, sender: Sender) -> None:
    peaks = builders.peaks(0)
    last = 0
    for nth in range(1, 20):
        message = sender.next(prev_ack=nth - 1)
        receipt = hub.accept(message)
        peaks = peaks.append(message.leaf_hash)
        assert (receipt.stream_seq, receipt.mmr_root) == (nth, peaks.root)
        assert receipt.hub_ts >= last
        last = receipt.hub_ts


def test_json_says_the_same(hub: Service, sender: Sender) -> None:
    message = sender.next()
    answer = hub.post("/v1/submit", SubmitRequest(msg=message), JSON)
    receipt = answer.from_json(SubmitResponse).receipt
    hub.identity.verify_receipt(receipt)
    stored = hub.post("/v1/receipt", ReceiptRequest(label=sender.label, stream_seq=1))
    assert stored.decode(SubmitResponse).receipt == receipt


@pytest.mark.parametrize(("sent", "wanted"), [(CBOR, JSON), (JSON, CBOR)])
def test_the_form_of_the_answer_can_be_chosen(hub: Service, sender: Sender, sent: str, wanted: str) -> None:
    request = SubmitRequest(msg=sender.next())
    taken = hub.call("POST", "/v1/submit", request, content_type=sent, accept=wanted)
    assert (taken.status, taken.content_type) == (200, wanted)
    refused = hub.call("POST", "/v1/submit", request, content_type=sent, accept=wanted)
    assert (refused.refusal(), refused.content_type) == (("E.SEQ", "DUPLICATE"), wanted)


def test_the_path_of_older_releases_takes_a_message_and_returns_a_receipt(
    hub: Service, sender: Sender
) -> None:
    message = sender.next()
    receipt = hub.post("/submit", message).decode(Receipt)
    hub.identity.verify_receipt(receipt)
    assert receipt.leaf_hash == message.leaf_hash
    assert hub.post("/submit", message).refusal() == ("E.SEQ", "DUPLICATE")
    assert hub.post("/submit", SubmitRequest(msg=message)).refusal() == ("E.FORMAT", "CBOR_INVALID")


def test_a_message_at_the_limit_is_taken_and_one_beyond_is_not(hub: Service, sender: Sender) -> None:
    size = len(sender.make(1, pad_block=0).encode())
    # The head of the ciphertext grows by two bytes on the way to the limit.
    room = LIMITS["max_msg_bytes"] - size
    ciphertext = sender.make(1, pad_block=0).ciphertext
    over = {}
    for added in range(room - 4, room + 4):
        body_len = int.from_bytes(ciphertext[36:40], "big")
        context = sender.make(1, pad_block=0).context
        header, body = ciphertext[:40], ciphertext[40:]
        grown = header[:36] + (body_len + added).to_bytes(4, "big") + body + bytes(added)
        over[added] = builders.msg(context, signer=sender.name, ciphertext=grown)
    sizes = {added: len(message.encode()) for added, message in over.items()}
    largest = next(added for added, size in sizes.items() if size == LIMITS["max_msg_bytes"])
    assert hub.submit(over[largest + 1]).refusal() == ("E.SIZE", "SIZE_PREFILTER")
    assert hub.post("/submit", over[largest + 1]).refusal() == ("E.SIZE", "SIZE_PREFILTER")
    assert seq_of(hub.bulk([over[largest + 1]])[0]) == "SIZE_PREFILTER"
    assert hub.submit(over[largest]).refusal() == ("E.SIZE", "FIELD_SIZE")  # its body, by its own limit


# --- refused ------------------------------------------------------------------------------------------------


def _forged(message: Msg) -> Msg:
    return replace(message, sig=builders.unsigned())


def _unknown_token(sender: Sender) -> Msg:
    return replace(sender, auth_ref=builders.cap_token().auth_ref).make(1)


#: For rows that a message breaks by itself: how to make one.
DEFECTS: dict[Detail, Callable[[Sender], Msg]] = {
    Detail.FIELD_SIZE: lambda sender: replace(sender.make(1), ciphertext=bytes(39)),
    Detail.PROFILE: lambda sender: replace(
        sender.make(1), profile_id=builders.profile(pad_block=7).profile_id
    ),
    Detail.CT_PADDING: lambda sender: replace(sender.make(1), ciphertext=sender.make(1).ciphertext + b"\0"),
    Detail.CT_HASH: lambda sender: replace(sender.make(1), ct_hash=builders.digest("other")),
    Detail.SIG_INVALID: lambda sender: _forged(sender.make(1)),
    Detail.CAP_MISSING: _unknown_token,
}
CODES = {
    Detail.FIELD_SIZE: Code.SIZE,
    Detail.PROFILE: Code.FORMAT,
    Detail.CT_PADDING: Code.FORMAT,
    Detail.CT_HASH: Code.FORMAT,
    Detail.SIG_INVALID: Code.SIG,
    Detail.CAP_MISSING: Code.CAP,
    Detail.PREV_ACK: Code.SEQ,
    Detail.CLIENT_SEQ: Code.SEQ,
    Detail.DUPLICATE: Code.SEQ,
}


def check_refused(answer: Answer, detail: Detail, stage: str) -> ErrorEnvelope:
    error = answer.error()
    assert (error.code, (error.detail or {})["detail_enum"]) == (CODES[detail], detail)
    assert (error.detail or {})["stage"] == stage
    assert answer.status == HTTP_STATUS[CODES[detail]]
    return error


@pytest.mark.parametrize("detail", DEFECTS)
def test_a_refusal_says_code_stage_and_detail_in_every_form(
    hub: Service, sender: Sender, detail: Detail
) -> None:
    bad = DEFECTS[detail](sender)
    stage = "auth" if detail in {Detail.SIG_INVALID, Detail.CAP_MISSING} else "structural"
    first = check_refused(hub.submit(bad), detail, stage)
    again = check_refused(hub.submit(bad), detail, stage)
    bare = check_refused(hub.post("/submit", bad), detail, stage)
    as_json = check_refused(hub.post("/v1/submit", SubmitRequest(msg=bad), JSON), detail, stage)
    many = hub.bulk([bad, bad])
    assert first.code == again.code == bare.code == as_json.code
    assert [seq_of(item) for item in many] == [detail, detail]
    assert (first.detail or {}).get("stage") == (many[0].detail or {}).get("stage")  # type: ignore[union-attr] # an error
    # Nothing of this has used a number.
    assert hub.accept(sender.next()).stream_seq == 1


@pytest.mark.parametrize("kind", ["authorize", "control"])
def test_the_hubs_own_labels_can_not_be_written(hub: Service, sender: Sender, kind: str) -> None:
    label = (authorize_label if kind == "authorize" else control_label)(hub.identity.hub_id)
    context = builders.context(label=label, client=sender.name)
    refused = hub.submit(builders.msg(context, signer=sender.name))
    assert refused.refusal() == ("E.AUTH", "AUTH_REF")
    assert refused.status == 403


def test_numbers_must_follow(hub: Service, sender: Sender) -> None:
    check_refused(hub.submit(sender.make(0)), Detail.CLIENT_SEQ, "commit")
    check_refused(hub.submit(sender.make(2)), Detail.CLIENT_SEQ, "commit")
    check_refused(hub.submit(sender.make(1, prev_ack=1)), Detail.PREV_ACK, "commit")
    hub.accept(sender.next())
    hub.accept(sender.next(prev_ack=1))
    check_refused(hub.submit(sender.make(3)), Detail.PREV_ACK, "commit")
    check_refused(hub.submit(sender.make(4, prev_ack=1)), Detail.CLIENT_SEQ, "commit")
    assert hub.accept(sender.next(prev_ack=2)).stream_seq == 3


def test_a_retry_learns_where_its_message_is(hub: Service, sender: Sender) -> None:
    other = Sender(hub, sender.name + " other", sender.stream)
    hub.accept(other.next())
    message = sender.next()
    receipt = hub.accept(message)
    hub.accept(other.next())
    error = check_refused(hub.submit(message), Detail.DUPLICATE, "commit")
    place = (error.detail or {})["stream_seq"]
    assert place == receipt.stream_seq == 2
    assert isinstance(place, int)
    again = hub.post("/v1/receipt", ReceiptRequest(label=sender.label, stream_seq=place))
    assert again.decode(SubmitResponse).receipt == receipt
    # Another message under the same number is nowhere.
    error = check_refused(hub.submit(sender.make(1, b"other")), Detail.DUPLICATE, "commit")
    assert "stream_seq" not in (error.detail or {})


# --- many ---------------------------------------------------------------------------------------------------


def test_many_messages_are_answered_in_their_order(hub: Service, sender: Sender) -> None:
    other = Sender(hub, sender.name + " other", sender.name + " other")
    messages = [(sender if nth % 3 else other).next() for nth in range(200)]
    got = hub.bulk(messages)
    for message, item in zip(messages, got, strict=True):
        assert isinstance(item, SubmitResponse)
        assert item.receipt.leaf_hash == message.leaf_hash
        hub.identity.verify_receipt(item.receipt)
    assert [seq_of(item) for nth, item in enumerate(got) if nth % 3 == 0] == list(range(1, 68))


def test_each_message_stands_for_itself(hub: Service, sender: Sender) -> None:
    one, two, three = (sender.next() for _ in range(3))
    got = hub.bulk([one, _forged(two), one, three, two, two, three])
    assert [seq_of(item) for item in got] == [1, "SIG_INVALID", "DUPLICATE", "CLIENT_SEQ", 2, "DUPLICATE", 3]
    assert isinstance(got[5], ErrorEnvelope)
    assert (got[5].detail or {})["stream_seq"] == 2


def test_refusals_of_different_stages_are_answered_once_each(hub: Service, sender: Sender) -> None:
    late, early = sender.make(9).encode(), b"\x40"
    for parts in ([late, early], [early, late], [late, early, late], [early, early, late]):
        got = answers(hub.post("/v1/submit", b"".join(parts), CBOR_SEQ))
        wanted = ["CLIENT_SEQ" if part == late else "CBOR_INVALID" for part in parts]
        assert [seq_of(item) for item in got] == wanted
    assert hub.get("/tooling/admission").json()["stages"][1]["queue_depth"] == 0


def test_what_is_no_message_is_refused_in_its_place(hub: Service, sender: Sender) -> None:
    one, two = sender.next().encode(), sender.next().encode()
    strange = b"\x01" + b"\xf6" + b"\xa0" + b"\x80" + rawcbor.tstr("text") + b"\xf9\x3c\x00" + b"\xc1\x01"
    got = answers(hub.post("/v1/submit", one + strange + two, CBOR_SEQ))
    assert [seq_of(item) for item in got] == [1, *(7 * ["CBOR_INVALID"]), 2]


@pytest.mark.parametrize("broken", [b"\x9f\x01\xff", b"\xff", b"\x1c", b"\x5a\xff\xff\xff\xff", b"\x8a\x01"])
def test_behind_a_broken_item_nothing_is_read(hub: Service, sender: Sender, broken: bytes) -> None:
    one, two = sender.next().encode(), sender.next().encode()
    got = answers(hub.post("/v1/submit", one + broken + two, CBOR_SEQ))
    assert [seq_of(item) for item in got] == [1, "CBOR_INVALID"]
    alone = answers(hub.post("/v1/submit", broken, CBOR_SEQ))
    assert [seq_of(item) for item in alone] == ["CBOR_INVALID"]
    assert hub.accept(sender.make(2)).stream_seq == 2


def test_no_messages_have_no_answers(hub: Service) -> None:
    assert answers(hub.post("/v1/submit", b"", CBOR_SEQ)) == []


def test_a_message_that_is_too_large_stands_for_itself_too(hub: Service, sender: Sender) -> None:
    large = rawcbor.bstr(bytes(LIMITS["max_msg_bytes"]))
    body = sender.next().encode() + large + sender.next().encode()
    got = answers(hub.post("/v1/submit", body, CBOR_SEQ))
    assert [seq_of(item) for item in got] == [1, "SIZE_PREFILTER", 2]


def test_more_messages_than_the_hub_would_queue_are_refused_together(hub: Service, sender: Sender) -> None:
    """However small: a body of single bytes would be millions of them."""
    most = hub.settings.max_queue
    answer = hub.post("/v1/submit", sender.make(1).encode() + most * b"\x00", CBOR_SEQ)
    assert answer.refusal() == ("E.SIZE", "SIZE_PREFILTER")
    assert (answer.error().detail or {})["max_allowed"] == most
    assert len(answers(hub.post("/v1/submit", most * b"\x00", CBOR_SEQ))) == most
    assert hub.accept(sender.next()).stream_seq == 1


def test_many_clients_at_once_get_what_is_theirs(hub: Service, sender: Sender) -> None:
    """Answers come back to the connection that asked, whatever order they are made in."""
    senders = [Sender(hub, f"{sender.name} {nth}", f"{sender.name} {nth % 3}") for nth in range(12)]
    connections = [hub.connect() for _ in senders]
    try:
        for _ in range(3):
            sent = [one.next() for one in senders]
            for raw, message in zip(connections, sent, strict=True):
                raw.ask("POST", "/v1/submit", SubmitRequest(msg=message).encode())
            for raw, message in zip(connections, sent, strict=True):
                assert raw.answer().decode(SubmitResponse).receipt.leaf_hash == message.leaf_hash
    finally:
        for raw in connections:
            raw.__exit__()
    heads = [hub.get(f"/tooling/status?label={one.label.hex()}").json() for one in senders[:3]]
    assert [head["last_stream_seq"] for head in heads] == [12, 12, 12]


# --- hubs of other kinds ------------------------------------------------------------------------------------


def test_a_replica_takes_no_messages(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serving(tmp_path_factory.mktemp("hub") / "data", role="replica") as hub:
        sender = Sender(hub)
        assert hub.submit(sender.next()).refusal() == ("E.AUTH", "NOT_PRIMARY")
        assert hub.submit(_forged(sender.make(1))).refusal() == ("E.SIG", "SIG_INVALID")
        assert hub.status()["role"] == "replica"


def test_a_client_id_may_have_an_end(tmp_path_factory: pytest.TempPathFactory) -> None:
    place = tmp_path_factory.mktemp("hub") / "data"
    with serving(place, max_msgs_per_client_id_per_label=2) as hub:
        sender = Sender(hub)
        assert [seq_of(item) for item in hub.bulk([sender.next() for _ in range(3)])] == [
            1,
            2,
            "CLIENT_LIFETIME",
        ]
        assert hub.get("/tooling/profile").json()["features"]["kex1_plus"] is True
        assert hub.get("/tooling/kex_policy").json()["max_msgs_per_client_id_per_label"] == 2


def test_labels_that_rotate_need_a_known_stream(tmp_path_factory: pytest.TempPathFactory) -> None:
    place = tmp_path_factory.mktemp("hub") / "data"
    with serving(place, epoch_sec=86_400, streams=["known"], pad_blocks=[256]) as hub:
        refused = Sender(hub, stream="unknown").next()
        profile = builders.profile(epoch_sec=86_400).profile_id
        context = replace(refused.context, profile_id=profile)
        assert hub.submit(builders.msg(context)).refusal() == ("E.TIME", "EPOCH")
        assert hub.submit(refused).refusal() == ("E.FORMAT", "PROFILE")


def test_proof_of_work_is_asked_for_before_anything_is_read(tmp_path_factory: pytest.TempPathFactory) -> None:
    place = tmp_path_factory.mktemp("hub") / "data"
    with serving(place, pow_difficulty=6, limits=LIMITS) as hub:
        sender = Sender(hub)
        body = SubmitRequest(msg=sender.next()).encode()
        assert hub.post("/v1/submit", body).refusal() == ("E.AUTH", "PREFILTER_REJECT")
        assert hub.post("/v1/submit", b"garbage").refusal() == ("E.AUTH", "PREFILTER_REJECT")
        assert hub.post("/v1/submit", b"garbage", CBOR_SEQ).refusal() == ("E.AUTH", "PREFILTER_REJECT")
        assert hub.post("/v1/submit", bytes(9_000)).refusal() == ("E.SIZE", "SIZE_PREFILTER")
        for wrong in ("", "zz", "a0", work(b"another request"), work(body, 5)):
            assert _worked(hub, body, wrong).refusal() == ("E.AUTH", "PREFILTER_REJECT")
        assert _worked(hub, body, work(body)).status == 200
        assert hub.get("/tooling/profile").json()["features"]["sh1_plus"] is True
        assert hub.status()["pow_difficulty"] == 6


def test_a_challenge_of_the_hub_works_for_any_request(tmp_path_factory: pytest.TempPathFactory) -> None:
    place = tmp_path_factory.mktemp("hub") / "data"
    with serving(place, pow_difficulty=6, limits=LIMITS) as hub:
        sender = Sender(hub)
        challenge = hub.get("/tooling/pow_request", accept=CBOR).decode(PowChallenge)
        assert challenge.difficulty == 6
        assert hub.get("/tooling/pow_request").from_json(PowChallenge).difficulty == 6
        cookie = solve(challenge.challenge, 6, range(1 << 20))
        assert cookie is not None
        shown = cookie.encode().hex()
        assert _worked(hub, SubmitRequest(msg=sender.next()).encode(), shown).status == 200
        # Larger than one message: the bound on those is not one on requests.
        many = b"".join(sender.next().encode() for _ in range(30))
        assert len(many) > LIMITS["max_msg_bytes"]
        got = answers(_worked(hub, many, shown, CBOR_SEQ))
        assert [seq_of(item) for item in got] == list(range(2, 32))
        large = sender.next(bytes(2_500))
        json_body = builders.submit_request(large)
        answer = hub.call("POST", "/v1/submit", json_body, content_type=JSON, headers={"VEEN-PoW": shown})
        assert answer.from_json(SubmitResponse).receipt.stream_seq == 32
        forged = cbor.encode({"challenge": challenge.challenge[:-1] + b"\0", "nonce": 0, "difficulty": 6})
        assert _worked(hub, many, forged.hex()).status in {403, 413}


def work(body: bytes, difficulty: int = 6) -> str:
    cookie = solve(sha256(body), difficulty, range(1 << 20))
    assert cookie is not None
    return cookie.encode().hex()


def _worked(hub: Service, body: bytes, cookie: str, kind: str = CBOR) -> Answer:
    return hub.call("POST", "/v1/submit", body, content_type=kind, headers={"VEEN-PoW": cookie})


# --- sizes --------------------------------------------------------------------------------------------------


def submit_bare(service: Service, data: bytes) -> tuple[str, str]:
    return service.call("POST", "/submit", data, content_type=CBOR).refusal()


def test_a_bare_message_has_the_bound_of_one_in_an_envelope(tmp_path: Path) -> None:
    with serving(tmp_path / "data", limits={"max_msg_bytes": 2000}, pad_blocks=[0]) as service:
        sender = Sender(service)
        exact, large = sized(sender, 2000), sized(sender, 2001)
        assert submit_bare(service, large.encode()) == ("E.SIZE", "SIZE_PREFILTER")
        assert service.submit(large).refusal() == ("E.SIZE", "SIZE_PREFILTER")
        assert submit_bare(service, bytes(2001)) == ("E.SIZE", "SIZE_PREFILTER")
        assert submit_bare(service, bytes(2001 + SUBMIT_ENVELOPE_BYTES)) == ("E.SIZE", "SIZE_PREFILTER")
        assert submit_bare(service, bytes(2000))[0] != "E.SIZE"
        assert service.call("POST", "/submit", exact, content_type=CBOR).status == 200


def test_its_size_is_looked_at_before_its_work(tmp_path: Path) -> None:
    with serving(tmp_path / "data", limits={"max_msg_bytes": 2000}, pow_difficulty=8) as service:
        assert submit_bare(service, bytes(2001)) == ("E.SIZE", "SIZE_PREFILTER")
        assert submit_bare(service, bytes(2000))[0] != "E.SIZE"


def sized(sender: Sender, size: int) -> Msg:
    """Return a message of so many bytes."""
    spare = size - len(sender.make(1, b"", pad_block=0).encode())
    made = (sender.make(1, bytes(body), pad_block=0) for body in range(spare, 0, -1))
    return next(item for item in made if len(item.encode()) == size)


# --- a fault of ours ----------------------------------------------------------------------------------------


def test_a_fault_in_the_check_of_one_message_is_that_message_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path / "data") as service:
        service.expect_faults = True
        messages = [Sender(service, name).next() for name in ("good", "bad", "fine")]
        check: Callable[[MessageForm, Sized, MessageRules], Authentic] = verifier_process.verify

        def faulty(form: MessageForm, body: Sized, rules: MessageRules) -> Authentic:
            if messages[1].encode() in bytes(body):
                raise RuntimeError("a fault of ours")
            return check(form, body, rules)

        with monkeypatch.context() as patch:
            patch.setattr(verifier_process, "verify", faulty)
            first, second, third = service.bulk(messages)
            assert isinstance(first, SubmitResponse)
            assert isinstance(second, ErrorEnvelope)
            assert second.code == "E.UNAVAILABLE"
            assert isinstance(third, SubmitResponse)
            assert service.submit(messages[1]).error().code == "E.UNAVAILABLE"
        assert (service.hub.intake.depth, service.hub.intake.depth_bytes) == (0, 0)
        service.accept(messages[1])
    assert [line.get("error") for line in service.log].count("RuntimeError: a fault of ours") == 2
