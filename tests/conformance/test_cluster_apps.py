"""Applications spread over three nodes go through a rolling restart and a kill -9 of a node.

Proven against a cluster of RabbitMQ by FLUFFLE_TEST_AGAINST=rabbitmq, where it takes three times as long.
"""

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import aio_pika
import oslo_messaging
import pytest
from aio_pika.abc import AbstractIncomingMessage, AbstractRobustConnection
from aio_pika.patterns import RPC
from celery.exceptions import CeleryError
from kombu.exceptions import KombuError, OperationalError

from tests.conformance.cluster_apps import PROGRESS_S, RESTARTS, await_progress, missing, no_faults, restart
from tests.conformance.cluster_apps_celery import (
    BROKER_VARIABLE,
    DONE_VARIABLE,
    QUEUES,
    STRATEGY_VARIABLE,
    make_app,
)
from tests.conformance.test_client_oslo_messaging import FAST, running_oslo
from tests.kit.client_steps import Process, amqp_url, oslo_url
from tests.kit.patience import wait_until
from tests.kit.server_cluster import Cluster

pytestmark = pytest.mark.slow  # Four restarts of nodes each.

Name = Callable[[str], str]

STUCK_S: Final = 30.0
"""No call of a client may take longer, whatever happens to the nodes."""


# aio-pika: robust connections, which stay with their nodes.


class AioPikaApp:
    """Three times a publisher, a queue and a consumer, each of the three on another node; and an RPC across."""

    RECONNECT_S: Final = 0.2
    ERRORS: Final = (*aio_pika.exceptions.CONNECTION_EXCEPTIONS, TimeoutError)

    def __init__(self, cluster: Cluster, name: Name) -> None:
        self._urls = [amqp_url(node) for node in cluster.nodes]
        self._queues = [name("q") for _ in self._urls]
        self._method = name("rpc")
        self._connections: list[AbstractRobustConnection] = []
        self._numbers = itertools.count(1)
        self.confirmed: list[set[int]] = [set() for _ in self._queues]
        self.done: list[set[int]] = [set() for _ in self._queues]
        self.answers = 0
        self.longest_s = 0.0
        self.failures: list[BaseException] = []
        self.stopping = asyncio.Event()

    async def start(self) -> list[asyncio.Task[None]]:
        """Make queues, consumers and the RPC's server. Returns: what publishes and asks until `stopping`."""
        for url, queue in zip(self._urls, self._queues, strict=True):
            await self._declare(url, queue)
        await self._declare(self._urls[1], self._method, {"x-dead-letter-exchange": RPC.DLX_NAME})
        tasks = []
        for which in range(3):
            await self._consume(which, self._urls[(which + 1) % 3])
            tasks.append(asyncio.create_task(self._publish(which, self._urls[(which + 2) % 3])))
        await self._serve(self._urls[2])
        tasks.append(asyncio.create_task(self._ask(self._urls[0])))
        return tasks

    async def _declare(self, url: str, queue: str, arguments: Any = None) -> None:
        """Make a queue with its home on this node."""
        async with await aio_pika.connect(url) as connection:
            await (await connection.channel()).declare_queue(queue, durable=True, arguments=arguments)

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()

    def counts(self) -> tuple[int, ...]:
        """Return the numbers that must grow: messages confirmed and done of each queue, answers."""
        return (*map(len, self.confirmed), *map(len, self.done), self.answers)

    async def _connect(self, url: str) -> AbstractRobustConnection:
        connection = await aio_pika.connect_robust(url, reconnect_interval=self.RECONNECT_S)
        self._connections.append(connection)
        return connection

    async def _consume(self, which: int, url: str) -> None:
        async def work(message: AbstractIncomingMessage) -> None:
            self.done[which].add(int(message.body))
            # When its channel has gone it comes again.
            with contextlib.suppress(*self.ERRORS):
                await message.ack()

        channel = await (await self._connect(url)).channel()
        await channel.set_qos(prefetch_count=10)
        queue = await channel.declare_queue(self._queues[which], durable=True)
        await queue.consume(work)

    async def _publish(self, which: int, url: str) -> None:
        channel = await (await self._connect(url)).channel(on_return_raises=True)
        while not self.stopping.is_set():
            number = next(self._numbers)
            message = aio_pika.Message(b"%d" % number, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
            if await self._try(
                channel.default_exchange.publish(message, self._queues[which], mandatory=True)
            ):
                self.confirmed[which].add(number)
            await asyncio.sleep(0.005)

    async def _serve(self, url: str) -> None:
        async def double(*, number: int) -> int:
            return 2 * number

        channel = await (await self._connect(url)).channel()
        await (await RPC.create(channel)).register(self._method, double, durable=True)

    async def _ask(self, url: str) -> None:
        channel = await (await self._connect(url)).channel()
        rpc = await RPC.create(channel)
        for number in itertools.count():
            if self.stopping.is_set():
                return

            async def ask(number: int = number) -> None:
                # An answer may be lost with the node of its queue.
                async with asyncio.timeout(3):
                    assert await rpc.call(self._method, {"number": number}) == 2 * number

            self.answers += await self._try(ask())
            await asyncio.sleep(0.02)

    async def _try(self, call: Any) -> bool:
        """Returns: whether it succeeded. It fails when nodes are away; it must not take long."""
        begin = time.monotonic()
        try:
            async with asyncio.timeout(STUCK_S):
                await call
        except self.ERRORS as error:
            self.failures.append(error)
            await asyncio.sleep(0.05)
            return False
        finally:
            self.longest_s = max(self.longest_s, time.monotonic() - begin)
        return True


def test_aio_pika(shaken_cluster: Cluster, name: Name) -> None:
    """Robust clients find back by themselves; every confirmed message is done."""

    async def steps() -> None:
        app = AioPikaApp(shaken_cluster, name)
        tasks = await app.start()
        for end, which in [("start", 0), *RESTARTS]:
            if end != "start":
                await asyncio.to_thread(restart, shaken_cluster, end, which)
            await asyncio.to_thread(await_progress, app.counts, f"{end} of {which}")
        app.stopping.set()
        await asyncio.gather(*tasks)
        deadline = time.monotonic() + PROGRESS_S
        for confirmed, done in zip(app.confirmed, app.done, strict=True):
            while not confirmed <= done:
                assert time.monotonic() < deadline, missing(confirmed, done)
                await asyncio.sleep(0.05)
        await app.close()
        assert app.longest_s < STUCK_S
        assert app.failures  # the restarts were felt
        assert min(map(len, app.confirmed)) > 100

    with no_faults(shaken_cluster):
        asyncio.run(asyncio.wait_for(steps(), 600))


# Celery: a list of brokers.


class CeleryApp:
    """Two queues on two nodes, a worker for each, tasks sent without an end."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self._urls = [amqp_url(node) for node in cluster.nodes]
        self._directory = directory
        self._done = directory / "done"
        self._done.mkdir()
        self.confirmed: set[int] = set()
        self.by_queue = [0] * len(QUEUES)
        self.failures: list[BaseException] = []
        self.longest_s = 0.0
        self.stopping = threading.Event()
        self._app = make_app(self._brokers(0), "shuffle")

    def _brokers(self, first: int) -> str:
        return ";".join(self._urls[first:] + self._urls[:first])

    def declare(self) -> None:
        for url, queue in zip(self._urls, QUEUES, strict=False):
            with make_app(url, "round-robin") as app, app.connection_for_write() as connection:
                app.amqp.queues[queue](connection.default_channel).declare()

    def worker(self, which: int) -> Process:
        """A worker of a queue; its first broker is not the queue's home."""
        name = f"worker{which}@localhost"
        environment = {
            BROKER_VARIABLE: self._brokers(which + 1),
            STRATEGY_VARIABLE: "round-robin",
            DONE_VARIABLE: str(self._done),
        }
        arguments = ("-n", name, "-Q", QUEUES[which], "-P", "solo", "-l", "INFO")
        command = ("-m", "celery", "-A", "tests.conformance.cluster_apps_celery", "worker", *arguments)
        process = Process(self._directory / f"worker{which}.log", *command, environment=environment)
        process.wait_for_output(f"{name} ready.")
        return process

    def done(self) -> set[int]:
        return {int(path.name) for path in self._done.iterdir()}

    def counts(self) -> tuple[int, ...]:
        """Return the numbers that must grow: tasks sent of each queue, and done of each."""
        done = self.done()
        return (*self.by_queue, *(sum(number % 2 == which for number in done) for which in range(2)))

    def send(self) -> None:
        """Send tasks until `stopping`; what raises is not confirmed."""
        for number in itertools.count():
            if self.stopping.is_set():
                return
            begin = time.monotonic()
            try:
                self._app.tasks["do"].apply_async(
                    (number,), queue=QUEUES[number % 2], mandatory=True, confirm_timeout=10
                )
            except (CeleryError, KombuError, OperationalError, *self._amqp_errors()) as error:
                self.failures.append(error)
                time.sleep(0.05)
            else:
                self.confirmed.add(number)
                self.by_queue[number % 2] += 1
            self.longest_s = max(self.longest_s, time.monotonic() - begin)
            time.sleep(0.02)

    def _amqp_errors(self) -> tuple[type[BaseException], ...]:
        connection = self._app.connection_for_write()
        return (*connection.connection_errors, *connection.channel_errors)

    def close(self) -> None:
        self._app.close()


@contextlib.contextmanager
def running_celery(app: CeleryApp) -> Iterator[list[Process]]:
    """Workers and a sender for the time of the block."""
    workers: list[Process] = []
    sender = threading.Thread(daemon=True, target=app.send)
    try:
        workers += [app.worker(which) for which in range(len(QUEUES))]
        sender.start()
        yield workers
    finally:
        app.stopping.set()
        if sender.ident is not None:
            sender.join(STUCK_S * 2)
        for worker in workers:
            worker.end()
        app.close()


def test_celery(shaken_cluster: Cluster, tmp_path: Path) -> None:
    """kombu fails over by the list, with its strategies round-robin and shuffle; every confirmed task is done."""
    app = CeleryApp(shaken_cluster, tmp_path)
    app.declare()
    with no_faults(shaken_cluster), running_celery(app) as workers:
        await_progress(app.counts, "the start")
        for end, which in RESTARTS:
            restart(shaken_cluster, end, which)
            await_progress(app.counts, f"{end} of {which}; {[worker.output[-2000:] for worker in workers]}")
        app.stopping.set()
        deadline = time.monotonic() + PROGRESS_S
        while not app.confirmed <= (done := app.done()):
            assert time.monotonic() < deadline, missing(app.confirmed, done)
            time.sleep(0.05)
    assert app.longest_s < STUCK_S
    assert app.failures  # the restarts were felt
    assert min(app.by_queue) > 50


# oslo.messaging: RPC with a list of hosts.


def test_oslo_messaging(shaken_cluster: Cluster, name: Name) -> None:
    """OpenStack's RPC: calls time out while nodes are away and are answered when they are back, none wrongly."""
    nodes = shaken_cluster.nodes
    answers, failures = 0, 0
    longest_s = 0.0
    stopping = threading.Event()
    with no_faults(shaken_cluster), running_oslo() as oslo:
        topic = name("topic")
        oslo.serve(oslo_url(nodes[1], nodes[2], nodes[0]) + FAST, topic, "server")
        client = oslo.client(oslo_url(*nodes) + FAST, topic, timeout_s=5.0)

        def ask() -> None:
            nonlocal answers, failures, longest_s
            for number in itertools.count():
                if stopping.is_set():
                    return
                begin = time.monotonic()
                try:
                    assert client.call({}, "add", x=number, y=1) == number + 1
                    answers += 1
                except oslo_messaging.MessagingException:
                    failures += 1
                longest_s = max(longest_s, time.monotonic() - begin)
                time.sleep(0.02)

        asking = threading.Thread(daemon=True, target=ask)
        asking.start()
        try:
            await_progress(lambda: (answers,), "the start")
            for end, which in RESTARTS:
                restart(shaken_cluster, end, which)
                await_progress(lambda: (answers,), f"{end} of {which}")
        finally:
            stopping.set()
            asking.join(STUCK_S * 2)
        wait_until(lambda: not asking.is_alive())
    assert longest_s < STUCK_S, longest_s
