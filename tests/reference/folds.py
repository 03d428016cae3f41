"""Ids and folds of overlays, one event after the other."""

from collections.abc import Iterator
from typing import Any

import cbor2

from tests.reference.basics import Fields, Json, h, ht, need, sized, u64, unhexed
from tests.reference.wallets import SCHEMAS as WALLET_SCHEMAS
from tests.reference.wallets import Wallets

_TAGS = {
    "crdt.lww": "lww.map",
    "crdt.orset": "orset",
    "crdt.gcnt": "counter.map",
    "paid.ledger": "wallet.ledger",
    "wallet": "wallet.account",
}
_SCHEMAS = {
    "crdt.lww": "crdt.lww.v1",
    "crdt.orset": "crdt.orset.v1",
    "crdt.gcnt": "crdt.gcnt.v1",
    "paid.ledger": "veen/schema:paid.operation.v1",
}


def overlay_ids(r: Fields) -> Fields:
    """Return every id that the fields of a request give."""
    found: Fields = {}
    if "name" in r:
        bare = r["name"].split(".")[0] in {"id", "wallet", "rpc", "crdt", "disc", "veen"}
        found["schema_id"] = h((("" if bare else "veen/schema:") + r["name"]).encode())
    if "msg_id" in r:
        found["operation_id"] = ht("veen/operation-id", sized(r["msg_id"]))
    if "realm" in r:
        found["realm_id"] = ht("id/realm", r["realm"].encode())
    if "currency" in r:
        realm = r.get("realm_id", found.get("realm_id"))
        need(realm is not None, "realm")
        found["wallet_id"] = ht("wallet/id", realm + r["ctx_id"] + r["currency"].encode("ascii"))
    if "client_seq" in r:
        found["transfer_id"] = ht("wallet/xfer", r["label"] + r["client_id"] + u64(r["client_seq"]))
    if "to_wallet_id" in r:
        joined = r["wallet_id"] + r["to_wallet_id"] + u64(r["amount"]) + u64(r["ts"]) + r["transfer_id"]
        found["approval_hash"] = ht("wallet/approval", joined)
    if "currency" in r or "wallet_id" in r:
        found["wallet_stream"] = ht(
            "wallet/stream", found["wallet_id"] if "currency" in r else r["wallet_id"]
        )
    return found


def _events(r: Fields, schemas: set[bytes]) -> Iterator[tuple[str, Fields, Any]]:
    """Yield what becomes of each event: its kind, the event, and its body if it counts."""
    bridges = set(r.get("bridges", []))
    seen = set()
    ordered = {(event.get("epoch", 0), event["stream_seq"]): event for event in r["events"]}
    for place in sorted(ordered):
        event = ordered[place]
        if "upto" in r and place > (max(ordered)[0], r["upto"]):
            continue
        if unhexed(event["schema"]) not in schemas:
            yield "unknown", event, None
            continue
        number = event["client_seq"].to_bytes(8, "big")
        own = ht("veen/conformance-event", unhexed(event["client_id"]) + number)
        is_copy = "parent_id" in event and unhexed(event["client_id"]) in bridges
        canonical = unhexed(event["parent_id"]) if is_copy else own
        if canonical in seen:
            yield "duplicates", event, None
            continue
        seen.add(canonical)
        yield "events", event, cbor2.loads(unhexed(event["body"]))


def _lww(rows: list[tuple[Fields, Any]]) -> tuple[Json, Any]:
    best: dict[bytes, Any] = {}
    for event, body in rows:
        new = (body["ts"], event.get("epoch", 0), event["stream_seq"])
        if body["key"] not in best or new > best[body["key"]][0]:
            best[body["key"]] = (new, body["value"])
    values = {key: value for key, (_, value) in best.items()}
    return {key.decode(): value.decode() for key, value in values.items()}, values


def _orset(rows: list[tuple[Fields, Any]]) -> tuple[Json, Any]:
    tombs = {one for _, body in rows for one in body.get("tomb", [])}
    elements = sorted({body["elem"] for _, body in rows if "elem" in body and body["id"] not in tombs})
    return [elem.decode() for elem in elements], elements


def _gcnt(rows: list[tuple[Fields, Any]]) -> tuple[Json, Any]:
    shards: dict[bytes, int] = {}
    for _, body in rows:
        shards[body["shard"]] = shards.get(body["shard"], 0) + body["delta"]
    return {"total": sum(shards.values()), "shards": {key.hex(): shards[key] for key in shards}}, shards


def _paid(rows: list[tuple[Fields, Any]]) -> tuple[Json, Any]:
    books: dict[str, dict[bytes, int]] = {}
    for _, body in rows:
        book = books.setdefault(body["currency_code"], {})
        for account, sign in ((body["payer_account"], -1), (body["payee_account"], 1)):
            book[account] = book.get(account, 0) + sign * body["amount"]
    return {code: {key.hex(): book[key] for key in book} for code, book in books.items()}, books


_FOLDS = {"crdt.lww": _lww, "crdt.orset": _orset, "crdt.gcnt": _gcnt, "paid.ledger": _paid}


def fold(r: Fields) -> Fields:
    """Fold events; none of them may be one that is refused, but for wallets."""
    name = r["overlay"]
    counts = dict.fromkeys(("events", "duplicates", "rejected", "unknown", "unreadable"), 0)
    rows = []
    schemas = set(WALLET_SCHEMAS) if name == "wallet" else {h(_SCHEMAS[name].encode())}
    for kind, event, body in _events(r, schemas):
        counts[kind] += 1
        if kind == "events":
            rows.append((event, body))
    rejected: list[Fields] = []
    if name == "wallet":
        wallets = Wallets(r.get("stream_id", bytes(32)))
        for event, body in rows:
            wallets.add(event, body)
        state, serialized, rejected = wallets.shown(), wallets.serialized(), wallets.rejected
    else:
        state, serialized = _FOLDS[name](rows)
    encoded = cbor2.dumps(serialized, canonical=True)
    return {
        "state": state,
        "state_hash": ht(f"veen/state-{_TAGS[name]}", encoded),
        "rejected": rejected,
        "counts": counts,
    }
