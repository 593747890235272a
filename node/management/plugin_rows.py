"""Rows about plug-ins: those of one node, and all nodes' rows put together."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from node.broker.broker import Broker
from node.config.plugins import FOR_ALL_NODES
from node.routing.plugins import Plugin

Row = dict[str, Any]

RUNNING: Final = "running"
MISSING: Final = "not installed"
BROKEN: Final = "cannot be loaded"
DOWN: Final = "down"
SILENT: Final = "does not answer"

NODE: Final = "node"
"""The source of a plug-in whose work the node does itself."""


def offers_of(plugin: Plugin) -> Row:
    """Return the kinds of extension that a plug-in brings, with their names or numbers; none that it lacks."""
    found: Row = {
        "exchange_types": [each.name for each in plugin.exchange_types],
        "auth_backends": [each.name for each in plugin.auth_backends],
        "protocols": [each.protocol for each in plugin.listeners],
        "interceptors": len(plugin.interceptors),
        "delivery_interceptors": len(plugin.delivery_interceptors),
        "peer_discovery": [each.name for each in plugin.peer_discovery],
        "telemetry": [] if plugin.telemetry is None else list(plugin.telemetry.names),
        "http_resources": plugin.http is not None,
        "page": "" if plugin.page is None else plugin.page.menu,
        "settings": [f"{plugin.settings_prefix}.{each.key}" for each in plugin.all_settings],
    }
    return {kind: value for kind, value in found.items() if value}


def rows_here(broker: Broker, parts: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Return the enabled plug-ins, as this node has them, by name.

    parts: name, description and version of those whose work the node does itself.
    """
    types = broker.exchange_types
    rows = [_row(name, plugin, types.failures[name]) for name, plugin in types.plugins]
    rows += [{**part, "source": NODE, "state": RUNNING, "offers": {}, "failures": 0} for part in parts]
    return sorted(rows, key=lambda row: str(row["name"]))


def _row(name: str, plugin: Plugin | None, failures: int) -> Row:
    source = "built-in" if name in FOR_ALL_NODES else "package"
    if plugin is None:
        state = BROKEN if failures else MISSING
        return {"name": name, "source": source, "state": state, "offers": {}, "failures": failures}
    return {
        "name": name,
        "version": plugin.version,
        "description": plugin.description,
        "source": source,
        "state": RUNNING,
        "offers": offers_of(plugin),
        "failures": failures,
    }


def put_together(rows_by_node: Mapping[str, Iterable[Row] | str]) -> list[Row]:
    """Return a row for each plug-in, with its state on each node.

    rows_by_node: the rows of each node, or why there are none. A plug-in that a node does not name is off there, which
    happens only to those whose work the node does itself.
    """
    found: dict[str, Row] = {}
    for node, rows in rows_by_node.items():
        for row in () if isinstance(rows, str) else rows:
            whole = found.setdefault(
                row["name"],
                {"name": row["name"], "source": row["source"], "offers": {}, "failures": 0, "nodes": []},
            )
            if row["offers"] or "version" not in whole:
                about = ("version", "description", "offers")
                whole.update((key, row[key]) for key in about if key in row)
            whole["failures"] += row["failures"]
            whole["nodes"].append(
                {
                    "name": node,
                    "state": row["state"],
                    "failures": row["failures"],
                    **({"version": row["version"]} if "version" in row else {}),
                }
            )
    for node, rows in rows_by_node.items():
        if isinstance(rows, str):
            for whole in found.values():
                whole["nodes"].append({"name": node, "state": rows, "failures": 0})
    for whole in found.values():
        whole["nodes"].sort(key=lambda each: str(each["name"]))
    return [found[name] for name in sorted(found)]
