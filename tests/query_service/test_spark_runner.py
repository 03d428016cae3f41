"""The whole of it with Spark: a hub, a service that takes in its log, a client, and somebody who verifies."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.participants import make_home
from tests.hub.hub_process import HubProcess
from tests.pipeline.commands import veen
from tests.query import reference
from tests.query_service.service_process import Service, recorded, until
from tests.query_service.test_server_outages import free_port
from veen.client.client import Client
from veen.client.fold.interpret import typed
from veen.client.models import SendOptions
from veen.client.send import send_drafts
from veen.overlays.recorder.schemas import EVENT
from veen.query.descriptor import Mode
from veen.query.digest import EvidenceHasher
from veen.query.fields import Event
from veen.query_service.grants import grant
from veen.query_service.store import Kind

LOGINS, OTHER = "record/app/logins", "record/app/other"
#: A stream of another zone, whose copies would be in OTHER.
THEIRS = "record/app/theirs"


def emit(place: Path, hub: str, stream: str, numbers: range) -> None:
    with Client.open(place / "client", hub) as client:
        key = client.session.secrets.client.signing_key.public_key.hex()
        drafts = [
            typed(
                EVENT,
                EVENT.make(
                    subject_id=f"user-{n % 7}",
                    principal_id=key,
                    event_type="login" if n % 3 else "logout",
                    event_time=1_799_999_000 + n,
                    origin="web",
                    payload={"n": n},
                ),
            )
            for n in numbers
        ]
        assert len(list(send_drafts(client, stream, drafts, SendOptions(keep_key=True)))) == len(drafts)


def events(place: Path, hub: str, stream: str) -> list[Event]:
    """Return what the log has, as the reference takes it."""
    found = []
    with Client.open(place / "client", hub) as client:
        for message in client.read(stream):
            body = EVENT.decode(message.raw_body())
            found.append(
                Event(
                    stream=stream,
                    epoch=0,
                    seq=message.position,
                    hub_ts=message.receipt.hub_ts,
                    payload=json.dumps(body.pop("payload")),
                    metadata=None,
                    receipt_id=b"",
                    **body,
                )
            )
    return found


class World:
    def __init__(self, place: Path, hub: HubProcess) -> None:
        self.place, self.hub = place, hub
        make_home(place / "client")
        (place / "token").write_text(grant(place / "policy.toml", "alice", ["record/app/*"]))
        self.token = (place / "token").read_text()
        emit(place, hub.url, LOGINS, range(40))

    def serving(self, log: str = "") -> Service:
        """Return a service of the hub; ``log`` is the hub's directory, unless it is given."""
        words = {
            "--lake": "lake",
            "--state": "state",
            "--policy": "policy.toml",
            "--client": "client",
            "--keyring": "client",
        }
        command = [
            sys.executable,
            "-m",
            "veen.cli.main",
            "query",
            "serve",
            "--json",
            "--listen",
            "127.0.0.1:0",
        ]
        for name, value in words.items():
            command += [name, str(self.place / value)]
        command += ["--hub", self.hub.url, "--log", log or str(self.hub.place), "--map", f"{THEIRS}={OTHER}"]
        for stream in ("record/query/requests", "record/query/results"):
            command += ["--stream", stream]
        return Service(self.place, self.hub.url, tuple(command))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    place = tmp_path_factory.mktemp("spark")
    with HubProcess(place / "hub") as hub:
        yield World(place, hub)


def answer(service: Service, token: str, result_id: str) -> dict[str, Any]:
    assert service.wait(token, result_id, "completed", "failed")["status"] == "completed"
    found: dict[str, Any] = service.ask(token, f"result/{result_id}").json
    return found


def test_answers_are_those_of_the_log_and_can_be_verified_from_it(world: World) -> None:
    place, hub, token = world.place, world.hub, world.token
    with world.serving() as service:
        first = service.submit(
            token,
            scope=[LOGINS],
            query_id="first",
            projection=["payload.n", "subject_id"],
            evidence={"mode": "full"},
        )
        found = answer(service, token, first)
        (place / "digest.json").write_text(json.dumps(found))
        asked = service.ask(token, "descriptor/first")
        (place / "asked.json").write_bytes(asked.body)
        rows = reference.answer(asked.json["descriptor"], events(place, hub.url, LOGINS))
        assert found["rows"] == rows
        assert found["result_digest"]["rows_hash"] == reference.rows_hash(rows)
        # What comes later is seen by later queries, streams that nobody has named before too.
        emit(place, hub.url, LOGINS, range(40, 60))
        emit(place, hub.url, OTHER, range(5))
        count = service.submit(token, scope=[LOGINS, OTHER], aggregate={"metrics": ["count"]})
        assert answer(service, token, count)["rows"] == [{"count": 65}]
        missing = service.ask(token, "submit", {"scope": ["record/app/none"]})
        assert missing.error == (403, "forbidden_scope")
        copies = service.submit(token, scope=[THEIRS], aggregate={"metrics": ["count"]})
        assert answer(service, token, copies)["rows"] == [{"count": 0}]
        until(lambda: len(list(recorded(place, hub.url, Kind.AUDIT))) == 3, "three audit records")
        assert service.terminate() == 0
    # All that an auditor gets is a set of files, and a key that opens them.
    exported = veen("export", "--hub", hub.place, "--stream", LOGINS, "--out", place / "set")
    assert exported.returncode == 0, exported.stderr
    log = ("query", "verify", place / "set", "--keyring", place / "client", "--json")
    files = ("--descriptor", place / "asked.json", "--digest")
    equal = veen(*log, *files, place / "digest.json")
    assert equal.returncode == 0, equal.stderr
    assert json.loads(equal.stdout)["equal"] is True
    # A digest that passes over what there was is not that of the answer, though it fits to itself.
    hasher = EvidenceHasher("first", first, Mode.FULL, None)
    empty = {"upto": [], "row_count": 0, "rows_hash": reference.rows_hash([])}
    found["result_digest"] |= empty | {"evidence_hash": hasher.evidence_hash}
    (place / "wrong.json").write_text(json.dumps(found))
    differs = veen("query", "verify", "--lake", place / "lake", *files, place / "wrong.json", "--json")
    assert differs.returncode == 4, differs.stderr
    items = json.loads(differs.stdout)["items"]
    assert [name for name, item in items.items() if not item["equal"]] == ["left_out"]
    assert items["descriptor"]["equal"] is True, "it is compared with the one that is recorded"


def test_a_service_starts_while_its_log_can_not_be_reached(tmp_path: Path) -> None:
    listen = f"127.0.0.1:{free_port()}"
    with HubProcess(tmp_path / "hub", "--listen", listen) as hub:
        world = World(tmp_path, hub)
    with world.serving(log=hub.url) as service:
        until(lambda: "log-not-taken-in" in service.log.read_text(), "the line of the log")
        with HubProcess(tmp_path / "hub", "--listen", listen):
            asked = service.submit(world.token, scope=[LOGINS], aggregate={"metrics": ["count"]})
            assert answer(service, world.token, asked)["rows"] == [{"count": 40}]
            assert service.terminate() == 0
