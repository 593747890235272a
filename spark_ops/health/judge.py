"""This module runs all rules on the evidence, merges findings into those that explain them, and joins those of one
cause.

The result depends only on the evidence, so that the batch job and the stream give the same result.
Source: spark §3.2, §3.5.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from spark_ops.health.catalogue import CATALOGUE, EXPLAINED_BY
from spark_ops.health.common_causes import joined
from spark_ops.health.context import Context
from spark_ops.health.coverage import Coverage, judge_gaps, measure
from spark_ops.health.facts import Evidence
from spark_ops.health.finding import Finding, Subject, Verdict
from spark_ops.health.rules_cluster import judge_balance, judge_events, judge_files
from spark_ops.health.rules_confirms import judge_confirms
from spark_ops.health.rules_copies import judge_copies
from spark_ops.health.rules_links import judge_links
from spark_ops.health.rules_node import judge_node, judge_resources
from spark_ops.health.rules_outage import judge_outage
from spark_ops.health.rules_work import judge_work
from spark_ops.health.score import score, verdict
from spark_ops.health.settings import Settings

SETTLES_S: Final = 120
"""A consequence may be seen this many seconds earlier than its cause, because facts are of whole minutes."""
_RANK: Final = {"crit": 0, "warn": 1, "info": 2}
_ORDER: Final = {kind: at for at, kind in enumerate(CATALOGUE)}


@dataclass(frozen=True, slots=True)
class Judged:
    """The result for a window.   score: None if the verdict is `unknown`."""

    context: Context
    findings: tuple[Finding, ...]
    coverage: Coverage
    verdict: Verdict
    score: int | None


def judge(evidence: Evidence, settings: Settings) -> Judged:
    """Judge a window. The findings are sorted, the most severe first."""
    context = Context(evidence, settings)
    coverage = measure(context)
    found = [finding for finding in _all(context, coverage) if finding.kind not in settings.disabled]
    findings = sorted(
        joined(_folded(found)), key=lambda f: (_RANK[f.severity], -f.share, _ORDER[f.kind], f.id)
    )
    said = verdict(context, findings, coverage)
    points = None if said == "unknown" else score(context, findings)
    return Judged(context, tuple(findings), coverage, said, points)


def _all(context: Context, coverage: Coverage) -> Iterator[Finding]:
    for queue in context.evidence.queues:
        yield from judge_copies(context, queue)
        yield from judge_work(context, queue)
        yield from judge_confirms(context, queue)
    yield from judge_outage(context)
    yield from judge_links(context)
    for node in sorted(context.evidence.nodes):
        yield from judge_node(context, node)
        yield from judge_resources(context, node)
    yield from judge_events(context)
    yield from judge_balance(context)
    yield from judge_files(context)
    yield from judge_gaps(context, coverage)


def _folded(findings: list[Finding]) -> list[Finding]:
    """Return the findings without those that another finding explains; the texts move to the evidence of the latter."""
    kept = {finding.id: finding for finding in findings}
    for finding in findings:
        causes = [
            other
            for other in findings
            if other.kind in EXPLAINED_BY.get(finding.kind, ())
            and (finding.severity != "crit" or other.severity == "crit")
            and _is_about_same(other, finding)
        ]
        if not causes:
            continue
        del kept[finding.id]
        for cause in causes:
            told = kept.get(cause.id)
            if told is not None:
                also = [*told.evidence.get("also", ()), finding.text]
                kept[cause.id] = replace(told, evidence={**told.evidence, "also": also})
    return list(kept.values())


def _is_about_same(cause: Finding, finding: Finding) -> bool:
    """True if the cause concerns the queue or node of the finding, or if one of both is about the cluster."""
    of, by = finding.subject, cause.subject
    if by == Subject():
        return True
    if cause.kind == "node-down" and of.queue is not None:
        # A mirror that is missing since the node went down, and not before.
        return cause.since is None or finding.since is None or finding.since >= cause.since - SETTLES_S
    nodes = finding.evidence.get("nodes")
    if of.queue is not None and nodes is not None and by.queue is None:
        # A queue whose confirms wait for its nodes and for the links between them.
        return by.node in nodes and (by.to_node is None or by.to_node in nodes)
    if of.queue is not None:
        return (of.vhost, of.queue) == (by.vhost, by.queue)
    if of.node is not None:
        return of.node in (by.node, cause.evidence.get("node"))
    return True
