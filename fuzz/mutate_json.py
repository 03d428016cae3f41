"""Mutations of JSON texts: the shape stays nearly valid, with values of every wrong kind."""

import json
from collections.abc import Sequence
from random import Random
from typing import Any

from fuzz.mutate import mutate
from veen.core.types import JsonValue

_VALUES_TEXT = r"""
    null true false 0 1 2 -1 1.0 1e400 18446744073709551615 18446744073709551616
    "" "0" "00" "0A" "zz" "\ud800" "true" [] {} [[]] [null] {"hex":"00"} {"text":"x"} {"":0}
"""
_VALUES = tuple(_VALUES_TEXT.split())
_NAMES = ("extra", "ver", "label", "Ver")


def _nodes(value: JsonValue) -> list[tuple[Any, Any]]:
    """Return every (container, key) in a JSON value."""
    nodes: list[tuple[Any, Any]] = []
    pending = [value]
    while pending:
        current = pending.pop()
        if isinstance(current, dict):
            nodes += [(current, name) for name in current]
            pending += current.values()
        elif isinstance(current, list):
            nodes += [(current, index) for index in range(len(current))]
            pending += current
    return nodes


def _change(random: Random, value: JsonValue, corpus: Sequence[bytes]) -> JsonValue:
    """Replace, remove or add one value at a random position."""
    new = json.loads(random.choice(_VALUES))
    nodes = _nodes(value)
    if not nodes:
        return new  # type: ignore[no-any-return] # whatever JSON holds
    container, key = random.choice(nodes)
    action = random.choice(("drop", "add", "borrow", "replace", "replace"))
    if action == "drop":
        del container[key]
    elif action == "add" and isinstance(container, list):
        container.insert(key, new)
    elif action == "add":
        container[random.choice(_NAMES)] = new
    else:
        donors = _nodes(json.loads(random.choice(corpus))) if action == "borrow" else []
        donor, name = random.choice(donors) if donors else ([new], 0)
        container[key] = donor[name]
    return value


def mutate_json(random: Random, corpus: Sequence[bytes]) -> bytes:
    """Return a JSON text with values changed; sometimes with damaged bytes instead."""
    data = random.choice(corpus)
    if random.random() < 0.2:
        return mutate(random, corpus)
    value = json.loads(data)  # the corpus contains only accepted inputs
    for _ in range(random.choice((1, 1, 2))):
        value = json.loads(json.dumps(_change(random, value, corpus)))
    return json.dumps(value).encode()
