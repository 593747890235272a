"""reliability §2.2 simple_ha: traffic of real clients lives on while the master ends, is killed, or moves by policy.

The master is on the first node, the consumer on the second, the publisher on the third.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Final

import aio_pika
import pika
import pytest
from aio_pika.exceptions import DeliveryError
from pika.exceptions import AMQPError

from tests.conformance.aio_pika_steps import opened
from tests.conformance.pika_steps import parameters
from tests.kit.mirror_steps import Mirrored, Sequence, await_shape, set_mirroring
from tests.kit.patience import wait_until
from tests.kit.server_cluster import Cluster, ClusterNode

pytestmark = pytest.mark.slow

Name = Callable[[str], str]
Ending = Callable[[Cluster, str], None]

TOTAL: Final = 20_000
TRAFFIC_S: Final = 60.0
PERSISTENT: Final = pika.BasicProperties(delivery_mode=2)
SILENT: Final = {"capabilities": {"consumer_cancel_notify": False}}


def stop(cluster: Cluster, prefix: str) -> None:
    cluster[0].stop_app()


def sigkill(cluster: Cluster, prefix: str) -> None:
    cluster[0].kill()


def policy(cluster: Cluster, prefix: str) -> None:
    """The master may not be where it is any more."""
    others = (cluster[1].name, cluster[2].name)
    set_mirroring(cluster[1], prefix, "nodes", others, ha_sync_mode="automatic")


ENDINGS: Final = pytest.mark.parametrize("ending", [stop, sigkill, policy], ids=lambda each: each.__name__)


class Worker:
    """A pika connection in a thread. What goes wrong there is raised by `join`."""

    def __init__(self, node: ClusterNode, **options: Any) -> None:
        self._connection = pika.BlockingConnection(parameters(node, **options))
        self._channel = self._connection.channel()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: BaseException | None = None
        self.should_end = False

    def start(self) -> None:
        self._thread.start()

    def join(self, within: float = TRAFFIC_S) -> None:
        self._thread.join(within)
        is_late = self._thread.is_alive()
        self.should_end = True
        self._thread.join(10)
        if self._error is not None:
            raise self._error
        assert not is_late, f"not done within {within} s: {self}"

    def work(self) -> None:
        raise NotImplementedError

    def _run(self) -> None:
        try:
            self.work()
            self._connection.close()
        except (AMQPError, AssertionError) as error:
            self._error = error


class Consumer(Worker):
    """Consumes numbered messages with acknowledgements, and again when it is cancelled."""

    def __init__(self, node: ClusterNode, queue: str, *, wants_cancel: bool, **options: Any) -> None:
        super().__init__(node, **options)
        self.numbers = Sequence(TOTAL)
        self.cancels = 0
        self._queue = queue
        self._arguments = {"x-cancel-on-ha-failover": True} if wants_cancel else {}
        self._channel.add_on_cancel_callback(self._cancelled)
        self._consume()

    def __str__(self) -> str:
        return f"{self.numbers.next} consumed, {self.numbers.again} again, {self.cancels} cancels"

    def work(self) -> None:
        known = 0
        while not self.numbers.is_whole and not self.should_end:
            self._connection.process_data_events(time_limit=0.1)
            if self.cancels > known:
                known = self.cancels
                self._consume()

    def _consume(self) -> None:
        self._channel.basic_consume(self._queue, self._delivered, arguments=self._arguments)

    def _cancelled(self, method: Any) -> None:
        self.cancels += 1

    def _delivered(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self.numbers.take(int(body), redelivered=method.redelivered)
        channel.basic_ack(method.delivery_tag)


class Publisher(Worker):
    """Publishes them without confirms."""

    def __init__(self, node: ClusterNode, queue: str) -> None:
        super().__init__(node)
        self._queue = queue
        self.published = 0

    def __str__(self) -> str:
        return f"{self.published} published"

    def work(self) -> None:
        while self.published < TOTAL and not self.should_end:
            self._channel.basic_publish("", self._queue, b"%d" % self.published, PERSISTENT)
            self.published += 1


@pytest.fixture
def queue(shaken_cluster: Cluster, mirrored: Mirrored) -> str:
    """A durable queue with its master on the first node and mirrors on both others, all synchronised."""
    prefix = mirrored()
    connection = pika.BlockingConnection(parameters(shaken_cluster[0]))
    connection.channel().queue_declare(prefix, durable=True)
    connection.close()
    await_shape(shaken_cluster[0], prefix, master=shaken_cluster[0].name, synced=2)
    return prefix


def play(cluster: Cluster, queue: str, ending: Ending, consumer: Consumer) -> None:
    """All traffic, with the master's end when it has begun; check what came."""
    publisher = Publisher(cluster[2], queue)
    consumer.start()
    publisher.start()
    wait_until(lambda: publisher.published > 1000 and consumer.numbers.next > 100, "traffic")
    ending(cluster, queue)
    assert publisher.published < TOTAL, "the master was to end before that"
    publisher.join()
    consumer.join()
    assert not consumer.numbers.problems, (consumer.numbers.problems[:5], str(consumer))
    assert consumer.numbers.is_whole
    await_shape(cluster[1], queue, mirrors=1)
    assert cluster[1].replicas(queue).master != cluster[0].name


@ENDINGS
def test_consume_survives(shaken_cluster: Cluster, queue: str, ending: Ending) -> None:
    """§2.2 consume_survives_stop, _sigkill, _policy: no gap, and what comes again is flagged."""
    consumer = Consumer(shaken_cluster[1], queue, wants_cancel=True)
    play(shaken_cluster, queue, ending, consumer)
    assert consumer.cancels >= 1


def test_auto_resume(shaken_cluster: Cluster, queue: str) -> None:
    """§2.2 auto_resume: who did not ask for a cancel is attached again silently."""
    consumer = Consumer(shaken_cluster[1], queue, wants_cancel=False)
    play(shaken_cluster, queue, sigkill, consumer)
    assert consumer.cancels == 0


def test_auto_resume_no_ccn_client(shaken_cluster: Cluster, queue: str) -> None:
    """§2.2 auto_resume_no_ccn_client: nor who could not be told of one."""
    consumer = Consumer(shaken_cluster[1], queue, wants_cancel=False, client_properties=SILENT)
    play(shaken_cluster, queue, sigkill, consumer)
    assert consumer.cancels == 0


class ConfirmedPublisher:
    """An aio-pika publisher of many at once; each publish ends by an ack or raises."""

    def __init__(self, node: ClusterNode, queue: str, count: int = TOTAL) -> None:
        self._node, self._queue, self._count = node, queue, count
        self.acked = 0
        self.nacked: list[int] = []

    async def run(self, at: int, ending: Callable[[], None]) -> None:
        """Publish all; in the midst, when `at` are acked, have the master end."""
        async with opened(self._node) as channel:
            exchange, going = channel.default_exchange, asyncio.Semaphore(500)

            async def publish(number: int) -> None:
                message = aio_pika.Message(b"%d" % number, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
                try:
                    await exchange.publish(message, self._queue)
                    self.acked += 1
                except DeliveryError:
                    self.nacked.append(number)
                finally:
                    going.release()

            tasks, ended = [], None
            for number in range(self._count):
                await going.acquire()
                tasks.append(asyncio.create_task(publish(number)))
                if ended is None and self.acked + len(self.nacked) >= at:
                    ended = asyncio.create_task(asyncio.to_thread(ending))
            await asyncio.gather(*tasks)
            assert ended is not None
            await ended


def publish_all(publisher: ConfirmedPublisher, at: int, ending: Callable[[], None]) -> None:
    asyncio.run(asyncio.wait_for(publisher.run(at, ending), TRAFFIC_S))


@ENDINGS
def test_confirms_survive(shaken_cluster: Cluster, queue: str, ending: Ending) -> None:
    """§2.2 confirms_survive_stop, _sigkill, _policy: all are acked, none is nacked; and all are there once."""
    publisher = ConfirmedPublisher(shaken_cluster[1], queue)
    publish_all(publisher, 1000, lambda: ending(shaken_cluster, queue))
    assert (publisher.acked, publisher.nacked) == (TOTAL, [])
    check_content(shaken_cluster[2], queue, TOTAL)


def check_content(node: ClusterNode, queue: str, total: int) -> None:
    """The queue holds the numbers below `total`, each once."""
    connection = pika.BlockingConnection(parameters(node))
    channel = connection.channel()
    assert channel.queue_declare(queue, passive=True).method.message_count == total
    found = set()
    for method, _, body in channel.consume(queue, auto_ack=True, inactivity_timeout=20):
        assert method is not None, f"{len(found)} of {total}"
        found.add(int(body))
        if len(found) == total:
            break
    connection.close()
    assert found == set(range(total))


@ENDINGS
@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_rejects_survive(shaken_cluster: Cluster, mirrored: Mirrored, ending: Ending, overflow: str) -> None:
    """§2.2 rejects_survive_stop, _sigkill, _policy: a full queue nacks through it all; the first message stays."""
    prefix = mirrored()
    connection = pika.BlockingConnection(parameters(shaken_cluster[0]))
    arguments = {"x-max-length": 1, "x-overflow": overflow}
    connection.channel().queue_declare(prefix, durable=True, arguments=arguments)
    connection.close()
    asyncio.run(publish_first(shaken_cluster[1], prefix))
    publisher = ConfirmedPublisher(shaken_cluster[1], prefix, count=4000)
    publish_all(publisher, 200, lambda: ending(shaken_cluster, prefix))
    assert (publisher.acked, len(publisher.nacked)) == (0, 4000)
    connection = pika.BlockingConnection(parameters(shaken_cluster[2]))
    channel = connection.channel()
    assert channel.queue_declare(prefix, passive=True).method.message_count == 1
    assert channel.basic_get(prefix, auto_ack=True)[2] == b"first"
    connection.close()


async def publish_first(node: ClusterNode, queue: str) -> None:
    async with opened(node) as channel:
        message = aio_pika.Message(b"first", delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(message, queue)
