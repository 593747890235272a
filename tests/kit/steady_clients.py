"""Publishers and consumers that go on: they connect again, to any address that they know, whatever happens.

A publisher counts a message when it is confirmed, and publishes it again otherwise. A consumer notes each message that
it gets, and acknowledges it. Both are threads; they end when they are told.
"""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import pika
import pika.exceptions

PERSISTENT: Final = pika.BasicProperties(delivery_mode=2, headers={"kind": "order"})
PAUSE_S: Final = 0.2
"""A client that cannot connect tries again after so long."""

CONNECT_S: Final = 5.0

_LOST = (pika.exceptions.AMQPError, OSError)


class Address(NamedTuple):
    """The place that a client connects to."""

    port: int
    host: str = "127.0.0.1"


class Client:
    """A thread with one connection at a time.   name: is shown by the broker, and the password is the user's name."""

    def __init__(self, addresses: Sequence[Address], user: str, name: str) -> None:
        self._parameters = [
            pika.ConnectionParameters(
                address.host,
                address.port,
                credentials=pika.PlainCredentials(user, user),
                client_properties={"connection_name": name},
                heartbeat=10,
                socket_timeout=CONNECT_S,
                stack_timeout=2 * CONNECT_S,
            )
            for address in addresses
        ]
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.connections = 0

    def start(self) -> "Client":
        """Start the thread."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """End the thread, and wait for it."""
        self._ends.set()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        for parameters in itertools.cycle(self._parameters):
            if self._ends.is_set():
                return
            try:
                connection = pika.BlockingConnection(parameters)
            except _LOST:
                self._ends.wait(PAUSE_S)
                continue
            self.connections += 1
            try:
                self._work(connection)
                connection.close()
            except _LOST:
                self._ends.wait(PAUSE_S)

    def _work(self, connection: pika.BlockingConnection) -> None:
        raise NotImplementedError


class Publisher(Client):
    """Publishes numbers to a queue, or by an exchange, each until it is confirmed.   rate: messages a second."""

    def __init__(
        self, addresses: Sequence[Address], user: str, queue: str, rate: float, exchange: str = ""
    ) -> None:
        super().__init__(addresses, user, f"publisher of {queue}")
        self._queue, self._rate, self._exchange = queue, rate, exchange
        self._goes = threading.Event()
        self._goes.set()
        self.confirmed = 0

    def number(self) -> int:
        """Return the number of the next message."""
        return self.confirmed

    def pause(self) -> None:
        """Publish nothing for now."""
        self._goes.clear()

    def go_on(self) -> None:
        """Publish again."""
        self._goes.set()

    def _work(self, connection: pika.BlockingConnection) -> None:
        channel = connection.channel()
        channel.confirm_delivery()
        while not self._ends.is_set():
            if self._goes.is_set():
                body = b"%d" % self.number()
                channel.basic_publish(self._exchange, self._queue, body, PERSISTENT, mandatory=True)
                self.confirmed += 1
            connection.process_data_events(0)
            time.sleep(1 / self._rate)


class Consumer(Client):
    """Consumes from a queue.   got: the numbers in the order in which they came."""

    def __init__(self, addresses: Sequence[Address], user: str, queue: str) -> None:
        super().__init__(addresses, user, f"consumer of {queue}")
        self._queue = queue
        self.got: list[int] = []

    def _work(self, connection: pika.BlockingConnection) -> None:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=20)
        for method, _properties, body in channel.consume(self._queue, inactivity_timeout=0.1):
            if method is not None:
                self.got.append(int(body))
                channel.basic_ack(method.delivery_tag)
            elif self._ends.is_set():
                break
        channel.cancel()

    @property
    def twice(self) -> int:
        """The number of messages that had come before."""
        return sum(count - 1 for count in Counter(self.got).values())

    @property
    def first(self) -> list[int]:
        """The numbers in the order in which they came first."""
        return list(dict.fromkeys(self.got))


def out_of_order(numbers: list[int]) -> int:
    """Return how many numbers came after a larger one."""
    largest, count = -1, 0
    for number in numbers:
        count += number < largest
        largest = max(largest, number)
    return count
