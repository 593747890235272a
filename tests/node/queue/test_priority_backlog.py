"""The ready messages of a queue with `x-max-priority` (amqp-behaviour §5.6)."""

from node.queue.priority_backlog import PriorityBacklog
from node.queue.run import Batch
from tests.kit.messages import bodies_of, content, envelope, priority_backlog
from tests.kit.queue_storage import FakeQueueStorage


def drained(backlog: PriorityBacklog) -> list[bytes]:
    bodies: list[bytes] = []
    while backlog.count:
        bodies += bodies_of(backlog.take(2))
    return bodies


def test_highest_priority_first_and_in_order_within() -> None:
    """§5.6: FIFO in a level, above the maximum is the maximum."""
    backlog = priority_backlog(5)
    for seq, priority in enumerate([0, 5, 1, 9, 1, 0]):
        backlog.append(Batch(envelope(priority=priority), [content(b"%d" % seq)], 1), seq)
    assert (backlog.count, backlog.body_bytes) == (6, 6)
    assert drained(backlog) == [b"1", b"3", b"2", b"4", b"0", b"5"]


def test_what_is_put_back_returns_to_its_level() -> None:
    backlog = priority_backlog(5)
    for seq, priority in enumerate([1, 5, 5, 1]):
        backlog.append(Batch(envelope(priority=priority), [content(b"%d" % seq)], 1), seq)
    first = backlog.take(1)
    backlog.put_back(first)
    assert drained(backlog) == [b"1", b"2", b"0", b"3"]


def test_purge_spans_all_levels() -> None:
    """§5.6."""
    backlog = priority_backlog(5)
    backlog.append(Batch(envelope(priority=1), [content(b"a"), content(b"b")], 1), 1)
    backlog.append(Batch(envelope(priority=2), [content(b"c")], 1), 3)
    assert backlog.clear() == 3
    assert backlog.count == backlog.body_bytes == 0


def test_a_purge_says_what_is_gone_of_which_priority() -> None:
    """Mirrors are told, also of what is on disk: later, when it is known whose it is."""
    storage = FakeQueueStorage()
    backlog = PriorityBacklog(storage, lambda: None, 5)
    for seq in range(1, 13):
        backlog.append(Batch(envelope(priority=seq % 2), [content(b"%d" % seq)], 1), seq)
    taken = backlog.take(1)
    storage.page_out([taken])
    backlog.page_out(1 << 40, 0)
    gone: list[range] = []
    assert backlog.clear(gone.append) == 11
    storage.answer_all()
    assert sorted(seq for seqs in gone for seq in seqs) == [
        seq for seq in range(1, 13) if seq not in taken.seqs
    ]


def test_handing_over_spans_all_levels() -> None:
    """The copy of a queue has no priorities."""
    backlog = priority_backlog(5)
    backlog.append(Batch(envelope(priority=1), [content(b"a"), content(b"b")], 1), 1)
    backlog.append(Batch(envelope(priority=2), [content(b"c")], 1), 3)
    assert len(backlog.levels) == 2
    assert sorted(backlog.ready_ranges(), key=lambda seqs: seqs.start) == [range(1, 3), range(3, 4)]
    assert sum(map(len, backlog.hand_over().runs)) == 3
    assert backlog.count == 0
