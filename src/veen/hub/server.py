"""The hub as a process: sockets, signals, and the files that publish its addresses; from start to stop."""

import contextlib
import json
import logging
import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Final

import uvloop

from veen.core.data_dir import paths
from veen.core.data_dir.hub_settings import HubSettings
from veen.core.errors import ProtocolError
from veen.core.limits import Limits
from veen.hub.api.routes import Endpoints
from veen.hub.config import Settings
from veen.hub.errors import ConfigError
from veen.hub.home import Home, create_home, has_home, open_home, write_settings
from veen.hub.hub import Hub
from veen.hub.metrics import TimedFilesystem
from veen.net.errors import StartError
from veen.net.host_names import Names, machine_names
from veen.net.http_application import Bounds
from veen.net.listener import Listener
from veen.net.sockets import bind
from veen.net.tls import server_context
from veen.stdx.atomic_file import write_file
from veen.stdx.json_log import LogEvent
from veen.storage import StorageError, open_store
from veen.storage.directory import take_lock

_log = logging.getLogger(__name__)

_ADD_HOST: Final = "add the name to hosts in the hub's configuration"


@dataclass(frozen=True, slots=True)
class RunningHub:
    """A hub that is serving."""

    pid: int
    urls: tuple[str, ...]
    home: Home
    first_start: bool


def prepare(
    fs: TimedFilesystem, settings: Settings, random: Callable[[int], bytes], owner: str
) -> tuple[Home, bool]:
    """Open the hub in a directory, or create it; return whether it was created. Fails if it is in use."""
    if not has_home(fs):
        _require_profile(_chosen(settings), settings)  # before anything is created
        fs.make_dir("")
        fs.make_dir(paths.STATE_DIR)
    lock = take_lock(fs, owner)
    try:
        if has_home(fs):
            return _open_existing(fs, settings), False
        chosen = _chosen(settings)
        return create_home(fs, chosen, settings.registry(), random, routing=settings.routing), True
    finally:
        lock.release()


def _chosen(settings: Settings) -> HubSettings:
    return HubSettings(
        epoch_sec=settings.epoch_sec,
        pad_blocks=tuple(settings.pad_blocks),
        require_cap=settings.resolved_require_cap,
    )


def _open_existing(fs: TimedFilesystem, settings: Settings) -> Home:
    home = open_home(fs)
    _require_same_settings(home, open_store(fs).registries[-1].limits, settings)
    _require_profile(home.settings, settings)
    if settings.require_cap != "auto" and settings.resolved_require_cap != home.settings.require_cap:
        home = write_settings(fs, home, require_cap=settings.resolved_require_cap, now=int(time()))
    return home


def _require_same_settings(home: Home, limits: Limits, settings: Settings) -> None:
    """Reject settings that differ from those that the directory was created with."""
    stored = home.settings
    wrong = []
    if "epoch_sec" in settings.model_fields_set and settings.epoch_sec != stored.epoch_sec:
        wrong.append(f"epoch_sec is {stored.epoch_sec} here, and {settings.epoch_sec} in the configuration")
    if "pad_blocks" in settings.model_fields_set and tuple(settings.pad_blocks) != stored.pad_blocks:
        wrong.append(
            f"pad_blocks is {list(stored.pad_blocks)} here, and {settings.pad_blocks} in the configuration"
        )
    if settings.routing is not None and settings.routing != home.identity.routing_key:
        wrong.append("routing_key differs")
    wrong += [
        f"limits.{name} is {getattr(limits, name)} here, and {value} in the configuration"
        for name, value in settings.limits.items()
        if value != getattr(limits, name)
    ]
    if wrong:
        raise ConfigError(
            "the data directory was created with other settings, which cannot be changed: " + "; ".join(wrong)
        )


def _require_profile(hub_settings: HubSettings, settings: Settings) -> None:
    served = [profile.profile_id.hex() for profile in hub_settings.profiles]
    if settings.profile_id is not None and settings.profile_id not in served:
        raise ConfigError(
            f"profile_id {settings.profile_id} is not served; the data directory has {', '.join(served)}"
        )


class Server:
    """Runs a hub until it is stopped."""

    def __init__(self, data_dir: Path, settings: Settings, on_ready: Callable[[RunningHub], None]) -> None:
        self._data_dir = data_dir
        self._settings = settings
        self._on_ready = on_ready
        self._listener: Listener | None = None
        self._failed = False
        self._owner = f"the hub (process {os.getpid()} on {socket.gethostname()})"
        # Set once the hub is serving.
        self.endpoints: Endpoints | None = None

    def run(self, *, signals: bool = True) -> int:
        """Serve; return the exit code of the process. Signals can be handled in the main thread only."""
        tls = None
        if self._settings.tls_cert is not None and self._settings.tls_key is not None:
            tls = server_context(self._settings.tls_cert, self._settings.tls_key)
        sockets = bind(self._settings.listen)
        try:
            return uvloop.run(self._serve(sockets, tls, self._names(), signals=signals))
        finally:
            for sock in sockets:
                sock.close()

    def stop(self) -> None:
        """Stop the hub. May be called from any thread."""
        assert self._listener is not None
        self._listener.stop()

    def _names(self) -> Names:
        hosts = self._settings.hosts
        return Names(
            hosts=machine_names() if hosts is None else frozenset(hosts),
            origins=frozenset(self._settings.origins),
            advice=_ADD_HOST,
        )

    async def _serve(
        self, sockets: list[socket.socket], tls: ssl.SSLContext | None, names: Names, *, signals: bool
    ) -> int:
        self._listener = listener = Listener(sockets, self._bounds(), names, tls=tls)
        fs = TimedFilesystem(self._data_dir)
        hub, first = self._start(fs)
        try:
            admin = _AdminSocket(self._data_dir)
            self._announce(listener.urls)
        except OSError as error:
            await hub.stop(abandon=True)
            raise StartError(f"{self._data_dir} cannot be written: {error.strerror or error}") from error
        self.endpoints = Endpoints(hub)
        limit = await listener.accept(self.endpoints.app, hub.memory, local=admin.sock)
        hub.urls = listener.urls
        if signals:
            listener.stop_on_signals()
        hub.metrics.gauges["veen_connections"] = ("open connections", lambda: len(listener.connections))
        self._warn(hub.home, hub, limit)
        hub_id = hub.home.identity.hub_id.hex()
        _log.info(
            LogEvent("started", urls=listener.urls, hosts=sorted(names.hosts), hub_id=hub_id, pid=os.getpid())
        )
        self._on_ready(RunningHub(os.getpid(), listener.urls, hub.home, first))
        try:
            await listener.run(hub.check)
        finally:
            await self._finish(hub, listener, admin)
            fs.close()
        return 1 if self._failed else 0

    def _start(self, fs: TimedFilesystem) -> tuple[Hub, bool]:
        """Open the hub; also return whether this is its first start."""
        try:
            home, first = prepare(fs, self._settings, os.urandom, self._owner)
            return self._open(fs, home), first
        except (StorageError, ProtocolError) as error:
            raise StartError(str(error)) from error
        except OSError as error:
            raise StartError(
                f"{self._data_dir} cannot be used: {error.strerror or error}; choose another --data-dir"
            ) from error

    def _bounds(self) -> Bounds:
        settings = self._settings
        return Bounds(
            max_connections=settings.max_connections,
            max_header_bytes=settings.max_header_bytes,
            header_sec=settings.header_timeout_sec,
            body_sec=settings.body_timeout_sec,
            idle_sec=settings.idle_timeout_sec,
        )

    def _warn(self, home: Home, hub: Hub, max_connections: int) -> None:
        """Log settings that are valid, but probably not intended."""
        needed = self._settings.max_connections
        if max_connections < needed:
            _log.warning(LogEvent("few-descriptors", max_connections=max_connections, wanted=needed))
        epoch_sec, skew = home.settings.epoch_sec, hub.limits.max_epoch_skew_sec
        if epoch_sec and skew < epoch_sec:  # C-33
            _log.warning(LogEvent("no-skew", epoch_sec=epoch_sec, max_epoch_skew_sec=skew))
        if self._settings.trust_all_issuers:
            _log.warning(LogEvent("every-issuer-trusted"))

    def _open(self, fs: TimedFilesystem, home: Home) -> Hub:
        hub = Hub(
            fs,
            home,
            self._settings,
            clock=lambda: int(time()),
            random=os.urandom,
            owner=self._owner,
            events=self,
        )
        recovered = hub.writer.recovered
        if recovered.segments:
            _log.info(LogEvent("recovered", entries=recovered.entries, torn_bytes=recovered.torn_bytes))
        return hub

    # --- stopping -------------------------------------------------------------------------------------------

    def fatal(self, why: str) -> None:
        """Stop the process: the hub must not continue."""
        assert self._listener is not None
        self._failed = True
        _log.error(LogEvent("stopping", why=why))
        self._listener.stop()

    async def _finish(self, hub: Hub, listener: Listener, admin: "_AdminSocket") -> None:
        """Answer the open requests, then shut down."""
        hub.stopping = True
        hub.long_polls.stop()
        await listener.drain(self._settings.drain_sec, lambda: hub.intake.depth > 0)
        admin.close()  # before the directory is released: the next hub has a socket of the same name
        try:
            await hub.stop(abandon=self._failed)
        except (StorageError, OSError) as error:
            self._failed = True
            _log.error(LogEvent("unclean", error=str(error)))
        self._withdraw()
        _log.info(LogEvent("stopped", clean=not self._failed))

    def _withdraw(self) -> None:
        """Remove the files that announce this process, unless the next hub has replaced them."""
        mine = str(os.getpid())
        with contextlib.suppress(OSError, ValueError):
            if (
                str(json.loads((self._data_dir / paths.HUB_RUNNING).read_text(encoding="ascii"))["pid"])
                == mine
            ):
                (self._data_dir / paths.HUB_RUNNING).unlink()
        with contextlib.suppress(OSError):
            if (self._data_dir / paths.HUB_PID).read_text(encoding="ascii").strip() == mine:
                (self._data_dir / paths.HUB_PID).unlink()

    def _announce(self, urls: tuple[str, ...]) -> None:
        running = json.dumps({"pid": os.getpid(), "urls": urls})
        for name, text in ((paths.HUB_RUNNING, running), (paths.HUB_PID, str(os.getpid()))):
            write_file(self._data_dir / name, f"{text}\n".encode("ascii"))


class _AdminSocket:
    """The operator's socket: a user with access to it has write access to the data directory anyway."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / paths.ADMIN_SOCKET
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()  # left by a hub that was killed: the lock proves that it has ended
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Through a descriptor: paths of sockets are limited to about 100 bytes.
        fd = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        before = os.umask(0o177)
        try:
            self.sock.bind(f"/proc/self/fd/{fd}/{self._path.name}")
        finally:
            os.umask(before)
            os.close(fd)
        self.sock.listen(16)

    def close(self) -> None:
        self.sock.close()
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
