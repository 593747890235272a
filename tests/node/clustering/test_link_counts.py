"""A link counts what was sent, and for how long there was too much to send."""

from hypothesis import given
from hypothesis import strategies as st

from node.clustering.link_counts import LinkCounts


def test_what_was_sent_is_counted_by_node() -> None:
    counts = LinkCounts()
    counts.gathered("a", 3)
    counts.sent("a", 100)
    counts.sent("a", 20)
    counts.gathered("b", 1)
    assert (counts.packets["a"], counts.frames["a"], counts.frame_bytes["a"]) == (3, 2, 120)
    assert (counts.packets["b"], counts.frames["b"]) == (1, 0)


def test_a_congestion_counts_from_its_first_frame_until_relief() -> None:
    """A congestion counts while it lasts. Frames sent meanwhile begin no other; relief without one changes nothing."""
    counts = LinkCounts()
    counts.relieved("a", 5.0)
    assert counts.congested_ms("a", 10.0) == 0
    counts.congested("a", 10.0)
    counts.congested("a", 11.0)
    assert counts.congested_ms("a", 12.0) == 2000
    assert counts.congested_ms("b", 12.0) == 0
    counts.relieved("a", 12.5)
    assert counts.congested_ms("a", 20.0) == 2500
    counts.congested("a", 30.0)
    counts.relieved("a", 30.5)
    counts.relieved("a", 40.0)
    assert counts.congested_ms("a", 50.0) == 3000


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 100))))
def test_the_time_of_congestions_only_rises_and_never_faster_than_time(
    steps: list[tuple[bool, float]],
) -> None:
    counts, now, before = LinkCounts(), 0.0, 0
    for is_congested, passed in steps:
        now += passed
        (counts.congested if is_congested else counts.relieved)("a", now)
        found = counts.congested_ms("a", now)
        assert before <= found <= before + round(passed * 1000) + 1
        before = found
