"""The text format of Prometheus, version 0.0.4. Pure.

    # TYPE name gauge
    # HELP name What it says.
    name{label="value"} 1
Source: management §5; prometheus.io, "Exposition formats".
"""

from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

CONTENT_TYPE: Final = "text/plain; version=0.0.4"
PIECE_CHARACTERS: Final = 70_000
"""The length from which a piece is given away. A client that does not read holds a copy of one piece: the server stops
writing to it once 64 KiB wait."""

FOLDED_MIN: Final = 50
"""The lines of a metric that are worth folding."""

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
        self._folded: dict[str, int] = {}
        """The length up to which the lines of a metric are folded."""

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

    def fold(self) -> None:
        """Join the lines that were added since the last call: one by one they take half as much memory again."""
        for name, lines in self._families.items():
            folded = self._folded.get(name, 0)
            if len(lines) - folded >= FOLDED_MIN:
                lines[folded:] = ["\n".join(lines[folded:])]
                self._folded[name] = folded + 1

    def pieces(self) -> Iterator[bytes]:
        """Yield the text, some hundred lines at a time, and forget it piece by piece as well."""
        gathered: list[str] = []
        characters = 0
        while self._families:
            for line in self._families.pop(next(iter(self._families))):
                gathered.append(line)
                characters += len(line)
                if characters >= PIECE_CHARACTERS:
                    yield _text(gathered)
                    gathered, characters = [], 0
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
