"""Where a hub's settings come from, what of them stays with the directory, and how mistakes are told."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.builders import profile, some_label, verify_key
from tests.hub.hub_process import Api, Client, HubProcess, Refused, check_no_secrets, ending, secrets_of, veen
from tests.hub.hub_thread import serving
from veen.hub.config import Settings, load
from veen.hub.errors import ConfigError

_LOOPBACK = ("--listen", "127.0.0.1:0")


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


# --- layers -------------------------------------------------------------------------------------------------


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = write(
        tmp_path / "veen.toml", 'log_level = "error"\nmax_queue = 5\nmax_waiters = 6\nrole = "replica"\n'
    )
    given = {"VEEN_LOG_LEVEL": "warn", "VEEN_MAX_QUEUE": "7", "VEEN_ROLE": ""}
    found = load({"log_level": "debug", "epoch_sec": None}, given, file)
    assert found.log_level == "debug"
    assert found.max_queue == 7
    assert found.max_waiters == 6
    assert found.role == "replica", "an empty variable is none"
    assert found.epoch_sec == Settings.model_fields["epoch_sec"].default


def test_the_file_may_be_named_by_the_environment(tmp_path: Path) -> None:
    file = write(tmp_path / "veen.toml", "max_queue = 5\n")
    other = write(tmp_path / "other.toml", "max_queue = 6\n")
    assert load({}, {"VEEN_CONFIG_PATH": str(file)}).max_queue == 5
    assert load({}, {"VEEN_CONFIG_PATH": str(file)}, other).max_queue == 6


def test_lists_may_be_written_with_commas() -> None:
    found = load({}, {"VEEN_LISTEN": "127.0.0.1:0, [::1]:0", "VEEN_PAD_BLOCKS": "0,256"})
    assert found.listen == ["127.0.0.1:0", "[::1]:0"]
    assert found.pad_blocks == [0, 256]


def test_names_and_origins_have_one_form() -> None:
    found = load({}, {"VEEN_HOSTS": "Hub.Example., my_hub", "VEEN_ORIGINS": "HTTPS://App.example:443"})
    assert found.hosts == ["hub.example", "my_hub"]
    assert found.origins == ["https://app.example"]
    assert load({"hosts": []}, {}).hosts == [], "not even those of the machine"
    assert load({}, {}).hosts is None


def test_all_layers_reach_the_process(tmp_path: Path) -> None:
    config = 'pow_difficulty = 3\nrole = "replica"\nlog_level = "error"\nmax_client_id_lifetime_sec = 9\n'
    env = {"VEEN_POW_DIFFICULTY": "2", "VEEN_ROLE": "primary"}
    with HubProcess(tmp_path / "data", "--pow-difficulty", "1", config=config, env=env) as hub:
        found = hub.get("/tooling/status")
        assert (found["pow_difficulty"], found["role"]) == (1, "standalone")
        assert found["listen"] == [hub.url]
        assert hub.get("/tooling/kex_policy")["max_client_id_lifetime_sec"] == 9
        hub.stop()
    assert hub.log.read_text() == "", "the level is above what a good hub says"


# --- mistakes -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    file = write(
        tmp_path / "veen.toml",
        'max_qeue = 5\nlisten = ["nowhere"]\nlog_level = "loud"\ntrust_issuers = ["abc"]\n',
    )
    place = tmp_path / "data"
    for flags in ((), ("--foreground",)):
        done = veen("hub", "start", "--data-dir", place, "--config", file, *flags, VEEN_POW_DIFFICULTY="-1")
        assert done.returncode == 1
        assert "has 5 errors" in done.stderr
        assert str(file) in done.stderr
        assert "max_qeue: unknown setting; did you mean max_queue?" in done.stderr
        for name in (
            "listen.0: 'nowhere' is not an address",
            "log_level:",
            "trust_issuers.0:",
            "pow_difficulty:",
        ):
            assert name in done.stderr
        assert "Traceback" not in done.stderr
    assert not (place / "store.cbor").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('tls_cert = "x.pem"\n', "tls_cert and tls_key must be set together"),
        ("pad_blocks = [256, 256]\n", "pad_blocks contains a value twice"),
        ("pad_blocks = []\n", "pad_blocks"),
        ("[limits]\nmax_msg_byte = 5\n", "unknown limit max_msg_byte; did you mean max_msg_bytes?"),
        ("[limits]\nmax_msg_bytes = 0\n", "limits: "),
        ("max_queue = 0\n", "max_queue"),
        ("listen = []\n", "listen"),
        ('listen = ["127.0.0.1:65536"]\n', "is not an address"),
        ('hosts = ["hub.example:37411"]\n', "write it without a port"),
        ('hosts = ["https://hub.example"]\n', "is not a name"),
        ('origins = ["app.example"]\n', "is not an origin"),
        ('origins = ["null"]\n', "is not an origin"),
        ('origins = ["https://app.example/"]\n', "is not an origin"),
        ("not toml", "is not TOML"),
    ],
)
def test_one_mistake(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        load({}, {}, write(tmp_path / "veen.toml", text))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    done = veen("hub", "start", "--data-dir", tmp_path / "data", "--config", tmp_path / "none.toml", "--json")
    assert done.returncode == 1
    assert "cannot be read: No such file" in json.loads(done.stdout)["detail"]


def test_a_certificate_that_is_none(tmp_path: Path) -> None:
    cert = write(tmp_path / "cert.pem", "nonsense")
    done = veen(
        *("hub", "start", "--data-dir", tmp_path / "data", *_LOOPBACK), "--tls-cert", cert, "--tls-key", cert
    )
    assert done.returncode == 1
    assert str(cert) in done.stderr
    assert done.stderr.count("\n") == 1


# --- what stays with the directory --------------------------------------------------------------------------


def started(place: Path, **config: Any) -> str:
    """Start a hub once with a configuration, and stop it; return what it said against that, if it did."""
    lines = [f"{name} = {json.dumps(value)}" for name, value in config.items() if not isinstance(value, dict)]
    for name, values in config.items():
        if isinstance(values, dict):
            lines += [f"[{name}]", *(f"{key} = {value}" for key, value in values.items())]
    file = write(place.with_name("veen.toml"), "\n".join(lines))
    flags = () if "listen" in config else _LOOPBACK
    with ending(place):
        done = veen("hub", "start", "--data-dir", place, *flags, "--config", file)
        if done.returncode == 0:
            assert veen("hub", "stop", "--data-dir", place).returncode == 0
    assert done.returncode in (0, 1)
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.slow
def test_what_was_chosen_at_the_first_start_stays(tmp_path: Path) -> None:
    place = tmp_path / "data"
    routing = some_label("routing").hex()
    kept = {
        "epoch_sec": 3600,
        "pad_blocks": [0, 512],
        "routing_key": routing,
        "limits": {"max_body_bytes": 1000},
    }
    assert started(place, **kept) == ""
    before = {path: path.read_bytes() for path in place.glob("*.cbor")}
    said = started(
        place,
        epoch_sec=60,
        pad_blocks=[512, 0],
        routing_key=some_label().hex(),
        limits={"max_body_bytes": 999, "max_msg_bytes": 5000},
    )
    for part in (
        "epoch_sec is 3600 here, and 60 in the configuration",
        "pad_blocks is [0, 512] here, and [512, 0] in the configuration",
        "routing_key differs",
        "limits.max_body_bytes is 1000 here, and 999 in the configuration",
        "limits.max_msg_bytes is ",
    ):
        assert part in said
    assert {path: path.read_bytes() for path in place.glob("*.cbor") if path in before} == before
    with HubProcess(place) as hub:  # what is not said is as it was
        found = hub.get("/tooling/status")
        assert found["limits"]["max_body_bytes"] == 1000
        assert found["routing_key"] == routing
        assert [item["pad_block"] for item in found["profiles"]] == [0, 512]
        assert {item["epoch_sec"] for item in found["profiles"]} == {3600}
        hub.stop()


@pytest.mark.slow
def test_a_profile_can_be_demanded(tmp_path: Path) -> None:
    place = tmp_path / "data"
    other, served = profile(pad_block=4).profile_id.hex(), profile(pad_block=0).profile_id.hex()
    assert "is not served" in started(place, profile_id=other)
    assert not (place / "store.cbor").exists(), "a directory is not made for a hub that is not wanted"
    assert started(place, profile_id=served) == ""
    assert "is not served" in started(place, profile_id=other)


# --- whether tokens are needed ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("listen", "needed"), [("127.0.0.1:0", False), ("127.0.0.1:0,0.0.0.0:0", True)])
def test_strangers_need_tokens(tmp_path: Path, listen: str, needed: bool) -> None:  # noqa: FBT001 - a table
    with HubProcess(tmp_path / "data", env={"VEEN_LISTEN": listen}, listen=False) as hub:
        assert hub.banner["require_cap"] is needed
        hub.terminate()
    # Decided once: where it listens later does not change whom it serves.
    with HubProcess(tmp_path / "data") as hub:
        assert hub.banner["require_cap"] is needed
        with hub.api() as api:
            refused = _refusal(api)
        assert (refused is not None) is needed
        if refused is not None:
            assert (refused.envelope.code, refused.detail["detail_enum"]) == ("E.CAP", "CAP_MISSING")
        hub.stop()


@pytest.mark.slow
def test_that_tokens_are_needed_can_be_changed_by_name_only(tmp_path: Path) -> None:
    for flags, needed in (
        ((), False),
        (("--require-cap", "true"), True),
        ((), True),
        (("--require-cap", "auto"), True),
    ):
        with HubProcess(tmp_path / "data", *flags) as hub:
            assert hub.banner["require_cap"] is needed
            assert hub.get("/tooling/status")["require_cap"] is needed
            hub.stop()
    with HubProcess(tmp_path / "data", "--require-cap", "false") as hub, hub.api() as api:
        assert _refusal(api) is None


def _refusal(api: Api) -> Refused | None:
    try:
        Client(some_label()).send(api)
    except Refused as refused:
        return refused
    return None


# --- secrets ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_no_secret_is_seen_anywhere(tmp_path: Path) -> None:
    place = tmp_path / "data"
    said = []
    with HubProcess(place, "--log-level", "debug", config="pow_difficulty = 1\n") as hub:
        said.append(json.dumps(hub.banner))
        with hub.api() as api:
            for path in (
                "/tooling/status",
                "/tooling/identity",
                "/tooling/profile",
                "/tooling/pow_request",
                "/tooling/admission",
                "/tooling/admission_log",
                "/metrics",
                "/healthz",
                "/admin/trust",
                "/nothing",
            ):
                for accept in ("application/json", "application/cbor"):
                    api.headers = {"accept": accept}
                    said.append(repr(api.ask("GET", path)))
            api.headers = {}
            bodies = (b"", b"\xff" * 500, b'{"a":')
            said += [repr(api.ask("POST", "/v1/submit", body)) for body in bodies]
        for pid in (hub.pid, *hub.children()):
            said.append(Path(f"/proc/{pid}/cmdline").read_text())
            said.append(Path(f"/proc/{pid}/environ").read_text())
        for words in (("rotate-key",), ("trust", "add", verify_key("issuer").hex()), ("trust", "list")):
            done = veen("hub", *words, "--data-dir", place)
            said += [done.stdout, done.stderr]
        hub.stop()
    assert len(secrets_of(place)) == 4
    check_no_secrets(place, hub.log.read_bytes(), *said)


@pytest.mark.slow
def test_a_damaged_secrets_file_is_told_without_its_content(tmp_path: Path) -> None:
    place = tmp_path / "data"
    with HubProcess(place) as hub:
        hub.stop()
    good = (place / "hub-secrets.cbor").read_bytes()
    secrets = secrets_of(place)
    for bad in (good[:-1], good.replace(secrets[0], os.urandom(32))):
        (place / "hub-secrets.cbor").write_bytes(bad)
        done = veen("hub", "start", "--data-dir", place, *_LOOPBACK)
        assert done.returncode in (1, 4)
        assert "hub-secrets.cbor" in done.stderr
        assert "Traceback" not in done.stderr
        said = done.stderr + (place / "hub.log").read_text()
        assert not any(secret.hex() in said or repr(secret)[2:-1] in said for secret in secrets)


@pytest.mark.slow
def test_a_copy_without_secrets_is_told_apart(tmp_path: Path) -> None:
    place = tmp_path / "data"
    with HubProcess(place) as hub:
        hub.stop()
    (place / "hub-secrets.cbor").unlink()
    done = veen("hub", "start", "--data-dir", place, *_LOOPBACK)
    assert done.returncode == 1
    assert "this is a copy" in done.stderr


# --- what is said at the start ------------------------------------------------------------------------------


def warned(place: Path, **settings: object) -> set[str]:
    with serving(place, **settings) as service:
        pass  # the log is written by a thread; at the end it is whole
    return {line["event"] for line in service.log if line["level"] == "warn"}


def test_what_is_allowed_and_probably_not_meant_is_said(tmp_path: Path) -> None:
    usual: dict[str, object] = {"epoch_sec": 3600}
    assert warned(tmp_path / "usual", **usual, limits={"max_epoch_skew_sec": 3600}) == set()
    assert warned(tmp_path / "none") == set()
    assert warned(tmp_path / "skew", **usual, limits={"max_epoch_skew_sec": 3599}) == {"no-skew"}
    assert warned(tmp_path / "trust", trust_all_issuers=True) == {"every-issuer-trusted"}


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("127.0.0.1:80", True),
        ("127.0.0.5:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("127.example.org:80", False),
        ("localhost.example.org:80", False),
        ("127.0.0.1.example.org:80", False),
        ("0.0.0.0:80", False),
        ("[::]:80", False),
        ("128.0.0.1:80", False),
    ],
)
def test_only_loopback_goes_without_tokens(address: str, *, loopback: bool) -> None:
    assert Settings.model_validate({"listen": [address]}).resolved_require_cap is not loopback
    assert Settings.model_validate({"listen": ["127.0.0.1:0", address]}).resolved_require_cap is not loopback
