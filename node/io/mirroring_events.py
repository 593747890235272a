"""The HTTP API and metrics show the last events of mirrored queues, and their counts by kind.

A node keeps the events that it logged, of the queues whose master it has or had; together the nodes have all. A
failover makes several events a queue, most of them about its repair. So that these don't displace what an operator
looks for, each queue keeps its own last news (all events but repairs) beside the last events of all queues.
"""

import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from node.client.observer import MirrorEvent

KEPT: Final = 500
"""The number of events that a node keeps, of all kinds; with the longest names they have some 500 kB."""

NEWS_OF_A_QUEUE: Final = 10
NEWS_MAX: Final = 20_000
"""The most news of all queues, some 10 MB. Beyond that the queue with the oldest latest news loses its own."""

MASTER_CHANGES: Final = ("promotion", "transfer", "revived")
"""The kinds of events after which a queue has another master."""

_DETAILS: Final = ("detail", "proposed")
"""The kinds of log lines that only repeat an event before or after them; they are not kept."""

_REPAIR: Final = frozenset(
    {"mirror-added", "mirror-synchronised", "fully-replicated", "sync-begun", "sync-ended"}
)
"""The kinds of events that are no news: a queue gets its copies back."""


@dataclass(slots=True)
class _Kept:
    """An event, its number among all, when it was seen last (ms since 1970), and how often in a row."""

    number: int
    time: int
    event: MirrorEvent
    count: int = 1

    def is_again(self, event: MirrorEvent) -> bool:
        """Return whether the event is the same once more."""
        mine = self.event
        return (mine.kind, mine.node, mine.former) == (event.kind, event.node, event.former)

    def shown(self) -> dict[str, Any]:
        """Return the event as the HTTP API shows it."""
        event = self.event
        return {
            "time": self.time,
            "level": event.level,
            "kind": event.kind,
            "vhost": event.vhost,
            "name": event.queue,
            "node": event.node,
            "former": event.former,
            "text": event.text,
            **({"count": self.count} if self.count > 1 else {}),
        }


class MirroringEvents:
    """The events of one process, over all starts of its broker.   clock: seconds since 1970."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.counts: Counter[str] = Counter()
        """The number of events by kind, since the process started."""
        self._clock = clock
        self._number = 0
        self._last: deque[_Kept] = deque(maxlen=KEPT)
        self._news: OrderedDict[tuple[str, str], deque[_Kept]] = OrderedDict()
        """The news by vhost and queue; the queue with the latest is last."""
        self._news_count = 0

    def note(self, event: MirrorEvent) -> None:
        """Keep and count an event that happens now."""
        if event.kind in _DETAILS:
            return
        self.counts[event.kind] += 1
        self._number += 1
        kept = _Kept(self._number, round(self._clock() * 1000), event)
        if event.kind not in _REPAIR:
            former = self._keep_news(kept)
            if former is not None and self._last and self._last[-1] is former:
                self._last.pop()
        self._last.append(kept)

    def _keep_news(self, kept: _Kept) -> _Kept | None:
        """Keep a queue's event as news. Returns: the equal former event that it replaces; None if there is none."""
        event = kept.event
        key = (event.vhost, event.queue)
        news = self._news.setdefault(key, deque())
        self._news.move_to_end(key)
        if news and news[-1].is_again(event):
            former = news.pop()
            kept.count = former.count + 1
            news.append(kept)
            return former
        news.append(kept)
        self._news_count += 1
        if len(news) > NEWS_OF_A_QUEUE:
            news.popleft()
            self._news_count -= 1
        while self._news_count > NEWS_MAX:
            _, gone = self._news.popitem(last=False)
            self._news_count -= len(gone)
        return None

    @property
    def master_changes(self) -> int:
        """The number of times that a queue got another master."""
        return sum(self.counts[kind] for kind in MASTER_CHANGES)

    def latest(self, vhost: str | None = None, name: str | None = None) -> list[dict[str, Any]]:
        """Return the events, newest first, of all queues, a vhost, or one queue. Times are in ms since 1970."""
        found = {
            each.number: each
            for each in self._last
            if vhost in (None, each.event.vhost) and name in (None, each.event.queue)
        }
        if vhost is not None and name is not None:
            found.update((each.number, each) for each in self._news.get((vhost, name), ()))
        return [found[number].shown() for number in sorted(found, reverse=True)]
