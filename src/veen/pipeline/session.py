"""Starting Spark: the one place that does, with the settings that were measured to matter; and ending it.

``running`` is the way to use it: whatever happens inside, no process and no file of Spark's is left behind.
"""

import atexit
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
from subprocess import Popen
from types import FrameType
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from veen.pipeline import archive, shipping
from veen.pipeline.failures import reason_of
from veen.pipeline.java import JavaNotFoundError, default_shim_dir, find_java, wheel_java_home
from veen.pipeline.places import Scratch, kept_dir, spark_home
from veen.pipeline.processes import Descendants

__all__ = [
    "DEFAULT_MASTER",
    "SessionError",
    "SparkSession",
    "UnreachableError",
    "environment_of",
    "is_local",
    "parse_conf",
    "running",
    "start",
    "stop",
]

#: ``,3``: a task may fail twice; with plain local[*] one lost Python worker ends the job.
DEFAULT_MASTER: Final = "local[*,3]"

_SETTINGS: Final[Mapping[str, str]] = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
}
_LOCAL_SETTINGS: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.daemon.module": "veen.pipeline.workers",
}
#: For a job that ends before a better compiler has paid off, and whose garbage does not matter.
_ONESHOT: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_MASTER: Final = re.compile(r"local(\[[^\[\]]+\])?|local-cluster\[[^\[\]]+\]|spark://\S+|k8s://\S+|yarn")
_SETTING: Final = re.compile(r"(?:spark|veen)\.\S+")
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_PYTHON: Final = "spark.pyspark.python"
#: What a JVM says before it says what is wrong, and after.
_NOISE: Final = re.compile(r"\s+at |WARNING|\[[\d.s]+\]\[warning\]")
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


class SessionError(RuntimeError):
    """Spark can not be started as asked; one line says why."""


class UnreachableError(SessionError):
    """Nobody answers at the address of a cluster."""


@dataclass(slots=True)
class _Held:
    """What a session has taken, to be given back."""

    scratch: Scratch
    process: Popen[bytes]
    interrupt: Any


_held: _Held | None = None


def is_local(master: str) -> bool:
    """Tell whether a master is this process, and not a cluster."""
    return master == "local" or master.startswith("local[")


def parse_conf(given: Iterable[str]) -> dict[str, str]:
    """Read settings, each as NAME=VALUE."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not _SETTING.fullmatch(name.strip()):
            raise SessionError(f"{text!r} is no setting of Spark: they are like spark.task.cpus=1")
        found[name.strip()] = value
    return found


def _check_secrets(given: Mapping[str, str]) -> None:
    """Refuse secrets: what is given to Spark stands on the command line of its JVM, for all to read."""
    for name in given:
        if _SECRET.search(name):
            raise SessionError(f"{name} is a secret: put it into spark-defaults.conf, in SPARK_CONF_DIR")


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
        SessionError: it can not be started so.

    """
    active = SparkSession.getActiveSession()
    if active is not None and active.sparkContext._jsc is not None:  # noqa: SLF001 - Spark has no other way
        return active
    own = {name: value for name, value in (conf or {}).items() if name.startswith("veen.")}
    given = {name: value for name, value in (conf or {}).items() if name not in own}
    _check_own(own)
    _check_secrets(given)
    _check_master(master)
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
            raise SessionError(
                f"{name}={value} is no setting: veen.ship is true or false, veen.wait is seconds"
            )


def _prepare_cluster(session: SparkSession, own: Mapping[str, str], scratch: Path) -> None:
    """Send this code to the workers, and see that they can run it."""
    try:
        if own.get("veen.ship") != "false":
            shipping.ship(session, scratch)
        shipping.check_workers(session, float(own.get("veen.wait", _WAIT_SEC)))
    except (Py4JError, PySparkException, shipping.WorkerError) as error:
        reason = reason_of(error) or str(error)
        stop()
        raise SessionError(f"the cluster can not run this: {reason}") from None
    except BaseException:
        stop()
        raise


def _check_master(master: str) -> None:
    if not _MASTER.fullmatch(master):
        raise SessionError(
            f"{master!r} is no master of Spark: local[2,3], spark://HOST:PORT, yarn and k8s://HOST:PORT are"
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
    raise UnreachableError(f"no master of Spark answers at {master}: {problem}")


def _settings(
    master: str, given: Mapping[str, str], scratch: Path, *, driver_memory: str, verbose: bool
) -> dict[str, str]:
    """Return all settings of a session."""
    log = scratch / "log4j2.properties"
    log.write_text(_LOG_FORM.format(level="info" if verbose else "error"), encoding="utf-8")
    found = {
        **_SETTINGS,
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    if is_local(master):
        found |= _LOCAL_SETTINGS
        if len(os.fsencode(scratch)) <= _SOCKET_DIR_BYTES:
            found["spark.python.unix.domain.socket.dir"] = str(scratch)
    if driver_memory:
        found["spark.driver.memory"] = driver_memory
    options = f"-Dlog4j2.configurationFile={log.as_uri()} -Dderby.system.home={scratch}"
    found |= given
    found["spark.master"] = master
    found[_JAVA_OPTIONS] = f"{options} {given.get(_JAVA_OPTIONS, '')}".strip()
    return found


def _launch(
    app: str, settings: dict[str, str], scratch: Scratch, *, oneshot: bool, verbose: bool
) -> SparkSession:
    """Start the JVM and the session."""
    environment = environment_of(settings["spark.master"], settings)
    # The user's own options come last, and count.
    options = [*archive.options(environment, kept_dir()), *(_ONESHOT if oneshot else ())]
    settings[_JAVA_OPTIONS] = " ".join([*options, settings[_JAVA_OPTIONS]])
    conf = SparkConf(loadDefaults=False).setAppName(app).setAll(list(settings.items()))
    for name in _LOGGERS:  # of Python; they write to standard error what the exception says as well
        PySparkLogger.getLogger(name).disabled = not verbose
    before = signal.getsignal(signal.SIGINT)
    log = scratch.path / "spark.log"
    with _set(environment), log.open("wb") as file:
        output = {"stdout": sys.stderr.fileno() if verbose else file, "stderr": None if verbose else file}
        try:
            gateway: Any = launch_gateway(conf, output)  # type: ignore[no-untyped-call]
        except PySparkException:
            raise SessionError(f"Spark did not start: {_last_words(log)}") from None
        _hold(_Held(scratch, gateway.proc, before))
        try:
            SparkContext(conf=conf, gateway=gateway)
            return SparkSession.builder.getOrCreate()
        except (Py4JError, PySparkException, OSError, ValueError) as error:
            reason = reason_of(error) or str(error)
            stop()
            raise SessionError(f"Spark did not start: {reason}") from None
        except BaseException:
            stop()
            raise


def environment_of(master: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that Spark's programs go by."""
    shim_dir = default_shim_dir(os.environ, prefix=Path(sys.prefix), base_prefix=Path(sys.base_prefix))
    try:
        java = find_java(os.environ, shim_dir=shim_dir, wheel_home=wheel_java_home())
    except JavaNotFoundError as error:
        raise SessionError(str(error).replace("\n  ", " ").replace("\n", "; ")) from None
    found = {"JAVA_HOME": str(java.home), "SPARK_LAUNCHER_OPTS": " ".join(_ONESHOT)}
    found["PYSPARK_PYTHON"] = settings.get(_PYTHON) or os.environ.get("PYSPARK_PYTHON") or sys.executable
    if is_local(master):
        found["OPENBLAS_NUM_THREADS"] = "1"  # workers share the cores already, and must fork without threads
    # YARN and Kubernetes take parts of the home to the workers, and want all of it.
    if (is_local(master) or master.startswith("spark://")) and "SPARK_HOME" not in os.environ:
        found["SPARK_HOME"] = str(spark_home(kept_dir()))
    return found


@contextmanager
def _set(environment: Mapping[str, str]) -> Iterator[None]:
    """Have variables for as long as Spark looks at them."""
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _last_words(log: Path) -> str:
    """Return what a JVM said that has ended at once."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    told = [line.strip() for line in lines if line.strip() and not _NOISE.match(line)]
    errors = [line for line in told if re.search(r"error|exception|invalid|must", line, re.IGNORECASE)]
    return (errors or told or ["it says nothing"])[0][:400]


def _hold(held: _Held) -> None:
    global _held  # noqa: PLW0603 - a process has one JVM
    _held = held
    atexit.register(stop)


def stop(*, patience: float = _STOP_SEC) -> None:
    """Stop the session that ``start`` has started, and end every process that belongs to it.

    What is asked to end and does not, in as many seconds, is killed.
    """
    global _held
    if _held is None:
        return
    held, _held = _held, None
    atexit.unregister(stop)
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
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, held.interrupt)
    held.scratch.remove()


def _stop_gracefully() -> None:
    with suppress(Py4JError, OSError):
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
    with _terminable():
        session = start(
            app=app, master=master, conf=conf, driver_memory=driver_memory, oneshot=oneshot, verbose=verbose
        )
        try:
            yield session
        except BaseException:
            stop(patience=_HURRIED_SEC)
            raise
        stop()


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end a session in the same way as an interrupt does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, _frame: FrameType | None) -> NoReturn:
    """Leave, past ``stop``; as long as a job runs, Spark lets nobody out."""
    context = SparkContext._active_spark_context  # noqa: SLF001 - Spark has no other way
    if _held is not None:
        watchdog = threading.Timer(_HURRIED_SEC, _held.process.kill)
        watchdog.daemon = True
        watchdog.start()
    if context is not None:
        with suppress(Py4JError, OSError):
            context.cancelAllJobs()
    raise SystemExit(128 + number)
