"""The handlers of methods on an open channel, one file for each class of the protocol.

A handler is called with the channel and the method. It answers by `channel.send` and fails by ProtocolError.
One that changes the catalogue is a generator: it yields the command and is resumed with its result, at once on a
single node, after the commit in a cluster; until then the connection reads no further.
"""

from typing import Final

from node.client.handlers import basic, exchange, misc, queue
from node.client.handlers.steps import Handler, Handlers, Steps

HANDLERS: Final[Handlers] = {
    **exchange.HANDLERS,
    **queue.HANDLERS,
    **basic.HANDLERS,
    **misc.HANDLERS,
}
"""The handlers of all methods that a client may send on an open channel, but for publish and the close handshake."""

__all__ = ["HANDLERS", "Handler", "Steps"]
