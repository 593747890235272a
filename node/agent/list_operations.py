"""What the command line lists: clients' connections, channels and consumers, of all nodes; exchanges and bindings.

A pid is `<NODE.1.CONNECTION.CHANNEL>`, channel 0 being the connection itself: opaque to scripts, which give it back to
`close_connection`. Source: management §3.2, §3.3; RabbitMQ 3.10.8's columns.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from node.admin import feature_flags
from node.admin.admin import AdminError
from node.admin.vhosts import is_traced
from node.agent import errors, status
from node.agent.admin_operations import AdminOperations, number, text_or_none
from node.agent.table_operations import Arguments, Verb, text
from node.amqp.plain import plain
from node.catalogue.records import Binding, Exchange
from node.io.control import EX_USAGE, ControlError
from node.io.turns import taken
from node.statistics.query import Query
from node.statistics.rows import Kind

if TYPE_CHECKING:
    from node.agent.agent import Agent
    from node.app import Node


_PROTOCOL: Final = [0, 9, 1]
_PID: Final = re.compile(r"<(.{1,512})\.([0-9]{1,20})\.([0-9]{1,20})\.([0-9]{1,20})>", re.DOTALL)


class ListOperations(AdminOperations):
    """See `AdminOperations`."""

    def __init__(self, agent: "Agent", running: "Callable[[], Node]") -> None:
        super().__init__(agent, running)
        self.asking: dict[str, Verb] = {
            "list_bindings": self._list_bindings,
            "list_channels": self._list_channels,
            "list_connections": self._list_connections,
            "list_consumers": self._list_consumers,
            "list_exchanges": self._list_exchanges,
            "list_feature_flags": self._list_feature_flags,
            "enable_feature_flag": self._enable_feature_flag,
            "list_node_auth_attempt_stats": self._list_attempts,
            "list_unresponsive_queues": self._list_unresponsive,
            "close_all_connections": self._close_all,
            "close_all_user_connections": self._close_user,
            "close_connection": self._close,
        }

    def list_vhosts(self, columns: list[str]) -> list[dict[str, Any]]:
        """All vhosts, by name."""
        states = dict.fromkeys(status.running_nodes(self._agent), "running")
        return [
            {
                "name": each.name,
                "description": each.description,
                "tags": list(each.tags),
                "default_queue_type": each.default_queue_type or "undefined",
                "tracing": is_traced(each),
                "cluster_state": states,
            }
            for each in sorted(self._catalogue.vhosts(), key=lambda each: each.name)
        ]

    # --- what clients have ---

    async def _rows(
        self, kind: Kind, query: Query, nodes: Iterable[str] | None = None
    ) -> list[dict[str, Any]]:
        self._running()
        return list(await self._agent.management.rows(kind, query, nodes))

    async def _list_connections(self, arguments: Arguments, timeout_s: float) -> Any:
        columns = _columns(arguments)
        rows = await self._rows("connections", Query(fields=columns | {"node"}))
        rows.sort(key=_id)

        def whole(row: dict[str, Any]) -> dict[str, Any]:
            pid = _pid(row["node"], _number_in(row["id"]), 0)
            return {**row, "pid": pid, "protocol": _PROTOCOL}

        return {"rows": await _only(map(whole, rows), columns)}

    async def _list_channels(self, arguments: Arguments, timeout_s: float) -> Any:
        columns = _columns(arguments)
        rows = await self._rows("channels", Query(fields=columns | {"node", "number"}))
        rows.sort(key=_id)

        def whole(row: dict[str, Any]) -> dict[str, Any]:
            connection = _number_in(row["id"])
            pid, owner = (_pid(row["node"], connection, n) for n in (row["number"], 0))
            return {**row, "pid": pid, "connection": owner}

        return {"rows": await _only(map(whole, rows), columns)}

    async def _list_consumers(self, arguments: Arguments, timeout_s: float) -> Any:
        columns = _columns(arguments)
        fields = columns | {"queue", "channel_details"}
        rows = await self._rows("consumers", Query(vhost=text(arguments, "vhost"), fields=fields))
        rows.sort(key=_id)

        def whole(row: dict[str, Any]) -> dict[str, Any]:
            channel, parts = row["channel_details"], row["id"].split("\0")
            pid = _pid(channel["node"], _number_in(parts[2]), channel["number"])
            return {**row, "queue_name": row["queue"]["name"], "channel_pid": pid}

        return {"rows": await _only(map(whole, rows), columns)}

    # --- closing ---

    async def _close(self, arguments: Arguments, timeout_s: float) -> Any:
        """One that is gone already is no error."""
        pid, reason = text(arguments, "pid"), text(arguments, "reason")
        self._running()
        found = _PID.fullmatch(pid)
        if found is None:
            raise errors.unavailable(f'Error:\n{{:invalid_pid_syntax, "{pid}"}}')
        node, connection = found[1], found[3]
        rows = await self._rows("connections", Query(fields=frozenset({"name"})), [node])
        names = [row["name"] for row in rows if _number_in(row["id"]) == int(connection)]
        if names:
            await self._close_named(node, names, reason)
        return {}

    async def _close_user(self, arguments: Arguments, timeout_s: float) -> Any:
        self._running()
        asked = {"user": text(arguments, "user"), "reason": text(arguments, "reason")}
        await self._agent.management.ask_all("close_connections", asked)
        return {}

    async def _close_all(self, arguments: Arguments, timeout_s: float) -> Any:
        """Those of a vhost on all nodes, or all of this node; some of them with `limit`, with pauses between."""
        vhost, reason = text_or_none(arguments, "vhost"), text(arguments, "reason")
        limit, delay_ms = number(arguments, "limit", 0), number(arguments, "delay_ms", 0)
        own = self._agent.config.node_name
        query = Query(vhost=vhost, fields=frozenset({"name", "node"}))
        rows = await self._rows("connections", query, [own] if vhost is None else None)
        rows.sort(key=_id)
        chosen = rows[:limit] if limit else rows
        if not delay_ms:
            by_node: dict[str, list[str]] = {}
            for row in chosen:
                by_node.setdefault(row["node"], []).append(row["name"])
            for node, names in by_node.items():
                await self._close_named(node, names, reason)
        else:
            for row in chosen:
                await self._close_named(row["node"], [row["name"]], reason)
                await asyncio.sleep(delay_ms / 1000)
        return {"closed": len(chosen)}

    async def _close_named(self, node: str, names: list[str], reason: str) -> None:
        await self._agent.management.ask(node, "close_connections", {"names": names, "reason": reason})

    # --- what the catalogue knows ---

    async def _list_exchanges(self, arguments: Arguments, timeout_s: float) -> Any:
        catalogue, vhost, columns = self._catalogue, text(arguments, "vhost"), _columns(arguments)
        if catalogue.vhost(vhost) is None:
            return {"rows": []}
        records = sorted(catalogue.exchanges(vhost), key=lambda each: each.name)

        def row(each: Exchange) -> dict[str, Any]:
            policy = catalogue.effective_policy(each).policy if "policy" in columns else None
            return {
                "name": each.name,
                "type": each.type,
                "durable": each.durable,
                "auto_delete": each.auto_delete,
                "internal": each.internal,
                "arguments": plain(each.arguments),
                "policy": policy or "",
            }

        return {"rows": await _only(map(row, records), columns)}

    async def _list_bindings(self, arguments: Arguments, timeout_s: float) -> Any:
        catalogue, vhost = self._catalogue, text(arguments, "vhost")
        if catalogue.vhost(vhost) is None:
            return {"rows": []}
        found = await taken(map(_binding_row, list(catalogue.bindings(vhost))))
        found.sort(key=lambda row: (row["source_name"], row["destination_name"], row["routing_key"]))
        return {"rows": await _only(found, _columns(arguments))}

    # --- feature flags ---

    async def _list_feature_flags(self, arguments: Arguments, timeout_s: float) -> Any:
        self._running()
        return {"rows": await _only(feature_flags.feature_flags(), _columns(arguments))}

    async def _enable_feature_flag(self, arguments: Arguments, timeout_s: float) -> Any:
        """They are on."""
        self._running()
        name = text(arguments, "name")
        if name == "all":
            return {}
        try:
            feature_flags.enable(name)
        except AdminError:
            own = self._agent.config.node_name
            said = f"This feature flag is not supported by node {own}"
            raise ControlError(EX_USAGE, said) from None
        return {}

    # --- others ---

    async def _list_attempts(self, arguments: Arguments, timeout_s: float) -> Any:
        if arguments.get("by_source"):
            self._running()
            return {"rows": []}
        attempts = self._running().broker.counters.auth_attempts
        return {
            "rows": [
                {
                    "protocol": protocol,
                    "auth_attempts": counted.attempts,
                    "auth_attempts_failed": counted.failed,
                    "auth_attempts_succeeded": counted.succeeded,
                }
                for protocol, counted in sorted(attempts.items())
            ]
        }

    async def _list_unresponsive(self, arguments: Arguments, timeout_s: float) -> Any:
        """Queues whose master's node does not answer."""
        vhost, catalogue = self._vhost(arguments), self._catalogue
        answered = {row["id"] for row in await self._rows("queues", Query(vhost=vhost, fields=frozenset()))}
        records = sorted(catalogue.queues(vhost), key=lambda each: each.name)
        return {"rows": [{"name": each.name} for each in records if each.uid not in answered]}


def _binding_row(each: Binding) -> dict[str, Any]:
    return {
        "source_name": each.source,
        "source_kind": "exchange",
        "destination_name": each.destination,
        "destination_kind": each.destination_kind,
        "routing_key": each.routing_key,
        "arguments": dict(sorted(plain(each.arguments).items())),  # as RabbitMQ keeps them
    }


def _columns(arguments: Arguments) -> frozenset[str]:
    """Raises: ControlError."""
    value = arguments.get("columns")
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ControlError(EX_USAGE, "the argument 'columns' is no list of texts")
    return frozenset(value)


async def _only(rows: Iterable[Mapping[str, Any]], columns: frozenset[str]) -> list[dict[str, Any]]:
    return await taken({name: row[name] for name in columns if name in row} for row in rows)


def _id(row: Mapping[str, Any]) -> str:
    return str(row["id"])


def _number_in(id_: str) -> int:
    """The connection's number: the last part of what its node calls it (`Broker.register`)."""
    return int(id_.rpartition("\0")[2].rpartition(".")[2])


def _pid(node: str, connection: int, channel: int) -> str:
    return f"<{node}.1.{connection}.{channel}>"
