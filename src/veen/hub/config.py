"""The hub's configuration: flags, then environment, then a TOML file, then defaults.

All mistakes are reported together, each with the name that it has in the file.
"""

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from veen.core.encoding.hexadecimal import parse_hex32
from veen.core.errors import ProtocolError
from veen.core.limits import Limits, default_limits
from veen.core.objects.control_record import REVOCATION_STREAM
from veen.core.objects.labels import stream_id
from veen.core.objects.proof_of_work import MAX_DIFFICULTY
from veen.core.types import RoutingKey, StreamId, VerifyKey
from veen.hub.errors import ConfigError
from veen.net.host_names import parse_host, parse_origin
from veen.stdx.grammar import counted
from veen.stdx.loopback import is_loopback

PREFIX: Final = "VEEN_"
# Environment variables that are not fields.
CONFIG_PATH: Final = "VEEN_CONFIG_PATH"
DEFAULT_LISTEN: Final = "127.0.0.1:37411"


def _split(value: object) -> object:
    """Split comma-separated text: the form that lists have in environment variables and flags."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _address(value: str) -> str:
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{value!r} is not an address; write HOST:PORT, for example {DEFAULT_LISTEN}")
    return value


def _key(value: str) -> str:
    try:
        return parse_hex32(value).hex()
    except ValueError:
        raise ValueError(f"{value!r} is not a public key of 64 hex digits") from None


def _url(value: str) -> str:
    try:
        parts = urlsplit(value)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ValueError(f"{value!r} is not an http or https URL")
    return value


def _host(value: str) -> str:
    host = parse_host(value)
    if host is None:
        raise ValueError(f"{value!r} is not a name; write it without a port, for example hub.example")
    return host


def _origin(value: str) -> str:
    origin = parse_origin(value)
    if origin is None:
        raise ValueError(
            f"{value!r} is not an origin; write SCHEME://HOST or SCHEME://HOST:PORT, for example "
            "https://app.example"
        )
    return origin


Address = Annotated[str, AfterValidator(_address)]
Url = Annotated[str, AfterValidator(_url)]
Host = Annotated[str, AfterValidator(_host)]
Origin = Annotated[str, AfterValidator(_origin)]
Hex32 = Annotated[str, AfterValidator(_key)]
Count = Annotated[int, Field(ge=1)]


class Settings(BaseModel):
    """All settings; a field's description is its documentation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    listen: Annotated[list[Address], BeforeValidator(_split)] = Field(
        [DEFAULT_LISTEN],
        min_length=1,
        description="addresses to serve, HOST:PORT; port 0 lets the system choose",
    )
    hosts: Annotated[list[Host] | None, BeforeValidator(_split)] = Field(
        None,
        description="host names under which clients may address the hub, besides localhost and IP addresses; "
        "default: host name and fully qualified name of the machine",
    )
    origins: Annotated[list[Origin], BeforeValidator(_split)] = Field(
        [], description="origins whose web pages may send requests, SCHEME://HOST[:PORT]; others are rejected"
    )
    tls_cert: Path | None = Field(
        None, description="certificate chain (PEM); with tls_key, the hub serves HTTPS only"
    )
    tls_key: Path | None = Field(None, description="private key of the certificate (PEM)")
    role: Literal["primary", "replica"] = Field(
        "primary", description="a replica rejects submits: E.AUTH/NOT_PRIMARY"
    )
    log_level: Literal["debug", "info", "warn", "error"] = Field(
        "info", description="lowest level that is logged"
    )
    log_submits: bool = Field(default=True, description="log one line per submit (level info)")
    legacy_paths: bool = Field(
        default=True, description="also serve the bare paths of older releases: /submit, /stream, ..."
    )

    require_cap: Literal["auto", "true", "false"] = Field(
        "auto",
        description="whether messages need a token; auto: unless all addresses are loopback. Fixed",
    )
    trust_issuers: Annotated[list[Hex32], BeforeValidator(_split)] = Field(
        [], description="issuers whose tokens are accepted; add more with 'veen hub trust add'"
    )
    trust_all_issuers: bool = Field(
        default=False, description="accept the tokens of every issuer: for tests and closed networks"
    )
    admins: Annotated[list[Hex32], BeforeValidator(_split)] = Field(
        [],
        description="clients that may revoke clients and tokens by messages on the control streams (KEX1+)",
    )
    streams: Annotated[list[str], BeforeValidator(_split)] = Field(
        [], description="streams that may be written without a token when labels rotate"
    )
    epoch_sec: Annotated[int, Field(ge=0)] = Field(
        0, description="length of an epoch, after which labels change; 0: never. Fixed"
    )
    pad_blocks: Annotated[list[Annotated[int, Field(ge=0)]], BeforeValidator(_split)] = Field(
        [256, 0, 1024],
        min_length=1,
        description="padding of each profile that is served; clients use the first one. Fixed",
    )
    profile_id: Hex32 | None = Field(None, description="start only if this profile is served")
    routing_key: Hex32 | None = Field(
        None, description="salt of the labels, instead of the derived one. Fixed"
    )
    pow_difficulty: Annotated[int, Field(ge=0, le=MAX_DIFFICULTY)] = Field(
        0, description="bits of proof of work that a submit requires"
    )
    pow_ttl_sec: Count = Field(120, description="how long a proof-of-work challenge is valid")
    max_client_id_lifetime_sec: Count | None = Field(
        None, description="how long a client_id may be in use (KEX1+)"
    )
    max_msgs_per_client_id_per_label: Count | None = Field(
        None, description="how many messages a client_id may write to a label (KEX1+)"
    )
    rotation_window_sec: Count = Field(
        86_400, description="how long an old hub key stays valid after a rotation"
    )

    max_connections: Count = Field(
        1024, description="connections at a time; further ones are answered 503 and closed"
    )
    max_held_bytes: Count = Field(
        256 << 20,
        description="bytes of requests and responses in memory; further requests are answered 503",
    )
    max_queue: Count = Field(
        4096, description="messages waiting for verification or commit; further ones are answered 503"
    )
    max_queue_bytes: Count = Field(64 << 20, description="bytes of these messages")
    max_bulk_bytes: Count = Field(8 << 20, description="bytes of the body of one bulk submit")
    max_page_items: Count = Field(1000, description="entries per page of a stream")
    max_page_bytes: Count = Field(4 << 20, description="bytes per page; one entry is always returned")
    max_wait_sec: Count = Field(30, description="how long a stream request may wait for new entries")
    max_waiters: Count = Field(1024, description="stream requests that wait at a time")
    max_header_bytes: Count = Field(16 << 10, description="bytes of request line and headers")
    header_timeout_sec: Count = Field(10, description="time for a request's headers to arrive")
    body_timeout_sec: Count = Field(30, description="time for each megabyte of a body to arrive")
    idle_timeout_sec: Count = Field(75, description="how long a connection may be idle")
    drain_sec: Count = Field(10, description="how long a hub that stops waits for responses to be sent")
    verify_workers: Annotated[int, Field(ge=0)] | None = Field(
        None,
        description="processes that verify messages; 0: none. Default: one less than the number of cores",
    )
    attachments: bool = Field(default=True, description="store attachments for clients")
    max_attachment_store_bytes: Annotated[int, Field(ge=0)] = Field(
        10 << 30, description="bytes of all attachments; further ones are rejected"
    )
    backup_dir: Path | None = Field(
        None, description="directory in which /tooling/backup writes backups; unset: backups are disabled"
    )
    anchor_backend: Literal["none", "file", "rfc3161"] = Field(
        "none",
        description="where roots of labels are published: in a ledger file, or by a time-stamping authority",
    )
    anchor_ledger: Path | None = Field(
        None, description="path of the ledger file; default: anchors/ledger.cborseq in the data directory"
    )
    anchor_url: Url | None = Field(None, description="URL of the time-stamping authority (RFC 3161)")
    anchor_tsa_cert: Path | None = Field(
        None,
        description="root certificates of the time-stamping authority (PEM); other time stamps are rejected",
    )
    anchor_every_receipts: Count = Field(
        1000, description="a label is anchored when it has this many entries without an anchor"
    )
    anchor_every_minutes: Count = Field(60, description="or when the oldest of these is this old")
    anchor_ask_sec: Annotated[int, Field(ge=0)] = Field(
        10, description="seconds between anchors that clients request; 0: clients cannot request anchors"
    )
    limits: dict[str, int] = Field({}, description="limits by name; see docs/reference/limits.md. Fixed")

    @model_validator(mode="after")
    def _whole(self) -> "Settings":
        mistakes = []
        if (self.tls_cert is None) != (self.tls_key is None):
            mistakes.append("tls_cert and tls_key must be set together")
        if self.anchor_backend == "rfc3161" and self.anchor_url is None:
            mistakes.append("anchor_backend rfc3161 requires anchor_url")
        if len(set(self.pad_blocks)) != len(self.pad_blocks):
            mistakes.append("pad_blocks contains a value twice")
        try:
            self.registry()
        except (ProtocolError, TypeError) as error:
            mistakes.append(f"limits: {error.message if isinstance(error, ProtocolError) else error}")
        if mistakes:
            raise ValueError("; ".join(mistakes))
        return self

    def registry(self) -> Limits:
        """Return the limits: the defaults of the profile, overridden by those that are set."""
        known = list(Limits.__dataclass_fields__)
        unknown = set(self.limits) - set(known)
        if unknown:
            raise TypeError(
                "; ".join(f"unknown limit {name}{_near(name, known)}" for name in sorted(unknown))
            )
        default = default_limits(self.epoch_sec)
        return Limits(
            **{name: self.limits.get(name, getattr(default, name)) for name in Limits.__dataclass_fields__}
        )

    @property
    def resolved_verify_workers(self) -> int:
        if self.verify_workers is not None:
            return self.verify_workers
        return max(1, len(os.sched_getaffinity(0)) - 1)

    @property
    def resolved_require_cap(self) -> bool:
        """Whether tokens are required; ``auto``: only if the hub listens beyond loopback (C-51)."""
        if self.require_cap != "auto":
            return self.require_cap == "true"
        return not all(is_loopback(address.rpartition(":")[0]) for address in self.listen)

    @property
    def issuers(self) -> list[VerifyKey]:
        return [VerifyKey(bytes.fromhex(item)) for item in self.trust_issuers]

    @property
    def admin_keys(self) -> list[VerifyKey]:
        return [VerifyKey(bytes.fromhex(item)) for item in self.admins]

    @property
    def control_streams(self) -> list[StreamId]:
        """The streams that admins write their orders to; empty without admins."""
        return [REVOCATION_STREAM] if self.admins else []

    @property
    def stream_ids(self) -> list[StreamId]:
        return [stream_id(name) for name in self.streams]

    @property
    def routing(self) -> RoutingKey | None:
        """The salt of labels, if one is configured."""
        return None if self.routing_key is None else RoutingKey(bytes.fromhex(self.routing_key))


def load(
    flags: Mapping[str, Any], environment: Mapping[str, str], config_file: Path | None = None
) -> Settings:
    """Merge the sources of the configuration; the first that sets a value wins."""
    path = config_file or (Path(environment[CONFIG_PATH]) if environment.get(CONFIG_PATH) else None)
    merged = {**_from_file(path), **_from_environment(environment)}
    merged |= {name: value for name, value in flags.items() if value is not None}
    try:
        return Settings.model_validate(merged)
    except ValidationError as error:
        raise ConfigError(_all_mistakes(error, path)) from None


def _from_file(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    names = {PREFIX + name.upper(): name for name in Settings.model_fields if name != "limits"}
    return {field: environment[name] for name, field in names.items() if environment.get(name)}


def _near(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _all_mistakes(error: ValidationError, path: Path | None) -> str:
    lines = []
    for item in error.errors():
        name = ".".join(str(part) for part in item["loc"])
        text = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            text = "unknown setting" + _near(name, list(Settings.model_fields))
        lines.append(f"  {name}: {text}" if name else f"  {text}")
    source = f" (file {path})" if path else ""
    return "\n".join([f"the configuration has {counted(len(lines), 'error')}{source}:", *lines])
