"""Why Spark failed, in one line: the innermost informative cause, and whether it is an error of VEEN."""

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

__all__ = ["JVM_ENDED", "cause_of", "python_error_of", "reason_of", "short"]

_LIMIT: Final = 600
# The class before the message of a Python or Java error.
_CLASS: Final = re.compile(r"^(?:[\w$]+\.)+([A-Z][\w$]*)(?::\s*|$)")
# Spark's error condition: a name, and the SQLSTATE.
_CONDITION: Final = re.compile(r"^\[[A-Z0-9_.]+\] |\s*SQLSTATE: \w{5}\b.*$")
_TRACEBACK: Final = "Traceback (most recent call last):"
# Lines between the tracebacks of chained exceptions.
_BETWEEN: Final = ("During handling of", "The above exception", "Traceback (most")
_OURS: Final = re.compile(r"^(veen(?:\.\w+)+)\.(\w+)(?::|$)")
# Spark's messages if a worker's program is not Python, or lacks modules.
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
    """Return the message for an error raised by Spark; None if Spark did not raise it."""
    text = _text_of(error)
    return None if text is None else text if text == JVM_ENDED else short(text)


def cause_of(error: BaseException) -> type[VeenError] | None:
    """Return the class of the VeenError in a task that caused an error of Spark; None if none did."""
    lines = _lines(_text_of(error) or "")
    match = _OURS.match(lines[0]) if lines else None
    if match is None:
        return None
    try:
        kind = getattr(importlib.import_module(match[1]), match[2], None)
    except ImportError:
        return None
    if not isinstance(kind, type) or issubclass(kind, AssertionError):  # the latter is a bug
        return None
    return kind if issubclass(kind, VeenError) else None


def python_error_of(error: BaseException) -> str | None:
    """Return the message for an error of Python code in a task, other than a VeenError; None for others."""
    text = _text_of(error)
    if text is None or _TRACEBACK not in text or _NO_WORKER.search(text) or cause_of(error) is not None:
        return None
    return short(text)


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
    """Return the message of the innermost cause of a Java exception."""
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
    """Return the informative line of a text that may contain stack traces of two languages."""
    lines = _lines(text)
    message = _CONDITION.sub("", _CONDITION.sub("", _message(lines[0] if lines else text.strip())))
    if _NO_WORKER.search(text):
        message = _NO_WORKER_HINT.format(message)
    return message[:_LIMIT]


def _message(line: str) -> str:
    """Return a line without the error's class, unless only a name or nothing would remain."""
    match = _CLASS.match(line)
    if match is None:
        return line
    rest = line[match.end() :]
    if match[1] == "ClassNotFoundException":
        return f"there is no Java class {rest}"
    if " " in rest:
        return rest
    return f"{match[1]}: {rest}" if rest else match[1]


def _lines(text: str) -> list[str]:
    """Return the message lines: a Python traceback has them at its end, a Java one at its beginning."""
    worker = _WORKER_SAID.search(text)
    if worker is not None:
        return [worker[1].strip().splitlines()[-1].strip()]
    before, python, trace = text.partition(_TRACEBACK)
    if python:
        ends = [line for line in trace.splitlines() if line and not line[0].isspace()]
        return [line.strip() for line in ends if not line.startswith(_BETWEEN)][-1:]
    lines = [line.strip() for line in before.splitlines()]
    messages = [line for line in lines if line and not line.startswith("at ")]
    # A class alone, or a heading, is less informative than the lines below it.
    return [line for line in messages if not line.endswith(":")] or messages
