"""The sections of a report are made of these parts: badges, names, tables, and charts with a table of their figures."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from spark_ops.reports import figures, svg
from spark_ops.reports.escape import clipped
from spark_ops.reports.figures import figure, is_number, shown
from spark_ops.reports.markup import Content, Markup, tag, trusted

NAME_MAX: Final = 80
"""The most characters of a name in a table; the whole name is in the tooltip and in the files."""

SEVERITIES: Final = {"crit": ("critical", "bad"), "warn": ("warning", "warn"), "info": ("note", "info")}

UNBROKEN_MAX: Final = 26
"""A shown name of at most so many characters gets the class that prevents line breaks."""

ARROW: Final = tag("span", "→", class_="arrow", aria_hidden="true")

Cell = tuple[str, Content, str]
"""A cell: the title of its column, its content, its class."""

_ICONS: Final = {
    "critical": "M12 3 22 20.500H2zM12 10v4.500M12 17.200v.3",
    "findings": "M12 7.500v5.500M12 16.200v.3M21 12a9 9 0 1 1-18 0 9 9 0 0 1 18 0z",
    "healthy": "M8 12.300l2.800 2.800L16.200 9.500M21 12a9 9 0 1 1-18 0 9 9 0 0 1 18 0z",
    "unknown": "M9.600 9.300a2.500 2.500 0 1 1 3.600 2.300c-.8.400-1.200 1-1.200 2"
    "M12 16.700v.3M21 12a9 9 0 1 1-18 0 9 9 0 0 1 18 0z",
    "plan": "M4 8h13l-3.500-3.500M20 16H7l3.500 3.500",
}


def icon(name: str) -> Markup:
    """Return a drawing of 24 × 24 in the colour of the text; screen readers skip it."""
    return tag(
        "svg", tag("path", d=_ICONS[name]), class_="icon", viewBox="0 0 24 24", aria_hidden="true", focusable="false"
    )  # fmt: skip


LOGO: Final = trusted(
    '<svg class="logo" viewBox="0 0 64 64" aria-hidden="true" focusable="false"><defs><linearGradient id="sky" '
    'x1="0" y1="0" x2="1" y2="1"><stop offset="0" stop-color="#7c6cf2"/><stop offset="1" stop-color="#e0568f"/>'
    '</linearGradient></defs><rect width="64" height="64" rx="16" fill="url(#sky)"/><g fill="#fff"><path '
    'd="M22 35c-5-8-8-19-4-23 4-3 10 8 11 20z"/><path d="M42 35c5-8 8-19 4-23-4-3-10 8-11 20z"/><ellipse cx="32" '
    'cy="41" rx="17" ry="14"/></g><g fill="#5646b8"><circle cx="25.5" cy="39" r="2.4"/><circle cx="38.5" cy="39" '
    'r="2.4"/><path d="M29.5 44.5h5L32 47.5z"/></g></svg>'
)


def name(text: object, characters_max: int = NAME_MAX) -> Markup:
    """Return a name from a document; a long one is cut, and its tooltip has all of it. `<bdi>` keeps its direction."""
    if text is None or text == "":
        return tag("span", figures.UNKNOWN, class_="unknown")
    whole = str(text)
    short = clipped(whole, characters_max)
    kind = "name is-short" if len(short) <= UNBROKEN_MAX else "name"
    return tag("bdi", short, class_=kind, title=whole if short != whole else None)


def badge(text: str, level: str) -> Markup:
    return tag("span", text, class_=f"badge is-{level}")


def severity_badge(severity: object) -> Markup:
    text, level = SEVERITIES.get(str(severity), (str(severity), "quiet"))
    return badge(text, level)


def subject(of: dict[str, Any]) -> list[Content]:
    """Return the subject of a finding: `queue orders in /`, `queues of policy 'ha' in /`, `link n1 → n2`, …"""
    parts: list[Content] = []
    if of.get("queue") is not None:
        parts += ["queue ", name(of["queue"])]
        if of.get("vhost") is not None:
            parts += [" in ", name(of["vhost"], 40)]
        if of.get("node") is not None:
            parts += [" on ", name(of["node"], 40)]
    elif of.get("cause") is not None:
        parts += ["queues of ", name(of["cause"])]
        if of.get("vhost") is not None:
            parts += [" in ", name(of["vhost"], 40)]
    elif of.get("to_node") is not None:
        parts += ["link ", name(of.get("node"), 40), " ", ARROW, " ", name(of["to_node"], 40)]
    elif of.get("node") is not None:
        parts += ["node ", name(of["node"], 40)]
    elif of.get("vhost") is not None:
        parts += ["virtual host ", name(of["vhost"], 40)]
    else:
        parts.append("the cluster")
    return parts


def prose(text: str) -> list[Content]:
    """Return a sentence in which text between backticks is code."""
    return [tag("code", piece) if place % 2 else piece for place, piece in enumerate(text.split("`"))]


def section(anchor: str, title: str, *content: Content, note: Content = None) -> Markup:
    """Return a section of the page, drawn as a card."""
    head = tag(
        "header", tag("h2", title, id=f"{anchor}-title"), tag("p", note, class_="note") if note else None
    )
    return tag("section", head, content, class_="card", id=anchor, aria_labelledby=f"{anchor}-title")


def rows_table(
    anchor: str,
    rows: Sequence[dict[str, Any]],
    cells: Callable[[dict[str, Any]], Sequence[Cell]],
    caption: str,
) -> Markup:
    """Return a table; on a phone each row is a card, so each cell knows the title of its column."""
    made = [cells(row) for row in rows]
    head = tag("tr", (tag("th", title, scope="col", class_=kind or None) for title, _, kind in made[0]))
    body = [
        tag("tr", (tag("td", content, class_=kind or None, data_label=title) for title, content, kind in row))
        for row in made
    ]
    table = tag(
        "table", tag("caption", caption), tag("thead", head), tag("tbody", body), class_="table", id=f"{anchor}-table"
    )  # fmt: skip
    return tag("div", table, class_="table-frame")


def change(before: object, after: object, kind: str) -> Markup:
    """Return `61% → 37%`; one figure if nothing changes."""
    if is_number(before) and shown(before, kind) == shown(after, kind):
        return tag("span", figure(after, kind), class_="change is-same")
    return tag("span", figure(before, kind), " ", ARROW, " ", tag("b", figure(after, kind)), class_="change")


def bounded(shown_number: int, total: int, what: str) -> Markup | None:
    """Return a line that says that a list continues in the files; None if it is complete."""
    if shown_number >= total:
        return None
    text = f" {what} are in the JSON, CSV and Parquet files of this report."
    return tag("p", "All ", figure(total, "count"), text, class_="more")


def legend(items: Iterable[tuple[str, Content]]) -> Markup:
    """Return a legend: colours and their meanings."""
    return tag(
        "ul", (tag("li", tag("i", class_=f"swatch {kind}"), text) for kind, text in items), class_="legend"
    )  # fmt: skip


def level_of(share: object, warn: float = 0.7, bad: float = 0.85) -> str:
    """Return the level of a share of something limited: good, warn or bad; quiet if unknown."""
    if not is_number(share):
        return "quiet"
    return "bad" if float(share) >= bad else "warn" if float(share) >= warn else "good"  # type: ignore[arg-type]


def gauge(share: object, what: str) -> Markup:
    """Return a meter with its figure."""
    text = tag("span", figure(share, "share"), class_="gauge-text")
    if not is_number(share):
        return tag("span", text, class_="gauge")
    value = float(share)  # type: ignore[arg-type]
    drawn = svg.meter(value, title=f"{what}: {shown(value, 'share')}", level=level_of(value))
    return tag("span", drawn, text, class_=f"gauge is-{level_of(value)}")


def axis_times(begin: float, end: float, ticks: int = 5) -> Markup:
    """Return the labels under a plot, at equal distances and all different, with seconds or dates if needed."""
    ticks = max(1, min(ticks, int(end - begin) + 1))
    step = (end - begin) / (ticks - 1) if ticks > 1 else 0.0
    marks = [figures.moment(begin + step * tick) for tick in range(ticks)]
    has_date, has_time = end - begin >= 86_400, step < 86_400
    texts = []
    for read in marks:
        assert read is not None
        time = f"{read:%H:%M:%S}" if step < 60 else f"{read:%H:%M}"
        date = f"{read.day} {read:%b}"
        texts.append(tag("span", f"{date} {time}" if has_date and has_time else date if has_date else time))
    return tag("div", texts, class_="axis-x", aria_hidden="true")


def line_figure(chart: dict[str, Any], window: Sequence[Any]) -> Markup:
    """Return a chart with its axes, its legend and its figures as a table.   window: its begin and end, if known."""
    lines, kind = chart["lines"], chart["kind"]
    edges = [edge.timestamp() for edge in map(figures.moment, window) if edge is not None]
    begin = min([*edges, *(line["ts"][0] for line in lines)])
    end = max([*edges, *(line["ts"][-1] for line in lines)])
    top = svg.nice_top(max(line["max"] for line in lines), kind)
    peak = max(lines, key=lambda line: float(line["max"]))
    title = f"{chart['title']} by {chart['subject']} over time; the highest is {peak['name']}"
    drawn = svg.plot(lines, begin, end, top, title=title, kind=kind)
    marks = [
        tag("span", shown(top * (4 - step) / 4, "short" if kind == "count" else kind)) for step in range(5)
    ]
    keys = rows_table(
        f"chart-{chart['id']}",
        [{"index": index, **line} for index, line in enumerate(lines)],
        lambda line: (
            (
                chart["subject"].capitalize(),
                (tag("i", class_=f"swatch c{line['index']}"), name(line["name"], 40)),
                "",
            ),
            ("Least", figure(line["min"], kind), "number"),
            ("Mean", figure(line["mean"], kind), "number"),
            ("Most", figure(line["max"], kind), "number"),
            ("Last", tag("b", figure(line["last"], kind)), "number"),
        ),
        title,
    )
    more = bounded(len(lines), chart["of"], f"{chart['subject']}s")
    frame = tag(
        "div",
        tag("div", marks, class_="axis-y", aria_hidden="true"),
        drawn,
        axis_times(begin, end),
        class_="plot-frame",
    )
    return tag("figure", tag("figcaption", chart["title"]), frame, keys, more, class_="chart")
