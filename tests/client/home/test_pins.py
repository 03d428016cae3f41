"""Which hubs are believed, and when a client stops believing one."""

import json
import shutil
from pathlib import Path

import pytest

from tests.client.conftest import Opens
from tests.client.participants import make_home, person
from tests.client.proxy import Answer, Passing, Proxy
from tests.hub.hub_process import HubProcess, veen
from veen.client.errors import InvalidResponseError, PinError
from veen.client.home.pins import HubFacts, Trust, accept_pin, is_local, read_facts
from veen.client.home.state import State
from veen.core.types import HubId


@pytest.fixture
def facts(hub: HubProcess) -> HubFacts:
    return read_facts(hub.get("/tooling/status"))


@pytest.mark.parametrize(
    ("name", "local"),
    [
        ("http://127.0.0.1:1", True),
        ("http://127.9.9.9", True),
        ("http://[::1]:80", True),
        ("https://localhost", True),
        ("http://192.168.1.5:37411", False),
        ("https://hub.example", False),
        ("http://localhost.example", False),
        ("http://127.0.0.1.example", False),
    ],
)
def test_which_names_are_of_this_machine(name: str, local: bool) -> None:  # noqa: FBT001 - a column
    assert is_local(name) is local


def test_a_hub_elsewhere_is_not_believed_at_first_use(facts: HubFacts) -> None:
    state = State()
    for trust in (Trust.LOCAL, Trust.NEVER):
        with pytest.raises(PinError, match="veen pin add") as caught:
            accept_pin(state, facts, "https://hub.example", trust=trust, now=1)
        assert facts.identity.hub_id.hex() in str(caught.value), "so that a person can compare"
    assert state == State()
    assert accept_pin(state, facts, "https://hub.example", trust=Trust.FIRST_USE, now=1).how == "first-use"
    assert accept_pin(state, facts, "https://hub.example", trust=Trust.NEVER, now=2).how == "first-use"


def test_a_hub_that_was_told_beforehand(facts: HubFacts) -> None:
    state = State()
    right, wrong = facts.identity.hub_id, HubId(bytes(32))
    with pytest.raises(PinError, match="nothing was sent"):
        accept_pin(state, facts, "https://hub.example", trust=Trust.FIRST_USE, now=1, expected=wrong)
    pin = accept_pin(state, facts, "https://hub.example", trust=Trust.NEVER, now=1, expected=right)
    assert (pin.how, list(state.pins)) == ("given", [right])


def test_never_means_never(tmp_path: Path, hub: HubProcess, kind: str) -> None:
    make_home(tmp_path / "alice")
    alice = person(kind, tmp_path / "alice", hub.url, trust=Trust.NEVER)
    with pytest.raises(PinError):
        alice.send("s", 1)
    alice.close()


def test_another_hub_at_the_same_place_is_a_loud_error(tmp_path: Path, opens: Opens, stream: str) -> None:
    with HubProcess(tmp_path / "first") as first:
        address = first.url.removeprefix("http://")
        alice = opens("alice", first.url)
        alice.send(stream, 1)
    with HubProcess(tmp_path / "other", "--listen", address) as other:
        with pytest.raises(PinError, match="intercepted"):
            opens("alice", other.url).send(stream, 2)
        hub_id = HubId(bytes.fromhex(other.banner["hub_id"]))
        assert opens("alice", other.url, hub_id=hub_id).send(stream, 2).position == 1, "if one knows"


def test_a_rotated_hub_key_is_believed_and_an_old_identity_is_not(
    tmp_path: Path, opens: Opens, stream: str
) -> None:
    with HubProcess(tmp_path / "hub") as hub:
        hub.stop()
    shutil.copytree(tmp_path / "hub", tmp_path / "old")
    with HubProcess(tmp_path / "hub") as hub:
        alice = opens("alice", hub.url)
        alice.send(stream, 1)
        assert veen("hub", "rotate-key", "--data-dir", tmp_path / "hub", "--overlap-sec", "0").returncode == 0
        assert alice.send(stream, 2).position == 2, "the new key is fetched and checked"
        assert len(alice.read(stream)) == 2
        address = hub.url.removeprefix("http://")
    with HubProcess(tmp_path / "old", "--listen", address), pytest.raises(PinError, match="older"):
        opens("alice", f"http://{address}").read(stream)


@pytest.mark.parametrize("field", ["identity", "identity_sig", "profiles"])
def test_a_description_that_was_changed_is_no_identity(
    hub: HubProcess, opens: Opens, stream: str, field: str
) -> None:
    def after(passing: Passing, answer: Answer) -> Answer:
        if passing.path != "/tooling/status":
            return answer
        found = json.loads(answer.body)
        if field == "profiles":
            found["profiles"][0]["pad_block"] += 1
        else:
            found[field] = found[field][:-2] + ("00" if found[field][-2:] != "00" else "01")
        return Answer(200, answer.content_type, json.dumps(found).encode())

    with Proxy(hub.url) as between:
        between.after = after
        with pytest.raises(InvalidResponseError):
            opens("alice", between.url).send(stream, 1)


def test_a_copy_may_be_anybodys(tmp_path: Path, hub: HubProcess, kind: str) -> None:
    """Who was given files is not made to believe, at every address, whoever made them."""
    assert is_local(str(hub.place))
    make_home(tmp_path / "alice")
    assert veen("clone", hub.place, tmp_path / "copy").returncode == 0
    assert not is_local(str(tmp_path / "copy"))
    stranger = person(kind, tmp_path / "alice", str(tmp_path / "copy"))
    with pytest.raises(PinError, match="--hub-id"):
        stranger.read("s")
    stranger.close()
    hub_id = HubId(bytes.fromhex(hub.banner["hub_id"]))
    told = person(kind, tmp_path / "alice", str(tmp_path / "copy"), hub_id=hub_id)
    assert told.read("s") == []
    told.close()
