"""The limit registry: protocol maxima are never raised, and an operator hears of all mistakes at once."""

from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from tests.expect import refused
from veen.core.errors import Detail
from veen.core.limits import (
    DEFAULT_LIMITS,
    ENTRY_HEADER_BYTES,
    ENVELOPE_HEAD_BYTES,
    EPOCH_PROBE,
    MAX_CAP_CHAIN,
    MAX_PROOF_PATH,
    MAX_RECEIPT_BYTES,
    PROTOCOL_MAXIMA,
    REASONS,
    SUBMIT_ENVELOPE_BYTES,
    Limits,
    default_limits,
)

DEFAULTS = {
    "max_msg_bytes": 1_048_576,
    "max_hdr_bytes": 16_384,
    "max_body_bytes": 1_048_320,
    "max_attachments_per_msg": 1_024,
    "max_attachment_bytes": 16_777_216,
    "max_chunk_bytes": 67_108_864,
    "max_checkpoint_interval": 65_536,
    "max_cap_rate_per_sec": 10_000,
    "max_cap_rate_burst": 20_000,
    "max_epoch_skew_sec": 60,
    "max_cap_stream_ids": 256,
    "max_cap_bytes": 16_384,
}


def test_the_defaults_are_the_documented_ones() -> None:
    assert {field.name: getattr(DEFAULT_LIMITS, field.name) for field in fields(Limits)} == DEFAULTS


def test_the_fixed_limits_are_the_documented_ones() -> None:
    assert (MAX_PROOF_PATH, MAX_CAP_CHAIN, EPOCH_PROBE) == (64, 8, 16)
    assert (ENVELOPE_HEAD_BYTES, SUBMIT_ENVELOPE_BYTES, ENTRY_HEADER_BYTES, MAX_RECEIPT_BYTES) == (
        40,
        4,
        82,
        188,
    )


@pytest.mark.parametrize("name", PROTOCOL_MAXIMA)
def test_a_protocol_maximum_may_be_lowered_but_never_raised(name: str) -> None:
    highest = DEFAULTS[name]
    make: Any = Limits
    assert getattr(make(**{name: highest - 1}), name) == highest - 1
    with refused(Detail.VALUE, field="limits") as caught:
        make(**{name: highest + 1})
    assert name in caught.value.message
    assert str(highest) in caught.value.message


def test_the_protocol_maxima_are_those_of_the_protocol() -> None:
    assert set(PROTOCOL_MAXIMA) == {
        "max_msg_bytes",
        "max_hdr_bytes",
        "max_body_bytes",
        "max_attachments_per_msg",
    }


@pytest.mark.parametrize("name", sorted(set(DEFAULTS) - {"max_epoch_skew_sec"}))
def test_no_limit_is_zero_or_negative(name: str) -> None:
    make: Any = Limits
    for value in (0, -1):
        with refused(Detail.VALUE, field="limits") as caught:
            make(**{name: value})
        assert name in caught.value.message


@pytest.mark.parametrize("name", sorted(set(DEFAULTS) - {"max_chunk_bytes"}))
def test_a_limit_may_be_as_low_as_1(name: str) -> None:
    make: Any = Limits
    assert getattr(make(**{name: 1}), name) == 1


def test_a_skew_of_zero_is_allowed() -> None:
    assert Limits(max_epoch_skew_sec=0).max_epoch_skew_sec == 0
    with refused(Detail.VALUE):
        Limits(max_epoch_skew_sec=-1)


def test_all_mistakes_are_told_in_one_message() -> None:
    with refused(Detail.VALUE) as caught:
        Limits(max_msg_bytes=2**30, max_hdr_bytes=0, max_cap_bytes=-5, max_chunk_bytes=1)
    for name in ("max_msg_bytes", "max_hdr_bytes", "max_cap_bytes", "max_chunk_bytes"):
        assert name in caught.value.message
    assert "max_body_bytes" not in caught.value.message


def test_the_largest_entry_fits_in_a_chunk() -> None:
    needed = 1_048_576 + 82 + 188
    assert Limits(max_chunk_bytes=needed).max_chunk_bytes == needed
    with refused(Detail.VALUE) as caught:
        Limits(max_chunk_bytes=needed - 1)
    assert str(needed) in caught.value.message
    assert Limits(max_msg_bytes=1_000, max_chunk_bytes=1_270).max_chunk_bytes == 1_270
    with refused(Detail.VALUE):
        Limits(max_msg_bytes=1_000, max_chunk_bytes=1_269)


def test_limits_that_follow_from_others() -> None:
    assert DEFAULT_LIMITS.max_submit_bytes == 1_048_580
    assert DEFAULT_LIMITS.max_plain_body_bytes == 1_048_304
    assert Limits(max_msg_bytes=500).max_submit_bytes == 504
    assert Limits(max_body_bytes=100).max_plain_body_bytes == 84


@pytest.mark.parametrize(("epoch_sec", "skew"), [(0, 60), (30, 60), (60, 60), (61, 61), (3_600, 3_600)])
def test_the_default_skew_is_one_epoch_and_a_minute_at_least(epoch_sec: int, skew: int) -> None:
    assert default_limits(epoch_sec).max_epoch_skew_sec == skew


def test_a_registry_does_not_change_while_a_process_runs() -> None:
    with pytest.raises(FrozenInstanceError):
        DEFAULT_LIMITS.max_msg_bytes = 1  # type: ignore[misc]


def test_every_limit_has_a_reason_for_the_reference_page() -> None:
    assert set(REASONS) == set(DEFAULTS)
    assert all(REASONS.values())


def test_the_smallest_limits_are_1_and_no_skew() -> None:
    smallest = Limits(max_hdr_bytes=1, max_cap_rate_per_sec=1, max_epoch_skew_sec=0)
    assert (smallest.max_hdr_bytes, smallest.max_epoch_skew_sec) == (1, 0)
    with refused(Detail.VALUE):
        Limits(max_hdr_bytes=0)
