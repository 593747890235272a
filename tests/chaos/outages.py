"""The times at which nodes were without a broker, read from their logs, whatever the cause.

A node whose lease is over pauses, on a busy machine also when no fault was near: its masters move, and messages in
memory are gone there. So what docs/ allow after the loss of a node is allowed near an outage, and what they allow when
all copies are down at the same time (A7 of docs/mirrors.md) in an outage of all nodes. An outage begins no earlier than
the log proves: a node that was killed is known to be down from the first line of its next start.
"""

import math
import re
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from tests.chaos.broker import FLUFFLE, BrokerCluster
from tests.chaos.cluster import ChaosNode

STAMP: Final = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+[+-]\d\d:\d\d) \[")
DOWN: Final = re.compile(
    r"^\S+ \S+ \[\w+\] <\S+> "
    r"(this node serves no clients for now: |this node restarts its broker: |Stopping message store for )"
)
UP: Final = re.compile(r"^\S+ \S+ \[\w+\] <\S+> started TCP listener on ")
"""The line about AMQP's listener, which is the last step of a start; those of plug-ins name their protocols."""


class Span(NamedTuple):
    """A time from `began` to `ended`, in seconds; infinite while it lasts."""

    began: float
    ended: float

    def meets(self, since: float, until: float) -> bool:
        """Whether a part of this time is within another one."""
        return self.began <= until and since <= self.ended

    def earlier(self, by_s: float) -> "Span":
        """Return the same time by a clock that is so far behind."""
        return Span(self.began - by_s, self.ended - by_s)


class Outages(NamedTuple):
    """The outages of each node, in the order of time."""

    nodes: Sequence[Sequence[Span]] = ()

    @property
    def of_all(self) -> list[Span]:
        """The times at which no node had a broker."""
        return common(self.nodes)

    def is_near(self, since: float, until: float) -> bool:
        """Whether a node was without a broker within this time."""
        return any(span.meets(since, until) for spans in self.nodes for span in spans)

    def note(self) -> str:
        """Return how often, in words."""
        count = sum(map(len, self.nodes))
        return f"nodes were without a broker {count} times, all at the same time {len(self.of_all)} times"


def outages_of(cluster: BrokerCluster) -> Outages:
    """Return the outages of a cluster so far, monotonic; none of a broker whose logs say it otherwise."""
    if cluster.kind != FLUFFLE:
        return Outages()
    offset_s = time.time() - time.monotonic()
    found = []
    for node in cluster.nodes:
        assert isinstance(node, ChaosNode)
        found.append([span.earlier(offset_s) for span in spans(node.log_texts())])
    return Outages(found)


def spans(logs: Sequence[str]) -> list[Span]:
    """Return the outages of one node, in seconds since 1970.   logs: of all its starts. The first start is none."""
    found: list[Span] = []
    began: float | None = None
    was_up = False
    for log in logs:
        for number, (at, line) in enumerate(_stamped(log)):
            if UP.match(line):
                if began is not None:
                    found.append(Span(began, at))
                began, was_up = None, True
            elif was_up and began is None and (number == 0 or DOWN.match(line)):
                began = at
    if began is not None:
        found.append(Span(began, math.inf))
    return found


def common(found: Sequence[Sequence[Span]]) -> list[Span]:
    """Return the times that are in one span of each of these; none if there are none."""
    if not found:
        return []
    shared = list(found[0])
    for others in found[1:]:
        shared = [
            Span(max(one.began, other.began), min(one.ended, other.ended))
            for one in shared
            for other in others
            if one.meets(other.began, other.ended)
        ]
    return sorted(shared)


def _stamped(log: str) -> Iterator[tuple[float, str]]:
    """Yield the lines that begin with a time, and that time. Others continue a line, or are not of the log."""
    for line in log.splitlines():
        stamp = STAMP.match(line)
        if stamp is not None:
            yield datetime.fromisoformat(stamp[1]).timestamp(), line
