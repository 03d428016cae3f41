"""Objects of the wire through cbor2: a lenient decoder, a check of types, and the test that decides.

An encoding is accepted if it decodes, every value has its type, and encoding the values again in the order of
the specification gives the very same bytes. That alone refuses long heads, indefinite lengths, tags, repeated
and unordered keys, and bytes behind.
"""

from collections.abc import Callable
from dataclasses import dataclass

import cbor2

from tests.reference.basics import Fields, Json, Refused, need, unhexed

U64_END = 2**64


class Kind:
    """What a field holds: its check on native values, and both ways to JSON."""

    def check(self, value: Json) -> None:
        raise NotImplementedError

    def native(self, value: Json) -> Json:
        """Return what cbor2 encodes."""
        return value

    def lift(self, value: Json) -> Json:
        """Return the value by field names from what cbor2 decoded."""
        return value

    def to_json(self, value: Json) -> Json:
        return value

    def from_json(self, value: Json) -> Json:
        return value


class Uint(Kind):
    def check(self, value: Json) -> None:
        need(type(value) is int and 0 <= value < U64_END, "uint")


class Version(Uint):
    def check(self, value: Json) -> None:
        super().check(value)
        need(value == 1, "ver is 1")


class Text(Kind):
    def check(self, value: Json) -> None:
        need(type(value) is str, "text")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise Refused("lone surrogate") from error


@dataclass
class Constant(Text):
    value: str

    def check(self, value: Json) -> None:
        need(value == self.value, "constant")


class Bool(Kind):
    def check(self, value: Json) -> None:
        need(type(value) is bool, "bool")


@dataclass
class Bytes(Kind):
    size: int | None = None
    nullable: bool = False
    rule: Callable[[bytes], None] | None = None

    def check(self, value: Json) -> None:
        if value is None and self.nullable:
            return
        need(type(value) is bytes, "bytes")
        need(self.size is None or len(value) == self.size, "size")
        if self.rule is not None:
            self.rule(value)

    def to_json(self, value: Json) -> Json:
        return None if value is None else value.hex()

    def from_json(self, value: Json) -> Json:
        return None if value is None and self.nullable else unhexed(value)


@dataclass
class Items(Kind):
    kind: Kind
    least: int = 0
    most: int = 65_536

    def check(self, value: Json) -> None:
        need(isinstance(value, list) and self.least <= len(value) <= self.most, "list")
        for item in value:
            self.kind.check(item)

    def native(self, value: Json) -> Json:
        return [self.kind.native(item) for item in value]

    def lift(self, value: Json) -> Json:
        need(isinstance(value, list), "list")
        return [self.kind.lift(item) for item in value]

    def to_json(self, value: Json) -> Json:
        return [self.kind.to_json(item) for item in value]

    def from_json(self, value: Json) -> Json:
        need(isinstance(value, list), "list")
        return [self.kind.from_json(item) for item in value]


Rule = Callable[[Fields], None]


@dataclass
class Array(Kind):
    """An object that is an array; ``trimmed`` says that its last field may be absent."""

    fields: dict[str, Kind]
    trimmed: bool = False
    rule: Rule | None = None

    def check(self, value: Json) -> None:
        names = list(self.fields)
        need(list(value) in ([names, names[:-1]] if self.trimmed else [names]), "arity")
        for name, item in value.items():
            self.fields[name].check(item)
        if self.rule is not None:
            self.rule(value)

    def native(self, value: Json) -> Json:
        return [self.fields[name].native(item) for name, item in value.items()]

    def lift(self, value: Json) -> Json:
        need(isinstance(value, list) and len(value) <= len(self.fields), "array")
        pairs = zip(self.fields, value, strict=False)
        return {name: self.fields[name].lift(item) for name, item in pairs}

    def to_json(self, value: Json) -> Json:
        return [self.fields[name].to_json(item) for name, item in value.items()]

    def from_json(self, value: Json) -> Json:
        need(isinstance(value, list) and len(value) <= len(self.fields), "array")
        pairs = zip(self.fields, value, strict=False)
        return {name: self.fields[name].from_json(item) for name, item in pairs}


@dataclass
class Map(Kind):
    """An object that is a map: name to (key, kind); ``optional`` names may be absent."""

    fields: dict[str, tuple[int, Kind]]
    optional: tuple[str, ...] = ()
    rule: Rule | None = None

    def check(self, value: Json) -> None:
        need(set(value) <= set(self.fields), "names")
        need(set(self.fields) - set(value) <= set(self.optional), "a field is missing")
        for name, item in value.items():
            self.fields[name][1].check(item)
        if self.rule is not None:
            self.rule(value)

    def native(self, value: Json) -> Json:
        present = [(name, key, kind) for name, (key, kind) in self.fields.items() if name in value]
        return {key: kind.native(value[name]) for name, key, kind in present}

    def lift(self, value: Json) -> Json:
        need(isinstance(value, dict), "map")
        names = {key: (name, kind) for name, (key, kind) in self.fields.items()}
        need(all(type(key) is int and key in names for key in value), "keys")
        return {names[key][0]: names[key][1].lift(item) for key, item in value.items()}

    def to_json(self, value: Json) -> Json:
        return {name: self.fields[name][1].to_json(item) for name, item in value.items()}

    def from_json(self, value: Json) -> Json:
        need(isinstance(value, dict) and set(value) <= set(self.fields), "names")
        return {name: self.fields[name][1].from_json(item) for name, item in value.items()}


@dataclass
class Table(Kind):
    """A map whose keys are data: how a key is written in JSON, and what it leads to."""

    key: Kind
    kind: Kind
    key_to_json: Callable[[Json], str]
    key_from_json: Callable[[str], Json]
    rule: Rule | None = None

    def check(self, value: Json) -> None:
        for key, item in value.items():
            self.key.check(key)
            self.kind.check(item)
        if self.rule is not None:
            self.rule(value)

    def native(self, value: Json) -> Json:
        return {key: self.kind.native(value[key]) for key in sorted(value)}

    def lift(self, value: Json) -> Json:
        need(isinstance(value, dict), "map")
        return {key: self.kind.lift(item) for key, item in value.items()}

    def to_json(self, value: Json) -> Json:
        return {self.key_to_json(key): self.kind.to_json(item) for key, item in value.items()}

    def from_json(self, value: Json) -> Json:
        need(isinstance(value, dict), "map")
        return {self.key_from_json(key): self.kind.from_json(item) for key, item in value.items()}


class Detail(Kind):
    """The detail of an error: text to integer, text or bytes, keys in order of their encoding."""

    def check(self, value: Json) -> None:
        need(isinstance(value, dict), "map")
        for name, item in value.items():
            Text().check(name)
            if type(item) is str:
                Text().check(item)
            elif type(item) is not bytes:
                Uint().check(item)

    def native(self, value: Json) -> Json:
        return dict(sorted(value.items(), key=lambda pair: cbor2.dumps(pair[0])))

    def to_json(self, value: Json) -> Json:
        made = {}
        for name, item in value.items():
            if isinstance(item, bytes):
                made[name] = item.hex() if name == "label" else {"hex": item.hex()}
            else:
                made[name] = {"text": item} if name == "label" and isinstance(item, str) else item
        return made

    def from_json(self, value: Json) -> Json:
        need(isinstance(value, dict), "map")
        made: Fields = {}
        for name, item in value.items():
            if isinstance(item, dict):
                usual = "text" if name == "label" else "hex"
                need(list(item) == [usual], "one form")
                made[name] = item["text"] if usual == "text" else unhexed(item["hex"])
            else:
                made[name] = unhexed(item) if name == "label" and isinstance(item, str) else item
        return made


def encode(kind: Kind, value: Json) -> bytes:
    """Check a value and encode it."""
    kind.check(value)
    return cbor2.dumps(kind.native(value))


def decode(kind: Kind, data: bytes) -> Json:
    """Decode an object: the value by field names."""
    try:
        raw = cbor2.loads(data)
    except (
        cbor2.CBORDecodeError,
        ValueError,
        TypeError,
        OverflowError,
        MemoryError,
        RecursionError,
    ) as error:
        raise Refused("no CBOR") from error
    value = kind.lift(raw)
    need(encode(kind, value) == data, "not canonical")
    return value
