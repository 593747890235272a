"""Whether a member's own disk is stuck, told from the disks of others."""

from cluster.metadata.disk_watch import DiskWatch


def _written(at_s: float) -> DiskWatch:
    watch = DiskWatch(1.0)
    watch.observe(at_s, written=3, synced=2, last_index=7)
    return watch


def test_who_waits_longer_than_the_others_did_and_a_second_holds_up() -> None:
    watch = _written(10.0)
    assert not watch.holds_up(10.2, lambda index: False)
    assert not watch.holds_up(10.5, lambda index: index == 7)
    assert watch.due() == 12.0
    assert not watch.holds_up(11.9, lambda index: False)
    assert watch.holds_up(12.0, lambda index: False)


def test_what_is_synced_is_watched_no_more() -> None:
    watch = _written(10.0)
    assert not watch.holds_up(10.5, lambda index: True)
    watch.observe(11.0, written=4, synced=3, last_index=8)
    assert not watch.holds_up(14.9, lambda index: False)
    assert watch.due() == 15.0
    watch.observe(20.5, written=4, synced=4, last_index=8)
    assert watch.due() == float("inf")


def test_a_disk_is_stuck_after_a_second() -> None:
    watch = _written(10.0)
    assert not watch.is_stuck(10.9)
    assert watch.is_stuck(11.0)


def test_without_news_of_the_others_it_takes_longer() -> None:
    watch = _written(10.0)
    assert not watch.holds_up(13.9, lambda index: False)
    assert watch.holds_up(14.0, lambda index: False)
