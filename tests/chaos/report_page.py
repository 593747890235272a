"""A chaos run as one HTML page that needs nothing else: facts, a timeline of faults and confirms as SVG, tables."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from tests.chaos.mirror_ledger import MUST_BE_0
from tests.chaos.report import FaultRecord, Report

WIDTH: Final = 1200
LEFT: Final = 130
GRAPH: Final = 160
ROW: Final = 13
POINTS_MAX: Final = 1000
"""More points than pixels would only make the page large."""
STYLE: Final = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 2em auto; max-width: 1240px; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: 1em 0 } td, th { padding: 2px 12px 2px 0; text-align: left }
td.n { text-align: right; font-variant-numeric: tabular-nums } .bad { color: #b00020; font-weight: 600 }
.good { color: #0a6b2d; font-weight: 600 } pre { background: #f6f6f6; padding: 1em; overflow-x: auto }
svg { width: 100%; height: auto; background: #fcfcfc; border: 1px solid #ddd } svg text { font: 10px sans-serif }
"""


def page(report: Report) -> str:
    """The page."""
    state = "good" if report.is_clean else "bad"
    facts = [(escape(name), escape(text)) for name, text in report.facts()]
    kinds = [(escape(kind), f"{n:,}", gap, up) for kind, n, gap, up in report.kinds_table()]
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>Chaos run: {escape(report.against)}</title>",
        f"<style>{STYLE}</style><h1>Chaos run against {escape(report.against)}</h1>",
        f"<p class={state}>{escape(report.headline())}</p>",
        _table((), facts),
        "<h2>Timeline</h2><p>Blue: confirms a second. Bars: faults, from begin to undone, then pale until all was",
        " well. A line without confirms between episodes is the comparison.</p>",
        _timeline(report),
        "<h2>Faults</h2>",
        _table(("kind", "n", "unavailable s (median, longest)", "up again s (median, longest)"), kinds),
        "<h2>Counts</h2>",
        _table(("", "", ""), [_count(name, number) for name, number in report.counts.items()]),
        "<h2>Not injected</h2>",
        _list(report.gaps),
    ]
    if report.notes:
        parts += ["<h2>Notes</h2>", _list(report.notes)]
    if report.problems:
        parts += ["<h2>Problems</h2>", *(f"<pre>{escape(problem)}</pre>" for problem in report.problems)]
    return "\n".join(parts) + "\n"


def _count(name: str, number: int) -> tuple[str, str, str]:
    if name not in MUST_BE_0:
        return escape(name), f"{number:,}", ""
    return escape(name), f"<span class={'bad' if number else 'good'}>{number:,}</span>", "must be 0"


def _list(texts: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in texts) + "</ul>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are HTML."""
    top = "<tr>" + "".join(f"<th>{escape(each)}</th>" for each in head) + "</tr>" if any(head) else ""
    lines = ["".join(f"<td{' class=n' * (at == 1 and len(row) > 2)}>{cell}</td>" for at, cell in enumerate(row))
             for row in rows]  # fmt: skip
    return f"<table>{top}" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def _timeline(report: Report) -> str:
    kinds = list(report.by_kind())
    until_s = max(
        [report.lasted_s, len(report.confirms), *(each.at_s + each.lasts_s for each in report.faults), 1]
    )
    scale = (WIDTH - LEFT - 30) / until_s
    height = GRAPH + 24 + ROW * len(kinds) + 10
    most = max(report.confirms, default=0) or 1
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="confirms a second, and faults">']
    for number in range(11):
        x = LEFT + number * (WIDTH - LEFT - 30) / 10
        parts.append(f'<line x1="{x:.0f}" y1="10" x2="{x:.0f}" y2="{height - 10}" stroke="#eee"/>')
        minutes = number * until_s / 600
        parts.append(f'<text x="{x:.0f}" y="{GRAPH + 20}" text-anchor="middle">{minutes:.1f} min</text>')
    parts.append(f'<text x="{LEFT - 6}" y="18" text-anchor="end">{most:,}/s</text>')
    parts.append(f'<polyline points="{_line(report.confirms, scale, most)}" fill="none" stroke="#1668b8"/>')
    for row, kind in enumerate(kinds):
        y = GRAPH + 30 + ROW * row
        parts.append(f'<text x="{LEFT - 6}" y="{y + 9}" text-anchor="end">{escape(kind)}</text>')
        parts += [_bar(fault, y, scale) for fault in report.by_kind()[kind]]
    return "\n".join([*parts, "</svg>"])


def _line(counts: Sequence[int], scale: float, most: int) -> str:
    """Points of the line; of a long run each is the mean of some seconds."""
    step = max(1, -(-len(counts) // POINTS_MAX))
    points = []
    for start in range(0, len(counts), step):
        own = counts[start : start + step]
        y = GRAPH - (GRAPH - 10) * (sum(own) / len(own)) / most
        points.append(f"{LEFT + start * scale:.1f},{y:.1f}")
    return " ".join(points)


def _bar(fault: FaultRecord, y: int, scale: float) -> str:
    colour = "#c8511b" if fault.up_s is not None else "#b00020"
    x, width = LEFT + fault.at_s * scale, max(1.0, fault.lasts_s * scale)
    pale = (fault.up_s or 0.0) * scale
    under = f", under {fault.under}" if fault.under else ""
    told = f"{fault.kind}{fault.text}{under}: {fault.at_s:.0f} s, no confirm for {fault.unavailable_s:.2f} s"
    return (
        f"<g><title>{escape(told)}</title>"
        f'<rect x="{x + width:.1f}" y="{y}" width="{pale:.1f}" height="{ROW - 3}" fill="{colour}" opacity="0.3"/>'
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 3}" fill="{colour}"/></g>'
    )
