"""A client's session: its queues, its subscriptions, and the state that outlives a connection.

    queue  …qos0   subscriptions with QoS 0 of a session that ends with its connection
    queue  …qos1   QoS 1; of a persistent session QoS 0, too
    queue  …qos2   deduplicating: QoS 2
    queue  …state  durable, one message          the state of QoS 2 of a persistent session
    binding        of a queue to the exchange    a subscription; of a persistent session with its options as arguments

The queues of a session that ends with its connection are deleted with it, and not durable. Those of a persistent one
are durable, so it is what its queues and their bindings are: any node can go on with it. There is a session to go on
with as long as there is its queue for QoS 1, which has a time to live from the first connection on.
Source: RabbitMQ 3.10.8, rabbit_mqtt_processor; MQTT 3.1.1 chapter 3.1.2.4; MQTT 5.0 chapter 4.1; docs/mqtt.md.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from node.mqtt.constants import NEVER_EXPIRES, VARIABLE_INTEGER_MAX
from node.mqtt.errors import MqttError
from node.mqtt.names import (
    QOS_2_EXCHANGE,
    RETAINED_EXCHANGE,
    ROUTING_KEY_MAX_BYTES,
    WILLS_EXCHANGE,
    fits,
    shared_queue,
    state_queue,
    subscription_queue,
)
from node.mqtt.outgoing import Source
from node.mqtt.packets import Subscription
from node.mqtt.reason_codes import ReasonCode
from node.mqtt.settings import MqttSettings
from node.mqtt.steps import Ask, NodeRefused, Steps, granted, reason_of
from node.mqtt.stored_state import StoredState
from node.mqtt.subscriptions import SUBSCRIPTIONS_MAX, Match, Subscribed, Subscriptions
from node.mqtt.topics import Shared, check_topic_filter, shared_subscription
from node.plugins import Delivery, Field, Properties, QueueBinding, Session, Table, longstr

QOS_ARGUMENT: Final = "x-mqtt-qos"
OPTIONS_ARGUMENT: Final = "x-mqtt-options"
IDENTIFIER_ARGUMENT: Final = "x-mqtt-subscription-id"
FILTER_ARGUMENT: Final = "x-mqtt-filter"
"""The arguments of a binding that is a subscription; each is left out where its default holds."""

SHARED_MAX: Final = 1000
"""The shared subscriptions of one session; more are refused with `Quota exceeded`.

Each has a queue and a consumer of its own, whose messages wait in the node for a client that acknowledges nothing.
"""

SHARED_QOS_MAX: Final = 1
"""What a shared subscription is granted: its messages may go to another member when a connection is lost."""

_NO_LOCAL, _AS_PUBLISHED = 1, 2

_QOS_2_ARGUMENTS: Final[Table] = {
    "x-cache-size": Field("l", 200_000),
    "x-cache-ttl": Field("l", 86_400_000),
    "x-cache-persistence": longstr("disk"),
}
"""For how long the broker remembers the ids of messages with QoS 2: the client sends none again after its PUBREL."""

_SNAPSHOTS: Final = 2
"""The snapshots that the queue keeps: one that a former connection has sent may come behind that of the next one."""

_STATE_MAX: Final = 100
"""The most snapshots that are read when a session is resumed; there are one or two."""


class Start(NamedTuple):
    """The session that a CONNECT asks for.

    is_clean: what a former session has left is dropped.   expiry_s: for how long the session outlives its connection;
    0: it ends with it.
    """

    client_id: str
    is_clean: bool
    expiry_s: int


class ClientSession:
    """The session of one client, while it is connected.

    source: told of each consumer that begins.   forget: told of each that was cancelled.
    """

    def __init__(
        self,
        node: Session,
        settings: MqttSettings,
        start: Start,
        *,
        prefetch: int,
        on_state_lost: Callable[[], None],
    ) -> None:
        self._node = node
        self._settings = settings
        self._client_id = start.client_id
        self._is_clean = start.is_clean
        self.expiry_s = start.expiry_s
        self.is_persistent = start.expiry_s > 0
        self._prefetch = prefetch
        self.subscriptions = Subscriptions(settings.as_delivered)
        self._on_state_lost = on_state_lost
        self.state = self._new_state()
        self._old_tags: list[int] = []  # of snapshots that a former connection has left
        self._shared: dict[str, Subscribed] = {}
        self._queues: set[int] = set()  # of which QoS there are queues, with a consumer
        self.sources: dict[str, Source] = {}
        self.forget: Callable[[str], None] = lambda consumer: None

    # --- begin and end ---

    def begin(self) -> Steps[bool]:
        """Drop or find what a former connection has left; return whether there is a session to go on with."""
        node, client_id = self._node, self._client_id
        names = {qos: subscription_queue(client_id, qos) for qos in range(3)}
        if node.find_queue(names[0]) is not None:
            yield partial(node.delete_queue, names[0])
        kept = node.find_queue(names[1])
        is_present = kept is not None and not kept.auto_delete and not self._is_clean
        if not is_present:
            for queue in (names[1], names[2], state_queue(client_id)):
                if node.find_queue(queue) is not None:
                    yield from granted(partial(node.delete_queue, queue))
        if is_present and kept is not None:
            self._read_expiry(kept.arguments)
            yield from self._read_state()
            for qos in (1, 2):
                for binding in node.bindings(names[qos]) or ():
                    self._read_binding(binding, qos)
        elif self.is_persistent:
            yield from granted(self._declare(1))
        return is_present

    def consume(self) -> Steps[None]:
        """Have the messages of a persistent session delivered."""
        if self.is_persistent:
            yield from self._consume(1)
            if self._node.find_queue(subscription_queue(self._client_id, 2)) is not None:
                yield from self._consume(2)
            for subscribed in list(self._shared.values()):
                shared = shared_subscription(subscribed.options.filter)
                assert shared is not None, subscribed
                yield from self._join(shared, subscribed)

    def end(self) -> Steps[None]:
        """Delete what outlives the connection: the client does not want it any more."""
        for queue in (
            *(subscription_queue(self._client_id, qos) for qos in range(3)),
            state_queue(self._client_id),
        ):
            if self._node.find_queue(queue) is not None:
                yield partial(self._node.delete_queue, queue)

    def let_go(self) -> None:
        """Forget the connection: it is gone."""
        self.forget = lambda consumer: None
        self._on_state_lost = lambda: None
        self.state.let_go()

    def _read_expiry(self, arguments: Table) -> None:
        """Take over the time after which the session ends: that of its queues is as they were declared."""
        if not self.is_persistent:
            self.is_persistent = True
            self.state = self._new_state()
        field = arguments.get("x-expires")
        value = None if field is None else field.value
        self.expiry_s = max(1, value // 1000) if isinstance(value, int) else NEVER_EXPIRES

    def _expires(self) -> Table:
        if not self.is_persistent or self.expiry_s == NEVER_EXPIRES:
            return {}
        return {"x-expires": Field("l", self.expiry_s * 1000)}

    # --- the exchanges of the broker's own ---

    def ensure(self, exchange: str) -> Steps[None]:
        """Make an exchange of the broker's own, if it is not there. Raises: NodeRefused."""
        node, topics = self._node, self._settings.exchange
        match exchange:
            case _ if exchange == RETAINED_EXCHANGE:
                type_, arguments = "x-retained", Table()
            case _ if exchange == QOS_2_EXCHANGE:
                type_ = "x-message-deduplication"
                # Nothing is bound to it, so all that passes goes on to its alternate exchange.
                arguments = {**_QOS_2_ARGUMENTS, "alternate-exchange": longstr(topics)}
            case _:
                type_, arguments = "fanout", Table()
        if not node.has_exchange(exchange):
            yield from granted(
                lambda on_done: node.declare_exchange(
                    exchange, type_, on_done, durable=True, internal=True, arguments=arguments, as_node=True
                )
            )
        if exchange == WILLS_EXCHANGE:
            for target in (topics, RETAINED_EXCHANGE):
                yield from granted(partial(node.bind_exchange, target, exchange, ""))

    # --- the stored state ---

    def _new_state(self) -> StoredState:
        publish = self._publish_state if self.is_persistent else None
        return StoredState(publish, self._on_state_lost, in_flight_max=self._prefetch)

    def _publish_state(self, snapshot: bytes, on_confirm: Callable[[bool], None]) -> None:
        queue = state_queue(self._client_id)
        properties = Properties(delivery_mode=2)

        def publish(refusal: object) -> None:
            if refusal is not None:
                on_confirm(False)
                return
            self._node.publish("", queue, properties, snapshot, confirmed, as_node=True)

        def confirmed(is_safe: bool) -> None:
            tags, self._old_tags = self._old_tags, []
            for tag in tags:
                self._node.ack(tag)
            on_confirm(is_safe)

        if self._node.find_queue(queue) is not None:
            publish(None)
            return
        arguments: Table = {**self._expires(), "x-max-length": Field("l", _SNAPSHOTS)}
        self._node.declare_queue(queue, publish, durable=True, arguments=arguments)

    def _read_state(self) -> Steps[None]:
        queue = state_queue(self._client_id)
        if self._node.find_queue(queue) is None:
            return
        found: list[Delivery] = []
        while len(found) < _STATE_MAX:
            message: Delivery | None = yield partial(self._node.get, queue)
            if message is None:
                break
            found.append(message)
        self.state.restore([each.body for each in found])
        self._old_tags = [each.tag for each in found]

    # --- queues ---

    def _declare(self, qos: int) -> Ask:
        queue = subscription_queue(self._client_id, qos)
        arguments = self._expires() if qos else {}
        if qos == 2:
            # A connection that takes over gets nothing before all that the former one had is back in its place.
            only_one = {"x-single-active-consumer": Field("t", True)}
            arguments = {**arguments, **only_one, "x-message-deduplication": Field("t", True)}
        return lambda on_done: self._node.declare_queue(
            queue,
            on_done,
            durable=self.is_persistent and qos > 0,
            auto_delete=not self.is_persistent or qos == 0,
            arguments=arguments,
        )

    def _consume(self, qos: int) -> Steps[None]:
        queue = subscription_queue(self._client_id, qos)
        self._queues.add(qos)
        self.sources[queue] = Source(qos, qos > 0)
        prefetch = self._prefetch if qos else 0
        yield lambda on_done: self._node.consume(
            queue, queue, lambda: on_done(None), no_ack=qos == 0, prefetch=prefetch
        )

    def _queue_qos(self, qos: int) -> int:
        """Return which queue the messages of a subscription come to."""
        return max(qos, 1) if self.is_persistent else qos

    # --- subscribe ---

    def subscribe(self, wanted: Subscription, identifier: int | None) -> Steps[int]:
        """Make a subscription; return the code for its SUBACK."""
        try:
            check_topic_filter(wanted.filter)
            shared = shared_subscription(wanted.filter)
        except MqttError as error:
            return error.code
        is_long = shared is not None and not fits(shared_queue(*shared))
        if is_long or not fits(self._settings.routing_key(wanted.filter), ROUTING_KEY_MAX_BYTES):
            return ReasonCode.TOPIC_FILTER_INVALID
        known = self.subscriptions.get(wanted.filter) or self._shared.get(wanted.filter)
        if known is None and len(self.subscriptions) + len(self._shared) >= SUBSCRIPTIONS_MAX:
            return ReasonCode.QUOTA_EXCEEDED
        if known is None and shared is not None and len(self._shared) >= SHARED_MAX:
            return ReasonCode.QUOTA_EXCEEDED
        granted_qos = wanted.qos if shared is None else min(wanted.qos, SHARED_QOS_MAX)
        options = wanted._replace(qos=granted_qos)
        subscribed = Subscribed(options, self._queue_qos(granted_qos), identifier)
        try:
            if shared is not None:
                yield from self._share(shared, subscribed, known)
            else:
                yield from self._subscribe(subscribed, known)
        except NodeRefused as refused:
            return reason_of(refused.refusal)
        return granted_qos

    def _subscribe(self, subscribed: Subscribed, known: Subscribed | None) -> Steps[None]:
        qos, options = subscribed.queue_qos, subscribed.options
        queue, key = subscription_queue(self._client_id, qos), self._settings.routing_key(options.filter)
        if qos not in self._queues:
            yield from granted(self._declare(qos))
            yield from self._consume(qos)
        exchange, node = self._settings.exchange, self._node
        arguments = self._arguments(subscribed)
        yield from granted(lambda on_done: node.bind(queue, exchange, key, on_done, arguments))
        self.subscriptions.put(subscribed)
        if known is not None:
            former = subscription_queue(self._client_id, known.queue_qos)
            before = self._arguments(known)
            if (former, before) != (queue, arguments):
                yield from granted(lambda on_done: node.unbind(former, exchange, key, on_done, before))
        is_wanted = options.retain_handling == 0 or (options.retain_handling == 1 and known is None)
        if is_wanted and node.has_exchange(RETAINED_EXCHANGE):
            # A new binding brings the retained messages, and is for nothing else.
            for change in (node.bind, node.unbind):
                yield from granted(partial(_bind, change, queue, RETAINED_EXCHANGE, key))

    def unsubscribe(self, filter_: str) -> Steps[int]:
        """End a subscription; return the code for its UNSUBACK in MQTT 5.0."""
        try:
            check_topic_filter(filter_)
            shared = shared_subscription(filter_)
        except MqttError as error:
            return error.code
        node, exchange = self._node, self._settings.exchange
        if shared is not None:
            if filter_ not in self._shared:
                return ReasonCode.NO_SUBSCRIPTION_EXISTED
            return (yield from self._leave(shared))
        known = self.subscriptions.get(filter_)
        if known is None:
            return ReasonCode.NO_SUBSCRIPTION_EXISTED
        queue, key = subscription_queue(self._client_id, known.queue_qos), self._settings.routing_key(filter_)
        arguments = self._arguments(known)
        try:
            yield from granted(lambda on_done: node.unbind(queue, exchange, key, on_done, arguments))
        except NodeRefused as refused:
            return reason_of(refused.refusal)
        self.subscriptions.remove(filter_)
        return ReasonCode.SUCCESS

    # --- bindings that are subscriptions ---

    def _arguments(self, subscribed: Subscribed) -> Table:
        """Return the arguments of a binding, by which another connection knows the subscription again."""
        if not self.is_persistent:
            return {}
        options, arguments = subscribed.options, Table()
        if options.qos != subscribed.queue_qos:
            arguments[QOS_ARGUMENT] = Field("b", options.qos)
        flags = _NO_LOCAL * options.no_local | _AS_PUBLISHED * options.retain_as_published
        if flags:
            arguments[OPTIONS_ARGUMENT] = Field("b", flags)
        if subscribed.identifier is not None:
            arguments[IDENTIFIER_ARGUMENT] = Field("l", subscribed.identifier)
        if self._settings.as_delivered(options.filter) != options.filter:
            arguments[FILTER_ARGUMENT] = longstr(options.filter)
        return arguments

    def _read_binding(self, binding: QueueBinding, queue_qos: int) -> None:
        """Take over a subscription of a former connection. AMQP's clients may have made other bindings."""
        if binding.exchange != self._settings.exchange:
            return
        values = {name: field.value for name, field in binding.arguments.items()}
        qos, flags = values.get(QOS_ARGUMENT, queue_qos), values.get(OPTIONS_ARGUMENT, 0)
        identifier, given = values.get(IDENTIFIER_ARGUMENT), values.get(FILTER_ARGUMENT)
        if not isinstance(qos, int) or not 0 <= qos <= 2 or not isinstance(flags, int):
            return
        if not isinstance(identifier, int) or not 0 < identifier <= VARIABLE_INTEGER_MAX:
            identifier = None
        filter_ = self._settings.topic_of(binding.routing_key)
        if isinstance(given, bytes):
            filter_ = given.decode("utf-8", "replace")
        try:
            check_topic_filter(filter_)
            shared = shared_subscription(filter_)
        except MqttError:
            return
        options = Subscription(filter_, qos, bool(flags & _NO_LOCAL), bool(flags & _AS_PUBLISHED))
        subscribed = Subscribed(options, queue_qos, identifier)
        if shared is None:
            self.subscriptions.put(subscribed)
        else:
            self._shared[filter_] = subscribed

    # --- shared subscriptions ---

    def _share(self, shared: Shared, subscribed: Subscribed, known: Subscribed | None) -> Steps[None]:
        """Join the members of a shared subscription. A persistent session has a binding to know it by again.

        Raises: NodeRefused.
        """
        node, exchange = self._node, self._settings.exchange
        queue, key = shared_queue(*shared), self._settings.routing_key(shared.filter)
        if node.find_queue(queue) is None:
            arguments = self._expires() or {"x-expires": Field("l", _SHARED_EXPIRES_MS)}
            yield from granted(
                lambda on_done: node.declare_queue(queue, on_done, durable=True, arguments=arguments)
            )
        yield from granted(lambda on_done: node.bind(queue, exchange, key, on_done))
        if known is not None:
            yield from self._leave(shared)
        if self.is_persistent:
            mark, arguments = (
                self._settings.routing_key(subscribed.options.filter),
                self._arguments(subscribed),
            )
            own = subscription_queue(self._client_id, 1)
            yield from granted(lambda on_done: node.bind(own, exchange, mark, on_done, arguments))
        yield from self._join(shared, subscribed)

    def _join(self, shared: Shared, subscribed: Subscribed) -> Steps[None]:
        queue, node = shared_queue(*shared), self._node
        filter_, qos = subscribed.options.filter, subscribed.options.qos
        if node.find_queue(queue) is None:
            return  # its time was over before the session was resumed
        identifiers = () if subscribed.identifier is None else (subscribed.identifier,)
        match = Match(qos, 0, True, subscribed.options.retain_as_published, identifiers)
        self._shared[filter_] = subscribed
        self.sources[queue] = Source(0, True, match)
        yield lambda on_done: node.consume(
            queue, queue, lambda: on_done(None), prefetch=max(1, self._prefetch // 4)
        )

    def _leave(self, shared: Shared) -> Steps[int]:
        queue, node = shared_queue(*shared), self._node
        filter_ = f"$share/{shared.share_name}/{shared.filter}"
        subscribed = self._shared.pop(filter_)
        yield lambda on_done: node.cancel(queue, lambda: on_done(None))
        self.forget(queue)
        if self.is_persistent:
            own, mark = subscription_queue(self._client_id, 1), self._settings.routing_key(filter_)
            arguments, exchange = self._arguments(subscribed), self._settings.exchange
            try:
                yield from granted(lambda on_done: node.unbind(own, exchange, mark, on_done, arguments))
            except NodeRefused as refused:
                return reason_of(refused.refusal)
        return ReasonCode.SUCCESS


_SHARED_EXPIRES_MS: Final = 60_000
"""A shared subscription of clients without persistent sessions ends so long after its last member has left."""


def _bind(
    change: Callable[..., None], queue: str, exchange: str, key: str, on_done: Callable[[object], None]
) -> None:
    change(queue, exchange, key, on_done, None, as_node=True)
