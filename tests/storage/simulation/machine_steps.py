"""What can be asked of the machine: messages, restarts, and faults for the next call to meet."""

from collections.abc import Callable
from typing import Final, NamedTuple

from hypothesis import strategies as st

from tests.storage.simulation.machine_parts import CLIENTS, DATA, TOKENS
from tests.storage.simulation.sim_plan import CRASHES
from tests.storage.simulation.sim_sweep import Aftermath
from tests.storage.simulation.simdisk import Fault, Op, Operation
from tests.storage.stores import AUTHORIZE, CONTROL
from veen.core.data_dir.store_records import BZIP2, NO_COMPRESSION

LABELS: Final = (*DATA, AUTHORIZE, CONTROL)

FAULTS: Final = (
    *CRASHES,
    Fault.EIO,
    Fault.EIO_AFTER,
    Fault.ENOSPC,
    Fault.SHORT,
    Fault.FAILED_SYNC,
    Fault.READ_EIO,
)
AFTERMATHS: Final = st.one_of(st.none(), st.integers(0, 2**32))
COMPRESSIONS: Final = st.sampled_from((NO_COMPRESSION, BZIP2))


class Wish(NamedTuple):
    """A message to be sent."""

    stream: int
    client: str
    size: int
    token: int | None
    acknowledges: bool


class Round(NamedTuple):
    """Messages of one batch, after the clock has moved."""

    wishes: list[Wish]
    seconds: int
    bind: bool


class Trouble(NamedTuple):
    """A fault that the next call is to meet, and what follows if that ends the process."""

    fault: Fault
    at: int
    seed: int
    lasting: bool
    aftermath: Aftermath


class Ending(NamedTuple):
    """How a writer comes to its end: closed, perhaps with trouble, or by the end of its process."""

    closed: bool
    trouble: Trouble | None = None
    aftermath: Aftermath = None


class Restart(NamedTuple):
    """An end and a beginning, and whether somebody looks in between."""

    ending: Ending
    look: bool
    trouble: Trouble | None
    segment_bytes: int


WISHES: Final = st.builds(
    Wish,
    st.integers(0, len(DATA) - 1),
    st.sampled_from(CLIENTS),
    st.sampled_from((5, 5, 5, 700, 1_200)),
    st.sampled_from((None, None, *range(len(TOKENS)))),
    st.booleans(),
)
ROUNDS: Final = st.lists(
    st.builds(Round, st.lists(WISHES, min_size=1, max_size=5), st.integers(-9, 9), st.booleans()),
    min_size=1,
    max_size=3,
)


def troubles(most: int) -> st.SearchStrategy[Trouble | None]:
    """Return faults for a call that has about so many operations."""
    return st.none() | st.builds(
        Trouble,
        st.sampled_from(FAULTS),
        st.integers(1, most),
        st.integers(0, 2**16),
        st.booleans(),
        AFTERMATHS,
    )


ENDINGS: Final = st.builds(Ending, st.booleans(), troubles(40), AFTERMATHS)
RESTARTS: Final = st.builds(Restart, ENDINGS, st.booleans(), troubles(50), st.sampled_from((1 << 20, 3_000)))


def can_be_survived(fault: Fault) -> Callable[[Operation], bool] | None:
    """Return at which operations a fault can be survived; None for all."""
    # A directory whose sync fails forgets names, and no later sync helps. A file system with a journal does
    # not go on after that; on any other one all that can be had is a refusal, or a repair.
    if fault is not Fault.FAILED_SYNC:
        return None
    return lambda operation: operation.op is not Op.SYNC_DIR
