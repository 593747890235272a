"""`backing_queue_status` and its neighbours (management §1.3)."""

from node.catalogue.policy import QueueSettings
from node.catalogue.records import QueueRecord
from node.queue.queue import Queue
from node.queue.run import Batch
from node.queue.status import QueueStatus
from tests.kit.messages import FakeHost, content, envelope, make_queue
from tests.kit.queue_storage import FakeQueueStorage


def test_lengths_and_rates_of_a_paged_queue() -> None:
    """Rates are per second since the last sample."""
    queue = Queue(QueueRecord("/", "q", "uid"), QueueSettings(), FakeHost(), FakeQueueStorage(), 0.0)
    status = QueueStatus(queue, 0.0)
    queue.enqueue(Batch(envelope(), [content(b"abc")] * 20, 3), 0.0)
    queue.backlog.page_out(1 << 30, keep_bytes=0)
    queue.enqueue(Batch(envelope(), [content(b"abc")], 3), 0.0)
    status.sample(2.0)
    shown = status.as_json()
    assert {name: shown[name] for name in ("q1", "q2", "q3", "q4", "len", "next_seq_id")} == {
        "q1": 1,
        "q2": 0,
        "q3": 0,
        "q4": 0,
        "len": 21,
        "next_seq_id": 22,
    }
    assert shown["delta"] == ["delta", "undefined", 20, 0, "undefined"]
    assert shown["avg_ingress_rate"] == 10.5
    assert status.counts()["messages_paged_out"] == 20


def test_acknowledgements_have_rates_of_their_own() -> None:
    queue = make_queue()
    status = QueueStatus(queue, 0.0)
    queue.enqueue(Batch(envelope(), [content(b"a")] * 4, 1), 0.0)
    run = queue.backlog.take(4)
    queue.delivered(run)
    queue.ack(run[:2])
    status.sample(1.0)
    shown = status.as_json()
    assert [shown[f"avg_{name}_rate"] for name in ("egress", "ack_ingress", "ack_egress")] == [4, 4, 2]


def test_levels_are_told_apart() -> None:
    queue = make_queue(settings=QueueSettings(max_priority=2))
    queue.enqueue(Batch(envelope(priority=9), [content(b"a")], 1), 0.0)
    assert QueueStatus(queue, 0.0).as_json()["priority_lengths"] == {"0": 0, "1": 0, "2": 1}
