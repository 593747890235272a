"""The life of a channel number as a table, the server's side.

    (no entry) ─channel.open► OPEN ─peer's close► (no entry)
                              OPEN ─our close► CLOSING ─close-ok► (no entry)

While CLOSING, everything but close (answered) and close-ok is dropped in silence. A method on a number
without an entry, or an open on one with an entry, closes the connection.
Source: amqp-behaviour §2.1, §2.2.
"""

from enum import Enum, auto

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.methods import ChannelClose, ChannelCloseOk, ChannelOpen, Method


class ChannelState(Enum):
    """The state of a channel number; a number that was never opened has no state."""

    OPEN = auto()
    CLOSING = auto()


class Step(Enum):
    """The work to do for a method that came on a channel."""

    OPEN = auto()
    HANDLE = auto()
    CLOSE = auto()
    """The peer closes: clean up, answer close-ok, forget the number."""
    ANSWER_CLOSE = auto()
    """The peer's close crossed ours: answer close-ok and still wait for its close-ok."""
    FORGET = auto()
    """The peer's close-ok came: the number is free."""
    IGNORE = auto()


def step(state: ChannelState | None, method: type[Method]) -> Step:
    """Return the edge that `method` takes from `state` (None: no such channel).

    Raises: ProtocolError 504 or 503, which end the connection.
    """
    ids = method.class_id, method.method_id
    if method is ChannelOpen:
        if state is not None:
            raise ProtocolError(ReplyCode.CHANNEL_ERROR, "second 'channel.open' seen", *ids)
        return Step.OPEN
    if state is None:
        raise ProtocolError(ReplyCode.CHANNEL_ERROR, "expected 'channel.open'", *ids)
    if state is ChannelState.CLOSING:
        if method is ChannelClose:
            return Step.ANSWER_CLOSE
        return Step.FORGET if method is ChannelCloseOk else Step.IGNORE
    if method is ChannelClose:
        return Step.CLOSE
    if method is ChannelCloseOk:
        raise ProtocolError(ReplyCode.COMMAND_INVALID, "unimplemented method", *ids)
    return Step.HANDLE
