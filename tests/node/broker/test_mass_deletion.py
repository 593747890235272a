"""Deleting what is large, by turns."""

import pytest

from node.amqp.constants import ReplyCode
from node.amqp.methods import (
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeDeleteOk,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueueDeleteOk,
)
from node.broker.mass_deletion import PIECE_MAX, InPieces
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import (
    Bind,
    Command,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    DeleteVhost,
    PutVhost,
    Refused,
    Trim,
)
from node.catalogue.durable_part import durable_changes
from node.catalogue.events import Event
from node.catalogue.replicated_log import Answer
from node.catalogue.topology import QUEUE_COST
from node.queue.queue import Queue
from node.routing.router import Router
from tests.kit.world import Client, World

COUNT = 3000
TURN_MAX_S = 0.010


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A broker where a binding that goes costs 20 us, and a queue 200."""
    world = World()
    unbound, closed = Router.unbind, Queue.close

    def unbind(self: Router, binding: object) -> None:
        world.cost_s += 0.00002
        unbound(self, binding)  # type: ignore[arg-type]

    def close(self: Queue) -> None:
        world.cost_s += 0.0002
        closed(self)

    monkeypatch.setattr(Router, "unbind", unbind)
    monkeypatch.setattr(Queue, "close", close)
    return world


def turns(world: World) -> float:
    """Turns until nothing is left to do; what the longest of them cost."""
    longest = 0.0
    while world.broker.has_work:
        before = world.cost_s
        for connection in world.broker.turn(world.now):
            world.clients[connection].flush()
        longest = max(longest, world.cost_s - before)
    return longest


def bound(world: World, exchange: str = "amq.topic", *, auto_delete: bool = False) -> Client:
    """A client with a queue and an exchange that many bindings connect."""
    client = world.client()
    client.send(1, QueueDeclare(queue="q", nowait=True))
    if exchange != "amq.topic":
        client.send(1, ExchangeDeclare(exchange=exchange, type="topic", auto_delete=auto_delete, nowait=True))
    for n in range(COUNT):
        client.send(1, QueueBind(queue="q", exchange=exchange, routing_key=str(n), nowait=True))
    world.settle()
    assert world.broker.catalogue.binding_count("/") == COUNT
    return client


def test_a_queue_with_many_bindings(world: World) -> None:
    client = bound(world)
    before = world.cost_s
    client.send(1, QueueDelete(queue="q"))
    assert world.cost_s - before <= TURN_MAX_S
    assert client._unread == []
    assert turns(world) <= TURN_MAX_S
    assert client.methods() == [QueueDeleteOk(0)]
    assert world.broker.catalogue.binding_count("/") == 0
    assert world.queue_names == set()
    client.publish(1, "1", b"m", exchange="amq.topic", mandatory=True)
    assert client.bodies() == [b"m"], "returned"


def test_an_exchange_with_many_bindings(world: World) -> None:
    client = bound(world, exchange="x")
    before = world.cost_s
    client.send(1, ExchangeDelete(exchange="x"))
    assert world.cost_s - before <= TURN_MAX_S
    assert turns(world) <= TURN_MAX_S
    assert client.methods() == [ExchangeDeleteOk()]
    assert world.broker.catalogue.exchange("/", "x") is None
    assert not world.broker.catalogue.bindings_to("/", "queue", "q")


def test_an_auto_delete_exchange_goes_with_its_last_binding(world: World) -> None:
    client = bound(world, exchange="x", auto_delete=True)
    client.send(1, QueueDelete(queue="q"))
    assert client.methods() == [QueueDeleteOk(0)]
    assert world.broker.catalogue.exchange("/", "x") is None


def test_a_vhost_of_many_queues(world: World) -> None:
    world.submit(PutVhost("v"))
    for n in range(COUNT // 10):
        world.submit(DeclareQueue("v", str(n), f"uid-{n}"))
        world.submit(Bind("v", "amq.fanout", "queue", str(n), ""))
    for n in range(COUNT):
        world.submit(Bind("v", "amq.topic", "queue", "7", str(n)))
    world.settle()
    before, answers = world.cost_s, list[object]()
    world.broker.log.submit(DeleteVhost("v"), answers.append)
    assert world.cost_s - before <= TURN_MAX_S
    assert turns(world) <= TURN_MAX_S
    assert answers == [True]
    assert "v" not in world.broker.vhosts


def test_clients_that_declare_meanwhile_do_not_hold_it_up(world: World) -> None:
    world.submit(PutVhost("v"))
    for n in range(300):
        world.submit(DeclareQueue("v", str(n), f"uid-{n}"))
    answers = list[object]()
    world.broker.log.submit(DeleteVhost("v"), answers.append)
    for n in range(300, 3000):
        if answers:
            break
        for k in range(2 * PIECE_MAX // QUEUE_COST):
            world.submit(DeclareQueue("v", f"{n}-{k}", f"uid-{n}-{k}"))
        for _ in world.broker.turn(world.now):
            pass
    assert answers == [True]


def test_a_queue_that_was_declared_again_meanwhile_keeps_its_bindings() -> None:
    log = Held()
    pieces = InPieces(log, log.catalogue, lambda: None)
    log.make(COUNT)
    pieces.submit(DeleteQueue("/", "q", "old"))
    log.apply()
    log.catalogue.apply(DeleteQueue("/", "q"))
    log.make(5, "new")
    while pieces.has_work or log.waiting:
        if pieces.has_work:
            pieces.turn()
        log.apply()
    assert len(log.catalogue.bindings_to("/", "queue", "q")) == 5


def test_what_is_small_goes_at_once() -> None:
    log = Held()
    log.make(PIECE_MAX)
    pieces = InPieces(log, log.catalogue, lambda: None)
    for command in (DeleteQueue("/", "q"), DeleteExchange("/", "amq.topic"), DeleteVhost("none")):
        pieces.submit(command)
    assert [command for command, _ in log.waiting] == [
        DeleteQueue("/", "q"),
        DeleteExchange("/", "amq.topic"),
        DeleteVhost("none"),
    ]


def test_a_refused_piece_leaves_the_answer_to_the_deletion() -> None:
    log, answers = Held(), list[object]()
    log.make(COUNT)
    pieces = InPieces(log, log.catalogue, lambda: None)
    pieces.submit(DeleteQueue("/", "q"), answers.append)
    refused = Refused(ReplyCode.INTERNAL_ERROR, "no majority")
    for _ in range(2):
        (_, on_applied) = log.waiting.pop()
        assert on_applied is not None
        on_applied(refused)
        if pieces.has_work:
            pieces.turn()
    assert answers == [refused]


def test_pieces_are_logged_by_what_they_did() -> None:
    """As what cascades from them may be transient."""
    log = Held()
    log.catalogue.apply(DeclareExchange("/", "x", "topic", durable=True))
    log.catalogue.apply(DeclareQueue("/", "q", "uid", durable=True))
    for n in range(5):
        log.catalogue.apply(Bind("/", "x", "queue", "q", str(n)))
    log.catalogue.take_events()
    trim = Trim("/", "queue", "q", "uid", 3)
    assert log.catalogue.apply(trim) is True
    events: list[Event] = log.catalogue.take_events()
    changes = durable_changes(trim, True, events, log.catalogue)
    assert [type(change).__name__ for change in changes] == ["Unbind"] * 3
    assert log.catalogue.apply(trim) is False


class Held:
    """A log that applies when it is told to."""

    def __init__(self) -> None:
        self.catalogue = Catalogue()
        self.catalogue.apply(PutVhost("/"))
        self.waiting: list[tuple[Command[object], Answer | None]] = []

    def submit(self, command: Command[object], on_applied: Answer | None = None) -> None:
        self.waiting.append((command, on_applied))

    def await_safety(self, on_safe: object) -> None:
        raise AssertionError

    def apply(self) -> None:
        waiting, self.waiting = self.waiting, []
        for command, on_applied in waiting:
            result = self.catalogue.apply(command)
            if on_applied is not None:
                on_applied(result)

    def make(self, count: int, uid: str = "old") -> None:
        self.catalogue.apply(DeclareQueue("/", "q", uid))
        for n in range(count):
            self.catalogue.apply(Bind("/", "amq.topic", "queue", "q", str(n)))
        self.catalogue.take_events()
