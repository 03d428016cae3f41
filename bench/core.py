"""Cost of the core library, compared with the bare primitives that it needs."""

import os
from collections.abc import Iterator
from itertools import cycle

import cbor2
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_encrypt,
    crypto_scalarmult,
    crypto_scalarmult_base,
    crypto_sign,
    crypto_sign_open,
    crypto_sign_seed_keypair,
)
from pyhpke import AEADId, CipherSuite, KDFId, KEMId

from bench.measure import Work
from veen.core.crypto import hpke
from veen.core.crypto.ed25519 import SigningKey
from veen.core.merkle.consistency import ConsistencyProof, prove_consistency
from veen.core.merkle.inclusion import MmrProof, Step
from veen.core.merkle.mmr import Peaks, complete_nodes, parent, read_peaks
from veen.core.objects import labels
from veen.core.objects.msg import Msg, MsgContext, PayloadHeader
from veen.core.objects.receipt import Receipt
from veen.core.objects.sealed_payload import open_msg, seal
from veen.core.profile import Profile
from veen.core.types import LeafHash, NodeHash, ReaderSecretKey, VerifyKey

PROFILE = Profile(epoch_sec=0, pad_block=256)
BODY = bytes(200)
PROOF_SIZE = 2**20


class Subjects:
    """One writer, one reader and one message, and everything that is measured with them."""

    def __init__(self) -> None:
        """Create the keys and messages that are measured."""
        self.seed = os.urandom(32)
        self.key = SigningKey.from_seed(self.seed)
        self.reader = hpke.ReaderKey.from_secret(ReaderSecretKey(os.urandom(32)))
        self.reader_pk = self.reader.public_key
        self.header = PayloadHeader(schema=labels.schema_id("chat.v1"))
        self.profile_id = PROFILE.profile_id
        routing = labels.routing_key(labels.hub_id(self.key.public_key))
        self.label = labels.label(routing, labels.stream_id("bench"), 0)
        self.msg = self._message(pad_block=0, body=bytes(278))
        assert 590 <= len(self.msg.encode()) <= 610, "the target names a message of 600 bytes"

    def _message(self, pad_block: int, body: bytes) -> Msg:
        context = MsgContext(
            profile_id=self.profile_id,
            label=self.label,
            client_id=self.key.public_key,
            client_seq=1000,
            prev_ack=999,
            auth_ref=None,
        )
        sealed = seal(
            context,
            recipient=self.reader_pk,
            header=self.header,
            body=body,
            pad_block=pad_block,
            random=os.urandom,
        )
        return Msg.sign(self.key, context, sealed.ciphertext)

    def works(self) -> dict[str, Work]:
        """Return everything that is timed, by name."""
        return {
            **self._primitives(),
            **self._message_works(),
            **self._merkle_works(),
            **self._peers(),
        }

    def _primitives(self) -> dict[str, Work]:
        public, secret = crypto_sign_seed_keypair(self.seed)
        digest, key, scalar = os.urandom(32), os.urandom(32), os.urandom(32)
        signed = crypto_sign(digest, secret)
        header = self.header.encode()

        def primitives_of_a_message() -> None:
            """Run the primitives that sealing and signing need, in the same order."""
            crypto_scalarmult_base(os.urandom(32))
            crypto_scalarmult(scalar, self.reader_pk)
            ChaCha20Poly1305(key).encrypt(bytes(12), header, digest)
            crypto_aead_xchacha20poly1305_ietf_encrypt(BODY, digest, bytes(24), key)
            crypto_sign(digest, secret)

        return {
            "bare verify": lambda: crypto_sign_open(signed, public),
            "bare sign": lambda: crypto_sign(digest, secret),
            "bare x25519 exchange": lambda: crypto_scalarmult(scalar, self.reader_pk),
            "bare primitives": primitives_of_a_message,
        }

    def _message_works(self) -> dict[str, Work]:
        data = self.msg.encode()
        receipt = Receipt.sign(
            self.key,
            label=self.label,
            stream_seq=1000,
            leaf_hash=self.msg.leaf_hash,
            mmr_root=NodeHash(os.urandom(32)),
            hub_ts=1_700_000_000,
        )
        receipt_data = receipt.encode()
        return {
            "decode MSG": lambda: Msg.decode(data),
            "verify MSG": lambda: Msg.decode(data).verify(),
            "seal + sign": lambda: self._message(PROFILE.pad_block, BODY),
            "open MSG": lambda: open_msg(self.msg, self.reader, pad_block=0),
            "sign RECEIPT": lambda: Receipt.sign(
                self.key,
                label=receipt.label,
                stream_seq=receipt.stream_seq,
                leaf_hash=receipt.leaf_hash,
                mmr_root=receipt.mmr_root,
                hub_ts=receipt.hub_ts,
            ),
            "verify RECEIPT": lambda: Receipt.decode(receipt_data).verify_signature(
                VerifyKey(self.key.public_key)
            ),
        }

    def _merkle_works(self) -> dict[str, Work]:
        appends = _appends()
        leaf, proof, root, seq = _inclusion_at(PROOF_SIZE)
        proof_data = proof.encode()
        nodes = complete_nodes(os.urandom(32) for _ in range(4096))
        old, new = 1365, 4096  # an alternating bit pattern: many old peaks and many siblings
        history = prove_consistency(nodes.__getitem__, old_size=old, new_size=new)
        roots = [_root_at(nodes, size) for size in (old, new)]
        assert isinstance(history, ConsistencyProof)
        return {
            "MMR append + root": lambda: next(appends),
            "verify inclusion": lambda: proof.verify(root, leaf, stream_seq=seq, mmr_size=PROOF_SIZE),
            "decode + verify inclusion": lambda: MmrProof.decode(proof_data).verify(
                root, leaf, stream_seq=seq, mmr_size=PROOF_SIZE
            ),
            "verify consistency": lambda: history.verify(
                old_root=roots[0], old_size=old, new_root=roots[1], new_size=new
            ),
        }

    def _peers(self) -> dict[str, Work]:
        data = self.msg.encode()
        suite = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.CHACHA20_POLY1305)
        recipient = suite.kem.deserialize_public_key(self.reader_pk)
        aad, plain = os.urandom(32), self.header.encode()

        def pyhpke_seal() -> bytes:
            _, ctx = suite.create_sender_context(recipient)
            return ctx.seal(plain, aad) + ctx.export(b"veen/body-k", 32)

        def our_seal() -> bytes:
            _, ctx = hpke.setup_sender(self.reader_pk, ReaderSecretKey(os.urandom(32)))
            return ctx.seal(aad, plain) + ctx.export(b"veen/body-k")

        return {
            "HPKE seal + export": our_seal,
            "pyhpke seal + export": pyhpke_seal,
            "cbor2 loads + dumps": lambda: cbor2.dumps(cbor2.loads(data)),
        }


def _appends() -> Iterator[bytes]:
    """Append leaves to a range of about a million, endlessly, and yield the root after each."""
    start = Peaks(PROOF_SIZE - 1, tuple(NodeHash(os.urandom(32)) for _ in range(20)))
    leaves = cycle([os.urandom(32) for _ in range(997)])
    peaks = start
    for leaf in leaves:
        peaks = peaks.append(leaf)
        yield peaks.root


def _inclusion_at(size: int) -> tuple[LeafHash, MmrProof, bytes, int]:
    """Create a proof at a power of two without its million leaves: the siblings can be arbitrary."""
    seq = size // 3 * 2
    leaf = LeafHash(os.urandom(32))
    acc = NodeHash(leaf)
    path = []
    for level in range(size.bit_length() - 1):
        step = Step(dir=(seq - 1) >> level & 1, sib=NodeHash(os.urandom(32)))
        acc = parent(step.sib, acc) if step.dir else parent(acc, step.sib)
        path.append(step)
    return leaf, MmrProof(leaf_hash=leaf, path=tuple(path), peaks_after=(acc,)), acc, seq


def _root_at(nodes: list[NodeHash], size: int) -> bytes:
    return read_peaks(nodes.__getitem__, size).root
