"""What a hub says about itself, over HTTP: identity, status, health, policies, refusals, metrics."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests import builders
from tests.hub.hub_thread import CBOR, Sender, Service, serving
from veen.core.api.data_plane import CheckpointRequest, ProofRequest
from veen.core.encoding import cbor
from veen.core.objects import labels
from veen.core.objects.hub_identity import HubIdentity
from veen.core.types import VerifyKey

SIZE = 21


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    place = tmp_path_factory.mktemp("hub") / "data"
    with serving(place, limits={"max_attachment_bytes": 1000}) as service:
        yield service
        service.check_healthy()


def test_an_identity_is_signed(hub: Service) -> None:
    said = hub.get("/tooling/identity").json()
    identity = HubIdentity.decode(bytes.fromhex(said["identity"]))
    assert identity == hub.identity
    first = VerifyKey(bytes.fromhex(said["hub_keys"][0]["hub_pk"]))
    identity.verify_signature(first, bytes.fromhex(said["identity_sig"]))
    assert labels.hub_id(first).hex() == said["hub_id"]
    assert said["routing_key"] == identity.routing_key.hex()
    assert identity.control_pk is not None
    assert said["control_pk"] == identity.control_pk.hex()
    assert [item["pad_block"] for item in said["profiles"]] == [256, 0, 1024]


def test_a_status_has_what_clients_need(hub: Service) -> None:
    log = Sender(hub, "log", "log")
    last = log.send(SIZE)[-1]
    said = hub.status()
    assert {
        "hub_id",
        "hub_pk",
        "routing_key",
        "control_pk",
        "profiles",
        "epoch",
        "hub_ts",
        "uptime_sec",
        "require_cap",
        "pow_difficulty",
        "limits",
        "labels",
        "version",
    } <= set(said)
    assert said["limits"]["max_attachment_bytes"] == 1000
    assert said["require_cap"] is False
    assert said["labels"] >= 1
    of_label = hub.get(f"/tooling/status?label={log.label.hex()}").json()
    assert of_label["label"] == log.label.hex()
    assert (of_label["last_stream_seq"], of_label["last_mmr_root"]) == (SIZE, last.mmr_root.hex())
    assert of_label["peaks_count"] == SIZE.bit_count()


def test_the_status_of_an_unknown_label_is_zero(hub: Service) -> None:
    said = hub.get(f"/tooling/status?label={'00' * 32}").json()
    assert (said["last_stream_seq"], said["peaks_count"], said["last_mmr_root"]) == (0, 0, "00" * 32)
    for wrong in ("", "00", "G" * 64, "AA" * 32):
        assert hub.get(f"/tooling/status?label={wrong}").error().code == "E.BAD_REQUEST"


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_is_that_of_the_newest_label(hub: Service, path: str) -> None:
    sender = Sender(hub, path, path)
    (*_, last) = sender.send(3)
    said = hub.get(path).json()
    assert said["ok"] is True
    assert said["profile_id"] == builders.profile().profile_id.hex()
    assert (said["label"], said["last_stream_seq"], said["peaks_count"]) == (sender.label.hex(), 3, 2)
    assert said["last_mmr_root"] == last.mmr_root.hex()


def test_an_empty_hub_is_healthy(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as hub:
        said = hub.get("/healthz").json()
        assert said["ok"] is True
        assert (said["label"], said["last_stream_seq"], said["peaks_count"]) == (None, 0, 0)
        assert said["last_mmr_root"] == "00" * 32
        as_cbor = cbor.decode(hub.get("/healthz", accept=CBOR).body)
        assert isinstance(as_cbor, dict)
        assert "label" not in as_cbor


@pytest.mark.parametrize(
    "path",
    [
        "/healthz",
        "/tooling/status",
        "/tooling/identity",
        "/tooling/profile",
        "/tooling/kex_policy",
        "/tooling/admission",
        "/tooling/admission_log",
        "/tooling/revocations",
    ],
)
def test_descriptions_are_the_same_in_cbor(hub: Service, path: str) -> None:
    """Byte strings are hex in JSON; what is null there is left out in CBOR."""
    as_json = hub.get(path).json()
    as_cbor = cbor.decode(hub.get(path, accept=CBOR).body)
    assert _changing(_as_json(as_cbor)) == _changing(_without_null(as_json))


def _changing(said: Any) -> Any:
    return {name: item for name, item in said.items() if name not in {"hub_ts", "uptime_sec"}}


def _as_json(value: Any) -> Any:
    match value:
        case bytes():
            return value.hex()
        case dict():
            return {name: _as_json(item) for name, item in value.items()}
        case list() | tuple():
            return [_as_json(item) for item in value]
    return value


def _without_null(value: Any) -> Any:
    match value:
        case dict():
            return {name: _without_null(item) for name, item in value.items() if item is not None}
        case list():
            return [_without_null(item) for item in value]
    return value


def test_a_profile_names_the_features(hub: Service) -> None:
    said = hub.get("/tooling/profile").json()
    assert said["features"]["core"] is True
    assert said["features"]["sh1_plus"] is False
    assert said["hub_id"] == hub.identity.hub_id.hex()


def test_the_policy_on_keys_says_what_is_not_set(hub: Service) -> None:
    said = hub.get("/tooling/kex_policy").json()
    assert said["max_client_id_lifetime_sec"] is None
    assert said["rotation_window_sec"] == hub.settings.rotation_window_sec


def test_refusals_are_listed_newest_first(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as hub:
        sender = Sender(hub)
        message = sender.next()
        hub.accept(message)
        hub.submit(message)
        hub.submit(sender.make(9))
        hub.post("/v1/submit", b"garbage")
        said = hub.get("/tooling/admission_log").json()["failures"]
        assert [(item["code"], item["detail"]) for item in said] == [
            ("E.FORMAT", "CBOR_INVALID"),
            ("E.SEQ", "CLIENT_SEQ"),
            ("E.SEQ", "DUPLICATE"),
        ]
        assert said[1]["label_prefix"] == sender.label.hex()[:8]
        assert said[1]["client_id_prefix"] == message.client_id.hex()[:8]
        assert said[0]["label_prefix"] == ""
        few = hub.get("/tooling/admission_log?limit=1").json()["failures"]
        assert few == said[:1]
        of_code = hub.get("/tooling/admission_log?codes=E.SEQ,E.SIG&limit=99999").json()["failures"]
        assert of_code == said[1:]
        assert hub.get("/tooling/admission_log?limit=0").json()["failures"] == []
        assert hub.get("/tooling/admission_log?limit=x").error().code == "E.BAD_REQUEST"
        stages = hub.get("/tooling/admission").json()["stages"]
        assert [item["name"] for item in stages] == ["prefilter", "structural", "auth", "commit"]
        lines = [line for line in hub.log if line["event"] == "submit"]
        assert [line.get("code") for line in lines] == [None, "E.SEQ", "E.SEQ", "E.FORMAT"]
        assert {
            "label",
            "client_id_prefix",
            "stream_seq",
            "leaf_hash_prefix",
            "bytes_in",
            "bytes_out",
        } <= set(lines[0])


def test_metrics_have_the_names_that_operators_know(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as hub:
        sender = Sender(hub)
        sender.send(12)
        hub.submit(sender.make(99))
        for upto in (4, 12, 12):
            hub.post("/v1/checkpoint", CheckpointRequest(label=sender.label, upto_seq=upto))
        hub.post("/v1/proof", ProofRequest(label=sender.label, stream_seq=1))
        answer = hub.get("/metrics")
        assert answer.content_type.startswith("text/plain")
        families = {family.name: family for family in text_string_to_metric_families(answer.body.decode())}
        values = {
            (sample.name, sample.labels.get("code")): sample.value
            for family in families.values()
            for sample in family.samples
        }
        assert values["veen_submit_ok_total", None] == 12
        assert values["veen_submit_err_total", "E.SEQ"] == 1
        assert values["veen_rate_limited_total", None] == 0
        assert values["veen_anchor_fail_total", None] == 0
        assert values["veen_queue_depth", None] == 0
        for name in ("verify_latency_ms", "commit_latency_ms", "end_to_end_latency_ms"):
            assert values[f"veen_{name}_count", None] == 13
        # From the first to the second; asking again makes none.
        assert values["veen_checkpoint_interval_count", None] == 1
        assert values["veen_checkpoint_interval_sum", None] == 8
        assert values["veen_proof_time_ms_count", None] == 1
        assert values["veen_fsync_latency_ms_count", None] > 0
        kinds = {name: family.type for name, family in families.items()}
        assert kinds["veen_submit_ok"] == "counter"
        assert kinds["veen_end_to_end_latency_ms"] == "histogram"
        assert kinds["veen_queue_depth"] == "gauge"
