"""The throttle decides how many steps of a plan are under way at once. Pure: the time is an argument.

- at most one promotion at a time takes a master away from a node;
- at most two copies at a time concern a node, as the one that sends or the one that receives;
- copies begin so that no more than `bytes_per_s` are begun on average;
- the number of promotions and copies at once rises by one with each calm observation and is halved by any other
  (AIMD); after such a one nothing begins until an observation is calm.

Source: spark §3.4.
"""

from dataclasses import dataclass

from spark_ops.applying.observation import Observation
from spark_ops.applying.work import ADD, PROMOTE, Work


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that an operator may set.

    promotions_per_source, copies_per_node: at once.   bytes_per_s: None: as fast as the cluster synchronises.
    in_flight_first, in_flight_max: promotions and copies together.
    answer_ms_max, confirm_ms_max, lag_ops_max: higher values are too much for clients.
    """

    promotions_per_source: int = 1
    copies_per_node: int = 2
    bytes_per_s: float | None = None
    in_flight_first: int = 2
    in_flight_max: int = 16
    answer_ms_max: float = 500.0
    confirm_ms_max: float = 250.0
    lag_ops_max: int = 5000


def pressure(seen: Observation, limits: Limits) -> str | None:
    """Return which figure of an observation is too high; None: it is calm. Unknown figures count as calm."""
    if seen.answer_ms is not None and seen.answer_ms > limits.answer_ms_max:
        return f"the nodes take {seen.answer_ms:.0f} ms to answer"
    if seen.confirm_p99_ms is not None and seen.confirm_p99_ms > limits.confirm_ms_max:
        return f"confirms take {seen.confirm_p99_ms:.0f} ms"
    if seen.mirror_lag_ops is not None and seen.mirror_lag_ops > limits.lag_ops_max:
        return f"a mirror is {seen.mirror_lag_ops} operations behind"
    return None


class Throttle:
    """The steps under way, and whether more may begin.   reason: why nothing may begin just now; None: it may."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.reason: str | None = None
        self._window = float(limits.in_flight_first)
        self._promotions: dict[str, Work] = {}
        self._copies: dict[tuple[str, str], Work] = {}
        self._free_at = float("-inf")

    @property
    def window(self) -> int:
        """The number of promotions and copies that may be under way at once."""
        return int(self._window)

    def saw(self, seen: Observation) -> None:
        """Adjust the window to an observation."""
        self.reason = pressure(seen, self.limits)
        if self.reason is None:
            self._window = min(self._window + 1, self.limits.in_flight_max)
        else:
            self._window = max(self._window / 2, 1)

    def admits(self, step: Work, now: float) -> bool:
        """True if a step may begin. Waiting and dropping cost nothing and always may."""
        if step.action not in (PROMOTE, ADD):
            return True
        if self.reason is not None or len(self._promotions) + len(self._copies) >= self.window:
            return False
        if step.action == PROMOTE:
            same = sum(each.source == step.source for each in self._promotions.values())
            return same < self.limits.promotions_per_source
        if now < self._free_at:
            return False
        most = self.limits.copies_per_node
        return all(self._copies_of(node) < most for node in _ends(step))

    def due_s(self) -> float:
        """Return the time from which the rate of bytes allows the next copy."""
        return self._free_at

    def began(self, step: Work, now: float) -> None:
        """Note that a step begins. Steps of an earlier run are noted, too."""
        if step.action == PROMOTE:
            self._promotions[step.id] = step
        elif step.action == ADD:
            self._copies[step.copy] = step
            if self.limits.bytes_per_s:
                self._free_at = max(self._free_at, now) + step.size_bytes / self.limits.bytes_per_s

    def ended(self, step: Work) -> None:
        """Note that a promotion has ended."""
        self._promotions.pop(step.id, None)

    def copied(self, step: Work) -> None:
        """Note that a copy has ended, whether it succeeded or not."""
        self._copies.pop(step.copy, None)

    def _copies_of(self, node: str) -> int:
        return sum(node in _ends(each) for each in self._copies.values())


def _ends(step: Work) -> set[str]:
    """Return the nodes that a copy concerns."""
    return {node for node in (step.source, step.target) if node is not None}
