"""Every object over its whole range: bytes and JSON give it back, and other bytes give another object."""

from typing import Any

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.property import strategies as some
from tests.examples import every_wire_object
from veen.core.data_dir.chunk_artifacts import CheckpointIndex, PeakSnapshot
from veen.core.encoding import cbor
from veen.core.encoding.shape import NamedShape
from veen.core.encoding.wire_object import Wire, decode_sequence, encode_sequence
from veen.core.errors import ProtocolError
from veen.core.merkle.mmr import Peaks
from veen.core.objects.entry import Entry
from veen.core.objects.hub_identity import BoundCheckpoint, CheckpointBinding, HubIdentity, KeyMap
from veen.core.objects.receipt import Receipt

TYPES = [pytest.param(cls, strategy, id=cls.__name__) for cls, strategy in some.WIRE.items()]
#: Those without names as keys, which stand in the order of the protocol's text and not sorted (C-03).
NUMBERED = [
    pytest.param(cls, strategy, id=cls.__name__)
    for cls, strategy in some.WIRE.items()
    if not isinstance(cls.SHAPE, NamedShape)
]


def test_every_type_has_a_strategy() -> None:
    assert {type(item) for item in every_wire_object()} == set(some.WIRE)


@pytest.mark.parametrize(("cls", "strategy"), TYPES)
@settings(max_examples=30)
@given(data=st.data())
def test_bytes_and_json_give_the_object_back(cls: type[Wire], strategy: Any, data: st.DataObject) -> None:
    item = data.draw(strategy)
    encoded = item.encode()
    decoded = cls.decode(encoded)
    assert decoded == item
    assert decoded.encode() == encoded
    assert cls.from_json(item.to_json()) == item
    assert cls.from_json(decoded.to_json()).encode() == encoded


@pytest.mark.parametrize(("cls", "strategy"), NUMBERED)
@settings(max_examples=15)
@given(data=st.data())
def test_the_encoding_is_the_canonical_one_of_another_implementation(
    cls: type[Wire], strategy: Any, data: st.DataObject
) -> None:
    encoded = data.draw(strategy).encode()
    content = cbor2.loads(encoded)
    assert cbor2.dumps(content, canonical=True) == encoded
    assert cbor.encode(cbor.decode(encoded)) == encoded
    assert cls.decode(encoded).encode() == encoded


@pytest.mark.parametrize(("cls", "strategy"), TYPES)
@settings(max_examples=30)
@given(data=st.data())
def test_a_changed_bit_is_refused_or_gives_another_object(
    cls: type[Wire], strategy: Any, data: st.DataObject
) -> None:
    item = data.draw(strategy)
    encoded = item.encode()
    bit = data.draw(st.integers(0, 8 * len(encoded) - 1))
    changed = (int.from_bytes(encoded, "big") ^ 1 << bit).to_bytes(len(encoded), "big")
    try:
        other = cls.decode(changed)
    except ProtocolError:
        return
    assert other != item
    assert other.encode() == changed


@settings(max_examples=50)
@given(st.lists(some.receipts, max_size=6))
def test_sequences(receipts: list[Any]) -> None:
    assert decode_sequence(encode_sequence(receipts), Receipt) == receipts


@settings(max_examples=50)
@given(some.entries)
def test_entries(entry: Entry) -> None:
    data = entry.encode()
    assert Entry.decode_one(data) == entry
    assert Entry.decode_one(data).encode() == data
    assert Entry.from_json(entry.to_json()) == entry
    assert Entry.decode(b"before" + data + b"after", 6) == (entry, 6 + len(data))


@settings(max_examples=50)
@given(some.checkpoint_indexes)
def test_checkpoint_indexes(index: CheckpointIndex) -> None:
    assert CheckpointIndex.decode(index.encode()) == index
    assert cbor2.dumps(cbor2.loads(index.encode()), canonical=True) == index.encode()


@settings(max_examples=50)
@given(some.identities())
def test_key_maps(identity: HubIdentity) -> None:
    keys = identity.key_map()
    assert KeyMap.decode(keys.encode()) == keys
    assert len(keys.keys) == len(identity.hub_keys)


@settings(max_examples=50)
@given(st.lists(some.bound_checkpoints, max_size=6, unique_by=lambda item: item.place), st.randoms())
def test_bindings_do_not_depend_on_the_order_they_were_given_in(
    bound: list[BoundCheckpoint], random: Any
) -> None:
    data = CheckpointBinding.of(bound).encode()
    random.shuffle(bound)
    assert CheckpointBinding.of(bound).encode() == data
    assert set(CheckpointBinding.decode(data).checkpoints) == set(bound)
    assert CheckpointBinding.of(CheckpointBinding.decode(data).checkpoints).encode() == data


@settings(max_examples=50)
@given(st.lists(some.b32, max_size=64))
def test_peak_snapshots(hashes: list[Any]) -> None:
    size = (1 << len(hashes)) - 1
    made = Peaks(size, tuple(hashes))
    assert PeakSnapshot.decode(PeakSnapshot(made.hashes).encode()).at(size) == made
