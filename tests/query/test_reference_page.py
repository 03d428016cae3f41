"""The reference page says what the code does: codes, fields, limits."""

import re

from tests.paths import ROOT
from veen.core.encoding import canonical_json
from veen.query import descriptor, fields
from veen.query.digest import NONE_HASH
from veen.query.errors import STATUS

PAGE = (ROOT / "docs" / "reference" / "query.md").read_text(encoding="utf-8")


def test_every_error_with_its_status() -> None:
    rows = re.findall(r"^\| `([a-z_]+)` \| ([0-9]{3}) \|", PAGE, re.MULTILINE)
    assert {code: int(status) for code, status in rows} == dict(STATUS)


def test_every_field_and_metric() -> None:
    for name in (*fields.BASE_FIELDS, *descriptor.METRICS, *descriptor.Mode):
        assert f"`{name}`" in PAGE, name
    star = re.search(r'^`\["\*"\]` is (.*?)\. ', PAGE, re.MULTILINE)
    assert star is not None
    assert tuple(re.findall("`([a-z_]+)`", star[1])) == fields.DEFAULT_FIELDS


def test_every_limit() -> None:
    for limit in (
        descriptor.MAX_DESCRIPTOR_BYTES,
        descriptor.MAX_SCOPE,
        descriptor.MAX_EVENT_TYPES,
        descriptor.MAX_PROJECTION,
        descriptor.MAX_STREAM_BYTES,
        fields.MAX_FIELD_BYTES,
        canonical_json.MAX_DEPTH,
        canonical_json.MAX_DIGITS,
    ):
        assert re.search(rf"\b({limit}|{limit:,})\b", PAGE), limit
    assert NONE_HASH in PAGE
