"""A client in the node's process: what connections may do, and nothing else (management §2.1, §2.4)."""

import asyncio
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from node.admin.direct_client import DirectClient, DirectTimeout, Outcome
from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.field_table import long, longstr
from node.amqp.methods import (
    BasicAck,
    BasicReject,
    ExchangeDeclare,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
)
from node.amqp.properties import Properties
from node.catalogue.commands import Command, DeleteVhost, PutUser, PutVhost, SetParameter, SetPermission
from node.catalogue.passwords import SHA256
from node.scheduling.turn import SHARE_S, TURN_S
from tests.kit.live_world import LiveWorld
from tests.kit.memory import assert_gone, no_search_for_cycles
from tests.kit.world import World


class ClientWorld(LiveWorld):
    """A world with clients in its process."""

    def client_of(self, user: str = "guest", vhost: str = "/", timeout_s: float = 5.0) -> DirectClient:
        return DirectClient(self.broker, user, vhost, clock=lambda: self.now, timeout_s=timeout_s)


@pytest.fixture
def world() -> ClientWorld:
    return ClientWorld()


def add_user(world: World, name: str, configure: str, write: str, read: str) -> None:
    world.submit(PutUser(name, b"", SHA256, ()))
    world.submit(SetPermission("/", name, configure, write, read))


def test_methods_are_answered(world: ClientWorld) -> None:
    async def story() -> None:
        async with world.client_of() as client:
            assert await client.call(QueueDeclare(queue="q")) == QueueDeclareOk("q", 0, 0)
            assert await client.publish("", "q", Properties(), b"body") is Outcome.ROUTED
            assert await client.call(QueuePurge(queue="q")) == QueuePurgeOk(1)
            assert await client.call(QueueDelete(queue="q")) == QueueDeleteOk(0)

    world.run(story)
    assert not world.queue_names


def test_what_is_sent_last_counts_however_full_the_turn_is(world: ClientWorld) -> None:
    """Rejections sent right before a close count even in a full turn: their sender cannot wait for another one."""
    count = 50

    async def story() -> None:
        async with world.client_of() as client:
            await client.call(QueueDeclare(queue="q"))
            for _ in range(count):
                await client.publish("", "q", Properties(), b"body")
        async with world.client_of() as client:
            found = [await client.get("q", no_ack=False) for _ in range(count)]
            world.broker.turns.taken_s = TURN_S
            for message in found:
                assert message is not None
                world.cost_s += SHARE_S
                client.send(BasicReject(message.delivery_tag, requeue=False))

    world.run(story)
    assert world.queue("q").backlog.count == 0


def test_a_channel_error_is_raised_in_whole_and_again(world: ClientWorld) -> None:
    name = "q" * 250

    async def story() -> None:
        async with world.client_of() as client:
            for _ in range(2):
                with pytest.raises(ProtocolError) as caught:
                    await client.call(QueueDeclare(queue=name, passive=True))
                assert caught.value.code is ReplyCode.NOT_FOUND
                assert caught.value.explanation == f"no queue '{name}' in vhost '/'"

    world.run(story)


def test_a_connection_error_is_raised(world: ClientWorld) -> None:
    async def story() -> None:
        async with world.client_of() as client:
            with pytest.raises(ProtocolError, match="unknown exchange type 'nope'") as caught:
                await client.call(ExchangeDeclare(exchange="x", type="nope"))
            assert caught.value.code is ReplyCode.COMMAND_INVALID

    world.run(story)


def test_the_users_own_permissions_hold(world: ClientWorld) -> None:
    add_user(world, "limited", "^mine", "^mine", "^mine")

    async def story() -> None:
        async with world.client_of("limited") as client:
            await client.call(QueueDeclare(queue="mine"))
            with pytest.raises(ProtocolError) as caught:
                await client.call(QueueDeclare(queue="yours"))
            assert caught.value.code is ReplyCode.ACCESS_REFUSED

    world.run(story)


def test_without_a_permission_for_the_vhost_nothing_opens(world: ClientWorld) -> None:
    world.submit(PutUser("stranger", b"", SHA256, ("administrator",)))

    async def story() -> None:
        with pytest.raises(ProtocolError) as caught:
            async with world.client_of("stranger"):
                pass
        assert caught.value.code is ReplyCode.NOT_ALLOWED

    world.run(story)


def test_what_no_queue_takes_is_unrouted(world: ClientWorld) -> None:
    async def story() -> None:
        async with world.client_of() as client:
            assert await client.publish("amq.direct", "nobody", Properties(), b"") is Outcome.UNROUTED
            await client.call(QueueDeclare(queue="q"))
            assert await client.publish("", "q", Properties(), b"") is Outcome.ROUTED

    world.run(story)


def test_what_a_full_queue_refuses_is_rejected(world: ClientWorld) -> None:
    arguments = {"x-max-length": long(1), "x-overflow": longstr("reject-publish")}

    async def story() -> None:
        async with world.client_of() as client:
            await client.call(QueueDeclare(queue="q", arguments=arguments))
            outcomes = [await client.publish("", "q", Properties(), b"") for _ in range(2)]
            assert outcomes == [Outcome.ROUTED, Outcome.REJECTED]

    world.run(story)


def test_a_message_is_got_with_all_it_has(world: ClientWorld) -> None:
    properties = Properties(content_type="text/plain", headers={"n": long(5)}, delivery_mode=2)
    body = bytes(range(256)) * 4096  # beyond any frame

    async def story() -> None:
        async with world.client_of() as client:
            await client.call(QueueDeclare(queue="q"))
            assert await client.get("q", no_ack=True) is None
            for _ in range(2):
                await client.publish("", "q", properties, body)
            got = await client.get("q", no_ack=True)
            assert got is not None
            assert got == (got.delivery_tag, False, "", "q", 1, properties, body)

    world.run(story)


def test_what_was_got_and_not_settled_goes_back(world: ClientWorld) -> None:
    async def story() -> None:
        async with world.client_of() as client:
            await client.call(QueueDeclare(queue="q"))
            await client.publish("", "q", Properties(), b"1")
            await client.get("q", no_ack=False)
        async with world.client_of() as client:
            got = await client.get("q", no_ack=False)
            assert got is not None
            assert (got.redelivered, got.body) == (True, b"1")
            client.send(BasicAck(got.delivery_tag))
            assert await client.get("q", no_ack=False) is None

    world.run(story)


def test_a_rejected_message_is_dropped(world: ClientWorld) -> None:
    async def story() -> None:
        async with world.client_of() as client:
            await client.call(QueueDeclare(queue="q"))
            await client.publish("", "q", Properties(), b"1")
            got = await client.get("q", no_ack=False)
            assert got is not None
            client.send(BasicReject(got.delivery_tag, requeue=False))
        async with world.client_of() as client:
            assert await client.get("q", no_ack=False) is None

    world.run(story)


def test_alarms_and_limits_of_connections_do_not_concern_it(world: ClientWorld) -> None:
    world.broker.alarms.set("memory")
    world.submit(SetParameter("/", "vhost-limits", "limits", {"max-connections": 0}))

    async def story() -> None:
        async with world.client_of() as client:
            await client.call(QueueDeclare(queue="q"))
            assert await client.publish("", "q", Properties(), b"1") is Outcome.ROUTED
            world.broker.alarms.set("disk")
            assert await client.publish("", "q", Properties(), b"2") is Outcome.ROUTED
        assert world.broker.connection_count("/", None) == 0

    world.run(story)


def test_its_end_is_not_waited_for_when_its_vhost_goes(world: ClientWorld) -> None:
    world.submit(PutVhost("v"))
    world.submit(SetPermission("v", "guest", ".*", ".*", ".*"))

    async def story() -> None:
        async with world.client_of(vhost="v") as client:
            await client.call(QueueDeclare(queue="q"))
            world.submit(DeleteVhost("v"))
            with pytest.raises(ProtocolError) as caught:
                await client.call(QueueDeclare(queue="q2"))
            assert caught.value.code is ReplyCode.CONNECTION_FORCED

    world.run(story)


class SilentLog:
    """A log that never answers."""

    def submit(self, command: Command[Any], on_applied: Callable[[Any], None] = lambda result: None) -> None:
        pass

    def await_safety(self, on_safe: Callable[[Any], None]) -> None:
        pass


def test_a_wait_has_an_end(world: ClientWorld) -> None:
    async def story() -> None:
        world.broker.log = SilentLog()  # type: ignore[assignment]
        with pytest.raises(DirectTimeout):
            async with world.client_of(timeout_s=0.01) as client:
                await client.call(QueueDeclare(queue="q"))

    world.run(story)


def test_a_request_that_is_dropped_leaves_nothing_behind(world: ClientWorld) -> None:
    """As when an HTTP client goes away while its request waits."""

    async def request() -> None:
        async with world.client_of() as client:
            await client.call(QueueDeclare(queue="q"))

    async def story() -> None:
        log, world.broker.log = world.broker.log, SilentLog()  # type: ignore[assignment]
        task = asyncio.create_task(request())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        world.broker.log = log

    world.run(story)


def test_nothing_is_told_of_it_as_of_a_socket(world: ClientWorld) -> None:
    async def story() -> None:
        async with world.client_of() as client:
            (connection,) = world.broker.connections.values()
            assert connection.name.startswith("<")
            assert connection.peer.local == ""
            await client.call(QueueDeclare(queue="q"))

    world.run(story)
    assert world.diary.entries == []


def test_two_clients_do_not_meet(world: ClientWorld) -> None:
    async def one(name: str) -> None:
        async with world.client_of() as client:
            await client.call(QueueDeclare(queue=name))
            for number in range(20):
                await client.publish("", name, Properties(), f"{name}{number}".encode())
            for number in range(20):
                got = await client.get(name, no_ack=True)
                assert got is not None
                assert got.body == f"{name}{number}".encode()

    async def story() -> None:
        await asyncio.gather(one("a"), one("b"))

    world.run(story)


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_left_of_a_client_that_has_left(world: ClientWorld, fails: bool) -> None:
    async def use() -> "tuple[weakref.ref[object], weakref.ref[object]]":
        client = world.client_of()
        async with client:
            if fails:
                with pytest.raises(ProtocolError):
                    await client.call(QueueDeclare(queue="nowhere", passive=True))
            else:
                await client.call(QueueDeclare(queue="q"))
            return weakref.ref(client), weakref.ref(client._connection)

    async def story() -> None:
        with no_search_for_cycles():
            refs = await use()
            await asyncio.sleep(0)
            assert_gone(*refs)

    world.run(story)
