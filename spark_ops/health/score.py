"""The scores of a cluster and of its nodes, and the verdict.

The score is 100 minus, for each finding, its weight times the share of the load that it affects. All findings of one
kind together count as at most one that affects the whole load, since they often have one cause. The score is at least
0, and with a critical finding at most `score_cap_crit`. Source: spark §3.2.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from spark_ops.health.catalogue import WEIGHTS
from spark_ops.health.context import Context
from spark_ops.health.coverage import Coverage
from spark_ops.health.finding import Finding, Verdict


def verdict(context: Context, findings: Iterable[Finding], coverage: Coverage) -> Verdict:
    """Return the verdict. A critical finding decides it, even if few rows were seen. Otherwise it is `unknown` if
    coverage is too low, since missing rows could change the findings."""
    health = context.settings.health
    severities = {finding.severity for finding in findings}
    if "crit" in severities:
        return "critical"
    if coverage.share < health["coverage_min"] or coverage.minutes < health["span_min_minutes"]:
        return "unknown"
    return "findings" if "warn" in severities else "healthy"


def score(context: Context, findings: Iterable[Finding]) -> int:
    """Return the score of the cluster, 0 to 100."""
    least = context.settings.health["share_min"]
    return _capped(context, [(finding, max(least, finding.share)) for finding in findings])


def node_score(context: Context, node: str, findings: Iterable[Finding]) -> int:
    """Return the score of a node, 0 to 100: each finding about the node counts by its share of the node's own load."""
    own = context.node_share(node)
    least = context.settings.health["share_min"]
    about = [
        (finding, min(1.0, max(least, finding.share / own if own > 0 else 1.0)))
        for finding in findings
        if node in (finding.subject.node, finding.evidence.get("node"), finding.evidence.get("master"))
    ]
    return _capped(context, about)


def _capped(context: Context, weighed: Sequence[tuple[Finding, float]]) -> int:
    lost: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for finding, share in weighed:
        weight = WEIGHTS[finding.severity]
        lost[finding.kind].append((weight, weight * share))
    points = 100.0 - sum(
        min(max(weight for weight, _ in parts), sum(part for _, part in parts)) for parts in lost.values()
    )
    if any(finding.severity == "crit" for finding, _ in weighed):
        points = min(points, context.settings.health["score_cap_crit"])
    return max(0, round(points))
