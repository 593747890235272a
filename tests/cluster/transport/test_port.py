"""The port that other nodes connect to accepts whatever comes, and leaves its bytes alone."""

import asyncio
import errno
import socket

import pytest

from cluster.transport import port as port_module
from cluster.transport.frames import CONTROL, preface
from cluster.transport.port import Caller, PeerPort, first_byte, host_of
from tests.cluster.transport.links import run, until


@pytest.mark.real
@pytest.mark.parametrize("said", [preface(CONTROL, is_encrypted=True), b"GET /", b""])
def test_the_first_byte_stays_where_it_is(said: bytes) -> None:
    async def story() -> None:
        here, there = socket.socketpair()
        with here, there:
            here.setblocking(False)
            there.sendall(said)
            there.shutdown(socket.SHUT_WR)
            assert await first_byte(here) == said[:1]
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
