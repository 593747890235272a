"""A copy of a queue that accounts the CPU time that it takes (`node.queue.metering`).

`Mirrors` makes plain `Replica`s in a broker without a meter, so that they need not ask for one, and these in a broker
with one. While a window is open, each method here calls the one of `Replica` between two looks at the clock.
"""

from typing import TYPE_CHECKING

from cluster.gm_ring.messages import Activity, CatchUp
from cluster.gm_ring.wire import Message, RingPacket
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
        self._meter = meter

    @override
    def receive(self, packet: RingPacket) -> None:
        """Take a packet for this member, and account the time. Raises: Malformed."""
        windows = self._meter.windows
        if not windows.is_open:
            super().receive(packet)
            return
        had = self.storage.disk_writes
        mark = windows.enter()
        super().receive(packet)
        windows.leave(self._account, mark)
        size = _size_of(packet.message)
        windows.worked(self._account, size, for_client=False)
        if self.record.durable and size:
            self._meter.kept(self._account, self.storage.disk_writes - had, size)

    @override
    def turn(self, now: float) -> float | None:
        """Send what is due, and account the time. Returns when to come again."""
        windows = self._meter.windows
        if not windows.is_open:
            return super().turn(now)
        mark = windows.enter()
        due = super().turn(now)
        windows.leave(self._account, mark)
        return due

    @override
    def send(self, to: int, message: Activity | CatchUp) -> None:
        super().send(to, message)
        self._sent(message)

    @override
    def send_side(self, to: int, message: bytes) -> None:
        super().send_side(to, message)
        self._sent(message)

    def _sent(self, message: Message) -> None:
        """Note what a mirror sends: it passes messages on, and says how far it is, often in a turn of its own.

        A master's packets are known by what its queue gets (`MeteredQueue`).
        """
        windows = self._meter.windows
        if windows.is_open and self.replicator is None:
            windows.begin()
            windows.worked(self._account, _size_of(message), for_client=False)


def _size_of(message: Message) -> int:
    """Return the bytes of the payloads in a message."""
    if isinstance(message, bytes):
        return len(message)
    if isinstance(message, Activity):
        return sum(len(payload) for item in message.items for payload in item.payloads)
    return 0
