"""Messages that the disk cannot read: an index reports them once and tells their owner, the queue."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from node.queue.number_set import NumberSet
from node.store.segment import Found, Segment

if TYPE_CHECKING:
    from node.store.queue_index import QueueIndex

UNREADABLE: Final = "contents are missing or damaged"


def tell_damage(index: "QueueIndex", segment: Segment, found: Found) -> None:
    """Report damage of a segment's file, once, and its lost messages.

    The file stays for the next start to set it aside.
    """
    path = index.path(segment.number)
    if not segment.is_damaged:
        segment.is_damaged = True
        index.host.damaged[index] = None
        for damage in found.damages:
            index.host.report(path, damage.offset, damage.what)
    reason = found.damages[0].what if found.damages else UNREADABLE
    tell_unreadable(index, found.lost, path, 0, reason)


def tell_unreadable(index: "QueueIndex", seqs: Iterable[range], path: str, offset: int, reason: str) -> None:
    """Report messages that cannot be read and that are still needed, once, and tell the index's owner.

    seqs: of step 1.   path, offset: where they should stand.
    """
    known = index.unreadable or NumberSet()
    fresh = NumberSet(index.alive_of(seqs)).minus(known)
    if not fresh:
        return
    for numbers in fresh:
        known.add(numbers)
    index.unreadable = known
    what = f"{len(fresh)} message(s) cannot be read, from {fresh.first} to {fresh.stop - 1}: {reason}"
    index.host.report(path, offset, what)
    if index.owner is not None:
        index.owner.unreadable(f"{path}: {reason}")
