"""Merkle Mountain Ranges and the proofs over them (001 section 5)."""

from collections.abc import Iterator

from vectors.generators import samples
from vectors.generators.fixed import ht, leaf, leaves
from vectors.generators.scenario import Fields, Scenario


def heights(size: int) -> list[int]:
    """Return the heights of the peaks of a range, increasing."""
    return [height for height in range(size.bit_length()) if size >> height & 1]


def position(height: int, index: int) -> int:
    """Return the position of a node; nodes are numbered from 0 as they are completed."""
    last = (index + 1) << height
    return 2 * (last - 1) - (last - 1).bit_count() + height


def peak_positions(size: int) -> list[int]:
    """Return the positions of the peaks of a range."""
    return [position(height, (size >> height) - 1) for height in heights(size)]


def _trace(values: list[bytes]) -> Fields:
    """Return all nodes of a range by position, and its peaks after each leaf."""
    nodes: list[bytes] = []
    peaks: list[bytes] = []
    after = []
    for number, node in enumerate(values, start=1):
        nodes.append(node)
        rest = number
        while rest & 1 == 0:
            nodes.append(ht("veen/mmr-node", peaks.pop(0) + nodes[-1]))
            rest >>= 1
        peaks.insert(0, nodes[-1])
        after.append({"size": number, "peaks": list(peaks), "peak_positions": peak_positions(number)})
    return {"nodes": nodes, "after": after}


def ranges() -> Scenario:
    """Return roots after each leaf."""
    s = Scenario(
        "mmr/roots",
        "A lone peak is the root, several are hashed, smallest first; leaf number i here is H(u64be(i)).",
    )
    for size in (1, 2, 3, 8):
        s.ok(f"{size} leaves", "mmr_root", intermediate=_trace(leaves(size)), leaves=leaves(size))
    s.ok("33 leaves", "mmr_root", leaves=leaves(33))
    three = [bytes([digit]) * 32 for digit in (0x11, 0x22, 0x33)]
    s.ok("published: three leaves", "mmr_root", intermediate=_trace(three), leaves=three)
    s.ok("published: root of three peaks", "ht", tag="veen/mmr-root", data=b"".join(three))
    s.ok("published: a lone peak is the root", "mmr_root", leaves=[bytes([0xAA]) * 32])
    s.ok("equal leaves", "mmr_root", leaves=[leaf(1)] * 5)
    s.ok("order counts", "mmr_root", leaves=leaves(3)[::-1])
    s.ok("no leaves", "mmr_root", leaves=[])
    return s


def numbering() -> Scenario:
    """Return positions of nodes."""
    s = Scenario(
        "mmr/positions",
        "Nodes are numbered as appends complete them, so a node store only grows: leaf n completes 1 + "
        "ctz(n) nodes.",
    )
    s.ok("seventeen leaves", "mmr_root", intermediate=_trace(leaves(17)), leaves=leaves(17))
    return s


def _shape(seq: int, size: int) -> Fields:
    height = ((seq - 1) ^ size).bit_length() - 1
    index = seq - 1
    return {
        "height": height,
        "slot": (size & ((1 << height) - 1)).bit_count(),
        "dirs": [index >> level & 1 for level in range(height)],
        "sibling_positions": [position(level, (index >> level) ^ 1) for level in range(height)],
        "peak_positions": peak_positions(size),
    }


def _proves(s: Scenario, seq: int, size: int) -> None:
    name = f"leaf {seq} of {size}"
    given = s.ok(name, "mmr_proof", intermediate=_shape(seq, size), leaves=leaves(size), seq=seq, size=size)
    s.ok(
        f"{name}, verified",
        "mmr_verify",
        proof=given["proof"],
        root=samples.root(size),
        leaf=leaf(seq),
        seq=seq,
        size=size,
    )


def own_size() -> Scenario:
    """Return proofs against the root of the leaf's own receipt."""
    s = Scenario(
        "mmr_proof/own_size",
        "Against the receipt's own root a path has one step for each trailing zero of stream_seq, all "
        "with dir 1.",
    )
    for seq in (1, 2, 3, 4, 5, 6, 7, 8, 12, 16):
        _proves(s, seq, seq)
    return s


def later_size() -> Scenario:
    """Return proofs of older leaves against a later root."""
    s = Scenario(
        "mmr_proof/later_size",
        "An older leaf is proved under a later root: height, directions and slot follow from the two "
        "numbers.",
    )
    for seq in range(1, 12):
        _proves(s, seq, 11)
    for seq in (1, 2, 3):
        _proves(s, seq, 4)
    _proves(s, 1, 16)
    _proves(s, 9, 16)
    # The prover may have more leaves than the proof covers.
    s.ok(
        "leaf 3 of 7, with 11 leaves known",
        "mmr_proof",
        intermediate=_shape(3, 7),
        leaves=leaves(11),
        seq=3,
        size=7,
    )
    return s


def size_is_not_in_the_root() -> Scenario:
    """Return a proof that is valid for two sizes."""
    s = Scenario(
        "mmr_proof/size_must_be_signed",
        "A root does not commit to its size: one proof can pass for two sizes, so the size comes from "
        "the signed object.",
    )
    proof, root = samples.proof(1, 5), samples.root(5)
    for size in (5, 6):
        s.ok(f"taken for size {size}", "mmr_verify", proof=proof, root=root, leaf=leaf(1), seq=1, size=size)
    return s


def _grows(s: Scenario, old: int, new: int) -> None:
    name = f"{old} to {new}"
    given = s.ok(name, "mmr_consistency", leaves=leaves(new), old=old, new=new)
    s.ok(
        f"{name}, verified",
        "mmr_verify_consistency",
        proof=given["proof"],
        old_root=samples.root(old),
        old=old,
        new_root=samples.root(new),
        new=new,
    )


def consistency() -> Scenario:
    """Return consistency proofs between small sizes."""
    s = Scenario(
        "consistency_proof/small",
        "Between every two sizes up to eight: which nodes a proof holds follows from the sizes alone.",
    )
    for new in range(1, 9):
        for old in range(1, new + 1):
            _grows(s, old, new)
    return s


def consistency_large() -> Scenario:
    """Return consistency proofs between larger sizes."""
    s = Scenario(
        "consistency_proof/larger",
        "Between sizes that share large trees, grow past one, or complete many at once.",
    )
    for old, new in (
        (6, 11),
        (7, 16),
        (8, 21),
        (13, 27),
        (15, 16),
        (16, 17),
        (16, 32),
        (20, 21),
        (21, 32),
        (31, 33),
    ):
        _grows(s, old, new)
    return s


def consistency_published() -> Scenario:
    """Return the example of the reference page."""
    s = Scenario(
        "consistency_proof/example", "The example of the reference page, from 6 to 11 leaves, node by node."
    )
    node = {
        (first, second): ht("veen/mmr-node", leaf(first) + leaf(second))
        for first, second in ((1, 2), (3, 4), (5, 6), (7, 8), (9, 10))
    }
    s.ok(
        "old root", "ht", tag="veen/mmr-root", data=node[5, 6] + ht("veen/mmr-node", node[1, 2] + node[3, 4])
    )
    s.ok(
        "proof",
        "mmr_consistency",
        intermediate={
            "old_peaks": [node[5, 6], ht("veen/mmr-node", node[1, 2] + node[3, 4])],
            "siblings": [node[7, 8]],
            "new_peaks": [leaf(11), node[9, 10]],
        },
        leaves=leaves(11),
        old=6,
        new=11,
    )
    return s


def scenarios() -> Iterator[Scenario]:
    """Yield the scenarios of this module."""
    yield ranges()
    yield numbering()
    yield own_size()
    yield later_size()
    yield size_is_not_in_the_root()
    yield consistency()
    yield consistency_large()
    yield consistency_published()
