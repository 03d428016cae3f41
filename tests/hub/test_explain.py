"""Verdicts computed again from files: those of the hub, row by row, without the hub and its secrets."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import time

from tests import builders
from tests.hub.hub_process import veen
from tests.hub.hub_without_sockets import inside
from tests.hub.test_determinism import NOW, SETTINGS, TOKEN, message, story
from veen.core.errors import Code, Detail
from veen.core.objects import labels
from veen.core.objects.control_record import RevocationRecord, Target
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.core.objects.msg import Msg
from veen.core.objects.receipt import Receipt
from veen.hub.config import Settings
from veen.hub.explain import Explained, Explainer
from veen.hub.home import SECRETS
from veen.storage import Reader, RealFilesystem, fork
from veen.storage.directory import read_public


def explain_all(
    place: Path, refused: list[Msg], at: int, settings: Settings = SETTINGS
) -> tuple[dict[int, list[Explained]], list[Explained]]:
    """Explain every entry of every label, and messages that are sent at a time."""
    fs = RealFilesystem(place)
    reader = Reader.open(fs)
    try:
        explainer = Explainer(reader, *read_public(fs), settings)
        reserved = {labels.authorize_label(reader.store.hub_id), labels.control_label(reader.store.hub_id)}
        entries = {
            nth: [explainer.entry(label, seq) for seq in range(1, reader.last_seq(label) + 1)]
            for nth, label in enumerate(sorted(set(reader.labels()) - reserved))
        }
        return entries, [explainer.message(item.encode(), at) for item in refused]
    finally:
        reader.close()
        fs.close()


def test_what_the_hub_decided_is_decided_again(tmp_path: Path) -> None:
    place = tmp_path / "hub"
    last = NOW + 30

    async def run() -> tuple[list[Msg], list[ErrorEnvelope]]:
        async with inside(place, SETTINGS, NOW) as hub:
            await hub.authorize(TOKEN)
            messages = story(hub.hub.home.identity.hub_id)
            for at in range(0, 40, 5):
                hub.now[0] = NOW + at // 10
                await hub.submit(messages[at : at + 5])
            for later in (10, 15, 20, 25):  # what was too early or too fast gets in
                hub.now[0] = NOW + later
                await hub.submit(messages)
            hub.now[0] = last
            again = await hub.submit(messages)  # now all of them are refused: used, or out of turn
            errors = [outcome for outcome in again if isinstance(outcome, ErrorEnvelope)]
            assert len(errors) == len(messages)
            return messages, errors

    messages, errors = asyncio.run(run())
    (place / SECRETS).unlink()
    entries, explained = explain_all(place, messages, last)
    assert sum(map(len, entries.values())) > 10
    assert all(item.accepted for items in entries.values() for item in items)
    for found, error in zip(explained, errors, strict=True):
        assert found.error is not None
        assert ErrorEnvelope.of(found.error, retry_after=error.retry_after) == error


def test_trust_and_revocation_count_from_their_time_on(tmp_path: Path) -> None:
    place = tmp_path / "hub"

    async def run() -> Msg:
        async with inside(place, SETTINGS, NOW) as hub:
            await hub.authorize(TOKEN)
            label = labels.label(hub.hub.home.identity.routing_key, labels.stream_id("stream 0"), 0)
            sent = [
                message(client="client 0", label=label, client_seq=seq, auth_ref=TOKEN.auth_ref)
                for seq in (1, 2)
            ]
            assert isinstance((await hub.submit(sent[:1]))[0], Receipt)
            await hub.revoke(
                RevocationRecord(target_kind=Target.AUTH_REF.value, target=TOKEN.auth_ref, ts=NOW + 5)
            )
            hub.now[0] = NOW + 5
            refused = (await hub.submit(sent[1:]))[0]
            assert isinstance(refused, ErrorEnvelope)
            assert (refused.detail or {})["detail_enum"] == "REVOKED"
            return sent[1]

    late = asyncio.run(run())
    entries, explained = explain_all(place, [late], NOW + 5)
    assert entries[0][0].accepted, "it came before the revocation"
    assert explained[0].error is not None
    assert explained[0].error.detail.value == "REVOKED"


def test_an_entry_between_two_orders_of_its_second_is_explained(tmp_path: Path) -> None:
    place = tmp_path / "hub"
    nobody = SETTINGS.model_copy(update={"trust_issuers": ()})

    async def run() -> None:
        async with inside(place, nobody, NOW) as hub:
            await hub.trust("issuer")
            await hub.authorize(TOKEN)
            label = labels.label(hub.hub.home.identity.routing_key, labels.stream_id("stream 0"), 0)
            sent = message(client="client 0", label=label, client_seq=1, auth_ref=TOKEN.auth_ref)
            assert isinstance((await hub.submit([sent]))[0], Receipt)
            await hub.trust("issuer", trusted=False)

    asyncio.run(run())
    entries, _ = explain_all(place, [], NOW, nobody)
    assert entries[0][0].accepted, "it came before the trust was taken back"


def test_rows_before_the_failing_one_have_passed_and_those_behind_it_were_not_reached(tmp_path: Path) -> None:
    place = tmp_path / "hub"

    async def run() -> Msg:
        async with inside(place, SETTINGS, NOW) as hub:
            messages = story(hub.hub.home.identity.hub_id)
            await hub.submit(messages[1:2])
            return messages[1]

    again = asyncio.run(run())
    _, explained = explain_all(place, [again], NOW)
    results = {row.detail.value: result for row, result in explained[0].rows}
    assert results["SIG_INVALID"] == results["PREV_ACK"] == "passed"
    assert results["DUPLICATE"].startswith("failed: the message is already in the log, as entry 1")
    assert results["CLIENT_SEQ"] == results["EPOCH"] == "not reached"
    assert results["CAP_TTL"] == "no token"


def test_the_command(tmp_path: Path) -> None:
    place = tmp_path / "hub"

    async def run() -> bytes:
        async with inside(place, SETTINGS, NOW) as hub:
            messages = story(hub.hub.home.identity.hub_id)
            await hub.submit(messages[1:2])
            return messages[1].encode()

    data = asyncio.run(run())
    (place / SECRETS).unlink()
    entry = veen("hub", "explain", "1", "--data-dir", place, "--json")
    assert entry.returncode == 0, entry.stderr
    found = json.loads(entry.stdout)
    assert found["accepted"]
    assert [row["row"] for row in found["rows"]][:3] == ["1", "2", "3"]
    file = tmp_path / "message.cbor"
    file.write_bytes(data)
    again = veen("hub", "explain", file, "--data-dir", place, "--at", str(NOW))
    assert again.returncode == 4
    assert "DUPLICATE         failed: " in again.stdout
    file.write_bytes(b"\xff")
    assert veen("hub", "explain", file, "--data-dir", place).returncode == 4
    missing = veen("hub", "explain", tmp_path / "nothing", "--data-dir", place)
    assert missing.returncode == 1
    assert "cannot be read" in missing.stderr
    assert veen("hub", "explain", "7", "--data-dir", place).returncode == 4
    assert veen("hub", "explain", "7", "--data-dir", tmp_path / "nowhere").returncode == 1
    for words in ("zz", "00" * 31, "0" * 63 + "x", " " + "00" * 32):
        wrong = veen("hub", "explain", "1", "--data-dir", place, "--label", words)
        assert (wrong.returncode, wrong.stdout) == (1, "")
        assert wrong.stderr == f"veen: --label takes 64 hex digits, not {words!r}\n"


# --- rules of their time, and labels that a fork has closed -------------------------------------------------


def settings(require_cap: str) -> Settings:
    issuer = builders.verify_key("issuer").hex()
    return Settings.model_validate(
        {"verify_workers": 0, "trust_issuers": [issuer], "require_cap": require_cap}
    )


@contextmanager
def reading(place: Path) -> Iterator[tuple[RealFilesystem, Reader]]:
    fs = RealFilesystem(place)
    reader = Reader.open(fs)
    try:
        yield fs, reader
    finally:
        reader.close()
        fs.close()


def test_an_entry_is_explained_with_the_rule_of_its_time(tmp_path: Path) -> None:
    """The time of a change is the machine's: entries are made before and after it."""
    place = tmp_path / "hub"
    now = int(time())
    sent: list[Msg] = []

    async def run(require_cap: str, at: int, *, with_token: bool) -> None:
        async with inside(place, settings(require_cap), at) as hub:
            label = labels.label(hub.hub.home.identity.routing_key, labels.stream_id("stream 0"), 0)
            if with_token:
                await hub.authorize(TOKEN)
            auth = TOKEN.auth_ref if with_token else None
            made = message(client="client 0", label=label, client_seq=len(sent) + 1, auth_ref=auth)
            assert isinstance((await hub.submit([made]))[0], Receipt)
            sent.append(made)

    asyncio.run(run("false", now - 1000, with_token=False))
    asyncio.run(run("true", now + 1000, with_token=True))
    with reading(place) as (fs, reader):
        explainer = Explainer(reader, *read_public(fs), settings("true"))
        label = sent[0].label
        before, after = explainer.entry(label, 1), explainer.entry(label, 2)
        assert (before.accepted, before.facts["require_cap"]) == (True, "no")
        assert (after.accepted, after.facts["require_cap"]) == (True, "yes")
        late = message(client="client 1", label=label, client_seq=1)
        refused = explainer.message(late.encode(), now + 2000)
        assert not refused.accepted
        assert refused.error is not None
        assert refused.error.detail is Detail.CAP_MISSING
        assert explainer.message(late.encode(), now - 500).accepted


def test_a_message_to_a_label_of_a_fork_s_parent_is_explained_as_the_hub_refuses_it(tmp_path: Path) -> None:
    place, target = tmp_path / "hub", tmp_path / "fork"

    async def run() -> Msg:
        async with inside(place, settings("false"), 1_900_000_000) as hub:
            label = labels.label(hub.hub.home.identity.routing_key, labels.stream_id("stream 0"), 0)
            first, second = (message(client="client 0", label=label, client_seq=seq) for seq in (1, 2))
            assert isinstance((await hub.submit([first]))[0], Receipt)
            hub.hub.writer.checkpoint(label, 1)
            return second

    second = asyncio.run(run())
    with reading(place) as (fs, reader):
        public = read_public(fs)
        files = RealFilesystem(target)
        fork(reader, files, builders.hub_id("another hub"))
        files.close()
    with reading(target) as (_, reader):
        explainer = Explainer(reader, *public, settings("false"))
        found = explainer.message(second.encode(), 1_900_000_001)
        assert found.error is not None
        assert (found.error.code, found.error.detail) == (Code.AUTH, Detail.AUTH_REF)
        assert {row.detail: result for row, result in found.rows}[Detail.AUTH_REF].startswith("failed")
        new = message(client="client 0", label=builders.some_label("new"), client_seq=1)
        assert explainer.message(new.encode(), 1_900_000_001).accepted
