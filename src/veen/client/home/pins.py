"""Pins: which hubs a client trusts, and the detection of a changed identity (HUB-001, HUB-002, KEX0)."""

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

# The hub's identity, profiles, and required proof of work.
STATUS: Final = Describe("/tooling/status")


class Trust(StrEnum):
    """Whether to pin a hub that this client has never seen.

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
    """A hub's description of itself, whose identity has a valid signature of its own first key."""

    identity: HubIdentity
    sig: Signature
    profiles: tuple[Profile, ...]
    pow_difficulty: int = 0


def read_facts(status: dict[str, Any]) -> HubFacts:
    """Parse a hub's description of itself; its first key must have signed the identity."""
    try:
        identity = HubIdentity.decode(bytes.fromhex(status["identity"]))
        sig = Signature(bytes.fromhex(status["identity_sig"]))
        profiles = tuple(
            Profile(epoch_sec=item["epoch_sec"], pad_block=item["pad_block"]) for item in status["profiles"]
        )
        pow_difficulty = int(status.get("pow_difficulty", 0))
        stated = [bytes.fromhex(item["profile_id"]) for item in status["profiles"]]
    except (KeyError, TypeError, ValueError, OverflowError, ProtocolError) as error:
        raise InvalidResponseError(f"the hub's description of itself is not valid: {error}") from None
    if not profiles or [profile.profile_id for profile in profiles] != stated:
        raise InvalidResponseError("the hub describes profiles that do not match their ids")
    try:
        identity.verify_signature(identity.hub_keys[0].hub_pk, sig)
    except ProtocolError:
        raise InvalidResponseError("the hub's identity is not signed by its first key") from None
    return HubFacts(identity, sig, profiles, pow_difficulty)


def read_epoch(status: dict[str, Any]) -> int:
    """Return the current epoch that a hub reports."""
    epoch = status.get("epoch")
    if not isinstance(epoch, int) or not 0 <= epoch <= U64_MAX:
        raise InvalidResponseError("the hub does not report its epoch")
    return epoch


def describe_facts(identity: HubIdentity, sig: Signature, profiles: Sequence[Profile]) -> dict[str, Any]:
    """Return a hub's description of itself, for files that serve requests in place of the hub."""
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
    """Return whether a name is a loopback address, or a data directory that has the secrets of its hub.

    A copy or an exported set, which may come from anyone, has no secrets.
    """
    address = HubAddress.parse(name)
    if address.path is not None:
        return (address.path / hub_settings.SECRETS).exists()
    return address.is_loopback


def accept_pin(
    state: State, facts: HubFacts, name: str, *, trust: Trust, now: int, expected: HubId | None = None
) -> Pin:
    """Return the pin of a hub, created or updated if permitted; raise PinError if it is not trusted."""
    identity = facts.identity
    if expected is not None and identity.hub_id != expected:
        raise PinError(
            f"{name} is hub {identity.hub_id.hex()}, not {expected.hex()} as requested; nothing was sent"
        )
    _check_name(state, identity.hub_id, name, known=expected is not None)
    pinned = state.pins.get(identity.hub_id)
    if pinned is not None:
        _check_continues(pinned, facts, name)
        profile_id = facts.profiles[0].profile_id.hex()
        pin = replace(
            pinned, identity=identity, sig=facts.sig, profile_id=profile_id, names=pinned.reached(name)
        )
    else:
        _check_new(facts, name, trust, known=expected is not None)
        how = "given" if expected is not None else "local" if is_local(name) else "first-use"
        profile_id = facts.profiles[0].profile_id.hex()
        pin = Pin(identity, facts.sig, how, now, profile_id, (name,))
    state.pins[identity.hub_id] = pin
    return pin


def _check_name(state: State, claimed_id: HubId, name: str, *, known: bool) -> None:
    """Reject a hub under the name of another one, even if both are pinned; an expected hub takes the name."""
    for hub_id, pin in list(state.pins.items()):
        if hub_id == claimed_id or name not in pin.names:
            continue
        if not known:
            raise PinError(
                f"{name} was hub {hub_id.hex()} and now claims to be {claimed_id.hex()}: it was replaced, or "
                f"the connection is intercepted; if its operator confirms the new id, run: "
                f"veen pin add --hub {name} --hub-id {claimed_id.hex()}"
            )
        state.pins[hub_id] = replace(pin, names=tuple(item for item in pin.names if item != name))


def _check_new(facts: HubFacts, name: str, trust: Trust, *, known: bool) -> None:
    claimed_id = facts.identity.hub_id.hex()
    if known or trust is Trust.FIRST_USE or (trust is Trust.LOCAL and is_local(name)):
        return
    raise PinError(
        f"{name} is not pinned; it claims to be hub {claimed_id}: compare this id with the one from its "
        f"operator (veen hub-id), then run: veen pin add --hub {name} --hub-id {claimed_id}"
    )


def _check_continues(pinned: Pin, facts: HubFacts, name: str) -> None:
    """Reject an identity that lacks a pinned key or changes its validity: signatures would no longer verify.

    Another routing key would change all labels, so that everything seen before would silently be ignored.
    """
    if facts.identity.routing_key != pinned.identity.routing_key:
        raise PinError(f"{name} presents an identity with another routing key, and is not trusted")
    presented = {key.hub_pk: key for key in facts.identity.hub_keys}
    for key in pinned.identity.hub_keys:
        current = presented.get(key.hub_pk)
        ended = current is not None and key.valid_until is not None and current.valid_until != key.valid_until
        if current is None or current.valid_from != key.valid_from or ended:
            if len(facts.identity.hub_keys) < len(pinned.identity.hub_keys):
                why = "is older than the pinned one, or was truncated"
            else:
                why = "does not continue the pinned one"
            raise PinError(f"{name} presents an identity that {why}, and is not trusted")
