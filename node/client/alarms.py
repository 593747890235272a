"""Alarms: the resources, memory or disk, of which any node is so short that publishers of all nodes are blocked.

    resources ─► set, clear ─► reason: what connection.blocked says       on_first, on_last: block, unblock
Source: amqp-behaviour §1.11, §7.1.
"""

from collections.abc import Callable
from typing import Literal, Protocol

Resource = Literal["memory", "disk"]


class AlarmObserver(Protocol):
    """The observer of a broker's events, as alarms use it."""

    def alarm_set(self, node: str, resource: str) -> None:
        """Note that the node has too little of this resource."""

    def alarm_cleared(self, node: str, resource: str, *, is_last: bool) -> None:
        """Note that the node has enough of this resource again.   is_last: no other node lacks it."""


class Alarms:
    """The alarms of all nodes that are on.

    node_name: this node's, for calls that name no other node.

    on_first: called when the first alarm goes on.   on_last: called when the last one goes off. The observer is
        told before.
    """

    def __init__(
        self,
        node_name: str,
        observer: AlarmObserver,
        *,
        on_first: Callable[[], None] = lambda: None,
        on_last: Callable[[], None] = lambda: None,
    ) -> None:
        self._node_name = node_name
        self._observer = observer
        self._on_first = on_first
        self._on_last = on_last
        self._short_of: set[tuple[str, Resource]] = set()
        self.on_change: Callable[[], None] = lambda: None
        """Called after each change, to tell it to other nodes."""

    @property
    def is_on(self) -> bool:
        """True if any alarm is on."""
        return bool(self._short_of)

    @property
    def short_of(self) -> list[Resource]:
        """The resources whose alarm is on anywhere, in alphabetical order."""
        return sorted({resource for _, resource in self._short_of})

    def short_of_here(self) -> list[Resource]:
        """The resources that this node is short of, in alphabetical order."""
        return sorted(resource for node, resource in self._short_of if node == self._node_name)

    @property
    def reason(self) -> str:
        """The reason why publishers are blocked, as clients are told; empty if they aren't."""
        return f"low on {' & '.join(self.short_of)}" if self._short_of else ""

    def set(self, resource: Resource, node: str | None = None) -> None:
        """Raise the alarm for this resource on a node. Idempotent.   node: None: this one."""
        alarm = (node or self._node_name, resource)
        if alarm in self._short_of:
            return
        is_first = not self._short_of
        self._short_of.add(alarm)
        self._observer.alarm_set(*alarm)
        if is_first:
            self._on_first()
        self.on_change()

    def clear(self, resource: Resource, node: str | None = None) -> None:
        """Clear the alarm for this resource on a node. Idempotent.   node: None: this one."""
        alarm = (node or self._node_name, resource)
        if alarm not in self._short_of:
            return
        self._short_of.remove(alarm)
        is_last = all(other != resource for _, other in self._short_of)
        self._observer.alarm_cleared(*alarm, is_last=is_last)
        if not self._short_of:
            self._on_last()
        self.on_change()
