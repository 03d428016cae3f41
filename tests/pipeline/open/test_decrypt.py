"""Opening entries in columns gives what a client's reader gives, and never raises for what was sent."""

import os
import pickle
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import builders
from tests.pipeline.log_builder import Hub, Sent, varied
from veen.client.errors import KeystoreError
from veen.client.home.directory import KEY_FILE, KEYSTORE, ClientHome
from veen.client.keys.keystore import Secrets, StreamKey
from veen.core.crypto.hash import sha256
from veen.core.encoding import cbor
from veen.core.objects import labels
from veen.core.objects.entry import Entry
from veen.core.objects.msg import Msg, MsgContext, PayloadHeader
from veen.core.types import Label, StreamId
from veen.pipeline.fold.inputs import open_records
from veen.pipeline.log.entry_columns import Entries, Frames, parse
from veen.pipeline.log.open import open_log
from veen.pipeline.open.decrypt import SEALED, Opener, aads, body_nonces, open_entries
from veen.pipeline.open.keyring import Keyring, ReaderKeys, load_keyring
from veen.pipeline.open.records import RECORDS, records_of
from veen.pipeline.shared_keys import _keep_off_disk, sharing

STREAM = builders.stream()
LABEL = builders.some_label()
PROFILES = (builders.profile(),)
KEYS = ReaderKeys({STREAM: (bytes(builders.reader_secret()),)}, ())


def sealed(
    client_seq: int = 1,
    *,
    header: PayloadHeader | None = None,
    body: bytes = b"hello",
    reader: str = "reader",
    pad_block: int = 256,
) -> Msg:
    """Return a message sealed to one reader."""
    context = builders.context(client_seq=client_seq, label=LABEL)
    return signed(
        context,
        builders.sealed(context, header=header, body=body, reader=reader, pad_block=pad_block).ciphertext,
    )


def signed(context: MsgContext, ciphertext: bytes) -> Msg:
    return Msg.sign(builders.signing_key(), context, ciphertext)


def entries_of(msgs: Sequence[Msg], label: Label = LABEL) -> Entries:
    """Return entries as a log has them."""
    made = [Entry(msg.encode(), builders.receipt(of=msg, stream_seq=seq)) for seq, msg in enumerate(msgs, 1)]
    return parse(Frames(label, 1, b"".join(entry.encode() for entry in made), "a file", 0))


def opened(*msgs: Msg, keys: ReaderKeys = KEYS, stream: StreamId | None = STREAM) -> list[dict[str, object]]:
    batch = open_entries(entries_of(msgs), keys, PROFILES, stream, 7)
    assert batch.schema == RECORDS
    batch.validate(full=True)
    rows: list[dict[str, object]] = batch.to_pylist()
    return rows


def test_an_entry_becomes_a_row_with_all_that_its_sender_and_the_hub_said() -> None:
    header = PayloadHeader(
        schema=labels.schema_id("chat.v1"), parent_id=builders.leaf(1), expires_at=2**64 - 1
    )
    msg = sealed(header=header, body=b"\x01")
    (row,) = opened(msg)
    assert {name: value for name, value in row.items() if value is not None} == {
        "stream_id": STREAM,
        "epoch": 7,
        "label": LABEL,
        "stream_seq": 1,
        "msg_id": msg.leaf_hash,
        "client_id": msg.client_id,
        "client_seq": 1,
        "hub_ts": 1_700_000_000,
        "receipt_id": sha256(builders.receipt(of=msg).encode()),
        "schema": labels.schema_id("chat.v1"),
        "parent_id": builders.leaf(1),
        "expires_at": 2**64 - 1,
        "body": b"\x01",
    }


def test_folds_see_the_same_records() -> None:
    msg = sealed(body=b"\x01")
    (record,) = records_of(open_entries(entries_of([msg]), KEYS, PROFILES, STREAM, 7))
    assert (record.msg_id, record.body, record.epoch) == (msg.leaf_hash, b"\x01", 7)
    assert record.expires_at is None


def test_what_is_sealed_for_somebody_else_is_kept_with_the_reason() -> None:
    rows = opened(sealed(1), sealed(2, reader="stranger"), sealed(3))
    assert [row["reason"] for row in rows] == [None, SEALED, None]
    assert [row["schema"] is None for row in rows] == [False, True, False]
    assert [row["body"] for row in rows] == [b"hello", b"", b"hello"]


def test_keys_of_other_streams_are_not_tried_unless_the_stream_is_not_known() -> None:
    other = ReaderKeys({builders.stream("other"): (bytes(builders.reader_secret()),)}, ())
    assert [row["reason"] for row in opened(sealed(), keys=other)] == [SEALED]
    assert [row["reason"] for row in opened(sealed(), keys=other, stream=None)] == [None]


def test_a_readers_own_keys_open_messages_of_any_stream() -> None:
    own = ReaderKeys({}, (bytes(builders.reader_secret("nobody")), bytes(builders.reader_secret())))
    assert [row["reason"] for row in opened(sealed(1), sealed(2), keys=own)] == [None, None]


def test_no_keys_open_nothing_and_fail_nothing() -> None:
    assert [row["reason"] for row in opened(sealed(), keys=ReaderKeys({}, ()))] == [SEALED]


def test_whatever_a_sender_has_written_is_a_row_with_a_reason() -> None:
    context = builders.context(label=LABEL)
    whole = builders.sealed(context).ciphertext
    body_at = 40 + int.from_bytes(whole[32:36], "big")
    broken_body = bytearray(whole)
    broken_body[body_at] ^= 1
    zero_point = bytes(32) + whole[32:]
    other_profile = builders.context(label=LABEL, profile_id=builders.profile(pad_block=512).profile_id)
    listed = cbor.encode({"attachments": [{"coid": builders.digest("file"), "name": "", "size": 3}]})
    rows = opened(
        signed(context, bytes(broken_body)),
        signed(context, zero_point),
        signed(other_profile, builders.sealed(other_profile, pad_block=512).ciphertext),
        sealed(header=PayloadHeader(schema=labels.schema_id("x"), cap_ref=builders.cap_token().auth_ref)),
        sealed(body=listed),
        sealed(body=cbor.encode({"attachments": [5]})),
        sealed(body=b"\xff\x00 no CBOR"),
        sealed(body=b""),
    )
    assert [row["reason"] and str(row["reason"]).partition(" [")[0] for row in rows] == [
        "does not open: body does not open with this key",
        SEALED,
        f"does not open: the hub does not serve profile {other_profile.profile_id.hex()}",
        "cap_ref does not match the auth_ref of the message",
        "att_root does not match the attachments",
        "the body declares an attachment without id or size",
        None,
        None,
    ]
    # What was opened is there for folds, as it is for a client; only its reason warns.
    assert [row["schema"] is not None for row in rows] == [False, False, False, True, True, True, True, True]


def test_many_at_once_are_opened_as_one_by_one(tmp_path: Path) -> None:
    hub = varied(tmp_path / "hub", 40)
    hub.send("beta", [Sent(b"\x01", schema=labels.schema_id("x"), expires_at=9), Sent(b"a", reader="nobody")])
    hub.send("beta", [Sent(cbor.encode({"attachments": [5]})), Sent(b"", parent_id=builders.leaf(1))])
    hub.close()
    log = open_log(str(hub.root))
    keys = [builders.reader_key("nobody else"), builders.reader_key()]
    for part in log.plan():
        entries = parse(part.read())
        msgs = [Msg.decode(entries.msg_bytes(nth)) for nth in range(len(entries))]
        assert aads(entries) == [msg.context.aad() for msg in msgs]
        assert body_nonces(entries) == [msg.context.body_nonce() for msg in msgs]
        alone = Opener(keys, log.profiles)
        assert Opener(keys, log.profiles).open_all(entries) == [alone.open(msg) for msg in msgs]
    log.close()


# --- keyrings -----------------------------------------------------------------------------------------------


def secrets_with(stream: StreamId = STREAM) -> Secrets:
    return Secrets.generate(os.urandom, 1_000).with_stream(
        StreamKey(stream_id=stream, secret=builders.reader_secret(), created_at=1)
    )


def test_a_keyring_is_a_clients_directory_or_its_keystore_or_a_copy_of_it(tmp_path: Path) -> None:
    secrets = secrets_with()
    ClientHome.create(tmp_path / "me", secrets, now=1_000)
    (tmp_path / "copy.enc").write_bytes((tmp_path / "me" / KEYSTORE).read_bytes())
    (tmp_path / "copy.key").write_bytes((tmp_path / "me" / KEY_FILE).read_bytes())
    for place in (tmp_path / "me", tmp_path / "me" / KEYSTORE, tmp_path / "copy.enc"):
        found = load_keyring(place).reader_keys()
        assert [key.public_key for key in found.of(STREAM)] == [
            key.public_key for key in secrets.reader_keys(STREAM)
        ]
        assert {key.public_key for key in found.of(None)} == {
            key.public_key for key in secrets.all_reader_keys()
        }


def test_a_keyring_under_a_passphrase_asks_for_it(tmp_path: Path) -> None:
    ClientHome.create(tmp_path, secrets_with(), now=1_000, passphrase=b"a long one")
    (tmp_path / "copy.enc").write_bytes((tmp_path / KEYSTORE).read_bytes())
    for place in (tmp_path, tmp_path / "copy.enc"):
        assert load_keyring(place, lambda: b"a long one").reader_keys().shared
        with pytest.raises(KeystoreError, match="passphrase"):
            load_keyring(place)
        with pytest.raises(KeystoreError, match="does not open"):
            load_keyring(place, lambda: b"another")


def test_what_is_no_keyring_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(KeystoreError, match="cannot be read"):
        load_keyring(tmp_path / "nothing.enc")
    (tmp_path / "noise.enc").write_bytes(b"noise")
    with pytest.raises(KeystoreError, match="is not a keystore"):
        load_keyring(tmp_path / "noise.enc")


def test_keys_that_read_hold_no_key_that_signs_and_show_nothing() -> None:
    secrets = secrets_with()
    keys = Keyring(secrets).reader_keys()
    travelling = pickle.dumps(keys)
    assert secrets.id_sign not in travelling
    assert all(key.seed not in travelling for key in secrets.clients)
    for text in (repr(keys), str(keys), repr(Keyring(secrets))):
        assert bytes(builders.reader_secret()).hex() not in text
        assert repr(bytes(builders.reader_secret()))[2:-1] not in text


# --- in tasks -----------------------------------------------------------------------------------------------


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    made = varied(tmp_path / "hub", 40)
    made.leave()
    return made


def test_tasks_open_what_one_process_opens_for_any_number_of_parts(spark: SparkSession, hub: Hub) -> None:
    log = open_log(str(hub.root))
    stream = labels.stream_id("beta")
    keys = Keyring(secrets_with(stream))
    (label,) = log.labels_of(stream).values()
    expected = []
    for part in log.plan({label: (1, 100)}):
        expected += open_entries(parse(part.read()), keys.reader_keys(), log.profiles, stream, 0).to_pylist()
    with sharing(spark, keys) as shared:
        for parts in (1, 7):
            found = open_records(spark, log, stream, shared, parts=parts).toArrow().to_pylist()
            assert sorted(found, key=lambda row: row["stream_seq"]) == expected
        some = open_records(spark, log, stream, shared, ranges={label: (3, 5)}).toArrow()
        assert sorted(some.column("stream_seq").to_pylist()) == [3, 4, 5]
    log.close()
    assert len(expected) == 20


def test_what_is_sent_to_tasks_is_sealed_on_the_disk_and_gone_afterwards(spark: SparkSession) -> None:
    scratch = Path(spark.sparkContext._temp_dir or "")
    secret = bytes(builders.reader_secret())
    with sharing(spark, Keyring(secrets_with())) as shared:
        written = [path for path in scratch.rglob("*") if path.is_file()]
        assert written
        assert not any(secret in path.read_bytes() for path in written)
        count = (
            spark.sparkContext.parallelize([1, 2], 2).map(lambda _: len(shared.open().of(STREAM))).collect()
        )
        assert count == [3, 3]
        assert secret.hex() not in repr(shared)
    assert not any(path.exists() for path in written)


def test_what_a_task_has_with_it_on_a_cluster_is_in_no_file_however_large_it_is(spark: SparkSession) -> None:
    """So travels what opens the sealed keys; on this machine it does not."""
    places = [Path(spark.sparkContext._temp_dir or ""), Path(spark.conf.get("spark.local.dir") or "")]
    ballast, opens = os.urandom(2 << 20), os.urandom(32)
    _keep_off_disk(spark.sparkContext)
    tasks = spark.sparkContext.parallelize([1, 2], 2)
    # As they are sent: with all that they refer to.
    found = tasks.map(lambda _: (len(opens), len(ballast))).collect()
    written = [path for place in places for path in place.rglob("*") if path.is_file()]
    assert found == [(32, 2 << 20)] * 2
    assert written
    assert not any(opens in path.read_bytes() for path in written)
