"""The drawings of a report: inline SVG without script, text or colour of its own.

Text stands beside a drawing as HTML, so that it has one size on a phone and on paper; a drawing without text may be
stretched (`preserveAspectRatio="none"`, lines keep their width). Colours are classes of `spark_ops.reports.style`.
Each drawing has a `<title>` that says what can be seen. Source: spark §3.6.
"""

import math
from collections.abc import Sequence
from typing import Any, Final

from spark_ops.reports import figures
from spark_ops.reports.escape import clipped
from spark_ops.reports.markup import Content, Markup, number, tag

PLOT: Final = (600.0, 180.0)
HOVER_COLUMNS: Final = 48
"""The most columns of a plot that show their values under the mouse."""

LEVELS: Final = 12
"""The number of shades of a heat map."""


def nice_top(highest: float, kind: str = "decimal") -> float:
    """Return the end of a scale that begins at 0: the least of 1, 1.2, 1.6, 2, 3, 4, 5, 6, 8 × 10^n for the peak.

    Bytes count by powers of 1024; a share whose peak is near 1 ends there.
    """
    if highest <= 0:
        return 1.0
    if kind == "share" and 0.4 < highest <= 1:
        return 1.0
    unit = 1.0
    if kind in ("bytes", "byte_rate"):
        unit = 1024.0 ** max(0, min(5, math.floor(math.log(highest, 1024))))
    scale = 10.0 ** math.floor(math.log10(highest / unit))
    steps = (1.0, 1.2, 1.6, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
    return next(step for step in (*steps, 20.0) if step * scale * unit >= highest * 0.999999) * scale * unit


def drawing(
    width: float, height: float, title: str, *content: Content, kind: str, is_fixed: bool = False
) -> Markup:
    """Return an `<svg>` with a title for screen readers."""
    return tag(
        "svg",
        tag("title", title),
        *content,
        class_=kind,
        viewBox=f"0 0 {number(width)} {number(height)}",
        preserveAspectRatio=None if is_fixed else "none",
        role="img",
        focusable="false",
    )


def plot(
    lines: Sequence[dict[str, Any]], begin: float, end: float, top: float, *, title: str, kind: str
) -> Markup:
    """Return lines over time, from 0 to `top`; one or two lines have their areas filled. A value of None is a gap."""
    width, height = PLOT
    span = (end - begin) or 1.0

    def place(at: float, value: float) -> str:
        return f"{number((at - begin) / span * width)} {number(height - min(value, top) / top * height)}"

    grid = [
        tag("line", x1=0, x2=width, y1=height * quarter / 4, y2=height * quarter / 4, vector_effect=_THIN)
        for quarter in range(5)
    ]
    drawn: list[Markup] = []
    for index, line in enumerate(lines):
        pieces = _pieces(line["ts"], line["values"])
        if len(lines) <= 2:
            drawn += [
                tag("path", class_=f"area c{index}", d=_area(piece, place, begin, span, width, height))
                for piece in pieces
                if len(piece) > 1
            ]
        path = " ".join(
            f"M{' L'.join(place(at, value) for at, value in _widened(piece, begin, span))}"
            for piece in pieces
        )
        drawn.append(tag("path", class_=f"stroke c{index}", d=path, vector_effect=_THIN))
    hover = _hover(lines, begin, span, kind)
    return drawing(width, height, title, tag("g", grid, class_="grid"), drawn, hover, kind="plot")


_THIN: Final = "non-scaling-stroke"
DOT: Final = 0.01
"""The width of a single point as a share of the plot: a path without length is not drawn."""


def _widened(piece: list[tuple[float, float]], begin: float, span: float) -> list[tuple[float, float]]:
    """Return the points of a stretch; a single point becomes a short line within the plot."""
    if len(piece) > 1:
        return piece
    ((at, value),) = piece
    low = min(max(at - span * DOT / 2, begin), begin + span * (1 - DOT))
    return [(low, value), (low + span * DOT, value)]


def _pieces(ts: Sequence[float], values: Sequence[float | None]) -> list[list[tuple[float, float]]]:
    """Return the stretches of points between gaps."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for at, value in zip(ts, values, strict=True):
        if value is not None:
            pieces[-1].append((at, max(0.0, value)))
        elif pieces[-1]:
            pieces.append([])
    return [piece for piece in pieces if piece]


def _area(
    piece: list[tuple[float, float]], place: Any, begin: float, span: float, width: float, height: float
) -> str:
    left, right = ((at - begin) / span * width for at in (piece[0][0], piece[-1][0]))
    outline = " L".join(place(at, value) for at, value in piece)
    return f"M{number(left)} {number(height)} L{outline} L{number(right)} {number(height)} Z"


def _hover(lines: Sequence[dict[str, Any]], begin: float, span: float, kind: str) -> Markup:
    """Return columns whose tooltips show the time and all values there."""
    columns = min(HOVER_COLUMNS, max((len(line["ts"]) for line in lines), default=1))
    width, height = PLOT
    step = span / columns
    cells = []
    for column in range(columns):
        middle = begin + (column + 0.5) * step
        told = [f"{figures.iso(middle)}"]
        for line in lines:
            near = min(
                (place for place in range(len(line["ts"])) if line["values"][place] is not None),
                key=lambda place, ts=line["ts"]: abs(ts[place] - middle),  # type: ignore[misc]
            )
            if abs(line["ts"][near] - middle) <= 2 * step:
                told.append(f"{clipped(line['name'], 60)}: {figures.shown(line['values'][near], kind)}")
        x = column * width / columns
        cells.append(
            tag("rect", tag("title", "\n".join(told[:1]), *(f" · {one}" for one in told[1:])),
                x=x, y=0, width=width / columns, height=height)
        )  # fmt: skip
    return tag("g", cells, class_="hover")


def pair(
    before: float | None, after: float | None, top: float, *, title: str, mean: float | None = None
) -> Markup:
    """Return two bars, before above after, and the mean as a line."""
    top = top or 1.0
    bars = [
        tag("rect", class_=kind, x=0, y=y, width=max(0.6, min(1.0, value / top) * 100), height=height)
        for kind, value, y, height in (("before", before, 1, 6), ("after", after, 9, 10))
        if value is not None
    ]
    line = (
        None
        if mean is None
        else tag("rect", class_="mean", x=mean / top * 100 - 0.25, y=0, width=0.5, height=20)
    )
    return drawing(
        100, 20, title, tag("rect", class_="track", x=0, y=9, width=100, height=10), bars, line, kind="pair"
    )


def meter(share: float, *, title: str, level: str = "good") -> Markup:
    """Return a bar for the used share of something. level: good, warn or bad."""
    return drawing(
        100, 6, title,
        tag("rect", class_="track", x=0, y=0, width=100, height=6),
        tag("rect", class_=f"fill is-{level}", x=0, y=0, width=max(0.0, min(1.0, share)) * 100, height=6),
        kind="meter",
    )  # fmt: skip


def strip(values: Sequence[float | None], top: float, *, title: str, is_share: bool = False) -> Markup:
    """Return a row of a heat map: a cell for each value, darker the higher; a gap stays empty.

    is_share: the top is 1, and values near it have the colours of warnings.
    """
    cells = [
        tag("rect", class_=f"h{level(value, top)}", x=column, y=0, width=1.04, height=1)
        for column, value in enumerate(values)
        if value is not None
    ]
    return drawing(len(values), 1, title, cells, kind="strip is-share" if is_share else "strip is-scaled")


def level(value: float, top: float) -> int:
    """Return the shade of a value, 0 to LEVELS - 1."""
    return max(0, min(LEVELS - 1, int(value / (top or 1.0) * LEVELS)))


def dial(now: float | None, planned: float | None, *, title: str, level: str) -> Markup:
    """Return a ring for a score of 100; the increase by a plan is a paler part of it."""
    radius, middle = 42.0, 50.0
    around = 2 * math.pi * radius

    def arc(kind: str, value: float) -> Markup:
        length = max(0.0, min(100.0, value)) / 100 * around
        return tag(
            "circle", class_=kind, cx=middle, cy=middle, r=radius,
            stroke_dasharray=f"{number(length)} {number(around)}", transform="rotate(-90 50 50)",
        )  # fmt: skip

    arcs = [tag("circle", class_="track", cx=middle, cy=middle, r=radius)]
    if planned is not None and now is not None and planned > now:
        arcs.append(arc("planned", planned))
    if now is not None and now > 0:
        arcs.append(arc(f"fill is-{level}", now))
    return drawing(100, 100, title, arcs, kind="dial", is_fixed=True)


def eta(at_s: float, band: Sequence[float] | None, horizon_s: float, *, title: str, level: str) -> Markup:
    """Return the time at which a limit is reached, from now to the horizon: the band, and the best guess in it."""
    horizon = horizon_s or 1.0
    low, high = (band[0], band[1]) if band else (at_s, at_s)
    left, right = (max(0.0, min(1.0, value / horizon)) * 100 for value in (low, high))
    best = max(0.0, min(1.0, at_s / horizon)) * 100
    return drawing(
        100, 12, title,
        tag("rect", class_="track", x=0, y=5, width=100, height=2),
        tag("rect", class_=f"band is-{level}", x=left, y=2, width=max(0.8, right - left), height=8),
        tag("rect", class_=f"fill is-{level}", x=max(0.0, best - 0.5), y=0, width=1, height=12),
        kind="eta",
    )  # fmt: skip


def spans(pieces: Sequence[tuple[float, float]], begin: float, end: float, *, title: str) -> Markup:
    """Return a stretch of time with the pieces in which nothing was seen."""
    span = (end - begin) or 1.0
    holes = []
    for low, high in pieces:
        left, right = (max(0.0, min(1.0, (at - begin) / span)) * 100 for at in (low, high))
        holes.append(tag("rect", class_="hole", x=left, y=0, width=max(0.5, right - left), height=8))
    return drawing(
        100, 8, title, tag("rect", class_="seen", x=0, y=0, width=100, height=8), holes, kind="spans"
    )
