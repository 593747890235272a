"""Health checks (management §1.11)."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conformance.http.steps import VHOST_REFUSED, eventually, is_missing, path, refused, succeeds
from tests.kit.http_api import Answer, HttpApi
from tests.kit.server_cluster import Cluster, is_rabbitmq
from tests.kit.servers import Admin, Server

Manager = Callable[..., HttpApi]

CHECKS = (
    "alarms",
    "local-alarms",
    "certificate-expiration/1/months",
    "protocol-listener/amqp",
    "virtual-hosts",
    "node-is-mirror-sync-critical",
    "node-is-quorum-critical",
)


def failed(answer: Answer) -> Any:
    """503 with `"status":"failed"` and a reason."""
    assert answer.status == 503, answer
    assert answer.json["status"] == "failed"
    assert isinstance(answer.json["reason"], str)
    return answer.json


@pytest.fixture
def node(api: HttpApi) -> str:
    return str(succeeds(api.get("/overview"))["node"])


@pytest.fixture
def alarm(admin: Admin) -> Iterator[Callable[[str], None]]:
    """Makes the server short of something until the end of the test."""
    set_: list[str] = []

    def set_alarm(resource: str) -> None:
        set_.append(resource)
        admin.set_alarm(resource)

    yield set_alarm
    for resource in set_:
        admin.clear_alarm(resource)


@pytest.mark.parametrize("check", CHECKS)
def test_all_is_well(api: HttpApi, check: str) -> None:
    assert succeeds(api.get(f"/health/checks/{check}"))["status"] == "ok"


@pytest.mark.parametrize("check", CHECKS)
def test_any_management_user_may_ask(api: HttpApi, make_manager: Manager, check: str) -> None:
    assert make_manager(None).get(f"/health/checks/{check}").status == 200
    assert api.get(f"/health/checks/{check}", user="").status == 401


def test_an_unknown_check(api: HttpApi) -> None:
    is_missing(api.get("/health/checks/nope"))


# --- alarms ---


@pytest.mark.disturbs_everyone
@pytest.mark.skipif(not is_rabbitmq(), reason="Fluffle in a process of its own has no such switch")
@pytest.mark.parametrize("resource", ["memory", "disk"])
def test_alarms(api: HttpApi, alarm: Callable[[str], None], node: str, resource: str) -> None:
    alarm(resource)
    expected = [{"node": node, "resource": "disk space" if resource == "disk" else resource}]
    eventually(lambda: api.get("/health/checks/alarms").status == 503)
    for check, where in (("alarms", "in the cluster"), ("local-alarms", "on the node")):
        found = failed(api.get(f"/health/checks/{check}"))
        assert found["alarms"] == expected
        assert found["reason"] == f"There are alarms in effect {where}"
    failed(api.get("/healthchecks/node"))


@pytest.mark.slow
@pytest.mark.disturbs_everyone
def test_the_memory_alarm(server_with: Callable[[dict[str, str]], Server]) -> None:
    """With a watermark that any process is above."""
    api = HttpApi(server_with({"vm_memory_high_watermark.absolute": "1000000"}))
    eventually(lambda: api.get("/health/checks/alarms").status == 503)
    name = succeeds(api.get("/overview"))["node"]
    for check in ("alarms", "local-alarms"):
        found = failed(api.get(f"/health/checks/{check}"))
        assert found["alarms"] == [{"node": name, "resource": "memory"}]
    failed(api.get("/healthchecks/node"))
    rows = eventually(lambda: [row for row in succeeds(api.get("/nodes")) if row.get("mem_alarm")])
    assert rows[0]["name"] == name


# --- listeners ---


def test_port_listener(api: HttpApi, server: Server) -> None:
    assert succeeds(api.get(f"/health/checks/port-listener/{server.port}")) == {
        "status": "ok",
        "port": server.port,
    }
    found = failed(api.get("/health/checks/port-listener/1"))
    assert (found["missing"], found["reason"]) == (1, "No active listener")
    assert server.port in found["ports"]


@pytest.mark.parametrize("port", ["x", "1.5", "%20"])
def test_a_port_that_is_no_number(api: HttpApi, port: str) -> None:
    answer = api.get(f"/health/checks/port-listener/{port}")
    assert (answer.status, answer.json) == (400, {"error": "bad_request", "reason": "Invalid port"})


@pytest.mark.parametrize(
    ("given", "protocol"),
    [
        ("amqp", "amqp"),
        ("AMQP", "amqp"),
        ("amqp091", "amqp"),
        ("amqp0-9-1", "amqp"),
        ("amqp10", "amqp"),
        ("http", "http"),
        ("management", "http"),
        ("http%2Fprometheus", "http/prometheus"),
    ],
)
def test_protocol_listener(api: HttpApi, given: str, protocol: str) -> None:
    assert succeeds(api.get(f"/health/checks/protocol-listener/{given}")) == {
        "status": "ok",
        "protocol": protocol,
    }


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ("amqps", "amqp/ssl"),
        ("amqp%2Fssl", "amqp/ssl"),
        ("https", "https"),
        ("mqtt", "mqtt"),
        ("stomp", "stomp"),
        ("web-mqtt", "http/web-mqtt"),
        ("web-stomp", "http/web-stomp"),
        ("NOPE", "nope"),
    ],
)
def test_a_protocol_without_a_listener(api: HttpApi, given: str, missing: str) -> None:
    found = failed(api.get(f"/health/checks/protocol-listener/{given}"))
    assert (found["missing"], found["reason"]) == (missing, "No active listener")
    assert "amqp" in found["protocols"]


# --- certificates ---


@pytest.mark.parametrize("unit", ["days", "weeks", "months", "years"])
def test_certificates_in_units(api: HttpApi, unit: str) -> None:
    assert succeeds(api.get(f"/health/checks/certificate-expiration/2/{unit}")) == {"status": "ok"}


def test_certificates_in_other_units(api: HttpApi) -> None:
    for within, unit in (("x", "months"), ("1", "moons")):
        answer = api.get(f"/health/checks/certificate-expiration/{within}/{unit}")
        assert (answer.status, answer.json["error"]) == (400, "bad_request")


# --- aliveness ---


def test_aliveness(api: HttpApi, vhost: str) -> None:
    """Declares a queue, publishes, gets; the queue stays, not durable and empty."""
    for _ in range(2):
        assert succeeds(api.get(path("aliveness-test", vhost))) == {"status": "ok"}
    queue = succeeds(api.get(path("queues", vhost, "aliveness-test")))
    assert queue["durable"] is False


def test_aliveness_needs_the_vhost_and_permissions(api: HttpApi, make_manager: Manager, vhost: str) -> None:
    is_missing(api.get("/aliveness-test/nope"))
    refused(make_manager(None).get(path("aliveness-test", vhost)), VHOST_REFUSED)
    answer = make_manager(vhost, "^$", "^$", "^$").get(path("aliveness-test", vhost))
    assert (answer.status, answer.json["error"]) == (401, "not_authorised")


# --- the deprecated one ---


def test_node_check(api: HttpApi, node: str) -> None:
    assert succeeds(api.get("/healthchecks/node")) == {"status": "ok"}
    assert succeeds(api.get(path("healthchecks", "node", node))) == {"status": "ok"}
    is_missing(api.get("/healthchecks/node/nope"))


# --- queues ---


@pytest.mark.parametrize("check", ["node-is-mirror-sync-critical", "node-is-quorum-critical"])
def test_a_node_by_itself_is_not_critical(api: HttpApi, check: str) -> None:
    assert succeeds(api.get(f"/health/checks/{check}")) == {"status": "ok", "reason": "single node cluster"}


def test_mirror_sync_critical(cluster_api: list[HttpApi], managed_cluster: Cluster) -> None:
    """A mirrored queue whose only copy is here makes its master's node critical, and no other."""
    api = cluster_api[0]
    name = "critical"
    policy = {
        "pattern": f"^{name}$",
        "definition": {"ha-mode": "exactly", "ha-params": 1},
        "apply-to": "queues",
    }
    assert api.put(path("policies", "/", name), policy).status in (201, 204)
    assert api.put(path("queues", "/", name), {"durable": True}).status in (201, 204)
    try:
        master = eventually(lambda: api.get(path("queues", "/", name)).json.get("node"))
        on_master = cluster_api[[node.name for node in managed_cluster.nodes].index(master)]
        found = eventually(lambda: _critical(on_master))
        assert {
            "name": name,
            "readable_name": f"queue '{name}' in vhost '/'",
            "type": "classic",
            "virtual_host": "/",
        } in found["queues"]
        for other in cluster_api:
            if other is not on_master:
                assert other.get("/health/checks/node-is-mirror-sync-critical").status == 200
    finally:
        api.delete(path("queues", "/", name))
        api.delete(path("policies", "/", name))


def _critical(api: HttpApi) -> Any:
    answer = api.get("/health/checks/node-is-mirror-sync-critical")
    return answer.json if answer.status == 503 else None


# --- for balancers: ours ---


def test_ready_needs_no_user(api: HttpApi) -> None:
    if is_rabbitmq():
        pytest.skip("Fluffle's own")
    for user in ("", "nobody", "guest"):
        assert succeeds(api.get("/health/ready", user=user)) == {"status": "ok"}


def test_a_node_in_maintenance_is_not_ready(cluster_api: list[HttpApi], managed_cluster: Cluster) -> None:
    node, api = managed_cluster.nodes[1], cluster_api[1]
    node.drain()
    try:
        assert failed(api.get("/health/ready", user=""))["reason"] == "the node is in maintenance mode"
        assert cluster_api[0].get("/health/ready", user="").status == 200
    finally:
        node.revive()
    eventually(lambda: api.get("/health/ready", user="").status == 200)


@pytest.mark.disturbs_everyone
def test_a_stopped_node_is_not_ready(cluster_api: list[HttpApi], managed_cluster: Cluster) -> None:
    node, api = managed_cluster.nodes[1], cluster_api[1]
    node.stop_app()
    try:
        failed(api.get("/health/ready", user=""))
        assert api.get("/overview").status == 503
    finally:
        node.start_app()
    eventually(lambda: api.get("/health/ready", user="").status == 200)
