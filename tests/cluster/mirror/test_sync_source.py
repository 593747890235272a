"""The master's side of a synchronisation, with mirrors that are written down message by message."""

import pytest

from cluster.errors import Malformed
from cluster.mirror.side import Chunk, Pull, decode_side
from cluster.mirror.sync_source import (
    BATCH_MAX,
    BUSY_CHUNK_BYTES,
    BUSY_PAUSE_S,
    BUSY_S,
    CHUNK_BYTES,
    DEFAULT_BATCH,
    SyncSource,
    batch_size,
    pause_s,
    refusal,
)
from node.catalogue.policy import QueueSettings
from node.catalogue.records import QueueRecord
from node.queue.mirroring import SyncProgress
from node.queue.queue import Queue
from node.queue.run import Batch, Run
from node.queue.storage import MemoryStorage, QueueStorage
from tests.kit.messages import FakeHost, body_of, content, envelope
from tests.kit.queue_storage import MUCH, SegmentStorage


class Master:
    """A queue with its source; what was sent to each member, and what clients have."""

    def __init__(
        self,
        count: int = 0,
        size: int = 3,
        *,
        storage: QueueStorage | None = None,
        is_durable: bool = False,
        max_bytes_per_s: int = 0,
        batch: int = DEFAULT_BATCH,
        max_priority: int | None = None,
    ) -> None:
        settings = QueueSettings(ha_sync_batch_size=batch, max_priority=max_priority)
        record = QueueRecord("/", "q", "uid", durable=is_durable)
        self.queue = Queue(record, settings, FakeHost(), storage or MemoryStorage(), 0.0)
        self.away: list[Run] = []
        self.sent: list[tuple[int, Chunk]] = []
        self.woken = 0
        self.now = 0.0
        self.source = SyncSource(
            self.queue,
            lambda: self.away,
            self._send,
            epoch_s=lambda: 1000.0,
            wake=self._wake,
            max_bytes_per_s=max_bytes_per_s,
        )
        self.publish(count, size)
        self.source.turn(0.0)  # the traffic so far is past

    def publish(self, count: int, size: int = 3) -> None:
        if count:
            first = self.queue.next_seq
            bodies = [b"%d" % seq for seq in range(first, first + count)]
            self.queue.enqueue(
                Batch(envelope(), [content(body.rjust(size, b"0")) for body in bodies], size), 0.0
            )

    def _send(self, member: int, raw: bytes) -> None:
        chunk = decode_side(raw)
        assert isinstance(chunk, Chunk)
        self.sent.append((member, chunk))

    def _wake(self) -> None:
        self.woken += 1

    def turn(self) -> list[tuple[int, list[int]]]:
        """Run a turn and return what it sends: to whom, and which numbers."""
        before = len(self.sent)
        self.source.turn(self.now)
        return [(member, numbers(chunk)) for member, chunk in self.sent[before:]]


def numbers(chunk: Chunk) -> list[int]:
    return [seq for entry in chunk.entries for seq in entry.seqs]


def content_bytes(chunk: Chunk) -> int:
    return sum(len(raw) for entry in chunk.entries for raw in entry.contents)


# --- the size of a chunk ----------------------------------------------------------------------------------


def test_sync_throttling_a_batch_is_cut_at_its_size() -> None:
    """reliability §2.3, sync_throttling: at `ha-sync-batch-size` messages."""
    master = Master(10, batch=4)
    master.source.pull(2, Pull(1, (range(1, 11),)))
    assert master.turn() == [(2, [1, 2, 3, 4])]
    assert master.turn() == [(2, [5, 6, 7, 8])]


def test_sync_throttling_a_batch_is_cut_at_its_bytes() -> None:
    """reliability §2.3, sync_throttling; W7: 4096 messages of any size are too much."""
    master = Master(300, 10_000)
    master.source.pull(2, Pull(1, (range(1, 301),)))
    [(_, first)] = master.turn()
    assert 100 <= len(first) <= 104
    assert content_bytes(master.sent[0][1]) <= CHUNK_BYTES
    [(_, second)] = master.turn()
    assert second[0] == first[-1] + 1


def test_sync_throttling_a_batch_ends_with_what_was_asked_for() -> None:
    """reliability §2.3, sync_throttling: at the end."""
    master = Master(10)
    master.source.pull(2, Pull(1, (range(1, 3), range(7, 9))))
    assert master.turn() == [(2, [1, 2, 7, 8])]
    assert master.sent[0][1].is_end
    assert not master.source.has_work


def test_a_larger_message_goes_alone() -> None:
    master = Master(2, 3 * CHUNK_BYTES)
    master.source.pull(2, Pull(1, (range(1, 3),)))
    assert master.turn() + master.turn() == [(2, [1]), (2, [2])]


@pytest.mark.parametrize(
    ("policy", "messages"), [(1, DEFAULT_BATCH), (2, 2), (4096, 4096), (10**6, BATCH_MAX)]
)
def test_a_batch_size_of_1_counts_as_the_default(policy: int, messages: int) -> None:
    """amqp-behaviour §9.3: ha-sync-batch-size."""
    assert batch_size(policy) == messages


def test_a_changed_policy_counts_at_once() -> None:
    master = Master(10, batch=4)
    master.source.pull(2, Pull(1, (range(1, 11),)))
    master.turn()
    master.queue.apply_settings(QueueSettings(ha_sync_batch_size=2), 0.0)
    assert master.turn() == [(2, [5, 6])]


def test_a_queue_with_traffic_of_its_own_gives_less() -> None:
    """reliability §4.5: synchronisation leaves the queue at least half of the turns' time."""
    master = Master(1000, 2000)
    master.turn()
    master.source.pull(2, Pull(1, (range(1, 1001),)))
    master.publish(1)
    master.turn()
    assert content_bytes(master.sent[0][1]) <= BUSY_CHUNK_BYTES
    master.turn()
    assert len(master.sent) == 1, "there is a pause between two"
    assert master.source.due_at == master.now + BUSY_PAUSE_S
    master.now += BUSY_PAUSE_S
    master.turn()
    assert content_bytes(master.sent[1][1]) <= BUSY_CHUNK_BYTES, "a turn without traffic doesn't end it"
    master.source.pull(2, Pull(1, (), taken=2))
    master.now += BUSY_S
    master.turn()
    assert content_bytes(master.sent[2][1]) > BUSY_CHUNK_BYTES


def test_throughput_is_what_the_limit_says() -> None:
    """reliability §2.3, throughput: waiting makes up for what went too fast."""
    assert pause_s(500, 1000) == 0.5
    master = Master(400, 10_000, max_bytes_per_s=2 * CHUNK_BYTES)
    master.source.pull(2, Pull(1, (range(1, 401),)))
    assert master.turn()
    assert not master.source.has_work
    assert master.source.due_at == pytest.approx(0.5, rel=0.02)
    assert not master.turn()
    master.now = master.source.due_at
    assert master.turn()


# --- how much is on its way -------------------------------------------------------------------------------


def test_two_chunks_are_on_the_way_to_a_mirror_and_no_more() -> None:
    """reliability §1.1 W6, W7: the side stream has credit."""
    master = Master(10, batch=2)
    master.source.pull(2, Pull(1, (range(1, 11),)))
    assert [master.turn() for _ in range(3)] == [[(2, [1, 2])], [(2, [3, 4])], []]
    assert not master.source.has_work
    master.source.pull(2, Pull(1, (), 1))
    assert master.source.has_work
    assert [master.turn() for _ in range(2)] == [[(2, [5, 6])], []]
    master.source.pull(2, Pull(1, (), 3))
    assert [master.turn() for _ in range(3)] == [[(2, [7, 8])], [(2, [9, 10])], []]


def test_mirrors_take_turns() -> None:
    master = Master(10, batch=2)
    master.source.pull(2, Pull(1, (range(1, 5),)))
    master.source.pull(3, Pull(9, (range(1, 5),)))
    assert [master.turn() for _ in range(5)] == [
        [(2, [1, 2])],
        [(3, [1, 2])],
        [(2, [3, 4])],
        [(3, [3, 4])],
        [],
    ]


def test_a_mirror_that_is_stuck_holds_up_nobody() -> None:
    master = Master(100, batch=2)
    master.source.pull(2, Pull(1, (range(1, 101),)))
    master.source.pull(3, Pull(1, (range(1, 101),)))
    for taken in range(40):
        master.turn()
        master.source.pull(3, Pull(1, (), min(taken, sum(member == 3 for member, _ in master.sent))))
    assert sum(member == 2 for member, _ in master.sent) == 2
    assert sum(member == 3 for member, _ in master.sent) > 30


@pytest.mark.parametrize("taken", [2, 100])
def test_a_mirror_that_took_what_was_not_sent_is_faulty(taken: int) -> None:
    master = Master(10, batch=2)
    master.source.pull(2, Pull(1, (range(1, 11),)))
    master.turn()
    with pytest.raises(Malformed):
        master.source.pull(2, Pull(1, (), taken))


# --- a queue that changes ---------------------------------------------------------------------------------


def test_what_is_gone_makes_no_chunk() -> None:
    """reliability §4.5: messages removed meanwhile are skipped."""
    master = Master(12, batch=2)
    master.source.pull(2, Pull(1, (range(1, 13),)))
    for _ in range(9):
        master.queue.get(0.0)
    turns = [master.turn() for _ in range(6)]
    assert turns == [[], [], [], [], [(2, [10])], [(2, [11, 12])]]
    assert master.sent[-1][1].is_end


def test_eager_sync_unacked_messages_are_sent() -> None:
    """reliability §2.3, eager_sync: unacked kept."""
    master = Master(5)
    run = master.queue.get(0.0)
    assert run is not None
    master.away.append(run)
    master.source.pull(2, Pull(1, (range(1, 6),)))
    assert master.turn() == [(2, [1, 2, 3, 4, 5])]


def test_eager_sync_requeue() -> None:
    """reliability §2.3, eager_sync_requeue: one requeued, one unacked, both are sent."""
    master = Master(3)
    first, second = master.queue.get(0.0), master.queue.get(0.0)
    assert first is not None
    assert second is not None
    master.away.append(second)
    for run in (first, second):
        master.queue.delivered(run)
    master.queue.requeue([first], 0.0)
    master.source.pull(2, Pull(1, (range(1, 4),)))
    assert master.turn() == [(2, [1, 2, 3])]
    assert [entry.deliveries for entry in master.sent[0][1].entries] == [1, 0, 0]


def test_messages_keep_what_they_are() -> None:
    master = Master()
    master.queue.enqueue(Batch(envelope("key", priority=3, expiration_ms=2000), [content(b"body")], 4), 5.0)
    master.source.pull(2, Pull(1, (range(1, 2),)))
    master.turn()
    [entry] = master.sent[0][1].entries
    assert (entry.envelope.routing_key, entry.envelope.priority, entry.expires_at_ms) == ("key", 3, 1007_000)
    assert body_of(entry.contents[0]) == b"body"


# --- from disk --------------------------------------------------------------------------------------------


def paged(count: int) -> tuple[Master, SegmentStorage]:
    storage = SegmentStorage()
    master = Master(count, storage=storage, batch=4)
    master.queue.backlog.page_out(MUCH, 0)
    return master, storage


def test_what_is_on_disk_comes_when_it_is_read_and_nothing_is_read_ahead() -> None:
    master, storage = paged(20)
    master.source.pull(2, Pull(1, (range(1, 21),)))
    assert master.turn() == []
    assert not master.source.has_work
    storage.answer_all()
    assert [numbers(chunk) for _, chunk in master.sent] == [[1, 2, 3, 4]]
    assert master.woken == 1
    assert storage.loaded == 4


def test_a_mirror_that_stops_while_the_disk_reads_gets_nothing() -> None:
    """reliability §1.1 W6: cancelled while stuck."""
    master, storage = paged(20)
    master.source.pull(2, Pull(1, (range(1, 21),)))
    master.turn()
    master.source.pull(2, Pull(2, ()))
    storage.answer_all()
    assert master.sent == []
    assert not master.source.has_work


def test_a_new_request_takes_the_place_of_one_that_is_read_for() -> None:
    master, storage = paged(20)
    master.source.pull(2, Pull(1, (range(1, 21),)))
    master.turn()
    master.source.pull(2, Pull(2, (range(5, 7),)))
    storage.answer_all()
    assert master.source.has_work
    master.turn()
    storage.answer_all()
    assert [(chunk.request, numbers(chunk)) for _, chunk in master.sent] == [(2, [5, 6])]


def test_a_closed_source_is_silent() -> None:
    """reliability §2.3: the master changes in the middle."""
    master, storage = paged(20)
    master.source.pull(2, Pull(1, (range(1, 21),)))
    master.turn()
    master.source.close()
    storage.answer_all()
    assert (master.sent, master.source.has_work, master.source.progress) == ([], False, {})


def test_a_member_that_is_gone_is_forgotten() -> None:
    master = Master(10, batch=2)
    master.source.pull(2, Pull(1, (range(1, 11),)))
    master.source.forget(2)
    assert not master.source.has_work
    master.source.pull(2, Pull(1, (), 2))  # a late one
    assert (master.source.has_work, master.source.progress) == (False, {})


# --- what is known of it ----------------------------------------------------------------------------------


def test_the_master_knows_how_far_they_are() -> None:
    master = Master(10, batch=2)
    master.source.pull(2, Pull(1, (range(1, 11),), 0, 0, 10))
    master.turn()
    master.source.pull(2, Pull(1, (), 1, 2, 8))
    assert master.source.progress == {2: SyncProgress(2, 10, is_running=True)}
    master.source.pull(2, Pull(2, (), 0, 2, 8))
    assert master.source.progress == {2: SyncProgress(2, 10, is_running=False)}


def test_who_is_not_the_master_refuses() -> None:
    assert decode_side(refusal(Pull(7, (range(1, 2),)))) == Chunk(7, is_end=True, is_refused=True)
