"""A hub that shows different logs to different people, and the evidence that comes of it."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import builders
from tests.client.conftest import Opens
from tests.client.proxy import Answer, Passing, Proxy
from tests.hub.hub_process import HubProcess, veen
from veen.client.errors import DivergenceError
from veen.client.fraud import Fraud
from veen.client.models import Draft
from veen.client.read import ReadOptions
from veen.core.api.data_plane import StreamResponse
from veen.core.crypto.ed25519 import SigningKey
from veen.core.errors import ProtocolError
from veen.core.merkle.mmr import Peaks
from veen.core.objects import labels
from veen.core.objects.hub_identity import HubIdentity, HubKey
from veen.core.objects.receipt import Receipt
from veen.core.types import NodeHash
from veen.hub.home import SECRETS, HubSecrets


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HubProcess, HubProcess]]:
    """Two hubs with one identity: what an operator does who wants to deceive."""
    place = tmp_path_factory.mktemp("twins")
    with HubProcess(place / "one") as one:
        one.stop()
    shutil.copytree(place / "one", place / "two")
    with HubProcess(place / "one") as one, HubProcess(place / "two") as two:
        yield one, two


def test_two_contents_for_one_place(opens: Opens, twins: tuple[HubProcess, HubProcess], stream: str) -> None:
    one, two = twins
    alice = opens("alice", one.url)
    alice.send(stream, "what alice is shown")
    opens("mallory", two.url).send(stream, "what others are shown")
    with pytest.raises(DivergenceError, match="two contents for entry 1") as caught:
        opens("alice", two.url).read(stream)
    first, second = caught.value.fraud.first, caught.value.fraud.second
    assert first.contradicts(second)
    path = caught.value.path
    assert path is not None
    done = veen("verify-fraud", path, "--json")
    assert done.returncode == 0, done.stdout
    assert "two contents" in done.stdout
    other = veen("verify-fraud", path, "--hub-key", "ab" * 32)
    assert other.returncode == 4, "it is about another hub than the reader knows"


@pytest.mark.parametrize("how", ["read on", "send", "resync", "jump", "verify-state"])
def test_a_log_that_was_rewritten_behind_what_was_seen(
    opens: Opens, twins: tuple[HubProcess, HubProcess], stream: str, how: str
) -> None:
    one, two = twins
    alice = opens("alice", one.url)
    alice.send_many(stream, [Draft(number) for number in range(4)])
    opens("mallory", two.url).send_many(stream, [Draft(number) for number in range(9)])
    again = opens("alice", two.url)
    if how == "verify-state":
        assert again.verify_state(stream)[0].first_mismatch is not None
        return
    actions: dict[str, Callable[[], object]] = {
        "read on": lambda: again.read(stream, ReadOptions(resume=True, start=5)),
        "send": lambda: again.send(stream, "mine"),
        "resync": lambda: again.resync(stream),
        "jump": lambda: again.read(stream, ReadOptions(start=8)),
    }
    with pytest.raises(DivergenceError) as caught:
        actions[how]()
    assert isinstance(caught.value, DivergenceError)
    assert Fraud.decode(caught.value.fraud.encode()).verify()
    kept = next(iter(again.session.home.load().labels.values()))
    assert kept.last_seq == 4, "what is known does not change"


def test_a_root_that_does_not_follow_is_evidence_by_itself(
    hub: HubProcess, opens: Opens, stream: str
) -> None:
    """The hub's own key signs a root that is not the one of its log."""
    secrets = HubSecrets.decode((hub.place / SECRETS).read_bytes())
    key = SigningKey.from_seed(secrets.seeds[0])
    opens("alice").send_many(stream, [Draft(number) for number in range(4)])

    def after(passing: Passing, answer: Answer) -> Answer:
        if not passing.path.startswith("/v1/stream"):
            return answer
        page = StreamResponse.decode(answer.body)
        items = list(page.items)
        true = items[2].receipt
        assert true is not None
        false = Receipt.sign(
            key,
            label=true.label,
            stream_seq=true.stream_seq,
            leaf_hash=true.leaf_hash,
            mmr_root=NodeHash(builders.leaf(7)),
            hub_ts=true.hub_ts,
        )
        items[2] = replace(items[2], receipt=false)
        return Answer(200, answer.content_type, replace(page, items=tuple(items)).encode())

    with Proxy(hub.url) as between:
        bob = opens("bob", between.url)
        between.after = after
        with pytest.raises(DivergenceError, match="does not follow from entry 2") as caught:
            bob.read(stream)
    fraud = Fraud.decode(caught.value.fraud.encode())
    assert fraud.peaks is not None
    assert "does not follow" in fraud.verify(fraud.identity.hub_keys[0].hub_pk)


# --- what is no evidence ------------------------------------------------------------------------------------

KEY = SigningKey.from_seed(os.urandom(32))
IDENTITY = HubIdentity(
    hub_id=labels.hub_id(KEY.public_key),
    hub_keys=(HubKey.of(KEY.public_key, 0),),
    anchoring="none",
    routing_key=builders.routing_key(),
)


def _receipt(seq: int, leaf: int, root: bytes) -> Receipt:
    return Receipt.sign(
        KEY,
        label=builders.some_label(),
        stream_seq=seq,
        leaf_hash=builders.leaf(leaf),
        mmr_root=NodeHash(root),
        hub_ts=1000,
    )


def _fraud(first: Receipt, second: Receipt, peaks: Peaks | None = None) -> Fraud:
    return Fraud(
        identity=IDENTITY,
        identity_sig=IDENTITY.sign(KEY),
        first=first,
        second=second,
        peaks=None if peaks is None else peaks.hashes,
    )


@given(st.integers(1, 40))
@settings(max_examples=25)
def test_an_honest_log_is_never_evidence(size: int) -> None:
    peaks = Peaks.empty()
    for number in range(size):
        peaks = peaks.append(builders.leaf(number))
    first = _receipt(size, size - 1, peaks.root)
    second = _receipt(size + 1, size, peaks.append(builders.leaf(size)).root)
    with pytest.raises(ProtocolError, match="can both be true"):
        _fraud(first, second, peaks).verify()
    with pytest.raises(ProtocolError, match="can both be true"):
        _fraud(first, first).verify()
    wrong = _receipt(size + 1, size, builders.leaf(999))
    assert _fraud(first, wrong, peaks).verify()
    with pytest.raises(ProtocolError, match="can both be true"):
        _fraud(first, wrong).verify()  # without the peaks nobody can tell
    made_up = Peaks(size, tuple(NodeHash(builders.leaf(100 + nth)) for nth in range(size.bit_count())))
    with pytest.raises(ProtocolError, match="not those of the first receipt"):
        _fraud(first, wrong, made_up).verify()


def test_receipts_of_another_key_are_no_evidence() -> None:
    first = _receipt(1, 1, builders.leaf(1))
    second = replace(_receipt(1, 2, builders.leaf(2)), hub_sig=builders.signing_key().sign(b"x"))
    with pytest.raises(ProtocolError, match="signature"):
        _fraud(first, second).verify()


EVIDENCE = _fraud(_receipt(1, 1, builders.leaf(1)), _receipt(1, 2, builders.leaf(2))).encode()


@given(st.integers(0, len(EVIDENCE) - 1), st.integers(0, 7))
def test_no_bit_of_the_evidence_can_change_unseen(at: int, bit: int) -> None:
    data = bytearray(EVIDENCE)
    data[at] ^= 1 << bit
    with pytest.raises(ProtocolError):
        Fraud.decode(bytes(data)).verify(KEY.public_key)
