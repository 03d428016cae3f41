"""Rows 1 to 9: of any defects that a message has, the one of the earliest row is reported."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import combinations

import pytest

from tests import rawcbor as raw
from tests.builders import digest, msg, profile, sealed, signing_key, some_label, verify_key
from tests.expect import refused
from veen.admission.stages import Sized
from veen.admission.stateless import MessageRules, authenticate, read_msg, read_request
from veen.core.crypto.hash import sha256, tagged_hash
from veen.core.errors import ADMISSION_TABLE, Detail, Stage
from veen.core.limits import DEFAULT_LIMITS, Limits
from veen.core.objects.msg import Msg

PROFILE = profile()
RULES = MessageRules(DEFAULT_LIMITS, {PROFILE.profile_id: PROFILE.pad_block})


@dataclass
class Draft:
    """A message in the making: what a defect changes before signing, and after."""

    ver: int = 1
    profile_id: bytes = PROFILE.profile_id
    label: bytes = field(default_factory=some_label)
    client_id: bytes = field(default_factory=verify_key)
    client_seq: bytes = raw.uint(1)
    auth_ref: bytes = raw.NULL
    ciphertext: bytes = field(default_factory=lambda: sealed().ciphertext)
    ct_hash: bytes | None = None
    #: What is on the wire in the place of auth_ref, if it is not what was signed.
    auth_ref_sent: bytes | None = None
    bend_signature: list[Callable[[bytes], bytes]] = field(default_factory=list)
    trailing: bytes = b""
    max_msg_bytes: int = DEFAULT_LIMITS.max_msg_bytes

    def encode(self) -> bytes:
        fields = [
            raw.uint(self.ver),
            raw.bstr(self.profile_id),
            raw.bstr(self.label),
            raw.bstr(self.client_id),
            self.client_seq,
            raw.uint(0),
            self.auth_ref,
            raw.bstr(sha256(self.ciphertext) if self.ct_hash is None else self.ct_hash),
            raw.bstr(self.ciphertext),
        ]
        sig: bytes = signing_key().sign(tagged_hash("veen/sig", raw.array(fields)))
        for bend in self.bend_signature:
            sig = bend(sig)
        if self.auth_ref_sent is not None:
            fields[6] = self.auth_ref_sent
        return raw.array([*fields, raw.bstr(sig)]) + self.trailing

    def admit(self) -> Msg:
        """Run the rows of admission that need no state."""
        rules = replace(RULES, limits=Limits(max_msg_bytes=self.max_msg_bytes))
        read = read_msg(Sized(self.encode()), rules)
        authenticate(read)
        return read


Defect = Callable[[Draft], None]


def too_large(draft: Draft) -> None:
    draft.max_msg_bytes = 300


def long_head(draft: Draft) -> None:
    draft.client_seq = raw.uint(1, width=1)


def negative_number(draft: Draft) -> None:
    draft.client_seq = b"\x20"


def trailing_byte(draft: Draft) -> None:
    draft.trailing = b"\x00"


def false_as_auth_ref(draft: Draft) -> None:
    draft.auth_ref_sent = raw.FALSE


def long_label(draft: Draft) -> None:
    draft.label = bytes(33)


def short_signature(draft: Draft) -> None:
    draft.bend_signature.append(lambda sig: sig[:-1])


def short_auth_ref(draft: Draft) -> None:
    draft.auth_ref = raw.bstr(bytes(31))


def long_hdr_len(draft: Draft) -> None:
    draft.ciphertext = draft.ciphertext[:32] + b"\xff" * 4 + draft.ciphertext[36:]


def another_version(draft: Draft) -> None:
    draft.ver = 2


def another_profile(draft: Draft) -> None:
    draft.profile_id = profile(pad_block=1024).profile_id


def non_zero_padding(draft: Draft) -> None:
    draft.ciphertext = draft.ciphertext[:-1] + b"\x01"


def odd_length(draft: Draft) -> None:
    draft.ciphertext += b"\x00"


def another_ct_hash(draft: Draft) -> None:
    draft.ct_hash = digest("other")


def bad_signature(draft: Draft) -> None:
    draft.bend_signature.append(lambda sig: bytes((sig[0] ^ 1,)) + sig[1:])


def another_client(draft: Draft) -> None:
    draft.client_id = verify_key("other")


DEFECTS: dict[str, list[Defect]] = {
    "1": [too_large],
    "3": [long_head, negative_number, trailing_byte, false_as_auth_ref],
    "4": [long_label, short_signature, short_auth_ref, long_hdr_len],
    "5": [another_version],
    "6": [another_profile],
    "6a": [non_zero_padding, odd_length],
    "7": [another_ct_hash],
    "9": [bad_signature, another_client],
}
ROWS = {row.row: row.detail for row in ADMISSION_TABLE}
ALL = [(row, defect) for row, defects in DEFECTS.items() for defect in defects]


def test_a_message_without_defects_is_admitted() -> None:
    assert Draft().admit() == Msg.decode(Draft().encode())
    assert Draft().encode() == msg().encode()


@pytest.mark.parametrize(("row", "defect"), ALL)
def test_each_defect_alone_is_told_by_its_row(row: str, defect: Defect) -> None:
    draft = Draft()
    defect(draft)
    with refused(ROWS[row]) as caught:
        draft.admit()
    stages = {"1": Stage.PREFILTER, "9": Stage.AUTH}
    assert caught.value.stage == stages.get(row, Stage.STRUCTURAL)


PAIRS = [
    pytest.param(*first, *second, id=f"{first[1].__name__}-{second[1].__name__}")
    for first, second in combinations(ALL, 2)
    if first[0] != second[0]
]


@pytest.mark.parametrize(("row", "defect", "later_row", "other"), PAIRS)
def test_of_two_defects_the_earlier_row_is_told(
    row: str, defect: Defect, later_row: str, other: Defect
) -> None:
    assert list(ROWS).index(row) < list(ROWS).index(later_row)
    for order in ((defect, other), (other, defect)):
        draft = Draft()
        for change in order:
            change(draft)
        with refused(ROWS[row]):
            draft.admit()


def test_of_any_set_of_defects_the_earliest_row_is_told() -> None:
    firsts = [(row, defects[0]) for row, defects in DEFECTS.items()]
    for number in range(3, len(firsts) + 1):
        for chosen in combinations(firsts, number):
            draft = Draft()
            for _, defect in chosen:
                defect(draft)
            with refused(ROWS[chosen[0][0]]):
                draft.admit()


def test_the_same_order_holds_inside_a_submit_request() -> None:
    for first, second in combinations(ALL, 2):
        if "1" in (first[0], second[0]) or trailing_byte in (first[1], second[1]) or first[0] == second[0]:
            continue
        draft = Draft()
        first[1](draft)
        second[1](draft)
        data = bytes.fromhex("a2010102") + draft.encode()
        with refused(ROWS[first[0]]):
            authenticate(read_request(Sized(data), RULES))


# --- rows 6 and 6a ------------------------------------------------------------------------------------------


def test_each_message_is_judged_by_the_padding_of_its_own_profile() -> None:
    served = [profile(pad_block=0), profile(pad_block=256), profile(pad_block=1024)]
    rules = MessageRules(DEFAULT_LIMITS, {item.profile_id: item.pad_block for item in served})
    for item in served:
        size = max(item.pad_block, 300)
        made = Draft(profile_id=item.profile_id, ciphertext=bytes(size))
        if item.pad_block and size % item.pad_block:
            with refused(Detail.CT_PADDING, field="ciphertext"):
                read_msg(Sized(made.encode()), rules)
        else:
            read_msg(Sized(made.encode()), rules)


def test_an_unknown_profile_is_named_in_the_refusal() -> None:
    with refused(Detail.PROFILE, field="profile_id") as caught:
        read_msg(Sized(Draft().encode()), MessageRules(DEFAULT_LIMITS, {}))
    assert caught.value.fields["actual"] == PROFILE.profile_id


def test_the_verdict_is_the_same_every_time() -> None:
    draft = Draft()
    another_ct_hash(draft)
    verdicts = set()
    for _ in range(3):
        with refused(Detail.CT_HASH) as caught:
            read_msg(Sized(draft.encode()), RULES)
        verdicts.add(str(caught.value))
    assert len(verdicts) == 1
