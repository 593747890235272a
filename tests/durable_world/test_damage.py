"""A client gets the readable rest of a queue whose disk can't read some messages that nobody else has."""

from dataclasses import replace

import pytest

from node.amqp.field_table import Table, long, longstr
from node.amqp.methods import BasicConsume, BasicGet, QueueDelete, QueuePurge
from node.catalogue.records import QueueRecord
from node.store.disk import Read
from node.store.options import StoreOptions
from node.store.scrubber import REST_S
from tests.durable_world.world import LARGE_BYTES, OPTIONS, PERSISTENT, DurableWorld

COUNT = 24
BODIES = [b"%03d" % number for number in range(COUNT)]


class Story:
    """A queue with 24 messages in three segments, all of them on disk only.   losses: what the broker told."""

    def __init__(
        self, *, size: int = 3, arguments: Table | None = None, options: StoreOptions = OPTIONS
    ) -> None:
        self.world = world = DurableWorld(options)
        self.client = world.client()
        world.declare(self.client, "q", arguments=arguments)
        for body in BODIES:
            self.client.publish(1, "q", body.ljust(size), properties=PERSISTENT)
        world.rest()
        world.page_out("q")
        assert world.queue("q").backlog.lengths()["delta"] == COUNT
        self.losses: list[tuple[str, int, str]] = []
        world.broker.observer.messages_unreadable = self._lost  # type: ignore[method-assign]

    def _lost(self, queue: QueueRecord, count: int, reason: str) -> None:
        self.losses.append((queue.name, count, reason))

    def paths(self, ending: str) -> list[str]:
        return [path for path in self.world.disk.paths() if path.endswith(ending)]

    def segment(self, number: int) -> str:
        (path,) = [path for path in self.paths(".idx") if path.endswith(f"/{number}.idx")]
        return path

    def flip(self, path: str, ratio: float = 0.5) -> None:
        """Damage a byte of a file, so far behind its beginning."""
        self.world.disk.flip_bit(path, int(len(self.world.disk.content(path)) * ratio))

    def bodies(self) -> list[bytes]:
        """Return the bodies that a consumer gets, however long the disk takes."""
        consumer = self.world.client()
        consumer.send(1, BasicConsume(queue="q", consumer_tag="c", no_ack=True, nowait=True))
        for _ in range(10):
            self.world.rest()
            self.world.advance(1.0)
        return [body.rstrip() for body in consumer.bodies()]


def test_the_readable_rest_comes_and_the_loss_is_told() -> None:
    """One flipped bit costs the messages of its record; they are counted, and told with queue, number and reason."""
    story = Story()
    story.flip(story.segment(1))
    found = story.bodies()
    lost = [body for body in BODIES if body not in found]
    assert found == [body for body in BODIES if body not in lost]
    assert 0 < len(lost) <= 8
    [(queue, count, reason)] = story.losses
    assert (queue, count) == ("q", len(lost))
    assert story.segment(1) in reason
    assert story.world.broker.counters.messages_unreadable == len(lost)
    assert story.world.queue("q").backlog.count == 0


def test_one_damaged_content_in_the_message_store_costs_one_message() -> None:
    """A damaged content costs one message, and those that would have been loaded with it come."""
    story = Story(size=LARGE_BYTES)
    story.flip(story.paths(".rdq")[0])
    found = story.bodies()
    assert len(found) == COUNT - 1
    assert found == sorted(found)
    assert [count for _, count, _ in story.losses] == [1]


@pytest.mark.parametrize("size", [3, LARGE_BYTES])
def test_an_error_of_reading_that_passes_costs_nothing(size: int) -> None:
    """All messages come, in order, some later; nothing is told."""
    story = Story(size=size)
    for path in story.paths(".idx") + story.paths(".rdq"):
        story.world.disk.fail(Read, path)
    assert story.bodies() == BODIES
    assert (story.losses, story.world.broker.counters.messages_unreadable) == ([], 0)


def test_an_error_of_reading_that_stays_costs_what_it_is_of() -> None:
    """After some tries."""
    story = Story()
    story.world.disk.fail_always(Read, story.segment(1))
    assert story.bodies() == [body for seq, body in enumerate(BODIES, 1) if seq // 8 != 1]
    assert [count for _, count, _ in story.losses] == [8]


def test_basic_get_waits_while_a_read_is_tried_again() -> None:
    """A get waits while a read is tried again, and is not told that the queue is empty."""
    story = Story()
    world, client = story.world, story.client
    world.disk.fail(Read, story.segment(0))
    client.send(1, BasicGet(queue="q"))
    world.settle_disk()
    assert client.received() == []
    world.advance(1.0)
    world.rest()
    assert client.bodies() == BODIES[:1]


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": long(3)}])
def test_a_purge_of_what_cannot_be_read(arguments: Table) -> None:
    """All is gone, what comes later comes through, and a restart finds nothing of it."""
    story = Story(arguments=arguments)
    story.flip(story.segment(1))
    world, client = story.world, story.client
    world.disk.fail_always(Read, story.segment(2))
    client.send(1, QueuePurge(queue="q"))
    world.rest()
    for _ in range(5):
        world.advance(1.0)
        world.rest()
    assert world.queue("q").backlog.count == 0
    client.received()
    client.publish(1, "q", b"new", properties=PERSISTENT)
    world.rest()
    assert world.bodies("q") == [b"new"]


def test_unreadable_messages_over_a_limit_do_not_hold_it_up() -> None:
    """A limit drops unreadable messages from the head too, and dead-letters the rest."""
    arguments = {"x-dead-letter-exchange": longstr(""), "x-dead-letter-routing-key": longstr("dead")}
    story = Story(arguments=arguments | {"x-max-length": long(COUNT)})
    world, client = story.world, story.client
    world.declare(client, "dead")
    story.flip(story.segment(0))
    for body in BODIES:
        client.publish(1, "q", body, properties=PERSISTENT)
    for _ in range(5):
        world.rest()
        world.advance(1.0)
    [(_, lost, _)] = story.losses
    assert 0 < lost < COUNT
    assert story.bodies() == BODIES
    assert len(world.bodies("dead")) == COUNT - lost


@pytest.mark.parametrize(
    "arguments",
    [{}, {"x-max-priority": long(3)}, {"x-queue-mode": longstr("lazy")}, {"x-message-ttl": long(600_000)}],
)
def test_kinds_of_queues_survive_damage(arguments: Table) -> None:
    """Priorities, lazy queues, times to live: the rest comes, nothing hangs."""
    story = Story(arguments=arguments)
    story.flip(story.segment(1))
    found = story.bodies()
    assert found == sorted(found)
    assert COUNT - 8 <= len(found) < COUNT
    assert [count for _, count, _ in story.losses] == [COUNT - len(found)]


def test_a_deleted_queue_with_unreadable_messages() -> None:
    """A deleted queue goes, and its files with it, though it has unreadable messages."""
    story = Story(size=LARGE_BYTES)
    world = story.world
    world.disk.fail_always(Read, story.segment(1))
    story.client.send(1, QueueDelete(queue="q"))
    world.rest()
    assert story.paths(".idx") == []
    assert not world.broker.damages.has_work


def test_messages_that_a_client_has_are_not_given_up() -> None:
    """Contents that a client has are in memory and come again when it gives them back, their record readable or not."""
    story = Story()
    world, client = story.world, story.client
    got = [message.body for message in [*world.get_all(client, "q")][:4]]
    assert got == BODIES[:4]
    story.flip(story.segment(0))
    client.lose()
    world.rest()
    story.client = world.client()
    assert story.bodies() == BODIES


def test_rot_under_messages_that_are_in_memory_costs_none() -> None:
    """Rot is found while nobody needs the disk; messages are dropped only where they are nowhere else."""
    story = Story(options=replace(OPTIONS, scrub_rate=1 << 20))
    world = story.world
    world.queue("q").backlog.refill()
    world.rest()
    assert world.queue("q").backlog.at_hand >= 15, "all of the first two segments"
    story.flip(story.segment(1))
    world.advance(REST_S + 5)
    for _ in range(200):
        world.rest()
        world.advance(1.0)
    assert world.store.scrubbing.findings == 1
    assert story.bodies() == BODIES
    assert story.losses == []


@pytest.mark.parametrize(
    "arguments",
    [{}, {"x-max-priority": long(3)}, {"x-queue-mode": longstr("lazy")}],
    ids=["", "prio", "lazy"],
)
def test_rot_in_what_is_on_disk_only_is_told_before_it_is_needed(arguments: Table) -> None:
    """The queue has the readable rest, and counts no more than that."""
    story = Story(arguments=arguments, options=replace(OPTIONS, scrub_rate=1 << 20))
    world = story.world
    story.flip(story.segment(2))
    for _ in range(200):
        world.rest()
        world.advance(1.0)
    [(_, count, _)] = story.losses
    assert world.store.damaged_files() == [story.segment(2)]
    assert world.queue("q").backlog.count == COUNT - count
    assert len(story.bodies()) == COUNT - count
    assert world.store.scrubbing.findings == 1
