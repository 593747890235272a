"""Estimate the offsets of other nodes' clocks, and the round-trip time to them, in the way of NTP.

    request at a, reply b received at c:  theirs - ours = b - (a + c) / 2, with an error of at most (c - a) / 2

The round trip goes over the control stream and includes the time for which the other node's event loop was busy, so
it is an upper bound of the latency between members of a ring. Source: spark §2.1, §2.4.
"""

from collections.abc import Iterable
from statistics import median
from typing import Final, NamedTuple

from node.queue.metering import BUCKETS, bucket_of

PEERS_MAX: Final = 16
"""The most nodes that are asked each time, in turn: it bounds the number of requests in a large cluster."""
KEPT_S: Final = 120.0
"""The time for which a reply is valid, in seconds."""


class _Known(NamedTuple):
    offset_ms: float
    error_ms: float
    at_s: float


class Clocks:
    """One node's knowledge of the clocks of the others."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._rtt_us: dict[str, list[int]] = {}
        self._next = 0

    def choose(self, names: Iterable[str]) -> list[str]:
        """Return the nodes to ask now: all, or of many the next ones."""
        others = sorted(names)
        for gone in self._rtt_us.keys() - set(others):
            del self._rtt_us[gone]
        if len(others) <= PEERS_MAX:
            return others
        at = self._next % len(others)
        self._next = at + PEERS_MAX
        return (others[at:] + others[:at])[:PEERS_MAX]

    def answered(self, name: str, asked_s: float, theirs_s: float, took_s: float, now: float) -> None:
        """Record a node's reply with its time.   asked_s: our time of the request.   now: monotonic."""
        self._rtt_us.setdefault(name, [0] * BUCKETS)[bucket_of(took_s * 1e6)] += 1
        offset_s = asked_s + took_s / 2 - theirs_s
        self._known[name] = _Known(offset_s * 1000, took_s * 500, now)

    def rtt_us(self, name: str) -> list[int] | None:
        """Return the round-trip times to a node as a histogram of counters; None: it has not replied."""
        return self._rtt_us.get(name)

    def skew_ms(self, now: float) -> tuple[int, int] | None:
        """Return our clock minus the median of the members' clocks, and the error bound; None: no reply is valid."""
        self._known = {name: each for name, each in self._known.items() if now - each.at_s <= KEPT_S}
        if not self._known:
            return None
        offsets = [0.0, *(each.offset_ms for each in self._known.values())]
        error = max(each.error_ms for each in self._known.values())
        return round(median(offsets)), round(error + 0.5)
