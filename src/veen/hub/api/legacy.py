"""Reads by the paths of older releases, whose parameters stand in the URL."""

from veen.core.api.tooling import CheckpointLatestRequest, CheckpointRangeRequest
from veen.core.encoding.wire_object import encode_sequence
from veen.core.types import Label, StreamId
from veen.hub.api.parameters import hex32, number
from veen.hub.api.read import ReadHandlers
from veen.net.http_message import CBOR, CBOR_SEQ, Request, Response
from veen.storage.read.requests import ReadRequests


class LegacyHandlers:
    """Answers them as the reads of today are answered."""

    def __init__(self, requests: ReadRequests, reads: ReadHandlers) -> None:
        self._requests = requests
        self._reads = reads

    def stream(self, request: Request) -> Response | None:
        """Answer with entries of a label, one CBOR item after the other."""
        query = request.query
        label = Label(hex32(query.get("label", ""), "label"))
        start = number(query.get("from", "1"), "from")
        with_proof = query.get("with_proof", "0") == "1"
        return self._reads.read(
            request,
            lambda: self._requests.sequence(label, start, with_proof=with_proof),
            lambda body: Response(200, body, CBOR_SEQ),
        )

    def checkpoint_latest(self, request: Request) -> Response | None:
        """Answer with the newest checkpoint of a label."""
        label = Label(hex32(request.query.get("label", ""), "label"))
        return self._reads.read(
            request,
            lambda: self._requests.checkpoint_latest(CheckpointLatestRequest(label=label)).checkpoint,
            lambda found: Response(200, found.encode(), CBOR),
        )

    def checkpoint_range(self, request: Request) -> Response | None:
        """Answer with the checkpoints of a stream in a range of epochs."""
        query = request.query
        asked = CheckpointRangeRequest(
            stream_id=StreamId(hex32(query.get("stream_id", ""), "stream_id")),
            epoch_min=number(query.get("epoch_min", "0"), "epoch_min"),
            epoch_max=number(query.get("epoch_max", "0"), "epoch_max"),
        )
        return self._reads.read(
            request,
            lambda: self._requests.checkpoint_range(asked).checkpoints,
            lambda found: Response(200, encode_sequence(found), CBOR_SEQ),
        )
