"""Channels of this node's clients. Source: management §1.7; a live RabbitMQ 3.10.8."""

from collections.abc import Iterator
from typing import Any, Final

from node.amqp.channel_state import ChannelState
from node.client.base_connection import BaseConnection
from node.client.channel import Channel
from node.statistics.connections import (
    GARBAGE_COLLECTION,
    REDUCTIONS,
    chosen_connections,
    host_and_port,
    is_in_use,
    put_machine,
)
from node.statistics.consumers import consumers_of
from node.statistics.message_stats import channel_values, message_stats
from node.statistics.moment import moment
from node.statistics.query import Query
from node.statistics.rows import Part, Row, Selection
from node.statistics.watches import Watches


def channel_name(channel: Channel) -> str:
    """Return a channel's name: `{name of the connection} (number)`."""
    return f"{channel.connection.name} ({channel.number})"


def channel_id(channel: Channel) -> str:
    """Return an id that is unique in the cluster: the channel's name, and the connection's id on its node."""
    return f"{channel_name(channel)}\0{channel.connection.id}"


def open_channels(connection: BaseConnection) -> list[Channel]:
    """Return the open channels of a connection, by number."""
    channels = [channel for channel in connection.channels.values() if channel.state is ChannelState.OPEN]
    channels.sort(key=lambda channel: channel.number)
    return channels


def channel_rows(watches: Watches, query: Query) -> Iterator[Row]:
    """Yield one row for each channel.

    ids: also the names of channels alone. Channels of the node's own connections have rows for those who name them.
    """
    selection = Selection((*_PARTS, *(_DETAILED if query.is_detailed else ())), watches, query)
    ids = None if query.ids is None else frozenset(query.ids)
    if ids is None:
        connections = chosen_connections(watches.broker, query)
    else:
        everyone = list(watches.broker.connections.values())
        connections = (
            each for each in everyone if is_in_use(each) and query.is_in_scope(each.vhost, each.user_name)
        )
    for connection in connections:
        for channel in open_channels(connection):
            if ids is None or channel_name(channel) in ids or channel_id(channel) in ids:
                yield selection.row(channel_id(channel), channel)


def connection_details(connection: BaseConnection) -> dict[str, Any]:
    """Return the facts of a channel's connection."""
    host, port = host_and_port(connection.peer.address)
    return {"name": connection.name, "peer_host": host, "peer_port": port}


def _facts(channel: Channel, watches: Watches, query: Query, row: dict[str, Any]) -> None:
    connection = channel.connection
    row["name"] = channel_name(channel)
    row["number"] = channel.number
    row["node"] = channel.broker.settings.node_name
    row["vhost"] = connection.vhost
    row["user"] = row["user_who_performed_action"] = connection.user_name
    row["connection_details"] = connection_details(connection)


def _state(channel: Channel, watches: Watches, query: Query, row: dict[str, Any]) -> None:
    confirms, transaction = channel.confirms, channel.transaction
    # An alarm holds connections; a channel is held by the flow only.
    row["state"] = "flow" if channel.connection.throttle.state == "flow" else "running"
    row["transactional"] = transaction is not None
    row["confirm"] = confirms is not None
    row["consumer_count"] = len(channel.consumers)
    row["messages_unacknowledged"] = channel.unacked.count
    row["messages_unconfirmed"] = 0 if confirms is None else confirms.outstanding
    row["messages_uncommitted"] = 0 if transaction is None else transaction.publish_count
    row["acks_uncommitted"] = 0 if transaction is None else transaction.settled_count
    row["prefetch_count"] = channel.prefetch
    row["global_prefetch_count"] = channel.prefetch_limit
    row["pending_raft_commands"] = 0


def _idle_since(channel: Channel, watches: Watches, query: Query, row: dict[str, Any]) -> None:
    tracked = watches.channels.get(channel_id(channel))
    if tracked is not None and tracked.is_idle and tracked.values == channel_values(channel.counters):
        row["idle_since"] = moment(tracked.moved_ms)


def _message_stats(channel: Channel, watches: Watches, query: Query, row: dict[str, Any]) -> None:
    tracked, values = watches.channels.get(channel_id(channel)), channel_values(channel.counters)
    stats = message_stats(watches.channels, watches.channel_tables, values, tracked, query.ranges.msg_rates)
    if stats:
        row["message_stats"] = stats


def _machine(channel: Channel, watches: Watches, query: Query, row: dict[str, Any]) -> None:
    put_machine(row, watches, query)


def _details(channel: Channel, watches: Watches, query: Query, row: dict[str, Any]) -> None:
    row["consumer_details"] = list(consumers_of(channel))
    row["publishes"] = []
    row["deliveries"] = []


_PARTS: Final[tuple[Part[Channel], ...]] = (
    (
        frozenset(
            {
                "name",
                "number",
                "node",
                "vhost",
                "user",
                "user_who_performed_action",
                "connection_details",
            }
        ),
        _facts,
    ),
    (
        frozenset(
            {
                "state",
                "transactional",
                "confirm",
                "consumer_count",
                "messages_unacknowledged",
                "messages_unconfirmed",
                "messages_uncommitted",
                "acks_uncommitted",
                "prefetch_count",
                "global_prefetch_count",
                "pending_raft_commands",
            }
        ),
        _state,
    ),
    (frozenset({"idle_since"}), _idle_since),
    (frozenset({"message_stats"}), _message_stats),
    (frozenset({GARBAGE_COLLECTION, *REDUCTIONS}), _machine),
)

_DETAILED: Final[tuple[Part[Channel], ...]] = (
    (frozenset({"consumer_details", "publishes", "deliveries"}), _details),
)
