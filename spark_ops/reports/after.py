"""The comparison of a plan's prediction with later measurements: per node and per queue, with the errors.

A plan predicts from the load of its own window. A change of the whole cluster's load since then is not an error of
the plan: `cpu_expected` is the prediction scaled by that change, and errors are measured against it.
The document is kept next to the plan as `<plan>.after.json`.
Source: spark §3.4 (Verify).
"""

import math
from typing import Any, Final

from spark_ops.planning.capacities import capacities_from, with_capacities
from spark_ops.planning.rows import ClusterRows, QueueRow
from spark_ops.reports.figures import iso
from spark_ops.reports.moves import moves_of

FORMAT: Final = "spark-ops-after/1"

NEAR_ENOUGH: Final = 0.25
"""A plan came as predicted if the share of the promised change that came differs from 1 by at most this."""
UNSURE: Final = 0.25
"""If the standard error of that share is larger, the promised change was too small to judge whether it came."""

COVERAGE_MIN: Final = 0.95
"""The least coverage with which loads are compared."""


def compare(plan: dict[str, Any], rows: ClusterRows, *, created: str) -> dict[str, Any]:
    """Return the document that compares prediction and measurement.

    rows: of a window after the plan was carried out.   created: ISO, UTC.
    Raises: ValueError if the rows are from another cluster, or the plan's capacities are invalid.
    """
    if rows.cluster != plan.get("cluster"):
        raise ValueError(f"the plan is for the cluster {plan.get('cluster')}, not for {rows.cluster}")
    # The prediction's shares are of the capacities that the plan was given, so the measured ones are, too.
    given = capacities_from((plan.get("inputs") or {}).get("capacity") or {})
    there = {node.node for node in rows.nodes}
    rows = with_capacities(rows, [each for each in given if each.node in there])
    is_known = rows.coverage >= COVERAGE_MIN
    measured = node_loads(rows) if is_known else {}
    nodes = _nodes(plan, rows, measured)
    queues = _queues(plan, rows)
    gone = sum(not queue["is_there"] for queue in queues)
    arrived = sum(bool(queue["is_arrived"]) for queue in queues)
    errors = [abs(node["cpu_error"]) for node in nodes if node["cpu_error"] is not None]
    error = {
        "cpu_mean": math.fsum(errors) / len(errors) if errors else None,
        "cpu_max": max(errors, default=None),
        "load_change": _load_change(plan, measured),
    }
    promise = _promise(nodes)
    return {
        "format": FORMAT,
        "plan_id": plan.get("plan_id"),
        "cluster": rows.cluster,
        "created": created,
        "window": [iso(at) for at in rows.window],
        "coverage": rows.coverage,
        "nodes": nodes,
        "queues": queues,
        "moves": {"planned": len(queues), "arrived": arrived, "gone": gone},
        "balance": _balance(nodes),
        "error": error,
        "promise": promise,
        "is_as_predicted": promise["verdict"] == "came" and arrived + gone == len(queues),
    }


def _promise(nodes: list[dict[str, Any]]) -> dict[str, Any]:
    """Return which share of the promised change of the nodes' CPU came, with its standard error and a verdict.

    The change of each node is measured against its load before, scaled to the cluster's load now. The share is the
    slope of the measured changes over the promised ones; what the line does not explain is noise. Capacities play no
    part, so a plan for an idle cluster is judged by what it promised, too.
    noise: standard deviation of a node's CPU around that line, as a share of its cores.
    verdict: `came`, `did-not-come`, `too-small` (noise is larger than what was promised), or `unknown`.
    """
    known = [
        (node["cpu_before"], node["cpu_expected"], node["cpu_measured"])
        for node in nodes
        if None not in (node["cpu_before"], node["cpu_expected"], node["cpu_measured"])
    ]
    before, after = math.fsum(each[0] for each in known), math.fsum(each[2] for each in known)
    if len(known) < 2 or before <= 0:
        return {"share": None, "error": None, "noise": None, "verdict": "unknown"}
    grown = after / before
    promised = [expected - was * grown for was, expected, _ in known]
    changed = [now - was * grown for was, _, now in known]
    squares = math.fsum(each * each for each in promised)
    if squares <= 1e-12:
        return {"share": None, "error": None, "noise": None, "verdict": "too-small"}
    share = math.fsum(one * other for one, other in zip(promised, changed, strict=True)) / squares
    rest = math.fsum((now - share * wanted) ** 2 for wanted, now in zip(promised, changed, strict=True))
    noise = math.sqrt(rest / (len(known) - 1))
    error = noise / math.sqrt(squares)
    if error > UNSURE:
        verdict = "too-small"
    else:
        verdict = "came" if abs(share - 1) <= NEAR_ENOUGH else "did-not-come"
    return {"share": round(share, 4), "error": round(error, 4), "noise": round(noise, 6), "verdict": verdict}


def node_loads(rows: ClusterRows) -> dict[str, float]:
    """Return the CPU of each node that is up, as a share of its cores: the broker's own, masters and mirrors."""
    used = {node.node: node.base_cpu for node in rows.nodes if node.is_up}
    for queue in rows.queues:
        for member in queue.ring:
            if member in used:
                used[member] += queue.cpu if member == queue.master else queue.mirror_cpu
    return {node.node: used[node.node] / node.cores for node in rows.nodes if node.is_up and node.cores > 0}


def _load_change(plan: dict[str, Any], measured: dict[str, float]) -> float | None:
    """Return the cluster's load now over the predicted one, on the nodes that both have; None if unknown."""
    both = [
        (node["cpu_after"], measured[node["node"]])
        for node in plan.get("nodes") or ()
        if node["node"] in measured and node.get("cpu_after") is not None
    ]
    then = math.fsum(predicted for predicted, _ in both)
    return math.fsum(now for _, now in both) / then if then > 0 else None


def _nodes(plan: dict[str, Any], rows: ClusterRows, measured: dict[str, float]) -> list[dict[str, Any]]:
    change = _load_change(plan, measured)
    masters: dict[str, int] = {}
    for queue in rows.queues:
        masters[queue.master] = masters.get(queue.master, 0) + 1
    compared = []
    for node in sorted(plan.get("nodes") or (), key=lambda each: str(each["node"])):
        name, predicted = node["node"], node.get("cpu_after")
        now = measured.get(name)
        expected = predicted * change if predicted is not None and change is not None else None
        compared.append(
            {
                "node": name,
                "cpu_before": node.get("cpu_before"),
                "cpu_predicted": predicted,
                "cpu_expected": expected,
                "cpu_measured": now,
                "cpu_error": now - expected if now is not None and expected is not None else None,
                "masters_before": node.get("masters_before"),
                "masters_predicted": node.get("masters_after"),
                "masters_measured": masters.get(name, 0),
            }
        )
    return compared


def _queues(plan: dict[str, Any], rows: ClusterRows) -> list[dict[str, Any]]:
    """Return each move of the plan with its queue's present state: whether it has arrived, and its CPU."""
    now = {(queue.vhost, queue.queue): queue for queue in rows.queues}
    cores = {node.node: node.cores for node in rows.nodes}
    moves, compared = moves_of(plan), []
    last = {
        (move["vhost"], move["queue"]): move for move in moves
    }  # a queue may move twice: its last move counts
    for move in moves:
        is_last = last[move["vhost"], move["queue"]] is move
        queue = now.get((move["vhost"], move["queue"]))
        predicted = move["effect"].get(f"{move['to']}.cpu") if move["to"] else None
        compared.append(
            {
                "n": move["n"],
                "kind": move["kind"],
                "vhost": move["vhost"],
                "queue": move["queue"],
                "from": move["from"],
                "to": move["to"],
                "is_there": queue is not None,
                "is_last": is_last,
                "is_arrived": _is_arrived(last[move["vhost"], move["queue"]], queue),
                "master": queue.master if queue else None,
                "synced": len(queue.synced) if queue else None,
                "cpu_effect_predicted": predicted,
                "cpu_measured": queue.cpu / cores[queue.master]
                if queue and cores.get(queue.master)
                else None,
            }
        )
    return compared


def _is_arrived(move: dict[str, Any], queue: QueueRow | None) -> bool | None:
    """Return whether a queue is as the move leaves it; None: the queue is gone."""
    if queue is None:
        return None
    if move["kind"] in ("promote", "move master"):
        return bool(queue.master == move["to"])
    has_new = move["to"] is None or move["to"] in queue.synced
    has_old = move["kind"] in ("move mirror", "drop mirror") and move["from"] in queue.ring
    return has_new and not has_old


def _balance(nodes: list[dict[str, Any]]) -> dict[str, float | None]:
    """Return the busiest node over the mean: before, as predicted, as measured."""
    return {
        when: _spread([node[key] for node in nodes])
        for when, key in (
            ("before", "cpu_before"),
            ("predicted", "cpu_predicted"),
            ("measured", "cpu_measured"),
        )
    }


def _spread(loads: list[float | None]) -> float | None:
    known = [load for load in loads if load is not None]
    mean = math.fsum(known) / len(known) if known else 0.0
    return max(known) / mean if mean > 0 else None
