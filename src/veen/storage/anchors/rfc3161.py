"""Time stamps (RFC 3161): an authority signs the digest and the time; verified offline."""

import http.client
import ssl
from hashlib import sha256
from time import monotonic
from typing import Final
from urllib.parse import urlsplit

from cryptography import x509
from rfc3161_client import (
    HashAlgorithm,
    TimeStampRequest,
    TimestampRequestBuilder,
    TimeStampResponse,
    VerificationError,
    VerifierBuilder,
    decode_timestamp_response,
)

from veen.core.errors import ProtocolError
from veen.core.objects.anchor import MAX_TOKEN_BYTES, RFC3161, AnchorRef, anchor_digest
from veen.core.types import NodeHash
from veen.storage.anchors.backend import Verdict
from veen.storage.errors import AnchorError

TIMEOUT_SEC: Final = 10.0
_QUERY: Final = "application/timestamp-query"
_REPLY: Final = "application/timestamp-reply"
_GRANTED: Final = 0
_SHA256: Final = x509.ObjectIdentifier("2.16.840.1.101.3.4.2.1")


def load_roots(pem: bytes) -> list[x509.Certificate]:
    """Read the trusted root certificates of time stamps."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise AnchorError(f"not a PEM certificate: {error}") from None


class Rfc3161:
    """A time stamp authority at a URL; without ``roots``, its time stamps cannot be verified."""

    name = RFC3161

    def __init__(
        self, url: str, roots: list[x509.Certificate] | None = None, *, timeout_sec: float = TIMEOUT_SEC
    ) -> None:
        self._url = url
        self._roots = roots or []
        self._timeout_sec = timeout_sec

    def close(self) -> None:
        """No effect: there is no connection between requests."""

    # --- publishing -----------------------------------------------------------------------------------------

    def publish(self, root: NodeHash, epoch: int, ts: int, nonce: bytes) -> bytes:
        """Request a time stamp of the digest. One that could not be verified later is rejected now."""
        digest = anchor_digest(root, epoch, ts, nonce)
        request = TimestampRequestBuilder().data(digest).hash_algorithm(HashAlgorithm.SHA256).build()
        try:
            token = self._post(request.as_bytes())
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise AnchorError(f"{self._url} cannot be reached: {why}") from error
        self._check_answer(request, token, digest)
        return AnchorRef(backend=RFC3161, epoch=epoch, ts=ts, nonce=nonce, token=token).encode()

    def _post(self, query: bytes) -> bytes:
        parts = urlsplit(self._url)
        assert parts.hostname, "the configuration has checked it"
        end = monotonic() + self._timeout_sec
        if parts.scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=self._timeout_sec, context=ssl.create_default_context()
            )
        else:
            connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=self._timeout_sec)
        try:
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("POST", target, query, {"content-type": _QUERY, "connection": "close"})
            response = connection.getresponse()
            if response.status != 200:
                raise AnchorError(f"{self._url} answered with status {response.status}")
            if (response.headers.get("content-type") or "").partition(";")[0].strip().lower() != _REPLY:
                raise AnchorError(f"{self._url} returned something other than a time stamp")
            data = b""
            while len(data) <= MAX_TOKEN_BYTES and (more := response.read1(MAX_TOKEN_BYTES)):
                data += more
                if monotonic() > end:  # the socket's timeout is per read; this one is for all
                    raise AnchorError(f"{self._url} did not answer in {self._timeout_sec:g} s")
        finally:
            connection.close()
        if len(data) > MAX_TOKEN_BYTES:
            raise AnchorError(f"{self._url} answered with more than {MAX_TOKEN_BYTES} bytes")
        return data

    def _check_answer(self, request: TimeStampRequest, token: bytes, digest: bytes) -> None:
        try:
            response = decode_timestamp_response(token)
            if response.status != _GRANTED:
                status_text = "; ".join(response.status_string) or f"status {response.status}"
                raise AnchorError(f"{self._url} rejected the request: {status_text[:200]}")
            is_ours = response.tst_info.nonce == request.nonce and _stamps(response, digest)
        except ValueError as error:
            raise AnchorError(f"{self._url} returned something other than a time stamp: {error}") from None
        if not is_ours:
            raise AnchorError(f"{self._url} stamped something other than the request")
        if self._roots:
            verdict = self._verify_response(response, digest)
            if not verdict:
                raise AnchorError(f"the time stamp of {self._url} cannot be verified: {verdict.reason}")

    # --- verifying ------------------------------------------------------------------------------------------

    def verify(self, root: NodeHash, anchor_ref: bytes) -> Verdict:
        """Return whether the time stamp is for this root and chains to one of the certificates; offline."""
        try:
            ref = AnchorRef.decode(anchor_ref)
        except ProtocolError as error:
            return Verdict(ok=False, reason=f"this is not an anchor_ref: {error}")
        if ref.token is None:
            return Verdict(ok=False, reason=f"the anchor is of backend {ref.backend}, not a time stamp")
        digest = ref.digest(root)
        try:
            response = decode_timestamp_response(ref.token)
            if not _stamps(response, digest):
                return Verdict(ok=False, reason="the time stamp is for another root")
        except ValueError as error:
            return Verdict(ok=False, reason=f"the time stamp cannot be parsed: {error}")
        if not self._roots:
            return Verdict(
                ok=False, reason="cannot be verified: the certificate of the time stamp authority is missing"
            )
        return self._verify_response(response, digest)

    def _verify_response(self, response: TimeStampResponse, digest: bytes) -> Verdict:
        # Not with add_root_certificate, which raises on duplicates.
        verifier = VerifierBuilder(roots=list(self._roots)).build()
        try:
            verifier.verify_message(response, digest)
            at = response.tst_info.gen_time
        except (VerificationError, ValueError) as error:
            return Verdict(ok=False, reason=f"the time stamp is not valid: {error}")
        return Verdict(ok=True, reason=f"time stamp of {at:%Y-%m-%dT%H:%M:%SZ}")


def _stamps(response: TimeStampResponse, digest: bytes) -> bool:
    imprint = response.tst_info.message_imprint
    return imprint.hash_algorithm == _SHA256 and imprint.message == sha256(digest).digest()
