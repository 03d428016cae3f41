"""The scenarios of all vector files, module by module."""

from collections.abc import Callable, Iterator

from vectors.generators import (
    attachments,
    canonical_texts,
    capabilities,
    cbor_objects,
    cbor_rules,
    ciphertexts,
    ciphertexts_refused,
    entries,
    files,
    hubs,
    identifiers,
    json_forms,
    messages,
    messages_refused,
    overlays,
    proofs,
    proofs_refused,
    receipts,
    requests,
    signatures,
)
from vectors.generators.scenario import Scenario

MODULES: tuple[Callable[[], Iterator[Scenario]], ...] = (
    identifiers.scenarios,
    cbor_rules.scenarios,
    cbor_objects.scenarios,
    json_forms.scenarios,
    canonical_texts.scenarios,
    messages.scenarios,
    messages_refused.scenarios,
    ciphertexts.scenarios,
    ciphertexts_refused.scenarios,
    attachments.scenarios,
    receipts.scenarios,
    signatures.scenarios,
    proofs.scenarios,
    proofs_refused.scenarios,
    capabilities.scenarios,
    entries.scenarios,
    files.scenarios,
    hubs.scenarios,
    requests.scenarios,
    overlays.scenarios,
)


def all_scenarios() -> list[Scenario]:
    """Return every scenario; a name occurs once, and so does a case name inside a scenario."""
    made = [scenario for module in MODULES for scenario in module()]
    names = [scenario.name for scenario in made]
    assert len(set(names)) == len(names), "two scenarios have one name"
    return sorted(made, key=lambda scenario: scenario.name)
