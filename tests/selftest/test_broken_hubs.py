"""A selftest that can not fail is none: hubs that really lack a feature fail the step that is about it."""

import shlex
import sys
from pathlib import Path
from random import Random

import pytest

from tests.selftest.runs import VEEN, assert_fails, assert_nothing_left, selftest

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


@pytest.mark.parametrize(
    ("step", "settings"),
    [
        ("submit-logs", {"log_submits": "false"}),
        ("anchor-cadence", {"anchor_backend": "none"}),
        ("anchor-binding", {"anchor_backend": "none"}),
        ("capability-missing", {"require_cap": "false"}),
        ("capability-issuer", {"trust_all_issuers": "true"}),
        ("capability", {"trust_issuers": STRANGER}),
        ("attachments", {"attachments": "false"}),
        ("time-window", {"epoch_sec": "0"}),
        ("send-receive", {"role": "replica"}),
        ("safe-retry", {"max_msgs_per_client_id_per_label": "1"}),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_a_hub_without_the_feature_fails_the_step(
    tmp_path: Path, step: str, settings: dict[str, str]
) -> None:
    done = selftest(tmp_path, "core", "--only", step, "--json", VEEN_SELFTEST_HUB=_with_settings(**settings))
    assert_fails(done, step)
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


@pytest.mark.parametrize(
    ("step", "before", "after"),
    [
        ("killed-hub", "[path.unlink() for path in place.glob('state/journal-*.wal')]", ""),
        ("rotation", "", "[path.unlink() for path in place.glob('log/*.summary')]"),
        ("rotation", "", "[path.unlink() for path in place.glob('log/checkpoint-index-*')]"),
        (
            "offline-read",
            "",
            FLIP,
        ),
    ],
    ids=["journal lost", "summaries lost", "checkpoint index lost", "bit flipped"],
)
def test_a_directory_that_loses_something_fails_the_step(
    tmp_path: Path, step: str, before: str, after: str
) -> None:
    command = _around(tmp_path, before=before, after=after)
    done = selftest(tmp_path, "core", "--only", step, "--json", VEEN_SELFTEST_HUB=command)
    assert_fails(done, step)
    assert_nothing_left(tmp_path)


@pytest.mark.parametrize("form", ["text", "hex"])
def test_a_hub_that_writes_down_what_it_should_not_know_fails_the_step(tmp_path: Path, form: str) -> None:
    # The run takes its marker from the seed, so we know it as well as a hub that could open messages.
    chance = Random("7/no-plaintext")  # noqa: S311 - to be repeated
    marker = f"marker-{chance.randbytes(20).hex()}"
    text = marker if form == "text" else marker.encode().hex()
    command = _around(tmp_path, before=f'print(\'{{"body": "{text}"}}\', file=sys.stderr)')
    args = ("core", "--only", "no-plaintext", "--seed", "7", "--json")
    assert "holds what was sent" in assert_fails(
        selftest(tmp_path, *args, VEEN_SELFTEST_HUB=command), "no-plaintext"
    )


def test_a_hub_that_does_not_start_fails_every_step_that_needs_it(tmp_path: Path) -> None:
    done = selftest(tmp_path, "core", "--only", "health", "--json", VEEN_SELFTEST_HUB="false")
    assert "did not start" in assert_fails(done, "health")
    assert_nothing_left(tmp_path)
