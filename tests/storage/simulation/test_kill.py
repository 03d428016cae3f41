"""The real process, ended in the middle of its work: what it has printed is there."""

import random
from itertools import islice
from pathlib import Path

import pytest

from tests.storage.simulation.oneshots import check_kept, command, receipts, start


@pytest.mark.slow
def test_what_was_printed_survives_a_kill(tmp_path: Path) -> None:
    """Again and again on one directory, at moments that depend on how much was acknowledged."""
    chance = random.Random(7)
    root = tmp_path / "data"
    promised = []
    for _ in range(6):
        with start(command(root, 0)) as process:
            assert process.stdout is not None
            lines = list(islice(process.stdout, chance.randint(1, 400)))
            process.kill()
            lines += process.stdout.readlines()
        promised += receipts(lines)
        check_kept(root, promised)
    assert len({(receipt.label, receipt.stream_seq) for receipt in promised}) == len(promised)


def test_a_second_writer_is_refused_by_name(tmp_path: Path) -> None:
    root = tmp_path / "data"
    with start(command(root, 0)) as first:
        assert first.stdout is not None
        first.stdout.readline()
        with start(command(root, 1)) as second:
            _, error = second.communicate()
        first.kill()
    assert second.returncode == 3
    assert "in use by a test" in error
