"""A session asks the catalogue beside the methods of AMQP, and the node declares what its protocol needs.

A plug-in's protocol may need exchanges and queues of its own, for which its clients have no permission: these are made
with the node's rights. Limits of the vhost hold for them, too.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from node.amqp.errors import ProtocolError
from node.catalogue.access import check_resource, check_topic
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import Command, DeclareExchange, DeclareQueue, Refused
from node.catalogue.limits import check_vhost_queues
from node.client.base_connection import BaseConnection
from node.extension.protocol import QueueBinding, QueueFacts, Refusal

OnDone: TypeAlias = Callable[[Refusal | None], None]


def refusal_of(error: ProtocolError) -> Refusal:
    """Return an error as a plug-in is told of it."""
    return Refusal(error.code, error.reply_text)


def submit_as_node(connection: BaseConnection, command: Command[Any], on_done: OnDone) -> None:
    """Carry out a declaration with the node's rights."""
    broker, vhost = connection.broker, connection.vhost

    def applied(result: object) -> None:
        on_done(Refusal(result.code, result.text) if isinstance(result, Refused) else None)

    if isinstance(command, DeclareExchange):
        command = broker.with_waiting_queue(command)
    elif isinstance(command, DeclareQueue):
        limits, count = broker.catalogue.vhost_limits(vhost), len(broker.catalogue.queues(vhost))
        try:
            check_vhost_queues(limits, vhost, command.name, count)
        except ProtocolError as error:
            on_done(refusal_of(error))
            return
        command = broker.placed(command)
    broker.log.submit(command, applied)


def find_queue(catalogue: Catalogue, vhost: str, name: str) -> QueueFacts | None:
    """Return the declaration of a queue; None: there is no such queue."""
    found = catalogue.queue(vhost, name)
    if found is None:
        return None
    is_exclusive = found.exclusive_owner is not None
    return QueueFacts(found.durable, is_exclusive, found.auto_delete, found.arguments)


def bindings_of(catalogue: Catalogue, vhost: str, queue: str) -> Sequence[QueueBinding] | None:
    """Return the bindings of a queue; None: there is no such queue."""
    if catalogue.queue(vhost, queue) is None:
        return None
    found = catalogue.bindings_to(vhost, "queue", queue)
    return [QueueBinding(each.source, each.routing_key, each.arguments) for each in found]


def check_publish(connection: BaseConnection, exchange: str, routing_key: str, on_done: OnDone) -> None:
    """Ask whether the user may publish to an exchange with a routing key."""
    catalogue, user, vhost = connection.broker.catalogue, connection.user_name, connection.vhost
    found = catalogue.exchange(vhost, exchange)
    is_topic = found is not None and found.type == "topic"
    rights, refusal = connection.rights, None
    try:
        if rights is None:
            check_resource(catalogue, user, vhost, "exchange", exchange, "write")
            if is_topic:
                check_topic(catalogue, user, vhost, exchange, routing_key, "write")
        else:
            question = rights.unanswered(exchange, routing_key, is_topic=is_topic)
            if question is not None:
                rights.ask(question, lambda _: check_publish(connection, exchange, routing_key, on_done))
                return
            rights.require_exchange(exchange)
            if is_topic:
                rights.require_topic(exchange, routing_key)
    except ProtocolError as error:
        refusal = refusal_of(error)
    on_done(refusal)
