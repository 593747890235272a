"""The report document has all contents of a report as JSON. The page, the CSV and the Parquet files are views of it.

It is built from a health document, a plan, or both, and the plan's result (`spark_ops.reports.after`). It summarises
and orders their contents, and adds no facts. Source: spark §3.6.
"""

from typing import Any, Final

from spark_ops.reports import figures
from spark_ops.reports.moves import moves_of, notes_of
from spark_ops.reports.series import heat, node_charts, queue_chart

FORMAT: Final = "spark-ops-report/1"

SEVERITIES: Final = ("crit", "warn", "info")

_NOW: Final = ("score", "cpu", "memory", "disk", "fds", "masters", "mirrors", "loop_lag_ms")
_TITLES: Final = {
    "critical": "Act now",
    "findings": "Needs attention",
    "healthy": "Healthy",
    "unknown": "Too little is known",
    "plan": "A plan to review",
    "as-predicted": "As predicted",
    "not-as-predicted": "Not as predicted",
    "too-small": "Too small to judge",
}


def build(
    health: dict[str, Any] | None,
    plan: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
    *,
    created: str,
    load_model: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the report document.   created: ISO, UTC.   load_model: the check of what nodes attribute to queues.

    Raises: ValueError if there is nothing to report or the documents are about different clusters.
    """
    given = [document for document in (health, plan, after) if document]
    clusters = sorted({str(document.get("cluster")) for document in given})
    if not given:
        raise ValueError("a report needs a health document or a plan")
    if len(clusters) > 1:
        raise ValueError(f"the documents are about different clusters: {', '.join(clusters)}")
    health, plan = health or {}, plan or {}
    findings = _findings(health.get("findings") or ())
    series = health.get("series") or {}
    document: dict[str, Any] = {
        "format": FORMAT,
        "cluster": clusters[0],
        "created": created,
        "window": health.get("window") or (plan.get("inputs") or {}).get("window"),
        "has_health": bool(health),
        "counts": {
            "all": len(findings),
            **{severity: sum(one["severity"] == severity for one in findings) for severity in SEVERITIES},
        },
        "score": {
            "of": "health" if health else "balance",
            "now": health.get("score") if health else (plan.get("summary") or {}).get("score_before"),
            "planned": None if health else (plan.get("summary") or {}).get("score_after"),
        },
        "coverage": _coverage(health.get("coverage"), plan),
        "findings": findings,
        "nodes": _nodes(health.get("nodes") or (), plan.get("nodes") or ()),
        "plan": _plan(plan),
        "forecasts": _forecasts(health.get("forecasts") or ()),
        "charts": node_charts(series.get("nodes") or {}) + queue_chart(series.get("queues") or ()),
        "heat": heat(series.get("nodes") or {}, "cpu"),
        "after": after,
        "load_model": load_model,
    }
    document["verdict"] = _verdict(health, after)
    document["title"] = _TITLES.get(document["verdict"], str(document["verdict"]))
    document["headline"] = _headline(document)
    document["lead"] = _lead(document)
    return document


def _verdict(health: dict[str, Any], after: dict[str, Any] | None) -> str:
    if after:
        done = after["moves"]
        is_done = done["arrived"] + done["gone"] == done["planned"]
        if is_done and (after.get("promise") or {}).get("verdict") == "too-small":
            return "too-small"
        return "as-predicted" if after["is_as_predicted"] else "not-as-predicted"
    return str(health.get("verdict", "unknown")) if health else "plan"


def _findings(given: Any) -> list[dict[str, Any]]:
    """Return the findings, the worst first; of the same severity the largest share first."""
    rank = {severity: place for place, severity in enumerate(SEVERITIES)}
    listed = [{**one, "subject": one.get("subject") or {}} for one in given]
    listed.sort(
        key=lambda one: (
            rank.get(str(one.get("severity")), len(rank)),
            -float(one.get("share") or 0),
            str(one.get("kind")),
            str(one.get("id")),
        )
    )
    return listed


def _nodes(health: Any, plan: Any) -> list[dict[str, Any]]:
    """Return a row for each node: its present figures, and those of the plan (`cpu_before`, `cpu_after`, …)."""
    rows: dict[str, dict[str, Any]] = {}
    for each in health:
        rows[each["node"]] = {"node": each["node"], **{key: each.get(key) for key in _NOW}}
    for each in plan:
        row = rows.setdefault(each["node"], {"node": each["node"], **dict.fromkeys(_NOW)})
        row.update((key, value) for key, value in each.items() if key.endswith(("_before", "_after")))
    return [rows[node] for node in sorted(rows)]


def _plan(plan: dict[str, Any]) -> dict[str, Any] | None:
    if not plan:
        return None
    summary = dict(plan.get("summary") or {})
    moves = moves_of(plan)
    return {
        **{key: plan.get(key) for key in ("plan_id", "mode", "created", "expires", "inputs")},
        "goals": list(plan.get("goals") or ()),
        "summary": {**summary, "moves": len(moves), "waves": len(plan.get("waves") or ())},
        "moves": moves,
        "notes": notes_of(plan),
    }


def _coverage(given: dict[str, Any] | None, plan: dict[str, Any]) -> dict[str, Any] | None:
    if given:
        return dict(given)
    share = (plan.get("inputs") or {}).get("coverage")
    return None if share is None else {"share": share}


def _forecasts(given: Any) -> list[dict[str, Any]]:
    """Return the forecasts, the earliest first, and those without a time at the end."""
    return sorted(
        (dict(one) for one in given),
        key=lambda one: (
            one.get("eta_s") is None,
            one.get("eta_s") or 0,
            str(one.get("node")),
            str(one.get("resource")),
        ),
    )


def _is_lower(after: object, before: object) -> bool:
    return figures.is_number(after) and figures.is_number(before) and float(str(after)) < float(str(before))


def _many(number: int, one: str, more: str | None = None) -> str:
    return f"{figures.count(number)} {one if number == 1 else more or one + 's'}"


def _headline(document: dict[str, Any]) -> str:
    """Return the most important statement in one sentence."""
    verdict, counts, findings = document["verdict"], document["counts"], document["findings"]
    if document["after"]:
        return _headline_after(document["after"])
    if verdict == "plan":
        return _promise(document["plan"]) or "The cluster is balanced: there is nothing to move."
    if verdict == "healthy":
        notes = f" There is a note: {_first_text(findings)}" if findings else ""
        return f"Nothing is wrong on {_many(len(document['nodes']), 'node')}.{notes}"
    if verdict == "unknown":
        share = (document["coverage"] or {}).get("share")
        seen = (
            f"Only {figures.shown(share, 'share')} of the expected telemetry was seen"
            if share is not None
            else ""
        )
        return f"{seen or 'Too little telemetry was seen'}, so there is no verdict."
    serious = counts["crit"] or counts["warn"]
    kind = "critical finding" if counts["crit"] else "warning"
    return f"{_many(serious, kind)}: {_first_text(findings)}" if findings else _many(serious, kind)


def _first_text(findings: list[dict[str, Any]]) -> str:
    text = str(findings[0].get("text") or "")
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _promise(plan: dict[str, Any]) -> str | None:
    """Return a sentence about the plan's effect; None if it moves nothing."""
    summary, parts = plan["summary"], list[str]()
    if not summary["moves"]:
        return None
    cpu = next((goal for goal in plan["goals"] if str(goal.get("id")).startswith("cpu")), None)
    if cpu and _is_lower(cpu.get("after"), cpu.get("before")):
        before, after = figures.shown(cpu["before"], "share"), figures.shown(cpu["after"], "share")
        parts.append(f"take the busiest node from {before} to {after} of the mean")
    now, planned = summary.get("score_before"), summary.get("score_after")
    if figures.is_number(now) and figures.is_number(planned) and planned > now:
        parts.append(f"raise the balance from {figures.count(now)} to {figures.count(planned)} of 100")
    return f"{_many(summary['moves'], 'move')} would {' and '.join(parts) or 'help'}."


def _headline_after(after: dict[str, Any]) -> str:
    error, done = after["error"], after["moves"]
    arrived = f"{figures.count(done['arrived'])} of {_many(done['planned'], 'move')} are where they should be"
    if error["cpu_max"] is None:
        return f"{arrived}. No load was measured."
    promise = after.get("promise") or {}
    if promise.get("share") is None:
        return f"{arrived}. The plan promised no change of the nodes' CPU that could be measured."
    came, error_of = figures.shown(promise["share"], "share"), figures.shown(promise["error"], "share")
    if promise["verdict"] == "too-small":
        return f"{arrived}. The promised change is smaller than the noise: {came} of it came, give or take {error_of}."
    return f"{arrived}. {came} of the promised change of the nodes' CPU came, give or take {error_of}."


def _lead(document: dict[str, Any]) -> str | None:
    """Return the sentences below the headline: the plan's effect, or why there is none; None: nothing to add."""
    plan, counts = document["plan"], document["counts"]
    if document["after"]:
        serious = counts["crit"] or counts["warn"]
        kind = "critical finding" if counts["crit"] else "warning"
        return f"Still {_many(serious, kind)}: {_first_text(document['findings'])}" if serious else None
    if plan is None:
        return None
    promise = _promise(plan)
    if promise is None:
        return "No move would help." if document["has_health"] else None
    safety = "No queue has fewer synchronised copies at any step."
    return (
        f"{promise} {safety}"
        if document["has_health"]
        else f"{safety} Nothing is moved before `spark-ops apply`."
    )
