"""Files for running a hub elsewhere: what they call exists, and the tools that read them accept them."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.paths import ROOT
from veen.cli.main import app
from veen.hub.config import PREFIX, Settings, load

ANALYZE = shutil.which("systemd-analyze")
UNIT = ROOT / "deploy" / "veen-hub.service"
#: Variables that are read by the command line, not by the configuration.
OTHERS = {"VEEN_CONFIG", "VEEN_CONFIG_PATH", "VEEN_DATA_DIR"}


@pytest.mark.parametrize("name", ["Dockerfile", "compose.yaml", "deploy/veen-hub.service"])
def test_every_variable_is_one_that_the_hub_reads(name: str) -> None:
    found = set(re.findall(r"VEEN_[A-Z_]+", (ROOT / name).read_text(encoding="utf-8"))) - OTHERS
    assert {item.removeprefix(PREFIX).lower() for item in found} <= set(Settings.model_fields)


@pytest.mark.parametrize("name", ["Dockerfile", "deploy/veen-hub.service"])
def test_every_option_is_one_that_the_command_has(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if re.match(r"ENTRYPOINT|HEALTHCHECK|ExecStart", line)]
    assert lines
    for line in lines:
        command = re.findall(r"veen\W+hub\W+(\w+)", line)[0]
        shown = CliRunner().invoke(app, ["hub", command, "--help"], env={"COLUMNS": "200"}).output
        asked = re.findall(r"--[a-z-]+", line.split("CMD")[-1])
        assert asked
        assert all(option in shown for option in asked), line


def test_the_image_runs_without_root_on_a_read_only_file_system() -> None:
    image = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert re.search(r"^USER veen$", image, re.MULTILINE)
    assert re.search(r'^ENTRYPOINT \["veen", "hub", "start", "--foreground"\]$', image, re.MULTILINE)
    compose = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    for line in ("read_only: true", "restart: unless-stopped", "- hub-data:/var/lib/veen"):
        assert line in compose


def test_a_container_is_served_under_the_name_that_others_have_for_it() -> None:
    """Services of one compose file call each other by name; the check of its health needs none (C-196)."""
    compose = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    services = re.findall(r"^  ([a-z]+):$", compose.partition("volumes:\n  hub-data")[0], re.MULTILINE)
    (given,) = re.findall(r"VEEN_HOSTS: \$\{VEEN_HOSTS:-([^}]+)\}", compose)
    assert load({}, {"VEEN_HOSTS": given}).hosts == services == ["hub"]
    image = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert re.search(
        r'^HEALTHCHECK .* CMD \["veen", "hub", "health", "--hub", "/var/lib/veen"\]$', image, re.MULTILINE
    )


def test_what_the_image_copies_is_there_and_not_ignored() -> None:
    copied = re.findall(
        r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE
    )
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    names = {name for line in copied for name in line.split()}
    assert names == let_in
    assert all((ROOT / name).exists() for name in names)


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is missing")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    program = tmp_path / "veen"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text(encoding="utf-8").replace("/usr/local/bin/veen", str(program)))
    done = subprocess.run([str(ANALYZE), "verify", unit], capture_output=True, text=True, check=False)
    complaints = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert not complaints
