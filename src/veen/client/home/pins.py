"""Which hubs a client believes, and how it notices that one is not what it was (HUB-001, HUB-002, KEX0)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from veen.client.effects import Describe
from veen.client.errors import InvalidResponseError, PinError
from veen.client.home.state import Pin, State
from veen.client.hub_address import HubAddress
from veen.core.crypto.hash import U64_MAX
from veen.core.data_dir import hub_settings
from veen.core.errors import ProtocolError
from veen.core.objects.hub_identity import HubIdentity
from veen.core.profile import Profile
from veen.core.types import HubId, Signature

#: Who the hub is, and what it asks of senders.
STATUS: Final = Describe("/tooling/status")


class Trust(StrEnum):
    """What to do with a hub that was never seen.

    Attributes:
        LOCAL: Pin it if it is on this machine: at a loopback address, or in its own data directory.
        FIRST_USE: Pin it.
        NEVER: Reject it, unless its id is passed as ``hub_id``.
    """

    LOCAL = "local"
    FIRST_USE = "first-use"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class HubFacts:
    """A hub's own description of itself, with its identity checked against itself."""

    identity: HubIdentity
    sig: Signature
    profiles: tuple[Profile, ...]
    pow_difficulty: int = 0


def read_facts(found: dict[str, Any]) -> HubFacts:
    """Read what a hub says of itself; its first key must stand behind all others."""
    try:
        identity = HubIdentity.decode(bytes.fromhex(found["identity"]))
        sig = Signature(bytes.fromhex(found["identity_sig"]))
        profiles = tuple(
            Profile(epoch_sec=item["epoch_sec"], pad_block=item["pad_block"]) for item in found["profiles"]
        )
        pow_difficulty = int(found.get("pow_difficulty", 0))
        stated = [bytes.fromhex(item["profile_id"]) for item in found["profiles"]]
    except (KeyError, TypeError, ValueError, OverflowError, ProtocolError) as error:
        raise InvalidResponseError(f"the hub's description of itself is not valid: {error}") from None
    if not profiles or [profile.profile_id for profile in profiles] != stated:
        raise InvalidResponseError("the hub describes profiles that do not match their ids")
    try:
        identity.verify_signature(identity.hub_keys[0].hub_pk, sig)
    except ProtocolError:
        raise InvalidResponseError("the hub's identity is not signed by its first key") from None
    return HubFacts(identity, sig, profiles, pow_difficulty)


def read_epoch(found: dict[str, Any]) -> int:
    """Return the epoch that a hub says it is in."""
    epoch = found.get("epoch")
    if not isinstance(epoch, int) or not 0 <= epoch <= U64_MAX:
        raise InvalidResponseError("the hub does not report its epoch")
    return epoch


def describe_facts(identity: HubIdentity, sig: Signature, profiles: Sequence[Profile]) -> dict[str, Any]:
    """Return what a hub would say of itself, for files that answer in its place."""
    return {
        "hub_id": identity.hub_id.hex(),
        "identity": identity.encode().hex(),
        "identity_sig": sig.hex(),
        "profiles": [
            {"profile_id": item.profile_id.hex(), "epoch_sec": item.epoch_sec, "pad_block": item.pad_block}
            for item in profiles
        ],
    }


def is_local(name: str) -> bool:
    """Tell whether this machine itself answers under a name: a hub's home, or a loopback address.

    A copy or an exported set may be anybody's: only who has the secrets of a hub is at home there.
    """
    address = HubAddress.parse(name)
    if address.path is not None:
        return (address.path / hub_settings.SECRETS).exists()
    return address.is_loopback


def accept_pin(
    state: State, facts: HubFacts, name: str, *, trust: Trust, now: int, expected: HubId | None = None
) -> Pin:
    """Return the pin of this hub, made or renewed if it may be; raise if it is not to be believed."""
    who = facts.identity
    if expected is not None and who.hub_id != expected:
        raise PinError(
            f"{name} is hub {who.hub_id.hex()}, not {expected.hex()} as requested; nothing was sent"
        )
    _check_name(state, who.hub_id, name, known=expected is not None)
    kept = state.pins.get(who.hub_id)
    if kept is not None:
        _check_continues(kept, facts, name)
        profile_id = facts.profiles[0].profile_id.hex()
        pin = replace(kept, identity=who, sig=facts.sig, profile_id=profile_id, names=kept.reached(name))
    else:
        _check_new(facts, name, trust, known=expected is not None)
        how = "given" if expected is not None else "local" if is_local(name) else "first-use"
        profile_id = facts.profiles[0].profile_id.hex()
        pin = Pin(who, facts.sig, how, now, profile_id, (name,))
    state.pins[who.hub_id] = pin
    return pin


def _check_name(state: State, found: HubId, name: str, *, known: bool) -> None:
    """Refuse a hub under the name of another one, even if both are pinned; the user may move the name."""
    for hub_id, pin in list(state.pins.items()):
        if hub_id == found or name not in pin.names:
            continue
        if not known:
            raise PinError(
                f"{name} was hub {hub_id.hex()} and now claims to be {found.hex()}: it was replaced, or "
                f"the connection is intercepted; if its operator confirms the new id, run: "
                f"veen pin add --hub {name} --hub-id {found.hex()}"
            )
        state.pins[hub_id] = replace(pin, names=tuple(item for item in pin.names if item != name))


def _check_new(facts: HubFacts, name: str, trust: Trust, *, known: bool) -> None:
    found = facts.identity.hub_id.hex()
    if known or trust is Trust.FIRST_USE or (trust is Trust.LOCAL and is_local(name)):
        return
    raise PinError(
        f"{name} is not pinned; it claims to be hub {found}: compare this id with the one from its operator "
        f"(veen hub-id), then run: veen pin add --hub {name} --hub-id {found}"
    )


def _check_continues(kept: Pin, facts: HubFacts, name: str) -> None:
    """Refuse an identity that has lost or moved a key: what was signed with it would no longer verify.

    With another routing key all labels would be others, and all that was seen would be gone without a word.
    """
    if facts.identity.routing_key != kept.identity.routing_key:
        raise PinError(f"{name} presents an identity with another routing key, and is not trusted")
    now = {key.hub_pk: key for key in facts.identity.hub_keys}
    for key in kept.identity.hub_keys:
        found = now.get(key.hub_pk)
        ended = found is not None and key.valid_until is not None and found.valid_until != key.valid_until
        if found is None or found.valid_from != key.valid_from or ended:
            if len(facts.identity.hub_keys) < len(kept.identity.hub_keys):
                why = "is older than the pinned one, or was truncated"
            else:
                why = "does not continue the pinned one"
            raise PinError(f"{name} presents an identity that {why}, and is not trusted")
