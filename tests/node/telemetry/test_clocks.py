"""Other nodes' clocks, and how long the garbage collector was."""

import gc

from hypothesis import given
from hypothesis import strategies as st

from node.telemetry.clocks import KEPT_S, PEERS_MAX, Clocks
from node.telemetry.process import GcPauses


def test_nothing_is_known_at_first() -> None:
    """A node by itself has no skew."""
    assert Clocks().skew_ms(0.0) is None
    assert Clocks().choose([]) == []


@given(
    st.floats(-1e4, 1e4),
    st.lists(st.tuples(st.floats(0, 0.5), st.floats(0, 0.5)), min_size=1, max_size=9),
)
def test_our_skew_is_found_within_its_error(skew_s: float, ways: list[tuple[float, float]]) -> None:
    """spark §2.1: all others agree, and ways there and back take as long as they like."""
    clocks, now = Clocks(), 1e6
    for number, (there, back) in enumerate(ways):
        clocks.answered(f"n{number}", now + skew_s, now + there, there + back, 5.0)
    found = clocks.skew_ms(5.0)
    assert found is not None
    skew_ms, error_ms = found
    # Half of two clocks, ours and another one, is the median of two.
    expected = skew_s * 1000 / (2 if len(ways) == 1 else 1)
    assert abs(skew_ms - expected) <= error_ms + 1


def test_what_was_learnt_grows_old() -> None:
    """A node that is gone does not speak any more."""
    clocks = Clocks()
    clocks.answered("n", 10.0, 9.0, 0.0, 100.0)
    assert clocks.skew_ms(100.0 + KEPT_S) is not None
    assert clocks.skew_ms(100.1 + KEPT_S) is None


@given(st.integers(0, 100))
def test_all_are_asked_in_turn(count: int) -> None:
    """Some at a time, none left out."""
    clocks, names = Clocks(), {f"n{number}" for number in range(count)}
    asked: set[str] = set()
    for _ in range(-(-count // PEERS_MAX)):
        chosen = clocks.choose(names)
        assert len(chosen) == len(set(chosen)) <= PEERS_MAX
        asked.update(chosen)
    assert asked == names


def test_pauses_are_counted_until_the_end() -> None:
    """Pauses of the garbage collector are counted until the end, and no callback is left behind."""
    before = list(gc.callbacks)
    pauses = GcPauses()
    pauses.start()
    gc.collect()
    pauses.stop()
    assert pauses.count >= 1
    assert pauses.pause_ms > 0
    count = pauses.count
    gc.collect()
    assert pauses.count == count
    assert gc.callbacks == before
