"""Events as messages, as RabbitMQ's plug-in `rabbitmq_event_exchange` publishes them.

Each event is a message without a body to the exchange amq.rabbitmq.event; its routing key names the event, its headers
the objects. Events gather during the broker's work, and are published right after it.

Events of connections, channels and consumers are published by the node of the client. Changes of the catalogue reach
all nodes, so one publishes them: the first by name that is up. The user who made a change isn't known there: the header
says `unknown`, as RabbitMQ writes then.

    Node(observer=Observers(LogObserver(), events))  …  events.attach(broker)  …  submit(events.declaration)
Source: RabbitMQ 3.10.8, live: keys, headers, their order and their types. Arguments are tables here, where it prints
Erlang terms.
"""

from collections import deque
from collections.abc import Mapping
from functools import singledispatchmethod
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, TypeAlias

from node.amqp.field_table import Field, Table, array, boolean, long, longstr, table
from node.amqp.properties import PERSISTENT_MODE, Properties
from node.broker.internal_exchange import InternalExchange, declaration
from node.catalogue import events
from node.catalogue.commands import DeclareExchange
from node.catalogue.components import without_passwords
from node.catalogue.parameters import OPERATOR_POLICY, POLICY, VHOST_LIMITS
from node.catalogue.records import Binding, Json, User, UserLimits
from node.client.observer import Observer

if TYPE_CHECKING:
    from node.broker.broker import Broker
    from node.client.base_connection import BaseConnection
    from node.client.channel import Channel
    from node.queue.consumer import Consumer

Value: TypeAlias = "Json | Field"
"""A value from which a header is made."""

EVENT_EXCHANGE: Final = "amq.rabbitmq.event"

WAITING_MAX: Final = 10_000
"""The limit of events that wait to be published; with more the oldest are lost, as may happen in a large import."""

UNKNOWN_USER: Final = "unknown"

_AMQP: Final = "{0,9,1}"


class EventExchange(Observer):
    """Publishes events to the exchange in one vhost, from `attach` on."""

    def __init__(self, vhost: str = "/") -> None:
        self.vhost = vhost
        self._broker: Broker | None = None
        self._exchange: InternalExchange | None = None
        self._waiting: deque[tuple[str, Table, float]] = deque(maxlen=WAITING_MAX)
        self._users: dict[str, User] = {}

    @property
    def declaration(self) -> DeclareExchange:
        """The command that declares the exchange."""
        return declaration(self.vhost, EVENT_EXCHANGE)

    def attach(self, broker: "Broker") -> None:
        """Begin to publish events: changes that the broker has read at its start are none."""
        self._broker = broker
        self._exchange = InternalExchange(broker, self.vhost, EVENT_EXCHANGE, persistent=True)
        self._users = {user.name: user for user in broker.catalogue.users()}

    def _tell(self, key: str, headers: Mapping[str, Value], by: str | None = None) -> None:
        """Register an event, to be published soon.   by: the user who caused it; None: the event has no such header."""
        broker = self._broker
        if broker is None:
            return
        fields: Table = {} if by is None else {"user_who_performed_action": longstr(by)}
        fields.update((name, _field(value)) for name, value in headers.items())
        if not self._waiting:
            broker.timers.at(broker.now, self._publish)
        self._waiting.append((key, fields, broker.now + broker.epoch_s))

    def _publish(self, now: float) -> None:
        assert self._exchange is not None
        waiting = list(self._waiting)
        self._waiting.clear()
        for key, headers, time_s in waiting:
            route = self._exchange.open(key)
            if route is None:
                continue
            headers["timestamp_in_ms"] = long(int(time_s * 1000))
            properties = Properties(headers=headers, delivery_mode=PERSISTENT_MODE, timestamp=int(time_s))
            route.send(properties, b"")

    # --- connections, channels, consumers ---

    def login_tried(self, connection: "BaseConnection", user: str, problem: str) -> None:
        """Register `user.authentication.failure` if there is a problem, else `user.authentication.success`."""
        host, _ = _place(connection.peer.local)
        peer_host, peer_port = _place(connection.peer.address)
        headers: dict[str, Value] = {
            "ssl": connection.peer.is_tls,
            "auth_mechanism": connection.auth_mechanism,
            "protocol": _AMQP,
            "peer_port": peer_port,
            "peer_host": peer_host,
            "connection_name": connection.name,
            "host": host,
            "name": user,
            "connection_type": "network",
        }
        if problem:
            # RabbitMQ gives a list of the text's characters.
            self._tell("user.authentication.failure", {"error": problem, **headers})
        else:
            self._tell("user.authentication.success", headers)

    def opened(self, connection: "BaseConnection") -> None:
        """Register `connection.created`, but not for connections of the HTTP API."""
        if _is_direct(connection):
            return
        peer, tls = connection.peer, connection.peer.tls
        host, port = _place(peer.local)
        peer_host, peer_port = _place(peer.address)
        headers: dict[str, Value] = {
            "node": connection.broker.settings.node_name,
            "connected_at": connection.connected_at_ms,
            "client_properties": table(connection.client_properties),
            "channel_max": connection.channel_max,
            "frame_max": connection.frame_max_bytes,
            "timeout": connection.heartbeat.interval_s,
            "vhost": connection.vhost,
            "user": connection.user_name,
            "protocol": _AMQP,
            "ssl_hash": tls.hash if tls else "",
            "ssl_cipher": tls.cipher if tls else "",
            "ssl_key_exchange": tls.key_exchange if tls else "",
            "ssl_protocol": tls.protocol if tls else "",
            "auth_mechanism": connection.auth_mechanism,
            "peer_cert_validity": tls.validity if tls else "",
            "peer_cert_issuer": tls.issuer if tls else "",
            "peer_cert_subject": tls.subject if tls else "",
            "ssl": peer.is_tls,
            "peer_host": peer_host,
            "host": host,
            "peer_port": peer_port,
            "port": port,
            "name": connection.name,
            "pid": _pid(connection),
            "type": "network",
            **_own_name(connection),
        }
        self._tell("connection.created", headers, connection.user_name)

    def closed(self, connection: "BaseConnection", *, in_good_order: bool) -> None:
        """Register `connection.closed`, but not for a connection that never sent its properties, or of the HTTP API."""
        if _is_direct(connection) or not connection.auth_mechanism:
            return
        headers: dict[str, Value] = {
            "client_properties": table(connection.client_properties),
            "node": connection.broker.settings.node_name,
            "pid": _pid(connection),
            "name": connection.name,
            **_own_name(connection),
        }
        self._tell("connection.closed", headers)

    def channel_opened(self, channel: "Channel") -> None:
        """Register `channel.created`, but not for channels of the HTTP API."""
        connection = channel.connection
        if _is_direct(connection):
            return
        headers: dict[str, Value] = {
            "vhost": connection.vhost,
            "user": connection.user_name,
            "number": channel.number,
            "connection": _pid(connection),
            "name": f"{connection.name} ({channel.number})",
            "pid": _pid(channel.connection, channel),
        }
        self._tell("channel.created", headers, connection.user_name)

    def channel_closed(self, channel: "Channel") -> None:
        """Register `channel.closed`, but not for channels of the HTTP API."""
        connection = channel.connection
        if not _is_direct(connection):
            self._tell("channel.closed", {"pid": _pid(connection, channel)}, connection.user_name)

    def consumer_added(self, channel: "Channel", consumer: "Consumer") -> None:
        """Register `consumer.created` with the consumer's settings."""
        record = consumer.queue.record
        headers: dict[str, Value] = {
            "arguments": _arguments(consumer.arguments),
            "prefetch_count": consumer.prefetch,
            "queue": record.name,
            "vhost": record.vhost,
            "channel": _pid(channel.connection, channel),
            "ack_required": not consumer.no_ack,
            "exclusive": consumer.exclusive,
            "consumer_tag": consumer.tag,
        }
        self._tell("consumer.created", headers, channel.connection.user_name)

    def consumer_removed(self, channel: "Channel", consumer: "Consumer") -> None:
        """Register `consumer.deleted`."""
        record = consumer.queue.record
        headers: dict[str, Value] = {
            "queue": record.name,
            "vhost": record.vhost,
            "channel": _pid(channel.connection, channel),
            "consumer_tag": consumer.tag,
        }
        self._tell("consumer.deleted", headers, channel.connection.user_name)

    def alarm_set(self, node: str, resource: str) -> None:
        """Register `alarm.set` if the alarm is this node's own."""
        self._tell_alarm("alarm.set", node, resource)

    def alarm_cleared(self, node: str, resource: str, *, is_last: bool) -> None:
        """Register `alarm.cleared` if the alarm is this node's own."""
        self._tell_alarm("alarm.cleared", node, resource)

    def _tell_alarm(self, key: str, node: str, resource: str) -> None:
        if self._broker is not None and node == self._broker.settings.node_name:
            self._tell(key, {"name": f"{{resource_limit,{resource},'{node}'}}", "node": node})

    # --- the catalogue ---

    def changed(self, change: events.Event) -> None:
        """Register the event of a change of the catalogue: users' on each node, others on one node only."""
        if self._broker is None:
            return
        if isinstance(change, events.UserPut | events.UserDeleted):
            self._follow_user(change)
        elif self._tells_of_all:
            self._follow(change)

    @property
    def _tells_of_all(self) -> bool:
        """True if this node is the one that publishes the changes that reach all nodes."""
        assert self._broker is not None
        up = [name for name, member in self._broker.catalogue.members.items() if member.is_up]
        return not up or min(up) == self._broker.settings.node_name

    def _tell_change(self, key: str, headers: Mapping[str, Value]) -> None:
        self._tell(key, headers, UNKNOWN_USER)

    @singledispatchmethod
    def _follow(self, change: events.Event) -> None:
        """Ignore other changes: RabbitMQ has no event for them."""

    @_follow.register
    def _(self, change: events.VhostCreated) -> None:
        vhost = change.vhost
        tags: Json = list(vhost.tags)
        self._tell_change(
            "vhost.created", {"tags": tags, "description": vhost.description, "name": vhost.name}
        )

    @_follow.register
    def _(self, change: events.VhostDeleted) -> None:
        self._tell_change("vhost.deleted", {"name": change.name})

    @_follow.register
    def _(self, change: events.ExchangeCreated) -> None:
        record = change.exchange
        headers: dict[str, Value] = {
            "policy": "",
            "arguments": _arguments(record.arguments),
            "internal": record.internal,
            "auto_delete": record.auto_delete,
            "durable": record.durable,
            "type": record.type,
            "name": record.name,
            "vhost": record.vhost,
        }
        self._tell_change("exchange.created", headers)

    @_follow.register
    def _(self, change: events.ExchangeDeleted) -> None:
        record = change.exchange
        self._tell_change("exchange.deleted", {"name": record.name, "vhost": record.vhost})

    @_follow.register
    def _(self, change: events.QueueCreated) -> None:
        record = change.queue
        owner = record.exclusive_owner
        headers: dict[str, Value] = {
            "exclusive": owner is not None,
            "owner_pid": "" if owner is None else f"<{owner}.0>",
            "arguments": _arguments(record.arguments),
            "auto_delete": record.auto_delete,
            "durable": record.durable,
            "name": record.name,
            "vhost": record.vhost,
        }
        self._tell_change("queue.created", headers)

    @_follow.register
    def _(self, change: events.QueueDeleted) -> None:
        self._tell_change("queue.deleted", {"name": change.queue.name, "vhost": change.queue.vhost})

    @_follow.register
    def _(self, change: events.BindingAdded) -> None:
        self._tell_change("binding.created", _binding(change.binding))

    @_follow.register
    def _(self, change: events.BindingRemoved) -> None:
        self._tell_change("binding.deleted", _binding(change.binding))

    @_follow.register
    def _(self, change: events.PermissionsChanged) -> None:
        where: dict[str, Value] = {"vhost": change.vhost, "user": change.user}
        row = change.permission
        if row is None:
            self._tell_change("permission.deleted", where)
        else:
            rights: dict[str, Value] = {
                "read": row.read,
                "write": row.write,
                "configure": row.configure,
            }
            self._tell_change("permission.created", {**rights, **where})

    @_follow.register
    def _(self, change: events.TopicPermissionsChanged) -> None:
        where: dict[str, Value] = {"vhost": change.vhost, "user": change.user}
        row = change.permission
        if row is None:
            self._tell_change("topic.permission.deleted", where)
        else:
            rights: dict[str, Value] = {
                "read": row.read,
                "write": row.write,
                "exchange": change.exchange,
            }
            self._tell_change("topic.permission.created", {**rights, **where})

    @_follow.register
    def _(self, change: events.ParameterChanged) -> None:
        assert self._broker is not None
        catalogue = self._broker.catalogue
        if change.vhost is not None and change.component in (POLICY, OPERATOR_POLICY):
            self._policy_changed(change.vhost, change.name, operator=change.component == OPERATOR_POLICY)
            return
        place: dict[str, Value] = {"name": change.name, "component": change.component or "global"}
        if change.vhost is None:
            value = catalogue.global_parameter(change.name)
        else:
            set_value = catalogue.parameter(change.vhost, change.component, change.name)
            value = without_passwords(change.component, set_value)
            place["vhost"] = change.vhost
        if value is None:
            self._tell_change("parameter.cleared", place)
        else:
            self._tell_change("parameter.set", {"value": value, **place})
        if change.component == VHOST_LIMITS:
            limits = dict(value) if isinstance(value, Mapping) else {}
            key = "vhost.limits.cleared" if value is None else "vhost.limits.set"
            self._tell_change(key, {**limits, "name": "limits"})

    def _policy_changed(self, vhost: str, name: str, *, operator: bool) -> None:
        assert self._broker is not None
        place: dict[str, Value] = {"vhost": vhost, "name": name}
        policies = self._broker.catalogue.policies(vhost, operator=operator)
        policy = next((policy for policy in policies if policy.name == name), None)
        if policy is None:
            self._tell_change("operator.policy.cleared" if operator else "policy.cleared", place)
            return
        headers: dict[str, Value] = {
            "apply-to": policy.apply_to,
            "priority": policy.priority,
            "definition": dict(policy.definition),
            "pattern": policy.pattern,
        }
        # RabbitMQ tells of operator policies under the same key when they are set.
        self._tell_change("policy.set", {**headers, **place})

    # --- users: the event of a change depends on the user's former record ---

    def _follow_user(self, change: events.UserPut | events.UserDeleted) -> None:
        if isinstance(change, events.UserDeleted):
            self._users.pop(change.name, None)
            if self._tells_of_all:
                self._tell_change("user.deleted", {"name": change.name})
            return
        user = change.user
        former = self._users.get(user.name)
        self._users[user.name] = user
        if not self._tells_of_all:
            return
        if former is None:
            self._tell_change("user.created", {"name": user.name})
        elif former.password_hash != user.password_hash:
            what = "changed" if user.password_hash else "cleared"
            self._tell_change(f"user.password.{what}", {"name": user.name})
        if user.tags != (() if former is None else former.tags):
            tags: Json = list(user.tags)
            self._tell_change("user.tags.set", {"tags": tags, "name": user.name})
        before = UserLimits() if former is None else former.limits
        if user.limits != before:
            set_: dict[str, Value] = {}
            if user.limits.max_connections is not None:
                set_["max-connections"] = user.limits.max_connections
            if user.limits.max_channels is not None:
                set_["max-channels"] = user.limits.max_channels
            self._tell_change(
                "user.limits.set" if set_ else "user.limits.cleared",
                {**set_, "username": user.name, "name": "limits"},
            )


def _binding(binding: Binding) -> dict[str, Value]:
    return {
        "vhost": binding.vhost,
        "arguments": _arguments(binding.arguments),
        "routing_key": binding.routing_key,
        "destination_kind": binding.destination_kind,
        "destination_name": binding.destination,
        "source_kind": "exchange",
        "source_name": binding.source,
    }


def _arguments(arguments: Table) -> Field:
    """Return arguments as a table; RabbitMQ gives an empty array where there are none."""
    return table(arguments) if arguments else array([])


def _own_name(connection: "BaseConnection") -> dict[str, Json]:
    return {} if connection.client_name is None else {"user_provided_name": connection.client_name}


def _is_direct(connection: "BaseConnection") -> bool:
    """True if the connection is one of the HTTP API's, which last as long as a request."""
    return not connection.peer.local


def _pid(connection: "BaseConnection", channel: "Channel | None" = None) -> str:
    """Return the text that stands for an Erlang process."""
    return f"<{connection.id}.{0 if channel is None else channel.number}>"


def _place(address: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`, the host as Erlang prints an address: {127,0,0,1}."""
    host, _, port = address.rpartition(":")
    try:
        address_ = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host, int(port or 0)
    if address_.version == 4:
        parts = [str(octet) for octet in address_.packed]
    else:
        words = zip(address_.packed[::2], address_.packed[1::2], strict=True)
        parts = [str(high << 8 | low) for high, low in words]
    return f"{{{','.join(parts)}}}", int(port)


def _field(value: Value) -> Field:
    """Return a value in the type in which the plug-in writes it."""
    match value:
        case Field():
            return value
        case bool():
            return boolean(value)
        case int():
            return long(value)
        case float():
            return Field("d", value)
        case str():
            return longstr(value)
        case None:
            return Field("V", None)
        case list():
            return array([_field(each) for each in value])
        case _:
            return table({name: _field(each) for name, each in value.items()})
