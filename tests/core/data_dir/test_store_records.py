"""Records that a data directory keeps beside the log: store, tombstone, fork."""

from dataclasses import fields, replace

import cbor2
import pytest

from tests import rawcbor as raw
from tests.builders import checkpoint, digest, hub_id, some_label, verify_key
from tests.expect import faulty, refused
from veen.core.crypto.hash import sha256, tagged_hash
from veen.core.data_dir.store_records import (
    BZIP2,
    NO_COMPRESSION,
    ClientPosition,
    FirstUse,
    ForkRecord,
    LimitValue,
    Registry,
    StoreRecord,
    Tombstone,
)
from veen.core.encoding.cbor import MAX_ITEMS
from veen.core.errors import Detail, Fault
from veen.core.limits import DEFAULT_LIMITS, Limits
from veen.core.objects.control_record import control_leaf
from veen.core.types import AuthRef, NodeHash, VerifyKey

NAMES = sorted(field.name for field in fields(Limits))


def limit_list(limits: Limits = DEFAULT_LIMITS) -> list[list[object]]:
    return [[name, getattr(limits, name)] for name in NAMES]


def store(*registries: Registry, epoch_secs: tuple[int, ...] = (0,)) -> StoreRecord:
    return StoreRecord(
        hub_id=hub_id(), registries=registries or (Registry.of(DEFAULT_LIMITS),), epoch_secs=epoch_secs
    )


def position(name: str, client_seq: int = 1) -> ClientPosition:
    return ClientPosition(client_id=verify_key(name), client_seq=client_seq, prev_ack=0)


def first_use(name: str, hub_ts: int = 1) -> FirstUse:
    return FirstUse(auth_ref=AuthRef(digest(name)), hub_ts=hub_ts)


def tombstone(
    *,
    start_seq: int = 1,
    end_seq: int = 4,
    first_ts: int = 10,
    last_ts: int = 20,
    clients: tuple[ClientPosition, ...] = (),
    first_uses: tuple[FirstUse, ...] = (),
) -> Tombstone:
    return Tombstone(
        label=some_label(),
        start_seq=start_seq,
        end_seq=end_seq,
        total_bytes=1_000,
        first_ts=first_ts,
        last_ts=last_ts,
        mmr_root_end=NodeHash(digest("root")),
        clients=clients,
        first_uses=first_uses,
    )


# --- limits -------------------------------------------------------------------------------------------------


def test_a_registry_is_a_map_with_every_limit_by_name() -> None:
    limits = Limits(max_msg_bytes=2_000, max_chunk_bytes=5_000)
    made = Registry.of(limits, effective_from=7, compression=BZIP2)
    assert cbor2.loads(made.encode()) == {1: 7, 2: limit_list(limits), 3: "bzip2-9"}
    assert Registry.decode(made.encode()) == made
    assert made.limits == limits
    assert made.registry_hash == sha256(made.encode())


def test_a_registry_is_not_compressed_unless_it_says_so() -> None:
    made = Registry.of(DEFAULT_LIMITS)
    assert (made.effective_from, made.compression, NO_COMPRESSION) == (0, "none", "none")


def test_a_limit_that_a_directory_does_not_name_has_its_default() -> None:
    old = Registry(
        effective_from=0, values=(LimitValue(name="max_msg_bytes", value=9),), compression=NO_COMPRESSION
    )
    assert Registry.decode(old.encode()).limits == Limits(max_msg_bytes=9)
    assert replace(old, values=()).limits == DEFAULT_LIMITS


@pytest.mark.parametrize(
    "names",
    [
        ["max_unheard_of"],
        ["max_msg_bytes", "max_msg_bytes"],
        ["max_msg_bytes", "max_hdr_bytes"],
    ],
)
def test_limits_are_known_and_named_once_in_order(names: list[str]) -> None:
    values = tuple(LimitValue(name=name, value=100) for name in names)
    with refused(Detail.VALUE, field="values"):
        Registry(effective_from=0, values=values, compression=NO_COMPRESSION)


def test_a_registry_obeys_the_rules_of_limits() -> None:
    too_much = (LimitValue(name="max_msg_bytes", value=DEFAULT_LIMITS.max_msg_bytes + 1),)
    with refused(Detail.VALUE, field="limits"):
        Registry(effective_from=0, values=too_much, compression=NO_COMPRESSION)


@pytest.mark.parametrize("name", ["", "None", "gzip", "bzip2", "bzip2-1"])
def test_an_unknown_compression_is_refused(name: str) -> None:
    with refused(Detail.VALUE, field="compression"):
        Registry.of(DEFAULT_LIMITS, compression=name)


# --- store.cbor ---------------------------------------------------------------------------------------------


def test_a_store_is_a_map_of_four() -> None:
    made = store(Registry.of(DEFAULT_LIMITS), epoch_secs=(0, 60, 3_600))
    registry = {1: 0, 2: limit_list(), 3: "none"}
    assert cbor2.loads(made.encode()) == {1: 1, 2: hub_id(), 3: [registry], 4: [0, 60, 3_600]}
    assert StoreRecord.decode(made.encode()) == made


def test_limits_hold_from_their_time_on() -> None:
    first, second = Registry.of(DEFAULT_LIMITS), Registry.of(Limits(max_msg_bytes=9), effective_from=100)
    made = store(first, second)
    assert [made.registry_at(hub_ts) for hub_ts in (0, 99, 100, 2**64 - 1)] == [first, first, second, second]


@pytest.mark.parametrize("starts", [[], [1], [0, 0], [0, 5, 5], [0, 9, 5], [5, 0]])
def test_registries_begin_at_zero_and_ascend(starts: list[int]) -> None:
    with refused(Detail.VALUE, field="registries"):
        StoreRecord(
            hub_id=hub_id(),
            registries=tuple(Registry.of(DEFAULT_LIMITS, effective_from=start) for start in starts),
            epoch_secs=(0,),
        )


@pytest.mark.parametrize("epoch_secs", [(1, 1), (60, 0)])
def test_epoch_lengths_ascend(epoch_secs: tuple[int, ...]) -> None:
    with refused(Detail.VALUE, field="epoch_secs"):
        store(epoch_secs=epoch_secs)


def test_a_store_serves_at_least_one_profile() -> None:
    data = raw.with_pair(store().encode(), 4, raw.array([]))
    with faulty(Fault.EMPTY):
        StoreRecord.decode(data)


def test_a_store_of_another_version_is_refused() -> None:
    with refused(Detail.VERSION):
        StoreRecord.decode(raw.with_pair(store().encode(), 1, raw.uint(2)))


# --- tombstones ---------------------------------------------------------------------------------------------


def test_a_tombstone_is_an_array_of_ten() -> None:
    clients = tuple(sorted((position("a", 3), position("b", 4)), key=lambda item: item.client_id))
    uses = tuple(sorted((first_use("x", 11), first_use("y", 12)), key=lambda item: item.auth_ref))
    made = tombstone(clients=clients, first_uses=uses)
    assert cbor2.loads(made.encode()) == [
        1,
        some_label(),
        1,
        4,
        1_000,
        10,
        20,
        digest("root"),
        [[item.client_id, item.client_seq, 0] for item in clients],
        [[item.auth_ref, item.hub_ts] for item in uses],
    ]
    assert Tombstone.decode(made.encode()) == made


def test_a_tombstone_may_have_more_clients_than_a_list_on_the_wire_has_items() -> None:
    ids = [VerifyKey(number.to_bytes(32, "big")) for number in range(MAX_ITEMS + 1)]
    made = tombstone(clients=tuple(ClientPosition(client_id=item, client_seq=1, prev_ack=0) for item in ids))
    assert Tombstone.decode(made.encode()) == made


@pytest.mark.parametrize(("start", "end"), [(0, 4), (5, 4)])
def test_a_tombstone_has_a_range(start: int, end: int) -> None:
    with refused(Detail.VALUE, field="start_seq"):
        tombstone(start_seq=start, end_seq=end)


def test_time_does_not_go_back_in_a_tombstone() -> None:
    with refused(Detail.VALUE, field="start_seq"):
        tombstone(first_ts=21, last_ts=20)
    assert tombstone(first_ts=20, last_ts=20).first_ts == 20


def test_clients_and_tokens_of_a_tombstone_ascend_without_repetition() -> None:
    one, two = sorted((position("a"), position("b")), key=lambda item: item.client_id)
    for clients in ((two, one), (one, one)):
        with refused(Detail.VALUE, field="clients"):
            tombstone(clients=clients)
    first, second = sorted((first_use("x"), first_use("y")), key=lambda item: item.auth_ref)
    for uses in ((second, first), (first, first)):
        with refused(Detail.VALUE, field="first_uses"):
            tombstone(first_uses=uses)


# --- forks and control records ------------------------------------------------------------------------------


def test_a_fork_names_its_parent_and_where_it_was_cut() -> None:
    cuts = tuple(
        sorted(
            (checkpoint(label_curr=some_label(name), upto_seq=3) for name in "AB"),
            key=lambda item: item.label_curr,
        )
    )
    made = ForkRecord(parent_hub_id=hub_id(), checkpoints=cuts)
    assert cbor2.loads(made.encode()) == {1: 1, 2: hub_id(), 3: [cbor2.loads(cut.encode()) for cut in cuts]}
    assert ForkRecord.decode(made.encode()) == made
    assert made.fork_hash == tagged_hash("veen/fork", made.encode())
    for wrong in (cuts[::-1], (cuts[0], cuts[0])):
        with refused(Detail.VALUE, field="checkpoints"):
            ForkRecord(parent_hub_id=hub_id(), checkpoints=wrong)


def test_a_fork_may_take_nothing_along() -> None:
    made = ForkRecord(parent_hub_id=hub_id(), checkpoints=())
    assert ForkRecord.decode(made.encode()) == made


def test_the_leaf_of_a_control_record_is_a_hash_of_its_own_kind() -> None:
    assert control_leaf(b"record") == tagged_hash("veen/control-record", b"record")
