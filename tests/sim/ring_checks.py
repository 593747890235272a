"""The invariants of a mirrored queue, of reliability §4.12, checked while a world runs.

Each is a method that is named after it. What was confirmed, removed, delivered is kept beside the world: the model
that it is held against. What a master says is stable counts as confirmed, whether its word arrives or not.
"""

from typing import TYPE_CHECKING, Any, NoReturn

from node.broker.views import DropMirror, MirrorSynced, TransferMaster, View, is_there
from tests.sim.ring_group import Group
from tests.sim.ring_mirror import Batch, Leader, Message

if TYPE_CHECKING:
    from tests.sim.ring_world import Process, World

PENDING_MAX = 400
"""Payloads that a member may keep: front ends have a window each, and say little more."""


class Violation(AssertionError):
    """An invariant does not hold."""


class Checks:
    """What is known of a world, and whether it may be so."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.messages: list[Message] = []
        self.open: dict[int, Message] = {}
        """Publishes without an answer whose front end is there, as far as is known here."""
        self.confirmed: dict[int, Message] = {}
        """That must be there: confirmed and not removed."""
        self.stable_ids: dict[int, int] = {}
        """All that were said to be stable, with the mastership that first said so."""
        self.removed_ids: dict[int, bool] = {}
        self.payloads: dict[tuple[int, int], Batch] = {}
        self.numbers: dict[int, int] = {}
        """By number in the queue: the message that has it, since the queue was last revived."""
        self.places: dict[int, int] = {}
        self.masters: dict[int, int] = {}
        """Who began, by mastership."""
        self.deliveries: dict[int, int] = {}
        """By message: the latest mastership that delivered it."""
        self.forgiving = 0
        """Confirms of masterships before this one may be lost, by an anomaly that is allowed."""
        self.is_lossy = False
        """Whether an unsynchronised copy was promoted, as the policy wants it."""
        self.trace = 0

    def fail(self, rule: str, what: str) -> NoReturn:
        """Raises Violation."""
        world = self._world
        raise Violation(f"{rule}: {what} (at {world.now:.1f} ms, step {world.steps}; {short(world.view)})")

    # --- publishes ---

    def publish(self, sender: int, number: int, is_persistent: bool) -> Message:
        """A client publishes."""
        message = Message(len(self.messages), sender, number, is_persistent)
        self.messages.append(message)
        self.open[message.id] = message
        self._world.stats.published += 1
        return message

    def answered(self, message: Message) -> None:
        """Its front end has heard that it is safe."""
        self.open.pop(message.id, None)

    def refused(self, message: Message) -> None:
        """Its front end has refused it."""
        self.open.pop(message.id, None)
        self._world.stats.refused += 1

    def enqueued(self, group: Group, seq: int, message: Message) -> None:
        """I13: a publish comes into the queue once, in order of its numbers."""
        leader = group.leader
        assert leader is not None
        if message.id in group.seen and not self.is_lossy:
            self.fail("I13", f"message {message.id} comes in again at {group.id}")
        group.seen[message.id] = True
        if leader.last_received(message.sender) >= message.number:
            self.fail("I13", f"{message.number} of {message.sender} comes in late")
        self.places[message.id] = seq
        self.numbers[seq] = message.id

    def copies(self, group: Group, seq: int, message: Message) -> None:
        """I13: a mirror hears of a number once."""
        follower = group.follower
        assert follower is not None
        if seq in follower.held:
            self.fail("I13", f"{group.id} gets {seq} twice: {follower.held[seq].id}, {message.id}")
        if message.id in group.seen and not self.is_lossy:
            self.fail("I13", f"message {message.id} comes in again at {group.id}")
        group.seen[message.id] = True

    def stable(self, group: Group, number: int, message: Message) -> None:
        """I8: what a master calls stable is where it must be."""
        world = self._world
        if message.id not in self.stable_ids:
            self.stable_ids[message.id] = group.latest_mastership
            world.stats.confirmed += 1
        if message.id in self.removed_ids:
            return
        if not group.view.is_settled:
            self.fail("I8", f"{message.id} is called stable by {group.id} in {short(group.view)}")
        self.confirmed.setdefault(message.id, message)
        if group.is_kept(message):
            self._on_disks(group, message)
        view = world.view
        if view.since > group.view.since and view.master:
            self._late(message, view, group)

    def _on_disks(self, group: Group, message: Message) -> None:
        """STABLE, rule 2: on the disk of every synchronised member; who died is no longer one."""
        world = self._world
        for id_ in group.view.synced:
            member = group.view.member(id_)
            if member is None or not is_there(member):
                self.fail("I8", f"{message.id} is called stable, the dead {id_} counts as having it")
            process = world.processes.get(member.node)
            if process is None or process.incarnation != member.incarnation:
                continue
            if process.group is None or process.group.id != id_ or process.group.is_lost:
                continue
            if message.id not in process.disk.stable_ids:
                self.fail("I8", f"{message.id} is called stable and not on the disk of {member.node}")

    def _late(self, message: Message, view: View, group: Group) -> None:
        """I8: a former master's word is true at its successor, too."""
        master = view.member(view.master)
        assert master is not None
        process = self._world.processes.get(master.node)
        if process is None or process.group is None or process.group.id != view.master:
            return
        leader = process.group.leader
        if leader is not None and not self._has(leader.held, message) and not self._is_forgiven(message):
            self.fail("I8", f"{group.id} confirms {message.id}, which its successor {view.master} has not")

    def _has(self, held: dict[int, Message], message: Message) -> bool:
        return held.get(self.places.get(message.id, 0)) is message or message in held.values()

    def removed(self, message: Message) -> None:
        """A client acknowledged it, or purged the queue."""
        self.removed_ids[message.id] = True
        self.confirmed.pop(message.id, None)

    def settles(self, group: Group, held: Message | None, message: Message) -> None:
        """An acknowledgement means the message that was delivered."""
        if held is not message:
            self.fail("I13", f"{message.id} is settled at {group.id}, which has {held and held.id} there")

    def delivers(self, group: Group, message: Message, is_again: bool) -> None:
        """Who may have seen a message is told so."""
        before = self.deliveries.get(message.id, 0)
        since = group.latest_mastership
        if 0 < before < since and not is_again:
            self.fail("redelivered", f"{message.id} was delivered at {before} and now at {since} as if never")
        self.deliveries[message.id] = max(before, since)

    # --- the ring ---

    def joined(self, group: Group) -> None:
        """A member begins."""
        self._world.stats.joins += group.view.member(group.id).status == "joining"  # type: ignore[union-attr]

    def activated(self, group: Group) -> None:
        """A member has adopted a state: what was before is not delivered to it."""
        for id_, known in group.member.origins.items():
            group.delivered[id_] = known.last

    def broadcast(self, group: Group, number: int, batch: Batch) -> None:
        """A master says something; I10: it is one."""
        self.payloads[group.id, number] = batch
        if batch.mastership and self.masters.get(batch.mastership) != group.id:
            self.fail("I10", f"{group.id} speaks as master of {batch.mastership}, and is not")

    def delivered(self, group: Group, origin: int, number: int, batch: Batch) -> None:
        """I7: once, in order, without a gap, of who is in the view; I5: it is what was said. And masters in order."""
        if self.payloads.get((origin, number)) is not batch:
            self.fail("I5", f"{group.id} gets another {origin}:{number}")
        last = group.delivered.get(origin, -1)
        if number != last + 1:
            self.fail("I7", f"{group.id} gets {origin}:{number} after {last}")
        group.delivered[origin] = number
        if group.view.member(origin) is None:
            self.fail("I7", f"{group.id} hears {origin}, which is in no view")
        if batch.mastership < group.latest_mastership:
            self.fail("order", f"{group.id} hears {batch.mastership} after {group.latest_mastership}")
        group.latest_mastership = batch.mastership
        if group.leader is not None:
            self.fail("I10", f"{group.id} acts as master and hears {origin}:{number}")
        self.trace = hash((self.trace, group.id, origin, number))

    def closes(self, group: Group, upto: int) -> None:
        """I3: what is confirmed is at every member that is alive."""
        for member in group.view.members:
            other = self._group(member.id, member.node)
            if member.status != "alive" or other is None or not other.member.is_active:
                continue
            if other.member.last_of(group.id) < upto and other.view.member(group.id) is not None:
                self.fail(
                    "I3", f"{group.id} has {upto} confirmed, {member.id} has {other.member.last_of(group.id)}"
                )

    def _group(self, id_: int, node: str) -> Group | None:
        process = self._world.processes.get(node)
        group = None if process is None else process.group
        return group if group is not None and group.id == id_ and not group.is_lost else None

    def lost(self, group: Group, reason: str) -> None:
        """R11: nobody leaves but who was cut out."""
        member = group.view.member(group.id)
        if member is not None and is_there(member):
            self.fail("R11", f"{group.id} on {member.node} leaves by itself: {reason}")

    def windows(self, group: Group) -> None:
        """I6: what is kept is what is not acknowledged; I14: it is bounded."""
        member = group.member
        size = 0
        for known in member.origins.values():
            size += len(known.pending)
            if not (known.acked <= known.last and known.retired <= known.acked):
                self.fail("I6", f"{known} at {group.id}")
            if member.is_active and len(known.pending) not in (known.last - known.acked, 0):
                self.fail("I6", f"{known} at {group.id} keeps {len(known.pending)}")
        if size != member.pending_bytes or size > PENDING_MAX:
            self.fail("I14", f"{group.id} keeps {size}, says {member.pending_bytes}")

    # --- views ---

    def commits(self, before: View, after: View, change: Any) -> None:
        """I1, I2, I4 of a new view, and I8 if the queue goes down."""
        world = self._world
        stats = world.stats
        stats.views += 1
        self.trace = hash((self.trace, after.version, after.master, len(after.members)))
        if after.version != before.version + 1:
            self.fail("I1", f"view {after.version} after {before.version}")
        self.single_owner(after)
        self.promotion(before, after, change)
        if isinstance(change, MirrorSynced):
            stats.syncs += 1
            self.synchronised(after, change.member)
        if isinstance(change, DropMirror) and before.state != "live":
            self.fail("S15", f"{change.member} is dropped by a master that is no more")
        if after.state == "down" and before.state != "down":
            stats.downs += 1
            self.recoverable(after)
        if before.state == "down" and after.state == "live":
            stats.revivals += 1
            # Transient messages are gone; what is on disk is checked when the master begins.
            self.forgiving = after.since
            self.numbers.clear()

    def single_owner(self, view: View) -> None:
        """I2: one that answers for each origin, and which is not joining."""
        for member in view.members:
            owner = view.member(view.owner_of(member.id))
            if view.state == "live" and (owner is None or owner.status != "alive"):
                self.fail("I2", f"nobody answers for {member.id}: {view}")
        if len({member.id for member in view.members}) != len(view.members):
            self.fail("I2", f"somebody is there twice: {view}")
        nodes = [member.node for member in view.ring]
        if len(set(nodes)) != len(nodes):
            self.fail("I2", f"a node is there twice: {view}")

    def promotion(self, before: View, after: View, change: Any) -> None:
        """I4: a master is synchronised; it is another one by a transfer, or when all the dead are erased."""
        if after.master and after.master not in after.synced:
            self.fail("I4", f"{after.master} is no synchronised master")
        if after.master == before.master or not after.master:
            return
        if isinstance(change, TransferMaster):
            self._world.stats.transfers += 1
            return
        if not all(map(is_there, after.members)):
            self.fail("I4", f"{after.master} is promoted before all the dead are erased")
        if before.state == "flushing":
            self._world.stats.promotions += 1
            if after.master not in before.synced:
                if not self._world.plan.may_lose:
                    self.fail("I4", f"{after.master} is promoted and not synchronised")
                self.is_lossy = True
                self.forgiving = after.since

    def synchronised(self, view: View, id_: int) -> None:
        """I8: who counts as synchronised from now on has all on disk that was confirmed before."""
        member = view.member(id_)
        assert member is not None
        disk = self._world.disks[member.node]
        process = self._world.processes.get(member.node)
        if process is None or process.incarnation != member.incarnation or disk.copy != member.copy:
            return
        for message in self.confirmed.values():
            if (
                self._is_durable(message)
                and message.id not in disk.stable_ids
                and not self._is_forgiven(message)
            ):
                self.fail("I8", f"{id_} counts as synchronised and has not {message.id} on disk")

    def recoverable(self, view: View) -> None:
        """I8: while the queue is down every node that may revive it has what was confirmed, if it was to be kept."""
        if not self._world.plan.is_durable:
            return
        for name, copy in zip(view.recoverable, view.copies, strict=True):
            disk = self._world.disks[name]
            ids = disk.stable_ids if disk.copy == copy else {}
            for message in self.confirmed.values():
                if message.is_persistent and message.id not in ids and not self._is_forgiven(message):
                    self.fail("I8", f"{name} may revive the queue and has not {message.id} on disk")

    def _is_forgiven(self, message: Message) -> bool:
        return self.stable_ids[message.id] < self.forgiving and (
            self.is_lossy or not self._is_durable(message)
        )

    def _is_durable(self, message: Message) -> bool:
        return message.is_persistent and self._world.plan.is_durable

    def begins(self, group: Group) -> None:
        """I8, I10: a master that begins has all that was confirmed, and nobody else has begun as this one."""
        leader = group.leader
        assert leader is not None
        since = leader.mastership
        is_late = group.view.since > since  # it will hand over at once
        if self.masters.setdefault(since, group.id) != group.id or not (
            is_late or group.view.master == group.id
        ):
            self.fail("I10", f"{group.id} begins as master of {since}, which is {self.masters[since]}")
        group.latest_mastership = since
        self.trace = hash((self.trace, since, len(leader.held)))
        self.has_all(leader)
        self.places.update({message.id: seq for seq, message in leader.held.items()})
        if any(seq >= leader.next_seq for seq in leader.held):
            self.fail("S4", f"{group.id} begins with number {leader.next_seq} and holds {max(leader.held)}")

    def has_all(self, leader: Leader) -> None:
        """I8: what was confirmed and not removed is there; I13: once."""
        ids = {message.id: True for message in leader.held.values()}
        if len(ids) != len(leader.held) and not self.is_lossy:
            self.fail("I13", f"{leader.group.id} holds a message twice")
        for id_, message in list(self.confirmed.items()):
            if id_ not in ids and self.stable_ids[id_] <= leader.mastership:
                if not self._is_forgiven(message):
                    self.fail("I8", f"{id_} was confirmed, and {leader.group.id} has it not")
                del self.confirmed[id_]

    def conserves(self, leader: Leader) -> None:
        """I16: what came in is gone, ready or with a consumer."""
        unacked = sum(len(consumer.unacked) for consumer in leader.consumers.values())
        if not leader.enqueued - leader.removed == len(leader.held) == len(leader.ready) + unacked:
            self.fail(
                "I16",
                f"{leader.group.id}: {leader.enqueued} in, {leader.removed} out, {len(leader.held)} held, "
                f"{len(leader.ready)} ready, {unacked} with consumers",
            )

    def prefixes(self) -> None:
        """I5: behind whoever answers for an origin each member knows no more than its left neighbour."""
        view = self._world.view
        groups = [(member, self._group(member.id, member.node)) for member in view.ring]
        for (left, before), (right, after) in zip(groups, groups[1:] + groups[:1], strict=True):
            if before is None or after is None or before is after:
                continue
            if before.view is not view or after.view is not view or not after.member.is_active:
                continue
            if after.member._awaits_catch_up:
                continue
            for member in view.members:
                if view.owner_of(member.id) != right.id:
                    mine, theirs = after.member.last_of(member.id), before.member.last_of(member.id)
                    if mine > theirs:
                        self.fail(
                            "I5", f"of {member.id} {right.id} has {mine}, {left.id} on its left {theirs}"
                        )

    def now_and_then(self) -> None:
        """What is looked at while things go on."""
        self.prefixes()
        for process in self._world.processes.values():
            group = process.group
            if group is not None and not group.is_lost:
                self.windows(group)
                if group.leader is not None:
                    self.conserves(group.leader)

    # --- at rest ---

    def at_rest(self) -> None:
        """I11, I12: nothing is left over, and all copies are the same."""
        world = self._world
        view = world.view
        running = [process for process in world.processes.values() if not process.is_held]
        self.answers(running)
        if view.state == "down":
            return
        if view.state != "live" or any(member.status != "alive" for member in view.members):
            self.fail("I11", f"not at rest: {view}")
        if view.previous:
            self.fail("I11", f"{view.master} has not taken over")
        self.now_and_then()
        master = view.member(view.master)
        assert master is not None
        group = self._group(view.master, master.node)
        if group is None or group.leader is None:
            self.fail("I11", f"{view.master} does not act")
        for process in running:
            front = process.front
            if front.since != view.since or (
                front.has_consumer and process.key not in group.leader.consumers
            ):
                self.fail("I11", f"the front end of {process.name} is not attached")
        self.equality(view, group.leader)
        self.has_all(group.leader)
        world.stats.full_checks += 1

    def answers(self, processes: list["Process"]) -> None:
        """I11: every publish has been answered."""
        for process in processes:
            if process.front.window:
                self.fail("I11", f"publishes of {process.name} have no answer: {list(process.front.window)}")

    def equality(self, view: View, leader: Leader) -> None:
        """I12: all synchronised copies are the same, in memory and on disk; I11: nothing is kept in the ring."""
        for member in view.members:
            group = self._group(member.id, member.node)
            if group is None:
                self.fail("I11", f"{member.id} is not there")
            if group.member.pending_bytes:
                self.fail("I11", f"{member.id} keeps payloads: {group.member}")
            if member.id not in view.synced:
                self.fail(
                    "I11", f"{member.id} is not synchronised: owes {group.follower and group.follower.owed}"
                )
            follower = group.follower
            if follower is not None:
                if follower.held != leader.held:
                    self.fail(
                        "I12", f"{member.id} holds {follower.held.keys() ^ leader.held.keys()} otherwise"
                    )
                if follower.senders != leader.senders:
                    self.fail("I12", f"{member.id} knows {follower.senders}, the master {leader.senders}")
                if follower.next_seq != leader.next_seq:
                    self.fail("I12", f"{member.id} goes on with {follower.next_seq}, not {leader.next_seq}")
            kept = {seq: message for seq, message in leader.held.items() if self._is_durable(message)}
            if group.disk.stable != kept:
                self.fail(
                    "I12", f"the disk of {member.node} differs by {group.disk.stable.keys() ^ kept.keys()}"
                )


def short(view: View) -> str:
    """A view in one line."""
    members = ", ".join(
        f"{member.id}@{member.node}#{member.incarnation}"
        f"{'' if member.status == 'alive' else ' ' + member.status}{'*' if member.id in view.synced else ''}"
        for member in view.members
    )
    master = f"master {view.master} since {view.since} previous {view.previous}"
    return f"view {view.version} {view.state} {master}: {members}"
