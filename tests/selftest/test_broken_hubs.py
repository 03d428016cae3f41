"""A selftest that can not fail is none: hubs that really lack a feature fail the step that is about it."""

import shlex
import sys
from pathlib import Path
from random import Random

import pytest

from tests.selftest.runs import VEEN, assert_fails, assert_nothing_left, only, selftest

pytestmark = pytest.mark.slow

STRANGER = "ab" * 32
FLIP = """
path = next(place.glob("log/chunk-*.log"))
data = bytearray(path.read_bytes())
data[len(data) // 2] ^= 1
path.write_bytes(data)
"""


def _with_settings(**settings: str) -> str:
    """Return a command that starts the program with settings that win over those of the run."""
    return shlex.join(["env", *(f"VEEN_{name.upper()}={value}" for name, value in settings.items()), *VEEN])


SETTINGS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "submits are not logged": ({"log_submits": "false"}, ("submit-logs",)),
    "no anchors": ({"anchor_backend": "none"}, ("anchor-cadence", "anchor-binding")),
    "anybody may write": ({"require_cap": "false"}, ("capability-missing", "capability-issuer")),
    "every issuer counts": ({"trust_all_issuers": "true"}, ("capability-issuer",)),
    "our issuer does not count": ({"trust_issuers": STRANGER}, ("capability", "capability-rate")),
    "no attachments": ({"attachments": "false"}, ("attachments", "attachment-mutation")),
    "epochs never end": ({"epoch_sec": "0"}, ("time-window",)),
    "takes nothing": ({"role": "replica"}, ("send-receive", "bulk")),
    "two at a time": ({"max_connections": "2"}, ("oversize-load",)),
    "one message a client": ({"max_msgs_per_client_id_per_label": "1"}, ("safe-retry",)),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_hub_without_the_feature_fails_the_step(tmp_path: Path, name: str) -> None:
    settings, steps = SETTINGS[name]
    command = _with_settings(**settings)
    done = selftest(tmp_path, "core", *only(*steps), "--json", VEEN_SELFTEST_HUB=command)
    assert_fails(done, *steps)
    assert_nothing_left(tmp_path)


def _around(place: Path, *, before: str = "", after: str = "") -> str:
    """Return a command that does something to the data directory around the life of the hub."""
    script = place / "around.py"
    script.write_text(
        "import pathlib, subprocess, sys\n"
        "place = pathlib.Path(sys.argv[sys.argv.index('--data-dir') + 1])\n"
        f"{before}\n"
        f"done = subprocess.run([*{list(VEEN)!r}, *sys.argv[1:]])\n"
        f"{after}\n"
        "sys.exit(done.returncode)\n"
    )
    return shlex.join([sys.executable, str(script)])


#: What happens to the directory before the hub starts and after it has ended.
LOSSES: dict[str, tuple[str, str, str]] = {
    "journal": ("killed-hub", "[path.unlink() for path in place.glob('state/journal-*.wal')]", ""),
    "summaries": ("rotation", "", "[path.unlink() for path in place.glob('log/*.summary')]"),
    "a bit": ("offline-read", "", FLIP),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_directory_that_loses_something_fails_the_step(tmp_path: Path, name: str) -> None:
    step, before, after = LOSSES[name]
    command = _around(tmp_path, before=before, after=after)
    done = selftest(tmp_path, "core", *only(step), "--json", VEEN_SELFTEST_HUB=command)
    assert_fails(done, step)
    assert_nothing_left(tmp_path)


#: Mistakes that no setting makes: code that a hub runs before it starts.
MISTAKES: dict[str, tuple[str, str]] = {
    "rates": ("capability-rate", "capability.Bucket.take = lambda self, rate, hub_ts: self"),
    "lifetimes": ("capability-expired", "stateful.verify_ttl = lambda *_: None"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_hub_that_does_not_check_fails_the_step(tmp_path: Path, name: str) -> None:
    step, mistake = MISTAKES[name]
    script = tmp_path / "mistaken.py"
    script.write_text(
        "from veen.core.objects import capability\nfrom veen.admission import stateful\n"
        f"from veen.cli.main import main\n{mistake}\nmain()\n"
    )
    command = shlex.join([sys.executable, str(script)])
    done = selftest(tmp_path, "core", *only(step), "--json", VEEN_SELFTEST_HUB=command)
    assert_fails(done, step)
    assert_nothing_left(tmp_path)


@pytest.mark.parametrize("form", ["text", "hex"])
def test_a_hub_that_writes_down_what_it_should_not_know_fails_the_step(tmp_path: Path, form: str) -> None:
    # The run takes its marker from the seed, so we know it as well as a hub that could open messages.
    chance = Random("7/no-plaintext")
    marker = f"marker-{chance.randbytes(20).hex()}"
    text = marker if form == "text" else marker.encode().hex()
    command = _around(tmp_path, before=f'print(\'{{"body": "{text}"}}\', file=sys.stderr)')
    args = ("core", *only("no-plaintext"), "--seed", "7", "--json")
    found = assert_fails(selftest(tmp_path, *args, VEEN_SELFTEST_HUB=command), "no-plaintext")
    assert "contains what was sent" in found["no-plaintext"]


def test_a_hub_that_does_not_start_fails_every_step_that_needs_it(tmp_path: Path) -> None:
    done = selftest(tmp_path, "core", *only("health", "bulk"), "--json", VEEN_SELFTEST_HUB="false")
    found = assert_fails(done, "health", "bulk")
    assert all("did not start" in detail for detail in found.values())
    assert_nothing_left(tmp_path)
