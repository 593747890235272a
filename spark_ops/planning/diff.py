"""The difference of two plans, queue by queue. Source: spark §5 (`show --diff`, `diff`)."""

from collections.abc import Iterable
from dataclasses import dataclass

from spark_ops.planning.plan import Plan, Step


@dataclass(frozen=True, slots=True)
class Change:
    """The change of a queue by a plan: its master's next node (None: stays), nodes that get and that lose a copy."""

    vhost: str
    queue: str
    master: str | None
    adds: tuple[str, ...]
    drops: tuple[str, ...]

    @property
    def text(self) -> str:
        """The change in a few words."""
        parts = [] if self.master is None else [f"master to {self.master}"]
        parts += [f"copy to {node}" for node in self.adds]
        parts += [f"no copy on {node}" for node in self.drops]
        return ", ".join(parts) or "nothing"


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of two plans: changes of only one, and queues that they change differently (first, second)."""

    only_first: tuple[Change, ...]
    only_second: tuple[Change, ...]
    changed: tuple[tuple[Change, Change], ...]
    same: int

    @property
    def is_none(self) -> bool:
        """True if both plans make the same changes."""
        return not (self.only_first or self.only_second or self.changed)


def changes_of(steps: Iterable[Step]) -> dict[tuple[str, str], Change]:
    """Return the net change of each queue by some steps, in order of their first step."""
    copies: dict[tuple[str, str], dict[str, int]] = {}
    masters: dict[tuple[str, str], str | None] = {}
    for step in steps:
        if step.action == "note" or step.vhost is None or step.queue is None:
            continue
        key = step.vhost, step.queue
        counts = copies.setdefault(key, {})
        if step.action == "promote":
            masters[key] = step.target
        elif step.action == "add_mirror" and step.target is not None:
            counts[step.target] = counts.get(step.target, 0) + 1
        elif step.action == "drop_mirror" and step.source is not None:
            counts[step.source] = counts.get(step.source, 0) - 1
    return {
        key: Change(
            *key,
            masters.get(key),
            tuple(node for node, count in counts.items() if count > 0),
            tuple(node for node, count in counts.items() if count < 0),
        )
        for key, counts in copies.items()
    }


def difference(first: Plan, second: Plan) -> Difference:
    """Return the difference of two plans."""
    one, other = changes_of(first.steps), changes_of(second.steps)
    both = [key for key in one if key in other]
    changed = tuple((one[key], other[key]) for key in both if _differ(one[key], other[key]))
    return Difference(
        tuple(change for key, change in one.items() if key not in other),
        tuple(change for key, change in other.items() if key not in one),
        changed,
        len(both) - len(changed),
    )


def _differ(one: Change, other: Change) -> bool:
    return (one.master, set(one.adds), set(one.drops)) != (other.master, set(other.adds), set(other.drops))
