"""The order of net moves: each is legal when its turn comes, later waves use freed room, and what cannot be stays."""

from spark_ops.planning.fleet import fleet_of
from spark_ops.planning.net_moves import NetMove
from spark_ops.planning.rows import ClusterRows
from spark_ops.planning.schedule import Schedule, scheduled
from spark_ops.planning.state import State
from tests.spark_ops.planning.clusters import FREE, NOW, cluster, node, queue

A, B, C = 0, 1, 2


def _scheduled(rows: ClusterRows, *moves: NetMove) -> Schedule:
    fleet = fleet_of(rows, FREE, now=NOW)
    return scheduled(State(fleet, FREE), moves, FREE)


def _promotion(queue: int, source: int, target: int) -> NetMove:
    return NetMove(queue, source, target, (), (), "cpu-balance", "", may_cost=False)


def test_a_move_that_finds_no_room_waits_for_the_next_wave() -> None:
    """spark §6.5: b has room for the large queue only when the small one has left, which another wave may use."""
    rows = cluster(
        [node(name, cores=1.0) for name in "abcd"],
        [queue("large", "a", "b", cpu=0.6), queue("small", "b", "d", "c", cpu=0.3, members=("d", "c", "b"))],
    )
    large, small = _promotion(0, A, B), _promotion(1, B, C)
    found = _scheduled(rows, large, small)
    assert (found.moves, found.wave, found.left) == ([small, large], [0, 1], [])


def test_moves_that_wait_for_each_other_are_left_out() -> None:
    """spark §6.25: of two queues that change places, neither node has room for both even for a moment."""
    rows = cluster(
        [node(name, cores=1.0) for name in "abc"],
        [
            queue("one", "a", "b", cpu=0.6),
            queue("other", "b", "a", cpu=0.6),
            queue("third", "a", "c", cpu=0.1),
        ],
    )
    one, other, third = _promotion(0, A, B), _promotion(1, B, A), _promotion(2, A, C)
    found = _scheduled(rows, one, other, third)
    assert (found.moves, found.wave, found.left) == ([third], [0], [one, other])


def test_a_copy_comes_before_another_goes() -> None:
    """The state has the placement and the loads of the queue, also where all places of its row are taken."""
    rows = cluster(
        [node(name, cores=1.0) for name in "abc"],
        [queue("q", "a", "b", cpu=0.3, mirror_cpu=0.1, memory=5.0, size=5.0)],
    )
    fleet = fleet_of(rows, FREE, now=NOW)
    state = State(fleet, FREE)
    scheduled(state, [NetMove(0, A, C, (C,), (A,), "memory-balance", "", may_cost=False)], FREE)
    assert (state.ring(0), int(state.master[0]), state.heir(0, C)) == ([B, C], C, B)
    assert [round(value, 6) for value in state.load[0]] == [0.0, 0.1, 0.3]
    assert state.load[3] == [0.0, 5.0, 5.0]
