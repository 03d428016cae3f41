"""What admins revoke is in the control log: on time, once, in every epoch, and whatever happens (C-107)."""

import asyncio
import errno
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import builders
from tests.hub.hub_without_sockets import Inside, Outcome, copy_with_secrets, inside
from tests.storage.checks import Faulty
from veen.core.objects import labels
from veen.core.objects.capability import CapToken
from veen.core.objects.control_record import Target
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.core.objects.msg import Msg
from veen.hub.config import Settings
from veen.hub.explain import Explainer
from veen.hub.home import Home
from veen.hub.metrics import TimedFilesystem
from veen.storage import Reader, RealFilesystem

if TYPE_CHECKING:
    from veen.hub.read.thread_pool import Job

from tests.hub.admins import ADMIN, ISSUER, VICTIM, Admin
from veen.core.objects.control_record import REVOCATION_STREAM as STREAM

NOW = 1_900_000_000
EPOCH_SEC = 60


def settings(**more: Any) -> Settings:
    given = {"verify_workers": 0, "require_cap": "false", "trust_issuers": [ISSUER], "admins": [ADMIN]}
    return Settings.model_validate({**given, **more})


def refusals(outcomes: list[Outcome]) -> list[tuple[str, object] | None]:
    """Return code and detail of each that was refused."""
    return [
        (item.code, (item.detail or {})["detail_enum"]) if isinstance(item, ErrorEnvelope) else None
        for item in outcomes
    ]


# --- time ---------------------------------------------------------------------------------------------------


def write(
    hub: Inside, client: str, client_seq: int, token: CapToken | None = None, epoch_sec: int = 0
) -> Msg:
    """Make a message of a client on the stream that all may write to."""
    epoch = labels.epoch_at(hub.now[0], epoch_sec)
    context = builders.context(
        profile_id=builders.profile(epoch_sec=epoch_sec).profile_id,
        label=labels.label(hub.hub.home.identity.routing_key, builders.stream(), epoch),
        client=client,
        client_seq=client_seq,
        auth_ref=None if token is None else token.auth_ref,
    )
    return builders.msg(context, signer=client)


def control_records(hub: Inside) -> int:
    return hub.hub.reader.last_seq(labels.control_label(hub.hub.home.identity.hub_id))


REVOKED = ("E.AUTH", "REVOKED")


def test_a_revocation_begins_and_ends_at_its_time(tmp_path: Path) -> None:
    async def run() -> None:
        async with inside(tmp_path / "hub", settings(), NOW) as hub:
            admin = Admin(hub.hub.home.identity)
            await hub.submit([admin.revoke(Target.CLIENT_ID, VICTIM, ts=NOW + 10, ttl=5)])
            found: list[tuple[str, object] | None] = []
            for later in (0, 9, 10, 14, 15, 100):
                hub.now[0] = NOW + later
                seq = 1 + sum(item is None for item in found)
                found += refusals(await hub.submit([write(hub, "victim", seq)]))
            assert found == [None, None, REVOKED, REVOKED, None, None]

    asyncio.run(run())


def test_what_is_sent_behind_the_receipt_of_an_order_meets_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with inside(tmp_path / "hub", settings(), NOW) as hub:
            admin = Admin(hub.hub.home.identity)
            for nth in range(20):
                name = f"victim {nth}"
                assert refusals(await hub.submit([write(hub, name, 1)])) == [None]
                await hub.submit([admin.revoke(Target.CLIENT_ID, builders.verify_key(name))])
                assert refusals(await hub.submit([write(hub, name, 2)])) == [REVOKED]

    asyncio.run(run())


# --- the end of a process -----------------------------------------------------------------------------------


def test_a_revocation_holds_after_a_restart_and_is_on_record_once(tmp_path: Path) -> None:
    place = tmp_path / "hub"

    async def run() -> None:
        async with inside(place, settings(), NOW) as hub:
            admin = Admin(hub.hub.home.identity)
            await hub.submit([admin.revoke(Target.CLIENT_ID, VICTIM)])
        for _ in range(2):
            async with inside(place, settings(), NOW) as hub:
                assert refusals(await hub.submit([write(hub, "victim", 1)])) == [REVOKED]
                assert control_records(hub) == 1
        async with inside(place, settings(admins=[]), NOW) as hub:  # who is admin no more has been one
            assert refusals(await hub.submit([write(hub, "victim", 1)])) == [REVOKED]

    asyncio.run(run())


@pytest.mark.parametrize("abandoned", [False, True], ids=["stopped", "killed"])
def test_what_was_committed_and_not_recorded_is_caught_up_at_the_start(
    tmp_path: Path, *, abandoned: bool
) -> None:
    """A hub that takes the messages and does not read them leaves what a crash between the two leaves."""
    place = tmp_path / "hub"

    async def run() -> None:
        async with inside(place, settings(admins=[]), NOW) as hub:
            admin, stranger = Admin(hub.hub.home.identity), Admin(hub.hub.home.identity, "stranger")
            orders = [
                stranger.revoke(Target.CLIENT_ID, builders.verify_key("kept")),
                admin.revoke(Target.CLIENT_ID, VICTIM),
                admin.order(b"garbage"),
                *(admin.revoke(Target.AUTH_REF, builders.digest(f"token {nth}")) for nth in range(70)),
                stranger.order(b"garbage"),
            ]
            assert set(refusals(await hub.submit(orders))) == {None}
            assert refusals(await hub.submit([write(hub, "victim", 1)])) == [None]
            hub.abandoned = abandoned
        for nth in range(2):
            async with inside(place, settings(), NOW) as hub:
                assert control_records(hub) == 71
                assert refusals(await hub.submit([write(hub, "victim", 2)])) == [REVOKED]
                assert refusals(await hub.submit([write(hub, "kept", 1 + nth)])) == [None]
                assert hub.hub.metrics.control_ignored == {"CBOR_INVALID": 1}

    asyncio.run(run())


def test_some_were_recorded_and_some_were_not(tmp_path: Path) -> None:
    place = tmp_path / "hub"

    async def run() -> None:
        targets = [builders.verify_key(f"victim {nth}") for nth in range(4)]
        async with inside(place, settings(), NOW) as hub:
            admin = Admin(hub.hub.home.identity)
            await hub.submit([admin.revoke(Target.CLIENT_ID, target) for target in targets[:2]])
        async with inside(place, settings(admins=[]), NOW) as hub:
            await hub.submit([admin.revoke(Target.CLIENT_ID, target) for target in targets[2:]])
            assert control_records(hub) == 2
        async with inside(place, settings(), NOW) as hub:
            assert control_records(hub) == 4
            sent = [write(hub, f"victim {nth}", 1) for nth in range(5)]
            assert refusals(await hub.submit(sent)) == [REVOKED] * 4 + [None]

    asyncio.run(run())


class FaultyHubFiles(Faulty, TimedFilesystem):
    """A disk on which any operation can fail."""


def test_a_full_disk_only_delays(tmp_path: Path) -> None:
    disk = FaultyHubFiles(tmp_path / "hub")

    async def run() -> None:
        async with inside(tmp_path / "hub", settings(), NOW, fs=disk) as hub:
            admin, plane = Admin(hub.hub.home.identity), hub.hub.control_plane
            turns: list[Job] = []
            order = admin.revoke(Target.CLIENT_ID, VICTIM)

            def full() -> None:
                disk.fail("append", "journal", errno.ENOSPC)

            # Behind the order's own commit, and before the turn in which it is read.
            hub.hub.long_polls.add(order.label, 10, lambda: hub.hub.turn(full, turns.append))
            await hub.submit([order])
            hub.hub.turn(disk.heal, turns.append)
            # The hub tries again by itself within a second: on a slow machine that may be now.
            early = refusals(await hub.submit([write(hub, "victim", 1)]))
            assert early in ([None], [REVOKED])
            assert [turn.error for turn in turns] == [None, None]
            hub.hub.check()
            again = write(hub, "victim", 2 if early == [None] else 1)
            assert refusals(await hub.submit([again])) == [REVOKED]
            assert control_records(hub) == 1
            assert order.leaf_hash in plane.applied

    asyncio.run(run())


# --- epochs -------------------------------------------------------------------------------------------------


def test_orders_count_in_every_epoch(tmp_path: Path) -> None:
    place = tmp_path / "hub"
    rotating = {"epoch_sec": EPOCH_SEC, "streams": ["stream"]}

    async def run() -> None:
        async with inside(place, settings(**rotating), NOW) as hub:
            admin = Admin(hub.hub.home.identity, epoch_sec=EPOCH_SEC)
            for nth in range(3):
                hub.now[0] = NOW + nth * EPOCH_SEC
                order = admin.revoke(Target.CLIENT_ID, builders.verify_key(f"victim {nth}"), at=hub.now[0])
                assert refusals(await hub.submit([order])) == [None]
                sent = write(hub, f"victim {nth}", 1, epoch_sec=EPOCH_SEC)
                assert refusals(await hub.submit([sent])) == [REVOKED]
        off = {**rotating, "streams": ["stream", STREAM.hex()], "admins": []}
        async with inside(place, settings(**off), NOW + 5 * EPOCH_SEC) as hub:  # nobody reads these
            for nth in range(3, 6):
                hub.now[0] = NOW + (2 + nth) * EPOCH_SEC
                order = admin.revoke(Target.CLIENT_ID, builders.verify_key(f"victim {nth}"), at=hub.now[0])
                assert refusals(await hub.submit([order])) == [None]
            assert control_records(hub) == 3
        async with inside(place, settings(**rotating), NOW + 100 * EPOCH_SEC) as hub:
            assert control_records(hub) == 6
            sent_now = [write(hub, f"victim {nth}", 1, epoch_sec=EPOCH_SEC) for nth in range(7)]
            assert refusals(await hub.submit(sent_now)) == [REVOKED] * 6 + [None]

    asyncio.run(run())


def test_an_order_on_the_edge_of_an_epoch_counts(tmp_path: Path) -> None:
    """Labels of the epochs around now are open too, if the clocks may differ."""
    rotating = {"epoch_sec": EPOCH_SEC, "streams": ["stream"], "limits": {"max_epoch_skew_sec": EPOCH_SEC}}

    async def run() -> None:
        async with inside(tmp_path / "hub", settings(**rotating), NOW) as hub:
            admin = Admin(hub.hub.home.identity, epoch_sec=EPOCH_SEC)
            for nth, ahead in enumerate((-EPOCH_SEC, 0, EPOCH_SEC)):
                victim = f"victim {nth}"
                order = admin.revoke(Target.CLIENT_ID, builders.verify_key(victim), at=NOW + ahead)
                assert refusals(await hub.submit([order])) == [None]
                assert refusals(await hub.submit([write(hub, victim, 1, epoch_sec=EPOCH_SEC)])) == [REVOKED]

    asyncio.run(run())


# --- the same again -----------------------------------------------------------------------------------------


def test_hubs_of_one_log_decide_the_same_whoever_their_admins_are(tmp_path: Path) -> None:
    async def begin() -> None:
        async with inside(tmp_path / "first", settings(), NOW) as hub:
            admin = Admin(hub.hub.home.identity)
            await hub.submit([write(hub, "victim", 1), write(hub, "other", 1)])
            await hub.submit([admin.revoke(Target.CLIENT_ID, VICTIM, ts=NOW, ttl=20)])

    async def go_on(place: Path, chosen: Settings) -> list[Outcome]:
        found = []
        async with inside(place, chosen, NOW + 1) as hub:
            for nth, later in enumerate((1, 19, 20)):
                hub.now[0] = NOW + later
                found += await hub.submit([write(hub, "victim", 2), write(hub, "other", 2 + nth)])
        return found

    asyncio.run(begin())
    for name in ("second", "third"):
        copy_with_secrets(tmp_path / "first", tmp_path / name)
    expected = asyncio.run(go_on(tmp_path / "first", settings()))
    assert asyncio.run(go_on(tmp_path / "second", settings())) == expected
    assert asyncio.run(go_on(tmp_path / "third", settings(admins=[]))) == expected
    assert refusals(expected) == [REVOKED, None, REVOKED, None, None, None]


def test_verdicts_are_explained_from_files_alone(tmp_path: Path) -> None:
    place = tmp_path / "hub"

    async def run() -> tuple[Home, Msg, list[Outcome]]:
        async with inside(place, settings(), NOW) as hub:
            admin = Admin(hub.hub.home.identity)
            await hub.submit([write(hub, "victim", 1)])
            hub.now[0] = NOW + 5
            await hub.submit([admin.revoke(Target.CLIENT_ID, VICTIM, ts=NOW - 100)])  # looks back, too late
            hub.now[0] = NOW + 10
            late = write(hub, "victim", 2)
            return hub.hub.home, late, await hub.submit([late])

    home, late, refused = asyncio.run(run())
    assert refusals(refused) == [REVOKED]
    fs = RealFilesystem(place)
    reader = Reader.open(fs)
    try:
        explainer = Explainer(reader, home.identity, home.settings, settings())
        assert explainer.entry(late.label, 1).accepted
        assert explainer.entry(labels.label(home.identity.routing_key, STREAM, 0), 1).accepted
        again = explainer.message(late.encode(), NOW + 10)
        assert again.error is not None
        assert ErrorEnvelope.of(again.error) == refused[0]
        assert {row.detail.value: said for row, said in again.rows}["REVOKED"].startswith("failed")
    finally:
        reader.close()
        fs.close()
