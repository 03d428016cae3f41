"""Check a lake: its files against its commits, its tables against each other, and all against the log.

By itself a lake proves that its entries were signed by their senders and by the hub whose identity it stores,
and that all other tables follow from them. A lake that was set back to an earlier commit is a valid lake of
an earlier time: only the log, or a newer receipt, shows it.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from veen.core.merkle.mmr import Peaks, join
from veen.core.objects.finding import Level
from veen.pipeline.errors import DamagedLakeError, LakeError
from veen.pipeline.lake import hub_files, layout
from veen.pipeline.lake.commits import Commits, FileFact, LabelFact, State
from veen.pipeline.lake_jobs.check_gold import check_state, load_checked
from veen.pipeline.lake_jobs.check_rows import KnownHub, known_of
from veen.pipeline.lake_jobs.check_task import CheckInputs, Seen, Slab, check_roots_all, look_all
from veen.pipeline.lake_jobs.ingest_plan import check_against
from veen.pipeline.shared_keys import SharedKeys
from veen.pipeline.task_groups import group_into_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from veen.pipeline.log.log import Log

__all__ = ["CheckedLake", "check_lake", "check_seen", "slabs_of"]

# Tasks for each core, if there is enough work.
_TASKS_EACH: Final = 2
_NOT_CHECKED: Final = "not checked"


class CheckedLake(NamedTuple):
    """The result of a successful check."""

    commits: int
    files: int
    labels: int
    entries: int
    rows: int
    states: int
    # Whose signatures were checked.
    signatures: str
    # Whether bodies were compared with the decrypted messages, which needs keys.
    bodies: str
    against_log: bool
    # Entries of the log that are not in the lake yet.
    behind: int = 0


def check_lake(
    spark: "SparkSession",
    root: Path,
    log: "Log | None" = None,
    *,
    level: Level = Level.FULL,
    shared: SharedKeys | None = None,
) -> CheckedLake:
    """Check a lake; raise for the first fault. With ``shared``, messages are decrypted and compared."""
    if not (root / layout.META).is_dir():
        raise LakeError(f"{root} is not a lake; create one with: veen pipeline ingest LOG --lake {root}")
    state, stale = load_checked(root)
    _check_snapshots(root, state)
    for blob in state.hub.values():
        hub_files.read_blob(root, blob)
    known = known_of(root, state, log)
    if shared is not None and not known.profiles:
        raise LakeError("bodies cannot be opened: the lake has no settings of its hub; pass the log as well")
    for fact in state.labels.values():
        known.require_bound(fact)
    closed = _check_entries(spark, root, state, known, (level, shared))
    for key, item in state.gold.items():
        check_state(spark, root, state, stale[key], item)
    return CheckedLake(
        state.number,
        len(state.files),
        len(state.labels),
        entries=sum(fact.rows for fact in state.of_table(layout.ENTRIES)),
        rows=sum(fact.rows for fact in state.files.values()),
        states=len(state.gold),
        signatures=_signatures(level, known),
        bodies=_bodies(closed, shared),
        against_log=log is not None,
        behind=0 if log is None else _behind(state, log),
    )


def _signatures(level: Level, known: KnownHub) -> str:
    if level < Level.FULL:
        return _NOT_CHECKED
    if known.keys is None:
        return "checked, but not those of the hub: its keys are not in the lake; pass the log as well"
    return "checked"


def _bodies(closed: int, shared: SharedKeys | None) -> str:
    if shared is None:
        return _NOT_CHECKED
    return "checked" if not closed else f"checked, but {closed} that this keyring does not open"


def _behind(state: State, log: "Log") -> int:
    """Require that a log continues the lake; return the number of further entries."""
    upto = {label: fact.upto_seq for label, fact in state.labels.items()}
    return sum(head.last_seq - upto.get(head.label.hex(), 0) for head in check_against(state, log))


def _check_snapshots(root: Path, state: State) -> None:
    for path in (root / layout.SNAPSHOTS).glob("*.json"):
        if path.stem.isdigit() and int(path.stem) > state.number:
            raise DamagedLakeError(
                f"commits after {state.number} are missing: there were at least {int(path.stem)}"
            )
    if Commits(root).load().snapshot() != state.snapshot():
        raise DamagedLakeError(f"a file in {layout.SNAPSHOTS} does not match the commits; remove it")


def _check_entries(
    spark: "SparkSession", root: Path, state: State, known: KnownHub, how: tuple[Level, SharedKeys | None]
) -> int:
    """Check the files of all tables; return the number of messages that could not be opened."""
    slabs, place, context = slabs_of(state), str(root.resolve()), spark.sparkContext
    min_tasks = _TASKS_EACH * context.defaultParallelism
    keys = context.broadcast(known.keys)
    try:
        means = CheckInputs(place, how[0], keys, known.profiles, how[1])
        groups = group_into_tasks(slabs, lambda slab: slab.cost, min_tasks)
        results: list[Seen] = []
        if groups:
            tasks = context.parallelize(groups, len(groups))
            results = tasks.flatMap(lambda group: look_all(group, means)).collect()
    finally:
        keys.destroy(blocking=True)
    pairs = [pair for pair in zip(slabs, check_seen(state, results), strict=True) if pair[0].peaks is None]
    behind = group_into_tasks(pairs, lambda pair: pair[0].cost, min_tasks)
    if behind:
        roots = context.parallelize(behind, len(behind))
        for problem in roots.flatMap(lambda group: check_roots_all(group, place)).collect():
            raise DamagedLakeError(problem)
    return sum(seen.closed for seen in results)


def slabs_of(state: State) -> list[Slab]:
    """Group files by their entries; each group must have a file of the bronze table."""
    by_range: dict[str, dict[tuple[int, int], list[FileFact]]] = {label: {} for label in state.labels}
    for fact in state.files.values():
        if fact.label not in by_range:
            raise _stray(fact)
        by_range[fact.label].setdefault((fact.from_seq, fact.upto_seq), []).append(fact)
    slabs = []
    for name, spans in sorted(by_range.items()):
        label = state.labels[name]
        _check_cover(label, sorted(spans))
        begins = {1: Peaks.empty()} | {item.last + 1: item.range for item in label.missing}
        for span, facts in sorted(spans.items()):
            if not {layout.ENTRIES, layout.RECORDS} <= {fact.table for fact in facts}:
                raise _stray(facts[0])
            files = tuple(sorted(facts))
            slabs.append(Slab(name, *span, label.stream, label.epoch, files, begins.get(span[0])))
    return slabs


def _stray(fact: FileFact) -> DamagedLakeError:
    return DamagedLakeError(f"{fact.path} does not belong to entries that the lake has")


def _check_cover(fact: LabelFact, spans: Sequence[tuple[int, int]]) -> None:
    """Require that files have each entry of a label once, except those pruned before ingest."""
    listed = sorted([*spans, *((item.first, item.last) for item in fact.missing)])
    at = fact.from_seq
    for first, last in listed:
        if first != at:
            raise DamagedLakeError(
                f"entries {at} to {first - 1} of {fact.label} are in no file, or in several"
            )
        at = last + 1
    if at != fact.upto_seq + 1:
        raise DamagedLakeError(f"entries {at} to {fact.upto_seq} of {fact.label} are in no file")


def check_seen(state: State, found: Iterable[Seen]) -> list[Peaks]:
    """Connect the slabs of each label: their leaves must give the committed root.

    Returns the peaks before each slab.
    """
    begun: list[Peaks] = []
    by_label: dict[str, list[Seen]] = {}
    for seen in sorted(found, key=lambda item: (item.label, item.first)):
        if seen.problem is not None:
            raise DamagedLakeError(seen.problem)
        by_label.setdefault(seen.label, []).append(seen)
    for label, fact in sorted(state.labels.items()):
        peaks, last_ts = Peaks.empty(), 0
        behind = {item.last + 1: item.range for item in fact.missing}
        for seen in by_label.get(label, []):
            begun.append(behind.get(seen.first, peaks))
            peaks = join(begun[-1], seen.trees)
            if peaks.root != seen.root:
                raise DamagedLakeError(
                    f"the entries of {label} up to {seen.last} do not lead to the root there"
                )
            if seen.first_ts < last_ts:
                raise DamagedLakeError(f"entry {seen.first} of {label}: hub_ts goes back")
            last_ts = seen.last_ts
        if (peaks.size, peaks.root.hex()) != (fact.upto_seq, fact.mmr_root):
            raise DamagedLakeError(f"the entries of {label} do not lead to the committed root")
    return begun
