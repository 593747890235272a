"""Queues that belong to an exchange, in which its messages wait, through which they pass, or which keep the last ones.

Such a queue is made and deleted with its exchange, in the same command. It has copies on several nodes like a quorum
queue. Clients do not reach it.
"""

from typing import Final

from node.amqp.field_table import Table
from node.catalogue import deduplication, delayed, recent_history, retained
from node.catalogue.deduplication import DEDUPLICATION_TYPE
from node.catalogue.delayed import DELAYED_TYPE, WAITING_PREFIX
from node.catalogue.holding import HOLD_ARGUMENT
from node.catalogue.recent_history import HISTORY_TYPE
from node.catalogue.retained import RETAINED_TYPE

_PREFIXES: Final = {
    DELAYED_TYPE: WAITING_PREFIX,
    DEDUPLICATION_TYPE: "amq.deduplication.",
    HISTORY_TYPE: "amq.history.",
    RETAINED_TYPE: "amq.retained.",
}
"""The start of the names, by type of exchange: clients can't declare names that start with `amq.`."""

HISTORY_PREFIX: Final = _PREFIXES[HISTORY_TYPE]

_ALL_PREFIXES: Final = tuple(_PREFIXES.values())

_CHECKS: Final = {
    DELAYED_TYPE: delayed.check_arguments,
    DEDUPLICATION_TYPE: deduplication.check_arguments,
    HISTORY_TYPE: recent_history.KEPT.check,
    RETAINED_TYPE: retained.KEPT.check,
}


def exchange_queue(exchange_type: str, exchange: str) -> str | None:
    """Return the name of the queue that belongs to an exchange; None: an exchange of this type has none."""
    prefix = _PREFIXES.get(exchange_type)
    return None if prefix is None else prefix + exchange


def is_exchange_queue(queue: str) -> bool:
    """True if a queue of this name belongs to an exchange."""
    return queue.startswith(_ALL_PREFIXES)


def type_of_owner(queue: str) -> str | None:
    """Return the type of the exchange to which a queue of this name belongs; None: it belongs to none."""
    return next((type_ for type_, prefix in _PREFIXES.items() if queue.startswith(prefix)), None)


def exchange_of(queue: str) -> str:
    """Return the name of the exchange to which a queue belongs."""
    owner = type_of_owner(queue)
    assert owner is not None, queue
    return queue.removeprefix(_PREFIXES[owner])


def queue_arguments(exchange_type: str, arguments: Table) -> Table:
    """Return the arguments of an exchange that its queue must know."""
    match exchange_type:
        case "x-delayed-message":
            return {HOLD_ARGUMENT: arguments[HOLD_ARGUMENT]} if HOLD_ARGUMENT in arguments else {}
        case "x-message-deduplication":
            return deduplication.queue_arguments(arguments)
        case "x-recent-history":
            return recent_history.KEPT.only(arguments)
        case "x-retained":
            return retained.KEPT.only(arguments)
    return {}


def check_exchange_arguments(exchange_type: str, arguments: Table) -> None:
    """Check the arguments of a new exchange whose type is built in. Raises: ProtocolError."""
    check = _CHECKS.get(exchange_type)
    if check is not None:
        check(arguments)
