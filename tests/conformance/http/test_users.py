"""Users (management §1.9, §2.3)."""

import base64
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.kit.http_api import HttpApi, quote

Name = Callable[[str], str]
SALT = b"\x01\x02\x03\x04"


@pytest.fixture
def user(api: HttpApi, name: Name) -> Iterator[str]:
    """A name for a user, who goes with the test."""
    chosen = name("user")
    yield chosen
    api.delete(f"/users/{quote(chosen)}")


def hashed(password: str, algorithm: str) -> str:
    return base64.b64encode(SALT + hashlib.new(algorithm, SALT + password.encode()).digest()).decode()


def test_put_get_delete(api: HttpApi, user: str) -> None:
    created = api.put(f"/users/{user}", {"password": "x", "tags": "monitoring, management"})
    assert (created.status, created.text) == (201, "")
    found = api.get(f"/users/{user}")
    assert found.status == 200
    password_hash = found.json.pop("password_hash")
    assert len(base64.b64decode(password_hash)) == 36
    assert found.json == {
        "name": user,
        "hashing_algorithm": "rabbit_password_hashing_sha256",
        "tags": ["monitoring", "management"],
        "limits": {},
    }
    assert api.put(f"/users/{user}", {"password": "x", "tags": ["a", 1]}).status == 204
    assert api.get(f"/users/{user}").json["tags"] == ["a", "1"]
    assert api.delete(f"/users/{user}").status == 204
    for missing in (api.get(f"/users/{user}"), api.delete(f"/users/{user}")):
        assert missing.status == 404
        assert missing.json == {"error": "Object Not Found", "reason": "Not Found"}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"password": "x"}, "tags_not_present"),
        (b"", "tags_not_present"),
        (
            {"password": "p", "password_hash": "YWJj", "tags": ""},
            "both_password_and_password_hash_are_provided",
        ),
        ({"password_hash": "###", "tags": ""}, ["not_base64", "###"]),
        ({"password_hash": 5, "tags": ""}, ["not_base64", 5]),
        (b"[]", "not_json"),
        (b"{", "not_json"),
        (
            b'"{}"',
            "invalid payload: the request body JSON-decoded to a string. Is the input doubly-JSON-encoded?",
        ),
    ],
)
def test_refused(api: HttpApi, user: str, body: Any, reason: object) -> None:
    answer = api.put(f"/users/{user}", body)
    assert (answer.status, answer.json) == (400, {"error": "bad_request", "reason": reason})
    assert api.get(f"/users/{user}").status == 404


@pytest.mark.parametrize("body", [{"tags": 5}, {"tags": None}, {"password": 5, "tags": ""}])
def test_values_of_a_wrong_type(api: HttpApi, user: str, body: Any) -> None:
    """RabbitMQ crashes (500)."""
    assert api.put(f"/users/{user}", body).status in (400, 500)
    assert api.get(f"/users/{user}").status == 404


def test_logging_in(api: HttpApi, user: str) -> None:
    """§2.3: neither hash nor password: no password will do."""
    for algorithm in ("sha256", "sha512", "md5"):
        body = {
            "password_hash": hashed("secret", algorithm),
            "hashing_algorithm": f"rabbit_password_hashing_{algorithm}",
            "tags": "management",
        }
        assert api.put(f"/users/{user}", body).status in (201, 204)
        answer = api.get("/whoami", user=user, password="secret")
        assert answer.status == 200
        assert answer.json["name"] == user
        assert answer.json["tags"] == ["management"]
        failed = api.get("/whoami", user=user, password="wrong")
        assert (failed.status, failed.json) == (401, {"error": "not_authorized", "reason": "Login failed"})
    for body in ({"tags": "management"}, {"password_hash": "", "tags": "management"}):
        assert api.put(f"/users/{user}", body).status == 204
        assert api.get("/whoami", user=user, password="secret").status == 401
        assert api.get("/whoami", user=user, password="").status == 401


def test_the_algorithm_of_a_password_is_the_servers(api: HttpApi, user: str) -> None:
    body = {"password": "x", "hashing_algorithm": "rabbit_password_hashing_md5", "tags": ""}
    assert api.put(f"/users/{user}", body).status == 201
    assert api.get(f"/users/{user}").json["hashing_algorithm"] == "rabbit_password_hashing_sha256"


def test_tags_from_before_there_were_tags(api: HttpApi, user: str) -> None:
    assert api.put(f"/users/{user}", {"password": "x", "administrator": True}).status == 201
    assert api.get(f"/users/{user}").json["tags"] == ["administrator"]


def test_permissions_of_a_new_user(api: HttpApi, user: str) -> None:
    row = {"configure": "a", "write": "b", "read": "c"}
    body = {"password": "x", "tags": "", "permissions": {"/": row}}
    assert api.put(f"/users/{user}", body).status == 201
    expected = [{"user": user, "vhost": "/", **row}]
    assert api.get(f"/users/{user}/permissions").json == expected
    row["read"] = "d"
    assert api.put(f"/users/{user}", body).status == 204
    assert api.get(f"/users/{user}/permissions").json == expected


def test_limits_come_with_a_user_and_stay(api: HttpApi, user: str) -> None:
    body: dict[str, Any] = {"password": "x", "tags": "", "limits": {"max-connections": 5}}
    assert api.put(f"/users/{user}", body).status == 201
    assert api.put(f"/users/{user}", {**body, "limits": {"max-channels": 3}}).status == 204
    del body["limits"]
    assert api.put(f"/users/{user}", body).status == 204
    assert api.get(f"/users/{user}").json["limits"] == {"max-connections": 5, "max-channels": 3}


def test_lists(api: HttpApi, user: str) -> None:
    """3.10.8 has no pages of users."""
    api.put(f"/users/{user}", {"password": "x", "tags": ""})
    found = api.get("/users?page=1&page_size=1&columns=name").json
    assert {"name": user} in found
    assert {"name": "guest"} in found
    names = [each["name"] for each in found]
    assert names == sorted(names)
    backwards = api.get("/users?columns=name&sort=name&sort_reverse=true").json
    assert [each["name"] for each in backwards] == names[::-1]
    assert api.get("/users/").status == 200
    without = [each["name"] for each in api.get("/users/without-permissions").json]
    assert user in without
    assert "guest" not in without
    assert api.get(f"/users/{user}?columns=name").json == {"name": user}


def test_names_of_all_sorts(api: HttpApi, name: Name) -> None:
    for odd in ("a/b", "a%2Fb", "<script>", "é ü", "~", "a+b", "..x", "line\r\nfeed", "é" * 127):
        path = f"/users/{quote(name(odd)[:127])}"
        try:
            assert api.put(path, {"password": "x", "tags": ""}).status == 201, odd
            assert api.get(path).json["name"] == name_of(path)
        finally:
            assert api.delete(path).status == 204


def name_of(path: str) -> str:
    from urllib.parse import unquote

    return unquote(path.removeprefix("/users/"))


def test_several_are_deleted_at_once(api: HttpApi, name: Name) -> None:
    names = [name("user") for _ in range(3)]
    for each in names:
        api.put(f"/users/{each}", {"password": "x", "tags": ""})
    missing = name("missing")
    answer = api.post("/users/bulk-delete", {"users": [names[0], missing, names[1]]})
    assert (answer.status, answer.json["reason"]) == (400, ["no_such_user", missing])
    assert [api.get(f"/users/{each}").status for each in names] == [404, 200, 200]
    assert api.post("/users/bulk-delete", {"users": names[1:]}).status == 204
    assert [api.get(f"/users/{each}").status for each in names] == [404, 404, 404]
    assert api.post("/users/bulk-delete", {}).json["reason"] == "[{key_missing,users}]"


def test_methods_that_are_not_there(api: HttpApi) -> None:
    assert api.put("/users/", {"password": "x", "tags": ""}).status == 405
    answer = api.post("/users/guest", {})
    assert (answer.status, answer.text) == (405, "")


def test_who_may(api: HttpApi, user: str) -> None:
    """§2.1: administrators only."""
    for tags in ("", "management", "policymaker", "monitoring"):
        reason = "Not administrator user" if tags else "Not management user"
        api.put(f"/users/{user}", {"password": user, "tags": tags})
        for path in ("/users", f"/users/{user}", "/users/without-permissions", f"/users/{user}/permissions"):
            answer = api.get(path, user=user)
            assert (answer.status, answer.json) == (401, {"error": "not_authorised", "reason": reason}), path
        assert api.put(f"/users/{user}", {"password": "x", "tags": "administrator"}, user=user).status == 401
