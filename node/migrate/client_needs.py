"""The needs of connected clients at the broker that they move to: protocols, TLS, ways to log in."""

from collections.abc import Iterator
from typing import Final

from node.migrate.clients import Client
from node.migrate.findings import Finding
from node.migrate.site import Site

PROTOCOLS: Final = {
    "MQTT": "rabbitmq_mqtt",
    "STOMP": "rabbitmq_stomp",
    "Web MQTT": "rabbitmq_web_mqtt",
    "Web STOMP": "rabbitmq_web_stomp",
}
"""Beginnings of the names of protocols, and the plug-ins that bring them."""

_UNSUPPORTED: Final = {"AMQP 1": "AMQP 1.0", "{1,0}": "AMQP 1.0", "stream": "the stream protocol"}


def client_findings(source: Site, target: Site | None) -> Iterator[Finding]:
    """Yield what stands in the way of clients. The name is that of their user: one line for all of its connections."""
    for client in source.clients:
        if not client.is_mover:
            yield from _of_client(client, target)


def _of_client(client: Client, target: Site | None) -> Iterator[Finding]:
    who = f"{client.user} ({client.product})"
    for begin, what in _UNSUPPORTED.items():
        if client.protocol.startswith(begin):
            yield Finding("blocks", "client", who, f"speaks {what}, which is not supported", client.vhost)
            return
    plugin = next((found for begin, found in PROTOCOLS.items() if client.protocol.startswith(begin)), None)
    if plugin is not None and target is not None and plugin not in target.plugins:
        text = f"speaks {client.protocol.split()[0]}, whose plug-in is not enabled at Fluffle"
        yield Finding("blocks", "client", who, text, client.vhost, f"fluffle plugins enable {plugin}")
    if client.has_tls and client.is_amqp_091 and target is not None and not target.ports("amqp/ssl"):
        yield Finding(
            "blocks",
            "client",
            who,
            "uses TLS, and Fluffle has no listener for it",
            client.vhost,
            "docs/tls.md",
        )
    if client.mechanism == "EXTERNAL":
        yield Finding(
            "note",
            "client",
            who,
            "logs in by certificate: Fluffle has to trust the same authority, with the same ssl_cert_login_from",
            client.vhost,
        )
