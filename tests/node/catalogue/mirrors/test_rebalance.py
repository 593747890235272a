"""Rebalance: reliability §2.2 (rebalance_*), management §2.5."""

from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random

import pytest

from node.catalogue.mirrors.rebalance import (
    MOVE_S_MAX,
    MOVING_MAX,
    Move,
    Rebalancer,
    Share,
    plan,
    selected,
    shares,
)
from node.catalogue.mirrors.views import TookOver, TransferMaster, View, changed, created, died
from node.catalogue.records import QueueRecord, QueueType


def _queue(
    name: str, copies: Iterable[str], *, type_: QueueType = "classic", vhost: str = "/"
) -> QueueRecord:
    """copies: nodes, the master first; those in lower case are not synchronised."""
    nodes = list(copies)
    view = created(0, [(node.lower(), 1) for node in nodes])
    synced = tuple(id_ for id_, node in zip(view.synced, nodes, strict=True) if node.isupper())
    view = View(view.version, view.members, view.master, synced, since=view.since)
    return QueueRecord(vhost, name, f"uid-{name}", type=type_, home=nodes[0].lower(), view=view)


def _masters(queues: Sequence[QueueRecord], moves: Sequence[Move]) -> dict[str, str]:
    masters = {queue.name: queue.home for queue in queues}
    for move in moves:
        assert masters[move.name] == move.source[0]
        masters[move.name] = move.target[0]
    return masters


def _plan(
    queues: Sequence[QueueRecord], nodes: Sequence[str] = "abc", messages: Sequence[int] = ()
) -> list[Move]:
    lengths = messages or [0] * len(queues)
    return plan(list(zip(queues, lengths, strict=True)), nodes)


def test_rebalance_all() -> None:
    """5 queues on A: at most 2 per node, the loaded ones stay."""
    queues = [_queue(f"q{at}", "ABC") for at in range(1, 6)]
    moves = _plan(queues, messages=[0, 0, 0, 100, 100])
    masters = _masters(queues, moves)
    assert max(Counter(masters.values()).values()) == 2
    assert [name for name, node in masters.items() if node == "a"] == ["q4", "q5"]
    assert moves[0].text == (
        "Migrating queue 'q1' in vhost '/' from node a with 5 queues to node b with 0 queues"
    )


def test_rebalance_exactly() -> None:
    """Two copies each: at most 3 per node, and only where a copy is."""
    queues = [_queue(f"q{at}", "AB" if at % 2 else "AC") for at in range(5)]
    masters = _masters(queues, _plan(queues))
    assert max(Counter(masters.values()).values()) <= 3
    assert all(masters[queue.name].upper() in ("A", "C", "B") for queue in queues)


def test_rebalance_nodes() -> None:
    queues = [_queue(f"q{at}", "AB") for at in range(5)]
    masters = _masters(queues, _plan(queues))
    assert sorted(Counter(masters.values()).values()) == [2, 3]


def test_nothing_moves_to_where_there_are_as_many() -> None:
    queues = [_queue(f"q{at}", "AB") for at in range(6)]
    assert Counter(_masters(queues, _plan(queues)).values()) == {"a": 3, "b": 3}


def test_no_queue_moves_twice() -> None:
    queues = [_queue("q0", "ABC"), *(_queue(f"q{at}", "AB") for at in range(1, 9))]
    moves = _plan(queues)
    assert len(moves) == len({move.uid for move in moves}) == 4


def test_a_mirror_that_is_not_synchronised_is_no_target() -> None:
    assert _plan([_queue(f"q{at}", "Abc") for at in range(5)]) == []


def test_nodes_in_maintenance_mode_are_no_targets() -> None:
    queues = [_queue(f"q{at}", "ABC") for at in range(5)]
    assert "c" not in _masters(queues, _plan(queues, "ab")).values()
    assert _plan(queues, "") == []


def test_what_is_even_enough_stays() -> None:
    assert _plan([_queue("q1", "ABC"), _queue("q2", "ABC"), _queue("q3", "BAC")], "ab") == []
    assert _plan([]) == []


def test_a_queue_that_is_just_moving_is_left_alone() -> None:
    queue = _queue("q0", "ABC")
    assert queue.view is not None
    moving = changed(queue.view, TransferMaster(1, 2))
    queues = [QueueRecord("/", f"q{at}", f"uid-q{at}", home="b", view=moving) for at in range(5)]
    assert _plan(queues) == []


@pytest.mark.parametrize("seed", range(50))
def test_any_plan(seed: int) -> None:
    """No queue moves twice, each goes to a synchronised copy, and the fullest node is no fuller than before."""
    random = Random(seed)
    nodes = "abcde"[: random.randint(1, 5)]
    queues = []
    for at in range(random.randint(0, 60)):
        copies = random.sample(nodes, random.randint(1, len(nodes)))
        copies = [copies[0].upper(), *(random.choice([node, node.upper()]) for node in copies[1:])]
        queues.append(_queue(f"q{at}", copies))
    before = Counter(queue.home for queue in queues)
    moves = _plan(queues, nodes, [random.randrange(5) for _ in queues])
    assert len({move.uid for move in moves}) == len(moves)
    known = {queue.uid: queue.view for queue in queues}
    for move in moves:
        view = known[move.uid]
        assert view is not None
        assert changed(view, move.change) is not None
    after = Counter(_masters(queues, moves).values())
    assert max(after.values(), default=0) <= max(before.values(), default=0)


def test_what_the_operator_means() -> None:
    records = [
        _queue("orders", "A"),
        _queue("other", "A", vhost="v"),
        _queue("quorum", "A", type_="quorum"),
        QueueRecord("/", "unmirrored", "u"),
        QueueRecord("/", "down", "d", view=died(created(0, [("a", 1)]), [1], may_lose=False)),
    ]

    def names(*spec: str) -> list[str]:
        return [record.name for record in selected(records, *spec)]  # type: ignore[arg-type]

    assert names("all", ".*", ".*") == ["orders", "other", "quorum"]
    assert names("classic", ".*", ".*") == ["orders", "other"]
    assert names("quorum", ".*", ".*") == ["quorum"]
    assert names("all", "^v$", ".*") == ["other"]
    assert names("all", ".*", "^ord") == ["orders"]
    assert shares(records, "ba") == [Share("a", 2, 1), Share("b", 0, 0)]


# --- carrying it out --------------------------------------------------------------------------------------


def test_rebalance_multiple_blocked() -> None:
    """A second concurrent call: `rebalance_in_progress`."""
    queues = [_queue(f"q{at}", "ABC") for at in range(5)]
    rebalancer = Rebalancer()
    assert rebalancer.begin(_plan(queues))
    assert not rebalancer.begin(_plan(queues))
    assert rebalancer.next_look(0.0) == 0.0
    for move in rebalancer.look(0.0):
        rebalancer.see(move.uid, None)
    assert not rebalancer.is_running
    assert rebalancer.begin([])
    assert not rebalancer.is_running


def test_some_move_at_a_time() -> None:
    queues = {f"uid-q{at}": _queue(f"q{at}", "ABC") for at in range(60)}
    rebalancer = Rebalancer()
    rebalancer.begin(_plan(list(queues.values())))
    done = 0
    while rebalancer.is_running:
        moves = rebalancer.look(0.0)
        assert len(moves) <= MOVING_MAX
        assert rebalancer.look(0.0) == []
        assert rebalancer.next_look(0.0) == MOVE_S_MAX
        for move in moves:
            view = queues[move.uid].view
            assert view is not None
            moved = changed(view, move.change)
            assert moved is not None
            rebalancer.see(move.uid, moved)
            assert move.uid in rebalancer._moving
            rebalancer.see(move.uid, changed(moved, TookOver(moved.since)))
            assert move.uid not in rebalancer._moving
            done += 1
    assert done == 40


def test_a_queue_that_does_not_move_is_given_up() -> None:
    rebalancer = Rebalancer()
    queues = [_queue(f"q{at}", "ABC") for at in range(3)]
    rebalancer.begin(_plan(queues))
    moves = rebalancer.look(0.0)
    assert len(moves) == 2
    rebalancer.see("another", queues[0].view)
    rebalancer.see(moves[0].uid, queues[0].view)
    assert rebalancer.is_running
    view = queues[0].view
    assert view is not None
    rebalancer.see(moves[0].uid, died(view, [moves[0].change.to], may_lose=False))
    assert rebalancer.look(MOVE_S_MAX) == []
    assert not rebalancer.is_running
    assert rebalancer.next_look(MOVE_S_MAX) is None
