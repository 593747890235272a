"""The thresholds of one run: the defaults of the catalogue, changed by the operator's TOML file.

    [health]
    coverage_min = 0.9

    [hot-node]
    cpu = 0.7
    severity = "crit"

The command reads and parses the file; this module validates its tables.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, get_args

from spark_ops.health.catalogue import CATALOGUE
from spark_ops.health.finding import Severity

HEALTH: Final[Mapping[str, float]] = {
    "coverage_min": 0.95,  # share of the expected rows; below it the verdict is `unknown`
    "span_min_minutes": 5,  # minutes with data; with fewer the verdict is `unknown`
    "clear_minutes": 10,  # consecutive good minutes after which a finding is cleared
    "stale_minutes": 6,  # how long a row is valid: idle queues write a row every 5 min
    "score_cap_crit": 40,  # the maximal score of a cluster with a critical finding
    "share_min": 0.01,  # the minimal share of a finding, so that each finding lowers the score
}
"""The defaults of the table [health]."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings.   health: values by name.   kinds: values by kind and name.   severities: overrides by kind."""

    health: Mapping[str, float] = field(default_factory=lambda: dict(HEALTH))
    kinds: Mapping[str, Mapping[str, float]] = field(
        default_factory=lambda: {name: _defaults(name) for name in CATALOGUE}
    )
    severities: Mapping[str, Severity] = field(default_factory=dict)
    disabled: frozenset[str] = frozenset()

    def of(self, kind: str, name: str) -> float:
        """Return a threshold of a kind."""
        return self.kinds[kind][name]


def from_tables(tables: Mapping[str, Any]) -> Settings:
    """Return the settings of a parsed TOML file. Raises: ValueError, with one line that names the table and the key."""
    health = dict(HEALTH)
    kinds = {name: _defaults(name) for name in CATALOGUE}
    severities: dict[str, Severity] = {}
    disabled = set()
    for table, values in tables.items():
        if not isinstance(values, Mapping):
            raise ValueError(f"{table} stands outside of a table")
        if table == "health":
            _change(health, table, values)
            continue
        if table not in kinds:
            raise ValueError(f"[{table}] is no kind of finding; there are {', '.join(CATALOGUE)}")
        rest = dict(values)
        severity = rest.pop("severity", None)
        if severity is not None:
            if severity not in get_args(Severity):
                raise ValueError(f"[{table}] severity must be one of {', '.join(get_args(Severity))}")
            severities[table] = severity
        if rest.pop("enabled", True) is False:
            disabled.add(table)
        _change(kinds[table], table, rest)
    return Settings(health, kinds, severities, frozenset(disabled))


def _defaults(kind: str) -> dict[str, float]:
    found = CATALOGUE[kind]
    held = {"raise_minutes": found.raise_minutes, "raise_of": found.raise_of} if found.raise_minutes else {}
    return {**found.thresholds, **held}


def _change(values: dict[str, float], table: str, changes: Mapping[str, Any]) -> None:
    for key, value in changes.items():
        if key not in values:
            raise ValueError(f"[{table}] has no {key}; there are {', '.join(values) or 'no thresholds'}")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
            raise ValueError(f"[{table}] {key} must be a number, 0 or more")
        values[key] = value
