"""Answers of management HTTP APIs, as RabbitMQ 3.10.8 and Fluffle give them, for tests of migrations."""

from collections.abc import Mapping, Sequence
from typing import Any

from node.migrate.site import Site, site

Row = dict[str, Any]


def queue_row(name: str, messages: int = 0, vhost: str = "/", **more: Any) -> Row:
    """A row of /api/queues."""
    return {
        "name": name,
        "vhost": vhost,
        "durable": True,
        "auto_delete": False,
        "exclusive": False,
        "arguments": {},
        "type": "classic",
        "state": "running",
        "messages": messages,
        "message_bytes": messages * 100,
        "consumers": 0,
        **more,
    }


def counters(publish: int, ack: int, redeliver: int = 0) -> Row:
    """The counters of a queue's row."""
    return {"message_stats": {"publish": publish, "ack": ack, "redeliver": redeliver}}


def declared(row: Row) -> Row:
    """The object in definitions of a queue's row."""
    return {key: row[key] for key in ("name", "vhost", "durable", "auto_delete", "arguments")}


def connection_row(name: str, user: str = "app", **more: Any) -> Row:
    """A row of /api/connections."""
    return {
        "name": name,
        "user": user,
        "vhost": "/",
        "node": "rabbit@a",
        "protocol": "AMQP 0-9-1",
        "type": "network",
        "ssl": False,
        "auth_mechanism": "PLAIN",
        "client_properties": {"product": "pika", "version": "1.3.2"},
        "peer_host": "10.0.0.9",
        **more,
    }


def consumer_row(connection: str, queue: str, vhost: str = "/") -> Row:
    """A row of /api/consumers."""
    return {
        "queue": {"name": queue, "vhost": vhost},
        "channel_details": {"connection_name": connection, "name": f"{connection} (1)"},
    }


def channel_row(connection: str, publish: int = 0, **more: Any) -> Row:
    """A row of /api/channels."""
    stats = {"message_stats": {"publish": publish}} if publish else {}
    return {"name": f"{connection} (1)", "connection_details": {"name": connection}, **stats, **more}


TYPES = ("direct", "fanout", "topic", "headers", "x-delayed-message")


def answers(
    queues: Sequence[Row] = (),
    *,
    version: str = "3.10.8",
    is_fluffle: bool = False,
    plugins: Sequence[str] = ("rabbitmq_management", "rabbitmq_shovel", "rabbitmq_shovel_management"),
    connections: Sequence[Row] = (),
    channels: Sequence[Row] = (),
    consumers: Sequence[Row] = (),
    definitions: Mapping[str, Any] | None = None,
    types: Sequence[str] = TYPES,
    shovels: Sequence[Row] | None = (),
    node: Mapping[str, Any] | None = None,
    exchanges: Sequence[Row] = (),
    listeners: Sequence[Row] | None = None,
) -> dict[str, Any]:
    """The answers of one broker, by the names of `node.migrate.site.PATHS`."""
    base = {
        "rabbitmq_version": version,
        "vhosts": [{"name": "/"}],
        "users": [
            {"name": "app", "password_hash": "c2FsdGhhc2g=", "tags": []}
            | {"hashing_algorithm": "rabbit_password_hashing_sha256"}
        ],
        "permissions": [{"user": "app", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
        "exchanges": [],
        "queues": [declared(row) for row in queues if not row["exclusive"]],
        "bindings": [],
        "policies": [],
        "parameters": [],
        "global_parameters": [{"name": "cluster_name", "value": "old"}],
    }
    address = "10.0.1.1" if is_fluffle else "10.0.0.1"
    amqp = {"node": "n@a", "protocol": "amqp", "ip_address": address, "port": 5672}
    found: dict[str, Any] = {
        "overview": {
            "rabbitmq_version": version,
            "cluster_name": "new" if is_fluffle else "old",
            "erlang_full_version": "Fluffle 0.1.0 on Python 3.11" if is_fluffle else "Erlang/OTP 25",
            "rates_mode": "basic",
            "exchange_types": [{"name": name} for name in types],
            "listeners": [amqp] if listeners is None else list(listeners),
        },
        "nodes": [{"name": "n@a", "running": True, "enabled_plugins": list(plugins), **(node or {})}],
        "queues": list(queues),
        "exchanges": list(exchanges),
        "connections": list(connections),
        "channels": list(channels),
        "consumers": list(consumers),
        "definitions": {**base, **(definitions or {})},
    }
    if shovels is not None:
        found["shovels"] = list(shovels)
    return found


def rabbit(queues: Sequence[Row] = (), **options: Any) -> Site:
    """A RabbitMQ."""
    return site(answers(queues, **options))


def fluffle(queues: Sequence[Row] = (), **options: Any) -> Site:
    """A Fluffle, without shovels unless they are asked for."""
    return site(answers(queues, is_fluffle=True, **{"plugins": ("rabbitmq_management",), **options}))
