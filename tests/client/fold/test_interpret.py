"""Interpreting a stream of a real hub: what is kept is used only where it holds, and hides nothing."""

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import pytest

from tests.client.participants import QUICK, make_home
from tests.client.proxy import Answer, Passing, Proxy
from tests.hub.hub_process import HubProcess, veen
from veen.client.client import Client
from veen.client.errors import ClientError, DivergenceError
from veen.client.fold.incremental import FoldRequest, IncrementalFold
from veen.client.fold.interpret import FoldedState, interpret, typed
from veen.client.fold.summary_cache import OVERLAYS_DIR, SummaryFile
from veen.client.keys.keystore import StreamKey
from veen.client.models import Draft, SendOptions
from veen.client.send import send_draft
from veen.core.api.data_plane import StreamResponse
from veen.core.encoding import cbor
from veen.core.merkle.mmr import Peaks
from veen.core.objects import labels
from veen.overlays.builtin.crdt import COUNTER, LWW, ORSET, GCounter, LwwMap, OrSet
from veen.overlays.monoid import SET
from veen.overlays.overlay import Lowered, Overlay
from veen.overlays.summary_tree.rows import CHUNK
from veen.stdx.file_lock import lock

OpenClient = Callable[..., Client]


@pytest.fixture
def opened(tmp_path: Path, hub: HubProcess) -> Any:
    """Return what opens somebody's client: made at the first time."""
    found: list[Client] = []

    def open_one(name: str = "alice", url: str = "") -> Client:
        place = tmp_path / name
        if not place.exists():
            make_home(place, name)
        client = Client.open(place, url or hub.url, retry=QUICK, rotation=None)
        found.append(client)
        return client

    yield open_one
    for client in found:
        client.close()


def write(client: Client, stream: str, *values: object, key: bytes = b"k", start: int = 1) -> None:
    """Write values to a register, each later than the one before."""
    drafts = [
        typed(LWW, LWW.make(key=key, ts=start + nth, value=str(value).encode()))
        for nth, value in enumerate(values)
    ]
    list(client.send_many(stream, drafts))


def files(client: Client) -> list[Path]:
    return sorted((client.session.home.root / OVERLAYS_DIR).glob("*.lmdb"))


def same(client: Client, overlay: Overlay, stream: str, **more: Any) -> FoldedState:
    """Interpret from what is kept, and check that a fresh fold gives the same."""
    kept = interpret(client, overlay, stream, **more)
    fresh = interpret(client, overlay, stream, cached=False, **more)
    for table in overlay.tables:
        assert list(kept.tables.items(table)) == list(fresh.tables.items(table))
    assert (kept.counts, list(kept.reports)) == (fresh.counts, list(fresh.reports))
    assert (kept.reached, kept.provisional) == (fresh.reached, fresh.provisional)
    assert kept.view() == fresh.view()
    assert kept.hash == fresh.hash
    return kept


def test_what_is_kept_grows_with_the_log_and_is_read_once(
    hub: HubProcess, opened: OpenClient, stream: str
) -> None:
    alice = opened("alice")
    count = CHUNK + 40
    list(alice.send_many(stream, [_add(nth) for nth in range(count)]))
    with Proxy(hub.url) as between:
        asked: list[str] = []

        def before(passing: Passing) -> None:
            if passing.path.startswith("/v1/stream"):
                asked.append(passing.path)

        reader = opened("alice", between.url)
        between.before = before
        assert interpret(reader, GCounter(), stream)[b"s" * 32] == count
        first = len(asked)
        send_draft(alice, stream, _add(0))
        assert interpret(reader, GCounter(), stream)[b"s" * 32] == count + 1
        assert first >= 1
        pages = len(asked)
        for upto in (0, 1, CHUNK, CHUNK + 1, count):
            found = interpret(reader, GCounter(), stream, upto=upto)
            assert (found[b"s" * 32] or 0) == upto
            assert sum(found.counts.values()) == upto
            assert [item.upto_seq for item in found.reached] == ([upto] if upto else [])
        assert len(asked) == pages, "earlier positions need no entries"
    for place in (3, CHUNK, count, None):
        same(opened("alice"), GCounter(), stream, upto=place)


def _add(nth: int) -> Draft:
    return typed(COUNTER, COUNTER.make(shard=b"s" * 32, delta=1 + nth * 0))


def test_a_range_is_what_its_entries_have_done(opened: OpenClient, stream: str) -> None:
    alice = opened("alice")
    list(alice.send_many(stream, [_add(nth) for nth in range(20)]))
    for cached in (True, False):
        found = interpret(alice, GCounter(), stream, since=5, upto=11, cached=cached)
        assert found[b"s" * 32] == 7
        assert found.counts == {"events": 7}
    assert interpret(alice, GCounter(), stream, since=15)[b"s" * 32] == 6
    for since in (21, 10_000):
        nothing = interpret(alice, GCounter(), stream, since=since)
        assert (nothing[b"s" * 32], nothing.counts, list(nothing.reports)) == (None, {}, [])
        assert nothing.notes == ()


def test_files_are_private_and_sealed(opened: OpenClient, stream: str) -> None:
    alice = opened("alice")
    write(alice, stream, "a secret value", key=b"a secret key")
    interpret(alice, LwwMap(), stream)
    (path,) = files(alice)
    assert path.stat().st_mode & 0o777 == 0o600
    data = path.read_bytes()
    assert b"secret" not in data
    assert b"registers" not in data


def test_one_overlay_does_not_use_what_another_has_kept(opened: OpenClient, stream: str) -> None:
    alice = opened("alice")
    write(alice, stream, 1, 2)
    interpret(alice, LwwMap(), stream)
    interpret(alice, OrSet(), stream)
    interpret(alice, LwwMap(), stream, bridges=frozenset({bytes(32)}))
    assert len(files(alice)) == 3
    assert interpret(alice, OrSet(), stream).counts == {"unknown": 2}


def test_a_hub_that_shows_another_log_is_found_out(tmp_path: Path, opened: OpenClient, stream: str) -> None:
    config = f'streams = ["{stream}"]\n'
    with HubProcess(tmp_path / "one", config=config) as one:
        alice = opened("alice", one.url)
        write(alice, stream, 1, 2, 3)
        one.stop()
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    with HubProcess(tmp_path / "one", config=config) as one:
        write(opened("alice", one.url), stream, 4, 5, start=4)
        reader = opened("bob", one.url)
        assert sum(interpret(reader, LwwMap(), stream).counts.values()) == 5
        one.stop()
    with HubProcess(tmp_path / "copy", config=config) as other:
        write(opened("carol", other.url), stream, 6, 7, 8, start=4)
        with pytest.raises(DivergenceError):
            interpret(opened("bob", other.url), LwwMap(), stream)
        (tmp_path / "bob/state.json").unlink()
        fresh = opened("bob", other.url)
        found = same(fresh, LwwMap(), stream)
        assert sum(found.counts.values()) == 6
        assert found.notes == (), "the second time everything holds"
        other.stop()


def test_a_log_that_differs_is_folded_anew_and_it_is_said(
    tmp_path: Path, opened: OpenClient, stream: str
) -> None:
    config = f'streams = ["{stream}"]\n'
    with HubProcess(tmp_path / "one", config=config) as one:
        alice = opened("alice", one.url)
        write(alice, stream, 1)
        one.stop()
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    with HubProcess(tmp_path / "one", config=config) as one:
        client = opened("alice", one.url)
        write(client, stream, 2, start=2)
        assert interpret(client, LwwMap(), stream).view() == {"k": "2"}
        one.stop()
    (tmp_path / "alice/state.json").unlink()
    with HubProcess(tmp_path / "copy", config=config) as other:
        client = opened("alice", other.url)
        client.resync(stream)
        write(client, stream, 3, start=2)
        found = interpret(client, LwwMap(), stream)
        assert found.view() == {"k": "3"}
        assert len(found.notes) == 1
        assert "another log" in found.notes[0]
        other.stop()


def test_epochs_that_may_still_get_entries_are_folded_and_not_kept(
    tmp_path: Path, opened: OpenClient, stream: str
) -> None:
    config = f'epoch_sec = 60\nstreams = ["{stream}"]\n[limits]\nmax_epoch_skew_sec = 6000\n'
    with HubProcess(tmp_path / "rotating", config=config) as rotating:
        now = int(time.time())
        alice = opened("alice", rotating.url)

        def at(back: int, value: object) -> None:
            alice.session.clock = lambda: now - 60 * back
            write(alice, stream, value, key=b"k%d" % back)

        def look(**more: Any) -> FoldedState:
            bob.session.clock = lambda: now
            return same(bob, LwwMap(), stream, **more)

        bob = opened("alice", rotating.url)
        at(40, "old")
        at(35, "old")
        found = look()
        assert not found.provisional
        at(3, "new")
        at(1, "newer")
        found = look()
        assert found.provisional
        assert found.view() == {"k1": "newer", "k3": "new", "k35": "old", "k40": "old"}
        at(2, "between")
        at(3, "late")
        found = look()
        assert found.provisional
        assert [item.epoch - now // 60 for item in found.reached] == [-40, -35, -3, -2, -1]
        assert found.notes == (), "nothing that was kept has changed"
        assert look(epoch=now // 60 - 35).view() == {"k35": "old", "k40": "old"}
        assert look(epoch=now // 60 - 38, upto=5).view() == {"k40": "old"}
        at(36, "a label that comes up behind")
        found = look()
        assert "another log" in found.notes[0]
        assert [item.epoch - now // 60 for item in found.reached] == [-40, -36, -35, -3, -2, -1]
        at(40, "more in a label that was thought to be complete")
        found = look()
        assert "another log" in found.notes[0]
        assert found.reached[0].upto_seq == 2
        rotating.stop()


def test_a_key_that_comes_later_shows_what_was_sealed(opened: OpenClient, stream: str) -> None:
    alice, bob = opened("alice"), opened("bob")
    secret = os.urandom(32)
    key = StreamKey(stream_id=labels.stream_id(stream), secret=secret, created_at=1)
    body = LWW.make(key=b"k", ts=1, value=b"v")
    send_draft(alice, stream, typed(LWW, body), SendOptions(to=key.public_key))
    assert interpret(bob, LwwMap(), stream).counts == {"unreadable": 1}
    bob.session.secrets = bob.session.secrets.with_stream(key)
    found = interpret(bob, LwwMap(), stream)
    assert found.counts == {"events": 1}
    assert len(found.notes) == 1
    other = StreamKey(stream_id=labels.stream_id(stream), secret=os.urandom(32), created_at=2)
    bob.session.secrets = bob.session.secrets.with_stream(other)
    assert interpret(bob, LwwMap(), stream).notes == (), "there was nothing that it could open"


@pytest.mark.parametrize("row", [b"h", b"n", b"c", b"m", b"l"])
def test_a_damaged_row_is_never_believed(opened: OpenClient, stream: str, row: bytes) -> None:
    alice = opened("alice")
    write(alice, stream, *range(30))
    expected = interpret(alice, LwwMap(), stream, upto=20).view()
    (path,) = files(alice)
    _damage(path, row)
    again = opened("alice")
    for upto, value in ((20, expected), (None, {"k": "29"})):
        assert interpret(again, LwwMap(), stream, upto=upto).view() == value
    assert interpret(again, LwwMap(), stream).notes == (), "it was rebuilt"
    same(again, LwwMap(), stream)


def test_reports_that_are_damaged_are_made_anew(opened: OpenClient, stream: str) -> None:
    alice = opened("alice")
    draft = Draft(None, schema=LWW.schema_id, encoded=b"\xa0")
    list(alice.send_many(stream, [draft] * 5))
    expected = list(interpret(alice, LwwMap(), stream).reports)
    assert len(expected) == 5
    (path,) = files(alice)
    found = interpret(alice, LwwMap(), stream)
    _damage(path, b"r")
    assert list(found.reports) == expected, "it has a snapshot"
    assert list(interpret(alice, LwwMap(), stream).reports) == expected


def test_a_summary_that_is_larger_than_any_message_is_kept(opened: OpenClient, stream: str) -> None:
    class Large(LwwMap):
        name = "large"
        monoid = SET  # type: ignore[assignment] # a class of the same kind

        def lower(self, event: Any, before: Any) -> Lowered:  # noqa: ARG002
            return Lowered([("registers", b"k", dict.fromkeys(range(cbor.MAX_ITEMS + 1), 0))])

    alice = opened("alice")
    write(alice, stream, 1)
    for _ in range(2):
        found = interpret(alice, Large(), stream)
        assert len(found.tables.get("registers", b"k")) == cbor.MAX_ITEMS + 1
        assert found.notes == ()
    assert len(files(alice)) == 1


def test_a_summary_that_can_not_be_written_is_not_kept(opened: OpenClient, stream: str) -> None:
    deep: Any = ()
    for _ in range(cbor.MAX_DEPTH + 1):
        deep = (deep,)

    class Deep(LwwMap):
        name = "deep"

        def lower(self, event: Any, before: Any) -> Lowered:  # noqa: ARG002
            return Lowered([("registers", b"k", ((0,), deep))])

    alice = opened("alice")
    write(alice, stream, 1)
    found = interpret(alice, Deep(), stream)
    assert found.tables.get("registers", b"k")[1] == deep
    assert "not cached" in found.notes[0]


def test_a_fold_that_was_interrupted_goes_on(hub: HubProcess, opened: OpenClient, stream: str) -> None:
    count = 5_600
    list(opened("alice").send_many(stream, (_add(nth) for nth in range(count))))
    with Proxy(hub.url) as between:
        pages: list[int] = []

        def after(passing: Passing, answer: Answer) -> Answer:
            if passing.path != "/v1/stream":
                return answer
            pages.append(len(StreamResponse.decode(answer.body).items))
            return Answer(502, "text/html", b"bad gateway") if sum(pages) > 5_200 else answer

        reader = opened("alice", between.url)
        between.after = after
        with pytest.raises(ClientError):
            interpret(reader, GCounter(), stream)
        pages.clear()
        found = interpret(reader, GCounter(), stream)
        assert sum(pages) == count - 5_000, "what was committed is not read again"
        assert found[b"s" * 32] == count


def test_entries_of_another_log_are_not_folded_behind(opened: OpenClient, stream: str) -> None:
    """A row of roots that is right does not help if the entries behind it are of another log."""
    alice = opened("alice")
    write(alice, stream, 1, 2)
    interpret(alice, LwwMap(), stream)
    file = _file_of(alice, stream)
    with file.writing() as writing:
        peaks = Peaks.empty().append(bytes(32)).append(bytes(32))
        writing.rows.put(b"p", cbor.encode([peaks.size, peaks.hashes]))
    write(alice, stream, 3, start=3)
    found = interpret(alice, LwwMap(), stream)
    assert found.view() == {"k": "3"}
    assert "do not match" in found.notes[0]
    assert same(alice, LwwMap(), stream).notes == ()


def _file_of(client: Client, stream: str) -> SummaryFile:
    return SummaryFile(
        client.session.home.root, IncrementalFold(client, FoldRequest(LwwMap(), stream)).vault()
    )


def _damage(path: Path, row: bytes) -> None:
    """Change a row of a kind, in a process of its own: LMDB wants a file opened once in each."""
    code = (
        "import sys, lmdb\n"
        "env = lmdb.open(sys.argv[1], subdir=False, map_size=1 << 30)\n"
        "with env.begin(write=True) as txn, txn.cursor() as cursor:\n"
        "    assert cursor.set_range(sys.argv[2].encode()) and cursor.key()[:1] == sys.argv[2].encode()\n"
        "    data = bytearray(cursor.value()); data[-1] ^= 1\n"
        "    txn.put(cursor.key(), bytes(data))\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path), row.decode()], check=True, timeout=60)


def test_a_file_that_is_no_longer_one_is_made_anew(opened: OpenClient, stream: str) -> None:
    alice = opened("alice")
    write(alice, stream, 1)
    place = alice.session.home.root / OVERLAYS_DIR
    interpret(alice, LwwMap(), stream)
    (path,) = files(alice)
    path.unlink()
    path.with_name(path.name + "-lock").unlink()
    other = stream + "/other"
    write(alice, other, 2)
    assert interpret(alice, LwwMap(), other).view() == {"k": "2"}
    for found in place.glob("*"):
        found.unlink()
    path.write_bytes(b"rubbish" * 5000)
    assert same(opened("alice"), LwwMap(), stream).view() == {"k": "1"}


def test_without_a_place_to_keep_them_it_is_said(opened: OpenClient, stream: str) -> None:
    alice = opened("alice")
    write(alice, stream, 1)
    (alice.session.home.root / OVERLAYS_DIR).write_text("in the way")
    found = interpret(alice, LwwMap(), stream)
    assert found.view() == {"k": "1"}
    assert "not cached" in found.notes[0]


def test_while_another_writes_nobody_waits(opened: OpenClient, stream: str) -> None:
    alice = opened("alice")
    write(alice, stream, 1)
    interpret(alice, LwwMap(), stream)
    (path,) = files(alice)
    write(alice, stream, 2, start=2)
    held = lock(path, wait=False)
    assert held is not None
    try:
        found = same(opened("alice"), LwwMap(), stream)
        assert found.view() == {"k": "2"}
        assert "another process" in found.notes[0]
    finally:
        os.close(held)
    assert interpret(alice, LwwMap(), stream).notes == ()


def test_a_full_disk_keeps_nobody_from_the_state(hub: HubProcess, opened: OpenClient, stream: str) -> None:
    alice = opened("alice")
    list(alice.send_many(stream, [_add(nth) for nth in range(300)]))
    words = ["interpret", "crdt.gcnt", "--hub", hub.url, "--client", str(alice.session.home.root)]
    done = subprocess.run(
        [sys.executable, "-m", "veen.cli.main", *words, "--stream", stream],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
    )
    assert done.returncode == 0, done.stderr
    assert '"total": 300' in done.stdout
    assert "summaries are not cached" in done.stderr
    assert same(alice, GCounter(), stream).notes == ()


def test_two_processes_at_once(hub: HubProcess, opened: OpenClient, stream: str) -> None:
    alice = opened("alice")
    list(alice.send_many(stream, [_add(nth) for nth in range(300)]))
    place = alice.session.home.root
    words = ["interpret", "crdt.gcnt", "--hub", hub.url, "--client", str(place), "--stream", stream, "--json"]
    command = [sys.executable, "-m", "veen.cli.main", *words]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for process in running:
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert '"total": 300' in out
    assert '"total": 300' in veen(*words).stdout


def test_what_was_read_earlier_stays_as_it_was(opened: OpenClient, stream: str) -> None:
    alice = opened("alice")
    write(alice, stream, 1)
    old = interpret(alice, LwwMap(), stream)
    write(alice, stream, 2, start=2)
    new = interpret(alice, LwwMap(), stream)
    assert (old.view(), new.view()) == ({"k": "1"}, {"k": "2"})
    assert old.reached[0].upto_seq == 1


def test_nothing_is_kept_of_a_fold_that_failed(opened: OpenClient, stream: str) -> None:
    alice = opened("alice")
    list(alice.send_many(stream, [typed(ORSET, ORSET.make(id=bytes(32), elem=b"e"))]))

    class Broken(OrSet):
        name = "broken"

        def lower(self, event: Any, before: Any) -> Any:  # noqa: ARG002
            raise RuntimeError("a mistake")

    for _ in range(2):
        with pytest.raises(RuntimeError):
            interpret(alice, Broken(), stream)
    (path,) = files(alice)
    with lmdb.open(str(path.with_name("copy.lmdb")), subdir=False) as env:
        assert env.stat()["entries"] == 0
