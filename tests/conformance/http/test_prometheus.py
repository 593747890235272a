"""Metrics for Prometheus (management §5)."""

import gzip
import http.client
import math
import urllib.parse
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from node.amqp import methods
from tests.conformance.http.steps import eventually, publish, put_queue
from tests.kit.amqp_client import Connection
from tests.kit.http_api import HttpApi
from tests.kit.server_cluster import is_rabbitmq
from tests.kit.servers import Server

DASHBOARD: Final = """
rabbitmq_build_info rabbitmq_identity_info rabbitmq_connections rabbitmq_channels rabbitmq_consumers rabbitmq_queues
rabbitmq_connections_opened_total rabbitmq_connections_closed_total rabbitmq_channels_opened_total
rabbitmq_channels_closed_total rabbitmq_queues_declared_total rabbitmq_queues_created_total
rabbitmq_queues_deleted_total rabbitmq_process_open_fds rabbitmq_process_max_fds rabbitmq_process_open_tcp_sockets
rabbitmq_process_max_tcp_sockets rabbitmq_process_resident_memory_bytes rabbitmq_resident_memory_limit_bytes
rabbitmq_disk_space_available_bytes rabbitmq_queue_messages_ready rabbitmq_queue_messages_unacked
rabbitmq_channel_consumers rabbitmq_global_messages_received_total rabbitmq_global_messages_received_confirm_total
rabbitmq_global_messages_confirmed_total rabbitmq_global_messages_routed_total
rabbitmq_global_messages_unroutable_dropped_total rabbitmq_global_messages_unroutable_returned_total
rabbitmq_global_messages_delivered_consume_manual_ack_total
rabbitmq_global_messages_delivered_consume_auto_ack_total rabbitmq_global_messages_delivered_get_manual_ack_total
rabbitmq_global_messages_delivered_get_auto_ack_total rabbitmq_global_messages_get_empty_total
rabbitmq_global_messages_redelivered_total rabbitmq_global_messages_acknowledged_total
"""
"""The queries of the official Grafana overview name these metrics (§5.1 ●)."""

OTHERS: Final = """
alarms_memory_used_watermark alarms_free_disk_space_watermark alarms_file_descriptor_limit
disk_space_available_limit_bytes erlang_processes_used erlang_processes_limit erlang_scheduler_run_queue
erlang_net_ticktime_seconds erlang_uptime_seconds erlang_gc_runs_total erlang_gc_reclaimed_bytes_total
erlang_scheduler_context_switches_total io_read_ops_total io_read_bytes_total io_write_ops_total
io_write_bytes_total io_sync_ops_total io_seek_ops_total io_reopen_ops_total io_read_time_seconds_total
io_write_time_seconds_total io_sync_time_seconds_total io_seek_time_seconds_total schema_db_ram_tx_total
schema_db_disk_tx_total msg_store_read_total msg_store_write_total queue_index_read_ops_total
queue_index_write_ops_total raft_term_total raft_log_snapshot_index raft_log_last_applied_index
raft_log_commit_index raft_log_last_written_index raft_entry_commit_latency_seconds auth_attempts_total
auth_attempts_succeeded_total auth_attempts_failed_total queue_messages queue_process_reductions_total
queue_consumers queue_consumer_capacity queue_consumer_utilisation queue_process_memory_bytes queue_messages_ram
queue_messages_ram_bytes queue_messages_ready_ram queue_messages_unacked_ram queue_messages_persistent
queue_messages_persistent_bytes queue_messages_bytes queue_messages_ready_bytes queue_messages_unacked_bytes
queue_messages_paged_out queue_messages_paged_out_bytes queue_head_message_timestamp queue_disk_reads_total
queue_disk_writes_total queue_messages_published_total channel_messages_unacked channel_messages_unconfirmed
channel_messages_uncommitted channel_acks_uncommitted consumer_prefetch channel_prefetch
channel_messages_published_total channel_messages_confirmed_total channel_messages_unroutable_returned_total
channel_messages_unroutable_dropped_total channel_get_ack_total channel_get_total
channel_messages_delivered_ack_total channel_messages_delivered_total channel_messages_redelivered_total
channel_messages_acked_total channel_get_empty_total channel_process_reductions_total
connection_incoming_bytes_total connection_outgoing_bytes_total connection_process_reductions_total
connection_incoming_packets_total connection_outgoing_packets_total connection_pending_packets
connection_channels global_messages_delivered_total global_publishers global_consumers
global_messages_dead_lettered_confirmed_total global_messages_dead_lettered_delivery_limit_total
global_messages_dead_lettered_expired_total global_messages_dead_lettered_maxlen_total
global_messages_dead_lettered_rejected_total
"""
"""All other names of §5.1, without their beginning."""

UNTYPED: Final = ("build_info", "identity_info", "alarms_")

FAMILIES: Final = {
    "connection_churn_metrics": "connections_opened_total",
    "node_coarse_metrics": "process_open_fds",
    "node_metrics": "process_max_fds",
    "node_persister_metrics": "io_read_ops_total",
    "ra_metrics": "raft_term_total",
    "auth_attempt_metrics": "auth_attempts_total",
    "auth_attempt_detailed_metrics": "auth_attempts_detailed_total",
    "queue_coarse_metrics": "queue_messages_ready",
    "queue_consumer_count": "queue_consumers",
    "queue_metrics": "queue_messages_ram",
    "channel_metrics": "channel_consumers",
    "channel_exchange_metrics": "channel_messages_published_total",
    "channel_process_metrics": "channel_process_reductions_total",
    "channel_queue_metrics": "channel_get_total",
    "channel_queue_exchange_metrics": "queue_messages_published_total",
    "connection_metrics": "connection_channels",
    "connection_coarse_metrics": "connection_incoming_bytes_total",
}


class Page(NamedTuple):
    """A page is the answer to a scrape.   rows: value by name and labels.   types: by name."""

    status: int
    headers: http.client.HTTPMessage
    text: str
    rows: dict[tuple[str, frozenset[tuple[str, str]]], float]
    types: dict[str, str]

    def value(self, name: str, **labels: str) -> float:
        return self.rows[f"rabbitmq_{name}", frozenset(labels.items())]

    def labels_of(self, name: str) -> list[dict[str, str]]:
        return [dict(labels) for found, labels in self.rows if found == f"rabbitmq_{name}"]


def scrape(
    server: Server, path: str = "/metrics", *, accept_encoding: str = "identity", method: str = "GET"
) -> Page:
    url = urllib.parse.urlsplit(server.prometheus_url)
    connection = http.client.HTTPConnection(str(url.hostname), url.port, timeout=30)
    try:
        connection.request(method, path, headers={"accept-encoding": accept_encoding})
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    if response.headers.get("content-encoding") == "gzip":
        body = gzip.decompress(body)
    text = body.decode()
    types = dict(line.split()[2:4] for line in text.splitlines() if line.startswith("# TYPE "))
    rows = {}
    if response.status == 200:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                rows[sample.name, frozenset(sample.labels.items())] = sample.value
    return Page(response.status, response.headers, text, rows, types)


def test_the_page(server: Server) -> None:
    """`text/plain; version=0.0.4`, without a user; TYPE and HELP of each."""
    page = scrape(server)
    assert page.status == 200
    assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
    helped = {line.split()[2] for line in page.text.splitlines() if line.startswith("# HELP ")}
    assert helped == set(page.types)


@pytest.mark.parametrize("name", DASHBOARD.split())
def test_names_of_the_official_dashboard(server: Server, name: str) -> None:
    """§5.1 ●: each query of it finds something."""
    page = scrape(server)
    assert name in page.types
    assert any(found == name for found, _ in page.rows) or is_rabbitmq()


def test_all_other_names(server: Server) -> None:
    """All of §5.1."""
    types = scrape(server).types
    names = [f"rabbitmq_{name}" for name in OTHERS.split()] + DASHBOARD.split()
    assert [name for name in names if name not in types] == []


def test_types(server: Server) -> None:
    for name, kind in scrape(server).types.items():
        plain = name.removeprefix("rabbitmq_")
        if name.startswith("rabbitmq_"):
            expected = "counter" if name.endswith("_total") else "gauge"
            assert kind == ("untyped" if plain.startswith(UNTYPED) else expected), name


def test_build_and_identity(server: Server) -> None:
    """The labels that dashboards join by."""
    page = scrape(server)
    [build] = page.labels_of("build_info")
    assert set(build) == {
        "rabbitmq_version",
        "prometheus_plugin_version",
        "prometheus_client_version",
        "erlang_version",
    }
    [identity] = page.labels_of("identity_info")
    assert set(identity) == {"rabbitmq_node", "rabbitmq_cluster", "rabbitmq_cluster_permanent_id"}
    assert all(identity.values())
    assert page.value("build_info", **build) == page.value("identity_info", **identity) == 1


def test_global_counters_have_zero_rows(server: Server) -> None:
    """From the start, else rate() misses the first increment."""
    page = scrape(server)
    pairs = {
        (each["protocol"], each["queue_type"]) for each in page.labels_of("global_messages_delivered_total")
    }
    types = ("rabbit_classic_queue", "rabbit_quorum_queue", "rabbit_stream_queue")
    assert {("amqp091", each) for each in types} <= pairs
    for reason in ("expired", "maxlen", "rejected"):
        strategies = {
            (each["queue_type"], each["dead_letter_strategy"])
            for each in page.labels_of(f"global_messages_dead_lettered_{reason}_total")
        }
        assert {("rabbit_classic_queue", each) for each in ("at_most_once", "disabled")} <= strategies


@pytest.fixture
def traffic(server: Server, connect: Callable[..., Connection], api: HttpApi, vhost: str) -> dict[str, float]:
    """Messages published, routed and not, delivered, got; what /metrics/per-object says of global counters before."""
    before = scrape(server, "/metrics/per-object")
    put_queue(api, vhost, "q", durable=True)
    connection = connect(vhost=vhost)
    channel, other = connection.channel(1), connection.channel(2)
    channel.call(methods.ConfirmSelect)
    for key, is_mandatory in (
        ("q", False),
        ("q", False),
        ("q", False),
        ("nowhere", False),
        ("nowhere", True),
    ):
        channel.publish("", key, b"x" * 10, mandatory=is_mandatory)
    other.call(methods.BasicQos, prefetch_count=2)
    other.call(methods.BasicConsume, queue="q", consumer_tag="c")
    names = [name for name in DASHBOARD.split() if "global" in name]
    return {name: sum(value for (found, _), value in before.rows.items() if found == name) for name in names}


def _sum(page: Page, name: str) -> float:
    return sum(value for (found, _), value in page.rows.items() if found == name)


def test_global_counters_count(server: Server, traffic: dict[str, float]) -> None:
    expected = {
        "received_total": 5,
        "received_confirm_total": 5,
        "confirmed_total": 5,
        "routed_total": 3,
        "unroutable_dropped_total": 1,
        "unroutable_returned_total": 1,
        "delivered_consume_manual_ack_total": 2,
    }

    def look() -> bool:
        page = scrape(server)
        names = {short: f"rabbitmq_global_messages_{short}" for short in expected}
        return all(_sum(page, name) - traffic[name] >= expected[short] for short, name in names.items())

    eventually(look)


def test_rows_for_each_object(server: Server, traffic: dict[str, float], vhost: str) -> None:
    """/metrics/per-object: labels vhost and queue, channel."""

    def look() -> Page | None:
        page = scrape(server, "/metrics/per-object")
        ready = page.rows.get(("rabbitmq_queue_messages_ready", _queue(vhost)))
        unacked = page.rows.get(("rabbitmq_queue_messages_unacked", _queue(vhost)))
        consumers = page.rows.get(("rabbitmq_queue_consumers", _queue(vhost)))
        bytes_ = page.rows.get(("rabbitmq_queue_messages_bytes", _queue(vhost)))
        return page if (ready, unacked, consumers, bytes_) == (1, 2, 1, 30) else None

    page = eventually(look)
    assert math.isnan(page.rows["rabbitmq_queue_head_message_timestamp", _queue(vhost)])
    assert all("channel" in each for each in page.labels_of("channel_consumers"))
    assert all("channel" in each for each in page.labels_of("connection_channels"))
    assert page.labels_of("channel_consumers")
    assert "rabbitmq_alarms_memory_used_watermark" not in page.types


def test_what_channels_did_with_each_exchange_and_each_queue(
    server: Server, traffic: dict[str, float], vhost: str
) -> None:
    """/metrics/per-object: labels channel, vhost, exchange or queue, and all; the channel's name is free."""
    of_exchange = {
        "channel_messages_published_total": 5.0,
        "channel_messages_confirmed_total": 5.0,
        "channel_messages_unroutable_dropped_total": 1.0,
        "channel_messages_unroutable_returned_total": 1.0,
    }
    of_queue = {
        "channel_get_ack_total": 0.0,
        "channel_get_total": 0.0,
        "channel_messages_delivered_ack_total": 2.0,
        "channel_messages_delivered_total": 0.0,
        "channel_messages_redelivered_total": 0.0,
        "channel_messages_acked_total": 0.0,
        "channel_get_empty_total": 0.0,
    }
    both = {"queue_vhost": vhost, "queue": "q", "exchange_vhost": vhost, "exchange": ""}

    def value(page: Page, name: str, labels: dict[str, str]) -> float | None:
        found = [
            (each, count)
            for (named, pairs), count in page.rows.items()
            if named == f"rabbitmq_{name}" and labels.items() <= (each := dict(pairs)).items()
        ]
        assert all(set(each) == {"channel", *labels} for each, _ in found)
        return found[0][1] if len(found) == 1 else None

    def look() -> bool:
        page = scrape(server, "/metrics/per-object")
        exchange = {name: value(page, name, {"vhost": vhost, "exchange": ""}) for name in of_exchange}
        queue = {name: value(page, name, {"vhost": vhost, "queue": "q"}) for name in of_queue}
        routed = value(page, "queue_messages_published_total", both)
        return (exchange, queue, routed) == (of_exchange, of_queue, 3.0)

    eventually(look)


def _queue(vhost: str, queue: str = "q") -> frozenset[tuple[str, str]]:
    return frozenset({"vhost": vhost, "queue": queue}.items())


def test_sums(server: Server, traffic: dict[str, float], vhost: str) -> None:
    """/metrics: the same without labels, of all queues."""
    eventually(
        lambda: (
            scrape(server, "/metrics/per-object").rows.get(("rabbitmq_queue_messages", _queue(vhost))) == 3
        )
    )
    page = scrape(server)
    assert page.labels_of("queue_messages") == [{}]
    assert page.value("queue_messages") >= 3
    assert page.value("queue_messages_unacked") >= 2
    assert page.value("queues") >= 1
    assert page.value("connections") >= 1
    assert page.value("channels") >= 1
    assert page.value("consumers") >= 1


@pytest.mark.parametrize(("family", "metric"), FAMILIES.items())
def test_families(server: Server, traffic: dict[str, float], family: str, metric: str) -> None:
    """/metrics/detailed?family=F: these only, with a prefix of their own."""
    types = scrape(server, f"/metrics/detailed?family={family}").types
    assert f"rabbitmq_detailed_{metric}" in types
    others = set(FAMILIES.values()) - {metric}
    if family == "queue_metrics":
        others.remove("queue_consumers")  # is of both
    assert [each for each in others if f"rabbitmq_detailed_{each}" in types] == []
    assert {"rabbitmq_build_info", "rabbitmq_identity_info"} <= set(types)


def test_several_families_of_one_vhost(
    server: Server, traffic: dict[str, float], api: HttpApi, vhost: str
) -> None:
    quoted = urllib.parse.quote(vhost, safe="")
    query = f"?family=queue_coarse_metrics&family=queue_consumer_count&vhost={quoted}&vhost=nope"

    def look() -> Page | None:
        page = scrape(server, f"/metrics/detailed{query}")
        return page if page.labels_of("detailed_queue_messages_ready") else None

    page = eventually(look)
    assert page.labels_of("detailed_queue_messages_ready") == [{"vhost": vhost, "queue": "q"}]
    assert page.labels_of("detailed_queue_consumers") == [{"vhost": vhost, "queue": "q"}]
    none = scrape(server, "/metrics/detailed?family=queue_coarse_metrics&vhost=nope")
    assert none.labels_of("detailed_queue_messages_ready") == []


def test_families_of_the_cluster(server: Server, api: HttpApi, vhost: str) -> None:
    """Prefix `rabbitmq_cluster_`."""
    put_queue(api, vhost, "q")
    page = scrape(
        server, "/metrics/detailed?family=vhost_status&family=exchange_bindings&family=exchange_names"
    )
    assert page.value("cluster_vhost_status", vhost=vhost) == 1
    assert page.value("cluster_exchange_bindings", vhost=vhost, exchange="amq.topic", type="topic") == 0
    assert page.value("cluster_exchange_name", vhost=vhost, exchange="amq.topic", type="topic") == 1
    assert {"vhost": vhost, "exchange": "", "type": "direct"} not in page.labels_of(
        "cluster_exchange_bindings"
    )


def test_without_a_family(server: Server) -> None:
    """Only what the node is."""
    types = scrape(server, "/metrics/detailed").types
    assert {each for each in types if each.startswith("rabbitmq_")} == {
        "rabbitmq_build_info",
        "rabbitmq_identity_info",
    }


def test_names_from_clients_are_escaped(server: Server, api: HttpApi, vhost: str) -> None:
    """Quotes and backslashes, which would forge rows."""
    if is_rabbitmq():
        pytest.skip("RabbitMQ doesn't escape them, and nobody can read its metrics then")
    name = 'a"b\\c\nrabbitmq_queues 99'
    put_queue(api, vhost, name)
    shown = name.replace("\n", "")  # as both do with names

    def look() -> bool:
        page = scrape(server, "/metrics/per-object")
        return any(each.get("queue") == shown for each in page.labels_of("queue_messages_ready"))

    eventually(look)


def test_gzip(server: Server) -> None:
    page = scrape(server, accept_encoding="gzip")
    assert page.headers["content-encoding"] == "gzip"
    assert page.value("queues") >= 0


def test_other_pages(server: Server) -> None:
    answer = scrape(server, "/metrics/nope")
    assert (answer.status, answer.text) == (404, "Unknown Registry")
    assert scrape(server, "/nope").status == 404
    assert scrape(server, "/metrics", method="POST").status == 405


def test_nobody_logs_in(server: Server, api: HttpApi) -> None:
    """The port for metrics has nothing else. On the API's port they are for users who may monitor."""
    assert scrape(server, "/api/overview").status == 404
    if not is_rabbitmq():
        assert api.get("//metrics", user="").status == 401
        assert api.get("//metrics").status == 200


# --- ours ---

MIRRORS: Final = (
    "mirrored_queues",
    "queue_mirrors",
    "queue_mirrors_synchronised",
    "queue_mirror_behind_broadcasts",
    "queue_mirror_missing_messages",
    "queue_sync_in_progress",
    "queue_master_changes_total",
    "unsynchronised_queues",
    "partitioned_peers",
)


def test_metrics_of_mirrors(cluster_api: list[HttpApi], managed_cluster: Any) -> None:
    from tests.kit.managed_fluffle import managed

    api, name = cluster_api[0], "metrics-mirrored"
    policy = {"pattern": f"^{name}$", "definition": {"ha-mode": "all", "ha-sync-mode": "automatic"}}
    assert api.put(f"/policies/%2F/{name}", {**policy, "apply-to": "queues"}).status in (201, 204)
    put_queue(api, "/", name, durable=True)
    try:
        publish(api, "/", name)
        nodes = managed(managed_cluster)

        def look() -> Page | None:
            for node in nodes:
                page = scrape(node, "/metrics/per-object")
                labels = _queue("/", name)
                if page.rows.get(("fluffle_queue_mirrors_synchronised", labels)) == 2:
                    return page
            return None

        page = eventually(look)
        assert page.rows["fluffle_queue_mirrors", _queue("/", name)] == 2
        assert page.rows["fluffle_queue_sync_in_progress", _queue("/", name)] == 0
        mirrors = [
            dict(labels)["mirror"]
            for found, labels in page.rows
            if found == "fluffle_queue_mirror_behind_broadcasts"
        ]
        assert len(mirrors) >= 2
        for node in nodes:
            types = scrape(node).types
            assert [each for each in MIRRORS if f"fluffle_{each}" not in types] == []
        assert sum(scrape(node).rows["fluffle_mirrored_queues", frozenset()] for node in nodes) >= 1
    finally:
        api.delete(f"/queues/%2F/{name}")
        api.delete(f"/policies/%2F/{name}")
