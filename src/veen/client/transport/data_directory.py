"""A hub's data directory in place of the hub: the same requests, answered from files while no hub runs."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

from veen.client.effects import Describe, GetAttachment, Query, Request
from veen.client.errors import ClientStateError, DamagedLogError, ReadOnlyError, rejection_of
from veen.client.home.pins import describe_facts
from veen.core.api.data_plane import (
    CheckpointRequest,
    CheckpointResponse,
    ProofRequest,
    ReceiptRequest,
    StreamRequest,
    StreamResponse,
)
from veen.core.api.tooling import (
    CheckpointLatestRequest,
    CheckpointRangeRequest,
    ConsistencyRequest,
    ProofAtRequest,
    StreamEpochsRequest,
)
from veen.core.data_dir import paths
from veen.core.encoding.wire_object import Wire
from veen.core.errors import ProtocolError, not_found
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.core.types import Coid
from veen.storage import NotAStoreError, Reader, RealFilesystem, StorageError
from veen.storage.attachments import read_attachment
from veen.storage.directory import read_identity, read_public
from veen.storage.errors import DamagedStoreError
from veen.storage.read.requests import PageBounds, ReadRequests

_Answers = Mapping[type[Wire], Callable[[Any], Wire]]
# How often the files are polled for new entries.
_LOOK_SEC: Final = 0.2
_BOUNDS: Final = PageBounds(max_items=1000, max_bytes=4 << 20)


@dataclass(frozen=True, slots=True)
class RunningHub:
    """A hub that runs in a directory: its URL, and its Unix socket, if this user may connect to it."""

    url: str
    door: Path | None


def find_running(data_dir: Path) -> RunningHub | None:
    """Return the hub that runs in a directory, or None."""
    try:
        running = json.loads((data_dir / paths.HUB_RUNNING).read_text(encoding="ascii"))
        pid, url = int(running["pid"]), str(running["urls"][0])
        os.kill(pid, 0)
    except PermissionError:
        pass  # it runs as another user
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None
    # A wildcard address includes loopback.
    url = url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
    door = data_dir / paths.ADMIN_SOCKET
    return RunningHub(url, door if os.access(door, os.W_OK) else None)


class DataDirectory:
    """A data directory, of a hub that is not running or a copy; read only."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        if not path.is_dir():
            raise ClientStateError(f"there is no directory {path}")
        self._fs = RealFilesystem(path)
        try:
            self.identity, self._settings = read_public(self._fs)
            signed_identity = read_identity(self._fs)
            assert signed_identity is not None
            self._sig = signed_identity[1]
            self.reader = Reader.open(self._fs)
        except NotAStoreError as error:
            self._fs.close()
            raise ClientStateError(f"{path}: {error}") from None
        except DamagedStoreError as error:
            self._fs.close()
            raise _damaged(error, str(path)) from None
        except (OSError, StorageError) as error:
            self._fs.close()
            raise ClientStateError(f"{path} cannot be read: {error}; run: veen fsck {path}") from None
        reads = ReadRequests(self.reader, self.identity, _BOUNDS)
        self._answers: _Answers = {
            StreamRequest: lambda request: StreamResponse.decode(reads.page(request)),
            ReceiptRequest: reads.receipt,
            ProofRequest: reads.proof,
            ProofAtRequest: reads.proof_at,
            ConsistencyRequest: reads.consistency,
            StreamEpochsRequest: reads.epochs,
            CheckpointLatestRequest: reads.checkpoint_latest,
            CheckpointRangeRequest: reads.checkpoint_range,
            CheckpointRequest: self._checkpoint,
        }

    def close(self) -> None:
        """Close the files."""
        self.reader.close()
        self._fs.close()

    def answer(self, request: Request) -> Any:  # noqa: ANN401 - by the request
        """Answer from the files, as the hub would."""
        try:
            match request:
                case Query() if type(request.request) in self._answers:
                    return self._answer(request)
                case Describe("/tooling/status" | "/tooling/identity"):
                    return describe_facts(self.identity, self._sig, self._settings.profiles)
                case GetAttachment():
                    return read_attachment(self._fs, Coid(request.coid))
        except DamagedStoreError as error:
            raise _damaged(error, self.name) from None
        except StorageError as error:
            raise ClientStateError(f"{self.name}: {error}") from None
        except ProtocolError as error:
            raise rejection_of(ErrorEnvelope.of(error)) from None
        raise ReadOnlyError(
            f"no hub is running in {self.name}, so it can only be read; start one with: "
            f"veen hub start --data-dir {self.name}"
        )

    def _answer(self, request: Query[Any]) -> Wire:
        """Answer; for a long poll, retry until there are new entries or the time is over."""
        answer = self._answers[type(request.request)]
        end = monotonic() + request.wait_sec
        while True:
            response = answer(request.request)
            if monotonic() >= end or getattr(response, "items", True):
                return response
            sleep(_LOOK_SEC)
            self.reader.refresh()

    def _checkpoint(self, request: CheckpointRequest) -> CheckpointResponse:
        checkpoint = self.reader.checkpoint(request.label, request.upto_seq)
        if checkpoint is None:
            raise not_found("upto_seq", f"no checkpoint of entry {request.upto_seq} is stored")
        return CheckpointResponse(checkpoint=checkpoint)


def _damaged(error: DamagedStoreError, data_dir: str) -> DamagedLogError:
    """Return the error with the actual directory in the commands that its text suggests."""
    text = f"{data_dir}: {error}".replace("DATA_DIR", data_dir)
    return DamagedLogError(text, Path(data_dir) / error.path, error.offset)
