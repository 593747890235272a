"""All queues in the order in which lists show them, kept from one request to the next.

To sort 10,000 names costs as much as all the rest of a page.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from node.catalogue.catalogue import Catalogue
from node.catalogue.records import QueueRecord
from node.management.slicing import ordered

VHOSTS_MAX: Final = 1000
"""The most vhosts whose queues are kept in order; with more all are forgotten."""


class _Sorted(NamedTuple):
    """The queues of a vhost.   version: of the catalogue, which is another one when a queue has come or gone."""

    version: int
    queues: list[QueueRecord]


_kept: "WeakKeyDictionary[Catalogue, dict[str, _Sorted]]" = WeakKeyDictionary()


async def queues_by_name(catalogue: Catalogue, vhosts: Sequence[str]) -> list[QueueRecord]:
    """Return the queues of these vhosts, of each by name. Records may be old: only names and uids are certain."""
    if len(vhosts) == 1:
        return await _of_vhost(catalogue, vhosts[0])
    return [queue for vhost in vhosts for queue in await _of_vhost(catalogue, vhost)]


async def _of_vhost(catalogue: Catalogue, vhost: str) -> list[QueueRecord]:
    kept = _kept.setdefault(catalogue, {})
    known = kept.get(vhost)
    if known is not None and known.version == catalogue.version:
        return known.queues
    version = catalogue.version
    queues = await ordered(list(catalogue.queues(vhost)), attrgetter("name"))
    if len(kept) >= VHOSTS_MAX:
        kept.clear()
    kept[vhost] = _Sorted(version, queues)
    return queues
