"""Parameters of overlays as text: what is written can be read again, and nonsense is refused."""

from typing import Any

import pytest

from tests.overlays.histories import PARAMETERS
from tests.overlays.histories_operations import DELEGATED, GRANTED
from tests.overlays.logs import WRITERS
from veen.overlays import registry
from veen.overlays.errors import ParameterError
from veen.overlays.operations.access import Access
from veen.overlays.operations.delegation import Delegated
from veen.overlays.operations.recovery import Recoveries, RecoveryPolicy
from veen.overlays.parameters import configured

A, B, C = (writer.hex() for writer in WRITERS[:3])


@pytest.mark.parametrize("name", registry.names())
def test_what_an_overlay_says_of_itself_makes_it_again(name: str) -> None:
    found = registry.overlay_class(name)
    made = found(**PARAMETERS.get(name, {}))
    again = configured(found, made.parameters())
    assert again.parameters() == made.parameters()
    assert again.identity == made.identity


def test_policies_as_a_person_writes_them() -> None:
    policy = RecoveryPolicy(frozenset(WRITERS[:2]), 1)
    assert configured(Recoveries, {"default_policy": f"1:{A},{B}"}) == Recoveries(default_policy=policy)
    two = f"{C}:1:{A},{B};{A}:1:{A},{B}"
    assert configured(Recoveries, {"guardians": two}) == Recoveries(
        guardians={WRITERS[2]: policy, WRITERS[0]: policy}
    )


def test_tokens_as_a_person_writes_them() -> None:
    text = ",".join(f"{known.token.encode().hex()}@{known.issued_at}" for known in GRANTED)
    assert configured(Access, {"tokens": text}) == Access(tokens=GRANTED)
    records = DELEGATED["revocations"]
    made = configured(
        Delegated, {"revocations": ",".join(item.encode().hex() for item in records), "inner": "crdt.lww"}
    )
    assert made == Delegated(revocations=records, inner=DELEGATED["inner"])


@pytest.mark.parametrize(
    ("overlay", "values"),
    [
        (Recoveries, {"default_policy": "1"}),
        (Recoveries, {"default_policy": f"x:{A}"}),
        (Recoveries, {"default_policy": f"2:{A}"}),
        (Recoveries, {"guardians": f"{A}"}),
        (Recoveries, {"guardians": 5}),
        (Access, {"tokens": "ab@1"}),
        (Access, {"tokens": "zz"}),
        (Delegated, {"revocations": "ab"}),
        (Delegated, {"inner": "nothing"}),
        (Delegated, {"inner": ["crdt.lww", 99, {}]}),
    ],
)
def test_what_can_not_be_a_parameter(overlay: Any, values: Any) -> None:
    with pytest.raises(ParameterError):
        configured(overlay, values)
