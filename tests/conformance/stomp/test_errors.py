"""ERROR frames: message, body, and whether the connection ends."""

from collections.abc import Callable

import pytest

from node.amqp.methods import QueueDelete
from tests.conformance.stomp.conftest import Open
from tests.kit.amqp_client import Channel
from tests.kit.server_cluster import is_rabbitmq

FAULTS = {
    "FOO": ({}, "Bad command", 'Could not interpret command "FOO"\n'),
    "SEND no destination": ({}, "Missing destination", "\"SEND\" must include a 'destination' header\n"),
    "SEND blank": ({"destination": ""}, "Invalid destination", "Destination cannot be blank"),
    "SEND unknown": (
        {"destination": "/not/there"},
        "Unknown destination",
        "'/not/there' is not a valid destination.\n"
        "Valid destination types are: /temp-queue, /exchange, /topic, /queue, /amq/queue, /reply-queue/.\n",
    ),
    "SEND queue": ({"destination": "/queue"}, "Invalid destination", "'' is not a valid queue destination\n"),
    "SEND queue slash": (
        {"destination": "/queue/"},
        "Invalid destination",
        "'/' is not a valid queue destination\n",
    ),
    "SEND queue parts": (
        {"destination": "/queue/a/b"},
        "Invalid destination",
        "'/a/b' is not a valid queue destination\n",
    ),
    "SEND topic": (
        {"destination": "/topic/a/b"},
        "Invalid destination",
        "'/a/b' is not a valid topic destination\n",
    ),
    "SEND exchange": (
        {"destination": "/exchange/"},
        "Invalid destination",
        "'/' is not a valid exchange destination\n",
    ),
    "SEND exchange parts": (
        {"destination": "/exchange/a/b/c"},
        "Invalid destination",
        "'/a/b/c' is not a valid exchange destination\n",
    ),
    "SEND amq queue": (
        {"destination": "/amq/queue/"},
        "Invalid destination",
        "'/' is not a valid amqqueue destination\n",
    ),
    "SEND temp queue": (
        {"destination": "/temp-queue/a"},
        "Invalid destination",
        "'/temp-queue/a' is not a valid destination for 'SEND'\n",
    ),
    "SUBSCRIBE temp queue": (
        {"destination": "/temp-queue/a", "id": "1"},
        "Invalid destination",
        "'/temp-queue/a' is not a valid destination for 'SUBSCRIBE'\n",
    ),
    "SEND message-id": (
        {"destination": "/queue/q", "message-id": "1"},
        "Invalid header",
        "'message-id' is not allowed on 'SEND'.\n",
    ),
    "SUBSCRIBE nothing": (
        {"id": "1"},
        "Missing destination",
        "\"SUBSCRIBE\" must include a 'destination' header\n",
    ),
    "SUBSCRIBE durable": (
        {"destination": "/topic/a", "durable": "true"},
        "Missing Header",
        "Header 'id' is required for durable subscriptions",
    ),
    "SUBSCRIBE persistent": (
        {"destination": "/topic/a", "persistent": "true"},
        "Missing Header",
        "Header 'id' is required for durable subscriptions",
    ),
    "UNSUBSCRIBE nothing": (
        {},
        "Missing destination or id",
        "UNSUBSCRIBE must include a 'destination' or 'id' header",
    ),
    "UNSUBSCRIBE unknown": (
        {"id": "a"},
        "No subscription found",
        "UNSUBSCRIBE must refer to an existing subscription.\nSubscription to \"id='a'\" not found.\n",
    ),
    "UNSUBSCRIBE destination": (
        {"destination": "/queue/none"},
        "No subscription found",
        "UNSUBSCRIBE must refer to an existing subscription.\n"
        "Subscription to \"destination='/queue/none'\" not found.\n",
    ),
    "UNSUBSCRIBE temp": (
        {"id": "/temp-queue/a"},
        "Invalid id",
        "UNSUBSCRIBE 'id' may not start with /temp-queue/\n",
    ),
    "ACK nothing": ({}, "Missing header", '"ACK" must include the "id" header\n'),
    "NACK nothing": ({}, "Missing header", '"NACK" must include the "id" header\n'),
    "ACK nonsense": ({"id": "a"}, "Invalid header", '"ACK" must include a valid "id" header\n'),
    "ACK unknown": (
        {"id": "T_1@@session@@1"},
        "Subscription not found",
        'Message with id "T_1@@session@@1" has no subscription',
    ),
    "BEGIN nothing": ({}, "Missing transaction", "\"BEGIN\" must include a 'transaction' header\n"),
    "COMMIT nothing": ({}, "Missing transaction", "\"COMMIT\" must include a 'transaction' header\n"),
    "COMMIT unknown": (
        {"transaction": "t"},
        "Bad transaction",
        'Invalid transaction identifier: "t"\n',
    ),
    "ABORT unknown": (
        {"transaction": "t"},
        "Bad transaction",
        'Invalid transaction identifier: "t"\n',
    ),
    "SEND transaction": (
        {"destination": "/topic/a", "transaction": "t"},
        "Bad transaction",
        'Invalid transaction identifier: "t"\n',
    ),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_fault_is_told(stomp: Open, case: str) -> None:
    headers, message, detail = FAULTS[case]
    client = stomp()
    client.send_pairs(case.split()[0], [*headers.items(), ("receipt", "r")])
    answer = client.frame()
    assert answer.told == (message, detail)
    assert answer.headers["version"] == "1.0,1.1,1.2"
    assert answer.headers["content-type"] == "text/plain"
    if is_rabbitmq():
        assert client.nothing_more()
    else:
        assert answer.headers["receipt-id"] == "r"
        assert client.is_closed()


def test_1_1_names_another_header_for_acks(stomp: Open) -> None:
    assert stomp("1.1").ask("ACK").told == ("Missing header", '"ACK" must include the "message-id" header\n')


CLOSING = {
    "no exchange": ("SUBSCRIBE", {"destination": "/exchange/none/k", "id": "1"}, "not_found"),
    "no queue": ("SUBSCRIBE", {"destination": "/amq/queue/none", "id": "1"}, "not_found"),
    "publish": ("SEND", {"destination": "/exchange/none"}, "not_found"),
    "argument": (
        "SEND",
        {"destination": "/queue/bad-argument", "x-max-priority": "256"},
        "precondition_failed",
    ),
    "expiration": ("SEND", {"destination": "/topic/a", "expiration": "soon"}, "precondition_failed"),
    "user": ("SEND", {"destination": "/topic/a", "user-id": "ada"}, "precondition_failed"),
}
DETAILS = {
    "no exchange": "NOT_FOUND - no exchange 'none' in vhost '/'",
    "no queue": "NOT_FOUND - no queue 'none' in vhost '/'",
    "publish": "NOT_FOUND - no exchange 'none' in vhost '/'",
    "user": "PRECONDITION_FAILED - user_id property set to 'ada' but authenticated user was 'guest'",
}


@pytest.mark.parametrize("case", CLOSING)
def test_a_refusal_of_amqp_ends_the_connection(stomp: Open, case: str) -> None:
    command, headers, name = CLOSING[case]
    client = stomp()
    client.send_pairs(command, list(headers.items()))
    message, detail = client.frame().told
    assert message == name
    assert detail == DETAILS.get(case, detail)
    assert client.is_closed()


def test_an_unknown_message_ends_the_connection(stomp: Open) -> None:
    client = stomp()
    client.done("SUBSCRIBE", destination="/queue/stomp-unknown", id="1", ack="client-individual")
    message, detail = client.ask("ACK", id="T_1@@session@@7").told
    assert message == "precondition_failed"
    assert detail == "PRECONDITION_FAILED - unknown delivery tag 7"
    assert client.is_closed()


def test_a_subscription_twice_ends_the_connection(stomp: Open) -> None:
    client = stomp()
    client.done("SUBSCRIBE", destination="/topic/a", id="1")
    answer = client.ask("SUBSCRIBE", destination="/topic/b", id="1")
    assert answer.told == (
        "Duplicated subscription identifier",
        "A subscription identified by 'T_1' already exists.",
    )
    assert client.is_closed()


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        ({"prefetch-count": "many"}, "prefetch-count"),
        ({"ack": "never"}, "ack"),
        ({"x-max-length": "long"}, "x-max-length"),
    ],
)
def test_a_value_that_is_not_allowed(stomp: Open, headers: dict[str, str], name: str) -> None:
    client = stomp()
    client.send_pairs("SUBSCRIBE", [("destination", "/topic/a"), ("id", "1"), *headers.items()])
    message, detail = client.frame().told
    assert message == "Processing error"
    assert is_rabbitmq() or name in detail


def test_the_server_cancels_a_subscription(stomp: Open, channel: Channel, name: Callable[[str], str]) -> None:
    client, queue = stomp(), name("gone")
    client.done("SUBSCRIBE", destination=f"/queue/{queue}", id="one")
    channel.call(QueueDelete, queue=queue)
    answer = client.frame()
    assert answer.told == (
        "Server cancelled subscription",
        "The server has canceled a subscription.\nNo more messages will be delivered for \"id='one'\".\n",
    )
    assert answer.headers["subscription"] == "one"
    assert client.nothing_more() if is_rabbitmq() else client.is_closed()
