"""An operator asks RabbitMQ's nodes by the functions behind rabbitmqctl, called in any node that answers."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from tests.chaos.broker import VHOST, BrokerNode, Definition, OperatorError, Ring
from tests.chaos.rabbit_cluster import RabbitCluster, RabbitError, RabbitNode
from tests.kit.rabbit_server import RabbitAdmin

REBALANCE_S: Final = 60.0
WATERMARK: Final = 0.4
"""RabbitMQ's own `vm_memory_high_watermark`."""

_ROWS: Final = (
    "[begin Up = rabbit_nodes:all_running(), M = amqqueue:get_pid(Q),"
    " N = fun(L) -> [atom_to_binary(node(P)) || P <- L, lists:member(node(P), Up)] end,"
    # A queue that waits for its node keeps the id of a process that is no more.
    " Lives = is_pid(M) andalso lists:member(node(M), Up) andalso"
    " (try erpc:call(node(M), erlang, is_process_alive, [M], 2000) catch _:_ -> false end),"
    " #{name => element(4, amqqueue:get_name(Q)), mirrored => rabbit_mirror_queue_misc:is_mirrored(Q),"
    " lives => Lives andalso amqqueue:get_state(Q) =:= live,"
    " master => if is_pid(M) -> atom_to_binary(node(M)); true -> <<>> end,"
    " mirrors => N(amqqueue:get_slave_pids(Q)), synced => N(amqqueue:get_sync_slave_pids(Q))} end"
    " || Q <- rabbit_amqqueue:list(<<VHOST>>)]"
).replace("VHOST", f'"{VHOST}"')

_DEPTHS: Final = (
    "maps:from_list([{element(4, amqqueue:get_name(Q)), N} || Q <- rabbit_amqqueue:list(<<VHOST>>),"
    " N <- try [proplists:get_value(messages, rabbit_amqqueue:info(Q, [messages]))] catch _:_ -> [] end,"
    " is_integer(N)])"
).replace("VHOST", f'"{VHOST}"')


class RabbitOperator:
    """Implements `Operator`."""

    def __init__(self, cluster: RabbitCluster) -> None:
        self._cluster = cluster

    async def set_policy(self, name: str, pattern: str, definition: Definition) -> None:
        """A policy for queues. Raises: OperatorError."""

        def set_it(node: RabbitNode) -> None:
            admin = RabbitAdmin(node.evaluate)
            try:
                admin.set_policy(VHOST, name, pattern, definition, 0, "queues")
            except RuntimeError as error:
                raise RabbitError(str(error)) from error

        await self._any(set_it)

    async def rings(self, node: BrokerNode | None = None) -> dict[str, Ring]:
        """The mirrored queues by name, as this node or any says. Raises: OperatorError."""
        rows = await self._any(lambda each: each.evaluate_json(_ROWS), node)
        return {row["name"]: ring_of(row) for row in rows if row["mirrored"]}

    async def queue_master(self, queue: str) -> BrokerNode | None:
        """Return the node of the queue's master; None: nowhere, or nobody knows."""
        try:
            ring = (await self.rings()).get(queue)
        except OperatorError:
            return None
        return next((node for node in self._cluster.nodes if ring and node.name == ring.master), None)

    async def depths(self, node: BrokerNode | None = None) -> dict[str, int]:
        """Return how many messages each queue has that can be asked. Raises: OperatorError."""
        found = await self._any(lambda each: each.evaluate_json(_DEPTHS), node)
        return {name: int(count) for name, count in found.items()}

    async def synchronise(self, queue: str) -> None:
        """Fill its mirrors; returns at once. Raises: OperatorError."""
        await self._of_queue("sync_mirrors", queue)

    async def cancel_synchronisation(self, queue: str) -> None:
        """Stop that. Raises: OperatorError."""
        await self._of_queue("cancel_sync_mirrors", queue)

    async def rebalance(self) -> None:
        """Spread the masters. Raises: OperatorError."""
        rebalance = 'element(1, rabbit_amqqueue:rebalance(all, ".*", ".*"))'
        told = await self._any(lambda node: node.evaluate(rebalance, REBALANCE_S))
        if told != "ok":
            raise OperatorError(f"rebalance: {told}")

    async def set_memory_watermark(self, node: BrokerNode, fraction: float | None) -> None:
        """Set a fraction of the machine's memory: 0 raises the alarm of this node. Raises: OperatorError."""
        limit = WATERMARK if fraction is None else fraction
        # A fraction has to be above 0.
        term = f"{limit:.6f}" if limit > 0 else "{absolute, 1}"
        await self._any(
            lambda each: each.evaluate(f"ok = vm_memory_monitor:set_vm_memory_high_watermark({term})"), node
        )

    async def _of_queue(self, function: str, queue: str) -> None:
        # In a process of its own: the queue answers when it is done.
        resource = f'rabbit_misc:r(<<"{VHOST}">>, queue, <<"{queue}">>)'
        call = (
            f"case rabbit_amqqueue:lookup({resource}) of"
            f" {{ok, Q}} -> spawn(fun() -> rabbit_amqqueue:{function}(amqqueue:get_pid(Q)) end), ok;"
            " _ -> unknown end"
        )
        told = await self._any(lambda node: node.evaluate(call))
        if told != "ok":
            raise OperatorError(f"{function} of {queue}: {told}")

    async def _any(self, ask: Callable[[RabbitNode], Any], only: BrokerNode | None = None) -> Any:
        """The answer of this node, or of the first that has one. Raises: OperatorError."""
        failed = "no node runs"
        for node in self._cluster.nodes:
            if node.is_running and only in (None, node):
                try:
                    return await asyncio.to_thread(ask, node)
                except RabbitError as error:
                    failed = str(error)
        raise OperatorError(failed)


def ring_of(row: dict[str, Any]) -> Ring:
    """From what a node says of a queue.

    A mirror that has not all is no `joining` one: RabbitMQ's stay so until somebody synchronises them.
    """
    master = row["master"] if row["lives"] else ""
    return Ring(master, tuple(row["mirrors"]), tuple(row["synced"]), (), row["lives"])
