"""Rules that an operator wants to be kept: a file of them, and what breaks them (CLI-126)."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from veen.cli.errors import USAGE, CommandError
from veen.cli.using import parse_json
from veen.client.interpreting import Interpretation
from veen.overlays.auditlog import QueryAudit
from veen.overlays.events import Outcome
from veen.overlays.overlay import Overlay
from veen.overlays.recovery import Recoveries

_AUDIT: Final = "require_audit"
_RECOVERY: Final = "require_recovery_threshold"
#: Of each type the fields that it needs, and those that it may have.
_FIELDS: Final = {
    _AUDIT: ({"stream", "resource_class"}, set[str]()),
    _RECOVERY: ({"target_identity_prefix", "min_approvals"}, {"stream"}),
}
_PREFIX: Final = re.compile(r"[0-9a-f]{0,64}")


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule."""

    kind: str
    #: Where it is to hold; empty: everywhere.
    stream: str
    resource_class: str = ""
    target_identity_prefix: str = ""
    min_approvals: int = 0

    def overlay(self) -> Overlay:
        """Return the fold that tells whether it is kept."""
        return QueryAudit() if self.kind == _AUDIT else Recoveries()


def read_policy(path: Path) -> list[Rule]:
    """Read a file of rules; what is unknown is refused, so that no rule is silently not checked."""
    found = parse_json(f"@{path}", "--policy-file")
    if not isinstance(found, dict) or set(found) != {"version", "rules"}:
        raise CommandError(f"{path} is no policy: it has version and rules", USAGE)
    if found["version"] != 1 or isinstance(found["version"], bool):
        raise CommandError(f"{path} is of version {found['version']}; 1 is known here", USAGE)
    if not isinstance(found["rules"], list):
        raise CommandError(f"{path} is no policy: rules are a list", USAGE)
    return [_rule(number, item) for number, item in enumerate(found["rules"], start=1)]


def _rule(number: int, item: Any) -> Rule:  # noqa: ANN401 - JSON
    kind = item.get("type") if isinstance(item, dict) else None
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise CommandError(
            f"rule {number} is of unknown type {kind!r}; there are: {', '.join(_FIELDS)}", USAGE
        )
    needed, more = _FIELDS[kind]
    given = set(item) - {"type"}
    if not needed <= given <= needed | more:
        raise CommandError(
            f"rule {number} has {', '.join(sorted(given))}; it needs {', '.join(sorted(needed))}", USAGE
        )
    least = item.get("min_approvals", 0)
    texts = [item[name] for name in given if name != "min_approvals"]
    if not isinstance(least, int) or least < 0 or not all(isinstance(text, str) for text in texts):
        raise CommandError(f"rule {number} has a value of the wrong type", USAGE)
    if not _PREFIX.fullmatch(item.get("target_identity_prefix", "")):
        raise CommandError(f"rule {number}: target_identity_prefix is lowercase hex", USAGE)
    return Rule(kind, item.get("stream", ""), **{name: item[name] for name in given if name != "stream"})


def violations_of(rule: Rule, found: Interpretation) -> list[dict[str, Any]]:
    """Return what breaks a rule in a stream."""
    stream, tables = found.stream, found.tables
    shown = {"rule": rule.kind, "stream": stream}
    if rule.kind == _AUDIT:
        if tables.get("classes", rule.resource_class) is not None:
            return []
        text = f"{stream} has no query.audit.v1 of class {rule.resource_class}"
        sealed = found.counts.get(Outcome.UNREADABLE.value, 0)
        text += f"; {sealed} entries are sealed for others" if sealed else ""
        return [{**shown, "resource_class": rule.resource_class, "detail": text}]
    overlay = Recoveries()
    broken = []
    for target in overlay.targets(tables):
        if not target.hex().startswith(rule.target_identity_prefix):
            continue
        for row, count in overlay.executions(tables, target):
            if count < rule.min_approvals:
                text = (
                    f"execution {row['msg_id']} in {stream} had {count} approvals, not {rule.min_approvals}"
                )
                broken.append(
                    {
                        **shown,
                        "target_identity": target.hex(),
                        "msg_id": row["msg_id"],
                        "stream_seq": row["stream_seq"],
                        "approvals": count,
                        "detail": text,
                    }
                )
    return broken
