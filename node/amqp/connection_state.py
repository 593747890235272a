"""The life of a connection as a table: the states, and the methods of the connection class allowed in each.

A state is left only along these edges; a method without an edge is the peer's fault, and what that costs
depends on whether the connection was open yet (amqp-behaviour §1.3, §1.7). The table is the server's side.

    AWAIT_HEADER ─header► AWAIT_START_OK ─start-ok► [AWAIT_SECURE_OK ─secure-ok►]
        AWAIT_TUNE_OK ─tune-ok► AWAIT_OPEN ─open► OPEN
    up to tune-ok: a fault ► FAILED (silence, then reset)
    from then on: our close ► CLOSING ─close-ok► CLOSED          OPEN ─peer's close► CLOSED_BY_PEER
"""

from enum import Enum, auto
from typing import Final

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.methods import (
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionSecureOk,
    ConnectionStartOk,
    ConnectionTuneOk,
    ConnectionUpdateSecret,
    Method,
)


class ConnectionState(Enum):
    """The state of a connection."""

    AWAIT_HEADER = auto()
    AWAIT_START_OK = auto()
    AWAIT_SECURE_OK = auto()
    AWAIT_TUNE_OK = auto()
    AWAIT_OPEN = auto()
    OPEN = auto()
    CLOSING = auto()
    """Our connection.close was sent: everything but close and close-ok is ignored."""
    CLOSED_BY_PEER = auto()
    """The peer's close was answered: the socket stays until the peer closes it, or for the closing time-out."""
    FAILED = auto()
    """Nothing is read or sent any more, and after a pause the socket is reset."""
    CLOSED = auto()

    @property
    def is_handshake(self) -> bool:
        """True if the client isn't known yet, so that a fault gets silence and a reset."""
        return self in _HANDSHAKE


_HANDSHAKE: Final = frozenset(
    {
        ConnectionState.AWAIT_HEADER,
        ConnectionState.AWAIT_START_OK,
        ConnectionState.AWAIT_SECURE_OK,
        ConnectionState.AWAIT_TUNE_OK,
    }
)

LISTENING: Final = frozenset(
    {
        *_HANDSHAKE,
        ConnectionState.AWAIT_OPEN,
        ConnectionState.OPEN,
        ConnectionState.CLOSING,
    }
)
"""The states in which frames are processed."""

ACCEPTED: Final[dict[ConnectionState, frozenset[type[Method]]]] = {
    ConnectionState.AWAIT_HEADER: frozenset(),
    ConnectionState.AWAIT_START_OK: frozenset({ConnectionStartOk}),
    ConnectionState.AWAIT_SECURE_OK: frozenset({ConnectionSecureOk}),
    ConnectionState.AWAIT_TUNE_OK: frozenset({ConnectionTuneOk}),
    ConnectionState.AWAIT_OPEN: frozenset({ConnectionOpen}),
    ConnectionState.OPEN: frozenset({ConnectionClose, ConnectionUpdateSecret}),
    ConnectionState.CLOSING: frozenset({ConnectionClose, ConnectionCloseOk}),
    ConnectionState.CLOSED_BY_PEER: frozenset(),
    ConnectionState.FAILED: frozenset(),
    ConnectionState.CLOSED: frozenset(),
}
"""The methods on channel 0 that have an edge, by state."""


def unexpected_method(method: Method, state: ConnectionState) -> ProtocolError:
    """Return the error for a method that a connection may not receive in its state."""
    word = "running" if state is ConnectionState.OPEN else "opening"
    return ProtocolError(
        ReplyCode.CHANNEL_ERROR,
        f"unexpected method in connection state {word}",
        method.class_id,
        method.method_id,
    )
