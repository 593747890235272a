"""Permissions in vhosts and on topic exchanges (management §1.9)."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.http_api import HttpApi, quote

NO_OBJECT = {"error": "Object Not Found", "reason": "Not Found"}
ROW = {"configure": "a", "write": "b", "read": "c"}
TOPIC = {"exchange": "e", "write": "b", "read": "c"}


def test_put_get_delete(api: HttpApi, make_vhost: Callable[[], str], make_user: Callable[..., str]) -> None:
    vhost, user = make_vhost(), make_user(None)
    path = f"/permissions/{vhost}/{user}"
    assert api.get(path).json == NO_OBJECT
    assert api.delete(path).status == 404
    assert api.put(path, ROW).status == 201
    assert api.put(path, ROW).status == 204
    expected = {"user": user, "vhost": vhost, **ROW}
    assert api.get(path).json == expected
    assert expected in api.get("/permissions").json
    assert expected in api.get(f"/vhosts/{vhost}/permissions").json
    assert api.get(f"/users/{user}/permissions").json == [expected]
    assert api.delete(path).status == 204
    assert api.get(path).status == 404


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({}, "[{key_missing,configure},{key_missing,write},{key_missing,read}]"),
        ({"configure": "", "write": ""}, "[{key_missing,read}]"),
        (b"5", "not_json"),
    ],
)
def test_refused(api: HttpApi, make_user: Callable[..., str], body: Any, reason: str) -> None:
    answer = api.put(f"/permissions/%2F/{make_user(None)}", body)
    assert (answer.status, answer.json) == (400, {"error": "bad_request", "reason": reason})


def test_expressions(api: HttpApi, make_user: Callable[..., str]) -> None:
    """RabbitMQ tells faults of expressions by the codes of their characters."""
    user = make_user(None)
    for kind, body in (
        ("permissions", {**ROW, "configure": "("}),
        ("topic-permissions", {**TOPIC, "write": "("}),
    ):
        answer = api.put(f"/{kind}/%2F/{user}", body)
        assert answer.status == 400
        assert answer.json["reason"][0] == "invalid_regexp"
        assert api.get(f"/{kind}/%2F/{user}").status == 404
    assert api.put(f"/permissions/%2F/{user}", {**ROW, "configure": 5}).status in (400, 500)


@pytest.mark.parametrize(("kind", "body"), [("permissions", ROW), ("topic-permissions", TOPIC)])
def test_a_vhost_or_user_that_is_missing(
    api: HttpApi, make_user: Callable[..., str], name: Callable[[str], str], kind: str, body: Any
) -> None:
    for path in (f"/{kind}/{name('nov')}/{make_user(None)}", f"/{kind}/%2F/{name('nou')}"):
        answer = api.put(path, body)
        reason = "vhost_or_user_not_found"
        assert (answer.status, answer.json) == (400, {"error": "bad_request", "reason": reason})
        assert (api.get(path).status, api.delete(path).status) == (404, 404)
    for path in (f"/vhosts/{name('nov')}/{kind}", f"/users/{name('nou')}/{kind}"):
        assert (api.get(path).status, api.get(path).json) == (404, NO_OBJECT)


def test_topic_permissions(
    api: HttpApi, make_vhost: Callable[[], str], make_user: Callable[..., str]
) -> None:
    vhost, user = make_vhost(), make_user(None)
    path = f"/topic-permissions/{vhost}/{user}"
    assert api.get(path).status == 404
    assert api.put(path, TOPIC).status == 201
    assert api.put(path, TOPIC).status == 204
    assert api.put(path, {**TOPIC, "exchange": ""}).status == 204  # not the user's first
    assert api.put(path, {"write": "", "read": ""}).json["reason"] == "[{key_missing,exchange}]"
    rows = [{"user": user, "vhost": vhost, **TOPIC, "exchange": exchange} for exchange in ("", "e")]
    for each in (path, f"{path}/e", f"/vhosts/{vhost}/topic-permissions", f"/users/{user}/topic-permissions"):
        # RabbitMQ's order is that of a hash table.
        assert sorted(api.get(each).json, key=lambda row: row["exchange"]) == rows
    assert all(row in api.get("/topic-permissions").json for row in rows)
    assert api.delete(f"{path}/nope").status == 204
    assert api.delete(f"{path}/e").status == 204
    assert api.get(path).json == rows[:1]
    assert api.delete(path).status == 204
    assert api.delete(path).status == 404


def test_names_are_decoded_once(api: HttpApi, name: Callable[[str], str]) -> None:
    vhost, user = name("%2F /é"), name("a%20b")
    api.put(f"/vhosts/{quote(vhost)}")
    api.put(f"/users/{quote(user)}", {"tags": ""})
    try:
        path = f"/permissions/{quote(vhost)}/{quote(user)}"
        assert api.put(path, ROW).status == 201
        assert api.get(path).json == {"user": user, "vhost": vhost, **ROW}
    finally:
        api.delete(f"/vhosts/{quote(vhost)}")
        api.delete(f"/users/{quote(user)}")


def test_they_hold(api: HttpApi, make_vhost: Callable[[], str], make_user: Callable[..., str]) -> None:
    vhost, user = make_vhost(), make_user(None)
    api.put(f"/users/{user}", {"password": user, "tags": "management"})
    assert api.put(f"/queues/{vhost}/a1", {}, user=user).status == 401
    api.put(f"/permissions/{vhost}/{user}", {"configure": "^a", "write": "", "read": ""})
    assert api.put(f"/queues/{vhost}/a1", {}, user=user).status == 201
    assert api.put(f"/queues/{vhost}/b1", {}, user=user).status == 401


def test_who_may(api: HttpApi, make_user: Callable[..., str]) -> None:
    user = make_user()
    api.put(f"/users/{user}", {"password": user, "tags": "monitoring,policymaker"})
    for path in ("/permissions", f"/permissions/%2F/{user}", "/topic-permissions"):
        answer = api.get(path, user=user)
        assert (answer.status, answer.json["reason"]) == (401, "Not administrator user")
    assert api.put(f"/permissions/%2F/{user}", ROW, user=user).status == 401
