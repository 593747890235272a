"""`fluffle ctl` lists the clients of STOMP and MQTT. Source: RabbitMQ 3.10.8, the commands of its plug-ins."""

from collections.abc import Mapping
from typing import Any, Final

from node.agent.admin_operations import AdminOperations
from node.agent.list_operations import connection_pid, messages_channel_pid
from node.io.turns import taken
from node.statistics.connections import PROTOCOL_FACTS
from node.statistics.query import Query

_STOMP: Final = "STOMP "
_MQTT: Final = "MQTT "
"""How the protocols of clients on TCP and TLS begin; clients over WebSocket have others, and are not listed."""

_SOURCES: Final = {"conn_name": "name", "connection_state": "state", "peer_addr": "peer_host"}
"""RabbitMQ's columns that are fields of other names."""


class ProtocolOperations(AdminOperations):
    """The operations on the clients of plug-ins' protocols."""

    async def list_stomp_connections(self, columns: list[str]) -> list[dict[str, Any]]:
        """Return the connections of STOMP's clients on all nodes, in the order of their numbers."""
        return await self._connections(_STOMP, columns)

    async def list_mqtt_connections(self, columns: list[str]) -> list[dict[str, Any]]:
        """Return the connections of MQTT's clients on all nodes, in the order of their numbers."""
        return await self._connections(_MQTT, columns)

    async def _connections(self, protocol: str, columns: list[str]) -> list[dict[str, Any]]:
        self._running()
        wanted = {_SOURCES.get(name, name) for name in columns}
        query = Query(fields=frozenset({*wanted, "node", "protocol", PROTOCOL_FACTS}))
        rows = await self._agent.management.rows("connections", query)
        mine = [row for row in rows if str(row.get("protocol", "")).startswith(protocol)]
        mine.sort(key=lambda row: str(row["id"]))
        return await taken(_columns(row, columns) for row in mine)


def _columns(row: Mapping[str, Any], columns: list[str]) -> dict[str, Any]:
    found = {
        **row,
        **row.get(PROTOCOL_FACTS, {}),
        "connection": connection_pid(row, 0),
        "channel": messages_channel_pid(row),
        **{name: row[source] for name, source in _SOURCES.items() if source in row},
    }
    return {name: found[name] for name in columns if name in found}
