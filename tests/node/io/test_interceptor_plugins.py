"""Interceptors of plug-ins: what they see, set and refuse, and that they come and go while clients publish."""

from collections.abc import Sequence

import pytest

from node.amqp.field_table import longstr
from node.amqp.methods import (
    BasicAck,
    BasicGet,
    ChannelClose,
    ConfirmSelect,
    ExchangeDeclare,
    QueueBind,
    QueueDeclare,
)
from node.amqp.properties import Properties
from node.catalogue.commands import DisablePlugin, EnablePlugin
from node.extension.delivery_interceptor import DeliveryInterceptor, DeliveryTarget, OutgoingMessage
from node.extension.interceptor import InterceptedMessage, MessageInterceptor, PublishTarget
from node.extension.setting import Setting, Settings
from node.io.interceptor_plugins import InterceptorPlugins
from node.plugins.built_in import built_in
from node.routing.plugins import Plugin
from tests.kit.world import Client, World

SEEN: list[tuple[PublishTarget, list[str | None]]] = []
"""The targets and message ids that the interceptor has seen."""


class Marking(MessageInterceptor):
    """Sets the header `seen-by`; refuses the message id `no`, and fails at `bug`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        if settings["mark"] == "none":
            raise KeyError("a bug")

    def published(self, target: PublishTarget, messages: Sequence[InterceptedMessage]) -> str | None:
        ids = [message.properties.message_id for message in messages]
        SEEN.append((target, ids))
        if "bug" in ids:
            raise KeyError("a bug")
        if "no" in ids:
            return "messages of this id are refused"
        if "set CC" in ids:
            messages[0].set_header("CC", longstr("x"))
        for message in messages:
            if message.properties.message_id != "plain":
                message.set_header("seen-by", longstr(str(self.settings["mark"])))
        return None


PLUGIN = Plugin("marking", "1", "", settings=(Setting("mark", "me"),), interceptors=(Marking,))


@pytest.fixture(autouse=True)
def _fresh() -> None:
    SEEN.clear()


def plugged(mark: str = "me", *, is_on: bool = True) -> tuple[World, Client]:
    """Return a broker whose plug-in is enabled, and a client that has the queue `q`."""
    world = World()
    load = world.broker.exchange_types
    load._load = lambda name: PLUGIN if name == "marking" else built_in(name)
    InterceptorPlugins(world.broker, {"plugin.marking.mark": mark})
    if is_on:
        world.submit(EnablePlugin("marking", ()))
    client = world.client()
    client.ask(1, QueueDeclare(queue="q"))
    return world, client


def got(client: Client) -> Properties:
    """Get a message of `q`."""
    client.send(1, BasicGet(queue="q", no_ack=True))
    (received,) = client.received()
    assert received.properties is not None, received
    return received.properties


def test_a_message_gets_a_header_and_keeps_all_else() -> None:
    _world, client = plugged()
    before = Properties(message_id="a", headers={"x": longstr("y")}, delivery_mode=2)
    client.publish(1, "q", b"body", properties=before)
    assert got(client).headers == {"x": longstr("y"), "seen-by": longstr("me")}
    client.publish(1, "q", b"body", properties=Properties(message_id="plain"))
    assert got(client).headers is None
    target = PublishTarget("/", "guest", client.connection.name, "", "q")
    assert [(target, ["a"]), (target, ["plain"])] == SEEN


def test_a_large_body_stays_whole() -> None:
    _world, client = plugged()
    client.publish(1, "q", b"x" * 300_000, properties=Properties(message_id="a"))
    client.send(1, BasicGet(queue="q", no_ack=True))
    assert client.bodies() == [b"x" * 300_000]


def test_messages_of_one_read_are_given_together() -> None:
    world, client = plugged()
    client.feed(b"".join(_publish(client, str(number)) for number in range(5)))
    assert [ids for _, ids in SEEN] == [["0", "1", "2", "3", "4"]]
    assert world.queue("q").backlog.count == 5


def _publish(client: Client, message_id: str) -> bytes:
    """Return the bytes of a publish."""
    sent: list[bytes] = []
    feed, client.feed = client.feed, sent.append  # type: ignore[method-assign]
    client.publish(1, "q", b"m", properties=Properties(message_id=message_id))
    client.feed = feed  # type: ignore[method-assign]
    return b"".join(sent)


@pytest.mark.parametrize(
    ("message_id", "text"),
    [
        ("no", "messages of this id are refused"),
        ("bug", "plug-in 'marking' failed; the log has the reason"),
        ("set CC", "plug-in 'marking' failed; the log has the reason"),
    ],
)
def test_a_message_may_be_refused(message_id: str, text: str) -> None:
    world, client = plugged()
    client.publish(1, "q", b"m", properties=Properties(message_id=message_id))
    (close,) = client.methods()
    assert isinstance(close, ChannelClose)
    assert (close.reply_code, close.reply_text) == (406, f"PRECONDITION_FAILED - {text}")
    assert world.queue("q").backlog.count == 0
    assert world.broker.exchange_types.failures["marking"] == (0 if message_id == "no" else 1)


def test_headers_that_were_set_are_routed_by() -> None:
    world, client = plugged()
    client.ask(1, ExchangeDeclare(exchange="h", type="headers"))
    client.ask(1, QueueBind(queue="q", exchange="h", arguments={"seen-by": longstr("me")}))
    client.publish(1, "", b"m", exchange="h")
    assert world.queue("q").backlog.count == 1


def test_interceptors_come_and_go_while_a_client_publishes() -> None:
    world, client = plugged(is_on=False)
    client.ask(1, ConfirmSelect())
    client.publish(1, "q", b"1")
    world.submit(EnablePlugin("marking", ()))
    client.publish(1, "q", b"2")
    assert len(SEEN) == 1
    world.submit(DisablePlugin("marking"))
    client.publish(1, "q", b"3")
    assert len(SEEN) == 1
    assert world.queue("q").backlog.count == 3
    assert all(isinstance(method, BasicAck) for method in client.methods())


def test_without_an_interceptor_a_route_leads_to_the_channel_itself() -> None:
    """A feature that nobody enabled costs nothing: no message is asked about."""
    _world, client = plugged(is_on=False)
    client.publish(1, "q", b"m")
    (route,) = client.connection._routes._routes.values()
    assert route.channel is client.channel()


def test_an_interceptor_that_cannot_be_made_lets_nothing_pass() -> None:
    world, client = plugged("none")
    client.publish(1, "q", b"m")
    (close,) = client.methods()
    assert isinstance(close, ChannelClose)
    assert "an interceptor of this node cannot be made" in close.reply_text
    assert world.broker.exchange_types.failures["marking"] == 1


class Telling(DeliveryInterceptor):
    """Sets the header `told`; it cannot be made with the mark `none`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        if settings["mark"] == "none":
            raise KeyError("a bug")

    def delivering(self, target: DeliveryTarget, messages: Sequence[OutgoingMessage]) -> None:
        for message in messages:
            message.set_header("told", longstr(f"{target.queue} {self.settings['mark']}"))


TELLING = Plugin("telling", "1", "", settings=(Setting("mark", "me"),), delivery_interceptors=(Telling,))


def telling(mark: str) -> tuple[World, Client]:
    """Return a broker whose plug-in `telling` is enabled, and a client that has a message in the queue `q`."""
    world = World()
    world.broker.exchange_types._load = lambda name: TELLING if name == "telling" else built_in(name)
    InterceptorPlugins(world.broker, {"plugin.telling.mark": mark})
    client = world.client()
    client.ask(1, QueueDeclare(queue="q"))
    client.publish(1, "q", b"1", b"2")
    world.submit(EnablePlugin("telling", ()))
    return world, client


def test_a_plugin_changes_what_clients_get_while_it_is_enabled() -> None:
    world, client = telling("me")
    assert got(client).headers == {"told": longstr("q me")}
    world.submit(DisablePlugin("telling"))
    assert got(client).headers is None
    assert world.broker.interceptors == ()


def test_messages_stay_in_their_queue_if_an_interceptor_of_deliveries_cannot_be_made() -> None:
    world, client = telling("none")
    client.send(1, BasicGet(queue="q", no_ack=False))
    (close,) = client.methods()
    assert isinstance(close, ChannelClose)
    assert "plug-in 'telling' failed" in close.reply_text
    assert world.queue("q").backlog.count == 2
    assert world.broker.exchange_types.failures["telling"] == 2  # made once, asked once
