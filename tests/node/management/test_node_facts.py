"""What a node is and uses (management §1.2)."""

from dataclasses import replace
from typing import Any

import pytest

from node.config import ManagementConfig, PrometheusConfig
from node.config_plugins import PLUGINS
from node.config_values import Address
from node.management import node_facts
from node.statistics.query import Query
from tests.node.broker.harness import World
from tests.node.management.fake_site import NODE
from tests.node.management.monitor_site import MonitorSite, listener


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
    assert [name for name in names if "rate" not in found[f"{name}_details"]] == []


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
        (("rabbitmq_shovel", "rabbitmq_management"), True, ["rabbitmq_management", "rabbitmq_shovel"]),
    ],
)
def test_enabled_plugins(plugins: tuple[str, ...] | None, is_on: bool, expected: list[str]) -> None:
    """What the file says, or what is on."""
    config = replace(
        MonitorSite().config,
        enabled_plugins=plugins,
        management=ManagementConfig(listen=Address("", 1) if is_on else None),
        prometheus=PrometheusConfig(listen=Address("", 2)),
    )
    assert node_facts.enabled_plugins(config) == expected


def test_every_plugin_is_an_application() -> None:
    """Whatever may be enabled is shown (`/nodes`, `/metrics`)."""
    site = MonitorSite()
    site.node.config = replace(site.node.config, enabled_plugins=(*PLUGINS, "rabbitmq_shovel"))
    assert {each["name"] for each in facts(site)["applications"]} == {"fluffle", "rabbit", *PLUGINS}


def test_contexts() -> None:
    plain = node_facts.context_of(listener("http", 15672))
    assert (plain["description"], plain["port"], plain["ip"]) == ("RabbitMQ Management", "15672", "127.0.0.1")
    assert "protocol" not in plain
    tls = node_facts.context_of(listener("https/prometheus", 1))
    assert (tls["description"], tls["protocol"]) == ("RabbitMQ Prometheus", "'https/prometheus'")


def test_a_stopped_node() -> None:
    assert node_facts.stopped_node("n", "ram") == {"name": "n", "type": "ram", "running": False}
