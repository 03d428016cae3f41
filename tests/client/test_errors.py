"""The class of a rejection follows from the bytes of the hub's answer."""

import pytest

from veen.client.errors import EpochError, PrunedByHubError, RejectedError, rejection_of
from veen.core.errors import Code, Detail, ProtocolError, PrunedError, not_found
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.storage.errors import PrunedEntryError


def test_a_pruned_entry_is_the_same_error_from_files_and_from_a_hub() -> None:
    local = PrunedEntryError("entry 3 was pruned")
    assert isinstance(local, PrunedError)
    envelope = ErrorEnvelope.of(local)
    assert envelope == ErrorEnvelope.of(not_found("pruned", "entry 3 was pruned")), "frozen"
    remote = rejection_of(ErrorEnvelope.decode(envelope.encode()))
    assert isinstance(remote, PrunedError)
    assert (remote.code, remote.field("field")) == ("E.NOT_FOUND", "pruned")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PrunedEntryError("entry 3 was pruned"), PrunedByHubError),
        (not_found("stream_seq", "there is no entry 3"), RejectedError),
        (ProtocolError(Detail.VALUE, "wrong", field="pruned"), RejectedError),
        (ProtocolError(Detail.EPOCH, "long ago"), EpochError),
        (ProtocolError(Detail.CAP_TTL, "expired"), RejectedError),
        (ProtocolError(Detail.EPOCH, "long ago", code=Code.BAD_REQUEST), RejectedError),
    ],
)
def test_a_rejection_is_of_the_class_that_programs_branch_on(
    error: ProtocolError, kind: type[RejectedError]
) -> None:
    rejected = rejection_of(ErrorEnvelope.of(error))
    assert type(rejected) is kind
    assert rejected.envelope == ErrorEnvelope.of(error)
