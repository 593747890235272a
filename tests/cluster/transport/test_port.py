"""The port of links and of gRPC: by the first byte, and what is passed on is passed on whole."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from cluster.transport import port as port_module
from cluster.transport.frames import CONTROL, preface
from cluster.transport.port import Caller, PeerPort, first_byte, host_of, is_grpc, is_link
from tests.cluster.transport.links import run, until


@asynccontextmanager
async def passing() -> AsyncIterator[tuple[PeerPort, int, list[str]]]:
    """A port that passes everything on to a server that sends back what comes, and the sources that it sees."""
    sources: list[str] = []
    tasks: set[asyncio.Task[None]] = set()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sources.append("{}:{}".format(*writer.get_extra_info("peername")))
        writer.write(b"hello ")  # gRPC speaks first, too
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
                if data.endswith(b"bye"):
                    break
            writer.close()

    def accepted(caller: Caller) -> None:
        task = asyncio.get_running_loop().create_task(port.pass_on(caller))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = PeerPort(accepted)
    port.grpc_port = server.sockets[0].getsockname()[1]
    try:
        yield port, port.listen("127.0.0.1", 0), sources
    finally:
        port.close()
        port.end_passages()
        server.close()


@pytest.mark.real
def test_what_is_passed_on_is_passed_on_whole() -> None:
    """More than all buffers hold, to a side that reads late."""

    async def story() -> None:
        async with passing() as (port, number, sources):
            reader, writer = await asyncio.open_connection("127.0.0.1", number)
            sent = bytes(range(256)) * 40_000 + b"bye"
            writer.write(sent)
            await until(lambda: sources)
            name = writer.get_extra_info("sockname")
            assert port.source_of(sources[0]) == f"127.0.0.1:{name[1]}"
            assert await reader.read() == b"hello " + sent
            writer.close()
            await until(lambda: port.source_of(sources[0]) == sources[0])
            assert port.source_of("10.0.0.1:80") == "10.0.0.1:80"

    run(story())


@pytest.mark.real
def test_when_one_side_goes_the_other_one_does() -> None:
    async def story() -> None:
        async with passing() as (port, number, sources):
            reader, writer = await asyncio.open_connection("127.0.0.1", number)
            assert await reader.readexactly(6) == b"hello "
            port.end_passages()
            assert await reader.read() == b""
            writer.close()
            _, writer = await asyncio.open_connection("127.0.0.1", number)
            await until(lambda: len(sources) == 2)
            writer.transport.abort()
            await until(lambda: port.source_of(sources[1]) == sources[1])

    run(story())


@pytest.mark.real
@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (preface(CONTROL, is_encrypted=True), (True, False)),
        (b"PRI * HTTP/2.0", (False, True)),
        (b"\x16\x03\x01", (False, True)),
        (b"GET /", (False, False)),
        (b"", (False, False)),
    ],
)
def test_the_first_byte_decides_and_stays_where_it_is(said: bytes, wanted: tuple[bool, bool]) -> None:
    async def story() -> None:
        here, there = socket.socketpair()
        with here, there:
            here.setblocking(False)
            there.sendall(said)
            there.shutdown(socket.SHUT_WR)
            byte = await first_byte(here)
            assert (is_link(byte), is_grpc(byte)) == wanted
            assert here.recv(100) == said

    run(story())


@pytest.mark.real
def test_without_descriptors_nothing_is_accepted_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contract: the loop does not spin, and goes on when there are some."""
    accepted: list[Caller] = []
    tries: list[None] = []

    class Listening(socket.socket):
        def accept(self) -> tuple[socket.socket, object]:
            tries.append(None)
            if len(tries) < 3:
                raise OSError(errno.EMFILE, "too many")
            return super().accept()

    async def story() -> None:
        port = PeerPort(accepted.append)
        monkeypatch.setattr(socket, "socket", Listening)
        number = port.listen("127.0.0.1", 0)
        monkeypatch.undo()
        _, writer = await asyncio.open_connection("127.0.0.1", number)
        await until(lambda: accepted)
        assert len(tries) <= 5
        [caller] = accepted
        assert host_of(caller.source) == "127.0.0.1"
        caller.sock.close()
        writer.close()
        port.close()

    run(story())


@pytest.mark.real
def test_a_machine_without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every interface is then every one that there is; another address is an error as ever."""
    listening = port_module._listening

    def without(host: str, port: int) -> socket.socket:
        if ":" in host:
            raise OSError(errno.EAFNOSUPPORT, "no IPv6")
        return listening(host, port)

    async def story() -> None:
        monkeypatch.setattr(port_module, "_listening", without)
        port = PeerPort(lambda caller: caller.sock.close())
        with pytest.raises(OSError, match="no IPv6"):
            port.listen("::1", 0)
        number = port.listen("::", 0)
        _, writer = await asyncio.open_connection("127.0.0.1", number)
        writer.close()
        port.close()

    run(story())


def test_hosts() -> None:
    assert host_of("[::1]:5") == "[::1]"
    assert host_of("10.0.0.1:5") == "10.0.0.1"
