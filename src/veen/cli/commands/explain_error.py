"""``veen explain-error``: what an error code means, and what to do."""

from typing import Annotated, Final

import typer

from veen.cli.errors import UsageError
from veen.cli.output import command, print_result
from veen.cli.settings import common
from veen.core.errors import ADMISSION_TABLE, HTTP_STATUS, VERIFICATION_TABLE, Code
from veen.overlays.report_codes import CODES

#: Names of older releases (C-60).
_LEGACY: Final = {
    "E.PROFILE": "an older name: the hub does not serve the profile or feature; now E.FORMAT/PROFILE",
    "E.DUP": "an older name: the message or its number was used before; now E.SEQ/DUPLICATE",
}
_MEANING: Final = {
    Code.FORMAT: "the bytes are not canonical CBOR of the right shape, version or profile; fix the sender",
    Code.SIZE: "something is larger than a limit; send less (veen hub status --json shows the limits)",
    Code.SIG: "a signature does not verify; the bytes were changed or signed with another key",
    Code.CAP: "a capability token is missing, invalid, unknown or revoked; see veen cap",
    Code.AUTH: "the token or key is not for this client, stream or hub, or the proof of work is missing",
    Code.RATE: "too fast for the token's rate; wait as long as retry_after says, then send the same bytes",
    Code.SEQ: "client_seq or prev_ack does not continue the log; run veen resync",
    Code.TIME: "the token has expired, or the label's epoch is over; check the clock, ask for a new token",
    Code.BAD_REQUEST: "the request makes no sense as it is; the detail names the field",
    Code.UNAUTHORIZED: "the hub wants to know who asks; give credentials",
    Code.FORBIDDEN: "this is not served to you",
    Code.NOT_FOUND: "there is no such entry, label, checkpoint or path here, or it was pruned",
    Code.CONFLICT: "it cannot be done in the present state; look at the state first",
    Code.LIMIT: "the request asks for more than the hub gives at once",
    Code.UNAVAILABLE: "the hub is busy, full or stopping; nothing was written, so try again",
    Code.VERSION: "the path or protocol version is not spoken here",
    Code.PROOF: "what was served does not prove what it says; do not believe it, and keep the bytes",
    Code.OPEN: "the message does not open with the keys at hand; it is for somebody else, or was changed",
}
#: What commands say by themselves: no hub and no fold has these.
_LOCAL: Final = {
    "E.BUSY": "another process works on the same lake; wait until it has ended, and run the command again",
    "E.CHECKPOINT": "a recorder's checkpoint is missing, or does not vouch for an entry; make one, or verify",
    "E.CLIENT": "the client's directory, keys or place do not allow it; the text says what to give instead",
    "E.CONTENT": "data is not what was published under its version; do not use it",
    "E.DAMAGED": "files do not prove what they say; keep them as they are, and see veen fsck and veen repair",
    "E.DIVERGENCE": "a hub has signed two histories; the evidence was kept, see veen verify-fraud",
    "E.EXISTS": "there is something already, and it is not written over; choose another place",
    "E.FILE": "the system refused a file; the text has the path and its reason",
    "E.INTERRUPTED": "the command was interrupted; run it again, nothing that was acknowledged is lost",
    "E.LAKE": "the lake is not there, or cannot do what was asked; see veen pipeline check",
    "E.MALFORMED": "an answer is not what the protocol says; it may be no hub at that address",
    "E.NETWORK": "nobody answers, or not in time; check the address and whether the hub runs, then try again",
    "E.PIN": "the hub is not the one that was pinned here; do not go on before you know why (veen pin)",
    "E.POLICY": "an audit found what the policy does not allow; the report names each case",
    "E.RECORD": "the record of a recorder is not as it should be; the report names each entry and reason",
    "E.ROLE": "one key may not administer a recorder and produce events; use another client",
    "E.SNAPSHOT": "a snapshot does not agree with the log; the report says where",
    "E.SPARK": "Spark could not be started or could not end its work; --verbose-spark shows what it logs",
    "E.STATE": "a computed state differs from the one that was given; the text says in what",
    "E.STORAGE": "the data directory cannot be used so; the text says what to do",
    "E.TIMEOUT": "no answer came in time; the call may still be answered, so look before you call again",
    "E.UNSENT": "the hub refused earlier messages, which were set aside in files; send this one again",
    "E.USAGE": "the command was given something that makes no sense to it; see its --help",
}


@command
def explain_error(
    code: Annotated[
        str, typer.Argument(help="For example E.SEQ, a detail such as DUPLICATE, or WAL.FROZEN.")
    ],
) -> None:
    """Say in one line what an error code means and what to do."""
    wanted = code.upper()
    if wanted in _LEGACY or wanted in _LOCAL:
        text = (_LEGACY | _LOCAL)[wanted]
    elif (overlay := wanted.removeprefix("E.")) in CODES:
        text = f"{CODES[overlay]} (reported by a fold)"
    elif wanted in {item.value for item in Code}:
        text = _MEANING[Code(wanted)]
        status = HTTP_STATUS.get(Code(wanted))
        text += f" (HTTP {status})" if status else ""
    else:
        row = next(
            (item for item in ADMISSION_TABLE + VERIFICATION_TABLE if item.detail.value == wanted), None
        )
        if row is None:
            known = ", ".join(sorted({*Code, *_LOCAL}))
            raise UsageError(f"there is no error {code}; the codes are {known}")
        text = f"{row.failure} ({row.code.value}, stage {row.stage.value}, row {row.row})"
    if common.json:
        print_result({"ok": True, "code": wanted, "meaning": text}, as_json=True)
    else:
        typer.echo(f"{wanted}: {text}")
