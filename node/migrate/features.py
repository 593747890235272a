"""Features that work another way, or not at all, after a move from a RabbitMQ 3.8 to 4.x.

Objects that the import refuses are found by `node.migrate.document`; here is what it takes, and what is no object of
definitions. docs/differences.md has the reasons.
"""

from collections.abc import Iterator
from typing import Final

from node.catalogue.records import EXCHANGE_TYPES
from node.config.plugins import FOR_ALL_NODES, PLUGINS
from node.migrate.answers import inner, rows, text
from node.migrate.document import Abilities
from node.migrate.findings import Finding, Weight
from node.migrate.site import Site

TYPES_OF_PLUGINS: Final = {
    "x-consistent-hash": "rabbitmq_consistent_hash_exchange",
    "x-random": "rabbitmq_random_exchange",
    "x-local-random": "rabbitmq_random_exchange",
    "x-modulus-hash": "rabbitmq_sharding",
}
"""Exchange types, and the plug-ins of Fluffle that bring them."""

BUILT_IN: Final = frozenset(
    {
        "rabbitmq_auth_mechanism_ssl",
        "rabbitmq_delayed_message_exchange",
        "rabbitmq_message_deduplication",
        "rabbitmq_recent_history_exchange",
        "rabbitmq_auth_backend_cache",
    }
)
"""Plug-ins of RabbitMQ whose work a Fluffle does without a plug-in."""

HARMLESS: Final = frozenset(
    {
        "rabbitmq_amqp1_0",
        "rabbitmq_event_exchange",
        "rabbitmq_federation_management",
        "rabbitmq_management_agent",
        "rabbitmq_mqtt_management",
        "rabbitmq_prelaunch",
        "rabbitmq_shovel",
        "rabbitmq_shovel_management",
        "rabbitmq_stream",
        "rabbitmq_stream_common",
        "rabbitmq_stream_management",
        "rabbitmq_web_dispatch",
        "rabbitmq_web_mqtt_examples",
        "rabbitmq_web_stomp_examples",
    }
)
"""Plug-ins that matter to no client, or whose links, queues and clients are found one by one."""

_NOT_HERE: Final[dict[str, tuple[Weight, str]]] = {
    "rabbitmq_auth_backend_ldap": ("blocks", "LDAP is not supported: users of a directory cannot log in"),
    "rabbitmq_auth_backend_oauth2": ("blocks", "OAuth 2 is not supported: clients with tokens cannot log in"),
    "rabbitmq_jms_topic_exchange": ("differs", "exchanges of type x-jms-topic are not supported"),
    "rabbitmq_top": ("note", "has no counterpart"),
    "rabbitmq_tracing": ("note", "traces to files are not written; trace_on works"),
    "rabbitmq_trust_store": ("differs", "certificates are trusted by their authority alone"),
}
_DISCOVERY: Final = "rabbitmq_peer_discovery_"


def abilities(target: Site | None) -> Abilities:
    """Return the exchange types that the target has, or would have with its plug-ins enabled, and its plug-ins.

    Without a target all of Fluffle's plug-ins are taken to be enabled.
    """
    types = frozenset(EXCHANGE_TYPES) | TYPES_OF_PLUGINS.keys()
    if target is None:
        return Abilities(types, PLUGINS)
    return Abilities(types | target.exchange_types, target.plugins)


def feature_findings(source: Site, target: Site | None) -> Iterator[Finding]:
    """Yield what differs between the source and Fluffle beside the objects that are not taken."""
    yield from _of_site(source)
    yield from _of_plugins(source, target)
    yield from _of_exchanges(source, target)
    yield from _of_queues(source)
    yield from _of_policies(source)
    yield from _of_users(source)


def _of_site(source: Site) -> Iterator[Finding]:
    if source.is_fluffle:
        return
    if not (3, 8) <= source.release < (5, 0):
        yield Finding("note", "version", source.version, "was not tried: 3.8 to 4.x are meant")
    if not source.has_statistics or source.rates_mode == "none":
        yield Finding(
            "note",
            "statistics",
            "",
            "are off at RabbitMQ: there are no counts of publishes and no rates, and the report has lengths alone",
            advice="rates_mode = basic, management_agent.disable_metrics_collector = false",
        )
    for node in source.nodes:
        if not node.is_running:
            yield Finding(
                "blocks", "node", node.name, "does not run: queues whose only copy it has cannot be moved"
            )
        if node.partitions:
            yield Finding("blocks", "node", node.name, "is partitioned from others", advice="heal it first")
        for has_alarm, noun in ((node.has_memory_alarm, "memory"), (node.has_disk_alarm, "disk")):
            if has_alarm:
                yield Finding("note", "node", node.name, f"has a {noun} alarm: its publishers are blocked")


def _of_plugins(source: Site, target: Site | None) -> Iterator[Finding]:
    for name in sorted(source.any_plugins - BUILT_IN - HARMLESS):
        if name in FOR_ALL_NODES:
            if target is not None and name not in target.plugins:
                yield Finding(
                    "note",
                    "plug-in",
                    name,
                    "is not enabled at Fluffle",
                    advice=f"fluffle plugins enable {name}",
                )
        elif name in PLUGINS or not name.startswith("rabbitmq_") or name.startswith(_DISCOVERY):
            continue
        elif name in _NOT_HERE:
            weight, what = _NOT_HERE[name]
            yield Finding(weight, "plug-in", name, what)
        else:
            yield Finding("differs", "plug-in", name, "has no counterpart here")


def _of_exchanges(source: Site, target: Site | None) -> Iterator[Finding]:
    missing: dict[str, list[str]] = {}
    for row in rows(source.definitions.get("exchanges")):
        exchange_type, vhost, name = text(row, "type"), text(row, "vhost"), text(row, "name")
        if target is not None and exchange_type not in target.exchange_types:
            plugin = TYPES_OF_PLUGINS.get(exchange_type)
            if plugin is not None:
                missing.setdefault(plugin, []).append(exchange_type)
                yield Finding(
                    "blocks",
                    "exchange",
                    name,
                    f"has the type {exchange_type}, whose plug-in is not enabled at Fluffle",
                    vhost,
                    f"fluffle plugins enable {plugin}",
                )
    for (vhost, name), count in source.delayed.items():
        yield Finding(
            "note",
            "exchange",
            name,
            f"{count:,} delayed messages wait: each moves when it is due, the last step waits for them",
            vhost,
        )


def _of_queues(source: Site) -> Iterator[Finding]:
    for queue in source.queues.values():
        if queue.type == "quorum":
            yield Finding(
                "differs",
                "quorum queue",
                queue.name,
                "becomes a mirrored queue with copies on up to three nodes: confirms wait for all copies, and any "
                "synchronised copy can continue",
                queue.vhost,
            )
            if source.release >= (4, 0) and queue.argument("x-delivery-limit") is None:
                yield Finding(
                    "differs",
                    "quorum queue",
                    queue.name,
                    "has RabbitMQ 4's delivery limit of 20, here none unless it is set",
                    queue.vhost,
                    "a policy with delivery-limit 20",
                )
        if queue.argument("x-message-ttl") is not None:
            yield Finding(
                "differs",
                "queue",
                queue.name,
                "x-message-ttl begins anew when a message moves",
                queue.vhost,
            )
        if queue.argument("x-overflow") in ("reject-publish", "reject-publish-dlx"):
            yield Finding(
                "note",
                "queue",
                queue.name,
                "is bounded and rejects: if it is full at Fluffle, the shovel sends the rest again until there is room",
                queue.vhost,
            )
        elif queue.argument("x-max-length") is not None or queue.argument("x-max-length-bytes") is not None:
            yield Finding(
                "note",
                "queue",
                queue.name,
                "is bounded and drops its oldest messages: it does so at Fluffle, too, if nothing consumes there",
                queue.vhost,
            )


def _of_policies(source: Site) -> Iterator[Finding]:
    for row in rows(source.definitions.get("policies")):
        definition, vhost, name = inner(row, "definition"), text(row, "vhost"), text(row, "name")
        if "ha-mode" not in definition:
            continue
        if source.release >= (4, 0) and not source.is_fluffle:
            yield Finding("differs", "policy", name, "mirrors queues here; RabbitMQ 4 ignores ha-mode", vhost)
        elif "ha-promote-on-failure" not in definition:
            yield Finding(
                "differs",
                "policy",
                name,
                "promotes synchronised mirrors only: ha-promote-on-failure is when-synced here, always at RabbitMQ",
                vhost,
            )


def _of_users(source: Site) -> Iterator[Finding]:
    known = set()
    for row in rows(source.definitions.get("users")):
        name = text(row, "name")
        known.add(name)
        if not text(row, "password_hash"):
            yield Finding(
                "note",
                "user",
                name,
                "has no password: it logs in by certificate or another way, or not at all",
            )
    for client in source.clients:
        if client.user and client.user not in known and not client.is_direct and not client.is_mover:
            yield Finding(
                "blocks",
                "user",
                client.user,
                "is connected, but is no user of RabbitMQ's own: another service knows its password",
                advice="give Fluffle the same auth_backends (docs/configuration.md), or the user a password",
            )
