"""The dashboard for our own metrics asks for what a scrape has."""

import asyncio
import re
from typing import get_args

from cluster.mirror.mirror_events import Kind
from node.management.prometheus import Scrape, Telemetry
from tests.kit.dashboard import queries
from tests.kit.monitor_site import SUMS, busy_site


def test_every_metric_of_the_dashboard_is_there() -> None:
    site, telemetry = busy_site(), Telemetry()
    telemetry.note("default", 100, 0.5)
    page = b"".join(asyncio.run(Scrape(site, site.node, SUMS).pieces(telemetry))).decode()
    there = set(re.findall(r"^# TYPE (\S+)", page, re.MULTILINE))
    there |= {f"{name}{end}" for name in there for end in ("_sum", "_count")}
    asked = {
        name
        for query in queries()
        for name in re.findall(r"\b(?:fluffle|rabbitmq|process|python|telemetry)_\w+", query)
    }
    assert len(asked) > 10
    assert asked - there - {"rabbitmq_node", "rabbitmq_cluster"} == set()


def test_every_kind_of_event_of_the_dashboard_is_there() -> None:
    kinds = get_args(Kind)
    patterns = [each for query in queries() for each in re.findall(r'kind=~?"([^"]+)"', query)]
    assert len(patterns) == 3
    for pattern in patterns:
        for each in pattern.split("|"):
            assert any(re.fullmatch(each, kind) for kind in kinds), each


def test_each_query_is_of_the_chosen_cluster_and_its_brackets_match() -> None:
    for query in queries():
        assert 'rabbitmq_identity_info{rabbitmq_cluster="$cluster"}' in query
        for opening, closing in ("()", "[]", "{}"):
            assert query.count(opening) == query.count(closing)
