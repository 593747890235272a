"""The server properties in `connection.start`. Source: amqp-behaviour §1.2."""

from typing import Final

from node.amqp.field_table import Field, Table, boolean, longstr, table
from node.client.host import ClientHost

_CAPABILITIES: Final = (
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
)


def server_properties(broker: ClientHost) -> Table:
    """Return the properties of a broker as they are now."""
    cluster_name = broker.catalogue.global_parameter("cluster_name")
    return {
        "capabilities": table({name: boolean(True) for name in _CAPABILITIES}),
        "cluster_name": longstr(cluster_name if isinstance(cluster_name, str) else broker.settings.node_name),
        **broker.settings.server_properties,
    }


def text_properties(**texts: str) -> dict[str, Field]:
    """Return server properties that are plain texts."""
    return {name: longstr(text) for name, text in texts.items()}
