"""Lakes for tests: logs with something of everything, and what is in a lake, byte by byte."""

from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import SparkSession

from tests import builders
from tests.pipeline.log_builder import Hub, Sent, varied
from veen.client.home.directory import ClientHome
from veen.client.keys.keystore import Secrets, StreamKey
from veen.core.objects import labels
from veen.overlays.registry import schemas
from veen.pipeline.lake import layout
from veen.pipeline.lake.lake import lock_lake
from veen.pipeline.lake_jobs.ingest import Ingest, IngestStats
from veen.pipeline.log.open import open_log
from veen.pipeline.open.keyring import Keyring
from veen.pipeline.shared_keys import sharing

STREAMS = ("alpha", "beta", "gamma")
LWW = schemas()["crdt.lww.v1"]


def put(key: str, number: int) -> Sent:
    """Return an event of a schema that the lake knows."""
    body = LWW.make(key=builders.digest(key), ts=number, value=str(number).encode())
    return Sent(LWW.encode(body), client="bob", schema=LWW.schema_id)


def some_of_everything(root: Path, count: int = 60) -> Hub:
    """Return a log with events, nonsense instead of one, and a message for somebody else; still open."""
    hub = varied(root, count)
    more(hub)
    hub.send("beta", [Sent(b"nonsense", schema=LWW.schema_id), Sent(b"secret", reader="somebody else")])
    return hub


def more(hub: Hub, first: int = 1, count: int = 5) -> None:
    """Write some events more."""
    hub.send("alpha", [put(f"key {number % 3}", number) for number in range(first, first + count)])


def secrets(streams: Iterable[str] = STREAMS, reader: str = "reader") -> Secrets:
    found = Secrets.generate(builders.counted_random("a client"), 1_000)
    for name in streams:
        key = StreamKey(stream_id=labels.stream_id(name), secret=builders.reader_secret(reader), created_at=1)
        found = found.with_stream(key)
    return found


def keyring(streams: Iterable[str] = STREAMS, reader: str = "reader") -> Keyring:
    return Keyring(secrets(streams, reader))


def client(place: Path) -> Path:
    """Write the directory of a client that reads all streams."""
    ClientHome.create(place, secrets(), now=1_000)
    return place


def take(
    spark: SparkSession,
    lake: Path,
    log: Path,
    keys: Keyring | None = None,
    overlays: tuple[str, ...] | None = (),
    *,
    streams: Iterable[str] = (),
) -> IngestStats:
    """Take a log into a lake."""
    opened = open_log(str(log))
    found = keys or keyring()
    try:
        with lock_lake(lake, create=True) as held, sharing(spark, found) as shared:
            named = [labels.stream_id(name) for name in streams]
            return Ingest(
                spark, held, opened, keyring=found, shared=shared, overlays=overlays, streams=named
            ).run()
    finally:
        opened.close()


def tables_of(lake: Path) -> dict[str, bytes]:
    """Return all files of tables, with their bytes."""
    return {str(path.relative_to(lake)): path.read_bytes() for path in layout.tables_in(lake)}


def bytes_of(lake: Path) -> dict[str, bytes]:
    """Return all files of a lake, with their bytes."""
    return {str(path.relative_to(lake)): path.read_bytes() for path in lake.rglob("*") if path.is_file()}
