"""This module makes charts of the series of a health document: few enough points to draw, and their main figures.

A chart in the report document is {"id","title","kind","limit"?,"lines":[{"name","ts","values","min","mean","max",
"last"}]}; ts in seconds since 1970, a value is None where nothing was seen. Source: spark §3.6.
"""

from collections.abc import Sequence
from typing import Any, Final

from spark_ops.reports.figures import is_number, moment

POINTS_MAX: Final = 300
LINES_MAX: Final = 8
HEAT_COLUMNS_MAX: Final = 96
HEAT_ROWS_MAX: Final = 60

_NODE_CHARTS: Final = (
    ("cpu", "CPU", "share"),
    ("memory", "Memory", "share"),
    ("disk", "Disk", "share"),
    ("loop_lag_ms", "Event loop lag", "ms"),
)


def thinned(ts: Sequence[float], values: Sequence[float | None]) -> tuple[list[float], list[float | None]]:
    """Return at most POINTS_MAX points: of each stretch the lowest and the highest, or a gap and the highest."""
    if len(ts) <= POINTS_MAX:
        return list(ts), list(values)
    stretches = POINTS_MAX // 2
    kept: list[int] = []
    for stretch in range(stretches):
        places = range(stretch * len(ts) // stretches, (stretch + 1) * len(ts) // stretches)
        known = [(values[place], place) for place in places if is_number(values[place])]
        if len(known) < len(places):
            gap = next(place for place in places if not is_number(values[place]))
            kept += sorted({gap, max(known)[1]} if known else {gap})
        else:
            kept += sorted({min(known)[1], max(known)[1]})
    return [ts[place] for place in kept], [values[place] for place in kept]


def line(name: str, ts: Sequence[Any], values: Sequence[Any]) -> dict[str, Any] | None:
    """Return one line of a chart; None if it has no numbers. Values that are no numbers are gaps."""
    points = [
        (read.timestamp(), value if is_number(value) else None)
        for read, value in ((moment(at), value) for at, value in zip(ts, values, strict=False))
        if read is not None
    ]
    points.sort(key=lambda point: point[0])
    known = [value for _, value in points if value is not None]
    if not known:
        return None
    thin_ts, thin_values = thinned([at for at, _ in points], [value for _, value in points])
    return {
        "name": name,
        "ts": thin_ts,
        "values": thin_values,
        "min": min(known),
        "mean": sum(known) / len(known),
        "max": max(known),
        "last": known[-1],
    }


def node_charts(nodes: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a chart for each metric that has series; of many nodes only the busiest."""
    charts = []
    for metric, title, kind in _NODE_CHARTS:
        lines = [
            drawn
            for node, series in sorted(nodes.items())
            if (drawn := line(node, series.get("ts") or (), series.get(metric) or ())) is not None
        ]
        if kind == "share" and any(drawn["max"] > 16 for drawn in lines):
            kind = "bytes" if metric in ("memory", "disk") else "decimal"
        if lines:
            chosen = _busiest(lines)
            charts.append(
                {
                    "id": metric,
                    "title": title,
                    "kind": kind,
                    "of": len(lines),
                    "lines": chosen,
                    "subject": "node",
                }
            )
    return charts


def queue_chart(queues: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a chart of the longest queues' ready messages, as a list of one chart or none."""
    lines = []
    for each in queues:
        vhost, queue = str(each.get("vhost", "")), str(each.get("queue", ""))
        drawn = line(
            queue if vhost == "/" else f"{vhost} · {queue}", each.get("ts") or (), each.get("ready") or ()
        )
        if drawn is not None:
            lines.append(drawn)
    if not lines:
        return []
    return [
        {
            "id": "ready",
            "title": "Messages ready",
            "kind": "count",
            "of": len(lines),
            "lines": _busiest(lines),
            "subject": "queue",
        }
    ]


def _busiest(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines with the highest peaks, in their given order."""
    best = sorted(lines, key=lambda drawn: (-drawn["max"], drawn["name"]))[:LINES_MAX]
    return [drawn for drawn in lines if any(drawn is one for one in best)]


def heat(nodes: dict[str, dict[str, Any]], metric: str) -> dict[str, Any] | None:
    """Return a heat map of nodes by time: the highest value of each stretch, for the highest rows. None: no series."""
    read: dict[str, list[tuple[float, float | None]]] = {}
    for node, series in sorted(nodes.items()):
        drawn = [
            (at.timestamp(), value if is_number(value) else None)
            for at, value in zip(map(moment, series.get("ts") or ()), series.get(metric) or (), strict=False)
            if at is not None
        ]
        if any(value is not None for _, value in drawn):
            read[node] = drawn
    if not read:
        return None
    begin = min(at for points in read.values() for at, _ in points)
    end = max(at for points in read.values() for at, _ in points)
    longest = max(len(points) for points in read.values())
    columns = max(1, min(HEAT_COLUMNS_MAX, longest))
    width = (end - begin) / columns or 1.0
    rows = []
    for node, points in read.items():
        cells: list[float | None] = [None] * columns
        for at, value in points:
            column = min(columns - 1, int((at - begin) / width))
            if value is not None:
                before = cells[column]
                cells[column] = value if before is None else max(before, value)
        rows.append({"name": node, "values": cells, "max": max(cell for cell in cells if cell is not None)})
    shown = sorted(rows, key=lambda row: (-float(str(row["max"])), str(row["name"])))[:HEAT_ROWS_MAX]
    shown.sort(key=lambda row: str(row["name"]))
    return {
        "metric": metric,
        "begin": begin,
        "width_s": width,
        "columns": columns,
        "of": len(rows),
        "rows": shown,
    }
