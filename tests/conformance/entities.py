"""The tests of sections 3 and 6 share these helpers: refusals, routes, and users whose rights are read off a name."""

from collections.abc import Callable, Iterable
from typing import Any

from node.amqp.constants import FRAME_METHOD, ReplyCode
from node.amqp.field_table import Table, longstr
from node.amqp.method_codec import decode_method
from node.amqp.methods import (
    AccessRequest,
    AccessRequestOk,
    BasicPublish,
    BasicReturn,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ExchangeDeclare,
    ExchangeDeclareOk,
    Method,
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
)
from node.amqp.properties import Properties
from tests.kit.amqp_client import Channel, Connection

DEFAULT_EXCHANGE_REFUSED = "operation not permitted on the default exchange"


def no_queue(queue: str, vhost: str = "/") -> str:
    return f"no queue '{queue}' in vhost '{vhost}'"


def no_exchange(exchange: str, vhost: str = "/") -> str:
    return f"no exchange '{exchange}' in vhost '{vhost}'"


def locked(queue: str) -> str:
    """The explanation of 405, amqp-behaviour §3.7."""
    return (
        f"cannot obtain exclusive access to locked queue '{queue}' in vhost '/'. "
        "It could be originally declared on another connection or the exclusive property value "
        "does not match that of the original declaration."
    )


def access_refused(channel: Channel, what: str) -> str:
    """The explanation of 403 for a missing permission, amqp-behaviour §6.7.   what: e.g. "queue 'q'"."""
    peer = channel.connection
    return f"access to {what} in vhost '{peer.vhost}' refused for user '{peer.user}'"


def refused(channel: Channel, code: int, explanation: str, method: type[Method], **fields: object) -> None:
    """The method closes its channel with this code and text and its own ids. The channel is opened again."""
    channel.send(method, **fields)
    channel.expect_close(code, f"{ReplyCode(code).name} - {explanation}", method)
    channel.call(ChannelOpen)


def publish_refused(
    channel: Channel, code: int, explanation: str, exchange: str = "", routing_key: str = ""
) -> None:
    """As `refused`, of a publish."""
    channel.publish(exchange, routing_key, b"refused")
    channel.expect_close(code, f"{ReplyCode(code).name} - {explanation}", BasicPublish)
    channel.call(ChannelOpen)


def queue_exists(channel: Channel, queue: str) -> bool:
    """Ask by a passive declare, which any user may send and which keeps a queue with x-expires alive."""
    return _exists(channel, QueueDeclare, QueueDeclareOk, queue=queue)


def exchange_exists(channel: Channel, exchange: str) -> bool:
    """Ask by a passive declare, which any user may send."""
    return _exists(channel, ExchangeDeclare, ExchangeDeclareOk, exchange=exchange)


def _exists(channel: Channel, declare: type[Method], declare_ok: type[Method], **named: str) -> bool:
    channel.send(declare, passive=True, **named)
    answer = decode_method(channel.connection.next_frame(channel.number).payload)
    if isinstance(answer, declare_ok):
        return True
    assert isinstance(answer, ChannelClose), answer
    assert answer.reply_code == ReplyCode.NOT_FOUND, answer
    channel.send(ChannelCloseOk)
    channel.call(ChannelOpen)
    return False


def is_routed(channel: Channel, exchange: str, routing_key: str = "", headers: Table | None = None) -> bool:
    """Whether a mandatory message reaches a queue, seen by the missing basic.return."""
    properties = Properties(headers=headers) if headers is not None else b"\0\0"
    channel.publish(exchange, routing_key, b"probe", properties, mandatory=True)
    return not _returned_keys(channel)


def routed(channel: Channel, exchange: str, routing_keys: Iterable[str]) -> set[str]:
    """Return the routing keys with which a mandatory message reaches a queue."""
    keys = set(routing_keys)
    for key in keys:
        channel.publish(exchange, key, b"probe", mandatory=True)
    return keys - _returned_keys(channel)


def _returned_keys(channel: Channel) -> set[str]:
    """Take the returns up to now. The answer to access.request, sent last, marks their end."""
    channel.send(AccessRequest)
    returned: set[str] = set()
    while True:
        frame = channel.connection.next_frame(channel.number)
        if frame.type != FRAME_METHOD:
            continue
        method = decode_method(frame.payload)
        if isinstance(method, AccessRequestOk):
            return returned
        assert isinstance(method, BasicReturn), method
        returned.add(method.routing_key)


def declare_exchange(channel: Channel, exchange: str, type: str = "direct", **fields: Any) -> str:
    """Declare an exchange, give its name."""
    channel.call(ExchangeDeclare, exchange=exchange, type=type, **fields)
    return exchange


def bound_queue(channel: Channel, exchange: str, routing_key: str = "") -> str:
    """A queue of this connection, bound to the exchange."""
    queue = channel.declare(exclusive=True)
    channel.call(QueueBind, queue=queue, exchange=exchange, routing_key=routing_key)
    return queue


def alternate(exchange: str) -> Table:
    """Arguments of an exchange with this alternate."""
    return {"alternate-exchange": longstr(exchange)}


def take_unacked(channel: Channel, queue: str) -> int:
    """Get a message without settling it, give its tag."""
    content = channel.get(queue, no_ack=False)
    assert content
    tag: int = content.method.delivery_tag
    return tag


def limited_channel(make_user: Callable[..., str], connect: Callable[..., Connection]) -> Channel:
    """A channel of a user who may do with an entity what the letters before its name's first dash say.

    `c` configure, `w` write, `r` read, in this order: `name("cw")` may be configured and written.
    """
    user = make_user("/", "^cw?r?-", "^c?wr?-", "^c?w?r-")
    return connect(user, user).channel(1)
