"""An example of each command, as its help prints it."""

import re
from collections.abc import Mapping
from typing import Final

# Under the help of ``veen`` itself: from nothing to a message that was read.
FIRST_STEPS: Final = (
    "veen hub start",
    "veen keygen",
    """veen send --stream notes --body '"hello"'""",
    "veen stream --stream notes",
)

# By the words of the command. Words in capitals stand for ids: 64 hex digits.
EXAMPLES: Final[Mapping[str, str]] = {
    "keygen": "veen keygen --name Alice --passphrase",
    "id show": "veen id show",
    "id rotate": "veen id rotate",
    "id usage": "veen id usage --hub https://hub.example.org",
    "id card": "veen id card bob/identity_card.pub",
    "reader new": "veen reader new --stream team/plan",
    "reader share": "veen reader share --stream team/plan --to bob/identity_card.pub --out for-bob.key",
    "reader accept": "veen reader accept for-bob.key --from alice/identity_card.pub",
    "reader list": "veen reader list",
    "pin add": "veen pin add --hub https://hub.example.org --hub-id HUB_ID",
    "pin list": "veen pin list",
    "pin remove": "veen pin remove HUB_ID",
    "config show": "veen config show",
    "config set": "veen config set hub https://hub.example.org",
    "config unset": "veen config unset hub",
    "send": """veen send --stream team/plan --body '{"text": "hello"}' --attach plan.pdf""",
    "send-with-attachment": "veen send-with-attachment --stream team/plan --file plan.pdf",
    "stream": "veen stream --stream team/plan --follow",
    "attachment verify": "veen attachment verify --msg message.cbor --file plan.pdf",
    "attachment get": "veen attachment get --stream team/plan --seq 7 --out plan.pdf",
    "verify-attachment": "veen verify-attachment --msg message.cbor --file plan.pdf",
    "resync": "veen resync --stream team/plan",
    "verify-state": "veen verify-state --stream team/plan",
    "interpret": "veen interpret crdt.lww --stream team/plan --key place",
    "state certify": "veen state certify crdt.lww --stream team/plan --out plan.veen-state",
    "state verify": "veen state verify plan.veen-state",
    "bench send": "veen bench send --stream bench --count 10000",
    "rpc call": """veen rpc call --stream calc --method add --args '[1, 2]' --to server/identity_card.pub""",
    "rpc serve": "veen rpc serve --stream calc --module calc.py --client server",
    "crdt lww set": "veen crdt lww set --stream team/plan --key place --value 'north gate'",
    "crdt lww get": "veen crdt lww get --stream team/plan --key place",
    "crdt orset add": "veen crdt orset add --stream team/plan --elem rope",
    "crdt orset remove": "veen crdt orset remove --stream team/plan --elem rope",
    "crdt orset list": "veen crdt orset list --stream team/plan",
    "crdt counter add": "veen crdt counter add --stream visits --delta 3",
    "crdt counter get": "veen crdt counter get --stream visits",
    "crdt-lww set": "veen crdt-lww set --stream team/plan --key place --value 'north gate'",
    "crdt-lww get": "veen crdt-lww get --stream team/plan --key place",
    "crdt-orset add": "veen crdt-orset add --stream team/plan --elem rope",
    "crdt-orset remove": "veen crdt-orset remove --stream team/plan --elem rope",
    "crdt-orset list": "veen crdt-orset list --stream team/plan",
    "crdt-counter add": "veen crdt-counter add --stream visits --delta 3",
    "crdt-counter get": "veen crdt-counter get --stream visits",
    "schema-id": "veen schema-id wallet.open.v1",
    "wallet open": "veen wallet open --currency EUR",
    "wallet deposit": "veen wallet deposit --amount 10000",
    "wallet withdraw": "veen wallet withdraw --amount 2500 --ref rent-2026-11",
    "wallet adjust": "veen wallet adjust --delta -100 --reason 'bank fee'",
    "wallet limit": "veen wallet limit --daily-limit 50000",
    "wallet freeze": "veen wallet freeze --reason 'lost card'",
    "wallet unfreeze": "veen wallet unfreeze --reason 'card found'",
    "wallet close": "veen wallet close",
    "wallet transfer": "veen wallet transfer --to WALLET_ID --amount 2500",
    "wallet approve": "veen wallet approve --from WALLET_ID --to WALLET_ID --amount 2500 --out approval.json",
    "wallet show": "veen wallet show",
    "wallet ledger": "veen wallet ledger --stream payments --currency-code EUR",
    "wallet reconcile": "veen wallet reconcile --stream wallet/alice --stream wallet/bob",
    "op send": "veen op send --stream payments --schema-name paid.operation.v1 --body-json @payment.json",
    "op paid": "veen op paid --stream payments --op-type print --payer PAYER_ID --payee PAYEE_ID "
    "--amount 250 --currency-code EUR",
    "op delegated": "veen op delegated --stream payments --principal PRINCIPAL_ID --agent AGENT_ID "
    "--delegation-cap AUTH_REF --operation-schema-id paid.operation.v1 --operation-body-json @payment.json",
    "op access-grant": "veen op access-grant --stream access --subject-identity IDENTITY_ID "
    "--allowed-stream team/plan --expiry-time 1798761600 --out bob.cap",
    "op access-revoke": "veen op access-revoke --subject-identity IDENTITY_ID --reason 'left the team'",
    "op agreement-define": "veen op agreement-define --stream contracts --agreement-id AGREEMENT_ID "
    "--version 1 --party PARTY_ID --party PARTY_ID --terms-file terms.pdf",
    "op agreement-confirm": "veen op agreement-confirm --stream contracts --agreement-id AGREEMENT_ID "
    "--version 1",
    "op publish": "veen op publish --stream releases --publication-id PUBLICATION_ID --version 1.2 dist",
    "op snapshot": "veen op snapshot --stream team/plan --state-class lww.map",
    "op query-audit": "veen op query-audit --stream audit --resource-identifier customers/7 "
    "--resource-class customer --purpose-code support",
    "op recovery-request": "veen op recovery-request --stream recovery --target-identity OLD_ID "
    "--requested-new-identity NEW_ID --reason 'lost laptop'",
    "op recovery-approval": "veen op recovery-approval --stream recovery --target-identity OLD_ID "
    "--requested-new-identity NEW_ID",
    "op recovery-execution": "veen op recovery-execution --stream recovery --target-identity OLD_ID "
    "--new-identity NEW_ID --approval-ref OPERATION_ID --approval-ref OPERATION_ID",
    "agreement status": "veen agreement status --stream contracts --agreement-id AGREEMENT_ID",
    "snapshot verify": "veen snapshot verify --stream team/plan --state-class lww.map --state-id STREAM_ID "
    "--upto-stream-seq 120",
    "recovery timeline": "veen recovery timeline --stream recovery --target-identity OLD_ID "
    "--guardian GUARDIAN_ID --guardian GUARDIAN_ID --threshold 2",
    "recorder init": "veen recorder init --stream record/app/http=http.request,http.error",
    "recorder grant": "veen recorder grant --producer web/identity_card.pub --stream record/app/http "
    "--ttl 2592000 --out web.cap",
    "recorder share": "veen recorder share --to auditor/identity_card.pub --out for-auditor",
    "recorder checkpoint": "veen recorder checkpoint --every 300 --out /mnt/other/checkpoint.cbor",
    "recorder replay": "veen recorder replay --stream record/app/http --from 1 --to 100",
    "recorder tail": "veen recorder tail --stream record/app/http",
    "recorder import": "veen recorder import access.jsonl --stream record/app/http",
    "recorder status": "veen recorder status",
    "recorder verify": "veen recorder verify --checkpoint /mnt/other/checkpoint.cbor",
    "recorder emit": "veen recorder emit --stream record/app/http --type http.error "
    """--payload '{"status": 500}'""",
    "recorder change rename": "veen recorder change rename --stream record/app/http --into record/web/http",
    "recorder change split": "veen recorder change split --stream record/app/http "
    "--into record/app/requests=http.request --into record/app/errors=http.error",
    "recorder change retire": "veen recorder change retire --stream record/app/http --reason 'shut down'",
    "label-class set": "veen label-class set --stream team/plan --class internal --sensitivity low",
    "label-class show": "veen label-class show --stream team/plan",
    "label-class list": "veen label-class list --class internal",
    "audit stream": "veen audit stream --stream team/plan",
    "audit queries": "veen audit queries --stream audit --resource-prefix customers/",
    "audit summary": "veen audit summary --stream payments --sensitive payments",
    "audit enforce-check": "veen audit enforce-check --policy-file policy.json",
    "cap issue": "veen cap issue --subject bob/identity_card.pub --stream team/plan --ttl 86400 --rate 5,10 "
    "--out bob.cap",
    "cap authorize": "veen cap authorize --cap bob.cap",
    "cap add": "veen cap add --cap bob.cap",
    "cap renew": "veen cap renew --cap bob.cap --out bob-renewed.cap",
    "cap list": "veen cap list",
    "cap status": "veen cap status --cap bob.cap",
    "cap revoke": "veen cap revoke --kind auth-ref --target bob.cap --reason 'left the team'",
    "cap revocations": "veen cap revocations --active-only",
    "revoke": "veen revoke --kind auth-ref --target bob.cap --reason 'left the team'",
    "pow request": "veen pow request",
    "pow solve": "veen pow solve --challenge CHALLENGE --difficulty 20",
    "verify-receipt": "veen verify-receipt --receipt receipt.cbor --msg message.cbor --stream team/plan",
    "verify-fraud": "veen verify-fraud evidence.veen-fraud",
    "anchor publish": "veen anchor publish --stream team/plan --out checkpoint.cbor",
    "anchor verify": "veen anchor verify --checkpoint checkpoint.cbor --anchors anchors",
    "verify-anchor": "veen verify-anchor --checkpoint checkpoint.cbor --anchors anchors",
    "export": "veen export --stream team/plan --out plan-export",
    "import": "veen import plan-export --hub-id HUB_ID",
    "fsck": "veen fsck /var/lib/veen",
    "repair": "veen repair /var/lib/veen",
    "clone": "veen clone /var/lib/veen /mnt/backup/veen",
    "fork": "veen fork /var/lib/veen /var/lib/veen-fork",
    "replay": "veen replay /mnt/backup/veen",
    "pipeline verify": "veen pipeline verify /mnt/backup/veen --hub-id HUB_ID",
    "pipeline ingest": "veen pipeline ingest /mnt/backup/veen --lake lake "
    "--keyring ~/.local/share/veen/client",
    "pipeline check": "veen pipeline check --lake lake",
    "pipeline fold": "veen pipeline fold crdt.lww --stream team/plan --lake lake",
    "pipeline replay": "veen pipeline replay --lake lake --into restored",
    "pipeline compact": "veen pipeline compact --lake lake",
    "pipeline sql": "veen pipeline sql 'SELECT count(*) FROM silver_records' --lake lake",
    "query serve": "veen query serve --lake lake --policy policy.json --state state",
    "query grant": "veen query grant alice --policy policy.json --scope 'record/app/*'",
    "query submit": "veen query submit query.json --wait --url http://127.0.0.1:37413 --token-file token",
    "query status": "veen query status RESULT_ID",
    "query result": "veen query result RESULT_ID --all --out rows.jsonl",
    "query descriptor": "veen query descriptor QUERY_ID",
    "query cancel": "veen query cancel RESULT_ID",
    "query run": "veen query run query.json --lake lake --unrecorded",
    "query verify": "veen query verify --lake lake --result-id RESULT_ID",
    "hub start": "veen hub start --data-dir /var/lib/veen --listen 127.0.0.1:37411",
    "hub stop": "veen hub stop --data-dir /var/lib/veen",
    "hub explain": "veen hub explain 7 --stream team/plan --data-dir /var/lib/veen",
    "hub status": "veen hub status --hub https://hub.example.org",
    "hub key": "veen hub key --hub https://hub.example.org",
    "hub health": "veen hub health --hub https://hub.example.org",
    "hub metrics": "veen hub metrics --hub /var/lib/veen --raw",
    "hub profile": "veen hub profile --hub https://hub.example.org",
    "hub kex-policy": "veen hub kex-policy --hub https://hub.example.org",
    "hub admission": "veen hub admission --hub /var/lib/veen",
    "hub admission-log": "veen hub admission-log --hub /var/lib/veen --codes E.CAP,E.RATE",
    "hub role": "veen hub role --hub https://hub.example.org",
    "hub checkpoint": "veen hub checkpoint --stream team/plan --out checkpoint.cbor",
    "hub anchor": "veen hub anchor --stream team/plan --out checkpoint.cbor",
    "hub verify-rotation": "veen hub verify-rotation --checkpoint checkpoint.cbor --old-key OLD_KEY "
    "--new-key NEW_KEY",
    "hub tls-info": "veen hub tls-info --hub https://hub.example.org",
    "hub rotate-key": "veen hub rotate-key --data-dir /var/lib/veen --overlap-sec 604800",
    "hub revoke": "veen hub revoke --kind client-id --target bob/identity_card.pub --data-dir /var/lib/veen",
    "hub trust add": "veen hub trust add alice/identity_card.pub --data-dir /var/lib/veen",
    "hub trust remove": "veen hub trust remove alice/identity_card.pub --data-dir /var/lib/veen",
    "hub trust list": "veen hub trust list --data-dir /var/lib/veen",
    "hub-id": "veen hub-id --hub /var/lib/veen",
    "retention show": "veen retention show --data-dir /var/lib/veen",
    "demo": "veen demo --keep demo",
    "selftest core": "veen selftest core --hub http://127.0.0.1:37411",
    "selftest props": "veen selftest props --seed 7",
    "selftest fuzz": "veen selftest fuzz --seed 7",
    "selftest wallet": "veen selftest wallet",
    "selftest recorder": "veen selftest recorder",
    "selftest query": "veen selftest query",
    "selftest plus-plus": "veen selftest plus-plus",
    "selftest all": "veen selftest all",
    "explain-error": "veen explain-error E.CAP",
    "version": "veen version",
    "conformance": "veen conformance < requests.jsonl",
}

_WIDTH: Final = 74


def epilog(heading: str, *commands: str) -> str:
    """Return commands as the end of a page of help, marked for click as text that is not wrapped."""
    return "\n".join(("\b", heading, *(f"  {line}" for text in commands for line in _lines(text))))


def _lines(text: str) -> list[str]:
    """Break a command before options, as a shell reads it."""
    lines = [""]
    for part in re.split(r" (?=--)", text):
        if lines[-1] and len(lines[-1]) + len(part) + len(" ") + len(r" \ ") > _WIDTH:
            lines[-1] += " \\"
            lines.append(f"  {part}")
        else:
            lines[-1] = f"{lines[-1]} {part}" if lines[-1] else part
    return lines
