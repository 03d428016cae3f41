"""Facts that were published before these vectors, as a table: name, value, what the library computes.

They stand here in full and by hand, so that a generator that goes wrong together with the library is noticed.
"""

from collections.abc import Callable

import pytest

from veen.core.crypto.hash import sha256, tagged_hash, u64be
from veen.core.merkle.mmr import Peaks, fold_peaks
from veen.core.objects import labels
from veen.core.objects.attachment import EMPTY_ATT_ROOT, att_root
from veen.core.objects.msg import Msg, MsgContext
from veen.core.profile import Profile
from veen.core.types import Coid, Label, NodeHash, ProfileId, RoutingKey, Signature, VerifyKey

Compute = Callable[[], bytes]

COUNTING = bytes(range(32))
ZERO_KEY = RoutingKey(bytes(32))
TEST_STREAM = labels.stream_id("test")


def _repeat(byte: int) -> bytes:
    return bytes([byte]) * 32


def _realm(name: str) -> bytes:
    return tagged_hash("id/realm", name.encode())


def _body_nonce() -> bytes:
    context = MsgContext(
        profile_id=ProfileId(_repeat(1)),
        label=Label(_repeat(2)),
        client_id=VerifyKey(_repeat(3)),
        client_seq=9,
        prev_ack=4,
        auth_ref=None,
    )
    return context.body_nonce()


def _leaf() -> bytes:
    msg = Msg(
        profile_id=ProfileId(_repeat(2)),
        label=Label(_repeat(1)),
        client_id=VerifyKey(_repeat(4)),
        client_seq=7,
        prev_ack=0,
        auth_ref=None,
        ct_hash=_repeat(3),
        ciphertext=b"",
        sig=Signature(bytes(64)),
    )
    return msg.leaf_hash


def _root(*leaves: bytes) -> bytes:
    peaks = Peaks.empty()
    for leaf in leaves:
        peaks = peaks.append(leaf)
    return peaks.root


HASHES: list[tuple[str, str, Compute]] = [
    (
        "Ht of hello world",
        "01a569ebb69ddd4d66e648a0fbe6247a36b27f1d08e18d08ff7b3bac14869483",
        lambda: tagged_hash("veen/profile", b"hello world"),
    ),
    (
        "hub_id",
        "ea9b65369153415467c6685b12a1b568cd744c37b8ea56a52faa00a9180b5db9",
        lambda: labels.hub_id(VerifyKey(COUNTING)),
    ),
    (
        "revocation stream of a realm",
        "e571cba547e810c9274cdd56361793f93d5de250f589cfc27e9b46b3f0728af8",
        lambda: tagged_hash("veen/revocation", COUNTING),
    ),
    (
        "schema stream of a realm",
        "20e9eec16bda9716ffa61fa2b2386eaf4f0be0c54253bffcc37554494b91ba44",
        lambda: tagged_hash("veen/meta-schema", COUNTING),
    ),
    (
        "realm",
        "b96ac967daa5dc5fd77efff16628298b34a2b0edfa40c0a2e258256e43f92d05",
        lambda: _realm("example-app"),
    ),
    (
        "context of a principal",
        "248ed2b879e6791ff78a1a7d5949c6b1b10b8ed7cb6b44475bb5c9e667c38925",
        lambda: tagged_hash("id/ctx", bytes(range(0x20, 0x40)) + _realm("example-app")),
    ),
    (
        "organisation",
        "4fd8609829217b7d2c52e8c4d7ca861f8308b316732a6711169b09845eeda3c3",
        lambda: tagged_hash("id/org", bytes(range(0x40, 0x60))),
    ),
    (
        "group",
        "10ccaf3dcf3cd903a9c965a6d48c05f15ae1cfc3f2922d693834875aab8027f5",
        lambda: tagged_hash("id/group", tagged_hash("id/org", bytes(range(0x50, 0x70))) + b"ops"),
    ),
    (
        "stream of a context",
        "dcc4c86546883481809d51b2cf22026fe86fc17c86f1b14ddef5d2e6023a02b9",
        lambda: tagged_hash(
            "id/stream/ctx",
            bytes.fromhex("be51710dca4b3e55af5447624fa32d9b7d621256d4ec5bb09728b9983492142c")
            + _realm("default"),
        ),
    ),
    (
        "stream of handles",
        "28b010f432a4550fb166aac6602560ae3157e9be5712ad0ff57c610a2fb80fba",
        lambda: tagged_hash("id/stream/handle", _realm("default")),
    ),
    (
        "stream of a wallet",
        "d28b211bb167c0ff745302308f7fb8601ee29130a82b9e8c2d3bde0eb295a4bf",
        lambda: tagged_hash(
            "wallet/stream", tagged_hash("wallet/id", _realm("realm-x") + _repeat(0x22) + b"JPY")
        ),
    ),
    (
        "operation of a message",
        "0b291b5d828323fb4427604f8875c0e97f8a14f2f05d08edba7fdfdae37a95dc",
        lambda: tagged_hash("veen/operation-id", bytes(range(0x10, 0x30))),
    ),
    (
        "revocation target of a token",
        "ba6a26d720dad89256e641f9cec09f0a1ff551547061106986ca264adb7e6d26",
        lambda: sha256(bytes([0xAB]) * 42),
    ),
    (
        "leaf_hash",
        "88d7f89cf38efb492ab530003a4cfc802e10546defecef40cbf262dbb5710ef6",
        _leaf,
    ),
    (
        "body nonce",
        "758f0554f4a06ff943668724a73dc72b515a33cb647d1e12",
        _body_nonce,
    ),
    (
        "att_root of two",
        "cd9e4c6ae0d14924ff9eb6808995f5c71744185619439697a6eb7b6779fecd4a",
        lambda: att_root([Coid(sha256(b"cipher-1")), Coid(sha256(b"cipher-2"))]),
    ),
    (
        "peak of two attachments",
        "0a84f4da493fcf63a4d67e37d2ff4549db108511de76d40f2d4fc8b62d67c619",
        lambda: tagged_hash("veen/att-node", sha256(b"cipher-1") + sha256(b"cipher-2")),
    ),
    (
        "att_root of none",
        "d8502e2b7365f07d065ff0ef5d1237b733d31554ac4b5e7dd806b6e15552d311",
        lambda: EMPTY_ATT_ROOT,
    ),
    (
        "root of a lone peak",
        "aa" * 32,
        lambda: fold_peaks((NodeHash(_repeat(0xAA)),)),
    ),
    (
        "root of three peaks",
        "68151d9febdbbbd032781dbcb986ea068e573f0a1f000f5b039dbe3bbd04ed23",
        lambda: fold_peaks(tuple(NodeHash(_repeat(byte)) for byte in (0x11, 0x22, 0x33))),
    ),
    (
        "root of two leaves",
        "139bd55e8a333c11b9bc6d84b339c81fba08e30f4cf5ad6d9c9838cc40583a4f",
        lambda: _root(_repeat(0x11), _repeat(0x22)),
    ),
    (
        "root of three leaves",
        "0d7f9fccb684b29acfe6d51aa0f445eef662a75f2d8225337bdaadd9550149a5",
        lambda: _root(_repeat(0x11), _repeat(0x22), _repeat(0x33)),
    ),
    (
        "stream_id of test",
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        lambda: TEST_STREAM,
    ),
    (
        "label in epoch 0",
        "2ed0dbcbbecf93de9c71f533cdd7568b342e702471b00d4a40831697f85ff83a",
        lambda: labels.label(ZERO_KEY, TEST_STREAM, 0),
    ),
    (
        "label in epoch 1",
        "c5015f244f150fffbb9485f61cebb40879df042117ccc992be3947dbfe966397",
        lambda: labels.label(ZERO_KEY, TEST_STREAM, 1),
    ),
]


@pytest.mark.parametrize(("expected", "compute"), [row[1:] for row in HASHES], ids=[row[0] for row in HASHES])
def test_hash(expected: str, compute: Compute) -> None:
    assert compute().hex() == expected


SCHEMAS = {
    "veen.label.class.v1": "a5329b5c86c5aa57419443be2bd881d1a74d1fe4e5b441e2bfe40072c0b3d735",
    "veen.fed.authority.v1": "90be86c2cbef28467387b4c22a6b1185de7a2f57028cb4f125ef01d41c632c29",
    "id.handlemap.v1": "7454d511ff991578e29b354a41c8b9277c83a8fb692b4e7186ebe4b33b6e9c88",
    "wallet.open.v1": "f1b37e207e51e78a9f83b076ad5d14edf9b811a9805d2dc403e2082f9c924aea",
    "wallet.deposit.v1": "ed055113927b800be6ce91f71a5fa939cfd55e0142e37bff205e12fadde2020e",
    "wallet.transfer.v1": "5350cf85e6e0438ed34db22694c3f142903719135aed659f2401fcbaff983911",
    "wallet.limit.v1": "61758374a8474b4154f301603c3519d7cbd8eb1f760aed05dddf57b6133c3979",
    "wallet.unfreeze.v1": "756d26e8117efc3327584092d73c34d441ea1a0ee8c53b0566abb00611027312",
    "access.grant.v1": "d069a2baa097837df1e6fc27f07a43ac9b9ed6717ac71f2dd72f977685d7c8c0",
    "delegated.execution.v1": "69ceb5040a2b77e7d674c5d267f59c5c4ac6d5e4783ec1135b3babf921e38356",
    "agreement.confirmation.v1": "21b3cccd9b213437d20e570fe99a0c809a54822e3c0c1367f82a0b06308803d2",
    "state.checkpoint.v1": "38d54b9a599a8b6fbd433b715fb23999bb37b12a0f1b62a8e7505e58cd462788",
    "recovery.approval.v1": "b7c21bd0ea5c615f490cf369a26c4f7f7545dcf2692e04824626c26ae74c15f7",
    "query.audit.v1": "9acfbdd772c4fae67434622bb786f071fd8f385f9435b00835b5c9f791f7e6ae",
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_schema_id(name: str) -> None:
    assert labels.schema_id(name).hex() == SCHEMAS[name]


PROFILE_IDS = {
    (0, 0): "7b6d324dfa79bdc2928558b784ca937eae43f94534dbe8ad2693ae2033240be1",
    (60, 0): "d0b01ec0b591c1678c64f2bd6cd9e7d8b3e56f6cd839cb66c0d099299a961281",
    (60, 256): "1db91032b4bf4cd8b9f56a782b299458e6f782d3a1276f04c50c7b02651038ca",
}
PROFILES = {
    (60, 0): (
        "a80171786368616368613230706f6c7931333035026b686b64662d73686132353603676564323535313904667832353531390578"
        "235832353531392d484b44462d5348413235362d4348414348413230504f4c593133303506183c07000866736861323536"
    ),
    (60, 256): (
        "a80171786368616368613230706f6c7931333035026b686b64662d73686132353603676564323535313904667832353531390578"
        "235832353531392d484b44462d5348413235362d4348414348413230504f4c593133303506183c071901000866736861323536"
    ),
}


@pytest.mark.parametrize("numbers", PROFILE_IDS)
def test_profile_id(numbers: tuple[int, int]) -> None:
    profile = Profile(epoch_sec=numbers[0], pad_block=numbers[1])
    assert profile.profile_id.hex() == PROFILE_IDS[numbers]


@pytest.mark.parametrize("numbers", PROFILES)
def test_profile(numbers: tuple[int, int]) -> None:
    profile = Profile(epoch_sec=numbers[0], pad_block=numbers[1])
    assert profile.encode().hex() == PROFILES[numbers]
    assert len(Profile(epoch_sec=60, pad_block=0).encode()) == 101


MMR_ROOTS = (
    "cd2662154e6d76b2b2b92e70c0cac3ccf534f9b74eb5b89819ec509083d00a50",
    "319edc966d2ddc32a11ac8276f87b948ef00b3b09ef6dbac7339c9e4ad390215",
    "b5570d6d4247f148f0c9822e8b1a439d9d2d11924829b978b937e97198a64dfe",
    "9ca787e5721fe950a9304f32501c704394cbdc99520d693a11467ddfb34beddb",
    "9734f0e36a8c423ffe95ca5d07e6832e6f1fe4e41ea50ad07228d200632dae13",
    "653b6e501b8177acd3d9ec79a7d226584e3427d81bd4c6bfbd0acc273a55fc9a",
    "b07020529eb105e4385ce7e28362652ec26751a049b464a202330f968c6a98db",
    "04f951a08ccdce40664efb1c0fb583cd198389e8c1ad5fa7acf8bebb0fdcc769",
)


@pytest.mark.parametrize("size", range(1, 9))
def test_mmr_root(size: int) -> None:
    leaves = [sha256(u64be(number)) for number in range(1, size + 1)]
    assert _root(*leaves).hex() == MMR_ROOTS[size - 1]


def test_peaks_of_three_leaves_start_with_the_smallest() -> None:
    peaks = Peaks.empty()
    for byte in (0x11, 0x22, 0x33):
        peaks = peaks.append(_repeat(byte))
    assert [peak.hex() for peak in peaks.hashes] == [
        "33" * 32,
        "139bd55e8a333c11b9bc6d84b339c81fba08e30f4cf5ad6d9c9838cc40583a4f",
    ]
