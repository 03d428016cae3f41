"""Findings about a log as text and as JSON."""

from dataclasses import replace
from typing import Any

from veen.core.objects.finding import Finding


def to_text(finding: Finding) -> str:
    """Return a finding as one line; without a file it is about the log as a whole."""
    where = finding.where if finding.where.file else replace(finding.where, file="the log")
    return f"{where}: {finding.text} ({finding.code})"


def to_json(finding: Finding) -> dict[str, Any]:
    """Return a finding as a JSON object."""
    where = finding.where
    return {
        "label": (where.label or b"").hex(),
        "seq": where.seq or 0,
        "file": where.file,
        "offset": where.offset,
        "detail": finding.code,
        "text": finding.text,
    }
