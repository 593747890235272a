"""A client's connection to a broker: bytes, calls and `now` in; bytes and events out.

    connection = ClientConnection(settings)
    connection.receive_data(data, now)     for event in connection.take_events(): …
    connection.call(1, QueueDeclare(…))    socket.write(connection.take_output())

It knows the order of frames and of the handshake, and what confirms mean; it declares nothing and decides nothing.
Messages pass through as the bytes in which they came.
Source: AMQP 0-9-1 §2.2, §4.2; RabbitMQ's extensions.
"""

from collections.abc import Callable
from typing import Final

from node.amqp import methods as m
from node.amqp.constants import FRAME_MIN_SIZE_BYTES, PROTOCOL_HEADER, ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.field_table import Table
from node.amqp.frames import HEARTBEAT, content_frames, method_frame, recut, with_channel
from node.amqp.method_codec import decode_method
from node.amqp.methods import Method
from node.amqp.properties import Properties, content_header
from node.amqp_client import events, sasl
from node.amqp_client.channel import ANSWERS, ClientChannel
from node.amqp_client.events import Event
from node.amqp_client.heartbeat import ClientHeartbeat
from node.amqp_client.phase import Phase
from node.amqp_client.reader import ServerReader
from node.amqp_client.settings import ClientSettings

GOODBYE: Final = "Goodbye"
HEARTBEAT_TIMEOUT: Final = "heartbeat timeout"

_CHANNEL_AT: Final = slice(1, 3)
"""The channel's number in a content."""


def _nobody() -> None:
    """Tell nobody of output: its owner takes it when it likes."""


class ClientConnection:
    """One connection and its channels.

    on_output: called when there is output again after it was taken.
    """

    def __init__(self, settings: ClientSettings, *, on_output: Callable[[], None] = _nobody) -> None:
        self._settings = settings
        self._on_output = on_output
        wanted = settings.frame_max_bytes
        self._reader = ServerReader(
            self,
            # A limit below AMQP's least would refuse the broker's first frame. `_tune` offers the least, too.
            frame_max_bytes=max(wanted, FRAME_MIN_SIZE_BYTES) if wanted else 0,
            content_max_bytes=settings.content_max_bytes,
        )
        self._heartbeat = ClientHeartbeat()
        self._channels: dict[int, ClientChannel] = {}
        self._events: list[Event] = []
        self._output: list[bytes] = []
        self._now = 0.0
        self._server_properties: Table = {}
        self.frame_max_bytes = settings.frame_max_bytes
        self.channel_max = settings.channel_max
        self.phase = Phase.STARTING
        self.is_reading_held = False
        """Set by the shell while it reads nothing: the broker's silence is no fault then."""
        self.is_blocked = False
        """True between `connection.blocked` and `connection.unblocked`."""
        self._output.append(PROTOCOL_HEADER)  # which waits for the socket, so nobody is told

    # --- for the shell ---

    @property
    def is_finished(self) -> bool:
        """True if the socket is to be closed once the output is written."""
        return self.phase is Phase.CLOSED

    @property
    def next_deadline(self) -> float | None:
        """The time at which `tick` is to be called; None for never."""
        return self._heartbeat.next_check

    def receive_data(self, data: bytes, now: float) -> None:
        """Take the bytes of one read."""
        self._now = now
        self._heartbeat.has_heard = True
        if self.phase is Phase.CLOSED:
            return
        try:
            self._reader.feed(data)
        except ProtocolError as error:
            self._fail(error)

    def tick(self, now: float) -> None:
        """Send a heartbeat if one is due; end the connection if the broker is silent."""
        due = self._heartbeat.next_check
        if due is None or now < due:
            return
        speaks, is_gone = self._heartbeat.check(now, is_excused=self.is_reading_held)
        if is_gone:
            self.lost(HEARTBEAT_TIMEOUT)
        elif speaks:
            self._write(HEARTBEAT)
            self._heartbeat.has_spoken = False

    def lost(self, text: str) -> None:
        """Note that the socket has ended.   text: the reason, which the owner is told."""
        self._end(events.Closed(0, text, self.phase is Phase.CLOSING, self.phase))

    def refuse(self, code: int, text: str) -> None:
        """Note that a login was refused which needed no handshake."""
        phase = Phase.OPENING if code == int(ReplyCode.NOT_ALLOWED) else Phase.AUTHENTICATING
        self._end(events.Closed(code, text, phase=phase))

    @property
    def client_properties(self) -> Table:
        """The client properties."""
        return self._settings.properties

    def take_events(self) -> list[Event]:
        """Return what has happened since the last call, in its order."""
        taken, self._events = self._events, []
        return taken

    def take_output(self) -> list[bytes]:
        """Return what is to be written, in its order."""
        taken, self._output = self._output, []
        return taken

    # --- for the owner ---

    def open_channel(self, channel: int) -> None:
        """Open a channel: `Answered` with `ChannelOpenOk` follows."""
        assert self.phase is Phase.RUNNING
        assert channel not in self._channels
        assert 0 < channel <= (self.channel_max or 0xFFFF)
        self._channels[channel] = ClientChannel()
        self.call(channel, m.ChannelOpen())

    def is_channel_open(self, channel: int) -> bool:
        """True if calls on the channel are possible; it may still wait for its `ChannelOpenOk`."""
        known = self._channels.get(channel)
        return known is not None and not known.is_closing and self.phase is Phase.RUNNING

    def call(self, channel: int, method: Method) -> None:
        """Send a request. `Answered` follows, unless it has `nowait`; requests need not wait for each other.

        On a channel that the broker has closed, or after the end of the connection, nothing is sent.
        """
        known = self._known(channel)
        if known is None:
            return
        if isinstance(method, m.ConfirmSelect):
            known.select_confirms()
        if type(method) in ANSWERS and not getattr(method, "nowait", False):
            known.expect(method)
        self._write(method_frame(channel, method))

    def close_channel(self, channel: int) -> None:
        """Close a channel; what it still gets is dropped. `Answered` with `ChannelCloseOk` follows."""
        known = self._known(channel)
        if known is None:
            return
        known.requests.clear()
        self.call(channel, m.ChannelClose(reply_code=int(ReplyCode.REPLY_SUCCESS), reply_text=GOODBYE))
        known.is_closing = True

    def publish(
        self,
        channel: int,
        exchange: str,
        routing_key: str,
        contents: list[bytes],
        *,
        mandatory: bool = False,
    ) -> int:
        """Publish contents, and return the number of the first; the others follow. 0 without confirm mode.

        contents: as `Delivered` has them; a content in frames that are too large is cut again.
        """
        known = self._known(channel)
        if known is None or not contents:
            return 0
        method = m.BasicPublish(exchange=exchange, routing_key=routing_key, mandatory=mandatory)
        start = method_frame(channel, method)
        number = channel.to_bytes(2)
        limit = self.frame_max_bytes
        fitting = [
            content
            if content[_CHANNEL_AT] == number and len(content) <= limit
            else self._fitted(content, channel)
            for content in contents
        ]
        self._write(start + start.join(fitting))
        return 0 if known.unconfirmed is None else known.unconfirmed.add(len(contents))

    def publish_body(
        self,
        channel: int,
        exchange: str,
        routing_key: str,
        body: bytes,
        properties: Properties,
        *,
        mandatory: bool = False,
    ) -> int:
        """Publish one message; see `publish`."""
        content = content_frames(channel, content_header(len(body), properties), body, self.frame_max_bytes)
        return self.publish(channel, exchange, routing_key, [content], mandatory=mandatory)

    def ack(self, channel: int, tag: int, *, multiple: bool) -> None:
        """Acknowledge a delivery, or all up to it."""
        self.call(channel, m.BasicAck(delivery_tag=tag, multiple=multiple))

    def nack(self, channel: int, tag: int, *, multiple: bool, requeue: bool) -> None:
        """Refuse a delivery, or all up to it."""
        self.call(channel, m.BasicNack(delivery_tag=tag, multiple=multiple, requeue=requeue))

    def unconfirmed(self, channel: int) -> int:
        """Return how many publishes of a channel wait for their confirm."""
        known = self._channels.get(channel)
        return 0 if known is None or known.unconfirmed is None else len(known.unconfirmed)

    def close(self, text: str = GOODBYE) -> None:
        """Close the connection by the protocol; before the handshake's end the socket is just closed."""
        if self.phase < Phase.RUNNING:
            self._end(events.Closed(int(ReplyCode.REPLY_SUCCESS), text, is_ours=True, phase=self.phase))
        elif self.phase is Phase.RUNNING:
            self.phase = Phase.CLOSING
            self._channels.clear()
            close = m.ConnectionClose(reply_code=int(ReplyCode.REPLY_SUCCESS), reply_text=text)
            self._write(method_frame(0, close))

    # --- what the reader found ---

    def on_heartbeat(self) -> None:
        """Note a heartbeat: `receive_data` has seen that octets came."""

    def on_method(self, channel: int, payload: bytes) -> None:
        """Take a method without content."""
        if self.phase is Phase.CLOSED:
            return
        method = decode_method(payload)
        if channel == 0:
            self._connection_method(method)
            return
        known = self._channels.get(channel)
        if known is None:
            self._check_is_running()
            return
        if known.is_closing:
            if isinstance(method, m.ChannelClose):
                self._write(method_frame(channel, m.ChannelCloseOk()))
            elif isinstance(method, m.ChannelCloseOk):
                del self._channels[channel]
                self._reader.forget(channel)
                self._events.append(events.Answered(channel, known.answered(method), method))
            return
        self._channel_method(channel, known, method)

    def on_content(self, channel: int, payload: bytes, content: bytes) -> None:
        """Take a returned message, or one that was got."""
        known = self._usable(channel)
        if known is None:
            return
        method = decode_method(payload)
        if isinstance(method, m.BasicReturn):
            code, text, exchange, key = (
                method.reply_code,
                method.reply_text,
                method.exchange,
                method.routing_key,
            )
            self._events.append(events.Returned(channel, code, text, exchange, key, content))
        else:
            self._events.append(events.Answered(channel, known.answered(method), method, content))

    def on_deliveries(self, channel: int, payload: bytes, contents: list[bytes]) -> None:
        """Take a run of deliveries."""
        if self._usable(channel) is None:
            return
        method = decode_method(payload)
        assert isinstance(method, m.BasicDeliver)
        self._events.append(
            events.Delivered(
                channel,
                method.consumer_tag,
                method.delivery_tag,
                method.redelivered,
                method.exchange,
                method.routing_key,
                contents,
            )
        )

    def on_acks(self, channel: int, first: int, last: int) -> None:
        """Take single confirms."""
        known = self._usable(channel)
        if known is not None:
            self._settle(channel, known.confirms().settle(first, last), is_ack=True)

    # --- the methods of the connection ---

    def _connection_method(self, method: Method) -> None:
        match method:
            case m.ConnectionClose():
                self._write(method_frame(0, m.ConnectionCloseOk()))
                closed = events.Closed(method.reply_code, method.reply_text, phase=self.phase)
                is_ours = self.phase is Phase.CLOSING
                self._end(closed._replace(is_ours=is_ours))
            case m.ConnectionCloseOk() if self.phase is Phase.CLOSING:
                ours = events.Closed(int(ReplyCode.REPLY_SUCCESS), GOODBYE, is_ours=True, phase=self.phase)
                self._end(ours)
            case _ if self.phase is Phase.CLOSING:
                pass
            case m.ConnectionStart() if self.phase is Phase.STARTING:
                self._start(method)
            case m.ConnectionTune() if self.phase is Phase.AUTHENTICATING:
                self._tune(method)
            case m.ConnectionOpenOk() if self.phase is Phase.OPENING:
                self.phase = Phase.RUNNING
                self._events.append(events.Opened(self._server_properties))
            case m.ConnectionBlocked():
                self.is_blocked = True
                self._events.append(events.Blocked(method.reason))
            case m.ConnectionUnblocked():
                self.is_blocked = False
                self._events.append(events.Unblocked())
            case _:
                raise ProtocolError(ReplyCode.UNEXPECTED_FRAME, f"{method.name} was not expected")

    def _start(self, method: m.ConnectionStart) -> None:
        settings = self._settings
        self._server_properties = method.server_properties
        mechanism = sasl.choose(method.mechanisms, settings.mechanisms)
        if mechanism is None:
            raise ProtocolError(
                ReplyCode.ACCESS_REFUSED,
                f"no suitable auth mechanism: the broker has {method.mechanisms.decode('ascii', 'replace')}",
            )
        self.phase = Phase.AUTHENTICATING
        reply = m.ConnectionStartOk(
            client_properties=settings.properties,
            mechanism=mechanism,
            response=sasl.response(mechanism, settings.user, settings.password),
        )
        self._write(method_frame(0, reply))

    def _tune(self, method: m.ConnectionTune) -> None:
        settings = self._settings
        self.frame_max_bytes = max(
            FRAME_MIN_SIZE_BYTES,
            _lower(method.frame_max, settings.frame_max_bytes) or settings.frame_max_bytes,
        )
        self.channel_max = _lower(method.channel_max, settings.channel_max)
        heartbeat_s = _lower(method.heartbeat, settings.heartbeat_s) if settings.heartbeat_s else 0
        self._reader.frame_max_bytes = self.frame_max_bytes
        self.phase = Phase.OPENING
        reply = m.ConnectionTuneOk(
            channel_max=self.channel_max, frame_max=self.frame_max_bytes, heartbeat=heartbeat_s
        )
        self._write(method_frame(0, reply))
        self._heartbeat.start(heartbeat_s, self._now)
        self._write(method_frame(0, m.ConnectionOpen(virtual_host=settings.vhost)))

    # --- the methods of a channel ---

    def _channel_method(self, channel: int, known: ClientChannel, method: Method) -> None:
        match method:
            case m.BasicAck():
                self._confirms(channel, known, method.delivery_tag, method.multiple, is_ack=True)
            case m.BasicNack():
                self._confirms(channel, known, method.delivery_tag, method.multiple, is_ack=False)
            case m.BasicCancel():
                if not method.nowait:
                    self._write(method_frame(channel, m.BasicCancelOk(consumer_tag=method.consumer_tag)))
                self._events.append(events.ConsumerCancelled(channel, method.consumer_tag))
            case m.ChannelFlow():
                self._write(method_frame(channel, m.ChannelFlowOk(active=method.active)))
                self._events.append(events.Flow(channel, method.active))
            case m.ChannelClose():
                del self._channels[channel]
                self._reader.forget(channel)
                self._write(method_frame(channel, m.ChannelCloseOk()))
                self._events.append(
                    events.ChannelClosed(
                        channel,
                        method.reply_code,
                        method.reply_text,
                        method.failed_class_id,
                        method.failed_method_id,
                        known.requests[0] if known.requests else None,
                    )
                )
            case _:
                self._events.append(events.Answered(channel, known.answered(method), method))

    def _confirms(
        self, channel: int, known: ClientChannel, tag: int, multiple: bool, *, is_ack: bool
    ) -> None:
        numbers = known.confirms()
        ranges = numbers.settle_up_to(tag) if multiple else numbers.settle(tag, tag)
        self._settle(channel, ranges, is_ack=is_ack)

    def _settle(self, channel: int, ranges: list[tuple[int, int]], *, is_ack: bool) -> None:
        self._events += [events.Confirmed(channel, first, last, is_ack) for first, last in ranges]

    # --- the rest ---

    def _known(self, channel: int) -> ClientChannel | None:
        """Return a channel that can be used; None after the broker has closed it, or the connection."""
        known = self._channels.get(channel)
        return None if known is None or known.is_closing or self.phase is not Phase.RUNNING else known

    def _usable(self, channel: int) -> ClientChannel | None:
        """Return a channel that gets messages or confirms; None while it or the connection is being closed."""
        self._check_is_running()
        return self._known(channel)

    def _check_is_running(self) -> None:
        if self.phase < Phase.RUNNING:
            raise ProtocolError(ReplyCode.COMMAND_INVALID, "a channel's method before the connection is open")

    def _fitted(self, content: bytes, channel: int) -> bytes:
        if len(content) <= self.frame_max_bytes:
            return with_channel(content, channel)
        return recut(content, channel, self.frame_max_bytes)

    def _fail(self, error: ProtocolError) -> None:
        """End the connection for a fault of the broker's, or one that we can't go on with."""
        if self.phase >= Phase.OPENING:
            close = m.ConnectionClose(
                reply_code=int(error.code),
                reply_text=error.reply_text,
                failed_class_id=error.class_id,
                failed_method_id=error.method_id,
            )
            self._write(method_frame(0, close))
        self._end(events.Closed(int(error.code), error.reply_text, phase=self.phase))

    def _end(self, event: events.Closed) -> None:
        if self.phase is Phase.CLOSED:
            return
        self.phase = Phase.CLOSED
        self._heartbeat.stop()
        self._channels.clear()
        self._events.append(event)

    def _write(self, data: bytes) -> None:
        self._heartbeat.has_spoken = True
        self._output.append(data)
        if len(self._output) == 1:
            self._on_output()


def _lower(ours: int, theirs: int) -> int:
    """Return the lower of two limits, of which 0 means none."""
    return min(ours, theirs) if ours and theirs else max(ours, theirs)
