"""docs/delayed.md: delayed exchanges in the HTTP API and in definitions."""

from typing import Any

import pytest

from tests.conformance.http.steps import bad_request, is_missing, path, put_queue, succeeds
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


def delayed(api: HttpApi, vhost: str, query: str = "") -> dict[str, Any]:
    found: dict[str, Any] = succeeds(api.get(path("exchanges", vhost, "x", "delayed") + query))
    return found


def test_messages_that_wait_are_shown_and_cancelled(api: HttpApi, vhost: str) -> None:
    """By any user who may read the exchange, and write to it."""
    api.put(path("exchanges", vhost, "x"), EXCHANGE)
    for delay in (3_600_000, 7_200_000, 1_800_000):
        publish(api, vhost, delay)
    first, second, third = delayed(api, vhost)["messages"]
    assert (first["id"], second["id"], third["id"]) == (1, 2, 3)
    assert 3_500_000 < second["due"] - first["due"] < 3_700_000
    assert third["due"] < first["due"]
    assert first["routing_key"] == "k"
    assert first["properties"] == {"headers": {"x-delay": 3_600_000}}
    assert (first["payload"], first["payload_encoding"], first["payload_bytes"]) == ("", "string", 0)

    page = delayed(api, vhost, "?from=2&count=1")
    assert ([row["id"] for row in page["messages"]], page["next"]) == ([2], 3)
    where = path("exchanges", vhost, "x", "delayed")
    assert api.delete(f"{where}/2").status == 204
    is_missing(api.delete(f"{where}/2"))
    is_missing(api.delete(f"{where}/none"))
    assert [row["id"] for row in delayed(api, vhost)["messages"]] == [1, 3]
    assert succeeds(api.get(path("exchanges", vhost, "x")))["messages_delayed"] == 2


def test_only_delayed_exchanges_have_messages_that_wait(api: HttpApi, vhost: str) -> None:
    is_missing(api.get(path("exchanges", vhost, "amq.direct", "delayed")))
    is_missing(api.get(path("exchanges", vhost, "none", "delayed")))
    api.put(path("exchanges", vhost, "x"), EXCHANGE)
    assert delayed(api, vhost) == {"messages": [], "next": None}
    bad_request(
        api.get(path("exchanges", vhost, "x", "delayed") + "?count=-1"), "count must be a number, 0 or more"
    )
