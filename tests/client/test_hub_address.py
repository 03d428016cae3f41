"""How the address of a hub is read."""

from pathlib import Path

import pytest

from veen.client.hub_address import HubAddress, check_hub_address


def test_urls_lose_their_last_slash() -> None:
    address = HubAddress.parse("https://hub.example:37411/")
    assert (address.url, address.path, address.name) == (
        "https://hub.example:37411",
        None,
        "https://hub.example:37411",
    )


def test_directories_have_one_name_however_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    place = tmp_path / "a hub"
    texts = (str(place), "a hub", "~/a hub", f"file://{tmp_path}/a%20hub")
    assert {HubAddress.parse(text).name for text in texts} == {str(place)}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ftp://hub.example", "neither an http"),
        ("http://", "has no host"),
        ("http://hub.example:99999", "is not a URL"),
        ("http://hub.example/ä", "percent-encoded"),
    ],
)
def test_what_no_hub_is_reached_by_is_rejected(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        check_hub_address(text)


@pytest.mark.parametrize("text", ["http://[::1]:1", "hub", "/data/hub", "file:///data/hub"])
def test_what_a_person_may_type(text: str) -> None:
    assert check_hub_address(text) == HubAddress.parse(text)
