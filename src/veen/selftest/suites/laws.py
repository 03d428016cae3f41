"""Steps about laws: properties of every log, proof and object, checked on many of them."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from random import Random
from typing import TYPE_CHECKING, Any, Final

from veen.core.api.data_plane import StreamRequest, StreamResponse
from veen.core.crypto.hash import tagged_hash
from veen.core.encoding import cbor
from veen.core.encoding.wire_object import Wire
from veen.core.errors import Code, ProtocolError
from veen.core.merkle.consistency import ConsistencyProof, prove_consistency
from veen.core.merkle.inclusion import MmrProof, Step, prove_inclusion
from veen.core.merkle.mmr import Peaks, complete_nodes, read_peaks
from veen.core.types import LeafHash, NodeHash
from veen.selftest.authors import submit
from veen.selftest.context import Context
from veen.selftest.errors import StepFailedError
from veen.selftest.generate import number, sample, wire_types
from veen.selftest.step import Needs, check, equal, refused, step
from veen.selftest.suites.messages import ask, author_of

if TYPE_CHECKING:
    from veen.core.objects.msg import Msg

_SIZES: Final = 34
_PAIRS: Final = 26
_OF_EACH: Final = 25
_SUBMITS: Final = 120


def _leaves(random: Random, count: int) -> list[LeafHash]:
    return [LeafHash(random.randbytes(32)) for _ in range(count)]


def _grown(peaks: Peaks, leaves: list[LeafHash]) -> Peaks:
    for leaf in leaves:
        peaks = peaks.append(leaf)
    return peaks


def _root(leaves: list[LeafHash]) -> bytes:
    """Return the root by its definition: perfect trees, the largest first, folded from the smallest on."""

    def tree(part: list[LeafHash]) -> bytes:
        if len(part) == 1:
            return part[0]
        half = len(part) // 2
        return tagged_hash("veen/mmr-node", tree(part[:half]) + tree(part[half:]))

    peaks, rest = [], leaves
    while rest:
        size = 1 << (len(rest).bit_length() - 1)
        peaks.append(tree(rest[:size]))
        rest = rest[size:]
    return peaks[0] if len(peaks) == 1 else tagged_hash("veen/mmr-root", b"".join(reversed(peaks)))


@step(Needs.NONE)
def mmr_splits(ctx: Context) -> str:
    """However a log is divided and its parts are grouped, the result is the same range."""
    cuts = 0
    for size in [*range(1, _SIZES), 63, 64, 65, 200, 513]:
        leaves = _leaves(ctx.random, size)
        whole = _grown(Peaks.empty(), leaves)
        equal(whole.root, _root(leaves), f"root of {size} leaves, compared with its definition")
        nodes = complete_nodes(leaves)
        for _ in range(6):
            first, second = sorted(ctx.random.randrange(size + 1) for _ in range(2))
            parts = leaves[:first], leaves[first:second], leaves[second:]
            left = _grown(_grown(_grown(Peaks.empty(), parts[0]), parts[1]), parts[2])
            right = _grown(_grown(Peaks.empty(), parts[0]), parts[1] + parts[2])
            equal(left, whole, f"{size} leaves in parts of {first}, {second - first}, {size - second}")
            equal(right, whole, f"{size} leaves, the last two parts together")
            equal(read_peaks(nodes.__getitem__, second), _grown(Peaks.empty(), leaves[:second]), "a prefix")
            cuts += 1
    return f"{cuts} ways to divide logs of up to 513 entries"


# --- proofs -------------------------------------------------------------------------------------------------


@step(Needs.NONE)
def proof_minimality(ctx: Context) -> str:
    """An inclusion proof verifies for its leaf alone; shorter, longer or altered it does not."""
    proofs = altered = 0
    for size in range(1, _SIZES):
        leaves = _leaves(ctx.random, size)
        nodes = complete_nodes(leaves)
        root = read_peaks(nodes.__getitem__, size).root
        for seq in range(1, size + 1):
            proof = prove_inclusion(nodes.__getitem__, stream_seq=seq, mmr_size=size)
            proof.verify(root, leaves[seq - 1], stream_seq=seq, mmr_size=size)
            proofs += 1
            for name, wrong in _altered_proofs(ctx.random, proof):
                verify = _verifying(wrong, root, leaves[seq - 1], seq, size)
                _must_fail(verify, f"entry {seq} of {size} with {name}")
                altered += 1
            for other in {1, seq - 1, seq + 1, size} - {seq, 0, size + 1}:
                _must_fail(_verifying(proof, root, leaves[seq - 1], other, size), f"entry {other} for {seq}")
    return f"{proofs} proofs, {altered} altered ones"


def _verifying(proof: MmrProof, root: bytes, leaf: LeafHash, seq: int, size: int) -> Callable[[], None]:
    return lambda: proof.verify(root, leaf, stream_seq=seq, mmr_size=size)


def _must_fail(verify: Callable[[], object], what: str) -> None:
    try:
        verify()
    except ProtocolError:
        return
    raise StepFailedError(f"a wrong proof was accepted: {what}")


def _flip(random: Random, node: bytes) -> NodeHash:
    at = random.randrange(len(node))
    return NodeHash(node[:at] + bytes((node[at] ^ 1 << random.randrange(8),)) + node[at + 1 :])


def _altered_proofs(random: Random, proof: MmrProof) -> Iterator[tuple[str, MmrProof]]:
    path, peaks = proof.path, proof.peaks_after
    extra = NodeHash(random.randbytes(32))
    yield "another leaf", replace(proof, leaf_hash=LeafHash(_flip(random, proof.leaf_hash)))
    yield "one more step", replace(proof, path=(*path, Step(0, extra)))
    yield "one more peak", replace(proof, peaks_after=(*peaks, extra))
    for index, item in enumerate(path):
        before, after = path[:index], path[index + 1 :]
        yield "one step less", replace(proof, path=before + after)
        yield "a step reversed", replace(proof, path=(*before, Step(1 - item.dir, item.sib), *after))
        yield (
            "a step changed",
            replace(proof, path=(*before, Step(item.dir, _flip(random, item.sib)), *after)),
        )
    for index, peak in enumerate(peaks):
        before_peak, after_peak = peaks[:index], peaks[index + 1 :]
        yield "one peak less", replace(proof, peaks_after=before_peak + after_peak)
        yield "a peak changed", replace(proof, peaks_after=(*before_peak, _flip(random, peak), *after_peak))
    if len(peaks) > 1:
        yield "peaks in reverse order", replace(proof, peaks_after=peaks[::-1])


@step(Needs.NONE)
def consistency_proofs(ctx: Context) -> str:
    """A consistency proof shows that a log has only grown; altered, or for other sizes, it shows nothing."""
    leaves = _leaves(ctx.random, _PAIRS)
    read = complete_nodes(leaves).__getitem__
    forked = complete_nodes([LeafHash(sha256(leaves[0]).digest()), *leaves[1:]]).__getitem__
    proofs = altered = 0
    for new in range(1, _PAIRS + 1):
        for old in range(1, new + 1):
            proof = prove_consistency(read, old_size=old, new_size=new)
            roots = read_peaks(read, old).root, read_peaks(read, new).root
            _growth(proof, roots, old, new)()
            proofs += 1
            rewritten = read_peaks(forked, new).root
            _must_fail(_growth(proof, (roots[0], rewritten), old, new), f"{old} to {new}, rewritten")
            for wrong in _altered_growth(ctx.random, proof):
                _must_fail(_growth(wrong, roots, old, new), f"{old} to {new}, altered")
                altered += 1
    return f"{proofs} pairs of sizes, {altered} altered proofs"


def _growth(
    proof: ConsistencyProof, roots: tuple[NodeHash, NodeHash], old: int, new: int
) -> Callable[[], None]:
    return lambda: proof.verify(old_root=roots[0], old_size=old, new_root=roots[1], new_size=new)


def _altered_growth(random: Random, proof: ConsistencyProof) -> Iterator[ConsistencyProof]:
    extra = NodeHash(random.randbytes(32))
    for name in ("old_peaks", "siblings", "new_peaks"):
        nodes: tuple[NodeHash, ...] = getattr(proof, name)
        yield _with(proof, name, (*nodes, extra))
        for index, node in enumerate(nodes):
            yield _with(proof, name, nodes[:index] + nodes[index + 1 :])
            yield _with(proof, name, (*nodes[:index], _flip(random, node), *nodes[index + 1 :]))


def _with(proof: ConsistencyProof, name: str, nodes: tuple[NodeHash, ...]) -> ConsistencyProof:
    changed: dict[str, Any] = {name: nodes}
    return replace(proof, **changed)


# --- encoding -----------------------------------------------------------------------------------------------


@step(Needs.NONE)
def cbor_determinism(ctx: Context) -> str:
    """An object of any wire type has exactly one encoding."""
    types = wire_types()
    for cls in types:
        for _ in range(_OF_EACH):
            value = sample(ctx.random, cls)
            data = value.encode()
            read = cls.decode(data)
            name = cls.SHAPE.name
            equal(read, value, f"{name}, decoded")
            from_json = cls.from_json(value.to_json())
            equal(from_json.encode(), data, f"{name}, through JSON")
            equal(_from_fields(ctx.random, read).encode(), data, f"{name}, its fields in another order")
            _check_only(ctx.random, cls, data)
    return f"{len(types)} types, {_OF_EACH} objects of each"


def _from_fields(random: Random, item: Wire) -> Wire:
    values = [(field.name, getattr(item, field.name)) for field in item.SHAPE.fields if field.name != "ver"]
    random.shuffle(values)
    return type(item)(**dict(values))


def _check_only(random: Random, cls: type[Wire], data: bytes) -> None:
    """Fail if another encoding of the same value is accepted."""
    first, rest = data[0], data[1:]
    others = (
        data + b"\x00",
        data[:-1],
        data[: random.randrange(len(data))],
        b"\xc1" + data,
        # The count of the outermost array or map in a longer form, and an indefinite length.
        bytes((first & 0xE0 | 24, first & 0x1F)) + rest,
        bytes((first & 0xE0 | 31,)) + rest + b"\xff",
    )
    for other in others:
        try:
            cls.decode(other)
        except ProtocolError:
            continue
        raise StepFailedError(f"{cls.SHAPE.name} was decoded from non-canonical bytes: {other[:40].hex()}")


@step(Needs.NONE)
def canonical_maps(ctx: Context) -> str:
    """The encoding of a map does not depend on the order in which it was filled."""
    for _ in range(300):
        pairs = [(_scalar(ctx.random), _tree(ctx.random, 3)) for _ in range(ctx.random.randrange(8))]
        mapping = dict(pairs)
        shuffled = list(mapping.items())
        ctx.random.shuffle(shuffled)
        data = cbor.encode(mapping)
        equal(cbor.encode(dict(shuffled)), data, "a map, filled in another order")
        equal(cbor.decode(data), mapping, "a map, decoded")
        equal(cbor.encode(cbor.decode(data)), data, "a map, encoded again")
    return "300 maps"


def _scalar(random: Random) -> Any:  # noqa: ANN401 - a key
    return number(random) if random.random() < 0.5 else random.choice("abcdefgh") * random.randrange(1, 30)


def _tree(random: Random, depth: int) -> Any:  # noqa: ANN401 - a value
    pick = random.randrange(6 if depth else 4)
    if pick == 0:
        return number(random)
    if pick == 1:
        return random.randbytes(random.randrange(40))
    if pick == 2:
        return random.choice((True, False))
    if pick == 3:
        return "\u00e9" * random.randrange(20)
    if pick == 4:
        return [_tree(random, depth - 1) for _ in range(random.randrange(5))]
    return {_scalar(random): _tree(random, depth - 1) for _ in range(random.randrange(5))}


# --- duplicates ---------------------------------------------------------------------------------------------


@step(Needs.OPEN)
def duplicate_rejection(ctx: Context) -> str:
    """In a random history of new and repeated messages, each message is in the log once, in order."""
    authors = [author_of(ctx, "history") for _ in range(3)]
    stream = authors[0].stream
    accepted: list[Msg] = []
    repeated = 0
    for author in authors:
        author.stream = stream
    for _ in range(_SUBMITS):
        author = ctx.random.choice(authors)
        if accepted and ctx.random.random() < 0.5:
            index = ctx.random.randrange(len(accepted))
            old = accepted[index].encode()
            error = refused(lambda: submit(author.hub, old), Code.SEQ)  # noqa: B023 - called at once
            equal(error.field("stream_seq"), index + 1, "position of a message that is sent again")
            repeated += 1
        else:
            msg, receipt = author.write()
            accepted.append(msg)
            equal(receipt.stream_seq, len(accepted), "position of a new message")
    request = StreamRequest(label=authors[0].label(), from_seq=1)
    page = ask(authors[0].hub, request, StreamResponse)
    equal([item.msg for item in page.items], accepted, "the log")
    check(repeated, "no message was repeated; choose another seed")
    return f"{len(accepted)} messages, {repeated} repetitions"


STEPS: Final = (
    mmr_splits,
    proof_minimality,
    consistency_proofs,
    cbor_determinism,
    canonical_maps,
    duplicate_rejection,
)
