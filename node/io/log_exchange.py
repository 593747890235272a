"""Log lines are published as messages to the exchange amq.rabbitmq.log (`log.exchange = true`).

The routing key is the level, the body the line as a file would have it. Lines come from any thread and are published
on the loop, a few in each of its turns. Lines that publishing itself logs are not published.
Source: management §6.3; properties: RabbitMQ 3.10.8, live.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from node.amqp.field_table import longstr
from node.amqp.properties import Properties
from node.broker.broker import Broker
from node.broker.internal_exchange import InternalExchange, declaration
from node.catalogue.commands import DeclareExchange
from node.config.config import LogOptions
from node.log.log import level_of, prepared

LOG_EXCHANGE: Final = "amq.rabbitmq.log"

WAITING_MAX: Final = 10_000
"""The most lines that wait to be published; beyond that the oldest are lost."""

TURN_LINES: Final = 100
"""The most lines that are published in one turn: at some 20 us per line and queue they take two milliseconds."""


class LogExchange:
    """The log exchange of one broker, between `start` and `stop`.

    call_soon: has a function called on the loop, from any thread.
    """

    def __init__(
        self, options: LogOptions, vhost: str, call_soon: Callable[[Callable[[], None]], object]
    ) -> None:
        assert options.exchange is not None, "it is on"
        self._vhost = vhost
        self._is_json = options.exchange.format.json
        self._handler = prepared(
            _Entrance(call_soon, self._publish), options.exchange.format, options.exchange.level, options
        )
        self._broker: Broker | None = None
        self._exchange: InternalExchange | None = None

    @property
    def declaration(self) -> DeclareExchange:
        """The command that declares the exchange."""
        return declaration(self._vhost, LOG_EXCHANGE)

    def start(self, broker: Broker) -> None:
        """Begin to publish lines."""
        self._broker = broker
        self._exchange = InternalExchange(broker, self._vhost, LOG_EXCHANGE)
        logging.getLogger().addHandler(self._handler)

    def stop(self) -> None:
        """Publish no more lines; stopping twice is harmless."""
        logging.getLogger().removeHandler(self._handler)
        self._exchange = None

    def _publish(self, level: str, line: str, time_s: float) -> None:
        """Publish a line, on the loop."""
        if self._exchange is None or self._broker is None:
            return
        route = self._exchange.open(level)
        if route is None:
            return
        properties = Properties(
            content_type="application/json" if self._is_json else "text/plain",
            headers={"node": longstr(self._broker.settings.node_name)},
            timestamp=int(time_s),
        )
        route.send(properties, line.encode("utf-8", "backslashreplace"))


class _Entrance(logging.Handler):
    """The log handler that passes lines from any thread to the loop."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        publish: Callable[[str, str, float], None],
    ) -> None:
        super().__init__()
        self._call_soon = call_soon
        self._publish = publish
        self._waiting: deque[tuple[str, str, float]] = deque(maxlen=WAITING_MAX)
        self._is_called = False
        self._publisher: int | None = None  # the thread that publishes just now

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a line, unless publishing logs it; `logging` holds the handler's lock."""
        if self._publisher == threading.get_ident():
            return
        self._waiting.append((level_of(record).name.lower(), self.format(record) + "\n", record.created))
        if not self._is_called:
            self._is_called = True
            try:
                self._call_soon(self._turn)
            except RuntimeError:
                # The loop is closed, so no more lines can be published.
                self._waiting.clear()

    def _turn(self) -> None:
        self._publisher = threading.get_ident()
        try:
            for _ in range(min(TURN_LINES, len(self._waiting))):
                self._publish(*self._waiting.popleft())
        finally:
            # After a fault of ours, which the loop logs, `_is_called` stays as it is: that line would bring the next.
            self._publisher = None
        self.acquire()
        self._is_called = bool(self._waiting)
        self.release()
        if self._is_called:
            self._call_soon(self._turn)
