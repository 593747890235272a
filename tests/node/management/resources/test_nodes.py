"""A node's log and maintenance mode are not RabbitMQ's and are tested here; the rest: tests/conformance/http."""

import base64
from typing import Any

import pytest

from tests.kit.fake_site import NODE, Caller
from tests.kit.live_site import LiveSite, live

LOG = f"/api/nodes/{NODE}/log"
ACTIONS = f"/api/nodes/{NODE}/actions"
LINES = {"lines": [{"number": 8, "level": "info", "text": "hello"}], "last": 8}


@pytest.fixture
def site_caller() -> tuple[LiveSite, Caller]:
    site, caller = live()
    site.answers["log_lines"] = LINES
    return site, caller


def as_user(caller: Caller, name: str, tags: str) -> dict[str, str]:
    """Headers of a new user."""
    assert caller.ask("PUT", f"/api/users/{name}", {"password": name, "tags": tags}).status == 201
    return {"authorization": "Basic " + base64.b64encode(f"{name}:{name}".encode()).decode()}


def test_the_lines_after_one(site_caller: tuple[LiveSite, Caller]) -> None:
    site, caller = site_caller
    assert caller.ask("GET", f"{LOG}?after=7").value == LINES
    assert caller.ask("GET", LOG).value == LINES
    assert site.questions == [(NODE, "log_lines", {"after": 7}), (NODE, "log_lines", {"after": 0})]


@pytest.mark.parametrize("after", ["x", "-1", "", "1" * 19, "%C2%B2"])
def test_a_line_that_is_no_number(site_caller: tuple[LiveSite, Caller], after: str) -> None:
    answer = site_caller[1].ask("GET", f"{LOG}?after={after}")
    assert (answer.status, answer.value["reason"]) == (400, "'after' is not a line number")


def test_who_may_read_the_log(site_caller: tuple[LiveSite, Caller]) -> None:
    _, caller = site_caller
    assert caller.ask("GET", LOG, headers=as_user(caller, "m", "management")).status == 401
    assert caller.ask("GET", LOG, headers=as_user(caller, "p", "policymaker")).status == 401
    assert caller.ask("GET", LOG, headers=as_user(caller, "o", "monitoring")).status == 200
    assert caller.ask("GET", "/api/nodes/nosuch/log").status == 404


@pytest.mark.parametrize(("action", "is_on"), [("drain", True), ("revive", False)])
def test_maintenance_mode(site_caller: tuple[LiveSite, Caller], action: str, is_on: bool) -> None:
    site, caller = site_caller
    assert caller.ask("POST", ACTIONS, {"action": action}).status == 204
    assert site.questions == [(NODE, "maintenance", {"is_on": is_on})]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({}, "[{key_missing,action}]"),
        ({"action": "stop"}, ["unknown", "stop"]),
        ({"action": 5}, ["unknown", "action"]),
    ],
)
def test_what_is_no_action(site_caller: tuple[LiveSite, Caller], body: Any, reason: Any) -> None:
    site, caller = site_caller
    answer = caller.ask("POST", ACTIONS, body)
    assert (answer.status, answer.value["reason"]) == (400, reason)
    assert site.questions == []


def test_only_administrators_drain(site_caller: tuple[LiveSite, Caller]) -> None:
    site, caller = site_caller
    headers = as_user(caller, "o", "monitoring")
    assert caller.ask("POST", ACTIONS, {"action": "drain"}, headers=headers).status == 401
    assert caller.ask("POST", "/api/nodes/nosuch/actions", {"action": "drain"}).status == 404
    assert site.questions == []
