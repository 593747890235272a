"""A report has a chaos run's figures, made of what was recorded, without any I/O. `to_json` is the whole of it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Final

from tests.chaos.mirror_ledger import MUST_BE_0, NUMBERS
from tests.chaos.timeline import Latencies, quantile

FAILOVER: Final = frozenset(
    {"kill-master", "kill-leader", "kill-two", "freeze-and-kill", "pause-master", "isolate-master"}
)
"""Kinds after which another node has to become the master of the queue that is measured."""
QUANTILES: Final = {"p50": 0.5, "p99": 0.99, "max": 1.0}
LATENCY_QUANTILES: Final = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}


@dataclass(slots=True)
class FaultRecord:
    """A fault that was injected.

    at_s: since the run began; planned_s: of load, in the schedule.   lasts_s: until it was undone.   up_s: until all
    was well after that; None: never within the limit.   unavailable_s: the longest time in which no client at all had a
    confirm of the queue `hot`.   under: what else was wrong meanwhile.
    """

    at_s: float
    planned_s: float
    kind: str
    text: str = ""
    under: str = ""
    lasts_s: float = 0.0
    up_s: float | None = None
    unavailable_s: float = 0.0


@dataclass(slots=True)
class Report:
    """A run.

    against: fluffle or rabbitmq, with how it was set up.   clients: how they connect.   minutes: of load that were
    asked for.   gaps: what was not injected, in words.   skipped: planned faults whose time was over.   compared: how
    many of the episodes ended with all queues drained and compared.   gaps_s: how long the queue `hot` had no confirm,
    each time.   rows of `confirms` and `deliveries`: seconds.   notes: what an operator had to do, and the like.
    """

    against: str
    network: str
    clients: str
    seed: int
    minutes: float
    began_at: str
    commit: str
    machine: str
    kinds: Sequence[str]
    gaps: list[str] = field(default_factory=list)
    episodes: int = 0
    compared: int = 0
    skipped: int = 0
    promotions: int = 0
    lasted_s: float = 0.0
    is_over: bool = False
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NUMBERS, 0))
    faults: list[FaultRecord] = field(default_factory=list)
    confirms: list[int] = field(default_factory=list)
    deliveries: list[int] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)
    latency_s: dict[str, dict[str, float]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def shows(self) -> bool:
        """Whether anything was confirmed and compared: without that, nothing lost says nothing."""
        return self.compared > 0 and self.counts["acknowledged"] > 0

    @property
    def is_clean(self) -> bool:
        """Whether something was compared, and nothing happened that must not."""
        return self.shows and not self.problems and not any(self.counts[name] for name in MUST_BE_0)

    def by_kind(self) -> dict[str, list[FaultRecord]]:
        """The faults, by kind."""
        found: dict[str, list[FaultRecord]] = {}
        for fault in sorted(self.faults, key=lambda each: each.kind):
            found.setdefault(fault.kind, []).append(fault)
        return found

    def unavailability(self) -> dict[str, float]:
        """Return times of the faults in which no client had a confirm, in s; `total`: of all gaps."""
        longest = [fault.unavailable_s for fault in self.faults]
        return {name: quantile(longest, part) for name, part in QUANTILES.items()} | {
            "total": sum(self.gaps_s)
        }

    def failover(self) -> dict[str, float]:
        """Return times of the faults that took the master away; `n`: how many."""
        longest = [fault.unavailable_s for fault in self.faults if fault.kind in FAILOVER]
        return {"n": len(longest)} | {name: quantile(longest, part) for name, part in QUANTILES.items()}

    def bound(self) -> float | None:
        """If no fault of n lost anything, the chance that one does is below this, with 95 % confidence: 3/n.

        None: something was lost, or nothing compared.
        """
        is_known = self.shows and self.faults and not self.counts["lost"] and not self.counts["unread"]
        return min(1.0, 3 / len(self.faults)) if is_known else None

    def to_json(self) -> str:
        """All of it, and what follows from it."""
        derived: dict[str, Any] = {
            "is_clean": self.is_clean,
            "faults_by_kind": {kind: len(faults) for kind, faults in self.by_kind().items()},
            "unavailability_s": self.unavailability(),
            "failover_s": self.failover(),
            "loss_probability_bound": self.bound(),
        }
        return json.dumps({**derived, **asdict(self)}, indent=1)

    # --- text ---

    def headline(self) -> str:
        """Return the figures that count, in a line."""
        counts = self.counts
        verdict = "clean" if self.is_clean else "NOT CLEAN" if self.shows else "NOTHING SHOWN"
        verdict += "" if self.is_over else ", so far"
        return (
            f"{verdict}: {counts['acknowledged']:,} confirmed, {counts['lost']:,} lost, {counts['stuck']:,} stuck, "
            f"{len(self.faults):,} faults, {self.promotions:,} promotions in {self.minutes:g} min"
        )

    def facts(self) -> list[tuple[str, str]]:
        """Return what was run and what it came to, as names and texts."""
        unavailable, failover, bound = self.unavailability(), self.failover(), self.bound()
        facts = [
            ("against", f"{self.against}, commit {self.commit}, on {self.machine}"),
            ("run", f"{self.began_at}, {self.minutes:g} min of load, {self.lasted_s / 60:.1f} min in all"),
            ("seed", f"{self.seed}, network {self.network}, clients {self.clients}"),
            ("episodes", f"{self.episodes}, of which {self.compared} drained and compared"),
            ("faults", f"{len(self.faults)} injected, {self.skipped} planned ones had no time"),
            ("not drawn", " ".join(sorted(set(self.kinds) - set(self.by_kind()))) or "each kind was"),
            ("promotions", f"{self.promotions} (queues with another master after a fault than before)"),
            ("unavailable", f"{_times(unavailable)} of the faults; {unavailable['total']:.1f} s in all"),
            ("failover", f"{_times(failover)} of {failover['n']:.0f} faults that took the master away"),
        ]
        for name, quantiles in self.latency_s.items():
            texts = [f"{each} {1000 * value:.1f} ms" for each, value in quantiles.items()]
            facts.append((f"confirm, {name}", ", ".join(texts)))
        if bound is None:
            facts.append(("bound", "none: something was lost, or nothing injected and compared"))
        else:
            text = f"below {bound:.2%} for a fault of this mix to lose anything (3/n, 95 % confidence)"
            facts.append(("bound", text))
        return facts

    def kinds_table(self) -> list[tuple[str, int, str, str]]:
        """By kind of fault: how many, unavailable and up again, median and longest."""
        rows = []
        for kind, faults in self.by_kind().items():
            ups = [fault.up_s for fault in faults if fault.up_s is not None]
            rows.append((kind, len(faults), _spread([each.unavailable_s for each in faults]), _spread(ups)))
        return rows

    def text(self) -> str:
        """For a terminal."""
        lines = [self.headline(), ""]
        lines += [f"{name:16}{text}" for name, text in self.facts()]
        lines += ["", f"{'fault':20}{'n':>5}{'unavailable s':>18}{'up again s':>18}   (median, longest)"]
        lines += [f"{kind:20}{n:5}{gap:>18}{up:>18}" for kind, n, gap, up in self.kinds_table()]
        lines += ["", *(f"{name:18}{number:12,}{_must(name)}" for name, number in self.counts.items())]
        lines += ["", "not injected:", *(f"  {gap}" for gap in self.gaps)]
        for title, texts in (("notes", self.notes), ("problems", self.problems)):
            if texts:
                lines += ["", f"{title}:", *(f"  {text}" for text in texts)]
        return "\n".join(lines) + "\n"


def latency_quantiles(latencies: Latencies) -> dict[str, float]:
    """In s."""
    return {name: latencies.quantile(part) for name, part in LATENCY_QUANTILES.items()}


def _times(quantiles: dict[str, float]) -> str:
    return ", ".join(f"{name} {quantiles[name]:.2f} s" for name in QUANTILES)


def _spread(values: Sequence[float]) -> str:
    return f"{median(values):.2f}, {max(values):.2f}" if values else "-"


def _must(name: str) -> str:
    return "   must be 0" if name in MUST_BE_0 else ""
