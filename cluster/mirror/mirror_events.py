"""Events of mirrored queues, for the log and for counters: in RabbitMQ's words where it has some.

    ViewChanged ─► mirror_events(before, after) ─► a promotion, a copy more or less, too few copies, stopped, back again

Each is reported once in a cluster: by the master's node, or without one by a node that had a copy (`is_speaker`).

Source: management §6.3; reliability §4.6, S12; amqp-behaviour §9.4.
"""

from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

from cluster.mirror.policy_reconciler import is_mirrored
from cluster.mirror.proposals import Proposal
from node.catalogue.mirrors.mirror_nodes import copies_wanted
from node.catalogue.mirrors.views import RingMember, View, is_there
from node.catalogue.policy import QueueSettings
from node.catalogue.records import ClusterMember, QueueRecord
from node.client.observer import Level, MirrorEvent

Kind: TypeAlias = Literal[
    "mirror-added",
    "mirror-synchronised",
    "mirror-lost",
    "mirror-dropped",
    "mirror-slow",
    "copy-given-up",
    "promotion",
    "transfer",
    "data-loss-possible",
    "under-replicated",
    "fully-replicated",
    "leader-lost",
    "stopped",
    "revived",
    "sync-begun",
    "sync-ended",
    "proposed",
    "detail",
]


def mirror_event(
    level: Level, kind: Kind, record: QueueRecord, text: str, *, node: str = "", former: str = ""
) -> MirrorEvent:
    """Return an event of a mirrored queue, with its line for the log.   node, former: as in `MirrorEvent`."""
    return MirrorEvent(level, kind, record.vhost, record.name, line(record, text), node, former)


def line(record: QueueRecord | Proposal, text: str) -> str:
    """Return a line for the log, with the queue's name and vhost at its beginning."""
    return f"Mirrored queue '{record.name}' in vhost '{record.vhost}': {text}"


def named(member: RingMember) -> str:
    """A member as the log shows it, where RabbitMQ has a process: `<node.incarnation.id>`."""
    return f"<{member.node}.{member.incarnation}.{member.id}>"


def is_speaker(before: View | None, after: View | None, here: str, up: Iterable[str]) -> bool:
    """True if the node `here` is the one that tells of an event.   up: the nodes that are up."""
    running = set(up)
    for view in (after, before):
        if view is not None and view.master_node in running:
            return view.master_node == here
    members = (member.node for view in (after, before) if view is not None for member in view.members)
    return next((node for node in members if node in running), min(running, default=here)) == here


def wanted_copies(record: QueueRecord, settings: QueueSettings, members: Iterable[ClusterMember]) -> int:
    """Return how many copies the policy asks for, no matter which nodes are up; 0: the queue is not to be mirrored."""
    return copies_wanted(settings, record, members) if is_mirrored(record, settings) else 0


def mirror_events(before: QueueRecord, after: QueueRecord, wanted: int) -> list[MirrorEvent]:
    """Return the events that a change of a queue's view means.   wanted: see `wanted_copies`."""
    old, new = before.view, after.view
    if new is None:
        return []
    found: list[MirrorEvent] = []
    if old is not None:
        found += _members(after, old, new)
        found += _masters(after, old, new)
    if new.state == "live":
        found += _copies(after, old, new, wanted)
    return found


def _members(record: QueueRecord, old: View, new: View) -> Iterator[MirrorEvent]:
    if old.state == "down":
        return  # a member that brings the queue back is no new mirror
    known = {member.id for member in old.members}
    there = {member.id for member in new.ring}
    for member in new.ring:
        if member.id not in known:
            text = f"Adding mirror on node {member.node}: {named(member)}"
            yield mirror_event("info", "mirror-added", record, text, node=member.node)
        elif member.id in new.synced and member.id not in old.synced and old.master == new.master:
            text = f"Mirror {named(member)} is synchronised"
            yield mirror_event("info", "mirror-synchronised", record, text, node=member.node)
    gone = [member for member in old.ring if member.id not in there]
    master = old.member(old.master)
    if gone and master is not None and master not in gone:
        replicas = " ".join(map(named, gone))
        text = f"Primary replica of queue {named(master)} detected replica {replicas} to be down"
        nodes = ", ".join(member.node for member in gone)
        yield mirror_event("info", "mirror-lost", record, text, node=nodes)


def _masters(record: QueueRecord, old: View, new: View) -> Iterator[MirrorEvent]:
    master = new.member(new.master)
    former = old.member(old.master)
    if former is not None and master is None and new.ring:
        tellers = " ".join(map(named, new.ring))
        text = f"Secondary replica of queue {tellers} detected replica {named(former)} to be down"
        yield mirror_event("warning", "leader-lost", record, text, former=former.node)
    if new.state == "down" and old.state != "down":
        nodes = ", ".join(new.recoverable)
        text = (
            f"Stopping: no synchronised mirror (replica) is available. Waits for the copy of one of: {nodes}"
        )
        yield mirror_event("error", "stopped", record, text)
    if master is None or new.master == old.master:
        return
    former_node = _last_master(old) if former is None else former.node
    if old.state == "down":
        text = f"Running again with the copy of node {master.node}: {named(master)}"
        yield mirror_event("warning", "revived", record, text, node=master.node)
        if (master.node, False) in new.judged:
            text = (
                f"The copy of node {master.node} has lost messages on its disk, and there was no other: "
                "messages may be lost (data_loss_possible)"
            )
            yield mirror_event("error", "data-loss-possible", record, text, node=master.node)
        return
    if former is not None and old.previous == new.master and not new.previous:
        text = f"{named(former)} has not heard the last word of {named(master)}, which stays the leader"
        yield mirror_event("warning", "transfer", record, text, node=master.node, former=former_node)
        return
    if former is not None and is_there(former):
        text = f"Promoting mirror {named(master)} to leader: {named(former)} hands over"
        yield mirror_event("info", "transfer", record, text, node=master.node, former=former_node)
        return
    text = f"Promoting mirror {named(master)} to leader"
    yield mirror_event("info", "promotion", record, text, node=master.node, former=former_node)
    if master.id not in old.synced:
        text = f"Mirror {named(master)} was not synchronised: messages may be lost (data_loss_possible)"
        yield mirror_event("error", "data-loss-possible", record, text, node=master.node, former=former_node)


def _last_master(view: View) -> str:
    """Return a node for a view without a master: the first of those whose copies could bring the queue back."""
    return next(iter(view.recoverable), "")


def _copies(record: QueueRecord, old: View | None, new: View, wanted: int) -> Iterator[MirrorEvent]:
    """Yield an event when a good copy is gone, and when there are enough again."""
    now, then = _good(new), 0 if old is None else _good(old)
    if now < wanted and now < then:
        text = f"{now} of {wanted} copies are synchronised (under_replicated)"
        yield mirror_event("warning", "under-replicated", record, text)
    elif now >= wanted > then and old is not None:
        yield mirror_event("info", "fully-replicated", record, f"{now} of {wanted} copies are synchronised")


def _good(view: View) -> int:
    return sum(member.id in view.synced for member in view.ring)


# --- what the view doesn't tell ---------------------------------------------------------------------------


def evicted(record: QueueRecord, member: RingMember, reason: str, back_off_s: float) -> MirrorEvent:
    """Return the event that a mirror does not keep up and goes.   back_off_s: how long its node gets no new ones."""
    text = (
        f"Dropping queue mirror on node {member.node}: {named(member)} {reason}; "
        f"no new mirrors there for {back_off_s:.0f} s"
    )
    return mirror_event("warning", "mirror-dropped", record, text, node=member.node)


def blocked(record: QueueRecord, member: RingMember, reason: str) -> MirrorEvent:
    """Return the event that a mirror does not keep up, and publishers have to wait for it."""
    text = f"Waiting for mirror {named(member)}, which {reason}"
    return mirror_event("warning", "mirror-slow", record, text, node=member.node)


def disk_stuck(record: QueueRecord, master: RingMember, reason: str) -> MirrorEvent:
    """Return the event that the master's disk holds up publishers."""
    return mirror_event(
        "warning", "mirror-slow", record, f"Leader {named(master)} {reason}", node=master.node
    )


def given_up(record: QueueRecord, member: RingMember, reason: str) -> MirrorEvent:
    """Return the event that a node's copy is of no use: it is dropped as soon as others can do without, and a new
    one made.
    """
    text = f"Giving up the copy on node {member.node}: {named(member)} {reason}"
    return mirror_event("error", "copy-given-up", record, text, node=member.node)


def kept_awaited(record: QueueRecord, master: RingMember, reason: str, nodes: Iterable[str]) -> MirrorEvent:
    """Return the event that messages which the master cannot read may be in copies that were not taken."""
    text = f"Leader {named(master)} {reason}. Waits for the copy of one of: {', '.join(nodes)}"
    return mirror_event("error", "detail", record, text, node=master.node)


def proposed(proposal: Proposal) -> MirrorEvent:
    """Return the event that a change was proposed, with its reason."""
    text = line(proposal, proposal.reason)
    return MirrorEvent("info", "proposed", proposal.vhost, proposal.name, text)


def sync_begun(record: QueueRecord, messages: int, batch_size: int, mirror: str) -> list[MirrorEvent]:
    """Return the events that the mirror on this node begins to get the messages that it lacks."""
    return [
        mirror_event(
            "info", "sync-begun", record, f"Synchronising: {messages} messages to synchronise", node=mirror
        ),
        mirror_event("info", "detail", record, f"Synchronising: batch size: {batch_size}"),
        mirror_event("info", "detail", record, f"Synchronising: mirrors [{mirror}] to sync"),
    ]


def sync_ended(record: QueueRecord, outcome: Literal["complete", "cancelled", "needless"]) -> MirrorEvent:
    """Return the event that a synchronisation is complete, was stopped or was not needed."""
    words = {
        "complete": "complete",
        "cancelled": "stopped, the mirrors stay unsynchronised",
        "needless": "all mirrors already synced",
    }
    return mirror_event("info", "sync-ended", record, f"Synchronising: {words[outcome]}")
