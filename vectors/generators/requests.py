"""Requests, responses and errors of the data plane (001 sections 10.4 and 10.6), and limits of lists."""

from collections.abc import Iterator

from vectors.generators import fixed, raw, samples
from vectors.generators.fixed import LABEL, U64_MAX, ZERO_32, h
from vectors.generators.scenario import (
    CAP_INVALID,
    CBOR_INVALID,
    FIELD_SIZE,
    PROOF_PATH,
    VALUE,
    VERSION,
    Failure,
    Scenario,
)

_ONE = raw.uint(1)
_LABEL = raw.bstr(LABEL)


def queries() -> Scenario:
    """Return the requests that name a label and a number."""
    s = Scenario(
        "api/queries",
        "receipt, proof and checkpoint are asked for by label and number; whatever is wrong is "
        "E.BAD_REQUEST.",
    )
    for kind in ("receipt_request", "proof_request", "checkpoint_request"):
        for number in (0, 1, U64_MAX):
            s.round_trip(
                f"{kind} for {number}", kind, raw.keyed((1, _ONE), (2, _LABEL), (3, raw.uint(number)))
            )
        cases: tuple[tuple[str, Failure, bytes], ...] = (
            ("no number", CBOR_INVALID, raw.keyed((1, _ONE), (2, _LABEL))),
            ("no label", CBOR_INVALID, raw.keyed((1, _ONE), (3, _ONE))),
            ("no ver", CBOR_INVALID, raw.keyed((2, _LABEL), (3, _ONE))),
            ("unknown key", CBOR_INVALID, raw.keyed((1, _ONE), (2, _LABEL), (3, _ONE), (4, _ONE))),
            ("number null", CBOR_INVALID, raw.keyed((1, _ONE), (2, _LABEL), (3, raw.NULL))),
            ("label as text", CBOR_INVALID, raw.keyed((1, _ONE), (2, raw.tstr(LABEL.hex())), (3, _ONE))),
            ("an array", CBOR_INVALID, raw.array(_ONE, _LABEL, _ONE)),
            ("names for keys", CBOR_INVALID, raw.mapping((raw.tstr("ver"), _ONE))),
            ("nothing", CBOR_INVALID, b""),
            ("a byte behind", CBOR_INVALID, raw.keyed((1, _ONE), (2, _LABEL), (3, _ONE)) + b"\x00"),
            ("label of 31 bytes", FIELD_SIZE, raw.keyed((1, _ONE), (2, raw.bstr(bytes(31))), (3, _ONE))),
            ("version 2", VERSION, raw.keyed((1, raw.uint(2)), (2, _LABEL), (3, _ONE))),
            (
                "version 2, short label",
                FIELD_SIZE,
                raw.keyed((1, raw.uint(2)), (2, raw.bstr(b"")), (3, _ONE)),
            ),
        )
        for name, failure, data in cases:
            s.refuses(f"{kind}: {name}", failure.in_request(), kind, data)
    return s


def stream_requests() -> Scenario:
    """Return requests for a range."""
    s = Scenario("api/stream_request", "A range is asked for with optional fields left out, never null.")
    needed = ((1, _ONE), (2, _LABEL), (3, _ONE))
    optional = ((4, raw.uint(9)), (5, raw.uint(100)), (6, raw.uint(4)), (7, raw.TRUE), (8, raw.FALSE))
    s.round_trip("only what is needed", "stream_request", raw.keyed(*needed))
    s.round_trip("everything", "stream_request", raw.keyed(*needed, *optional))
    for key, item in optional:
        s.round_trip(f"key {key}", "stream_request", raw.keyed(*needed, (key, item)))
        null = raw.keyed(*needed, (key, raw.NULL))
        s.refuses(f"key {key} null", CBOR_INVALID.in_request(), "stream_request", null)
        text = raw.keyed(*needed, (key, raw.tstr("1")))
        s.refuses(f"key {key} as text", CBOR_INVALID.in_request(), "stream_request", text)
    s.round_trip("from_seq 0, which is read as 1", "stream_request", raw.keyed(*needed[:2], (3, raw.uint(0))))
    for name, failure, data in (
        ("from_seq missing", CBOR_INVALID, raw.keyed(*needed[:2])),
        ("unknown key", CBOR_INVALID, raw.keyed(*needed, (9, _ONE))),
        ("optional keys out of order", CBOR_INVALID, raw.keyed(*needed, optional[1], optional[0])),
        ("with_receipts as a number", CBOR_INVALID, raw.keyed(*needed, (7, _ONE))),
        ("version 0", VERSION, raw.keyed((1, raw.uint(0)), *needed[1:])),
        ("label of 33 bytes", FIELD_SIZE, raw.keyed((1, _ONE), (2, raw.bstr(bytes(33))), (3, _ONE))),
    ):
        s.refuses(name, failure.in_request(), "stream_request", data)
    return s


def submits() -> Scenario:
    """Return submit requests and responses."""
    s = Scenario(
        "api/submit",
        "A message is embedded in its request, not wrapped; faults have the codes of admission, the "
        "envelope's too.",
    )
    request = raw.keyed((1, _ONE), (2, samples.MSG))
    assert len(request) == len(samples.MSG) + 4
    s.round_trip("request", "submit_request", request)
    s.round_trip("response", "submit_response", raw.keyed((1, _ONE), (2, samples.RECEIPT)))
    versioned = raw.keyed((1, _ONE), (2, samples.RECEIPT), (3, raw.tstr("0.0.1")))
    s.round_trip("response with server_version", "submit_response", versioned)
    s.round_trip("receipt response", "receipt_response", versioned)
    msg = raw.split(samples.MSG)
    cases: tuple[tuple[str, Failure, bytes], ...] = (
        ("message wrapped in a byte string", CBOR_INVALID, raw.keyed((1, _ONE), (2, raw.bstr(samples.MSG)))),
        ("message alone", CBOR_INVALID, samples.MSG),
        ("no message", CBOR_INVALID, raw.keyed((1, _ONE))),
        ("message null", CBOR_INVALID, raw.keyed((1, _ONE), (2, raw.NULL))),
        ("no ver", CBOR_INVALID, raw.keyed((2, samples.MSG))),
        ("unknown key", CBOR_INVALID, raw.keyed((1, _ONE), (2, samples.MSG), (3, raw.NULL))),
        ("message of nine elements", CBOR_INVALID, raw.keyed((1, _ONE), (2, raw.array(*msg[:9])))),
        ("message with a long head", CBOR_INVALID, raw.keyed((1, _ONE), (2, raw.array(*msg, width=1)))),
        ("a byte behind", CBOR_INVALID, request + b"\x00"),
        ("envelope of version 2", VERSION, raw.keyed((1, raw.uint(2)), (2, samples.MSG))),
        ("message of version 2", VERSION, raw.keyed((1, _ONE), (2, raw.replaced(msg, 0, raw.uint(2))))),
        ("short label in the message", FIELD_SIZE,
         raw.keyed((1, _ONE), (2, raw.replaced(msg, 2, raw.bstr(b""))))),
        ("envelope of version 2, short label", FIELD_SIZE,
         raw.keyed((1, raw.uint(2)), (2, raw.replaced(msg, 2, raw.bstr(b""))))),
        ("short ciphertext in the message", FIELD_SIZE,
         raw.keyed((1, _ONE), (2, raw.replaced(msg, 8, raw.bstr(bytes(39)))))),
    )  # fmt: skip
    for name, failure, data in cases:
        s.refuses(name, failure, "submit_request", data)
    receipt = raw.split(samples.RECEIPT)
    s.refuses(
        "response with a receipt of entry 0",
        VALUE,
        "submit_response",
        raw.keyed((1, _ONE), (2, raw.replaced(receipt, 2, raw.uint(0)))),
    )
    s.refuses(
        "response with a null server_version",
        CBOR_INVALID,
        "submit_response",
        raw.keyed((1, _ONE), (2, samples.RECEIPT), (3, raw.NULL)),
    )
    return s


def responses() -> Scenario:
    """Return responses with pages, proofs and checkpoints."""
    s = Scenario("api/responses", "Answers embed receipts, proofs, checkpoints and messages as they are.")
    item = raw.keyed((1, _ONE), (2, samples.MSG))
    full_item = raw.keyed((1, _ONE), (2, samples.MSG), (3, samples.RECEIPT))
    proof = samples.proof(3, 11)
    head = ((1, _ONE), (2, _LABEL), (3, _ONE))
    s.round_trip("empty page", "stream_response", raw.keyed(*head, (5, raw.array())))
    s.round_trip("page of one", "stream_response", raw.keyed(*head, (5, raw.array(item))))
    everything = (
        (4, raw.uint(2)),
        (5, raw.array(full_item, item)),
        (6, raw.uint(3)),
        (7, proof),
        (8, raw.tstr("0.0.1")),
    )
    s.round_trip("page with everything", "stream_response", raw.keyed(*head, *everything))
    s.round_trip("proof", "proof_response", raw.keyed((1, _ONE), (2, proof)))
    s.round_trip("checkpoint", "checkpoint_response", raw.keyed((1, _ONE), (2, samples.checkpoint())))
    named = raw.keyed((1, _ONE), (2, samples.checkpoint()), (3, raw.tstr("")))
    s.round_trip("checkpoint with an empty server_version", "checkpoint_response", named)
    unknown = raw.keyed((1, _ONE), (2, samples.MSG), (4, raw.uint(0)))
    bad_msg = raw.keyed((1, _ONE), (2, raw.replaced(raw.split(samples.MSG), 0, raw.uint(2))))
    bad_step = raw.keyed((1, raw.uint(7)), (2, raw.bstr(ZERO_32)))
    bad_proof = raw.keyed((1, _ONE), (2, raw.bstr(ZERO_32)), (3, raw.array(bad_step)), (4, raw.array()))
    for name, kind, failure, data in (
        ("page without items", "stream_response", CBOR_INVALID, raw.keyed(*head)),
        ("items null", "stream_response", CBOR_INVALID, raw.keyed(*head, (5, raw.NULL))),
        ("unknown key in an item", "stream_response", CBOR_INVALID,
         raw.keyed(*head, (5, raw.array(unknown)))),
        ("item without a message", "stream_response", CBOR_INVALID,
         raw.keyed(*head, (5, raw.array(raw.keyed((1, _ONE)))))),
        ("item as an array", "stream_response", CBOR_INVALID,
         raw.keyed(*head, (5, raw.array(raw.array(_ONE, samples.MSG))))),
        ("item with a message of version 2", "stream_response", VERSION,
         raw.keyed(*head, (5, raw.array(bad_msg)))),
        ("page of version 2", "stream_response", VERSION,
         raw.keyed((1, raw.uint(2)), *head[1:], (5, raw.array()))),
        ("proof null", "proof_response", CBOR_INVALID, raw.keyed((1, _ONE), (2, raw.NULL))),
        ("proof with dir 7", "proof_response", PROOF_PATH, raw.keyed((1, _ONE), (2, bad_proof))),
        ("checkpoint as a byte string", "checkpoint_response", CBOR_INVALID,
         raw.keyed((1, _ONE), (2, raw.bstr(samples.checkpoint())))),
        ("receipt for a checkpoint", "checkpoint_response", CBOR_INVALID,
         raw.keyed((1, _ONE), (2, samples.RECEIPT))),
    ):  # fmt: skip
        s.refuses(name, failure, kind, data)
    return s


_CODES = (
    "E.FORMAT", "E.SIZE", "E.SIG", "E.CAP", "E.AUTH", "E.RATE", "E.SEQ", "E.TIME",
    "E.BAD_REQUEST", "E.UNAUTHORIZED", "E.FORBIDDEN", "E.NOT_FOUND", "E.CONFLICT", "E.LIMIT", "E.UNAVAILABLE",
    "E.VERSION",
)  # fmt: skip


def errors() -> Scenario:
    """Return error envelopes."""
    s = Scenario(
        "error/envelope", "An error has a code and a message; detail has text keys, shorter ones first."
    )

    def envelope(code: str, *more: tuple[int, bytes]) -> bytes:
        return raw.keyed((1, _ONE), (2, raw.tstr(code)), (3, raw.tstr("what is wrong")), *more)

    for code in _CODES:
        s.round_trip(code, "error", envelope(code))
    s.round_trip("a code that nobody knows is kept", "error", envelope("E.DUP"))
    detail = raw.mapping(
        (raw.tstr("field"), raw.tstr("sig")),
        (raw.tstr("label"), _LABEL),
        (raw.tstr("stage"), raw.tstr("auth")),
        (raw.tstr("actual"), raw.uint(U64_MAX)),
        (raw.tstr("expected"), raw.bstr(b"\x01\x02")),
        (raw.tstr("detail_enum"), raw.tstr("SIG_INVALID")),
        (raw.tstr("max_allowed"), raw.uint(64)),
        (raw.tstr("stream_seq"), raw.uint(7)),
    )
    ordered = sorted(raw.split_map(detail))
    s.round_trip("every detail", "error", envelope("E.SIG", (4, raw.mapping(*ordered))))
    s.round_trip("empty detail", "error", envelope("E.SIG", (4, raw.mapping())))
    s.round_trip("retry_after", "error", envelope("E.RATE", (5, raw.uint(30))))
    s.round_trip("request_id", "error", envelope("E.UNAVAILABLE", (6, raw.tstr("r-1"))))
    s.round_trip(
        "everything",
        "error",
        envelope("E.RATE", (4, raw.mapping(*ordered)), (5, raw.uint(30)), (6, raw.tstr("r-1"))),
    )
    return s


def errors_refused() -> Scenario:
    """Return envelopes that must not decode."""
    s = Scenario(
        "error/refused",
        "detail holds integers, texts and byte strings under ordered text keys; nothing else.",
    )
    code, message = (2, raw.tstr("E.SIG")), (3, raw.tstr("m"))

    def with_detail(detail: bytes) -> bytes:
        return raw.keyed((1, _ONE), code, message, (4, detail))

    a, b, long = raw.tstr("a"), raw.tstr("b"), raw.tstr("aa")
    for name, failure, data in (
        ("no code", CBOR_INVALID, raw.keyed((1, _ONE), message)),
        ("no message", CBOR_INVALID, raw.keyed((1, _ONE), code)),
        ("no ver", CBOR_INVALID, raw.keyed(code, message)),
        ("code as bytes", CBOR_INVALID, raw.keyed((1, _ONE), (2, raw.bstr(b"E.SIG")), message)),
        ("message null", CBOR_INVALID, raw.keyed((1, _ONE), code, (3, raw.NULL))),
        ("unknown key", CBOR_INVALID, raw.keyed((1, _ONE), code, message, (7, _ONE))),
        ("version 2", VERSION, raw.keyed((1, raw.uint(2)), code, message)),
        ("detail null", CBOR_INVALID, with_detail(raw.NULL)),
        ("detail as text", CBOR_INVALID, with_detail(raw.tstr("SIG_INVALID"))),
        ("detail as an array", CBOR_INVALID, with_detail(raw.array())),
        ("detail with an integer key", CBOR_INVALID, with_detail(raw.keyed((1, _ONE)))),
        ("detail with a byte string key", CBOR_INVALID, with_detail(raw.mapping((raw.bstr(b"a"), _ONE)))),
        ("detail keys out of order", CBOR_INVALID, with_detail(raw.mapping((b, _ONE), (a, _ONE)))),
        ("detail with the longer key first", CBOR_INVALID, with_detail(raw.mapping((long, _ONE), (b, _ONE)))),
        ("detail key twice", CBOR_INVALID, with_detail(raw.mapping((a, _ONE), (a, _ONE)))),
        ("detail value null", CBOR_INVALID, with_detail(raw.mapping((a, raw.NULL)))),
        ("detail value true", CBOR_INVALID, with_detail(raw.mapping((a, raw.TRUE)))),
        ("detail value an array", CBOR_INVALID, with_detail(raw.mapping((a, raw.array())))),
        ("detail value a map", CBOR_INVALID, with_detail(raw.mapping((a, raw.mapping())))),
        ("detail value negative", CBOR_INVALID, with_detail(raw.mapping((a, b"\x20")))),
        ("detail value a float", CBOR_INVALID, with_detail(raw.mapping((a, b"\xf9\x00\x00")))),
        ("detail value with a long head", CBOR_INVALID, with_detail(raw.mapping((a, raw.uint(1, 1))))),
        ("retry_after as text", CBOR_INVALID, raw.keyed((1, _ONE), code, message, (5, raw.tstr("30")))),
        ("retry_after null", CBOR_INVALID, raw.keyed((1, _ONE), code, message, (5, raw.NULL))),
        ("request_id as a number", CBOR_INVALID, raw.keyed((1, _ONE), code, message, (6, _ONE))),
    ):
        s.refuses(name, failure, "error", data)
    return s


def list_limits() -> Scenario:
    """Return lists of the maximum length, and one longer."""
    s = Scenario(
        "limits/lists",
        "64 steps and peaks of a proof, 64 witnesses, 8 links and 256 streams of a token, and not one more.",
    )
    node, sig = raw.bstr(ZERO_32), raw.bstr(bytes(64))
    step = raw.keyed((1, raw.uint(0)), (2, node))

    def proof(steps: int, peaks: int) -> bytes:
        lists = (3, raw.array(*[step] * steps)), (4, raw.array(*[node] * peaks))
        return raw.keyed((1, _ONE), (2, node), *lists)

    def growth(count: int) -> bytes:
        return raw.keyed((1, _ONE), (2, raw.array(*[node] * count)), (3, raw.array()), (4, raw.array()))

    def checkpoint(count: int) -> bytes:
        return raw.array(*raw.split(samples.checkpoint()), raw.array(*[sig] * count))

    def token(streams: int, links: int) -> bytes:
        names = sorted(h(bytes(2) + number.to_bytes(2, "big")) for number in range(streams))
        allow = raw.keyed((1, raw.array(*map(raw.bstr, names))), (2, _ONE))
        head = (1, _ONE), (2, raw.bstr(fixed.ISSUER_PK)), (3, raw.bstr(fixed.CLIENT_ID)), (4, allow)
        return raw.keyed(*head, (5, raw.array(*[sig] * links)))

    for name, kind, at_most, beyond in (
        ("steps", "mmr_proof", proof(64, 1), proof(65, 1)),
        ("peaks", "mmr_proof", proof(0, 64), proof(0, 65)),
        ("old peaks", "consistency_proof", growth(64), growth(65)),
        ("witnesses", "checkpoint", checkpoint(64), checkpoint(65)),
        ("links", "cap_token", token(1, 8), token(1, 9)),
    ):
        s.decodes(f"{name}: as many as may be", kind, at_most)
        s.refuses(f"{name}: one more", FIELD_SIZE, kind, beyond)
    s.refuses("streams: 257, and no links", FIELD_SIZE, "cap_token", token(257, 0))
    s.refuses("no links", CAP_INVALID, "cap_token", token(1, 0))
    return s


def scenarios() -> Iterator[Scenario]:
    """Yield the scenarios of this module."""
    yield queries()
    yield stream_requests()
    yield submits()
    yield responses()
    yield errors()
    yield errors_refused()
    yield list_limits()
