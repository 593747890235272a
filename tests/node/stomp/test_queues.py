"""The queues of destinations."""

import pytest

from node.amqp.field_table import Field, longstr
from node.stomp.destinations import Destination
from node.stomp.errors import StompError
from node.stomp.queues import Declaration, check_durable, declaration, queue_arguments

QUEUE = Destination("queue", "q")
TOPIC = Destination("topic", "a.b")
UNIQUE = bytes(range(16))
NAME = "stomp-subscription-AAECAwQFBgcICQoLDA0ODw"


@pytest.mark.parametrize(
    ("destination", "headers", "wanted"),
    [
        (QUEUE, {}, ("q", True, False, False)),
        (QUEUE, {"durable": "false"}, ("q", False, True, True)),
        (QUEUE, {"persistent": "false"}, ("q", False, True, True)),
        (QUEUE, {"durable": "false", "persistent": "true"}, ("q", True, False, False)),
        (QUEUE, {"durable": "perhaps"}, ("q", False, True, True)),
        (QUEUE, {"auto-delete": "true"}, ("q", True, False, True)),
        (QUEUE, {"durable": "false", "exclusive": "false"}, ("q", False, False, True)),
        (TOPIC, {}, (NAME, False, False, True)),
        (TOPIC, {"exclusive": "true"}, (NAME, False, True, True)),
        (TOPIC, {"x-queue-name": "mine"}, ("mine", False, False, True)),
        (Destination("exchange", "e", "k"), {"auto-delete": "false"}, (NAME, False, False, False)),
    ],
)
def test_queues_are_declared_as_rabbitmq_does(
    destination: Destination, headers: dict[str, str], wanted: tuple[str, bool, bool, bool]
) -> None:
    assert declaration(destination, headers, UNIQUE) == Declaration(*wanted)


def test_a_durable_subscription_finds_its_queue_again() -> None:
    headers = {"durable": "true", "id": "1", "auto-delete": "false"}
    found = declaration(TOPIC, headers, UNIQUE)
    assert found == Declaration(found.queue, True, False, False)
    assert found.queue == declaration(TOPIC, headers, b"").queue != NAME
    assert found.queue != declaration(TOPIC, {**headers, "id": "2"}, b"").queue


def test_a_durable_subscription_has_an_id() -> None:
    check_durable({"durable": "true", "id": "1"})
    with pytest.raises(StompError):
        check_durable({"durable": "True"})


def test_arguments_come_from_headers() -> None:
    headers = {
        "x-message-ttl": " 10 ",
        "x-dead-letter-exchange": " e ",
        "x-queue-type": "classic",
        "x-other": "1",
    }
    assert queue_arguments(headers) == {
        "x-message-ttl": Field("l", 10),
        "x-dead-letter-exchange": longstr("e"),
        "x-queue-type": longstr("classic"),
    }
    with pytest.raises(StompError):
        queue_arguments({"x-expires": "soon"})
