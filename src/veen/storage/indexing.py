"""Rows of the index that follow from entries: written by a flush, and again by a repair."""

from collections.abc import Sequence

from veen.storage.index import Changes
from veen.storage.shaping import Growth
from veen.storage.tail import Tail


def record_entries(changes: Changes, growths: Sequence[Growth], tail: Tail) -> None:
    """Write what ``growths`` add to their labels; ``tail`` has how far clients and tokens have come.

    Leaves are not in it: ``Index.add_leaves`` writes them ahead.
    """
    for growth in growths:
        number = growth.before.number
        changes.put_label(growth.state)
        changes.put_blocks(number, growth.blocks)
        for hub_ts, seq in growth.times:
            changes.put_time(number, hub_ts, seq)
        for row in growth.chunks:
            changes.put_chunk(number, row)
    numbers = {growth.before.label: growth.before.number for growth in growths}
    for (label, client_id), cursor in tail.clients.items():
        changes.put_client(numbers[label], client_id, cursor)
    for client_id, since in tail.since.items():
        changes.put_client_since(client_id, since)
    for auth_ref, record in tail.auths.items():
        changes.put_auth(auth_ref, record)
