"""This module joins the findings of queues that have one cause: a policy, or a dead-letter exchange.

A policy that wants more mirrors than there are nodes makes as many findings as it has queues, and all are remedied at
once. An operator reads one finding with their number and the first names. Its id names the cause, so it stays the same
while queues come and go.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from spark_ops.health.finding import Cause, Finding, Subject

QUEUES_MIN: Final = 3
"""The number of queues from which on their findings are joined; fewer are read one by one."""
NAMED_MAX: Final = 10
"""The maximal number of queues that the evidence of a joined finding names; those with the most load are kept."""
_SHOWN: Final = 3


def of_policy(vhost: str, policy: str | None, text: str) -> Cause | None:
    """Return a policy as the cause; None for a queue without one."""
    return None if policy is None else Cause(vhost, f"policy {policy!r}", text)


def joined(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings with one in place of those that have the same kind, severity and cause."""
    alone: list[Finding] = []
    groups: dict[tuple[str, str, Cause], list[Finding]] = defaultdict(list)
    for finding in findings:
        if finding.cause is None:
            alone.append(finding)
        else:
            groups[finding.kind, finding.severity, finding.cause].append(finding)
    ids: set[str] = set()
    for (_, severity, cause), members in sorted(groups.items(), key=lambda group: repr(group[0])):
        if len({each.subject.queue for each in members}) < QUEUES_MIN:
            alone += members
            continue
        one = _join(members, cause)
        if one.id in ids:  # of the same cause, but with another text or severity
            told = f"{cause.name} ({severity}: {cause.text})"
            one = replace(one, subject=replace(one.subject, cause=told))
        ids.add(one.id)
        alone.append(one)
    return alone


def _join(members: list[Finding], cause: Cause) -> Finding:
    by_load = sorted(members, key=lambda each: (-each.share, each.id))
    first = by_load[0]
    queues = list(dict.fromkeys(str(each.subject.queue) for each in by_load))
    shown = ", ".join(repr(name) for name in queues[:_SHOWN])
    more = ", …" if len(queues) > _SHOWN else ""
    nodes = {each.subject.node for each in members}
    node = first.subject.node if len(nodes) == 1 else None
    since = [each.since for each in members if each.since is not None]
    also = [text for each in by_load for text in each.evidence.get("also", ())]
    evidence: dict[str, Any] = {"count": len(queues), "queues": queues[:NAMED_MAX], "such_as": first.text}
    return replace(
        first,
        subject=Subject(node=node, vhost=cause.vhost, cause=cause.name),
        text=f"{len(queues)} queues of {cause.name} in {cause.vhost!r} {cause.text}: {shown}{more}",
        share=round(min(1.0, sum(each.share for each in members)), 4),
        since=min(since) if since else None,
        evidence={**evidence, "also": also[:NAMED_MAX]} if also else evidence,
        cause=None,
    )
