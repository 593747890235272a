"""The sections of a report, each made of a part of the report document."""

from collections.abc import Sequence
from typing import Any, Final

from spark_ops.health.catalogue import CATALOGUE
from spark_ops.planning.outcomes import sentence
from spark_ops.reports import svg
from spark_ops.reports.figures import figure, is_number, kind_of, moment, shown, when
from spark_ops.reports.markup import Content, Markup, tag
from spark_ops.reports.parts import (
    ARROW,
    Cell,
    bounded,
    gauge,
    legend,
    level_of,
    line_figure,
    name,
    prose,
    rows_table,
    section,
    severity_badge,
    subject,
)

FINDINGS_MAX: Final = 100
NODES_MAX: Final = 100
FORECASTS_MAX: Final = 60
GAPS_MAX: Final = 60
FILES_MAX: Final = 20
EVIDENCE_MAX: Final = 12

_LABELS: Final = {"r2": "fit R²", "fds": "file descriptors", "fd": "file descriptors"}

DAY_S: Final = 86_400.0
_HORIZONS: Final = (6 * 3600.0, DAY_S, 3 * DAY_S, 7 * DAY_S, 30 * DAY_S, 90 * DAY_S)


def findings(document: dict[str, Any]) -> Markup | None:
    """Return the section of findings, with their evidence and advice."""
    if not document["has_health"]:
        return None
    listed = document["findings"]
    if not listed:
        return section("findings", "Findings", tag("p", "None.", class_="empty"))
    return section(
        "findings",
        "Findings",
        tag("div", (_finding(one) for one in listed[:FINDINGS_MAX]), class_="findings"),
        bounded(FINDINGS_MAX, len(listed), "findings"),
    )


def _finding(one: dict[str, Any]) -> Markup:
    severity = str(one.get("severity"))
    side: list[Content] = []
    if is_number(one.get("share")) and one["share"] > 0:
        side.append(tag("span", figure(one["share"], "share"), " of the load"))
    if one.get("since"):
        side.append(tag("span", "since ", when(one["since"])))
    known = CATALOGUE.get(str(one.get("kind")))
    title = known.title if known else str(one.get("kind")).replace("-", " ").capitalize()
    return tag(
        "article",
        tag(
            "header",
            severity_badge(severity),
            tag("h3", title),
            tag("p", subject(one["subject"]), class_="subject"),
            tag("p", side, class_="side"),
        ),
        tag("p", prose(str(one.get("text") or "")), class_="what"),
        tag("p", tag("b", "What to do"), " ", prose(str(one["advice"])), class_="advice")
        if one.get("advice")
        else None,
        _evidence(one.get("evidence") or {}),
        class_=f"finding is-{severity}",
    )


def _evidence(evidence: dict[str, Any]) -> Markup | None:
    shown_keys = sorted(evidence)[:EVIDENCE_MAX]
    if not shown_keys:
        return None
    pairs = []
    for key in shown_keys:
        value = evidence[key]
        if is_number(value):
            told: Content = figure(value, kind_of(key))
        elif isinstance(value, list | tuple):
            told = [name(value[0], 40), *([", ", name(each, 40)] for each in value[1:6])] if value else "none"
        else:
            told = ("yes" if value else "no") if isinstance(value, bool) else name(value)
        pairs.append(tag("div", tag("dt", _label(key)), tag("dd", told)))
    return tag("dl", pairs, class_="evidence")


def _label(key: str) -> str:
    """Return a key as a label without its unit, `lag_ms` → `lag`: the figure shows the unit."""
    for unit in ("_per_s", "_bytes", "_us", "_ms", "_s"):
        if key.endswith(unit) and key != unit:
            key = key.removesuffix(unit)
            break
    return _LABELS.get(key) or key.replace("_", " ")


def nodes(document: dict[str, Any]) -> Markup | None:
    """Return the section with the present figures of the nodes."""
    listed = [
        row for row in document["nodes"] if any(row[key] is not None for key in ("cpu", "memory", "score"))
    ]
    if not listed:
        return None

    def cells(row: dict[str, Any]) -> list[Cell]:
        score = row["score"]
        level = (
            "quiet" if not is_number(score) else "good" if score >= 90 else "warn" if score >= 60 else "bad"
        )
        return [
            ("Node", name(row["node"], 60), "lead"),
            ("Score", tag("span", figure(score, "score"), class_=f"badge is-{level}"), "number"),
            ("CPU", gauge(row["cpu"], "CPU"), "meter-cell"),
            ("Memory", gauge(row["memory"], "Memory"), "meter-cell"),
            ("Disk", gauge(row["disk"], "Disk"), "meter-cell"),
            ("Descriptors", gauge(row["fds"], "File descriptors"), "meter-cell"),
            ("Loop lag", figure(row["loop_lag_ms"], "ms"), "number"),
            ("Masters", figure(row["masters"], "count"), "number"),
            ("Mirrors", figure(row["mirrors"], "count"), "number"),
        ]

    worst = sorted(listed, key=lambda row: (row["score"] if is_number(row["score"]) else 101, row["node"]))
    picked = listed if len(listed) <= NODES_MAX else worst[:NODES_MAX]
    return section(
        "nodes",
        "Nodes",
        rows_table("nodes", picked, cells, "How much of its capacity each node uses"),
        bounded(len(picked), len(listed), "nodes"),
        note="CPU and loop lag are those of the window's last minutes; all other figures are those of its end.",
    )


def over_time(document: dict[str, Any]) -> Markup | None:
    """Return the section with load over time: a heat map of the nodes, and charts."""
    charts, map_ = document["charts"], document["heat"]
    if not charts and not map_:
        return None
    window = document["window"] or ()
    drawn = tag("div", (line_figure(chart, window) for chart in charts), class_="charts") if charts else None
    return section("time", "Over time", _heat(map_) if map_ and len(map_["rows"]) > 1 else None, drawn)


def _heat(map_: dict[str, Any]) -> Markup:
    top = max(row["max"] for row in map_["rows"])
    top = 1.0 if top <= 1.0 else svg.nice_top(top)

    def cells(row: dict[str, Any]) -> list[Cell]:
        title = f"CPU of {row['name']}: at most {shown(row['max'], 'share')}"
        return [
            ("Node", name(row["name"], 40), "lead"),
            ("CPU", svg.strip(row["values"], top, title=title, is_share=top == 1.0), "strip-cell"),
            ("Most", figure(row["max"], "share"), "number"),
        ]

    begin = map_["begin"]
    end = begin + map_["width_s"] * map_["columns"]
    first, last = (moment(at) for at in (begin, end))
    assert first is not None
    assert last is not None
    kind = "is-share" if top == 1.0 else "is-scaled"
    shades = tag(
        "span", (tag("i", class_=f"shade h{step}") for step in range(svg.LEVELS)), class_=f"shades {kind}"
    )
    note = tag(
        "p", f"CPU, {first:%H:%M} to {last:%H:%M} UTC", tag("span", " 0% ", shades, f" {shown(top, 'share')}"),
        class_="heat-note",
    )  # fmt: skip
    table = rows_table("heat", map_["rows"], cells, "CPU of each node over time: the darker, the busier")
    return tag("div", note, table, bounded(len(map_["rows"]), map_["of"], "nodes"), class_="heat")


def forecasts(document: dict[str, Any]) -> Markup | None:
    """Return the section of forecasts: when a limit will be reached, with the band, and the queues behind it."""
    listed = document["forecasts"]
    if not listed:
        return None
    coming = [one for one in listed if is_number(one.get("eta_s"))]
    quiet = [one for one in listed if not is_number(one.get("eta_s"))]
    content: list[Content] = []
    if coming:
        content.append(_coming(coming[:FORECASTS_MAX]))
        content.append(bounded(FORECASTS_MAX, len(coming), "forecasts"))
    else:
        content.append(tag("p", "No limit is in sight.", class_="empty"))
    if quiet:
        content.append(
            tag("details", tag("summary", "No forecast for ", figure(len(quiet), "count")), _quiet(quiet))
        )
    return section(
        "forecasts", "Forecasts", content, note="Straight lines, fitted to the means of minutes: approximate."
    )


def _coming(coming: list[dict[str, Any]]) -> Markup:
    furthest = max(float(one["eta_s"]) for one in coming)
    horizon = next((period for period in _HORIZONS if period >= furthest * 1.1), furthest * 1.1)

    def cells(one: dict[str, Any]) -> list[Cell]:
        level = "bad" if one["eta_s"] < 2 * 3600 else "warn" if one["eta_s"] < DAY_S else "good"
        band = [edge for edge in one.get("band") or () if is_number(edge)]
        band = band if len(band) == 2 else [*band, horizon] if band else band
        kind = "count" if one.get("resource") == "fd" else "bytes"
        title = f"reached in about {shown(one['eta_s'], 'seconds')}"
        is_free = one.get("resource") == "disk"
        between = " free, at least " if is_free else " of "
        used = _part(one.get("limit"), one.get("now")) if is_free else _part(one.get("now"), one.get("limit"))
        queues = [
            [
                name(each.get("queue"), 32),
                " ",
                tag("small", "+", figure(each.get("slope_per_s"), _rate(kind))),
            ]
            for each in (one.get("queues") or ())[:3]
        ]
        return [
            ("Node", name(one.get("node"), 40), "lead"),
            ("Limit of", str(one.get("resource")), ""),
            ("Now", (figure(one.get("now"), kind), between, figure(one.get("limit"), kind), _used(used)), "number"),
            ("Reached in", (tag("b", figure(one["eta_s"], "seconds"), class_=f"is-{level}"), _band(one)), "number"),
            (f"From now to {shown(horizon, 'seconds')}",
             svg.eta(one["eta_s"], band, horizon, title=title, level=level), "eta-cell"),
            ("Fit R²", figure(one.get("r2"), "decimal"), "number"),
            ("Mostly because of", tag("ul", (tag("li", each) for each in queues), class_="names"), ""),
        ]  # fmt: skip

    return rows_table("forecasts", coming, cells, "When each limit is reached if nothing changes")


def _part(part: object, whole: object) -> float | None:
    """Return a part as a share of the whole; for a disk, limit over free space. None if unknown."""
    if not is_number(part) or not is_number(whole) or not whole:
        return None
    return float(str(part)) / float(str(whole))


def _rate(kind: str) -> str:
    return "byte_rate" if kind == "bytes" else "rate"


def _used(share: float | None) -> Content:
    """Return a meter without a figure, because the figures stand before it."""
    if share is None:
        return None
    return svg.meter(share, title=f"{shown(share, 'share')} used", level=level_of(share))


def _band(one: dict[str, Any]) -> Content:
    band: Sequence[Any] = one.get("band") or ()
    if len(band) != 2:
        return None
    late: Content = figure(band[1], "seconds") if is_number(band[1]) else "never"
    return tag("small", figure(band[0], "seconds"), " to ", late)


def _quiet(quiet: list[dict[str, Any]]) -> Markup:
    def cells(one: dict[str, Any]) -> list[Cell]:
        kind = "count" if one.get("resource") == "fd" else "bytes"
        return [
            ("Node", name(one.get("node"), 40), "lead"),
            ("Limit of", str(one.get("resource")), ""),
            ("Now", figure(one.get("now"), kind), "number"),
            ("Limit", figure(one.get("limit"), kind), "number"),
            ("Reason", str(one.get("why_not") or ""), ""),
        ]

    return rows_table("no-forecast", quiet[:FORECASTS_MAX], cells, "Limits without a forecast")


def coverage(document: dict[str, Any]) -> Markup | None:
    """Return the section about telemetry that was not seen."""
    given = document["coverage"]
    if given is None:
        return None
    share = given.get("share")
    facts: list[Content] = []
    for key, text in (
        ("expected", "records expected"),
        ("seen", "seen"),
        ("late", "late"),
        ("duplicates", "duplicates, counted once"),
        ("unknown_versions", "of an unknown version"),
        ("torn_lines", "torn lines"),
        ("skipped_queues", "suspicious queues not examined"),
    ):
        if is_number(given.get(key)):
            facts.append(tag("div", tag("dt", text), tag("dd", figure(given[key], "count"))))
    torn = given.get("torn") or ()
    files = None
    if torn:
        files = tag(
            "div", tag("h3", "Files that could not be read"),
            tag("ul", (tag("li", name(path, 200)) for path in torn[:FILES_MAX]), class_="files"),
            bounded(FILES_MAX, len(torn), "files"),
        )  # fmt: skip
    meter = None
    if is_number(share):
        level = "good" if share >= 0.95 else "bad"
        drawn = svg.meter(
            share, title=f"{shown(share, 'share')} of the expected telemetry was seen", level=level
        )
        text = tag("p", tag("b", figure(share, "share")), " of the expected telemetry was seen")
        meter = tag("div", text, drawn, class_="seen-share")
    return section(
        "coverage", "Telemetry that was not seen", meter, tag("dl", facts, class_="evidence") if facts else None,
        _gaps(document), files,
    )  # fmt: skip


def _gaps(document: dict[str, Any]) -> Content:
    gaps = (document["coverage"] or {}).get("missing") or ()
    window = [moment(at) for at in document["window"] or ()]
    if not gaps:
        return tag("p", "No node was silent.", class_="empty") if document["has_health"] else None
    begin, end = (window[0], window[1]) if len(window) == 2 else (None, None)

    def cells(gap: dict[str, Any]) -> list[Cell]:
        made: list[Cell] = [
            ("Node", name(gap.get("node"), 60), "lead"),
            ("Silent", (when(gap.get("from")), " ", ARROW, " ", when(gap.get("to"))), ""),
        ]
        low, high = moment(gap.get("from")), moment(gap.get("to"))
        if begin and end and low and high:
            piece = [(low.timestamp(), high.timestamp())]
            drawn = svg.spans(
                piece, begin.timestamp(), end.timestamp(), title="the part of the window without telemetry"
            )
            made.append(("In the window", drawn, "span-cell"))
        return made

    return [
        rows_table("gaps", gaps[:GAPS_MAX], cells, "When nodes sent no telemetry"),
        bounded(GAPS_MAX, len(gaps), "gaps"),
        legend((("seen", "seen"), ("hole", "not seen"))) if begin else None,
    ]


def sources(document: dict[str, Any]) -> Markup:
    """Return the section that names the sources of all figures, so that a reader can check them."""
    plan = document["plan"] or {}
    inputs = plan.get("inputs") or {}
    window: Sequence[Any] = document["window"] or ()
    pairs: list[tuple[str, Content]] = [
        ("Cluster", name(document["cluster"])),
        ("Written", when(document["created"])),
    ]
    if len(window) == 2:
        pairs.append(("Window", (when(window[0]), " to ", when(window[1]), " UTC")))
    for label, value in (
        ("Plan", plan.get("plan_id") or (document["after"] or {}).get("plan_id")),
        ("Placement", inputs.get("topology_hash")),
        ("Configuration", inputs.get("config_hash")),
        ("Made by", inputs.get("tool")),
    ):
        if value:
            pairs.append((label, tag("code", str(value))))
    for label, key in (("View", "view_id"), ("Seed", "seed")):
        if is_number(inputs.get(key)):
            pairs.append((label, figure(inputs[key], "count")))
    if (told := sentence(inputs.get("earlier"))) is not None:
        pairs.append(("Earlier plans", told))
    if (model := document.get("load_model")) is not None:
        pairs.append(("Loads of queues", model["text"]))
    if plan.get("expires"):
        pairs.append(("Expires", (when(plan["expires"]), " UTC")))
    listed = (tag("div", tag("dt", label), tag("dd", value)) for label, value in pairs)
    return section("sources", "Sources", tag("dl", listed, class_="evidence is-sources"))
