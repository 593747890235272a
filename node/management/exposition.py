"""The text format of Prometheus, version 0.0.4. Pure.

    # TYPE name gauge
    # HELP name What it says.
    name{label="value"} 1
Source: management §5; prometheus.io, "Exposition formats".
"""

from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

CONTENT_TYPE: Final = "text/plain; version=0.0.4"
LINES_A_PIECE: Final = 2000

Type: TypeAlias = Literal["counter", "gauge", "untyped", "summary"]

_ESCAPED: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Metric(NamedTuple):
    """One metric.   name: without the prefix that says of which page it is."""

    name: str
    type: Type
    help: str


class Exposition:
    """Gathers metrics, each with its rows, in the order in which they were begun."""

    def __init__(self) -> None:
        self._families: dict[str, list[str]] = {}

    def begin(self, metric: Metric, prefix: str) -> list[str]:
        """Return the lines of a metric; the caller appends rows."""
        name = prefix + metric.name
        lines = self._families.get(name)
        if lines is None:
            lines = self._families[name] = [
                f"# TYPE {name} {metric.type}",
                f"# HELP {name} {metric.help}",
            ]
        return lines

    def add(self, metric: Metric, prefix: str, value: float, labels: str = "") -> None:
        """Add one row.   labels: see `labelled`."""
        self.begin(metric, prefix).append(f"{prefix}{metric.name}{labels} {number(value)}")

    def pieces(self) -> Iterator[bytes]:
        """Yield the text, some thousand lines at a time, and forget it piece by piece as well."""
        gathered: list[str] = []
        while self._families:
            lines = self._families.pop(next(iter(self._families)))
            for at in range(0, len(lines), LINES_A_PIECE):
                gathered += lines[at : at + LINES_A_PIECE]
                if len(gathered) >= LINES_A_PIECE:
                    yield _text(gathered)
                    gathered = []
        if gathered:
            yield _text(gathered)


def _text(lines: list[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def labelled(labels: Mapping[str, str]) -> str:
    """Return labels as they stand behind a metric's name."""
    if not labels:
        return ""
    inner = ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in labels.items())
    return f"{{{inner}}}"


def number(value: float) -> str:
    """Return a value as Prometheus reads it."""
    if isinstance(value, bool | int):
        return str(int(value))
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
