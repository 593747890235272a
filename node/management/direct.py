"""Access to AMQP for the HTTP API in the name of a user, and the broker's refusals as HTTP errors.

Source: management §1.0 "Responses", §2.1 (writes need the user's own permissions).
"""

import contextlib
from collections.abc import AsyncIterator
from typing import Final

from node.admin.direct_client import DirectClient, DirectTimeout
from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.management.call import Call
from node.management.reply import ApiError, bad_request, not_authorised, not_found, unavailable

NOBODYS_FAULT: Final = frozenset({ReplyCode.INTERNAL_ERROR, ReplyCode.CONNECTION_FORCED})
"""Errors that are not the client's: the metadata can't be changed now, without a majority, say; or the broker stops."""


@contextlib.asynccontextmanager
async def direct(call: Call, vhost: str) -> AsyncIterator[DirectClient]:
    """Open an AMQP client of this user. Raises, also out of the block: ApiError."""
    try:
        async with DirectClient(call.broker, call.user, vhost) as client:
            yield client
    except ProtocolError as error:
        raise api_error(error) from error
    except DirectTimeout as error:
        raise unavailable("the broker does not answer in time") from error


def api_error(error: ProtocolError) -> ApiError:
    """Convert an error of the broker to the HTTP error for the client."""
    match error.code:
        case ReplyCode.NOT_FOUND:
            return not_found(error.explanation)
        case ReplyCode.ACCESS_REFUSED | ReplyCode.NOT_ALLOWED:
            return not_authorised("Access refused.")
        case code if code in NOBODYS_FAULT:
            return unavailable(error.explanation)
        case _:
            return bad_request(error.explanation)
