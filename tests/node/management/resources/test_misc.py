"""Callers, names and attempted logins are handled without sockets (management §1.10, §2.1)."""

from typing import Any

import pytest

from node.catalogue.commands import PutUser
from node.management.site import SiteNode
from tests.kit.fake_site import NODE, Caller
from tests.kit.monitor_site import MonitorSite

FORM = {"content-type": "application/x-www-form-urlencoded", "authorization": ""}


def login(form: bytes, **headers: str) -> Any:
    return Caller(MonitorSite()).ask("POST", "/api/login", form, headers={**FORM, **headers})


def test_login_sets_a_cookie_that_no_other_site_sends() -> None:
    reply = login(b"username=guest&password=guest")
    assert (reply.status, reply.value) == (200, "ok")
    assert reply.headers["set-cookie"] == "auth=Z3Vlc3Q6Z3Vlc3Q=; Version=1; SameSite=Strict"


@pytest.mark.parametrize(
    ("form", "status"),
    [
        (b"username=guest&password=no", 401),
        (b"username=guest", 401),
        (b"", 401),
        (b"\xff=\xfe", 400),
        (b"username=%ff&password=x", 400),
        (b"&".join([b"a=b"] * 30), 400),
        (b"username=" + b"x" * 20_000 + b"&password=x", 400),
    ],
)
def test_forms_that_are_no_login(form: bytes, status: int) -> None:
    reply = login(form)
    assert reply.status == status
    assert "set-cookie" not in reply.headers


def test_login_from_another_origin() -> None:
    assert login(b"username=guest&password=guest", origin="https://evil.example").status == 403


def test_a_cluster_is_renamed_by_the_operation() -> None:
    site = MonitorSite()
    assert Caller(site).ask("PUT", "/api/cluster-name", {"name": "x"}).status == 204
    assert site.operations == [("set_cluster_name", {"name": "x"})]


@pytest.mark.parametrize("body", [{}, {"name": ""}, {"name": 5}, {"name": None}, {"name": ["x"]}])
def test_what_is_no_name(body: dict[str, Any]) -> None:
    site = MonitorSite()
    assert Caller(site).ask("PUT", "/api/cluster-name", body).status == 400
    assert site.operations == []


def test_logins_are_counted_and_forgotten() -> None:
    caller = Caller(MonitorSite())
    path = f"/api/auth/attempts/{NODE}"
    [row] = caller.ask("GET", path).value
    assert row == {
        "protocol": "http",
        "auth_attempts": 1,
        "auth_attempts_failed": 0,
        "auth_attempts_succeeded": 1,
    }
    assert caller.ask("DELETE", path).status == 204
    assert caller.ask("GET", path).value[0]["auth_attempts"] == 1


def test_plug_ins_that_are_not_there_have_empty_lists() -> None:
    caller = Caller(MonitorSite())
    for path in ("shovels", "shovels/%2F", "federation-links", "federation-links/%2F/state/down", "traces"):
        assert caller.ask("GET", f"/api/{path}").value == []
    assert caller.ask("GET", "/api/shovels/nope").status == 404


def test_who_may_do_what() -> None:
    site = MonitorSite()
    guest = site.broker.catalogue.user("guest")
    assert guest is not None
    site.broker.log.submit(PutUser(guest.name, guest.password_hash, guest.hashing_algorithm, ("management",)))
    caller = Caller(site)
    for method, path in (
        ("POST", "/api/rebalance/queues"),
        ("DELETE", "/api/reset"),
        ("PUT", "/api/cluster-name"),
        ("GET", f"/api/auth/attempts/{NODE}"),
        ("GET", "/api/nodes"),
        ("GET", "/api/shovels"),
        ("GET", "/api/mirroring/rebalance-plan"),
    ):
        assert caller.ask(method, path).status == 401, path
    for path in ("/api/whoami", "/api/overview", "/api/extensions", "/api/mirroring/rings"):
        assert caller.ask("GET", path).status == 200, path


def test_a_stopped_node_is_no_fault() -> None:
    site = MonitorSite()
    site.other_nodes = [SiteNode("down@h", "ram", False)]
    caller = Caller(site)
    rows = {row["name"]: row for row in caller.ask("GET", "/api/nodes").value}
    assert rows["down@h"] == {"name": "down@h", "type": "ram", "running": False}
    assert rows[NODE]["running"] is True
    assert caller.ask("GET", "/api/nodes/down%40h").value == rows["down@h"]
    assert caller.ask("GET", "/api/nodes/down%40h/memory").status == 503
    assert caller.ask("GET", "/api/nodes/nope").status == 404
