"""Rules about the links between nodes. Links that are bad at the same time and share nodes are one finding.

A round trip is measured over the control channel of two processes, so a node without CPU makes each of its links look
slow, in both directions. Source: spark §2.7, §3.2.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from spark_ops.health.context import MINUTE_S, Context
from spark_ops.health.facts import LinkMinute
from spark_ops.health.finding import Finding, Subject
from spark_ops.health.minutes import bucket_percentile, bucket_rises, percentile, rises

KIND = "flapping-link"
NAMED_MAX = 20
"""The most links that the evidence of a finding names."""


@dataclass(frozen=True, slots=True)
class BadLink:
    """A link that is interrupted or slow.   text: what is wrong with it.   since: s since 1970."""

    from_node: str
    to_node: str
    text: str
    since: float
    reconnects: int
    hop_us: float | None
    usual_us: float | None


def judge_links(context: Context) -> Iterator[Finding]:
    """Yield a finding for each group of bad links that are connected by their nodes."""
    bad = [
        link
        for (from_node, to_node), facts in sorted(context.evidence.links.items())
        if (link := _bad_link(context, from_node, to_node, facts)) is not None
    ]
    for group in _connected(bad):
        yield _finding(context, group)


def _connected(links: list[BadLink]) -> list[list[BadLink]]:
    """Return the links in groups. Two links are in one group if they share a node, directly or through other links."""
    groups: list[tuple[set[str], list[BadLink]]] = []
    for link in links:
        ends, members = {link.from_node, link.to_node}, [link]
        apart = []
        for nodes, others in groups:
            if nodes & ends:
                ends, members = ends | nodes, [*others, *members]
            else:
                apart.append((nodes, others))
        groups = [*apart, (ends, members)]
    return [members for _, members in groups]


def _finding(context: Context, links: list[BadLink]) -> Finding:
    """Return the finding of a group: about the link, about the node that all links share, or about the cluster."""
    pairs = {frozenset((link.from_node, link.to_node)) for link in links}
    common = set.intersection(*({link.from_node, link.to_node} for link in links))
    if len(links) == 1:
        subject = Subject(node=links[0].from_node, to_node=links[0].to_node)
    elif len(pairs) > 1 and len(common) == 1:
        subject = Subject(node=next(iter(common)))
    elif len(pairs) == 1:
        one, other = sorted(common)
        subject = Subject(node=one, to_node=other)
    else:
        subject = Subject()
    first = f"the link from {links[0].from_node} to {links[0].to_node} {links[0].text}"
    if len(links) > 1:
        of = "of " + next(iter(common)) if len(pairs) > 1 and len(common) == 1 else "between nodes"
        first = f"{len(links)} links {of} are unstable or slow, such as: {first}"
    nodes = {link.from_node for link in links} | {link.to_node for link in links}
    return context.finding(
        KIND,
        subject,
        first,
        share=max(context.node_share(node) for node in nodes),
        since=min(link.since for link in links),
        reconnects=max(link.reconnects for link in links),
        hop_p99_us=max((link.hop_us for link in links if link.hop_us is not None), default=None),
        hop_usual_us=max((link.usual_us for link in links if link.usual_us is not None), default=None),
        links=[f"{link.from_node} → {link.to_node}" for link in links[:NAMED_MAX]],
        count=len(links),
    )


def _bad_link(context: Context, from_node: str, to_node: str, facts: list[LinkMinute]) -> BadLink | None:
    """Return a link that is interrupted repeatedly or is much slower than usual; None if it is not."""
    end, minutes = context.evidence.end, context.minutes(KIND)
    by_fact = rises(facts, lambda fact: fact.reconnects_total)
    clear = round(context.settings.health["clear_minutes"])
    most, since = 0, 0
    for last in range(end - clear, end):
        cuts = [
            (fact.minute, n)
            for fact, n in zip(facts, by_fact, strict=True)
            if last - minutes < fact.minute <= last
        ]
        count = sum(n for _, n in cuts)
        if count > most:
            most, since = count, next(minute for minute, n in cuts if n)
    now_us, usual_us = _hop_us(context, facts, end - minutes, end), _usual_hop_us(context, facts)
    is_slow = (
        now_us is not None
        and usual_us is not None
        and now_us > context.of(KIND, "hop_factor") * usual_us
        and now_us > context.of(KIND, "hop_min_us")
    )
    reasons = []
    if most >= context.of(KIND, "reconnects"):
        reasons.append(f"was interrupted {most} times in {minutes} min")
    if is_slow:
        reasons.append(f"takes {(now_us or 0) / 1000:.1f} ms, usually {(usual_us or 0) / 1000:.1f} ms (p99)")
    if not reasons:
        return None
    begun = (since if most >= context.of(KIND, "reconnects") else end - minutes) * MINUTE_S
    return BadLink(from_node, to_node, " and ".join(reasons), begun, most, now_us, usual_us)


def _hop_us(context: Context, facts: list[LinkMinute], start: int, end: int) -> float | None:
    """Return the p99 of a link's round trips in the minutes [start, end), in us."""
    counts = bucket_rises(facts, lambda fact: fact.rtt_us, start, end)
    return bucket_percentile(counts, context.evidence.bucket_limits_us, 0.99)


def _usual_hop_us(context: Context, facts: list[LinkMinute]) -> float | None:
    """Return the usual p99 of a link's round trips: the 20th percentile of the intervals before the last one, in us.

    With the median, a link that was bad for most of the window would be compared with itself.
    """
    minutes = context.minutes(KIND)
    ends = range(context.evidence.end - minutes, context.evidence.start + minutes - 1, -minutes)
    known = [us for end in ends if (us := _hop_us(context, facts, end - minutes, end)) is not None]
    return percentile(known, 0.2) if known else None
