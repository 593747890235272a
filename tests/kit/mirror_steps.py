"""Steps that tests of mirrored queues share: policies, the copies of a queue, sequences of numbers."""

import contextlib
from collections.abc import Callable, Collection, Iterable
from typing import Final, Literal

from node.amqp.methods import BasicCancel, QueueDelete
from tests.kit.amqp_client import Channel, Connection, NothingArrived
from tests.kit.patience import wait_until
from tests.kit.server_cluster import Cluster, ClusterNode, Replicas

SHAPE_S: Final = 30.0
"""The copies of a queue may take this long to become what a policy says."""

IDLE_S: Final = 0.7
FIRST_S: Final = 3.0

End = Literal["stop_app", "terminate", "kill"]
ENDS: Final[tuple[End, ...]] = ("stop_app", "terminate", "kill")


def set_mirroring(node: ClusterNode, prefix: str, mode: str, params: object = None, **more: object) -> None:
    """Set the policy `prefix` for queues of that prefix.   more: other keys, `_` for `-`."""
    definition: dict[str, object] = {"ha-mode": mode}
    if params is not None:
        definition["ha-params"] = list(params) if isinstance(params, tuple) else params
    definition.update({key.replace("_", "-"): value for key, value in more.items()})
    node.admin.set_policy("/", prefix, f"^{prefix}", definition)


def delete_queues(node: ClusterNode, prefix: str) -> None:
    """Delete the queues whose names begin with this prefix."""
    names = [queue for queue in node.admin.list_queues("/") if queue.startswith(prefix)]
    if not names:
        return
    connection = Connection(node)
    for number, queue in enumerate(names, 1):
        with contextlib.suppress(AssertionError):  # one that is another connection's
            connection.channel(number).call(QueueDelete, queue=queue)
    connection.abandon()


def await_shape(
    node: ClusterNode,
    queue: str,
    *,
    master: str | None = None,
    mirrors: Collection[str] | int | None = None,
    synced: Collection[str] | int | None = None,
    within: float = SHAPE_S,
) -> Replicas:
    """Wait until this node sees these copies; a number means so many; what is None may be anything."""

    def fits(found: frozenset[str], wanted: Collection[str] | int | None) -> bool:
        if isinstance(wanted, int):
            return len(found) == wanted
        return wanted is None or found == set(wanted)

    seen: list[Replicas] = []

    def is_so() -> bool:
        seen[:] = [node.replicas(queue)]
        has_master = bool(seen[0].master) if master is None else seen[0].master == master
        return has_master and fits(seen[0].mirrors, mirrors) and fits(seen[0].synced, synced)

    try:
        wait_until(is_so, "", within)
    except AssertionError:
        raise AssertionError(
            f"{queue}: not {master=} {mirrors=} {synced=} within {within} s, but {seen[0]}"
        ) from None
    return seen[0]


def end(node: ClusterNode, how: End, cluster: Cluster) -> None:
    """End a node, and wait until the other running nodes know."""
    others = [each for each in cluster.nodes if each is not node and each.is_alive]
    {"stop_app": node.stop_app, "terminate": node.terminate, "kill": node.kill}[how]()
    cluster.await_members(*(each.name for each in others), seen_by=others)


class Sequence:
    """The numbers that a consumer received: each may repeat, but none may come before the number below it.

    A number that comes again must be flagged as redelivered (reliability §2.2, consume_survives).
    """

    def __init__(self, total: int) -> None:
        self.next = 0
        self.again = 0
        self.problems: list[str] = []
        self._total = total

    @property
    def is_whole(self) -> bool:
        return self.next == self._total

    def take(self, number: int, *, redelivered: bool) -> None:
        if number == self.next:
            self.next += 1
        elif number > self.next:
            self.problems.append(f"{number} came, {self.next} did not")
            self.next = number + 1
        else:
            self.again += 1
            if not redelivered:
                self.problems.append(f"{number} came again, not redelivered")


def bodies(channel: Channel, queue: str) -> list[bytes]:
    """Return the bodies of all ready messages, by basic.get."""
    found = []
    while (content := channel.get(queue)) is not None:
        found.append(content.body)
    return found


def all_bodies(channel: Channel, queue: str) -> list[bytes]:
    """Return the bodies of many messages, by a consumer, until none has arrived for a while."""
    tag, found = channel.consume(queue, no_ack=True), []
    with contextlib.suppress(NothingArrived):
        while True:
            found.append(channel.deliver(IDLE_S if found else FIRST_S).body)
    channel.call(BasicCancel, consumer_tag=tag)
    return found


def numbered(count: int) -> Iterable[bytes]:
    """Return the bodies of this many numbered messages."""
    return (b"%d" % number for number in range(count))


Mirrored = Callable[..., str]
"""The fixture `mirrored`."""
