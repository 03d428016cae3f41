"""Certificates of states, and overlays made from parameters as text."""

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

import pytest

from tests.overlays.histories import ident
from veen.core.crypto.ed25519 import SigningKey
from veen.core.errors import ProtocolError
from veen.core.types import Label, StreamId
from veen.overlays.builtin.crdt import GCounter, LwwMap
from veen.overlays.certificate import CertifiedLabel, StateCertificate
from veen.overlays.errors import ParameterError
from veen.overlays.overlay import Overlay
from veen.overlays.parameters import configured

KEY = SigningKey.from_seed(bytes(31) + b"\x05")
LABELS = tuple(
    CertifiedLabel(
        epoch=epoch, label=Label(ident("label", epoch)), upto_seq=seq, mmr_root=ident("root", epoch)
    )
    for epoch, seq in ((3, 7), (4, 1))
)


def issued(overlay: Overlay, **more: Any) -> StateCertificate:
    given: dict[str, Any] = {
        "stream_id": StreamId(ident("stream")),
        "labels": LABELS,
        "state_hash": ident("state"),
        **more,
    }
    return StateCertificate.issue(KEY, overlay, **given)


def test_a_certificate_is_its_bytes() -> None:
    made = issued(LwwMap(), bridges=frozenset({ident(1), ident(2)}))
    again = StateCertificate.decode(made.encode())
    assert again == made == issued(LwwMap(), bridges=frozenset({ident(2), ident(1)}))
    again.verify()
    assert again.differences(LwwMap(), LABELS, ident("state")) == []


@pytest.mark.parametrize("name", [item.name for item in StateCertificate.SHAPE.fields if item.name != "ver"])
def test_the_signature_is_over_every_field(name: str) -> None:
    made = issued(LwwMap())
    others: dict[str, Any] = {
        "overlay": "other",
        "overlay_version": 9,
        "parameters": '{"a": 1}',
        "schemas": (ident(9),),
        "bridges": (ident(9),),
        "labels": LABELS[:1],
        "state_class": "other",
        "issuer_pk": SigningKey.from_seed(bytes(31) + b"\x06").public_key,
        "sig": bytes(64),
    }
    changed = replace(made, **{name: others.get(name, ident(9))})
    with pytest.raises(ProtocolError):
        changed.verify()


def test_what_can_not_be_certified() -> None:
    with pytest.raises(ProtocolError):
        issued(LwwMap(), labels=LABELS[::-1])
    with pytest.raises(ProtocolError):
        issued(LwwMap(), labels=(LABELS[0], LABELS[0]))
    for text in ("", "[]", "{", "[" * 100_000):
        with pytest.raises(ProtocolError):
            replace(issued(LwwMap()), parameters=text)


def test_all_that_differs_is_told() -> None:
    made = issued(LwwMap())
    found = made.differences(GCounter(), [replace(LABELS[1], epoch=9)], ident("other"))
    for text in ("overlay is", "state_class", "schemas", "epoch 9", "epoch 3", "epoch 4", "state_hash"):
        assert any(text in line for line in found), text


class Tuned(LwwMap):
    """One with parameters of every kind that can be written."""

    text: str = "a"
    count: int = 1
    flag: bool = False
    key: bytes = b""
    maybe: str | None = None
    most: int | None = None
    keys: frozenset[bytes] = frozenset()
    pairs: Mapping[bytes, bytes] = field(default_factory=dict)
    inner: Overlay | None = None


def test_parameters_are_what_they_were() -> None:
    made = Tuned("b", 2, True, b"\x01", "c", 7, frozenset({b"\x02", b"\x03"}), {b"\x04": b"\x05"})  # noqa: FBT003
    assert configured(Tuned, made.parameters()) == made
    assert configured(Tuned, Tuned().parameters()) == Tuned()


def test_parameters_as_people_write_them() -> None:
    written = {
        "count": "-3",
        "flag": "true",
        "key": "0a",
        "most": "5",
        "keys": "0b,0c",
        "pairs": "0d:0e,0f:10",
    }
    expected = Tuned(
        count=-3,
        flag=True,
        key=b"\x0a",
        most=5,
        keys=frozenset({b"\x0b", b"\x0c"}),
        pairs={b"\x0d": b"\x0e", b"\x0f": b"\x10"},
    )
    assert configured(Tuned, written) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nothing", "1"),
        ("text", 1),
        ("count", "many"),
        ("count", True),
        ("flag", "yes"),
        ("flag", []),
        ("key", "xyz"),
        ("key", 5),
        ("keys", 5),
        ("keys", "0b,zz"),
        ("pairs", "0d"),
        ("pairs", 7),
        ("inner", "something"),
    ],
)
def test_parameters_that_are_wrong(name: str, value: Any) -> None:
    with pytest.raises(ParameterError):
        configured(Tuned, {name: value})
