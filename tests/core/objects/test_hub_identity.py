"""A hub's keys over time: which of them could sign what, and the files that say so."""

from dataclasses import replace
from hashlib import sha256

import cbor2
import pytest

from tests import rawcbor as raw
from tests.builders import (
    bound_checkpoint,
    checkpoint,
    digest,
    hub_id,
    hub_key,
    identity,
    receipt,
    signing_key,
    some_label,
    unsigned,
    verify_key,
)
from tests.expect import faulty, refused
from veen.core.encoding.cbor import MAX_ITEMS
from veen.core.errors import Code, Detail, Fault
from veen.core.objects import labels
from veen.core.objects.hub_identity import (
    BoundCheckpoint,
    CheckpointBinding,
    HubIdentity,
    HubKey,
    KeyMap,
    key_id,
)
from veen.core.types import HubId, KeyId, NodeHash, VerifyKey

#: One hub, three keys: the first overlaps the second, and there is a gap before the third.
ROTATED = identity(
    [
        hub_key("hub", valid_from=100, valid_until=200),
        hub_key("second", valid_from=180, valid_until=300),
        hub_key("third", valid_from=400),
    ]
)

#: No key was active; or some were, and none of them signed.
INACTIVE, NOT_ITS = Detail.KEY_INACTIVE, Detail.SIG_INVALID

# --- keys ---------------------------------------------------------------------------------------------------


def test_a_key_id_is_the_first_half_of_the_hash_of_the_key() -> None:
    assert key_id(verify_key("hub")) == sha256(verify_key("hub")).digest()[:16]
    with refused(Detail.VALUE, field="key_id"):
        replace(hub_key(), key_id=KeyId(bytes(16)))
    with refused(Detail.VALUE, field="key_id"):
        HubKey.decode(raw.with_pair(hub_key().encode(), 1, raw.bstr(bytes(16))))


@pytest.mark.parametrize(
    ("time", "active"), [(99, False), (100, True), (150, True), (199, True), (200, False), (2**63, False)]
)
def test_a_key_is_active_from_valid_from_and_before_valid_until(time: int, active: bool) -> None:  # noqa: FBT001
    assert hub_key(valid_from=100, valid_until=200).is_active_at(time) is active


def test_a_key_without_an_end_stays_active() -> None:
    key = hub_key(valid_from=100)
    assert not key.is_active_at(99)
    assert key.is_active_at(100)
    assert key.is_active_at(2**64 - 1)


@pytest.mark.parametrize(
    ("start", "end", "meets"),
    [
        (0, 100, False),
        (0, 101, True),
        (150, 151, True),
        (199, 300, True),
        (200, 300, False),
        (-50, 500, True),
    ],
)
def test_whether_a_key_meets_an_interval(start: int, end: int, meets: bool) -> None:  # noqa: FBT001
    assert hub_key(valid_from=100, valid_until=200).meets(start, end) is meets


def test_a_key_that_is_never_valid_is_refused() -> None:
    for until in (99, 100):
        with refused(Detail.VALUE, field="valid_until"):
            hub_key(valid_from=100, valid_until=until)
    assert hub_key(valid_from=100, valid_until=101).is_active_at(100)


# --- the identity -------------------------------------------------------------------------------------------


def test_the_hub_id_is_that_of_the_first_key_for_ever() -> None:
    assert ROTATED.hub_id == labels.hub_id(verify_key("hub")) == identity().hub_id
    assert ROTATED.routing_key == identity().routing_key
    with refused(Detail.VALUE, field="hub_id"):
        replace(ROTATED, hub_id=HubId(digest("other")))
    with refused(Detail.VALUE, field="hub_id"):
        replace(ROTATED, hub_keys=ROTATED.hub_keys[1:])


def test_there_is_at_least_one_key() -> None:
    with refused(Detail.VALUE, field="hub_keys"):
        replace(identity(), hub_keys=())
    with refused(Detail.VALUE, field="hub_keys"):
        HubIdentity.decode(raw.with_pair(identity().encode(), 3, b"\x80"))


def test_keys_have_one_order_and_no_key_occurs_twice() -> None:
    low, high = sorted([hub_key("a"), hub_key("b")], key=lambda key: key.hub_pk)
    assert identity([low, high]).hub_keys == (low, high)
    for wrong in (
        [high, low],
        [low, low],
        [hub_key("a", valid_from=5), hub_key("b", valid_from=4)],
        [hub_key("a", valid_from=1, valid_until=2), hub_key("a", valid_from=5)],
    ):
        with refused(Detail.VALUE, field="hub_keys"):
            identity(wrong)


def test_the_identity_is_signed_over_its_exact_bytes() -> None:
    sig = ROTATED.sign(signing_key("root"))
    assert sig == signing_key("root").sign(sha256(b"veen/hub-identity\x00" + ROTATED.encode()).digest())
    ROTATED.verify_signature(verify_key("root"), sig)
    HubIdentity.decode(ROTATED.encode()).verify_signature(verify_key("root"), sig)
    with refused(Detail.SIG_INVALID, code=Code.SIG):
        ROTATED.verify_signature(verify_key("hub"), sig)
    with refused(Detail.SIG_INVALID):
        replace(ROTATED, anchoring="other").verify_signature(verify_key("root"), sig)
    with refused(Detail.SIG_INVALID):
        ROTATED.verify_signature(verify_key("root"), unsigned())
    for length in (0, 63, 65):
        with refused(Detail.FIELD_SIZE):
            ROTATED.verify_signature(verify_key("root"), (sig + sig)[:length])


# --- receipts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signer", "hub_ts", "refusal"),
    [
        ("hub", 99, INACTIVE),
        ("hub", 100, None),
        ("hub", 190, None),
        ("hub", 199, None),
        ("hub", 200, NOT_ITS),
        ("hub", 450, NOT_ITS),
        ("second", 179, NOT_ITS),
        ("second", 180, None),
        ("second", 190, None),
        ("second", 299, None),
        ("second", 350, INACTIVE),
        ("third", 190, NOT_ITS),
        ("third", 400, None),
        ("third", 2**64 - 1, None),
        ("stranger", 190, NOT_ITS),
    ],
)
def test_a_receipt_verifies_under_a_key_active_at_its_time_for_ever(
    signer: str, hub_ts: int, refusal: Detail | None
) -> None:
    made = receipt(signer=signer, hub_ts=hub_ts)
    if refusal is None:
        assert ROTATED.verify_receipt(made).hub_pk == verify_key(signer)
    else:
        with refused(refusal):
            ROTATED.verify_receipt(made)


def test_rotation_does_not_make_old_receipts_invalid() -> None:
    old = receipt(signer="hub", hub_ts=150)
    before = identity([hub_key("hub", valid_from=100)])
    assert before.verify_receipt(old).hub_pk == ROTATED.verify_receipt(old).hub_pk


# --- checkpoints --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signer", "epoch", "skew", "refusal"),
    [
        # Epochs of 10 s: the first key is valid in [100, 200), so in epochs 10 to 19.
        ("hub", 9, 0, INACTIVE),
        ("hub", 10, 0, None),
        ("hub", 19, 0, None),
        ("hub", 20, 0, NOT_ITS),
        ("hub", 9, 1, None),
        ("hub", 20, 1, None),
        ("hub", 8, 10, INACTIVE),
        ("hub", 8, 11, None),
        ("hub", 21, 10, NOT_ITS),
        ("hub", 21, 11, None),
        ("second", 17, 0, NOT_ITS),
        ("second", 18, 0, None),
        ("second", 29, 0, None),
        ("second", 30, 0, INACTIVE),
        ("third", 40, 0, None),
        ("third", 10**6, 0, None),
        ("third", 35, 0, INACTIVE),
        ("stranger", 15, 0, NOT_ITS),
    ],
)
def test_a_checkpoint_verifies_under_a_key_active_in_its_epoch_give_or_take_the_skew(
    signer: str, epoch: int, skew: int, refusal: Detail | None
) -> None:
    made = checkpoint(signer=signer, epoch=epoch)
    if refusal is None:
        assert ROTATED.verify_checkpoint(made, epoch_sec=10, max_skew_sec=skew).hub_pk == verify_key(signer)
    else:
        with refused(refusal):
            ROTATED.verify_checkpoint(made, epoch_sec=10, max_skew_sec=skew)


@pytest.mark.parametrize("signer", ["hub", "second", "third"])
def test_without_epochs_any_key_of_the_identity_counts(signer: str) -> None:
    made = checkpoint(signer=signer)
    assert ROTATED.verify_checkpoint(made, epoch_sec=0, max_skew_sec=0).hub_pk == verify_key(signer)
    with refused(Detail.SIG_INVALID):
        ROTATED.verify_checkpoint(checkpoint(signer="stranger"), epoch_sec=0, max_skew_sec=0)


# --- the key map --------------------------------------------------------------------------------------------


def test_the_key_map_finds_every_key_by_its_id() -> None:
    made = ROTATED.key_map()
    data = made.encode()
    content = cbor2.loads(data)
    assert content == {key.key_id: key.hub_pk for key in ROTATED.hub_keys}
    assert list(content) == sorted(content)
    assert KeyMap.decode(data) == made
    assert KeyMap.decode(data).encode() == data


def test_a_name_that_is_not_the_one_of_its_key_is_refused() -> None:
    with refused(Detail.VALUE, field="key_id"):
        KeyMap({key_id(verify_key("a")): verify_key("b")})
    data = raw.mapping([(raw.bstr(bytes(16)), raw.bstr(verify_key("a")))])
    with refused(Detail.VALUE, field="key_id"):
        KeyMap.decode(data)
    for name, key in ((bytes(15), verify_key("a")), (key_id(verify_key("a")), VerifyKey(bytes(31)))):
        with refused(Detail.FIELD_SIZE):
            KeyMap.decode(raw.mapping([(raw.bstr(name), raw.bstr(key))]))


def test_a_malformed_key_map_is_refused() -> None:
    pairs = raw.pairs(ROTATED.key_map().encode())
    with faulty(Fault.KEY_ORDER):
        KeyMap.decode(raw.mapping([pairs[1], pairs[0]]))
    with faulty(Fault.DUPLICATE_KEY):
        KeyMap.decode(raw.mapping([pairs[0], pairs[0]]))
    with faulty(Fault.TRAILING):
        KeyMap.decode(raw.mapping(pairs) + b"\x00")
    with faulty(Fault.TYPE):
        KeyMap.decode(raw.mapping([(raw.uint(1), pairs[0][1])]))
    data = raw.mapping(pairs)
    for length in range(len(data)):
        with faulty(Fault.TRUNCATED):
            KeyMap.decode(data[:length])


# --- the binding of checkpoints -----------------------------------------------------------------------------


def lines() -> list[BoundCheckpoint]:
    low, high = sorted([some_label("a"), some_label("b")])
    return [
        bound_checkpoint(label=low, epoch=1, upto_seq=2),
        bound_checkpoint(label=low, epoch=1, upto_seq=300),
        bound_checkpoint(label=low, epoch=2, upto_seq=1),
        bound_checkpoint(label=high, epoch=0, upto_seq=1),
    ]


def test_the_binding_lists_checkpoints_by_label_epoch_and_sequence() -> None:
    made = lines()
    data = CheckpointBinding.of(reversed(made)).encode()
    assert CheckpointBinding.decode(data).checkpoints == tuple(made)
    assert CheckpointBinding.of(CheckpointBinding.decode(data).checkpoints).encode() == data
    first = made[0]
    assert cbor2.loads(data)[0] == [first.label, 1, 2, first.hub_id, first.key_id, first.mmr_root]
    assert CheckpointBinding.of([]).encode() == b"\x80"
    assert CheckpointBinding.decode(b"\x80").checkpoints == ()


def test_repeated_or_unordered_lines_are_refused() -> None:
    made = [line.encode() for line in lines()]
    for wrong in ([made[1], made[0]], [made[0], made[0]], [made[2], made[1]], [made[3], made[0]]):
        with faulty(Fault.KEY_ORDER):
            CheckpointBinding.decode(raw.array(wrong))
    same_place = replace(lines()[0], mmr_root=NodeHash(digest("other")))
    with faulty(Fault.KEY_ORDER):
        CheckpointBinding.decode(raw.array([made[0], same_place.encode()]))


def test_a_malformed_binding_is_refused() -> None:
    data = CheckpointBinding.of(lines()).encode()
    for length in range(len(data)):
        with faulty(Fault.TRUNCATED):
            CheckpointBinding.decode(data[:length])
    with faulty(Fault.TRAILING):
        CheckpointBinding.decode(data + b"\x00")
    short = raw.with_element(lines()[0].encode(), 4, raw.bstr(bytes(15)))
    with refused(Detail.FIELD_SIZE):
        CheckpointBinding.decode(raw.array([short]))


def test_a_binding_may_have_more_lines_than_a_message_may_have_items() -> None:
    line = bound_checkpoint(upto_seq=1).encode()
    at = line.index(b"\x01", 35)
    tails = (line[:at] + raw.uint(seq) + line[at + 1 :] for seq in range(1, MAX_ITEMS + 2))
    assert len(CheckpointBinding.decode(raw.array(tails)).checkpoints) == MAX_ITEMS + 1


def test_a_fork_names_its_parent_and_is_not_its_own() -> None:
    fork = identity(parent="parent")
    assert fork.parent is not None
    assert fork.parent.hub_id == hub_id("parent")
    assert HubIdentity.decode(fork.encode()) == fork
    with refused(Detail.VALUE, field="parent"):
        identity(parent="hub")
