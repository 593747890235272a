"""Add up the rows of one object from several nodes. Source: management §1.1, §1.4, §1.9."""

from collections.abc import Sequence
from typing import Any, Final

from node.catalogue.records import Json

DETAILS: Final = "_details"
KNOWN_SINCE: Final = "known_since"
ASKED_SINCE: Final = "asked_since"
"""Keys of `X_details`, in ms, whose samples go back less far than was asked for, as no node knows the earlier ones."""

_NESTED: Final = frozenset({"message_stats", "churn_rates", "queue_totals", "object_totals", "stats"})
"""Objects whose numbers are added up as well."""

_ADDED: Final = frozenset(
    {"messages", "messages_ready", "messages_unacknowledged", "recv_oct", "send_oct", "consumers"}
)
"""Other numbers that are added up; in `_NESTED` all are but `_SAME`."""

_SAME: Final = frozenset({"exchanges", "queues"})
"""Numbers in object_totals that are not added: each node has the cluster's number."""

_JOINED: Final = frozenset({"consumer_details", "incoming", "outgoing", "deliveries", "publishes"})
"""Lists that are put together."""


def add_up(rows: Sequence[dict[str, Json]]) -> dict[str, Json]:
    """Add up the rows of several nodes: counters, rates and samples are added, of the rest the first one counts.

    Lists of the nodes' own parts (consumers, channels) are put together, and objects with a key for each node.
    """
    if len(rows) == 1:
        return rows[0]
    return _add(rows, is_nested=False)


def _add(rows: Sequence[Any], *, is_nested: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in dict.fromkeys(key for row in rows for key in row):
        values = [row[key] for row in rows if key in row]
        found[key] = values[0] if len(values) == 1 else _sum(key, values, is_nested=is_nested)
    return found


def _sum(key: str, values: list[Any], *, is_nested: bool) -> Any:
    if key in _NESTED:
        return _add(values, is_nested=True)
    if key.endswith(DETAILS) and all(isinstance(value, dict) and "rate" in value for value in values):
        return add_details(values)
    if key in _JOINED:
        return [each for value in values for each in value]
    if key == "cluster_state":
        return {node: state for value in values for node, state in value.items()}
    if key in _ADDED or (is_nested and key not in _SAME):
        return sum(value for value in values if isinstance(value, int | float))
    return values[0]


def add_details(values: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Add up `X_details` of several nodes: rates and samples are added, means computed anew.

    Where a node's newest sample is older than another's, it counts on. For times that are older than a node's oldest
    sample there is no sum: its window begins later, or it does not know the earlier values.
    """
    total: dict[str, Any] = {"rate": sum(value["rate"] for value in values)}
    series = [value["samples"] for value in values if value.get("samples")]
    if series:
        since = max(samples[-1]["timestamp"] for samples in series)
        found = {each["timestamp"] for samples in series for each in samples}
        times = sorted((time for time in found if time >= since), reverse=True)
        sums = dict.fromkeys(times, 0)
        for samples in series:
            by_time = {each["timestamp"]: each["sample"] for each in samples}
            last, newest = samples[0]["sample"], samples[0]["timestamp"]
            for time in times:
                sums[time] += last if time > newest else by_time.get(time, 0)
        total.update(means([(time, sums[time]) for time in times]))
    if any(KNOWN_SINCE in value for value in values):
        total[KNOWN_SINCE] = max(value.get(KNOWN_SINCE, 0) for value in values)
        total[ASKED_SINCE] = min(value[ASKED_SINCE] for value in values if ASKED_SINCE in value)
    return total


def means(samples: Sequence[tuple[int, float]]) -> dict[str, Any]:
    """Return the samples of `X_details` with their means.   samples: time in ms, value; the newest first."""
    found: dict[str, Any] = {"samples": [{"sample": value, "timestamp": time} for time, value in samples]}
    if len(samples) > 1:
        (last, newest), (first, oldest) = samples[0], samples[-1]
        found["avg"] = sum(value for _, value in samples) / len(samples)
        found["avg_rate"] = (newest - oldest) * 1000 / (last - first)
    return found
