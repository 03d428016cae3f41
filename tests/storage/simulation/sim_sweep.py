"""Every fault at every operation that an undisturbed run of an action has.

    report = sweep(
        prepare=lambda fs: create_store(fs),        # or a Snapshot
        action=lambda fs, acked: append_some(fs, acked),
        faults=(*CRASHES, *ERRORS),
        check=lambda fs, case: reopen_and_compare(fs, case.witness),
        witness=list,                               # a fresh one for each run: what the action was promised
        scratch=tmp_path,
        recover=lambda fs: open_store(fs).close(),  # and crash that, too
        recovery_faults=(Fault.CRASH_BEFORE,),
    )

One run of the action gives one state of the disk. From it every aftermath is tried: the end of the process
alone, and power losses. ``check`` then gets a filesystem without faults; it raises if something promised is
not there. It is called again after another power loss, because what a recovery has shown must stay: it can
leave what it saw in ``case.seen`` for that.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Generic, TypeVar

import lmdb

from tests.storage.simulation.sim_loss import KEEP_ALL, LOSE_ALL
from tests.storage.simulation.sim_plan import CRASHES, Crash, Fault, Op, Operation, Plan, chance
from tests.storage.simulation.simdisk import SimDisk, SimFilesystem, Snapshot
from veen.storage.errors import StorageError

T = TypeVar("T")

#: None: only the process ends. A number: the seed of a power loss.
Aftermath = int | None

AFTERMATHS: Final = (None, LOSE_ALL, KEEP_ALL, 2, 3, 4)
EXPECTED: Final = (OSError, StorageError, lmdb.Error)
#: A recovery that gets this far is in a loop that it feeds itself.
_MOST_OPERATIONS: Final = 100_000


@dataclass(slots=True)
class Case(Generic[T]):
    """What a check needs to know about the run it checks."""

    witness: T
    fault: Fault
    at: int
    seed: int
    hit: Operation | None
    error: BaseException | None
    aftermath: Aftermath = None
    recovery: str = "undisturbed"
    round: int = 1
    #: For the check: what one round saw is there for the next.
    seen: list[object] = field(default_factory=list)

    @property
    def injected(self) -> bool:
        return self.hit is not None

    def __str__(self) -> str:
        after = "process ended" if self.aftermath is None else f"power loss {self.aftermath}"
        return (
            f"{self.fault} at {self.at} (seed {self.seed}): {self.hit}; the action raised {self.error!r}; "
            f"then {after}; recovery {self.recovery}; check number {self.round}"
        )


@dataclass(slots=True)
class Report:
    """How much a sweep did, so that a test can say that it was not nothing."""

    runs: int = 0
    recoveries: int = 0
    checks: int = 0
    #: Those of runs without a fault, one for each seed.
    operations: Counter[Op] = field(default_factory=Counter)
    injected: Counter[tuple[Fault, Op]] = field(default_factory=Counter)

    def hit(self, fault: Fault, op: Op) -> int:
        return self.injected[fault, op]

    def hit_each(self, op: Op, *faults: Fault) -> bool:
        """Tell whether there were such operations, and each of these faults was at each of them."""
        return all(0 < self.operations[op] == self.hit(fault, op) for fault in faults)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sweep(Generic[T]):
    start: Snapshot
    action: Callable[[SimFilesystem, T], None]
    check: Callable[[SimFilesystem, Case[T]], None]
    witness: Callable[[], T]
    aftermaths: Sequence[Aftermath]
    recover: Callable[[SimFilesystem], None] | None
    recovery_faults: Sequence[Fault]
    recovery_points: int | None
    recovery_where: Callable[[Operation], bool] | None
    rounds: int
    persistent: bool
    harsh: bool
    where: Callable[[Operation], bool] | None
    expected: tuple[type[Exception], ...]
    report: Report = field(default_factory=Report)

    def over(self, faults: Sequence[Fault], seed: int) -> None:
        """Hit each operation of an undisturbed run with each fault; and once more none, at the end."""
        changes, reads = Fault.CRASH_BEFORE, Fault.READ_EIO
        seen = self._dry_run({*faults, changes, reads}, seed)
        self.report.operations += seen[changes] + seen[reads]
        for fault in faults:
            count = seen[fault].total()
            for at in range(1, count + 2):
                injected = self._run(fault, at, seed)
                assert injected == (at <= count), f"{fault} at {at}: an undisturbed run has {count} for it"

    def _dry_run(self, faults: Iterable[Fault], seed: int) -> dict[Fault, Counter[Op]]:
        """Run the action undisturbed, and return what each fault could have hit."""
        plans = [Plan(fault, None, where=self.where) for fault in faults]
        with SimDisk.from_snapshot(self.start) as disk:
            fs = disk.filesystem(*plans, seed=seed)
            self._attempt(lambda: self.action(fs, self.witness()), plans[0])
        return {plan.fault: plan.seen for plan in plans}

    def _run(self, fault: Fault, at: int, seed: int) -> bool:
        plan = Plan(fault, at, persistent=self.persistent, seed=_mixed(seed, at), where=self.where)
        witness = self.witness()
        with SimDisk.from_snapshot(self.start) as disk:
            fs = disk.filesystem(plan, seed=_mixed(seed, at, 1))
            error = self._attempt(lambda: self.action(fs, witness), plan)
            end = disk.snapshot()
        self.report.runs += 1
        hit = plan.hits[0] if plan.hits else None
        if hit is not None:
            self.report.injected[fault, hit.op] += 1
        for number, aftermath in enumerate(self.aftermaths):
            case = Case(witness, fault, at, seed, hit, error, _varied(aftermath, seed, at))
            with SimDisk.from_snapshot(end) as disk:
                befall(disk, case.aftermath, harsh=self.harsh)
                after = disk.snapshot() if self.recovery_faults else None
                self._examine(disk, case)
            if after is not None:
                for recovery_fault in self.recovery_faults:
                    self._disturb(after, case, recovery_fault, number)
        return plan.injected

    def _attempt(self, step: Callable[[], None], plan: Plan) -> BaseException | None:
        """Run a step; what it may raise depends on what was done to it."""
        error: BaseException | None = None
        try:
            step()
        except Crash as crash:
            error = crash
        except self.expected as failure:
            if not plan.injected:
                failure.add_note("nothing was injected")
                raise
            error = failure
        except BaseException as surprise:
            surprise.add_note(f"with {plan!r}")
            raise
        if plan.fault in CRASHES and plan.injected:
            assert isinstance(error, Crash), f"a crash was swallowed: {plan!r}, and then {error!r}"
        return error

    def _examine(self, disk: SimDisk, case: Case[T]) -> None:
        for number in range(1, self.rounds + 1):
            case.round = number
            if number > 1:
                disk.power_loss(_mixed(case.seed, case.at, number), harsh=self.harsh)
            try:
                self.check(disk.filesystem(), case)
            except BaseException as failure:
                failure.add_note(str(case))
                raise
            self.report.checks += 1

    def _disturb(self, after: Snapshot, case: Case[T], fault: Fault, number: int) -> None:
        """Break the recovery as well, at each of its operations or at some of them."""
        assert self.recover is not None, "recovery_faults need recover"
        recover = self.recover
        for at in self._points(after, case, fault):
            plan = Plan(fault, at, seed=_mixed(case.seed, case.at, at), where=self.recovery_where)
            with SimDisk.from_snapshot(after) as disk:
                fs = disk.filesystem(plan, seed=_mixed(case.seed, case.at, at, 1))
                try:
                    error = self._attempt(lambda: recover(fs), plan)  # noqa: B023 - called at once
                except BaseException as failure:
                    failure.add_note(str(case))
                    raise
                if not plan.injected:
                    return
                second = _varied(self.aftermaths[(number + at) % len(self.aftermaths)], case.seed, at)
                befall(disk, second, harsh=self.harsh)
                self.report.recoveries += 1
                text = f"met {plan!r}, raised {error!r}, then aftermath {second}"
                self._examine(disk, replace(case, recovery=text, seen=[]))

    def _points(self, after: Snapshot, case: Case[T], fault: Fault) -> Iterator[int]:
        if self.recovery_points is None:
            yield from range(1, _MOST_OPERATIONS)
            return
        counter = Plan(fault, None, where=self.recovery_where)
        with SimDisk.from_snapshot(after) as disk:
            assert self.recover is not None
            try:
                self.recover(disk.filesystem(counter))
            except BaseException as failure:
                failure.add_note(str(case))
                raise
        points = range(1, counter.seen.total() + 1)
        some = min(self.recovery_points, len(points))
        yield from sorted(chance(_mixed(case.seed, case.at, 2)).sample(points, some))


def befall(disk: SimDisk, aftermath: Aftermath, *, harsh: bool = False) -> None:
    """End the process, with or without a power loss."""
    if aftermath is None:
        disk.process_crash()
    else:
        disk.power_loss(aftermath, harsh=harsh)


def _mixed(*numbers: int) -> int:
    """Return a seed from several, none of them with a meaning of its own."""
    seed = 7
    for number in numbers:
        seed = (seed * 1_000_003 + number) % (1 << 61)
    return seed


def _varied(aftermath: Aftermath, seed: int, at: int) -> Aftermath:
    """Let the random power losses of each run be different ones."""
    return aftermath if aftermath in (None, LOSE_ALL, KEEP_ALL) else _mixed(aftermath or 0, seed, at)


def sweep(
    prepare: Snapshot | Callable[[SimFilesystem], None],
    action: Callable[[SimFilesystem, T], None],
    faults: Sequence[Fault],
    check: Callable[[SimFilesystem, Case[T]], None],
    *,
    witness: Callable[[], T],
    scratch: Path,
    aftermaths: Sequence[Aftermath] = AFTERMATHS,
    seeds: Sequence[int] = (0,),
    recover: Callable[[SimFilesystem], None] | None = None,
    recovery_faults: Sequence[Fault] = (),
    recovery_points: int | None = None,
    recovery_where: Callable[[Operation], bool] | None = None,
    rounds: int = 2,
    persistent: bool = False,
    harsh: bool = False,
    where: Callable[[Operation], bool] | None = None,
    expected: tuple[type[Exception], ...] = EXPECTED,
) -> Report:
    """Run ``action`` with each fault at each operation that it can hit, and check each disk that is left.

    ``expected`` are the errors that the action (and ``recover``) may raise because of a fault. With
    ``recovery_points`` not each operation of the recovery is hit but that many, other ones in each run.
    ``harsh`` is that of ``SimDisk.power_loss``.
    The last run of each fault, in which nothing was injected, is checked as well.
    """
    if not isinstance(prepare, Snapshot):
        with SimDisk(scratch) as disk:
            prepare(disk.filesystem())
            disk.process_crash()
            prepare = disk.snapshot()
    run = _Sweep(
        start=prepare,
        action=action,
        check=check,
        witness=witness,
        aftermaths=aftermaths,
        recover=recover,
        recovery_faults=recovery_faults,
        recovery_points=recovery_points,
        recovery_where=recovery_where,
        rounds=rounds,
        persistent=persistent,
        harsh=harsh,
        where=where,
        expected=expected,
    )
    for seed in seeds:
        run.over(faults, seed)
    return run.report
