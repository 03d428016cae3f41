"""Options that several commands share: their words, their types, and how their values are parsed."""

import re
from typing import Annotated, Final

import typer

from veen.cli.errors import UsageError
from veen.core.encoding.hexadecimal import parse_hex32
from veen.core.types import HubId

JSON_HELP: Final = "Print one JSON document, for scripts."
QUIET_HELP: Final = "Print errors only."
VERBOSE_HELP: Final = "Print more to standard error, and the traceback of an error."
TIMEOUT_HELP: Final = "Time to wait for each response of the hub, in milliseconds."
ENV_HELP: Final = "File that describes an environment and its hubs (JSON). Requires --hub-name."
HUB_NAME_HELP: Final = "Name of the hub in the file of --env."

HUB_HELP: Final = "URL or data directory of the hub."
HUB_ID_HELP: Final = "Id that the hub must have, as published by its operator: 64 hex digits."
CARD_HELP: Final = "Identity card of the recipient: a file or a client directory."
ADMIN_HELP: Final = "Client directory of an admin of the hub. Default: the configured admin."
ISSUER_HELP: Final = "Client directory of the issuer. Default: the configured client."
ISSUER_KEY_HELP: Final = "Public key of the issuer: 64 hex digits or a file."
LIFETIME_HELP: Final = "Lifetime of the token in seconds, from its first use."
RATE_HELP: Final = "Rate limit, as PER_SEC,BURST: messages per second and in a burst. Default: none."
KIND_HELP: Final = "Kind of the target: client-id, auth-ref or cap-token."
TARGET_HELP: Final = "Target: 64 hex digits, an identity card or a token file."
REVOKE_TTL_HELP: Final = "Duration in seconds. Default: permanent."
CAP_HELP: Final = "File of the capability token to use."
REASON_HELP: Final = "Reason, for the record."
LABEL_HELP: Final = "Label: 64 hex digits."
LABEL_STREAM_HELP: Final = "Stream whose current label is used: a name, or an id (64 hex digits)."
UPTO_HELP: Final = "Last entry to include. Default: the newest."
EXPIRES_HELP: Final = "Time after which readers should ignore the message, in seconds since 1970."
PARENT_HELP: Final = "Id of the message that this one answers: 64 hex digits."
NOW_HELP: Final = "Time at which expiry is evaluated, in seconds since 1970. Default: now."
KEY_HELP: Final = "Print the state of this key only."
REPORTS_HELP: Final = "Also list invalid events, with the reasons."
RECORD_STREAM_HELP: Final = "Stream of the recorder, for example record/app/http."
READER_HELP: Final = "Identity card of the recipient. Default: the readers of the stream."
PAYER_HELP: Final = "Wallet that pays: 64 hex digits."
PAYEE_HELP: Final = "Wallet of the recipient: 64 hex digits."
NEW_IDENTITY_HELP: Final = "Identity that replaces it: 64 hex digits."
METADATA_HELP: Final = "Additional data, in JSON."
LAST_HELP: Final = "Last entry."
INDEX_HELP: Final = "Index of the attachment, from 0."
BODY_HELP: Final = "Body, in JSON; @FILE reads a file, @- standard input."
ATTACH_HELP: Final = "File to attach; may be repeated."
METADATA_OBJECT_HELP: Final = "Additional data: a JSON object."
EVENT_TIME_HELP: Final = "Time of the event, in seconds since 1970. Default: now."
RETENTION_HELP: Final = "Time that entries must be retained, in seconds."
MAX_ITEMS_HELP: Final = "Maximum number of items to list."
OUT_FILE_HELP: Final = "File to write."
OUT_DIR_HELP: Final = "Directory to create."
CHECKPOINT_OUT_HELP: Final = "File to write the checkpoint to (CBOR)."
ROWS_OUT_HELP: Final = "File to write the rows to, one JSON object per line."
AMOUNT_HELP: Final = "Amount, in the smallest unit of the currency."
LISTEN_HELP: Final = "Address to listen on, HOST:PORT; may be repeated."
HOST_HELP: Final = (
    "Host name that requests may use; may be repeated. Default: the name of the machine. "
    "IP addresses and localhost are always accepted."
)
TLS_CERT_HELP: Final = "Certificate chain (PEM), to serve HTTPS."
TLS_KEY_HELP: Final = "Private key of the certificate (PEM)."
LOG_LEVEL_HELP: Final = "Log level: debug, info, warn or error."
LOG_HELP: Final = "Log to read: a data directory, an exported set or the URL of a hub."
LEVEL_HELP: Final = "Level of checks: frames, roots or full; each includes the levels before it."

_NUMBER: Final = re.compile(r"[0-9]{1,20}")

JsonFlag = Annotated[bool, typer.Option("--json", help=JSON_HELP)]


def hex32(text: str, option: str) -> bytes:
    """Parse an id, hash or key of 32 bytes in hex."""
    try:
        return parse_hex32(text)
    except ValueError:
        raise UsageError(f"{option} takes 64 hex digits, not {text!r}") from None


def hex32_or_none(text: str, option: str) -> bytes | None:
    """Parse an id, hash or key of 32 bytes in hex, if the option has a value."""
    return hex32(text, option) if text else None


def parse_hub_id(text: str) -> HubId | None:
    """Parse the value of --hub-id, if it has one."""
    return HubId(hex32(text, "--hub-id")) if text else None


def parse_number(text: str) -> int | None:
    """Parse a number in decimal digits, of the size of an unsigned 64-bit integer; None for other texts."""
    return int(text) if _NUMBER.fullmatch(text) else None


def hex_bytes(text: str, option: str) -> bytes:
    """Parse bytes in hex, of any number."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise UsageError(f"{option} takes hex digits, not {text!r}") from None
