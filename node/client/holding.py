"""Messages for queues that hold them until the time in a header: they go to the waiting queue of the holding exchange.

    a message with such a time ─► Targets: the waiting queue alone ─ due ─► routed as published, to all of its queues

The whole message waits if any of its queues holds it. Whether the time is over is asked by the waiting queue, so the
targets of messages with the same headers are the same.
Source: docs/delayed.md, "Hold until a time".
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from node.catalogue.delayed import waiting_queue
from node.catalogue.holding import hold_time_ms, holding_exchange
from node.queue.content import chosen_headers
from node.queue.live_queue import LiveQueue


class Hold(NamedTuple):
    """A header that holds messages, and the queue in which they wait."""

    header: str
    waiting: LiveQueue

    def holds(self, content: bytes) -> bool:
        """True if the message has a time in the header."""
        headers = chosen_headers(content, (self.header.encode("utf-8", "surrogateescape"),))
        return hold_time_ms(headers.get(self.header)) is not None


def holds_of(live: Mapping[str, LiveQueue], queues: Sequence[LiveQueue]) -> list[Hold]:
    """Return the headers by which some of these queues hold messages, each once.   live: all of the vhost, by name.

    The exchange that a queue needs is made with the queue or the policy. Where it was lost its messages are not held.
    """
    headers = {queue.settings.hold_until_header: None for queue in queues}
    found: list[Hold] = []
    for header in headers:
        if header is not None:
            waiting = live.get(waiting_queue(holding_exchange(header)))
            if waiting is not None:
                found.append(Hold(header, waiting))
    return found


def held_or(
    live: Mapping[str, LiveQueue], queues: Sequence[LiveQueue], content: bytes
) -> Sequence[LiveQueue]:
    """Return where a message goes that is routed to these queues: there, or to a queue where it waits.

    live: all queues of the vhost within reach, by name.
    """
    for hold in holds_of(live, queues):
        if hold.holds(content):
            return (hold.waiting,)
    return queues
