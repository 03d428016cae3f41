"""Pages that nobody takes: the service holds so many bytes and no more, and says so."""

import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hub.certificates import make_certificate
from tests.hub.hub_process import TIMEOUT, HubProcess
from tests.query_service.plain_service import event
from tests.query_service.service_process import APP, Service, make_place, until

#: Far more than the buffers of two sockets take.
ROWS, ROW_BYTES = 15, 1 << 20
MOST_BYTES = 1 << 20


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("hub") / "data") as made:
        yield made


def begin_reading(service: Service, context: ssl.SSLContext | None, token: str, path: str) -> socket.socket:
    """Ask for something, and read its first bytes alone."""
    connection = service.connect(context)
    connection.connect()
    connection.request("GET", path, headers={"authorization": f"Bearer {token}"})
    sock: socket.socket = connection.sock
    assert sock.recv(12) == b"HTTP/1.1 200"
    return sock


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_pages_that_clients_do_not_take_keep_others_from_getting_any(
    hub: HubProcess, tmp_path: Path, *, secure: bool
) -> None:
    place = tmp_path / "service"
    alice = make_place(place)["alice"]
    long = (event(APP, seq, subject_id="x" * ROW_BYTES) for seq in range(1, ROWS + 1))
    (place / "events.jsonl").write_text("".join(json.dumps(item) + "\n" for item in long))
    options: dict[str, Any] = {"max_bytes": MOST_BYTES}
    context = None
    if secure:
        cert, key = make_certificate(tmp_path)
        options |= {"tls_cert": str(cert), "tls_key": str(key)}
        context = ssl.create_default_context(cafile=str(cert))
    with Service(place, hub.url, **options) as service:

        def ask(path: str, body: Any = None) -> Any:
            return service.ask(alice, path, body, context=context)

        result_id = ask("submit", {"scope": [APP]}).json["result_id"]
        until(lambda: ask(f"status/{result_id}").json["status"] == "completed", "the answer")
        whole = ask(f"result/{result_id}")
        assert len(whole.body) > ROWS * ROW_BYTES
        one = f"result/{result_id}?limit=1"
        untaken = begin_reading(service, context, alice, f"/api/query/result/{result_id}")
        try:
            refused = ask(one)
            assert refused.error == (503, "internal_error")
            assert int(refused.headers["retry-after"]) > 0
            assert ask(f"status/{result_id}").status == 200, "what is small is answered"
            rest = bytearray()
            untaken.settimeout(TIMEOUT)
            while not rest.endswith(b"]}"):  # nothing in the rows looks like their end
                rest += untaken.recv(1 << 20)
            assert rest.endswith(whole.body), "and the page comes whole"
            until(lambda: ask(one).status == 200, "room for a page")
        finally:
            untaken.close()
