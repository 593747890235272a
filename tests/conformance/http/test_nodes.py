"""`/nodes` (management §1.2)."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.conformance.http.steps import eventually, is_missing, path, refused, succeeds
from tests.kit.http_api import HttpApi
from tests.kit.server_cluster import Cluster, is_rabbitmq

FIELDS: Final[dict[str, Any]] = {
    "name": str,
    "type": str,
    "running": bool,
    "os_pid": str,
    "uptime": int,
    "run_queue": int,
    "processors": int,
    "net_ticktime": int,
    "proc_used": int,
    "proc_total": int,
    "fd_used": int,
    "fd_total": int,
    "sockets_used": int,
    "sockets_total": int,
    "mem_used": int,
    "mem_limit": int,
    "mem_alarm": bool,
    "mem_calculation_strategy": str,
    "disk_free": int,
    "disk_free_limit": int,
    "disk_free_alarm": bool,
    "partitions": list,
    "rates_mode": str,
    "db_dir": str,
    "config_files": list,
    "log_files": list,
    "enabled_plugins": list,
    "exchange_types": list,
    "auth_mechanisms": list,
    "applications": list,
    "contexts": list,
    "gc_num": int,
    "gc_bytes_reclaimed": int,
    "context_switches": int,
    "io_read_count": int,
    "io_write_count": int,
    "io_sync_count": int,
    "io_seek_count": int,
    "io_read_bytes": int,
    "io_write_bytes": int,
    "io_read_avg_time": (int, float),
    "io_write_avg_time": (int, float),
    "io_sync_avg_time": (int, float),
    "io_seek_avg_time": (int, float),
    "io_reopen_count": int,
    "mnesia_ram_tx_count": int,
    "mnesia_disk_tx_count": int,
    "msg_store_read_count": int,
    "msg_store_write_count": int,
    "queue_index_read_count": int,
    "queue_index_write_count": int,
    "connection_created": int,
    "connection_closed": int,
    "channel_created": int,
    "channel_closed": int,
    "queue_declared": int,
    "queue_created": int,
    "queue_deleted": int,
    "metrics_gc_queue_length": dict,
    "ra_open_file_metrics": dict,
    "cluster_links": list,
}
"""Each row of the table."""

WITH_RATES: Final = (
    "mem_used fd_used sockets_used proc_used disk_free gc_num gc_bytes_reclaimed context_switches io_read_count "
    "io_write_count io_sync_count mnesia_ram_tx_count msg_store_read_count queue_index_write_count "
    "connection_created queue_declared"
)

MEMORY: Final = (
    "connection_readers connection_writers connection_channels connection_other queue_procs queue_slave_procs "
    "quorum_queue_procs plugins other_proc metrics mgmt_db mnesia other_ets binary msg_index code atom "
    "other_system allocated_unused reserved_unallocated"
)

NOT_MONITOR: Final = {"error": "not_authorised", "reason": "Not monitor user"}


@pytest.fixture
def node(api: HttpApi) -> str:
    """The name of the server's node."""
    return str(succeeds(api.get("/overview"))["node"])


def measured(api: HttpApi, node: str) -> Any:
    """The node once it has its first figures."""

    def look() -> Any:
        found = succeeds(api.get(path("nodes", node)))
        return found if "mem_used" in found and "fd_total" in found else None

    return eventually(look)


def test_the_list(api: HttpApi, node: str) -> None:
    """GET /nodes."""
    [found] = succeeds(api.get("/nodes"))
    assert (found["name"], found["type"], found["running"]) == (node, "disc", True)


def test_fields(api: HttpApi, node: str) -> None:
    """Every row of §1.2, with its type."""
    found = measured(api, node)
    assert set(FIELDS) <= set(found)
    assert [name for name, kind in FIELDS.items() if not isinstance(found[name], kind)] == []


def test_rates(api: HttpApi, node: str) -> None:
    found = measured(api, node)
    missing = [name for name in WITH_RATES.split() if "rate" not in found.get(f"{name}_details", {})]
    assert missing == []


def test_values_make_sense(api: HttpApi, node: str) -> None:
    found = measured(api, node)
    assert 0 < found["mem_used"] < found["mem_limit"]
    assert 0 < found["fd_used"] < found["fd_total"]
    assert found["disk_free"] > found["disk_free_limit"]
    assert found["os_pid"].isdigit()
    assert (found["mem_alarm"], found["disk_free_alarm"], found["partitions"]) == (False, False, [])
    assert found["mem_calculation_strategy"] == "rss"


def test_what_the_ui_looks_for(api: HttpApi, node: str) -> None:
    """RabbitMQ's version in applications; plug-ins; mechanisms with `enabled`."""
    found = measured(api, node)
    versions = {each["name"]: each["version"] for each in found["applications"]}
    assert versions["rabbit"].startswith("3.10.")
    assert found["enabled_plugins"] == ["rabbitmq_management", "rabbitmq_prometheus"]
    mechanisms = {each["name"]: each["enabled"] for each in found["auth_mechanisms"]}
    assert mechanisms["PLAIN"] is True
    assert all(isinstance(each["description"], str) for each in found["auth_mechanisms"])
    contexts = eventually(lambda: measured(api, node)["contexts"])
    assert {each["description"] for each in contexts} >= {"RabbitMQ Management"}


def test_samples(api: HttpApi, node: str) -> None:
    """`node_stats_age`, `node_stats_incr`."""
    query = "?node_stats_age=60&node_stats_incr=5&columns=mem_used,mem_used_details,fd_used_details"

    def look() -> Any:
        found = api.get(path("nodes", node) + query).json
        samples = found.get("mem_used_details", {}).get("samples", ()) if isinstance(found, dict) else ()
        return found if len(samples) > 1 else None

    found = eventually(look)
    assert set(found) == {"mem_used", "mem_used_details", "fd_used_details"}
    details = found["mem_used_details"]
    assert {"rate", "samples", "avg", "avg_rate"} <= set(details)
    assert all(each["timestamp"] % 5000 == 0 for each in details["samples"])


def test_columns_of_the_list(api: HttpApi, node: str) -> None:
    assert succeeds(api.get("/nodes?columns=name")) == [{"name": node}]


def test_memory(api: HttpApi, node: str) -> None:
    """GET /nodes/{node}/memory: bytes by category."""
    memory = succeeds(api.get(path("nodes", node) + "/memory"))["memory"]
    assert set(MEMORY.split()) <= set(memory)
    assert memory["strategy"] == "rss"
    assert set(memory["total"]) == {"erlang", "rss", "allocated"}
    assert all(isinstance(memory[name], int) and memory[name] >= 0 for name in MEMORY.split())


def test_memory_in_the_node(api: HttpApi, node: str) -> None:
    """`?memory=true` adds `memory`."""
    assert "memory" not in succeeds(api.get(path("nodes", node)))
    found = succeeds(api.get(path("nodes", node) + "?memory=true"))
    assert found["memory"]["total"]["rss"] > 0


def test_relative_memory(api: HttpApi, node: str) -> None:
    """Whole per cent, total 100, at least 1 of what there is."""
    memory = succeeds(api.get(path("nodes", node) + "/memory/relative"))["memory"]
    assert memory["total"] == 100
    assert all(isinstance(value, int) and 0 <= value <= 100 for value in memory.values())


def test_memory_of_tables(api: HttpApi, node: str) -> None:
    assert "total" in succeeds(api.get(path("nodes", node) + "/memory/ets"))["ets_tables_memory"]


def test_an_unknown_node(api: HttpApi) -> None:
    """RabbitMQ answers 500 for the node itself: 404 here."""
    is_missing(api.get("/nodes/nope/memory"))
    if not is_rabbitmq():
        is_missing(api.get("/nodes/nope"))


def test_only_monitors_look_at_nodes(make_manager: Callable[..., HttpApi], node: str) -> None:
    manager = make_manager(None)
    for each in ("/nodes", path("nodes", node), path("nodes", node) + "/memory"):
        refused(manager.get(each), NOT_MONITOR)
    assert make_manager(None, tag="monitoring").get("/nodes").status == 200


# --- a cluster ---


def test_all_nodes_are_told_by_any(cluster_api: list[HttpApi]) -> None:
    for api in cluster_api:
        found = succeeds(api.get("/nodes"))
        assert len(found) == len(cluster_api)
        assert all(each["running"] and each["mem_used"] > 0 for each in found)
        assert len({each["os_pid"] for each in found}) == len(cluster_api)


@pytest.mark.disturbs_everyone
def test_a_stopped_node_has_three_fields(managed_cluster: Cluster, cluster_api: list[HttpApi]) -> None:
    """§1.2: name, type, running: nothing else."""
    stopped = managed_cluster.nodes[2]
    stopped.stop_app()
    try:

        def look() -> Any:
            rows = succeeds(cluster_api[0].get("/nodes"))
            return [each for each in rows if not each["running"]]

        [row] = eventually(look)
        assert row == {"name": stopped.name, "type": "disc", "running": False}
        assert succeeds(cluster_api[0].get(path("nodes", stopped.name))) == row
    finally:
        stopped.start_app()
