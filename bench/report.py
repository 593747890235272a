"""Computation of the table from the rounds: medians, ratios, requirements and verdicts. Pure."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

SHORT, FAILED = "** SHORT **", "** FAILED **"


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that at least `percent` % of the values do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


@dataclass(frozen=True)
class AtLeast:
    """Fluffle's value must be `ratio` times the reference's or more."""

    ratio: float

    def __str__(self) -> str:
        return f"≥ {self.ratio:g}×"

    def met(self, fluffle: float, reference: float | None) -> bool | None:
        return None if reference is None else fluffle >= self.ratio * reference


@dataclass(frozen=True)
class NotAbove:
    """Fluffle's value must be `ratio` times the reference's or less."""

    ratio: float = 1.0

    def __str__(self) -> str:
        return f"≤ {self.ratio:g}×"

    def met(self, fluffle: float, reference: float | None) -> bool | None:
        return None if reference is None else fluffle <= self.ratio * reference


@dataclass(frozen=True)
class Below:
    """Fluffle's value must be below `limit`, whatever the reference shows."""

    limit: float

    def __str__(self) -> str:
        return f"< {self.limit:g}"

    def met(self, fluffle: float, reference: float | None) -> bool | None:
        return fluffle < self.limit


@dataclass(frozen=True)
class NotBelow:
    """Fluffle's value must be `limit` or more, whatever the reference shows."""

    limit: float

    def __str__(self) -> str:
        return f"≥ {self.limit:g}"

    def met(self, fluffle: float, reference: float | None) -> bool | None:
        return fluffle >= self.limit


Requirement = AtLeast | NotAbove | Below | NotBelow


@dataclass(frozen=True)
class Row:
    """A line of the table: a metric of a workload, its unit, and its requirement, if there is one.

    required: beside RabbitMQ.   beside: the requirements beside other brokers, by their names.
    """

    metric: str
    unit: str
    required: Requirement | None = None
    beside: Mapping[str, Requirement] = field(default_factory=dict)

    def not_worse(self, tolerance: float) -> "Row":
        """Return the row for a comparison with another version of Fluffle: worse by at most the relative `tolerance`.

        In a row without a requirement, less is better if it is a time; all others are rates.
        """
        less_is_better = isinstance(self.required, NotAbove | Below) or self.unit in ("ms", "s")
        required = NotAbove(1 + tolerance) if less_is_better else AtLeast(1 - tolerance)
        return replace(self, required=required)


@dataclass(frozen=True)
class Summary:
    """The rounds of one workload on one broker; without metrics if the broker failed."""

    metrics: Mapping[str, Sequence[float]]
    cpu_s_per_million: float | None = None
    generator_share: float | None = None

    def median(self, metric: str) -> float | None:
        values = self.metrics.get(metric)
        return statistics.median(values) if values else None

    def spread(self, metric: str) -> float | None:
        """Return (largest - smallest) / median over the rounds, a measure of the machine's noise."""
        median = self.median(metric)
        return (max(self.metrics[metric]) - min(self.metrics[metric])) / median if median else None


def verdict(row: Row, fluffle: float | None, reference: float | None) -> str:
    """Return the verdict on a row.   fluffle: None: it failed.   reference: None: it failed or did not run."""
    if fluffle is None:
        return FAILED
    if row.required is None:
        return ""
    met = row.required.met(fluffle, reference)
    if met is None:
        return "no ratio"
    return "ok" if met else SHORT


HEADINGS = (
    "workload",
    "Fluffle",
    "",
    "unit",
    "ratio",
    "required",
    "verdict",
    "spread F/R",
    "CPU-s per M F/R",
    "generator CPU F/R",
)
_REFERENCE_COLUMN = 2
_RIGHT = {1, 2, 4, 7, 8, 9}


def table_cells(name: str, row: Row, fluffle: Summary | None, reference: Summary | None) -> list[str]:
    """Return the cells of one line. A broker that did not run (None) has a dash, a broker that failed says so."""
    ours = fluffle.median(row.metric) if fluffle else None
    theirs = reference.median(row.metric) if reference else None

    def both(text: Callable[[Summary], str]) -> str:
        return " / ".join(text(summary) if summary else "-" for summary in (fluffle, reference))

    return [
        name if row.metric == "rate" else f"{name} {row.metric}",
        _value(fluffle, ours),
        _value(reference, theirs),
        row.unit,
        f"{ours / theirs:.2f}×" if ours is not None and theirs else "-",
        str(row.required or "-"),
        verdict(row, ours, theirs) if fluffle else "-",
        both(lambda summary: _percent(summary.spread(row.metric))),
        both(lambda summary: number(summary.cpu_s_per_million)),
        both(lambda summary: _percent(summary.generator_share)),
    ]


def _value(summary: Summary | None, value: float | None) -> str:
    return "-" if summary is None else "failed" if value is None else number(value)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def number(value: float | None) -> str:
    """Return a number with three significant digits, or all digits before the point, with thousands separators."""
    if value is None:
        return "-"
    decimals = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{decimals}f}"


def table(lines: Sequence[Sequence[str]], reference: str) -> str:
    """Return a Markdown table with padded columns.   reference: name of the broker that Fluffle is compared with."""
    headings = [*HEADINGS[:_REFERENCE_COLUMN], reference, *HEADINGS[_REFERENCE_COLUMN + 1 :]]
    widths = [max(len(cells[i]) for cells in (headings, *lines)) for i in range(len(headings))]

    def line(cells: Sequence[str]) -> str:
        columns = enumerate(zip(cells, widths, strict=True))
        padded = (text.rjust(width) if i in _RIGHT else text.ljust(width) for i, (text, width) in columns)
        return "| " + " | ".join(padded) + " |"

    rule = "|" + "|".join("-" * (w + 1) + (":" if i in _RIGHT else "-") for i, w in enumerate(widths)) + "|"
    return "\n".join([line(headings), rule, *(line(cells) for cells in lines)])
