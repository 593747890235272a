"""Waiting for every queue that got a run."""

from node.queue.pending_publish import Answer, OwnDisk, PendingPublish


def asked(unanswered: int, count: int = 3) -> PendingPublish:
    pending = PendingPublish(count)
    for _ in range(unanswered):
        pending.expect()
    return pending


def test_it_is_settled_when_the_last_has_answered() -> None:
    settled: list[PendingPublish] = []
    pending = asked(3)
    pending.end(settled.append)
    pending.accept()
    pending.accept([1, 2])
    assert settled == []
    pending.settle(0, 0, is_safe=True)
    assert settled == [pending]
    assert sorted(pending.refused) == [1, 2]
    assert not pending.is_lost


def test_all_may_have_answered_before_the_last_is_asked() -> None:
    settled: list[PendingPublish] = []
    pending = asked(1)
    pending.accept()
    assert not pending.is_awaited
    pending.expect()
    assert pending.is_awaited
    pending.accept()
    pending.end(settled.append)
    assert settled == [pending]


def test_a_place_that_is_lost_is_remembered() -> None:
    settled: list[PendingPublish] = []
    pending = asked(2)
    pending.end(settled.append)
    pending.fail()
    pending.accept([1])
    assert settled == [pending]
    assert pending.is_lost


def test_mirrors_that_are_gone_are_a_place_that_is_lost() -> None:
    pending = asked(1)
    pending.settle(0, 0, is_safe=False)
    assert pending.is_lost
    assert not pending.is_unkept


def test_this_nodes_disk_is_told_apart() -> None:
    pending = asked(1)
    OwnDisk(pending).settle(0, 0, is_safe=False)
    assert pending.is_unkept
    assert not pending.is_lost


def test_an_answer_tells_what_was_refused_when_the_rest_is_safe() -> None:
    pending = asked(2)
    Answer(pending, [2]).settle(0, 0, is_safe=True)
    assert pending.refused == {2}
    Answer(pending, []).settle(0, 0, is_safe=False)
    assert pending.is_lost
