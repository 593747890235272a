"""A client's connection as it reads: frames, methods and publishes, errors and their scope, closing.

Bytes come in by `receive_data`, bytes to write gather in `BaseConnection.take_output`; actions that depend on time use
the broker's timers. The shell that owns the socket follows `is_reading` and `is_finished`.

    connection = Connection(broker, peer)      connection.receive_data(data, now)      connection.lost(now)

`receive_data`, `on_publish`, `on_series`, `on_acks` are hot: called for each read, run, series, and run of acks.
These have many messages; nothing here is called, or made, for each message. All else is called for single methods.
Source: amqp-behaviour §1, §2.
"""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from typing import Any, Final, Protocol

from node.amqp.channel_state import ChannelState, Step, step
from node.amqp.connection_state import ACCEPTED, LISTENING, ConnectionState, unexpected_method
from node.amqp.constants import CODES_WITHOUT_IDS, FRAME_METHOD, ReplyCode
from node.amqp.erlang import octets
from node.amqp.errors import ProtocolError
from node.amqp.method_codec import decode_method
from node.amqp.methods import (
    BasicAck,
    BasicPublish,
    ChannelClose,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
    Method,
)
from node.amqp.properties import Traits
from node.amqp.reader import FrameReader
from node.client.asking import Asking
from node.client.base_connection import BaseConnection
from node.client.channel import Channel
from node.client.channel_methods import ChannelMethods
from node.client.consumer_timeout import check_consumer_timeout
from node.client.endpoint import ClientEndpoint
from node.client.handshake import Handshake
from node.client.host import ClientHost
from node.client.publishing import Route, Routes, check_not_immediate
from node.client.rights import Rights
from node.client.series import Address, publish_series
from node.override import override
from node.queue.live_queue import Wait
from node.scheduling.chores import Chore
from node.scheduling.timers import Timer
from node.scheduling.turn import Share, UnboundedShare


class ConnectionHost(ClientHost, Protocol):
    """The broker, as connections use it beside what channels use."""

    def register(self, connection: "Connection") -> tuple[int, str]:
        """Add a new connection; return a number and an id that no other connection of this node ever has."""

    def opened(self, connection: "Connection") -> None:
        """Count a connection that has opened its vhost against limits."""

    def forget(self, connection: "Connection") -> None:
        """Forget a connection that is gone."""

    def connection_count(self, vhost: str | None, user: str | None) -> int:
        """Return the number of open connections in the whole cluster, of a vhost or of a user."""

    def channel_count(self, user: str) -> int:
        """Return the number of a user's open channels in the whole cluster; for users with a limit of channels only."""

    def delete_exclusive_queues(self, connection: "Connection") -> Chore:
        """Delete the queues that belonged to a connection which ends (amqp-behaviour §3.13)."""


class Connection(BaseConnection):
    """One connection. Implements `node.amqp.reader.Sink`.

    on_change: called when `is_reading` may have changed outside of a call by the shell.
    """

    broker: ConnectionHost

    def __init__(
        self, broker: ConnectionHost, peer: ClientEndpoint, *, now: float, on_change: Callable[[], None]
    ) -> None:
        number, connection_id = broker.register(self)
        reader = FrameReader(
            self,
            frame_max_bytes=broker.settings.initial_frame_max_bytes,
            content_max_bytes=broker.settings.message_max_bytes,
        )
        super().__init__(broker, peer, reader, number=number, connection_id=connection_id, now=now)
        self._on_change = on_change
        self._rest: tuple[int, bytes, Traits, list[bytes], int] | None = None  # of a run of publishes
        self._clock = broker.turns.clock
        self._share = Share(broker.turns, reader, self._work_on)
        self._handshake: Handshake | None = Handshake(self)
        self._routes = Routes()
        self._channel_methods = ChannelMethods(self, reader)
        self._is_framing_lost = False  # frames can't be told apart any more
        self._asking = Asking(reader)
        self._timer: Timer | None = None
        if broker.settings.handshake_timeout_s is not None:
            deadline = now + broker.settings.handshake_timeout_s
            self._timer = broker.timers.at(deadline, self._handshake_timed_out)
        if broker.alarms.is_on:
            self.throttle.alarm_began()

    # --- bytes ---

    def receive_data(self, data: bytes, now: float) -> None:
        """Take bytes from the socket."""
        self.broker.now = now
        self.recv_oct += len(data)
        self.recv_cnt += 1
        self.heartbeat.has_heard = True
        if self._handshake is not None and self.state is ConnectionState.AWAIT_HEADER:
            data = self._handshake.take_header(data)
            if not data:
                return
        if self._reader.paused or self._share.has_to_wait(len(data)):
            self._reader.feed(data)  # which keeps it until `resume`
            return
        self._share.begin()
        self._take(data)
        self._share.end()
        self._flush_confirms()

    def _take(self, data: bytes | None) -> None:
        """Process the client's bytes.   data: the next ones; None: those that were kept."""
        try:
            if data is None:
                self._reader.resume()
            else:
                self._reader.feed(data)
        except ProtocolError as error:
            self._is_framing_lost = self._reader.paused = True
            self.fail(error)

    @property
    @override
    def has_unpublished(self) -> bool:
        return self._rest is not None

    def work_at_once(self) -> None:
        """Work on all input as it comes from now on, however full a turn is."""
        self._share = UnboundedShare(self.broker.turns, self._reader, self._work_on)

    @override
    def shrink(self) -> None:
        """Keep unpublished messages as the bytes that they came as, and no routes.

        Small objects from the time when memory was full would keep the C library from giving back what is around them.
        """
        self._routes.clear()
        rest, self._rest = self._rest, None
        if rest is not None:
            _, method_frame, _, contents, _ = rest
            self._reader.put_back(b"".join(method_frame + content for content in contents))

    def renew_routes(self) -> None:
        """Forget routes to queues that may be gone: a publisher that publishes nothing more would keep them."""
        self._routes.renew(self.broker.catalogue.version)

    def forget_routes(self) -> None:
        """Open all routes anew, as interceptors have come or gone."""
        self._routes.forget()

    @override
    def read_on(self) -> None:
        if self._may_read_on and not self._share.has_to_wait(self._reader.kept_bytes):
            self._work_on()

    @property
    def _may_read_on(self) -> bool:
        is_stopped = self._is_output_full or self._is_framing_lost or self._share.is_over
        is_waiting = self._channel_methods.is_waiting or self.throttle.holds or self.spreading.is_on
        is_waiting = is_waiting or self._asking.is_on
        has_ended = self.state not in LISTENING and self.state is not ConnectionState.CLOSED_BY_PEER
        return not (is_stopped or is_waiting or has_ended)

    def _work_on(self) -> None:
        """Work on the input that was kept; called by the share when its turn has come."""
        if not self._may_read_on:
            return
        self._share.begin()
        rest, self._rest = self._rest, None
        if rest is not None:
            self._reader.paused = False
            self.on_publish(*rest)
        if rest is None or not self._reader.paused:
            self._take(None)
        self._share.end()
        self._flush_confirms()
        self._on_change()

    # --- auth backends of plug-ins ---

    def ask(self, question: Wait, then: Callable[[Any], None]) -> None:
        """Read nothing more until an auth backend has answered.   then: called with the answer; it may raise."""
        self._asking.begin(question, partial(self._answered, self.state, then))

    def _answered(self, state: ConnectionState, then: Callable[[Any], None], answer: Any) -> None:
        was_paused = self._reader.paused
        try:
            if self.state is state:  # else the connection has ended meanwhile
                then(answer)
        except ProtocolError as error:
            self.failed(error, 0, None)
        if was_paused:
            self.read_on()

    def _has_to_ask(self, channel: int, method_frame: bytes) -> bool:
        """Ask a backend whether a publish is allowed, unless the answer is known. True: it has not answered yet."""
        publish = self._admit(channel, method_frame[7:-1])
        if publish is None or self.rights is None:
            return False
        assert isinstance(publish, BasicPublish)
        exchange = self.broker.catalogue.exchange(self.vhost, publish.exchange)
        is_topic = exchange is not None and exchange.type == "topic"
        while not self._asking.is_on:  # an answer that is remembered comes at once
            question = self.rights.unanswered(publish.exchange, publish.routing_key, is_topic=is_topic)
            if question is None:
                return False
            self.ask(partial(self.rights.ask, question), lambda is_allowed: None)
        return True

    # --- the handshake ---

    def tune(self, channel_max: int, frame_max_bytes: int, heartbeat_s: int) -> None:
        """Use the values that both sides agreed on from now on."""
        self.channel_max = channel_max
        self.frame_max_bytes = self._reader.frame_max_bytes = frame_max_bytes
        self.heartbeat.start(heartbeat_s, self.broker.now)

    def opened(self, vhost: str, rights: Rights | None = None) -> None:
        """End the handshake: the connection is open.   rights: as `BaseConnection.rights`."""
        self.vhost = vhost
        if rights is not None:
            self.rights = rights
            rights.start(self.broker.timers, self.broker.now, self._routes.forget)
        self.state = ConnectionState.OPEN
        self._handshake = None
        self._stop_timer()
        self.broker.opened(self)
        self.broker.observer.opened(self)

    def fall_silent(self) -> None:
        """Stop reading and writing; after a pause the socket is reset."""
        self.state = ConnectionState.FAILED
        self._reader.paused = True
        self._finish_after(self.broker.settings.auth_failure_delay_s)

    def _handshake_timed_out(self, now: float) -> None:
        self.broker.observer.handshake_timed_out(self)
        self.finish()

    @override
    def _heartbeats_missed(self) -> None:
        self.broker.observer.heartbeats_missed(self)
        self.finish()

    # --- a `Sink` ---

    def on_publish(
        self, channel: int, method_frame: bytes, traits: Traits, contents: list[bytes], size: int
    ) -> None:
        """Publish a run of messages that share method frame and traits."""
        broker = self.broker
        route = self._routes.find(method_frame, broker.catalogue.version)
        is_new = route is None
        try:
            if size > broker.settings.message_max_bytes:
                self._refuse_size(channel, method_frame, size)
            if route is None:
                if self.rights is not None and self._has_to_ask(channel, method_frame):
                    self._rest = channel, method_frame, traits, contents, size
                    return
                route = self._new_route(channel, method_frame)
                if route is None:
                    return
            if len(contents) <= route.at_once_max:
                route.channel.publish(route, traits, contents, size)
            else:
                self._publish_in_pieces(channel, method_frame, route, traits, contents, size)
            if is_new:
                self._routes.note(method_frame, route)
            if broker.storage.is_congested:
                self.throttle.hold()
        except ProtocolError as error:
            self.failed(error, channel, BasicPublish)
        if self._clock() > self._share.ends_at:
            self._share.stop()

    def known_addresses(self, channel: int, traits: Traits, content_bytes: int) -> Mapping[bytes, Address]:
        """Return the addresses that a series of such messages may have, by method frame; see `node.client.series`."""
        return self._routes.known_addresses(self.channels.get(channel), traits, content_bytes)

    def on_series(
        self, channel: int, traits: Traits, addresses: list[Address], contents: list[bytes], size: int
    ) -> None:
        """Publish messages that share traits and size, each to its address."""
        publish_series(self.channels[channel], addresses, contents, size)
        if self.broker.storage.is_congested:
            self.throttle.hold()
        if self._clock() > self._share.ends_at:
            self._share.stop()

    def _publish_in_pieces(
        self,
        channel: int,
        method_frame: bytes,
        route: Route,
        traits: Traits,
        contents: list[bytes],
        size: int,
    ) -> None:
        """Publish a long run as far as the share of the turn goes: the rest waits."""
        step, by_headers = route.at_once_max, route.by_headers
        at = 0
        while at < len(contents):
            if at and (self._reader.paused or self._clock() > self._share.ends_at):
                self._rest = channel, method_frame, traits, contents[at:], size
                self._share.stop()
                break
            if by_headers is None:
                route.channel.publish(route, traits, contents[at : at + step], size)
                at += step
            else:
                at = self.channels[channel].publish_some(route, by_headers, traits, contents, at, size)
            if self.broker.storage.is_congested:
                self.throttle.hold()  # pauses the reader

    def _refuse_size(self, channel: int, method_frame: bytes, size: int) -> None:
        publish = self._admit(channel, method_frame[7:-1])
        if isinstance(publish, BasicPublish):
            check_not_immediate(publish)
            limit = self.broker.settings.message_max_bytes
            raise ProtocolError(
                ReplyCode.PRECONDITION_FAILED,
                f"message size {size} is larger than configured max size {limit}",
            )

    def _new_route(self, number: int, method_frame: bytes) -> Route | None:
        """Check a publish that has no route yet, and resolve its route. None: the publish is ignored."""
        publish = self._admit(number, method_frame[7:-1])
        if publish is None:
            return None
        assert isinstance(publish, BasicPublish)
        return self._routes.open(self.channels[number], publish, method_frame)

    def on_content_method(self, channel: int, payload: bytes) -> bool:
        """Check a `basic.publish` whose content is still to come. False: drop the content."""
        try:
            return self._admit(channel, payload) is not None
        except ProtocolError as error:
            self.failed(error, channel, BasicPublish)
            return False

    def ignores(self, channel: int) -> bool:
        """True if we are closing the channel, so that stray content on it is no fault."""
        known = self.channels.get(channel)
        return self.state is ConnectionState.CLOSING or (
            known is not None and known.state is ChannelState.CLOSING
        )

    def on_acks(self, channel: int, first: int, last: int) -> None:
        """Acknowledge the delivery tags from first to last, each as one ack."""
        known = self.channels.get(channel)
        if known is None or known.state is not ChannelState.OPEN or self.state is not ConnectionState.OPEN:
            self.on_method(channel, _ACK_PAYLOAD)
            return
        try:
            known.acks(first, last)
        except ProtocolError as error:
            self.failed(error, channel, BasicAck)
        if self._clock() > self._share.ends_at:
            self._share.stop()

    def on_method(self, channel: int, payload: bytes) -> None:
        """Handle a method without content."""
        method: Method | None = None
        try:
            if channel == 0:
                method = decode_method(payload) if self.state in LISTENING else None
                if method is not None:
                    self._connection_method(method)
            else:
                method = self._admit(channel, payload)
                if method is not None:
                    self._channel_methods.handle(channel, method)
        except ProtocolError as error:
            self.failed(error, channel, type(method) if method is not None else None)
        if self._clock() > self._share.ends_at:
            self._share.stop()

    def on_content_frame(self) -> None:
        """Note a content frame while an alarm is on."""
        self.throttle.content_came()

    def on_heartbeat(self) -> None:
        """Do nothing: any bytes from the client count as a sign of life."""

    def on_fault(self, error: ProtocolError) -> None:
        """Close the channel or the connection for a fault in a frame."""
        if self.state is not ConnectionState.CLOSING:
            self.fail(error)

    # --- methods ---

    def _admit(self, channel: int, payload: bytes) -> Method | None:
        """Decode a method on a channel and check that it may come there; None: it is to be ignored."""
        if self.state is not ConnectionState.OPEN:
            if self.state in LISTENING and self.state is not ConnectionState.CLOSING:
                raise ProtocolError(ReplyCode.UNEXPECTED_FRAME, octets(FRAME_METHOD, payload))
            return None
        method = decode_method(payload)
        if channel == 0:
            raise unexpected_method(method, self.state)
        if isinstance(method, BasicPublish):
            known = self.channels.get(channel)
            taken = step(known.state if known else None, type(method))
            return method if taken is Step.HANDLE else None
        return method

    def _connection_method(self, method: Method) -> None:
        if type(method) not in ACCEPTED[self.state]:
            if self.state is ConnectionState.CLOSING:
                return
            raise unexpected_method(method, self.state)
        match method:
            case ConnectionUpdateSecret():
                self.broker.observer.secret_updated(self, method.reason)
                self.send_method(ConnectionUpdateSecretOk())
            case ConnectionClose():
                self._closed_by_peer()
            case ConnectionCloseOk():
                self.finish()
            case _:
                assert self._handshake is not None
                self._handshake.handle(method)

    # --- faults ---

    @override
    def failed(self, error: ProtocolError, number: int, method: type[Method] | None) -> None:
        if self.state is ConnectionState.CLOSING:
            return
        if method is not None and not error.class_id and error.code not in CODES_WITHOUT_IDS:
            error.class_id, error.method_id = method.class_id, method.method_id
        channel = self.channels.get(number)
        if channel is not None and error.code.closes_channel_only and self.state is ConnectionState.OPEN:
            self._fail_channel(channel, error, method.name if method is not None else "")
        else:
            self.fail(error, number, method.name if method is not None else "")

    def _fail_channel(self, channel: Channel, error: ProtocolError, method: str = "") -> None:
        self.broker.observer.channel_failed(self, channel.number, error, method)
        channel.flush_confirms()
        self.forget_input(channel.number)
        self.broker.chores.begin(channel.close())
        channel.send(ChannelClose(error.code, error.reply_text, error.class_id, error.method_id))

    def forget_input(self, number: int) -> None:
        """Forget what was read of a channel that closes, and the routes, as each belongs to a channel."""
        self._routes.clear()
        self._reader.forget(number)

    def fail(self, error: ProtocolError, channel: int = 0, method: str = "") -> None:
        """End the connection with an error: by a close handshake once it is open, in silence before."""
        if self.state.is_handshake:
            self.broker.observer.handshake_failed(self, error.explanation)
            self.fall_silent()
        elif self.state in (ConnectionState.AWAIT_OPEN, ConnectionState.OPEN):
            self.broker.observer.connection_failed(self, channel, error, method)
            self._flush_confirms()
            self._release()
            self.send_close(error)
            self.state = ConnectionState.CLOSING
            pause = self.broker.settings.auth_failure_delay_s if self._is_framing_lost else self._closing_s()
            self._finish_after(pause)
        elif self.state is ConnectionState.CLOSING:
            self.finish()

    # --- the end ---

    def _closed_by_peer(self) -> None:
        if self.state is not ConnectionState.OPEN:
            self.send_method(ConnectionCloseOk())
            return
        self._release(partial(self.broker.await_deletions, self._answer_connection_close))
        self.state = ConnectionState.CLOSED_BY_PEER
        self._finish_after(self._closing_s())

    def _answer_connection_close(self, _: object) -> None:
        """Tell the client that the connection is closed: its exclusive queues are gone."""
        if self.state is not ConnectionState.CLOSED:
            self.send_method(ConnectionCloseOk())

    def force_close(self, reason: str) -> None:
        """Close with 320, for a reason of ours (§1.8). Before the connection is open it just ends."""
        if self.state is ConnectionState.OPEN:
            was_held = self.throttle.holds
            self.fail(ProtocolError(ReplyCode.CONNECTION_FORCED, reason))
            if was_held:
                self.read_on()
        elif self.state.is_handshake or self.state is ConnectionState.AWAIT_OPEN:
            self.finish()

    def check_consumer_timeouts(self, now: float) -> None:
        """Close the channels with a delivery that has been unacknowledged for too long (§4.10)."""
        timeout_ms = self.broker.settings.consumer_timeout_ms
        for channel in list(self.channels.values()):
            if channel.state is not ChannelState.OPEN:
                continue
            try:
                check_consumer_timeout(channel.number, channel.unacked.oldest, timeout_ms, now)
            except ProtocolError as error:
                oldest = channel.unacked.oldest
                tag = oldest.consumer.tag if oldest is not None and oldest.consumer is not None else ""
                self.broker.observer.consumer_timed_out(self, channel.number, tag)
                self._fail_channel(channel, error)

    def _closing_s(self) -> float:
        """Return how many seconds to wait for the peer when a connection closes: its heartbeat interval, at most 30 s
        (§0.3).
        """
        limit = self.broker.settings.closing_s_max
        return self.heartbeat.interval_s if 0 < self.heartbeat.interval_s < limit else limit

    def _finish_after(self, seconds: float) -> None:
        self._stop_timer()
        self.heartbeat.stop()
        self._timer = self.broker.timers.at(self.broker.now + seconds, lambda now: self.finish())

    def finish(self) -> None:
        """Have the socket reset, once our output is written."""
        if self.state is ConnectionState.OPEN:
            self._release()
        self.state = ConnectionState.CLOSED
        self._reader.paused = True
        self._stop_timer()
        self.heartbeat.stop()
        self.is_finished = True
        self.broker.has_output(self)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def lost(self, now: float) -> None:
        """Note that the socket is gone."""
        self.broker.now = now
        in_good_order = self.state in (
            ConnectionState.CLOSED_BY_PEER,
            ConnectionState.CLOSED,
            ConnectionState.CLOSING,
        )
        if self.state is ConnectionState.OPEN:
            self._release()
        self.state = ConnectionState.CLOSED
        self.is_writable = False
        self._out.clear()
        self._let_go()
        self.broker.forget(self)
        self.broker.observer.closed(self, in_good_order=in_good_order)

    def _let_go(self) -> None:
        """Drop the references between our parts, as nothing more will come.

        So a connection is freed with the last reference to it, and not when Python looks for cycles among old
        objects.
        """
        self._reader.close()
        self._share.close()
        self._stop_timer()
        if self.rights is not None:
            self.rights.stop()
        self.heartbeat.stop()
        self.throttle.release()
        self._channel_methods.release()
        self._handshake = None

    def _release(self, on_done: Callable[[], None] = lambda: None) -> None:
        """Close the channels, then delete the connection's exclusive queues (§1.8)."""
        chores = [each.close() for each in self.channels.values() if each.state is ChannelState.OPEN]
        self.channels.clear()
        self._reader.forget_contents()
        self._rest = None
        self._routes.clear()
        self.stalled.clear()
        self.confirming.clear()
        self.throttle.release()
        self.broker.chores.begin(chain(*chores, self.broker.delete_exclusive_queues(self)), on_done)


_ACK_PAYLOAD: Final = b"\x00\x3c\x00\x50" + bytes(9)
