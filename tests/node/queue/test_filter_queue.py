"""The queue of a deduplicating exchange alone: what it passes on, and what a next master makes of its messages."""

from collections.abc import Callable
from dataclasses import dataclass

from node.amqp.field_table import long, longstr
from node.amqp.properties import Properties
from node.catalogue.policy import QueueSettings
from node.catalogue.records import QueueRecord
from node.queue.delay_backlog import DelayBacklog
from node.queue.filter_queue import FilterQueue
from node.queue.paged_backlog import PagedBacklog
from node.queue.priority_backlog import PriorityBacklog
from node.queue.queue import Queue
from node.queue.run import Batch, Run
from node.queue.storage import MemoryStorage
from tests.kit.messages import FakeHost, bodies_of, content, envelope


class Host(FakeHost):
    """A host that records what passes, takes only so much, and keeps it on its way."""

    def __init__(self, room: int = 1000) -> None:
        super().__init__()
        self.room = room
        self.passed: list[Run] = []

    def due_room(self, queue: Queue) -> int:
        return self.room - sum(map(len, self.passed))

    def due(self, queue: Queue, run: Run, now: float) -> None:
        self.passed.append(run)

    @property
    def bodies(self) -> str:
        return " ".join(body.decode() for run in self.passed for body in bodies_of(run))


@dataclass
class Copy:
    """A mirror's copy."""

    runs: list[Run]
    next_seq: int

    def fill(
        self, backlog: PagedBacklog | PriorityBacklog | DelayBacklog, on_done: Callable[[], None]
    ) -> None:
        for run in self.runs:
            backlog.add(run)
        on_done()


def made(host: FakeHost, size: int = 100) -> FilterQueue:
    arguments = {"x-cache-size": long(size)}
    record = QueueRecord("/", "amq.deduplication.x", "uid", type="quorum", arguments=arguments)
    return FilterQueue(record, QueueSettings(), host, MemoryStorage(), 0.0)


def batch(*ids: str) -> Batch:
    headers = [{"x-deduplication-header": longstr(each)} for each in ids]
    contents = [
        content(each.encode(), properties=Properties(headers=table))
        for each, table in zip(ids, headers, strict=True)
    ]
    return Batch(envelope("k", exchange="x"), contents, 1)


def handed_over(queue: FilterQueue, host: Host) -> Copy:
    """The messages that a next master has: those that wait, the entries, and those on their way."""
    runs = [*queue.backlog.levels[0].in_memory(0), *host.passed]
    return Copy(sorted(runs, key=lambda run: run.seqs.start), queue.next_seq)  # type: ignore[arg-type]


def test_what_was_on_its_way_goes_out_again_at_the_next_master() -> None:
    """The entry of a message is known there, and does not make it a duplicate of itself."""
    first = Host(room=3)
    queue = made(first)
    queue.enqueue(batch("a", "b", "c", "a", "d"), 0.0)
    queue.pump(0.0)
    assert (first.bodies, queue.ids, queue.backlog.count) == ("a b c", 3, 3)
    second = Host()
    following = made(second)
    live: list[bool] = []
    following.begin_with(handed_over(queue, first), lambda: live.append(True))
    assert live == [True]
    following.enqueue(batch("b", "e"), 0.0)
    following.pump(0.0)
    following.pump(0.0)
    assert second.bodies == "a b c d e"
    assert (following.duplicates, following.ids) == (2, 5)


def test_no_more_than_the_host_takes() -> None:
    host = Host(room=2)
    queue = made(host)
    queue.enqueue(batch("a", "a", "b", "c"), 0.0)
    queue.pump(0.0)
    assert host.bodies == "a b"
    host.room = 9
    queue.pump(0.0)
    assert host.bodies == "a b c"


def test_an_entry_leaves_with_its_last_id() -> None:
    host = Host()
    queue = made(host, size=2)
    for id_ in "abcdef":
        queue.enqueue(batch(id_), 0.0)
        queue.pump(0.0)
    assert (queue.ids, queue.backlog.count) == (2, 2)
    assert queue.counters.publish == 6
