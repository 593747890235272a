"""Consumers of this node's clients, wherever their queues live. Source: management §1.8; a live RabbitMQ 3.10.8."""

from collections.abc import Iterator
from typing import Any

from node.amqp.plain import plain_table
from node.broker.broker import Broker
from node.client.channel import Channel
from node.queue.consumer import Consumer
from node.queue.queue import Queue
from node.statistics.connections import chosen_connections, host_and_port
from node.statistics.query import Query
from node.statistics.rows import Row
from node.statistics.watches import Watches


def consumer_rows(watches: Watches, query: Query) -> Iterator[Row]:
    """Yield one row for each consumer."""
    ids = None if query.ids is None else frozenset(query.ids)
    for connection in chosen_connections(watches.broker, query):
        for channel in list(connection.channels.values()):
            for consumer in list(channel.consumers.values()):
                id_ = consumer_id(channel, consumer)
                if ids is None or id_ in ids:
                    yield {"id": id_, **_wanted(consumer_facts(channel, consumer), query)}


def consumer_id(channel: Channel, consumer: Consumer) -> str:
    """Return an id that is unique in the cluster; sorted by it, consumers of one queue are adjacent."""
    record = consumer.queue.record
    return "\0".join((record.vhost, record.name, channel.connection.id, str(channel.number), consumer.tag))


def _wanted(facts: dict[str, Any], query: Query) -> dict[str, Any]:
    return facts if query.fields is None else {name: facts[name] for name in facts if name in query.fields}


def consumers_of(channel: Channel) -> Iterator[dict[str, Any]]:
    """Yield the facts of a channel's consumers."""
    for consumer in channel.consumers.values():
        yield consumer_facts(channel, consumer)


def consumers_of_queues(broker: Broker, uids: frozenset[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the facts of consumers of some queues, by uid: those of this node's clients."""
    found: dict[str, list[dict[str, Any]]] = {}
    for connection in broker.connections.values():
        for channel in connection.channels.values():
            for consumer in channel.consumers.values():
                uid = consumer.queue.record.uid
                if uid in uids:
                    found.setdefault(uid, []).append(consumer_facts(channel, consumer))
    return found


def channel_details(channel: Channel) -> dict[str, Any]:
    """Return the facts of a channel as they are shown in objects that belong to it."""
    connection = channel.connection
    host, port = host_and_port(connection.peer.address)
    return {
        "name": f"{connection.name} ({channel.number})",
        "number": channel.number,
        "connection_name": connection.name,
        "peer_host": host,
        "peer_port": port,
        "node": channel.broker.settings.node_name,
        "user": connection.user_name,
    }


def consumer_facts(channel: Channel, consumer: Consumer) -> dict[str, Any]:
    """Return the facts of a consumer."""
    queue = consumer.queue
    is_active, status = True, "up"
    # Only the queue's own node knows its active consumer.
    if queue.settings.single_active_consumer and isinstance(queue, Queue):
        is_active = queue.consumers.active is consumer
        status = "single_active" if is_active else "waiting"
    return {
        "queue": {"name": queue.record.name, "vhost": queue.record.vhost},
        "consumer_tag": consumer.tag,
        "channel_details": channel_details(channel),
        "ack_required": not consumer.no_ack,
        "exclusive": consumer.exclusive,
        "prefetch_count": consumer.prefetch,
        "active": is_active,
        "activity_status": status,
        "arguments": plain_table(consumer.arguments),
    }
