"""A copy of a queue that accounts the CPU time that it takes (`node.queue.metering`).

`Mirrors` makes plain `Replica`s in a broker without a meter, so that they need not ask for one, and these in a broker
with one. Each method here calls the one of `Replica` between two looks at the clock.
"""

from typing import TYPE_CHECKING

from cluster.gm_ring.wire import RingPacket
from cluster.mirror.replica import Replica
from node.catalogue.records import QueueRecord
from node.override import override
from node.queue.metering import Meter
from node.queue.storage import QueueStorage

if TYPE_CHECKING:
    from cluster.mirror.mirrors import Mirrors


class MeteredReplica(Replica):
    """A `Replica` with an account. CPU time that its queue takes within one of these calls, as after a promotion,
    counts once.
    """

    def __init__(
        self, mirrors: "Mirrors", record: QueueRecord, id_: int, storage: QueueStorage, meter: Meter
    ) -> None:
        super().__init__(mirrors, record, id_, storage)
        self._account = meter.account(record)
        self._clock = meter.clock

    @override
    def receive(self, packet: RingPacket) -> None:
        """Take a packet for this member, and account the time. Raises: Malformed."""
        account, clock = self._account, self._clock
        before, started = account.cpu_ns, clock()
        super().receive(packet)
        account.cpu_ns = before + clock() - started

    @override
    def turn(self, now: float) -> float | None:
        """Send what is due, and account the time. Returns when to come again."""
        account, clock = self._account, self._clock
        before, started = account.cpu_ns, clock()
        due = super().turn(now)
        account.cpu_ns = before + clock() - started
        return due
