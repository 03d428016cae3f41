"""Errors of the pipeline.

    VeenError
    └── PipelineError                    everything that the pipeline raises by itself
        ├── LogSourceError               there is no such log, or it cannot be read (a ClientError as well)
        │   └── ConcurrentPruningError   ... entries are pruned while the query is planned
        ├── InvalidEntryError            an entry fails its checks: position, finding
        ├── ForeignReceiptError          a receipt is not signed by the hub (a ProtocolError as well)
        ├── PeaksMismatchError           peaks of a tombstone are not those of the log
        ├── OptionError                  an option of the data source, or its value, is invalid
        ├── OffsetError                  an offset in a checkpoint is not one of the data source
        ├── DataLossError                entries are missing, and failOnDataLoss is set: losses
        ├── UnverifiedError              a log that is to be folded is not complete
        │   └── RootMismatchError        ... the folded records do not lead to the root of the log
        ├── IncompleteStreamError        records of a stream are missing, or duplicate
        ├── FoldStateError               a fold state is damaged, or of another fold
        ├── LakeError                    a lake cannot be used as it is
        │   ├── LakeBusyError            ... another process writes to it
        │   ├── LakeQueryError           ... the SQL text is invalid, or does more than read
        │   ├── RejectedEntryError       ... an entry of the log fails its checks: finding
        │   └── DamagedLakeError         ... it does not match its commits
        │       └── ForkedLogError       ... or the log is not the one it was built from: label, position
        └── SparkError                   Spark cannot be used
            ├── SparkSessionError        ... as requested: options, settings, environment
            │   └── ClusterUnreachableError  ... no master answers
            ├── SparkWorkerError         ... workers of the cluster cannot run this code
            ├── JavaNotFoundError        ... there is no suitable Java runtime
            └── ClassArchiveError        ... (only its archive) this Java cannot store classes

An error that a task raises on an executor reaches the driver as text, from which ``spark.failures`` finds its
class by module and name.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from veen.client.errors import ClientError
from veen.core.errors import ProtocolError, VeenError
from veen.core.objects.finding import Finding
from veen.core.types import Label
from veen.pipeline.finding_format import to_text


class PipelineError(VeenError):
    """Base of what the pipeline raises by itself."""


class LogSourceError(PipelineError, ClientError):
    """There is no log at a path or URL, or not the expected one, or it cannot be read."""


class ConcurrentPruningError(LogSourceError):
    """Entries were pruned while a query was planned: the plan no longer matches the log."""


class InvalidEntryError(PipelineError):
    """An entry fails its checks; it is the first one of its part that does."""

    def __init__(self, seq: int, finding: Finding) -> None:
        super().__init__(seq, finding)
        self.seq = seq
        self.finding = finding

    def __str__(self) -> str:
        where, found = self.finding.where, self.finding
        place = where.file if where.offset is None else f"{where.file} at byte {where.offset}"
        label = (where.label or b"").hex()
        return f"entry {self.seq} of {label} in {place}: {found.text} ({found.code})"


class ForeignReceiptError(PipelineError, ProtocolError):
    """A receipt that the hub did not sign: it proves nothing about the hub's log."""


class PeaksMismatchError(PipelineError):
    """Stated peaks are not those of the log: the label must be checked again without relying on them."""


class OptionError(PipelineError):
    """The data source has no such option, or the option cannot have this value."""


class OffsetError(PipelineError):
    """An offset in a checkpoint is not one of this data source."""


class LossVerdict(StrEnum):
    """The ways in which entries can be missing."""

    # The log states that they were pruned.
    PRUNED = "pruned"
    # The log had them, and now neither has them nor states that they were pruned.
    LOST = "lost"
    # The log has another entry at the position of one that was read.
    FORKED = "forked"
    # The log ends before them.
    NEVER_WRITTEN = "never written"


class Loss(NamedTuple):
    """Entries of a label that cannot be read, and why."""

    verdict: LossVerdict
    label: Label
    first_seq: int
    last_seq: int
    text: str

    def __str__(self) -> str:
        one = self.first_seq == self.last_seq
        which = f"entry {self.first_seq}" if one else f"entries {self.first_seq} to {self.last_seq}"
        return f"{self.verdict}: {which} of {self.label.hex()}: {self.text}"


class DataLossError(PipelineError):
    """Entries are missing, and the query must stop then (failOnDataLoss)."""

    def __init__(self, losses: Iterable[Loss]) -> None:
        self.losses = list(losses)
        text = "; ".join(map(str, self.losses))
        super().__init__(f"{text}. Set failOnDataLoss=false to continue with the remaining entries")


class UnverifiedError(PipelineError):
    """A log that is to be folded is not complete."""


class RootMismatchError(UnverifiedError):
    """The folded records do not lead to the root of the log."""


class IncompleteStreamError(PipelineError):
    """Records of a stream are missing, or duplicate."""


class FoldStateError(PipelineError):
    """A fold state is damaged, or of another fold."""


class LakeError(PipelineError):
    """A lake cannot be used as it is; the text says why and what to do next."""


class LakeBusyError(LakeError):
    """Another process writes to the lake."""


class LakeQueryError(LakeError):
    """The SQL text is invalid, or does more than read."""


class RejectedEntryError(LakeError):
    """An entry of the log fails its checks: it is not ingested."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding)
        self.finding = finding

    def __str__(self) -> str:
        return to_text(self.finding)


class DamagedLakeError(LakeError):
    """A lake does not match its commits, or a log is not the one that the lake was built from."""


class ForkedLogError(DamagedLakeError):
    """The log is not the one that the lake was built from."""

    def __init__(self, label: str, seq: int, text: str) -> None:
        super().__init__(f"forked: label {label} at entry {seq}: {text}")
        self.label = label
        self.seq = seq


class SparkError(PipelineError):
    """Spark cannot be used."""


class SparkSessionError(SparkError):
    """Spark cannot be started as requested; the text is one line."""


class ClusterUnreachableError(SparkSessionError):
    """No master answers at the address of a cluster."""


class SparkWorkerError(SparkError):
    """Workers of a cluster cannot run this code; the text is one line that names them, and says why."""


class JavaNotFoundError(SparkError):
    """There is no Java runtime that Spark can use; the text says which were tried, and what to do."""


class ClassArchiveError(SparkError):
    """This Java cannot store classes in an archive."""
