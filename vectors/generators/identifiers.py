"""Hashes, profiles, and the identifiers of hubs, streams, schemas and labels."""

from collections.abc import Iterator

from vectors.generators import fixed, raw
from vectors.generators.fixed import U64_MAX, ZERO_32, u64
from vectors.generators.scenario import CBOR_INVALID, FIELD_SIZE, Scenario, ask


def _counting(first: int) -> bytes:
    return bytes(range(first, first + 32))


def hashes() -> Scenario:
    """Return plain and tagged hashes."""
    s = Scenario("hash/tagged", "H is SHA-256; Ht puts the tag and one zero byte first (001 section 3.3).")
    s.ok("H of nothing", "h", data=b"")
    s.ok("H of three bytes", "h", data=b"abc")
    s.ok("H of a thousand zero bytes", "h", data=bytes(1000))
    s.ok("Ht of text", "ht", tag="veen/profile", data=b"hello world")
    s.ok("the same hash by hand", "h", data=b"veen/profile\x00hello world")
    s.ok("Ht of nothing", "ht", tag="veen/att-root", data=b"")
    s.ok("an empty tag is a zero byte", "ht", tag="", data=b"x")
    s.ok("a tag is UTF-8", "ht", tag="veen/\u00fc", data=b"")
    s.ok("the older prefix gives another hash", "ht", tag="vesn/profile", data=b"hello world")
    return s


def derived() -> Scenario:
    """Return the identifiers that later layers derive with Ht."""
    realm, example = fixed.ht("id/realm", b"default"), fixed.ht("id/realm", b"example-app")
    realm_x = fixed.ht("id/realm", b"realm-x")
    org = fixed.ht("id/org", bytes(range(0x50, 0x70)))
    wallet = fixed.ht("wallet/id", realm_x + bytes([0x22]) * 32 + b"JPY")
    ctx = bytes.fromhex("be51710dca4b3e55af5447624fa32d9b7d621256d4ec5bb09728b9983492142c")
    s = Scenario("hash/derived", "Identifiers that overlays derive: each is one Ht over joined fields.")
    for name, tag, data in (
        ("revocation stream of a realm", "veen/revocation", _counting(0)),
        ("schema stream of a realm", "veen/meta-schema", _counting(0)),
        ("realm by name", "id/realm", b"example-app"),
        ("context of a principal in a realm", "id/ctx", _counting(0x20) + example),
        ("organisation", "id/org", _counting(0x40)),
        ("group of an organisation", "id/group", org + b"ops"),
        ("stream of a context", "id/stream/ctx", ctx + realm),
        ("stream of handles", "id/stream/handle", realm),
        ("wallet", "wallet/id", realm_x + bytes([0x22]) * 32 + b"JPY"),
        ("stream of a wallet", "wallet/stream", wallet),
        ("operation of a message", "veen/operation-id", _counting(0x10)),
    ):
        s.ok(name, "ht", tag=tag, data=data)
    s.ok("revocation target of a token is a plain H", "h", data=bytes([0xAB]) * 42)
    return s


def profile_ids() -> Scenario:
    """Return profile ids."""
    s = Scenario(
        "profile/ids",
        "A profile is a map with integer keys; its id is Ht over it, and both numbers count (001 "
        "section 3.2).",
    )
    for epoch_sec, pad_block in ((0, 0), (60, 0), (60, 256), (0, 256), (3600, 1024), (U64_MAX, U64_MAX)):
        given = s.ok(
            f"epochs of {epoch_sec} s, blocks of {pad_block}",
            "profile_id",
            epoch_sec=epoch_sec,
            pad_block=pad_block,
        )
        s.round_trip(f"profile ({epoch_sec}, {pad_block})", "profile", bytes.fromhex(given["profile"]))
    return s


def profiles_refused() -> Scenario:
    """Return invalid profiles."""
    good = raw.split_map(bytes.fromhex(ask("profile_id", epoch_sec=60, pad_block=0)["profile"]))
    names = ("aead", "kdf", "sig", "dh", "hpke_suite", "epoch_sec", "pad_block", "mmr_hash")
    s = Scenario("profile/refused", "Only the one suite of algorithms is a profile, and nothing is implied.")

    def refuses(name: str, *pairs: tuple[bytes, bytes]) -> None:
        s.refuses(name, CBOR_INVALID, "profile", raw.mapping(*pairs))

    texts = [(raw.tstr(name), value) for name, (_, value) in zip(names, good, strict=True)]
    refuses("text keys, as older documents had them", *texts)
    refuses("without hpke_suite, as the oldest had it", *good[:4], *good[5:])
    for index, name in enumerate(names):
        refuses(f"{name} is missing", *good[:index], *good[index + 1 :])
    for index in (0, 1, 2, 3, 4, 7):
        wrong = (good[index][0], raw.tstr("none"))
        refuses(f"unknown {names[index]}", *good[:index], wrong, *good[index + 1 :])
    upper = (good[0][0], raw.tstr("XChaCha20Poly1305"))
    refuses("an algorithm in other case", upper, *good[1:])
    refuses("keys out of order", good[1], good[0], *good[2:])
    refuses("a key twice", good[0], good[0], *good[1:7])
    refuses("an unknown key", *good, (raw.uint(9), raw.uint(0)))
    refuses("pad_block is null", *good[:6], (raw.uint(7), raw.NULL), good[7])
    refuses("epoch_sec is a text", *good[:5], (raw.uint(6), raw.tstr("60")), *good[6:])
    refuses("epoch_sec is negative", *good[:5], (raw.uint(6), b"\x20"), *good[6:])
    refuses("epoch_sec is 60 in two bytes too many", *good[:5], (raw.uint(6), raw.uint(60, 2)), *good[6:])
    return s


def hubs() -> Scenario:
    """Return hub ids, routing keys and public keys."""
    s = Scenario(
        "label/hub", "A hub id hashes the first hub key, the routing key the hub id (001 section 12)."
    )
    s.ok("hub id", "hub_id", hub_pk=_counting(0))
    s.ok("hub id of the hub of these vectors", "hub_id", hub_pk=fixed.HUB_PK)
    s.ok("routing key of that hub", "routing_key", hub_id=fixed.HUB_ID)
    s.ok("public keys of a seed", "public_keys", seed=fixed.HUB_SEED)
    s.ok("public keys of a reader", "public_keys", seed=fixed.READER_SK)
    s.ok("reserved label of authorized tokens", "ht", tag="veen/authorize", data=fixed.HUB_ID)
    s.ok("reserved label of control records", "ht", tag="veen/control", data=fixed.HUB_ID)
    s.ok("key id: the first 16 bytes", "h", data=fixed.HUB_PK)
    s.fails("hub key of 31 bytes", FIELD_SIZE, "hub_id", hub_pk=bytes(31))
    s.fails("hub key of 33 bytes", FIELD_SIZE, "hub_id", hub_pk=bytes(33))
    s.fails("empty hub key", FIELD_SIZE, "hub_id", hub_pk=b"")
    s.fails("hub id of 31 bytes", FIELD_SIZE, "routing_key", hub_id=bytes(31))
    s.fails("hub id of 33 bytes", FIELD_SIZE, "routing_key", hub_id=bytes(33))
    return s


def streams() -> Scenario:
    """Return stream ids."""
    s = Scenario("label/stream_id", "A stream id hashes the stream's name; 64 hex digits are the id itself.")
    for name in ("test", "", "orders/2024", "Z\u00fcrich", "9f" * 31 + "9", "9f" * 32 + "0", "g0" * 32):
        s.ok(f"name {name!r}", "stream_id", name=name)
    s.ok("64 hex digits", "stream_id", name="9f" * 32)
    s.ok("64 hex digits in upper case", "stream_id", name="9F" * 32)
    return s


def labels() -> Scenario:
    """Return labels."""
    s = Scenario(
        "label/label", "A label hashes routing key, stream and epoch, the epoch as u64be (001 section 2)."
    )
    for epoch in (0, 1, 255, 256, 28_333_333, U64_MAX):
        s.ok(
            f"epoch {epoch}",
            "label",
            intermediate={"preimage": ZERO_32 + fixed.STREAM_ID + u64(epoch)},
            routing_key=ZERO_32,
            stream_id=fixed.STREAM_ID,
            epoch=epoch,
        )
    s.ok("label of these vectors", "label", routing_key=fixed.ROUTING_KEY, stream_id=fixed.STREAM_ID, epoch=0)
    s.ok(
        "routing key and stream do not commute",
        "label",
        routing_key=fixed.STREAM_ID,
        stream_id=ZERO_32,
        epoch=0,
    )
    for size in (0, 31, 33):
        s.fails(
            f"routing key of {size} bytes",
            FIELD_SIZE,
            "label",
            routing_key=bytes(size),
            stream_id=fixed.STREAM_ID,
            epoch=0,
        )
        s.fails(
            f"stream id of {size} bytes",
            FIELD_SIZE,
            "label",
            routing_key=ZERO_32,
            stream_id=bytes(size),
            epoch=0,
        )
    return s


_PLAIN_SCHEMAS = (
    "chat.v1",
    "veen.label.class.v1",
    "veen.fed.authority.v1",
    "id.handlemap.v1",
    "wallet.open.v1",
    "wallet.deposit.v1",
    "wallet.transfer.v1",
    "wallet.limit.v1",
    "wallet.unfreeze.v1",
)
_OPERATION_SCHEMAS = (
    "paid.operation.v1",
    "access.grant.v1",
    "access.revoke.v1",
    "delegated.execution.v1",
    "agreement.definition.v1",
    "agreement.confirmation.v1",
    "data.publication.v1",
    "state.checkpoint.v1",
    "recovery.request.v1",
    "recovery.approval.v1",
    "recovery.execution.v1",
    "query.audit.v1",
    "federation.mirror.v1",
)


def schemas() -> Scenario:
    """Return schema ids."""
    s = Scenario(
        "label/schema_id",
        'A schema id hashes the schema\'s name; the operation profiles hash "veen/schema:" and the name.',
    )
    for name in _PLAIN_SCHEMAS:
        s.ok(name, "schema_id", intermediate={"preimage": name.encode()}, name=name)
    for name in _OPERATION_SCHEMAS:
        s.ok(name, "schema_id", intermediate={"preimage": b"veen/schema:" + name.encode()}, name=name)
    return s


def scenarios() -> Iterator[Scenario]:
    """Yield the scenarios of this module."""
    yield hashes()
    yield derived()
    yield profile_ids()
    yield profiles_refused()
    yield hubs()
    yield streams()
    yield labels()
    yield schemas()
