"""Waiting for every queue that got a run."""

from node.queue.acceptance import Acceptance, Answer, OwnDisk


def asked(parties: int, count: int = 3) -> Acceptance:
    acceptance = Acceptance(count)
    for _ in range(parties):
        acceptance.expect()
    return acceptance


def test_it_is_settled_when_the_last_has_answered() -> None:
    settled: list[Acceptance] = []
    acceptance = asked(3)
    acceptance.end(settled.append)
    acceptance.accept()
    acceptance.accept([1, 2])
    assert settled == []
    acceptance.settle(0, 0, is_safe=True)
    assert settled == [acceptance]
    assert sorted(acceptance.refused) == [1, 2]
    assert not acceptance.is_lost


def test_all_may_have_answered_before_the_last_is_asked() -> None:
    settled: list[Acceptance] = []
    acceptance = asked(1)
    acceptance.accept()
    assert not acceptance.is_awaited
    acceptance.expect()
    assert acceptance.is_awaited
    acceptance.accept()
    acceptance.end(settled.append)
    assert settled == [acceptance]


def test_a_party_that_is_lost_is_remembered() -> None:
    settled: list[Acceptance] = []
    acceptance = asked(2)
    acceptance.end(settled.append)
    acceptance.fail()
    acceptance.accept([1])
    assert settled == [acceptance]
    assert acceptance.is_lost


def test_mirrors_that_are_gone_are_a_party_that_is_lost() -> None:
    acceptance = asked(1)
    acceptance.settle(0, 0, is_safe=False)
    assert acceptance.is_lost
    assert not acceptance.is_unkept


def test_this_nodes_disk_is_told_apart() -> None:
    acceptance = asked(1)
    OwnDisk(acceptance).settle(0, 0, is_safe=False)
    assert acceptance.is_unkept
    assert not acceptance.is_lost


def test_an_answer_tells_what_was_refused_when_the_rest_is_safe() -> None:
    acceptance = asked(2)
    Answer(acceptance, [2]).settle(0, 0, is_safe=True)
    assert acceptance.refused == {2}
    Answer(acceptance, []).settle(0, 0, is_safe=False)
    assert acceptance.is_lost
