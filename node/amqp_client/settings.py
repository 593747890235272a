"""The choices of a client for one connection: credentials, vhost, limits and properties."""

from dataclasses import dataclass, field
from typing import Final

from node.amqp.field_table import Table, boolean, longstr, table
from node.amqp_client.uri import PASSWORD, USER, AmqpUri
from node.version import VERSION

FRAME_MAX_BYTES: Final = 131072
"""The largest frame that the client offers; the broker may lower it."""

CONTENT_MAX_BYTES: Final = 512 * 1024 * 1024
"""The largest body that the client takes, which is RabbitMQ's limit; a larger one ends the connection."""

CAPABILITIES: Final = (
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "authentication_failure_close",
)


def client_properties(name: str, **more: str) -> Table:
    """Return the client properties of a connection.   name: as the lists of connections show it."""
    texts = {"product": "Fluffle", "version": VERSION, "platform": "Python", "connection_name": name, **more}
    return {
        "capabilities": table({each: boolean(True) for each in CAPABILITIES}),
        **{key: longstr(value) for key, value in texts.items()},
    }


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The choices for one connection.   frame_max_bytes, channel_max, heartbeat_s: 0 for no limit or none."""

    vhost: str = "/"
    user: str = USER
    password: str = field(default=PASSWORD, repr=False)
    mechanisms: tuple[str, ...] = ("PLAIN", "AMQPLAIN")
    frame_max_bytes: int = FRAME_MAX_BYTES
    channel_max: int = 2047
    heartbeat_s: int = 10
    properties: Table = field(default_factory=dict)
    content_max_bytes: int = CONTENT_MAX_BYTES


def settings_of(uri: AmqpUri, properties: Table) -> ClientSettings:
    """Return the choices that a URI makes."""
    return ClientSettings(
        vhost=uri.vhost,
        user=USER if uri.user is None else uri.user,
        password=PASSWORD if uri.password is None else uri.password,
        mechanisms=uri.mechanisms,
        frame_max_bytes=uri.frame_max_bytes or FRAME_MAX_BYTES,
        channel_max=uri.channel_max,
        heartbeat_s=uri.heartbeat_s,
        properties=properties,
    )
