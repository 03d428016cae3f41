"""Why Spark failed, in one line: the innermost cause that says something; and whether it is one of ours."""

import importlib
import re
from typing import Final

from py4j.protocol import (  # type: ignore[import-untyped]
    Py4JError,
    Py4JJavaError,
    Py4JNetworkError,
)
from pyspark.errors import PySparkException

from veen.core.errors import VeenError

__all__ = ["JVM_ENDED", "cause_of", "reason_of", "short"]

_LIMIT: Final = 600
#: The class in front of what an error of Python or Java says.
_CLASS: Final = re.compile(r"^(?:[\w$]+\.)+([A-Z][\w$]*)(?::\s*|$)")
#: How Spark tells which of its errors it is: a name, and a number of the standard for SQL.
_CONDITION: Final = re.compile(r"^\[[A-Z0-9_.]+\] |\s*SQLSTATE: \w{5}\b.*$")
#: What stands between the tracebacks of errors that caused each other.
_BETWEEN: Final = ("During handling of", "The above exception", "Traceback (most")
_OURS: Final = re.compile(r"^(veen(?:\.\w+)+)\.(\w+)(?::|$)")
#: What Spark says if the program that it took for Python does not behave as one, or has not its modules.
_NO_WORKER: Final = re.compile(
    r"Error from python worker:|reading the port number|Python worker failed to conn"
)
_WORKER_SAID: Final = re.compile(r"Error from python worker:\n((?:[ \t].*\n?)+)")
_NO_WORKER_HINT: Final = (
    "Spark's Python workers do not start: {}; they need the Python that veen is installed in: see the setting"
    " spark.pyspark.python, and on a cluster PYSPARK_PYTHON"
)
JVM_ENDED: Final = "Spark's Java process has ended; see why with --verbose-spark, or give it more memory"


def reason_of(error: BaseException) -> str | None:
    """Return what to tell of an error that came out of Spark; None if it did not come out of Spark."""
    text = _text_of(error)
    return None if text is None else text if text == JVM_ENDED else short(text)


def cause_of(error: BaseException) -> type[VeenError] | None:
    """Return which error of ours, raised in a task, is behind one that came out of Spark; None if none is."""
    lines = _lines(_text_of(error) or "")
    found = _OURS.match(lines[0]) if lines else None
    if found is None:
        return None
    try:
        kind = getattr(importlib.import_module(found[1]), found[2], None)
    except ImportError:
        return None
    if not isinstance(kind, type) or issubclass(kind, AssertionError):  # the latter is a fault of the program
        return None
    return kind if issubclass(kind, VeenError) else None


def _text_of(error: BaseException) -> str | None:
    match error:
        case Py4JJavaError():
            return _of_java(error.java_exception, str(error))
        case Py4JNetworkError() | ConnectionRefusedError() | ConnectionResetError():
            return JVM_ENDED
        case Py4JError() | PySparkException():
            return str(error)
    return None


def _of_java(exception: object, otherwise: str) -> str:
    """Return what the innermost cause of a Java exception says."""
    try:
        text = str(exception)
        for _ in range(20):
            cause = exception.getCause()  # type: ignore[attr-defined] # an object of the JVM
            if cause is None:
                break
            exception, text = cause, str(cause)
    except (Py4JError, OSError):
        return otherwise
    return text


def short(text: str) -> str:
    """Return the one line that matters of a text that may hold stack traces of two languages."""
    lines = _lines(text)
    said = _CONDITION.sub("", _CONDITION.sub("", _message(lines[0] if lines else text.strip())))
    if _NO_WORKER.search(text):
        said = _NO_WORKER_HINT.format(said)
    return said[:_LIMIT]


def _message(line: str) -> str:
    """Return a line without the class of the error, unless nothing or a mere name would be left of it."""
    found = _CLASS.match(line)
    if found is None:
        return line
    rest = line[found.end() :]
    if found[1] == "ClassNotFoundException":
        return f"there is no Java class {rest}"
    if " " in rest:
        return rest
    return f"{found[1]}: {rest}" if rest else found[1]


def _lines(text: str) -> list[str]:
    """Return the lines that tell; a traceback of Python tells at its end, one of Java at its beginning."""
    worker = _WORKER_SAID.search(text)
    if worker is not None:
        return [worker[1].strip().splitlines()[-1].strip()]
    before, python, trace = text.partition("Traceback (most recent call last):")
    if python:
        ends = [line for line in trace.splitlines() if line and not line[0].isspace()]
        return [line.strip() for line in ends if not line.startswith(_BETWEEN)][-1:]
    lines = [line.strip() for line in before.splitlines()]
    told = [line for line in lines if line and not line.startswith("at ")]
    # A class alone, or a heading, tells less than what stands below it.
    return [line for line in told if not line.endswith(":")] or told
