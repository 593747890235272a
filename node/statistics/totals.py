"""The totals of this node for `/overview`. Source: management §1.1."""

from typing import Any

from node.amqp.channel_state import ChannelState
from node.broker.broker import Broker
from node.statistics.connections import is_shown
from node.statistics.message_stats import DISK, message_stats
from node.statistics.query import Query
from node.statistics.vhosts import put_sums
from node.statistics.watches import ALL_LENGTHS, CHURN, NODE, Watches


def totals(watches: Watches, query: Query) -> dict[str, Any]:
    """Return message_stats, churn_rates, queue_totals as of the last tick, and object_totals now.

    As in RabbitMQ reads and writes of queues are among message_stats as soon as there is a queue.
    vhost: only message_stats, queue_totals and object_totals, of its contents.
    """
    found: dict[str, Any] = {}
    if query.wants("object_totals"):
        found["object_totals"] = object_totals(watches.broker, query)
    watch, tables = (watches.node, watches.node_tables)
    tracked = watch.get(NODE)
    if query.vhost is not None:
        watch, tables = watches.vhosts, watches.vhost_tables
        tracked = watch.get(query.vhost)
    ranges = query.ranges
    found["queue_totals"] = {}
    found["message_stats"] = {}
    if query.vhost is None:
        found["churn_rates"] = {}
    if tracked is not None:
        since_ms = watches.lengths_since_ms
        put_sums(found["queue_totals"], watch, tracked, ALL_LENGTHS, ranges.lengths, since_ms)
        found["message_stats"] = message_stats(watch, tables, tracked.values, tracked, ranges.msg_rates)
        if query.vhost is None:
            if watches.queues.objects:
                put_sums(found["message_stats"], watch, tracked, DISK, ranges.msg_rates)
            put_sums(found["churn_rates"], watch, tracked, CHURN, ranges.msg_rates)
    return found if query.fields is None else {name: found[name] for name in found if name in query.fields}


def object_totals(broker: Broker, query: Query) -> dict[str, int]:
    """Count connections, channels and consumers of this node's clients; exchanges and queues of the whole cluster."""
    catalogue = broker.catalogue
    vhosts = [each.name for each in catalogue.vhosts() if query.is_in_scope(each.name)]
    connections = [
        each
        for each in broker.connections.values()
        if is_shown(each) and query.is_in_scope(each.vhost, each.user_name)
    ]
    channels = [
        channel
        for connection in connections
        for channel in connection.channels.values()
        if channel.state is ChannelState.OPEN
    ]
    return {
        "connections": len(connections),
        "channels": len(channels),
        "consumers": sum(len(channel.consumers) for channel in channels),
        "exchanges": sum(len(catalogue.exchanges(name)) for name in vhosts),
        "queues": sum(len(catalogue.queues(name)) for name in vhosts),
    }
