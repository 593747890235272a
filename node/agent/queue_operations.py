"""`fluffle ctl` uses these operations on queues. Names and refusals are rabbitmqctl's.

Source: management §1.3, §2.5; RabbitMQ 3.10.8's output.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from node.admin import queues as admin_queues
from node.admin.admin import AdminError
from node.admin.direct_client import DirectClient, DirectTimeout
from node.admin.replay import REPLAYED_MAX, Choice, replay
from node.agent import errors
from node.agent.admin_operations import AdminOperations
from node.agent.moves import Rebalancing, move
from node.agent.queues import COUNTED, RING, Measured, queue_rows, ring_rows
from node.amqp.errors import ProtocolError
from node.catalogue.mirrors.rebalance import QueueKind
from node.catalogue.records import QueueRecord
from node.io.control import EX_USAGE, ControlError
from node.io.turns import taken
from node.statistics.query import Query

if TYPE_CHECKING:
    from node.app import Node
    from node.process.agent import Agent

LISTED: Final = ("all", "online", "offline", "local")
_MEASURED: Final = frozenset(
    {
        "consumer_capacity",
        "consumer_utilisation",
        "disk_reads",
        "disk_writes",
        "exclusive_consumer_tag",
        "head_message_timestamp",
        "memory",
        "message_bytes",
        "message_bytes_dlx",
        "message_bytes_persistent",
        "message_bytes_ram",
        "message_bytes_ready",
        "message_bytes_unacknowledged",
        "messages_delayed",
        "messages_dlx",
        "messages_persistent",
        "messages_ram",
        "messages_ready_ram",
        "messages_unacknowledged_ram",
        "owner_pid",
    }
)
"""Columns that come from the statistics."""
_FIELDS: Final = {
    "disk_reads": "message_stats",
    "disk_writes": "message_stats",
    "owner_pid": "owner_pid_details",
}
"""The names of these columns in the statistics, where they differ."""
SYNC_POLL_S: Final = 0.2
"""The interval at which `sync_queue` checks whether the mirrors are synchronised."""
BROWSED_CUT_BYTES: Final = 1000
"""The bytes of a payload that `browse_queue` shows."""
MOVE_S: Final = 10.0
"""The time that `move_queue` waits for the new master."""


class QueueOperations(AdminOperations):
    """The operations on queues of one agent."""

    def __init__(self, agent: "Agent", running: "Callable[[], Node]") -> None:
        super().__init__(agent, running)
        self._rebalancing = Rebalancing(agent)

    # --- lists ---

    async def list_queues(self, vhost: str | None, which: object, columns: list[str]) -> dict[str, Any]:
        """Return the queues of a vhost, or of all.   which: one of `LISTED`."""
        if which not in LISTED:
            raise ControlError(EX_USAGE, f"which must be one of {', '.join(LISTED)}")
        node, wanted = self._running(), _MEASURED.intersection(columns)
        measured = await self._measured(
            COUNTED | {_FIELDS.get(name, name) for name in wanted},
            vhost=vhost,
            nodes=[node.config.node_name] if which == "local" else None,
        )
        found = await taken(queue_rows(node, measured, vhost, which))
        for row in found if wanted else ():
            self._add_columns(row, measured.get(row["id"], {}), wanted)
        return {"queues": found}

    async def _measured(
        self,
        fields: frozenset[str],
        *,
        vhost: str | None = None,
        ids: tuple[str, ...] | None = None,
        nodes: list[str] | None = None,
    ) -> dict[str, Measured]:
        """Return the nodes' statistics of queues, by uid.   nodes: None: all that run."""
        query = Query(ids=ids, vhost=vhost, fields=fields)
        return {str(row["id"]): row for row in await self._agent.management.rows("queues", query, nodes)}

    def _add_columns(self, row: dict[str, Any], measured: Measured, columns: frozenset[str]) -> None:
        """Add columns of the statistics to a row of `queue_rows`."""
        stats = measured.get("message_stats", {})
        row.update({name: measured.get(name) for name in columns})
        row.update({name: stats.get(name, 0) for name in columns & {"disk_reads", "disk_writes"}})
        if "owner_pid" in columns:
            catalogue = self._catalogue
            is_there = catalogue.vhost(row["vhost"]) is not None
            record = catalogue.queue(row["vhost"], row["name"]) if is_there else None
            row["owner_pid"] = "" if record is None else _owner_pid(record)

    async def list_rings(self, vhost: str | None) -> dict[str, Any]:
        """Return the mirrored queues of a vhost, or of all."""
        node = self._running()
        measured = await self._measured(RING, vhost=vhost)
        return {"rings": await taken(ring_rows(node.broker.catalogue, measured, vhost))}

    # --- synchronisation ---

    async def sync_queue(self, vhost: str, queue: str) -> None:
        """Synchronise a queue's mirrors; return once all have what the master has, or the synchronisation has ended."""
        record = self._queue(vhost, queue)
        if record.type == "quorum":
            raise errors.unavailable(errors.QUORUM_NOT_SUPPORTED)
        if record.view is None:
            raise errors.unavailable(errors.NOT_MIRRORED)
        is_on = await self._sync(record, is_on=True)
        while is_on:
            await asyncio.sleep(SYNC_POLL_S)
            record = self._queue(vhost, queue)
            is_on = await self._is_syncing(record)

    async def cancel_sync_queue(self, vhost: str, queue: str) -> dict[str, Any]:
        """Stop a synchronisation, if there is one."""
        record = self._queue(vhost, queue)
        is_syncing = record.view is not None and await self._sync(record, is_on=False)
        return {"is_syncing": is_syncing}

    async def _sync(self, record: QueueRecord, *, is_on: bool) -> bool:
        """Have the master's node start or stop a synchronisation (`node.process.answers.sync_queue`)."""
        master = None if record.view is None else record.view.master_node
        if master is None:
            raise errors.unavailable("the queue has no master now")
        arguments = {"uid": record.uid, "is_on": is_on}
        return bool(await self._agent.management.ask(master, "sync_queue", arguments))

    async def _is_syncing(self, record: QueueRecord) -> bool:
        view = record.view
        if view is None or view.master_node is None or all(member.id in view.synced for member in view.ring):
            return False
        measured = await self._measured(frozenset({"state"}), ids=(record.uid,), nodes=[view.master_node])
        return measured.get(record.uid, {}).get("state") == "syncing"

    async def rebalance(self, type: str, vhost_pattern: str, queue_pattern: str) -> dict[str, Any]:
        """Distribute masters over the nodes; return how many each has then."""
        if type not in get_args(QueueKind):
            raise ControlError(EX_USAGE, f"the type must be one of {', '.join(get_args(QueueKind))}")
        kind = cast(QueueKind, type)
        found = await self._rebalancing.run(self._running(), kind, vhost_pattern, queue_pattern)
        return {"nodes": found}

    async def move_queue(self, vhost: str, queue: str, node: str, timeout_s: float) -> None:
        """Move the master to the synchronised mirror on a node. This command is Fluffle's own."""
        await move(self._running(), self._queue(vhost, queue), node, min(timeout_s, MOVE_S))

    def _queue(self, vhost: str, name: str) -> QueueRecord:
        """Return the record of a queue. Raises: ControlError."""
        catalogue = self._running().broker.catalogue
        found = None if catalogue.vhost(vhost) is None else catalogue.queue(vhost, name)
        if found is None:
            raise errors.unavailable(errors.QUEUE_NOT_FOUND)
        return found

    # --- queues and their messages ---

    async def delete_queue(self, vhost: str, queue: str, if_empty: bool, if_unused: bool) -> dict[str, Any]:
        """Delete a queue; return how many ready messages it had."""
        only = {"if_unused": if_unused, "if_empty": if_empty}
        try:
            count = await admin_queues.delete_queue(self._admin, vhost, queue, **only)
        except AdminError as error:
            if error.kind == "not_found":
                raise ControlError(EX_USAGE, "Queue not found") from None
            if error.kind == "invalid":
                is_used = "in use" in error.text
                raise ControlError(EX_USAGE, "Queue is in use" if is_used else "Queue is not empty") from None
            raise errors.unavailable(error.text) from None
        return {"messages": count}

    async def purge_queue(self, vhost: str, queue: str) -> None:
        """Drop the ready messages of a queue."""
        record = self._queue(vhost, queue)
        await admin_queues.purge_queue(self._admin, record.vhost, record.name)

    async def browse_queue(self, vhost: str, queue: str, first: int, count: int) -> dict[str, Any]:
        """Return ready messages of a queue, from a number on; the queue does not change."""
        record = self._queue(vhost, queue)
        asked = {"first": first, "count": count, "cut": BROWSED_CUT_BYTES, "encoding": "auto"}
        return await self._asked_about(record, "browse_queue", asked)

    async def replay_dead_letters(
        self,
        vhost: str,
        queue: str,
        user: str,
        reason: str | None = None,
        died_in: str | None = None,
        header: str | None = None,
        value: str | None = None,
        count: int = 0,
        rate: int = 0,
        count_only: bool = False,
    ) -> dict[str, Any]:
        """Have dead letters go back to the queues in which they died, in the name of a user.

        count, rate: 0: no limit.   count_only: say how many would go, and change nothing.
        """
        record = self._queue(vhost, queue)
        if count_only:
            asked = {"reason": reason, "died_in": died_in, "header": header, "value": value}
            return await self._asked_about(record, "would_replay", asked)
        choice = Choice(reason, died_in, header, value)
        try:
            async with DirectClient(self._running().broker, user, vhost) as client:
                result = await replay(
                    client,
                    user,
                    queue,
                    choice,
                    count=count or REPLAYED_MAX,
                    rate=float(rate) if rate else None,
                    clock=time.monotonic,
                )
        except ProtocolError as error:
            raise errors.unavailable(error.reply_text) from None
        except DirectTimeout as error:
            raise errors.unavailable(str(error)) from None
        return result.as_json()

    async def _asked_about(
        self, record: QueueRecord, question: str, arguments: dict[str, Any]
    ) -> dict[str, Any]:
        """Ask the node where a queue lives about its messages."""
        node = record.home or self._running().config.node_name
        asked = {"vhost": record.vhost, "queue": record.name, **arguments}
        answer: dict[str, Any] | None = await self._agent.management.ask(node, question, asked)
        if answer is None:
            raise errors.unavailable(f"queue '{record.name}' is moving to another node")
        return answer


def _owner_pid(record: QueueRecord) -> str:
    """Return the pid of the connection that owns an exclusive queue, as in `list_connections`."""
    node, _, number = (record.exclusive_owner or "").rpartition(".")
    return f"<{node}.1.{number}.0>" if node else ""
