"""The recovery of a broker with mirrors from its disk, as `node.io.persistence` does it."""

from cluster.mirror.mirrors import Mirrors
from node.broker.broker import Broker
from node.catalogue.mirrors.views import stored_uid
from node.queue.mirroring import RecoveredCopy
from node.store.copies import recoverable_copies, stored
from node.store.recovery import RecoveredStore, recover
from node.store.store import Store
from tests.kit.disk import SimulatedDisk


def recover_mirrored(
    name: str, broker: Broker, mirrors: Mirrors, disk: SimulatedDisk, store: Store
) -> RecoveredStore:
    """Fill the queues and copies of a node.   name: the node's.   Returns: what was found."""
    copies = recoverable_copies(broker.catalogue, name)
    local = [queue for queue in broker.local_queues if queue.is_durable]
    live = {stored_uid(queue.record.uid, queue.record.copy): queue for queue in local}
    wanted = {uid: stored(queue.record, queue.record.copy) for uid, queue in live.items()}
    wanted.update((uid, stored(record, copy)) for uid, (record, copy) in copies.items())
    found = recover(disk, store, wanted, now=lambda: 0.0, copies=copies)
    mirrors.is_store_whole = found.is_whole
    for uid, queue in live.items():
        queue.restore(found.queues[uid].next_seq, found.queues[uid].pages)
    for uid, (record, copy) in copies.items():
        each, storage = found.queues[uid], broker.open_storage(record, copy)
        mirrors.recovered(record, RecoveredCopy(storage, copy, each.next_seq, each.pages, each.is_clean))
    store.begin()
    return found
