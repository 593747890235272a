"""Histories at random of dead letters that go at least once, and of messages that wait to be retried.

Nodes of source and target die and return, masters move, the target refuses and is missing for a while. What was
confirmed is in the target or in the source in the end: none is lost, and none is retried early.
"""

from random import Random

import pytest

from node.amqp.field_table import Table, long, longstr
from node.amqp.methods import BasicGet, BasicGetEmpty, BasicGetOk, BasicNack, QueueDeclare
from node.amqp.properties import Properties
from node.catalogue.commands import DeleteQueue, SetPolicy
from node.catalogue.mirrors.views import View
from tests.cluster.mirror.test_delayed_histories import confirms
from tests.kit.disk_cluster import DiskCluster, publisher_of

NODES = ("n1", "n2", "n3")
SEEDS = range(10)
STEPS = 50
RETRY_MS = 2000
SAFE: Table = {
    "x-queue-type": longstr("quorum"),
    "x-dead-letter-strategy": longstr("at-least-once"),
    "x-overflow": longstr("reject-publish"),
    "x-dead-letter-exchange": longstr(""),
    "x-dead-letter-routing-key": longstr("dead"),
}
SMALL: Table = {
    "x-queue-type": longstr("quorum"),
    "x-max-length": long(5),
    "x-overflow": longstr("reject-publish"),
}
"""The target, which refuses most of what comes until it is emptied."""


class History:
    """One history.   retry: messages are returned before they are rejected, and wait."""

    def __init__(self, seed: int, *, retry: bool) -> None:
        self.random = Random(seed)
        self.cluster = DiskCluster(*NODES)
        self.now = 0.0
        self.count = 0
        self.confirmed: set[int] = set()
        self.arrived: set[int] = set()
        self.returned: dict[int, float] = {}
        """When each message was returned first, of those that are expected to wait."""
        if retry:
            policy = {"delayed-retry-type": "failed", "delayed-retry-min": RETRY_MS}
            self.cluster.submit(SetPolicy("/", "retry", "^q$", policy))
        self.is_retrying = retry
        self.cluster.declare("n1", "q", SAFE, durable=True)
        self.declare_target()
        self.cluster.advance(2.0)

    def declare_target(self) -> None:
        client = self.cluster[self.random.choice(list(self.cluster.nodes))].client()
        client.send(1, QueueDeclare(queue="dead", durable=True, arguments=SMALL))
        self.cluster.settle()
        client.lose()
        self.cluster.settle()

    def views(self) -> list[View]:
        names = ("q", "dead") if self.has_target else ("q",)
        return [self.cluster.view(name) for name in names]

    @property
    def has_target(self) -> bool:
        node = max(self.cluster, key=lambda node: node.applied)
        return node.broker.catalogue.queue("/", "dead") is not None

    def play(self) -> None:
        """Play all steps, and end with all nodes up and all letters out."""
        steps = (
            self.publish,
            self.publish,
            self.kill,
            self.kill,
            self.advance,
            self.crash,
            self.start,
            self.move,
            self.page,
            self.empty,
            self.drop_target,
        )
        for _ in range(STEPS):
            self.random.choice(steps)()
        for name in NODES:
            if name not in self.cluster.nodes:
                self.cluster.start(name)
        if not self.has_target:
            self.declare_target()
        for _ in range(60):
            self.advance(10.0)
            self.kill(rejects=True)
            self.empty()

    def publish(self) -> None:
        client = publisher_of(self.cluster[self.random.choice(list(self.cluster.nodes))])
        first, count = self.count, self.random.randrange(1, 12)
        self.count += count
        bodies = [b"%d" % number for number in range(first, first + count)]
        client.publish(1, "q", *bodies, properties=Properties(delivery_mode=2))
        self.cluster.settle()
        self.confirmed |= {first + tag - 1 for tag in confirms(client)}
        client.lose()
        self.cluster.settle()

    def kill(self, *, rejects: bool = False) -> None:
        """Get some messages, and return or reject each; the last may be lost with its client."""
        client = self.cluster[self.random.choice(list(self.cluster.nodes))].client()
        for tag in range(1, self.random.randrange(2, 15)):
            client.send(1, BasicGet(queue="q"))
            self.cluster.settle()
            got = client.received()
            if not got or isinstance(got[0].method, BasicGetEmpty):
                break
            assert isinstance(got[0].method, BasicGetOk), got
            number = int(got[0].body)
            if number in self.returned:
                waited = self.now - self.returned.pop(number)
                assert waited >= RETRY_MS / 1000, f"{number} came {waited} s after it was returned"
            requeue = self.is_retrying and not rejects and self.random.randrange(2) == 0
            client.send(1, BasicNack(tag, requeue=requeue))
            self.cluster.settle()
            if requeue:
                self.returned[number] = self.now
        client.lose()
        self.cluster.settle()

    def advance(self, seconds: float | None = None) -> None:
        passed = self.random.choice((0.01, 0.3, 1.0, 3.0)) if seconds is None else seconds
        self.now += passed
        self.cluster.advance(passed)

    def crash(self) -> None:
        """Kill a node, if other nodes have a synchronised copy of all."""
        up = list(self.cluster.nodes)
        victim = self.random.choice(up)
        for view in self.views():
            synced = {member.node for member in view.ring if member.id in view.synced}
            if not synced.intersection(up) - {victim}:
                return
        self.cluster.crash(victim)
        self.cluster.settle()

    def start(self) -> None:
        down = [name for name in NODES if name not in self.cluster.nodes]
        if down:
            self.cluster.start(self.random.choice(down))
            self.returned.clear()  # its clock is behind
            self.advance(1.0)

    def move(self) -> None:
        name = self.random.choice(("q", "dead") if self.has_target else ("q",))
        view = self.cluster.view(name)
        others = [m.node for m in view.ring if m.id in view.synced and m.id != view.master]
        if others and view.master_node in self.cluster.nodes:
            self.cluster.transfer(name, self.random.choice(others))
            self.cluster.settle()

    def page(self) -> None:
        for node in self.cluster:
            node.page_out()

    def empty(self) -> None:
        """Take what has come to the target."""
        if self.has_target:
            node = self.random.choice(list(self.cluster.nodes))
            self.arrived |= {int(body) for body, _ in self.cluster.contents(node, "dead")}

    def drop_target(self) -> None:
        """Delete the target after it was emptied, or declare it again."""
        if self.has_target:
            self.empty()
            if self.cluster.queue(self.cluster.view("dead").master_node or "", "dead").backlog.count == 0:
                self.cluster.submit(DeleteQueue("/", "dead"))
        else:
            self.declare_target()


@pytest.mark.slow
@pytest.mark.parametrize("retry", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_confirmed_is_not_lost(seed: int, retry: bool) -> None:
    history = History(seed, retry=retry)
    history.play()
    assert history.confirmed, "nothing was confirmed"
    left = {int(body) for body, _ in history.cluster.contents("n1")}
    assert sorted(history.confirmed - history.arrived - left) == []
    queue = history.cluster.queue(history.cluster.view("q").master_node or "")
    assert (queue.letters.count, queue.backlog.count) == (0, 0)
