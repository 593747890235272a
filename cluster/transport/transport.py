"""The links of one node to the others.

    Transport ─┬─ Service   streams that others open  ───┐
               └─ PeerLink  one for each other node  ◄───┘  two streams there, two from there
    call       ── a stream of its own, for one request

Everything runs on one event loop. `connect` keeps links to a member up; the Listener gets all messages, and is told
when a link is up or down. `cluster.transport.interface` has what either side may expect.
"""

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Coroutine
from typing import Any

from cluster.transport.calls import ask
from cluster.transport.handshake import REFUSAL_CHARACTERS_MAX, HandshakeFailed, Kind
from cluster.transport.interface import (
    CALL_BYTES_MAX,
    Identity,
    InsecureListener,
    LinkOptions,
    Listener,
    PeerRefused,
    Topic,
    Traffic,
    Unreachable,
)
from cluster.transport.introductions import greet, new_opener
from cluster.transport.link_stream import LinkStream, dial
from cluster.transport.peer_link import PeerLink
from cluster.transport.resolver import addresses
from cluster.transport.security import Security
from cluster.transport.service import Service
from cluster.transport.stream import StreamEnded, StreamFault
from node.log.log import category_logger, escape


class Transport:
    """Links to other nodes.

    identity: may be replaced at any time; handshakes from then on carry the new one.
    """

    def __init__(
        self,
        identity: Identity,
        security: Security,
        listener: Listener,
        options: LinkOptions | None = None,
        *,
        logger: logging.Logger | None = None,
    ) -> None:
        self.identity = identity
        self.security = security
        self.listener = listener
        self.options = options or LinkOptions()
        self.is_closing = False
        self._logger = logger or category_logger()
        self._peers: dict[str, PeerLink] = {}
        self._service = Service(self)
        self._tasks: set[asyncio.Task[None]] = set()
        self._calls: set[LinkStream] = set()

    # --- listening ---

    async def listen(self, host: str, port: int) -> int:
        """Accept links.   port: 0 for any.   Returns: the port. Once only.

        Raises: OSError; InsecureListener when other hosts could reach it and need not prove anything.
        """
        if host:
            found = await addresses(host, port)
        else:
            found = socket.getaddrinfo(None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        hosts = [str(target[0]) for *_, target in found]
        if not self.security.is_safe and not all(_is_loopback(host) for host in hosts):
            raise InsecureListener(
                f"nodes on other hosts could join by {host or '*'}:{port} without proving anything: give the nodes "
                "certificates or a cluster secret, or listen on 127.0.0.1"
            )
        chosen = hosts[0] if host or "::" not in hosts else "::"
        return self._service.port.listen(chosen, port)

    # --- links ---

    def connect(self, name: str, address: str) -> None:
        """Keep links to a member.   address: host:port."""
        assert name != self.identity.name
        if not self.is_closing:
            self.peer(name).connect(address)

    def disconnect(self, name: str) -> None:
        """Close the links to a node, its data stream too, and forget it. `link_down` is not called."""
        peer = self._peers.pop(name, None)
        if peer is not None:
            peer.close()

    def open_data(self, name: str, own_incarnation: int, incarnation: int) -> None:
        """Open the data stream between two incarnations. That of any other two is dropped, with all frames on it.

        Nothing happens when it is open. One that was closed cannot be opened again: an AssertionError.
        """
        if not self.is_closing:
            self.peer(name).open_data(own_incarnation, incarnation)

    def close_data(self, name: str) -> None:
        """Drop the data stream to a node, with all frames on it."""
        if name in self._peers:
            self._peers[name].close_data()
            self.drop_if_idle(name)

    def send_control(self, name: str, topic: Topic, message: bytes) -> bool:
        """Send a message of up to 8 MiB. False: no link now, or too much waits for it."""
        peer = self._peers.get(name)
        return peer is not None and peer.send_control(topic, message)

    def send_data(self, name: str, topic: Topic, frame: bytes) -> None:
        """Send a frame of up to `FRAME_BYTES_MAX`, kept until it is acknowledged; without a data stream it is
        dropped.
        """
        peer = self._peers.get(name)
        if peer is not None:
            peer.send_data(topic, frame)

    def is_congested(self, name: str) -> bool:
        """True if more than `congested_bytes` to a node are unacknowledged; `relieved` tells when half is free."""
        peer = self._peers.get(name)
        return peer is not None and peer.is_congested

    def pending_bytes(self, name: str) -> int:
        """The unacknowledged bytes of the data stream to a node."""
        peer = self._peers.get(name)
        return 0 if peer is None else peer.pending_bytes

    # --- calls ---

    def traffic(self) -> dict[str, Traffic]:
        """Return the traffic between this node and each other one, by its name."""
        return {name: peer.traffic for name, peer in self._peers.items()}

    async def call(self, address: str, body: bytes, timeout_s: float) -> bytes:
        """Send a request to a node, a member or not, and return its answer.   body: up to 1 MiB.

        Raises: Unreachable (also when no answer came in time: whether it was done is not known), PeerRefused.
        """
        assert len(body) <= CALL_BYTES_MAX
        if self.is_closing:
            raise Unreachable("this node stops")
        name = next((peer.name for peer in self._peers.values() if peer.address == address), "")
        stream: LinkStream | None = None
        try:
            async with asyncio.timeout(timeout_s):
                stream = await dial(address, name, Kind.CALL, self.security, self.options)
                self._calls.add(stream)
                if self.is_closing:
                    raise StreamEnded("this node stops")
                opener = new_opener(
                    self.identity, Kind.CALL, name, self.security.secret, stream.certified_names
                )
                await greet(stream, opener, self.listener.admit, self.options.handshake_s)
                reply = await ask(stream, body)
        except TimeoutError:
            raise Unreachable(f"{address} has not answered within {timeout_s:g} s") from None
        except StreamEnded as error:
            kind = PeerRefused if error.is_distrust else Unreachable
            raise kind(escape(f"{address}: {error}")) from error
        except StreamFault as error:
            raise Unreachable(escape(f"{address}: it breaks the protocol: {error}")) from error
        except HandshakeFailed as error:
            verb = " refuses" if error.is_theirs else ""
            raise PeerRefused(escape(f"{address}{verb}: {error}")) from error
        finally:
            if stream is not None:
                stream.end("the call is over")
                self._calls.discard(stream)
        if reply.WhichOneof("result") == "refusal":
            raise PeerRefused(escape(f"{address} refuses: {reply.refusal[:REFUSAL_CHARACTERS_MAX]}"))
        return reply.body

    # --- the end ---

    async def close(self) -> None:
        """End all links, calls and the listener. Nothing is called any more, and nothing can be begun."""
        self.is_closing = True
        self._service.close()
        for stream in self._calls:
            stream.end("this node stops")
        for name in list(self._peers):
            self.disconnect(name)
        if self._tasks:
            await asyncio.wait(self._tasks)

    # --- for peers and service ---

    def peer(self, name: str) -> PeerLink:
        """Return the `PeerLink` of a node; made when there is none yet."""
        if name not in self._peers:
            self._peers[name] = PeerLink(self, name)
        return self._peers[name]

    def drop_if_idle(self, name: str) -> None:
        """Forget a node to which no link or stream is left."""
        if name in self._peers and self._peers[name].is_idle:
            del self._peers[name]

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine until it ends, or the transport does."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            # An error of ours: it ends where the loop's errors end.
            task.get_loop().call_exception_handler(
                {"message": "a link has failed", "exception": task.exception(), "task": task}
            )

    def log(self, line: str) -> None:
        """Log one line for the operator; text of the other side in it is escaped."""
        self._logger.warning("%s", escape(line))


def _is_loopback(host: str) -> bool:
    return ipaddress.ip_address(host.partition("%")[0]).is_loopback
