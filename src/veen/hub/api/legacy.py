"""Reads through the paths of older releases, whose parameters are in the URL."""

from veen.core.api.tooling import CheckpointLatestRequest, CheckpointRangeRequest
from veen.core.encoding.wire_object import encode_sequence
from veen.core.types import Label, StreamId
from veen.hub.api.parameters import hex32, number
from veen.hub.api.read import ReadHandlers
from veen.net.http_message import CBOR, CBOR_SEQ, Request, Response
from veen.storage.read.requests import ReadRequests


class LegacyHandlers:
    """Handlers of these paths, on top of the current read handlers."""

    def __init__(self, requests: ReadRequests, reads: ReadHandlers) -> None:
        self._requests = requests
        self._reads = reads

    def stream(self, request: Request) -> Response | None:
        """Return entries of a label as a CBOR sequence."""
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
        """Return the newest checkpoint of a label."""
        label = Label(hex32(request.query.get("label", ""), "label"))
        return self._reads.read(
            request,
            lambda: self._requests.checkpoint_latest(CheckpointLatestRequest(label=label)).checkpoint,
            lambda checkpoint: Response(200, checkpoint.encode(), CBOR),
        )

    def checkpoint_range(self, request: Request) -> Response | None:
        """Return the checkpoints of a stream in a range of epochs."""
        query = request.query
        epochs = CheckpointRangeRequest(
            stream_id=StreamId(hex32(query.get("stream_id", ""), "stream_id")),
            epoch_min=number(query.get("epoch_min", "0"), "epoch_min"),
            epoch_max=number(query.get("epoch_max", "0"), "epoch_max"),
        )
        return self._reads.read(
            request,
            lambda: self._requests.checkpoint_range(epochs).checkpoints,
            lambda checkpoints: Response(200, encode_sequence(checkpoints), CBOR_SEQ),
        )
