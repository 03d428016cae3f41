"""Start and stop Spark, with the settings that measurements showed to matter.

Use ``running``: however its block ends, no process and no file of Spark remains.
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
    # Files are written with page checksums.
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
# Output of a JVM around its error message.
_NOISE: Final = re.compile(r"\s+at |WARNING|\[[\d.s]+\]\[warning\]")
# The prefix of a log line: time, level, logger.
_LOGGED: Final = re.compile(r"^[\d:]{8} [A-Z]+ \S+: ")
_SECRET: Final = re.compile(r"(\.secret|password|secret\.key|oauthToken)$", re.IGNORECASE)
# Our own settings; not passed to Spark.
_OWN: Final = {"veen.ship": re.compile("true|false"), "veen.wait": re.compile(r"\d{1,6}")}
# Time for a cluster to provide executors; it may have to free resources first.
_WAIT_SEC: Final = 120.0
_CONNECT_SEC: Final = 5.0
# Spark needs half a second to stop; after this time its processes are killed.
_STOP_SEC: Final = 15.0
# The same after an error or an interrupt.
_HURRIED_SEC: Final = 5.0
# A socket path has at most 108 bytes, and Spark appends 43.
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
    """What a session acquired and ``stop`` releases."""

    scratch: Scratch
    process: Popen[bytes]
    interrupt: Any


_held: _Held | None = None


def parse_conf(texts: Iterable[str]) -> dict[str, str]:
    """Parse settings of the form NAME=VALUE."""
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not _SETTING.fullmatch(name.strip()):
            raise SparkSessionError(
                f"{text!r} is not a Spark setting; give NAME=VALUE, such as spark.task.cpus=1"
            )
        settings[name.strip()] = value
    return settings


def _check_secrets(settings: Mapping[str, str]) -> None:
    """Reject secrets: settings are on the command line of the JVM, where all users can read them."""
    for name in settings:
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
    """Start Spark, or return the active session. ``conf`` overrides the settings of this module.

    Args:
        app: Name of the application, as the cluster shows it.
        master: ``local[N,3]`` for this machine, or the master URL of a cluster.
        conf: Spark settings.
        driver_memory: Memory of this process's JVM, such as ``1g``.
        oneshot: Start faster, at the expense of long jobs.
        verbose: Show Spark's log on standard error.

    Raises:
        SparkSessionError: Spark cannot be started with these settings.

    """
    active = SparkSession.getActiveSession()
    if active is not None and active.sparkContext._jsc is not None:  # noqa: SLF001 - Spark has no other way
        return active
    own = {name: value for name, value in (conf or {}).items() if name.startswith("veen.")}
    spark_conf = {name: value for name, value in (conf or {}).items() if name not in own}
    _check_own(own)
    _check_secrets(spark_conf)
    _check_master(master)
    check_loopback()
    scratch = Scratch()
    try:
        settings = _settings(master, spark_conf, scratch.path, driver_memory=driver_memory, verbose=verbose)
        session = _launch(app, settings, scratch, oneshot=oneshot, verbose=verbose)
    except BaseException:
        scratch.remove()
        raise
    if not is_local(master):
        _prepare_cluster(session, own, scratch.path)
    return session


def _check_own(own: Mapping[str, str]) -> None:
    """Check settings that are not Spark's but our own."""
    for name, value in own.items():
        if name not in _OWN or not _OWN[name].fullmatch(value):
            raise SparkSessionError(
                f"{name}={value} is not a setting: veen.ship is true or false, veen.wait is seconds"
            )


def _prepare_cluster(session: SparkSession, own: Mapping[str, str], scratch: Path) -> None:
    """Send this code to the workers, and check that they can run it."""
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
    master: str, spark_conf: Mapping[str, str], scratch: Path, *, driver_memory: str, verbose: bool
) -> dict[str, str]:
    log = scratch / "log4j2.properties"
    log.write_text(_LOG_FORM.format(level="info" if verbose else "error"), encoding="utf-8")
    settings = {
        **_SETTINGS,
        **authentication.guards(spark_conf),
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    if is_local(master):
        settings |= _LOCAL_SETTINGS
        # Most of Spark's 200 partitions would be empty: on two cores a fold takes half the time with four.
        settings["spark.sql.shuffle.partitions"] = str(2 * _cores(master))
        if len(os.fsencode(scratch)) <= _SOCKET_DIR_BYTES:
            settings["spark.python.unix.domain.socket.dir"] = str(scratch)
    if driver_memory:
        settings["spark.driver.memory"] = driver_memory
    options = f"-Dlog4j2.configurationFile={quoted(log.as_uri())} -Dderby.system.home={quoted(scratch)}"
    settings |= spark_conf
    settings["spark.master"] = master
    settings[_JAVA_OPTIONS] = f"{options} {spark_conf.get(_JAVA_OPTIONS, '')}".strip()
    return settings


def _cores(master: str) -> int:
    """Return the number of concurrent tasks of a local master."""
    named = re.match(r"local\[(\d+)", master)
    return int(named[1]) if named else (os.cpu_count() or 1)


def _launch(
    app: str, settings: dict[str, str], scratch: Scratch, *, oneshot: bool, verbose: bool
) -> SparkSession:
    """Start the JVM and the session."""
    environment = environment_of(settings["spark.master"], settings)
    if is_local(settings["spark.master"]):
        check_python(environment["PYSPARK_PYTHON"])
    # The user's own options come last and take precedence.
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
            ending.take()  # Spark has installed its own handler of interrupts
            if not verbose:  # if the JVM is killed, this server would print a traceback
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
            message = _last_words(log) or (str(error) if isinstance(error, OSError) else "it printed nothing")
            raise SparkSessionError(f"Spark did not start: {message}") from None


def _hush(*, verbose: bool) -> None:
    """Stop loggers from printing what exceptions report as well."""
    for name in _LOGGERS:
        PySparkLogger.getLogger(name).disabled = not verbose
    root = logging.getLogger()
    (root.removeFilter if verbose else root.addFilter)(_is_told)
    logging.getLogger("py4j").setLevel(logging.NOTSET if verbose else logging.CRITICAL)


def _ignored(*_request: object) -> None:
    """Ignore a broken connection."""


def _is_told(record: logging.LogRecord) -> bool:
    """Return whether to print a record: py4j logs tracebacks of every shutdown, on the root logger."""
    return Path(record.pathname).parent.name != "py4j"


def _last_words(log: Path) -> str:
    """Return the error message of an exited JVM; empty if it printed none, or printed to the terminal."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    messages = [line.strip() for line in lines if line.strip() and not _NOISE.match(line)]
    errors = [line for line in messages if re.search(r"error|exception|invalid|must", line, re.IGNORECASE)]
    return _LOGGED.sub("", (errors or messages or [""])[0])[:400]


def reason_of(error: BaseException) -> str | None:
    """Return why Spark failed, from ``failures``; if the JVM has exited, with its last message."""
    reason = failures.reason_of(error)
    if reason != failures.JVM_ENDED or _held is None:
        return reason
    words = _last_words(_held.scratch.path / "spark.log")
    return f"Spark's Java process has ended: {failures.short(words)}" if words else reason


def has_ended(patience: float = 0.0) -> bool:
    """Return whether the session's JVM has exited, or exits within ``patience`` seconds.

    No other one can be started in this process.
    """
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
    """Stop the session that ``start`` started, and end all of its processes.

    Processes that do not exit within ``patience`` seconds are killed; all are if a signal arrives meanwhile.
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
    except RuntimeError:  # the interpreter is shutting down and starts no new threads
        _stop_gracefully()
    if held.process.stdin is not None:
        with suppress(OSError):
            held.process.stdin.close()  # py4j's JVM exits at the end of its input
    below.end(patience if not stopping.is_alive() else 0.0)
    held.process.kill()
    held.process.wait()
    gateway = SparkContext._gateway  # noqa: SLF001 - Spark would reuse its JVM for the next session
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    if gateway is not None:
        with suppress(Py4JError, OSError):
            gateway.shutdown()


def _stop_gracefully() -> None:
    with suppress(Exception):  # a half-started JVM can fail in any way; it is killed in any case
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
    """Start Spark for the block, with the arguments of ``start``; a session that runs already is reused."""
    if _held is not None:
        yield start(app=app, master=master, conf=conf)
        return
    with _terminable() as ending:
        session = start(
            app=app, master=master, conf=conf, driver_memory=driver_memory, oneshot=oneshot, verbose=verbose
        )
        interrupt = signal.getsignal(signal.SIGINT)  # before ``stop`` restores it
        try:
            yield session
        except BaseException as error:
            stop(patience=_HURRIED_SEC)
            if isinstance(error, Exception):  # perhaps the consequence of a signal that was lost
                ending.check()
                if isinstance(interrupt, SignalHandler):
                    interrupt.check()
            raise
        stop()


@contextmanager
def _terminable() -> Iterator[SignalHandler]:
    """Have SIGTERM end a session as an interrupt does."""
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
    """Cancel running jobs: Spark does not return to its caller while one runs."""
    context = SparkContext._active_spark_context  # noqa: SLF001 - Spark has no other way
    if context is not None:
        # In a thread, which has a connection of its own: this thread's may be waiting for a response.
        threading.Thread(target=_ask_to_cancel, args=(context,), daemon=True).start()


def _ask_to_cancel(context: SparkContext) -> None:
    with suppress(Exception):  # the JVM may have exited
        context.cancelAllJobs()


def _cancel_all() -> None:
    """Cancel running jobs, and kill the JVM if they do not end in time."""
    if _held is not None:
        watchdog = threading.Timer(_HURRIED_SEC, _held.process.kill)
        watchdog.daemon = True
        watchdog.start()
    _cancel_jobs()
