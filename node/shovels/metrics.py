"""The numbers of a node's shovels, as a monitor asks for them: states, totals that never shrink, a row for each.

Rows are bounded, so that a scrape of thousands of shovels stays small: those that are left out count in the totals.
"""

from collections import Counter
from typing import Any, Final

from node.shovels.definition import Type
from node.shovels.session import COUNTED
from node.shovels.shovels import Shovels
from node.shovels.status import State

ROWS_MAX: Final = 1000
"""The most shovels of a node that have rows of their own, by vhost and name."""

STATES: Final[tuple[State, ...]] = ("starting", "running", "terminated")
TYPES: Final[tuple[Type, ...]] = ("dynamic", "static")


def shovel_metrics(shovels: Shovels, *, has_rows: bool) -> dict[str, Any]:
    """Return the numbers as JSON.   has_rows: with a row for each shovel, up to `ROWS_MAX`.

    `states`: how many shovels of a type are in a state.   `totals`: of all shovels since the plug-in was enabled here,
    also of those that have ended or moved.   `left_out`: the shovels without a row.
    """
    counted = Counter((life.status.type, life.status.state) for life in shovels)
    totals = shovels.totals()
    found: dict[str, Any] = {
        "states": {type_: {state: counted[type_, state] for state in STATES} for type_ in TYPES},
        "totals": {name: getattr(totals, name) for name in COUNTED},
        "rows": [],
        "left_out": 0,
    }
    if has_rows:
        lives = sorted(shovels, key=lambda life: life.definition.key)
        found["left_out"] = max(len(lives) - ROWS_MAX, 0)
        found["rows"] = [
            {
                "vhost": life.definition.key.vhost,
                "name": life.definition.key.name,
                "is_running": life.status.state == "running",
                **{name: getattr(life.counters, name) for name in COUNTED},
            }
            for life in lives[:ROWS_MAX]
        ]
    return found
