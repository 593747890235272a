"""Numbers of shovels: totals never shrink, and rows are bounded."""

from collections.abc import Callable
from typing import Any

import pytest

from node.catalogue import events
from node.catalogue.records import Vhost
from node.shovels import metrics
from node.shovels.metrics import shovel_metrics
from node.shovels.shovels import Shovels
from tests.kit.shovel_world import ShovelScene

VALUE = {"src-uri": "amqp://a", "dest-uri": "amqp://b", "src-queue": "q", "dest-queue": "r"}


class _Facts:
    def __init__(self) -> None:
        self.members: dict[str, Any] = {}
        self.table: dict[tuple[str, str], Any] = {}

    def vhosts(self) -> list[Vhost]:
        return [Vhost("/")]

    def parameters(self, vhost: str) -> dict[tuple[str, str], Any]:
        return self.table


class _Host(ShovelScene):
    node = "n1"


def _scene() -> tuple[_Host, Shovels, Callable[[str, Any], None]]:
    facts, host = _Facts(), _Host()
    shovels = Shovels(facts, host)

    def put(name: str, value: Any) -> None:
        facts.table.pop(("shovel", name), None)
        if value is not None:
            facts.table["shovel", name] = value
        shovels.changed(events.ParameterChanged("/", "shovel", name))
        host.settle()

    return host, shovels, put


def test_totals_keep_what_shovels_did_that_were_changed_or_deleted() -> None:
    host, shovels, put = _scene()
    host.fill(b"1", b"2")
    put("s", VALUE)
    assert shovel_metrics(shovels, has_rows=False)["totals"]["confirmed"] == 2
    put("s", {**VALUE, "dest-queue": "other"})
    host.fill(b"3")
    host.settle()
    found = shovel_metrics(shovels, has_rows=True)
    assert [row["confirmed"] for row in found["rows"]] == [1]
    assert found["totals"] == {"forwarded": 3, "confirmed": 3, "refused": 0, "failures": 0}
    put("s", None)
    found = shovel_metrics(shovels, has_rows=True)
    assert found["rows"] == []
    assert found["totals"]["confirmed"] == 3
    assert found["states"]["dynamic"] == {"starting": 0, "running": 0, "terminated": 0}


def test_rows_are_bounded_and_the_same_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "ROWS_MAX", 2)
    _, shovels, put = _scene()
    for name in ("c", "a", "b"):
        put(name, {**VALUE, "src-queue": name})
    found = shovel_metrics(shovels, has_rows=True)
    assert [row["name"] for row in found["rows"]] == ["a", "b"]
    assert found["left_out"] == 1
    assert found["states"]["dynamic"]["running"] == 3
