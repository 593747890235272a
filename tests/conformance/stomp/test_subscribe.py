"""SUBSCRIBE, UNSUBSCRIBE, ACK and NACK."""

from collections.abc import Callable

import pytest

from tests.conformance.stomp.conftest import Open
from tests.kit.amqp_client import Channel
from tests.kit.patience import wait_until
from tests.kit.server_cluster import is_rabbitmq
from tests.kit.servers import Admin
from tests.kit.stomp_client import StompClient

Name = Callable[[str], str]


def with_messages(client: StompClient, queue: str, count: int, **headers: object) -> list[str]:
    """Subscribe to a queue, send messages to it; return what they are acknowledged with."""
    client.done("SUBSCRIBE", destination=f"/queue/{queue}", **{"id": queue, **headers})
    for number in range(count):
        client.send("SEND", b"%d" % number, destination=f"/queue/{queue}")
    frames = [client.frame() for _ in range(count)]
    return [frame.headers["ack" if client.version == "1.2" else "message-id"] for frame in frames]


def left(channel: Channel, queue: str) -> list[bytes]:
    """The bodies of what is in a queue."""
    found = []
    while (content := channel.get(queue)) is not None:
        found.append(content.body)
    return found


@pytest.mark.parametrize(("version", "header"), [("1.0", "message_id"), ("1.1", "message_id"), ("1.2", "id")])
def test_an_ack_settles_all_before_it(
    stomp: Open, channel: Channel, name: Name, version: str, header: str
) -> None:
    client, queue = stomp(version), name("q")
    acks = with_messages(client, queue, 4, ack="client")
    client.done("ACK", **{header: acks[2], "subscription": queue})
    client.done("DISCONNECT")
    assert client.is_closed()
    assert left(channel, queue) == [b"3"]


def test_an_individual_ack_settles_one(stomp: Open, channel: Channel, name: Name) -> None:
    client, queue = stomp(), name("q")
    acks = with_messages(client, queue, 4, ack="client-individual")
    client.done("ACK", id=acks[2])
    client.done("DISCONNECT")
    assert client.is_closed()
    assert left(channel, queue) == [b"0", b"1", b"3"]


def test_auto_settles_as_it_delivers(stomp: Open, channel: Channel, name: Name) -> None:
    client, queue = stomp(), name("q")
    client.done("SUBSCRIBE", destination=f"/queue/{queue}", id="1")
    client.send("SEND", b"m", destination=f"/queue/{queue}")
    assert "ack" not in client.frame().headers
    client.done("DISCONNECT")
    assert client.is_closed()
    assert left(channel, queue) == []


def test_an_ack_belongs_to_its_subscription(stomp: Open, channel: Channel, name: Name) -> None:
    """STOMP 1.2: an ACK is cumulative within its subscription. RabbitMQ's is within the connection."""
    client, one, two = stomp(), name("q"), name("q")
    with_messages(client, one, 2, ack="client")
    acks = with_messages(client, two, 2, ack="client")
    client.done("ACK", id=acks[1])
    client.done("DISCONNECT")
    assert client.is_closed()
    assert left(channel, two) == []
    assert left(channel, one) == ([] if is_rabbitmq() else [b"0", b"1"])


@pytest.mark.parametrize(("requeue", "again"), [(None, True), ("true", True), ("false", False)])
def test_nack(stomp: Open, name: Name, requeue: str | None, again: bool) -> None:
    client, queue = stomp(), name("q")
    acks = with_messages(client, queue, 1, ack="client-individual")
    client.send("NACK", id=acks[0], **({} if requeue is None else {"requeue": requeue}))
    if again:
        assert client.frame().headers["redelivered"] == "true"
    else:
        assert client.nothing_more()


def test_prefetch_count(stomp: Open, name: Name) -> None:
    client, queue = stomp(), name("q")
    client.done(
        "SUBSCRIBE", destination=f"/queue/{queue}", id="1", ack="client-individual", prefetch_count="2"
    )
    for number in range(4):
        client.send("SEND", b"%d" % number, destination=f"/queue/{queue}")
    first, second = client.frame(), client.frame()
    assert client.nothing_more()
    client.send("ACK", id=second.headers["ack"])
    assert client.messages(1) == [b"2"]
    assert first.body == b"0"


def test_unsubscribe_by_id_and_by_destination(stomp: Open, name: Name) -> None:
    client, queue = stomp(), name("q")
    client.done("SUBSCRIBE", destination=f"/queue/{queue}", id="1")
    client.done("UNSUBSCRIBE", id="1")
    client.done("SUBSCRIBE", destination=f"/queue/{queue}")
    client.done("UNSUBSCRIBE", destination=f"/queue/{queue}")
    client.send("SEND", b"m", destination=f"/queue/{queue}")
    assert client.nothing_more()
    client.done("SUBSCRIBE", destination=f"/queue/{queue}")
    assert "subscription" not in client.frame().headers


def test_acks_after_unsubscribe_find_no_subscription(stomp: Open, name: Name) -> None:
    client, queue = stomp(), name("q")
    acks = with_messages(client, queue, 1, ack="client")
    client.done("UNSUBSCRIBE", id=queue)
    message, detail = client.ask("ACK", id=acks[0]).told
    assert message == "Subscription not found"
    assert detail == f'Message with id "{acks[0]}" has no subscription'


def test_a_subscription_of_a_topic_has_a_queue_that_goes(stomp: Open, admin: Admin, name: Name) -> None:
    client, topic = stomp(), name("t")

    def queues() -> set[str]:
        return {queue for queue in admin.list_queues("/") if queue.startswith("stomp-subscription-")}

    before = queues()
    client.done("SUBSCRIBE", destination=f"/topic/{topic}", id="1")
    assert len(queues() - before) == 1
    client.done("UNSUBSCRIBE", id="1")
    wait_until(lambda: queues() == before, "the queue is still there")


DURABLE = {"durable": "true", "auto_delete": "false"}


@pytest.mark.parametrize(
    ("destination", "identifier", "queue"),
    [
        ("/topic/durable.name", "1", "stomp-subscription-ZrOmEUxaC_iA-C44rHKPTA"),
        ("/topic/durable.näme", "sub:1", "stomp-subscription-iyyxjvPYg8IaIXOv9ZI2Ww"),
        ("/exchange/amq.topic/durable.key", "1", "stomp-subscription-uu0KMa1vEzxnzBbl9ihcpA"),
        ("/exchange/amq.fanout", "1", "stomp-subscription-AFCOpGoyZRgTdV2sYkpHvQ"),
    ],
)
def test_names_of_durable_queues(
    stomp: Open, admin: Admin, destination: str, identifier: str, queue: str
) -> None:
    client = stomp()
    before = set(admin.list_queues("/"))
    client.done("SUBSCRIBE", destination=destination, id=identifier, **DURABLE)
    (found,) = set(admin.list_queues("/")) - before
    assert found == queue, (destination, found)


def test_a_durable_subscription_keeps_its_messages(stomp: Open, name: Name) -> None:
    client, other, topic = stomp(), stomp(), name("t")
    client.done("SUBSCRIBE", destination=f"/topic/{topic}", id="mine", **DURABLE)
    client.done("DISCONNECT")
    assert client.is_closed()
    other.done("SEND", b"meanwhile", destination=f"/topic/{topic}", persistent="true")
    client = stomp()
    client.send("SUBSCRIBE", destination=f"/topic/{topic}", id="mine", **DURABLE)
    assert client.messages(1) == [b"meanwhile"]
    client.done("UNSUBSCRIBE", id="mine", **DURABLE)
    other.done("SEND", b"nobody", destination=f"/topic/{topic}", persistent="true")
    client.done("SUBSCRIBE", destination=f"/topic/{topic}", id="mine", **DURABLE)
    assert client.nothing_more()
    client.done("UNSUBSCRIBE", id="mine", **DURABLE)


def test_a_subscription_may_name_its_queue(stomp: Open, admin: Admin, name: Name) -> None:
    client, topic, queue = stomp(), name("t"), name("named")
    client.send_pairs(
        "SUBSCRIBE",
        [("destination", f"/topic/{topic}"), ("id", "1"), ("x-queue-name", queue), ("receipt", "r")],
    )
    assert client.frame().command == "RECEIPT"
    assert queue in admin.list_queues("/")


def test_permissions_hold(stomp: Open, make_user: Callable[..., str], name: Name) -> None:
    user = make_user("/", "^mine", "^(mine|amq.topic$)", "^(mine|amq.topic$)")
    client = stomp(login=user, passcode=user)
    client.done("SUBSCRIBE", destination=f"/queue/{name('mine')}", id="1")
    message, detail = client.ask("SUBSCRIBE", destination="/queue/yours", id="2").told
    assert message == "access_refused"
    assert detail == f"ACCESS_REFUSED - access to queue 'yours' in vhost '/' refused for user '{user}'"
    assert client.is_closed()


def test_topic_permissions_hold(stomp: Open, make_user: Callable[..., str], admin: Admin) -> None:
    user = make_user()
    admin.set_topic_permissions(user, "/", "amq.topic", "^w", "^r")
    client = stomp(login=user, passcode=user)
    client.done("SUBSCRIBE", destination="/topic/r.a", id="1")
    client.done("SEND", b"m", destination="/topic/w.a")
    message, _ = client.ask("SEND", b"m", destination="/topic/r.a").told
    assert message == "access_refused"
    client = stomp(login=user, passcode=user)
    message, _ = client.ask("SUBSCRIBE", destination="/topic/w.a", id="1").told
    assert message == "access_refused"
