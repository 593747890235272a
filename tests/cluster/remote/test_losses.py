"""Nodes die at any moment while frames and metadata are on their way: what is promised holds, and nothing is kept."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from node.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicQos,
    BasicQosOk,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConfirmSelect,
    ConfirmSelectOk,
    QueueDelete,
    QueueDeleteOk,
)
from node.amqp.properties import Properties
from tests.kit.cluster import Cluster, client_of
from tests.kit.world import Client

NODES = ("n1", "n2", "n3")
NAMES = st.sampled_from(NODES)
QUEUES = {"n1": "one", "n2": "two"}
BRIEF = "brief"
"""A queue at n2 that may be deleted; what was confirmed may go with it."""
QUEUE_NAMES = st.sampled_from([*sorted(QUEUES.values()), BRIEF])


class Seat:
    """A client of a node, its channel 1 for publishes and channel 2 for all else.

    unconfirmed: by number.   unacked: queue and body by delivery tag.
    """

    def __init__(self, cluster: Cluster, node: str) -> None:
        self.client: Client = client_of(cluster[node], 1, 2)
        self.client.send(1, ConfirmSelect())
        self.published = 0
        self.unconfirmed: dict[int, tuple[str, bytes]] = {}
        self.unacked: dict[int, bytes] = {}
        self.is_waiting = False


class Losses(RuleBasedStateMachine):
    """A cluster in which nothing moves unless a rule moves it.

    confirmed, acked: bodies.   lost: bodies whose queue's home died after they were sent: without disks they are gone.
    """

    @initialize()
    def begin(self) -> None:
        self.cluster = Cluster(*NODES)
        for home, queue in QUEUES.items():
            self.cluster.declare(home, queue, durable=True)
        self.cluster.declare("n2", BRIEF, durable=True)
        self.seats = {node: Seat(self.cluster, node) for node in NODES}
        self.number = 0
        self.sent: dict[str, list[bytes]] = {queue: [] for queue in (*QUEUES.values(), BRIEF)}
        self.confirmed: set[bytes] = set()
        self.acked: set[bytes] = set()
        self.lost: set[bytes] = set()
        self.listen()
        self.cluster.is_held = True

    # --- what clients do ---

    @rule(node=NAMES, queue=QUEUE_NAMES, count=st.integers(1, 4), persistent=st.booleans())
    def publish(self, node: str, queue: str, count: int, persistent: bool) -> None:
        seat = self.seats[node]
        bodies = []
        for _ in range(count):
            self.number += 1
            seat.published += 1
            bodies.append(b"%d" % self.number)
            seat.unconfirmed[seat.published] = queue, bodies[-1]
        self.sent[queue] += bodies
        seat.client.publish(1, queue, *bodies, properties=Properties(delivery_mode=2 if persistent else 1))

    @rule(node=NAMES, queue=QUEUE_NAMES, prefetch=st.integers(0, 3), limit=st.integers(0, 2))
    def consume(self, node: str, queue: str, prefetch: int, limit: int) -> None:
        seat = self.seats[node]
        if not seat.is_waiting:
            seat.is_waiting = True
            seat.client.send(2, BasicQos(prefetch_count=prefetch))
            seat.client.send(2, BasicQos(prefetch_count=limit, global_=True))
            self.number += 1
            seat.client.send(2, BasicConsume(queue=queue, consumer_tag=f"c{self.number}"))

    @rule(node=NAMES, queue=QUEUE_NAMES)
    def get(self, node: str, queue: str) -> None:
        seat = self.seats[node]
        if not seat.is_waiting:
            seat.is_waiting = True
            seat.client.send(2, BasicGet(queue=queue))

    @rule(node=NAMES, data=st.data(), requeue=st.booleans())
    def settle(self, node: str, data: st.DataObject, requeue: bool) -> None:
        self.listen()
        seat = self.seats[node]
        if not seat.unacked or seat.is_waiting:
            return
        tag = data.draw(st.sampled_from(sorted(seat.unacked)))
        body = seat.unacked.pop(tag)
        if requeue:
            seat.client.send(2, BasicNack(tag, requeue=True))
        else:
            self.acked.add(body)
            seat.client.send(2, BasicAck(tag))

    @rule(node=NAMES)
    def cancel(self, node: str) -> None:
        seat = self.seats[node]
        if not seat.is_waiting:
            for tag in list(seat.client.channel(2).consumers):
                seat.client.send(2, BasicCancel(tag))

    @rule(node=NAMES)
    def leave(self, node: str) -> None:
        self.listen()
        self.seats[node].client.lose()
        self.sit_down(node)

    @rule(node=NAMES, only_if=st.booleans())
    def delete(self, node: str, only_if: bool) -> None:
        seat = self.seats[node]
        if not seat.is_waiting:
            seat.is_waiting = True
            seat.client.send(2, QueueDelete(queue=BRIEF, if_unused=only_if, if_empty=only_if))

    # --- what the network does ---

    @rule(node=NAMES)
    def turn(self, node: str) -> None:
        self.cluster[node].turn()

    @rule(node=NAMES)
    def apply(self, node: str) -> None:
        self.cluster.apply(node)

    @rule(origin=NAMES, to=NAMES, count=st.integers(1, 3))
    def deliver(self, origin: str, to: str, count: int) -> None:
        if origin == to:
            return
        # The transport is opened by what both have applied.
        for one, other in ((origin, to), (to, origin)):
            member = self.cluster[one].broker.catalogue.member(other)
            if member is None or member.incarnation != self.cluster[other].incarnation or not member.is_up:
                return
        self.cluster.deliver(origin, to, count)

    @rule()
    def rest(self) -> None:
        self.cluster.is_held = False
        self.cluster.settle()
        self.cluster.is_held = True
        self.listen()
        for seat in self.seats.values():
            assert not seat.unconfirmed, "every publish is answered"
            assert not seat.is_waiting, "every question is answered"

    @rule(node=NAMES)
    def crash(self, node: str) -> None:
        self.listen()
        queue = QUEUES.get(node)
        if queue is not None:
            self.lost |= set(self.sent[queue])
        self.cluster.crash(node)
        self.cluster.is_held = False
        self.cluster.settle()
        self.listen()
        self.cluster.start(node)
        self.sit_down(node)

    def sit_down(self, node: str) -> None:
        self.cluster.is_held = False
        self.listen()
        self.seats[node] = Seat(self.cluster, node)
        self.listen()
        self.cluster.is_held = True

    # --- what clients hear ---

    def listen(self) -> None:
        for seat in self.seats.values():
            if seat.client.is_reset:
                continue
            for item in seat.client.received():
                if item.channel == 1:
                    self._confirmed(seat, item.method)
                else:
                    self._heard(seat, item.method, item.body)

    def _confirmed(self, seat: Seat, method: object) -> None:
        if isinstance(method, ConfirmSelectOk):
            return
        assert isinstance(method, BasicAck | BasicNack), method
        for tag in list(seat.unconfirmed):
            if tag == method.delivery_tag or (method.multiple and tag < method.delivery_tag):
                _, body = seat.unconfirmed.pop(tag)
                if isinstance(method, BasicAck):
                    self.confirmed.add(body)

    def _heard(self, seat: Seat, method: object, body: bytes) -> None:
        if isinstance(method, BasicDeliver | BasicGetOk):
            assert method.delivery_tag not in seat.unacked
            seat.unacked[method.delivery_tag] = body
        if isinstance(method, BasicConsumeOk | BasicGetOk | BasicGetEmpty | QueueDeleteOk):
            seat.is_waiting = False
        elif isinstance(method, ChannelClose):
            seat.is_waiting = False
            seat.unacked.clear()
            seat.client.send(2, ChannelCloseOk())
            seat.client.send(2, ChannelOpen())
        else:
            expected = (BasicDeliver, BasicQosOk, BasicCancelOk, BasicCancel, ChannelOpenOk)
            assert isinstance(method, expected), method

    def teardown(self) -> None:
        if not hasattr(self, "cluster"):
            return
        self.rest()
        for seat in self.seats.values():
            seat.client.lose()
        self.cluster.is_held = False
        self.cluster.settle()
        self.cluster.check_idle()
        for home, queue in QUEUES.items():
            found: list[bytes] = []
            if queue in self.cluster[home].queue_names:
                live = self.cluster[home].home_queue(queue)
                assert live.unacked_count == 0
                assert len(live.consumers) == 0
                reader = client_of(self.cluster["n3"])
                while True:
                    reader.send(1, BasicGet(queue=queue, no_ack=True))
                    (item,) = reader.received()
                    if isinstance(item.method, BasicGetEmpty):
                        break
                    found.append(item.body)
                reader.lose()
            assert len(set(found)) == len(found), "nothing twice"
            promised = (set(self.sent[queue]) & self.confirmed) - self.lost - self.acked
            assert promised <= set(found), "nothing confirmed is lost"
        self.cluster.settle()
        self.cluster.check_idle()


TestLosses = Losses.TestCase
TestLosses.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
