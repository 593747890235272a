"""The numbers of a node's links, as a monitor asks for them: states, totals that never shrink, a row for each.

Rows are bounded, so that a scrape of thousands of links stays small: those that are left out count in the totals.
"""

from collections import Counter
from typing import Any, Final

from node.federation.link import COUNTED
from node.federation.links import Links

ROWS_MAX: Final = 1000
"""The most links of a node that have rows of their own, by vhost, kind, name and upstream."""

STATES: Final = ("starting", "running", "error", "shutdown", "downstream_channel_down")
"""The words with which `Status.status` says how a link fares; all but the first two say that it is down."""


def link_metrics(links: Links, *, has_rows: bool) -> dict[str, Any]:
    """Return the numbers as JSON.   has_rows: with a row for each link, up to `ROWS_MAX`.

    `states`: how many links are in a state.   `totals`: of all links since the plug-in was enabled here, also of those
    that have ended or moved.   `left_out`: the links without a row.
    """
    counted = Counter(life.status.status for life in links)
    assert counted.keys() <= set(STATES)
    totals = links.totals()
    found: dict[str, Any] = {
        "states": {state: counted[state] for state in STATES},
        "totals": {name: getattr(totals, name) for name in COUNTED},
        "rows": [],
        "left_out": 0,
    }
    if has_rows:
        lives = sorted(links, key=lambda life: life.link.key)
        found["left_out"] = max(len(lives) - ROWS_MAX, 0)
        for life in lives[:ROWS_MAX]:
            key = life.link.key
            found["rows"].append(
                {
                    "vhost": key.of.vhost,
                    "kind": key.of.kind,
                    "name": key.of.name,
                    "upstream": key.upstream,
                    "upstream_name": key.upstream_name,
                    "is_running": life.status.status == "running",
                    **{name: getattr(life.counters, name) for name in COUNTED},
                }
            )
    return found
