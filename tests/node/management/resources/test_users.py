"""Users over HTTP: what is other, and better, than in RabbitMQ 3.10.8; the rest: tests/conformance/http."""

from typing import Any

import pytest

from tests.kit.fake_site import Caller

WRONG: list[tuple[dict[str, Any], object]] = [
    ({"tags": 5}, "tags must be a list of strings, or a string with commas"),
    ({"tags": None}, "tags must be a list of strings, or a string with commas"),
    ({"tags": [{}]}, "tags must be a list of strings, or a string with commas"),
    ({"tags": "", "password": 5}, "password must be a string"),
    ({"tags": "", "password_hash": "YWJj", "hashing_algorithm": 5}, "hashing_algorithm must be a string"),
    (
        {"tags": "", "password_hash": "YWJj", "hashing_algorithm": "crc"},
        ["unknown_hashing_algorithm", "crc"],
    ),
    ({"tags": "", "limits": 5}, "user-limits not a list 5"),
    ({"tags": "", "permissions": 5}, "permissions must be an object of virtual hosts"),
    (
        {"tags": "", "permissions": {"/": {"configure": "a"}}},
        "permissions for '/' need the strings configure, write and read",
    ),
    (
        {"tags": "", "permissions": {"nov": {"configure": "", "write": "", "read": ""}}},
        ["no_such_vhost", "nov"],
    ),
]


@pytest.mark.parametrize(("body", "reason"), WRONG)
def test_values_of_a_wrong_type_make_no_user(body: dict[str, Any], reason: object) -> None:
    caller = Caller()
    answer = caller.ask("PUT", "/api/users/u", body)
    assert (answer.status, answer.value) == (400, {"error": "bad_request", "reason": reason})
    assert caller.ask("GET", "/api/users/u").status == 404


def test_an_expression_of_permissions_is_checked_first() -> None:
    caller = Caller()
    row = {"configure": "(", "write": "", "read": ""}
    answer = caller.ask("PUT", "/api/users/u", {"tags": "", "permissions": {"/": row}})
    assert answer.status == 400
    assert answer.value["reason"][0] == "invalid_regexp"
    assert caller.ask("GET", "/api/users/u").status == 404


@pytest.mark.parametrize("users", ["u", [5], None, {}])
def test_what_is_deleted_at_once_are_names(users: Any) -> None:
    answer = Caller().ask("POST", "/api/users/bulk-delete", {"users": users})
    assert (answer.status, answer.value["reason"]) == (400, "users must be a list of names")


def test_a_name_that_no_client_can_say() -> None:
    answer = Caller().ask("PUT", f"/api/users/{'%C3%A9' * 128}", {"tags": ""})
    assert answer.status == 400


def test_nothing_is_sent_before_the_log_has_it() -> None:
    """201 comes when the user is there."""
    caller = Caller()
    assert caller.ask("PUT", "/api/users/u", {"password": "p", "tags": "x"}).status == 201
    assert caller.site.broker.catalogue.user("u") is not None
