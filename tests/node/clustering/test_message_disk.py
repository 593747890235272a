"""A message disk that does not get on is told, once; one that is slow, idle or was not looked at is none."""

import logging

import pytest

from node.clustering.message_disk import STUCK_S, MessageDisk


def _looked(
    disk: MessageDisk, since: float, until: float, *, progress: int = 1, is_busy: bool = True
) -> list[bool]:
    steps = round((until - since) * 2)
    return [disk.look(progress, since + at / 2, is_busy=is_busy) for at in range(steps + 1)]


def test_a_disk_that_hangs_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    disk = MessageDisk(logging.getLogger("test"))
    assert not any(_looked(disk, 0.0, STUCK_S - 0.5))
    assert not disk.is_stuck
    assert disk.look(1, STUCK_S, is_busy=True)
    assert disk.is_stuck
    assert not any(_looked(disk, STUCK_S, STUCK_S + 30))
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert disk.look(2, STUCK_S + 31, is_busy=True)
    assert not disk.is_stuck
    assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.WARNING]


def test_a_disk_that_is_slow_or_has_nothing_to_do_is_not_stuck() -> None:
    disk = MessageDisk(logging.getLogger("test"))
    for round_ in range(5):
        assert not any(_looked(disk, round_ * 9.0, round_ * 9.0 + 8.5, progress=round_))
    assert not any(_looked(disk, 50.0, 90.0, is_busy=False))


def test_a_process_that_was_frozen_blames_no_disk() -> None:
    disk = MessageDisk(logging.getLogger("test"))
    disk.look(1, 0.0, is_busy=True)
    assert not disk.look(1, 1000.0, is_busy=True)
