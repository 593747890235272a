"""The stored state of QoS 2: one snapshot for all changes meanwhile, and what is found in a queue is checked."""

import json
from collections.abc import Callable

import pytest

from node.mqtt.stored_state import NUMBER_STEP, RECENT_MAX, StoredState


class Queue:
    """The queue of a state, which confirms when the test says so.   snapshots: those that were published."""

    def __init__(self) -> None:
        self.snapshots: list[bytes] = []
        self.answers: list[Callable[[bool], None]] = []
        self.lost = 0

    def publish(self, snapshot: bytes, answer: Callable[[bool], None]) -> None:
        self.snapshots.append(snapshot)
        self.answers.append(answer)

    def lose(self) -> None:
        self.lost += 1

    def state(self, in_flight_max: int = 10) -> StoredState:
        return StoredState(self.publish, self.lose, in_flight_max=in_flight_max)


def test_a_state_that_is_not_kept_is_saved_at_once() -> None:
    done: list[int] = []
    state = StoredState(None, lambda: None, in_flight_max=10)
    state.save(lambda: done.append(1))
    assert done == [1]
    assert not state.is_kept


def test_changes_meanwhile_are_one_snapshot() -> None:
    queue, done = Queue(), list[int]()
    state = queue.state()
    for number in range(5):
        state.received[number + 1] = f"id {number}"
        state.save(lambda number=number: done.append(number))  # type: ignore[misc]
    assert len(queue.snapshots) == 1
    queue.answers.pop()(True)
    assert done == [0]
    assert len(queue.snapshots) == 2
    queue.answers.pop()(True)
    assert done == [0, 1, 2, 3, 4]
    assert queue.answers == []


def test_a_change_in_an_answer_is_in_the_next_snapshot() -> None:
    queue, done = Queue(), list[str]()
    state = queue.state()
    state.save(lambda: state.save(lambda: done.append("second")))
    queue.answers.pop()(True)
    assert done == []
    queue.answers.pop()(True)
    assert done == ["second"]


def test_a_snapshot_that_is_refused_ends_the_session() -> None:
    queue, done = Queue(), list[int]()
    queue.state().save(lambda: done.append(1))
    queue.answers.pop()(False)
    assert (done, queue.lost) == ([], 1)


def test_the_last_snapshot_is_taken_over() -> None:
    queue = Queue()
    state = queue.state()
    for number in range(3):
        state.received = {number + 1: f"r{number}"}
        state.sent = {10: b"s\xff%d" % number}
        state.released = {11: b"released%d" % number}
        state.delivered(b"d%d" % number)
        state.save(lambda: None)
        queue.answers.pop()(True)
    found = queue.state()
    found.restore(queue.snapshots[::-1])
    assert (found.received, found.sent, found.released) == ({3: "r2"}, {10: b"s\xff2"}, {11: b"released2"})
    assert all(found.has_delivered(id_) for id_ in (b"d0", b"d2", b"released2"))
    found.save(lambda: None)
    assert json.loads(queue.snapshots[-1])["number"] == 3 + NUMBER_STEP + 1


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"number": "1"}',
        b'{"number": 1, "received": [], "sent": {}, "released": {}, "recent": []}',
        b'{"number": 1, "received": {"0": "x"}, "sent": {}, "released": {}, "recent": []}',
        b'{"number": 1, "received": {"70000": "x"}, "sent": {}, "released": {}, "recent": []}',
        b'{"number": 1, "received": {"1": 2}, "sent": {}, "released": {}, "recent": []}',
        b'{"number": 1, "received": {}, "sent": {"1": "\\u0100"}, "released": {}, "recent": []}',
        b'{"number": 1, "received": {}, "sent": {}, "released": {}, "recent": [1]}',
        b'{"number": 1, "received": {}, "sent": {}, "released": {}}',
        b"[" * 100_000,
    ],
)
def test_garbage_in_the_queue_is_left_out(garbage: bytes) -> None:
    queue = Queue()
    queue.state().save(lambda: None)
    state = queue.state()
    state.restore([garbage, *queue.snapshots])
    assert state.received == {}
    state.restore([garbage])
    state.restore([])


@pytest.mark.parametrize(("in_flight_max", "stored"), [(10, 10), (100, 100), (30_000, RECENT_MAX)])
def test_so_many_delivered_ids_are_known(in_flight_max: int, stored: int) -> None:
    queue = Queue()
    state = queue.state(in_flight_max)
    for number in range(RECENT_MAX + 5):
        state.delivered(b"%d" % number)
    assert not state.has_delivered(b"4")
    assert state.has_delivered(b"5")
    state.save(lambda: None)
    assert len(json.loads(queue.snapshots[0])["recent"]) == stored
