"""Copies of queues on the disk of a node that starts, and which of those of mirrored queues have to be recovered.

A node that was away begins with an empty copy of each queue that went on without it. But a queue that went down
with its last copy comes back from what its nodes have on disk; and whether it went down shows only after they have
recovered their stores: the catalogue known by then may be older than this node's last stop.
Source: reliability §1.1 (L9), §4.10.
"""

from collections.abc import Iterator
from dataclasses import replace

from node.catalogue.catalogue import Catalogue
from node.catalogue.durable_part import is_kept
from node.catalogue.mirrors.views import stored_uid
from node.catalogue.records import QueueRecord


def copy_to_recover(record: QueueRecord, node: str) -> int | None:
    """Return the number of the copy on a node's disk that may bring a mirrored queue back, or None."""
    view = record.view
    if view is None or not is_kept(record):
        return None
    return view.copy_to_keep(node)


def recoverable_copies(catalogue: Catalogue, node: str) -> dict[str, tuple[QueueRecord, int]]:
    """Return the queues whose copy on a node may bring them back, with the copy's number, by stored uid."""
    return {
        stored_uid(record.uid, copy): (record, copy)
        for record in _queues(catalogue)
        if (copy := copy_to_recover(record, node)) is not None
    }


def stored(record: QueueRecord, copy: int) -> QueueRecord:
    """Return a queue's record as the store knows it, with the copy's own uid."""
    return replace(record, uid=stored_uid(record.uid, copy)) if copy else record


def _queues(catalogue: Catalogue) -> Iterator[QueueRecord]:
    for vhost in catalogue.vhosts():
        yield from catalogue.queues(vhost.name)
