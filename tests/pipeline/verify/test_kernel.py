"""The kernel: each check finds what it is for, at its level, and nothing else."""

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests import builders
from tests.pipeline.log_builder import Hub
from veen.core.errors import Detail
from veen.core.merkle.mmr import Peaks
from veen.core.objects.entry import Entry
from veen.core.objects.finding import Level
from veen.core.objects.hub_identity import HubIdentity, HubKey
from veen.core.objects.receipt import Receipt
from veen.core.types import LeafHash, NodeHash
from veen.pipeline.log.entry_columns import Entries, Frames, parse
from veen.pipeline.log.hub_keys import HubKeys
from veen.pipeline.log.open import open_log
from veen.pipeline.verify.kernel import EntryFault, check, follow_clients, follows


class Log:
    """A few entries, the keys that signed them, and ways to change one of them."""

    def __init__(self, root: Path) -> None:
        self.hub = Hub(root)
        for number in range(9):
            self.hub.write("beta", b"text %d" % number, client=("ann", "bob")[number % 2])
            self.hub.tick()
        self.hub.close()
        log = open_log(str(root))
        self.frames = log.plan(most_bytes=1 << 30)[0].read()
        self.keys = log.keys
        log.close()
        self.entries = list[Entry]()
        at = 0
        while at < len(self.frames.data):
            entry, at = Entry.decode(self.frames.data, at)
            self.entries.append(entry)

    def with_entry(self, nth: int, entry: Entry) -> Frames:
        """Return the frames with another entry in a place."""
        changed = [*self.entries[:nth], entry, *self.entries[nth + 1 :]]
        return self.frames._replace(data=b"".join(item.encode() for item in changed))

    def signed(self, receipt: Receipt, **changes: object) -> Receipt:
        """Return a receipt with changes, signed by the hub."""
        fields = ("label", "stream_seq", "leaf_hash", "mmr_root", "hub_ts")
        values = {name: getattr(receipt, name) for name in fields} | changes
        return Receipt.sign(self.hub.home.ring.active(int(values["hub_ts"])), **values)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    return Log(tmp_path_factory.mktemp("hub"))


def faults(log: Log, frames: Frames, level: Level = Level.FULL) -> list[tuple[int, str]]:
    found = check(parse(frames), level, keys=log.keys, peaks=Peaks.empty())
    return [(fault.seq, fault.detail) for fault in found.faults]


def test_a_sound_part_has_no_faults_and_tells_what_it_comes_to(log: Log) -> None:
    entries = parse(log.frames)
    found = check(entries, Level.FULL, keys=log.keys, peaks=Peaks.empty(), wanted=[3, 9])
    assert (found.faults, found.gaps) == ([], [])
    assert found.peaks is not None
    assert found.peaks.root == found.roots[9] == log.entries[8].receipt.mmr_root
    assert found.roots[3] == log.entries[2].receipt.mmr_root
    assert (found.first_ts, found.last_ts) == (1_700_000_000, 1_700_000_008)
    assert sorted(client.last_seq for client in found.clients.values()) == [4, 5]


def test_a_forged_checksum_shows_at_every_level(log: Log) -> None:
    data = bytearray(log.frames.data)
    data[int(parse(log.frames).starts[4]) + 60] ^= 1
    for level in (Level.FRAMES, Level.ROOTS, Level.FULL):
        assert faults(log, log.frames._replace(data=bytes(data)), level) == [(5, Detail.ENTRY_HASH.value)]
    assert faults(log, log.frames._replace(data=bytes(data)), Level.NONE) == []


def test_another_ciphertext_is_not_the_one_that_was_signed(log: Log) -> None:
    entry = log.entries[4]
    msg = entry.msg()
    other = replace(msg, ciphertext=msg.ciphertext[:-1] + bytes([msg.ciphertext[-1] ^ 1]))
    frames = log.with_entry(4, Entry(other.encode(), entry.receipt))
    assert faults(log, frames, Level.FRAMES) == []
    assert faults(log, frames, Level.ROOTS) == [(5, Detail.CT_HASH.value)]


def test_a_message_with_another_number_is_another_leaf(log: Log) -> None:
    entry = log.entries[4]
    other = replace(entry.msg(), client_seq=77)
    frames = log.with_entry(4, Entry(other.encode(), entry.receipt))
    assert faults(log, frames, Level.ROOTS) == [(5, Detail.LEAF_HASH.value)]


def test_a_root_that_is_not_the_logs_is_found_and_only_that_one(log: Log) -> None:
    entry = log.entries[4]
    receipt = log.signed(entry.receipt, mmr_root=NodeHash(builders.digest("root")))
    frames = log.with_entry(4, Entry(entry.msg_bytes, receipt))
    assert faults(log, frames, Level.ROOTS) == [(5, Detail.PROOF_ROOT.value)]
    assert faults(log, frames, Level.FRAMES) == []


def test_a_leaf_of_another_message_changes_all_roots_behind_it(log: Log) -> None:
    entry = log.entries[4]
    receipt = log.signed(entry.receipt, leaf_hash=LeafHash(builders.digest("leaf")))
    frames = log.with_entry(4, Entry(entry.msg_bytes, receipt))
    assert faults(log, frames, Level.ROOTS)[0] == (5, Detail.LEAF_HASH.value)
    assert [seq for seq, _ in faults(log, frames, Level.ROOTS)] == [5, 6, 7, 8, 9]


def test_time_does_not_go_back(log: Log) -> None:
    entry = log.entries[4]
    receipt = log.signed(entry.receipt, hub_ts=1_600_000_000)
    frames = log.with_entry(4, Entry(entry.msg_bytes, receipt))
    assert faults(log, frames) == [(5, Detail.VALUE.value)]


def test_signatures_of_others_are_refused(log: Log) -> None:
    entry = log.entries[4]
    forged = Entry(entry.msg_bytes, replace(entry.receipt, hub_sig=log.entries[3].receipt.hub_sig))
    assert faults(log, log.with_entry(4, forged), Level.ROOTS) == []
    assert faults(log, log.with_entry(4, forged)) == [(5, Detail.SIG_INVALID.value)]
    msg = entry.msg()
    unsigned = replace(msg, sig=log.entries[3].msg().sig)
    assert faults(log, log.with_entry(4, Entry(unsigned.encode(), entry.receipt))) == [
        (5, Detail.SIG_INVALID.value)
    ]


def test_a_key_counts_only_in_its_time(log: Log) -> None:
    identity = log.keys.identity
    first = identity.hub_keys[0]
    ended = HubKey.of(first.hub_pk, 0, 1_700_000_004)
    keys = HubKeys(
        HubIdentity(
            hub_id=identity.hub_id,
            hub_keys=(ended,),
            anchoring="none",
            routing_key=identity.routing_key,
        )
    )
    found = check(parse(log.frames), Level.FULL, keys=keys, peaks=Peaks.empty()).faults
    assert [fault.seq for fault in found] == [5, 6, 7, 8, 9]
    assert {fault.detail for fault in found} == {Detail.KEY_INACTIVE.value}


def test_without_peaks_roots_are_left_to_who_knows_them(log: Log) -> None:
    found = check(parse(log.frames), Level.FULL, keys=log.keys)
    assert (found.faults, found.peaks) == ([], None)


# --- clients ------------------------------------------------------------------------------------------------


def _followed_plainly(entries: Entries) -> list[EntryFault]:
    known: dict[bytes, tuple[int, int]] = {}
    found = []
    for nth in range(len(entries)):
        one = entries.client_id[nth].tobytes()
        seq, ack, at = (
            int(column[nth]) for column in (entries.client_seq, entries.prev_ack, entries.stream_seq)
        )
        if one in known:
            fault = follows(*known[one], seq, ack, at)
            if fault is not None:
                found.append(fault)
        known[one] = seq, ack
    return found


@pytest.mark.parametrize("number", range(20))
def test_clients_are_followed_as_one_would_one_by_one(log: Log, number: int) -> None:
    chance = Random(number)
    entries = parse(log.frames)
    count = len(entries)
    changed = replace(
        entries,
        client_id=np.array([[chance.randrange(3)] * 32 for _ in range(count)], dtype=np.uint8),
        client_seq=np.array([chance.randrange(1, 5) for _ in range(count)], dtype=np.int64),
        prev_ack=np.array([chance.randrange(12) for _ in range(count)], dtype=np.int64),
    )
    clients, gaps = follow_clients(changed)
    assert gaps == _followed_plainly(changed)
    for one, client in clients.items():
        mine = [nth for nth in range(count) if changed.client_id[nth].tobytes() == one]
        first, last = mine[0], mine[-1]
        assert client.first_at == int(changed.stream_seq[first])
        assert (client.first_seq, client.first_ack) == (
            int(changed.client_seq[first]),
            int(changed.prev_ack[first]),
        )
        assert (client.last_seq, client.last_ack) == (
            int(changed.client_seq[last]),
            int(changed.prev_ack[last]),
        )
