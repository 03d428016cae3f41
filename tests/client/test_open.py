"""Opening a client: what is named, and what is found in variables and the configuration file."""

import asyncio
import os
import re
from pathlib import Path

import pytest

from tests.client.participants import NOW, QUICK, make_home
from tests.hub.hub_process import HubProcess
from veen.client.async_client import AsyncClient
from veen.client.client import Client
from veen.client.contexts import config_path
from veen.client.errors import ClientStateError, ContextError, KeystoreError, PinError
from veen.client.home.directory import ClientHome
from veen.client.home.pins import Trust
from veen.client.keys.keystore import Secrets

_NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def alice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A client directory, in an environment that names nothing."""
    for name in [name for name in os.environ if name.startswith("VEEN_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return make_home(tmp_path / "alice").root


def _configure(**settings: str) -> None:
    path = config_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f'{name} = "{value}"\n' for name, value in settings.items()))


def test_variables_name_client_and_hub(alice: Path, hub: HubProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VEEN_CLIENT", str(alice))
    monkeypatch.setenv("VEEN_HUB", hub.url)
    with Client.open(retry=QUICK) as client:
        assert client.home == alice
        assert client.hub.name == hub.url
        assert client.send("opened by variables", 1).position == 1


def test_the_configuration_file_names_client_hub_and_trust(alice: Path, hub: HubProcess) -> None:
    _configure(client=str(alice), hub=hub.url, trust="never")
    with Client.open(retry=QUICK) as client, pytest.raises(PinError):
        client.connect()
    with Client.open(trust=Trust.LOCAL, retry=QUICK) as client:
        assert client.hub_id == client.connect().identity.hub_id


def test_what_is_named_wins(alice: Path, hub: HubProcess, tmp_path: Path) -> None:
    _configure(client=str(tmp_path / "nobody"), hub=_NOWHERE)
    with Client.open(alice, hub.url, retry=QUICK) as client:
        client.connect()


def test_nothing_is_named(alice: Path) -> None:
    with pytest.raises(ContextError):
        Client.open(alice)
    with pytest.raises(ContextError):
        Client.open(hub=_NOWHERE)
    _configure(trust="everybody")
    with pytest.raises(ContextError):
        Client.open(alice, _NOWHERE)


@pytest.mark.usefixtures("alice")
def test_a_passphrase_is_given_asked_for_or_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "sealed"
    ClientHome.create(root, Secrets.generate(os.urandom, NOW), now=NOW, passphrase="öffne".encode())
    for passphrase in ("öffne", lambda: "öffne"):
        Client.open(root, _NOWHERE, passphrase=passphrase).close()
    for wrong in ("auf", None):
        with pytest.raises(KeystoreError):
            Client.open(root, _NOWHERE, passphrase=wrong)
    monkeypatch.setenv("VEEN_KEYSTORE_PASSPHRASE", "öffne")
    Client.open(root, _NOWHERE).close()


def test_only_the_expected_hub_is_accepted(alice: Path, hub: HubProcess) -> None:
    with Client.open(alice, hub.url, retry=QUICK) as client:
        hub_id = client.hub_id
    for expected in (hub_id, hub_id.hex()):
        with Client.open(alice, hub.url, hub_id=expected, retry=QUICK) as client:
            client.connect()
    with Client.open(alice, hub.url, hub_id="00" * 32, retry=QUICK) as client, pytest.raises(PinError):
        client.connect()


def test_a_client_for_asyncio_is_opened_by_async_with_or_await(alice: Path, hub: HubProcess) -> None:
    async def main() -> None:
        async with AsyncClient.open(alice, hub.url, retry=QUICK) as client:
            with pytest.raises(ClientStateError):
                _ = client.hub_id
            await client.connect()
            assert client.hub_id
        client = await AsyncClient.open(alice, hub.url, retry=QUICK)
        await client.close()
        with pytest.raises(ContextError):
            AsyncClient.open(alice)

    asyncio.run(main())


@pytest.mark.parametrize(
    "hub", ["http://", "http://hub:99999", "http://hub:port", "http://[::1", "http://hub/ä", "ftp://hub"]
)
def test_what_is_not_the_address_of_a_hub_is_rejected_when_a_client_is_opened(alice: Path, hub: str) -> None:
    for opening in (Client.open, AsyncClient.open):
        with pytest.raises(ContextError, match=re.escape(hub)):
            opening(alice, hub)
