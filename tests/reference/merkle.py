"""Merkle Mountain Ranges the naive way: trees by recursion over lists of leaves."""

from tests.reference.basics import Fields, ht, need


def tree(leaves: list[bytes], tag: str = "veen/mmr-node") -> bytes:
    """Return the top of the perfect tree over leaves; their number is a power of two."""
    if len(leaves) == 1:
        return leaves[0]
    half = len(leaves) // 2
    return ht(tag, tree(leaves[:half], tag) + tree(leaves[half:], tag))


def intervals(size: int) -> list[tuple[int, int]]:
    """Return the leaves of each tree of a range as [start, end), oldest and largest first."""
    found = []
    start = 0
    while start < size:
        width = 1
        while 2 * width <= size - start:
            width *= 2
        found.append((start, start + width))
        start += width
    return found


def peaks(leaves: list[bytes], tag: str = "veen/mmr-node") -> list[bytes]:
    """Return the peaks, smallest first."""
    return [tree(leaves[start:end], tag) for start, end in reversed(intervals(len(leaves)))]


def bag(tops: list[bytes]) -> bytes:
    """Return the root over peaks."""
    return tops[0] if len(tops) == 1 else ht("veen/mmr-root", b"".join(tops))


def root(leaves: list[bytes]) -> bytes:
    need(leaves, "an empty range has no root")
    return bag(peaks(leaves))


def att_root(coids: list[bytes]) -> bytes:
    """Return the root over attachments: always hashed."""
    return ht("veen/att-root", b"".join(peaks(coids, "veen/att-node")))


def numbering(size: int) -> dict[tuple[int, int], int]:
    """Return the position of each node [start, end) in the order in which appends complete them."""
    positions: dict[tuple[int, int], int] = {}
    for end in range(1, size + 1):
        width = 1
        while end % width == 0:
            positions[end - width, end] = len(positions)
            width *= 2
    return positions


def nodes(leaves: list[bytes]) -> list[bytes]:
    """Return all complete nodes by position."""
    order = sorted(numbering(len(leaves)).items(), key=lambda item: item[1])
    return [tree(leaves[start:end]) for (start, end), _ in order]


def peak_positions(size: int) -> list[int]:
    positions = numbering(size)
    return [positions[interval] for interval in reversed(intervals(size))]


def _own(seq: int, size: int) -> tuple[int, int]:
    """Return the tree that holds a leaf."""
    need(1 <= seq <= size, "there is no such leaf")
    return next((start, end) for start, end in intervals(size) if start < seq <= end)


def _siblings(seq: int, size: int) -> list[tuple[int, tuple[int, int]]]:
    """Return (dir, interval of the sibling) from the leaf up to its peak."""
    start, end = _own(seq, size)
    steps = []
    while end - start > 1:
        middle = (start + end) // 2
        if seq <= middle:
            steps.append((0, (middle, end)))
            end = middle
        else:
            steps.append((1, (start, middle)))
            start = middle
    return steps[::-1]


def inclusion(leaves: list[bytes], seq: int, size: int) -> Fields:
    """Return the inclusion proof of a leaf."""
    known = leaves[:size]
    need(len(known) == size, "fewer leaves than that")
    path = [{"dir": side, "sib": tree(known[a:b])} for side, (a, b) in _siblings(seq, size)]
    return {"ver": 1, "leaf_hash": known[seq - 1], "path": path, "peaks_after": peaks(known)}


def inclusion_shape(seq: int, size: int) -> Fields:
    """Return what of a proof follows from the numbers alone."""
    steps = _siblings(seq, size)
    positions = numbering(size)
    return {
        "height": len(steps),
        "slot": intervals(size)[::-1].index(_own(seq, size)),
        "dirs": [side for side, _ in steps],
        "sibling_positions": [positions[interval] for _, interval in steps],
        "peak_positions": peak_positions(size),
    }


def verify_inclusion(proof: Fields, expected_root: bytes, leaf: bytes, seq: int, size: int) -> None:
    """Refuse a proof that does not show leaf number seq under a root over size leaves."""
    need(1 <= seq <= size, "there is no such leaf")
    need(proof["leaf_hash"] == leaf, "another leaf")
    acc = leaf
    steps = _siblings(seq, size)
    need([step["dir"] for step in proof["path"]] == [side for side, _ in steps], "path")
    for step in proof["path"]:
        pair = acc + step["sib"] if step["dir"] == 0 else step["sib"] + acc
        acc = ht("veen/mmr-node", pair)
    tops = proof["peaks_after"]
    trees = intervals(size)[::-1]
    need(len(tops) == len(trees) == len(set(tops)), "peaks")
    need(tops[trees.index(_own(seq, size))] == acc, "own peak")
    need(bag(tops) == expected_root, "root")


def _split(old: int, start: int, end: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Split a tree at the old size: old trees inside it, and nodes that complete it; smallest first."""
    if end <= old:
        return [(start, end)], []
    if start >= old:
        return [], [(start, end)]
    middle = (start + end) // 2
    left, right = _split(old, start, middle), _split(old, middle, end)
    return right[0] + left[0], left[1] + right[1]


def consistency(leaves: list[bytes], old: int, new: int) -> Fields:
    """Return the consistency proof between two sizes."""
    need(1 <= old <= new, "sizes")
    known = leaves[:new]
    need(len(known) == new, "fewer leaves than that")
    proof: Fields = {"ver": 1, "old_peaks": [], "siblings": [], "new_peaks": []}
    if old == new:
        return proof
    if old.bit_count() > 1:
        proof["old_peaks"] = peaks(known[:old])
    for start, end in intervals(new)[::-1]:
        if start >= old:
            proof["new_peaks"].append(tree(known[start:end]))
        elif end > old:
            proof["siblings"] = [tree(known[a:b]) for a, b in _split(old, start, end)[1]]
    return proof


def _rebuild(start: int, end: int, given: dict[tuple[int, int], bytes]) -> bytes:
    if (start, end) in given:
        return given[start, end]
    need(end - start > 1, "a node is missing")
    middle = (start + end) // 2
    return ht("veen/mmr-node", _rebuild(start, middle, given) + _rebuild(middle, end, given))


def verify_consistency(proof: Fields, old_root: bytes, old: int, new_root: bytes, new: int) -> None:
    """Refuse a proof that does not show that the old range is a prefix of the new one."""
    need(1 <= old <= new, "sizes")
    if old == new:
        need(not (proof["old_peaks"] or proof["siblings"] or proof["new_peaks"]), "nothing to show")
        need(old_root == new_root, "roots")
        return
    trees = intervals(new)[::-1]
    old_trees = intervals(old)[::-1]
    fresh = [interval for interval in trees if interval[0] >= old]
    grown = [_split(old, *interval)[1] for interval in trees if interval[0] < old < interval[1]]
    completing = grown[0] if grown else []
    old_peaks = [old_root] if len(old_trees) == 1 else proof["old_peaks"]
    need(len(proof["old_peaks"]) == (0 if len(old_trees) == 1 else len(old_trees)), "old peaks")
    need(len(proof["siblings"]) == len(completing), "siblings")
    need(len(proof["new_peaks"]) == len(fresh), "new peaks")
    need(bag(old_peaks) == old_root, "old root")
    given = dict(zip(old_trees, old_peaks, strict=True))
    given |= dict(zip(completing, proof["siblings"], strict=True))
    given |= dict(zip(fresh, proof["new_peaks"], strict=True))
    need(bag([_rebuild(start, end, given) for start, end in trees]) == new_root, "new root")
