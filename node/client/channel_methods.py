"""The methods on the channels of one connection: opening, closing, and the handlers of all others.

    handle ─► handler ─► done, or it yields a command or a call ─► its result has come ─► the handler goes on ─► …

While a handler waits, `is_waiting` is set and the connection reads nothing more, so that methods are carried out in
order. Publishes and acks come in runs and do not pass here.
Source: amqp-behaviour §2.1.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

from node.amqp.channel_state import ChannelState, Step, step
from node.amqp.connection_state import ConnectionState
from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.frames import method_frame
from node.amqp.methods import ChannelCloseOk, ChannelOpen, ChannelOpenOk, Method
from node.amqp.reader import FrameReader
from node.catalogue.commands import Command
from node.catalogue.limits import check_user_channels
from node.client.channel import Channel
from node.client.handlers import HANDLERS, Steps
from node.queue.live_queue import all_heard

if TYPE_CHECKING:
    from node.client.connection import Connection


class ChannelMethods:
    """Carries out the methods of one connection's channels.   is_waiting: the last one waits for a result."""

    def __init__(self, connection: "Connection", reader: FrameReader) -> None:
        self._connection: Connection | None = connection
        """None once the socket is gone."""
        self._reader = reader
        self.is_waiting = False
        self._unanswered_closes: set[int] = set()  # numbers of channels whose close-ok is to come
        self._reopening: int | None = None  # such a number that the client has opened again

    def handle(self, number: int, method: Method) -> None:
        """Carry out a method on a channel, or begin to. Raises: ProtocolError."""
        connection = self._connection
        assert connection is not None
        channel = connection.channels.get(number)
        match step(channel.state if channel else None, type(method)):
            case Step.OPEN if number in self._unanswered_closes:
                self._reopening = number
                self.is_waiting = self._reader.paused = True
            case Step.OPEN:
                self._open(connection, number)
            case Step.HANDLE:
                assert channel is not None
                self._call_handler(channel, method)
            case Step.CLOSE:
                assert channel is not None
                self._take_steps(channel, method, self._close(connection, channel))
            case Step.ANSWER_CLOSE:
                connection.send(method_frame(number, ChannelCloseOk()))
            case Step.FORGET:
                del connection.channels[number]
            case Step.IGNORE:
                pass

    def release(self) -> None:
        """Drop the connection: its socket is gone."""
        self._connection = None

    # --- opening and closing ---

    def _open(self, connection: "Connection", number: int) -> None:
        try:
            _check_limits(connection)
        except ProtocolError as error:
            connection.fail(error, number, ChannelOpen.name)  # with ids 0, 0 (§2.1)
            return
        connection.channels[number] = channel = Channel(number, connection)
        connection.broker.observer.channel_opened(channel)
        connection.send(method_frame(number, ChannelOpenOk()))

    def _close(self, connection: "Connection", channel: Channel) -> Steps:
        """Close a channel as the client asks, after its consumers were given what they can take."""
        yield from all_heard({consumer.queue: None for consumer in channel.consumers.values()})
        broker = connection.broker
        connection.forget_input(channel.number)
        del connection.channels[channel.number]
        self._unanswered_closes.add(channel.number)
        answer = partial(self._answer_close, channel.number)
        broker.chores.begin(channel.close(), partial(broker.await_deletions, answer))

    def _answer_close(self, number: int, _: object) -> None:
        """Tell the client that a channel is closed, and open it again if the client has asked for that meanwhile."""
        self._unanswered_closes.remove(number)
        connection = self._connection
        if connection is None or connection.state is ConnectionState.CLOSED:
            return
        connection.send(method_frame(number, ChannelCloseOk()))
        if self._reopening == number:
            self._reopening = None
            self.is_waiting = False
            if connection.state is ConnectionState.OPEN:
                self._open(connection, number)
            connection.read_on()

    # --- handlers ---

    def _call_handler(self, channel: Channel, method: Method) -> None:
        handler = HANDLERS.get(type(method))
        if handler is None:
            raise ProtocolError(
                ReplyCode.COMMAND_INVALID, "unimplemented method", method.class_id, method.method_id
            )
        steps = handler(channel, method)
        if steps is not None:
            self._take_steps(channel, method, steps)

    def _take_steps(self, channel: Channel, method: Method, steps: Steps) -> None:
        self._advance(channel, type(method), steps, None)
        self._reader.paused = self._reader.paused or self.is_waiting

    def _advance(self, channel: Channel, method: type[Method], steps: Steps, result: Any) -> None:
        """Run a handler up to where it waits, and continue it once its result has come."""
        self.is_waiting = False
        connection = self._connection
        if connection is None or channel.state is not ChannelState.OPEN:
            steps.close()
            return
        try:
            awaited = steps.send(result)
        except StopIteration:
            return
        except ProtocolError as error:
            connection.failed(error, channel.number, method)
            return
        self.is_waiting = True
        on_done = partial(self._applied, channel, method, steps)
        if isinstance(awaited, Command):
            connection.broker.log.submit(awaited, on_done)
        else:
            awaited(on_done)

    def _applied(self, channel: Channel, method: type[Method], steps: Steps, result: Any) -> None:
        was_paused = self._reader.paused
        self._advance(channel, method, steps, result)
        if was_paused and self._connection is not None:
            self._connection.read_on()


def _check_limits(connection: "Connection") -> None:
    """Raise ProtocolError 530 if the connection or its user has as many channels as are allowed."""
    if len(connection.channels) >= connection.channel_max > 0:
        raise ProtocolError(
            ReplyCode.NOT_ALLOWED,
            f"number of channels opened ({len(connection.channels)}) has reached the "
            f"negotiated channel_max ({connection.channel_max})",
        )
    broker = connection.broker
    account = broker.catalogue.user(connection.user_name)
    if account is not None and account.limits.max_channels is not None:
        check_user_channels(account.limits, account.name, broker.channel_count(account.name))
