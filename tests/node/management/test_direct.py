"""Each refusal of the broker becomes a response over HTTP (management §1.0 "Responses", §2.1)."""

import pytest

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.management.direct import api_error


@pytest.mark.parametrize(
    ("code", "status", "error", "reason"),
    [
        (ReplyCode.NOT_FOUND, 404, "not_found", "why"),
        (ReplyCode.ACCESS_REFUSED, 401, "not_authorised", "Access refused."),
        (ReplyCode.NOT_ALLOWED, 401, "not_authorised", "Access refused."),
        (ReplyCode.PRECONDITION_FAILED, 400, "bad_request", "why"),
        (ReplyCode.RESOURCE_LOCKED, 400, "bad_request", "why"),
        (ReplyCode.COMMAND_INVALID, 400, "bad_request", "why"),
    ],
)
def test_refusals(code: ReplyCode, status: int, error: str, reason: str) -> None:
    found = api_error(ProtocolError(code, "why"))
    assert (found.status, found.error, found.reason) == (status, error, reason)


@pytest.mark.parametrize("code", [ReplyCode.INTERNAL_ERROR, ReplyCode.CONNECTION_FORCED])
def test_what_is_nobodys_fault(code: ReplyCode) -> None:
    """The broker stops, or could not write: try again later."""
    assert api_error(ProtocolError(code, "why")).status == 503
