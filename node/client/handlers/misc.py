"""The handlers of the small classes: channel, access, confirm and tx. Source: amqp-behaviour §2.1, §4.3, §4.4."""

from typing import Final

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.methods import (
    AccessRequest,
    AccessRequestOk,
    ChannelFlow,
    ChannelFlowOk,
    ConfirmSelect,
    ConfirmSelectOk,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)
from node.client.channel import Channel
from node.client.confirms import Confirms
from node.client.handlers.steps import Handlers, Steps
from node.client.transaction import Transaction


def flow(channel: Channel, method: ChannelFlow) -> None:
    """Handle channel.flow, of which only active=true is implemented, which changes nothing."""
    if not method.active:
        raise ProtocolError(ReplyCode.NOT_IMPLEMENTED, "active=false")
    channel.send(ChannelFlowOk(active=True))


def access_request(channel: Channel, method: AccessRequest) -> None:
    """Handle access.request, of AMQP 0-8: its ticket is never looked at."""
    channel.send(AccessRequestOk(ticket=1))


def confirm_select(channel: Channel, method: ConfirmSelect) -> None:
    """Handle confirm.select."""
    if channel.transaction is not None:
        raise ProtocolError(ReplyCode.PRECONDITION_FAILED, "cannot switch from tx to confirm mode")
    channel.confirms = channel.confirms or Confirms()
    if not method.nowait:
        channel.send(ConfirmSelectOk())


def tx_select(channel: Channel, method: TxSelect) -> None:
    """Handle tx.select."""
    if channel.confirms is not None:
        raise ProtocolError(ReplyCode.PRECONDITION_FAILED, "cannot switch from confirm to tx mode")
    channel.transaction = channel.transaction or Transaction(channel.connection)
    channel.send(TxSelectOk())


def tx_commit(channel: Channel, method: TxCommit) -> Steps:
    """Handle tx.commit; its answer waits for the disk as confirms do (§7.5)."""
    yield from _open_transaction(channel).commit(channel)
    channel.send(TxCommitOk())


def tx_rollback(channel: Channel, method: TxRollback) -> None:
    """Handle tx.rollback: acknowledged messages are unacknowledged again, not requeued."""
    channel.unacked.restore(_open_transaction(channel).rollback())
    channel.send(TxRollbackOk())


def _open_transaction(channel: Channel) -> Transaction:
    if channel.transaction is None:
        raise ProtocolError(ReplyCode.PRECONDITION_FAILED, "channel is not transactional")
    return channel.transaction


HANDLERS: Final[Handlers] = {
    ChannelFlow: flow,
    AccessRequest: access_request,
    ConfirmSelect: confirm_select,
    TxSelect: tx_select,
    TxCommit: tx_commit,
    TxRollback: tx_rollback,
}
