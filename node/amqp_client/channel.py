"""One channel of a client's connection: its requests without an answer, and its publishes without a confirm."""

from collections import deque
from typing import Final

from node.amqp import methods as m
from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.methods import Method
from node.amqp_client.unconfirmed import Unconfirmed

UNANSWERED_MAX: Final = 4096
"""The limit of requests of a channel that wait for their answers: more are our own bug."""

ANSWERS: Final[dict[type[Method], tuple[type[Method], ...]]] = {
    m.ChannelOpen: (m.ChannelOpenOk,),
    m.ChannelClose: (m.ChannelCloseOk,),
    m.ChannelFlow: (m.ChannelFlowOk,),
    m.ExchangeDeclare: (m.ExchangeDeclareOk,),
    m.ExchangeDelete: (m.ExchangeDeleteOk,),
    m.ExchangeBind: (m.ExchangeBindOk,),
    m.ExchangeUnbind: (m.ExchangeUnbindOk,),
    m.QueueDeclare: (m.QueueDeclareOk,),
    m.QueueBind: (m.QueueBindOk,),
    m.QueuePurge: (m.QueuePurgeOk,),
    m.QueueDelete: (m.QueueDeleteOk,),
    m.QueueUnbind: (m.QueueUnbindOk,),
    m.BasicQos: (m.BasicQosOk,),
    m.BasicConsume: (m.BasicConsumeOk,),
    m.BasicCancel: (m.BasicCancelOk,),
    m.BasicGet: (m.BasicGetOk, m.BasicGetEmpty),
    m.BasicRecover: (m.BasicRecoverOk,),
    m.ConfirmSelect: (m.ConfirmSelectOk,),
    m.TxSelect: (m.TxSelectOk,),
    m.TxCommit: (m.TxCommitOk,),
    m.TxRollback: (m.TxRollbackOk,),
}
"""The requests of a channel, and what may answer them."""


class ClientChannel:
    """The state of one channel."""

    __slots__ = ("is_closing", "requests", "unconfirmed")

    def __init__(self) -> None:
        self.requests: deque[Method] = deque()
        """The requests without an answer, in their order; the broker answers in that order."""
        self.unconfirmed: Unconfirmed | None = None
        """The publishes, once the channel is in confirm mode."""
        self.is_closing = False
        """True if `channel.close` was sent: all that comes before its answer is dropped."""

    def expect(self, request: Method) -> None:
        """Note a request that will be answered."""
        assert len(self.requests) < UNANSWERED_MAX
        self.requests.append(request)

    def select_confirms(self) -> None:
        """Count the publishes from now on; a second time changes nothing."""
        if self.unconfirmed is None:
            self.unconfirmed = Unconfirmed()

    def confirms(self) -> Unconfirmed:
        """Return the publishes.   Raises: ProtocolError if the channel is not in confirm mode."""
        if self.unconfirmed is None:
            raise ProtocolError(ReplyCode.UNEXPECTED_FRAME, "a confirm was not expected")
        return self.unconfirmed

    def answered(self, answer: Method) -> Method:
        """Return the request that this answers.   Raises: ProtocolError if it answers none."""
        request = self.requests[0] if self.requests else None
        if request is None or not isinstance(answer, ANSWERS[type(request)]):
            raise ProtocolError(ReplyCode.UNEXPECTED_FRAME, f"{answer.name} was not expected")
        return self.requests.popleft()
