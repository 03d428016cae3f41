"""Proofs that must not verify: forged, padded, reordered, truncated, for another size (001 section 5.4)."""

from collections.abc import Iterator

from vectors.generators import raw, samples
from vectors.generators.fixed import U64_MAX, ZERO_32, ht, leaf, leaves
from vectors.generators.scenario import (
    CBOR_INVALID,
    FIELD_SIZE,
    LEAF_HASH,
    PROOF_PATH,
    PROOF_PEAKS,
    PROOF_ROOT,
    PROOF_SEQ,
    VERSION,
    Failure,
    Json,
    Scenario,
)

_SEQ, _SIZE = 3, 11


def _step(direction: int, sibling: bytes) -> bytes:
    return raw.keyed((1, raw.uint(direction)), (2, raw.bstr(sibling)))


class _Parts:
    """The parts of the valid proof of leaf 3 of 11, to be combined wrongly."""

    def __init__(self, seq: int = _SEQ, size: int = _SIZE) -> None:
        pairs = raw.split_map(samples.proof(seq, size))
        self.leaf = pairs[1][1]
        self.path = raw.split(pairs[2][1])
        self.peaks = raw.split(pairs[3][1])

    def joined(
        self, *, path: list[bytes] | None = None, peaks: list[bytes] | None = None, ver: int = 1
    ) -> bytes:
        """Return the proof with other steps or peaks."""
        steps = self.path if path is None else path
        tops = self.peaks if peaks is None else peaks
        return raw.keyed((1, raw.uint(ver)), (2, self.leaf), (3, raw.array(*steps)), (4, raw.array(*tops)))


def _fails(s: Scenario, name: str, failure: Failure, proof: bytes, **changes: Json) -> None:
    request = {"proof": proof, "root": samples.root(_SIZE), "leaf": leaf(_SEQ), "seq": _SEQ, "size": _SIZE}
    s.fails(name, failure, "mmr_verify", **request | changes)


def forged() -> Scenario:
    """Return proofs with wrong content."""
    s = Scenario("mmr_proof/forged", "No other leaf, sibling, peak or root passes.")
    honest = samples.proof(_SEQ, _SIZE)
    p = _Parts()
    s.ok(
        "honest", "mmr_verify", proof=honest, root=samples.root(_SIZE), leaf=leaf(_SEQ), seq=_SEQ, size=_SIZE
    )
    _fails(s, "another leaf asked for", LEAF_HASH, honest, leaf=leaf(4))
    _fails(s, "another leaf in the proof", LEAF_HASH, samples.proof(4, _SIZE))
    _fails(s, "another root", PROOF_ROOT, honest, root=samples.root(10))
    _fails(s, "root of zeros", PROOF_ROOT, honest, root=ZERO_32)
    _fails(s, "root of 31 bytes", PROOF_ROOT, honest, root=samples.root(_SIZE)[:31])
    _fails(s, "a peak for the root", PROOF_ROOT, honest, root=p.peaks[2][2:])
    for level in range(3):
        other = _step(p.path[level][2], ZERO_32)
        changed = [*p.path[:level], other, *p.path[level + 1 :]]
        _fails(s, f"sibling {level} forged", PROOF_PEAKS, p.joined(path=changed))
    for index in range(3):
        changed = [*p.peaks[:index], raw.bstr(ZERO_32), *p.peaks[index + 1 :]]
        failure = PROOF_PEAKS if index == 2 else PROOF_ROOT
        _fails(s, f"peak {index} forged", failure, p.joined(peaks=changed))
    _fails(s, "siblings of a neighbour", PROOF_PEAKS, p.joined(path=[_step(0, leaf(5)), *p.path[1:]]))
    return s


def misshapen() -> Scenario:
    """Return proofs with too many or too few parts, or in another order."""
    s = Scenario("mmr_proof/misshapen", "A proof is minimal: no step or peak more, less, repeated or moved.")
    p = _Parts()
    first, second, third = p.path
    for name, path in (
        ("last step missing", [first, second]),
        ("first step missing", [second, third]),
        ("no path", []),
        ("a step too many at the end", [*p.path, _step(0, ZERO_32)]),
        ("a step too many in front", [_step(0, ZERO_32), *p.path]),
        ("a step twice", [first, first, second, third]),
        ("64 steps", [_step(0, ZERO_32)] * 64),
    ):
        _fails(s, name, PROOF_PATH, p.joined(path=path))
    # The directions of leaf 3 are the same in both orders, so only the hashes differ.
    _fails(s, "steps reversed", PROOF_PEAKS, p.joined(path=[third, second, first]))
    _fails(s, "last two steps exchanged", PROOF_PATH, p.joined(path=[first, third, second]))
    for name, peaks in (
        ("own peak, the last, missing", p.peaks[:2]),
        ("first peak missing", p.peaks[1:]),
        ("no peaks", []),
        ("a peak too many", [*p.peaks, raw.bstr(ZERO_32)]),
        ("a peak repeated", [p.peaks[0], p.peaks[0], p.peaks[2]]),
        ("peaks by decreasing height", p.peaks[::-1]),
    ):
        _fails(s, name, PROOF_PEAKS, p.joined(peaks=peaks))
    _fails(s, "small peaks exchanged", PROOF_ROOT, p.joined(peaks=[p.peaks[1], p.peaks[0], p.peaks[2]]))
    own = _Parts(8, 8)
    _fails(
        s,
        "own peak left out of a list of one",
        PROOF_PEAKS,
        own.joined(peaks=[]),
        seq=8,
        size=8,
        leaf=leaf(8),
        root=samples.root(8),
    )
    lone = _Parts(11, 11)
    _fails(
        s,
        "own peak left out, the rest in place",
        PROOF_PEAKS,
        lone.joined(peaks=lone.peaks[1:]),
        seq=11,
        leaf=leaf(11),
    )
    return s


def wrong_numbers() -> Scenario:
    """Return proofs for another leaf number or size."""
    s = Scenario(
        "mmr_proof/wrong_numbers",
        "A proof is of one leaf number and one size; numbers that no range has are refused.",
    )
    honest = samples.proof(_SEQ, _SIZE)
    for name, failure, seq, size in (
        ("leaf 0", PROOF_SEQ, 0, _SIZE),
        ("leaf 0 of 0", PROOF_SEQ, 0, 0),
        ("leaf above the size", PROOF_SEQ, 12, _SIZE),
        ("size 0", PROOF_SEQ, _SEQ, 0),
        ("size below the leaf", PROOF_SEQ, _SEQ, 2),
        ("leaf 4", PROOF_PATH, 4, _SIZE),
        ("leaf 1", PROOF_PATH, 1, _SIZE),
        ("leaf 7", PROOF_PATH, 7, _SIZE),
        ("leaf 9, in a smaller tree", PROOF_PATH, 9, _SIZE),
        ("leaf 11, which is a peak", PROOF_PATH, 11, _SIZE),
        ("size 10", PROOF_PEAKS, _SEQ, 10),
        ("size 12", PROOF_PEAKS, _SEQ, 12),
        ("size 15", PROOF_PEAKS, _SEQ, 15),
        ("size 16", PROOF_PATH, _SEQ, 16),
        ("size 3", PROOF_PATH, _SEQ, 3),
        ("largest size", PROOF_PATH, _SEQ, U64_MAX),
        ("largest leaf", PROOF_PATH, U64_MAX, U64_MAX),
    ):
        _fails(s, name, failure, honest, seq=seq, size=size)
    return s


def otherwise() -> Scenario:
    """Return proofs by the rules of older documents, and by those of other trees."""
    s = Scenario(
        "mmr_proof/otherwise",
        "dir 0 means the running hash is on the left; a lone peak is not hashed again; tags and tree "
        "shape are these.",
    )
    p = _Parts()
    turned = [_step(1 - step[2], step[-32:]) for step in p.path]
    _fails(s, "dir for the sibling's side, as older documents had it", PROOF_PATH, p.joined(path=turned))
    one = _Parts(1, 1)
    hashed = ht("veen/mmr-root", leaf(1))
    _fails(
        s,
        "a lone peak hashed, as older documents had it",
        PROOF_ROOT,
        one.joined(),
        seq=1,
        size=1,
        leaf=leaf(1),
        root=hashed,
    )
    four = _Parts(4, 4)
    peak = samples.root(4)
    _fails(
        s,
        "the peak of four leaves hashed",
        PROOF_ROOT,
        four.joined(),
        seq=4,
        size=4,
        leaf=leaf(4),
        root=ht("veen/mmr-root", peak),
    )
    older = ht("vesn/mmr-root", b"".join(item[2:] for item in p.peaks))
    _fails(s, "root of the older tag", PROOF_ROOT, p.joined(), root=older)
    backwards = ht("veen/mmr-root", b"".join(item[2:] for item in p.peaks[::-1]))
    _fails(s, "root over the largest peak first", PROOF_ROOT, p.joined(), root=backwards)
    tops = [item[2:] for item in p.peaks]
    bagged = ht("veen/mmr-node", tops[2] + ht("veen/mmr-node", tops[1] + tops[0]))
    _fails(s, "peaks folded in pairs, as other logs do", PROOF_ROOT, p.joined(), root=bagged)
    return s


def not_canonical() -> Scenario:
    """Return proofs that are not canonically encoded, verified."""
    s = Scenario(
        "mmr_proof/encoding", "A proof is judged as bytes first: order, types, sizes, version, direction."
    )
    p = _Parts()
    sibling = raw.bstr(leaf(4))
    for name, failure, step in (
        ("dir 2", PROOF_PATH, _step(2, leaf(4))),
        ("dir 255", PROOF_PATH, _step(255, leaf(4))),
        ("dir true", CBOR_INVALID, raw.keyed((1, raw.TRUE), (2, sibling))),
        ("dir in two bytes", CBOR_INVALID, raw.keyed((1, raw.uint(0, 1)), (2, sibling))),
        ("keys of a step exchanged", CBOR_INVALID, raw.keyed((2, sibling), (1, raw.uint(0)))),
        ("unknown key in a step", CBOR_INVALID, raw.keyed((1, raw.uint(0)), (2, sibling), (3, raw.uint(0)))),
        ("sibling missing", CBOR_INVALID, raw.keyed((1, raw.uint(0)))),
        ("dir missing", CBOR_INVALID, raw.keyed((2, sibling))),
        ("a step as an array", CBOR_INVALID, raw.array(raw.uint(0), sibling)),
        ("sibling of 31 bytes", FIELD_SIZE, _step(0, leaf(4)[:31])),
        ("sibling of 33 bytes", FIELD_SIZE, _step(0, leaf(4) + b"\x00")),
    ):
        _fails(s, name, failure, p.joined(path=[step, *p.path[1:]]))
    _fails(s, "peak of 31 bytes", FIELD_SIZE, p.joined(peaks=[raw.bstr(bytes(31)), *p.peaks[1:]]))
    _fails(s, "peak null", CBOR_INVALID, p.joined(peaks=[raw.NULL, *p.peaks[1:]]))
    _fails(s, "version 2", VERSION, p.joined(ver=2))
    _fails(s, "a byte behind", CBOR_INVALID, p.joined() + b"\x00")
    return s


class _Growth:
    """The lists of the valid proof from 6 to 11."""

    def __init__(self, old: int = 6, new: int = 11) -> None:
        pairs = raw.split_map(samples.consistency(old, new))
        self.lists = [raw.split(value) for _, value in pairs[1:]]

    def joined(self, index: int, items: list[bytes], ver: int = 1) -> bytes:
        """Return the proof with one of its lists replaced."""
        lists = [*self.lists[:index], items, *self.lists[index + 1 :]]
        return raw.keyed(
            (1, raw.uint(ver)), *((key, raw.array(*given)) for key, given in enumerate(lists, start=2))
        )


def consistency() -> Scenario:
    """Return consistency proofs that must not verify."""
    s = Scenario(
        "consistency_proof/refused",
        "A consistency proof has exactly the nodes that two sizes ask for, and gives both roots.",
    )
    g = _Growth()
    honest = samples.consistency(6, 11)

    def fails(name: str, failure: Failure, proof: bytes, **changes: Json) -> None:
        request: dict[str, Json] = {
            "proof": proof,
            "old_root": samples.root(6),
            "old": 6,
            "new_root": samples.root(11),
            "new": 11,
        }
        s.fails(name, failure, "mmr_verify_consistency", **request | changes)

    zero = raw.bstr(ZERO_32)
    old_peaks, siblings, new_peaks = g.lists
    fails("another old root", PROOF_PEAKS, honest, old_root=samples.root(7))
    fails("another new root", PROOF_ROOT, honest, new_root=samples.root(12))
    fails("roots exchanged", PROOF_PEAKS, honest, old_root=samples.root(11), new_root=samples.root(6))
    rewritten = [leaf(1), ZERO_32, *leaves(11)[2:]]
    s.ok("root of a log with entry 2 rewritten", "mmr_root", leaves=rewritten)
    fails("a log that was rewritten", PROOF_ROOT, honest, new_root=_root(rewritten))
    for index, name in ((0, "old peak"), (1, "sibling"), (2, "new peak")):
        items = g.lists[index]
        fails(
            f"first {name} forged",
            PROOF_PEAKS if index == 0 else PROOF_ROOT,
            g.joined(index, [zero, *items[1:]]),
        )
        fails(f"last {name} missing", PROOF_PATH, g.joined(index, items[:-1]))
        fails(f"a {name} too many", PROOF_PATH, g.joined(index, [*items, zero]))
        fails(f"a {name} twice", PROOF_PATH, g.joined(index, [items[0], *items]))
        fails(f"no {name}", PROOF_PATH, g.joined(index, []))
    fails("old peaks reversed", PROOF_PEAKS, g.joined(0, old_peaks[::-1]))
    fails("new peaks reversed", PROOF_ROOT, g.joined(2, new_peaks[::-1]))
    fails("a sibling among the new peaks", PROOF_PATH, g.joined(2, [*siblings, *new_peaks]))
    for name, failure, old, new in (
        ("old size 0", PROOF_SEQ, 0, 11),
        ("both sizes 0", PROOF_SEQ, 0, 0),
        ("shrinking", PROOF_SEQ, 11, 6),
        ("old size 5", PROOF_PATH, 5, 11),
        ("old size 7", PROOF_PATH, 7, 11),
        ("old size 4, whose root is a lone peak", PROOF_PATH, 4, 11),
        ("new size 12", PROOF_PATH, 6, 12),
        ("new size 10", PROOF_PATH, 6, 10),
        ("equal sizes", PROOF_PATH, 6, 6),
        ("largest new size", PROOF_PATH, 6, U64_MAX),
    ):
        fails(name, failure, honest, old=old, new=new)
    fails("version 2", VERSION, g.joined(0, old_peaks, ver=2))
    fails("an old peak of 31 bytes", FIELD_SIZE, g.joined(0, [raw.bstr(bytes(31)), old_peaks[1]]))
    fails("a byte behind", CBOR_INVALID, honest + b"\x00")
    return s


def _root(values: list[bytes]) -> bytes:
    """Return the root over eleven leaves, computed by hand."""
    level = values
    tops = []
    while level:
        if len(level) % 2:
            tops.append(level[-1])
        level = [ht("veen/mmr-node", level[at] + level[at + 1]) for at in range(0, len(level) - 1, 2)]
    return ht("veen/mmr-root", b"".join(tops))


def consistency_edges() -> Scenario:
    """Return consistency proofs between equal sizes and from lone peaks."""
    s = Scenario(
        "consistency_proof/edges", "Equal sizes need no nodes but equal roots; a lone old peak is its root."
    )
    empty = raw.keyed((1, raw.uint(1)), (2, raw.array()), (3, raw.array()), (4, raw.array()))

    def verify(
        name: str, failure: Failure | None, proof: bytes, sizes: tuple[int, int], roots: tuple[bytes, bytes]
    ) -> None:
        request: dict[str, Json] = {
            "proof": proof,
            "old_root": roots[0],
            "old": sizes[0],
            "new_root": roots[1],
            "new": sizes[1],
        }
        if failure is None:
            s.ok(name, "mmr_verify_consistency", **request)
        else:
            s.fails(name, failure, "mmr_verify_consistency", **request)

    five, eight, eleven = samples.root(5), samples.root(8), samples.root(11)
    verify("equal sizes, equal roots", None, empty, (5, 5), (five, five))
    verify("equal sizes, two roots", PROOF_ROOT, empty, (5, 5), (five, eight))
    verify("equal sizes with old peaks", PROOF_PATH, _Growth(5, 7).joined(2, []), (5, 5), (five, five))
    verify("an empty proof for a growth", PROOF_PATH, empty, (5, 8), (five, eight))
    lone = samples.consistency(8, 11)
    verify("from a lone peak", None, lone, (8, 11), (eight, eleven))
    verify("from a lone peak, another old root", PROOF_ROOT, lone, (8, 11), (samples.root(4), eleven))
    verify(
        "from a lone peak, which is given again",
        PROOF_PATH,
        _Growth(8, 11).joined(0, [raw.bstr(eight)]),
        (8, 11),
        (eight, eleven),
    )
    verify("both roots of zeros", PROOF_ROOT, lone, (8, 11), (ZERO_32, ZERO_32))
    return s


def prover() -> Scenario:
    """Return requests for proofs that cannot be built."""
    s = Scenario(
        "mmr_proof/no_such_leaf", "There is no proof of a leaf or size that the range does not have."
    )
    for name, seq, size in (("leaf 0", 0, 3), ("leaf 4 of 3", 4, 3), ("leaf 1 of 0", 1, 0)):
        s.fails(name, PROOF_SEQ, "mmr_proof", leaves=leaves(3), seq=seq, size=size)
    for name, old, new in (("from 0", 0, 3), ("from 3 to 2", 3, 2)):
        s.fails(name, PROOF_SEQ, "mmr_consistency", leaves=leaves(3), old=old, new=new)
    return s


def scenarios() -> Iterator[Scenario]:
    """Yield the scenarios of this module."""
    yield forged()
    yield misshapen()
    yield wrong_numbers()
    yield otherwise()
    yield not_canonical()
    yield consistency()
    yield consistency_edges()
    yield prover()
