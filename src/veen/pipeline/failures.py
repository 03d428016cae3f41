"""Why Spark failed, in one line: the innermost cause that says something."""

import re
from typing import Final

from py4j.protocol import (  # type: ignore[import-untyped]
    Py4JError,
    Py4JJavaError,
    Py4JNetworkError,
)
from pyspark.errors import PySparkException

_LIMIT: Final = 600
#: The class in front of what an error of Python or Java says.
_CLASS: Final = re.compile(r"^(?:[\w$]+\.)+[A-Z][\w$]*: ")
#: How Spark tells which of its errors it is: a name, and a number of the standard for SQL.
_CONDITION: Final = re.compile(r"^\[[A-Z0-9_.]+\] |\s*SQLSTATE: \w{5}\b.*$")
#: What stands between the tracebacks of errors that caused each other.
_BETWEEN: Final = ("During handling of", "The above exception", "Traceback (most")
_JVM_ENDED: Final = "Spark's Java process has ended; see why with --verbose-spark, or give it more memory"


def reason_of(error: BaseException) -> str | None:
    """Return what to tell of an error that came out of Spark; None if it did not come out of Spark."""
    match error:
        case Py4JJavaError():
            return _short(_of_java(error.java_exception, str(error)))
        case Py4JNetworkError() | ConnectionRefusedError() | ConnectionResetError():
            return _JVM_ENDED
        case Py4JError() | PySparkException():
            return _short(str(error))
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


def _short(text: str) -> str:
    """Return the one line that matters of a text that may hold stack traces of two languages."""
    lines = _lines(text)
    said = _CLASS.sub("", lines[0]) if lines else text.strip()
    return _CONDITION.sub("", _CONDITION.sub("", said))[:_LIMIT]


def _lines(text: str) -> list[str]:
    """Return the lines that tell; a traceback of Python tells at its end, one of Java at its beginning."""
    before, python, trace = text.partition("Traceback (most recent call last):")
    if python:
        ends = [line for line in trace.splitlines() if line and not line[0].isspace()]
        return [line.strip() for line in ends if not line.startswith(_BETWEEN)][-1:]
    lines = [line.strip() for line in before.splitlines()]
    return [line for line in lines if line and not line.startswith("at ")]
