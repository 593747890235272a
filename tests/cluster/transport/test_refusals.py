"""Links refuse wrong identities, and a hostile or broken peer can do little (reliability §5.4, §6)."""

import asyncio
import contextlib
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.transport import former_protocol
from cluster.transport.frames import (
    CALL,
    CALL_PAYLOAD_BYTES_MAX,
    CONTROL,
    DATA,
    HANDSHAKE_BYTES_MAX,
    HEADER_BYTES,
    PAYLOAD_BYTES_MAX,
    PREFACE_BYTES,
    FrameType,
    encode,
    preface,
)
from cluster.transport.handshake import HandshakeFailed, Kind, Opener
from cluster.transport.handshakes import HANDSHAKES_MAX
from cluster.transport.interface import (
    Identity,
    LinkOptions,
    PeerRefused,
    Unreachable,
)
from cluster.transport.introductions import greet, new_opener
from cluster.transport.link_stream import LinkStream, dial
from cluster.transport.peer_pb2 import Handshake, Request
from cluster.transport.security import Security
from cluster.transport.stream import StreamEnded
from tests.cluster.transport.links import Node, link, run, until
from tests.kit import certificates

pytestmark = pytest.mark.real

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


def test_a_certificate_for_another_host(certs: Path) -> None:
    """A node whose name is not known yet must have a certificate for the host that is called."""

    async def story() -> None:
        first = Node("rabbit@n1", certificates.of(certs, "rabbit@n1"))
        second = Node("rabbit@n2", certificates.of(certs, "rabbit@n2"))
        async with second:
            port = await first.transport.listen("127.0.0.2", 0)
            for host, text in (("127.0.0.2", "another host"), ("127.0.0.1", "Connection refused")):
                with pytest.raises((PeerRefused, Unreachable), match=text):
                    await second.transport.call(f"{host}:{port}", b"join", 20)
            second.transport.connect("rabbit@n1", f"127.0.0.2:{port}")
            assert await second.transport.call(f"127.0.0.2:{port}", b"x", 20) == b"rabbit@n2 asks x"
            await first.transport.close()

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
            with pytest.raises(PeerRefused, match="certificate"):
                await rogue.transport.call(first.address, b"join", 20)
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


def test_a_peer_that_never_answers() -> None:
    """A frozen process: the kernel takes the connection, nobody reads. Nothing hangs, and close is immediate."""

    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as frozen:
            address = f"127.0.0.1:{frozen.getsockname()[1]}"
            async with Node("n1", options=LinkOptions(connect_s=0.2, handshake_s=0.3)) as first:
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
        preface(CONTROL, is_encrypted=False) + b"\xff" * 5000,
        preface(CONTROL, is_encrypted=False) + encode(FrameType.MESSAGE, b"x") * 50,
        preface(CONTROL, is_encrypted=False) + encode(FrameType.HANDSHAKE, b"x")[:5] + b"\1\2\3\4x",
        preface(CALL, is_encrypted=False) + b"\xff\xff\xff\xff" + bytes([FrameType.HANDSHAKE]) + bytes(5000),
        preface(DATA, is_encrypted=False) + encode(FrameType.HANDSHAKE, bytes(1000))[:500],
        preface(DATA, is_encrypted=True) + b"\x16\x03\x01\x02\0" + b"\xff" * 5000,
        preface(DATA, is_encrypted=False)[:-1],
        preface(7, is_encrypted=False),
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


async def stranger(node: Node, kind: Kind = Kind.CONTROL) -> LinkStream:
    """A stream to a node without certificates, before its handshake."""
    return await dial(node.address, node.name_, kind, Security(), LinkOptions())


async def member(node: Node, other: Node, kind: Kind) -> LinkStream:
    """A stream after its handshake, which `node` has opened to another one without certificates."""
    stream = await stranger(other, kind)
    opener = new_opener(node.transport.identity, kind, other.name_, node.transport.security.secret)
    await greet(stream, opener, node.admit, 20)
    return stream


def test_a_handshake_that_goes_wrong() -> None:
    """Any message, or none: the stream ends with a reason, and others are served."""

    async def story() -> None:
        options = LinkOptions(handshake_s=0.3)
        async with Node("n1", SECRET, options) as first, Node("n2", SECRET) as second:
            for message in (b"", b"nonsense", bytes(16_000)):
                for kind in Kind:
                    stream = await stranger(first, kind)
                    await stream.write(message)
                    assert Handshake.FromString(await stream.read()).refusal
                    with pytest.raises(StreamEnded):
                        await stream.read()
            for kind in Kind:
                with pytest.raises(StreamEnded):
                    await (await stranger(first, kind)).read()
            assert "refused a link from 127.0.0.1: its handshake took too long" in first.lines
            await link(first, second)
            assert len(first.lines) == len(set(first.lines)) <= 4

    run(story())


def test_a_connection_that_says_nothing_has_to_go() -> None:
    """Before its first byte, within its preface and behind it alike."""

    async def story() -> None:
        whole = preface(CONTROL, is_encrypted=False)
        async with Node("n1", SECRET, LinkOptions(handshake_s=0.2)) as first:
            for said in (b"", whole[:3], whole, whole + encode(FrameType.HANDSHAKE, b"x")[:-1]):
                reader, writer = await asyncio.open_connection("127.0.0.1", first.port)
                writer.write(said)
                with contextlib.suppress(ConnectionResetError):
                    assert await asyncio.wait_for(reader.read(), 20) == (whole if whole in said else b"")
                writer.close()

    run(story())


def test_a_replayed_stream_is_refused() -> None:
    """A member's messages prove nothing on another connection: the nonce of the other side is another one."""

    async def story() -> None:
        async with Node("n1", SECRET) as first, Node("n2", SECRET) as second:
            sent = bytearray()

            class Overheard:
                def __init__(self, stream: LinkStream) -> None:
                    self.read = stream.read
                    self._stream = stream

                async def write(self, message: bytes) -> None:
                    sent.extend(encode(FrameType.HANDSHAKE, message))
                    await self._stream.write(message)

            stream = await stranger(first)
            opener = new_opener(second.transport.identity, Kind.CONTROL, "n1", b"a secret")
            await greet(Overheard(stream), opener, second.admit, 20)
            stream.end("enough")
            heard = len(first.hellos)
            reader, writer = await asyncio.open_connection("127.0.0.1", first.port)
            writer.write(preface(CONTROL, is_encrypted=False) + bytes(sent))
            with contextlib.suppress(ConnectionResetError):
                assert b"different cluster secrets" in await asyncio.wait_for(reader.read(), 20)
            writer.close()
            await until(lambda: first.lines)
            assert first.lines == ["refused a link from 127.0.0.1: the nodes have different cluster secrets"]
            assert len(first.hellos) == heard

    run(story())


def test_another_version_of_the_wire(certs: Path) -> None:
    """Both sides say so, whoever is the newer one; a node without certificates is told that, too."""

    async def story() -> None:
        async with Node("n1", SECRET) as first:
            newer = bytearray(preface(CONTROL, is_encrypted=False))
            newer[-2] += 1
            reader, writer = await asyncio.open_connection("127.0.0.1", first.port)
            writer.write(newer)
            assert await reader.read() == preface(CONTROL, is_encrypted=False)
            writer.close()
            with pytest.raises(HandshakeFailed, match="one of the nodes has certificates"):
                await dial(first.address, "n1", Kind.DATA, certificates.of(certs, "rabbit@n2"), LinkOptions())
            assert first.lines == [
                "refused a link from 127.0.0.1: the nodes speak different protocols, 4 and 3",
                "refused a link from 127.0.0.1: one of the nodes has certificates and the other one has none",
            ]
        answers = [bytes(newer), b"\0\0\6\4\0\0\0\0\0"]

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(PREFACE_BYTES)
            writer.write(answers.pop(0))
            await reader.read()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for text in ("the nodes speak different protocols, 4 and 3", "it has no links of protocol 3"):
            with pytest.raises(HandshakeFailed, match=text):
                await dial(address, "n1", Kind.CONTROL, Security(), LinkOptions())
        server.close()

    run(story())


def test_a_node_of_protocol_1_reads_why_it_is_refused() -> None:
    """Links of protocol 1 are streams of gRPC, whose error has the reason; with TLS only the log here has it."""
    grpc = pytest.importorskip("grpc.aio")

    async def story() -> None:
        async with Node("n1") as first:
            async with grpc.insecure_channel(first.address, [("grpc.enable_retries", 0)]) as channel:
                with pytest.raises(grpc.AioRpcError) as failed:
                    await channel.unary_unary("/fluffle.peer.Peer/control")(b"a greeting", timeout=20)
            assert former_protocol.REASON in str(failed.value.details())
            await until(lambda: first.lines)
            refused = f"refused a link from 127.0.0.1: {former_protocol.REASON}; or it is no node"
            assert first.lines == [refused]
            reader, writer = await asyncio.open_connection("127.0.0.1", first.port)
            writer.write(b"\x16\x03\x01")
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
            assert first.lines == [refused]
            assert first.hellos == []

    run(story())


def test_strangers_cannot_fill_the_log() -> None:
    """Lines about strangers are bounded in number, and each is one line."""

    async def story() -> None:
        async with Node("n1", SECRET) as first:
            for number in range(300):
                stream = await stranger(first)
                opener = Opener(Identity("n2", "id"), Kind.CONTROL, f"n{number + 10}", b"", bytes(32))
                await stream.write(opener.greet())
                await stream.read()
            assert len(first.lines) == 256
            stream = await stranger(first)
            await stream.write(Opener(Identity("n2", "id"), Kind.CONTROL, "n\n1", b"", bytes(32)).greet())
            await stream.read()
            assert all(line.isprintable() for line in first.lines)

    run(story())


@pytest.mark.parametrize("say", ["nothing", "a preface", "a greeting", "half of HTTP/2"])
def test_a_member_gets_through_a_flood_of_handshakes(say: str) -> None:
    """Strangers who say nothing more have to go, the oldest first."""

    async def story() -> None:
        async with Node("n1", SECRET) as first, Node("n2", SECRET) as second:
            opener = Opener(Identity("n3", "id"), Kind.CONTROL, "", b"", bytes(32))
            start = preface(CONTROL, is_encrypted=False)
            said = {
                "nothing": b"",
                "a preface": start,
                "a greeting": start + encode(FrameType.HANDSHAKE, opener.greet()),
                "half of HTTP/2": b"PRI * HTTP/2.0\r\n",
            }[say]
            connections = []
            for _ in range(3 * HANDSHAKES_MAX):
                connections.append(await asyncio.open_connection("127.0.0.1", first.port))
                connections[-1][1].write(said)
            assert await second.transport.call(first.address, b"x", 10) == b"n2 asks x"
            await link(first, second)
            with contextlib.suppress(ConnectionResetError):
                while await asyncio.wait_for(connections[0][0].read(1000), 20):
                    pass
            for _, writer in connections:
                writer.close()

    run(story())


def test_a_frame_that_is_too_big() -> None:
    """A frame that is too big is not taken: a stream gets 16 KiB of memory before the handshake, then some 400 KiB."""

    async def story() -> None:
        async with Node("n1") as first, Node("n2") as second:
            reader, writer = await asyncio.open_connection("127.0.0.1", first.port)
            writer.write(preface(CONTROL, is_encrypted=False))
            writer.write(encode(FrameType.HANDSHAKE, bytes(HANDSHAKE_BYTES_MAX + 1))[:HEADER_BYTES])
            with contextlib.suppress(ConnectionResetError):
                assert len(await asyncio.wait_for(reader.read(), 20)) == PREFACE_BYTES
            writer.close()
            stream = await member(second, first, Kind.CONTROL)
            stream.open(lambda _: None)
            stream._write((PAYLOAD_BYTES_MAX + 1).to_bytes(4, "big") + bytes(5))
            with pytest.raises(StreamEnded):
                await stream.ended()
            await until(lambda: len(first.lines) == 2)
            assert [line.partition("protocol: ")[2] for line in first.lines] == [
                "a frame of 16,385 bytes, more than 16,384",
                f"a frame of {PAYLOAD_BYTES_MAX + 1:,} bytes, more than {PAYLOAD_BYTES_MAX:,}",
            ]
            await link(first, second)

    run(story())


def test_a_call_that_is_too_big() -> None:
    """A call that is too big is not even taken."""

    async def story() -> None:
        async with Node("n1", SECRET) as first, Node("n2", SECRET) as second:
            for size, text in (
                (CALL_PAYLOAD_BYTES_MAX + 1, "a frame of 1,049,601 bytes, more than 1,049,600"),
                (1024 * 1024 + 1, "a call of 1,048,577 bytes"),
            ):
                stream = await member(second, first, Kind.CALL)
                stream.open(lambda _: None)
                if size > CALL_PAYLOAD_BYTES_MAX:
                    stream._write(size.to_bytes(4, "big") + bytes([FrameType.MESSAGE]) + bytes(4))
                else:
                    stream.send(Request(body=bytes(size)).SerializeToString())
                with pytest.raises(StreamEnded):
                    await stream.ended()
                await until(lambda: first.lines)
                assert first.lines.pop() == f"refused node 'n2' at 127.0.0.1: it breaks the protocol: {text}"
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
            first.transport.open_data("n2", 1, 2)
            for kind, messages in (
                (Kind.CONTROL, [b"\xff\xff"]),
                (Kind.DATA, [b"\xff\xff"]),
                (Kind.DATA, [b"", b"a batch"]),
                (Kind.CALL, [b"\xff\xff"]),
            ):
                stream = await member(second, first, kind)
                stream.open(lambda _: None)
                for message in messages:
                    stream.send(message)
                with pytest.raises(StreamEnded):
                    await stream.ended()
            stream = await member(second, first, Kind.CONTROL)
            await stream.write(b"another handshake")
            stream.open(lambda _: None)
            with pytest.raises(StreamEnded):
                await stream.ended()
            await until(lambda: len(first.lines) == 5)
            assert [line.rpartition(": ")[2] for line in first.lines] == [
                "a control message that cannot be read",
                "an opening that cannot be read",
                "a batch before its opening was answered",
                "a call that cannot be read",
                "a second handshake",
            ]

    run(story())


def test_a_node_that_sends_on_a_stream_that_it_has_not_opened() -> None:
    """A node that sends on a stream of the other side is told off by the one that has opened it."""

    async def story() -> None:
        async with Node("n1") as first, Node("n2") as second:
            await link(first, second)
            [stream] = second.transport.peer("n1")._incoming.values()
            stream.send(b"?")
            await until(lambda: len(first.links) == 3)
            assert first.lines == [
                f"no link to node 'n2' at {second.address}: it breaks the protocol: a message on a stream that this "
                "node has opened"
            ]

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
