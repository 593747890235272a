"""All brokers pass these checks once everything is healed. Each function names what it checks."""

from collections import Counter
from collections.abc import Container
from typing import TYPE_CHECKING

from cluster.mirror.replica import Replica
from cluster.mirror.replicator import Replicator
from node.catalogue.records import QueueRecord
from node.queue.queue import Queue
from tests.sim.mirror_world import Node, Violation

if TYPE_CHECKING:
    from tests.sim.mirror_faults import Run


def check_no_faults(run: "Run") -> None:
    """Check that no peer sent nonsense, no store broke, and no copy was given up: none is damaged here."""
    for node in run.world.nodes.values():
        if node.faults:
            raise Violation(f"{node.name} reports a fault: {node.faults}")
        if node.errors:
            raise Violation(f"{node.name}: {node.errors}")
        if node.given_up:
            raise Violation(f"{node.name}: {node.given_up}")


def unconverged(run: "Run") -> str:
    """Return what is not yet as it should be; empty: nothing."""
    world = run.world
    for node in world.nodes.values():
        if not node.entered:
            return f"{node.name} does not serve"
        if node.applied < len(world.log):
            return f"{node.name} is behind"
    for record in world.catalogue.queues("/"):
        view = record.view
        if view is None:
            return f"{record.name} is not mirrored"
        if view.state != "live" or view.previous:
            return f"{record.name}: {view}"
        wanted = min(3, len(world.names)) if record.type == "quorum" else len(world.names)
        if len(view.ring) != len(view.members) or len(view.ring) != wanted:
            return f"{record.name} has not all its mirrors: {view}"
        if set(view.synced) != {member.id for member in view.ring}:
            return f"{record.name} is not synchronised: {view}"
        home = world.nodes[record.home].broker.vhosts["/"].queues.get(record.name)
        if not isinstance(home, Queue):
            return f"{record.name} has no acting master: {type(home).__name__}"
        if isinstance(home.replicator, Replicator) and home.replicator.under_way:
            return f"{record.name}: its mirrors have not heard all yet"
    for publisher in run.publishers:
        if publisher.is_open and (publisher.unconfirmed or publisher._is_committing):
            waiting = list(publisher.unconfirmed.values())[:3]
            return f"{publisher.name} waits for {len(publisher.unconfirmed)}: {waiting}"
        if not publisher.is_open:
            return f"{publisher.name} has no channel"
    for consumer in run.consumers:
        is_shut_out = any("exclusive" in close for close in consumer.closes)
        if not is_shut_out and not (consumer.is_open and consumer.is_consuming):
            return f"{consumer.name}: not attached and not told"
    for getter in run.getters:
        if getter.asked:
            return f"{getter.name} waits for an answer to {getter.asked}"
    return ""


def check_converged(run: "Run") -> None:
    """Every queue has an acting master and all its mirrors; every publish and every question is answered."""
    what = unconverged(run)
    if what:
        raise Violation(what)


def home_of(run: "Run", record: QueueRecord) -> Queue:
    """The acting master."""
    queue = run.world.nodes[record.home].broker.vhosts["/"].queues[record.name]
    assert isinstance(queue, Queue)
    return queue


def check_attached(run: "Run", but: Container[str] = ()) -> None:
    """The consumers that a queue has are those that believe they consume.   but: queues that are not looked at."""
    believing = Counter(consumer.queue for consumer in run.consumers if consumer.is_consuming)
    for record in run.world.catalogue.queues("/"):
        if record.name in but:
            continue
        has = len(home_of(run, record).consumers.all)
        if has != believing[record.name]:
            names = [each.name for each in run.consumers if each.is_consuming and each.queue == record.name]
            raise Violation(f"{record.name} has {has} consumers, and these believe to be: {names}")
        counted = sum(consumer.unacked for consumer in home_of(run, record).consumers.all)
        if counted > home_of(run, record).unacked_count:
            raise Violation(f"{record.name}: its consumers count {counted} unacked, it has fewer")


def replica_of(node: Node, record: QueueRecord) -> Replica:
    """A node's part of a mirrored queue."""
    known = node.mirrors._known.get(record.uid)
    if known is None or known.replica is None:
        raise Violation(f"{node.name} has no copy of {record.name}")
    return known.replica


def check_nobody_starves(run: "Run", but: Container[str] = ()) -> None:
    """Messages do not wait while a consumer has nothing to do.   but: queues that are not looked at."""
    waiting = {record.name for record in run.world.catalogue.queues("/") if record.name not in but}
    for _ in range(4):
        before = run.ledger.deliveries
        run.world.run(0.7)
        for record in run.world.catalogue.queues("/"):
            if record.name not in waiting:
                continue
            mine = [each for each in run.consumers if each.queue == record.name and each.is_consuming]
            is_served = any(each.open_ for each in mine) or not home_of(run, record).backlog.count
            is_served = is_served or run.ledger.deliveries > before
            if is_served or not mine:
                waiting.discard(record.name)
        if not waiting:
            return
    raise Violation(f"messages wait, and consumers too: {sorted(waiting)}")


def check_copies(run: "Run") -> None:
    """Each mirror holds exactly the messages that the master has, ready or with clients."""
    world = run.world
    for record in world.catalogue.queues("/"):
        if record.view is None:
            continue
        master = replica_of(world.nodes[record.home], record)
        assert master.replicator is not None
        live = master.replicator.live.ranges()
        queue = home_of(run, record)
        waiting = 0 if queue.retries is None else queue.retries.count
        count = queue.backlog.count + queue.unacked_count + queue.letters.count + waiting
        if count != len(master.replicator.live):
            raise Violation(
                f"{record.name}: {count} messages, and its replicator thinks {len(master.replicator.live)}"
            )
        for member in record.view.ring:
            node = world.nodes[member.node]
            if node.name == record.home:
                continue
            follower = replica_of(node, record).follower
            if follower is None:
                raise Violation(f"{node.name} is no mirror of {record.name}")
            if follower.copy.held.ranges() != live:
                raise Violation(
                    f"{record.name}: the copy of {node.name} has {follower.copy.held.ranges()}, "
                    f"the master {record.home} {live}"
                )
            if follower.copy.missing:
                raise Violation(f"{record.name}: {node.name} still lacks {follower.copy.missing.ranges()}")


def check_idle(run: "Run") -> None:
    """Check that nothing is kept when all clients have gone; frames for deleted queues stay a minute or two."""
    for _ in range(13):
        if all(node.peers.is_idle for node in run.world.nodes.values()):
            break
        run.world.run(10.0)
    for node in run.world.nodes.values():
        broker = node.broker
        if broker.connections:
            raise Violation(f"{node.name} still has {list(broker.connections)}")
        if not node.peers.is_idle:
            raise Violation(f"{node.name}: its peers keep something")
        if broker.has_work and not node._is_turn_coming:
            raise Violation(f"{node.name} has work, and does nothing")
        for live in broker.vhosts["/"].queues.values():
            if isinstance(live, Queue) and (live.unacked_count or live.consumers.all):
                raise Violation(
                    f"{node.name}: {live.record.name} has {live.unacked_count} unacked, {live.consumers.all}"
                )
        mirrors = node.mirrors
        known_uids = [packet.uid for _, _, packet in mirrors._packets._early if packet.uid in mirrors._known]
        if mirrors._proposed or known_uids or mirrors._needing_attention or mirrors._recovered:
            raise Violation(
                f"{node.name}: proposed {mirrors._proposed}, early {list(mirrors._packets._early)[:3]}, "
                f"to look after {[replica.record.name for replica in mirrors._needing_attention]}, "
                f"{list(mirrors._recovered)}"
            )
        for known in mirrors._known.values():
            replica = known.replica
            if replica is None:
                continue
            name = f"{node.name}: {known.record.name}"
            if replica.member.pending_bytes:
                raise Violation(f"{name}: {replica.member.pending_bytes} bytes are pending in the ring")
            if replica._former and not all(replicator.is_idle for replicator in replica._former):
                raise Violation(f"{name}: a former replicator waits")
            replicator = replica.replicator
            if replicator is not None and (not replicator.is_idle or replicator.under_way):
                raise Violation(f"{name}: the replicator waits")
    if run.world.frames_under_way:
        raise Violation("frames go on and on")
