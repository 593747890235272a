"""The resource `/overview`: the cluster on one page. Source: management §1.1."""

import platform
from collections.abc import Mapping
from typing import Any, Final

from node.io.turns import next_slice
from node.management.call import Call
from node.management.listing import narrowed
from node.management.node_facts import address_of, context_of, exchange_types, is_http
from node.management.reply import Reply, ok
from node.management.routes import Route
from node.statistics.query import Query
from node.statistics.sums import add_up
from node.version import COMPATIBLE_VERSION, VERSION

_TOTALS: Final = ("message_stats", "churn_rates", "queue_totals", "object_totals")


async def overview(call: Call) -> Reply:
    """GET /overview: a user who may not look at everything sees no nodes, and totals of their vhosts only."""
    site, config, catalogue = call.site, call.site.config, call.catalogue
    listing, ranges = call.listing(can_page=False), call.ranges()
    status = site.status()
    has_statistics = not (config.management.disable_stats or call.query.get("disable_stats") == "true")
    found: dict[str, Any] = {
        "management_version": COMPATIBLE_VERSION,
        "rates_mode": config.statistics.rates_mode,
        "sample_retention_policies": _retention(call),
        "exchange_types": exchange_types(call.broker),
        "product_version": config.product.version,
        "product_name": config.product.name,
        "rabbitmq_version": COMPATIBLE_VERSION,
        "cluster_name": catalogue.global_parameter("cluster_name") or config.cluster_name,
        "erlang_version": status["erlang_version"],
        "erlang_full_version": f"Fluffle {VERSION} on Python {platform.python_version()}",
        "release_series_support_status": status["release_series_support_status"],
        "disable_stats": not has_statistics,
        "enable_queue_totals": config.management.enable_queue_totals,
    }
    if has_statistics:
        query = Query(ranges=ranges)
        totals = await (_all_totals(call, query) if call.is_monitor else _visible_totals(call, query))
        found.update((name, totals.get(name, {})) for name in _TOTALS)
        found["statistics_db_event_queue"] = 0
    if call.is_monitor:
        found.update(_places(call))
    if not has_statistics:
        found["object_totals"] = await _known_totals(call)
    return ok(found if listing.columns is None else narrowed(found, listing.columns))


def _retention(call: Call) -> dict[str, list[int]]:
    kept = call.site.config.statistics
    return {
        name: [seconds for seconds, _ in policy]
        for name, policy in (
            ("global", kept.retention_global),
            ("basic", kept.retention_basic),
            ("detailed", kept.retention_detailed),
        )
    }


def _places(call: Call) -> dict[str, Any]:
    """Return the addresses of the nodes' listeners."""
    by_node = call.site.cluster_status()["listeners"]
    listeners = [each for node in sorted(by_node) for each in by_node[node]]
    return {
        "node": call.site.config.node_name,
        "listeners": [
            {
                "node": each["node"],
                "protocol": each["protocol"],
                "ip_address": address_of(each),
                "port": each["port"],
                "socket_opts": _socket_options(call, each),
            }
            for each in listeners
        ],
        "contexts": [{"node": each["node"], **context_of(each)} for each in listeners if is_http(each)],
    }


def _socket_options(call: Call, listener: Mapping[str, Any]) -> dict[str, Any] | list[Any]:
    protocol = listener["protocol"]
    if is_http(listener):
        named = {} if protocol == "http" else {"protocol": protocol}
        return {
            "cowboy_opts": {"sendfile": False},
            "ip": address_of(listener),
            "port": listener["port"],
            **named,
        }
    if protocol not in ("amqp", "amqp/ssl"):
        return []
    socket = call.site.config.socket
    return {
        "backlog": socket.backlog,
        "nodelay": socket.nodelay,
        "linger": [socket.linger, socket.linger_timeout_s],
        "exit_on_close": False,
    }


async def _all_totals(call: Call, query: Query) -> dict[str, Any]:
    answers = await call.site.ask_all("totals", {"query": query.as_json()})
    return add_up(list(answers.values())) if answers else {}


async def _visible_totals(call: Call, query: Query) -> dict[str, Any]:
    """Return the totals of the vhosts that the user may see: traffic, messages and objects."""
    vhosts = tuple(call.vhosts())
    names = frozenset({"message_stats", "messages", "messages_ready", "messages_unacknowledged"})
    names |= {f"{name}_details" for name in names}
    chosen = Query(ids=vhosts, fields=names, ranges=query.ranges)
    rows = await call.site.rows("vhosts", chosen) if vhosts else []
    total = (
        add_up([{key: value for key, value in row.items() if key != "id"} for row in rows]) if rows else {}
    )
    stats = total.pop("message_stats", {})
    everything = await _all_totals(call, query)
    return {
        "message_stats": stats,
        "churn_rates": everything.get("churn_rates", {}),
        "queue_totals": total,
        "object_totals": await _known_totals(call),
    }


async def _known_totals(call: Call) -> dict[str, int]:
    """Count without statistics: queues and exchanges of visible vhosts, connections and what belongs to them."""
    catalogue, exchanges, queues = call.catalogue, 0, 0
    for vhost in call.vhosts():
        exchanges += len(catalogue.exchanges(vhost))
        queues += len(catalogue.queues(vhost))
        await next_slice()
    owner = None if call.is_monitor else call.user.name
    found = {"exchanges": exchanges, "queues": queues}
    for kind in ("connections", "channels", "consumers"):
        rows = await call.site.rows(kind, Query(user=owner, fields=frozenset()))
        found[kind] = len(rows)
    return found


ROUTES: Final = (Route("GET", "/overview", overview),)
