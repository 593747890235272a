"""The sections of a report about a plan: its goals, its moves, and its result."""

from typing import Any, Final

from spark_ops.reports import svg
from spark_ops.reports.figures import figure, is_number, shown, when
from spark_ops.reports.markup import Content, Markup, tag
from spark_ops.reports.parts import (
    ARROW,
    Cell,
    badge,
    bounded,
    change,
    legend,
    name,
    prose,
    rows_table,
    section,
    subject,
)

MOVES_MAX: Final = 300
NODES_MAX: Final = 40

_MOVE_LEVELS: Final = {"promote": "good", "move mirror": "info", "move master": "info", "add mirror": "info"}
_GOALS: Final = {
    "cpu": "CPU",
    "in": "Bytes in",
    "out": "Bytes out",
    "drain": "drained nodes are empty",
    "demote": "the node has no masters",
    "copies": "all copies exist",
    "zones": "copies in different zones",
    "capacity": "capacity",
    "failover": "room for a failover",
    "spread": "Tenants with too many masters on one node",
    "locality": "Remote clients",
}


def plan(document: dict[str, Any]) -> Markup | None:
    """Return the section about the plan's effect: goals, and each node before and after."""
    given = document["plan"]
    if given is None:
        return None
    summary = given["summary"]
    rows = [row for row in document["nodes"] if row.get("cpu_before") is not None]
    content: list[Content] = [_cost(summary), _goals(given["goals"])]
    if rows:
        content.append(_loads_of((given.get("inputs") or {}).get("window")))
        content.append(_before_after(rows))
    content.append(_notes(given["notes"]))
    mode = str(given.get("mode") or "full").replace("-", " ")
    return section("plan", "The plan", content, note=f"Mode: {mode}")


def _cost(summary: dict[str, Any]) -> Markup:
    pairs = []
    for key, label, kind in (
        ("promotions", "promotions", "count"),
        ("copies", "copies", "count"),
        ("bytes", "to copy", "bytes"),
        ("eta_s", "takes about", "seconds"),
        ("waves", "waves", "count"),
    ):
        if is_number(summary.get(key)):
            pairs.append(tag("div", tag("dt", label), tag("dd", figure(summary[key], kind))))
    return tag("dl", pairs, class_="evidence")


def _goals(goals: list[dict[str, Any]]) -> Markup | None:
    if not goals:
        return None
    kept = [
        goal for goal in goals if goal.get("kind") == "hard" and goal.get("before") == goal.get("after") == 0
    ]
    chips = []
    if kept:
        names = ", ".join(_GOALS.get(str(goal.get("id")), str(goal.get("id"))) for goal in kept)
        chips.append(tag("li", tag("span", f"Rules: {names}", class_="goal-name"), badge("kept", "good")))
    for goal in goals:
        if any(goal is one for one in kept):
            continue
        is_met = goal.get("met")
        told = "met: too little load to act" if goal.get("is_below_floor") is True else "met"
        mark = badge(told, "good") if is_met else badge("not met", "warn")
        label = _GOALS.get(str(goal.get("id")), str(goal.get("id")).replace("-", " ").replace("_", " "))
        label = label[:1].upper() + label[1:]
        kind = "share" if goal.get("id") == "locality" else "count" if goal.get("kind") == "hard" else "fixed"
        before, after = goal.get("before"), goal.get("after")
        has_figures = is_number(before) or is_number(after)
        chips.append(
            tag("li", tag("span", label, class_="goal-name"),
                change(before, after, kind) if has_figures else None, mark)
        )  # fmt: skip
    return tag("ul", chips, class_="goals")


def _loads_of(window: Any) -> Content:
    """Return a line with the window of the plan's loads; None if the plan has no window."""
    if not isinstance(window, list | tuple) or len(window) != 2:
        return None
    return tag(
        "p", "The loads are from ", when(window[0]), " to ", when(window[1]), " UTC, and include peaks.", class_="more"
    )  # fmt: skip


def _before_after(rows: list[dict[str, Any]]) -> Markup:
    loads = [row[key] for row in rows for key in ("cpu_before", "cpu_after") if is_number(row.get(key))]
    after = [row["cpu_after"] for row in rows if is_number(row.get("cpu_after"))]
    mean = sum(after) / len(after) if after else None
    top = svg.nice_top(max(loads, default=1.0), "share")
    picked = rows
    if len(rows) > NODES_MAX:
        changed = sorted(rows, key=lambda row: -abs((row.get("cpu_after") or 0) - (row["cpu_before"] or 0)))
        picked = sorted(changed[:NODES_MAX], key=lambda row: str(row["node"]))
    has_memory = any(is_number(row.get("memory_before")) for row in rows)

    def cells(row: dict[str, Any]) -> list[Cell]:
        before, after = row.get("cpu_before"), row.get("cpu_after")
        title = f"CPU of {row['node']}: {shown(before, 'share')} before, {shown(after, 'share')} after"
        made: list[Cell] = [
            ("Node", name(row["node"], 40), "lead"),
            ("Load", svg.pair(before, after, top, title=title, mean=mean), "pair-cell"),
            ("CPU", change(before, after, "share"), "number"),
        ]
        if has_memory:
            made.append(
                ("Memory", change(row.get("memory_before"), row.get("memory_after"), "share"), "number")
            )
        made.append(
            ("Masters", change(row.get("masters_before"), row.get("masters_after"), "count"), "number")
        )
        return made

    return tag(
        "div",
        legend((("before", "before"), ("after", "after"), ("mean", "mean of all nodes after it"))),
        rows_table("before-after", picked, cells, "CPU and masters of each node before and after the plan"),
        bounded(len(picked), len(rows), "nodes"),
        class_="before-after",
    )


def _notes(notes: list[dict[str, Any]]) -> Markup | None:
    if not notes:
        return None
    listed = [
        tag(
            "li",
            tag("b", subject(note)) if note.get("queue") or note.get("node") else None,
            " ",
            prose(str(note["text"])),
        )
        for note in notes[:MOVES_MAX]
    ]
    return tag("div", tag("h3", "Problems that no move can solve"), tag("ul", listed, class_="notes"))


def moves(document: dict[str, Any]) -> Markup | None:
    """Return the section of moves, each with its reason, wave by wave."""
    given = document["plan"]
    if given is None or not given["moves"]:
        return None
    listed = given["moves"]

    def cells(move: dict[str, Any]) -> list[Cell]:
        queue: Content = name(move["queue"], 48)
        if move["vhost"] != "/":
            queue = (queue, " ", tag("small", "in ", name(move["vhost"], 32)))
        return [
            ("#", figure(move["n"], "count"), "number"),
            ("Wave", figure(move["wave"], "count"), "number"),
            ("Move", badge(move["kind"], _MOVE_LEVELS.get(move["kind"], "quiet")), ""),
            ("Queue", queue, "lead"),
            ("From and to", _way(move), "way"),
            ("Copied", figure(move["bytes"], "bytes") if move["bytes"] else "nothing", "number"),
            ("Takes about", figure(move["est_s"], "seconds"), "number"),
            ("Why", (tag("small", str(move["reason"]).replace("-", " ")), " ", str(move["why"])), "why"),
        ]

    return section(
        "moves",
        "The moves",
        rows_table("moves", listed[:MOVES_MAX], cells, "The moves of the plan in order"),
        bounded(MOVES_MAX, len(listed), "moves"),
        note="A new copy is synchronised before the old one is removed.",
    )


def _way(move: dict[str, Any]) -> list[Content]:
    parts: list[Content] = []
    if move["from"]:
        parts.append(name(move["from"], 40))
    if move["to"]:
        parts += [" ", ARROW, "\u00a0", name(move["to"], 40)]
    return parts


def after(document: dict[str, Any]) -> Markup | None:
    """Return the section about the plan's result: each node as predicted and as measured, and each queue."""
    given = document["after"]
    if given is None:
        return None
    loads = [
        node[key]
        for node in given["nodes"]
        for key in ("cpu_before", "cpu_expected", "cpu_measured")
        if is_number(node[key])
    ]
    top = svg.nice_top(max(loads, default=1.0), "share")
    nodes = sorted(given["nodes"], key=lambda node: -abs(node["cpu_error"] or 0))[:NODES_MAX]
    nodes.sort(key=lambda node: str(node["node"]))

    def cells(node: dict[str, Any]) -> list[Cell]:
        expected, measured, error = node["cpu_expected"], node["cpu_measured"], node["cpu_error"]
        title = (
            f"CPU of {node['node']}: {shown(expected, 'share')} expected, {shown(measured, 'share')} measured"
        )
        level = (
            "quiet"
            if error is None
            else "good"
            if abs(error) <= 0.05
            else "warn"
            if abs(error) <= 0.1
            else "bad"
        )
        return [
            ("Node", name(node["node"], 40), "lead"),
            ("Load", svg.pair(expected, measured, top, title=title), "pair-cell"),
            ("Before", figure(node["cpu_before"], "share"), "number"),
            ("Predicted", figure(node["cpu_predicted"], "share"), "number"),
            ("Expected", figure(expected, "share"), "number"),
            ("Measured", tag("b", figure(measured, "share")), "number"),
            ("Error", tag("span", figure(error, "share"), class_=f"badge is-{level}"), "number"),
            ("Masters", change(node["masters_before"], node["masters_measured"], "count"), "number"),
        ]

    return section(
        "after",
        "Predicted and measured",
        _after_facts(given),
        legend((("before", "expected"), ("after", "measured"))),
        rows_table("after", nodes, cells, "CPU of each node as predicted and as measured") if nodes else None,
        bounded(len(nodes), len(given["nodes"]), "nodes"),
        _after_queues(given["queues"]),
        note=(
            _measured_in(given.get("window")),
            "Expected: the prediction, scaled by how much the load of the whole cluster has changed.",
        ),
    )


def _measured_in(window: Any) -> Content:
    if not isinstance(window, list | tuple) or len(window) != 2:
        return None
    return ("Measured from ", when(window[0]), " to ", when(window[1]), " UTC. ")


def _after_facts(given: dict[str, Any]) -> Markup:
    balance, error, done = given["balance"], given["error"], given["moves"]
    pairs: list[tuple[str, Content]] = [
        ("moves arrived", (figure(done["arrived"], "count"), " of ", figure(done["planned"], "count"))),
        ("busiest node over mean", (
            figure(balance["before"], "ratio"), " ", ARROW, " ", tag("b", figure(balance["measured"], "ratio")))),
        ("predicted ratio", figure(balance["predicted"], "ratio")),
        ("mean error", figure(error["cpu_mean"], "share")),
        ("largest error", figure(error["cpu_max"], "share")),
        ("load, relative to the prediction", figure(error["load_change"], "share")),
    ]  # fmt: skip
    if done["gone"]:
        pairs.append(("queues gone since", figure(done["gone"], "count")))
    return tag(
        "dl", (tag("div", tag("dt", label), tag("dd", value)) for label, value in pairs), class_="evidence"
    )


def _after_queues(queues: list[dict[str, Any]]) -> Content:
    if not queues:
        return None

    def cells(queue: dict[str, Any]) -> list[Cell]:
        if not queue["is_there"]:
            mark = badge("gone", "quiet")
        elif not queue.get("is_last", True):
            mark = badge("moved on", "quiet")
        else:
            mark = badge("yes", "good") if queue["is_arrived"] else badge("no", "warn")
        return [
            ("#", figure(queue["n"], "count"), "number"),
            ("Move", str(queue["kind"]), ""),
            ("Queue", name(queue["queue"], 48), "lead"),
            ("From and to", _way(queue), "way"),
            ("Arrived", mark, ""),
            ("Master now", name(queue["master"], 40), ""),
            ("Synchronised", figure(queue["synced"], "count"), "number"),
            ("Predicted change of its node", figure(queue["cpu_effect_predicted"], "share"), "number"),
            ("CPU of its master now", figure(queue["cpu_measured"], "share"), "number"),
        ]

    late = sorted(queues, key=lambda queue: (queue["is_arrived"] is not False, queue["n"]))[:MOVES_MAX]
    return [
        tag("h3", "The queues of the plan"),
        tag(
            "p",
            "The predicted change is the CPU that the node gains: that of a master, minus that of its former mirror.",
            class_="more",
        ),
        rows_table("after-queues", late, cells, "The queues of the plan"),
        bounded(MOVES_MAX, len(queues), "queues"),
    ]
