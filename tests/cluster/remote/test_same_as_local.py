"""A client can't tell where its queue lives: the same steps with the clients on three nodes, and all at home."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from node.amqp.field_table import boolean, long, longstr
from node.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicDeliver,
    BasicGet,
    BasicGetOk,
    BasicNack,
    BasicQos,
    BasicRecover,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ConfirmSelect,
    Method,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    TxCommit,
    TxRollback,
    TxSelect,
)
from node.amqp.properties import Properties
from tests.kit.cluster import Cluster, client_of
from tests.kit.world import Client, check_channel

PLACES = ("n1", "n2", "n3")
SEATS = st.integers(0, 2)
CHANNELS = st.integers(1, 2)
ARGUMENTS = {
    "plain": {},
    "short": {"x-max-length": long(3)},
    "full": {"x-max-length": long(3), "x-overflow": longstr("reject-publish")},
    "ranked": {"x-max-priority": long(3)},
    "single": {"x-single-active-consumer": boolean(True)},
    "counted": {"x-queue-type": longstr("quorum")},
}


class Story:
    """One of the two worlds: a queue `q` at n2, and three clients.   is_open: channels of each seat."""

    def __init__(self, places: tuple[str, ...], kind: str) -> None:
        self.places = places
        self.cluster = Cluster(*sorted({*places, "n2"}))
        self.kind = kind
        self.declare()
        self.unconfirmed: list[set[int]] = [set(), set(), set()]
        self.published = [0, 0, 0]
        self.clients: list[Client] = [self.connect(seat) for seat in range(3)]

    def declare(self) -> None:
        self.cluster.declare("n2", "q", ARGUMENTS[self.kind], durable=True)

    def connect(self, seat: int) -> Client:
        client = client_of(self.cluster[self.places[seat]], 1, 2)
        client.send(1, ConfirmSelect())
        client.send(2, TxSelect())
        client.received()
        self.forget_confirms(seat)
        return client

    def forget_confirms(self, seat: int) -> None:
        self.unconfirmed[seat].clear()
        self.published[seat] = 0

    def publish(self, seat: int, channel: int, bodies: list[bytes], properties: Properties) -> None:
        if channel == 1:
            first = self.published[seat] + 1
            self.published[seat] += len(bodies)
            self.unconfirmed[seat].update(range(first, self.published[seat] + 1))
        self.clients[seat].publish(channel, "q", *bodies, properties=properties)

    def confirmed(self, seat: int, method: BasicAck | BasicNack) -> set[tuple[type[Method], int]]:
        """The publishes that a confirm means."""
        tags = {
            tag
            for tag in self.unconfirmed[seat]
            if tag == method.delivery_tag or (method.multiple and tag < method.delivery_tag)
        }
        self.unconfirmed[seat] -= tags
        return {(type(method), tag) for tag in tags}

    def news(self) -> list[tuple[list[Any], list[Any], set[Any]]]:
        """Return each client's deliveries, everything else that it got in order, and how its publishes were settled."""
        self.cluster.settle()
        news = []
        for seat, client in enumerate(self.clients):
            deliveries, others, settled = [], [], set()
            for item in client.received():
                if isinstance(item.method, BasicDeliver | BasicGetOk):
                    deliveries.append((item.channel, item.method, item.body, item.properties))
                elif isinstance(item.method, BasicAck | BasicNack):
                    settled |= self.confirmed(seat, item.method)
                else:
                    others.append((item.channel, item.method))
            news.append((deliveries, others, settled))
        return news


class Twins(RuleBasedStateMachine):
    """Two stories told at once."""

    @initialize(kind=st.sampled_from(sorted(ARGUMENTS)))
    def begin(self, kind: str) -> None:
        self.kind = kind
        self.stories = [Story(PLACES, kind), Story(("n2",) * 3, kind)]
        self.tags: dict[tuple[int, int], int] = {}  # the last delivery tag by seat and channel
        self.number = 0
        self.compare()

    def tell(self, seat: int, channel: int, method: Method) -> None:
        for story in self.stories:
            story.clients[seat].send(channel, method)
        self.compare()

    def compare(self) -> None:
        away, at_home = (story.news() for story in self.stories)
        for seat, (there, here) in enumerate(zip(away, at_home, strict=True)):
            assert there[0] == here[0], f"deliveries of {seat}"
            assert there[1] == here[1], f"answers to {seat}"
            for channel, method, _, _ in here[0]:
                self.tags[seat, channel] = method.delivery_tag
            for channel, method in here[1]:
                if isinstance(method, ChannelClose):
                    self.reopen(seat, channel)
            assert there[2] == here[2], f"confirms of {seat}"
        for story in self.stories:
            assert story.unconfirmed == [set(), set(), set()]

    def reopen(self, seat: int, channel: int) -> None:
        self.tags.pop((seat, channel), None)
        for story in self.stories:
            client = story.clients[seat]
            if channel == 1:
                story.forget_confirms(seat)
            client.send(channel, ChannelCloseOk())
            client.send(channel, ChannelOpen())
            client.send(channel, ConfirmSelect() if channel == 1 else TxSelect())
            assert len(client.received()) >= 2
        self.compare()

    @rule(
        seat=SEATS,
        channel=CHANNELS,
        count=st.integers(1, 5),
        persistent=st.booleans(),
        priority=st.integers(0, 3),
    )
    def publish(self, seat: int, channel: int, count: int, persistent: bool, priority: int) -> None:
        bodies = [b"%d" % (self.number + index) for index in range(count)]
        self.number += count
        properties = Properties(delivery_mode=2 if persistent else 1, priority=priority)
        for story in self.stories:
            story.publish(seat, channel, bodies, properties)
        self.compare()

    @rule(seat=SEATS, commits=st.booleans())
    def end_transaction(self, seat: int, commits: bool) -> None:
        self.tell(seat, 2, TxCommit() if commits else TxRollback())

    @rule(seat=SEATS, channel=CHANNELS, no_ack=st.booleans())
    def get(self, seat: int, channel: int, no_ack: bool) -> None:
        self.tell(seat, channel, BasicGet(queue="q", no_ack=no_ack))

    @rule(
        seat=SEATS,
        channel=CHANNELS,
        tag=st.sampled_from("ab"),
        no_ack=st.booleans(),
        exclusive=st.sampled_from([False] * 4 + [True]),
        priority=st.integers(-1, 1),
        prefetch=st.integers(0, 3),
    )
    def consume(
        self, seat: int, channel: int, tag: str, no_ack: bool, exclusive: bool, priority: int, prefetch: int
    ) -> None:
        if tag in self.stories[1].clients[seat].channel(channel).consumers:
            return
        self.tell(seat, channel, BasicQos(prefetch_count=prefetch))
        self.tell(
            seat,
            channel,
            BasicConsume(
                queue="q",
                consumer_tag=tag,
                no_ack=no_ack,
                exclusive=exclusive,
                arguments={"x-priority": long(priority)},
            ),
        )

    @rule(seat=SEATS, channel=CHANNELS, tag=st.sampled_from("ab"))
    def cancel(self, seat: int, channel: int, tag: str) -> None:
        self.tell(seat, channel, BasicCancel(tag))

    @rule(
        seat=SEATS,
        channel=CHANNELS,
        back=st.integers(0, 3),
        how=st.sampled_from(["ack", "requeue", "drop"]),
        multiple=st.booleans(),
    )
    def settle(self, seat: int, channel: int, back: int, how: str, multiple: bool) -> None:
        tag = self.tags.get((seat, channel), 0) - back
        if tag > 0 or multiple:
            tag = max(tag, 0)
            if how == "ack":
                self.tell(seat, channel, BasicAck(tag, multiple))
            elif how == "requeue":
                self.tell(seat, channel, BasicNack(tag, multiple, requeue=True))
            elif how == "drop":
                self.tell(seat, channel, BasicNack(tag, multiple, requeue=False))

    @rule(seat=SEATS, channel=CHANNELS)
    def recover(self, seat: int, channel: int) -> None:
        self.tell(seat, channel, BasicRecover(requeue=True))

    @rule(seat=SEATS, channel=CHANNELS)
    def close_channel(self, seat: int, channel: int) -> None:
        self.tell(seat, channel, ChannelClose(200, "", 0, 0))
        self.tags.pop((seat, channel), None)
        if channel == 1:
            for story in self.stories:
                story.forget_confirms(seat)
        self.tell(seat, channel, ChannelOpen())
        self.tell(seat, channel, ConfirmSelect() if channel == 1 else TxSelect())

    @rule(seat=SEATS)
    def lose(self, seat: int) -> None:
        for story in self.stories:
            story.clients[seat].lose()
            story.cluster.settle()
            story.clients[seat] = story.connect(seat)
        for channel in (1, 2):
            self.tags.pop((seat, channel), None)
        self.compare()

    @rule(seat=SEATS)
    def count(self, seat: int) -> None:
        self.tell(seat, 1, QueueDeclare(queue="q", passive=True))

    @rule(seat=SEATS)
    def purge(self, seat: int) -> None:
        self.tell(seat, 1, QueuePurge(queue="q"))

    @precondition(lambda self: self.number > 5)
    @rule(seat=SEATS, if_unused=st.booleans(), if_empty=st.booleans())
    def delete(self, seat: int, if_unused: bool, if_empty: bool) -> None:
        if self.kind == "counted":
            if_unused = if_empty = False  # which a quorum queue refuses, and closes the connection
        self.tell(seat, 1, QueueDelete(queue="q", if_unused=if_unused, if_empty=if_empty))
        for story in self.stories:
            if "q" not in story.cluster["n2"].queue_names:
                story.declare()

    @invariant()
    def books_agree(self) -> None:
        if not hasattr(self, "stories"):
            return
        there, here = (story.cluster["n2"].home_queue("q") for story in self.stories)
        assert there.backlog.count == here.backlog.count
        assert there.unacked_count == here.unacked_count
        assert len(there.consumers) == len(here.consumers)
        for story in self.stories:
            for client in story.clients:
                for channel in client.connection.channels.values():
                    check_channel(channel, {})
            for node in story.cluster:
                assert node.faults == []
                assert not node.peers.has_work

    def teardown(self) -> None:
        if not hasattr(self, "stories"):
            return
        for story in self.stories:
            for client in story.clients:
                client.lose()
            story.cluster.settle()
            story.cluster.check_idle()
            assert story.cluster["n2"].home_queue("q").unacked_count == 0


TestTwins = Twins.TestCase
TestTwins.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
