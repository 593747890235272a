"""A front end of the ring's simulator: the channels of one node that use the queue, wherever its master is.

It keeps a publish until the master says that it is stable, and sends it again to the next one; while the queue is
down it refuses. Source: reliability §4.4.
"""

from typing import TYPE_CHECKING, Any

from node.broker.views import View
from tests.sim.ring_mirror import Message

if TYPE_CHECKING:
    from tests.sim.ring_world import Process

WINDOW = 12
"""Publishes that may be unanswered: then its clients are not read from."""


class FrontEnd:
    """since: the mastership that it deals with.   window: publishes without an answer, in order."""

    def __init__(self, process: "Process") -> None:
        self.process = process
        self.key = process.key
        self.since = 0
        self.is_open = False
        """Whether there is a master to talk to."""
        self.is_down = False
        self.window: dict[int, Message] = {}
        self.has_consumer = False
        self.unacked: list[tuple[int, Message]] = []
        self._number = 0

    def publish(self, count: int, is_persistent: bool) -> None:
        """A client publishes messages."""
        checks = self.process.world.checks
        fresh = []
        for _ in range(min(count, WINDOW - len(self.window))):
            self._number += 1
            message = checks.publish(self.key[1], self._number, is_persistent)
            if self.is_down:
                checks.refused(message)
            else:
                self.window[message.number] = message
                fresh.append(message)
        if fresh and self.is_open:
            self._send(("publish", self.since, fresh, False))

    def consume(self) -> None:
        """A client wants messages."""
        self.has_consumer = True
        if self.is_open:
            self._send(("attach", self.since))

    def settle(self, count: int, *, is_ack: bool) -> None:
        """The consumer acknowledges the first ones that it holds, or gives them back."""
        pairs, self.unacked = self.unacked[:count], self.unacked[count:]
        if pairs and self.is_open:
            self._send(("ack" if is_ack else "requeue", self.since, pairs))

    def purge(self) -> None:
        """A client empties the queue."""
        if self.is_open:
            self._send(("purge", self.since))

    def see(self, view: View) -> None:
        """The node has applied a view."""
        self.is_open = view.state == "live"
        self.is_down = view.state == "down"
        if self.is_down:
            for message in self.window.values():
                self.process.world.checks.refused(message)
            self.window.clear()
            self.unacked = []
        elif self.is_open and view.since != self.since:
            self.since = view.since
            self.unacked = []
            if self.window:
                self._send(("publish", self.since, list(self.window.values()), True))
            if self.has_consumer:
                self._send(("attach", self.since))

    def _send(self, item: tuple[Any, ...]) -> None:
        self.process.to_home(item)

    def receive(self, item: tuple[Any, ...]) -> None:
        """What a master says; a former one's word counts for nothing."""
        if item[1] != self.since:
            return
        if item[0] == "answer":
            message = item[2]
            if self.window.pop(message.number, None) is not None:
                self.process.world.checks.answered(message)
        elif item[0] == "deliver":
            self.unacked += item[2]
            eager = self.process.world.plan.eager_acks
            if self.process.world.random.random() < eager:
                self.settle(len(self.unacked), is_ack=True)
