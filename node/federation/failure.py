"""The reasons for which a link fails, in the words of RabbitMQ's status: a status, and an error as an Erlang term.

    status    error
    error     econnrefused                                                no connection upstream
    error     {auth_failure,"ACCESS_REFUSED - …"}                         wrong password
    shutdown  {server_initiated_close,404,<<"NOT_FOUND - no queue …">>}   a request was refused
    error     basic_cancel                                                the queue upstream was deleted

Source: RabbitMQ 3.10.8, `rabbit_federation_link_util`.
"""

from typing import Final, NamedTuple

from node.amqp.constants import ReplyCode
from node.amqp.erlang import binary_literal, string_literal
from node.amqp_client.events import ChannelClosed, Closed
from node.amqp_client.phase import Phase

REASON_MAX: Final = 500
"""The most characters of another broker's text that are shown."""


class Failure(NamedTuple):
    """The end of an attempt.

    status, error: as operators see them.   has_worked: the link was running.
    lacks_type: the upstream has no exchange type `x-federation-upstream`.
    """

    status: str
    error: str
    has_worked: bool = False
    lacks_type: bool = False


BASIC_CANCEL: Final = Failure("error", "basic_cancel")
NO_PRIORITIES: Final = Failure("error", "upstream_lacks_consumer_priorities")


def unreachable(reason: str) -> Failure:
    """Return the failure of a connection that could not be made."""
    return Failure("error", reason[:REASON_MAX])


def refused(code: int, text: str, *, has_worked: bool) -> Failure:
    """Return the failure of a request that the upstream has refused, or for which it has closed a channel."""
    return Failure("shutdown", _closed_by_server(code, text), has_worked)


def disconnected(event: Closed, *, has_worked: bool) -> Failure:
    """Return the failure of a connection upstream that has ended."""
    text = event.text[:REASON_MAX]
    if event.phase is Phase.AUTHENTICATING and event.code in (0, ReplyCode.ACCESS_REFUSED):
        if event.code:
            return Failure("error", f"{{auth_failure,{string_literal(text)}}}")
        return Failure("error", text or "closed")
    if event.phase < Phase.RUNNING:
        is_vhost = event.phase is Phase.OPENING and event.code in (
            ReplyCode.NOT_ALLOWED,
            ReplyCode.ACCESS_REFUSED,
        )
        return Failure("error", "not_allowed" if is_vhost else text or "closed")
    if event.code:
        return Failure("shutdown", _closed_by_server(event.code, text), has_worked)
    return Failure("shutdown", text or "closed", has_worked)


def downstream_closed(event: ChannelClosed | Closed) -> Failure:
    """Return the failure of the connection or channel here."""
    text = _closed_by_server(event.code, event.text[:REASON_MAX]) if event.code else event.text
    return Failure("downstream_channel_down", text, has_worked=True)


def _closed_by_server(code: int, text: str) -> str:
    literal = binary_literal(text[:REASON_MAX].encode("utf-8", "surrogateescape"))
    return f"{{server_initiated_close,{code},{literal}}}"
