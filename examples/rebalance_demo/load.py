"""A shop's day in some minutes: queues that all began on one node, some of them busy, with clients that confirm.

Each message has a number. What was confirmed has to come out again: `Shop.lost` are the numbers that did not.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pika
import pika.exceptions

BODY = b"x" * 400
NAMES = (
    *(
        "orders.created",
        "orders.paid",
        "orders.shipped",
        "orders.returned",
        "invoices.print",
        "invoices.archive",
    ),
    *("mail.outgoing", "mail.bounced", "stock.reserve", "stock.release", "search.index", "web.sessions"),
)


@dataclass
class Tally:
    """What became of a queue's messages: numbers that the broker confirmed, and those that a consumer got."""

    confirmed: set[int] = field(default_factory=set)
    seen: set[int] = field(default_factory=set)


class Shop:
    """Publishers and consumers of every queue, in threads."""

    def __init__(self, ports: list[int], rate: float) -> None:
        """rate: messages a second of the busiest queue; the others have less, the last a tenth."""
        self._ports = ports
        self._rates = {name: rate * (1 - 0.9 * place / (len(NAMES) - 1)) for place, name in enumerate(NAMES)}
        self.tallies = {name: Tally() for name in NAMES}
        self._is_selling = threading.Event()
        self._is_open = threading.Event()
        self._publishers: list[threading.Thread] = []
        self._consumers: list[threading.Thread] = []

    def declare(self) -> None:
        """All queues, on the first node: it is the master of each."""
        with self._connection(0, "setup") as connection:
            channel = connection.channel()
            for name in NAMES:
                channel.queue_declare(name, durable=True)

    def open(self) -> None:
        """Begin to work. Publishers and consumers are spread over the nodes."""
        self._is_selling.set()
        self._is_open.set()
        for place, name in enumerate(NAMES):
            self._publishers.append(begun(self._publish, place, name, self._is_selling))
            self._consumers.append(begun(self._consume, place + 1, name, self._is_open))

    def close(self, drain_s: float = 60.0) -> None:
        """Publish no more, let consumers take what is left, and stop."""
        self._is_selling.clear()
        for thread in self._publishers:  # what is on its way counts, too
            thread.join(30)
        until = time.monotonic() + drain_s
        while self.lost and time.monotonic() < until:
            time.sleep(0.5)
        self._is_open.clear()
        for thread in self._consumers:
            thread.join(30)

    @property
    def confirmed(self) -> int:
        """Messages that the broker took responsibility for."""
        return sum(len(tally.confirmed) for tally in self.tallies.values())

    @property
    def lost(self) -> int:
        """Of those, how many nobody has got."""
        return sum(len(tally.confirmed.copy() - tally.seen) for tally in self.tallies.values())

    def _connection(self, place: int, name: str) -> Any:
        return pika.BlockingConnection(
            pika.ConnectionParameters(
                "127.0.0.1",
                self._ports[place % len(self._ports)],
                heartbeat=30,
                client_properties={"connection_name": name},
            )
        )

    def _publish(self, place: int, name: str) -> None:
        tally, pause = self.tallies[name], 1 / self._rates[name]
        properties = pika.BasicProperties(delivery_mode=2)
        with self._connection(place, f"web {name}") as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            number = max(tally.confirmed, default=0) + 1_000_000 * (place // len(NAMES) + 1)
            while self._is_selling.is_set():
                number += 1
                channel.basic_publish("", name, b"%012d" % number + BODY, properties)
                tally.confirmed.add(number)
                connection.sleep(pause)

    def _consume(self, place: int, name: str) -> None:
        tally = self.tallies[name]
        with self._connection(place, f"worker {name}") as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=50)
            for method, _, body in channel.consume(name, inactivity_timeout=0.5):
                if not self._is_open.is_set():
                    return
                if method is not None:
                    tally.seen.add(int(body[:12]))
                    channel.basic_ack(method.delivery_tag)


def begun(
    work: Callable[[int, str], None], place: int, name: str, going: threading.Event
) -> threading.Thread:
    """A thread that works while `going` is set; when its node is gone, it goes on at the next one."""

    def run() -> None:
        attempt = place
        while going.is_set():
            try:
                work(attempt, name)
            except (pika.exceptions.AMQPError, OSError):
                attempt += 1
                time.sleep(0.5)

    thread = threading.Thread(target=run, daemon=True, name=f"{work.__name__} {name}")
    thread.start()
    return thread
