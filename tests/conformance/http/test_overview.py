"""`/overview` (management §1.1)."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.conformance.http.steps import bad_request, eventually, publish, put_queue, refused, succeeds
from tests.kit.http_api import HttpApi
from tests.kit.server_cluster import is_rabbitmq

Manager = Callable[..., HttpApi]

FIELDS: Final = {
    "management_version": str,
    "rates_mode": str,
    "sample_retention_policies": dict,
    "exchange_types": list,
    "product_version": str,
    "product_name": str,
    "rabbitmq_version": str,
    "cluster_name": str,
    "erlang_version": str,
    "erlang_full_version": str,
    "release_series_support_status": str,
    "disable_stats": bool,
    "enable_queue_totals": bool,
    "message_stats": dict,
    "churn_rates": dict,
    "queue_totals": dict,
    "object_totals": dict,
    "statistics_db_event_queue": int,
    "node": str,
    "listeners": list,
    "contexts": list,
}
"""Each row of the table."""

CHURN: Final = {
    "connection_created",
    "connection_closed",
    "channel_created",
    "channel_closed",
    "queue_declared",
    "queue_created",
    "queue_deleted",
}


def overview(api: HttpApi, query: str = "") -> Any:
    return succeeds(api.get("/overview" + query))


def test_fields(api: HttpApi) -> None:
    """Every row of §1.1, with its type."""
    found = overview(api)
    assert set(FIELDS) <= set(found)
    assert [name for name, kind in FIELDS.items() if not isinstance(found[name], kind)] == []


def test_versions_are_those_that_clients_parse(api: HttpApi) -> None:
    found = overview(api)
    assert found["rabbitmq_version"].startswith("3.10.")
    assert found["management_version"] == found["rabbitmq_version"]
    assert (found["product_name"], found["release_series_support_status"]) == ("RabbitMQ", "supported")


def test_retention_policies(api: HttpApi) -> None:
    """The UI offers chart ranges from it."""
    assert overview(api)["sample_retention_policies"] == {
        "global": [600, 3600, 28800, 86400],
        "basic": [600, 3600],
        "detailed": [600],
    }


def test_exchange_types(api: HttpApi) -> None:
    types = overview(api)["exchange_types"]
    own = [] if is_rabbitmq() else ["x-delayed-message", "x-message-deduplication", "x-recent-history"]
    assert sorted(each["name"] for each in types) == ["direct", "fanout", "headers", "topic", *own]
    assert all(each["enabled"] is True and isinstance(each["description"], str) for each in types)


def test_listeners(api: HttpApi, server: Any) -> None:
    """[{node, protocol, ip_address, port:int, socket_opts}] of all nodes."""
    found = overview(api)
    by_protocol = {each["protocol"]: each for each in found["listeners"]}
    assert {"amqp", "http", "http/prometheus"} <= set(by_protocol)
    amqp = by_protocol["amqp"]
    assert (amqp["node"], amqp["port"], amqp["ip_address"]) == (found["node"], server.port, "127.0.0.1")
    assert amqp["socket_opts"]["backlog"] == 128
    http = by_protocol["http"]
    assert http["socket_opts"] == {
        "cowboy_opts": {"sendfile": False},
        "ip": "127.0.0.1",
        "port": http["port"],
    }
    inside = [each["socket_opts"] for each in found["listeners"] if each["protocol"] == "clustering"]
    assert all(each == [] for each in inside)


def test_contexts_have_ports_as_text(api: HttpApi) -> None:
    found = eventually(lambda: overview(api)["contexts"])
    contexts = {each["description"]: each for each in found}
    assert {"RabbitMQ Management", "RabbitMQ Prometheus"} <= set(contexts)
    for each in contexts.values():
        assert isinstance(each["port"], str)
        assert each["path"] == "/"
        assert each["node"]


def test_object_totals_count(api: HttpApi, vhost: str) -> None:
    before = overview(api)["object_totals"]
    put_queue(api, vhost, "q")
    eventually(lambda: overview(api)["object_totals"]["queues"] == before["queues"] + 1)
    assert set(before) == {"connections", "channels", "consumers", "exchanges", "queues"}


def test_queue_totals_and_message_stats_count(api: HttpApi, vhost: str) -> None:
    put_queue(api, vhost, "q")
    for _ in range(3):
        publish(api, vhost, "q")
    found = eventually(lambda: _with_messages(overview(api), 3))
    assert {"messages", "messages_ready", "messages_unacknowledged"} <= set(found["queue_totals"])
    assert "rate" in found["queue_totals"]["messages_details"]
    assert found["message_stats"]["publish"] >= 3
    assert "rate" in found["message_stats"]["publish_details"]


def _with_messages(found: Any, count: int) -> Any:
    return found if found["queue_totals"].get("messages", 0) >= count else None


def test_churn(api: HttpApi, vhost: str) -> None:
    """Since the node started, each with its rate."""
    put_queue(api, vhost, "q")
    found = eventually(lambda: _with_churn(overview(api)["churn_rates"]))
    assert set(found) == CHURN | {f"{name}_details" for name in CHURN}


def _with_churn(found: Any) -> Any:
    return found if found.get("queue_created") else None


def test_samples(api: HttpApi, vhost: str) -> None:
    """`lengths`, `msg_rates`: samples, the newest first, at multiples of the increment."""
    put_queue(api, vhost, "q")
    publish(api, vhost, "q")
    query = "?lengths_age=60&lengths_incr=5&msg_rates_age=60&msg_rates_incr=5"
    eventually(lambda: _with_messages(overview(api), 1))
    found = eventually(lambda: _with_samples(overview(api, query)))
    details = found["queue_totals"]["messages_details"]
    times = [each["timestamp"] for each in details["samples"]]
    assert times == sorted(times, reverse=True)
    assert all(each % 5000 == 0 for each in times)
    assert {"rate", "avg", "avg_rate"} <= set(details)
    assert "samples" in found["message_stats"]["publish_details"]
    assert "samples" in found["churn_rates"]["queue_created_details"]


def _with_samples(found: Any) -> Any:
    samples = found["queue_totals"].get("messages_details", {}).get("samples", ())
    return found if len(samples) > 1 else None


def test_a_range_that_makes_no_sense(api: HttpApi) -> None:
    bad_request(api.get("/overview?lengths_age=0&lengths_incr=5"), "Invalid range parameters: age 0, incr 5")


def test_columns(api: HttpApi) -> None:
    found = overview(api, "?columns=node,object_totals.queues")
    assert set(found) == {"node", "object_totals"}


def test_without_statistics(api: HttpApi) -> None:
    """`disable_stats=true`: only what is there."""
    found = overview(api, "?disable_stats=true")
    assert found["disable_stats"] is True
    assert "message_stats" not in found
    assert "queue_totals" not in found
    assert {"queues", "exchanges", "connections"} <= set(found["object_totals"])


def test_who_is_no_monitor_sees_no_nodes(make_manager: Manager) -> None:
    """Users who are no monitors get the overview without node, listeners, contexts; totals of own vhosts only."""
    found = overview(make_manager(None))
    assert not {"node", "listeners", "contexts"} & set(found)
    totals = found["object_totals"]
    assert (totals["queues"], totals["exchanges"], totals["connections"], totals["channels"]) == (0, 0, 0, 0)
    assert (found["message_stats"], found["queue_totals"]) == ({}, {})


def test_totals_of_own_vhosts(api: HttpApi, make_manager: Manager, vhost: str) -> None:
    manager = make_manager(vhost)
    put_queue(api, vhost, "q")
    publish(api, vhost, "q")
    found = eventually(lambda: _with_messages(overview(manager), 1))
    assert found["queue_totals"]["messages"] == 1
    assert found["object_totals"]["queues"] == 1
    assert found["message_stats"]["publish"] == 1


def test_a_user_without_a_tag(make_manager: Manager) -> None:
    refused(
        make_manager(None, tag="other").get("/overview"),
        {"error": "not_authorised", "reason": "Not management user"},
    )


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_it_is_only_read(api: HttpApi, method: str) -> None:
    answer = api.request(method, "/overview")
    assert (answer.status, answer.text) == (405, "")
    assert answer.headers["allow"] == "HEAD, GET, OPTIONS"
