"""An unmodified kombu over py-amqp: producers and consumers, simple queues, mixins, retries, pidbox, the QoS mode."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import kombu.exceptions
import pytest
from kombu import Connection, Consumer, Exchange, Queue, common, pidbox, pools
from kombu.asynchronous import Hub
from kombu.mixins import ConsumerMixin, ConsumerProducerMixin

from tests.kit.client_steps import TIMEOUT_S, amqp_url, free_address, relay_to
from tests.kit.patience import wait_until
from tests.kit.servers import Admin, Server

Names = Callable[[str], str]


@pytest.fixture
def connection(server: Server) -> Iterator[Any]:
    with Connection(amqp_url(server)) as opened:
        yield opened


@pytest.fixture
def queue(connection: Any, name: Names) -> Iterator[Any]:
    """A durable queue and its direct exchange, declared, as kombu's documentation makes them."""
    exchange = Exchange(name("x"), "direct")
    made = Queue(name("q"), exchange, routing_key="key")(connection.default_channel)
    made.declare()
    yield made
    with Connection(connection.as_uri(include_password=True)) as other:
        made = made(other.default_channel)
        made.delete()
        made.exchange(other.default_channel).delete()


def receive(connection: Any, queues: Any, count: int, **options: Any) -> list[Any]:
    """Consume and acknowledge so many messages; their decoded bodies."""
    bodies: list[Any] = []

    def on_message(body: Any, message: Any) -> None:
        bodies.append(body)
        message.ack()

    with Consumer(connection, queues, callbacks=[on_message], **options):
        drain_until(connection, lambda: len(bodies) >= count)
    return bodies


def drain_until(connection: Any, condition: Callable[[], Any]) -> None:
    """Serve the connection until the condition holds."""

    def served() -> Any:
        with contextlib.suppress(TimeoutError):
            connection.drain_events(timeout=0.05)
        return condition()

    wait_until(served)


# Producers and consumers.


@pytest.mark.parametrize("serializer", ["json", "pickle", "yaml", "raw"])
@pytest.mark.parametrize("compression", [None, "zlib", "bzip2"])
def test_serializers(connection: Any, queue: Any, serializer: str, compression: str | None) -> None:
    """The content headers that kombu sets come back, so that it can decode."""
    body = {"hello": "wörld", "list": [1, None, True]} if serializer != "raw" else b"\x00\xff"
    producer = connection.Producer()
    producer.publish(
        body,
        exchange=queue.exchange,
        routing_key="key",
        serializer=serializer,
        compression=compression,
        declare=[queue],
    )
    received = receive(connection, [queue], 1, accept=["json", "pickle", "yaml", "application/data"])
    assert received == [body]


def test_consumer_of_several_queues(connection: Any, name: Names) -> None:
    """A topic exchange, three queues, one consumer; the delivery_info says where each came from."""
    exchange = Exchange(name("topic"), "topic", auto_delete=True, durable=False)
    queues = [Queue(name("q"), exchange, routing_key=key, exclusive=True) for key in ("a.#", "*.b", "#.c")]
    came: list[tuple[str, str]] = []

    def on_message(body: Any, message: Any) -> None:
        came.append((message.delivery_info["routing_key"], body))
        message.ack()

    with connection.Consumer(queues, callbacks=[on_message]):
        for key in ("a.b", "x.b", "x.c", "x.x"):
            connection.Producer().publish(key, exchange=exchange, routing_key=key)
        drain_until(connection, lambda: len(came) == 4)
    assert sorted(came) == [("a.b", "a.b"), ("a.b", "a.b"), ("x.b", "x.b"), ("x.c", "x.c")]


def test_exchange_to_exchange_binding(connection: Any, name: Names) -> None:
    channel = connection.default_channel
    source = Exchange(name("source"), "fanout", channel=channel, durable=False)
    target = Exchange(name("target"), "direct", channel=channel, durable=False)
    source.declare()
    target.declare()
    target.bind_to(source, routing_key="")
    queue = Queue(name("q"), target, "key", exclusive=True, channel=channel)
    queue.declare()
    connection.Producer().publish("body", exchange=source, routing_key="key")
    assert wait_until(queue.get).payload == "body"
    target.unbind_from(source, routing_key="")
    source.delete()
    target.delete()


def test_queue_options(connection: Any, name: Names) -> None:
    """Options of kombu's Queue become arguments: lengths, TTLs, priorities, expiry."""
    options = {
        "name": name("q"),
        "max_length": 2,
        "max_length_bytes": 1000,
        "message_ttl": 60.0,
        "expires": 30.0,
        "max_priority": 5,
        "exclusive": True,
        "channel": connection.default_channel,
    }
    queue = Queue(**options)
    queue.declare()
    queue.declare()
    producer = connection.Producer()
    for priority in (0, 5, 3):
        producer.publish(priority, routing_key=queue.name, priority=priority)
    with pytest.raises(connection.channel_errors, match="inequivalent arg 'x-max-length' for queue"):
        Queue(**{**options, "max_length": 3}).declare()
    # What is over the length goes from the head, which is the highest priority.
    assert receive(connection, [queue], 2) == [3, 0]


def test_requeue_and_reject(connection: Any, queue: Any) -> None:
    connection.Producer().publish("body", exchange=queue.exchange, routing_key="key")
    message = wait_until(queue.get)
    assert not message.delivery_info["redelivered"]
    message.requeue()
    message = wait_until(queue.get)
    assert message.delivery_info["redelivered"]
    message.reject()
    assert queue.get() is None
    assert queue.purge() == 0


def test_decode_errors_are_reported(connection: Any, queue: Any) -> None:
    """A body of a type that is not accepted: the consumer is told, and may reject."""
    connection.Producer().publish({"a": 1}, exchange=queue.exchange, routing_key="key", serializer="pickle")
    refused: list[Exception] = []

    def on_decode_error(message: Any, error: Exception) -> None:
        refused.append(error)
        message.reject()

    with connection.Consumer([queue], accept=["json"], on_decode_error=on_decode_error):
        drain_until(connection, lambda: refused)
    assert queue.queue_declare(passive=True).message_count == 0


def test_confirm_publish(server: Server, name: Names) -> None:
    """transport_options confirm_publish: a missing exchange raises at its publish, a refusal too."""
    with Connection(amqp_url(server), transport_options={"confirm_publish": True}) as connection:
        producer = connection.Producer()
        queue = Queue(name("q"), exclusive=True, channel=connection.default_channel)
        queue.declare()
        for number in range(20):
            producer.publish(number, routing_key=queue.name)
        assert queue.queue_declare(passive=True).message_count == 20
        with pytest.raises(connection.channel_errors, match="no exchange 'missing' in vhost '/'"):
            producer.publish("lost", exchange="missing")


def test_returned_messages(connection: Any, name: Names) -> None:
    returned: list[int] = []

    def on_return(error: Any, _exchange: str, _key: str, _message: Any) -> None:
        returned.append(error.reply_code)

    producer = connection.Producer(on_return=on_return)
    producer.publish("lost", routing_key=name("nowhere"), mandatory=True)
    drain_until(connection, lambda: returned)
    assert returned == [312]


# The QoS mode.


def test_qos_mode(connection: Any, queue: Any) -> None:
    """By product and version kombu knows that the global flag means the channel, and Celery then uses it."""
    assert connection.qos_semantics_matches_spec is False
    producer = connection.Producer()
    for number in range(10):
        producer.publish(number, exchange=queue.exchange, routing_key="key")
    channel = connection.channel()
    held: list[Any] = []
    consumers = [
        Consumer(channel, [queue], callbacks=[lambda _body, message: held.append(message)], prefetch_count=5)
        for _ in range(2)
    ]
    consumers[0].qos(prefetch_count=3, apply_global=True)
    for consumer in consumers:
        consumer.consume()
    drain_until(connection, lambda: len(held) >= 3)
    assert queue.queue_declare(passive=True).message_count == 7
    assert len(held) == 3
    consumers[0].qos(prefetch_count=4, apply_global=True)
    drain_until(connection, lambda: len(held) >= 4)
    assert queue.queue_declare(passive=True).message_count == 6
    channel.close()


# Simple queues.


def test_simple_queue(connection: Any, name: Names) -> None:
    with connection.SimpleQueue(name("simple")) as queue:
        for number in range(3):
            queue.put({"number": number})
        wait_until(lambda: len(queue) == 3)
        message = queue.get(timeout=TIMEOUT_S)
        assert message.payload == {"number": 0}
        message.requeue()
        numbers = []
        for _ in range(3):
            message = queue.get(block=True, timeout=TIMEOUT_S)
            numbers.append(message.payload["number"])
            message.ack()
        assert sorted(numbers) == [0, 1, 2]
        with pytest.raises(queue.Empty):
            queue.get(block=False)
    bound = queue.queue(connection.default_channel)
    bound.delete()
    bound.exchange.delete()


def test_simple_buffer(connection: Any, name: Names) -> None:
    """A transient auto-delete queue without acks."""
    with connection.SimpleBuffer(name("buffer")) as queue:
        queue.put("body")
        assert queue.get(timeout=TIMEOUT_S).payload == "body"
    with pytest.raises(connection.channel_errors, match="no queue"):
        queue.queue(connection.default_channel).queue_declare(passive=True)


# Mixins.


class Collector(ConsumerMixin):
    """Collect messages from a queue up to the last one, then stop; comes back when the connection breaks."""

    def __init__(self, connection: Any, queue: Any, last: str) -> None:
        self.connection = connection
        self.queue = queue
        self.last = last
        self.bodies: list[Any] = []
        self.ready = threading.Semaphore(0)

    def get_consumers(self, consumer: Any, channel: Any) -> list[Any]:
        return [consumer([self.queue], callbacks=[self.on_message], prefetch_count=2)]

    def on_consume_ready(self, connection: Any, channel: Any, consumers: Any, **_: Any) -> None:
        self.ready.release()

    def on_message(self, body: Any, message: Any) -> None:
        self.bodies.append(body)
        message.ack()
        self.should_stop = body == self.last


@pytest.fixture
def in_thread() -> Iterator[Callable[[Callable[[], None]], threading.Thread]]:
    """Run in threads, which have to end with the test."""
    threads: list[threading.Thread] = []

    def start(action: Callable[[], None]) -> threading.Thread:
        threads.append(threading.Thread(daemon=True, target=action))
        threads[-1].start()
        return threads[-1]

    yield start
    for each in threads:
        each.join(TIMEOUT_S)
        assert not each.is_alive()


@pytest.mark.slow
def test_consumer_mixin_survives_a_cut(
    server: Server, connection: Any, queue: Any, in_thread: Callable[[Callable[[], None]], threading.Thread]
) -> None:
    """The connection breaks; the mixin connects and declares again, and gets what comes then."""
    queue = Queue(queue.name, Exchange(queue.exchange.name, "direct"), "key")
    producer = connection.Producer()
    with relay_to(server) as relay, Connection(amqp_url(relay)) as cut:
        collector = Collector(cut, queue, "after")
        thread = in_thread(collector.run)
        assert collector.ready.acquire(timeout=TIMEOUT_S)
        producer.publish("before", exchange=queue.exchange, routing_key="key")
        wait_until(lambda: collector.bodies)
        relay.plug_into(server)
        assert collector.ready.acquire(timeout=TIMEOUT_S)
        producer.publish("after", exchange=queue.exchange, routing_key="key")
        thread.join(TIMEOUT_S)
        # The cut may overtake the acknowledgement: then the first message is delivered again.
        assert collector.bodies in (["before", "after"], ["before", "before", "after"])


class Doubler(ConsumerProducerMixin):
    """An RPC server: answer each number with its double."""

    def __init__(self, connection: Any, queue: Any) -> None:
        self.connection = connection
        self.queue = queue
        self.ready = threading.Event()

    def get_consumers(self, consumer: Any, channel: Any) -> list[Any]:
        return [consumer([self.queue], on_message=self.on_request, prefetch_count=1)]

    def on_consume_ready(self, connection: Any, channel: Any, consumers: Any, **_: Any) -> None:
        self.ready.set()

    def on_request(self, message: Any) -> None:
        self.producer.publish(
            message.payload * 2,
            exchange="",
            routing_key=message.properties["reply_to"],
            correlation_id=message.properties["correlation_id"],
            retry=True,
        )
        message.ack()
        self.should_stop = message.payload == 9


def test_rpc_by_mixin(
    server: Server, connection: Any, name: Names, in_thread: Callable[[Callable[[], None]], threading.Thread]
) -> None:
    """kombu's rpc example: an exclusive answer queue, correlation ids."""
    with Connection(amqp_url(server)) as serving:
        requests = Queue(name("rpc"), auto_delete=True, durable=False)
        doubler = Doubler(serving, requests)
        in_thread(doubler.run)
        assert doubler.ready.wait(TIMEOUT_S)
        answers: dict[str, int] = {}
        callback = Queue(name("answers"), exclusive=True, auto_delete=True)
        with connection.Consumer(
            [callback],
            on_message=lambda message: answers.update(
                {message.properties["correlation_id"]: message.payload}
            ),
            no_ack=True,
        ):
            producer = connection.Producer()
            for number in range(10):
                producer.publish(
                    number, routing_key=requests.name, reply_to=callback.name, correlation_id=str(number)
                )
            drain_until(connection, lambda: len(answers) == 10)
        assert answers == {str(number): 2 * number for number in range(10)}


# Retries.


@pytest.mark.disturbs_everyone
def test_ensure_reconnects(server: Server, admin: Admin, name: Names) -> None:
    """publish(retry=True) after a forced close: a new connection, the queue declared again, sent once."""
    errors: list[Exception] = []
    with Connection(amqp_url(server)) as connection:
        queue = Queue(name("q"), auto_delete=True, durable=False, channel=connection.default_channel)
        queue.declare()
        producer = connection.Producer()
        admin.close_all_connections("maintenance")
        policy = {
            "max_retries": 10,
            "interval_start": 0,
            "interval_step": 0.05,
            "errback": lambda error, _interval: errors.append(error),
        }
        # Without confirms a publish before the client has read the close would be lost.
        with pytest.raises(connection.connection_errors, match="CONNECTION_FORCED - maintenance"):
            connection.drain_events(timeout=TIMEOUT_S)
        producer.publish("body", routing_key=queue.name, retry=True, retry_policy=policy, declare=[queue])
        assert receive(connection, [Queue(queue.name, auto_delete=True, durable=False)], 1) == ["body"]


def test_autoretry_and_failover(server: Server, name: Names) -> None:
    """A URL of two hosts, the first of which is down: `ensure_connection` goes to the second."""
    url = f"{amqp_url(free_address())};{amqp_url(server)}"
    with Connection(url, failover_strategy="round-robin") as connection:
        connection.ensure_connection(max_retries=5, interval_start=0, interval_step=0.01)
        assert connection.connected
        assert connection.default_channel.queue_declare(exclusive=True).queue.startswith("amq.gen-")


def test_connection_refused(server: Server) -> None:
    wrong = amqp_url(server).replace("guest:guest", "guest:wrong")
    with Connection(wrong) as connection, pytest.raises(connection.channel_errors, match="Login was refused"):
        connection.connect()
    with (
        Connection(amqp_url(free_address())) as connection,
        pytest.raises(kombu.exceptions.OperationalError),
    ):
        connection.ensure_connection(max_retries=1, interval_start=0)


def test_pools(server: Server, name: Names) -> None:
    """The global pools of connections and producers, from several threads."""
    with Connection(amqp_url(server)) as connection:
        queue = Queue(name("q"), auto_delete=True, durable=False, channel=connection.default_channel)
        queue.declare()

        def publish() -> None:
            for number in range(10):
                with pools.producers[connection].acquire(block=True) as producer:
                    producer.publish(number, routing_key=queue.name, declare=[queue])

        threads = [threading.Thread(daemon=True, target=publish) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wait_until(lambda: queue.queue_declare(passive=True).message_count == 40)
        pools.reset()
        assert sorted(receive(connection, [queue], 40)) == sorted(list(range(10)) * 4)


# What Celery builds on.


def test_pidbox(connection: Any, server: Server, name: Names) -> None:
    """Remote control: a fanout of commands to all nodes, answers to a queue that expires."""
    namespace = name("control")

    with Connection(amqp_url(server)) as other:
        mailbox = pidbox.Mailbox(namespace, type="fanout")
        nodes = []
        for hostname in ("a", "b"):
            node = mailbox(other).Node(hostname, channel=other.channel(), state=hostname)
            node.handler(_whoami)
            node.listen(callback=node.handle_message)
            nodes.append(node)
        stop = threading.Event()

        def serve() -> None:
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    other.drain_events(timeout=0.05)

        thread = threading.Thread(daemon=True, target=serve)
        thread.start()
        try:
            bound = mailbox(connection)
            replies = bound.multi_call("_whoami", timeout=TIMEOUT_S, limit=2)
            assert sorted(replies, key=str) == [{"a": "I am a"}, {"b": "I am b"}]
            (only,) = bound.call(["b"], "_whoami", timeout=TIMEOUT_S) or [None]
            assert only == {"b": "I am b"}
        finally:
            stop.set()
            thread.join(TIMEOUT_S)


def _whoami(state: str) -> str:
    return f"I am {state}"


def test_broadcast(server: Server, name: Names) -> None:
    """kombu.common.Broadcast: every consumer has a queue of its own on a fanout exchange."""
    fanout = name("broadcast")
    with Connection(amqp_url(server)) as first, Connection(amqp_url(server)) as second:
        got: dict[Any, list[Any]] = {first: [], second: []}
        consumers = [
            Consumer(each, [common.Broadcast(fanout)], on_message=got[each].append, no_ack=True)
            for each in got
        ]
        with consumers[0], consumers[1]:
            first.Producer().publish("news", exchange=Exchange(fanout, "fanout"))
            drain_until(first, lambda: got[first])
            drain_until(second, lambda: got[second])
        assert [[message.payload for message in messages] for messages in got.values()] == [
            ["news"],
            ["news"],
        ]
        Exchange(fanout, "fanout", channel=first.default_channel).delete()


def test_event_loop(connection: Any, queue: Any) -> None:
    """kombu's own asynchronous hub, which Celery's worker runs on."""
    hub = Hub()
    connection.register_with_event_loop(hub)
    got: list[Any] = []

    def on_message(body: Any, message: Any) -> None:
        got.append(body)
        message.ack()
        if len(got) == 5:
            hub.stop()

    with connection.Consumer([queue], callbacks=[on_message]):
        producer = connection.Producer()
        for number in range(5):
            producer.publish(number, exchange=queue.exchange, routing_key="key")
        hub.call_later(TIMEOUT_S, hub.stop)
        hub.run_forever()
    hub.close()
    assert got == [0, 1, 2, 3, 4]
