"""What happens in the broker, as lines of the log in RabbitMQ's words."""

import logging
from typing import Final

from node.amqp.errors import ProtocolError
from node.catalogue.records import QueueRecord
from node.client.connection import Connection
from node.client.observer import MirrorEvent, Observer
from node.io.mirroring_events import MirroringEvents
from node.log import phrases
from node.log.log import category_logger, escape, process_logger, process_tag

STRANGERS_LINES_MAX: Final = 1000
STRANGERS_WINDOW_S: Final = 60.0
"""So many lines in so many seconds are about clients that have not opened a vhost: anybody can connect without end."""

LEVELS: Final = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class LogObserver(Observer):
    """An observer that writes, and keeps what becomes of mirrored queues."""

    def __init__(self, mirroring_events: MirroringEvents | None = None) -> None:
        self._mirroring_events = mirroring_events
        self._has_told_of_quorum = False
        self._strangers_since = 0.0
        self._strangers_lines = 0

    def handshake_failed(self, connection: Connection, explanation: str) -> None:
        """See `Observer.handshake_failed`."""
        self._error(
            connection,
            phrases.handshake_error(
                _tag(connection), connection.name, connection.state.name.lower(), explanation
            ),
        )

    def handshake_timed_out(self, connection: Connection) -> None:
        """See `Observer.handshake_timed_out`."""
        self._error(
            connection,
            phrases.handshake_timeout(_tag(connection), connection.name, connection.state.name.lower()),
        )

    def login_refused(self, connection: Connection, mechanism: str, reason: str) -> None:
        """See `Observer.login_refused`."""
        refusal = phrases.login_refused(mechanism, reason)
        self._error(connection, phrases.login_error(_tag(connection), connection.name, refusal))

    def accepted(self, connection: Connection) -> None:
        """See `Observer.accepted`."""
        self._info(connection, phrases.accepting(_tag(connection), connection.name))

    def named_by_client(self, connection: Connection) -> None:
        """See `Observer.named_by_client`."""
        name = connection.client_name or ""
        self._info(connection, phrases.client_provided_name(_tag(connection), connection.name, name))

    def opened(self, connection: Connection) -> None:
        """See `Observer.opened`."""
        self._info(
            connection,
            phrases.authenticated(
                _tag(connection), connection.full_name, connection.user_name, connection.vhost
            ),
        )

    def secret_updated(self, connection: Connection, reason: str) -> None:
        """See `Observer.secret_updated`."""
        self._info(
            connection,
            phrases.secret_updated(_tag(connection), connection.full_name, connection.user_name, reason),
        )

    def connection_failed(
        self, connection: Connection, channel: int, error: ProtocolError, method: str
    ) -> None:
        """See `Observer.connection_failed`."""
        if not connection.vhost:
            self._error(
                connection,
                phrases.open_error(
                    _tag(connection), connection.name, connection.user_name, error.explanation
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
            ),
        )

    def channel_failed(self, connection: Connection, channel: int, error: ProtocolError, method: str) -> None:
        """See `Observer.channel_failed`."""
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

    def consumer_timed_out(self, connection: Connection, channel: int, consumer_tag: str) -> None:
        """See `Observer.consumer_timed_out`."""
        timeout_ms = connection.broker.settings.consumer_timeout_ms or 0
        process_logger("channel", connection.number).warning(
            phrases.consumer_timeout(consumer_tag, channel, timeout_ms)
        )

    def heartbeats_missed(self, connection: Connection) -> None:
        """See `Observer.heartbeats_missed`."""
        self._error(
            connection,
            phrases.missed_heartbeats(
                _tag(connection), connection.full_name, connection.heartbeat.interval_s
            ),
        )

    def closed(self, connection: Connection, *, in_good_order: bool) -> None:
        """See `Observer.closed`."""
        who = _tag(connection), connection.full_name, connection.vhost or None, connection.user_name or None
        if in_good_order:
            self._info(connection, phrases.closing(*who))
        else:
            self._log(connection, logging.WARNING, phrases.closed_abruptly(*who))

    def alarm_set(self, node: str, resource: str) -> None:
        """See `Observer.alarm_set`."""
        category_logger().warning(phrases.alarm_set(node, resource))

    def alarm_cleared(self, node: str, resource: str, *, is_last: bool) -> None:
        """See `Observer.alarm_cleared`."""
        category_logger().warning(phrases.alarm_cleared(node, resource))
        if is_last:
            category_logger().warning(phrases.alarm_cleared_everywhere(resource))

    def quorum_requested(self, queue: QueueRecord) -> None:
        """See `Observer.quorum_requested`; once is enough."""
        if not self._has_told_of_quorum:
            self._has_told_of_quorum = True
            process_logger("queue", 0).warning(
                f"Queue '{escape(queue.name)}' in vhost '{escape(queue.vhost)}' asks for the type quorum: "
                "it is kept as a durable queue with a delivery limit. This is said once."
            )

    def mirror_event(self, event: MirrorEvent) -> None:
        """See `Observer.mirror_event`."""
        category_logger("mirroring").log(LEVELS[event.level], escape(event.text))
        if self._mirroring_events is not None:
            self._mirroring_events.note(event)

    def messages_unreadable(self, queue: QueueRecord, count: int, reason: str) -> None:
        """See `Observer.messages_unreadable`."""
        process_logger("queue", 0).error(
            f"Queue '{escape(queue.name)}' in vhost '{escape(queue.vhost)}' has lost {count} message(s), which the "
            f"disk cannot read and no synchronised mirror has: {escape(reason)}"
        )

    def message_cycled(self, queue: QueueRecord, routing_keys: list[str]) -> None:
        """See `Observer.message_cycled`."""
        name, keys = escape(queue.name), escape(", ".join(routing_keys))
        process_logger("queue", 0).warning(
            f"Message dropped. Dead-letter queues cycle detected: '{name}', routing keys: {keys}"
        )

    def _info(self, connection: Connection, text: str) -> None:
        self._log(connection, logging.INFO, text)

    def _error(self, connection: Connection, text: str) -> None:
        self._log(connection, logging.ERROR, text)

    def _log(self, connection: Connection, level: int, text: str) -> None:
        if connection.vhost or self._may_tell_of_strangers(connection.broker.now):
            process_logger("connection", connection.number).log(level, text)

    def _may_tell_of_strangers(self, now: float) -> bool:
        """Whether one more line about a client that has not logged in may be written; counts those that are not."""
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


def _tag(connection: Connection) -> str:
    return process_tag(connection.number)
