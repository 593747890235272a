"""Sums over all exchanges of a node."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from node.broker.broker import Broker


def routed(broker: "Broker") -> int:
    """How often a message of a client of a node reached a queue, whatever exchange it was published to."""
    return broker.counters.ended_exchanges.publish_out + sum(
        counters.publish_out
        for vhost in broker.vhosts.values()
        for counters in vhost.exchange_counters.values()
    )
