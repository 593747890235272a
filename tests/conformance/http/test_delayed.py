"""docs/delayed.md: delayed exchanges in the HTTP API and in definitions."""

import pytest

from tests.conformance.http.steps import path, put_queue, succeeds
from tests.kit.http_api import HttpApi
from tests.kit.server_cluster import is_rabbitmq

pytestmark = pytest.mark.skipif(is_rabbitmq(), reason="RabbitMQ has no delayed exchanges without a plug-in")

EXCHANGE = {"type": "x-delayed-message", "durable": True, "arguments": {"x-delayed-type": "direct"}}


def publish(api: HttpApi, vhost: str, delay: int) -> None:
    body = {
        "properties": {"headers": {"x-delay": delay}},
        "routing_key": "k",
        "payload": "",
        "payload_encoding": "string",
    }
    assert succeeds(api.post(path("exchanges", vhost, "x", "publish"), body)) == {"routed": True}


def test_the_count_of_messages_that_wait(api: HttpApi, vhost: str) -> None:
    """`messages_delayed`, of one exchange and in lists; other exchanges have none."""
    assert api.put(path("exchanges", vhost, "x"), EXCHANGE).status == 201
    assert succeeds(api.get(path("exchanges", vhost, "x")))["messages_delayed"] == 0
    for _ in range(3):
        publish(api, vhost, 3_600_000)

    assert succeeds(api.get(path("exchanges", vhost, "x")))["messages_delayed"] == 3
    rows = {row["name"]: row for row in succeeds(api.get(path("exchanges", vhost)))}
    assert rows["x"]["messages_delayed"] == 3
    assert "messages_delayed" not in rows["amq.direct"]


def test_bad_arguments_are_refused(api: HttpApi, vhost: str) -> None:
    for arguments in ({}, {"x-delayed-type": "nope"}, {"x-delayed-type": "x-delayed-message"}):
        answer = api.put(path("exchanges", vhost, "x"), {**EXCHANGE, "arguments": arguments})
        assert answer.status == 400


def test_the_queue_where_they_wait_is_listed_and_cannot_be_deleted(api: HttpApi, vhost: str) -> None:
    api.put(path("exchanges", vhost, "x"), EXCHANGE)
    assert [row["name"] for row in succeeds(api.get(path("queues", vhost)))] == ["amq.delayed.x"]
    assert api.delete(path("queues", vhost, "amq.delayed.x")).status >= 400
    assert api.delete(path("exchanges", vhost, "x")).status == 204
    assert succeeds(api.get(path("queues", vhost))) == []


def test_definitions_have_the_exchange_and_not_its_queue(api: HttpApi, vhost: str) -> None:
    """An import makes both, and messages wait there."""
    api.put(path("exchanges", vhost, "x"), EXCHANGE)
    put_queue(api, vhost, "q")
    api.post(path("bindings", vhost, "e", "x", "q", "q"), {"routing_key": "k"})
    document = succeeds(api.get(path("definitions", vhost)))
    assert [queue["name"] for queue in document["queues"]] == ["q"]
    assert [exchange["name"] for exchange in document["exchanges"]] == ["x"]
    assert api.delete(path("exchanges", vhost, "x")).status == 204
    assert api.post(path("definitions", vhost), document).status == 204
    publish(api, vhost, 3_600_000)
    assert succeeds(api.get(path("exchanges", vhost, "x")))["messages_delayed"] == 1
