"""The subscriptions of one session, and which of them a message is for.

The broker's bindings bring messages to the session's queues. What MQTT asks beyond that is decided here: the QoS, the
options and identifiers of all subscriptions that match, and that a message comes once even if it is in two queues.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from node.mqtt.filter_tree import FilterTree
from node.mqtt.packets import Subscription

MATCHES_MAX: Final = 4096
"""The topics whose matches a session remembers; with more it starts over."""

SUBSCRIPTIONS_MAX: Final = 100_000
"""The subscriptions of one session; more are refused with `Quota exceeded`."""


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A subscription that was made.   queue_qos: which queue of the session its messages come to.

    identifier: of MQTT 5.0; None: it has none.
    """

    options: Subscription
    queue_qos: int
    identifier: int | None = None


class Match(NamedTuple):
    """The sum of the subscriptions that match a topic.

    qos: the highest.   queue_qos: the queue from which the message is taken; in any other one it is a second copy.
    takes_own: also messages of this client itself.   as_published: the flag `retain` stays as it was.
    """

    qos: int
    queue_qos: int
    takes_own: bool
    as_published: bool
    identifiers: tuple[int, ...]


class Subscriptions:
    """The subscriptions of one session, without shared ones.   version: rises with each change.

    as_delivered: returns the filter that matches the topics of deliveries, for a filter of the client.
    """

    def __init__(self, as_delivered: Callable[[str], str]) -> None:
        self.version = 0
        self._as_delivered = as_delivered
        self._by_filter: dict[str, Subscribed] = {}
        self._tree = FilterTree()
        self._matches: dict[str, Match | None] = {}

    def __len__(self) -> int:
        return len(self._by_filter)

    def get(self, filter_: str) -> Subscribed | None:
        """Return the subscription with a filter."""
        return self._by_filter.get(filter_)

    def put(self, subscribed: Subscribed) -> None:
        """Add a subscription, in the place of one with the same filter."""
        filter_ = subscribed.options.filter
        self._by_filter[filter_] = subscribed
        self._tree.put(filter_, self._as_delivered(filter_))
        self._changed()

    def remove(self, filter_: str) -> None:
        """Remove a subscription."""
        del self._by_filter[filter_]
        self._tree.remove(filter_, self._as_delivered(filter_))
        self._changed()

    def _changed(self) -> None:
        self.version += 1
        self._matches.clear()

    def match(self, topic: str) -> Match | None:
        """Return what matching subscriptions ask for; None: none matches."""
        if topic in self._matches:
            return self._matches[topic]
        if len(self._matches) >= MATCHES_MAX:
            self._matches.clear()
        found = [self._by_filter[filter_] for filter_ in self._tree.match(topic)]
        match = None
        if found:
            match = Match(
                max(each.options.qos for each in found),
                max(each.queue_qos for each in found),
                any(not each.options.no_local for each in found),
                any(each.options.retain_as_published for each in found),
                tuple(each.identifier for each in found if each.identifier is not None),
            )
        self._matches[topic] = match
        return match
