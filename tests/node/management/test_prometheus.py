"""Scrapes of a broker without sockets (management §5), held against Prometheus' own parser."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from node.amqp.methods import BasicGet, QueueDeclare
from node.io import turns
from node.management import metric_families as families
from node.management.prometheus import CLUSTER_FAMILIES, MIRROR_FAMILY, Scrape, Telemetry, Wanted
from node.management.resources.metrics import routes
from node.statistics.channels import channel_name
from tests.kit.fake_site import Caller
from tests.kit.monitor_site import SUMS, MonitorSite, busy_site
from tests.kit.world import World

ROWS = Wanted("per-object", is_per_object=True)

Rows = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(site: MonitorSite, wanted: Wanted, telemetry: Telemetry | None = None) -> Rows:
    pieces = asyncio.run(Scrape(site, site.node, wanted).pieces(telemetry or Telemetry()))
    found: Rows = {}
    for family in text_string_to_metric_families(b"".join(pieces).decode()):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, f"{key} comes twice"
            found[key] = sample.value
    return found


def value(rows: Rows, name: str, **labels: str) -> float:
    return rows[name, frozenset(labels.items())]


def test_sums_of_queues_and_channels() -> None:
    rows = scrape(busy_site(), SUMS)
    expected = {
        "rabbitmq_queues": 2,
        "rabbitmq_connections": 1,
        "rabbitmq_channels": 1,
        "rabbitmq_queue_messages_ready": 1,
        "rabbitmq_queue_messages_unacked": 1,
        "rabbitmq_queue_messages": 2,
        "rabbitmq_queue_messages_bytes": 10,
        "rabbitmq_queue_messages_published_total": 3,
        "rabbitmq_channel_messages_published_total": 4,
        "rabbitmq_channel_messages_unroutable_dropped_total": 1,
        "rabbitmq_channel_get_total": 1,
        "rabbitmq_channel_get_ack_total": 1,
        "rabbitmq_channel_get_empty_total": 1,
        "rabbitmq_channel_messages_unacked": 1,
        "rabbitmq_connections_opened_total": 1,
        "rabbitmq_queues_created_total": 2,
    }
    assert {name: value(rows, name) for name in expected} == expected
    assert ("rabbitmq_queue_head_message_timestamp", frozenset()) not in rows


def test_global_counters_outlive_their_channels() -> None:
    site = busy_site()
    before = scrape(site, SUMS)
    [client] = site.world.clients.values()
    client.lose()
    after = scrape(site, SUMS)
    for rows in (before, after):
        assert value(rows, "rabbitmq_global_messages_received_total", protocol="amqp091") == 4
        assert value(rows, "rabbitmq_global_messages_routed_total", protocol="amqp091") == 3
        labels = {"protocol": "amqp091", "queue_type": "rabbit_classic_queue"}
        assert value(rows, "rabbitmq_global_messages_delivered_get_auto_ack_total", **labels) == 1
        assert value(rows, "rabbitmq_global_messages_delivered_total", **labels) == 2
    assert value(after, "rabbitmq_connections") == 0
    assert value(after, "rabbitmq_channel_messages_published_total") == 0


def test_for_how_long_the_loop_was_held() -> None:
    """In the last minute, whoever else scrapes."""
    site = busy_site()
    for _ in range(2):
        assert value(scrape(site, SUMS), "fluffle_event_loop_held_seconds") == 0.0025


def test_what_of_the_store_is_damaged() -> None:
    """Messages that were given up, files, and how far the search for rot is."""
    site = busy_site()
    names = [
        "fluffle_unreadable_messages_total",
        "fluffle_store_damaged_files",
        "fluffle_store_scrubbed_bytes_total",
        "fluffle_store_scrub_rounds_total",
        "fluffle_store_scrub_findings_total",
    ]
    before = scrape(site, SUMS)
    assert [value(before, name) for name in names] == [0] * 5
    storage, scrubbing = site.broker.storage, site.broker.storage.scrubbing
    site.broker.counters.messages_unreadable = 7
    storage.damaged_files = lambda: ["messages/1.rdq"]  # type: ignore[method-assign]
    scrubbing.checked_bytes, scrubbing.rounds, scrubbing.findings = 4096, 3, 2
    after = scrape(site, SUMS)
    assert [value(after, name) for name in names] == [7, 1, 4096, 3, 2]


def test_rows_of_objects() -> None:
    rows = scrape(busy_site(), ROWS)
    assert value(rows, "rabbitmq_queue_messages", vhost="/", queue="a") == 2
    assert value(rows, "rabbitmq_queue_messages", vhost="/", queue="b") == 0
    assert ("rabbitmq_queue_messages", frozenset()) not in rows


def test_deliveries_of_each_queue_and_publishes_to_each_exchange() -> None:
    """Under RabbitMQ 4's names: RabbitMQ 3.10 has them by channel only, with labels that no channel has here."""
    wanted = Wanted(
        "detailed", is_per_object=True, families=frozenset({"queue_delivery_metrics", "exchange_metrics"})
    )
    site = busy_site()
    rows = scrape(site, wanted)
    names = ("get", "get_ack", "get_empty", "messages_delivered", "messages_delivered_ack", "messages_acked")
    found = [value(rows, f"rabbitmq_detailed_queue_{name}_total", vhost="/", queue="a") for name in names]
    assert found == [1, 1, 0, 0, 0, 0]
    assert value(rows, "rabbitmq_detailed_queue_get_empty_total", vhost="/", queue="b") == 1
    assert value(rows, "rabbitmq_detailed_queue_messages_redelivered_total", vhost="/", queue="b") == 0
    published = "rabbitmq_detailed_exchange_messages_published_total"
    assert value(rows, published, vhost="/", exchange="") == 4
    assert not [name for name, _ in scrape(site, SUMS) if name.startswith("rabbitmq_queue_get")]
    elsewhere = replace(wanted, vhosts=frozenset({"other"}))
    assert not [name for name, labels in scrape(site, elsewhere) if labels and "detailed" in name]


PAIRS = Wanted("detailed", is_per_object=True, families=families.PAIR_FAMILIES)


def test_what_a_channel_did_with_each_exchange_and_each_queue() -> None:
    """With RabbitMQ 3.10's labels. Channels count from the first scrape on."""
    site = busy_site()
    [client] = site.world.clients.values()
    before = scrape(site, PAIRS)
    assert not [name for name, labels in before if "_detailed_channel" in name]
    client.publish(1, "a", b"1")
    client.publish(1, "nowhere", b"x")
    client.send(1, BasicGet(queue="a"))
    client.send(1, BasicGet(queue="b"))
    site.world.settle()
    rows = scrape(site, PAIRS)
    channel = {"channel": channel_name(client.channel())}
    of_exchange = {**channel, "vhost": "/", "exchange": ""}
    names = ("published", "confirmed", "unroutable_returned", "unroutable_dropped")
    found = [value(rows, f"rabbitmq_detailed_channel_messages_{name}_total", **of_exchange) for name in names]
    assert found == [2, 0, 0, 1]
    assert value(rows, "rabbitmq_detailed_channel_get_ack_total", **channel, vhost="/", queue="a") == 1
    assert value(rows, "rabbitmq_detailed_channel_get_empty_total", **channel, vhost="/", queue="b") == 1
    of_both = {**channel, "queue_vhost": "/", "queue": "a", "exchange_vhost": "/", "exchange": ""}
    assert value(rows, "rabbitmq_detailed_queue_messages_published_total", **of_both) == 1
    elsewhere = replace(PAIRS, vhosts=frozenset({"other"}))
    assert not [name for name, labels in scrape(site, elsewhere) if "_detailed_channel" in name]
    queues = replace(PAIRS, families=frozenset({"channel_queue_metrics"}))
    assert not [name for name, _ in scrape(site, queues) if "published" in name]


def test_sums_ask_no_channel_to_count_pairs() -> None:
    site = busy_site()
    coarse = Wanted("detailed", is_per_object=True, families=frozenset({"queue_coarse_metrics"}))
    for wanted in (SUMS, coarse):
        scrape(site, wanted)
        assert not site.broker.pairs.is_on
    scrape(site, ROWS)
    assert site.broker.pairs.is_on


def test_queues_that_are_left_out_of_sums() -> None:
    """`prometheus.filter_aggregated_queue_metrics_pattern`."""
    site = busy_site()
    prometheus = replace(site.config.prometheus, filter_aggregated_queue_metrics_pattern="^a")
    site.config = replace(site.config, prometheus=prometheus)
    assert value(scrape(site, SUMS), "rabbitmq_queue_messages") == 0
    assert value(scrape(site, ROWS), "rabbitmq_queue_messages", vhost="/", queue="a") == 2


@pytest.mark.parametrize("resource", ["memory", "disk"])
def test_alarms_of_this_node(resource: Any) -> None:
    site = MonitorSite()
    names = {
        "memory": "rabbitmq_alarms_memory_used_watermark",
        "disk": "rabbitmq_alarms_free_disk_space_watermark",
    }
    site.broker.alarms.set(resource, "other@node")
    assert [value(scrape(site, SUMS), name) for name in names.values()] == [0, 0]
    site.broker.alarms.set(resource)
    assert value(scrape(site, SUMS), names[resource]) == 1


def test_every_family_by_itself() -> None:
    """Under names of its own; a family that isn't there gives nothing."""
    site = busy_site()
    known = [*families.NODE_FAMILIES, *families.QUEUE_FAMILIES, *families.CHANNEL_FAMILIES]
    known += [
        *families.CONNECTION_FAMILIES,
        *CLUSTER_FAMILIES,
        MIRROR_FAMILY,
        "ra_metrics",
        "auth_attempt_metrics",
    ]
    for family in known:
        rows = scrape(site, Wanted("detailed", is_per_object=True, families=frozenset({family})))
        names = {name for name, _ in rows} - {"rabbitmq_build_info", "rabbitmq_identity_info"}
        assert all(each.startswith(("rabbitmq_detailed_", "rabbitmq_cluster_", "fluffle_")) for each in names)
        assert names or family in (
            "connection_coarse_metrics",
            "auth_attempt_metrics",
            "channel_process_metrics",
            *families.PAIR_FAMILIES,  # channels count from the first scrape on
        )
    rows = scrape(site, Wanted("detailed", is_per_object=True, families=frozenset({"nope"})))
    assert {name for name, _ in rows} == {"rabbitmq_build_info", "rabbitmq_identity_info"}


def test_telemetry_tells_of_the_scrapes_before() -> None:
    site, telemetry = MonitorSite(), Telemetry()
    telemetry.note("default", 100, 0.5)
    telemetry.note("default", 50, 0.25)
    rows = scrape(site, SUMS, telemetry)
    labels = {"registry": "default", "content_type": "text/plain; version=0.0.4"}
    assert value(rows, "telemetry_scrape_size_bytes_sum", **labels) == 150
    assert value(rows, "telemetry_scrape_duration_seconds_count", **labels) == 2


def test_the_pages() -> None:
    site = busy_site()
    caller = Caller(site, routes=routes(site.config.prometheus))
    nobody = {"authorization": ""}
    for path in ("/metrics", "/metrics/", "/metrics/per-object", "/metrics/detailed?family=queue_metrics"):
        reply = caller.ask("GET", path, headers=nobody)
        assert (reply.status, reply.content_type) == (200, "text/plain; version=0.0.4"), path
    assert caller.ask("GET", "/metrics/nope", headers=nobody).status == 404
    assert caller.ask("GET", "/api/overview").status == 404
    site.node = None
    assert caller.ask("GET", "/metrics", headers=nobody).status == 503


def test_another_path() -> None:
    site = MonitorSite()
    config = replace(site.config.prometheus, path="/a/b", return_per_object_metrics=True)
    caller = Caller(busy_site(), routes=routes(config))
    text = b"".join(caller.ask("GET", "/a/b").body or ()).decode()  # type: ignore[arg-type]
    assert 'rabbitmq_queue_messages{vhost="/",queue="a"} 2' in text


def test_the_loop_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of queues: a piece at a time, with turns of others between."""
    monkeypatch.setattr(turns, "SLICE_S", 0.0)
    world = World()
    site = MonitorSite(world)
    client = world.client()
    for number in range(1000):
        client.send(1, QueueDeclare(queue=f"q{number}"))
    world.settle()
    looks = 0

    async def look() -> None:
        nonlocal looks
        scraping = asyncio.create_task(Scrape(site, site.node, ROWS).pieces(Telemetry()))
        while not scraping.done():
            await asyncio.sleep(0)
            looks += 1
        await scraping

    asyncio.run(look())
    assert looks > 1000


def test_faults_of_plugins_are_counted_once_there_are_some() -> None:
    site = MonitorSite()
    assert "fluffle_plugin_failures_total" not in {name for name, _ in scrape(site, SUMS)}
    site.world.broker.exchange_types.failures["mine"] = 3
    assert value(scrape(site, SUMS), "fluffle_plugin_failures_total", plugin="mine") == 3
