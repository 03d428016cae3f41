"""One target per parser, with valid objects as seeds.

An accepted input must encode to the same bytes. A target named ``verify:`` claims more: only the original
object verifies.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from fuzz.clients import client_forgeries, client_objects
from fuzz.files import File, every_file
from fuzz.mutate_json import mutate_json
from fuzz.overlays import certificate, overlay_targets
from fuzz.requests import REQUESTS
from fuzz.runner import Run, Skipped, Target
from tests import builders as make
from tests.examples import every_wire_object
from veen.admission.stages import Sized
from veen.admission.stateless import MessageRules, read_msg
from veen.conformance.adapter import answer
from veen.core.data_dir.chunk_artifacts import CheckpointIndex, PeakSnapshot
from veen.core.encoding import cbor
from veen.core.encoding.wire_object import Wire, decode_sequence, encode_sequence
from veen.core.errors import ProtocolError
from veen.core.limits import DEFAULT_LIMITS
from veen.core.merkle.consistency import ConsistencyProof
from veen.core.merkle.inclusion import MmrProof
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.entry import Entry, EntryHeader
from veen.core.objects.hub_identity import CheckpointBinding, KeyMap
from veen.core.objects.msg import Msg
from veen.core.objects.receipt import Receipt
from veen.core.objects.sealed_payload import Envelope, open_msg
from veen.overlays.certificate import StateCertificate

PROFILE = make.profile()
RULES = MessageRules(DEFAULT_LIMITS, {PROFILE.profile_id: PROFILE.pad_block})


def same(value: object, expected: object) -> None:
    """Fail unless two values are equal."""
    assert value == expected, f"{value!r} is not {expected!r}"


def as_text(value: object) -> str:
    """Return JSON as a text in which true, 1 and 1.0 differ."""
    return json.dumps(value, sort_keys=True)


# --- objects with a shape -----------------------------------------------------------------------------------


def decode_target(cls: type[Wire]) -> Run:
    """Return a function that decodes an object, and rebuilds it from its fields and from its JSON form."""

    def run(data: bytes) -> None:
        item = cls.decode(data)
        same(item.encode(), data)
        same(replace(item).encode(), data)
        same(cls.from_json(item.to_json()).encode(), data)

    return run


def json_target(parse: Callable[[Any], Any], decode: Callable[[bytes], Any]) -> Run:
    """Return a function that parses a JSON form."""

    def run(data: bytes) -> None:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            raise Skipped from None
        item = parse(value)
        same(as_text(item.to_json()), as_text(value))
        same(decode(item.encode()), item)

    return run


def wire_targets() -> Iterator[Target]:
    """Yield decode: and json: for every type."""
    by_type: dict[type[Wire], list[Wire]] = {}
    for item in (*every_wire_object(), *client_objects(), certificate()):
        by_type.setdefault(type(item), []).append(item)
    for cls, items in by_type.items():
        name = cls.SHAPE.name
        yield Target(f"decode:{name}", decode_target(cls), tuple(item.encode() for item in items))
        forms = tuple(json.dumps(item.to_json()).encode() for item in items)
        yield Target(f"json:{name}", json_target(cls.from_json, cls.decode), forms, mutate_json)


# --- frames and files ---------------------------------------------------------------------------------------


def run_entry(data: bytes) -> None:
    """Decode an entry, and the data after it."""
    item, end = Entry.decode(data)
    same(item.encode(), data[:end])


def run_entry_header(data: bytes) -> None:
    """Decode the header of an entry at two offsets."""
    header = EntryHeader.decode(data)
    same(EntryHeader.decode(b"x" + data, 1), header)
    assert header.entry_len <= 82 + 1_048_576 + 188


def run_peaks(data: bytes) -> None:
    """Decode a peak snapshot as one of several sizes."""
    refusals = 0
    sizes = (0, 1, 3, 7, 2**64 - 1)
    for size in sizes:
        try:
            same(PeakSnapshot(PeakSnapshot.decode(data).at(size).hashes).encode(), data)
        except ProtocolError:
            refusals += 1
    assert refusals >= len(sizes) - 1, "one array of peaks for two sizes"


def file_targets() -> Iterator[Target]:
    """Yield both forms of every file that is not a single wire object."""
    files = every_file()
    for name, decode, parse, empty in (
        ("entry:one", Entry.decode_one, Entry.from_json, None),
        ("peak_snapshot", PeakSnapshot.decode, PeakSnapshot.from_json, b"\x80"),
        ("checkpoint_index", CheckpointIndex.decode, CheckpointIndex.from_json, b"\xa0"),
        ("hub_key_map", KeyMap.decode, KeyMap.from_json, b"\xa0"),
        ("checkpoint_binding", CheckpointBinding.decode, CheckpointBinding.from_json, b"\x80"),
    ):
        file = files[{"entry:one": "entry", "peak_snapshot": "peaks"}.get(name, name)]
        seeds = (file.encode(),) if empty is None else (file.encode(), empty)
        yield Target(name, _file_target(decode), seeds)
        yield Target(
            f"json:{name}", json_target(parse, decode), (json.dumps(file.to_json()).encode(),), mutate_json
        )


def _file_target(decode: Callable[[bytes], File]) -> Run:
    return lambda data: same(decode(data).encode(), data)


def run_sequence(data: bytes) -> None:
    """Decode a sequence of receipts."""
    same(encode_sequence(decode_sequence(data, Receipt)), data)


def run_cbor(data: bytes) -> None:
    """Decode a free-form value."""
    same(cbor.encode(cbor.decode(data)), data)


# --- ciphertexts --------------------------------------------------------------------------------------------


def run_envelope(data: bytes) -> None:
    """Parse a ciphertext."""
    envelope = Envelope.parse(data)
    lengths = len(envelope.hdr).to_bytes(4, "big") + len(envelope.body).to_bytes(4, "big")
    same(envelope.enc + lengths + envelope.hdr + envelope.body + envelope.padding, data)
    envelope.verify_padding(256)


def run_open(data: bytes) -> None:
    """Open a message that was changed in transit."""
    open_msg(Msg.decode(data), make.reader_key(), pad_block=256)


def run_open_ciphertext(data: bytes) -> None:
    """Open a ciphertext that a sender has signed, so that every check after the hash is reached."""
    open_msg(make.msg(ciphertext=data), make.reader_key(), pad_block=0)


def attachment_target() -> Target:
    """Return a function that opens the first attachment of a message; only the sealed one opens."""
    sealed = make.sealed(attachments=(b"first", b"second"))
    opened = open_msg(make.msg(ciphertext=sealed.ciphertext), make.reader_key(), pad_block=256)

    def run(data: bytes) -> None:
        same(opened.open_attachment(0, data), b"first")
        same(data, sealed.attachments[0])

    return Target("open:attachment", run, sealed.attachments[:1])


def run_structure(data: bytes) -> None:
    """Run the structural rows of admission."""
    same(read_msg(Sized(data), RULES).encode(), data)


# --- forgeries ----------------------------------------------------------------------------------------------


def verify_target(good: Wire, verify: Callable[[Any], None]) -> Target:
    """Return a target for which only the given bytes verify."""
    encoded = good.encode()

    def run(data: bytes) -> None:
        verify(type(good).decode(data))
        assert data == encoded, "other bytes verify too"

    return Target(f"verify:{good.SHAPE.name}", run, (encoded,))


def forgery_targets() -> Iterator[Target]:
    """Yield a target for each kind of object that is signed or proved."""
    hub = make.verify_key("hub")

    def verify_proof(item: MmrProof) -> None:
        item.verify(make.peaks(7).root, make.leaf(3), stream_seq=3, mmr_size=7)

    def verify_consistency(item: ConsistencyProof) -> None:
        item.verify(old_root=make.peaks(3).root, old_size=3, new_root=make.peaks(7).root, new_size=7)

    yield verify_target(make.msg(), lambda item: item.verify())
    yield verify_target(make.receipt(), lambda item: item.verify_signature(hub))
    yield verify_target(make.inclusion_proof(3, 7), verify_proof)
    yield verify_target(make.consistency_proof(3, 7), verify_consistency)
    yield verify_target(make.cap_token(), lambda item: item.verify())
    for item, verify in (*client_forgeries(), (certificate(), StateCertificate.verify)):
        yield verify_target(item, verify)
    yield Target("verify:CHECKPOINT", run_verify_checkpoint, (make.checkpoint(witnesses=("w1",)).encode(),))


def run_verify_checkpoint(data: bytes) -> None:
    """Verify a checkpoint: witness signatures may be added, and nothing else may change."""
    item = replace(Checkpoint.decode(data), witness_sigs=None)
    item.verify_signature(make.verify_key("hub"))
    same(item, make.checkpoint())


# --- the conformance adapter --------------------------------------------------------------------------------


def run_adapter(line: bytes) -> None:
    """Answer a request; the answer is JSON and never an internal error."""
    answered = answer(line)
    json.dumps(answered, allow_nan=False)
    assert answered.get("code") != "INTERNAL", answered
    if not answered["ok"]:
        raise Skipped


# --- all of them --------------------------------------------------------------------------------------------


def all_targets() -> list[Target]:
    """Return every target, seeds included."""
    entry = make.entry()
    message = make.msg()
    token_entry = Entry(make.cap_token().encode(), make.receipt())
    peak_arrays = tuple(PeakSnapshot(make.peaks(size).hashes).encode() for size in (0, 1, 3, 7))
    values: list[cbor.Value] = [
        0,
        2**64 - 1,
        b"bytes",
        "text",
        [True, False, None],
        {1: [1, 2, {"a": b"x", "bb": [[[]]]}], 24: "x"},
    ]
    plain = make.sealed(pad_block=0).ciphertext
    return [
        *wire_targets(),
        Target("entry", run_entry, (entry.encode(), token_entry.encode(), entry.encode() * 2)),
        Target("entry:header", run_entry_header, (entry.encode(), entry.encode()[:82])),
        Target("peaks", run_peaks, peak_arrays),
        *file_targets(),
        Target("sequence", run_sequence, (encode_sequence([make.receipt(), make.receipt(stream_seq=2)]),)),
        Target("cbor", run_cbor, tuple(cbor.encode(value) for value in values)),
        Target("envelope", run_envelope, (message.ciphertext,)),
        Target("open", run_open, (message.encode(),)),
        Target("open:ciphertext", run_open_ciphertext, (plain, plain + bytes(100))),
        attachment_target(),
        Target("structure", run_structure, (message.encode(),)),
        *forgery_targets(),
        *overlay_targets(),
        Target("adapter", run_adapter, REQUESTS, mutate_json),
    ]
