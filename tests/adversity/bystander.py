"""The client that has nothing to do with the attack: it measures what others notice of it."""

import statistics
import threading
import time
from types import TracebackType
from typing import Final, Self

from tests.kit import amqp_client
from tests.kit.amqp_client import Connection
from tests.kit.node_process import NodeProcess

PAUSE_S: Final = 0.005
"""Between two messages: some hundred samples even in a short attack."""

ANSWER_S: Final = 60.0
"""A bystander waits long, so that a slow node is reported with its number and not as a failed read."""


class Bystander:
    """Sends itself a message again and again in a thread of its own.

    with Bystander(node) as bystander:
        ...attack...
    assert bystander.slowest_s < …
    """

    def __init__(self, node: NodeProcess) -> None:
        self._connection = Connection(node)
        self._channel = self._connection.channel(1)
        self._queue = self._channel.declare(exclusive=True)
        self._channel.consume(self._queue, no_ack=True)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bystander", daemon=True)
        self._failure: BaseException | None = None
        self.round_trips_s: list[float] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(ANSWER_S + amqp_client.TIMEOUT_S)
        self._connection.abandon()
        if kind is None:
            assert self._failure is None, self._failure
            assert self.round_trips_s, "the bystander never got its message back"

    @property
    def slowest_s(self) -> float:
        """The longest round trip."""
        return max(self.round_trips_s)

    @property
    def median_s(self) -> float:
        """The usual round trip."""
        return statistics.median(self.round_trips_s)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                begin = time.monotonic()
                self._channel.publish("", self._queue, b"still here")
                body = self._channel.deliver(ANSWER_S).body
                self.round_trips_s.append(time.monotonic() - begin)
                assert body == b"still here"
                self._stop.wait(PAUSE_S)
        except (AssertionError, OSError) as failure:
            self._failure = failure
