"""The broker's events become lines of the log, in RabbitMQ's words."""

import logging
import re
from typing import Final

from node.amqp.errors import ProtocolError
from node.catalogue.records import QueueRecord
from node.client.base_connection import BaseConnection
from node.client.observer import MirrorEvent, Observer
from node.io.mirroring_events import MirroringEvents
from node.log import phrases
from node.log.log import category_logger, escape, process_logger, process_tag
from node.queue.dead_letter import CYCLE, NO_EXCHANGE, NO_ROUTE, OUT_OF_REACH, REFUSED
from node.routing.exchange_types import Failure

STRANGERS_LINES_MAX: Final = 1000
STRANGERS_WINDOW_S: Final = 60.0
"""The time in which at most `STRANGERS_LINES_MAX` lines are logged about clients without a vhost: anybody can
connect.
"""

_LETTERS_WAIT: Final = {
    NO_EXCHANGE: "their dead-letter exchange does not exist",
    NO_ROUTE: "their dead-letter exchange routes them to no queue",
    REFUSED: "a queue refuses them",
    CYCLE: "they came back to their queue in a cycle",
    OUT_OF_REACH: "a queue cannot be reached",
}

_VERSION: Final = re.compile(r" [0-9][^ ]*$")

LEVELS: Final = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class LogObserver(Observer):
    """The observer that logs the broker's events, and keeps those of mirrored queues."""

    def __init__(self, mirroring_events: MirroringEvents | None = None) -> None:
        self._mirroring_events = mirroring_events
        self._has_told_of_quorum = False
        self._strangers_since = 0.0
        self._strangers_lines = 0

    def handshake_failed(self, connection: BaseConnection, explanation: str) -> None:
        """Log an error in the AMQP handshake of a connection."""
        self._error(
            connection,
            phrases.handshake_error(
                _tag(connection), connection.name, connection.state.name.lower(), explanation
            ),
        )

    def handshake_timed_out(self, connection: BaseConnection) -> None:
        """Log that a connection did not finish its AMQP handshake in time."""
        self._error(
            connection,
            phrases.handshake_timeout(
                _tag(connection), connection.name, connection.state.name.lower(), _protocol(connection)
            ),
        )

    def login_tried(self, connection: BaseConnection, user: str, problem: str) -> None:
        """Log that a user has logged in, for those who log at level debug."""
        if not problem:
            category_logger().debug(phrases.logged_in(user))

    def login_refused(self, connection: BaseConnection, mechanism: str, reason: str) -> None:
        """Log that a login was refused, and why."""
        refusal = phrases.login_refused(mechanism, reason)
        text = phrases.login_error(_tag(connection), connection.name, refusal, _protocol(connection))
        self._error(connection, text)

    def accepted(self, connection: BaseConnection) -> None:
        """Log that a connection was accepted."""
        self._info(connection, phrases.accepting(_tag(connection), connection.name, _protocol(connection)))

    def named_by_client(self, connection: BaseConnection) -> None:
        """Log the name that the client gave its connection."""
        name = connection.client_name or ""
        self._info(connection, phrases.client_provided_name(_tag(connection), connection.name, name))

    def opened(self, connection: BaseConnection) -> None:
        """Log that a client has logged in and opened a vhost."""
        self._info(
            connection,
            phrases.authenticated(
                _tag(connection), connection.full_name, connection.user_name, connection.vhost
            ),
        )

    def secret_updated(self, connection: BaseConnection, reason: str) -> None:
        """Log that a client has replaced its secret."""
        self._info(
            connection,
            phrases.secret_updated(_tag(connection), connection.full_name, connection.user_name, reason),
        )

    def connection_failed(
        self, connection: BaseConnection, channel: int, error: ProtocolError, method: str
    ) -> None:
        """Log the error that ends a connection, or that refused its vhost."""
        if not connection.vhost:
            self._error(
                connection,
                phrases.open_error(
                    _tag(connection),
                    connection.name,
                    connection.user_name,
                    error.explanation,
                    _protocol(connection),
                ),
            )
            return
        self._error(
            connection,
            phrases.connection_exception(
                _tag(connection),
                connection.full_name,
                connection.vhost,
                connection.user_name,
                "running",
                channel,
                error.code,
                error.explanation,
                method or "none",
                _protocol(connection),
            ),
        )

    def channel_failed(
        self, connection: BaseConnection, channel: int, error: ProtocolError, method: str
    ) -> None:
        """Log the error that ends a channel."""
        process_logger("channel", connection.number).error(
            phrases.channel_exception(
                _tag(connection),
                connection.full_name,
                connection.vhost,
                connection.user_name,
                channel,
                error.code,
                error.explanation,
                method or "none",
            )
        )

    def consumer_timed_out(self, connection: BaseConnection, channel: int, consumer_tag: str) -> None:
        """Log that a consumer did not acknowledge a delivery in time."""
        timeout_ms = connection.broker.settings.consumer_timeout_ms or 0
        process_logger("channel", connection.number).warning(
            phrases.consumer_timeout(consumer_tag, channel, timeout_ms)
        )

    def heartbeats_missed(self, connection: BaseConnection) -> None:
        """Log that a connection ends for want of heartbeats."""
        self._error(
            connection,
            phrases.missed_heartbeats(
                _tag(connection), connection.full_name, connection.heartbeat.interval_s
            ),
        )

    def closed(self, connection: BaseConnection, *, in_good_order: bool) -> None:
        """Log the end of a connection: as information if it was closed by the protocol, else as a warning."""
        phrase = phrases.closing if in_good_order else phrases.closed_abruptly
        vhost, user = connection.vhost or None, connection.user_name or None
        text = phrase(_tag(connection), connection.full_name, vhost, user, _protocol(connection))
        self._log(connection, logging.INFO if in_good_order else logging.WARNING, text)

    def alarm_set(self, node: str, resource: str) -> None:
        """Log that a node is short of a resource."""
        category_logger().warning(phrases.alarm_set(node, resource))

    def alarm_cleared(self, node: str, resource: str, *, is_last: bool) -> None:
        """Log that a node is no longer short of a resource."""
        category_logger().warning(phrases.alarm_cleared(node, resource))
        if is_last:
            category_logger().warning(phrases.alarm_cleared_everywhere(resource))

    def quorum_requested(self, queue: QueueRecord) -> None:
        """Log, once in the life of the broker, that a queue was declared with the type quorum."""
        if not self._has_told_of_quorum:
            self._has_told_of_quorum = True
            process_logger("queue", 0).warning(
                f"Queue '{escape(queue.name)}' in vhost '{escape(queue.vhost)}' asks for the type quorum: "
                "it is kept as a durable queue with a delivery limit. This is logged once."
            )

    def mirror_event(self, event: MirrorEvent) -> None:
        """Log an event of a mirrored queue, and keep it for the HTTP API."""
        category_logger("mirroring").log(LEVELS[event.level], escape(event.text))
        if self._mirroring_events is not None:
            self._mirroring_events.note(event)

    def plugin_failed(self, failure: Failure) -> None:
        """Log that a plug-in raised an exception, with its traceback."""
        plugin, action = escape(failure.plugin), escape(failure.action)
        category_logger().error(
            f"Plugin '{plugin}' could not {action}; it has failed {failure.number} time(s)",
            exc_info=failure.error,
        )

    def messages_unreadable(self, queue: QueueRecord, count: int, reason: str) -> None:
        """Log that a queue has lost messages that the disk cannot read."""
        process_logger("queue", 0).error(
            f"Queue '{escape(queue.name)}' in vhost '{escape(queue.vhost)}' has lost {count} message(s), which the "
            f"disk cannot read and no synchronised mirror has: {escape(reason)}"
        )

    def message_cycled(self, queue: QueueRecord, routing_keys: list[str]) -> None:
        """Log that a message was dropped, as dead-lettering would send it in a cycle."""
        name, keys = escape(queue.name), escape(", ".join(routing_keys))
        process_logger("queue", 0).warning(
            f"Message dropped. Dead-letter queues cycle detected: '{name}', routing keys: {keys}"
        )

    def letters_wait(self, queue: QueueRecord, cause: str) -> None:
        """Log that dead letters wait in their queue: once, until all have left."""
        process_logger("queue", 0).warning(
            f"Dead letters of queue '{escape(queue.name)}' in vhost '{escape(queue.vhost)}' stay in it and are tried "
            f"again: {_LETTERS_WAIT.get(cause, cause)}"
        )

    def letters_fall_back(self, queue: QueueRecord) -> None:
        """Log that a queue's dead letters are not kept, although its strategy says so, and what it lacks."""
        process_logger("queue", 0).warning(
            f"Falling back to dead-letter-strategy at-most-once for queue '{escape(queue.name)}' in vhost "
            f"'{escape(queue.vhost)}': at-least-once needs a dead-letter-exchange and overflow reject-publish"
        )

    def letters_left(self, queue: QueueRecord) -> None:
        """Log that no dead letters wait any more."""
        process_logger("queue", 0).info(
            f"Dead letters of queue '{escape(queue.name)}' in vhost '{escape(queue.vhost)}' have all reached their "
            "targets"
        )

    def _info(self, connection: BaseConnection, text: str) -> None:
        self._log(connection, logging.INFO, text)

    def _error(self, connection: BaseConnection, text: str) -> None:
        self._log(connection, logging.ERROR, text)

    def _log(self, connection: BaseConnection, level: int, text: str) -> None:
        if connection.vhost or self._may_tell_of_strangers(connection.broker.now):
            process_logger("connection", connection.number).log(level, text)

    def _may_tell_of_strangers(self, now: float) -> bool:
        """Return whether another line about a client without a vhost may be logged; count it in any case."""
        if now - self._strangers_since >= STRANGERS_WINDOW_S:
            left_out = self._strangers_lines - STRANGERS_LINES_MAX
            self._strangers_since, self._strangers_lines = now, 0
            if left_out > 0:
                category_logger().warning(
                    f"{left_out} lines about clients that had not logged in were left out: "
                    f"more than {STRANGERS_LINES_MAX} came in {STRANGERS_WINDOW_S:.0f} s"
                )
        self._strangers_lines += 1
        return self._strangers_lines <= STRANGERS_LINES_MAX


def _tag(connection: BaseConnection) -> str:
    return process_tag(connection.number)


def _protocol(connection: BaseConnection) -> str:
    """Return the name of the client's protocol without its version, which RabbitMQ's lines do not have."""
    return _VERSION.sub("", connection.protocol)
