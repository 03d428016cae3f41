"""The archive of classes belongs to one Java and one Spark, and is used if it is there."""

from pathlib import Path

import pytest

from veen.pipeline.errors import ClassArchiveError
from veen.pipeline.spark.build_class_archive import check_java
from veen.pipeline.spark.class_archive import archive_for, options
from veen.pipeline.spark.java import wheel_java_home


def test_each_java_and_each_home_has_its_own(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for home in (first, second):
        home.mkdir()
        (home / "release").write_text("17.0.1")
    one = archive_for({"JAVA_HOME": str(first)}, tmp_path)
    assert archive_for({"JAVA_HOME": str(first)}, tmp_path) == one
    others = {
        archive_for({"JAVA_HOME": str(second)}, tmp_path),
        archive_for({"JAVA_HOME": str(first), "SPARK_HOME": "elsewhere"}, tmp_path),
    }
    (first / "release").write_text("17.0.2")
    others.add(archive_for({"JAVA_HOME": str(first)}, tmp_path))
    assert len(others | {one}) == 4


def test_it_is_used_only_if_it_is_there(tmp_path: Path) -> None:
    java = {"JAVA_HOME": str(tmp_path)}
    assert options(java, tmp_path) == ()
    archive_for(java, tmp_path).touch()
    assert options(java, tmp_path) == (f'-XX:SharedArchiveFile="{archive_for(java, tmp_path)}"',)


@pytest.mark.slow
def test_the_wheels_java_says_that_it_can_not() -> None:
    wheel = wheel_java_home()
    assert wheel is not None
    with pytest.raises(ClassArchiveError, match="cannot store classes"):
        check_java(str(wheel))
