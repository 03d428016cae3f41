"""The interface of the query service as an OpenAPI document, for authors of clients."""

from typing import Any, Final

from veen.core.encoding.hexadecimal import HEX32_PATTERN
from veen.query.descriptor import MAX_DESCRIPTOR_BYTES, METRICS, Mode
from veen.query.errors import STATUS
from veen.query_service.service import DEFAULT_LIMIT, MOST_LIMIT, MOST_PAGE_BYTES

_TIME: Final = {"type": "string", "format": "date-time"}
_TEXT: Final = {"type": "string"}
_HASH: Final = {"type": "string", "pattern": f"^{HEX32_PATTERN}$"}
_ID: Final = {"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$"}
_COUNT: Final = {"type": "integer", "minimum": 0}


def _object(properties: dict[str, Any], *, optional: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    needed = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": needed, **more}


def _or_null(kind: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [kind, {"type": "null"}]}


def _list(kind: dict[str, Any], **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"type": "array", "items": kind, **more}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _descriptor() -> dict[str, Any]:
    evidence = {
        "mode": {"enum": [mode.value for mode in Mode]},
        "sample_rate": _or_null({"type": "number", "exclusiveMinimum": 0, "maximum": 1}),
    }
    times = _object({"from": _or_null(_TIME), "to": _or_null(_TIME)}, optional=("from", "to"))
    chosen = {
        "subject_id": _or_null(_TEXT),
        "event_type": _or_null(_list(_TEXT)),
        "time": _or_null(times),
    }
    aggregate = {"group_by": _list(_TEXT), "metrics": _list({"enum": list(METRICS)}, minItems=1)}
    fields = {
        "query_id": _ID,
        "version": {"const": 1},
        "scope": _list(_TEXT, minItems=1, uniqueItems=True),
        "filter": _object(chosen, optional=tuple(chosen), additionalProperties=False),
        "projection": _list(_TEXT, minItems=1),
        "evidence": _object(evidence, optional=("sample_rate",), additionalProperties=False),
        "aggregate": _object(aggregate, optional=("group_by",), additionalProperties=False),
        "meta": {"type": "object"},
    }
    optional = tuple(name for name in fields if name != "scope")
    return _object(
        fields,
        optional=optional,
        additionalProperties=False,
        description=f"At most {MAX_DESCRIPTOR_BYTES} bytes. Times select by event_time, both ends included.",
    )


def _schemas() -> dict[str, Any]:
    position = _object(
        {"stream": _TEXT, "epoch": _COUNT, "label": _HASH, "upto_seq": _COUNT, "mmr_root": _HASH}
    )
    digest = {
        "query_id": _ID,
        "result_id": _ID,
        "version": {"const": 1},
        "row_count": _COUNT,
        "evidence_policy": {"type": "object"},
        "rows_hash": _HASH,
        "evidence_hash": _HASH,
        "executed_at": _TIME,
        "hub_id": _HASH,
        "profile_id": _HASH,
        "upto": _list(position),
        "unread": _COUNT,
    }
    event = {"stream": _TEXT, "epoch": _COUNT, "seq": _COUNT, "hub_id": _HASH, "receipt_id": _HASH}
    status = {
        "query_id": _ID,
        "result_id": _ID,
        "status": {"enum": ["pending", "running", "completed", "failed"]},
        "error_code": _or_null(_TEXT),
        "message": _or_null(_TEXT),
        "progress": _or_null(_object({"tasks_done": _COUNT, "tasks_total": _COUNT})),
        "received_at": _TIME,
        "started_at": _or_null(_TIME),
        "ended_at": _or_null(_TIME),
    }
    page = {
        "offset": _COUNT,
        "limit": _COUNT,
        "total": _COUNT,
        "has_more": {"type": "boolean"},
        "next_offset": _or_null(_COUNT),
    }
    result = {
        "result_digest": _ref("ResultDigest"),
        "record_event": _ref("RecordEvent"),
        "receipt": {**_TEXT, "description": "The receipt of the digest's event, as the hub encoded it; hex."},
        "page": _object(page),
        "rows": _list({"type": "object"}),
    }
    descriptor = {
        "descriptor": _ref("QueryDescriptor"),
        "record_event": _or_null(_ref("RecordEvent")),
        "result_id": _ID,
    }
    return {
        "QueryDescriptor": _descriptor(),
        "ResultDigest": _object(digest, optional=("profile_id", "upto", "unread")),
        "RecordEvent": _object(event),
        "Accepted": _object({"query_id": _ID, "result_id": _ID, "status": {"const": "pending"}}),
        "Status": _object(status),
        "Result": _object(result),
        "Descriptor": _object(descriptor),
        "Error": _object({"error_code": {"enum": sorted(STATUS)}, "message": _TEXT}),
    }


def _content(schema: str, about: str) -> dict[str, Any]:
    return {"description": about, "content": {"application/json": {"schema": _ref(schema)}}}


# Errors of all operations.
_ANYWHERE: Final = {
    "400": "invalid_query_descriptor: the request is malformed, or a parameter is invalid",
    "401": "unauthorized",
    "403": "forbidden: the request comes from a page of another site",
    "405": "invalid_query_descriptor: the path accepts other methods; see Allow",
    "415": "invalid_query_descriptor: a web page must state the type of a body",
    "421": "forbidden: the host of the request is not a name of this service",
    "500": "execution_failed, internal_error",
    "503": "internal_error: the service is overloaded or stopping; see Retry-After",
}


def _operation(
    about: str,
    answers: dict[str, dict[str, Any]],
    errors: dict[str, str],
    **more: Any,  # noqa: ANN401 - JSON
) -> dict[str, Any]:
    failures = {**_ANYWHERE, **errors}
    return {
        "summary": about,
        "responses": {
            **answers,
            **{code: _content("Error", text) for code, text in sorted(failures.items())},
        },
        **more,
    }


_OPENAPI: Final = {
    "description": "OpenAPI.",
    "content": {"application/json": {"schema": {"type": "object"}}},
}


def _parameter(name: str, schema: dict[str, Any], place: str = "path") -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": schema}


def _submit() -> dict[str, Any]:
    return _operation(
        "Submit a query; its request is recorded before the response.",
        {"202": _content("Accepted", "The request is recorded; the query waits to run.")},
        {
            "400": "invalid_json, invalid_query_descriptor, unsupported_version",
            "403": "forbidden_scope: a stream does not exist, or the caller may not read it; forbidden: the"
            " request comes from a page of another site",
            "409": "duplicate_query_id",
            "500": "internal_error: the hub does not answer; the query is stored, see the message",
            "503": "internal_error: too many queries wait, or the streams of the log cannot be listed; see"
            " Retry-After",
        },
        requestBody={
            "required": True,
            "content": {"application/json": {"schema": _ref("QueryDescriptor")}},
        },
    )


def _paths() -> dict[str, Any]:
    one = [_parameter("result_id", _ID)]
    unknown = {"404": "query_not_found: there is no such query, or the caller may not see it"}
    paging = [
        _parameter("offset", {**_COUNT, "default": 0}, "query"),
        _parameter(
            "limit",
            {"type": "integer", "minimum": 1, "maximum": MOST_LIMIT, "default": DEFAULT_LIMIT},
            "query",
        ),
    ]
    return {
        "/submit": {"post": _submit()},
        "/status/{result_id}": {
            "get": _operation(
                "Return the status of a query.",
                {"200": _content("Status", "Its state.")},
                unknown,
                parameters=one,
            )
        },
        "/result/{result_id}": {
            "get": _operation(
                "Return rows of an answer in order, and its digest.",
                {
                    "200": _content(
                        "Result",
                        f"A page; it has fewer rows than limit if they exceed {MOST_PAGE_BYTES} bytes."
                        " The next page begins at next_offset.",
                    )
                },
                {
                    **unknown,
                    "409": "result_not_ready",
                    "500": "execution_failed, cancelled",
                },
                parameters=one + paging,
            )
        },
        "/descriptor/{query_id}": {
            "get": _operation(
                "Return a descriptor in its normal form, and its position in the log.",
                {"200": _content("Descriptor", "The descriptor.")},
                unknown,
                parameters=[_parameter("query_id", _ID)],
            )
        },
        "/cancel/{result_id}": {
            "post": _operation(
                "Cancel a query of the caller: it fails with cancelled. One that has ended does not change.",
                {"200": _content("Status", "Its state.")},
                unknown,
                parameters=one,
            )
        },
        "/openapi.json": {"get": _operation("Return this document.", {"200": _OPENAPI}, {})},
    }


def document() -> dict[str, Any]:
    """Return the document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "VEEN queries",
            "version": "1",
            "description": "Queries over recorded events, with reproducible digests.",
        },
        "servers": [{"url": "/api/query"}, {"url": "/api/v1/query"}],
        "security": [{"token": []}, {"certificate": []}],
        "paths": _paths(),
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "certificate": {"type": "mutualTLS"},
            },
        },
    }
