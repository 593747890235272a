"""Columns of shovels and links in the row of a node: sums of all states, and none while their plug-ins are off."""

from types import SimpleNamespace
from typing import Any

from node.telemetry.links import link_columns

TOTALS = {"failures": 4, "refused": 1}
SHOVEL = {
    "states": {
        "dynamic": {"starting": 1, "running": 2, "terminated": 3},
        "static": {"starting": 0, "running": 5, "terminated": 0},
    },
    "totals": {"forwarded": 9, **TOTALS},
}
LINK = {"states": {"starting": 0, "running": 7, "error": 1, "shutdown": 1}, "totals": {"taken": 8, **TOTALS}}


def _services(**numbers: Any) -> Any:
    """Return services of the plug-ins that are named."""

    def find(plugin: str) -> Any:
        found = numbers.get(plugin)
        return None if found is None else SimpleNamespace(answer=lambda question, arguments: found)

    return SimpleNamespace(find=find)


def test_columns_of_enabled_plug_ins() -> None:
    assert link_columns(_services(rabbitmq_shovel=SHOVEL, rabbitmq_federation=LINK)) == {
        "rabbitmq_shovel.running": 7,
        "rabbitmq_shovel.not_running": 4,
        "rabbitmq_shovel.forwarded_total": 9,
        "rabbitmq_shovel.failures_total": 4,
        "rabbitmq_shovel.refused_total": 1,
        "rabbitmq_federation.running": 7,
        "rabbitmq_federation.not_running": 2,
        "rabbitmq_federation.taken_total": 8,
        "rabbitmq_federation.failures_total": 4,
        "rabbitmq_federation.refused_total": 1,
    }
    assert set(link_columns(_services(rabbitmq_federation=LINK))) == {
        f"rabbitmq_federation.{name}"
        for name in ("running", "not_running", "taken_total", "failures_total", "refused_total")
    }


def test_no_columns_while_the_plug_ins_are_off() -> None:
    assert link_columns(None) == {}
    assert link_columns(_services()) == {}
