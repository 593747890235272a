"""Numbers of links: totals never shrink, and rows are bounded."""

import pytest

from node.catalogue.commands import ClearPolicy
from node.federation import metrics
from node.federation.metrics import link_metrics
from tests.node.federation.sites import Site, Sites


def _sites(*exchanges: str) -> tuple[Sites, Site, Site]:
    sites = Sites()
    up, down = sites.site("up"), sites.site("down")
    for name in exchanges:
        down.exchange(name, "fanout")
        down.queue(f"q.{name}", "", exchange=name)
    down.set_upstream("u", up)
    down.set_policy("^x", "u")
    sites.settle()
    return sites, up, down


def test_totals_keep_what_links_did_that_are_no_more() -> None:
    sites, up, down = _sites("x")
    up.client.publish(1, "", b"1", b"2", exchange="x")
    sites.settle()
    found = link_metrics(down.links, has_rows=True)
    assert found["states"]["running"] == 1
    (row,) = found["rows"]
    assert (row["kind"], row["name"], row["upstream"], row["taken"]) == ("exchange", "x", "u", 2)
    down.world.submit(ClearPolicy("/", "fed"))
    sites.settle()
    found = link_metrics(down.links, has_rows=True)
    assert found["rows"] == []
    assert found["totals"]["taken"] == 2


def test_rows_are_bounded_and_the_same_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "ROWS_MAX", 2)
    _, _, down = _sites("x3", "x1", "x2")
    found = link_metrics(down.links, has_rows=True)
    assert [row["name"] for row in found["rows"]] == ["x1", "x2"]
    assert found["left_out"] == 1
    assert found["states"]["running"] == 3
