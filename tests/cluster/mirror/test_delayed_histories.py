"""Histories at random of delayed messages: nodes die and return, masters move, messages are paged out.

What was confirmed comes at least once, and nothing comes early. Nodes that return have clocks that are behind, so some
messages come late.
"""

from random import Random

import pytest

from node.amqp.field_table import long
from node.amqp.methods import BasicAck, BasicNack
from node.amqp.properties import Properties
from node.catalogue.mirrors.views import View
from tests.cluster.mirror.test_delayed_queue import NODES, WAITING, delayed, publisher
from tests.kit.disk_cluster import DiskCluster
from tests.kit.world import Client

SEEDS = (*range(8), 24, 28)
"""The last two find messages that are forgotten before their targets have them, if that is put back on purpose."""

STEPS = 60
DELAYS_MS = (1, 50, 500, 2000, 5000, 20_000)
SETTLED_S = 400.0
"""Enough for all that a node with a clock that is behind finds too early."""


class History:
    """One history, and what is known of its messages.   now: since its beginning, in seconds."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.cluster: DiskCluster = delayed()
        self.now = 0.0
        self.due: dict[int, float] = {}
        self.confirmed: set[int] = set()
        self.seen: dict[int, float] = {}
        self.again = 0

    @property
    def views(self) -> list[View]:
        return [self.cluster.view(WAITING), self.cluster.view("q")]

    def play(self) -> None:
        """Play all steps, and end with all nodes up and all messages out."""
        for _ in range(STEPS):
            self.random.choice(
                (
                    self.publish,
                    self.publish,
                    self.advance,
                    self.partly,
                    self.crash,
                    self.start,
                    self.move,
                    self.page,
                )
            )()
            self.take()
        for name in NODES:
            if name not in self.cluster.nodes:
                self.cluster.start(name)
        for _ in range(10):
            self.advance(SETTLED_S / 10)
            self.take()

    def publish(self) -> None:
        client = publisher(self.cluster, self.random.choice(list(self.cluster.nodes)))
        first, count = len(self.due), self.random.randrange(1, 20)
        for number in range(first, first + count):
            delay = self.random.choice(DELAYS_MS)
            self.due[number] = self.now + delay / 1000
            properties = Properties(delivery_mode=2, headers={"x-delay": long(delay)})
            client.publish(1, "k", b"%d" % number, exchange="x", properties=properties)
        self.settle_or_hold()
        self.confirmed |= {first + tag - 1 for tag in confirms(client)}
        if not client.is_reset:
            client.lose()

    def settle_or_hold(self) -> None:
        """Let all go its way, or only some frames, also of what is due meanwhile, and then have a node crash."""
        cluster = self.cluster
        if self.random.randrange(4):
            cluster.settle()
            return
        cluster.is_held = True
        cluster.settle()
        self.advance()
        cut = tuple(self.random.sample(NODES, 2))
        for _ in range(self.random.randrange(8)):
            for pair in list(cluster.frames):
                if pair != cut and self.random.randrange(2):
                    cluster.deliver(*pair, self.random.randrange(1, 4))
            cluster.settle()
        self.crash(settles=False)
        cluster.is_held = False
        cluster.settle()

    def partly(self) -> None:
        """Have messages go out, of which not all come to other nodes."""
        self.settle_or_hold()

    def advance(self, seconds: float | None = None) -> None:
        passed = self.random.choice((0.01, 0.3, 1.0, 3.0)) if seconds is None else seconds
        self.now += passed
        self.cluster.advance(passed)

    def crash(self, *, settles: bool = True) -> None:
        """Kill a node, if other nodes have a synchronised copy of all."""
        up = list(self.cluster.nodes)
        victim = self.random.choice(up)
        for view in self.views:
            synced = {member.node for member in view.ring if member.id in view.synced}
            if not synced.intersection(up) - {victim}:
                return
        self.cluster.crash(victim)
        if settles:
            self.cluster.settle()

    def start(self) -> None:
        down = [name for name in NODES if name not in self.cluster.nodes]
        if down:
            self.cluster.start(self.random.choice(down))

    def move(self) -> None:
        view = self.cluster.view(WAITING)
        others = [m.node for m in view.ring if m.id in view.synced and m.id != view.master]
        if others and view.master_node in self.cluster.nodes:
            self.cluster.transfer(WAITING, self.random.choice(others))
            self.cluster.settle()

    def page(self) -> None:
        for node in self.cluster:
            node.page_out()

    def take(self) -> None:
        """Take what has come to q."""
        for body, _ in self.cluster.contents(self.random.choice(list(self.cluster.nodes))):
            number = int(body)
            self.again += number in self.seen
            self.seen.setdefault(number, self.now)
            assert self.now >= self.due[number], f"{number} is {self.due[number] - self.now} s early"


def confirms(client: Client) -> set[int]:
    """The tags of the publishes that a client knows to be safe."""
    tags: set[int] = set()
    last = 0
    for method in client.methods():
        assert isinstance(method, BasicAck | BasicNack)
        if isinstance(method, BasicAck):
            tags |= (
                set(range(last + 1, method.delivery_tag + 1)) if method.multiple else {method.delivery_tag}
            )
        last = max(last, method.delivery_tag) if method.multiple else last
    return tags


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_confirmed_comes_and_nothing_comes_early(seed: int) -> None:
    history = History(seed)
    history.play()
    assert history.confirmed, "nothing was confirmed"
    assert sorted(history.confirmed - history.seen.keys()) == []
    queue = history.cluster.queue(history.cluster.view(WAITING).master_node or "", WAITING)
    assert queue.backlog.count == 0
