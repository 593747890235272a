"""Connections of users whom an auth backend of a plug-in authorises: what waits for an answer, and what follows."""

import pytest

from node.amqp.constants import PROTOCOL_HEADER
from node.amqp.field_table import boolean, longstr, table
from node.amqp.methods import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicPublish,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConfirmSelect,
    ConfirmSelectOk,
    ConnectionClose,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    Method,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueuePurge,
)
from node.catalogue.access import LoginRefused
from node.catalogue.commands import Bind, DeclareExchange, DeclareQueue, SetUserLimits
from node.catalogue.records import UserLimits
from node.client.endpoint import ClientEndpoint
from node.client.rights import ANSWERS_MAX, Rights
from node.client.settings import BrokerSettings
from node.extension.auth_backend import Login, Question, ResourceAccess, TopicAccess, VhostAccess
from tests.kit.world import Client, World
from tests.node.client.held_authority import USER, HeldAuthority

TAGS = ("monitoring",)
REMOTE = ClientEndpoint(address="192.0.2.7:4321", is_loopback=False)


def world_with(authority: HeldAuthority, settings: BrokerSettings | None = None) -> World:
    """Return a broker that asks this authority, with a queue `q` and an exchange `t` that leads to it."""
    world = World(settings)
    world.broker.authority = authority
    world.submit(DeclareQueue("/", "q", "0" * 32))
    world.submit(DeclareExchange("/", "t", "topic"))
    world.submit(Bind("/", "t", "queue", "q", "#", {}))
    return world


def started(world: World, peer: ClientEndpoint = REMOTE) -> Client:
    """Return a client that has sent its login and has no answer."""
    client = world.connect(peer)
    client.feed(PROTOCOL_HEADER)
    client.received()
    capabilities = {"capabilities": table({"authentication_failure_close": boolean(True)})}
    client.send(0, ConnectionStartOk(capabilities, "PLAIN", b"\0ada\0secret"))
    return client


def opened(authority: HeldAuthority, world: World | None = None) -> Client:
    """Return a client of the user `ada` with channel 1."""
    client = started(world or world_with(authority))
    authority.answer(USER)
    (tune,) = client.methods()
    assert isinstance(tune, ConnectionTune)
    client.send(0, ConnectionTuneOk(tune.channel_max, 131072, 0))
    client.send(0, ConnectionOpen("/"))
    assert authority.answer(True) == VhostAccess("ada", TAGS, "/", "192.0.2.7")
    assert client.methods() == [ConnectionOpenOk()]
    assert client.ask(1, ChannelOpen()) == ChannelOpenOk()
    return client


def resource(kind: str, name: str, permission: str) -> ResourceAccess:
    return ResourceAccess("ada", TAGS, "/", kind, name, permission)  # type: ignore[arg-type]


def answered(
    client: Client, authority: HeldAuthority, method: Method, *questions: Question, allows: bool = True
) -> list[Method | None]:
    """Return what a method leads to, once these questions are answered; all but the last one are allowed."""
    client.send(1, method)
    for number, question in enumerate(questions, start=1):
        assert client.received() == []
        assert not client.connection.is_reading
        assert authority.answer(allows or number < len(questions)) == question
    assert authority.asked == []
    return client.methods()


# --- login and open ---


def test_a_login_waits_for_the_backend_and_nothing_is_read_meanwhile() -> None:
    authority = HeldAuthority()
    client = started(world_with(authority))
    assert authority.asked == [Login("ada", b"secret", "PLAIN", "192.0.2.7")]
    assert client.received() == []
    assert not client.connection.is_reading
    authority.answer(USER)
    assert isinstance(client.methods()[0], ConnectionTune)
    assert client.connection.is_reading
    assert client.connection.user is USER


def test_a_refused_login_is_told_as_any_other() -> None:
    authority = HeldAuthority()
    world = world_with(authority)
    client = started(world)
    authority.answer(LoginRefused("user 'ada' - no"))
    (close,) = client.methods()
    assert isinstance(close, ConnectionClose)
    assert (close.reply_code, close.reply_text[:14]) == (403, "ACCESS_REFUSED")
    assert "login refused: PLAIN: user 'ada' - no" in world.diary.entries


def test_a_user_of_the_backend_may_be_bound_to_this_machine() -> None:
    authority = HeldAuthority()
    world = world_with(authority, BrokerSettings(loopback_users=frozenset({"ada"})))
    started(world)
    authority.answer(USER)
    assert "login refused: PLAIN: user 'ada' can only connect via localhost" in world.diary.entries
    at_home = started(world, ClientEndpoint())
    authority.answer(USER)
    assert isinstance(at_home.methods()[0], ConnectionTune)


def test_an_answer_that_comes_after_the_handshake_timed_out_is_dropped() -> None:
    authority = HeldAuthority()
    client = started(world_with(authority))
    client.world.advance(11)
    assert client.is_reset
    authority.answer(USER)
    assert client.received() == []


def test_an_answer_that_comes_after_the_client_has_left_is_dropped() -> None:
    authority = HeldAuthority()
    client = started(world_with(authority))
    client.lose()
    authority.answer(USER)
    assert client.world.broker.connections == {}


def test_a_vhost_that_the_backend_refuses_is_not_opened() -> None:
    authority = HeldAuthority()
    client = started(world_with(authority))
    authority.answer(USER)
    client.received()
    client.send(0, ConnectionTuneOk(2047, 131072, 0))
    client.send(0, ConnectionOpen("/"))
    authority.answer(False)
    (close,) = client.methods()
    assert isinstance(close, ConnectionClose)
    assert close.reply_text == "NOT_ALLOWED - access to vhost '/' refused for user 'ada'"


def test_a_missing_vhost_is_not_asked_about() -> None:
    authority = HeldAuthority()
    client = started(world_with(authority))
    authority.answer(USER)
    client.received()
    client.send(0, ConnectionTuneOk(2047, 131072, 0))
    client.send(0, ConnectionOpen("nowhere"))
    assert authority.asked == []
    assert isinstance(client.methods()[0], ConnectionClose)


# --- methods ---

CASES = [
    (QueueDeclare(queue="new"), [resource("queue", "new", "configure")], QueueDeclareOk("new", 0, 0)),
    (ExchangeDeclare(exchange="e"), [resource("exchange", "e", "configure")], ExchangeDeclareOk()),
    (
        QueueBind(queue="q", exchange="t", routing_key="k"),
        [
            resource("queue", "q", "write"),
            resource("exchange", "t", "read"),
            TopicAccess("ada", TAGS, "/", "t", "read", "k"),
        ],
        QueueBindOk(),
    ),
    (BasicConsume(queue="q", consumer_tag="c"), [resource("queue", "q", "read")], BasicConsumeOk("c")),
]


@pytest.mark.parametrize(("method", "questions", "answer"), CASES)
def test_a_method_goes_on_when_all_its_questions_are_answered(
    method: Method, questions: list[Question], answer: Method
) -> None:
    authority = HeldAuthority()
    client = opened(authority)
    assert answered(client, authority, method, *questions) == [answer]


@pytest.mark.parametrize(("method", "questions", "answer"), CASES)
def test_a_method_is_refused_by_its_last_question(
    method: Method, questions: list[Question], answer: Method
) -> None:
    authority = HeldAuthority()
    client = opened(authority)
    (close,) = answered(client, authority, method, *questions, allows=False)
    assert isinstance(close, ChannelClose)
    assert close.reply_code == 403
    assert (close.failed_class_id, close.failed_method_id) == (method.class_id, method.method_id)
    assert " refused for user 'ada'" in close.reply_text


def test_dead_letters_are_asked_about_too() -> None:
    authority = HeldAuthority()
    client = opened(authority)
    declare = QueueDeclare(queue="d", arguments={"x-dead-letter-exchange": longstr("t")})
    questions = [
        resource("queue", "d", "configure"),
        resource("queue", "d", "read"),
        resource("exchange", "t", "write"),
    ]
    assert answered(client, authority, declare, *questions) == [QueueDeclareOk("d", 0, 0)]


def test_methods_behind_a_question_wait_in_their_order() -> None:
    authority = HeldAuthority()
    client = opened(authority)
    client.send(1, QueuePurge(queue="q"))
    client.send(1, QueueDeclare(queue="q", passive=True))
    assert client.received() == []
    authority.answer(False)
    methods = client.methods()
    assert len(methods) == 1, "the channel was closed, so the second method is ignored"
    assert isinstance(methods[0], ChannelClose)


def test_the_client_may_leave_while_a_method_waits() -> None:
    authority = HeldAuthority()
    client = opened(authority)
    client.send(1, QueueDeclare(queue="new"))
    client.lose()
    authority.answer(True)
    assert "new" not in client.world.queue_names


# --- publishing ---


def test_publishes_wait_for_the_first_answer_and_then_for_none() -> None:
    authority = HeldAuthority()
    client = opened(authority)
    assert client.ask(1, ConfirmSelect()) == ConfirmSelectOk()
    client.publish(1, "q", b"a", b"b")
    assert client.received() == []
    assert not client.connection.is_reading
    assert authority.answer(True) == resource("exchange", "amq.default", "write")
    client.publish(1, "q", b"c")
    client.publish(1, "other", b"d")  # another route of the same exchange
    assert authority.asked == []
    assert client.world.queue("q").backlog.count == 3
    acked = [method for method in client.methods() if isinstance(method, BasicAck)]
    assert acked[-1].delivery_tag == 4


def test_an_answer_that_is_remembered_holds_up_nothing() -> None:
    authority = HeldAuthority()
    client = opened(authority)
    authority.remembers = True
    client.publish(1, "k", b"a", b"b", exchange="t")  # two questions
    assert client.connection.is_reading
    assert client.world.queue("q").backlog.count == 2
    assert client.ask(1, QueueDeclare(queue="new")) == QueueDeclareOk("new", 0, 0)
    client.publish(1, "new", b"c")
    assert client.world.queue("new").backlog.count == 1


def test_a_refused_publish_closes_its_channel_and_nothing_is_enqueued() -> None:
    authority = HeldAuthority()
    client = opened(authority)
    client.publish(1, "q", b"a", b"b")
    authority.answer(False)
    (close,) = client.methods()
    assert isinstance(close, ChannelClose)
    assert (
        close.reply_text
        == "ACCESS_REFUSED - access to exchange 'amq.default' in vhost '/' refused for user 'ada'"
    )
    assert client.world.queue("q").backlog.count == 0


def test_the_key_of_a_topic_exchange_is_a_question_of_its_own() -> None:
    authority = HeldAuthority()
    client = opened(authority)
    client.publish(1, "k", b"a", exchange="t")
    assert authority.answer(True) == resource("exchange", "t", "write")
    assert authority.answer(True) == TopicAccess("ada", TAGS, "/", "t", "write", "k")
    client.publish(1, "l", b"b", exchange="t")
    assert authority.answer(False) == TopicAccess("ada", TAGS, "/", "t", "write", "l")
    (close,) = client.methods()
    assert isinstance(close, ChannelClose)
    assert "access to topic 'l' in exchange 't'" in close.reply_text
    assert client.world.queue("q").backlog.count == 1


def test_publishes_are_asked_for_again_when_answers_are_too_old() -> None:
    authority = HeldAuthority()
    client = opened(authority)
    client.publish(1, "q", b"a")
    authority.answer(True)
    client.world.advance(authority.answers_s + 0.1)
    client.publish(1, "q", b"b")
    assert authority.answer(False) == resource("exchange", "amq.default", "write")
    assert isinstance(client.methods()[0], ChannelClose)
    assert client.world.queue("q").backlog.count == 1


def test_the_client_may_leave_while_a_publish_waits() -> None:
    authority = HeldAuthority()
    client = opened(authority)
    client.publish(1, "q", b"a")
    client.lose()
    authority.answer(True)
    client.world.settle()
    assert client.world.queue("q").backlog.count == 0
    client.world.advance(2 * authority.answers_s)
    assert authority.asked == []


def test_a_channel_may_be_closed_by_an_error_while_another_publishes() -> None:
    authority = HeldAuthority()
    client = opened(authority)
    assert client.ask(2, ChannelOpen()) == ChannelOpenOk()
    client.send(2, QueuePurge(queue="missing"))
    client.publish(1, "q", b"a")
    authority.answer(True)
    assert authority.answer(True) == resource("exchange", "amq.default", "write")
    assert client.world.queue("q").backlog.count == 1
    client.send(2, ChannelCloseOk())
    assert isinstance(client.methods()[0], ChannelClose)


def test_limits_of_a_user_of_the_same_name_hold() -> None:
    """A user whom a backend knows is not in the catalogue, so the catalogue's guest has no part in it."""
    authority = HeldAuthority()
    world = world_with(authority)
    world.submit(SetUserLimits("guest", UserLimits(max_connections=0)))
    assert opened(authority, world).connection.rights is not None


def test_a_connection_keeps_no_more_answers_than_allowed() -> None:
    authority = HeldAuthority()
    rights = Rights(authority, USER, "/", "")
    for number in range(ANSWERS_MAX + 1):
        question = rights.unanswered(f"e{number}", "", is_topic=False)
        assert question is not None
        rights.ask(question, lambda is_allowed: None)
        authority.answer(True)
    assert rights.unanswered("e0", "", is_topic=False) is not None, "it started over"
    assert rights.unanswered(f"e{ANSWERS_MAX}", "", is_topic=False) is None


def test_without_an_authority_the_catalogue_is_asked_at_once() -> None:
    client = World().client()
    assert client.connection.rights is None
    client.send(1, QueueDeclare(queue="q"))
    client.send(1, BasicPublish(routing_key="q"), b"m")
    assert client.methods() == [QueueDeclareOk("q", 0, 0)]
