"""Equal log, configuration, bytes and clock give equal verdicts and receipts, also on a clone (C-67)."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import builders
from tests.hub.hub_without_sockets import Outcome, copy_with_secrets, inside
from veen.core.objects import labels
from veen.core.objects.capability import CapToken
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.core.objects.msg import Msg
from veen.core.objects.receipt import Receipt
from veen.core.types import HubId, RoutingKey
from veen.hub.config import Settings

NOW = 1_900_000_000
SETTINGS = Settings.model_validate(
    {"verify_workers": 0, "trust_issuers": [builders.verify_key("issuer").hex()], "require_cap": "false"}
)
TOKEN = CapToken.mint(
    builders.signing_key("issuer"),
    builders.verify_key("client 0"),
    stream_ids=[labels.stream_id("stream 0")],
    ttl=100,
    rate=builders.rate(1, 1),
)


def message(**context: Any) -> Msg:
    return builders.msg(builders.context(**context), signer=context["client"])


def routing(hub_id: bytes) -> RoutingKey:
    return labels.routing_key(HubId(hub_id))


def story(hub_id: bytes) -> list[Msg]:
    """Return messages of which some are refused, for many reasons."""
    made = []
    for nth in range(40):
        client, stream = f"client {nth % 3}", f"stream {nth % 2}"
        label = labels.label(routing(hub_id), labels.stream_id(stream), 0)
        uses_token = nth % 3 == 0 and stream == "stream 0"
        made.append(
            message(
                client=client,
                label=label,
                client_seq=nth // 6 + 1 + (nth % 11 == 7),  # now and then one too many
                prev_ack=nth // 9,
                auth_ref=TOKEN.auth_ref if uses_token else None,
            )
        )
    return made


async def tell(place: Path, sizes: Sequence[int], *, workers: int = 0, skip: int = 0) -> list[Outcome]:
    """Submit the story in groups of these sizes; the clock follows the messages, not the groups."""
    outcomes: list[Outcome] = []
    async with inside(place, SETTINGS.model_copy(update={"verify_workers": workers}), NOW) as hub:
        messages = story(hub.hub.home.identity.hub_id)
        if not skip:
            await hub.authorize(TOKEN)
        at = skip
        while at < len(messages):
            size = sizes[at % len(sizes)]
            # Groups do not cross the points at which the clock moves.
            group = messages[at : min(at + size, (at // 10 + 1) * 10)]
            hub.now[0] = NOW + at // 10
            outcomes += await hub.submit(group)
            at += len(group)
    return outcomes


def bytes_of(outcomes: Sequence[Outcome]) -> list[bytes]:
    return [outcome.encode() for outcome in outcomes]


@pytest.mark.parametrize(("sizes", "workers"), [((1,), 0), ((3, 10, 1), 0), ((10,), 1)])
def test_batches_and_workers_make_no_difference(tmp_path: Path, sizes: tuple[int, ...], workers: int) -> None:
    expected = asyncio.run(tell(tmp_path / "reference", (10,)))
    found = asyncio.run(tell(tmp_path / "other", sizes, workers=workers))
    assert bytes_of(found) == bytes_of(expected)
    codes = {outcome.code for outcome in expected if isinstance(outcome, ErrorEnvelope)}
    assert codes >= {"E.SEQ", "E.RATE"}, "the story has refusals of several kinds"
    assert sum(isinstance(outcome, Receipt) for outcome in expected) > 10


def test_a_clone_decides_the_same(tmp_path: Path) -> None:
    whole = asyncio.run(tell(tmp_path / "whole", (5,)))

    async def first_half(place: Path) -> None:
        async with inside(place, SETTINGS, NOW) as hub:
            await hub.authorize(TOKEN)
            messages = story(hub.hub.home.identity.hub_id)
            for at in range(0, 20, 5):
                hub.now[0] = NOW + at // 10
                await hub.submit(messages[at : at + 5])

    asyncio.run(first_half(tmp_path / "half"))
    copy_with_secrets(tmp_path / "half", tmp_path / "clone")
    rest = asyncio.run(tell(tmp_path / "clone", (5,), skip=20))
    assert bytes_of(rest) == bytes_of(whole[20:])


def test_the_clock_of_the_log_never_goes_back(tmp_path: Path) -> None:
    async def run() -> list[Outcome]:
        async with inside(tmp_path / "hub", SETTINGS, NOW) as hub:
            messages = story(hub.hub.home.identity.hub_id)
            first = await hub.submit(messages[1:2])
            hub.now[0] = NOW - 3600
            gauges = hub.hub.metrics.gauges
            second = await hub.submit(messages[2:3])
            assert gauges["veen_clock_behind_seconds"][1]() == 3600
            return first + second

    receipts = asyncio.run(run())
    assert [outcome.hub_ts for outcome in receipts if isinstance(outcome, Receipt)] == [NOW, NOW]
