"""Descriptions of the hub: status, identity, policies (API-066, CLI-037 to CLI-050)."""

from dataclasses import fields
from time import perf_counter
from typing import Final

from veen.core.encoding.canonical_json import Described
from veen.core.limits import Limits
from veen.core.objects import labels
from veen.core.types import Label
from veen.hub.hub import Hub
from veen.version import __version__

# The name that clients of the first release use for this set of features.
PROTOCOL: Final = "veen-0.0.1+"
_RATED: Final = ("E.SIZE", "E.SIG", "E.AUTH", "E.CAP", "E.RATE")
_STAGES: Final = (
    ("prefilter", "size of the request, proof of work"),
    ("structural", "canonical CBOR, field lengths, version, profile, padding, ct_hash"),
    ("auth", "signature, capability token, scope, revocation, lifetime, rate"),
    ("commit", "prev_ack, client_seq, epoch; append, sign, sync"),
)


def identity(hub: Hub) -> dict[str, Described]:
    """Return the hub's identity and its protocol parameters."""
    home = hub.home
    hub_identity = home.identity
    return {
        "hub_id": hub_identity.hub_id,
        "hub_pk": home.ring.active(hub.sequencer.hub_ts()).public_key,
        "hub_keys": [
            {
                "key_id": key.key_id,
                "hub_pk": key.hub_pk,
                "valid_from": key.valid_from,
                "valid_until": key.valid_until,
            }
            for key in hub_identity.hub_keys
        ],
        "routing_key": hub_identity.routing_key,
        "control_pk": hub_identity.control_pk,
        "profile_id": home.settings.profiles[0].profile_id,
        "profiles": [
            {"profile_id": item.profile_id, "epoch_sec": item.epoch_sec, "pad_block": item.pad_block}
            for item in home.settings.profiles
        ],
        "identity": hub_identity.encode(),
        "identity_sig": hub_identity.sign(home.ring.keys[hub_identity.hub_keys[0].hub_pk]),
        "version": __version__,
    }


def status(hub: Hub, label: Label | None) -> dict[str, Described]:
    """Return the status of the hub, with the head of one label or of the last one committed."""
    hub_ts = hub.sequencer.hub_ts()
    limits: dict[str, Described] = {field.name: getattr(hub.limits, field.name) for field in fields(Limits)}
    return {
        **identity(hub),
        **head(hub, hub.intake.newest if label is None else label),
        "role": "standalone" if hub.settings.role == "primary" else "replica",
        "epoch": labels.epoch_at(hub_ts, hub.home.settings.epoch_sec),
        "hub_ts": hub_ts,
        "uptime_sec": int(perf_counter() - hub.started),
        "require_cap": hub.home.settings.require_cap,
        "pow_difficulty": hub.settings.pow_difficulty,
        "limits": limits,
        "labels": hub.reader.label_count(),
        "listen": list(hub.urls),
        "full": hub.is_full,
        "anchoring": {"backend": "none"} if hub.anchorer is None else hub.anchorer.status(),
    }


def head(hub: Hub, label: Label | None) -> dict[str, Described]:
    """Return the head of a label; zeros if there is none (C-76)."""
    current = None if label is None else hub.reader.head(label)
    return {
        "label": label,
        "peaks_count": 0 if current is None else len(current.peaks.hashes),
        "last_stream_seq": 0 if current is None else current.seq,
        "last_mmr_root": bytes(32) if current is None else current.root,
    }


def health(hub: Hub) -> dict[str, Described]:
    """Return the short form for probes."""
    return {
        "ok": not (hub.stopping or hub.is_full),
        "profile_id": hub.home.settings.profiles[0].profile_id,
        **head(hub, hub.intake.newest),
    }


def profile(hub: Hub) -> dict[str, Described]:
    """Return which optional features of the protocol are enabled."""
    settings = hub.settings
    bounded = settings.max_client_id_lifetime_sec or settings.max_msgs_per_client_id_per_label
    return {
        "version": PROTOCOL,
        "profile_id": hub.home.settings.profiles[0].profile_id,
        "hub_id": hub.home.identity.hub_id,
        "features": {
            "core": True,
            "fed1": False,
            "auth1": False,
            "kex1_plus": bool(bounded or hub.control_plane.stream),
            "sh1_plus": hub.pow is not None,
            "lclass0": False,
            "meta0_plus": False,
        },
    }


def kex_policy(hub: Hub) -> dict[str, Described]:
    """Return the bounds on keys and tokens; unset ones are null."""
    return {
        "max_client_id_lifetime_sec": hub.settings.max_client_id_lifetime_sec,
        "max_msgs_per_client_id_per_label": hub.settings.max_msgs_per_client_id_per_label,
        "default_cap_ttl_sec": None,
        "max_cap_ttl_sec": None,
        "revocation_stream": hub.control_plane.stream,
        "rotation_window_sec": hub.settings.rotation_window_sec,
    }


def admission(hub: Hub) -> dict[str, Described]:
    """Return the stages of admission, their queue, and rejections per minute over the last five minutes."""
    rates: dict[str, Described] = dict(hub.metrics.error_rates(_RATED))
    stages: list[Described] = [
        {
            "name": name,
            "enabled": True,
            "responsibilities": text,
            "queue_depth": hub.intake.depth if name == "structural" else 0,
            "max_queue_depth": hub.settings.max_queue if name == "structural" else 0,
        }
        for name, text in _STAGES
    ]
    return {"stages": stages, "recent_err_rates": rates, "pow_difficulty": hub.settings.pow_difficulty}


def admission_log(hub: Hub, limit: int, codes: set[str]) -> dict[str, Described]:
    """Return the newest rejections, newest first."""
    failures = [item for item in reversed(hub.metrics.failures) if not codes or item.code in codes]
    return {"failures": [dict(item._asdict()) for item in failures[:limit]]}
