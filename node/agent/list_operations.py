"""The command line lists connections, channels and consumers of all nodes, exchanges, bindings and vhosts.

A pid is `<NODE.1.CONNECTION.CHANNEL>`, channel 0 being the connection itself: opaque to scripts, which give it back to
`close_connection`. Source: management §3.2, §3.3; RabbitMQ 3.10.8's columns.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from node.admin import feature_flags
from node.admin.admin import AdminError
from node.admin.vhosts import existing, is_traced
from node.agent import errors
from node.agent.admin_operations import AdminOperations
from node.amqp.plain import plain
from node.catalogue.records import Binding, Exchange
from node.io.control import EX_USAGE, ControlError
from node.io.turns import taken
from node.process import status
from node.statistics.exchanges import exchange_id
from node.statistics.query import Query
from node.statistics.rows import Kind

DELAYED: Final = "messages_delayed"
"""A column of exchanges that nodes must be asked for: only those with delayed messages know how many."""

_PROTOCOL: Final = [0, 9, 1]
_AMQP: Final = "AMQP 0-9-1"
_MESSAGES: Final = 1
"""The channel of messages of a plug-in's client: `node.client.client_session`."""

_PID: Final = re.compile(r"<(.{1,512})\.([0-9]{1,20})\.([0-9]{1,20})\.([0-9]{1,20})>", re.DOTALL)


class ListOperations(AdminOperations):
    """The operations behind the `list_…` and `close_…` commands."""

    def list_vhosts(self, columns: list[str]) -> list[dict[str, Any]]:
        """Return all vhosts, by name."""
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

    async def list_connections(self, columns: list[str]) -> list[dict[str, Any]]:
        """Return the connections of all nodes, in the order of their numbers."""
        rows = await self._rows("connections", Query(fields=frozenset({*columns, "node"})))
        rows.sort(key=_id)

        def whole(row: dict[str, Any]) -> dict[str, Any]:
            pid = _pid(row["node"], _number_in(row["id"]), 0)
            is_amqp = row.get("protocol", _AMQP) == _AMQP
            return {**row, "pid": pid, "protocol": _PROTOCOL if is_amqp else row["protocol"]}

        return await _only(map(whole, rows), columns)

    async def list_channels(self, columns: list[str]) -> list[dict[str, Any]]:
        """Return the channels of all nodes, in the order of their numbers."""
        rows = await self._rows("channels", Query(fields=frozenset({*columns, "node", "number"})))
        rows.sort(key=_id)

        def whole(row: dict[str, Any]) -> dict[str, Any]:
            connection = _number_in(row["id"])
            pid, owner = (_pid(row["node"], connection, n) for n in (row["number"], 0))
            return {**row, "pid": pid, "connection": owner}

        return await _only(map(whole, rows), columns)

    async def list_consumers(self, vhost: str, columns: list[str]) -> list[dict[str, Any]]:
        """Return the consumers of a vhost, by queue."""
        fields = frozenset({*columns, "queue", "channel_details"})
        rows = await self._rows("consumers", Query(vhost=vhost, fields=fields))
        rows.sort(key=_id)

        def whole(row: dict[str, Any]) -> dict[str, Any]:
            channel, parts = row["channel_details"], row["id"].split("\0")
            pid = _pid(channel["node"], _number_in(parts[2]), channel["number"])
            return {**row, "queue_name": row["queue"]["name"], "channel_pid": pid}

        return await _only(map(whole, rows), columns)

    # --- closing ---

    async def close_connection(self, pid: str, reason: str) -> None:
        """Close a connection. One that is closed already is no error."""
        self._running()
        found = _PID.fullmatch(pid)
        if found is None:
            raise errors.unavailable(f'Error:\n{{:invalid_pid_syntax, "{pid}"}}')
        node, connection = found[1], found[3]
        rows = await self._rows("connections", Query(fields=frozenset({"name"})), [node])
        names = [row["name"] for row in rows if _number_in(row["id"]) == int(connection)]
        if names:
            await self._close_named(node, names, reason)

    async def close_all_user_connections(self, user: str, reason: str) -> None:
        """Close the connections of a user on all nodes."""
        self._running()
        await self._agent.management.ask_all("close_connections", {"user": user, "reason": reason})

    async def close_all_connections(
        self, vhost: str | None, limit: int, delay_ms: int, reason: str
    ) -> dict[str, int]:
        """Close the connections of a vhost on all nodes, or (vhost None) all of this node; return the number.

        limit: the most to close; 0: all.   delay_ms: the pause after each.
        """
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

    async def list_exchanges(self, vhost: str, columns: list[str]) -> list[dict[str, Any]]:
        """Return the exchanges of a vhost, by name."""
        catalogue = self._catalogue
        if catalogue.vhost(vhost) is None:
            return []
        records = sorted(catalogue.exchanges(vhost), key=lambda each: each.name)
        delayed = await self._delayed(vhost) if DELAYED in columns else {}

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
                DELAYED: delayed.get(exchange_id(vhost, each.name), ""),
            }

        return await _only(map(row, records), columns)

    async def _delayed(self, vhost: str) -> dict[str, int]:
        """Return the number of messages that wait, by the id of the delayed exchange."""
        rows = await self._rows("exchanges", Query(vhost=vhost, fields=frozenset({DELAYED})))
        return {row["id"]: row[DELAYED] for row in rows if DELAYED in row}

    async def list_bindings(self, vhost: str, columns: list[str]) -> list[dict[str, Any]]:
        """Return the bindings of a vhost, by source."""
        catalogue = self._catalogue
        if catalogue.vhost(vhost) is None:
            return []
        found = await taken(map(_binding_row, list(catalogue.bindings(vhost))))
        found.sort(key=lambda row: (row["source_name"], row["destination_name"], row["routing_key"]))
        return await _only(found, columns)

    # --- feature flags ---

    async def list_feature_flags(self, columns: list[str]) -> list[dict[str, Any]]:
        """Return all feature flags that this version knows."""
        self._running()
        return await _only(feature_flags.feature_flags(), columns)

    def enable_feature_flag(self, name: str) -> None:
        """Check that a feature flag exists; all of them are on already. Raises: ControlError."""
        self._running()
        if name == "all":
            return
        try:
            feature_flags.enable(name)
        except AdminError:
            own = self._agent.config.node_name
            said = f"This feature flag is not supported by node {own}"
            raise ControlError(EX_USAGE, said) from None

    # --- others ---

    def list_node_auth_attempt_stats(self, by_source: bool) -> list[dict[str, Any]]:
        """Return the logins on this node, by protocol; none with `by_source`, as sources are not counted."""
        attempts = self._running().broker.counters.auth_attempts
        return [
            {
                "protocol": protocol,
                "auth_attempts": counted.attempts,
                "auth_attempts_failed": counted.failed,
                "auth_attempts_succeeded": counted.succeeded,
            }
            for protocol, counted in ([] if by_source else sorted(attempts.items()))
        ]

    async def list_unresponsive_queues(self, vhost: str) -> list[dict[str, Any]]:
        """Return the queues of a vhost whose master's node does not answer."""
        existing(self._admin, vhost)
        catalogue = self._catalogue
        answered = {row["id"] for row in await self._rows("queues", Query(vhost=vhost, fields=frozenset()))}
        records = sorted(catalogue.queues(vhost), key=lambda each: each.name)
        return [{"name": each.name} for each in records if each.uid not in answered]


def _binding_row(each: Binding) -> dict[str, Any]:
    return {
        "source_name": each.source,
        "source_kind": "exchange",
        "destination_name": each.destination,
        "destination_kind": each.destination_kind,
        "routing_key": each.routing_key,
        "arguments": dict(sorted(plain(each.arguments).items())),  # as RabbitMQ keeps them
    }


async def _only(rows: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> list[dict[str, Any]]:
    return await taken({name: row[name] for name in columns if name in row} for row in rows)


def _id(row: Mapping[str, Any]) -> str:
    return str(row["id"])


def _number_in(id_: str) -> int:
    """Return the connection's number: the last part of the id that its node gives it (`Broker.register`)."""
    return int(id_.rpartition("\0")[2].rpartition(".")[2])


def connection_pid(row: Mapping[str, Any], channel: int) -> str:
    """Return the pid of a connection, which a row is of, or of one of its channels.   channel: 0: the connection."""
    return _pid(row["node"], _number_in(row["id"]), channel)


def messages_channel_pid(row: Mapping[str, Any]) -> str:
    """Return the pid of the channel on which the messages of a plug-in's client go, of whose connection a row is."""
    return connection_pid(row, _MESSAGES)


def _pid(node: str, connection: int, channel: int) -> str:
    return f"<{node}.1.{connection}.{channel}>"
