"""Metrics of shovels and links: sums and rows, bounded, and nothing at all while their plug-ins are off."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from node.federation.metrics import link_metrics
from node.management.link_metrics import FEDERATION_FAMILY, SHOVEL_FAMILY
from node.management.prometheus import Scrape, Telemetry, Wanted
from node.shovels.definition import ShovelKey, read_definition
from node.shovels.metrics import shovel_metrics
from node.shovels.shovels import Shovels
from tests.kit.monitor_site import SUMS, MonitorSite
from tests.kit.shovel_world import ShovelScene
from tests.node.federation.sites import Sites

ROWS = Wanted("per-object", is_per_object=True)
DETAILED = Wanted("detailed", is_per_object=True, families=frozenset({SHOVEL_FAMILY, FEDERATION_FAMILY}))
VALUE = {"src-uri": "amqp://a", "dest-uri": "amqp://b", "src-queue": "q", "dest-queue": "r"}


class _Service:
    """A plug-in's service with numbers.   asked: whether rows were asked for, each time."""

    def __init__(self, numbers: Any) -> None:
        self.asked: list[bool] = []
        self._numbers = numbers

    def answer(self, question: str, arguments: Mapping[str, Any]) -> Any:
        assert question == "metrics"
        self.asked.append(arguments["has_rows"])
        return self._numbers(has_rows=arguments["has_rows"])


class _Host(ShovelScene):
    node = "n1"


def _shovels() -> Shovels:
    """Return two shovels that run, of which one has moved three messages, and one that does not."""
    host = _Host()
    host.fill(b"1", b"2", b"3")
    values = {
        "good": VALUE,
        "idle": {**VALUE, "src-queue": "i"},
        "bad": {**VALUE, "dest-uri": "amqp://nowhere"},
    }
    facts = SimpleNamespace(
        members={},
        vhosts=lambda: [SimpleNamespace(name="/")],
        parameters=lambda vhost: {("shovel", name): value for name, value in values.items()},
    )
    static = [read_definition(ShovelKey("", "fixed"), {**VALUE, "src-queue": "f"}, "static")]
    shovels = Shovels(facts, host, static)  # type: ignore[arg-type]
    shovels.begin()
    host.settle()
    return shovels


def _links() -> Sites:
    """Return two sites: a message has come down from `up`, and one upstream cannot be reached."""
    sites = Sites()
    up, down = sites.site("up"), sites.site("down")
    down.exchange("x", "fanout")
    down.queue("q", "", exchange="x")
    down.set_upstream("u", up)
    down.set_upstream("none", "amqp://none")
    down.set_policy("^x$", "all")
    sites.settle()
    up.client.publish(1, "", b"m", exchange="x")
    sites.settle()
    return sites


def _site() -> tuple[MonitorSite, dict[str, _Service]]:
    shovels, links = _shovels(), _links().by_name["down"].links
    services = {
        "rabbitmq_shovel": _Service(lambda has_rows: shovel_metrics(shovels, has_rows=has_rows)),
        "rabbitmq_federation": _Service(lambda has_rows: link_metrics(links, has_rows=has_rows)),
    }
    site = MonitorSite()
    site.node.services = SimpleNamespace(find=services.get)
    return site, services


def _scrape(site: MonitorSite, wanted: Wanted) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    pieces = asyncio.run(Scrape(site, site.node, wanted).pieces(Telemetry()))
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(b"".join(pieces).decode())
        for sample in family.samples
        if "shovel" in sample.name or "federation" in sample.name
    }


def test_nothing_while_the_plugins_are_off() -> None:
    """A node without services has no such metric, nor has one whose plug-ins are off."""
    site, _ = _site()
    for services in (None, SimpleNamespace(find=lambda plugin: None)):
        site.node.services = services
        assert not any(_scrape(site, wanted) for wanted in (SUMS, ROWS, DETAILED))


def test_sums_have_states_and_totals_and_ask_for_no_rows() -> None:
    """`/metrics` counts states under RabbitMQ 4's names, and messages under ours."""
    site, services = _site()
    found = _scrape(site, SUMS)
    assert found["rabbitmq_shovel_dynamic", frozenset({("status", "running")})] == 2
    assert found["rabbitmq_shovel_dynamic", frozenset({("status", "terminated")})] == 1
    assert found["rabbitmq_shovel_static", frozenset({("status", "running")})] == 1
    assert found["rabbitmq_federation_links", frozenset({("status", "running")})] == 1
    assert found["rabbitmq_federation_links", frozenset({("status", "error")})] == 1
    nothing: frozenset[tuple[str, str]] = frozenset()
    assert found["fluffle_shovel_messages_forwarded_total", nothing] == 3
    assert found["fluffle_shovel_messages_confirmed_total", nothing] == 3
    assert found["fluffle_shovel_failures_total", nothing] == 1
    assert found["fluffle_federation_messages_taken_total", nothing] == 1
    assert found["fluffle_federation_failures_total", nothing] >= 1
    assert all(service.asked == [False] for service in services.values())


def test_rows_have_labels_and_say_what_runs() -> None:
    """Each shovel and each link has its rows, on `/metrics/per-object` and by family."""
    site, _ = _site()
    for wanted in (ROWS, DETAILED):
        found = _scrape(site, wanted)
        good = frozenset({("vhost", "/"), ("shovel", "good")})
        bad = frozenset({("vhost", "/"), ("shovel", "bad")})
        assert found["fluffle_shovel_messages_forwarded_total", good] == 3
        assert (found["fluffle_shovel_running", good], found["fluffle_shovel_running", bad]) == (1, 0)
        assert found["fluffle_shovel_running", frozenset({("vhost", ""), ("shovel", "fixed")})] == 1
        link = {("vhost", "/"), ("exchange", "x"), ("upstream", "u"), ("upstream_exchange", "x")}
        assert found["fluffle_federation_messages_taken_total", frozenset(link)] == 1
        assert found["fluffle_shovel_rows_left_out", frozenset()] == 0
    prefix = "rabbitmq_detailed_"
    assert found[f"{prefix}shovel_dynamic", frozenset({("status", "running")})] == 2


def test_families_and_vhosts_narrow_a_scrape() -> None:
    """One family asks one plug-in, and another vhost has no rows."""
    site, services = _site()
    found = _scrape(site, replace(DETAILED, families=frozenset({SHOVEL_FAMILY})))
    assert found
    assert not [name for name, _ in found if "federation" in name]
    assert services["rabbitmq_federation"].asked == []
    elsewhere = _scrape(site, replace(DETAILED, vhosts=frozenset({"other"})))
    assert not [name for name, labels in elsewhere if dict(labels).get("vhost")]
