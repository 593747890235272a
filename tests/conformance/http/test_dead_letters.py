"""docs/dead_letters.md in the HTTP API: browsing, replay, and the numbers of dead letters and of retries that wait."""

from typing import Any

import pytest

from tests.conformance.http.steps import path, put_queue, succeeds
from tests.kit.http_api import HttpApi
from tests.kit.patience import wait_until
from tests.kit.server_cluster import is_rabbitmq

pytestmark = pytest.mark.skipif(is_rabbitmq(), reason="RabbitMQ has none of this")

DYING = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}


def publish(
    api: HttpApi, vhost: str, queue: str, *payloads: str, headers: dict[str, Any] | None = None
) -> None:
    for payload in payloads:
        body = {
            "properties": {"delivery_mode": 2, "headers": headers or {}},
            "routing_key": queue,
            "payload": payload,
            "payload_encoding": "string",
        }
        where = path("exchanges", vhost, "amq.default")
        assert succeeds(api.post(f"{where}/publish", body)) == {"routed": True}


def give_up(api: HttpApi, vhost: str, queue: str, count: int, mode: str = "reject_requeue_false") -> None:
    body = {"count": count, "ackmode": mode, "encoding": "auto"}
    assert len(succeeds(api.post(f"{path('queues', vhost, queue)}/get", body))) == count


def browsed(api: HttpApi, vhost: str, queue: str, query: str = "") -> dict[str, Any]:
    found: dict[str, Any] = succeeds(api.get(f"{path('queues', vhost, queue)}/messages{query}"))
    return found


def test_browsing_changes_nothing(api: HttpApi, vhost: str) -> None:
    put_queue(api, vhost, "q")
    publish(api, vhost, "q", "a", "b", "c")
    first = browsed(api, vhost, "q", "?count=2")
    assert [row["payload"] for row in first["messages"]] == ["a", "b"]
    rest = browsed(api, vhost, "q", f"?first={first['next']}&truncate=0")
    assert [row["payload_bytes"] for row in rest["messages"]] == [1]
    assert rest["next"] is None
    body = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    (got,) = succeeds(api.post(f"{path('queues', vhost, 'q')}/get", body))
    assert (got["payload"], got["redelivered"]) == ("a", False)


@pytest.mark.parametrize("query", ["?first=x", "?count=-1", "?encoding=nope"])
def test_wrong_queries_are_refused(api: HttpApi, vhost: str, query: str) -> None:
    put_queue(api, vhost, "q")
    assert api.get(f"{path('queues', vhost, 'q')}/messages{query}").status == 400


def test_a_queue_that_is_missing(api: HttpApi, vhost: str) -> None:
    assert api.get(f"{path('queues', vhost, 'nope')}/messages").status == 404
    for body in ({}, {"dry_run": True}):
        assert api.post(f"{path('queues', vhost, 'nope')}/replay", body).status == 404


def test_replay(api: HttpApi, vhost: str) -> None:
    """First dry, then for one queue, then at a rate."""
    put_queue(api, vhost, "dead")
    for name in ("a", "b"):
        put_queue(api, vhost, name, arguments=DYING)
        publish(api, vhost, name, "1", "2")
        give_up(api, vhost, name, 2)
    where = f"{path('queues', vhost, 'dead')}/replay"
    dry = succeeds(api.post(where, {"dry_run": True}))
    assert (dry["replayed"], dry["to"], dry["not_chosen"]) == (4, {"a": 2, "b": 2}, 0)
    done = succeeds(api.post(where, {"queue": "a", "reason": "rejected"}))
    assert (done["replayed"], done["to"], done["not_chosen"]) == (2, {"a": 2}, 2)
    done = succeeds(api.post(where, {"count": 1, "rate": 1000}))
    assert (done["replayed"], done["to"], done["is_empty"]) == (1, {"b": 1}, False)
    assert [row["payload"] for row in browsed(api, vhost, "a")["messages"]] == ["1", "2"]
    assert len(browsed(api, vhost, "dead")["messages"]) == 1


@pytest.mark.parametrize("body", [{"rate": 0}, {"rate": "x"}, {"count": 0}, {"reason": 1}, {"value": "x"}])
def test_wrong_replays_are_refused(api: HttpApi, vhost: str, body: dict[str, Any]) -> None:
    put_queue(api, vhost, "q")
    assert api.post(f"{path('queues', vhost, 'q')}/replay", body).status == 400


def test_letters_that_wait_are_counted(api: HttpApi, vhost: str) -> None:
    """`messages_dlx` of a queue whose dead letters go at least once; they arrive when their target is there."""
    arguments = DYING | {
        "x-queue-type": "quorum",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }
    put_queue(api, vhost, "q", arguments=arguments, durable=True)
    publish(api, vhost, "q", "1")
    give_up(api, vhost, "q", 1)
    wait_until(lambda: succeeds(api.get(path("queues", vhost, "q"))).get("messages_dlx") == 1, "it waits")
    put_queue(api, vhost, "dead")
    wait_until(lambda: succeeds(api.get(path("queues", vhost, "q")))["messages_dlx"] == 0, "it has left")
    assert [row["payload"] for row in browsed(api, vhost, "dead")["messages"]] == ["1"]


def test_retries_that_wait_are_counted(api: HttpApi, vhost: str) -> None:
    arguments = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 3_600_000}
    put_queue(api, vhost, "q", arguments=arguments)
    publish(api, vhost, "q", "1")
    give_up(api, vhost, "q", 1, "reject_requeue_true")
    wait_until(lambda: succeeds(api.get(path("queues", vhost, "q"))).get("messages_delayed") == 1, "it waits")
    assert browsed(api, vhost, "q")["messages"] == []
