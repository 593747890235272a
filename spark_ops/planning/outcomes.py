"""The results of earlier plans, and the margin that the next plan needs because of them. Pure.

`report --after` measures which share of the change that a plan promised came, and how far nodes were from the line of
that share: their noise. A change that is smaller than the noise cannot be told from chance, and a promise of which
only a part comes has to be larger by that part. So a node is relieved of CPU only if it uses more than the margin above
the load at which relief ends. Hard goals and other loads need no margin.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

FORMAT: Final = "spark-ops-outcome/1"
OUTCOMES_MAX: Final = 20
"""The number of outcomes of a cluster from which is learned; the newest ones count."""
BAND: Final = 2.0
"""The noise band has this many standard deviations to each side."""
KEPT_MIN: Final = 0.25
"""The smallest share by which a margin is divided, so that one bad plan does not end all planning."""
MARGIN_MAX: Final = 0.25
"""The largest margin, as a share of a node's cores."""
ERROR_MAX: Final = 0.25
"""An outcome says which share was kept only if that share's standard error is at most this."""
_ERROR_MIN: Final = 0.05
"""The least standard error in weights: one plan that was measured well by chance does not outweigh all others."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The measured result of one plan that was carried out completely.

    at: when it was measured, ISO.   share: of the promised change that came.   error: its standard error.
    noise: standard deviation of a node's CPU around that, as a share of the node's cores.
    """

    plan_id: str
    at: str
    share: float
    error: float
    noise: float

    @property
    def document(self) -> dict[str, Any]:
        """The outcome as JSON."""
        figures = {"share": self.share, "error": self.error, "noise": self.noise}
        return {"format": FORMAT, "plan_id": self.plan_id, "at": self.at, **figures}


@dataclass(frozen=True, slots=True)
class Learned:
    """The lessons of earlier plans.   plans: their number.   kept: share of their promises that came; None: not known.

    noise: standard deviation of a node's CPU, as a share of its cores.
    """

    plans: int
    kept: float | None
    noise: float

    @property
    def margin(self) -> float:
        """The share of a node's cores that a node has to be relieved of at least."""
        kept = 1.0 if self.kept is None else min(max(self.kept, KEPT_MIN), 1.0)
        return round(min(BAND * self.noise / kept, MARGIN_MAX), 4)

    @property
    def document(self) -> dict[str, Any]:
        """The figures that a plan names among its inputs."""
        kept = None if self.kept is None else round(self.kept, 4)
        return {"plans": self.plans, "kept": kept, "noise": round(self.noise, 4), "margin": self.margin}


def outcome_of(after: Mapping[str, Any]) -> Outcome | None:
    """Return the outcome in a comparison of `report --after`; None if it teaches nothing.

    A plan that was not carried out completely teaches nothing: what did not come was not done.
    """
    promise, moves = after.get("promise") or {}, after.get("moves") or {}
    figures = [promise.get(name) for name in ("share", "error", "noise")]
    if None in figures or moves.get("arrived", 0) + moves.get("gone", 0) != moves.get("planned"):
        return None
    return Outcome(str(after.get("plan_id")), str(after.get("created")), *map(float, figures))  # type: ignore[arg-type]


def outcome_from(document: Any) -> Outcome:
    """Return the outcome in a document. Raises: ValueError, in one line."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT}")
    texts = [document.get(name) for name in ("plan_id", "at")]
    numbers = [document.get(name) for name in ("share", "error", "noise")]
    if not all(isinstance(each, str) for each in texts):
        raise ValueError("it names no plan or no time")
    if not all(isinstance(each, int | float) and math.isfinite(each) for each in numbers):
        raise ValueError("a figure is no number")
    share, error, noise = (float(each) for each in numbers if each is not None)
    if error < 0 or noise < 0:
        raise ValueError("a figure is below 0")
    return Outcome(str(texts[0]), str(texts[1]), share, error, noise)


def learned(outcomes: Iterable[Outcome]) -> Learned | None:
    """Return what the newest outcomes teach; None if there are none."""
    newest = sorted(outcomes, key=lambda each: (each.at, each.plan_id))[-OUTCOMES_MAX:]
    if not newest:
        return None
    noise = math.sqrt(math.fsum(each.noise**2 for each in newest) / len(newest))
    sure = [each for each in newest if each.error <= ERROR_MAX]
    weights = [max(each.error, _ERROR_MIN) ** -2 for each in sure]
    kept = math.fsum(weight * each.share for weight, each in zip(weights, sure, strict=True))
    return Learned(len(newest), kept / math.fsum(weights) if sure else None, noise)


def sentence(document: Any) -> str | None:
    """Return what a plan says about earlier ones, from the figures among its inputs; None if it has none."""
    if not isinstance(document, dict):
        return None
    kept, plans, margin = (document.get(name) for name in ("kept", "plans", "margin"))
    if not isinstance(margin, int | float) or not isinstance(plans, int):
        return None
    many = "1 earlier plan" if plans == 1 else f"{plans} earlier plans"
    if isinstance(kept, int | float):
        who = "it" if plans == 1 else "they"
        return f"{many} kept {kept:.0%} of what {who} promised; margin {margin:.1%} of a node's CPU"
    return f"what {many} promised was too small to measure; margin {margin:.1%} of a node's CPU"
