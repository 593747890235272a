"""STOMP clients and a whole broker, without sockets: what needs moments that no real server gives at will."""

import weakref
from collections.abc import Callable

import pytest

from node.amqp.methods import BasicPublish
from node.amqp.properties import Properties
from node.catalogue.commands import DeclareQueue, DeleteQueue, SetPermission
from node.client.client_session import MESSAGES
from node.client.confirms import Confirms
from node.client.endpoint import ClientEndpoint
from node.stomp import client as stomp_client
from node.stomp import transactions
from node.stomp.connection import HEADERS_MAX, LOGIN_HEAD_MAX_BYTES
from tests.kit.memory import assert_gone, no_search_for_cycles
from tests.kit.stomp_world import StompTestClient, connected, error
from tests.kit.world import World
from tests.node.client.held_authority import USER, HeldAuthority

REMOTE = ClientEndpoint(address="192.0.2.7:4321", is_loopback=False)


def bodies(client: StompTestClient) -> list[bytes]:
    """Return the bodies of messages that have come; nothing else may have."""
    frames = client.frames()
    assert {frame.head.command for frame in frames} <= {"MESSAGE"}, frames
    return [frame.body for frame in frames]


# --- login ---


def test_operators_see_the_version() -> None:
    client = connected(version="1.1")
    assert client.connection.protocol == "STOMP 1.1"
    assert client.connection.user_name == "guest"


def test_guest_is_refused_from_elsewhere() -> None:
    client = StompTestClient(World(), peer=REMOTE)
    assert error(client.connect()) == ("Bad CONNECT", "non-loopback access denied")
    client.world.advance(3.1)
    assert client.is_reset


def test_a_client_has_to_log_in_in_time() -> None:
    client = StompTestClient(World(), {"login_timeout": "500"})
    client.world.advance(0.6)
    assert client.is_reset
    client = connected(login_timeout=500)
    client.world.advance(0.6)
    assert not client.is_reset


def test_without_a_default_user_it_has_to_be_named() -> None:
    client = StompTestClient(World(), {"default_user": ""})
    client.send("CONNECT", accept_version="1.2")
    (frame,) = client.frames()
    assert error(frame) == ("Bad CONNECT", "Missing login or passcode header(s)")


def test_a_certificate_names_the_user() -> None:
    peer = ClientEndpoint(is_tls=True, certificate_user="guest")
    client = StompTestClient(World(), {"ssl_cert_login": "true", "default_user": ""}, peer)
    assert client.ask("CONNECT", accept_version="1.2").head.command == "CONNECTED"
    client = StompTestClient(World(), {"default_user": ""}, peer)
    assert client.ask("CONNECT", accept_version="1.2").head.command == "ERROR"


def test_a_client_may_leave_out_connect() -> None:
    client = StompTestClient(World(), {"implicit_connect": "true"}, version="1.0")
    client.done("SUBSCRIBE", destination="/queue/a", id="1")
    client.send("SEND", b"m", destination="/queue/a")
    assert bodies(client) == [b"m"]


def test_the_default_user_of_an_implicit_login_may_be_refused() -> None:
    client = StompTestClient(World(), {"implicit_connect": "true", "default_pass": "wrong"})
    client.send("SEND", b"m", destination="/queue/a")
    (frame,) = client.frames()
    assert error(frame)[0] == "Bad CONNECT"


def test_frames_wait_for_an_auth_backend() -> None:
    world, authority = World(), HeldAuthority()
    world.broker.authority = authority
    client = StompTestClient(world)
    client.send("CONNECT", accept_version="1.2", login="ada", passcode="secret")
    client.send("SEND", b"m", destination="/topic/a", receipt="1")
    assert client.frames() == []
    authority.answer(USER)
    assert client.frames() == []
    authority.answer(True)
    assert [frame.head.command for frame in client.frames()] == ["CONNECTED"]
    while authority.asked:
        authority.answer(True)
        client.world.settle()
    assert [frame.head.command for frame in client.frames()] == ["RECEIPT"]


def test_a_client_that_waits_is_not_read() -> None:
    world, authority = World(), HeldAuthority()
    world.broker.authority = authority
    client = StompTestClient(world)
    client.send("CONNECT", accept_version="1.2", login="ada", passcode="secret")
    client.world.settle()
    assert not client.connection.is_reading
    for _ in range(100):
        client.feed(b"SEND\ndestination:/topic/a\n\n\0" * 1000)
    client.world.settle()
    assert client.connection._client is not None
    assert client.connection._client._decoder.buffered_bytes < 100_000  # type: ignore[attr-defined]


@pytest.mark.parametrize("is_half_done", [False, True])
def test_a_connection_is_freed_with_its_last_reference(is_half_done: bool) -> None:
    with no_search_for_cycles():
        world = World()
        client = connected(world)
        client.done("SUBSCRIBE", destination="/queue/a", id="1", ack="client")
        client.done("BEGIN", transaction="t")
        client.send("SEND", b"m", destination="/topic/a", transaction="t")
        if is_half_done:
            client.send("SEND", b"m", destination="/queue/new")
            client.feed(b"SEND\ndestination:/queue/a\n\nnot whole")
        else:
            client.frames()
        found = weakref.ref(client.connection._client)
        client.lose()
        world.settle()
        del client
        assert_gone(found)


def test_frames_are_small_before_login() -> None:
    client = StompTestClient(World())
    client.feed(b"CONNECT\nlogin:" + b"a" * LOGIN_HEAD_MAX_BYTES)
    (frame,) = client.frames()
    assert error(frame) == ("Bad frame", "the head of the frame is larger than 16384 bytes\n")
    client.world.advance(3.1)
    assert client.is_reset


def test_frames_have_bounds_after_login() -> None:
    client = connected()
    client.send("SEND", destination="/topic/a", **{f"h{number}": 1 for number in range(HEADERS_MAX + 1)})
    (frame,) = client.frames()
    assert error(frame) == ("Bad frame", f"the frame has more than {HEADERS_MAX} headers\n")
    assert client.is_reset


def test_settings_change_what_connected_says() -> None:
    assert "server" in StompTestClient(World()).connect().head.headers
    assert "server" not in StompTestClient(World(), {"hide_server_info": "true"}).connect().head.headers


# --- the end ---


def test_what_was_sent_before_disconnect_is_carried_out() -> None:
    client = connected()
    for _ in range(100):
        client.send("SEND", b"m", destination="/queue/a")
    client.send("DISCONNECT")
    client.send("SEND", b"never", destination="/queue/a")
    assert client.frames() == []
    assert client.is_reset
    assert client.world.queue("a").backlog.count == 100


def test_what_was_sent_before_a_fault_is_carried_out() -> None:
    client = connected()
    client.send("SEND", b"m", destination="/queue/a")
    client.send("FOO")
    client.send("SEND", b"never", destination="/queue/a")
    (frame,) = client.frames()
    assert error(frame)[0] == "Bad command"
    assert client.is_reset
    assert client.world.queue("a").backlog.count == 1


def test_a_setting_keeps_the_connection_after_a_fault() -> None:
    client = connected(close_after_error="false")
    assert error(client.ask("FOO"))[0] == "Bad command"
    client.done("SEND", b"m", destination="/queue/a")
    client.feed(b"SEND\nno colon\n\n\0")
    (frame,) = client.frames()
    assert error(frame)[0] == "Bad frame"
    assert client.is_reset, "frames cannot be told apart any more"


def test_the_node_says_why_it_closes() -> None:
    client = connected()
    client.connection.force_close("shutdown")
    (frame,) = client.frames()
    assert error(frame) == ("connection_forced", "CONNECTION_FORCED - shutdown")
    assert client.is_reset


def test_a_client_whose_end_cannot_be_carried_out_is_closed_in_the_end() -> None:
    client = connected()
    client.world.broker.alarms.set("memory", "rabbit@localhost")
    client.send("SEND", b"m", destination="/topic/a")
    client.send("FOO")
    assert error(client.frames()[0])[0] == "Bad command"
    assert not client.is_reset
    client.world.advance(30.1)
    assert client.is_reset


# --- confirms ---


@pytest.fixture
def late_confirms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishes that go nowhere wait for a confirm, as if a disk or a mirror were late."""
    monkeypatch.setattr(Confirms, "confirm_at_once", Confirms.expect)


def settle(client: StompTestClient, number: int, how: Callable[[Confirms, int, int], None]) -> None:
    """Confirm or reject a publish, as its queue does later."""
    channel = client.connection.channels[MESSAGES]
    assert channel.confirms is not None
    how(channel.confirms, number, number)
    client.connection.confirming[channel] = None
    client.world.broker.has_output(client.connection)


@pytest.mark.usefixtures("late_confirms")
def test_a_receipt_of_send_is_a_confirm() -> None:
    client = connected()
    client.send("SEND", destination="/topic/nobody", receipt="a")
    client.send("SEND", destination="/topic/nobody", receipt="b")
    assert client.frames() == []
    settle(client, 2, Confirms.confirm)
    assert [frame.head.headers for frame in client.frames()] == [{"receipt-id": "b"}]
    settle(client, 1, Confirms.confirm)
    assert [frame.head.headers for frame in client.frames()] == [{"receipt-id": "a"}]


@pytest.mark.usefixtures("late_confirms")
def test_a_message_that_is_not_confirmed_is_a_fault() -> None:
    client = connected()
    client.send("SEND", destination="/topic/nobody", receipt="a")
    client.world.settle()
    settle(client, 1, Confirms.reject)
    (frame,) = client.frames()
    assert error(frame)[0] == "Message not confirmed"
    assert frame.head.headers["receipt-id"] == "a"
    assert client.is_reset


@pytest.mark.usefixtures("late_confirms")
@pytest.mark.parametrize("command", ["COMMIT", "DISCONNECT"])
@pytest.mark.parametrize("is_safe", [True, False])
def test_receipts_of_commit_and_disconnect_wait_for_confirms(command: str, is_safe: bool) -> None:
    client = connected()
    client.send("BEGIN", transaction="t")
    if command == "COMMIT":
        client.send("SEND", destination="/topic/nobody", transaction="t")
    else:
        client.send("SEND", destination="/topic/nobody")
    client.send(command, transaction="t", receipt="r")
    assert client.frames() == []
    settle(client, 1, Confirms.confirm if is_safe else Confirms.reject)
    (frame,) = client.frames()
    assert frame.head.command == ("RECEIPT" if is_safe else "ERROR")
    assert frame.head.headers["receipt-id"] == "r"
    assert client.is_reset == (command == "DISCONNECT" or not is_safe)


def test_receipts_of_acks_come_when_they_are_carried_out() -> None:
    client = connected()
    client.done("SUBSCRIBE", destination="/queue/a", id="1", ack="client")
    message = client.ask("SEND", b"m", destination="/queue/a")
    client.done("ACK", id=message.head.headers["ack"])
    assert client.world.queue("a").unacked_count == 0


# --- subscriptions ---


def test_an_ack_settles_those_of_its_own_subscription() -> None:
    client = connected()
    for name in "ab":
        client.done("SUBSCRIBE", destination=f"/queue/{name}", id=name, ack="client")
    client.done("SUBSCRIBE", destination="/queue/c", id="c", ack="client-individual")
    for name in "abcabc":
        client.send("SEND", name.encode(), destination=f"/queue/{name}")
    acks = {frame.head.headers["ack"]: frame.body for frame in client.frames()}
    last = [ack for ack, body in acks.items() if body == b"b"][-1]
    client.done("ACK", id=last)
    assert [client.world.queue(name).unacked_count for name in "abc"] == [2, 0, 2]
    last = [ack for ack, body in acks.items() if body == b"c"][-1]
    client.done("NACK", id=last, requeue="false")
    assert [client.world.queue(name).unacked_count for name in "abc"] == [2, 0, 1]


def test_one_ack_of_a_lone_subscription_settles_all_before() -> None:
    client = connected()
    client.done("SUBSCRIBE", destination="/queue/a", id="a", ack="client")
    for _ in range(5):
        client.send("SEND", b"m", destination="/queue/a")
    frames = client.frames()
    client.done("ACK", id=frames[3].head.headers["ack"])
    assert client.world.queue("a").unacked_count == 1
    client.send("NACK", id=frames[4].head.headers["ack"])
    (again,) = client.frames()
    assert again.head.headers["redelivered"] == "true"


def test_a_refused_binding_leaves_no_queue() -> None:
    client = connected()
    frame = client.ask("SUBSCRIBE", destination="/exchange/none/k", id="1")
    assert error(frame) == ("not_found", "NOT_FOUND - no exchange 'none' in vhost '/'")
    assert client.is_reset
    assert client.world.queue_names == set()


def test_a_refused_consumer_leaves_no_queue() -> None:
    world = World()
    world.submit(SetPermission("/", "guest", ".*", ".*", "^amq.topic$"))
    client = connected(world)
    frame = client.ask("SUBSCRIBE", destination="/topic/a", id="1")
    assert error(frame)[0] == "access_refused"
    assert client.is_reset
    assert world.queue_names == set()


def test_a_durable_subscription_stays_when_its_consumer_is_refused() -> None:
    world = World()
    world.submit(SetPermission("/", "guest", ".*", ".*", "^amq.topic$"))
    client = connected(world)
    frame = client.ask("SUBSCRIBE", destination="/topic/a", id="1", durable="true", auto_delete="false")
    assert error(frame)[0] == "access_refused"
    assert len(world.queue_names) == 1


def test_subscriptions_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stomp_client, "SUBSCRIPTIONS_MAX", 2)
    client = connected()
    client.done("SUBSCRIBE", destination="/topic/a", id="1")
    client.done("SUBSCRIBE", destination="/topic/a", id="2")
    assert error(client.ask("SUBSCRIBE", destination="/topic/a", id="3"))[0] == "Too many subscriptions"


def test_temporary_queues_are_within_that_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stomp_client, "SUBSCRIPTIONS_MAX", 2)
    client = connected()
    for number in (1, 2, 1):
        client.send("SEND", destination="/topic/a", reply_to=f"/temp-queue/{number}")
    assert client.frames() == []
    refused = client.ask("SEND", destination="/topic/a", reply_to="/temp-queue/3")
    assert error(refused)[0] == "Too many subscriptions"


def test_prefetch_holds_back_and_stays_for_the_next_subscription() -> None:
    client = connected()
    client.done("SUBSCRIBE", destination="/queue/a", id="a", ack="client-individual", prefetch_count="2")
    client.done("SUBSCRIBE", destination="/queue/b", id="b", ack="client-individual")
    for _ in range(3):
        client.send("SEND", b"a", destination="/queue/a")
        client.send("SEND", b"b", destination="/queue/b")
    frames = client.frames()
    assert sorted(frame.body for frame in frames) == [b"a", b"a", b"b", b"b"]
    client.send("ACK", id=frames[0].head.headers["ack"])
    assert bodies(client) == [frames[0].body]


def test_messages_to_a_queue_that_is_gone_do_not_declare_it_again() -> None:
    client = connected()
    client.done("SEND", destination="/queue/a")
    client.world.submit(DeleteQueue("/", "a"))
    client.done("SEND", destination="/queue/a")
    assert client.world.queue_names == set()


def test_a_server_cancels_one_subscription_and_keeps_the_connection_if_it_is_set_so() -> None:
    client = connected(close_after_error="false")
    client.done("SUBSCRIBE", destination="/queue/a", id="a")
    client.done("SUBSCRIBE", destination="/queue/b", id="b")
    client.world.submit(DeleteQueue("/", "a"))
    (frame,) = client.frames()
    assert frame.head.headers["subscription"] == "a"
    client.send("SEND", b"m", destination="/queue/b")
    assert bodies(client) == [b"m"]
    client.done("SUBSCRIBE", destination="/queue/b", id="a")


# --- transactions ---


def test_transactions_have_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "TRANSACTIONS_MAX", 2)
    monkeypatch.setattr(transactions, "HELD_MAX_BYTES", 5000)
    client = connected(close_after_error="false")
    client.done("BEGIN", transaction="a")
    assert error(client.ask("BEGIN", transaction="a"))[0] == "Bad transaction"
    client.done("BEGIN", transaction="b")
    assert error(client.ask("BEGIN", transaction="c"))[0] == "Bad transaction"
    client.send("SEND", b"m" * 3000, destination="/topic/a", transaction="a")
    assert error(client.ask("SEND", b"m", destination="/topic/a", transaction="b"))[0] == "Bad transaction"
    client.done("ABORT", transaction="a")
    client.done("BEGIN", transaction="c")
    client.send("SEND", b"m" * 2000, destination="/topic/a", transaction="c")
    assert client.frames() == []


def test_a_frame_that_is_refused_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that goes on after the ERROR frame cannot fill the node's memory, and its COMMIT has no such frame."""
    monkeypatch.setattr(transactions, "HELD_MAX_BYTES", 5000)
    client = connected(close_after_error="false")
    client.done("SUBSCRIBE", destination="/topic/a", id="1")
    client.done("BEGIN", transaction="t")
    client.send("SEND", b"first", destination="/topic/a", transaction="t")
    for _ in range(3):
        refused = client.ask("SEND", b"m" * 5000, destination="/topic/a", transaction="t")
        assert error(refused)[0] == "Bad transaction"
    client.send("SEND", b"last", destination="/topic/a", transaction="t")
    client.send("COMMIT", transaction="t")
    assert bodies(client) == [b"first", b"last"]


# --- replies ---


def test_replies_come_to_a_temporary_queue() -> None:
    world = World()
    client, server = connected(world), connected(world)
    server.done("SUBSCRIBE", destination="/queue/requests", id="1")
    for number in (1, 2):
        client.send("SEND", b"%d" % number, destination="/queue/requests", reply_to="/temp-queue/answers")
    client.world.settle()
    requests = server.frames()
    assert len({request.head.headers["reply-to"] for request in requests}) == 1
    for request in requests:
        server.send("SEND", b"re " + request.body, destination=request.head.headers["reply-to"])
    server.world.settle()
    replies = client.frames()
    assert [reply.body for reply in replies] == [b"re 1", b"re 2"]
    assert {reply.head.headers["subscription"] for reply in replies} == {"/temp-queue/answers"}
    client.lose()
    world.settle()
    assert world.queue_names == {"requests"}


# --- heart-beats ---


def test_heart_beats_are_sent_only_in_silence() -> None:
    client = StompTestClient(World())
    client.connect(heart_beat="0,2000")
    client.world.advance(4.5)
    assert 1 <= client.written.count(b"\n") <= 4
    assert client.written.strip(b"\n") == b""
    client.written = b""
    for _ in range(10):
        client.send("SEND", destination="/topic/nobody", receipt="r")
        client.world.settle()
        client.world.advance(0.5)
    assert client.written.endswith(b"\0\n")
    assert b"\n\n\n" not in client.written


def test_a_client_is_not_silent_while_the_node_does_not_read() -> None:
    client = StompTestClient(World())
    client.connect(heart_beat="1000,0")
    client.world.advance(1.5)
    client.feed(b"\n")
    client.world.advance(2.0)
    assert not client.is_reset
    client.world.broker.alarms.set("memory", "rabbit@localhost")
    client.send("SEND", destination="/topic/nobody")
    client.world.advance(10.0)
    assert not client.is_reset
    client.world.broker.alarms.clear("memory", "rabbit@localhost")
    client.world.settle()
    client.world.advance(2.1)
    assert client.is_reset


# --- many messages ---


def test_equal_heads_are_published_as_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    client = connected()
    client.done("SEND", b"first", destination="/queue/a", persistent="true")
    runs: list[int] = []
    take = client.world.broker.intake.publish

    def noted(batch: object, *rest: object) -> None:
        runs.append(len(batch.contents))  # type: ignore[attr-defined]
        take(batch, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(client.world.broker.intake, "publish", noted)
    client.feed(b"SEND\ndestination:/queue/a\npersistent:true\ncontent-length:1\n\nm\0\n" * 50)
    client.world.settle()
    assert runs == [50]
    assert client.world.queue("a").backlog.count == 51


def test_amqp_clients_see_the_same_messages() -> None:
    world = World()
    world.submit(DeclareQueue("/", "a", "0" * 32))
    client, amqp = connected(world), world.client()
    client.send("SUBSCRIBE", destination="/amq/queue/a", id="a:b")
    amqp.send(1, BasicPublish(routing_key="a"), b"\0m\0", Properties(content_type="text/x", message_id="7"))
    (frame,) = client.frames()
    assert frame.head.headers["subscription"] == "a:b"
    assert frame.head.headers["amqp-message-id"] == "7"
    assert frame.head.headers["content-type"] == "text/x"
    assert frame.body == b"\0m\0"


def test_a_message_alone_takes_one_turn_and_flushes_its_receiver_alone() -> None:
    world = World()
    sender, receiver = connected(world), connected(world)
    receiver.done("SUBSCRIBE", destination="/queue/q", id="1", ack="auto")
    sender.done("SEND", b"first", destination="/queue/q")
    receiver.frames()
    for _ in range(2):
        sender.send("SEND", b"m", destination="/queue/q")
        flushed = list(world.broker.turn(world.now))
        assert flushed == [receiver.connection]
        receiver.flush()
        assert not world.broker.has_work
        assert [frame.body for frame in receiver.frames()] == [b"m"]
