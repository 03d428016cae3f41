"""What a power loss leaves of changes that were not synced."""

from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import NamedTuple

#: A write (offset, data), or with None instead of data a change of the size to ``offset``.
Change = tuple[int, bytes | None]

#: Seeds of a power loss with a fixed meaning; all others decide for each part by itself.
LOSE_ALL, KEEP_ALL = 0, 1


def changed(content: bytes | bytearray, change: Change) -> bytearray:
    """Apply a change; in place, if the content is not shared with a snapshot."""
    result = content if isinstance(content, bytearray) else bytearray(content)
    offset, data = change
    if offset > len(result):
        result.extend(bytes(offset - len(result)))
    if data is None:
        del result[offset:]
    else:
        result[offset : offset + len(data)] = data
    return result


class Loss(NamedTuple):
    """A power loss: how it decides, and what else was ever written to the disk."""

    seed: int
    decide: Random
    stale: Sequence[bytes]
    harsh: bool

    def garbage(self, size: int) -> bytes:
        """Return noise, zeros, or what another file has, or had, in a block that was used again."""
        way = self.decide.randrange(3)
        if way == 0:
            return bytes(size)
        if way == 1 and self.stale:
            source = self.decide.choice(self.stale)
            start = self.decide.randrange(len(source))
            return source[start : start + size].ljust(size, b"\0")
        return self.decide.randbytes(size)


def kept_names(pending: Sequence[Sequence[str]], seed: int, decide: Random) -> list[int]:
    """Return any subset of changes (by place) in which none is without an earlier one of the same name."""
    likely = {LOSE_ALL: 0.0, KEEP_ALL: 1.0}.get(seed)
    if likely is None:
        likely = decide.choice((0.2, 0.5, 0.8))
    kept: list[int] = []
    lost: dict[str, None] = {}
    for place, names in enumerate(pending):
        if decide.random() < likely and not any(name in lost for name in names):
            kept.append(place)
        else:
            lost.update(dict.fromkeys(names))
    return kept


def survived(durable: bytes, pending: Sequence[Change], loss: Loss) -> bytes:
    """Return what is left of a file's content."""
    if loss.seed == LOSE_ALL:
        return durable
    if loss.seed == KEEP_ALL:
        content = bytearray(durable)
        for change in pending:
            content = changed(content, change)
        return bytes(content)
    return (_by_write if loss.harsh else _by_sector)(durable, pending, loss)


def _by_sector(durable: bytes, pending: Sequence[Change], loss: Loss) -> bytes:
    """Let each sector be as it was at some moment since the sync, and so the size.

    This is what a page cache can do: it writes a sector as a whole, with all that was put into it until then,
    but when it does so is its own affair, and the size follows the sectors or not. So the bytes of a sector
    are never younger than their neighbours, except where the sector itself is torn.
    """
    decide = loss.decide
    low = min(len(durable), *(offset for offset, _ in pending))
    states = [durable[low:]]
    for offset, data in pending:
        states.append(bytes(changed(bytearray(states[-1]), (offset - low, data))))
    sizes = [len(state) for state in states]
    longest = max(sizes)
    states = [state.ljust(longest, b"\0") for state in states]
    sector = decide.choice((512, 4096))
    cuts = [0, *range(sector - low % sector, longest, sector), longest]
    way = decide.randrange(3)
    now = decide.randrange(len(pending))
    before, after = states[now], states[now + 1]
    if way == 0:  # all up to a moment, and a prefix of the change that was under way, in sectors
        sizes = [sizes[now], sizes[now + 1], cut := decide.choice(cuts)]
        content = after[:cut] + before[cut:]
    elif way == 1:  # the same, but torn anywhere: not every device writes whole sectors
        sizes = [sizes[now], sizes[now + 1], cut := decide.randrange(longest + 1)]
        content = after[:cut] + before[cut:]
    else:  # each sector for itself, or broken
        sizes += [*cuts, *[sizes[-1]] * len(cuts)]
        likely = [states[0], states[-1], states[-1], decide.choice(states)]
        content = b"".join(
            loss.garbage(end - start) if decide.random() < 0.1 else decide.choice(likely)[start:end]
            for start, end in pairwise(cuts)
        )
    return durable[:low] + content[: decide.choice(sizes)]


def _by_write(durable: bytes, pending: Sequence[Change], loss: Loss) -> bytes:
    """Let each write have its own fate, in any order: more than a page cache can do."""
    decide = loss.decide
    changes = list(pending)
    if decide.random() < 0.3:
        decide.shuffle(changes)
    content = bytearray(durable)
    for change in changes:
        fate = decide.randrange(3)
        for part in [change] if fate == 0 else _torn(change, loss) if fate == 1 else []:
            content = changed(content, part)
    if decide.random() < 0.3:  # the size has grown, the data are not there
        size = max([len(content), *(offset + len(data or b"") for offset, data in pending)])
        content.extend(bytes(size - len(content)))
    return bytes(content)


def _torn(change: Change, loss: Loss) -> list[Change]:
    """Return what a torn write leaves: some of its sectors, some of them with other bytes."""
    offset, data = change
    if not data:
        return []
    decide = loss.decide
    sector = decide.choice((512, 4096))
    cuts = [0, *range(sector - offset % sector, len(data), sector), len(data)]
    pieces = [(offset + start, data[start:end]) for start, end in pairwise(cuts)]
    way = decide.randrange(3)
    if way == 0:  # a prefix of its sectors
        return list(pieces[: decide.randrange(len(pieces))])
    if way == 1:  # a prefix that ends anywhere
        return [(offset, data[: decide.randrange(len(data))])]
    return [
        (place, piece if fate == 0 else loss.garbage(len(piece)))
        for place, piece in pieces
        if (fate := decide.randrange(3)) < 2
    ]
