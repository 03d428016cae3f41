"""What the machine sends: a few clients, streams and tokens, and messages that are made once."""

from functools import cache

from tests import builders
from tests.storage.simulation.machine_model import label_of
from tests.storage.stores import TINY, sign_checkpoint
from veen.core.data_dir.store_records import ClientCursor
from veen.core.limits import Limits
from veen.core.objects.msg import Msg
from veen.core.objects.new_entry import NewEntry
from veen.core.types import Label, RandomBytes
from veen.storage.fs import Filesystem
from veen.storage.write.batch import Batch
from veen.storage.write.writer import Options, Writer

CLIENTS = ("x", "y", "z")
STREAMS = tuple(builders.stream(name) for name in ("one", "two", "three"))
DATA = tuple(label_of(stream) for stream in STREAMS)
TOKENS = tuple(
    builders.cap_token(subject=client, streams=("one", "two"), ttl=ttl)
    for client, ttl in zip(CLIENTS, (10, 20, 30), strict=True)
)
LIMITS = (
    TINY,
    Limits(max_msg_bytes=2_000, max_chunk_bytes=2_400, max_checkpoint_interval=6),
    Limits(max_msg_bytes=2_500, max_chunk_bytes=20_000, max_checkpoint_interval=2),
)


@cache
def _message(label: Label, client: str, cursor: ClientCursor, size: int, token: int | None) -> Msg:
    auth_ref = None if token is None else TOKENS[token].auth_ref
    context = builders.context(
        label=label, client=client, client_seq=cursor.client_seq, prev_ack=cursor.prev_ack, auth_ref=auth_ref
    )
    return builders.msg(context, signer=client, body=bytes(size))


def next_message(
    batch: Batch, label: Label, client: str, size: int, token: int | None, *, acknowledges: bool
) -> NewEntry:
    """Return the record of a client's next message, which may acknowledge everything so far."""
    cursor = batch.client(label, builders.verify_key(client))
    prev_ack = batch.head(label).seq if acknowledges else cursor.prev_ack
    return NewEntry.of_msg(
        _message(label, client, ClientCursor(cursor.client_seq + 1, prev_ack), size, token)
    )


def open_at(fs: Filesystem, random: RandomBytes, segment_bytes: int = 1 << 20) -> Writer:
    """Open a writer. No two on one disk may draw the same nonces: ``random`` goes on from one to the next."""
    return Writer.open(
        fs,
        sign_checkpoint=sign_checkpoint,
        random=random,
        owner="a test",
        options=Options(segment_bytes=segment_bytes),
    )
