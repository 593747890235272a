"""Limits of vhosts and users, and that they hold (management §1.10; amqp-behaviour §6.5)."""

from collections.abc import Callable
from typing import Any

import pytest

from node.amqp.methods import ChannelOpen, ConnectionOpen
from tests.conformance.http.steps import bad_request, is_missing, path
from tests.kit.amqp_client import Connection
from tests.kit.http_api import HttpApi


@pytest.fixture
def vhost(make_vhost: Callable[[], str]) -> str:
    return make_vhost()


@pytest.fixture
def user(make_user: Callable[..., str], vhost: str) -> str:
    return make_user(vhost)


# --- vhosts ---


def test_of_a_vhost(api: HttpApi, vhost: str) -> None:
    def listed() -> Any:
        return [row for row in api.get("/vhost-limits").json if row["vhost"] == vhost]

    assert listed() == api.get(f"/vhost-limits/{vhost}").json == []
    limits = f"/vhost-limits/{vhost}"
    for value in (5, 6):
        assert api.put(f"{limits}/max-queues", {"value": value}).status == 204
    assert api.put(f"{limits}/max-connections", {"value": -1}).status == 204
    expected = [{"vhost": vhost, "value": {"max-connections": -1, "max-queues": 6}}]
    assert listed() == api.get(limits).json == expected
    for _ in range(2):
        assert api.delete(f"{limits}/max-queues").status == 204
    assert listed() == [{"vhost": vhost, "value": {"max-connections": -1}}]
    assert api.get(f"{limits}/max-queues").status == 405


@pytest.mark.parametrize(
    ("limit", "value", "problem"),
    [
        ("nope", 5, 'Unrecognised terms [{<<"nope">>,5}] in limits'),
        ("max-queues", "5", 'max-queues should be a number, actually was <<"5">>'),
        ("max-queues", 1.5, "max-queues should be a number, actually was 1.5"),
        ("max-connections", None, "max-connections should be a number, actually was null"),
    ],
)
def test_refused_of_a_vhost(api: HttpApi, vhost: str, limit: str, value: Any, problem: str) -> None:
    answer = api.put(f"/vhost-limits/{vhost}/{limit}", {"value": value})
    bad_request(answer, f"Validation failed\n\n{problem}\n")
    assert api.get(f"/vhost-limits/{vhost}").json == []


def test_what_is_missing(api: HttpApi, vhost: str, name: Callable[[str], str]) -> None:
    bad_request(api.put(f"/vhost-limits/{vhost}/max-queues", {}), "[{key_missing,value}]")
    bad_request(api.put("/user-limits/guest/max-channels", {}), "[{key_missing,value}]")
    nov, nou = name("nov"), name("nou")
    answer = api.put(f"/vhost-limits/{nov}/max-queues", {"value": 5})
    assert (answer.status, answer.json) == (404, {"error": "not_found", "reason": "vhost_not_found"})
    bad_request(api.put(f"/user-limits/{nou}/max-channels", {"value": 5}), ["no_such_user", nou])
    is_missing(api.get(f"/vhost-limits/{nov}"))
    is_missing(api.get(f"/user-limits/{nou}"))
    assert api.delete(f"/user-limits/{nou}/max-channels").status in (404, 500)  # RabbitMQ crashes


@pytest.mark.parametrize("kind", ["vhost-limits/%2F/max-queues", "user-limits/guest/max-channels"])
def test_they_want_json(api: HttpApi, kind: str) -> None:
    answer = api.put(f"/{kind}", {"value": 5}, headers={"content-type": "text/plain"})
    assert (answer.status, answer.text) == (415, "")


# --- users ---


def test_of_a_user(api: HttpApi, user: str) -> None:
    def listed() -> Any:
        return [row for row in api.get("/user-limits").json if row["user"] == user]

    limits = f"/user-limits/{user}"
    assert listed() == api.get(limits).json == []
    assert api.put(f"{limits}/max-connections", {"value": 6}).status == 204
    assert api.put(f"{limits}/max-channels", {"value": -1}).status == 204
    expected = {"max-connections": 6, "max-channels": -1}
    assert listed() == api.get(limits).json == [{"user": user, "value": expected}]
    assert api.get(f"/users/{user}").json["limits"] == expected
    for limit in ("max-channels", "max-channels", "nope"):
        assert api.delete(f"{limits}/{limit}").status == 204
    assert listed() == [{"user": user, "value": {"max-connections": 6}}]


@pytest.mark.parametrize(
    ("limit", "value", "problem"),
    [
        ("nope", 5, 'Unrecognised terms [{<<"nope">>,5}] in user-limits'),
        ("max-channels", "x", 'max-channels should be a number, actually was <<"x">>'),
    ],
)
def test_refused_of_a_user(api: HttpApi, user: str, limit: str, value: Any, problem: str) -> None:
    bad_request(api.put(f"/user-limits/{user}/{limit}", {"value": value}), problem)


def test_who_may(api: HttpApi, vhost: str, user: str) -> None:
    api.put(f"/vhost-limits/{vhost}/max-queues", {"value": 5})
    api.put("/vhost-limits/%2F/max-queues", {"value": -1})
    api.put(f"/user-limits/{user}/max-channels", {"value": 5})
    for tag in ("management", "monitoring"):
        api.put(f"/users/{user}", {"password": user, "tags": tag})
        listed = {row["vhost"] for row in api.get("/vhost-limits", user=user).json}
        assert vhost in listed
        assert ("/" in listed) == (tag == "monitoring")
        assert api.get("/user-limits", user=user).status == 200
        for limit in (f"/vhost-limits/{vhost}/max-queues", f"/user-limits/{user}/max-channels"):
            answer = api.put(limit, {"value": 5}, user=user)
            assert (answer.status, answer.json["reason"]) == (401, "Not administrator user")
            assert api.delete(limit, user=user).status == 401


# --- they hold (all their rules: test_section_6_access.py) ---


def refused(connect: Callable[..., Connection], text: str, **options: str) -> None:
    """connection.open is refused with 530 and this text."""
    connection = connect(open=False, **options)
    connection.start()
    connection.send_start_ok()
    connection.tune()
    connection.send(ConnectionOpen, virtual_host=connection.vhost)
    connection.expect_connection_close(530, f"NOT_ALLOWED - {text}", ConnectionOpen)


def test_connections_of_a_vhost(api: HttpApi, vhost: str, connect: Callable[..., Connection]) -> None:
    api.put(f"/vhost-limits/{vhost}/max-connections", {"value": 0})
    text = f"access to vhost '{vhost}' refused for user 'guest': connection limit (0) is reached"
    refused(connect, text, vhost=vhost)
    api.delete(f"/vhost-limits/{vhost}/max-connections")
    connect(vhost=vhost)


def test_connections_of_a_user(
    api: HttpApi, vhost: str, user: str, connect: Callable[..., Connection]
) -> None:
    api.put(f"/user-limits/{user}/max-connections", {"value": 0})
    text = f"connection refused for user '{user}': user connection limit (0) is reached"
    refused(connect, text, vhost=vhost, user=user, password=user)
    api.delete(f"/user-limits/{user}/max-connections")
    connect(vhost=vhost, user=user, password=user)


def test_channels_of_a_user(api: HttpApi, vhost: str, user: str, connect: Callable[..., Connection]) -> None:
    api.put(f"/user-limits/{user}/max-channels", {"value": 0})
    connection = connect(vhost=vhost, user=user, password=user)
    connection.send(ChannelOpen, 1)
    text = f"number of channels opened for user '{user}' has reached the maximum allowed user limit of (0)"
    connection.expect_connection_close(530, f"NOT_ALLOWED - {text}", None)


def test_queues_of_a_vhost(api: HttpApi, vhost: str) -> None:
    api.put(f"/vhost-limits/{vhost}/max-queues", {"value": 1})
    assert api.put(path("queues", vhost, "a")).status == 201
    assert api.put(path("queues", vhost, "a")).status == 204
    answer = api.put(path("queues", vhost, "b"))
    assert answer.status == 400
    assert "queue limit in vhost" in answer.json["reason"]
    api.put(f"/vhost-limits/{vhost}/max-queues", {"value": -1})
    assert api.put(path("queues", vhost, "b")).status == 201
