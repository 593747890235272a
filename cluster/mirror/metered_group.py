"""A copy of a queue that keeps account of the time it takes: see `node.queue.metering`.

Whoever has no meter has a plain `Group`.
"""

from typing import TYPE_CHECKING

from cluster.gm_ring.wire import Parcel
from cluster.mirror.group import Group
from node.catalogue.records import QueueRecord
from node.queue.metering import Meter
from node.queue.storage import QueueStorage

if TYPE_CHECKING:
    from cluster.mirror.mirrors import Mirrors


class MeteredGroup(Group):
    """As `Group`. What its queue does meanwhile, as a master that takes over, counts once."""

    def __init__(
        self, mirrors: "Mirrors", record: QueueRecord, id_: int, storage: QueueStorage, meter: Meter
    ) -> None:
        super().__init__(mirrors, record, id_, storage)
        self._account = meter.account(record)
        self._clock = meter.clock

    def receive(self, parcel: Parcel) -> None:
        """See `Group.receive`. Raises: Malformed."""
        account, clock = self._account, self._clock
        before, started = account.cpu_ns, clock()
        super().receive(parcel)
        account.cpu_ns = before + clock() - started

    def turn(self, now: float) -> float | None:
        """See `Group.turn`."""
        account, clock = self._account, self._clock
        before, started = account.cpu_ns, clock()
        due = super().turn(now)
        account.cpu_ns = before + clock() - started
        return due
