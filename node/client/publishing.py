"""The path of a publish up to its queues: checks in RabbitMQ's order, routing, and the envelope.

`open_route` does the part that depends on the method frame alone, once for all publishes with the same frame; the
connection caches its result. `make_envelope` does the part that depends on the traits, once for all messages with the
same traits on that route.
Source: amqp-behaviour §4.1; the numbers in comments are its steps.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from node.amqp.constants import ReplyCode
from node.amqp.erlang import string_literal, tagged_tuple
from node.amqp.errors import ProtocolError
from node.amqp.field_table import Table
from node.amqp.methods import BasicPublish
from node.amqp.properties import PERSISTENT, TRANSIENT, Traits
from node.catalogue.access import check_resource, check_topic, check_user_id
from node.catalogue.exchange_queues import is_exchange_queue
from node.catalogue.names import not_found, resource
from node.client.header_routes import HeaderRoutes, Room
from node.client.interception import AT_ONCE_MAX, InterceptedChannel, Publishing
from node.client.reply_to import is_reply_name
from node.client.series import Address
from node.extension.interceptor import PublishTarget
from node.queue.content import decode_content, encode_content
from node.queue.intake import Targets
from node.queue.run import Envelope

if TYPE_CHECKING:
    from node.client.channel import Channel
    from node.queue.live_queue import LiveQueue

ROUTES_MAX: Final = 8192
"""The most routes that a connection remembers, at about 700 bytes each; with more distinct publishes it starts over."""

_COPIES_AT_ONCE: Final = 16384
_RULED_AT_ONCE: Final = 16
"""The most messages that are published at once if queues' rules look at each, at some 20 us a message."""

EXPIRATION_MAX_MS: Final = 315360000000
"""Ten years, RabbitMQ's limit for every time to live."""

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_DELIVERY_MODES: Final = (None, 1, 2)


class Target(NamedTuple):
    """An exchange that a user may publish to, as long as the catalogue doesn't change.

    is_topic: the routing key needs permission too.   headers_asked: routing looks at these of each message's headers.
    varies: routing depends on each message in other ways.
    """

    is_topic: bool
    headers_asked: Collection[bytes]
    varies: bool


class Route:
    """The checked and resolved target of all publishes with one method frame. Valid for one version of the
    catalogue.

    targets: the queues that it leads to.
    looks_at_each: routing depends on each message, by its headers or otherwise, or leads to a direct reply.
    headers_asked: the names of those headers.   by_headers: the targets, where they depend on headers alone.
    at_once_max: messages of a run that are published before the clock is looked at again.
    counters: of the exchange.
    traits, envelope: of the last messages, used again while the traits stay the same.
    """

    __slots__ = (
        "at_once_max",
        "by_headers",
        "channel",
        "counters",
        "envelope",
        "exchange",
        "headers_asked",
        "looks_at_each",
        "mandatory",
        "routing_key",
        "targets",
        "traits",
    )

    def __init__(
        self,
        channel: "Channel",
        publish: BasicPublish,
        queues: "Sequence[LiveQueue]",
        *,
        looks_at_each: bool,
        headers_asked: Collection[bytes] = (),
        by_headers: HeaderRoutes | None = None,
    ) -> None:
        self.by_headers = by_headers
        self.channel: Publishing = channel
        self.exchange = publish.exchange
        self.routing_key = publish.routing_key
        self.counters = channel.broker.vhosts[channel.connection.vhost].count(publish.exchange)
        self.mandatory = publish.mandatory
        self.targets = Targets(queues)
        self.looks_at_each = looks_at_each
        self.headers_asked = headers_asked
        if looks_at_each:
            self.at_once_max = 1  # it may have ten thousand headers
        elif all(queue.is_plain for queue in queues):
            self.at_once_max = max(1, _COPIES_AT_ONCE // (1 + len(queues)))
        else:
            self.at_once_max = _RULED_AT_ONCE
        self.traits: Traits | None = None
        self.envelope: Envelope | None = None


_NO_ADDRESSES: Final[Mapping[bytes, Address]] = {}


class Routes:
    """The routes that a connection remembers, by the whole method frame of the publish."""

    def __init__(self) -> None:
        self._routes: dict[bytes, Route] = {}
        self._addresses: dict[tuple[int, bool], dict[bytes, Address]] = {}
        """The addresses of routes that series may have, by channel and by whether messages are persistent."""
        self._targets: dict[str, Target] = {}
        self._room = Room()
        self._version = -1

    def find(self, method_frame: bytes, version: int) -> Route | None:
        """Return the route of a publish, if it was opened under this version of the catalogue."""
        if version != self._version:
            self.renew(version)
        return self._routes.get(method_frame)

    def renew(self, version: int) -> None:
        """Forget the routes that were opened under another version of the catalogue, which may keep deleted queues."""
        if version != self._version:
            self.forget()
            self._version = version

    def allow(self, channel: "Channel", exchange: str) -> None:
        """Have publishes to an exchange be routed without a check, until routes are renewed."""
        if exchange not in self._targets:
            self._targets[exchange] = _target(channel, exchange)

    def forget(self) -> None:
        """Forget all routes and exchanges, as the rights that allowed them have to be asked for again."""
        self.clear()
        self._targets.clear()

    def known_addresses(
        self, channel: "Channel | None", traits: Traits, content_bytes: int
    ) -> Mapping[bytes, Address]:
        """Return the addresses that a series of a channel may have, by their method frames.

        content_bytes: of each content; those that go to the message store are published one by one.
        """
        if channel is None or (traits is not TRANSIENT and traits is not PERSISTENT):
            return _NO_ADDRESSES
        looks_at_each = channel.pairs is not None or channel.vhost.tracer is not None
        if looks_at_each or channel.transaction is not None or channel.connection.spreading.is_on:
            return _NO_ADDRESSES
        broker = channel.broker
        if content_bytes >= min(broker.storage.embed_max_bytes, broker.settings.message_max_bytes):
            return _NO_ADDRESSES
        self.renew(broker.catalogue.version)
        return self._addresses.get((channel.number, traits is PERSISTENT), _NO_ADDRESSES)

    def note(self, method_frame: bytes, route: Route) -> None:
        """Note the address of a route that was just published along for the first time, if series may have it."""
        address = _address_of(route)
        if address is not None and method_frame in self._routes:
            key = address.envelope.channel, address.envelope.persistent
            self._addresses.setdefault(key, {})[method_frame] = address

    def open(self, channel: "Channel", publish: BasicPublish, method_frame: bytes) -> Route:
        """Open a route and remember it; see `open_route`."""
        if len(self._routes) >= ROUTES_MAX or self._room.is_full:
            self.clear()
        route = open_route(channel, publish, self._targets, self._room)
        if channel.broker.interceptors:
            _intercept(route, channel)
        self._routes[method_frame] = route
        return route

    def __len__(self) -> int:
        return len(self._routes)

    def clear(self) -> None:
        """Forget all routes, as a channel was closed: each route belongs to a channel."""
        self._routes.clear()
        self._addresses.clear()
        self._room = Room()


def _address_of(route: Route) -> Address | None:
    """Return the address of a route that was just published along; None: it is not for series."""
    targets, envelope = route.targets, route.envelope
    if envelope is None or (route.traits is not TRANSIENT and route.traits is not PERSISTENT):
        return None
    if route.looks_at_each or route.at_once_max <= _RULED_AT_ONCE:  # also for interceptors
        return None
    if targets.count != 1 or targets.leaves_node or targets.is_history_only:
        return None
    (queue,) = targets.near
    return Address(envelope, queue, route.counters)


def _intercept(route: Route, channel: "Channel") -> None:
    """Have interceptors look at all messages of a route."""
    connection = channel.connection
    target = PublishTarget(
        connection.vhost, connection.user_name, connection.name, route.exchange, route.routing_key
    )
    broker = channel.broker
    route.at_once_max = min(route.at_once_max, AT_ONCE_MAX)
    route.by_headers = None  # interceptors change headers, so no two messages are known to be alike
    route.channel = InterceptedChannel(
        channel,
        broker.interceptors,
        target,
        channel.number,
        connection.frame_max_bytes,
        broker.exchange_types.failed,
    )


def open_route(channel: "Channel", publish: BasicPublish, targets: dict[str, Target], room: Room) -> Route:
    """Check a publish as far as its method goes, and route it.

    targets: the exchanges that were checked before, to be added to.   room: for what routes by headers remember.
    Raises: ProtocolError, of connection scope for `immediate`, else of channel scope.
    """
    vhost, name, key = channel.connection.vhost, publish.exchange, publish.routing_key
    check_not_immediate(publish)
    target = targets.get(name)
    if target is None:
        target = targets[name] = _open_target(channel, name)
    if not name:
        queue = None if is_exchange_queue(key) else channel.broker.vhosts[vhost].queues.get(key)
        if queue is not None and queue.settings.hold_until_header is not None:
            return _held_route(channel, publish, (queue,), room)
        return Route(channel, publish, (queue,) if queue else (), looks_at_each=is_reply_name(key))
    if target.is_topic:  # 6
        if (rights := channel.connection.rights) is not None:
            rights.require_topic(name, key)
        else:
            check_topic(channel.broker.catalogue, channel.connection.user_name, vhost, name, key, "write")
    if target.headers_asked or target.varies:
        by_headers = None if target.varies else _by_headers(channel, name, key, target.headers_asked, room)
        return Route(
            channel,
            publish,
            (),
            looks_at_each=True,
            headers_asked=target.headers_asked,
            by_headers=by_headers,
        )
    queues = channel.broker.route(vhost, name, (key,), None)
    if any(queue.settings.hold_until_header is not None for queue in queues):
        return _held_route(channel, publish, queues, room)
    return Route(channel, publish, queues, looks_at_each=False)


def _held_route(
    channel: "Channel", publish: BasicPublish, queues: "Sequence[LiveQueue]", room: Room
) -> Route:
    """Return the route to queues of which some hold messages until a time in their headers."""
    live = channel.vhost.queues
    by_headers = HeaderRoutes((), lambda _, content: queues, live, room)
    return Route(channel, publish, (), looks_at_each=True, by_headers=by_headers)


def _by_headers(
    channel: "Channel", exchange: str, key: str, asked: Collection[bytes], room: Room
) -> HeaderRoutes:
    broker, vhost, keys, live = channel.broker, channel.connection.vhost, (key,), channel.vhost.queues

    def find(headers: Table, content: bytes) -> "Sequence[LiveQueue]":
        return broker.route(vhost, exchange, keys, headers, content)

    return HeaderRoutes(asked, find, live, room)


def check_not_immediate(publish: BasicPublish) -> None:
    """Check step 1: `immediate` ends the connection."""
    if publish.immediate:
        raise ProtocolError(ReplyCode.NOT_IMPLEMENTED, "immediate=true")


def _open_target(channel: "Channel", name: str) -> Target:
    """Check that the user may publish to an exchange."""
    catalogue, vhost = channel.broker.catalogue, channel.connection.vhost
    if (rights := channel.connection.rights) is not None:  # 3
        rights.require_exchange(name)
    else:
        check_resource(catalogue, channel.connection.user_name, vhost, "exchange", name, "write")
    exchange = catalogue.exchange(vhost, name)
    if exchange is None:  # 4
        raise not_found("exchange", name, vhost)
    if exchange.internal:  # 5
        raise ProtocolError(
            ReplyCode.ACCESS_REFUSED, f"cannot publish to internal {resource('exchange', name, vhost)}"
        )
    return _target(channel, name)


def _target(channel: "Channel", name: str) -> Target:
    vhost = channel.connection.vhost
    exchange = channel.broker.catalogue.exchange(vhost, name)
    if exchange is None:
        raise not_found("exchange", name, vhost)
    router = channel.broker.vhosts[vhost].router
    return Target(exchange.type == "topic", router.headers_asked(name), router.varies(name))


def make_envelope(channel: "Channel", route: Route, traits: Traits) -> Envelope:
    """Check the claims of the properties, and make the envelope.

    Raises: ProtocolError 406.
    """
    if traits is not TRANSIENT and traits is not PERSISTENT:
        expiration_ms = _check_claims(channel, traits)
    else:
        expiration_ms = None
    return Envelope(
        route.exchange,
        route.routing_key,
        channel=channel.number,
        frame_max_bytes=channel.connection.frame_max_bytes,
        persistent=traits.persistent,
        priority=traits.priority or 0,
        expiration_ms=expiration_ms,
        cc=traits.cc,
        bcc=traits.bcc or (),
    )


def _check_claims(channel: "Channel", traits: Traits) -> int | None:
    """Check steps 7 to 10; return the expiration in milliseconds."""
    if traits.reply_to is not None and channel.reply_consumer is None:  # 7
        raise ProtocolError(ReplyCode.PRECONDITION_FAILED, "fast reply consumer does not exist")
    check_user_id(channel.connection.user, traits.user_id)  # 8
    expiration_ms = None if traits.expiration is None else _expiration_ms(traits.expiration)  # 9
    if traits.delivery_mode not in _DELIVERY_MODES:  # 10
        raise ProtocolError(
            ReplyCode.PRECONDITION_FAILED,
            f"invalid message: {{delivery_mode_unknown,{traits.delivery_mode}}}",
        )
    if traits.bad_sender_selected is not None:
        header, found = traits.bad_sender_selected
        raise ProtocolError(
            ReplyCode.PRECONDITION_FAILED,
            f"invalid message: {{unacceptable_type_in_header,{string_literal(header)},{found}}}",
        )
    return expiration_ms


def _expiration_ms(text: str) -> int:
    """Read an expiration as Erlang's `string:to_integer` does, with RabbitMQ's bounds."""
    number = _INTEGER.match(text)
    start = f"invalid expiration '{text}': "
    if number is None:
        problem = "no_integer"
    elif number.end() < len(text):
        problem = tagged_tuple("leftover_string", string_literal(text[number.end() :]), after=start)
    elif (value := int(number[0])) < 0:
        problem = tagged_tuple("value_negative", value, after=start)
    elif value > EXPIRATION_MAX_MS:
        problem = tagged_tuple("value_too_large", value, after=start)
    else:
        return value
    raise ProtocolError(ReplyCode.PRECONDITION_FAILED, start + problem)


def rewritten(channel: "Channel", content: bytes, traits: Traits) -> bytes:
    """Return the content as it is kept: without BCC (§4.1), and with the reply-to that leads back to the requester
    (§4.12).
    """
    if traits.bcc is None and traits.reply_to is None:
        return content
    properties, body = decode_content(content)
    if properties.headers is not None:
        properties.headers.pop("BCC", None)
    if traits.reply_to is not None:
        assert channel.reply_consumer is not None
        properties.reply_to = channel.reply_consumer.name
    return encode_content(properties, body, channel.number, channel.connection.frame_max_bytes)
