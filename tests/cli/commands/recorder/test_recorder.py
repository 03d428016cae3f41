"""``veen recorder`` and ``veen label-class``, as an admin, a producer and an auditor use them."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from socket import gethostname
from time import monotonic

import pytest

from tests.cli.command_runner import User
from tests.hub.hub_process import HubProcess, environment
from veen.cli.commands.recorder.checkpoint import keep_making
from veen.cli.commands.recorder.replay import follow
from veen.client.client import Client
from veen.client.errors import NetworkError, RejectedError
from veen.client.models import Message
from veen.core.errors import Code
from veen.core.objects import labels
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.overlays.recorder.schemas import CHANGES_STREAM, LONG_TERM_SEC
from veen.recorder.cadence import Cadence, Pace

ORDERS, LOGINS = "record/app/orders", "record/security/logins"
EVENT = ("--type", "order", "--subject", "bob", "--origin", "shop")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    config = 'require_cap = "false"\nanchor_backend = "file"\nanchor_ask_sec = 1\n'
    with HubProcess(tmp_path_factory.mktemp("recorder") / "data", config=config) as made:
        yield made


@pytest.fixture(scope="module")
def people(hub: HubProcess, tmp_path_factory: pytest.TempPathFactory) -> dict[str, User]:
    """An admin who has declared two streams, and a producer who reads what it may."""
    place = tmp_path_factory.mktemp("people")
    made = {}
    for name in ("admin", "shop"):
        made[name] = User(place, VEEN_HUB=hub.url, VEEN_CLIENT=str(place / name))
        made[name].ok("keygen", "--out", place / name)
    found = made["admin"].ok(
        "recorder", "init", "--stream", f"{ORDERS}=order,refund", "--stream", f"{LOGINS}=login"
    )
    assert found["declared"] == [ORDERS, LOGINS]
    assert found["labels_kept"] == 4
    shared = made["admin"].ok("recorder", "share", "--to", place / "shop", "--out", place / "keys")
    assert len(shared["files"]) == 5, "two streams, and what the recorder writes itself"
    for file in shared["files"]:
        made["shop"].ok("reader", "accept", file)
    return made


@pytest.fixture
def admin(people: dict[str, User]) -> User:
    return people["admin"]


@pytest.fixture
def shop(people: dict[str, User]) -> User:
    return people["shop"]


def _emit(user: User, payload: object = None) -> int:
    words = () if payload is None else ("--payload", json.dumps(payload))
    return int(user.ok("recorder", "emit", "--stream", ORDERS, *EVENT, *words)["stream_seq"])


def test_what_is_declared_is_not_declared_again(admin: User) -> None:
    again = admin.ok("recorder", "init", "--stream", f"{ORDERS}=refund,order")
    assert (again["declared"], again["labels_kept"]) == ([], 0)


@pytest.mark.parametrize(
    "words",
    [
        ("init", "--stream", "app/orders=x"),
        ("init", "--stream", "record/"),
        ("init", "--stream", "record/app/other=login"),
        ("init", "--stream", "record/one=t", "--stream", "record/two=t"),
        ("change", "retire", "--stream", "record/app/nothing"),
        ("change", "rename", "--stream", ORDERS, "--into", "elsewhere"),
        ("change", "split", "--stream", ORDERS, "--into", "record/one=order"),
        ("emit", "--stream", "app/orders", *EVENT),
        ("emit", "--stream", "record/", *EVENT),
        ("tail", "--stream", "nope", "--for", "0"),
        ("verify", "--stream", "nope"),
        ("status", "--stream", "record/"),
        ("checkpoint", "--stream", "nope"),
        ("emit", "--stream", ORDERS, *EVENT),
        ("emit", "--stream", ORDERS, "--subject", "bob"),
        ("replay", "--stream", ORDERS, "--from", "2", "--to", "1"),
        ("replay", "--stream", ORDERS, "--from", "0", "--to", "1"),
        ("replay", "--stream", ORDERS, "--from", "1", "--to", "999999"),
        ("replay", "--stream", ORDERS),
        ("replay", "--start-time", "yesterday", "--end-time", "now"),
        ("replay", "--start-time", "5", "--end-time", "4"),
        ("replay", "--start-time", "5"),
        ("replay", "--start-time", "9" * 5000, "--end-time", "9"),
        ("verify", "--only", "beauty"),
        ("verify", "--checkpoint", "/dev/null"),
    ],
)
def test_mistakes_of_an_admin(admin: User, words: tuple[str, ...]) -> None:
    admin.fails(1, "recorder", *words)


def test_events_of_lines(shop: User) -> None:
    lines = [
        {"event_type": "order", "subject_id": "bob", "origin": "shop", "payload": {"amount": -1.5}},
        {"event_type": "refund", "subject_id": "bob", "origin": "shop", "event_time": 7},
    ]
    done = shop.run(
        "recorder", "emit", "--stream", ORDERS, "--lines", "--json", stdin="\n".join(map(json.dumps, lines))
    )
    found = json.loads(done.stdout)
    assert found["recorded"] == 2
    last = found["stream_seq"]
    shown = shop.ok("recorder", "replay", "--stream", ORDERS, "--from", str(last - 1), "--to", str(last))
    events = [item["event"] for item in shown["events"]]
    assert [item["payload"] for item in events] == [{"amount": "-1.5"}, None]
    assert events[1]["event_time"] == 7
    assert {item["principal_id"] for item in events} == {item["client_id"] for item in shown["events"]}


def test_what_an_event_does_not_say(shop: User) -> None:
    """It is of this host, and about what records it; with --lines, options are for lines that say nothing."""
    alone = shop.ok("recorder", "emit", "--stream", ORDERS, "--type", "order")["stream_seq"]
    usual = ("--type", "refund", "--origin", "till", "--event-time", "9", "--metadata", '{"m": 1}')
    whole = {"event_type": "order", "subject_id": "bob", "origin": "shop", "event_time": 7, "metadata": {}}
    done = shop.run(
        "recorder", "emit", "--stream", ORDERS, "--lines", *usual, stdin=f"{{}}\n{json.dumps(whole)}\n"
    )
    assert done.exit_code == 0, done.output
    span = ("--from", str(alone), "--to", str(alone + 2))
    shown = shop.ok("recorder", "replay", "--stream", ORDERS, *span)["events"]
    names = ("event_type", "subject_id", "origin", "event_time", "metadata")
    first, *rest = ([item["event"].get(name) for name in names] for item in shown)
    assert first[:3] == ["order", gethostname(), gethostname()]
    assert rest == [["refund", "till", "till", 9, {"m": 1}], ["order", "bob", "shop", 7, {}]]


def test_a_line_names_no_file(shop: User, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text('{"event_type": "order", "payload": "secret"}')
    done = shop.run("recorder", "emit", "--stream", ORDERS, "--lines", stdin=f"@{file}\n")
    assert done.exit_code == 1
    assert "line 1 " in done.stderr


def test_what_is_no_event_names_its_line(shop: User) -> None:
    good = json.dumps({"event_type": "order", "subject_id": "b", "origin": "s"})
    for bad in ("{}", "[1]", "nonsense", good.replace("order", "login")):
        done = shop.run("recorder", "emit", "--stream", ORDERS, "--lines", stdin=f"{bad}\n")
        assert done.exit_code == 1, done.output
        assert "line 1" in done.stderr
    assert shop.run("recorder", "emit", "--stream", ORDERS, "--lines", stdin="").exit_code == 1
    late = good.replace("}", ', "event_time": 18446744073709551616}')
    done = shop.run("recorder", "emit", "--stream", ORDERS, "--lines", stdin=f"{good}\n" * 600 + late)
    assert done.exit_code == 4
    assert "line 601: " in done.stderr
    assert "; 512 events recorded before it" in done.stderr, "to go on behind them"


def test_an_auditor_without_keys_is_told(shop: User, tmp_path: Path) -> None:
    stranger = User(tmp_path, VEEN_HUB=shop.hub, VEEN_CLIENT=str(tmp_path / "stranger"))
    stranger.ok("keygen", "--out", tmp_path / "stranger")
    done = stranger.run("recorder", "verify")
    assert CHANGES_STREAM in done.stderr
    assert "veen recorder share" in done.stderr


def test_a_type_goes_to_its_stream(shop: User) -> None:
    found = shop.fails(1, "recorder", "emit", "--stream", LOGINS, *EVENT)
    assert ORDERS in found["detail"]


def test_a_payload_beyond_the_bound(shop: User) -> None:
    words = ("--payload", json.dumps("x" * 100), "--max-payload", "50")
    assert shop.fails(4, "recorder", "emit", "--stream", ORDERS, *EVENT, *words)["code"] == "E.SIZE"


def test_keys_for_a_reader(people: dict[str, User], tmp_path: Path) -> None:
    admin, card = people["admin"], people["shop"].home / "shop"
    words = ("recorder", "share", "--to", card, "--out", tmp_path / "keys")
    admin.fails(1, *words, "--stream", "record/of/nobody")
    assert len(admin.ok(*words, "--stream", LOGINS)["files"]) == 4
    assert admin.fails(1, *words)["code"] == "E.EXISTS"


def test_an_admin_produces_nothing(admin: User) -> None:
    assert admin.fails(1, "recorder", "emit", "--stream", ORDERS, *EVENT)["code"] == "E.ROLE"


def test_a_token_for_a_producer(people: dict[str, User], tmp_path: Path) -> None:
    admin, card = people["admin"], people["shop"].home / "shop"
    words = ("--ttl", "60", "--out", tmp_path / "cap")
    found = admin.ok("recorder", "grant", "--producer", card, "--stream", ORDERS, *words)
    assert found["stream_ids"] == [labels.stream_id(ORDERS).hex()]
    admin.fails(1, "recorder", "grant", "--producer", card, "--stream", "core/main", *words)
    changes = ("--producer", card, "--stream", CHANGES_STREAM)
    assert admin.fails(1, "recorder", "grant", *changes, *words)["code"] == "E.ROLE"
    admin.ok("recorder", "grant", *changes, "--ttl", "60", "--out", tmp_path / "other", "--own-streams")
    own = admin.home / "admin"
    assert (
        admin.fails(1, "recorder", "grant", "--producer", own, "--stream", ORDERS, *words)["code"] == "E.ROLE"
    )


def test_from_events_to_proofs(admin: User, shop: User, hub: HubProcess, tmp_path: Path) -> None:
    first = _emit(shop, {"n": 1})
    file = tmp_path / "checkpoint"
    made = admin.ok("recorder", "checkpoint", "--out", file, "--anchor")
    assert made["made"]
    assert made["anchor_ref"], "the hub has a ledger"
    assert made["checkpoint"]["log_root"] == made["log_root"]
    assert not admin.ok("recorder", "checkpoint")["made"], "nothing is new"
    assert admin.ok("recorder", "checkpoint", "--force")["made"]
    assert admin.ok("recorder", "checkpoint", "--despite-false")["made"]
    place = ("--stream", ORDERS, "--from", str(first))
    shown = admin.ok("recorder", "replay", *place, "--to", str(first), "--with-proof")
    assert shown["events"][0]["event"]["payload"] == {"n": 1}
    later = _emit(shop, {"n": 2})
    found = admin.fails(4, "recorder", "replay", *place, "--to", str(later), "--checkpoint", file)
    assert found["code"] == "E.CHECKPOINT"
    all_of_them = admin.ok("recorder", "replay", "--start-time", "0", "--end-time", "2999-01-01")["events"]
    times = [(item["hub_commit_time"], item["stream"], item["hub_commit_seq"]) for item in all_of_them]
    assert times == sorted(times)
    assert {item["stream"] for item in all_of_them} >= {ORDERS, CHANGES_STREAM}
    told = admin.run("recorder", "replay", *place, "--to", str(first))
    assert f'{ORDERS}/{first}  bob  order  shop  {{"n": 1}}' in told.stdout
    status = admin.ok("recorder", "status")
    rows = {row["stream"]: row for row in status["streams"]}
    assert rows[ORDERS]["state"] == "declared"
    assert rows[ORDERS]["retention"] == "set"
    assert status["checkpoint"]["events_since"] == 1
    assert status["checkpoint"]["cadence_met"]
    assert status["shared_types"] == {}
    good = admin.ok("recorder", "verify", "--checkpoint", file)
    assert all(good["verdicts"].values())
    copy = tmp_path / "copy"
    shutil.copytree(hub.place, copy, ignore=shutil.ignore_patterns("*.sock", "hub.json", "hub.pid"))
    offline = admin.ok("recorder", "verify", "--hub", copy, "--trust-first-use")
    assert offline["entries"] == good["entries"]
    bad = admin.fails(4, "recorder", "verify", "--retention-hint", str(2**40))
    assert bad["code"] == "E.RECORD"
    assert not bad["verdicts"]["retention"]
    admin.ok("recorder", "verify", "--retention-hint", str(2**40), "--only", "order")


def test_an_event_by_send(shop: User) -> None:
    """With the record schema, by whoever names himself as the principal (SDR-024)."""
    key = shop.ok("id", "show")["client_id"]
    said = {"subject_id": "bob", "event_type": "order", "event_time": 7, "origin": "shop"}
    body = json.dumps({"payload": {"n": 7}, "principal_id": key, **said})
    sent = shop.ok("send", "--stream", ORDERS, "--schema", "recorder.event.v1", "--body", body)
    place = ("--from", str(sent["stream_seq"]), "--to", str(sent["stream_seq"]))
    (found,) = shop.ok("recorder", "replay", "--stream", ORDERS, *place)["events"]
    assert (found["problem"], found["event"]["payload"]) == (None, {"n": 7})


class _Silent:
    """A reader of a stream to which nothing comes; notes for how long it is to wait, and ends at last."""

    def __init__(self, waits: list[int]) -> None:
        self._waits = waits

    async def fetch(self, wait_sec: int = 0) -> list[Message]:
        """Return nothing."""
        self._waits.append(wait_sec)
        if len(self._waits) > 9:
            raise KeyboardInterrupt
        return []


@pytest.mark.parametrize(("streams", "waits"), [(1, [0, 2, 2, 2]), (3, [0, 0, 0, 1, 0, 0, 0, 1, 0])])
def test_whoever_follows_streams_waits_for_news(
    people: dict[str, User], hub: HubProcess, streams: int, waits: list[int]
) -> None:
    """And does not ask again and again: of several streams, at one after the other."""
    asked: list[int] = []
    readers = [(f"record/{nth}", _Silent(asked)) for nth in range(streams)]
    with Client.open(people["shop"].home / "shop", hub.url) as client, pytest.raises(KeyboardInterrupt):
        list(follow(client, readers, None))
    assert asked[: len(waits)] == waits


class _Busy:
    """Makes checkpoints at a hub that is busy for a while."""

    def __init__(self, errors: list[Exception]) -> None:
        self.errors = errors

    def count_new(self) -> int:
        """Return that much is new."""
        return 10

    def make(self, *, force: bool) -> None:
        """Fail as often as there are errors."""
        del force
        raise self.errors.pop(0)

    def write(self) -> None:
        """Write no file."""


def _refused(code: Code) -> RejectedError:
    return RejectedError(ErrorEnvelope(code=code.value, message="not now"))


def test_a_hub_that_is_busy_does_not_end_the_checkpoints() -> None:
    passing = [NetworkError("gone"), _refused(Code.RATE), _refused(Code.UNAVAILABLE)]
    work, pauses = _Busy([*passing, _refused(Code.AUTH)]), list[float]()
    with pytest.raises(RejectedError, match="AUTH"):
        keep_making(work, Pace(Cadence(1, 1)), pauses.append)
    assert len(pauses) == len(passing)


def test_following_ends_when_it_is_told_to(shop: User) -> None:
    seq = _emit(shop)
    done = shop.run("recorder", "tail", "--stream", ORDERS, "--all", "--for", "0")
    assert done.exit_code == 0
    assert f"{ORDERS}/{seq}" in done.stdout
    lines = shop.run("recorder", "tail", "--stream", ORDERS, "--stream", LOGINS, "--for", "0", "--json")
    assert lines.stdout == "", "what was shown is not new"


def test_checkpoints_are_made_beside_the_work(people: dict[str, User], hub: HubProcess) -> None:
    admin, shop = people["admin"], people["shop"]
    before = _emit(shop)
    command = [sys.executable, "-m", "veen.cli.main", "recorder", "checkpoint", "--each", "2", "--json"]
    env = environment(VEEN_HUB=hub.url, VEEN_CLIENT=str(admin.home / "admin"), HOME=str(admin.home))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    try:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert _upto(first) == before, "the first one is made at once"
        _emit(shop)
        last = _emit(shop)
        end = monotonic() + 60
        second = json.loads(process.stdout.readline())
        assert monotonic() < end
        assert _upto(second) == last
    finally:
        process.terminate()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _upto(made: dict[str, object]) -> int:
    checkpoint = made["checkpoint"]
    assert isinstance(checkpoint, dict)
    return int(next(item["upto_seq"] for item in checkpoint["streams"] if item["stream"] == ORDERS))


def test_streams_are_renamed_split_and_retired(admin: User, shop: User) -> None:
    admin.ok("recorder", "init", "--stream", "record/old=a,b")
    admin.ok("recorder", "change", "rename", "--stream", "record/old", "--into", "record/new")
    rows = {row["stream"]: row for row in admin.ok("recorder", "status")["streams"]}
    assert (rows["record/old"]["state"], rows["record/new"]["event_types"]) == ("renamed", ["a", "b"])
    shared = ("--into", "record/x=a", "--into", f"{ORDERS}=b")
    for change in (("rename", "--into", ORDERS), ("split", *shared)):
        refused = admin.fails(1, "recorder", "change", *change, "--stream", "record/new")
        assert "already declared" in refused["detail"]
    into = ("--into", "record/new/a=a", "--into", "record/new/b=b")
    admin.ok("recorder", "change", "split", "--stream", "record/new", *into)
    admin.fails(1, "recorder", "change", "split", "--stream", "record/new", *into)
    words = ("--type", "a", "--subject", "s", "--origin", "o")
    assert "record/new/a" in shop.fails(1, "recorder", "emit", "--stream", "record/new", *words)["detail"]
    admin.ok("recorder", "change", "retire", "--stream", "record/new/b", "--reason", "no longer needed")
    rows = {row["stream"]: row["state"] for row in admin.ok("recorder", "status")["streams"]}
    assert (rows["record/new"], rows["record/new/b"]) == ("split", "retired")


def test_classes_of_labels(admin: User) -> None:
    label = "ab" * 32
    assert admin.ok("label-class", "show", "--label", label)["class"] == "unset"
    admin.ok("label-class", "set", "--label", label, "--class", "user", "--sensitivity", "high")
    admin.ok("label-class", "set", "--label", label, "--class", "wallet", "--retention-hint", "60")
    assert admin.ok("label-class", "show", "--label", label) == {
        "label": label,
        "class": "wallet",
        "sensitivity": "none",
        "retention_hint": 60,
    }
    assert admin.ok("label-class", "show", "--stream", ORDERS)["retention_hint"] == LONG_TERM_SEC
    assert [row["label"] for row in admin.ok("label-class", "list", "--class", "wallet")["labels"]] == [label]
    admin.fails(1, "label-class", "set", "--label", label, "--class", "user", "--sensitivity", "huge")
    admin.fails(1, "label-class", "show")
    admin.fails(1, "label-class", "show", "--label", "xyz")
