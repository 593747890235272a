"""Queues and copies give up memory alike, and those that are gone give up none."""

from node.queue.paging import QUEUE_MIN_BYTES, TURN_MAX_BYTES, Pager


class Holder:
    """Holds bytes, and pages out what it is asked for."""

    def __init__(self, memory_bytes: int) -> None:
        self.memory_bytes = memory_bytes

    def page_out(self, limit_bytes: int) -> int:
        freed = min(limit_bytes, self.memory_bytes)
        self.memory_bytes -= freed
        return freed


def test_copies_page_out_as_queues_do() -> None:
    """reliability §1.1 W7: memory is short because of what a mirror holds; the largest goes first, a little a turn."""
    pager = Pager(1000)
    large, small = Holder(10 * TURN_MAX_BYTES), Holder(QUEUE_MIN_BYTES - 1)
    pager.copies = lambda: [small, large]
    pager.sample(1000, [])
    assert not pager.has_work
    pager.sample(1000 + 3 * TURN_MAX_BYTES, [])
    pager.turn()
    assert large.memory_bytes == 9 * TURN_MAX_BYTES
    while pager.has_work:
        pager.turn()
    assert large.memory_bytes == 7 * TURN_MAX_BYTES
    assert small.memory_bytes == QUEUE_MIN_BYTES - 1


def test_who_is_gone_pages_nothing() -> None:
    """A copy that was deleted since memory was sampled pages nothing."""
    pager = Pager(0)
    holder = Holder(10 * TURN_MAX_BYTES)
    pager.copies = lambda: [holder]
    pager.sample(5 * TURN_MAX_BYTES, [])
    holder.memory_bytes = 0
    pager.turn()
    assert not pager.has_work
