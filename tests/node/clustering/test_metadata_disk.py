"""A metadata disk that hangs or is full is told to the operator, once, and blocks nobody."""

import logging

import pytest

from node.clustering.metadata_disk import STUCK_S, MetadataDisk


def _levels(caplog: pytest.LogCaptureFixture) -> list[int]:
    return [record.levelno for record in caplog.records]


def test_a_disk_that_hangs_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    disk = MetadataDisk(logging.getLogger("test"))
    disk.look(STUCK_S - 0.1)
    assert not disk.is_stuck
    disk.look(STUCK_S)
    disk.look(STUCK_S + 1)
    assert disk.is_stuck
    assert _levels(caplog) == [logging.ERROR]
    assert "has not answered for 10 s" in caplog.text
    disk.look(0.0)
    assert not disk.is_stuck
    assert _levels(caplog) == [logging.ERROR, logging.WARNING]


def test_a_full_disk_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    disk = MetadataDisk(logging.getLogger("test"))
    disk.full("No space left on device")
    disk.look(STUCK_S + 1)
    assert disk.is_stuck
    assert _levels(caplog) == [logging.ERROR]
    assert "No space left for the metadata in raft/: No space left on device" in caplog.text
    disk.has_room()
    disk.look(0.0)
    assert not disk.is_stuck
    assert _levels(caplog) == [logging.ERROR, logging.WARNING]
