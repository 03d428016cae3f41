"""The query service in this process: what ``veen query serve`` does, with the libraries that it needs."""

import json
import logging
import os
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from veen.cli.client import ClientOptions
from veen.cli.commands.pipeline.lake import lake_errors_exit, load_keys
from veen.cli.errors import UsageError
from veen.cli.options import parse_hub_id
from veen.cli.output import print_result
from veen.cli.settings import common
from veen.cli.spark import SparkOptions, require_extra
from veen.client.errors import NetworkError
from veen.core.objects.hub_identity import HubIdentity
from veen.net.errors import StartError, TlsError
from veen.net.host_names import served_names
from veen.query_service.errors import PolicyError, StateBusyError, StoreError
from veen.query_service.grants import PolicyFile
from veen.query_service.recorder import Sender
from veen.query_service.server import (
    DEFAULT_LISTEN,
    STORE,
    ListenSettings,
    Server,
    StateDirectory,
    bind_all,
)
from veen.query_service.service import QueryService
from veen.query_service.settings import ServiceEvents, ServiceSettings
from veen.query_service.store import Store
from veen.stdx.json_log import LogEvent, json_lines, to_stderr

if TYPE_CHECKING:
    from veen.pipeline.spark.session import SparkSession
    from veen.query_service.spark_runner import SparkRuns

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """The options of the command."""

    lake: Path
    policy: Path
    state: Path
    at: ClientOptions
    engine: SparkOptions
    # Of other zones: the local names of their streams, and their hubs.
    names: Mapping[str, str]
    origins: Mapping[bytes, HubIdentity]
    listen: tuple[str, ...]
    hosts: tuple[str, ...]
    log: str
    keyring: Path | None
    streams: tuple[str, ...]
    tls_cert: Path | None
    tls_key: Path | None
    client_ca: Path | None
    concurrency: int
    max_waiting: int
    log_level: str


def serve(wish: ServiceOptions) -> None:
    """Serve until stopped."""
    try:
        code = _serve(wish)
    except (StateBusyError, PolicyError, StartError, StoreError, TlsError) as error:
        raise UsageError(str(error)) from None
    except sqlite3.Error as error:
        raise UsageError(f"{wish.state / STORE} cannot be written: {error}") from None
    raise typer.Exit(code)


def _serve(wish: ServiceOptions) -> int:
    listening = ListenSettings(
        addresses=wish.listen or (DEFAULT_LISTEN,),
        names=served_names(wish.hosts),
        tls_cert=wish.tls_cert,
        tls_key=wish.tls_key,
        client_ca=wish.client_ca,
    )
    with ExitStack() as stack:
        stack.enter_context(json_lines(to_stderr(), wish.log_level))
        # Everything that can fail is checked before Spark, which starts slowly.
        policy = PolicyFile(wish.policy)
        state = StateDirectory(wish.state)
        stack.callback(state.close)
        store = Store(wish.state / STORE)
        sockets, tls = bind_all(listening)
        for sock in sockets:
            stack.callback(sock.close)
        sender = Sender(wish.at.open())
        spark = stack.enter_context(wish.engine.running("query serve", oneshot=False))
        stack.enter_context(lake_errors_exit())
        settings = ServiceSettings(
            state_dir=wish.state, concurrency=wish.concurrency, max_waiting=wish.max_waiting
        )
        runs = stack.enter_context(_runs(spark, wish, policy))

        def make_service(events: ServiceEvents) -> QueryService:
            return QueryService(settings, policy, runs, sender, store, events=events)

        return Server(make_service, listening, lambda urls: _announce(wish, urls)).run(sockets, tls)


@contextmanager
def _runs(spark: "SparkSession", wish: ServiceOptions, policy: PolicyFile) -> Iterator["SparkRuns"]:
    """Open what runs queries; a given log is ingested first, if it is reachable."""
    with require_extra():
        from veen.pipeline.lake.lake import load
        from veen.pipeline.query.engine import Engine as Queries
        from veen.query_service.spark_runner import LakeRefresh, SparkRuns
    queries = Queries(spark, wish.lake, wish.names, wish.origins)
    if not wish.log:
        load(wish.lake)
        yield SparkRuns(queries, None)
        return
    keys = load_keys(wish.keyring)
    intake = LakeRefresh(spark, wish.lake, wish.log, parse_hub_id(wish.at.hub_id), keys)
    try:
        named = {scope for item in policy.now().principals for scope in item.scopes if "*" not in scope}
        intake.add(named | set(wish.streams))
        try:
            intake.run()
        except NetworkError as error:  # each query ingests it anyway
            _log.warning(LogEvent("log-not-taken-in", error=str(error)))
        yield SparkRuns(replace(queries, keys=intake.keys), intake)
    finally:
        intake.close()


def _announce(wish: ServiceOptions, urls: tuple[str, ...]) -> None:
    banner = {
        "ok": True,
        "pid": os.getpid(),
        "listen": list(urls),
        "lake": str(wish.lake),
        "state": str(wish.state),
    }
    if common.json:
        sys.stdout.write(json.dumps(banner) + "\n")
    else:
        print_result(banner, as_json=False)
    sys.stdout.flush()
