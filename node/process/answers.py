"""What a node answers the others: `node.clustering.questions`, one function a question."""

import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, get_args

from node.admin import queues
from node.app import Node
from node.client.connection import Connection
from node.clustering.questions import Question
from node.io.control import EX_USAGE, ControlError, unavailable
from node.io.turns import taken
from node.management.node_facts import node_facts
from node.process import phases, status
from node.statistics.query import Query
from node.statistics.queues import mirror_status
from node.statistics.rows import Kind, Row

if TYPE_CHECKING:
    from node.process.agent import Agent

Arguments = Mapping[str, Any]

MAINTENANCE_S: Final = 120.0
"""How long a drain that nobody waits for may take: the masters' moves and some time to tell all nodes."""


async def rows(agent: "Agent", arguments: Arguments) -> list[Row]:
    """What queues, connections … are doing here.   kind, query"""
    _running(agent)
    kind, query = arguments.get("kind"), _query(arguments)
    for known in get_args(Kind):
        if kind == known:
            return await taken(agent.management.statistics.rows(known, query))
    raise ControlError(EX_USAGE, f"there are no rows of '{kind}'")


async def totals(agent: "Agent", arguments: Arguments) -> dict[str, Any]:
    """This node's part of the overview.   query"""
    _running(agent)
    return agent.management.statistics.totals(_query(arguments))


async def node(agent: "Agent", arguments: Arguments) -> dict[str, Any]:
    """What this node is and uses.   query"""
    return node_facts(
        _running(agent), status.node_status(agent), agent.management.statistics, _query(arguments)
    )


async def close_connections(agent: "Agent", arguments: Arguments) -> int:
    """Close those of our clients that are named.   names, user, vhost: null for all; reason"""
    names, user, vhost = arguments.get("names"), arguments.get("user"), arguments.get("vhost")
    broker, count = _running(agent).broker, 0

    def is_chosen(connection: Connection) -> bool:
        nonlocal count
        is_named = (
            (names is None or connection.name in names)
            and (user is None or connection.user_name == user)
            and (vhost is None or connection.vhost == vhost)
        )
        count += is_named
        return is_named

    broker.close_connections(str(arguments.get("reason", "")), is_chosen)
    return count


async def mirroring_events(agent: "Agent", arguments: Arguments) -> list[dict[str, Any]]:
    """The last events of mirrored queues that this node has told its log, the newest first.   vhost, name: or null"""
    asked = (arguments.get(key) for key in ("vhost", "name"))
    return agent.management.events.latest(*(each if isinstance(each, str) else None for each in asked))


async def forget_auth_attempts(agent: "Agent", arguments: Arguments) -> dict[str, Any]:
    """Count the logins from now on."""
    _running(agent).broker.counters.auth_attempts.clear()
    return {}


async def declare_queue(agent: "Agent", arguments: Arguments) -> dict[str, Any] | None:
    """See `node.admin.queues.declare_queue`."""
    return await queues.declare_queue(_running(agent).broker, arguments)


async def sync_queue(agent: "Agent", arguments: Arguments) -> bool:
    """Have the mirrors of a queue synchronised whose master is here, or have that stopped.   uid, is_on

    Returns: whether there is something to be done, or was.
    """
    node = _running(agent)
    queue = next((each for each in node.broker.local_queues if each.record.uid == arguments.get("uid")), None)
    status = None if queue is None else mirror_status(node.broker, queue)
    if queue is None or status is None or node.broker.mirrors is None:
        raise unavailable(f"the queue's master is not on node '{node.config.node_name}' any more")
    is_on = arguments.get("is_on") is True
    node.broker.mirrors.sync(queue.record, is_on=is_on)
    if is_on:
        return len(status.synced) < len(status.ring)
    return any(each.is_running for each in status.sync.values())


async def reset_statistics(agent: "Agent", arguments: Arguments) -> dict[str, Any]:
    """Forget how things went until now."""
    agent.management.attach(_running(agent))
    return {}


async def maintenance(agent: "Agent", arguments: Arguments) -> dict[str, Any]:
    """Begin or end maintenance mode here, as `fluffle ctl drain` and `revive` do; it goes on afterwards.   is_on"""
    _running(agent)
    agent.operations.begin("drain" if arguments.get("is_on") is True else "revive", MAINTENANCE_S)
    return {}


async def log_lines(agent: "Agent", arguments: Arguments) -> dict[str, Any]:
    """The last lines of this node's log.   after: number of the last line that is known; null: from the oldest"""
    after = arguments.get("after")
    return agent.management.log_lines.after(after if type(after) is int else 0)


async def clock(agent: "Agent", arguments: Arguments) -> float:
    """The time of day here, in seconds."""
    return time.time()


_ANSWERS: Final[Mapping[str, Callable[["Agent", Arguments], Awaitable[Any]]]] = {
    "clock": clock,
    "rows": rows,
    "totals": totals,
    "node": node,
    "close_connections": close_connections,
    "mirroring_events": mirroring_events,
    "forget_auth_attempts": forget_auth_attempts,
    "reset_statistics": reset_statistics,
    "declare_queue": declare_queue,
    "sync_queue": sync_queue,
    "maintenance": maintenance,
    "log_lines": log_lines,
}


def answers(agent: "Agent") -> dict[str, Question]:
    """What an agent answers, by the name of the question."""
    return {name: partial(answer, agent) for name, answer in _ANSWERS.items()}


def _running(agent: "Agent") -> Node:
    """Raises: ControlError."""
    if agent.node is None:
        raise phases.not_running(agent.phase, agent.waits_for)
    return agent.node


def _query(arguments: Arguments) -> Query:
    """Raises: ControlError."""
    try:
        return Query.from_json(arguments.get("query") or {})
    except ValueError as error:
        raise ControlError(EX_USAGE, f"the query is not understood: {error}") from None
