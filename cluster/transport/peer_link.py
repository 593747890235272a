"""The links to one other node: two streams that this node opens, and two that the other one opens.

    connect ─► control stream ──┐ both: link_up ─► one ends: is it gone? ─► link_down
    its control stream here ────┘
    open_data ─► data stream, as long as both incarnations live: kept up, resumed, never begun anew

The other node is *gone* when our stream was reset and then its host refuses a connection: no process holds the port
any more. Silence proves nothing.

The first message of a turn of the loop is written at once, the others together at its end.

Source: ring §4; docs/internals/links.md, "Two streams in each direction".
"""

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from cluster.transport.control import ControlReceiver, ControlSender
from cluster.transport.handshake import HandshakeFailed, Kind
from cluster.transport.inbox import Frames, Inbox
from cluster.transport.incoming_data import IncomingData
from cluster.transport.interface import Hello, Topic, Traffic
from cluster.transport.introductions import greet, new_opener
from cluster.transport.link_stream import LinkStream, dial
from cluster.transport.resolver import addresses
from cluster.transport.stream import Receiver, Sender, StreamEnded, StreamFault

if TYPE_CHECKING:
    from cluster.transport.transport import Transport


_TOLD_MAX: Final = 32
"""The most reasons that are logged until the link is up again; a peer that makes up reasons gets no more."""


_SHORT_S: Final = 2.0
"""A session that ends within this time does not shorten the wait before the next one."""


class _Outlet:
    """Writes what a sender has to the stream of the present session, as far as there is room.

    The first message of a turn of the loop is written at once, as it often is the only one. The others go together at
    the turn's end: a write costs as much as many small messages.
    """

    def __init__(self, sent: Callable[[int], None]) -> None:
        self._sent = sent
        self._stream: LinkStream | None = None
        self._sender: ControlSender | Sender | None = None
        self._is_coming = False

    def begin(self, stream: LinkStream, sender: ControlSender | Sender) -> None:
        """Take the stream of a session."""
        self._stream, self._sender = stream, sender
        stream.on_room = self.flush
        self.flush()

    def end(self, stream: LinkStream) -> None:
        """Write nothing more to the stream of a session, unless another one has begun."""
        if self._stream is stream:
            self._stream = self._sender = None

    def soon(self) -> None:
        """Write now, or at the end of this turn if something was written in it."""
        if not self._is_coming and self._stream is not None and self._stream.has_room:
            self._is_coming = True
            asyncio.get_running_loop().call_soon(self._end_turn)
            self.flush()

    def _end_turn(self) -> None:
        self._is_coming = False
        self.flush()

    def flush(self) -> None:
        """Write until nothing waits, or the kernel takes no more."""
        while (
            (stream := self._stream) is not None
            and self._sender is not None
            and stream.has_room
            and not stream.is_ended
            and (batch := self._sender.next_batch())
        ):
            self._sent(len(batch))
            stream.send(batch)


class PeerLink:
    """One other node, with all streams to and from it."""

    def __init__(self, transport: "Transport", name: str) -> None:
        self._transport = transport
        self._listener = transport.listener
        self._options = transport.options
        self.name = name
        self.address = ""
        """The address that links go to; empty: none are wanted."""
        self.sent_bytes = self.received_bytes = 0
        self._tasks: dict[Kind, asyncio.Task[None]] = {}
        self._outlets = {kind: _Outlet(self._has_sent) for kind in (Kind.CONTROL, Kind.DATA)}
        self._told: set[str] = set()  # reasons in the log since the link was up; there is a handful of them
        # control
        self._is_up = False
        self._control: ControlSender | None = None  # of the session that is ready
        self._control_ended = asyncio.Event()  # whether no session is ready
        self._control_ended.set()
        self._was_silent = False  # why the last session ended
        self._incarnation = 0
        self._judging: asyncio.Task[None] | None = None
        self._incoming: dict[Kind, LinkStream] = {}
        # data
        self._sender: Sender | None = None
        self._receiver: Receiver | None = None
        self._inbox = Inbox(self._deliver)
        """The frames that `_receiver` has received."""
        self._incoming_data: IncomingData | None = None
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
        self._start(Kind.CONTROL)
        if self._sender is not None:
            self._start(Kind.DATA)

    def disconnect_links(self) -> None:
        """End the streams that this node opens."""
        self.address = ""
        for task in self._tasks.values():
            task.cancel()
        self._tasks = {}
        self._forget_control()

    def close(self) -> None:
        """Forget the other node; the listener is not told."""
        self.close_data()
        self._is_up = False
        if self._judging is not None:
            self._judging.cancel()
            self._judging = None
        self.disconnect_links()
        for stream in list(self._incoming.values()):
            stream.end("the link was given up")

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
        self._outlets[Kind.CONTROL].soon()
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
        self._receiver, self._inbox = Receiver(incarnation, own), Inbox(self._deliver)
        self._begin_data()
        if self.address:
            self._start(Kind.DATA)

    def close_data(self) -> None:
        """Drop the data stream with all frames on it."""
        if self._sender is None:
            return
        self._closed_pair = max(self._closed_pair, (self._sender.own, self._sender.peer))
        self._sender = self._receiver = None
        self._inbox.close()
        task = self._tasks.pop(Kind.DATA, None)
        if task is not None:
            task.cancel()
        stream = self._incoming.get(Kind.DATA)
        if stream is not None:
            stream.end("the data stream was closed")

    def send_data(self, topic: Topic, frame: bytes) -> None:
        """Send a frame, exactly once. Without a data stream it is lost, with all others that were on it."""
        if self._sender is not None:
            self._sender.push(topic, frame)
            self._outlets[Kind.DATA].soon()

    @property
    def is_congested(self) -> bool:
        """True if more bytes are unacknowledged than should be."""
        return self._sender is not None and self._sender.is_congested

    @property
    def pending_bytes(self) -> int:
        """The unacknowledged bytes of the data stream."""
        return 0 if self._sender is None else self._sender.unacknowledged_bytes

    def _has_sent(self, count: int) -> None:
        self.sent_bytes += count

    # --- streams that we open ---

    def _start(self, kind: Kind) -> None:
        assert kind not in self._tasks
        self._tasks[kind] = self._transport.spawn(self._keep(kind))

    async def _keep(self, kind: Kind) -> None:
        """Have one session after the other, until cancelled."""
        where = f"node '{self.name}' at {self.address}"
        now = asyncio.get_running_loop().time
        delay_s = 0.0
        while True:
            begun_s = now()
            try:
                await self._session(kind)
            except StreamEnded as error:
                self.tell(f"no link to {where}: {error}")
                if now() - begun_s > _SHORT_S:
                    delay_s = 0.0
                delay_s = min(max(2 * delay_s, self._options.reconnect_min_s), self._options.reconnect_max_s)
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

    async def _session(self, kind: Kind) -> None:
        """Open a stream and use it until it ends. Raises: StreamEnded, HandshakeFailed, StreamFault."""
        transport = self._transport
        stream = await dial(self.address, self.name, kind, transport.security, self._options)
        try:
            opener = new_opener(
                transport.identity, kind, self.name, transport.security.secret, stream.certified_names
            )
            hello = await greet(stream, opener, self._listener.admit, self._options.handshake_s)
            if kind is Kind.CONTROL:
                await self._control_session(stream, hello)
            else:
                await self._data_session(stream)
        finally:
            self._outlets[kind].end(stream)
            stream.end("the link was given up")

    async def _control_session(self, stream: LinkStream, hello: Hello) -> None:
        sender = ControlSender()
        try:
            stream.open(_nothing_comes_back)
            self._outlets[Kind.CONTROL].begin(stream, sender)
            self._control = sender
            self._control_ended.clear()
            self._stream_ready(hello)
            await stream.ended()
        except (StreamEnded, StreamFault) as error:
            if self._control is sender:
                self._was_silent = isinstance(error, StreamEnded) and error.is_silence
                self._forget_control()
                self._stream_lost(str(error))
            raise
        finally:
            if self._control is sender:
                self._forget_control()

    def _forget_control(self) -> None:
        self._control = None
        self._control_ended.set()

    async def _data_session(self, stream: LinkStream) -> None:
        sender = self._sender
        assert sender is not None
        is_resumed = False

        def take(messages: list[bytes]) -> None:
            nonlocal is_resumed
            for message in messages:
                if is_resumed:
                    sender.acknowledge(message)
                else:
                    sender.resume(message)
                    is_resumed = True
                    self._outlets[Kind.DATA].begin(stream, sender)
            self._tell_relief(sender)

        stream.open(take)
        stream.send(sender.opening())
        await stream.ended()

    def _tell_relief(self, sender: Sender) -> None:
        if sender is self._sender and sender.take_relieved():
            self._listener.relieved(self.name)
            self._listener.received()

    # --- streams that come from there ---

    async def serve(self, kind: Kind, stream: LinkStream, hello: Hello) -> None:
        """Receive from a stream that the other node has opened, until it ends. Raises: StreamEnded, StreamFault."""
        older = self._incoming.get(kind)
        if older is not None:
            older.end("it opened another stream")
        self._incoming[kind] = stream
        data: IncomingData | None = None
        try:
            if kind is Kind.CONTROL:
                if older is not None:
                    self._stream_lost(older.reason)
                self._stream_ready(hello)
                self._take_control(stream)
            else:
                data = self._incoming_data = IncomingData(stream, self._options, self._begin_data)
                stream.open(self._counted(data.take))
            await stream.ended()
        finally:
            stream.end("the link was given up")
            if data is not None:
                data.end()
            if self._incoming.get(kind) is stream:
                del self._incoming[kind]
                if kind is Kind.CONTROL:
                    self._stream_lost(stream.reason)
                else:
                    self._incoming_data = None

    def _take_control(self, stream: LinkStream) -> None:
        receiver = ControlReceiver()

        def take(messages: list[bytes]) -> None:
            for message in messages:
                for topic, found in receiver.receive(message):
                    self._listener.control(self.name, topic, found)
            self._listener.received()

        stream.open(self._counted(take))

    def _counted(self, take: Callable[[list[bytes]], None]) -> Callable[[list[bytes]], None]:
        def counted(messages: list[bytes]) -> None:
            self.received_bytes += sum(map(len, messages))
            take(messages)

        return counted

    def _deliver(self, frames: Frames) -> None:
        self._listener.data(self.name, frames)
        self._listener.received()

    def _begin_data(self) -> None:
        """Let the incoming data stream begin if it was opened for the incarnations that are open here."""
        if self._incoming_data is not None and self._receiver is not None:
            self._incoming_data.begin(self._receiver, self._inbox)

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


def _nothing_comes_back(_messages: list[bytes]) -> None:
    raise StreamFault("a message on a stream that this node has opened")


async def is_refused(address: str, timeout_s: float) -> bool:
    """True if every address of a host refuses the connection.   address: host:port."""
    loop = asyncio.get_running_loop()
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(timeout_s):
            found = await addresses(host.strip("[]"), int(port))
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
