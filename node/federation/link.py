"""One attempt of a link: two connections that are open, messages from upstream to here, until one of them ends.

    upstream  Delivered ─► rewrite ─► local.publish       Confirmed (here) ─► upstream.ack
    set-up    a sequence of requests upstream, by the kind of the link ─► running

Nothing here knows sockets. `upstream` and `local` are connections of `node.amqp_client`, whose events the owner passes
on; a link that has failed says so in `failure`, and does nothing more. Under `on-confirm` a message is acknowledged
upstream when it is as safe here as a confirmed publish. One that a queue here refuses is given back, and the link
takes no more for a while.
Source: RabbitMQ 3.10.8, `rabbit_federation_link_util`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from node.amqp.errors import ProtocolError
from node.amqp.field_table import Table
from node.amqp.methods import BasicCancel, BasicConsume, BasicQos, ConfirmSelect
from node.amqp_client.connection import ClientConnection
from node.amqp_client.events import (
    Answered,
    ChannelClosed,
    Closed,
    Confirmed,
    ConsumerCancelled,
    Delivered,
    Event,
)
from node.federation import failure
from node.federation.failure import Failure
from node.federation.plan import Link
from node.federation.rewriting import ContentRewriter
from node.federation.unsettled import Unsettled
from node.federation.upstream_calls import ASIDE_LAST, RefusedCall, Steps, UpstreamCalls

MESSAGES: Final = 1
COMMANDS: Final = 2
"""The channels upstream: of messages, and of bindings and declarations. A link may have one for both."""

LOCAL: Final = 1
"""The channel here; as it has the number of the one upstream, bodies are passed on as they came."""

REFUSED_PAUSE_S: Final = 1.0
"""The least time for which a link takes no messages after a queue here has refused one, in seconds."""

NEVER: Final = float("inf")


class Peer(NamedTuple):
    """The upstream that was reached.

    uri: without user and password.   vhost: there.   properties: of the server.
    """

    uri: str
    vhost: str
    properties: Table

    @property
    def cluster(self) -> str | None:
        """The name of its cluster; None: it does not tell it."""
        field = self.properties.get("cluster_name")
        is_text = field is not None and isinstance(field.value, bytes)
        return (
            field.value.decode("utf-8", "replace")
            if is_text and field and isinstance(field.value, bytes)
            else None
        )

    def has_capability(self, name: str) -> bool:
        """True if the server says that it can do something."""
        found = self.properties.get("capabilities")
        flag = found.value.get(name) if found is not None and isinstance(found.value, dict) else None
        return flag is not None and flag.value is True


class Counters:
    """The work of a link since the node runs it, in numbers.

    taken: messages passed on.   dropped: those that had come too far, or went round.   refused: those that a queue
    here has refused.   failures: attempts that ended.
    """

    __slots__ = ("dropped", "failures", "refused", "taken")

    def __init__(self) -> None:
        self.taken = self.dropped = self.refused = self.failures = 0

    def add(self, other: "Counters") -> None:
        """Add the numbers of another link."""
        self.taken += other.taken
        self.dropped += other.dropped
        self.refused += other.refused
        self.failures += other.failures


COUNTED: Final = ("taken", "dropped", "refused", "failures")
"""The names of the counters, in the order in which operators see them."""


class Attempt(NamedTuple):
    """The parts of one attempt of a link, which has both connections.

    cluster: the name of the cluster here.   warn: logs a text about the link.
    """

    link: Link
    peer: Peer
    upstream: ClientConnection
    local: ClientConnection
    cluster: str
    counters: Counters
    warn: Callable[[str], None]


class LinkSession(ABC):
    """One attempt of a link, from open connections on."""

    def __init__(self, attempt: Attempt) -> None:
        self.link = attempt.link
        self.peer = attempt.peer
        self.cluster = attempt.cluster
        self._upstream = attempt.upstream
        self._local = attempt.local
        self._counters = attempt.counters
        self._warn = attempt.warn
        self._calls = UpstreamCalls(attempt.upstream, self._call_refused)
        self._unsettled = Unsettled()
        self._rewriters: dict[tuple[bool, str, str], ContentRewriter] = {}
        self._now = 0.0
        self._has_taken = self._has_settled = False
        self._ack_to = 0
        self._consumer = ""
        """The tag of the consumer; empty: there is none."""
        self.paused_until = 0.0
        """The time until which no messages are taken, as a queue here has refused one."""
        self.is_running = False
        self.is_clean = False
        """True once `clean_up` has deleted all upstream, or could not."""
        self._is_cleaning = False
        self.failure: Failure | None = None

    # --- for the owner ---

    def begin(self, now: float) -> None:
        """Open the channels and set the link up."""
        self._now = now
        limit = self._upstream.channel_max
        if limit and limit < ASIDE_LAST:
            self.fail(failure.unreachable(f"{{channel_max_too_low,{limit}}}"))
            return
        self._local.open_channel(LOCAL)
        if self.link.upstream.ack_mode == "on-confirm":
            self._local.call(LOCAL, ConfirmSelect())
        for channel in (MESSAGES,) if self.commands == MESSAGES else (MESSAGES, COMMANDS):
            self._upstream.open_channel(channel)
        self._calls.begin(self._set_up_and_run())

    def take_upstream(self, events: Sequence[Event], now: float) -> None:
        """Take what has happened upstream."""
        self._now = now
        for event in events:
            if self.failure is not None:
                return
            self._from_upstream(event)
        self._flush_acks()

    def take_local(self, events: Sequence[Event], now: float) -> None:
        """Take what has happened here."""
        self._now = now
        for event in events:
            if self.failure is not None:
                return
            match event:
                case Confirmed():
                    self._confirmed(event)
                case ChannelClosed() | Closed():
                    self.fail(failure.downstream_closed(event))
        self._flush_acks()

    @property
    def has_moved_nothing(self) -> bool:
        """True if messages came, and the broker here has answered none of them.

        So ends each attempt while a message waits that cannot be passed on, or for which the broker here closes the
        channel.
        """
        return self._has_taken and not self._has_settled

    @property
    def due_at(self) -> float:
        """The time at which `due` is to be called; the distant future if there is nothing to do."""
        return self.paused_until if self.paused_until else NEVER

    def due(self, now: float) -> None:
        """Do what was planned for a time that has come."""
        self._now = now
        if self.paused_until and now >= self.paused_until:
            self.paused_until = 0.0
            self.consume()

    def clean_up(self) -> None:
        """Delete what the link has made upstream; `is_clean` tells when that is done, or cannot be done."""
        self._is_cleaning = True
        self._calls.stop()
        if self.failure is not None or self.link.upstream.keeps_resources:
            self.is_clean = True
            return
        self._calls.begin(self._clean_up())

    # --- the kind of the link ---

    @property
    def commands(self) -> int:
        """The channel of bindings and declarations."""
        return MESSAGES if self.link.upstream.has_one_channel else COMMANDS

    @abstractmethod
    def set_up(self) -> Steps:
        """Declare what the link needs upstream, and consume."""

    @abstractmethod
    def delete_resources(self) -> Steps:
        """Delete what the link has made upstream."""

    @abstractmethod
    def publish_to(self, routing_key: str) -> tuple[str, str]:
        """Return the exchange and the routing key here for a message with a key upstream."""

    @abstractmethod
    def rewriter(self, event: Delivered) -> ContentRewriter:
        """Return a rewriter for messages like these."""

    @abstractmethod
    def rewriter_key(self, event: Delivered) -> tuple[bool, str, str]:
        """Return what the rewriter depends on."""

    @abstractmethod
    def consumer(self) -> BasicConsume | None:
        """Return the request to consume; None: the link is to take nothing now."""

    def answered(self, event: Answered) -> None:
        """Take an answer that is no part of a sequence."""
        return

    # --- set-up ---

    def _set_up_and_run(self) -> Steps:
        yield from self.set_up()
        self.is_running = True

    def prefetch(self) -> BasicQos | None:
        """Return the request for the limit of unacknowledged messages; None under `no-ack`."""
        if self.link.upstream.ack_mode == "no-ack":
            return None
        return BasicQos(prefetch_count=self.link.upstream.prefetch_count)

    def consume(self) -> None:
        """Begin to consume, unless that is so, or is not wanted now."""
        if self._consumer or self.paused_until or self.failure is not None or self._is_cleaning:
            return
        request = self.consumer()
        if request is not None:
            self._consumer = request.consumer_tag
            self._upstream.call(MESSAGES, request)

    def stop_consuming(self) -> None:
        """Stop to consume; what is on its way is still passed on."""
        if self._consumer:
            self._upstream.call(MESSAGES, BasicCancel(consumer_tag=self._consumer, nowait=True))
            self._consumer = ""

    def _clean_up(self) -> Steps:
        try:
            yield from self.delete_resources()
        except RefusedCall as refusal:
            self._warn(f"could not delete its resources upstream: {refusal.text}")
        self.is_clean = True

    # --- events ---

    def _from_upstream(self, event: Event) -> None:
        match event:
            case Delivered():
                if not self._is_cleaning:
                    self._delivered(event)
            case Answered():
                if not self._calls.answered(event):
                    self.answered(event)
            case ChannelClosed():
                if not self._calls.closed(event) and event.channel in (MESSAGES, COMMANDS):
                    self.fail(failure.refused(event.code, event.text, has_worked=self.is_running))
            case ConsumerCancelled() if event.consumer_tag == self._consumer:
                self.fail(failure.BASIC_CANCEL._replace(has_worked=self.is_running))
            case Closed():
                self.fail(self.failure_of_end(event))

    def failure_of_end(self, event: Closed) -> Failure:
        """Return the failure of a connection upstream that has ended."""
        return failure.disconnected(event, has_worked=self.is_running)

    def _call_refused(self, refusal: RefusedCall) -> None:
        self.fail(failure.refused(refusal.code, refusal.text, has_worked=self.is_running))

    def fail(self, reason: Failure) -> None:
        """End the attempt."""
        if self.failure is None:
            self.failure = reason
            self._calls.stop()
            self.is_clean = True

    # --- messages ---

    def _delivered(self, event: Delivered) -> None:
        self._has_taken = True
        key = self.rewriter_key(event)
        rewriter = self._rewriters.get(key)
        if rewriter is None:
            if len(self._rewriters) >= _REWRITERS_MAX:
                self._rewriters.clear()
            rewriter = self._rewriters[key] = self.rewriter(event)
        try:
            contents = rewriter.rewrite(event.contents)
        except ProtocolError as error:
            self.fail(failure.unreachable(f"malformed_properties: {error.reply_text}"))
            return
        exchange, routing_key = self.publish_to(event.routing_key)
        first, run = event.first_tag, list[bytes]()
        for tag, content in enumerate(contents, event.first_tag):
            if content is not None:
                if not run:
                    first = tag
                run.append(content)
                continue
            self._publish(exchange, routing_key, first, run)
            run = []
            self._drop(tag)
        self._publish(exchange, routing_key, first, run)

    def _publish(self, exchange: str, routing_key: str, first_tag: int, contents: list[bytes]) -> None:
        if not contents:
            return
        self._counters.taken += len(contents)
        self._local.publish(LOCAL, exchange, routing_key, contents)
        match self.link.upstream.ack_mode:
            case "on-confirm":
                self._unsettled.add(first_tag, len(contents))
            case "on-publish":
                self._ack_to = first_tag + len(contents) - 1
                self._has_settled = True
            case "no-ack":
                self._has_settled = True

    def _drop(self, tag: int) -> None:
        """Settle a message that is not passed on."""
        self._counters.dropped += 1
        self._has_settled = True
        if self.link.upstream.ack_mode == "no-ack":
            return
        if self._unsettled.count == 0:
            self._ack_to = tag
        else:
            self._flush_acks()
            self._upstream.ack(MESSAGES, tag, multiple=False)

    def _confirmed(self, event: Confirmed) -> None:
        self._has_settled = True
        if event.is_ack:
            self._ack_to = max(self._ack_to, self._unsettled.confirmed(event.first, event.last))
            return
        tags, ack_to = self._unsettled.refused(event.first, event.last)
        self._counters.refused += len(tags)
        self.stop_consuming()  # else they came again at once, and for ever
        for tag in tags:
            self._upstream.nack(MESSAGES, tag, multiple=False, requeue=True)
        self._ack_to = max(self._ack_to, ack_to)
        self.paused_until = self._now + max(self.link.upstream.reconnect_delay_s, REFUSED_PAUSE_S)

    def _flush_acks(self) -> None:
        """Acknowledge all that was settled since the last time, by one method."""
        if self._ack_to and self.failure is None:
            self._upstream.ack(MESSAGES, self._ack_to, multiple=True)
        self._ack_to = 0


_REWRITERS_MAX: Final = 256
"""The most rewriters that are kept: a queue's link has one for each exchange and key of its messages."""
