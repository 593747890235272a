"""Links between transports on real sockets of the loopback."""

import asyncio
import errno
import random
import socket
from pathlib import Path

import psutil
import pytest

from cluster.transport.interface import (
    InsecureListener,
    LinkOptions,
    PeerRefused,
    Topic,
    Unreachable,
)
from cluster.transport.security import Security
from tests.cluster.transport.links import Node, Proxy, link, run, until
from tests.kit import certificates

pytestmark = pytest.mark.real

SECRET = Security(secret=b"a secret")

PATIENT = LinkOptions(keepalive_s=60, ping_timeout_s=60)
"""Silence is no fault."""


# --- what works ---


@pytest.mark.parametrize("kind", ["none", "secret", "certificates", "both"])
def test_three_nodes(kind: str, certs: Path) -> None:
    """Links come up in both directions; control, data and calls arrive at whom they are for."""

    async def story() -> None:
        names = ("rabbit@n1", "rabbit@n2", "rabbit@n3")
        first, second, third = nodes = [
            Node(name, certificates.security(kind, certs, name)) for name in names
        ]
        async with first, second, third:
            await link(*nodes)
            assert sorted(first.links) == [("up", "rabbit@n2", 1), ("up", "rabbit@n3", 1)]
            for number, node in enumerate(nodes, 1):
                for other_number, other in enumerate(nodes, 1):
                    if other is not node:
                        node.transport.open_data(other.name_, number, other_number)
                        assert node.transport.send_control(
                            other.name_, Topic.RAFT, b"to " + other.name_.encode()
                        )
                        node.transport.send_data(other.name_, Topic.REMOTE, b"for " + other.name_.encode())
            await until(lambda: all(len(node.messages) == len(node.frames) == 2 for node in nodes))
            assert sorted(second.messages) == [
                (name, Topic.RAFT, b"to rabbit@n2") for name in (names[0], names[2])
            ]
            assert sorted(second.frames) == [
                (name, Topic.REMOTE, b"for rabbit@n2") for name in (names[0], names[2])
            ]
            assert second.turns >= 4
            assert await first.transport.call(third.address, b"who", 10) == b"rabbit@n1 asks who"
            assert [node.lines for node in nodes] == [[], [], []]

    run(story())


def test_calls_need_no_link_and_say_so() -> None:
    async def story() -> None:
        async with Node("n1", SECRET) as first, Node("n2", SECRET) as second:
            assert await second.transport.call(first.address, b"join", 10) == b"n2 asks join"
            assert [hello.is_call for hello in first.hellos] == [True]
            assert first.links == []

    run(story())


def test_big_messages_and_frames_in_order() -> None:
    async def story() -> None:
        async with Node("n1") as first, Node("n2") as second:
            await link(first, second)
            first.transport.open_data("n2", 1, 2)
            second.transport.open_data("n1", 2, 1)
            sizes = [8 * 1024 * 1024, 0, 300_000, 1]
            for size in sizes:
                assert first.transport.send_control("n2", Topic.RAFT, bytes(size))
                first.transport.send_data("n2", Topic.RING, bytes(size))
            await until(lambda: len(second.messages) == len(second.frames) == 4)
            assert [len(message) for *_, message in second.messages] == sizes
            assert [len(frame) for *_, frame in second.frames] == sizes
            await until(lambda: first.transport.peer("n2").is_congested is False)

    run(story())


def test_frames_of_a_turn_travel_together() -> None:
    """ring §0: the number of messages is what costs."""

    async def story() -> None:
        async with Node("n1") as first, Node("n2") as second:
            await link(first, second)
            first.transport.open_data("n2", 1, 2)
            second.transport.open_data("n1", 2, 1)
            turns = second.turns
            for number in range(1000):
                first.transport.send_data("n2", Topic.REMOTE, b"%d" % number)
            await until(lambda: len(second.frames) == 1000)
            assert second.turns - turns <= 3
            assert [frame for *_, frame in second.frames] == [b"%d" % number for number in range(1000)]

    run(story())


def test_nothing_is_left_after_close() -> None:
    """No task, no socket, no line in the log of who closed."""

    async def story() -> None:
        async with Node("n1", SECRET) as first, Node("n2", SECRET) as second:
            await link(first, second)
            first.transport.open_data("n2", 1, 2)
            second.transport.open_data("n1", 2, 1)
            first.transport.connect("n3", "127.0.0.1:1")
            waiting = asyncio.ensure_future(first.transport.call(second.address, b"wait", 60))
            await until(lambda: any(hello.is_call for hello in second.hellos))
            await second.transport.close()
            with pytest.raises(Unreachable):
                await waiting
        assert second.lines == []
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await until(lambda: not psutil.Process().net_connections("tcp"))

    run(story())


def test_calls_end_with_the_transport_that_made_them() -> None:
    """Over a link or without one; nothing can be begun afterwards."""

    async def story() -> None:
        first, third = Node("n1"), Node("n3")
        async with first, Node("n2") as second, third:
            await link(first, second)
            calls = [
                asyncio.ensure_future(first.transport.call(node.address, b"wait", 60))
                for node in (second, third)
            ]
            await until(lambda: second.hellos[-1].is_call and third.hellos)
            await first.transport.close()
            for call in calls:
                with pytest.raises(Unreachable, match="this node stops"):
                    await call
            first.transport.connect("n2", second.address)
            first.transport.open_data("n2", 5, 5)
            with pytest.raises(Unreachable, match="this node stops"):
                await first.transport.call(second.address, b"x", 1)
            await until(lambda: asyncio.all_tasks() and len(second.links) == 2)

    run(story())


# --- links that break ---


def test_a_connection_that_broke_is_no_death() -> None:
    """The link goes down and comes up again; the process is there."""

    async def story() -> None:
        async with Node("n1") as first, Node("n2") as second, Proxy(second.port) as proxy:
            first.transport.connect("n2", proxy.address)
            second.transport.connect("n1", first.address)
            await until(lambda: first.is_up(second) and second.is_up(first))
            proxy.cut()
            await until(lambda: len(first.links) == len(second.links) == 3)
            for node, other in ((first, "n2"), (second, "n1")):
                assert node.links == [("up", other, 1), ("down", other, False), ("up", other, 1)]
            assert first.transport.send_control("n2", Topic.RAFT, b"again")
            await until(lambda: second.messages)

    run(story())


def test_a_process_that_ended_is_gone() -> None:
    """Contract: the stream was reset, and after 100 ms its host refuses a connection."""

    async def story() -> None:
        async with Node("n1") as first, Node("n2") as second:
            await link(first, second)
            await second.transport.close()
            await until(lambda: len(first.links) == 2)
            assert first.links[1] == ("down", "n2", True)
            assert not first.transport.send_control("n2", Topic.RAFT, b"x")
            assert second.links == [("up", "n1", 1)]

    run(story())


@pytest.mark.slow
def test_a_host_that_froze_is_down_but_not_gone() -> None:
    """ring §4: pings without an answer, 1.5 s; nothing proves that the process has ended."""

    async def story() -> None:
        async with Node("n1") as first, Node("n2") as second, Proxy(second.port) as proxy:
            first.transport.connect("n2", proxy.address)
            second.transport.connect("n1", first.address)
            await until(lambda: first.is_up(second))
            proxy.hold_up()
            await until(lambda: len(first.links) == 2)
            assert first.links[1] == ("down", "n2", False)
            proxy.let_go()
            await until(lambda: first.is_up(second))

    run(story())


def test_the_listener_hears_nothing_of_who_is_forgotten() -> None:
    async def story() -> None:
        async with Node("n1") as first, Node("n2") as second:
            await link(first, second)
            second.refusal = "you left"
            first.transport.disconnect("n2")
            await until(lambda: len(second.links) == 2)
            assert second.links[1] == ("down", "n1", False)
            assert first.links == [("up", "n2", 1)]
            assert not first.transport.send_control("n2", Topic.RAFT, b"x")

    run(story())


def test_a_member_that_moved() -> None:
    async def story() -> None:
        async with Node("n1") as first, Node("n2") as second, Proxy(second.port) as proxy:
            await link(first, second)
            first.transport.connect("n2", second.address)  # the same: nothing happens
            first.transport.connect("n2", proxy.address)
            await until(lambda: len(first.links) == 3)
            assert first.links[1:] == [("down", "n2", False), ("up", "n2", 1)]

    run(story())


# --- the data stream ---


@pytest.mark.slow
def test_exactly_once_under_resets(certs: Path) -> None:
    """Whatever breaks, each frame comes once and in order, in both directions."""
    seed = 1
    dice = random.Random(seed)

    async def story() -> None:
        first, second = (Node(name, certificates.of(certs, name)) for name in ("rabbit@n1", "rabbit@n2"))
        async with first, second, Proxy(second.port) as there, Proxy(first.port) as back:
            first.transport.connect(second.name_, there.address)
            second.transport.connect(first.name_, back.address)
            first.transport.open_data(second.name_, 1, 2)
            second.transport.open_data(first.name_, 2, 1)
            sent: list[bytes] = []
            for turn in range(300):
                for _ in range(dice.randrange(30)):
                    sent.append(
                        len(sent).to_bytes(4, "big")
                        + bytes(dice.choice((0, 100, 5000, 600_000 if turn % 20 == 0 else 0)))
                    )
                    first.transport.send_data(second.name_, Topic.REMOTE, sent[-1])
                    second.transport.send_data(first.name_, Topic.REMOTE, sent[-1])
                if dice.random() < 0.05:
                    dice.choice((there, back)).cut()
                await asyncio.sleep(dice.choice((0, 0, 0.005)))
            await until(lambda: len(first.frames) >= len(sent) and len(second.frames) >= len(sent))
            await asyncio.sleep(0.1)
            for node in (first, second):
                assert [frame for *_, frame in node.frames] == sent

    run(story())


def test_a_slow_receiver_congests_its_sender() -> None:
    """Memory is bounded by who asks: is_congested, then relieved, once."""

    async def story() -> None:
        options = LinkOptions(keepalive_s=60, ping_timeout_s=60, congested_bytes=8 * 1024 * 1024)
        first, second = Node("n1", options=options), Node("n2", options=options)
        async with first, second, Proxy(second.port) as proxy:
            first.transport.connect("n2", proxy.address)
            second.transport.connect("n1", first.address)
            first.transport.open_data("n2", 1, 2)
            second.transport.open_data("n1", 2, 1)
            first.transport.send_data("n2", Topic.REMOTE, b"")
            await until(lambda: second.frames)
            proxy.hold_up()
            sent = 1
            while not first.transport.is_congested("n2"):
                first.transport.send_data("n2", Topic.REMOTE, bytes(100_000))
                sent += 1
                await asyncio.sleep(0)
            assert sent <= 8 * 1024 * 1024 // 100_000 + 2
            assert first.relief == []
            proxy.let_go()
            await until(lambda: first.relief)
            await until(lambda: len(second.frames) == sent)
            assert first.relief == ["n2"]
            assert not first.transport.is_congested("n2")

    run(story())


def test_a_data_stream_waits_until_the_other_side_knows_both_incarnations() -> None:
    async def story() -> None:
        async with Node("n1") as first, Node("n2") as second:
            await link(first, second)
            first.transport.open_data("n2", 1, 2)
            first.transport.send_data("n2", Topic.REMOTE, b"early")
            await asyncio.sleep(0.05)
            assert second.frames == []
            second.transport.open_data("n1", 2, 1)
            await until(lambda: second.frames == [("n1", Topic.REMOTE, b"early")])

    run(story())


def test_a_new_incarnation_drops_what_was_for_the_old_one() -> None:
    async def story() -> None:
        async with Node("n1", options=PATIENT) as first, Node("n2", options=PATIENT) as second:
            await link(first, second)
            first.transport.open_data("n2", 1, 2)
            first.transport.send_data("n2", Topic.REMOTE, b"for 2")
            second.transport.open_data("n1", 3, 1)
            await asyncio.sleep(0.05)
            first.transport.open_data("n2", 1, 3)
            first.transport.open_data("n2", 1, 3)
            first.transport.send_data("n2", Topic.REMOTE, b"for 3")
            await until(lambda: second.frames)
            assert second.frames == [("n1", Topic.REMOTE, b"for 3")]
            first.transport.close_data("n2")
            first.transport.send_data("n2", Topic.REMOTE, b"for nobody")
            for pair in ((1, 3), (1, 2)):
                with pytest.raises(AssertionError, match="numbers would begin again"):
                    first.transport.open_data("n2", *pair)
            first.transport.open_data("n2", 4, 3)
            second.transport.open_data("n1", 3, 4)
            first.transport.send_data("n2", Topic.REMOTE, b"from 4")
            await until(lambda: len(second.frames) == 2)
            assert second.frames[1] == ("n1", Topic.REMOTE, b"from 4")

    run(story())


# --- calls that fail ---


def test_calls_that_fail() -> None:
    async def story() -> None:
        async with Node("n1") as first, Node("n2") as second:
            with pytest.raises(Unreachable, match=r"has not answered within 0\.1 s"):
                await first.transport.call(second.address, b"wait", 0.1)
            with socket.create_server(("127.0.0.1", 0)) as closed:
                address = f"127.0.0.1:{closed.getsockname()[1]}"
            with pytest.raises(Unreachable, match=f"^{address}: Connection refused$"):
                await first.transport.call(address, b"x", 10)
            second.refusal = "not now"
            with pytest.raises(PeerRefused, match="refuses: not now"):
                await first.transport.call(second.address, b"x", 10)

    run(story())


# --- listening ---


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])
def test_other_hosts_need_a_proof(host: str) -> None:
    """Contract: InsecureListener; nothing is bound."""

    async def story() -> None:
        node = Node("n1")
        with pytest.raises(InsecureListener, match="without proving anything"):
            await node.transport.listen(host, 0)
        await node.transport.close()

    run(story())


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost"])
def test_loopback_needs_none(host: str) -> None:
    async def story() -> None:
        node = Node("n1")
        assert await node.transport.listen(host, 0) > 0
        await node.transport.close()

    run(story())


def test_a_port_that_is_taken() -> None:
    """A port of another node cannot be shared."""

    async def story() -> None:
        async with Node("n1") as first:
            node = Node("n2")
            with pytest.raises(OSError, match=r"[Aa]ddress already in use") as failed:
                await node.transport.listen("127.0.0.1", first.port)
            assert failed.value.errno == errno.EADDRINUSE
            await node.transport.close()

    run(story())


def test_a_host_that_does_not_exist() -> None:
    async def story() -> None:
        node = Node("n1")
        with pytest.raises(socket.gaierror):
            await node.transport.listen("no.such.host.invalid", 0)
        await node.transport.close()

    run(story())
