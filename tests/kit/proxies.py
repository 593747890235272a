"""Links between nodes that can be cut, without being root: a process that every link goes through.

Each node tells the others the address of its proxy here. Who a link comes from is found out by the process that has
the other end of it. A cut is silent (nothing passes, new links are accepted and stay dumb, as if packets were lost)
or by resets (links break, new ones too). A slow link passes all on, in order, but later.

    python -m tests.kit.proxies      a JSON object a line on standard input, one a line back
"""

import asyncio
import contextlib
import json
import os
import socket
import struct
import sys
from collections import deque
from pathlib import Path
from typing import Any, Final, cast

HOST: Final = "127.0.0.1"
TRIES: Final = 2
_RESET: Final = struct.pack("ii", 1, 0)


class End(asyncio.Protocol):
    """One side of a link. It passes its data to the other side."""

    def __init__(self, link: "Link") -> None:
        self.link = link
        self.other: End | None = None
        self.transport: asyncio.Transport | None = None
        self._late: deque[bytes] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self is self.link.near:
            self.link.begin()

    def data_received(self, data: bytes) -> None:
        delay_s = self.link.delay_s
        if delay_s or self._late:
            self._late.append(data)
            asyncio.get_running_loop().call_later(delay_s, self._pass_on)
        elif self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def _pass_on(self) -> None:
        """Pass on the oldest delayed data, because timers of the same moment come in any order."""
        data = self._late.popleft()
        other = None if self.other is None else self.other.transport
        if other is not None and not other.is_closing():
            other.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if not self.link.is_silent and self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self.link.ended(self, error)

    def hush(self, *, is_silent: bool) -> None:
        """Stop reading, or start again."""
        if self.transport is not None and not self.transport.is_closing():
            if is_silent:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def reset(self) -> None:
        """End the connection with a reset."""
        if self.transport is not None and not self.transport.is_closing():
            sock = self.transport.get_extra_info("socket")
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.transport.abort()


class Link:
    """A connection that one node opened to another."""

    def __init__(self, proxies: "Proxies", target: str) -> None:
        self.proxies = proxies
        self.target = target
        self._pair: frozenset[str] | None = None
        self.is_silent = False
        self.near = End(self)
        self.far = End(self)
        self._is_connected = False

    def accepted(self) -> End:
        """Make a link for a connection that was just accepted."""
        self.proxies.links.add(self)
        return self.near

    def begin(self) -> None:
        """Connect to the other node, unless the link is cut."""
        assert self.near.transport is not None
        self.near.transport.pause_reading()
        # Who it is from costs milliseconds to find out, so it is asked only when it matters.
        how = self.proxies.cuts.get(self.pair) if self.proxies.cuts else None
        if how == "reset":
            self.reset()
        elif how == "silent":
            self.is_silent = True
        else:
            self.go_on()

    @property
    def pair(self) -> frozenset[str]:
        """Return the names of the nodes at the ends of the link; only one if the other is no longer known."""
        if self._pair is None:
            if self.near.transport is None:
                return frozenset((self.target,))  # it is just being made: it looks at the cuts when it is
            port = self.near.transport.get_extra_info("peername")[1]
            self._pair = frozenset((self.proxies.node_of(port), self.target))
        return self._pair

    @property
    def delay_s(self) -> float:
        """Return the delay of data on this link, in s."""
        delays = self.proxies.delays
        return delays.get(None) or delays.get(self.pair, 0.0) if delays else 0.0

    def go_on(self) -> None:
        """Start passing data on."""
        self.is_silent = False
        if self._is_connected:
            self.near.hush(is_silent=False)
            self.far.hush(is_silent=False)
        else:
            self._is_connected = True
            self.proxies.spawn(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        sock = socket.socket()
        sock.setblocking(False)
        try:
            if self.proxies.mark:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, self.proxies.mark)
            await loop.sock_connect(sock, self.proxies.targets[self.target])
            await loop.create_connection(lambda: self.far, sock=sock)
        except OSError:
            sock.close()
            self.reset()
            return
        self.near.other, self.far.other = self.far, self.near
        if self.near.transport is None or self.near.transport.is_closing():
            self.far.reset()
        elif not self.is_silent:
            self.near.hush(is_silent=False)

    def silence(self) -> None:
        """Stop passing data on."""
        self.is_silent = True
        self.near.hush(is_silent=True)
        self.far.hush(is_silent=True)

    def reset(self) -> None:
        """Reset both sides of the link."""
        self.near.reset()
        self.far.reset()

    def ended(self, end: End, error: Exception | None) -> None:
        """Close the other side after one side has ended."""
        other = self.far if end is self.near else self.near
        if error is not None:
            other.reset()
        elif other.transport is not None:
            other.transport.close()
        if other.transport is None or other.transport.is_closing():
            self.proxies.links.discard(self)


class Proxies:
    """All links between nodes.   ports: of the proxies.   targets: the nodes.   cuts: by names.   delays: in s.

    mark: of what goes to the nodes, for rules of the kernel.
    """

    def __init__(self) -> None:
        self.links: set[Link] = set()
        self.ports: dict[str, int] = {}
        self.targets: dict[str, tuple[str, int]] = {}
        self.pids: dict[str, int] = {}
        self.cuts: dict[frozenset[str], str] = {}
        self.delays: dict[frozenset[str] | None, float] = {}  # None: of all
        self.mark = 0
        self._servers: dict[str, asyncio.Server] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._owners: dict[int, str] = {}  # the last look at who has which port

    def spawn(self, work: Any) -> None:
        """Run a coroutine as a task to its end."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def do(self, asked: dict[str, Any]) -> Any:
        """Carry out a line from standard input."""
        name = asked.get("name", "")
        match asked["do"]:
            case "target":
                self.targets[name] = asked["host"], asked["port"]
            case "mark":
                self.mark = asked["mark"]
            case "pid":
                self.pids[name] = asked["pid"]
            case "open":
                return await self._open(name)
            case "close":
                self._close(name)
            case "cut":
                self._owners = self._look_up()
                for pair in asked["pairs"]:
                    self._cut(frozenset(pair), asked["how"])
            case "slow":
                pairs = asked["pairs"]
                keys = [None] if pairs is None else [frozenset(pair) for pair in pairs]
                self.delays.update(dict.fromkeys(keys, asked["delay_s"]))
            case "heal":
                self.cuts.clear()
                self.delays.clear()
                for link in [link for link in self.links if link.is_silent]:
                    link.go_on()
        return None

    def node_of(self, port: int) -> str:
        """Return the node that has the socket with this local port."""
        for _ in range(TRIES):
            if port not in self._owners:
                # The table of sockets may lack one when it changes while it is read.
                self._owners = self._look_up()
        return self._owners.get(port, "?")

    def _look_up(self) -> dict[int, str]:
        """Return the nodes by the local ports of their sockets. This takes some milliseconds."""
        names: dict[str, str] = {}
        for name, pid in self.pids.items():
            with contextlib.suppress(OSError):
                for fd in os.scandir(f"/proc/{pid}/fd"):
                    with contextlib.suppress(OSError):
                        names[os.readlink(fd.path)] = name
        owners = {}
        for table in ("tcp", "tcp6"):
            for line in Path("/proc/net", table).read_text().splitlines()[1:]:
                fields = line.split()
                name = names.get(f"socket:[{fields[9]}]", "")
                if name:
                    owners[int(fields[1].rpartition(":")[2], 16)] = name
        return owners

    async def _open(self, name: str) -> int:
        """Accept connections for a node, at the same port each time. Returns: the port."""
        if name not in self._servers:
            loop = asyncio.get_running_loop()
            make = lambda: Link(self, name).accepted()  # noqa: E731
            server = await loop.create_server(make, HOST, self.ports.get(name, 0), reuse_address=True)
            self._servers[name] = server
            self.ports[name] = server.sockets[0].getsockname()[1]
        return self.ports[name]

    def _close(self, name: str) -> None:
        """Refuse connections, as a host does where the node's process has ended."""
        server = self._servers.pop(name, None)
        if server is not None:
            server.close()

    def _cut(self, pair: frozenset[str], how: str) -> None:
        self.cuts[pair] = how
        for link in [link for link in self.links if link.pair == pair]:
            if how == "silent":
                link.silence()
            else:
                link.reset()


async def serve() -> None:
    """Do what standard input says until it ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    proxies = Proxies()
    while line := await reader.readline():
        print(json.dumps(await proxies.do(json.loads(line))), flush=True)


if __name__ == "__main__":
    with contextlib.suppress(OSError):
        os.nice(-10)  # a busy machine must not look like a slow network
    asyncio.run(serve())
