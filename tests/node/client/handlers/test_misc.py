"""The small classes (amqp-behaviour §2.1); more on confirms in test_publishing.py, on tx in test_transaction.py."""

from node.amqp.methods import (
    METHODS,
    AccessRequest,
    AccessRequestOk,
    BasicPublish,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOpen,
    ConfirmSelect,
)
from node.client.handlers import HANDLERS
from tests.kit.world import World

FROM_CLIENTS = {
    "access.request",
    "basic.ack basic.cancel basic.consume basic.get basic.nack basic.qos basic.reject",
    "basic.recover basic.recover-async",
    "channel.flow",
    "confirm.select",
    "exchange.bind exchange.declare exchange.delete exchange.unbind",
    "queue.bind queue.declare queue.delete queue.purge queue.unbind",
    "tx.commit tx.rollback tx.select",
}


def test_just_the_methods_of_clients_have_handlers() -> None:
    """§10; publish and the life of a channel are handled where content and numbers are known."""
    assert {method.name for method in HANDLERS} == set(" ".join(FROM_CLIENTS).split())
    elsewhere = {BasicPublish, ChannelOpen, ChannelClose, ChannelCloseOk}
    assert elsewhere <= set(METHODS.values())
    assert elsewhere.isdisjoint(HANDLERS)


def test_flow() -> None:
    """§2.1 rows channel.flow."""
    client = World().client()
    assert client.ask(1, ChannelFlow(active=True)) == ChannelFlowOk(active=True)
    assert client.refusal(ChannelFlow(active=False)) == (540, "NOT_IMPLEMENTED - active=false")


def test_access_request() -> None:
    """§2.1 row access.request."""
    assert World().client().ask(1, AccessRequest(realm="/data")) == AccessRequestOk(ticket=1)


def test_confirm_select_nowait() -> None:
    client = World().client()
    client.send(1, ConfirmSelect(nowait=True))
    assert client.received() == []
    assert client.channel().confirms is not None
