"""`/mirroring/topology`, `plan-lock` and `plan-step` on three live nodes: a plan moves copies, none too many goes.

Fluffle's own. Source: spark §3.4, §6.1, §6.13.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.http.steps import eventually, get, path, publish, put_queue, succeeds
from tests.kit.http_api import Answer, HttpApi
from tests.kit.server_cluster import Cluster, is_rabbitmq

pytestmark = pytest.mark.skipif(is_rabbitmq(), reason="Fluffle's own")

PLAN = {"plan": "sha256:abc", "owner": "tester"}


class Moves:
    """A queue with two copies, and a plan that holds the lock.   api: of the first node."""

    def __init__(self, apis: list[HttpApi], names: list[str], queue: str) -> None:
        self.apis = apis
        self.api = apis[0]
        self.names = names
        self.queue = queue
        self.number = 0

    @property
    def row(self) -> dict[str, Any]:
        """The queue in the topology document of the first node."""
        rows = succeeds(self.api.get("/mirroring/topology"))["queues"]
        return next((row for row in rows if row["queue"] == self.queue), {})

    @property
    def free(self) -> str:
        """The node without a copy."""
        [node] = set(self.names) - set(self.row["ring"])
        return node

    def step(
        self, action: str, *, source: str | None = None, to: str | None = None, at: int = 0, **pre: Any
    ) -> Answer:
        """Ask for a step."""
        row, self.number = self.row, self.number + 1
        wanted = {"epoch": row["epoch"], "master": row["master"], "synced": [], "min_synced": 1, **pre}
        body = {
            "plan": PLAN["plan"],
            "step": f"s{self.number}",
            "action": action,
            "vhost": "/",
            "queue": self.queue,
            "uid": row["uid"],
            "from": source,
            "to": to,
            "pre": wanted,
        }
        return self.apis[at].post("/mirroring/plan-step", body)

    def until_done(self, action: str, **arguments: Any) -> dict[str, Any]:
        """Ask for a step until it is done."""

        def ask() -> Any:
            answer = succeeds(self.step(action, **arguments))
            return answer if answer["state"] in ("done", "skipped") else None

        found: dict[str, Any] = eventually(ask)
        return found


@pytest.fixture(params=["automatic", "manual"])
def moves(
    cluster_api: list[HttpApi], managed_cluster: Cluster, request: pytest.FixtureRequest
) -> Iterator[Moves]:
    api, queue = cluster_api[0], f"planned-{request.param}"
    definition = {"ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": request.param}
    policy = {"pattern": "^planned-", "definition": definition, "apply-to": "queues"}
    assert api.put("/policies/%2F/planned", policy).status in (201, 204)
    put_queue(api, "/", queue, durable=True)
    found = Moves(cluster_api, [node.name for node in managed_cluster.nodes], queue)
    eventually(lambda: len(found.row.get("synced", ())) == 2)
    succeeds(api.put("/mirroring/plan-lock", {**PLAN, "ttl_s": 60}))
    yield found
    api.delete("/mirroring/plan-lock", PLAN)
    api.delete(path("queues", "/", queue))
    api.delete("/policies/%2F/planned")


def test_the_topology_is_the_same_at_all_nodes(moves: Moves, managed_cluster: Cluster) -> None:
    """§2.6: a consistent placement; here of three nodes and a queue with two copies."""
    documents = [succeeds(api.get("/mirroring/topology")) for api in moves.apis]
    assert documents[0] == documents[1] == documents[2]
    first = documents[0]
    assert (first["format"], first["view_id"] >= 3) == ("fluffle-topology/1", True)
    assert [node["node"] for node in first["nodes"]] == sorted(moves.names)
    row = moves.row
    assert (row["want_mirrors"], row["policy"], row["exclusive"], row["fixed_nodes"]) == (
        1,
        "planned",
        False,
        None,
    )
    assert row["ring"][0] == row["master"]
    assert row["placement"] == []


def test_a_copy_moves_with_what_is_in_the_queue(moves: Moves) -> None:
    """§3.4: add, wait, drop. The new copy is synchronised even with ha-sync-mode manual."""
    for number in range(20):
        publish(moves.api, "/", moves.queue, f"m{number}")
    master, old = moves.row["ring"]
    free = moves.free
    assert moves.until_done("add_mirror", to=free)["state"] == "done"
    waited = moves.until_done("wait_synced", to=free)
    assert (waited["progress"], set(waited["observed"]["synced"])) == (1.0, set(moves.names))
    assert set(moves.row["placement"]) == set(moves.names)
    dropped = moves.until_done("drop_mirror", source=old, min_synced=2)
    assert set(dropped["observed"]["synced"]) == {master, free}
    assert eventually(lambda: set(moves.row["ring"]) == {master, free} and not moves.row["placement"])
    assert len(get(moves.api, "/", moves.queue, 30)) == 20


def test_a_promotion(moves: Moves) -> None:
    master, mirror = moves.row["ring"]
    publish(moves.api, "/", moves.queue)
    before = moves.row["epoch"]
    answer = moves.until_done("promote", to=mirror, synced=[mirror])
    assert answer["observed"]["master"] == mirror
    assert answer["observed"]["epoch"] > before
    again = succeeds(moves.step("promote", to=mirror, epoch=before, master=master))
    assert again["state"] == "skipped"
    assert len(get(moves.api, "/", moves.queue)) == 1


def test_what_is_not_so_any_more_is_refused(moves: Moves) -> None:
    """§6.13: nothing half-done."""
    master, mirror = moves.row["ring"]
    before = moves.row
    for answer in (
        moves.step("promote", to=mirror, epoch=before["epoch"] + 1),
        moves.step("promote", to=mirror, master=mirror),
        moves.step("promote", to=moves.free),
        moves.step("add_mirror", to=moves.free, synced=[moves.free]),
        moves.step("add_mirror", to="nobody@nowhere"),
        moves.step("drop_mirror", source=mirror),
        moves.step("drop_mirror", source=mirror, min_synced=0),
        moves.step("drop_mirror", source=master, min_synced=0),
        moves.step("wait_synced", to=moves.free),
    ):
        assert (answer.status, answer.json["error"]) == (409, "stale"), answer
        assert answer.json["observed"]["master"] == master
        assert answer.json["reason"]
    assert moves.row == before


def test_only_who_has_the_lock(moves: Moves) -> None:
    mirror = moves.row["ring"][1]
    other = {"plan": "other", "owner": "somebody"}
    busy = moves.apis[1].put("/mirroring/plan-lock", {**other, "ttl_s": 60})
    assert (busy.status, busy.json["error"], busy.json["plan"]) == (409, "busy", PLAN["plan"])
    assert busy.json["reason"].startswith("plan sha256:abc of tester is being carried out since 20")
    assert moves.apis[2].delete("/mirroring/plan-lock", other).status == 409
    assert succeeds(moves.apis[1].put("/mirroring/plan-lock", {**PLAN, "ttl_s": 60}))["is_held"] is True
    assert succeeds(moves.apis[1].delete("/mirroring/plan-lock", PLAN))["plan"] is None
    assert moves.step("promote", to=mirror, at=2).status == 423
    assert moves.step("wait_synced", to=mirror, at=2).status == 423
    assert succeeds(moves.api.get("/mirroring/plan-lock"))["plan"] is None


def test_another_policy_ends_a_placement(moves: Moves) -> None:
    """A change of policy ends a placement, as the plan was meant for the policy that there was."""
    free = moves.free
    moves.until_done("add_mirror", to=free)
    moves.until_done("wait_synced", to=free)
    definition = {"ha-mode": "exactly", "ha-params": 1}
    policy = {"pattern": "^planned-", "definition": definition, "apply-to": "queues"}
    assert moves.api.put("/policies/%2F/planned", policy).status == 204
    assert eventually(lambda: len(moves.row["ring"]) == 1)
    assert moves.row["placement"] == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"plan": "p"},
        {**PLAN, "ttl_s": 0},
        {**PLAN, "ttl_s": "1"},
        {**PLAN, "ttl_s": True},
        {"plan": "", "owner": "o", "ttl_s": 5},
        {"plan": "x" * 300, "owner": "o", "ttl_s": 5},
    ],
)
def test_a_wrong_lock(cluster_api: list[HttpApi], body: dict[str, Any]) -> None:
    assert cluster_api[0].put("/mirroring/plan-lock", body).status == 400


@pytest.mark.parametrize(
    "change",
    [
        {"action": "reorder_ring"},
        {"to": None},
        {"to": 5},
        {"pre": []},
        {"pre": {"epoch": "1"}},
        {"pre": {"epoch": -1}},
        {"pre": {"synced": "a"}},
        {"pre": {"min_synced": 1.5}},
        {"plan": None},
    ],
)
def test_a_wrong_step(cluster_api: list[HttpApi], change: dict[str, Any]) -> None:
    body = {"plan": "p", "step": "s1", "action": "promote", "vhost": "/", "queue": "q", "uid": "u", "to": "n"}
    assert cluster_api[0].post("/mirroring/plan-step", body).status == 404
    assert cluster_api[0].post("/mirroring/plan-step", {**body, **change}).status == 400


def test_who_may(cluster_api: list[HttpApi]) -> None:
    api = cluster_api[0]
    for tag in ("monitoring", "policymaker"):
        assert api.put(f"/users/{tag}", {"password": tag, "tags": tag}).status in (201, 204)
        user = api.as_user(tag)
        looks = 200 if tag == "monitoring" else 401
        assert user.get("/mirroring/topology").status == looks
        assert user.get("/mirroring/plan-lock").status == looks
        assert user.put("/mirroring/plan-lock", {**PLAN, "ttl_s": 5}).status == 401
        assert user.delete("/mirroring/plan-lock", PLAN).status == 401
        assert user.post("/mirroring/plan-step", {}).status == 401
        assert api.delete(f"/users/{tag}").status == 204
