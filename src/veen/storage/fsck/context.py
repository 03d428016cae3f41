"""The context of all parts of a check: level, limits, keys and journal."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from veen.core.data_dir.paths import Domain
from veen.core.data_dir.store_records import StoreRecord
from veen.core.limits import DEFAULT_LIMITS, Limits
from veen.core.objects.finding import Level
from veen.core.types import Label
from veen.storage.fsck.journal import Journal
from veen.storage.fsck.keys import Keys
from veen.storage.fsck.source import Source


@dataclass(frozen=True, slots=True)
class Rule:
    """The two limits that determine where chunks end, and the hub_ts from which they are in force."""

    effective_from: int
    max_bytes: int
    max_entries: int


@dataclass(slots=True)
class Context:
    """One check."""

    source: Source
    level: Level
    limits: Limits
    rules: list[Rule]
    keys: Keys
    reserved: Mapping[Label, Domain]
    # The archived log of a fork's parent: files beside its chunks may be missing.
    archived: bool = False
    journal: Journal = field(default_factory=Journal)

    def rule_at(self, hub_ts: int) -> Rule:
        """Return the rule for an entry of this time."""
        return next(rule for rule in self.rules if rule.effective_from <= hub_ts)


def rules_of(store: StoreRecord) -> list[Rule]:
    """Return the rules of all registries, the newest first."""
    rules = []
    for registry in reversed(store.registries):
        limits = registry.limits
        rules.append(Rule(registry.effective_from, limits.max_chunk_bytes, limits.max_checkpoint_interval))
    return rules


def widest_limits(store: StoreRecord) -> Limits:
    """Return the maximum of each limit over all times: sizes are checked at admission, not here."""
    all_limits = [DEFAULT_LIMITS, *(registry.limits for registry in store.registries)]
    return Limits(
        **{item.name: max(getattr(limits, item.name) for limits in all_limits) for item in fields(Limits)}
    )
