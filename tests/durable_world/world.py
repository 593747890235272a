"""A whole broker over a real store on a simulated disk, without sockets: what clients see of what the disk does.

    world = DurableWorld()            world.declare(client, "q")
    client.publish(1, "q", b"x", properties=PERSISTENT)
    world.settle()                    turns of the loop; the disk has its jobs and does nothing
    world.disk.step()                 one step of the disk, and its answer if that was a job's last
    world.rest()                      turns and disk, until nothing is left to do
    world.cut_power(random)           or kill(), or stop(): the end of the node …
    world.start()                     … and its next life, on another clock

The parts are put together as `node.io.persistence` does it.
"""

from collections.abc import Iterable
from random import Random
from typing import Any

from node.amqp.field_table import Table
from node.amqp.methods import (
    BasicAck,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    ConfirmSelect,
    ConfirmSelectOk,
    QueueDeclare,
    QueueDeclareOk,
)
from node.amqp.properties import Properties
from node.broker.broker import Broker
from node.broker.unsettled import note_deliveries
from node.catalogue.catalogue import Catalogue
from node.catalogue.replicated_log import DurableLog
from node.client.base_connection import BaseConnection
from node.client.settings import BrokerSettings
from node.queue.paging import Pager
from node.queue.queue import Queue
from node.scheduling.timers import Timers
from node.store.directory import claim
from node.store.metadata_log import MetadataLog
from node.store.options import StoreOptions
from node.store.recovery import RecoveredStore, recover
from node.store.store import Store
from tests.kit.disk import SimulatedDisk
from tests.kit.world import EPOCH_S, GUEST, START, Client, Diary, Received, World

PERSISTENT = Properties(delivery_mode=2)
TRANSIENT = Properties(delivery_mode=1)

OPTIONS = StoreOptions(
    embed_max_bytes=250,
    segment_entries=8,
    journal_file_bytes=2500,
    store_file_bytes=2500,
    commit_interval_s=0.025,
)
"""Small files, so that everything that takes many messages happens after few."""

LARGE_BYTES = 300
"""A body that goes to the message store."""

NODE_NAME = "fluffle@durable"

_CLOCK_JUMP_S = 12_345.0
"""From one life of the node to the next the broker's clock is another one."""

_ROUNDS_MAX = 10_000


class DurableWorld(World):
    """A node with a disk.   wall_s: the time of day, since 1970."""

    def __init__(self, options: StoreOptions = OPTIONS, pager: Pager | None = None) -> None:
        self.disk = SimulatedDisk()
        self.options = options
        self.pager = pager
        self.diary = Diary()
        self.reported: list[tuple[str, int, str]] = []
        """The store found these places to be unreadable: path, offset, description."""
        self.errors: list[OSError] = []
        """With which the store broke."""
        self.clients: dict[BaseConnection, Client] = {}
        self.now = START - _CLOCK_JUMP_S
        self.wall_s = EPOCH_S
        self.is_up = False
        self._drawn = 0
        self.start()
        self.rest()

    # --- the life of a node ---

    def start(self, down_s: float = 0.0) -> RecoveredStore:
        """Start the node after so long a pause; what it found on disk."""
        assert not self.is_up
        self.is_up = True
        self.wall_s += down_s
        self.now += _CLOCK_JUMP_S
        timers, catalogue = Timers(), Catalogue()
        claim(self.disk, NODE_NAME, self.options.segment_entries)
        self.metadata = MetadataLog(self.disk, catalogue)
        self.store = Store(
            self.metadata.ahead_of(self.disk),
            self.options,
            timers,
            report=lambda *what: self.reported.append(what),
        )
        self.store.on_broken = self.errors.append
        self.broker = Broker(
            BrokerSettings(),
            entropy=self._entropy,
            epoch_s=self.wall_s - self.now,
            observer=self.diary,
            storage=self.store,
            pager=self.pager,
            catalogue=catalogue,
            timers=timers,
        )
        self.broker.start(self.now)
        log = DurableLog(catalogue, self.broker.react, self.metadata)
        self.broker.log = log
        self.store.on_relieved = self.broker.relieved
        is_known = self.metadata.load(log.replay, lambda *what: self.reported.append(what))
        found = self._recover()
        self.store.begin()
        if not is_known:
            self._seed()
        return found

    def _recover(self) -> RecoveredStore:
        live = {queue.record.uid: queue for queue in self.queues() if queue.is_durable}
        found = recover(
            self.disk,
            self.store,
            {uid: queue.record for uid, queue in live.items()},
            now=lambda: 0.0,
            is_catalogue_whole=self.metadata.is_whole,
        )
        for uid, queue in found.queues.items():
            live[uid].restore(queue.next_seq, queue.pages)
        return found

    def _seed(self) -> None:
        for command in GUEST:
            self.submit(command)

    def stop(self) -> None:
        """Stop the node in good order."""
        self.broker.close_connections("broker forced connection closure with reason 'shutdown'")
        for connection in list(self.broker.connections.values()):
            connection.finish()
        self.settle()
        note_deliveries(self.broker)
        self.close_store()

    def close_store(self) -> None:
        """Write all that is to be kept; that is the end of the node."""
        self.settle_disk()
        self.store.close()
        self._gone()

    def kill(self, random: Random | None = None) -> None:
        """End the node by kill -9: what the system was given is there.   random: see `SimulatedDisk.kill`."""
        self.disk = self.disk.kill(random)
        self._gone()

    def cut_power(self, random: Random) -> None:
        """End the node and its machine: what was not synced may be there or not."""
        self.disk = self.disk.crash(random)
        self._gone()

    def _gone(self) -> None:
        self.is_up = False
        for client in self.clients.values():
            client.is_reset = True
        self.clients.clear()

    # --- turns, disk and time ---

    def settle(self) -> None:
        """Run turns until nothing is left to do, as the shell does; the disk does nothing."""
        for _ in range(_ROUNDS_MAX):
            if not self.broker.has_work:
                return
            for connection in self.broker.turn(self.now):
                if connection in self.clients:
                    self.clients[connection].flush()
        raise AssertionError("the broker never comes to rest")

    def settle_disk(self) -> None:
        """The disk, and the turns that its answers bring up, until it has nothing to do."""
        for _ in range(_ROUNDS_MAX):
            self.settle()
            if not self.disk.step():
                return
        raise AssertionError("the disk never comes to rest")

    def rest(self) -> None:
        """Turns, the disk, and as much time as the store lets go by, until nothing is left to do; on a full disk, that
        can be done.
        """
        for _ in range(_ROUNDS_MAX):
            self.settle_disk()
            executed = self.disk.executed
            self.advance(self.options.commit_interval_s)
            self.settle_disk()
            if self.disk.executed == executed:
                return
        raise AssertionError("the store never comes to rest")

    def advance(self, seconds: float) -> None:
        """Let time pass, each timer going off just when it is due; the disk does nothing."""
        self.wall_s += seconds
        super().advance(seconds)

    def page_out(self, *names: str, keep_bytes: int = 0) -> None:
        """Have queues let go of all that they may, and the disk write it."""
        for name in names:
            self.queue(name).backlog.page_out(1 << 40, keep_bytes)
        self.rest()

    # --- what clients do ---

    def queues(self) -> list[Queue]:
        """All live queues."""
        return [queue for vhost in self.broker.vhosts.values() for queue in vhost.queues.values()]

    def declare(
        self,
        client: Client,
        *names: str,
        durable: bool = True,
        arguments: Table | None = None,
        channel: int = 1,
    ) -> None:
        """Declare queues, and have it all written."""
        for name in names:
            client.send(channel, QueueDeclare(queue=name, durable=durable, arguments=arguments or {}))
            self.rest()
            (declared,) = client.methods()
            assert isinstance(declared, QueueDeclareOk), declared

    def get_all(self, client: Client, name: str, channel: int = 1) -> list[Received]:
        """Get all messages of a queue one after the other, unacknowledged."""
        found = []
        while True:
            client.send(channel, BasicGet(queue=name))
            self.rest()
            (answer,) = client.received()
            if isinstance(answer.method, BasicGetEmpty):
                return found
            assert isinstance(answer.method, BasicGetOk), answer
            found.append(answer)

    def bodies(self, name: str) -> list[bytes]:
        """Return the bodies that are ready in a queue, in order; they are there again afterwards, as redelivered."""
        client = self.client()
        found = [message.body for message in self.get_all(client, name)]
        client.lose()
        self.rest()
        return found


def confirming(client: Client, *channels: int) -> None:
    """Switch channels to publisher confirms."""
    for channel in channels or (1,):
        assert client.ask(channel, ConfirmSelect()) == ConfirmSelectOk()


def confirms(client: Client) -> list[tuple[int, str, int, bool]]:
    """Return the confirms since the last time: channel, ack or nack, tag, and multiple. Nothing else may have come."""
    found = []
    for item in client.received():
        method = item.method
        assert isinstance(method, BasicAck | BasicNack), item
        found.append(
            (
                item.channel,
                "ack" if isinstance(method, BasicAck) else "nack",
                method.delivery_tag,
                method.multiple,
            )
        )
    return found


def redelivered(messages: Iterable[Received]) -> list[bool]:
    """Return for each message that was got or delivered if it was so before."""
    found = []
    for message in messages:
        method: Any = message.method
        assert isinstance(method, BasicGetOk | BasicDeliver), message
        found.append(method.redelivered)
    return found
