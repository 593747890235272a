"""Split a member's message into messages of a bounded size, since one that is too large could not be sent.

    Activity ─► several, each of which counts alone
    CatchUp  ─► several, which count when the last one is there

A member that took a part of a catch-up would know less than others think, and might have to answer for a dead one.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from cluster.gm_ring.messages import NOTHING, Activity, CatchUp, Item

PART_MAX_BYTES: Final = 16 * 1024 * 1024
"""The most bytes of payloads in one message; a single larger payload has a message of its own."""


def parts(message: Activity | CatchUp) -> Iterator[Activity | CatchUp]:
    """Yield the messages that together say the same, to be sent in this order."""
    version, edge = message.version, message.edge
    if isinstance(message, Activity):
        for items in _split(message.items):
            yield Activity(version, edge, items)
        return
    *cut, last = _split(message.origins)
    for items in cut:
        yield CatchUp(version, edge, items, is_cut=True)
    yield CatchUp(version, edge, last)


def _split(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Group items by a bounded size. An item that is cut has its `ack` and `mark` in its last piece."""
    part: list[Item] = []
    size = 0
    for origin, upto, payloads, ack, mark in items:
        begin = 0
        for at, payload in enumerate(payloads):
            if size and size + len(payload) > PART_MAX_BYTES:
                if at > begin:
                    told = upto - len(payloads) + at
                    part.append(Item(origin, told, payloads[begin:at], NOTHING, NOTHING))
                yield part
                part, size, begin = [], 0, at
            size += len(payload)
        part.append(Item(origin, upto, payloads[begin:], ack, mark))
    yield part
