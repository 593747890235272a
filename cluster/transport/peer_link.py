"""The links to one other node: two streams that this node opens, and two that the other one opens.

    connect ─► control stream ──┐ both: link_up ─► one ends: is it gone? ─► link_down
    its control stream here ────┘
    open_data ─► data stream, as long as both incarnations live: kept up, resumed, never begun anew

The other node is *gone* when our stream was reset and then its host refuses a connection: no process holds the port
any more. Silence proves nothing.

Source: ring §4; docs/internals/links.md, "Two streams in each direction".
"""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from cluster.transport.control import ControlReceiver, ControlSender
from cluster.transport.handshake import NONCE_BYTES, HandshakeFailed, Kind, Opener, refusal
from cluster.transport.interface import Hello, Topic, Traffic
from cluster.transport.stream import Receiver, Sender, StreamFault
from cluster.transport.wire import IncomingStream, OutgoingStream, StreamEnded, first_of, open_channel

if TYPE_CHECKING:
    from cluster.transport.transport import Transport


_TOLD_MAX: Final = 32
"""The most reasons that are logged until the link is up again; a peer that makes up reasons gets no more."""


class ServedStream:
    """One incoming stream; `end` makes its handler return."""

    def __init__(self, stream: IncomingStream, hello: Hello) -> None:
        self.stream = stream
        self.hello = hello
        self._end = asyncio.Event()
        self.reason = "the stream broke"

    @property
    def is_ended(self) -> bool:
        """True if nothing that the stream brings is wanted any more."""
        return self._end.is_set()

    def end(self, reason: str) -> None:
        """Make the handler return."""
        if not self._end.is_set():
            self.reason = reason
        self._end.set()

    async def ended(self) -> None:
        """Wait for `end`."""
        await self._end.wait()


class PeerLink:
    """One other node, with all streams to and from it."""

    def __init__(self, transport: "Transport", name: str) -> None:
        self._transport = transport
        self._listener = transport.listener
        self._options = transport.options
        self.name = name
        self.address = ""
        """The address that links go to; empty: none are wanted."""
        self.channel: Any = None
        """The channel of the control stream; calls go over it too."""
        self.sent_bytes = self.received_bytes = 0
        self._tasks: dict[Kind, asyncio.Task[None]] = {}
        self._told: set[str] = set()  # reasons in the log since the link was up; there is a handful of them
        # control
        self._is_up = False
        self._control: ControlSender | None = None  # of the session that is ready
        self._control_waits = asyncio.Event()
        self._control_ended = asyncio.Event()  # whether no session is ready
        self._control_ended.set()
        self._was_silent = False  # why the last session ended
        self._incarnation = 0
        self._judging: asyncio.Task[None] | None = None
        self._incoming: dict[Kind, ServedStream] = {}
        # data
        self._sender: Sender | None = None
        self._data_waits = asyncio.Event()
        self._receiver: Receiver | None = None
        self._reopened = asyncio.Event()
        self._closed_pair: tuple[int, int] = (0, 0)

    # --- what the transport asks for ---

    def connect(self, address: str) -> None:
        """Keep links to this address."""
        if self.address == address:
            return
        self.disconnect_links()
        self._stream_lost("its address has changed")
        self.address = address
        self._told.clear()
        self.channel = self._open_channel(Kind.CONTROL)
        self._start(Kind.CONTROL, self._control_session)
        if self._sender is not None:
            self._start(Kind.DATA, self._data_session)

    def disconnect_links(self) -> None:
        """End the streams that this node opens."""
        self.address = ""
        for task in self._tasks.values():
            task.cancel()
        self._tasks = {}
        self._forget_control()
        if self.channel is not None:
            self._transport.spawn(self.channel.close())
            self.channel = None

    def close(self) -> None:
        """Forget the other node; the listener is not told."""
        self.close_data()
        self._is_up = False
        if self._judging is not None:
            self._judging.cancel()
            self._judging = None
        self.disconnect_links()
        for served in list(self._incoming.values()):
            served.end("the link was given up")

    @property
    def traffic(self) -> Traffic:
        """The address, the link's state and the bytes in both directions."""
        return Traffic(self.address, self._is_up, self.sent_bytes, self.received_bytes)

    @property
    def is_idle(self) -> bool:
        """True if no stream, data or address is left of the node."""
        return not (self.address or self._incoming or self._sender or self._is_up)

    def send_control(self, topic: Topic, message: bytes) -> bool:
        """Send a message if the link is up and has room. False: it is dropped."""
        if self._control is None or not self._is_up or self._judging is not None:
            return False
        is_sent = self._control.push(topic, message)
        self._control_waits.set()
        return is_sent

    def open_data(self, own: int, incarnation: int) -> None:
        """Open the data stream between two incarnations; any other is dropped."""
        sender = self._sender
        if sender is not None and (sender.own, sender.peer) == (own, incarnation):
            return
        self.close_data()
        assert (own, incarnation) > self._closed_pair, (
            f"the data stream of incarnations {own} and {incarnation} was closed: its numbers would begin again"
        )
        self._sender = Sender(own, incarnation, self._options.congested_bytes)
        self._receiver = Receiver(incarnation, own)
        self._reopened.set()
        self._reopened = asyncio.Event()
        if self.address:
            self._start(Kind.DATA, self._data_session)

    def close_data(self) -> None:
        """Drop the data stream with all frames on it."""
        if self._sender is None:
            return
        self._closed_pair = max(self._closed_pair, (self._sender.own, self._sender.peer))
        self._sender = self._receiver = None
        task = self._tasks.pop(Kind.DATA, None)
        if task is not None:
            task.cancel()
        served = self._incoming.get(Kind.DATA)
        if served is not None:
            served.end("the data stream was closed")

    def send_data(self, topic: Topic, frame: bytes) -> None:
        """Send a frame, exactly once. Without a data stream it is lost, with all others that were on it."""
        if self._sender is not None:
            self._sender.push(topic, frame)
            self._data_waits.set()

    @property
    def is_congested(self) -> bool:
        """True if more bytes are unacknowledged than should be."""
        return self._sender is not None and self._sender.is_congested

    @property
    def pending_bytes(self) -> int:
        """The unacknowledged bytes of the data stream."""
        return 0 if self._sender is None else self._sender.unacknowledged_bytes

    # --- streams that we open ---

    def _open_channel(self, kind: Kind) -> Any:
        return open_channel(
            self.address,
            self.name,
            self._transport.security,
            self._options,
            is_for_data=kind is Kind.DATA,
        )

    def _start(self, kind: Kind, run: Callable[[Any], Awaitable[None]]) -> None:
        assert kind not in self._tasks
        self._tasks[kind] = self._transport.spawn(self._keep(kind, run))

    async def _keep(self, kind: Kind, run: Callable[[Any], Awaitable[None]]) -> None:
        """Have one session after the other, until cancelled."""
        is_own = kind is Kind.DATA  # the other channel serves calls as well
        channel = self._open_channel(kind) if is_own else self.channel
        where = f"node '{self.name}' at {self.address}"
        try:
            while True:
                # The channel itself waits longer and longer between attempts to connect.
                delay_s = self._options.reconnect_min_s
                try:
                    await run(channel)
                except StreamEnded as error:
                    self.tell(f"no link to {where}: {error}")
                except HandshakeFailed as error:
                    self.tell(
                        f"{where} refuses the link: {error}"
                        if error.is_theirs
                        else f"no link to {where}: {error}"
                    )
                    delay_s = self._options.refused_retry_s
                except StreamFault as error:
                    self.tell(f"no link to {where}: it breaks the protocol: {error}")
                    delay_s = self._options.refused_retry_s
                await asyncio.sleep(delay_s)
        finally:
            if is_own:
                await channel.close()

    async def _control_session(self, channel: Any) -> None:
        stream = OutgoingStream(channel, Kind.CONTROL, self.name)
        sender = ControlSender()
        try:
            hello = await greet(self._transport, stream, Kind.CONTROL, self.name)
            self._control = sender
            self._control_ended.clear()
            self._stream_ready(hello)
            await first_of(self._listen_for_end(stream), self._write_control(stream, sender))
        except StreamEnded as error:
            if self._control is sender:
                self._was_silent = error.is_silence
                self._forget_control()
                self._stream_lost(str(error))
            raise
        finally:
            if self._control is sender:
                self._forget_control()
            stream.end()

    def _forget_control(self) -> None:
        self._control = None
        self._control_ended.set()

    async def _listen_for_end(self, stream: OutgoingStream) -> None:
        while True:
            await stream.read()

    async def _write_control(self, stream: OutgoingStream, sender: ControlSender) -> None:
        while True:
            batch = sender.next_batch()
            if batch:
                self.sent_bytes += len(batch)
                await stream.write(batch)
            else:
                self._control_waits.clear()
                await self._control_waits.wait()

    async def _data_session(self, channel: Any) -> None:
        sender = self._sender
        assert sender is not None
        stream = OutgoingStream(channel, Kind.DATA, self.name)
        try:
            await greet(self._transport, stream, Kind.DATA, self.name)
            await stream.write(sender.opening())
            sender.resume(await stream.read())
            self._tell_relief(sender)
            await first_of(self._read_acknowledgements(stream, sender), self._write_data(stream, sender))
        finally:
            stream.end()

    async def _read_acknowledgements(self, stream: OutgoingStream, sender: Sender) -> None:
        while True:
            sender.acknowledge(await stream.read())
            self._tell_relief(sender)

    def _tell_relief(self, sender: Sender) -> None:
        if sender is self._sender and sender.take_relieved():
            self._listener.relieved(self.name)
            self._listener.received()

    async def _write_data(self, stream: OutgoingStream, sender: Sender) -> None:
        while True:
            batch = sender.next_batch()
            if batch:
                self.sent_bytes += len(batch)
                await stream.write(batch)
            else:
                self._data_waits.clear()
                await self._data_waits.wait()

    # --- streams that come from there ---

    async def serve(self, kind: Kind, served: ServedStream) -> None:
        """Read an incoming stream until it ends. Raises: StreamEnded, StreamFault."""
        older = self._incoming.get(kind)
        if older is not None:
            older.end("it opened another stream")
        self._incoming[kind] = served
        reading = self._read_control(served) if kind is Kind.CONTROL else self._read_data(served)
        try:
            if kind is Kind.CONTROL:
                if older is not None:
                    self._stream_lost(older.reason)
                self._stream_ready(served.hello)
            await first_of(served.ended(), reading)
        except StreamEnded as error:
            served.end(str(error))
            raise
        finally:
            served.end("its stream was reset")
            if self._incoming.get(kind) is served:
                del self._incoming[kind]
                if kind is Kind.CONTROL:
                    self._stream_lost(served.reason)

    async def _read_control(self, served: ServedStream) -> None:
        receiver = ControlReceiver()
        while True:
            data = await served.stream.read()
            if served.is_ended:
                return
            self.received_bytes += len(data)
            for topic, messages in receiver.receive(data):
                self._listener.control(self.name, topic, messages)
            self._listener.received()

    async def _read_data(self, served: ServedStream) -> None:
        opening = await served.stream.read()
        while self._receiver is None or not self._receiver.opens(opening):
            await self._reopened.wait()
        receiver = self._receiver
        if served.is_ended:
            return
        await served.stream.write(receiver.acknowledgement())
        due = asyncio.Event()
        await first_of(self._read_frames(served, receiver, due), self._acknowledge(served, receiver, due))

    async def _read_frames(self, served: ServedStream, receiver: Receiver, due: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle | None = None
        unacknowledged_bytes = 0

        def acknowledge() -> None:
            nonlocal timer, unacknowledged_bytes
            timer = None
            unacknowledged_bytes = 0
            due.set()

        try:
            while True:
                message = await served.stream.read()
                if served.is_ended:
                    return
                self.received_bytes += len(message)
                frames = receiver.receive(message)
                if frames:
                    self._listener.data(self.name, frames)
                    self._listener.received()
                unacknowledged_bytes += len(message)
                if timer is None:
                    timer = loop.call_later(self._options.ack_after_s, acknowledge)
                if unacknowledged_bytes >= self._options.ack_bytes:
                    timer.cancel()
                    acknowledge()
        finally:
            if timer is not None:
                timer.cancel()

    async def _acknowledge(self, served: ServedStream, receiver: Receiver, due: asyncio.Event) -> None:
        while True:
            await due.wait()
            due.clear()
            await served.stream.write(receiver.acknowledgement())

    # --- is the link up? ---

    def _stream_ready(self, hello: Hello) -> None:
        self._incarnation = hello.incarnation
        if self._judging is not None:
            # The node is there: only the connection broke.
            self._judging.cancel()
            self._link_is_down(is_gone=False, reason="the connection broke")
        if self._control is not None and Kind.CONTROL in self._incoming and not self._is_up:
            self._is_up = True
            self._told.clear()
            self._listener.link_up(self.name, self._incarnation)

    def _stream_lost(self, reason: str) -> None:
        if self._is_up and self._judging is None:
            self._judging = self._transport.spawn(self._judge(reason))

    async def _judge(self, reason: str) -> None:
        """Find out whether the other node is gone, and report that the link is down."""
        is_gone = False
        if not (self._control is None and self._was_silent):
            await asyncio.sleep(self._options.probe_after_s)
            if await is_refused(self.address, self._options.connect_s):
                try:
                    # Its stream to us may have broken before ours to it.
                    await asyncio.wait_for(self._control_ended.wait(), self._options.connect_s)
                    is_gone = not self._was_silent
                except TimeoutError:
                    is_gone = False
        self._link_is_down(is_gone=is_gone, reason=reason)
        if self._control is not None and Kind.CONTROL in self._incoming:
            self._is_up = True
            self._listener.link_up(self.name, self._incarnation)

    def _link_is_down(self, *, is_gone: bool, reason: str) -> None:
        self._judging = None
        self._is_up = False
        self._listener.link_down(self.name, is_gone=is_gone, reason=reason)

    def tell(self, line: str) -> None:
        """Log why there is no link, once per reason."""
        if line not in self._told and len(self._told) < _TOLD_MAX:
            self._told.add(line)
            self._transport.log(line)


async def greet(transport: "Transport", stream: OutgoingStream, kind: Kind, name: str) -> Hello:
    """Run the opener's side of the handshake.   name: the node that must answer; empty: any of the cluster.

    Raises: HandshakeFailed, StreamEnded.
    """
    opener = Opener(transport.identity, kind, name, transport.security.secret, os.urandom(NONCE_BYTES))
    try:
        async with asyncio.timeout(transport.options.handshake_s):
            await stream.write(opener.greet())
            try:
                await stream.write(opener.receive_greeting(await stream.read()))
                hello = opener.receive_proof(await stream.read())
                why_not = transport.listener.admit(hello)
                if why_not is not None:
                    raise HandshakeFailed(why_not)
            except HandshakeFailed as error:
                if not error.is_theirs:
                    await stream.write(refusal(str(error)))
                raise
            await stream.write(opener.accepted())
    except TimeoutError:
        raise StreamEnded("it doesn't answer", is_silence=True) from None
    return hello


async def is_refused(address: str, timeout_s: float) -> bool:
    """True if every address of a host refuses the connection.   address: host:port."""
    loop = asyncio.get_running_loop()
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(timeout_s):
            found = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
            for family, kind, protocol, _, target in found:
                with socket.socket(family, kind, protocol) as sock:
                    sock.setblocking(False)
                    try:
                        await loop.sock_connect(sock, target)
                    except ConnectionRefusedError:
                        continue
                    return False
    except OSError:  # TimeoutError too: no answer is no refusal
        return False
    return True
