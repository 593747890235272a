"""Queues that a client may not use, as they are another connection's or the broker's.

Source: amqp-behaviour §3.7, §3.13.
"""

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.catalogue.exchange_queues import is_exchange_queue
from node.catalogue.names import resource
from node.catalogue.records import QueueRecord


def check_exclusive(record: QueueRecord, connection_id: str, declared_exclusive: bool | None) -> None:
    """Raise ProtocolError 405 if the queue is another connection's alone, 403 if it is the broker's.

    declared_exclusive: the flag of a declaration, which must be the same too (§3.7); None: it is none.
    """
    if is_exchange_queue(record.name):
        where = resource("queue", record.name, record.vhost)
        raise ProtocolError(ReplyCode.ACCESS_REFUSED, f"{where} belongs to an exchange")
    is_owner = record.exclusive_owner is None or record.exclusive_owner == connection_id
    is_same = declared_exclusive in (None, record.exclusive_owner is not None)
    if not is_owner or not is_same:
        raise ProtocolError(
            ReplyCode.RESOURCE_LOCKED,
            f"cannot obtain exclusive access to locked {resource('queue', record.name, record.vhost)}. "
            "It could be originally declared on another connection or the exclusive property value "
            "does not match that of the original declaration.",
        )
