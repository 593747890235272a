"""Some copies of a queue promise to have all that was confirmed, and must have it: I8 of reliability §4.12.

A copy is named by its node and by what it is called on that node's disk. One that a fault has damaged promises nothing;
a queue of which no undamaged copy promises anything may lose what it has. A copy that is taken when a queue comes back,
and has rotted since its node has read it, is made whole from the others that were offered.
"""

import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final, NamedTuple

from node.catalogue.catalogue import Catalogue
from node.catalogue.durable_part import is_kept
from node.catalogue.mirrors.views import stored_uid
from node.catalogue.records import QueueRecord
from node.queue.storage import QueueStorage
from node.scheduling.timers import Timers
from node.store.copies import stored
from node.store.recovery import recover
from node.store.store import Store
from tests.kit.disk import SimulatedDisk
from tests.sim.mirror_ledger import Ledger, Message
from tests.sim.mirror_node import OPTIONS
from tests.sim.mirror_world import Violation

_BODY: Final = re.compile(rb"(\d+)\|([a-z]+)\|")
STORE: Final = ("journal/", "queues/", "messages/")
"""Files with messages, and with what is known of them."""


class CopyOf(NamedTuple):
    """A copy of a queue on a node's disk."""

    node: str
    stored: str


def all_copies(record: QueueRecord) -> Iterator[CopyOf]:
    """All that a view knows of, synchronised or not; of a queue that isn't mirrored its only one."""
    view = record.view
    if view is None:
        yield CopyOf(record.home, stored_uid(record.uid, record.copy))
        return
    for member in view.members:
        yield CopyOf(member.node, stored_uid(record.uid, member.copy))
    for node, copy in zip(view.recoverable, view.copies, strict=True):
        yield CopyOf(node, stored_uid(record.uid, copy))
    yield from kept(record)


def kept(record: QueueRecord) -> Iterator[CopyOf]:
    """Yield the copies that were not taken when the queue came back."""
    for node, copy in record.view.kept if record.view is not None else ():
        yield CopyOf(node, stored_uid(record.uid, copy))


def promising(record: QueueRecord) -> Iterator[tuple[CopyOf, int]]:
    """The copies that promise to have all that was confirmed, and what names them."""
    view = record.view
    if view is None:
        yield CopyOf(record.home, stored_uid(record.uid, record.copy)), record.copy
        return
    for member in view.members:
        if member.id in view.synced:
            yield CopyOf(member.node, stored_uid(record.uid, member.copy)), member.copy
    for node, copy in zip(view.recoverable, view.copies, strict=True):
        yield CopyOf(node, stored_uid(record.uid, copy)), copy


class Copies:
    """Knows the state of all copies.   damaged: by a fault, or out of reach for good."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.damaged: set[CopyOf] = set()
        self._unread: dict[CopyOf, int] = {}
        """Copies that were damaged after their node had read them have the number of its life then."""
        self.unsound: set[str] = set()
        """Queues without a copy that promises something."""

    def damage(self, node: str, catalogue: Catalogue, life: int = 0) -> None:
        """Something happened to the message files of a node.   life: of its store, once it was read; 0: not yet."""
        for record in catalogue.queues("/"):
            here = {each for each in all_copies(record) if each.node == node}
            self.damaged |= here
            self._unread.update(dict.fromkeys(here, life))
            if here & {each for each, _ in promising(record)}:
                self.damaged |= set(kept(record))  # they lack what was confirmed since
            self.look_at(record)

    def came_back(self, before: QueueRecord, after: QueueRecord, life_of: Callable[[str], int]) -> None:
        """A queue is there again with one of the copies that were offered: it has all that an undamaged one has.

        life_of: gives that of a node's store.
        """
        old, new = before.view, after.view
        if old is None or new is None or old.state != "down" or new.state != "live":
            return
        copies = dict(zip(old.recoverable, old.copies, strict=True))
        offered = {CopyOf(node, stored_uid(before.uid, copies[node])) for node, _, _ in old.offers}
        offered |= {each for each, _ in promising(after)}  # whose offer was the last one
        if not offered - self.damaged:
            self.damaged |= set(kept(after))  # it goes on with what one is left with
            return
        self.damaged -= {each for each, _ in promising(after) if self._unread.get(each) != life_of(each.node)}

    def look_at(self, record: QueueRecord) -> None:
        """The queue has another view, or a copy was damaged."""
        copies = {each for each, _ in promising(record)}.union(kept(record))
        if copies - self.damaged:
            self.unsound.discard(record.name)
        else:
            self.unsound.add(record.name)
            self._ledger.excuse(record.name, "no undamaged copy is left")

    def has_sound_copy(self, record: QueueRecord, nodes: frozenset[str]) -> bool:
        """Whether one of these nodes has an undamaged copy that promises to have everything."""
        return any(each.node in nodes and each not in self.damaged for each, _ in promising(record))

    def check(self, nodes: dict[str, Any], catalogue: Catalogue, random: Random) -> int:
        """Every node that may bring a queue back could do it alone. Returns: how many copies were looked at."""
        looked = 0
        for record in catalogue.queues("/"):
            owed = [each for each in self._ledger.by_queue.get(record.name, ()) if _is_owed(each)]
            if not is_kept(record) or not owed:
                continue
            for each, copy in promising(record):
                if each in self.damaged:
                    continue
                disk = nodes[each.node].disk.clone().crash(random)
                found = ids_on_disk(disk, record, copy)
                looked += 1
                lost = [message for message in owed if message.id not in found]
                if lost:
                    raise Violation(
                        f"{record.name}: the copy on the disk of {each.node} promises everything and lacks "
                        f"{len(lost)} of {len(owed)}: {lost[0]}; {record.view}"
                    )
        return looked


def _is_owed(message: Message) -> bool:
    return (
        message.state == "confirmed"
        and message.persistent
        and message.consumed_at is None
        and not message.excuse
    )


def ids_on_disk(disk: SimulatedDisk, record: QueueRecord, copy: int) -> set[int]:
    """The messages that a node finds in one copy when it starts alone."""
    store = Store(disk, OPTIONS, Timers())
    named = stored(record, copy)
    found = recover(disk, store, {named.uid: named}, now=lambda: 0.0).queues[named.uid]
    storage: QueueStorage = store.open(named)
    ids: set[int] = set()

    def loaded(runs: list[Any]) -> None:
        for run in runs:
            for content in () if run is None else run.contents:
                match = _BODY.search(content)
                if match is not None and match[2] == record.name.encode():
                    ids.add(int(match[1]))

    for page in found.pages:
        storage.scan(page.segment, page.first_seq, page.last_seq, lambda absent: storage.load(absent, loaded))
    disk.settle()
    return ids
