"""Capability tokens over HTTP: made known, used, asked about, and refused."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from tests import builders
from tests.hub.hub_thread import CBOR, JSON, Answer, Sender, Service, eventually, serving
from veen.core.api.data_plane import ReceiptRequest, SubmitResponse
from veen.core.api.tooling import AuthorizeRequest, AuthorizeResponse, CapStatusRequest, CapStatusResponse
from veen.core.objects.capability import CapToken
from veen.core.objects.control_record import RevocationRecord, Target
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.core.objects.labels import authorize_label
from veen.core.types import Signature
from veen.hub.config import load

ISSUER = builders.verify_key("issuer").hex()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A hub that asks for tokens of one issuer."""
    place = tmp_path_factory.mktemp("hub") / "data"
    with serving(place, require_cap="true", trust_issuers=[ISSUER]) as service:
        yield service
        service.check_healthy()


def authorize(hub: Service, token: CapToken) -> AuthorizeResponse:
    """Make a token known; its record is a receipt in the hub's own log."""
    made = hub.post("/tooling/authorize", AuthorizeRequest(cap_token=token)).decode(AuthorizeResponse)
    hub.identity.verify_receipt(made.record)
    assert made.record.label == authorize_label(hub.identity.hub_id)
    assert bytes(made.record.leaf_hash) == made.auth_ref == token.auth_ref
    assert made.expires_at == made.record.hub_ts + token.allow.ttl
    return made


def status(hub: Service, token: CapToken) -> CapStatusResponse:
    asked = CapStatusRequest(auth_ref=token.auth_ref)
    found = hub.post("/tooling/cap_status", asked).decode(CapStatusResponse)
    assert found.auth_ref == token.auth_ref
    return found


def holder(hub: Service, token: CapToken, name: str, stream: str = "stream") -> Sender:
    return Sender(hub, name, stream, auth_ref=token.auth_ref)


def token_for(name: str, **options: object) -> CapToken:
    return builders.cap_token(subject=name, **options)  # type: ignore[arg-type] # those of the builder


def refusals(items: list[SubmitResponse | ErrorEnvelope]) -> list[str]:
    return ["" if isinstance(item, SubmitResponse) else item.code for item in items]


# --- the way of a token -------------------------------------------------------------------------------------


def test_a_token_opens_its_stream(hub: Service) -> None:
    token = token_for("holder")
    before = status(hub, token)
    assert (before.hub_known, before.hub_currently_valid, before.revoked) == (False, False, False)
    assert before.issued_at is None
    sender = holder(hub, token, "holder")
    unknown = hub.submit(sender.make(1))
    assert unknown.refusal() == ("E.CAP", "CAP_MISSING")
    made = authorize(hub, token)
    after = status(hub, token)
    assert (after.hub_known, after.hub_currently_valid, after.reason) == (True, True, None)
    assert (after.issued_at, after.expires_at) == (made.record.hub_ts, made.expires_at)
    asked = CapStatusRequest(auth_ref=token.auth_ref)
    assert hub.post("/tooling/cap_status", asked, JSON).from_json(CapStatusResponse) == after
    sender.send(3)
    place = ReceiptRequest(label=made.record.label, stream_seq=made.record.stream_seq)
    assert hub.post("/v1/receipt", place).decode(SubmitResponse).receipt == made.record


def test_without_a_token_nobody_writes(hub: Service) -> None:
    refused = hub.submit(Sender(hub, "nobody").make(1))
    assert refused.refusal() == ("E.CAP", "CAP_MISSING")
    assert refused.status == 403
    assert "token" in refused.error().message


def test_a_token_is_recorded_once(hub: Service) -> None:
    token = token_for("twice")
    first = hub.post("/tooling/authorize", AuthorizeRequest(cap_token=token))
    again = hub.post("/tooling/authorize", AuthorizeRequest(cap_token=token))
    assert again.body == first.body
    made = first.decode(AuthorizeResponse)
    assert (
        hub.post("/tooling/authorize", AuthorizeRequest(cap_token=token), JSON).from_json(AuthorizeResponse)
        == made
    )
    assert hub.post("/authorize", token).decode(AuthorizeResponse) == made


def test_every_link_of_a_renewal_is_a_token_of_its_own(hub: Service) -> None:
    first = token_for("renewer")
    second = first.renew(builders.signing_key("issuer"))
    one, two = authorize(hub, first), authorize(hub, second)
    assert one.auth_ref != two.auth_ref
    assert two.record.stream_seq > one.record.stream_seq


@pytest.mark.parametrize("form", ["cbor", "json", "bare"])
def test_a_token_of_a_stranger_is_refused(hub: Service, form: str) -> None:
    answer = send(hub, token_for("somebody", issuer="stranger"), form)
    assert answer.refusal() == ("E.CAP", "CAP_INVALID")
    assert answer.status == 403
    assert "trust" in answer.error().message


@pytest.mark.parametrize("form", ["cbor", "json", "bare"])
def test_a_forged_token_is_refused(hub: Service, form: str) -> None:
    good = token_for("forger")
    forged = replace(good, sig_chain=(Signature(bytes(64)),))
    assert send(hub, forged, form).refusal() == ("E.CAP", "CAP_INVALID")


def send(hub: Service, token: CapToken, form: str) -> Answer:
    match form:
        case "bare":
            return hub.post("/authorize", token)
        case "json":
            return hub.post("/tooling/authorize", AuthorizeRequest(cap_token=token), JSON)
    return hub.post("/tooling/authorize", AuthorizeRequest(cap_token=token), CBOR)


def test_a_token_has_a_largest_size(hub: Service) -> None:
    streams = [f"stream {number}" for number in range(257)]
    too_many = token_for("greedy", streams=streams)
    assert send(hub, too_many, "cbor").refusal() == ("E.SIZE", "FIELD_SIZE")
    huge = send(hub, token_for("greedy", streams=[*streams, *(str(number) for number in range(700))]), "cbor")
    assert huge.status == 413
    assert huge.error().code == "E.SIZE"


# --- what a token allows ------------------------------------------------------------------------------------


def test_a_token_is_for_one_client(hub: Service) -> None:
    token = token_for("owner")
    authorize(hub, token)
    assert hub.submit(holder(hub, token, "thief").make(1)).refusal() == ("E.AUTH", "AUTH_REF")


def test_a_token_is_for_its_streams(hub: Service) -> None:
    token = token_for("scoped", streams=["one", "two"])
    authorize(hub, token)
    for stream in ("one", "two"):
        holder(hub, token, "scoped", stream).send()
    refused = hub.submit(holder(hub, token, "scoped", "three").make(1))
    assert refused.refusal() == ("E.AUTH", "AUTH_REF")


def test_a_token_has_an_end(hub: Service) -> None:
    token = token_for("late", ttl=0)
    made = authorize(hub, token)
    eventually(lambda: not status(hub, token).hub_currently_valid)
    found = status(hub, token)
    assert found.hub_known
    assert found.expires_at == made.record.hub_ts
    assert "expired" in str(found.reason)
    refused = hub.submit(holder(hub, token, "late").make(1))
    assert refused.refusal() == ("E.TIME", "CAP_TTL")
    assert refused.status == 400
    # Authorizing it again does not start it anew (C-47).
    assert authorize(hub, token).expires_at == made.expires_at
    assert hub.submit(holder(hub, token, "late").make(1)).refusal() == ("E.TIME", "CAP_TTL")


def test_a_token_has_a_rate(hub: Service) -> None:
    token = token_for("fast", rate=builders.rate(1, 3))
    authorize(hub, token)
    sender = holder(hub, token, "fast")
    got = hub.bulk([sender.next() for _ in range(6)])
    assert refusals(got) == ["", "", "", "E.RATE", "E.RATE", "E.RATE"]
    # A token comes back every second; between two of them there is none.
    sender.client_seq = 3
    answer = hub.submit(sender.next())
    while answer.status == 200:
        answer = hub.submit(sender.next())
    assert answer.refusal() == ("E.RATE", "CAP_RATE")
    assert answer.status == 429
    assert answer.headers["retry-after"] == "1"
    values = hub.get("/metrics").body.decode()
    assert "veen_rate_limited_total" in values


def test_a_rate_that_is_kept_is_no_hindrance(hub: Service) -> None:
    token = token_for("slow", rate=builders.rate(1, 1))
    authorize(hub, token)
    sender = holder(hub, token, "slow")
    sender.send()
    message = sender.next()
    eventually(lambda: hub.submit(message).status == 200)


def control(hub: Service, record: RevocationRecord) -> None:
    """Record a decision of the operator, as the hub does it: in turn."""
    done = Event()
    loop = hub.loop
    loop.call_soon_threadsafe(hub.hub.turn, lambda: hub.hub.control(record), lambda _: done.set())
    assert done.wait(30)


def test_what_is_revoked_counts_no_more(hub: Service) -> None:
    client, kept = token_for("revoked client"), token_for("revoked token")
    for token, name in ((client, "revoked client"), (kept, "revoked token")):
        authorize(hub, token)
        holder(hub, token, name).send()
    by_client = RevocationRecord(
        target_kind=Target.CLIENT_ID.value, target=client.subject_pk, ts=1, reason="its key was lost"
    )
    control(hub, by_client)
    control(hub, RevocationRecord(target_kind=Target.AUTH_REF.value, target=kept.auth_ref, ts=1))
    assert hub.submit(holder(hub, client, "revoked client").make(2)).refusal() == ("E.AUTH", "REVOKED")
    assert hub.submit(holder(hub, kept, "revoked token").make(2)).refusal() == ("E.CAP", "REVOKED")
    found = status(hub, client)
    assert (found.hub_known, found.hub_currently_valid, found.revoked) == (True, False, True)
    assert (found.revocation_kind, found.revocation_ts) == (Target.CLIENT_ID, 1)
    assert found.reason == "its key was lost"
    assert status(hub, kept).revocation_kind == Target.AUTH_REF


# --- who asks for tokens ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listen", "asks"),
    [
        (["127.0.0.1:0"], False),
        (["[::1]:0", "localhost:0"], False),
        (["127.0.0.1:0", "10.0.0.1:0"], True),
        (["0.0.0.0:0"], True),
        (["[::]:0"], True),
    ],
)
def test_strangers_need_a_token_and_the_machine_itself_does_not(listen: list[str], *, asks: bool) -> None:
    assert load({"listen": listen}, {}).resolved_require_cap is asks


def test_the_choice_stays_with_the_directory(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as hub:
        assert hub.status()["require_cap"] is False
        Sender(hub).send()
    with serving(tmp_path / "data", require_cap="true") as hub:
        assert hub.status()["require_cap"] is True
        assert hub.submit(Sender(hub).make(2)).refusal() == ("E.CAP", "CAP_MISSING")
    with serving(tmp_path / "data") as hub:
        assert hub.status()["require_cap"] is True
    with serving(tmp_path / "data", require_cap="false") as hub:
        assert hub.accept(Sender(hub).make(2)).stream_seq == 2


def test_a_token_counts_also_where_none_is_asked_for(tmp_path: Path) -> None:
    with serving(tmp_path / "data", trust_all_issuers=True) as hub:
        token = token_for("client", issuer="anybody", streams=["other"])
        authorize(hub, token)
        assert hub.submit(holder(hub, token, "client").make(1)).refusal() == ("E.AUTH", "AUTH_REF")
        holder(hub, token, "client", "other").send()


def test_tokens_are_known_after_a_restart(tmp_path: Path) -> None:
    token = token_for("client")
    with serving(tmp_path / "data", require_cap="true", trust_issuers=[ISSUER]) as hub:
        made = authorize(hub, token)
        holder(hub, token, "client").send(2)
        before = status(hub, token)
    with serving(tmp_path / "data", trust_issuers=[ISSUER]) as hub:
        assert authorize(hub, token) == made
        assert status(hub, token) == before
        sender = replace(holder(hub, token, "client"), client_seq=2)
        sender.send()
    with serving(tmp_path / "data") as hub:
        # An issuer that is trusted no more: known, and worth nothing.
        found = status(hub, token)
        assert (found.hub_known, found.hub_currently_valid) == (True, False)
        assert hub.submit(holder(hub, token, "client").make(4)).refusal() == ("E.CAP", "CAP_INVALID")
        assert send(hub, token, "cbor").refusal() == ("E.CAP", "CAP_INVALID")
