"""Exchanges (management §1.4)."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.http.steps import (
    ACCESS_REFUSED,
    VHOST_REFUSED,
    bad_request,
    eventually,
    is_missing,
    path,
    put_queue,
    refused,
    succeeds,
)
from tests.kit.http_api import HttpApi
from tests.kit.server_cluster import is_rabbitmq

FIELDS = {
    *(
        "arguments",
        "auto_delete",
        "durable",
        "internal",
        "name",
        "type",
        "user_who_performed_action",
        "vhost",
    ),
}

# --- PUT ---


def test_put_creates_201_then_204(api: HttpApi, vhost: str) -> None:
    """Row PUT /exchanges/{vhost}/{name}."""
    assert [api.put(path("exchanges", vhost, "x"), {"type": "fanout"}).status for _ in range(2)] == [201, 204]


def test_put_without_a_type_makes_a_direct_one(api: HttpApi, vhost: str) -> None:
    """Missing type made a *direct* one (201); durable defaults false."""
    assert api.put(path("exchanges", vhost, "x"), {}).status == 201
    exchange = succeeds(api.get(path("exchanges", vhost, "x")))
    assert set(exchange) == FIELDS | {"incoming", "outgoing"}
    assert (exchange["type"], exchange["durable"], exchange["auto_delete"]) == ("direct", False, False)
    assert (exchange["internal"], exchange["arguments"]) == (False, {})
    assert (exchange["incoming"], exchange["outgoing"]) == ([], [])


def test_put_takes_all_it_can(api: HttpApi, vhost: str) -> None:
    """Body `{type, durable, auto_delete, internal, arguments}`."""
    body = {
        "type": "topic",
        "durable": True,
        "auto_delete": True,
        "internal": True,
        "arguments": {"alternate-exchange": "amq.fanout", "n": 5},
    }
    assert api.put(path("exchanges", vhost, "x"), body).status == 201
    exchange = succeeds(api.get(path("exchanges", vhost, "x")))
    assert {key: exchange[key] for key in body} == body


def test_put_of_an_unknown_type(api: HttpApi, vhost: str, name: Callable[[str], str]) -> None:
    """Unknown type → 400 `unknown exchange type 'nope'`.

    RabbitMQ says `invalid exchange type` of a word that anybody has used as a name before.
    """
    unknown = name("type")
    answer = api.put(path("exchanges", vhost, "x"), {"type": unknown})
    bad_request(answer, f"unknown exchange type '{unknown}'")
    assert api.put(path("exchanges", vhost, "x"), {"type": 5}).status == 400


def test_put_of_another_kind(api: HttpApi, vhost: str) -> None:
    """Different → 400 `inequivalent arg 'type' for exchange …`."""
    api.put(path("exchanges", vhost, "x"), {"type": "direct"})
    bad_request(
        api.put(path("exchanges", vhost, "x"), {"type": "fanout"}),
        f"inequivalent arg 'type' for exchange 'x' in vhost '{vhost}':"
        " received 'fanout' but current is 'direct'",
    )


def test_put_of_bad_arguments(api: HttpApi, vhost: str) -> None:
    body = {"arguments": {"alternate-exchange": 5}}
    reason = f"invalid type 'long' for arg 'alternate-exchange' in exchange 'x' in vhost '{vhost}'"
    bad_request(api.put(path("exchanges", vhost, "x"), body), reason)
    bad_request(api.put(path("exchanges", vhost, "x"), {"arguments": {"a": None}}), "null_not_allowed")


@pytest.mark.parametrize("exchange", ["amq.x", "amq.default"])
def test_put_of_a_reserved_name(api: HttpApi, vhost: str, exchange: str) -> None:
    """Predeclared/`amq.*` → 401 Access refused."""
    refused(api.put(path("exchanges", vhost, exchange), {"type": "direct", "durable": True}))


def test_put_of_a_predeclared_one_as_it_is(api: HttpApi, vhost: str) -> None:
    assert api.put(path("exchanges", vhost, "amq.direct"), {"type": "direct", "durable": True}).status == 204


def test_put_needs_the_permission(api: HttpApi, vhost: str, make_manager: Callable[..., HttpApi]) -> None:
    manager = make_manager(vhost, "^mine", tag="administrator")
    assert manager.put(path("exchanges", vhost, "mine"), {}).status == 201
    refused(manager.put(path("exchanges", vhost, "yours"), {}))
    refused(make_manager(None).put(path("exchanges", vhost, "x"), {}), VHOST_REFUSED)
    refused(make_manager(None, tag="administrator").put(path("exchanges", vhost, "x"), {}), ACCESS_REFUSED)


def test_put_in_a_vhost_that_is_not_there(api: HttpApi) -> None:
    answer = api.put("/exchanges/no-such-vhost/x", {})
    assert (answer.status, answer.json) == (404, {"error": "not_found", "reason": "vhost_not_found"})


def test_a_name_is_too_long(api: HttpApi, vhost: str) -> None:
    """RabbitMQ makes an exchange that AMQP clients cannot name."""
    status = api.put(path("exchanges", vhost, "x" * 256), {}).status
    assert status == (201 if is_rabbitmq() else 400)


# --- GET ---

PREDECLARED = [
    ("", "direct", False),
    ("amq.direct", "direct", False),
    ("amq.fanout", "fanout", False),
    ("amq.headers", "headers", False),
    ("amq.match", "headers", False),
    ("amq.rabbitmq.trace", "topic", True),
    ("amq.topic", "topic", False),
]


def test_predeclared(api: HttpApi, vhost: str) -> None:
    """Predeclared per vhost, in the default order: vhost, name."""
    rows = succeeds(api.get(path("exchanges", vhost)))
    assert [(row["name"], row["type"], row["internal"]) for row in rows] == PREDECLARED
    assert all(row["durable"] and row["vhost"] == vhost and set(row) == FIELDS for row in rows)


def test_who_made_predeclared_ones(api: HttpApi, name: Callable[[str], str]) -> None:
    """Predeclared exchanges were made by the vhost's creator; those of the first vhost by the broker itself."""
    made = name("made")
    assert api.put(path("vhosts", made)).status == 201
    try:
        rows = succeeds(api.get(path("exchanges", made)))
        assert {row["user_who_performed_action"] for row in rows} == {"guest"}
    finally:
        api.delete(path("vhosts", made))
    first = succeeds(api.get(path("exchanges", "/", "amq.direct")))
    assert first["user_who_performed_action"] == "rmq-internal"


def test_the_default_exchange_has_a_name_in_paths(api: HttpApi, vhost: str) -> None:
    """§1.0: `amq.default` in paths, the empty string in bodies."""
    assert succeeds(api.get(path("exchanges", vhost, "amq.default")))["name"] == ""


@pytest.mark.parametrize("exchange", ["a b", "a/b", "é", "<b>", "x" * 255])
def test_names_of_all_kinds(api: HttpApi, vhost: str, exchange: str) -> None:
    assert api.put(path("exchanges", vhost, exchange), {}).status == 201
    assert succeeds(api.get(path("exchanges", vhost, exchange)))["name"] == exchange
    assert api.delete(path("exchanges", vhost, exchange)).status == 204


def test_what_is_not_there(api: HttpApi, vhost: str) -> None:
    is_missing(api.get("/exchanges/no-such-vhost"))
    is_missing(api.get(path("exchanges", vhost, "nope")))


def test_a_vhost_that_is_not_permitted(
    api: HttpApi, vhost: str, make_manager: Callable[..., HttpApi]
) -> None:
    stranger = make_manager(None)
    refused(stranger.get(path("exchanges", vhost)), VHOST_REFUSED)
    refused(stranger.get(path("exchanges", vhost, "amq.direct")), VHOST_REFUSED)
    assert all(row["vhost"] != vhost for row in succeeds(stranger.get("/exchanges")))


def test_a_policy_is_shown(api: HttpApi, vhost: str, server: Any) -> None:
    """policy (only if applied)."""
    api.put(path("exchanges", vhost, "x"), {})
    server.admin.set_policy(vhost, "p", "^x", {"alternate-exchange": "amq.fanout"})
    eventually(lambda: api.get(path("exchanges", vhost, "x")).json.get("policy") == "p")
    assert "policy" not in succeeds(api.get(path("exchanges", vhost, "amq.direct")))


@pytest.mark.slow
def test_publishes_are_counted(api: HttpApi, vhost: str) -> None:
    """message_stats {publish_in, publish_out + _details} (absent when unused)."""
    put_queue(api, vhost, "q")
    put_queue(api, vhost, "q2")
    api.put(path("exchanges", vhost, "x"), {"type": "fanout"})
    for queue in ("q", "q2"):
        assert api.post(path("bindings", vhost, "e", "x", "q", queue), {}).status == 201
    message = {"properties": {}, "routing_key": "", "payload": "x", "payload_encoding": "string"}
    for _ in range(3):
        succeeds(api.post(path("exchanges", vhost, "x", "publish"), message))

    def counted() -> Any:
        return api.get(path("exchanges", vhost, "x")).json.get("message_stats")

    found = eventually(counted)
    assert (found["publish_in"], found["publish_out"]) == (3, 6)
    assert "rate" in found["publish_in_details"]
    rows = {row["name"]: row for row in succeeds(api.get(path("exchanges", vhost)))}
    assert "message_stats" in rows["x"]
    assert "message_stats" not in rows["amq.topic"]


# --- DELETE ---


def test_delete(api: HttpApi, vhost: str) -> None:
    api.put(path("exchanges", vhost, "x"), {})
    assert api.delete(path("exchanges", vhost, "x")).status == 204
    is_missing(api.delete(path("exchanges", vhost, "x")))


def test_delete_if_unused(api: HttpApi, vhost: str) -> None:
    """DELETE `?if-unused=true` → 400 `exchange 'x1' in vhost 'mgt' in use`."""
    put_queue(api, vhost, "q")
    api.put(path("exchanges", vhost, "x1"), {})
    api.post(path("bindings", vhost, "e", "x1", "q", "q"), {})
    answer = api.delete(path("exchanges", vhost, "x1") + "?if-unused=true")
    bad_request(answer, f"exchange 'x1' in vhost '{vhost}' in use")
    assert api.delete(path("exchanges", vhost, "x1")).status == 204


@pytest.mark.parametrize("exchange", ["amq.direct", "amq.default"])
def test_predeclared_ones_stay(api: HttpApi, vhost: str, exchange: str) -> None:
    refused(api.delete(path("exchanges", vhost, exchange)))


def test_delete_needs_the_permission(api: HttpApi, vhost: str, make_manager: Callable[..., HttpApi]) -> None:
    api.put(path("exchanges", vhost, "x"), {})
    refused(make_manager(vhost, "^mine").delete(path("exchanges", vhost, "x")))
