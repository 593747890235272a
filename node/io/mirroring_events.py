"""What has become of mirrored queues of late, for the HTTP API and metrics: the last events, and counts by kind.

A node knows those that it told the log, of the queues whose master it has or had; together the nodes know all.
"""

import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Final

from node.broker.observer import MirrorEvent

KEPT: Final = 500
"""Events of a node; with the longest names some 500 kB."""

MASTER_CHANGES: Final = ("promotion", "transfer", "revived")
"""The kinds after which a queue has another master."""

_DETAILS: Final = ("detail", "proposed")
"""Lines of the log that say no more than an event before or after them."""


class MirroringEvents:
    """Of one process, however often its broker starts.   clock: seconds since 1970."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.counts: Counter[str] = Counter()
        """By kind, since the process started."""
        self._clock = clock
        self._last: deque[dict[str, Any]] = deque(maxlen=KEPT)

    def note(self, event: MirrorEvent) -> None:
        """Something happened now."""
        if event.kind in _DETAILS:
            return
        self.counts[event.kind] += 1
        self._last.append(
            {
                "time": round(self._clock() * 1000),
                "level": event.level,
                "kind": event.kind,
                "vhost": event.vhost,
                "name": event.queue,
                "node": event.node,
                "former": event.former,
                "text": event.text,
            }
        )

    @property
    def master_changes(self) -> int:
        """How often a queue got another master."""
        return sum(self.counts[kind] for kind in MASTER_CHANGES)

    def latest(self) -> list[dict[str, Any]]:
        """The newest first. Times are in ms since 1970."""
        return [dict(event) for event in reversed(self._last)]
