"""Verdicts computed again with the rules of their time, and of labels that a fork has closed."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import time

from tests import builders
from tests.hub.inside import inside
from tests.hub.test_determinism import TOKEN, message
from veen.core import labels
from veen.core.errors import Code, Detail
from veen.core.msg import Msg
from veen.core.receipt import Receipt
from veen.hub.config import Settings
from veen.hub.explaining import Explainer
from veen.storage import Reader, RealFilesystem, fork
from veen.storage.public import read_public


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
