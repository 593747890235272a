"""Numbers of AMQP 0-9-1 that more than one file needs.

Source: AMQP 0-9-1 specification §4.2; amqp-behaviour §0.2, §10.
"""

from enum import IntEnum
from typing import Final

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"

FRAME_METHOD: Final = 1
FRAME_HEADER: Final = 2
FRAME_BODY: Final = 3
FRAME_HEARTBEAT: Final = 8
FRAME_END: Final = 206

FRAME_OVERHEAD_BYTES: Final = 8
"""The bytes of a frame beside its payload: type (1), channel (2), size (4), end octet (1). `frame_max` has them."""

FRAME_MIN_SIZE_BYTES: Final = 4096
"""The smallest `frame_max` that a peer may ask for, and the limit before tune-ok."""

CLASS_BASIC: Final = 60


class ReplyCode(IntEnum):
    """Reply codes of `connection.close`, `channel.close` and `basic.return`."""

    REPLY_SUCCESS = 200
    CONTENT_TOO_LARGE = 311
    NO_ROUTE = 312
    NO_CONSUMERS = 313
    CONNECTION_FORCED = 320
    INVALID_PATH = 402
    ACCESS_REFUSED = 403
    NOT_FOUND = 404
    RESOURCE_LOCKED = 405
    PRECONDITION_FAILED = 406
    FRAME_ERROR = 501
    SYNTAX_ERROR = 502
    COMMAND_INVALID = 503
    CHANNEL_ERROR = 504
    UNEXPECTED_FRAME = 505
    RESOURCE_ERROR = 506
    NOT_ALLOWED = 530
    NOT_IMPLEMENTED = 540
    INTERNAL_ERROR = 541

    @property
    def closes_channel_only(self) -> bool:
        """True if the code is a soft error: it closes the channel and the connection lives on."""
        return self in _SOFT_ERRORS


_SOFT_ERRORS: Final = frozenset(
    {
        ReplyCode.CONTENT_TOO_LARGE,
        ReplyCode.NO_ROUTE,
        ReplyCode.NO_CONSUMERS,
        ReplyCode.ACCESS_REFUSED,
        ReplyCode.NOT_FOUND,
        ReplyCode.RESOURCE_LOCKED,
        ReplyCode.PRECONDITION_FAILED,
    }
)


CODES_WITHOUT_IDS: Final = frozenset(
    {
        ReplyCode.FRAME_ERROR,
        ReplyCode.UNEXPECTED_FRAME,
        ReplyCode.INTERNAL_ERROR,
    }
)
"""Codes of frame errors, which name no method unless the error says so."""
