"""What happens in the broker, as lines of the log in RabbitMQ's words."""

import logging
from typing import Final

from node import log_phrases
from node.amqp.errors import ProtocolError
from node.broker.connection import Connection
from node.broker.observer import MirrorEvent, Observer
from node.broker.records import QueueRecord
from node.io.mirroring_events import MirroringEvents
from node.log import category_logger, escape, process_logger, process_tag

LEVELS: Final = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class LogObserver(Observer):
    """An observer that writes, and keeps what becomes of mirrored queues."""

    def __init__(self, mirroring_events: MirroringEvents | None = None) -> None:
        self._mirroring_events = mirroring_events
        self._has_told_of_quorum = False

    def handshake_failed(self, connection: Connection, explanation: str) -> None:
        """See `Observer.handshake_failed`."""
        self._error(
            connection,
            log_phrases.handshake_error(
                _tag(connection), connection.name, connection.state.name.lower(), explanation
            ),
        )

    def handshake_timed_out(self, connection: Connection) -> None:
        """See `Observer.handshake_timed_out`."""
        self._error(
            connection,
            log_phrases.handshake_timeout(_tag(connection), connection.name, connection.state.name.lower()),
        )

    def login_refused(self, connection: Connection, mechanism: str, reason: str) -> None:
        """See `Observer.login_refused`."""
        refusal = log_phrases.login_refused(mechanism, reason)
        self._error(connection, log_phrases.login_error(_tag(connection), connection.name, refusal))

    def accepted(self, connection: Connection) -> None:
        """See `Observer.accepted`."""
        self._info(connection, log_phrases.accepting(_tag(connection), connection.name))

    def named_by_client(self, connection: Connection) -> None:
        """See `Observer.named_by_client`."""
        name = connection.client_name or ""
        self._info(connection, log_phrases.client_provided_name(_tag(connection), connection.name, name))

    def opened(self, connection: Connection) -> None:
        """See `Observer.opened`."""
        self._info(
            connection,
            log_phrases.authenticated(
                _tag(connection), connection.full_name, connection.user_name, connection.vhost
            ),
        )

    def secret_updated(self, connection: Connection, reason: str) -> None:
        """See `Observer.secret_updated`."""
        self._info(
            connection,
            log_phrases.secret_updated(_tag(connection), connection.full_name, connection.user_name, reason),
        )

    def connection_failed(
        self, connection: Connection, channel: int, error: ProtocolError, method: str
    ) -> None:
        """See `Observer.connection_failed`."""
        if not connection.vhost:
            self._error(
                connection,
                log_phrases.open_error(
                    _tag(connection), connection.name, connection.user_name, error.explanation
                ),
            )
            return
        self._error(
            connection,
            log_phrases.connection_exception(
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
            log_phrases.channel_exception(
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
            log_phrases.consumer_timeout(consumer_tag, channel, timeout_ms)
        )

    def heartbeats_missed(self, connection: Connection) -> None:
        """See `Observer.heartbeats_missed`."""
        self._error(
            connection,
            log_phrases.missed_heartbeats(
                _tag(connection), connection.full_name, connection.heartbeat.interval_s
            ),
        )

    def closed(self, connection: Connection, *, in_good_order: bool) -> None:
        """See `Observer.closed`."""
        who = _tag(connection), connection.full_name, connection.vhost or None, connection.user_name or None
        if in_good_order:
            self._info(connection, log_phrases.closing(*who))
        else:
            process_logger("connection", connection.number).warning(log_phrases.closed_abruptly(*who))

    def alarm_set(self, node: str, resource: str) -> None:
        """See `Observer.alarm_set`."""
        category_logger().warning(log_phrases.alarm_set(node, resource))

    def alarm_cleared(self, node: str, resource: str) -> None:
        """See `Observer.alarm_cleared`."""
        category_logger().warning(log_phrases.alarm_cleared(node, resource))
        category_logger().warning(log_phrases.alarm_cleared_everywhere(resource))

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

    def message_cycled(self, queue: QueueRecord, routing_keys: list[str]) -> None:
        """See `Observer.message_cycled`."""
        name, keys = escape(queue.name), escape(", ".join(routing_keys))
        process_logger("queue", 0).warning(
            f"Message dropped. Dead-letter queues cycle detected: '{name}', routing keys: {keys}"
        )

    def _info(self, connection: Connection, text: str) -> None:
        process_logger("connection", connection.number).info(text)

    def _error(self, connection: Connection, text: str) -> None:
        process_logger("connection", connection.number).error(text)


def _tag(connection: Connection) -> str:
    return process_tag(connection.number)
