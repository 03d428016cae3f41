#!/bin/sh
# Write the lock files from pyproject.toml: names, versions and hashes for Linux on x86_64 and aarch64 and every
# Python from 3.11 on, without the name of any host. Locked versions that still fit are retained;
#
#   make lock ARGS=--upgrade
#
# upgrades all of them. Releases younger than a week are not considered: bad ones are usually noticed by then.
set -eu

cd "$(dirname "$0")/.."
uv=${UV:-uv}
command -v "$uv" >/dev/null 2>&1 || {
    echo "make lock needs uv: pip install uv, or set UV=/path/to/uv" >&2
    exit 1
}

compile() {
    "$uv" pip compile --quiet --universal --python-version 3.11 --exclude-newer '7 days' \
        --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links "$@" >/dev/null
}

# The build tools come first; a package in both locks must have one version.
compile --group build --output-file requirements-build.lock "$@"
compile pyproject.toml --all-extras --constraint requirements-build.lock --output-file requirements.lock "$@"
# Only what a hub needs, for its image; the versions are those of the full lock.
compile pyproject.toml --extra hub --constraint requirements.lock --output-file requirements-hub.lock "$@"
grep -c '==' requirements-build.lock requirements.lock requirements-hub.lock
