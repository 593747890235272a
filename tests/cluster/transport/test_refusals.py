"""Who is refused, and what a hostile or broken peer can do: little (reliability §5.4, §6)."""

import asyncio
import contextlib
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.transport import wire
from cluster.transport.handshake import Kind, Opener
from cluster.transport.handshakes import HANDSHAKES_MAX
from cluster.transport.interface import (
    Identity,
    LinkOptions,
    PeerRefused,
    Unreachable,
)
from cluster.transport.peer_link import greet
from cluster.transport.peer_pb2 import Handshake
from cluster.transport.security import Security
from cluster.transport.wire import MESSAGE_BYTES_MAX, OutgoingStream, StreamEnded, open_channel
from tests.cluster.transport.links import Node, link, run, until
from tests.kit import certificates

SECRET = Security(secret=b"a secret")

# --- who is refused ---


@pytest.mark.parametrize("theirs", [b"another secret", b""])
def test_a_wrong_secret(theirs: bytes) -> None:
    """Refused on both sides, and each reason is in the log once however often it is tried."""

    async def story() -> None:
        options = LinkOptions(refused_retry_s=0.01)
        async with (
            Node("n1", SECRET, options) as first,
            Node("n2", Security(secret=theirs), options) as second,
        ):
            first.transport.connect("n2", second.address)
            second.transport.connect("n1", first.address)
            await until(lambda: len(first.lines) >= 2 and len(second.lines) >= 2)
            await asyncio.sleep(0.2)
            for node in (first, second):
                assert (node.links, node.hellos) == ([], [])
                assert len(node.lines) == len(set(node.lines)) == 2
                assert all("the nodes have different cluster secrets" in line for line in node.lines)
            with pytest.raises(PeerRefused, match="different cluster secrets"):
                await second.transport.call(first.address, b"join", 10)

    run(story())


def test_a_certificate_of_another_node(certs: Path) -> None:
    """reliability §6: the name in the certificate must be the name that is claimed."""

    async def story() -> None:
        first = Node("rabbit@n1", certificates.of(certs, "rabbit@n1"))
        rogue = Node("rabbit@n2", certificates.of(certs, "rabbit@n3"))
        async with first, rogue:
            first.transport.connect("rabbit@n2", rogue.address)
            rogue.transport.connect("rabbit@n1", first.address)
            await until(lambda: len(first.lines) == 2 and rogue.lines)
            assert [line for line in first.lines if line.startswith("refused")] == [
                "refused a link from 127.0.0.1: the certificate is not for node 'rabbit@n2' but for localhost, n3, "
                "rabbit@n3"
            ]
            assert (
                f"no link to node 'rabbit@n2' at {rogue.address}: its certificate is not for 'rabbit@n2'"
                in first.lines
            )
            assert "refuses the link: the certificate is not for node" in rogue.lines[0]
            assert first.links == rogue.links == []

    run(story())


@pytest.mark.parametrize("rogue_has", ["another authority", "no certificate"])
def test_without_a_certificate_of_the_authority(certs: Path, tmp_path: Path, rogue_has: str) -> None:
    async def story() -> None:
        certificates.make(tmp_path, "rabbit@n2")
        is_plain = rogue_has == "no certificate"
        rogue = Node("rabbit@n2", SECRET if is_plain else certificates.of(tmp_path, "rabbit@n2"))
        async with Node("rabbit@n1", certificates.of(certs, "rabbit@n1", b"a secret")) as first, rogue:
            first.transport.connect("rabbit@n2", rogue.address)
            rogue.transport.connect("rabbit@n1", first.address)
            await until(lambda: first.lines and rogue.lines)
            with pytest.raises(Unreachable):
                await rogue.transport.call(first.address, b"join", 1)
            assert first.hellos == rogue.hellos == []

    run(story())


@pytest.mark.parametrize("refuser", ["the one that opens", "the one that is called", "both"])
def test_who_is_not_admitted(refuser: str) -> None:
    """Another cluster, or an incarnation of the past: the Listener says so, and both operators read why."""

    async def story() -> None:
        options = LinkOptions(refused_retry_s=0.01)
        async with Node("n1", options=options) as first, Node("n2", options=options) as second:
            text = "node 'n2' belongs to another cluster"
            first.refusal = text
            if refuser != "the one that is called":
                first.transport.connect("n2", second.address)
            if refuser != "the one that opens":
                second.transport.connect("n1", first.address)
            await until(lambda: len(first.hellos) >= 5)
            assert first.hellos[0][:4] == ("n2", "id of n2", "cluster", 1)
            assert first.links == second.links == []
            if refuser != "the one that opens":
                assert f"node 'n1' at {first.address} refuses the link: {text}" in second.lines
                assert f"refused node 'n2' at 127.0.0.1: {text}" in first.lines
            assert len(first.lines) == len(set(first.lines)) <= 2
            first.refusal = None
            await link(first, second)

    run(story())


def test_an_identity_that_changes() -> None:
    """The next handshake carries the new one."""

    async def story() -> None:
        async with Node("n1") as first, Node("n2", identity=Identity("n2", "id")) as second:
            await link(first, second)
            assert first.links == [("up", "n2", 0)]
            second.transport.identity = Identity("n2", "id", "cluster", 9)
            second.transport.connect("n1", f"localhost:{first.port}")
            await until(lambda: len(first.links) == 3)
            assert first.links[2] == ("up", "n2", 9)

    run(story())


# --- hostile and broken peers ---


@pytest.mark.real
def test_a_peer_that_never_answers() -> None:
    """A frozen process: the kernel takes the connection, nobody reads. Nothing hangs, and close is immediate."""

    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as frozen:
            address = f"127.0.0.1:{frozen.getsockname()[1]}"
            async with Node("n1", options=LinkOptions(connect_s=0.2)) as first:
                first.transport.connect("n2", address)
                first.transport.open_data("n2", 1, 2)
                with pytest.raises(Unreachable, match=r"timed out|not answered"):
                    await first.transport.call(address, b"x", 0.5)
                await until(lambda: first.lines)
                assert "timed out" in first.lines[0]
                assert first.links == []

    run(story())


@pytest.mark.parametrize(
    "garbage",
    [
        b"\0" * 1000,
        b"GET / HTTP/1.1\r\n\r\n",
        b"AMQP\0\0\x09\x01",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 5000,
    ],
)
@pytest.mark.parametrize("kind", ["secret", "certificates"])
def test_garbage_at_the_port(garbage: bytes, kind: str, certs: Path) -> None:
    """reliability §5.4, inter-node port: nobody is troubled by it."""

    async def story() -> None:
        names = ("rabbit@n1", "rabbit@n2")
        async with (
            Node(names[0], certificates.security(kind, certs, names[0])) as first,
            Node(names[1], certificates.security(kind, certs, names[1])) as second,
        ):
            for _ in range(3):
                reader, writer = await asyncio.open_connection("127.0.0.1", first.port)
                writer.write(garbage)
                writer.write_eof()
                with contextlib.suppress(ConnectionResetError):
                    await asyncio.wait_for(reader.read(), 20)
                writer.close()
            await link(first, second)

    run(story())


def raw_channel(node: Node) -> Any:
    return open_channel(node.address, "", Security(), LinkOptions())


def test_a_handshake_that_goes_wrong() -> None:
    """Any message, or none: the stream ends with a reason, and others are served."""

    async def story() -> None:
        options = LinkOptions(handshake_s=0.3)
        async with Node("n1", SECRET, options) as first, Node("n2", SECRET) as second:
            channel = raw_channel(first)
            for message in (b"", b"nonsense", bytes(20_000)):
                for kind in Kind:
                    stream = OutgoingStream(channel, kind, "")
                    await stream.write(message)
                    assert Handshake.FromString(await stream.read()).refusal
            silent = OutgoingStream(channel, Kind.CONTROL, "")
            with pytest.raises(StreamEnded):
                await silent.read()
            assert "refused a link from 127.0.0.1: its handshake took too long" in first.lines
            await channel.close()
            await link(first, second)
            assert len(first.lines) == len(set(first.lines)) <= 4

    run(story())


def test_strangers_cannot_fill_the_log() -> None:
    """What they make up is logged so many times, on one line each."""

    async def story() -> None:
        async with Node("n1", SECRET) as first:
            channel = raw_channel(first)
            for number in range(300):
                stream = OutgoingStream(channel, Kind.CONTROL, "")
                opener = Opener(Identity("n2", "id"), Kind.CONTROL, f"n{number + 10}", b"", bytes(32))
                await stream.write(opener.greet())
                await stream.read()
            assert len(first.lines) == 256
            stream = OutgoingStream(channel, Kind.CONTROL, "")
            await stream.write(Opener(Identity("n2", "id"), Kind.CONTROL, "n\n1", b"", bytes(32)).greet())
            await stream.read()
            await channel.close()
            assert all(line.isprintable() for line in first.lines)

    run(story())


def test_a_member_gets_through_a_flood_of_handshakes() -> None:
    """Strangers who say nothing have to go, the oldest first."""

    async def story() -> None:
        async with Node("n1", SECRET) as first, Node("n2", SECRET) as second:
            channel = raw_channel(first)
            streams = [OutgoingStream(channel, Kind.CONTROL, "") for _ in range(3 * HANDSHAKES_MAX)]
            opener = Opener(Identity("n3", "id"), Kind.CONTROL, "", b"", bytes(32))
            for stream in streams:
                with contextlib.suppress(StreamEnded):
                    await stream.write(opener.greet())
                    await stream.read()
            assert await second.transport.call(first.address, b"x", 10) == b"n2 asks x"
            with pytest.raises(StreamEnded):
                await streams[0].read()
            for stream in streams:
                stream.end()
            await channel.close()

    run(story())


def test_a_message_that_is_too_big() -> None:
    """It is not even taken: before the handshake that is all the memory that a stream can have."""

    async def story() -> None:
        async with Node("n1", SECRET) as first, Node("n2", SECRET) as second:
            options = [("grpc.max_send_message_length", -1)]
            channel = wire.grpc.aio.insecure_channel(first.address, options=options)
            stream = OutgoingStream(channel, Kind.CONTROL, "")
            with contextlib.suppress(StreamEnded):
                await stream.write(bytes(MESSAGE_BYTES_MAX + 1))
            with pytest.raises(StreamEnded):
                await stream.read()
            await channel.close()
            await link(first, second)
            with pytest.raises(PeerRefused, match="the answer has 1,500,000 bytes, more than 1,048,576"):
                await second.transport.call(first.address, b"big", 10)
            with pytest.raises(AssertionError):
                await second.transport.call(first.address, bytes(1024 * 1024 + 1), 10)
            body = bytes(1024 * 1024 - 100)
            assert await second.transport.call(first.address, body, 10) == b"n2 asks " + body

    run(story())


def test_a_peer_that_breaks_the_protocol_is_told_off() -> None:
    """Behind the handshake as well: the stream ends, the reason is in the log."""

    async def story() -> None:
        async with Node("n1") as first, Node("n2") as second:
            channel = raw_channel(first)
            for kind in (Kind.CONTROL, Kind.CALL):
                stream = OutgoingStream(channel, kind, "")
                await greet(second.transport, stream, kind, "n1")
                await stream.write(b"\xff\xff")
                with pytest.raises(StreamEnded):
                    await stream.read()
            await until(lambda: len(first.lines) == 2)
            assert [line.rpartition(": ")[2] for line in first.lines] == [
                "a control message that cannot be read",
                "a call that cannot be read",
            ]
            await channel.close()

    run(story())


def test_a_certificate_of_the_authority_without_the_mark_is_no_nodes(tmp_path: Path) -> None:
    """A client's, for example: whoever signs both does not make members of all."""

    async def story() -> None:
        theirs = replace(certificates.of(tmp_path, "n2"), certificate=client.certificate, key=client.key)
        async with Node("n1", certificates.of(tmp_path, "n1")) as first, Node("n3", theirs) as third:
            with pytest.raises(PeerRefused, match="is no node's: it lacks the URI urn:fluffle:node"):
                await third.transport.call(first.address, b"x", 10)

    certificates.make(tmp_path, "n1", "n2")
    client = certificates.unmarked(tmp_path, "n3")
    run(story())
