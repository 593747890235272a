"""One function answers each question that a node gets from other nodes (`node.clustering.questions`)."""

import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, get_args

from node.admin import delayed, queues
from node.admin.admin import AdminError
from node.admin.replay import Choice
from node.app import Node
from node.client.connection import Connection
from node.clustering.questions import Question
from node.io.control import EX_USAGE, ControlError, unavailable
from node.io.turns import taken
from node.management import browsing
from node.management.delayed_rows import page_row
from node.management.node_facts import node_facts
from node.process import phases, status
from node.process.client_claims import released
from node.statistics.query import Query
from node.statistics.queues import mirror_status
from node.statistics.rows import Kind, Row

if TYPE_CHECKING:
    from node.process.agent import Agent

Arguments = Mapping[str, Any]

MAINTENANCE_S: Final = 120.0
"""The time that a drain may take whose end no caller waits for: the masters' moves, and the announcement."""


async def rows(agent: "Agent", arguments: Arguments) -> list[Row]:
    """Return the state of this node's queues, connections or other objects.   kind, query"""
    _running(agent)
    kind, query = arguments.get("kind"), _query(arguments)
    for known in get_args(Kind):
        if kind == known:
            return await taken(agent.management.statistics.rows(known, query))
    raise ControlError(EX_USAGE, f"there are no rows of '{kind}'")


async def totals(agent: "Agent", arguments: Arguments) -> dict[str, Any]:
    """Return this node's part of the overview.   query"""
    _running(agent)
    return agent.management.statistics.totals(_query(arguments))


async def node(agent: "Agent", arguments: Arguments) -> dict[str, Any]:
    """Return the facts about this node and its use of resources.   query"""
    return node_facts(
        _running(agent), status.node_status(agent), agent.management.statistics, _query(arguments)
    )


async def close_connections(agent: "Agent", arguments: Arguments) -> int:
    """Close the named client connections of this node; return their number.   names, user, vhost: null for all;
    reason
    """
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


async def release_clients(agent: "Agent", arguments: Arguments) -> list[int]:
    """End the connections here whose names other connections have claimed later.   claims

    Returns: the places of the claims that are older than this node's own.
    """
    return released(_running(agent).broker.client_names, arguments.get("claims"))


async def mirroring_events(agent: "Agent", arguments: Arguments) -> list[dict[str, Any]]:
    """Return the last events of mirrored queues that this node has logged, the newest first.   vhost, name: or null"""
    asked = (arguments.get(key) for key in ("vhost", "name"))
    return agent.management.events.latest(*(each if isinstance(each, str) else None for each in asked))


async def forget_auth_attempts(agent: "Agent", arguments: Arguments) -> dict[str, Any]:
    """Reset the counts of logins."""
    _running(agent).broker.counters.auth_attempts.clear()
    return {}


async def declare_queue(agent: "Agent", arguments: Arguments) -> dict[str, Any] | None:
    """Declare a queue on this node (`node.admin.queues.declare_queue`)."""
    return await queues.declare_queue(_running(agent).broker, arguments)


async def sync_queue(agent: "Agent", arguments: Arguments) -> bool:
    """Start or stop the synchronisation of the mirrors of a queue whose master is here.   uid, is_on

    Returns: whether there is a mirror to synchronise, or was a synchronisation to stop.
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


async def list_delayed(agent: "Agent", arguments: Arguments) -> dict[str, Any]:
    """Return messages that wait in a delayed exchange here.   vhost, exchange; first: the lowest id; count; truncate:
    the most bytes of a payload
    """
    broker, (vhost, exchange) = _running(agent).broker, _delayed(arguments)
    first, count, truncate = (_natural(arguments, name) for name in ("first", "count", "truncate"))
    try:
        return page_row(await delayed.browse(broker, vhost, exchange, first, count), truncate)
    except AdminError as error:
        raise unavailable(error.text) from None


async def cancel_delayed(agent: "Agent", arguments: Arguments) -> bool:
    """Drop a message that waits in a delayed exchange here; return whether it did.   vhost, exchange, message"""
    broker, (vhost, exchange) = _running(agent).broker, _delayed(arguments)
    try:
        return await delayed.cancel(broker, vhost, exchange, _natural(arguments, "message"))
    except AdminError as error:
        raise unavailable(error.text) from None


def _delayed(arguments: Arguments) -> tuple[str, str]:
    return str(arguments.get("vhost")), str(arguments.get("exchange"))


def _natural(arguments: Arguments, name: str) -> int:
    value = arguments.get(name)
    if type(value) is not int or value < 0:
        raise ControlError(EX_USAGE, f"{name} must be a number, 0 or more")
    return value


async def reset_statistics(agent: "Agent", arguments: Arguments) -> dict[str, Any]:
    """Forget all statistics until now."""
    agent.management.attach(_running(agent))
    return {}


async def browse_queue(agent: "Agent", arguments: Arguments) -> dict[str, Any] | None:
    """Return messages of a queue that lives here (`node.management.browsing.browse`).   vhost, queue, first, count,
    cut, encoding
    """
    first, count, cut = (_integer(arguments, key) for key in ("first", "count", "cut"))
    where = str(arguments.get("vhost")), str(arguments.get("queue"))
    encoding = str(arguments.get("encoding"))
    broker = _running(agent).broker
    try:
        return await browsing.browse(broker, *where, first=first, count=count, cut=cut, encoding=encoding)
    except TimeoutError:
        raise unavailable("the disk does not answer in time") from None


async def would_replay(agent: "Agent", arguments: Arguments) -> dict[str, Any] | None:
    """Return what a replay would do (`node.management.browsing.would_replay`).   vhost, queue, reason, died_in, header,
    value
    """
    where = str(arguments.get("vhost")), str(arguments.get("queue"))
    asked = (arguments.get(key) for key in ("reason", "died_in", "header", "value"))
    choice = Choice(*(each if isinstance(each, str) else None for each in asked))
    try:
        return await browsing.would_replay(_running(agent).broker, *where, choice)
    except TimeoutError:
        raise unavailable("the disk does not answer in time") from None


async def maintenance(agent: "Agent", arguments: Arguments) -> dict[str, Any]:
    """Begin or end maintenance mode, as `fluffle ctl drain` and `revive` do, and return before that is done.   is_on"""
    _running(agent)
    agent.operations.begin("drain" if arguments.get("is_on") is True else "revive", MAINTENANCE_S)
    return {}


async def log_lines(agent: "Agent", arguments: Arguments) -> dict[str, Any]:
    """Return the last lines of this node's log.   after: number of the last line that is known; null: all"""
    after = arguments.get("after")
    return agent.management.log_lines.after(after if type(after) is int else 0)


async def plugin(agent: "Agent", arguments: Arguments) -> Any:
    """Return the answer of a plug-in's service here; null if none runs.   plugin, question, arguments"""
    services = _running(agent).services
    service = None if services is None else services.find(str(arguments.get("plugin")))
    if service is None:
        return None
    given = arguments.get("arguments")
    try:
        return service.answer(str(arguments.get("question")), given if isinstance(given, dict) else {})
    except LookupError:
        raise ControlError(EX_USAGE, "the plug-in has no answer to this question") from None


async def clock(agent: "Agent", arguments: Arguments) -> float:
    """Return the time of day on this node, in seconds."""
    return time.time()


_ANSWERS: Final[Mapping[str, Callable[["Agent", Arguments], Awaitable[Any]]]] = {
    "clock": clock,
    "rows": rows,
    "totals": totals,
    "node": node,
    "close_connections": close_connections,
    "release_clients": release_clients,
    "mirroring_events": mirroring_events,
    "forget_auth_attempts": forget_auth_attempts,
    "reset_statistics": reset_statistics,
    "declare_queue": declare_queue,
    "sync_queue": sync_queue,
    "browse_queue": browse_queue,
    "would_replay": would_replay,
    "list_delayed": list_delayed,
    "cancel_delayed": cancel_delayed,
    "maintenance": maintenance,
    "log_lines": log_lines,
    "plugin": plugin,
}


def answers(agent: "Agent") -> dict[str, Question]:
    """Return an agent's handlers of questions, by name."""
    return {name: partial(answer, agent) for name, answer in _ANSWERS.items()}


def _running(agent: "Agent") -> Node:
    """Return the broker that runs. Raises: ControlError if none does."""
    if agent.node is None:
        raise phases.not_running(agent.phase, agent.waits_for)
    return agent.node


def _integer(arguments: Arguments, key: str) -> int:
    value = arguments.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ControlError(EX_USAGE, f"'{key}' is not a number")
    return value


def _query(arguments: Arguments) -> Query:
    """Decode the query of a question. Raises: ControlError."""
    try:
        return Query.from_json(arguments.get("query") or {})
    except ValueError as error:
        raise ControlError(EX_USAGE, f"the query is not understood: {error}") from None
