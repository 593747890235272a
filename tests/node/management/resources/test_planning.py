"""Plans over HTTP, of a node without peers: bodies, the lock, the topology (spark §3.4)."""

from typing import Any

import pytest

from node.catalogue.commands import DeclareQueue
from tests.kit.fake_site import NODE, Caller

PLAN = {"plan": "p", "owner": "o"}
STEP = {"plan": "p", "step": "s1", "action": "promote", "vhost": "/", "queue": "q", "uid": "1", "to": NODE}


@pytest.fixture
def caller() -> Caller:
    return Caller()


def test_the_topology(caller: Caller) -> None:
    document = caller.ask("GET", "/api/mirroring/topology").value
    assert (document["format"], document["cluster"]) == (
        "fluffle-topology/1",
        caller.site.config.cluster_name,
    )
    assert [node["node"] for node in document["nodes"]] == [NODE]


def test_the_lock(caller: Caller) -> None:
    path = "/api/mirroring/plan-lock"
    nobody = {"plan": None, "owner": None, "since": None, "expires": None, "is_held": False, "view_id": 0}
    assert caller.ask("GET", path).value == nobody
    taken = caller.ask("PUT", path, {**PLAN, "ttl_s": 60})
    assert (taken.status, taken.value["plan"], taken.value["is_held"]) == (200, "p", True)
    assert caller.ask("GET", path).value == taken.value
    busy = caller.ask("PUT", path, {"plan": "q", "owner": "x", "ttl_s": 60})
    assert (busy.status, busy.value["error"], busy.value["owner"]) == (409, "busy", "o")
    assert busy.value["reason"] == f"plan p of o is being carried out since {taken.value['since']}"
    assert caller.ask("DELETE", path, {"plan": "q", "owner": "x"}).status == 409
    assert caller.ask("DELETE", path, PLAN).value == nobody
    assert caller.ask("DELETE", path, PLAN).value == nobody


@pytest.mark.parametrize(
    "body", [{}, PLAN, {**PLAN, "ttl_s": 0}, {**PLAN, "ttl_s": 3601}, {**PLAN, "ttl_s": True}]
)
def test_wrong_locks(caller: Caller, body: dict[str, Any]) -> None:
    assert caller.ask("PUT", "/api/mirroring/plan-lock", body).status == 400


def test_steps_of_a_queue_without_mirrors(caller: Caller) -> None:
    path = "/api/mirroring/plan-step"
    assert caller.ask("POST", path, STEP).status == 404
    caller.site.broker.log.submit(DeclareQueue("/", "q", "1", home=NODE))
    assert caller.ask("POST", path, {**STEP, "uid": "2"}).status == 404
    locked = caller.ask("POST", path, STEP)
    assert (locked.status, locked.value["error"]) == (423, "locked")
    caller.ask("PUT", "/api/mirroring/plan-lock", {**PLAN, "ttl_s": 60})
    there = caller.ask("POST", path, STEP)
    assert (there.status, there.value["state"]) == (200, "skipped")
    stale = caller.ask("POST", path, {**STEP, "to": "other@host"})
    assert (stale.status, stale.value["reason"]) == (409, "other@host has no synchronised copy")
    assert stale.value["observed"]["master"] == NODE


@pytest.mark.parametrize(
    "change",
    [
        {"action": "reorder_ring"},
        {"action": "drop_mirror"},
        {"to": None},
        {"to": 1},
        {"plan": ""},
        {"step": "x" * 257},
        {"pre": 1},
        {"pre": {"epoch": True}},
        {"pre": {"epoch": 1 << 60}},
        {"pre": {"synced": [1]}},
        {"pre": {"synced": ["n"] * 101}},
        {"pre": {"max_lag_ops": "many"}},
        {"uid": None},
    ],
)
def test_wrong_steps(caller: Caller, change: dict[str, Any]) -> None:
    assert caller.ask("POST", "/api/mirroring/plan-step", {**STEP, **change}).status == 400
