"""The link of an exchange: a queue upstream gets what the bindings here ask for, and the link passes it on.

    upstream:  exchange x ─► internal exchange, bound as x is here ─► queue ─► link ─► exchange x here

Each attempt makes the internal exchange anew, under another suffix than the one that is there, has it bound, and only
then deletes the former one: what was unbound meanwhile is gone, and no message is missed. The queue stays, so it keeps
what comes while there is no link.
Source: RabbitMQ 3.10.8, `rabbit_federation_exchange_link`.
"""

from collections.abc import Callable, Collection, Generator
from typing import Final

from node.amqp.constants import ReplyCode
from node.amqp.field_table import Table, long, longstr
from node.amqp.methods import (
    BasicConsume,
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    QueueBind,
    QueueDeclare,
    QueueDelete,
)
from node.amqp_client.events import Answered, Closed, Delivered
from node.catalogue.records import Binding
from node.federation import hops
from node.federation.failure import Failure
from node.federation.link import MESSAGES, Attempt, LinkSession
from node.federation.names import (
    INTERNAL_PURPOSE,
    INTERNAL_TYPE,
    PURPOSE,
    SUFFIXES,
    bound_from,
    internal_exchange,
    upstream_queue,
)
from node.federation.rewriting import ContentRewriter
from node.federation.upstream_bindings import UpstreamBindings
from node.federation.upstream_calls import Call, RefusedCall, Steps
from node.override import override

CHECK_S: Final = 30.0
"""The time between two checks that the internal exchange upstream is still there, in seconds."""

_WATCHED: Final = (hops.RECEIVED_FROM.encode(),)


class ExchangeLink(LinkSession):
    """One attempt of an exchange's link.

    bindings: returns the bindings from the exchange here.   has_type: the upstream may have `x-federation-upstream`.
    """

    def __init__(
        self, attempt: Attempt, *, bindings: Callable[[], Collection[Binding]], has_type: bool = True
    ) -> None:
        super().__init__(attempt)
        of = self.link.key.of
        self._name, self._vhost = of.name, of.vhost
        self._source = self.link.upstream.exchange
        self.queue = upstream_queue(self._source, self.peer.vhost, of.name, of.vhost, self.cluster)
        self._internal = ""
        self._read_bindings = bindings
        self._bindings: UpstreamBindings | None = None
        self._has_type = has_type
        self._check_at = 0.0

    # --- bindings here ---

    def binding_added(self, binding: Binding) -> None:
        """Note a new binding from the exchange here."""
        if self._bindings is not None and self.failure is None:
            self._bindings.add(binding)
            self._send_bindings()

    def binding_removed(self, binding: Binding) -> None:
        """Note that a binding from the exchange here is gone."""
        if self._bindings is not None and self.failure is None:
            self._bindings.remove(binding)
            self._send_bindings()

    def _send_bindings(self) -> None:
        while self._bindings is not None and (change := self._bindings.take()) is not None:
            self._upstream.call(self.commands, change)

    @override
    def answered(self, event: Answered) -> None:
        if isinstance(event.request, ExchangeBind | ExchangeUnbind) and self._bindings is not None:
            self._bindings.answered()
            self._send_bindings()

    def _arguments_of(self, arguments: Table) -> Table | None:
        suffix = self._internal[-1:]
        return hops.binding_arguments(
            arguments,
            max_hops=self.link.upstream.max_hops,
            upstream=(self.peer.cluster, self.peer.vhost),
            downstream=(self.cluster, self._vhost),
            exchange=bound_from(self._name, self._vhost, suffix),
        )

    # --- set-up ---

    @override
    def set_up(self) -> Steps:
        yield Call(MESSAGES, self._queue_declaration())
        prefetch = self.prefetch()
        if prefetch is not None:
            yield Call(MESSAGES, prefetch)
        self.consume()
        yield from self._ensure_source()
        suffix = yield from self._free_suffix()
        self._internal = internal_exchange(self.queue, suffix)
        yield Call(self.commands, self._internal_declaration(self._internal))
        yield Call(self.commands, QueueBind(queue=self.queue, exchange=self._internal))
        self._bindings = bindings = UpstreamBindings(
            self._source, self._internal, self._arguments_of, nowait=self.link.upstream.bind_nowait
        )
        for binding in self._read_bindings():
            bindings.add(binding)
        self._send_bindings()
        for other in SUFFIXES:  # behind the bindings, as the answers to a channel's requests come in order
            while not bindings.is_settled:
                yield from self._fence()
            if other != suffix:
                yield Call(self.commands, ExchangeDelete(exchange=internal_exchange(self.queue, other)))
        self._check_at = self._now + CHECK_S

    def _fence(self) -> Steps:
        """Wait for the answers to all requests so far: a declaration that changes nothing is answered after them."""
        yield Call(self.commands, ExchangeDeclare(exchange=self._internal, type=self._type, passive=True))

    @property
    def _type(self) -> str:
        return INTERNAL_TYPE if self._has_type else "fanout"

    def _queue_declaration(self) -> QueueDeclare:
        upstream = self.link.upstream
        arguments: Table = {}
        if upstream.expires is not None:
            arguments["x-expires"] = long(upstream.expires)
        if upstream.message_ttl is not None:
            arguments["x-message-ttl"] = long(upstream.message_ttl)
        if upstream.ha_policy is not None:
            arguments["x-ha-policy"] = longstr(upstream.ha_policy)
        arguments[INTERNAL_PURPOSE] = longstr(PURPOSE)
        return QueueDeclare(queue=self.queue, durable=True, arguments=arguments)

    def _ensure_source(self) -> Steps:
        """Declare the exchange upstream as it is here, if there is none."""
        link = self.link
        declaration = ExchangeDeclare(
            exchange=self._source,
            type=link.type,
            durable=link.durable,
            auto_delete=link.auto_delete,
            internal=link.internal,
            arguments=link.arguments,
        )
        try:
            yield from self._calls.aside(ExchangeDeclare(exchange=self._source, type=link.type, passive=True))
        except RefusedCall as refusal:
            if refusal.code != ReplyCode.NOT_FOUND:
                raise
            yield Call(MESSAGES, declaration)

    def _free_suffix(self) -> Generator[Call, Answered, str]:
        """Return the first suffix whose exchange does not exist; the last one is made free if all do."""
        for suffix in SUFFIXES:
            name = internal_exchange(self.queue, suffix)
            try:
                yield from self._calls.aside(ExchangeDeclare(exchange=name, type=self._type, passive=True))
            except RefusedCall as refusal:
                if refusal.code != ReplyCode.NOT_FOUND:
                    raise
                return suffix
        yield Call(self.commands, ExchangeDelete(exchange=internal_exchange(self.queue, SUFFIXES[-1])))
        return SUFFIXES[-1]

    def _internal_declaration(self, name: str) -> ExchangeDeclare:
        arguments: Table = {INTERNAL_PURPOSE: longstr(PURPOSE)}
        if self._has_type:
            arguments = {
                "x-max-hops": long(self.link.upstream.max_hops),
                "x-downstream-name": longstr(self.cluster),
                "x-downstream-vhost": longstr(self._vhost),
                **arguments,
            }
        return ExchangeDeclare(
            exchange=name,
            type=self._type,
            durable=True,
            auto_delete=True,
            internal=True,
            arguments=arguments,
        )

    @override
    def failure_of_end(self, event: Closed) -> Failure:
        found = super().failure_of_end(event)
        awaited = self._calls.awaited
        is_of_type = isinstance(awaited, ExchangeDeclare) and not awaited.passive and awaited.internal
        if is_of_type and event.code == ReplyCode.COMMAND_INVALID and self._has_type:
            return found._replace(lacks_type=True)
        return found

    @override
    def consumer(self) -> BasicConsume | None:
        no_ack = self.link.upstream.ack_mode == "no-ack"
        return BasicConsume(queue=self.queue, consumer_tag=self.link.upstream.consumer_tag, no_ack=no_ack)

    @override
    def delete_resources(self) -> Steps:
        yield Call(self.commands, QueueDelete(queue=self.queue))
        for suffix in SUFFIXES:
            yield Call(self.commands, ExchangeDelete(exchange=internal_exchange(self.queue, suffix)))

    # --- checks ---

    @property
    @override
    def due_at(self) -> float:
        return min(super().due_at, self._check_at) if self._check_at else super().due_at

    @override
    def due(self, now: float) -> None:
        super().due(now)
        if self._check_at and now >= self._check_at:
            self._check_at = now + CHECK_S
            if not self._calls.is_busy:
                self._calls.begin(self._check())

    def _check(self) -> Steps:
        """Fail if the internal exchange upstream is gone, as no more messages would come."""
        try:
            yield from self._calls.aside(
                ExchangeDeclare(exchange=self._internal, type=self._type, passive=True)
            )
        except RefusedCall as refusal:
            if refusal.code == ReplyCode.NOT_FOUND:
                self._warn(f"detected internal upstream exchange changes, restarting link: {refusal.text}")
                raise
            self._warn(f"internal upstream exchange check failed: {refusal.code} {refusal.text}")

    # --- messages ---

    @override
    def publish_to(self, routing_key: str) -> tuple[str, str]:
        return self._name, routing_key

    @override
    def rewriter_key(self, event: Delivered) -> tuple[bool, str, str]:
        return event.redelivered, "", ""

    @override
    def rewriter(self, event: Delivered) -> ContentRewriter:
        peer, upstream = self.peer, self.link.upstream
        own = hops.exchange_entry(
            peer.uri, self._source, peer.cluster, peer.vhost, redelivered=event.redelivered
        )

        def rewrite(headers: Table | None) -> Table | None:
            if not hops.may_go_on(headers, upstream.max_hops, self.cluster, self._vhost):
                return None
            return hops.prepended(headers, hops.RECEIVED_FROM, own)

        first = hops.prepended(None, hops.RECEIVED_FROM, own)
        return ContentRewriter(first, _WATCHED, rewrite, keeps_user_id=upstream.trust_user_id)
