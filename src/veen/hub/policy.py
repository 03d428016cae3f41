"""The admission policy of a hub, from configuration, data directory and control log."""

from veen.admission.authority import Authority
from veen.admission.label_scope import Scopes
from veen.admission.stateful import Policy
from veen.core.data_dir.hub_settings import HubSettings
from veen.core.objects import labels
from veen.core.objects.control_record import decode_control
from veen.core.objects.hub_identity import HubIdentity
from veen.hub.config import Settings
from veen.stdx.lru import LruCache
from veen.storage import Reader


def read_authority(reader: Reader, settings: Settings) -> Authority:
    """Return the trusted issuers and revocations, from configuration and control log."""
    control = labels.control_label(reader.store.hub_id)
    last = reader.last_seq(control)
    places = reader.entries(control, 1, last) if last else iter(())
    before = Authority.of(settings.issuers, trust_all=settings.trust_all_issuers)
    return before.after(decode_control(place.entry.msg_bytes) for place in places)


def policy_of(
    identity: HubIdentity,
    hub_settings: HubSettings,
    settings: Settings,
    reader: Reader,
    at: int | None = None,
) -> Policy:
    """Return the rules of the stateful rows: the current ones, or those at a time."""
    registries = reader.store.registries
    limits = (registries[-1] if at is None else reader.store.registry_at(at)).limits
    scopes = Scopes(
        identity.routing_key,
        rotates=bool(hub_settings.epoch_sec),
        new_cache=LruCache,
        streams=[*settings.stream_ids, *settings.control_streams],
        reserved=(labels.authorize_label(identity.hub_id), labels.control_label(identity.hub_id)),
    )
    return Policy(
        limits=limits,
        scopes=scopes,
        epoch_sec=hub_settings.epoch_sec,
        require_cap=hub_settings.require_cap if at is None else hub_settings.require_cap_at(at),
        is_primary=settings.role == "primary",
        max_client_lifetime_sec=settings.max_client_id_lifetime_sec,
        max_client_msgs=settings.max_msgs_per_client_id_per_label,
    )
