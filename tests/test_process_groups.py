"""Groups of tests that share a process: by their fixtures and marks, not by words in their files."""

import pytest

from tests import process_groups
from tests.process_groups import PORTIONS, SPARK, Needs, groups, needs_of


@pytest.fixture(scope="module")
def costly() -> int:
    return 1


@pytest.mark.usefixtures("costly")
def test_a_fixture_of_the_module_is_shared(request: pytest.FixtureRequest) -> None:
    assert needs_of(request.node) == Needs(request.node.nodeid, spark=False, shares=True)


@pytest.mark.xdist_group("spark")
def test_a_mark_says_that_a_test_starts_spark(request: pytest.FixtureRequest) -> None:
    assert needs_of(request.node) == Needs(request.node.nodeid, spark=True, shares=False)


def test_other_tests_need_nothing(request: pytest.FixtureRequest) -> None:
    assert needs_of(request.node) == Needs(request.node.nodeid, spark=False, shares=False)


def test_all_spark_is_in_one_group_with_whatever_shares_a_fixture_with_it() -> None:
    tests = [
        Needs("a.py::spark", spark=True, shares=True),
        Needs("a.py::shares_with_it", spark=False, shares=True),
        Needs("a.py::alone", spark=False, shares=False),
        Needs("b.py::spark", spark=True, shares=False),
        Needs("b.py::shares_a_hub", spark=False, shares=True),
        Needs("b.py::shares_the_hub", spark=False, shares=True),
    ]
    first, second, alone, third, *hub = groups(tests)
    assert first == second == third == SPARK
    assert alone.startswith("a.py ")
    assert hub == ["b.py", "b.py"]


def test_tests_that_share_nothing_are_divided_the_same_way_everywhere() -> None:
    tests = [Needs(f"a.py::test[{nth}]", spark=False, shares=False) for nth in range(200)]
    assert groups(tests) == groups(tests)
    assert len(set(groups(tests))) == PORTIONS


@pytest.mark.parametrize("started", [False, True])
def test_a_test_that_starts_spark_outside_of_its_group_fails(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, *, started: bool
) -> None:
    call = process_groups.pytest_runtest_call(request.node)
    next(call)
    if started:
        monkeypatch.setattr(process_groups, "running_spark", object)
    with pytest.raises(pytest.fail.Exception if started else StopIteration):
        next(call)
    monkeypatch.undo()
