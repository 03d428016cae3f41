"""Shared by the commands on Spark: options, the session, its progress bar, and the report of failures."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from veen.cli.errors import (
    CommandError,
    FailedError,
    MalformedError,
    TerminatedError,
    UnreachableError,
    UsageError,
)
from veen.cli.extras import missing_extra
from veen.cli.output import progress_bar
from veen.client.errors import (
    ClientError,
    DamagedLogError,
    DivergenceError,
    InvalidResponseError,
    NetworkError,
    PinError,
    RejectedError,
)
from veen.core.errors import VeenError
from veen.overlays.errors import OverlayError
from veen.pipeline.errors import ClusterUnreachableError, SparkSessionError
from veen.storage.errors import DamagedStoreError, StorageError

if TYPE_CHECKING:
    from veen.pipeline.spark.session import SparkSession


@contextmanager
def show_job_progress(spark: "SparkSession", what: str) -> Iterator[None]:
    """Show a progress bar of the tasks of the jobs that are started inside."""
    from veen.pipeline.spark import progress

    with progress_bar(f"{what}, tasks") as tell, progress.track_progress(spark.sparkContext, tell):
        yield


_MASTER: Final = "local[*,3]"
# Errors of storage and client that are caused by the log, not by the arguments.
_OF_THE_LOG: Final = (DamagedStoreError, DamagedLogError, DivergenceError, PinError, RejectedError)

MasterOption = Annotated[
    str,
    typer.Option("--master", help="Spark master: local[N,3], spark://HOST:PORT, yarn or k8s://HOST:PORT."),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="Spark setting; may be repeated."),
]
DriverMemoryOption = Annotated[
    str,
    typer.Option("--driver-memory", help="Memory of the Spark driver, for example 1g.", show_default=False),
]
VerboseSparkFlag = Annotated[
    bool, typer.Option("--verbose-spark", help="Print the log of Spark to standard error.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """Options of Spark (see ``option_groups``)."""

    master: MasterOption = _MASTER
    conf: ConfOption = None
    driver_memory: DriverMemoryOption = ""
    verbose_spark: VerboseSparkFlag = False

    @contextmanager
    def running(self, app: str, *, oneshot: bool = True) -> Iterator["SparkSession"]:
        """Run Spark while a command needs it; a failure in Spark ends the command with one line."""
        with require_extra():
            from veen.pipeline.spark import failures, session
        try:
            with session.running(
                app=f"veen {app}",
                master=self.master,
                conf=session.parse_conf(self.conf or ()),
                driver_memory=self.driver_memory,
                oneshot=oneshot,
                verbose=self.verbose_spark,
            ) as spark:
                try:
                    yield spark
                except Exception as error:
                    # While the JVM is running, which knows the cause.
                    reason = session.reason_of(error)
                    if reason is None:
                        raise
                    raise _failure(failures.cause_of(error), reason) from error
        except ClusterUnreachableError as error:
            raise UnreachableError(str(error), "E.NETWORK") from None
        except SparkSessionError as error:
            raise UsageError(str(error), "E.SPARK") from None
        except SystemExit as error:
            if error.code != TerminatedError.exit_code:
                raise
            raise TerminatedError("terminated", "E.INTERRUPTED") from None


def _failure(cause: type[VeenError] | None, reason: str) -> CommandError:
    """Return the error that ends a command after a failure in Spark, by the class of its cause in a task."""
    if cause is None:
        return UsageError(reason, "E.SPARK")
    if issubclass(cause, NetworkError):
        return UnreachableError(reason, "E.NETWORK")
    if issubclass(cause, InvalidResponseError):
        return MalformedError(reason, "E.MALFORMED")
    if issubclass(cause, _OF_THE_LOG) or not issubclass(cause, (ClientError, OverlayError, StorageError)):
        return FailedError(reason, "E.DAMAGED")
    return UsageError(reason, "E.SPARK")


@contextmanager
def require_extra() -> Iterator[None]:
    """Name the extra to install if a library of the pipeline is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"numpy", "pandas", "py4j", "pyarrow", "pyspark"}:
            raise
        raise missing_extra(error.name, "spark") from None
