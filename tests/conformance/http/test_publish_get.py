"""Messages published and got over HTTP (management §2.4)."""

import base64
from collections.abc import Callable
from typing import Any

import pytest

from node.amqp.properties import Properties
from tests.conformance.http.steps import (
    VHOST_REFUSED,
    bad_request,
    get,
    path,
    publish,
    put_queue,
    refused,
    succeeds,
)
from tests.kit.amqp_client import Connection
from tests.kit.http_api import HttpApi
from tests.kit.server_cluster import is_rabbitmq

MESSAGE = {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"}
ASKED = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}


@pytest.fixture
def where(api: HttpApi, vhost: str) -> str:
    """The path to publish to the default exchange; the queue `q` is there."""
    put_queue(api, vhost, "q")
    return path("exchanges", vhost, "amq.default", "publish")


# --- publish ---


def test_routed_or_not(api: HttpApi, where: str) -> None:
    """200 `{"routed":true|false}`."""
    assert succeeds(api.post(where, MESSAGE)) == {"routed": True}
    assert succeeds(api.post(where, {**MESSAGE, "routing_key": "nope"})) == {"routed": False}


@pytest.mark.parametrize("key", ["properties", "routing_key", "payload", "payload_encoding"])
def test_all_keys_are_mandatory(api: HttpApi, where: str, key: str) -> None:
    body = {name: value for name, value in MESSAGE.items() if name != key}
    bad_request(api.post(where, body), f"[{{key_missing,{key}}}]")


def test_base64(api: HttpApi, vhost: str, where: str) -> None:
    """payload_encoding "string"|"base64"; auto = string if valid UTF-8."""
    for payload in (b"text", b"\xff\x00\xfe", "é".encode(), b""):
        encoded = base64.b64encode(payload).decode()
        succeeds(api.post(where, {**MESSAGE, "payload": encoded, "payload_encoding": "base64"}))
        (message,) = get(api, vhost, "q", ackmode="ack_requeue_true")
        if payload == b"\xff\x00\xfe":
            assert (message["payload"], message["payload_encoding"]) == (encoded, "base64")
        else:
            assert (message["payload"], message["payload_encoding"]) == (payload.decode(), "string")
        assert message["payload_bytes"] == len(payload)
        (message,) = get(api, vhost, "q", encoding="base64", ackmode="ack_requeue_false")
        assert (message["payload"], message["payload_encoding"]) == (encoded, "base64")


PROPERTIES = {
    "headers": {
        "i": 1,
        "big": 99999999999,
        "f": 1.5,
        "b": True,
        "s": "é",
        "t": {"x": 1},
        "a": [1, "x", True],
    },
    "content_type": "text/plain",
    "content_encoding": "gzip",
    "delivery_mode": 2,
    "priority": 4,
    "correlation_id": "c",
    "reply_to": "r",
    "expiration": "60000",
    "message_id": "m",
    "timestamp": 1234567,
    "type": "t",
    "user_id": "guest",
    "app_id": "a",
    "cluster_id": "cl",
}


def test_properties_come_back(api: HttpApi, vhost: str, where: str) -> None:
    """properties: content_type … cluster_id."""
    assert succeeds(api.post(where, {**MESSAGE, "properties": PROPERTIES})) == {"routed": True}
    assert get(api, vhost, "q")[0]["properties"] == PROPERTIES


def test_properties_as_an_amqp_client_gets_them(
    api: HttpApi, vhost: str, where: str, connect: Callable[..., Connection]
) -> None:
    """Header integers → long, floats → double, bool, string, nested table/array."""
    succeeds(api.post(where, {**MESSAGE, "properties": PROPERTIES}))
    content = connect(vhost=vhost).channel(1).wait_get("q")
    assert content.body == b"x"
    assert {name: field.tag for name, field in content.headers.items()} == {
        "i": "l",
        "big": "l",
        "f": "d",
        "b": "t",
        "s": "S",
        "t": "F",
        "a": "A",
    }
    assert (content.properties.content_type, content.properties.expiration) == ("text/plain", "60000")


def test_no_properties(api: HttpApi, vhost: str, where: str) -> None:
    succeeds(api.post(where, MESSAGE))
    assert get(api, vhost, "q")[0]["properties"] == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"payload": 5}, "payload_not_string"),
        ({"payload": "###", "payload_encoding": "base64"}, ["not_base64", "###"]),
        ({"payload_encoding": "xx"}, ["unsupported_encoding", "xx"]),
        ({"properties": {"delivery_mode": "2"}}, ["not_int", "delivery_mode"]),
        ({"properties": {"priority": "high"}}, ["not_int", "priority"]),
        ({"properties": {"expiration": 5}}, ["not_string", "expiration"]),
        ({"properties": {"expiration": "x"}}, "406 PRECONDITION_FAILED - invalid expiration 'x': no_integer"),
        (
            {"properties": {"user_id": "bob"}},
            "406 PRECONDITION_FAILED - user_id property set to 'bob' but authenticated user was 'guest'",
        ),
        ({"properties": {"headers": {"a": None}}}, "null_not_allowed"),
    ],
)
def test_what_is_no_message(api: HttpApi, where: str, change: Any, reason: object) -> None:
    bad_request(api.post(where, {**MESSAGE, **change}), reason)


@pytest.mark.parametrize(
    "change",
    [{"properties": 5}, {"properties": {"headers": 5}}, {"properties": {"priority": -1}}, {"routing_key": 5}],
)
def test_what_rabbitmq_stumbles_over(api: HttpApi, where: str, change: Any) -> None:
    """RabbitMQ answers 500, or takes it."""
    assert api.post(where, {**MESSAGE, **change}).status in ((200, 500) if is_rabbitmq() else (400,))


def test_a_missing_exchange(api: HttpApi, vhost: str) -> None:
    """400 `404 NOT_FOUND - no exchange 'nope' in vhost 'mgt'`."""
    answer = api.post(path("exchanges", vhost, "nope", "publish"), MESSAGE)
    bad_request(answer, f"404 NOT_FOUND - no exchange 'nope' in vhost '{vhost}'")


def test_a_missing_vhost(api: HttpApi) -> None:
    """RabbitMQ says 401 Access refused."""
    answer = api.post("/exchanges/no-such-vhost/amq.default/publish", MESSAGE)
    assert answer.status == (401 if is_rabbitmq() else 404)


def test_a_full_queue_rejects(api: HttpApi, vhost: str) -> None:
    """Rejected by queue limit → 400 `rejected Unable to publish message. Check queue limits.`"""
    put_queue(api, vhost, "q", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    publish(api, vhost, "q")
    answer = api.post(path("exchanges", vhost, "amq.default", "publish"), MESSAGE)
    bad_request(answer, "rejected Unable to publish message. Check queue limits.")


def test_publishing_needs_the_permission(
    api: HttpApi, vhost: str, make_manager: Callable[..., HttpApi]
) -> None:
    manager = make_manager(vhost, write="^mine", tag="administrator")
    answer = manager.post(path("exchanges", vhost, "amq.direct", "publish"), MESSAGE)
    assert answer.status == 400
    assert answer.json["reason"].startswith(
        f"403 ACCESS_REFUSED - access to exchange 'amq.direct' in vhost '{vhost}' refused for user "
    )
    answer = make_manager(None).post(path("exchanges", vhost, "amq.direct", "publish"), MESSAGE)
    refused(answer, VHOST_REFUSED)


@pytest.mark.disturbs_everyone
def test_alarms_do_not_block_it(api: HttpApi, vhost: str, where: str, server: Any) -> None:
    server.admin.set_alarm("memory")
    try:
        assert succeeds(api.post(where, MESSAGE)) == {"routed": True}
    finally:
        server.admin.clear_alarm("memory")


# --- get ---


def test_a_message_with_all_its_fields(api: HttpApi, vhost: str, where: str) -> None:
    """Reply array: payload_bytes, redelivered, exchange, routing_key, message_count, properties, payload …"""
    publish(api, vhost, "q", "one", priority=1)
    publish(api, vhost, "q", "two")
    assert get(api, vhost, "q")[0] == {
        "payload_bytes": 3,
        "redelivered": False,
        "exchange": "",
        "routing_key": "q",
        "message_count": 1,
        "properties": {"priority": 1},
        "payload": "one",
        "payload_encoding": "string",
    }


def payloads(messages: list[dict[str, Any]]) -> list[str]:
    return [message["payload"] for message in messages]


def test_ack_requeue_true_leaves_them(api: HttpApi, vhost: str, where: str) -> None:
    """get without ack, connection closed → requeued, redelivered flag set."""
    for payload in "abc":
        publish(api, vhost, "q", payload)
    assert payloads(get(api, vhost, "q", 2)) == ["a", "b"]
    again = get(api, vhost, "q", 5)
    assert payloads(again) == ["a", "b", "c"]
    assert [message["redelivered"] for message in again] == [True, True, False]
    assert [message["message_count"] for message in again] == [2, 1, 0]


def test_ack_requeue_false_removes_them(api: HttpApi, vhost: str, where: str) -> None:
    """auto-ack, removed."""
    for payload in "abc":
        publish(api, vhost, "q", payload)
    assert payloads(get(api, vhost, "q", 2, ackmode="ack_requeue_false")) == ["a", "b"]
    assert payloads(get(api, vhost, "q", 5)) == ["c"]


def test_reject_requeue_true_leaves_them(api: HttpApi, vhost: str, where: str) -> None:
    for payload in "abc":
        publish(api, vhost, "q", payload)
    assert payloads(get(api, vhost, "q", 2, ackmode="reject_requeue_true")) == ["a", "b"]
    assert payloads(get(api, vhost, "q", 5)) == ["a", "b", "c"]


def test_reject_requeue_false_dead_letters(api: HttpApi, vhost: str) -> None:
    put_queue(api, vhost, "dead")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    put_queue(api, vhost, "q", arguments=arguments)
    publish(api, vhost, "q", "a")
    assert payloads(get(api, vhost, "q", ackmode="reject_requeue_false")) == ["a"]
    assert get(api, vhost, "q") == []
    (message,) = get(api, vhost, "dead")
    (death,) = message["properties"]["headers"]["x-death"]
    assert (death["reason"], death["queue"], death["count"]) == ("rejected", "q", 1)


def test_an_empty_queue(api: HttpApi, vhost: str, where: str) -> None:
    """Empty queue `[]`; a count of 0, too."""
    assert get(api, vhost, "q") == []
    publish(api, vhost, "q")
    assert get(api, vhost, "q", 0) == []


def test_a_count_as_text(api: HttpApi, vhost: str, where: str) -> None:
    """count: int or numeric string."""
    publish(api, vhost, "q")
    asked = {**ASKED, "count": "5"}
    assert len(succeeds(api.post(path("queues", vhost, "q", "get"), asked))) == 1


def test_truncate(api: HttpApi, vhost: str, where: str) -> None:
    """truncate?: bytes; payload_bytes is the full size."""
    publish(api, vhost, "q", "aé")
    for cut, payload, encoding in (
        (1, "a", "string"),
        (2, "YcM=", "base64"),  # in the middle of a character
        (3, "aé", "string"),
        (100, "aé", "string"),
        (0, "", "string"),
    ):
        (message,) = get(api, vhost, "q", truncate=cut)
        assert (message["payload"], message["payload_encoding"]) == (payload, encoding)
        assert message["payload_bytes"] == 3


@pytest.mark.parametrize("key", ["count", "ackmode", "encoding"])
def test_all_keys_of_a_get_are_mandatory(api: HttpApi, vhost: str, where: str, key: str) -> None:
    body = {name: value for name, value in ASKED.items() if name != key}
    bad_request(api.post(path("queues", vhost, "q", "get"), body), f"[{{key_missing,{key}}}]")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"encoding": "nope"}, "Unsupported encoding. Please use auto or base64."),
        ({"count": "x"}, ["not_integer", "x"]),
        ({"truncate": "x"}, ["not_integer", "x"]),
    ],
)
def test_what_is_no_get(api: HttpApi, vhost: str, where: str, change: Any, reason: object) -> None:
    publish(api, vhost, "q")
    bad_request(api.post(path("queues", vhost, "q", "get"), {**ASKED, **change}), reason)


def test_an_unknown_ackmode(api: HttpApi, vhost: str, where: str) -> None:
    """Unknown ackmode crashed 500 → use 400."""
    answer = api.post(path("queues", vhost, "q", "get"), {**ASKED, "ackmode": "nope"})
    assert answer.status == (500 if is_rabbitmq() else 400)


def test_a_missing_queue(api: HttpApi, vhost: str) -> None:
    """Missing queue 404."""
    answer = api.post(path("queues", vhost, "nope", "get"), ASKED)
    assert (answer.status, answer.json["error"]) == (404, "not_found")
    assert answer.json["reason"] == f"NOT_FOUND - no queue 'nope' in vhost '{vhost}'"


def test_getting_needs_the_permission(
    api: HttpApi, vhost: str, where: str, make_manager: Callable[..., HttpApi]
) -> None:
    answer = make_manager(vhost, read="^mine").post(path("queues", vhost, "q", "get"), ASKED)
    assert (answer.status, answer.json["error"]) == (401, "not_authorised")
    assert answer.json["reason"].startswith("ACCESS_REFUSED - access to queue 'q'")
    refused(make_manager(None).post(path("queues", vhost, "q", "get"), ASKED), VHOST_REFUSED)


def test_large_messages(api: HttpApi, vhost: str, where: str) -> None:
    """Beyond what a frame takes."""
    payload = "0123456789" * 50_000
    publish(api, vhost, "q", payload)
    assert get(api, vhost, "q")[0]["payload"] == payload


def test_what_a_client_published_in_any_bytes(
    api: HttpApi, vhost: str, where: str, connect: Callable[..., Connection]
) -> None:
    channel = connect(vhost=vhost).channel(1)
    properties = Properties(content_type="caf\udce9", headers={})
    channel.publish("", "q", bytes(range(256)), properties)
    channel.sync()
    (message,) = get(api, vhost, "q")
    assert base64.b64decode(message["payload"]) == bytes(range(256))
