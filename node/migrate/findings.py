"""Findings: what does not move, or is not the same afterwards, one line each.

A finding `blocks` if messages, objects or clients would be left behind or refused, it `differs` if something works
another way afterwards, and it is a `note` if an operator has something to know or to do.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Final, Literal, get_args

from node.catalogue.records import Json

Weight = Literal["blocks", "differs", "note"]

WEIGHTS: Final[tuple[Weight, ...]] = get_args(Weight)
"""The weights, the gravest first."""

NAMES_SHOWN: Final = 5
"""The names that a line has at most that stands for several findings of the same text."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    noun, name, vhost: the object; a vhost that is empty is not shown.   text: what is so.   advice: what
    to do, or empty.
    """

    weight: Weight
    noun: str
    name: str
    text: str
    vhost: str = ""
    advice: str = ""

    @property
    def subject(self) -> str:
        """The object with its name and vhost."""
        return f"{self.noun} {_named(self)}".rstrip()

    def as_json(self) -> dict[str, Json]:
        """Return the finding as an object of a plan."""
        return dict(asdict(self))


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings, each once, the gravest first, then by noun and text."""
    return tuple(
        sorted(
            set(findings),
            key=lambda each: (WEIGHTS.index(each.weight), each.noun, each.text, each.vhost, each.name),
        )
    )


def count_by_weight(findings: Iterable[Finding]) -> dict[Weight, int]:
    """Return the number of findings of each weight."""
    found: dict[Weight, int] = dict.fromkeys(WEIGHTS, 0)
    for each in findings:
        found[each.weight] += 1
    return found


def lines(findings: Iterable[Finding]) -> list[str]:
    """Return a line for each text; objects with the same text share it, and more than a few are counted."""
    groups: dict[tuple[str, str, str, str], list[Finding]] = {}
    for each in ordered(findings):
        groups.setdefault((each.weight, each.noun, each.text, each.advice), []).append(each)
    found = []
    for (weight, noun, text, advice), members in groups.items():
        names = ", ".join(_named(each) for each in members[:NAMES_SHOWN])
        if len(members) > NAMES_SHOWN:
            names += f" and {len(members) - NAMES_SHOWN:,} more"
        plural = noun + ("s" if len(members) > 1 else "")
        found.append(f"{weight:8}{plural} {names}: {text}".replace(" : ", ": "))
        if advice:
            found.append(f"{'':8}  → {advice}")
    return found


def _named(finding: Finding) -> str:
    if not finding.name:
        return ""
    return repr(finding.name) + (f" in {finding.vhost!r}" if finding.vhost else "")
