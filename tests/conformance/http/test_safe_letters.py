"""Dead letters of quorum queues that go at least once stay while no queue takes them, as RabbitMQ 3.10.8 keeps them."""

from typing import Any

import pytest

from tests.conformance.http.steps import eventually, path, publish, put_queue, succeeds
from tests.kit.http_api import HttpApi

pytestmark = pytest.mark.slow  # RabbitMQ's statistics come every five seconds.

SAFE = {"x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}


def waiting(api: HttpApi, vhost: str, expected: int) -> None:
    """Wait until so many dead letters wait in the queue."""

    def look() -> bool:
        return succeeds(api.get(path("queues", vhost, "q"))).get("messages_dlx") == expected

    assert eventually(look)


@pytest.mark.parametrize(
    ("exchange", "key", "ttl"),
    [("missing", "k", None), ("", "missing", None), ("", "full", None), ("", "q", 100)],
    ids=["no exchange", "no route", "refused", "cycle"],
)
def test_a_letter_that_no_queue_takes_stays(
    api: HttpApi, vhost: str, exchange: str, key: str, ttl: int | None
) -> None:
    arguments: dict[str, Any] = SAFE | {"x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": key}
    if ttl is not None:
        arguments["x-message-ttl"] = ttl
    put_queue(api, vhost, "q", durable=True, arguments=arguments)
    put_queue(api, vhost, "full", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    publish(api, vhost, "q", delivery_mode=2)
    if ttl is None:
        body = {"count": 1, "ackmode": "reject_requeue_false", "encoding": "auto"}
        assert len(succeeds(api.post(path("queues", vhost, "q", "get"), body))) == 1
    waiting(api, vhost, 1)


def test_a_letter_that_is_taken_leaves(api: HttpApi, vhost: str) -> None:
    put_queue(api, vhost, "dead")
    arguments = SAFE | {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    put_queue(api, vhost, "q", durable=True, arguments=arguments)
    publish(api, vhost, "q", delivery_mode=2)
    body = {"count": 1, "ackmode": "reject_requeue_false", "encoding": "auto"}
    assert len(succeeds(api.post(path("queues", vhost, "q", "get"), body))) == 1
    body = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    assert eventually(lambda: succeeds(api.post(path("queues", vhost, "dead", "get"), body)))
    waiting(api, vhost, 0)
