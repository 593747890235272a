"""The control socket offers these operations to `fluffle ctl`, under rabbitmqctl's names.

Those that change the node are done one after the other. Source: management §3.2, rabbit_mnesia.erl v3.13.7.
"""

import asyncio
import os
from typing import TYPE_CHECKING, Any, Final, Literal

from node.admin import limits, parameters, permissions, plugins, policies, users, vhosts
from node.admin.admin import OPERATOR, Admin
from node.agent import errors, moves
from node.agent.definition_operations import DefinitionOperations
from node.agent.delayed_operations import DelayedOperations
from node.agent.federation_operations import FederationOperations
from node.agent.list_operations import ListOperations
from node.agent.protocol_operations import ProtocolOperations
from node.agent.queue_operations import QueueOperations
from node.agent.runtime_operations import RuntimeOperations
from node.agent.shovel_operations import ShovelOperations
from node.agent.table_operations import Arguments, Verb, verbs
from node.clustering.errors import GivenUp
from node.config.file import ConfigError
from node.io.control import EX_USAGE, ControlError
from node.log import mirroring as log_mirroring
from node.log import phrases
from node.operations.delayed import DELAYED
from node.operations.federation import FEDERATION
from node.operations.listings import LISTINGS
from node.operations.parameters import PARAMETERS
from node.operations.permissions import PERMISSIONS
from node.operations.plugins import PLUGINS
from node.operations.policies import POLICIES
from node.operations.protocol_clients import PROTOCOL_CLIENTS
from node.operations.queues import QUEUES
from node.operations.runtime import RUNTIME
from node.operations.shovels import SHOVELS
from node.operations.users import USERS
from node.operations.vhosts import VHOSTS
from node.process import changes, phases, status

if TYPE_CHECKING:
    from node.app import Node
    from node.clustering.cluster import Cluster
    from node.process.agent import Agent

EX_CONFIG: Final = 78
POLL_S: Final = 0.1


class Operations:
    """The operations of one agent, by name."""

    def __init__(self, agent: "Agent") -> None:
        self._agent = agent
        self._changing = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._begun: asyncio.Task[None] | None = None
        self._asking: dict[str, Verb] = {
            "ping": self._ping,
            "status": self._status,
            "cluster_status": self._cluster_status,
            "list_members": self._list_members,
            "await_startup": self._await_startup,
            "await_online_nodes": self._await_online_nodes,
            "stop": self._stop,
        }
        lists = ListOperations(agent, self._running)
        self._asking |= {
            **verbs(USERS, self._admin, users),
            **verbs(PERMISSIONS, self._admin, permissions),
            **verbs(VHOSTS, self._admin, vhosts, limits, lists),
            **verbs(PARAMETERS, self._admin, parameters),
            **verbs(POLICIES, self._admin, policies),
            **verbs(PLUGINS, self._admin, plugins),
            **verbs(LISTINGS, self._admin, lists),
            **verbs(PROTOCOL_CLIENTS, self._admin, ProtocolOperations(agent, self._running)),
            **verbs(QUEUES, self._admin, QueueOperations(agent, self._running)),
            **verbs(DELAYED, self._admin, DelayedOperations(agent, self._running)),
            **verbs(SHOVELS, self._admin, ShovelOperations(agent, self._running)),
            **verbs(FEDERATION, self._admin, FederationOperations(agent, self._running)),
            **verbs(RUNTIME, self._admin, RuntimeOperations(agent, self._running)),
            **DefinitionOperations(agent, self._running).asking,
        }
        self._changes: dict[str, Verb] = {
            "start_app": self._start_app,
            "stop_app": self._stop_app,
            "join_cluster": self._join_cluster,
            "forget_cluster_node": self._forget_cluster_node,
            "change_cluster_node_type": self._change_cluster_node_type,
            "reset": self._reset,
            "force_reset": self._force_reset,
            "set_cluster_name": self._set_cluster_name,
            "drain": self._drain,
            "revive": self._revive,
            "suspend_listeners": self._suspend_listeners,
            "resume_listeners": self._resume_listeners,
        }

    @property
    def names(self) -> frozenset[str]:
        """The names of all operations."""
        return frozenset(self._asking) | frozenset(self._changes)

    async def handle(self, operation: str, arguments: Arguments, timeout_s: float) -> Any:
        """Carry out an operation and return its result.

        Raises: ControlError; CancelledError after a time-out, and then a change continues all the same.
        """
        if (asking := self._asking.get(operation)) is not None:
            return await asking(arguments, timeout_s)
        if (change := self._changes.get(operation)) is None:
            raise ControlError(EX_USAGE, f"there is no operation '{operation}'")
        task = asyncio.create_task(self._change(change, arguments, timeout_s))
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    def begin(self, operation: str, timeout_s: float) -> None:
        """Begin a change whose end no caller waits for; the log has its failure.

        Raises: ControlError while another change that was begun so is not done.
        """
        if self._begun is not None and not self._begun.done():
            raise errors.unavailable("an earlier change of this node is still under way")
        self._begun = asyncio.create_task(self._begun_change(operation, timeout_s))

    async def _begun_change(self, operation: str, timeout_s: float) -> None:
        try:
            await self.handle(operation, {}, timeout_s)
        except ControlError as error:
            self._agent.logger.error("the operation '%s', requested over HTTP, failed: %s", operation, error)

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the caller has it, or has gone

    async def _change(self, change: Verb, arguments: Arguments, timeout_s: float) -> Any:
        self._check_age()
        if change == self._stop_app:
            # It also ends a start that waits for other nodes, and so must not wait for that one.
            return await change(arguments, timeout_s)
        async with self._changing:
            try:
                return await change(arguments, timeout_s)
            except ControlError as error:
                raise errors.as_rabbitmqctl(error) from error

    # --- this node ---

    async def _ping(self, arguments: Arguments, timeout_s: float) -> Any:
        return {}

    async def _status(self, arguments: Arguments, timeout_s: float) -> Any:
        return status.node_status(self._agent)

    async def _await_startup(self, arguments: Arguments, timeout_s: float) -> Any:
        await self._agent.broker_supervisor.await_start()
        return {}

    async def _start_app(self, arguments: Arguments, timeout_s: float) -> Any:
        self._check_broker()
        try:
            await self._agent.broker_supervisor.start()
        except ConfigError as error:
            raise ControlError(EX_CONFIG, "\n".join(error.problems)) from error
        except OSError as error:
            raise errors.unavailable(f"cannot start: {error}") from error
        except GivenUp:
            raise errors.unavailable("the start was given up: the node was told to stop") from None
        return {}

    async def _stop_app(self, arguments: Arguments, timeout_s: float) -> Any:
        self._check_broker()
        if not await self._agent.broker_supervisor.stop():
            raise ControlError(74, "the broker is stopped, but not all of its data are on disk: see the log")
        return {}

    async def _stop(self, arguments: Arguments, timeout_s: float) -> Any:
        # Later, so that the answer goes out first.
        asyncio.get_running_loop().call_later(POLL_S, self._agent.stopping.set)
        return {"pid": os.getpid()}

    async def _suspend_listeners(self, arguments: Arguments, timeout_s: float) -> Any:
        self._running().suspend_listeners()
        return {}

    async def _resume_listeners(self, arguments: Arguments, timeout_s: float) -> Any:
        await self._running().resume_listeners()
        return {}

    async def _drain(self, arguments: Arguments, timeout_s: float) -> Any:
        node, logger = self._running(), self._agent.logger
        logger.warning(phrases.drain_started())
        await self._mark_draining(is_draining=True)
        node.suspend_listeners()
        logger.warning(phrases.listeners_suspended())
        count = len(node.broker.connections)
        node.close_all_connections("Node was put into maintenance mode")
        logger.warning(phrases.drain_closed(count))
        await self._move_masters(node, min(timeout_s, moves.DRAIN_S))
        logger.info(phrases.drained())
        return {}

    async def _move_masters(self, node: "Node", timeout_s: float) -> None:
        """Wait until the masters of this node, which is in maintenance mode, have moved as far as they can."""
        logger, own, catalogue = self._agent.logger, node.config.node_name, node.broker.catalogue
        count = sum(1 for _ in moves.movable(catalogue, own))
        peers = sorted(set(moves.hosts(catalogue, own)) - {own})
        if not peers:
            logger.warning(log_mirroring.nobody_to_transfer_to())
            return
        logger.info(log_mirroring.transferring(count, peers))
        left = await moves.await_moved(catalogue, own, timeout_s)
        if left:
            logger.warning(log_mirroring.still_masters(left))
        else:
            logger.info(log_mirroring.transferred())

    async def _revive(self, arguments: Arguments, timeout_s: float) -> Any:
        node, logger = self._running(), self._agent.logger
        logger.info(phrases.revive_started())
        await node.resume_listeners()
        logger.info(phrases.listeners_resumed())
        await self._mark_draining(is_draining=False)
        logger.info(phrases.revived())
        return {}

    async def _mark_draining(self, *, is_draining: bool) -> None:
        self._agent.is_draining = is_draining
        if self._agent.cluster is not None:
            await self._agent.cluster.set_draining(is_draining)

    # --- the cluster ---

    async def _cluster_status(self, arguments: Arguments, timeout_s: float) -> Any:
        return status.cluster_status(self._agent)

    async def _list_members(self, arguments: Arguments, timeout_s: float) -> Any:
        cluster = self._agent.cluster
        return (
            {"members": [], "leader": None, "voters": []} if cluster is None else status.member_list(cluster)
        )

    async def _await_online_nodes(self, arguments: Arguments, timeout_s: float) -> Any:
        count = arguments.get("count")
        if type(count) is not int or count < 1:
            raise ControlError(EX_USAGE, "await_online_nodes needs a count of at least 1")
        self._running()
        deadline = asyncio.get_running_loop().time() + timeout_s - POLL_S
        while len(status.running_nodes(self._agent)) < count:
            if asyncio.get_running_loop().time() >= deadline:
                raise errors.too_few_online(self._agent.config.node_name)
            await asyncio.sleep(POLL_S)
        return {}

    async def _set_cluster_name(self, arguments: Arguments, timeout_s: float) -> Any:
        name = _text(arguments, "name")
        await status.set_cluster_name(self._running(), name)
        return {}

    async def _join_cluster(self, arguments: Arguments, timeout_s: float) -> Any:
        node, address = _text(arguments, "node"), arguments.get("address")
        if address is not None and not isinstance(address, str):
            raise ControlError(EX_USAGE, "the address is not a text")
        is_member = await changes.join_cluster(self._stopped(), node, address, _node_type(arguments))
        return {"already_member": is_member}

    async def _forget_cluster_node(self, arguments: Arguments, timeout_s: float) -> Any:
        node = _text(arguments, "node")
        await self._clustered().voting.forget(node)
        return {}

    async def _change_cluster_node_type(self, arguments: Arguments, timeout_s: float) -> Any:
        node_type = _node_type(arguments)
        await changes.change_type(self._stopped(), node_type)
        return {}

    async def _reset(self, arguments: Arguments, timeout_s: float) -> Any:
        await changes.reset(self._stopped(), is_forced=False)
        return {}

    async def _force_reset(self, arguments: Arguments, timeout_s: float) -> Any:
        await changes.reset(self._stopped(), is_forced=True)
        return {}

    # --- conditions ---

    def _check_broker(self) -> None:
        """Check that this node runs brokers at all. Raises: ControlError if it is a witness."""
        if self._agent.is_witness:
            raise ControlError(EX_USAGE, "this node is a witness: it has no broker")

    def _check_age(self) -> None:
        """Check that the process has begun and does not end, as changes need it. Raises: ControlError."""
        phase = self._agent.phase
        if phase == "ending":
            raise phases.ending()
        if phase == "opening":
            raise phases.still_opening()

    def _running(self) -> "Node":
        """Return the broker. Raises: ControlError unless it runs."""
        node, phase = self._agent.node, self._agent.phase
        if node is None or phase != "running":
            raise phases.not_running(phase, self._agent.waits_for)
        return node

    def _admin(self) -> Admin:
        """Return the administration of the broker. Raises: ControlError unless it runs."""
        node = self._running()
        return Admin(node.broker, node.config, self._agent.logger, OPERATOR)

    def _stopped(self) -> "Agent":
        """Return the agent, whose broker is stopped. Raises: ControlError if it runs."""
        self._check_age()
        if self._agent.phase != "stopped":
            raise phases.not_stopped(self._agent.phase)
        return self._agent

    def _clustered(self) -> "Cluster":
        """Return the node's part in its cluster. Raises: ControlError if it has none."""
        if self._agent.cluster is None:
            raise errors.refused(errors.NOT_A_MEMBER)
        return self._agent.cluster


def _text(arguments: Arguments, name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not value:
        raise ControlError(EX_USAGE, f"the argument '{name}' is missing or no text")
    return value


def _node_type(arguments: Arguments) -> Literal["disc", "ram"]:
    value = arguments.get("type", "disc")
    if value == "disc":
        return "disc"
    if value == "ram":
        return "ram"
    raise ControlError(EX_USAGE, "the type of a node is disc or ram")
