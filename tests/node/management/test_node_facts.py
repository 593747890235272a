"""A node tells what it is and what it uses (management §1.2)."""

from dataclasses import replace
from typing import Any

import pytest

from node.catalogue.commands import EnablePlugin
from node.config.config import ManagementConfig, PrometheusConfig
from node.config.plugins import FOR_ALL_NODES, PLUGINS
from node.config.values import Address
from node.io.plugin_packages import load_plugin
from node.management import node_facts
from node.queue.counters import DiskCounters
from node.statistics.query import Query, Range, Ranges
from node.statistics.statistics import Statistics, StatisticsOptions
from tests.kit.fake_site import NODE
from tests.kit.monitor_site import MonitorSite, listener
from tests.kit.statistics_samples import TIME_MS
from tests.kit.world import START, World


def facts(site: MonitorSite, query: Query | None = None) -> dict[str, Any]:
    return node_facts.node_facts(site.node, site.status(), site.statistics, query or Query())


def test_what_a_node_is() -> None:
    found = facts(MonitorSite())
    assert (found["name"], found["type"], found["running"], found["being_drained"]) == (
        NODE,
        "disc",
        True,
        False,
    )
    assert (found["uptime"], found["net_ticktime"]) == (12_000, 4)
    assert (found["mem_alarm"], found["disk_free_alarm"], found["partitions"]) == (False, False, [])
    assert found["mem_used"] > 0
    assert "memory" not in found


def test_alarms() -> None:
    site = MonitorSite()
    site.broker.alarms.set("disk")
    site.broker.alarms.set("memory", "other@node")
    found = facts(site)
    assert (found["mem_alarm"], found["disk_free_alarm"]) == (False, True)


def test_every_measure_is_shown_with_its_rate() -> None:
    site = MonitorSite()
    names = node_facts.measure(site.node)
    found = facts(site)
    assert all(isinstance(value, int) for value in names.values())
    shown = [name for name in names if not name.endswith("_time_us")]
    assert [name for name in shown if "rate" not in found[f"{name}_details"]] == []
    assert [name for name in found if name.endswith("_us")] == []


class Ticking:
    """A node whose statistics are taken by hand."""

    def __init__(self) -> None:
        self.world = World()
        self.node = MonitorSite(self.world).node
        self.octets: dict[str, tuple[int, ...]] = {}
        self.statistics = Statistics(
            self.world.broker,
            StatisticsOptions(),
            measure=lambda: node_facts.measure(self.node),
            links=lambda: self.octets,
        )

    def tick(self) -> None:
        self.world.advance(5)
        for _ in self.statistics.sample(self.world.now, TIME_MS + round((self.world.now - START) * 1000)):
            pass

    def facts(self, query: Query | None = None, **status: Any) -> dict[str, Any]:
        known = {**MonitorSite().status(), **status}
        return node_facts.node_facts(self.node, known, self.statistics, query or Query())


def test_mean_times_of_the_disk_are_followed_over_time() -> None:
    """Each sample is of the operations since the one before."""
    found_on, counters = Ticking(), DiskCounters()
    found_on.world.broker.storage.counters = counters  # type: ignore[attr-defined]
    for step in range(4):
        counters.io_write_count = 10 * step
        counters.io_write_time = 0.02 * step if step < 3 else 0.14
        found_on.tick()
    found = found_on.facts(Query(ranges=Ranges(node_stats=Range(10, 5))))
    assert found["io_write_avg_time"] == pytest.approx(140 / 30)
    samples = [each["sample"] for each in found["io_write_avg_time_details"]["samples"]]
    assert samples == [pytest.approx(10.0), pytest.approx(2.0)]
    assert [each["sample"] for each in found["io_read_avg_time_details"]["samples"]] == [0.0, 0.0]
    assert found_on.facts()["io_write_avg_time_details"] == {"rate": 0.0}


def test_how_late_the_event_loop_was() -> None:
    found_on, lags = Ticking(), iter((0, 2_500, 40_000))
    measured = found_on.statistics.measure
    assert measured is not None
    found_on.statistics.measure = lambda: {**measured(), node_facts.LOOP_LAG_US: next(lags)}
    for _ in range(3):
        found_on.tick()
    found = found_on.facts(Query(ranges=Ranges(node_stats=Range(10, 5))), loop_lag_ms=40.0)
    assert found["loop_lag"] == 40.0
    assert [each["sample"] for each in found["loop_lag_details"]["samples"]] == [40.0, 2.5, 0.0]
    assert found_on.facts()["loop_lag_details"] == {"rate": 0.0}


def test_links_to_other_nodes_and_what_goes_over_them() -> None:
    found_on = Ticking()
    link = {
        "name": "n2@h",
        "peer_addr": "10.0.0.2",
        "peer_port": 25672,
        "sock_addr": "10.0.0.1",
        "sock_port": 25672,
    }
    for octets in ((1000, 0), (6000, 500)):
        found_on.octets = {"n2@h": octets}
        found_on.tick()
    found = found_on.facts(links=[{**link, "send_bytes": 6000, "recv_bytes": 500}])
    assert found["cluster_links"] == [
        {
            **link,
            "send_bytes": 6000,
            "recv_bytes": 500,
            "stats": {
                "send_bytes": 6000,
                "send_bytes_details": {"rate": 1000.0},
                "recv_bytes": 500,
                "recv_bytes_details": {"rate": 100.0},
            },
        }
    ]


def test_only_what_is_asked_for() -> None:
    found = facts(MonitorSite(), Query(fields=frozenset({"name", "memory"})))
    assert set(found) == {"name", "memory"}


def test_clients_count() -> None:
    world = World()
    site = MonitorSite(world)
    world.client().channel(1)
    found = facts(site)
    assert (found["connection_created"], found["channel_created"], found["sockets_used"]) == (1, 1, 1)
    assert found["proc_used"] == 3


def test_memory_adds_up() -> None:
    memory = node_facts.memory_breakdown(MonitorSite().node)
    parts = sum(value for value in memory.values() if isinstance(value, int))
    assert parts == memory["total"]["rss"]
    shares = node_facts.relative({**memory, "binary": 1})
    assert (shares["total"], shares["binary"], shares["atom"]) == (100, 1, 0)
    assert shares["other_system"] >= 99


@pytest.mark.parametrize(
    ("plugins", "is_on", "expected"),
    [
        (None, True, ["rabbitmq_management", "rabbitmq_prometheus"]),
        (None, False, ["rabbitmq_prometheus"]),
        (("rabbitmq_top", "rabbitmq_management"), True, ["rabbitmq_management", "rabbitmq_top"]),
    ],
)
def test_enabled_plugins(plugins: tuple[str, ...] | None, is_on: bool, expected: list[str]) -> None:
    """The enabled plug-ins are those in the file, or those that are on."""
    config = replace(
        MonitorSite().config,
        enabled_plugins=plugins,
        management=ManagementConfig(listen=Address("", 1) if is_on else None),
        prometheus=PrometheusConfig(listen=Address("", 2)),
    )
    assert node_facts.enabled_plugins(config) == expected


def test_every_plugin_is_an_application() -> None:
    """Whatever is on is shown (`/nodes`, `/metrics`), what is for all nodes once the cluster has enabled it."""
    site = MonitorSite()
    site.node.config = replace(site.node.config, enabled_plugins=(*PLUGINS, "rabbitmq_shovel"))
    shown = {each["name"] for each in facts(site)["applications"]}
    assert shown == {"fluffle", "rabbit", *PLUGINS}.difference(FOR_ALL_NODES)
    site.world.broker.exchange_types._load = load_plugin
    for name in FOR_ALL_NODES:
        plugin = load_plugin(name)
        assert plugin is not None
        site.world.submit(EnablePlugin(name, tuple(each.name for each in plugin.exchange_types)))
    assert {each["name"] for each in facts(site)["applications"]} == {"fluffle", "rabbit", *PLUGINS}


def test_contexts() -> None:
    plain = node_facts.context_of(listener("http", 15672))
    assert (plain["description"], plain["port"], plain["ip"]) == ("RabbitMQ Management", "15672", "127.0.0.1")
    assert "protocol" not in plain
    tls = node_facts.context_of(listener("https/prometheus", 1))
    assert (tls["description"], tls["protocol"]) == ("RabbitMQ Prometheus", "'https/prometheus'")


def test_a_stopped_node() -> None:
    assert node_facts.stopped_node("n", "ram") == {"name": "n", "type": "ram", "running": False}


def test_how_far_the_search_for_rot_is() -> None:
    """`last_round` is null before there was one."""
    site = MonitorSite()
    assert facts(site)["store_scrub"] == {
        "rate": 1 << 20,
        "rounds": 0,
        "last_round": None,
        "checked_bytes": 0,
        "findings": 0,
        "damaged_files": 0,
    }
    site.broker.storage.scrubbing.last_round_s = 1_700_000_000.5
    assert facts(site)["store_scrub"]["last_round"] == 1_700_000_000_500


def test_exchange_types_of_plugins_are_shown() -> None:
    """A plug-in that this node lacks is enabled, and has no type here."""
    site = MonitorSite()
    site.node.config = replace(site.node.config, enabled_plugins=("rabbitmq_sharding",))
    assert facts(site)["enabled_plugins"] == []
    site.world.submit(EnablePlugin("rabbitmq_sharding", ("x-modulus-hash",)))
    site.world.submit(EnablePlugin("absent", ("x-absent",)))
    found = facts(site)
    assert found["enabled_plugins"] == ["absent", "rabbitmq_sharding"]
    names = [each["name"] for each in found["exchange_types"]]
    own = ["x-delayed-message", "x-message-deduplication", "x-recent-history"]
    assert names == ["direct", "fanout", "headers", "topic", *own, "x-modulus-hash"]
    assert node_facts.active_plugins(site.node.config, site.node.broker) == ["rabbitmq_sharding"]
    assert node_facts.active_plugins(site.node.config, None) == []
