"""JSON lines in, JSON lines out, in order, until the input ends."""

import json
import math
import sys
import traceback
from collections.abc import Iterable
from typing import BinaryIO, NoReturn, TextIO

from veen.conformance.arguments import Arguments
from veen.conformance.errors import MalformedRequestError
from veen.conformance.operations import OPERATIONS, Answer
from veen.core.errors import ProtocolError
from veen.core.types import JsonValue
from veen.overlays.errors import InvalidBodyError
from veen.stdx.json_object import unique_names

_unique = unique_names(lambda _: MalformedRequestError("a name occurs twice in an object"))


def _no_constant(name: str) -> NoReturn:
    raise MalformedRequestError(f"{name} is not JSON")


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise MalformedRequestError(f"{text} is too large for a number")
    return value


def _parse(line: bytes) -> dict[str, JsonValue]:
    try:
        request = json.loads(
            line.decode(), parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_unique
        )
    except (ValueError, RecursionError) as error:
        raise MalformedRequestError(f"not a JSON request: {error}") from None
    if not isinstance(request, dict):
        raise MalformedRequestError("a request is a JSON object")
    return request


def _usage(error: MalformedRequestError) -> Answer:
    return {"ok": False, "code": "USAGE", "stage": "", "detail": str(error)}


def _run(request: dict[str, JsonValue], line: bytes) -> Answer:
    name = request.get("op")
    if not isinstance(name, str) or name not in OPERATIONS:
        return _usage(MalformedRequestError(f"unknown op {name!r}"))
    try:
        return {"ok": True, **OPERATIONS[name](Arguments(request, line))}
    except MalformedRequestError as error:
        return _usage(error)
    except ProtocolError as error:
        return {
            "ok": False,
            "code": error.code.value,
            "stage": error.stage.value,
            "detail": error.detail.value,
            "message": error.message,
        }
    except InvalidBodyError as error:
        return {"ok": False, "code": error.code, "stage": "overlay", "detail": str(error)}
    except Exception:  # noqa: BLE001 - a bug of ours must fail one request, not the whole run
        traceback.print_exc(file=sys.stderr)
        return {"ok": False, "code": "INTERNAL", "stage": "", "detail": "see standard error"}


def answer(line: bytes) -> Answer:
    """Answer one request line."""
    try:
        request = _parse(line)
    except MalformedRequestError as error:
        return {"id": None, **_usage(error)}
    return {"id": request.get("id"), **_run(request, line)}


def serve(lines: Iterable[bytes], out: TextIO) -> None:
    """Answer lines one by one, in order."""
    for line in lines:
        if line.strip():
            out.write(json.dumps(answer(line)) + "\n")
            out.flush()


def main(stdin: BinaryIO | None = None) -> int:
    """Serve standard input until it ends."""
    serve(sys.stdin.buffer if stdin is None else stdin, sys.stdout)
    return 0
