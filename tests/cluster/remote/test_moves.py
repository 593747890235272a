"""The master of a mirrored queue moves and dies at any moment, while frames and metadata are on their way.

What is confirmed and not acked is there in the end; nothing is there twice; nothing is nacked; what is seen again is
redelivered; who consumes goes on; and nothing is kept for anybody who is gone (reliability §4.4, §4.6, §4.12).
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

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
    ConfirmSelect,
    QueueDeclare,
    QueueDeclareOk,
)
from node.amqp.properties import Properties
from node.catalogue.mirrors.views import TransferMaster
from node.client.unacked import NOBODY
from tests.kit.cluster import Cluster, client_of
from tests.kit.world import Client

NODES = ("n1", "n2", "n3")
NAMES = st.sampled_from(NODES)


class Seat:
    """A client of a node: channel 1 for publishes, channel 2 for all else."""

    def __init__(self, cluster: Cluster, node: str) -> None:
        self.client: Client = client_of(cluster[node], 1, 2)
        self.client.send(1, ConfirmSelect())
        self.published = 0
        self.unconfirmed: dict[int, bytes] = {}
        self.unacked: dict[int, bytes] = {}
        self.is_waiting = False


class Moves(RuleBasedStateMachine):
    """A cluster in which nothing moves unless a rule moves it; every node has a copy, those that come back too."""

    @initialize(prefetch=st.integers(0, 2))
    def begin(self, prefetch: int) -> None:
        self.cluster = Cluster(*NODES)
        self.cluster.is_refilled = True
        self.cluster.declare_mirrored("q", *NODES)
        self.seats = {node: Seat(self.cluster, node) for node in NODES}
        self.number = 0
        self.sent: dict[Seat, list[bytes]] = {}
        self.confirmed: set[bytes] = set()
        self.acked: set[bytes] = set()
        self.seen: set[bytes] = set()
        self.listen()
        self.cluster.is_held = True

    # --- clients ---

    @rule(node=NAMES, count=st.integers(1, 3), persistent=st.booleans())
    def publish(self, node: str, count: int, persistent: bool) -> None:
        seat = self.seats.get(node)
        if seat is None:
            return
        bodies = []
        for _ in range(count):
            self.number += 1
            seat.published += 1
            bodies.append(b"%d" % self.number)
            seat.unconfirmed[seat.published] = bodies[-1]
        self.sent.setdefault(seat, []).extend(bodies)
        seat.client.publish(1, "q", *bodies, properties=Properties(delivery_mode=2 if persistent else 1))

    @rule(node=NAMES, prefetch=st.integers(0, 3), limit=st.integers(0, 2), no_ack=st.booleans())
    def consume(self, node: str, prefetch: int, limit: int, no_ack: bool) -> None:
        seat = self.seats.get(node)
        if seat is not None and not seat.is_waiting:
            seat.is_waiting = True
            seat.client.send(2, BasicQos(prefetch_count=prefetch))
            seat.client.send(2, BasicQos(prefetch_count=limit, global_=True))
            self.number += 1
            tag = f"{'none' if no_ack else 'ack'}{self.number}"
            seat.client.send(2, BasicConsume(queue="q", consumer_tag=tag, no_ack=no_ack))

    @rule(node=NAMES, passive=st.booleans())
    def ask(self, node: str, passive: bool) -> None:
        seat = self.seats.get(node)
        if seat is not None and not seat.is_waiting:
            seat.is_waiting = True
            seat.client.send(2, QueueDeclare(queue="q", passive=True) if passive else BasicGet(queue="q"))

    @rule(node=NAMES, data=st.data(), requeue=st.booleans())
    def settle(self, node: str, data: st.DataObject, requeue: bool) -> None:
        self.listen()
        seat = self.seats.get(node)
        if seat is None or not seat.unacked or seat.is_waiting:
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
        seat = self.seats.get(node)
        if seat is not None and not seat.is_waiting:
            for tag in list(seat.client.channel(2).consumers):
                seat.client.send(2, BasicCancel(tag))

    @rule(node=NAMES)
    def leave(self, node: str) -> None:
        self.listen()
        if node in self.seats:
            self.seats[node].client.lose()
            self.seats[node] = Seat(self.cluster, node)

    # --- the network and the ring ---

    @rule(node=NAMES)
    def turn(self, node: str) -> None:
        if node in self.cluster.nodes:
            self.cluster[node].turn()

    @rule(node=NAMES, count=st.integers(1, 4))
    def apply(self, node: str, count: int) -> None:
        if node in self.cluster.nodes:
            for _ in range(count):
                self.cluster.apply(node)

    @rule(origin=NAMES, to=NAMES, count=st.integers(1, 3))
    def deliver(self, origin: str, to: str, count: int) -> None:
        self.cluster.deliver(origin, to, count)

    @rule(node=NAMES)
    def replicate(self, node: str) -> None:
        if node in self.cluster.nodes:
            self.cluster[node].mirrors.replicate()

    @rule(node=NAMES)
    def refresh(self, node: str) -> None:
        if node in self.cluster.nodes:
            self.cluster[node].mirrors.refresh()

    @rule(to=NAMES)
    def transfer(self, to: str) -> None:
        record = next(iter(self.cluster)).broker.catalogue.queue("/", "q")
        assert record is not None
        view = record.view
        assert view is not None
        member = view.member_on(to)
        if member is not None and to in self.cluster.nodes:
            from node.catalogue.commands import ChangeView

            change = TransferMaster(view.master, member.id)
            self.cluster.log.append((ChangeView("/", "q", record.uid, change), "", 0, None))

    @precondition(lambda self: len(self.cluster.nodes) == 3)
    @rule(node=NAMES)
    def crash(self, node: str) -> None:
        """Any node but the last that has all."""
        self.listen()
        others = [name for name in NODES if name != node]
        record = self.cluster[node].broker.catalogue.queue("/", "q")
        assert record is not None
        assert record.view is not None
        synced = {each.node for each in record.view.ring if each.id in record.view.synced}
        if self.cluster[node].applied == len(self.cluster.log) and synced & set(others):
            self.cluster.crash(node)
            del self.seats[node]

    @precondition(lambda self: len(self.cluster.nodes) == 2)
    @rule()
    def start(self) -> None:
        """All is done before it is back, so that it does not start from an old catalogue."""
        (node,) = set(NODES) - set(self.cluster.nodes)
        self.let_go()
        self.cluster.start(node)
        self.cluster.settle()
        self.seats[node] = Seat(self.cluster, node)
        self.cluster.settle()
        self.cluster.is_held = True

    # --- what clients hear ---

    def let_go(self) -> None:
        self.cluster.is_held = False
        self.cluster.settle()
        self.listen()

    @rule()
    def listen(self) -> None:
        for seat in self.seats.values():
            for each in seat.client.received():
                method = each.method
                if isinstance(method, BasicDeliver | BasicGetOk):
                    assert method.redelivered or each.body not in self.seen, each.body
                    self.seen.add(each.body)
                    if isinstance(method, BasicDeliver) and method.consumer_tag.startswith("none"):
                        self.acked.add(each.body)
                    else:
                        seat.unacked[method.delivery_tag] = each.body
                    seat.is_waiting = seat.is_waiting and isinstance(method, BasicDeliver)
                elif isinstance(method, BasicAck):
                    first = 1 if method.multiple else method.delivery_tag
                    for number in range(first, method.delivery_tag + 1):
                        body = seat.unconfirmed.pop(number, None)
                        if body is not None:
                            self.confirmed.add(body)
                elif isinstance(method, BasicConsumeOk | BasicGetEmpty | QueueDeclareOk):
                    seat.is_waiting = False
                else:
                    assert isinstance(method, BasicQosOk | BasicCancelOk) or each.channel == 1, method
                    assert not isinstance(method, BasicNack)

    def teardown(self) -> None:
        if not hasattr(self, "cluster"):
            return
        self.let_go()
        for seat in self.seats.values():
            assert not seat.unconfirmed
            assert not seat.is_waiting
        record = next(iter(self.cluster)).broker.catalogue.queue("/", "q")
        assert record is not None
        home = self.cluster[record.home].home_queue("q")
        channels = [seat.client.channel(2) for seat in self.seats.values()]
        assert len(home.consumers) == sum(len(channel.consumers) for channel in channels)
        open_ = [each for channel in channels for each in channel.unacked.deliveries()]
        assert home.unacked_count == sum(each.open for each in open_ if each.queue is not NOBODY)
        for seat in self.seats.values():
            seat.client.lose()
        self.cluster.settle()
        self.cluster.check_idle()
        assert home.unacked_count == 0
        reader = client_of(self.cluster[record.home], 1)
        reader.send(1, BasicConsume(queue="q", no_ack=True))
        left = [each.body for each in reader.received() if isinstance(each.method, BasicDeliver)]
        assert len(left) == len(set(left)), "twice"
        assert self.confirmed - self.acked <= set(left)
        for bodies in self.sent.values():
            of_one = [body for body in left if body in bodies]
            assert of_one == sorted(of_one, key=int)


TestMoves = Moves.TestCase
TestMoves.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
