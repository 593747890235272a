"""The link of a queue: it consumes upstream only while consumers here could take more than the queue has.

    a consumer here can take messages, and the queue here is empty ─► consume upstream, with priority -1
    else                                                           ─► cancel; what is on its way still comes

So a message moves only where it is wanted, and each of several brokers serves its own consumers first: consumers with
a priority below 0, as links are, count as none.
Source: RabbitMQ 3.10.8, `rabbit_federation_queue_link`, `rabbit_federation_queue`.
"""

from collections.abc import Callable
from typing import Final

from node.amqp.constants import ReplyCode
from node.amqp.field_table import Table, long
from node.amqp.methods import BasicConsume, QueueDeclare
from node.amqp_client.events import Delivered
from node.catalogue.records import DEFAULT_EXCHANGE
from node.federation import failure, hops
from node.federation.link import MESSAGES, Attempt, LinkSession
from node.federation.rewriting import ContentRewriter
from node.federation.upstream_calls import Call, RefusedCall, Steps
from node.override import override

PRIORITY: Final = -1
"""The priority of a link's consumer upstream."""

_WATCHED: Final = (hops.RECEIVED_FROM.encode(), b"CC", b"x-original-")


class QueueLink(LinkSession):
    """One attempt of a queue's link.   is_hungry: returns whether consumers here could take more now."""

    def __init__(self, attempt: Attempt, *, is_hungry: Callable[[], bool]) -> None:
        super().__init__(attempt)
        self._is_hungry = is_hungry
        self._may_consume = False

    def consumers_changed(self) -> None:
        """Consume upstream or stop it, as consumers and messages here are now."""
        if not self._may_consume or self.failure is not None:
            return
        if self._is_hungry():
            self.consume()
        else:
            self.stop_consuming()

    @override
    def set_up(self) -> Steps:
        if not self.peer.has_capability("consumer_priorities"):
            self.fail(failure.NO_PRIORITIES)
            return
        link, name = self.link, self.link.upstream.queue
        try:
            yield from self._calls.aside(QueueDeclare(queue=name, passive=True))
        except RefusedCall as refusal:
            if refusal.code != ReplyCode.NOT_FOUND:
                raise
            yield Call(
                MESSAGES,
                QueueDeclare(
                    queue=name,
                    durable=link.durable,
                    auto_delete=link.auto_delete,
                    arguments=link.arguments,
                ),
            )
        prefetch = self.prefetch()
        if prefetch is not None:
            yield Call(MESSAGES, prefetch)
        self._may_consume = True
        self.consumers_changed()

    @override
    def delete_resources(self) -> Steps:
        yield from ()  # the queue upstream is not the link's

    @override
    def consumer(self) -> BasicConsume | None:
        if not self._may_consume or not self._is_hungry():
            return None
        upstream = self.link.upstream
        return BasicConsume(
            queue=upstream.queue,
            consumer_tag=upstream.consumer_tag,
            no_ack=upstream.ack_mode == "no-ack",
            nowait=True,
            arguments={"x-priority": long(PRIORITY)},
        )

    @override
    def publish_to(self, routing_key: str) -> tuple[str, str]:
        return DEFAULT_EXCHANGE, self.link.key.of.name

    @override
    def rewriter_key(self, event: Delivered) -> tuple[bool, str, str]:
        return event.redelivered, event.exchange, event.routing_key

    @override
    def rewriter(self, event: Delivered) -> ContentRewriter:
        upstream = self.link.upstream
        own = hops.entry("queue", self.peer.uri, upstream.queue, redelivered=event.redelivered)
        exchange, routing_key = event.exchange, event.routing_key

        def rewrite(headers: Table | None) -> Table | None:
            return hops.queue_headers(headers, own, exchange, routing_key)

        return ContentRewriter(
            hops.queue_headers(None, own, exchange, routing_key),
            _WATCHED,
            rewrite,
            keeps_user_id=upstream.trust_user_id,
        )
