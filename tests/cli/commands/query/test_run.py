"""``veen query run`` and ``veen query verify`` over a lake and a log, in this process."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.cli.command_runner import User
from tests.hub.hub_process import HubProcess
from tests.pipeline.lake.lake_builder import secrets
from tests.pipeline.log_builder import Hub
from tests.pipeline.query.event_log import EPOCH_SEC, Recorded, asked, record_some
from veen.client.home.directory import ClientHome
from veen.pipeline.query.engine import Engine
from veen.query.descriptor import normalize

APP = "record/app"
REQUESTS, RESULTS = "record/query/requests", "record/query/results"
STREAMS = (APP, REQUESTS, RESULTS)


class World:
    """A log with events and with queries that somebody has asked, and the lake of it."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.place = place
        self.made = Recorded(Hub(place / "hub", epoch_sec=EPOCH_SEC))
        record_some(self.made, [APP], 25, seed=2)
        lake = self.made.lake(spark, place / "before", STREAMS)
        self.query = asked([APP], evidence={"mode": "full"})
        self.answer = Engine(spark, lake).run(
            self.query, result_id="r-1", out=place / "rows", executed_at=1_900_000_000
        )
        # Others write too: first who has answered, then somebody else, with words of his own.
        self._record(REQUESTS, "query.submitted", self.query.encode().decode())
        self._record(REQUESTS, "query.submitted", "no JSON", client="bob")
        other = normalize({"query_id": "q-1", "scope": [APP], "projection": ["payload"]}, lambda: "q-1")
        self._record(REQUESTS, "query.submitted", other.encode().decode(), client="bob")
        self._record(RESULTS, "query.result", "no digest", client="bob")
        self._record(RESULTS, "query.result", self.answer.digest.encode().decode())
        self.lake = self.made.lake(spark, place / "lake", STREAMS)
        self.made.hub.close()
        for name, streams in (("keys", STREAMS), ("no keys", ())):
            ClientHome.create(place / name, secrets(streams), now=1_000)
        self.user = User(place)

    def _record(self, stream: str, event_type: str, text: str, client: str = "ann") -> None:
        self.made.record(
            stream, client=client, event_type=event_type, payload=text, metadata={"result_id": "r-1"}
        )

    def write(self, name: str, value: Any) -> Path:
        path = self.place / name
        path.write_text(json.dumps(value))
        return path

    def verify(self, *words: str | Path) -> tuple[int, Any, str]:
        done = self.user.run("query", "verify", *words, "--json")
        return done.exit_code, json.loads(done.stdout), done.stderr


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(spark, tmp_path_factory.mktemp("commands"))


def differing(report: Any) -> list[str]:
    return [name for name, item in report["items"].items() if not item["equal"]]


def test_what_run_prints_can_be_verified_from_the_log(world: World) -> None:
    query = world.write("asked.json", {"scope": [APP], "evidence": {"mode": "spot", "sample_rate": 0.5}})
    answer = world.write(
        "answer.json", world.user.ok("query", "run", query, "--lake", world.lake, "--unrecorded")
    )
    files = ("--descriptor", answer, "--digest", answer)
    hub = world.made.hub.root
    code, report, _ = world.verify(hub, "--keyring", world.place / "keys", *files)
    assert (code, report["ok"], differing(report), report["notes"]) == (0, True, [], [])

    # Who can read nothing is not told that nothing is what there was.
    empty = json.loads(answer.read_text())
    nothing = world.user.ok(
        "query",
        "run",
        world.write("nobody.json", {"scope": [APP], "filter": {"subject_id": "nobody"}}),
        *("--lake", world.lake, "--unrecorded"),
    )
    empty["result_digest"] |= {name: nothing["result_digest"][name] for name in ("row_count", "rows_hash")}
    empty["descriptor"]["evidence"] = empty["result_digest"]["evidence_policy"] = {"mode": "none"}
    empty["result_digest"]["evidence_hash"] = nothing["result_digest"]["evidence_hash"]
    forged = world.write("empty.json", empty)
    files = ("--descriptor", forged, "--digest", forged)
    code, report, _ = world.verify(hub, "--keyring", world.place / "no keys", *files)
    assert (code, differing(report)) == (4, ["unread"])
    told = world.user.run("query", "verify", hub, "--keyring", world.place / "no keys", *files)
    assert "--keyring" in told.stderr


def test_a_digest_is_found_by_its_name_whatever_others_have_written(world: World) -> None:
    code, report, stderr = world.verify("--lake", world.lake, "--result-id", "r-1")
    assert (code, differing(report)) == (0, []), stderr
    assert report["items"]["descriptor"]["equal"] is True
    missing = world.user.run("query", "verify", "--lake", world.lake, "--result-id", "r-2")
    assert (missing.exit_code, "r-2" in missing.stderr) == (4, True)


def test_the_request_is_the_one_that_was_recorded_first(world: World) -> None:
    """Else whoever may write to the stream could make any question the one that was asked."""
    other = normalize({"query_id": "q-1", "scope": [APP], "projection": ["payload"]}, lambda: "q-1")
    code, report, _ = world.verify(
        *("--lake", world.lake, "--digest", world.write("digest.json", world.answer.digest.to_json())),
        *("--descriptor", world.write("other.json", other.to_json())),
    )
    assert code == 4
    assert "descriptor" in differing(report)


def test_what_a_digest_says_of_hub_and_time_must_fit_the_log(world: World) -> None:
    digest: dict[str, Any] = world.answer.digest.to_json()
    asked_file = world.write("normal.json", world.query.to_json())
    for changed, names in (
        ({"hub_id": "ab" * 32}, ["hub_id"]),
        ({"executed_at": "1970-01-01T00:00:00Z"}, ["executed_at"]),
        ({"upto": digest["upto"][1:]}, ["evidence_hash", "left_out", "row_count", "rows_hash"]),
    ):
        file = world.write("changed.json", {**digest, **changed})
        code, report, _ = world.verify("--lake", world.lake, "--descriptor", asked_file, "--digest", file)
        assert (code, differing(report)) == (4, names)
    file = world.write("banana.json", {**digest, "hub_id": "banana"})
    assert (
        world.user.run(
            "query", "verify", "--lake", world.lake, "--descriptor", asked_file, "--digest", file
        ).exit_code
        == 3
    )


def test_a_name_that_was_used_and_a_file_that_can_not_be_written_are_told_before_anything_is_recorded(
    world: World,
) -> None:
    used = world.write("used.json", {"query_id": "q-1", "scope": [APP]})
    new = world.write("new.json", {"query_id": "q-2", "scope": [APP]})
    with HubProcess(world.place / "recording") as hub:
        base = ("--lake", world.lake, "--hub", hub.url, "--client", world.place / "keys")
        again = world.user.run("query", "run", used, *base, "--json")
        assert (again.exit_code, json.loads(again.stdout)["code"]) == (4, "duplicate_query_id")
        lost = world.user.run("query", "run", new, *base, "--out", world.place / "none" / "rows")
        assert (lost.exit_code, str(world.place / "none") in lost.stderr) == (1, True)
        counted = world.user.run("stream", "--stream", REQUESTS, *base[2:])
        assert counted.stdout == ""
        found = world.user.ok("query", "run", new, *base, "--out", world.place / "rows.jsonl")
        assert found["descriptor"]["query_id"] == "q-2"
        assert len((world.place / "rows.jsonl").read_bytes().splitlines()) == found["rows"] > 0
