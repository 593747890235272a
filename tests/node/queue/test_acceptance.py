"""Waiting for every queue that got a run."""

from node.queue.acceptance import Acceptance


def test_it_is_settled_when_the_last_has_answered() -> None:
    settled: list[Acceptance] = []
    acceptance = Acceptance(5, 3, settled.append)
    acceptance.accept()
    acceptance.accept([1, 4])
    assert settled == []
    acceptance.settle(0, 0, is_safe=True)
    assert settled == [acceptance]
    assert sorted(acceptance.rejected) == [1, 4]
    assert not acceptance.is_lost


def test_a_party_that_is_lost_costs_the_whole_run() -> None:
    settled: list[Acceptance] = []
    acceptance = Acceptance(3, 2, settled.append)
    acceptance.fail()
    acceptance.accept([1])
    assert settled == [acceptance]
    assert acceptance.is_lost
    assert list(acceptance.rejected) == [0, 1, 2]


def test_a_disk_that_failed_is_a_party_that_is_lost() -> None:
    settled: list[Acceptance] = []
    Acceptance(1, 1, settled.append).settle(0, 0, is_safe=False)
    assert settled[0].is_lost
