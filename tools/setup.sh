#!/bin/sh
# Set up a virtual environment from the lock files. Called by make; safe to run again at any time.
#
#   tools/setup.sh         .venv: all locked packages, this package in editable form, and a Java runtime for Spark
#   tools/setup.sh unit    .venv-unit: what the unit tests need, without Spark and Java
#
# Needs a POSIX shell and a Python >= 3.11 with venv. Needs neither root nor a compiler. The package index,
# proxies and certificates are those of the user's own pip configuration: nothing here names a host.
#
#   PYTHON=/path/to/python    use this interpreter instead of looking for one
set -eu

cd "$(dirname "$0")/.."
here=$(pwd -P)
case "${1:-}" in
    '') venv=.venv steps=6 ;;
    unit) venv=.venv-unit steps=4 ;;
    *)
        echo "usage: tools/setup.sh [unit]" >&2
        exit 2
        ;;
esac
python=$venv/bin/python

say() { printf 'set-up %s/%s: %s\n' "$1" "$steps" "$2"; }
die() { printf 'set-up failed: %s\n' "$*" >&2; exit 1; }

# Two terminals may both find the environment stale; the second waits and then has little to do.
if command -v flock >/dev/null 2>&1; then
    exec 9>.setup.lock
    flock 9
fi

# --- 1. The interpreter ------------------------------------------------------------------------------------

# "new enough" is asked of the interpreter itself: a name on PATH may be a shim that does not run.
is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
has_venv() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }

find_python() {
    no_venv=
    if [ -n "${PYTHON:-}" ]; then set -- "$PYTHON"; else set -- python3.11 python3.12 python3.13 python3; fi
    for candidate; do
        is_new_enough "$candidate" || continue
        if has_venv "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
        no_venv=${no_venv:-$candidate}
    done
    if [ -n "$no_venv" ]; then
        die "$no_venv has no venv module; on Debian and Ubuntu: apt install python3-venv"
    elif [ -n "${PYTHON:-}" ]; then
        die "PYTHON=$PYTHON is not a Python 3.11 or newer"
    fi
    die "no Python 3.11 or newer on PATH; on Debian and Ubuntu: apt install python3 python3-venv (or set PYTHON=...)"
}

# --- 2. The virtual environment ----------------------------------------------------------------------------

# Scripts and the editable link hold absolute paths, so an environment that was copied or moved along with the
# tree would quietly run the code of the old tree. It is rebuilt instead.
is_ours() { [ "$(cat $venv/.home 2>/dev/null)" = "$here" ] && is_new_enough "$python"; }

make_venv() {
    found=$(find_python) || exit 1
    say 1 "virtual environment with $found"
    "$found" -m venv --clear $venv || die "could not create $venv with $found"
    printf '%s\n' "$here" >$venv/.home
}

# --- 3. Packages -------------------------------------------------------------------------------------------

pip() { "$python" -m pip --disable-pip-version-check "$@"; }
install() { pip install --quiet --no-user "$@" || die "pip could not install ($*)"; }

# The copy of a lock inside the environment says what was installed from it last.
is_installed() { cmp -s "$1" "$venv/.$1"; }

install_locked() {
    lock=$1
    shift
    install --require-hashes "$@" -r "$lock"
    cp "$lock" "$venv/.$lock"
}

install_build_tools() {
    is_installed requirements-build.lock && return
    say 2 "build tools (requirements-build.lock)"
    install_locked requirements-build.lock --only-binary :all:
}

install_all() {
    is_installed requirements.lock && return
    say 3 "packages (requirements.lock; the first time about 600 MB, mostly Spark)"
    # Everything is a wheel, so no compiler is needed; Spark is published as a source archive only, but it
    # holds ready-made jars and pure Python.
    install_locked requirements.lock --no-build-isolation --only-binary :all: --no-binary pyspark
}

install_for_unit_tests() {
    say 3 "packages of the unit tests (from requirements.lock)"
    while "$python" tools/unit_lock.py >$venv/.missing || die "cannot read requirements.lock"; [ -s $venv/.missing ]; do
        install --require-hashes --no-deps --only-binary :all: -r $venv/.missing
    done
}

install_veen() {
    say 4 "veen itself, in editable form"
    install --no-deps --no-build-isolation -e .
}

# --- 4. Java -----------------------------------------------------------------------------------------------

find_java() {
    say 5 "Java runtime for Spark"
    home=$("$python" -m veen.pipeline.spark.java) || die "no Java runtime for Spark, see above"
    printf '            JAVA_HOME for Spark: %s\n' "$home"
}

# --- 5. A faster start of Spark ----------------------------------------------------------------------------

# It only shortens the start of a command on Spark (3 s instead of 7).
build_class_archive() {
    say 6 "archive of Spark's classes (the first time about 40 s, 190 MB)"
    "$python" -m veen.pipeline.spark.build_class_archive >/dev/null || printf '            skipped; Spark works, but starts more slowly\n'
}

is_ours || make_venv
install_build_tools
if [ $venv = .venv-unit ]; then
    install_for_unit_tests
    install_veen
else
    install_all
    install_veen
    find_java
    build_class_archive
fi
