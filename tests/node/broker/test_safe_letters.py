"""Dead letters with the strategy `at-least-once` stay in their queue until all targets have them."""

import pytest

from node.amqp.field_table import Table, longstr
from node.amqp.field_table import long as long_
from node.amqp.methods import (
    BasicConsume,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicQos,
    ConfirmSelect,
    QueueBind,
    QueueDeclare,
    QueueUnbind,
)
from node.amqp.properties import Properties
from node.broker.safe_letters import PROBES_MAX, RETRY_MAX_S, RETRY_MIN_S, ROUND_MAX
from node.broker.unsettled import unsettled
from node.catalogue.commands import ClearPolicy, DeleteQueue, DeleteVhost, SetPolicy
from node.client.counters import AT_LEAST_ONCE, AT_MOST_ONCE, CONFIRMED, RETRIED
from node.queue import letters
from node.queue.dead_letter import EXPIRED, REJECTED
from tests.kit.cluster import Cluster, RingCluster, client_of
from tests.kit.world import Client, World

PERSISTENT = Properties(delivery_mode=2)


def safe(exchange: str = "", key: str | None = "dead", **numbers: int) -> Table:
    """Return the arguments of a quorum queue whose dead letters go at least once."""
    found: Table = {f"x-{name.replace('_', '-')}": long_(value) for name, value in numbers.items()}
    found |= {
        "x-queue-type": longstr("quorum"),
        "x-dead-letter-strategy": longstr("at-least-once"),
        "x-overflow": longstr("reject-publish"),
        "x-dead-letter-exchange": longstr(exchange),
    }
    if key is not None:
        found["x-dead-letter-routing-key"] = longstr(key)
    return found


def limited(length: int) -> Table:
    return {"x-max-length": long_(length), "x-overflow": longstr("reject-publish")}


class Bench:
    """A broker with a quorum queue `q`, whose dead letters go at least once, and a client."""

    def __init__(self, arguments: Table | None = None) -> None:
        self.world = World()
        self.client: Client = self.world.client(1)
        self.killer: Client = self.world.client(1)
        self.declare("q", safe() if arguments is None else arguments, durable=True)

    def declare(self, name: str, arguments: Table | None = None, *, durable: bool = False) -> None:
        self.client.ask(1, QueueDeclare(queue=name, durable=durable, arguments=arguments or {}))

    def reject(self, *bodies: bytes) -> None:
        """Publish messages to `q`, get them and reject them."""
        self.killer.publish(1, "q", *bodies, properties=PERSISTENT)
        for _ in bodies:
            self.killer.send(1, BasicGet(queue="q"))
            (got,) = self.killer.received()
            assert isinstance(got.method, BasicGetOk)
            self.killer.send(1, BasicNack(got.method.delivery_tag, requeue=False))
        self.world.settle()

    def take(self, name: str) -> list[bytes]:
        """Return the bodies of a queue, which are settled."""
        bodies: list[bytes] = []
        while True:
            self.client.send(1, BasicGet(queue=name, no_ack=True))
            (got,) = self.client.received()
            if isinstance(got.method, BasicGetEmpty):
                return bodies
            bodies.append(got.body)

    @property
    def waiting(self) -> int:
        return self.world.queue("q").letters.count

    def count(self, what: str) -> int:
        return self.world.broker.counters.dead_lettered[what, AT_LEAST_ONCE]


def test_a_letter_leaves_when_its_target_has_it() -> None:
    bench = Bench()
    bench.declare("dead")
    bench.reject(b"1")
    assert (bench.waiting, bench.take("dead")) == (0, [b"1"])
    assert (bench.count(REJECTED), bench.count(CONFIRMED), bench.count(RETRIED)) == (1, 1, 0)
    assert unsettled(bench.world.broker, bench.world.queue("q")) == []
    assert bench.world.diary.entries.count("letters wait: q") == 0


def test_a_missing_target() -> None:
    """The letter stays until the queue is declared, and nothing is ready meanwhile."""
    bench = Bench()
    bench.reject(b"1")
    assert bench.waiting == 1
    assert [len(run) for run in unsettled(bench.world.broker, bench.world.queue("q"))] == [1]
    bench.world.advance(60)
    assert (bench.waiting, bench.take("q")) == (1, [])
    bench.declare("dead")
    bench.world.advance(RETRY_MAX_S)
    assert (bench.waiting, bench.take("dead")) == (0, [b"1"])
    assert [entry for entry in bench.world.diary.entries if "letters" in entry] == [
        "letters wait: q, no-route",
        "letters left: q",
    ]


def test_a_missing_exchange() -> None:
    bench = Bench(safe("missing"))
    bench.reject(b"1")
    assert bench.waiting == 1
    assert "letters wait: q, no-exchange" in bench.world.diary.entries


def test_a_target_that_refuses() -> None:
    """The letter comes when there is room, with the header of one death."""
    bench = Bench()
    bench.declare("dead", limited(1))
    bench.reject(b"1", b"2")
    assert bench.waiting == 1
    assert bench.take("dead") == [b"1"]
    bench.world.advance(RETRY_MIN_S)
    assert bench.waiting == 0
    (run,) = [bench.world.queue("dead").backlog.take(1)]
    assert run.contents[0].endswith(b"2\xce")
    assert bench.count(RETRIED) == 1


def test_the_times_between_attempts_double_up_to_a_limit() -> None:
    bench = Bench()
    bench.reject(b"1")
    seen: list[int] = []
    for seconds in (0.9, 0.2, 1.8, 0.2, 3.8, 0.2):
        bench.world.advance(seconds)
        seen.append(bench.count(RETRIED))
    assert seen == [0, 1, 1, 2, 2, 3]
    bench.world.advance(1000)
    before = bench.count(RETRIED)
    bench.world.advance(10 * RETRY_MAX_S)
    assert bench.count(RETRIED) == before + 10


def test_few_are_tried_while_none_gets_through_and_many_once_some_do() -> None:
    bench = Bench()
    bench.reject(*[b"%d" % number for number in range(ROUND_MAX + PROBES_MAX + 8)])
    bench.world.advance(RETRY_MIN_S)
    assert bench.count(RETRIED) == PROBES_MAX
    bench.declare("dead")
    bench.world.advance(RETRY_MAX_S)
    assert bench.waiting == 0
    assert sorted(map(int, bench.take("dead"))) == list(range(ROUND_MAX + PROBES_MAX + 8))


def test_a_target_that_has_a_letter_does_not_get_it_again() -> None:
    """One of two queues refuses: the other one has the message once, however often it is tried."""
    bench = Bench(safe("amq.fanout", None))
    for name, arguments in (("full", limited(0)), ("room", {})):
        bench.declare(name, arguments)
        bench.client.ask(1, QueueBind(queue=name, exchange="amq.fanout"))
    bench.reject(b"1")
    bench.world.advance(100)
    assert (bench.waiting, bench.take("room")) == (1, [b"1"])
    bench.client.ask(1, QueueUnbind(queue="full", exchange="amq.fanout"))
    bench.world.advance(RETRY_MAX_S)
    assert (bench.waiting, bench.take("room")) == (0, [])


def test_a_cycle_stays() -> None:
    """A message that would come back to its queue without a rejection stays, as at RabbitMQ: it is not lost."""
    bench = Bench(safe("", "q", message_ttl=1000))
    bench.client.publish(1, "q", b"1")
    bench.world.advance(2)
    assert (bench.waiting, bench.take("q")) == (1, [])
    assert "letters wait: q, cycle" in bench.world.diary.entries


def test_letters_that_wait_count_for_the_length_limit() -> None:
    """The publisher is refused, so the letters are bounded as the queue is."""
    bench = Bench(safe(max_length=2))
    bench.client.ask(1, ConfirmSelect())
    bench.reject(b"1")
    bench.client.publish(1, "q", b"2", b"3")
    answers = [type(method).__name__ for method in bench.client.methods()]
    assert "BasicNack" in answers
    assert (bench.world.queue("q").backlog.count, bench.waiting) == (1, 1)


def test_a_queue_with_too_many_letters_gives_out_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letters, "LETTERS_MAX_BYTES", 2 * letters.LETTER_BYTES)
    bench = Bench(safe(message_ttl=1000))
    bench.client.ask(1, BasicQos(prefetch_count=1))
    bench.reject(b"1", b"2")
    assert bench.world.queue("q").letters.is_full
    bench.client.publish(1, "q", b"3", properties=PERSISTENT)
    bench.client.ask(1, BasicConsume(queue="q", consumer_tag="c"))
    assert bench.client.received() == []
    assert bench.take("q") == []
    bench.world.advance(10)
    assert bench.world.queue("q").backlog.count == 1  # it has expired, but can't die now
    bench.declare("dead")
    bench.world.advance(2 * RETRY_MAX_S)
    assert sorted(bench.take("dead")) == [b"1", b"2", b"3"]
    assert not bench.world.queue("q").letters.is_full
    bench.client.publish(1, "q", b"4", properties=PERSISTENT)
    assert bench.client.bodies() == [b"4"]


def test_properties_of_letters_count_for_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message without a body may have headers of any size."""
    monkeypatch.setattr(letters, "LETTERS_MAX_BYTES", letters.LETTER_BYTES + 2000)
    bench = Bench()
    queue = bench.world.queue("q")
    bench.client.publish(1, "q", b"", properties=Properties(headers={"h": longstr("x" * 3000)}))
    bench.reject(b"1")
    assert queue.letters.is_full
    bench.declare("dead")
    bench.world.advance(2 * RETRY_MAX_S)
    assert (queue.letters.is_full, queue.letters.memory_bytes) == (False, 0)


def test_letters_go_with_their_queue() -> None:
    """Nothing is dead-lettered from a deleted queue (amqp-behaviour §3.11)."""
    bench = Bench()
    bench.reject(b"1")
    bench.world.submit(DeleteQueue("/", "q"))
    bench.declare("dead")
    bench.world.advance(100)
    assert bench.take("dead") == []
    assert list(bench.world.broker.dead_letters.all_unsettled()) == []


def test_letters_go_with_their_vhost() -> None:
    """Nothing is left of those whose next attempt is about to be made."""
    bench = Bench()
    bench.reject(b"1")
    bench.world.now += RETRY_MIN_S
    bench.world.broker.tick(bench.world.now)
    bench.world.submit(DeleteVhost("/"))
    bench.world.settle()
    assert bench.world.broker.dead_letters.safe._open == {}


def test_without_the_overflow_they_go_at_most_once() -> None:
    """RabbitMQ falls back likewise."""
    arguments = safe()
    del arguments["x-overflow"]
    bench = Bench(arguments)
    assert "letters fall back: q" in bench.world.diary.entries
    bench.reject(b"1")
    assert bench.waiting == 0
    assert bench.world.broker.counters.dead_lettered[REJECTED, AT_MOST_ONCE] == 1


def test_a_policy_gives_and_takes_the_strategy() -> None:
    """Letters that wait when the strategy goes are dead-lettered at most once."""
    bench = Bench({"x-queue-type": longstr("quorum")})
    definition = {
        "dead-letter-strategy": "at-least-once",
        "dead-letter-exchange": "",
        "dead-letter-routing-key": "dead",
        "overflow": "reject-publish",
    }
    bench.world.submit(SetPolicy("/", "p", "q", definition))
    bench.reject(b"1")
    assert bench.waiting == 1
    bench.world.submit(ClearPolicy("/", "p"))
    bench.world.advance(RETRY_MAX_S)
    assert bench.waiting == 0
    assert unsettled(bench.world.broker, bench.world.queue("q")) == []


def test_a_policy_without_the_overflow_is_told_once() -> None:
    bench = Bench({"x-queue-type": longstr("quorum")})
    definition = {"dead-letter-strategy": "at-least-once", "dead-letter-exchange": ""}
    for length in (5, 6):
        bench.world.submit(SetPolicy("/", "p", "q", definition | {"max-length": length}))
    assert bench.world.diary.entries.count("letters fall back: q") == 1


def test_expired_messages() -> None:
    bench = Bench(safe(message_ttl=1000))
    bench.client.publish(1, "q", b"1", b"2", properties=PERSISTENT)
    bench.world.advance(2)
    assert (bench.waiting, bench.count(EXPIRED)) == (2, 2)
    bench.declare("dead")
    bench.world.advance(RETRY_MAX_S)
    assert bench.take("dead") == [b"1", b"2"]


# --- clusters ---


def die(cluster: Cluster, node: str, name: str = "source") -> None:
    """Have a message rejected."""
    client = client_of(cluster[node], 1)
    client.publish(1, name, b"1", properties=PERSISTENT)
    client.send(1, BasicGet(queue=name))
    client.send(1, BasicNack(1, requeue=False))
    cluster.settle()
    client.lose()


def test_a_full_target_on_another_node() -> None:
    cluster = Cluster("n1", "n2")
    cluster.declare("n2", "dead", limited(0))
    cluster.declare("n1", "source", safe(), durable=True)
    die(cluster, "n1")
    assert cluster["n1"].home_queue("source").letters.count == 1
    cluster.submit(DeleteQueue("/", "dead"))
    cluster.declare("n2", "dead")
    cluster.advance(RETRY_MAX_S)
    assert cluster["n1"].home_queue("source").letters.count == 0
    assert cluster["n2"].home_queue("dead").backlog.count == 1


def test_the_node_of_the_target_dies() -> None:
    """The letter is on its way then; it goes to the queue that takes the other's place."""
    cluster = Cluster("n1", "n2", "n3")
    cluster.declare("n2", "dead")
    cluster.declare("n1", "source", safe(), durable=True)
    client = client_of(cluster["n1"], 1)
    client.publish(1, "source", b"1", properties=PERSISTENT)
    client.send(1, BasicGet(queue="source"))
    cluster.settle()
    cluster.is_held = True
    client.send(1, BasicNack(1, requeue=False))
    cluster.settle()
    assert cluster["n1"].home_queue("source").letters.count == 1
    cluster.is_held = False
    cluster.crash("n2")
    cluster.settle()
    cluster.submit(DeleteQueue("/", "dead"))
    cluster.declare("n3", "dead")
    cluster.advance(RETRY_MAX_S)
    assert cluster["n3"].home_queue("dead").backlog.count == 1
    assert cluster["n1"].home_queue("source").letters.count == 0


def test_the_master_of_the_source_dies() -> None:
    """The message is ready at the next master: it may die twice, but is not lost."""
    cluster = RingCluster("n1", "n2")
    cluster.declare_mirrored("source", "n1", "n2", arguments=safe(), type="quorum")  # type: ignore[arg-type]
    die(cluster, "n1")
    assert cluster["n1"].home_queue("source").letters.count == 1
    cluster.crash("n1")
    cluster.settle()
    assert cluster["n2"].home_queue("source").backlog.count == 1


def test_the_source_hands_over() -> None:
    """A letter that waits goes with its queue to the next master, and nowhere else."""
    cluster = RingCluster("n1", "n2")
    cluster.declare_mirrored("source", "n1", "n2", arguments=safe(), type="quorum")  # type: ignore[arg-type]
    die(cluster, "n1")
    cluster.transfer("source", "n2")
    cluster.settle()
    assert list(cluster["n1"].broker.dead_letters.all_unsettled()) == []
    queue = cluster["n2"].home_queue("source")
    assert (queue.backlog.count, queue.letters.count) == (1, 0)
    cluster.declare("n1", "dead")
    cluster.advance(100)
    assert cluster["n1"].home_queue("dead").backlog.count == 0
