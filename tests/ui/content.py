"""Something to look at: mirrored queues, connections with consumers, an exchange with bindings, users, limits."""

from collections.abc import Callable
from typing import Any, Final

import pika

from tests.kit.http_api import HttpApi, quote
from tests.kit.managed_fluffle import ManagedNode

VHOST: Final = "ui"
QUEUE: Final = "orders.created"
EXCHANGE: Final = "orders"
USER: Final = "warehouse"
POLICY: Final = "mirrored"


def connect(node: ManagedNode, vhost: str = VHOST, **options: Any) -> pika.BlockingConnection:
    """A connection of guest."""
    parameters = pika.ConnectionParameters(node.host, node.port, vhost, heartbeat=0, **options)
    return pika.BlockingConnection(parameters)


def fill(api: HttpApi, node: ManagedNode) -> pika.BlockingConnection:
    """Make all of it; gives the connection of its consumer, which is to stay open."""

    def put(path: str, body: object) -> None:
        answer = api.put(path, body)
        assert answer.status in (201, 204), (path, answer.status, answer.text)

    put(f"/vhosts/{VHOST}", {"description": "for the tests of the UI", "tags": "tests"})
    put(f"/permissions/{VHOST}/guest", {"configure": ".*", "write": ".*", "read": ".*"})
    put(
        f"/policies/{VHOST}/{POLICY}",
        {
            "pattern": "^orders",
            "definition": {"ha-mode": "all", "ha-sync-mode": "automatic"},
            "apply-to": "queues",
        },
    )
    put(
        f"/operator-policies/{VHOST}/cap",
        {"pattern": "^orders", "definition": {"max-length": 100_000}, "apply-to": "queues"},
    )
    put(f"/users/{USER}", {"password": USER, "tags": "monitoring"})
    put(f"/permissions/{VHOST}/{USER}", {"configure": "", "write": "", "read": ".*"})
    put(f"/vhost-limits/{VHOST}/max-queues", {"value": 500})
    put(f"/user-limits/{USER}/max-connections", {"value": 50})
    connection = connect(node, client_properties={"connection_name": "web-1", "product": "shop"})
    channel = connection.channel()
    channel.exchange_declare(EXCHANGE, "topic", durable=True)
    for name in (QUEUE, "orders.paid", "orders.sent", "mail"):
        channel.queue_declare(name, durable=True)
        channel.queue_bind(name, EXCHANGE, f"{name}.#")
    channel.basic_qos(prefetch_count=10)
    channel.basic_consume("mail", lambda *_: None, consumer_tag="mailer-1")
    for number in range(30):
        publish(channel, number)
    return connection


def publish(channel: Any, number: int) -> None:
    """A message of JSON to QUEUE."""
    properties = pika.BasicProperties(
        content_type="application/json", delivery_mode=2, headers={"attempt": number, "source": "web"}
    )
    channel.basic_publish(
        EXCHANGE, f"{QUEUE}.now", f'{{"order": {number}, "items": ["tea"]}}'.encode(), properties
    )


def routes(connection: str, node: str) -> dict[str, str]:
    """Every page of the UI with what its heading says.   connection: its name.   node: the name of one."""
    own = f"{VHOST}/{quote(QUEUE)}"
    return {
        "#/": "Overview",
        f"#/nodes/{quote(node)}": node,
        "#/connections": "Connections",
        f"#/connections/{quote(connection)}": connection,
        "#/channels": "Channels",
        f"#/channels/{quote(connection + ' (1)')}": connection,
        "#/exchanges": "Exchanges",
        f"#/exchanges/{VHOST}/{EXCHANGE}": EXCHANGE,
        f"#/exchanges/{VHOST}/amq.default": "(default)",
        "#/queues": "Queues",
        f"#/queues/{own}": QUEUE,
        "#/rings": "Rings",
        f"#/rings/{own}": QUEUE,
        "#/users": "Users",
        f"#/users/{USER}": USER,
        "#/vhosts": "Virtual hosts",
        f"#/vhosts/{VHOST}": VHOST,
        "#/policies": "Policies",
        f"#/policies/{VHOST}/{POLICY}": POLICY,
        f"#/operator-policies/{VHOST}/cap": "cap",
        "#/limits": "Limits",
        "#/rebalance": "Rebalance",
        "#/events": "Events",
        "#/log": "Log",
        "#/feature-flags": "Feature flags",
        "#/plugins": "Plug-ins",
        "#/cluster-name": "Cluster",
    }


def own_connection(api: HttpApi, wait: Callable[[Callable[[], bool], str], None]) -> str:
    """The name of the connection that `fill` made, once the statistics have seen it."""

    def names() -> list[str]:
        rows = api.get("/connections").json or []
        return [row["name"] for row in rows if row.get("user_provided_name") == "web-1"]

    wait(lambda: bool(names()), "the connection is listed")
    return names()[0]
