"""The options of statistics that an operator may set. Source: management §6.1."""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from node.statistics.series import Retention

RatesMode: TypeAlias = Literal["basic", "detailed", "none"]

_RETENTION: Final = Retention()


@dataclass(frozen=True, slots=True)
class StatisticsOptions:
    """Options of one node.

    interval_s: between samples.   is_on: False: nothing is kept over time, rows have no rates.
    rates_mode: none: no counters of messages are shown.   retention: how far back samples go.
    """

    interval_s: float = 5.0
    rates_mode: RatesMode = "basic"
    is_on: bool = True
    retention: Retention = _RETENTION
