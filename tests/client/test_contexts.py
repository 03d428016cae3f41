"""Which client and hub are meant: named, then variables, then the configuration, then the defaults."""

import json
from pathlib import Path

import pytest

from veen.client import contexts
from veen.client.errors import ContextError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without any configuration."""
    for variable in ("VEEN_CLIENT", "VEEN_HUB", "VEEN_ADMIN", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def configure(text: str) -> None:
    path = contexts.config_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def directory(home: Path, name: str) -> Path:
    path = home / name
    path.mkdir(parents=True)
    return path


def test_which_client_is_meant(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ContextError, match="veen keygen"):
        contexts.find_client()
    default = directory(home, ".local/share/veen/client")
    assert contexts.find_client() == default
    configured = directory(home, "configured")
    configure(f'client = "{configured}"')
    assert contexts.find_client() == configured
    variable = directory(home, "variable")
    monkeypatch.setenv("VEEN_CLIENT", str(variable))
    assert contexts.find_client() == variable
    assert contexts.find_client("~/configured") == configured


def test_an_administrator_is_the_client_unless_another_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, admin = directory(home, ".local/share/veen/client"), directory(home, "admin")
    assert contexts.find_client(key="admin", variable="VEEN_ADMIN") == client
    monkeypatch.setenv("VEEN_ADMIN", str(admin))
    assert contexts.find_client(key="admin", variable="VEEN_ADMIN") == admin


def test_which_hub_is_meant(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ContextError, match="VEEN_HUB"):
        contexts.find_hub()
    default = directory(home, ".local/share/veen/hub")
    assert contexts.default_hub() is None  # which is not the directory of a hub
    (default / "store.cbor").touch()
    assert contexts.find_hub() == str(default)
    configure('hub = "http://configured"')
    assert contexts.find_hub() == "http://configured"
    monkeypatch.setenv("VEEN_HUB", "http://variable")
    assert contexts.find_hub() == "http://variable"
    assert contexts.find_hub("http://named") == "http://named"


@pytest.mark.parametrize("text", ["hub = [", 'port = "1"', "hub = 1"])
def test_a_damaged_configuration_is_reported(text: str) -> None:
    configure(text)
    with pytest.raises(ContextError, match=r"config\.toml"):
        contexts.load_config()


def test_a_hub_of_an_environment(home: Path) -> None:
    descriptor = home / "env.json"
    descriptor.write_text(json.dumps({"hubs": {"main": {"service_url": "http://main", "role": "primary"}}}))
    assert contexts.described_hub(str(descriptor), "main")["role"] == "primary"
    for env, name in ((descriptor, "other"), (home / "none.json", "main"), (home, "main")):
        with pytest.raises(ContextError):
            contexts.described_hub(str(env), name)
    descriptor.write_text("[]")
    with pytest.raises(ContextError, match="is not the descriptor"):
        contexts.described_hub(str(descriptor), "main")
