"""Leader and follower of the ring's simulator: what `cluster/mirror` does, without contents, storage and clients.

    publishes ─► Leader ─ Batch ─► Member ─► right neighbour ─► … ─► confirmed, durable ─► Leader ─► answers
    left neighbour ─► Member ─► deliver ─► Follower ─► held, disk ─► on_disk ─► Member

A payload is the `Batch` itself: relayed as it is, nothing looks inside.
Source: reliability §4.4-§4.8.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.sim.ring_group import Group

PREFETCH = 6
"""Messages that a consumer holds."""


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """One publish.   sender: the front end that took it, by a number of its own.   number: its publish number."""

    id: int
    sender: int
    number: int
    is_persistent: bool


@dataclass(slots=True, eq=False)
class Batch:
    """What the master says in one turn. It stands for the bytes of `cluster.mirror.batch`."""

    mastership: int
    next_seq: int
    senders: dict[int, int] = field(default_factory=dict)
    steps: list[tuple[Any, ...]] = field(default_factory=list)

    def __len__(self) -> int:
        return 1


class Waiting:
    """A publish that is answered when broadcast `number` is stable."""

    __slots__ = ("front", "is_kept", "message", "number")

    def __init__(self, number: int, front: tuple[str, int], message: Message, is_kept: bool) -> None:
        self.number = number
        self.front = front
        self.message = message
        self.is_kept = is_kept


class Consumer:
    """Somebody who takes messages: those that it holds."""

    __slots__ = ("unacked",)

    def __init__(self) -> None:
        self.unacked: dict[int, Message] = {}


class Leader:
    """The acting master: the queue, and what the mirrors are told of it."""

    def __init__(
        self, group: "Group", since: int, held: dict[int, Message], next_seq: int, senders: dict[int, int]
    ) -> None:
        self.group = group
        self.mastership = since
        self.held = held
        self.next_seq = next_seq
        self.senders = senders
        self.ready = dict.fromkeys(sorted(held), True)
        """Numbers of messages that nobody holds, in order; whether the next delivery is marked as another one."""
        self.consumers: dict[tuple[str, int], Consumer] = {}
        self.waiting: list[Waiting] = []
        self.confirmed_upto = self.durable_upto = group.member.last_of(group.id)
        self.first = group.member_next
        """The number of its first broadcast."""
        self.enqueued = len(held)
        self.removed = 0
        self.stuck_since: float | None = None
        self.stuck_at = 0
        self._steps: list[tuple[Any, ...]] = []
        self._new_senders: dict[int, int] = {}
        self._is_due = False
        self._fresh: list[tuple[int, Message]] = []

    # --- what clients do ---

    def publish(self, front: tuple[str, int], messages: Sequence[Message], *, is_again: bool) -> None:
        """Take publishes of one front end, in order of their numbers.

        is_again: they were sent to a former master, which may have delivered them.
        """
        for message in messages:
            if message.number > self.last_received(message.sender):
                self._enqueue(message, is_again)
            self._is_due = True
            self.await_stable(front, message)

    def last_received(self, sender: int) -> int:
        """The number of the last publish that came into the queue."""
        return self._new_senders.get(sender) or self.senders.get(sender, 0)

    def _enqueue(self, message: Message, is_again: bool) -> None:
        seq = self.next_seq
        self.next_seq += 1
        self.held[seq] = message
        self.ready[seq] = is_again
        self._fresh.append((seq, message))
        self.enqueued += 1
        self.group.world.checks.enqueued(self.group, seq, message)
        self._new_senders[message.sender] = message.number

    def await_stable(self, front: tuple[str, int], message: Message) -> None:
        """Answer a publish once all that has come in so far is everywhere."""
        number = self.group.member_next
        self.waiting.append(Waiting(number, front, message, self.group.is_kept(message)))

    def attach(self, front: tuple[str, int]) -> None:
        """A consumer of that node."""
        self.consumers.setdefault(front, Consumer())

    def settle(self, front: tuple[str, int], pairs: Sequence[tuple[int, Message]], is_ack: bool) -> None:
        """A consumer acknowledges or gives back what it holds."""
        consumer = self.consumers.get(front)
        if consumer is None:
            return
        for seq, message in pairs:
            if seq in consumer.unacked:
                del consumer.unacked[seq]
                self.group.world.checks.settles(self.group, self.held.get(seq), message)
                if is_ack:
                    self._remove(seq)
                else:
                    self.ready[seq] = True
        if not is_ack:
            self.ready = {seq: self.ready[seq] for seq in sorted(self.ready)}

    def purge(self) -> None:
        """Remove all that is ready."""
        for seq in list(self.ready):
            self._remove(seq)

    def _remove(self, seq: int) -> None:
        message = self.held.pop(seq)
        self.ready.pop(seq, None)
        self.removed += 1
        self._is_due = True
        self._steps.append(("rem", seq))
        self.group.world.checks.removed(message)

    def pump(self) -> None:
        """Give the consumers what there is for them."""
        for front, consumer in self.consumers.items():
            room = PREFETCH - len(consumer.unacked)
            if room <= 0 or not self.ready:
                continue
            given = []
            for seq in list(self.ready)[:room]:
                is_again = self.ready.pop(seq)
                message = self.held[seq]
                consumer.unacked[seq] = message
                given.append((seq, message))
                self.group.world.checks.delivers(self.group, message, is_again)
            self.group.process.to_front(front, ("deliver", self.mastership, given))

    # --- what the group says ---

    def begin(self) -> None:
        """Say something, so that who waits for what came before can be answered after it."""
        self._is_due = True

    def roll(self, member: int) -> None:
        """Tell a member that is not synchronised what there is at this point."""
        self.flush()
        self._steps.append(("roll", member, dict(self.held), dict(self.senders)))
        self._is_due = True
        self.flush()

    def forget(self, front: tuple[str, int], sender: int) -> None:
        """A front end is no more: its consumer's messages are ready again."""
        consumer = self.consumers.pop(front, None)
        if consumer is not None and consumer.unacked:
            self.ready.update(dict.fromkeys(consumer.unacked, True))
            self.ready = {seq: self.ready[seq] for seq in sorted(self.ready)}
        self.waiting = [each for each in self.waiting if each.front != front]
        if self.last_received(sender):
            self.flush()
            del self.senders[sender]
            self.say(("gone", sender))

    def say(self, step: tuple[Any, ...]) -> None:
        """Tell the mirrors something else."""
        self._steps.append(step)
        self._is_due = True

    def hand_over(self, version: int) -> None:
        """The last word.   version: of the view in which this master hands over."""
        self.flush()
        self.say(("handover", version))
        self.flush()

    def progress(self, confirmed: int, durable: int) -> None:
        """Our broadcasts up to these are at every member, and on every disk that counts."""
        self.confirmed_upto = max(confirmed, self.confirmed_upto)
        self.durable_upto = max(durable, self.durable_upto)
        self._settle()

    def _settle(self) -> None:
        if not self.waiting:
            return
        left, answered = [], []
        durable = min(self.durable_upto, self.confirmed_upto)
        for each in self.waiting:
            if each.number <= (durable if each.is_kept else self.confirmed_upto):
                answered.append(each)
            else:
                left.append(each)
        self.waiting = left
        for each in answered:
            self.group.world.checks.stable(self.group, each.number, each.message)
            self.group.process.to_front(each.front, ("answer", self.mastership, each.message))

    def flush(self) -> None:
        """Broadcast what has gathered."""
        if not self._is_due:
            return
        self._is_due = False
        fresh, self._fresh = self._fresh, []
        steps, self._steps = self._steps, []
        group = self.group
        disk = group.disk
        for seq, message in fresh:
            if group.is_kept(message):
                disk.write(("add", seq, message))
        for step in steps:
            if step[0] == "rem":
                disk.write(step)
        self.senders.update(self._new_senders)
        enqueues: list[tuple[Any, ...]] = [("enq", seq, message) for seq, message in fresh]
        batch = Batch(self.mastership, self.next_seq, self._new_senders, enqueues + steps)
        self._new_senders = {}
        expected = group.member_next
        number = group.member.broadcast(batch)  # type: ignore[arg-type]
        assert number == expected
        group.member_next = number + 1
        group.world.checks.broadcast(group, number, batch)
        group.written(group.id, number)

    @property
    def has_unconfirmed(self) -> bool:
        """Whether something is not at every member, as far as is known."""
        last: int = self.group.member_next - 1
        return self.confirmed_upto < last


class Follower:
    """A mirror's copy.

    owed: messages that exist and are not here; None: not told yet (and nothing that comes is of use), or
    nothing is lacking any more.
    """

    def __init__(self, group: "Group", *, is_rolled: bool) -> None:
        self.group = group
        self.held: dict[int, Message] = {}
        self.owed: dict[int, Message] | None = None
        self.senders: dict[int, int] = {}
        self.next_seq = 1
        self.is_rolled = is_rolled
        self.is_syncing = group.world.plan.syncs_by_itself
        self.request = 0
        self.is_asking = False
        self.asked_of = 0
        self._finish_mark: int | None = None

    def apply(self, batch: Batch) -> None:
        """Do what the master did."""
        steps = batch.steps
        if not self.is_rolled:
            at = next((at for at, step in enumerate(steps) if self._is_meant(step)), None)
            if at is None:
                for step in steps:
                    self._watch(step)
                return
            steps = steps[at:]
        self.senders.update(batch.senders)
        for step in steps:
            match step[0]:
                case "enq":
                    self._enqueue(step[1], step[2])
                case "rem":
                    self._remove(step[1])
                case "roll":
                    if self._is_meant(step):
                        self.roll(step[2], step[3])
                case "gone":
                    self.senders.pop(step[1], None)
                case _:
                    self._watch(step)
        self.note_next(batch.next_seq)

    def _is_meant(self, step: tuple[Any, ...]) -> bool:
        return bool(step[0] == "roll" and step[1] == self.group.id)

    def _watch(self, step: tuple[Any, ...]) -> None:
        if step[0] == "handover":
            self.group.handed_over(step[1])
        elif step[0] == "sync":
            self.is_syncing = step[1] or self.group.world.is_over

    def note_next(self, next_seq: int) -> None:
        """The master's next number is this one."""
        self.next_seq = max(self.next_seq, next_seq)

    def roll(self, ids: dict[int, Message], senders: dict[int, int]) -> None:
        """These messages exist, and no others."""
        for seq in [seq for seq in self.held if seq not in ids]:
            self._remove(seq)
        self.owed = {seq: message for seq, message in ids.items() if seq not in self.held}
        self.senders = dict(senders)
        self.is_rolled = True
        self.request += 1
        self.is_asking = False

    def _enqueue(self, seq: int, message: Message) -> None:
        self.group.world.checks.copies(self.group, seq, message)
        self.held[seq] = message
        if self.group.is_kept(message):
            self.group.disk.write(("add", seq, message))

    def _remove(self, seq: int) -> None:
        if self.owed:
            self.owed.pop(seq, None)
        message = self.held.pop(seq, None)
        if message is not None and self.group.is_kept(message):
            self.group.disk.write(("rem", seq))

    # --- synchronisation ---

    def pull(self, size: int) -> None:
        """Ask the master for the next messages that are lacking, unless that is under way."""
        group = self.group
        if not self.owed or not self.is_syncing:
            return
        if self.is_asking and self.asked_of == group.view.since:
            return
        self.is_asking = True
        self.asked_of = group.view.since
        self.request += 1
        wanted = sorted(self.owed)[:size]
        group.side(group.view.master, ("pull", self.asked_of, self.request, wanted))

    def install(self, request: int, found: list[tuple[int, Message]]) -> None:
        """What the master sent; what is not lacking (any more) is left out."""
        if request != self.request or self.owed is None:
            return
        self.is_asking = False
        for seq, message in found:
            if seq in self.owed:
                del self.owed[seq]
                self._enqueue(seq, message)

    def check_complete(self) -> None:
        """If nothing is lacking: say so as soon as all is on disk. What comes from now on marks wait for."""
        group = self.group
        if self._finish_mark is None:
            if self.owed is None or self.owed or not self.is_rolled:
                return
            self._finish_mark = group.disk.written
            group.count_disk()
        if self._is_on_disk(self._finish_mark):
            self._finish_mark = None
            if self.owed is not None and not self.owed:
                self.owed = None
                group.is_complete()

    def _is_on_disk(self, mark: int) -> bool:
        """Whether what was here when nothing was lacking any more is on disk."""
        return self.group.disk.synced >= mark
