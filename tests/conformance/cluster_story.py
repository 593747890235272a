"""Stories: what rows of the reference prepare before a node ends, check while it is away, and once it is back.

A node's end and return cost seconds, so all rows of a story share them. A row is a generator with up to two
`yield`s: what it does before the first happens while all run, then what happens while the node is down, then once
it is back. All rows go through a stage together; what a row fails with is kept and raised by its own test.
The marks § are sections of amqp-behaviour.
"""

import time
from collections.abc import Callable, Iterator
from typing import Final, Literal

from node.amqp import methods
from node.amqp.properties import Properties
from tests.kit.amqp_client import Channel, Connection, Content
from tests.kit.server_cluster import Cluster, ClusterNode, is_rabbitmq

Stage = Literal["before", "down", "back"]
STAGES: Final[tuple[Stage, ...]] = ("before", "down", "back")

PERSISTENT: Final = Properties(delivery_mode=2)
TRANSIENT: Final = Properties(delivery_mode=1)

IDLE_S: Final = 1.0
"""Before the end: acknowledgements are written when a queue is idle, 200 ms at the latest (§7.4)."""


class Story:
    """A cluster whose second node, `home`, ends and returns; `near` and `far` stay.   end: how it ends."""

    def __init__(self, cluster: Cluster, end: str) -> None:
        self.cluster = cluster
        self.end = end
        self.near, self.home, self.far = cluster.nodes
        self._connections: list[Connection] = []

    def channel(self, node: ClusterNode | None = None, vhost: str = "/", **options: object) -> Channel:
        """Channel 1 of a new connection to the node, `near` by default."""
        made = Connection(node or self.near, vhost=vhost, **options)  # type: ignore[arg-type]
        self._connections.append(made)
        return made.channel(1)

    def take_down(self) -> None:
        """End the node; return when the others know."""
        {"stop_app": self.home.stop_app, "sigterm": self.home.terminate, "kill": self.home.kill}[self.end]()
        self.cluster.await_members(self.near.name, self.far.name, seen_by=(self.near, self.far))
        if is_rabbitmq():
            time.sleep(0.5)  # a node counts as gone there before its queues do

    def bring_back(self) -> None:
        self.cluster.heal()

    def close(self) -> None:
        for each in self._connections:
            each.abandon()


Row = Callable[[Story], Iterator[None]]


class Rows:
    """The rows of a story as they go through its stages."""

    def __init__(self, story: Story, rows: dict[str, Row]) -> None:
        self.story = story
        self._running = {name: row(story) for name, row in rows.items()}
        self._failures: dict[str, tuple[Stage, BaseException]] = {}

    def play(self) -> None:
        """All stages of all rows."""
        self._advance("before")
        time.sleep(IDLE_S)
        self.story.take_down()
        self._advance("down")
        self.story.bring_back()
        self._advance("back")

    def _advance(self, stage: Stage) -> None:
        for name, running in self._running.items():
            if name in self._failures:
                continue
            try:
                next(running, None)
            except (AssertionError, OSError, RuntimeError) as error:
                self._failures[name] = (stage, error)

    def check(self, name: str) -> None:
        """Raise what the row failed with."""
        if name in self._failures:
            stage, error = self._failures[name]
            raise AssertionError(f"in stage {stage!r}: {error}") from error


def publish(
    channel: Channel,
    queue: str,
    *bodies: bytes,
    exchange: str = "",
    properties: Properties = PERSISTENT,
) -> None:
    """Publish on a channel of its own; return when all is confirmed by an ack."""
    publisher = channel.connection.channel(60000)
    publisher.call(methods.ConfirmSelect)
    for body in bodies:
        publisher.publish(exchange, queue, body, properties)
    acked = 0
    while acked < len(bodies):
        ack = publisher.expect(methods.BasicAck)
        acked = ack.delivery_tag if ack.multiple else acked + 1
    publisher.close()


def home_is_down(story: Story, queue: str, vhost: str = "/") -> str:
    """The text of 404 for a durable queue whose home is away, §9.1."""
    return (
        f"NOT_FOUND - home node '{story.home.name}' of durable queue '{queue}' in vhost '{vhost}'"
        " is down or inaccessible"
    )


def drain(channel: Channel, queue: str) -> list[Content]:
    """Everything that is ready in a queue."""
    contents = []
    while (content := channel.get(queue)) is not None:
        contents.append(content)
    return contents
