"""Starting Spark: the one place that does, with the settings that were measured to matter; and ending it.

``running`` is the way to use it: whatever happens inside, no process and no file of Spark's is left behind.
"""

import atexit
import logging
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any, Final
from urllib.parse import urlsplit

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from veen.pipeline.errors import ClusterUnreachableError, SparkSessionError, SparkWorkerError
from veen.pipeline.spark import authentication, class_archive, failures, ship_code
from veen.pipeline.spark.directories import Scratch, kept_dir, private, quoted
from veen.pipeline.spark.environment import (
    DEFAULT_MASTER,
    ONESHOT,
    check_loopback,
    check_python,
    environment_of,
    having,
    is_local,
)
from veen.pipeline.spark.processes import Descendants, SignalHandler, children_with, held_back, is_main

__all__ = [
    "DEFAULT_MASTER",
    "SparkSession",
    "environment_of",
    "is_local",
    "parse_conf",
    "reason_of",
    "running",
    "start",
    "stop",
]

_SETTINGS: Final[Mapping[str, str]] = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # Files are written with checksums of their pages.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
}
_LOCAL_SETTINGS: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.daemon.module": "veen.pipeline.spark.worker_daemon",
}
_MASTER: Final = re.compile(r"local(\[[^\[\]]+\])?|local-cluster\[[^\[\]]+\]|spark://\S+|k8s://\S+|yarn")
_SETTING: Final = re.compile(r"(?:spark|veen)\.\S+")
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
#: What a JVM says before it says what is wrong, and after.
_NOISE: Final = re.compile(r"\s+at |WARNING|\[[\d.s]+\]\[warning\]")
#: When, how bad and where, in front of what it logs.
_LOGGED: Final = re.compile(r"^[\d:]{8} [A-Z]+ \S+: ")
_SECRET: Final = re.compile(r"(\.secret|password|secret\.key|oauthToken)$", re.IGNORECASE)
#: Settings of ours.
_OWN: Final = {"veen.ship": re.compile("true|false"), "veen.wait": re.compile(r"\d{1,6}")}
#: A cluster that has to make room first gets this long.
_WAIT_SEC: Final = 120.0
_CONNECT_SEC: Final = 5.0
#: Spark needs half a second to stop; what takes longer is ended without ceremony.
_STOP_SEC: Final = 15.0
#: If it is stopped because something has gone wrong, or was interrupted.
_HURRIED_SEC: Final = 5.0
#: A path of a socket has at most 108 bytes, and Spark adds 43.
_SOCKET_DIR_BYTES: Final = 60
_LOGGERS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
_LOG_FORM: Final = """\
status = error
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""


@dataclass(slots=True)
class _Held:
    """What a session has taken, to be given back."""

    scratch: Scratch
    process: Popen[bytes]
    interrupt: Any


_held: _Held | None = None


def parse_conf(given: Iterable[str]) -> dict[str, str]:
    """Read settings, each as NAME=VALUE."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not _SETTING.fullmatch(name.strip()):
            raise SparkSessionError(
                f"{text!r} is not a Spark setting; give NAME=VALUE, such as spark.task.cpus=1"
            )
        found[name.strip()] = value
    return found


def _check_secrets(given: Mapping[str, str]) -> None:
    """Refuse secrets: what is given to Spark stands on the command line of its JVM, for all to read."""
    for name in given:
        if _SECRET.search(name):
            raise SparkSessionError(f"{name} is a secret: set it in spark-defaults.conf, in SPARK_CONF_DIR")


def start(
    *,
    app: str = "veen",
    master: str = DEFAULT_MASTER,
    conf: Mapping[str, str] | None = None,
    driver_memory: str = "",
    oneshot: bool = False,
    verbose: bool = False,
) -> SparkSession:
    """Start Spark, or return the session that runs. What ``conf`` sets counts more than what we do.

    Args:
        app: its name, in a cluster's lists.
        master: ``local[N,3]`` for this machine, or the address of a cluster.
        conf: settings of Spark.
        driver_memory: of the JVM of this process; ``1g``.
        oneshot: be quick to begin, at the price of long work being slower.
        verbose: show what Spark logs, on standard error.

    Raises:
        SparkSessionError: it can not be started so.

    """
    active = SparkSession.getActiveSession()
    if active is not None and active.sparkContext._jsc is not None:  # noqa: SLF001 - Spark has no other way
        return active
    own = {name: value for name, value in (conf or {}).items() if name.startswith("veen.")}
    given = {name: value for name, value in (conf or {}).items() if name not in own}
    _check_own(own)
    _check_secrets(given)
    _check_master(master)
    check_loopback()
    scratch = Scratch()
    try:
        settings = _settings(master, given, scratch.path, driver_memory=driver_memory, verbose=verbose)
        session = _launch(app, settings, scratch, oneshot=oneshot, verbose=verbose)
    except BaseException:
        scratch.remove()
        raise
    if not is_local(master):
        _prepare_cluster(session, own, scratch.path)
    return session


def _check_own(own: Mapping[str, str]) -> None:
    """Check settings that are ours and not Spark's."""
    for name, value in own.items():
        if name not in _OWN or not _OWN[name].fullmatch(value):
            raise SparkSessionError(
                f"{name}={value} is not a setting: veen.ship is true or false, veen.wait is seconds"
            )


def _prepare_cluster(session: SparkSession, own: Mapping[str, str], scratch: Path) -> None:
    """Send this code to the workers, and see that they can run it."""
    try:
        if own.get("veen.ship") != "false":
            ship_code.ship(session, scratch)
        ship_code.check_workers(session, float(own.get("veen.wait", _WAIT_SEC)))
    except (Py4JError, PySparkException, SparkWorkerError) as error:
        reason = reason_of(error) or str(error)
        stop()
        raise SparkSessionError(f"the cluster cannot run this: {reason}") from None
    except BaseException:
        stop()
        raise


def _check_master(master: str) -> None:
    if not _MASTER.fullmatch(master):
        raise SparkSessionError(
            f"{master!r} is not a Spark master; use local[2,3], spark://HOST:PORT, yarn or k8s://HOST:PORT"
        )
    if not master.startswith("spark://"):
        return
    problem = ""
    for place in master.removeprefix("spark://").split(","):
        try:
            address = urlsplit(f"//{place}")
            socket.create_connection((address.hostname or "", address.port or 7077), _CONNECT_SEC).close()
        except (OSError, ValueError) as error:
            problem = str(getattr(error, "strerror", None) or error)
        else:
            return
    raise ClusterUnreachableError(f"no master of Spark answers at {master}: {problem}")


def _settings(
    master: str, given: Mapping[str, str], scratch: Path, *, driver_memory: str, verbose: bool
) -> dict[str, str]:
    """Return all settings of a session."""
    log = scratch / "log4j2.properties"
    log.write_text(_LOG_FORM.format(level="info" if verbose else "error"), encoding="utf-8")
    found = {
        **_SETTINGS,
        **authentication.guards(given),
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    if is_local(master):
        found |= _LOCAL_SETTINGS
        # Of Spark's 200 partitions most would be empty: a fold on two cores takes half the time with four.
        found["spark.sql.shuffle.partitions"] = str(2 * _cores(master))
        if len(os.fsencode(scratch)) <= _SOCKET_DIR_BYTES:
            found["spark.python.unix.domain.socket.dir"] = str(scratch)
    if driver_memory:
        found["spark.driver.memory"] = driver_memory
    options = f"-Dlog4j2.configurationFile={quoted(log.as_uri())} -Dderby.system.home={quoted(scratch)}"
    found |= given
    found["spark.master"] = master
    found[_JAVA_OPTIONS] = f"{options} {given.get(_JAVA_OPTIONS, '')}".strip()
    return found


def _cores(master: str) -> int:
    """Return how many tasks a local master runs at once."""
    named = re.match(r"local\[(\d+)", master)
    return int(named[1]) if named else (os.cpu_count() or 1)


def _launch(
    app: str, settings: dict[str, str], scratch: Scratch, *, oneshot: bool, verbose: bool
) -> SparkSession:
    """Start the JVM and the session."""
    environment = environment_of(settings["spark.master"], settings)
    if is_local(settings["spark.master"]):
        check_python(environment["PYSPARK_PYTHON"])
    # The user's own options come last, and count.
    options = [*class_archive.options(environment, kept_dir()), *(ONESHOT if oneshot else ())]
    settings[_JAVA_OPTIONS] = " ".join([*options, settings[_JAVA_OPTIONS]])
    conf = SparkConf(loadDefaults=False).setAppName(app).setAll(list(settings.items()))
    _hush(verbose=verbose)
    before = signal.getsignal(signal.SIGINT)

    def give_up() -> None:
        for pid in children_with(scratch.path.name):
            Descendants(pid).end(0.0)

    with held_back(give_up) as ending, having(environment), private():
        gateway = _launch_gateway(conf, scratch.path / "spark.log", verbose=verbose)
        _hold(_Held(scratch, gateway.proc, before))
        try:
            ending.check()
            conf.setAll(list(authentication.secret_for(settings["spark.master"], settings).items()))
            context = SparkContext(conf=conf, gateway=gateway)
            ending.take()  # Spark has taken interrupts for itself
            if not verbose:  # where a JVM is ended, this server would write a traceback to the terminal
                vars(context._accumulatorServer)["handle_error"] = _ignored  # noqa: SLF001 - no other way
            session = SparkSession.builder.getOrCreate()
            ending.check()
        except (Py4JError, PySparkException, OSError, ValueError) as error:
            reason = reason_of(error) or str(error)
            stop()
            raise SparkSessionError(
                f"Spark did not start: {authentication.what_is_missing(reason) or reason}"
            ) from None
        except BaseException:
            stop()
            raise
    if is_main() and before is signal.default_int_handler:
        signal.signal(signal.SIGINT, SignalHandler(_cancel_jobs, at_once=True))
    return session


def _launch_gateway(conf: SparkConf, log: Path, *, verbose: bool) -> Any:  # noqa: ANN401 - of py4j
    with log.open("wb") as file:
        output = {"stdout": sys.stderr.fileno() if verbose else file, "stderr": None if verbose else file}
        try:
            return launch_gateway(conf, output)  # type: ignore[no-untyped-call]
        except (PySparkException, OSError) as error:
            said = _last_words(log) or (str(error) if isinstance(error, OSError) else "it printed nothing")
            raise SparkSessionError(f"Spark did not start: {said}") from None


def _hush(*, verbose: bool) -> None:
    """Keep Python's loggers from writing to the terminal what exceptions say as well."""
    for name in _LOGGERS:
        PySparkLogger.getLogger(name).disabled = not verbose
    root = logging.getLogger()
    (root.removeFilter if verbose else root.addFilter)(_is_told)
    logging.getLogger("py4j").setLevel(logging.NOTSET if verbose else logging.CRITICAL)


def _ignored(*_request: object) -> None:
    """Say nothing of a connection that broke."""


def _is_told(record: logging.LogRecord) -> bool:
    """Tell whether a record is worth it; py4j logs tracebacks of whatever ends, and as the root of all."""
    return Path(record.pathname).parent.name != "py4j"


def _last_words(log: Path) -> str:
    """Return what a JVM said that has ended; nothing, if it has said nothing, or the terminal has it."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    told = [line.strip() for line in lines if line.strip() and not _NOISE.match(line)]
    errors = [line for line in told if re.search(r"error|exception|invalid|must", line, re.IGNORECASE)]
    return _LOGGED.sub("", (errors or told or [""])[0])[:400]


def reason_of(error: BaseException) -> str | None:
    """Return why Spark failed, as ``failures`` tells it; if its JVM has ended, with what that said last."""
    reason = failures.reason_of(error)
    if reason != failures.JVM_ENDED or _held is None:
        return reason
    words = _last_words(_held.scratch.path / "spark.log")
    return f"Spark's Java process has ended: {failures.short(words)}" if words else reason


def has_ended(patience: float = 0.0) -> bool:
    """Tell whether the JVM of the session is gone, or goes in so many seconds; no other can be started."""
    if _held is None:
        return False
    try:
        _held.process.wait(patience)
    except TimeoutExpired:
        return False
    return True


def _hold(held: _Held) -> None:
    global _held  # noqa: PLW0603 - a process has one JVM
    _held = held
    atexit.register(stop)


def stop(*, patience: float = _STOP_SEC) -> None:
    """Stop the session that ``start`` has started, and end every process that belongs to it.

    What is asked to end and does not, in as many seconds, is killed; so it is if a signal comes meanwhile.
    """
    global _held
    if _held is None:
        return
    held, _held = _held, None
    atexit.unregister(stop)
    try:
        with held_back(held.process.kill):
            _stop_all(held, patience)
            held.scratch.remove()
    finally:
        if is_main():
            signal.signal(signal.SIGINT, held.interrupt)


def _stop_all(held: _Held, patience: float) -> None:
    below = Descendants(held.process.pid)
    stopping = threading.Thread(target=_stop_gracefully, daemon=True)
    try:
        stopping.start()
        stopping.join(patience)
    except RuntimeError:  # the interpreter ends, and takes no new threads
        _stop_gracefully()
    if held.process.stdin is not None:
        with suppress(OSError):
            held.process.stdin.close()  # this is how a JVM is told to end
    below.end(patience if not stopping.is_alive() else 0.0)
    held.process.kill()
    held.process.wait()
    gateway = SparkContext._gateway  # noqa: SLF001 - Spark keeps its JVM for the next session; we do not
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    if gateway is not None:
        with suppress(Py4JError, OSError):
            gateway.shutdown()


def _stop_gracefully() -> None:
    with suppress(Exception):  # of a JVM that is half there, anything can be missing; it is ended in any case
        active = SparkSession.getActiveSession() or SparkSession._instantiatedSession  # noqa: SLF001
        if active is not None:
            active.stop()
        elif SparkContext._active_spark_context is not None:  # noqa: SLF001
            SparkContext._active_spark_context.stop()  # noqa: SLF001


@contextmanager
def running(
    *,
    app: str = "veen",
    master: str = DEFAULT_MASTER,
    conf: Mapping[str, str] | None = None,
    driver_memory: str = "",
    oneshot: bool = False,
    verbose: bool = False,
) -> Iterator[SparkSession]:
    """Have Spark for a while, as ``start`` takes it; one that runs already is used, and left running."""
    if _held is not None:
        yield start(app=app, master=master, conf=conf)
        return
    with _terminable() as ending:
        session = start(
            app=app, master=master, conf=conf, driver_memory=driver_memory, oneshot=oneshot, verbose=verbose
        )
        interrupt = signal.getsignal(signal.SIGINT)  # before it is given back
        try:
            yield session
        except BaseException as error:
            stop(patience=_HURRIED_SEC)
            if isinstance(error, Exception):  # a signal was lost, maybe, and this is what came of it
                ending.check()
                if isinstance(interrupt, SignalHandler):
                    interrupt.check()
            raise
        stop()


@contextmanager
def _terminable() -> Iterator[SignalHandler]:
    """Let SIGTERM end a session in the same way as an interrupt does."""
    ending = SignalHandler(_cancel_all, at_once=True)
    if not is_main():
        yield ending
        return
    before = signal.signal(signal.SIGTERM, ending)
    try:
        yield ending
    finally:
        signal.signal(signal.SIGTERM, before)


def _cancel_jobs() -> None:
    """End the jobs that run: as long as one does, Spark lets nobody out."""
    context = SparkContext._active_spark_context  # noqa: SLF001 - Spark has no other way
    if context is not None:
        # In a thread, which has its own connection: this one's may be waiting for an answer.
        threading.Thread(target=_ask_to_cancel, args=(context,), daemon=True).start()


def _ask_to_cancel(context: SparkContext) -> None:
    with suppress(Exception):  # it may be gone by now
        context.cancelAllJobs()


def _cancel_all() -> None:
    """End the jobs that run, and after a while the JVM, if that does not help."""
    if _held is not None:
        watchdog = threading.Timer(_HURRIED_SEC, _held.process.kill)
        watchdog.daemon = True
        watchdog.start()
    _cancel_jobs()
