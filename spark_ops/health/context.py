"""The context that all rules share: the evidence, the thresholds, and helpers that create findings."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from spark_ops.health.catalogue import CATALOGUE
from spark_ops.health.facts import Evidence, NodeMinute, QueueHistory, ReplicaMinute
from spark_ops.health.finding import Cause, Finding, Severity, Subject
from spark_ops.health.minutes import Fact, filled, held_since
from spark_ops.health.settings import Settings

MINUTE_S = 60.0


@dataclass(frozen=True)
class Context:
    """One window of one cluster, and the thresholds that apply to it."""

    evidence: Evidence
    settings: Settings

    def of(self, kind: str, name: str) -> float:
        """Return a threshold of a kind."""
        return self.settings.of(kind, name)

    def minutes(self, kind: str, name: str = "minutes") -> int:
        """Return a threshold that is a number of minutes."""
        return round(self.settings.of(kind, name))

    def filled(self, facts: Sequence[Fact]) -> list[Fact | None]:
        """Return the latest fact up to each minute of the window, see `minutes.filled`."""
        stale = round(self.settings.health["stale_minutes"])
        return filled(facts, self.evidence.start, self.evidence.end, stale)

    def held_since(self, kind: str, bad: Sequence[bool | None]) -> float | None:
        """Return since when a finding has been active at the window's end, s since 1970; None if it is not active."""
        at = held_since(
            bad,
            self.minutes(kind, "raise_minutes"),
            self.minutes(kind, "raise_of"),
            round(self.settings.health["clear_minutes"]),
        )
        return None if at is None else (self.evidence.start + at) * MINUTE_S

    def finding(
        self,
        kind: str,
        subject: Subject,
        text: str,
        *,
        severity: Severity | None = None,
        share: float = 0.0,
        since: float | None = None,
        advice: str | None = None,
        common: Cause | None = None,
        **evidence: Any,
    ) -> Finding:
        """Return a finding of a kind. The operator's severity overrides the rule's, which overrides the catalogue's.

        common: the cause that other queues' findings may have in common with this one.
        """
        found = CATALOGUE[kind]
        weight = self.settings.severities.get(kind) or severity or found.severity
        told = {
            name: round(value, 4) if isinstance(value, float) else value for name, value in evidence.items()
        }
        share = round(min(1.0, max(0.0, share)), 4)
        return Finding(kind, weight, subject, text, advice or found.advice, share, since, told, common)

    @cached_property
    def latest(self) -> dict[str, NodeMinute]:
        """The last fact of each node that is up at the end of the window, that is, whose last fact is not stale."""
        oldest = self.evidence.end - self.settings.health["stale_minutes"]
        return {
            node: facts[-1]
            for node, facts in self.evidence.nodes.items()
            if facts and facts[-1].minute >= oldest
        }

    @cached_property
    def silent(self) -> dict[str, int]:
        """The last minute of each node that reported in the window and is silent at its end."""
        least = self.minutes("cluster-down", "silent_minutes")
        return {
            node: facts[-1].minute
            for node, facts in self.evidence.nodes.items()
            if facts and self.evidence.end - facts[-1].minute - 1 >= least
        }

    @cached_property
    def up(self) -> set[str]:
        """The nodes that are up according to any node that is not silent."""
        return {
            member
            for node, facts in self.evidence.nodes.items()
            if facts and node not in self.silent
            for member in facts[-1].view_members or ()
        }

    def node_share(self, node: str) -> float:
        """Return the share of the cluster's load that a node's masters cause; 1 / nodes if the load is unknown."""
        total = sum(load.cores for load in self.evidence.loads)
        if total <= 0:
            return 1 / max(1, len(self.evidence.nodes))
        return sum(load.cores for load in self.evidence.loads if load.node == node) / total


def masters(queue: QueueHistory) -> list[ReplicaMinute]:
    """Return the facts of a queue's master, on any node, in order of minutes; the latest epoch wins in each minute."""
    found: dict[int, ReplicaMinute] = {}
    for facts in queue.copies.values():
        for fact in facts:
            if fact.role == "master":
                other = found.get(fact.minute)
                if other is None or (other.epoch or 0) < (fact.epoch or 0):
                    found[fact.minute] = fact
    return [found[minute] for minute in sorted(found)]


def subject_of(queue: QueueHistory, node: str | None = None) -> Subject:
    """Return the queue, or its copy on a node, as the subject of a finding."""
    return Subject(node=node, vhost=queue.vhost, queue=queue.queue)


def name_of(queue: QueueHistory) -> str:
    """Return a queue's name and vhost as findings print them."""
    return f"queue {queue.queue!r} in {queue.vhost!r}"
