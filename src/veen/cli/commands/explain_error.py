"""``veen explain-error``: what an error code means, and what to do."""

from typing import Annotated, Final

import typer

from veen.cli.errors import UsageError
from veen.cli.output import command, print_result
from veen.cli.settings import common
from veen.core.errors import ADMISSION_TABLE, HTTP_STATUS, VERIFICATION_TABLE, Code
from veen.overlays.report_codes import CODES

# Names of older releases (C-60).
_LEGACY: Final = {
    "E.PROFILE": "an older name: the hub does not serve the profile or feature; now E.FORMAT/PROFILE",
    "E.DUP": "an older name: the message or its number was used before; now E.SEQ/DUPLICATE",
}
_MEANING: Final = {
    Code.FORMAT: "the bytes are not canonical CBOR of the right shape, version or profile; fix the sender",
    Code.SIZE: "a value exceeds a limit; send less (veen hub status --json shows the limits)",
    Code.SIG: "a signature does not verify; the bytes were changed, or signed with another key",
    Code.CAP: "a capability token is missing, invalid, unknown or revoked; see veen cap",
    Code.AUTH: "the token or key is not for this client, stream or hub, or the proof of work is missing",
    Code.RATE: "the rate of the token is exceeded; wait for retry_after, then send the same bytes again",
    Code.SEQ: "client_seq or prev_ack does not continue the log; run veen resync",
    Code.TIME: "the token or the epoch of the label has expired; check the clock, or request a new token",
    Code.BAD_REQUEST: "the request is malformed; the detail names the field",
    Code.UNAUTHORIZED: "the hub requires authentication; send credentials",
    Code.FORBIDDEN: "the caller is not allowed to do this; use other credentials",
    Code.NOT_FOUND: "the entry, label, checkpoint or path does not exist here, or was pruned",
    Code.CONFLICT: "the present state does not allow it; read the state first",
    Code.LIMIT: "the request exceeds what the hub returns at once; request less",
    Code.UNAVAILABLE: "the hub is busy, full or stopping; nothing was written, so retry",
    Code.VERSION: "the path or protocol version is not supported; use a matching version",
    Code.PROOF: "a proof does not verify; do not trust the data, and store the bytes as evidence",
    Code.OPEN: "none of the available keys opens the message; it is for others, or was changed",
}
# Codes of commands: hubs and overlays do not have them.
_LOCAL: Final = {
    "E.BUSY": "another process uses the same lake; wait until it has ended, and run the command again",
    "E.CHECKPOINT": "a checkpoint of the recorder is missing or does not cover an entry; see veen "
    "recorder verify",
    "E.CLIENT": "the client directory, its keys or the arguments do not allow it; the text names the remedy",
    "E.CONTENT": "the data differs from what was published under its version; do not use it",
    "E.DAMAGED": "files fail verification; leave them as they are, and see veen fsck and veen repair",
    "E.DIVERGENCE": "a hub has signed two histories; the evidence was stored, see veen verify-fraud",
    "E.EXISTS": "the target already exists and is not overwritten; choose another path",
    "E.FILE": "the system cannot read or write a file; the text contains the path and the reason",
    "E.INTERRUPTED": "the command was interrupted; run it again, nothing that was acknowledged is lost",
    "E.LAKE": "the lake does not exist, or cannot do what was requested; see veen pipeline check",
    "E.MALFORMED": "a response does not follow the protocol; check that the address is that of a hub",
    "E.NETWORK": "the hub is unreachable or did not respond in time; check its address and state, then retry",
    "E.PIN": "the hub is not the pinned one; do not continue until you know why (see veen pin)",
    "E.POLICY": "an audit found violations of the policy; the report lists them",
    "E.RECORD": "verdicts about a record are bad; the report lists each entry and the reason",
    "E.ROLE": "one key cannot both administer a recorder and produce events; use another client",
    "E.SNAPSHOT": "a snapshot does not match the log; the report shows where",
    "E.SPARK": "Spark did not start or did not finish; --verbose-spark shows its log",
    "E.STATE": "a computed state differs from the given one; the text shows how",
    "E.STORAGE": "the data directory cannot be used this way; the text names the remedy",
    "E.TIMEOUT": "no reply arrived in time; the call may still be answered, so check before you repeat it",
    "E.UNSENT": "the hub rejected earlier messages, which were set aside in files; send this one again",
    "E.USAGE": "the arguments of the command are wrong; see its --help",
}


@command
def explain_error(
    code: Annotated[
        str,
        typer.Argument(
            metavar="CODE",
            help="Error code, for example E.SEQ; a detail, for example DUPLICATE; or a code of an overlay.",
        ),
    ],
) -> None:
    """Explain an error code, and what to do about it."""
    name = code.upper()
    if name in _LEGACY or name in _LOCAL:
        text = (_LEGACY | _LOCAL)[name]
    elif (overlay := name.removeprefix("E.")) in CODES:
        text = f"{CODES[overlay]} (reported by an overlay)"
    elif name in {item.value for item in Code}:
        text = _MEANING[Code(name)]
        status = HTTP_STATUS.get(Code(name))
        text += f" (HTTP {status})" if status else ""
    else:
        row = next((item for item in ADMISSION_TABLE + VERIFICATION_TABLE if item.detail.value == name), None)
        if row is None:
            known = ", ".join(sorted({*Code, *_LOCAL}))
            raise UsageError(f"unknown error code {code}; use one of {known}")
        text = f"{row.failure} ({row.code.value}, stage {row.stage.value}, row {row.row})"
    if common.json:
        print_result({"ok": True, "code": name, "meaning": text}, as_json=True)
    else:
        typer.echo(f"{name}: {text}")
