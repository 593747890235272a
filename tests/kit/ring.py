"""A ring in which the test chooses every step: the view that a member sees, the link that delivers, the next flush.

Checks after each step what must always hold (reliability §4.12: I1, I2, I3, I5, I6, I7 and the order across origins),
and in `check_settled` what must hold when nothing is under way (I11).
"""

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random
from typing import TypeAlias

from cluster.gm_ring.member import Member
from cluster.gm_ring.messages import Activity, CatchUp
from node.catalogue.mirrors.views import (
    AddMirror,
    DropMirror,
    MirrorSynced,
    TookOver,
    TransferMaster,
    View,
    ViewChange,
    changed,
    created,
    died,
)

Step: TypeAlias = tuple[str, Callable[[], object]]
MemberClass: TypeAlias = Callable[[int, View, "Node"], Member]
Frame: TypeAlias = Activity | CatchUp


class Node:
    """A member of the ring, and the calls to its host.

    received: origin → what was delivered, in order.   begins: origin → number of the first of them.
    had: origin → how much had been broadcast when the member became active: what comes later it must get.
    """

    def __init__(self, ring: "Ring", id_: int, view: View) -> None:
        self.ring = ring
        self.id = id_
        self.views = 0
        self.received: dict[int, list[bytes]] = {}
        self.begins: dict[int, int] = {}
        self.had: dict[int, int] = {}
        self.confirmed_upto = self.durable_upto = -1
        self.lost_because: str | None = None
        self.is_up = True
        self.member = ring.member_class(id_, view, self)

    # --- RingHost ---

    def send(self, to: int, message: Frame) -> None:
        assert to == self.member.right != self.id
        assert self.lost_because is None
        self.ring.links.setdefault((self.id, to), deque()).append(message)
        self.ring.note(f"{self.id} → {to} {shown(message)}")

    def deliver(self, origin: int, first: int, payloads: Sequence[bytes]) -> bool:
        assert self.lost_because is None
        assert origin != self.id
        assert self.member.view.member(origin) is not None, "posthumous"
        got = self.received.setdefault(origin, [])
        self.begins.setdefault(origin, first)
        assert first == self.begins[origin] + len(got), f"{self.id} gets {origin}:{first}"
        got += payloads
        self.ring.delivered(self, origin, first, payloads)
        return len(got) % 2 > 0  # some have to be on disk, others not

    def confirmed(self, upto: int) -> None:
        assert self.lost_because is None
        assert upto > self.confirmed_upto
        self.confirmed_upto = upto
        self.ring.confirmed(self, upto)

    def durable(self, upto: int) -> None:
        assert self.lost_because is None
        assert upto > self.durable_upto
        self.durable_upto = upto
        self.ring.note(f"{self.id} is told: {upto} is on all disks")
        self.ring.check_durable(self, upto)

    def propose(self, change: ViewChange) -> None:
        assert self.lost_because is None
        if change not in self.ring.proposals:
            self.ring.proposals.append(change)
        self.ring.note(f"{self.id} proposes {change}")

    def lost(self, reason: str) -> None:
        assert self.lost_because is None
        self.lost_because = reason
        self.ring.note(f"{self.id} is lost: {reason}")

    def active(self) -> None:
        self.had = {id_: node.member.last_of(id_) for id_, node in self.ring.nodes.items()}
        self.ring.note(f"{self.id} is active")

    @property
    def is_running(self) -> bool:
        return self.is_up and self.lost_because is None


class Ring:
    """A ring: all members of a queue, the views and the links.

    spoken: origin → all that it broadcast.   notes: what happened, as a story tells it.
    """

    def __init__(self, size: int, member_class: MemberClass = Member) -> None:
        self.member_class = member_class
        self.views = [created(0, [(f"n{number}", number) for number in range(1, size + 1)])]
        self.nodes: dict[int, Node] = {}
        self.links: dict[tuple[int, int], deque[Frame]] = {}
        self.proposals: list[ViewChange] = []
        self.spoken: dict[int, list[bytes]] = {}
        self.notes: list[str] = []
        self._last_incarnation = size
        self.unborn: dict[int, int] = {}
        self._note_unborn()

    @property
    def view(self) -> View:
        """The latest view."""
        return self.views[-1]

    def note(self, text: str) -> None:
        self.notes.append(text)

    def __getitem__(self, id_: int) -> Node:
        return self.nodes[id_]

    # --- steps ---

    def commit(self, change: ViewChange) -> bool:
        """Apply a change as the catalogue does. Returns: whether there is a new view."""
        after = changed(self.view, change)
        if after is None or after is self.view:
            self.note(f"refused: {change}")
            return False
        self._append(after)
        return True

    def add(self, node: str | None = None) -> int:
        """Propose another mirror for the master. Returns: its id, or 0."""
        self._last_incarnation += 1
        name = node or f"n{self._last_incarnation}"
        return self.view.version if self.commit(AddMirror(name, self._last_incarnation)) else 0

    def kill(self, *ids: int, is_known: bool = True) -> None:
        """End the processes of members."""
        for id_ in ids:
            if id_ in self.nodes:
                self.nodes[id_].is_up = False
            self.unborn.pop(id_, None)
        if is_known:
            self.declare_dead(*ids)

    def declare_dead(self, *ids: int, may_lose: bool = False) -> None:
        """Declare members dead in the catalogue."""
        self._append(died(self.view, ids, may_lose=may_lose))

    def _append(self, view: View) -> None:
        assert view.version > self.view.version
        self.views.append(view)
        self.note(f"view {shown_view(view)}")
        self._note_unborn()

    def _note_unborn(self) -> None:
        for member in self.view.ring:
            if member.id not in self.nodes and member.id not in self.unborn:
                self.unborn[member.id] = len(self.views) - 1

    def begin(self, id_: int, *, is_late: bool = False) -> Node:
        """Let a member's node see the first view with the member, or, if late, the latest view."""
        index = self.unborn.pop(id_)
        if is_late:
            index = len(self.views) - 1
        node = self.nodes[id_] = Node(self, id_, self.views[index])
        node.views = index
        return node

    def see(self, id_: int, count: int = 1) -> None:
        """Let a member see its next views."""
        node = self.nodes[id_]
        for _ in range(count):
            if not node.is_running:
                break
            node.views += 1
            self.note(f"{id_} sees view {self.views[node.views].version}")
            node.member.see(self.views[node.views])
        self.check()

    def catch_up_views(self, *ids: int) -> None:
        """Let members see all views."""
        for id_ in ids or list(self.nodes) + list(self.unborn):
            if id_ in self.unborn:
                self.begin(id_)
            while self.nodes[id_].is_running and self.nodes[id_].views < len(self.views) - 1:
                self.see(id_)

    def broadcast(self, id_: int, count: int = 1) -> None:
        for _ in range(count):
            said = self.spoken.setdefault(id_, [])
            member = self.nodes[id_].member
            known = {str(each): member.last_of(each) for each in member.origins if each != id_}
            payload = json.dumps([id_, len(said), known]).encode()
            said.append(payload)
            assert member.broadcast(payload) == len(said) - 1
        self.check()

    def on_disk(self, id_: int, origin: int, upto: int | None = None) -> None:
        member = self.nodes[id_].member
        member.on_disk(origin, member.last_of(origin) if upto is None else upto)
        self.check()

    def flush(self, id_: int) -> None:
        self.nodes[id_].member.flush()
        self.check()

    def can_take(self, sender: int, receiver: int) -> bool:
        """Return whether a frame can be taken. Frames for a member that has not begun are held by its node."""
        return bool(self.links.get((sender, receiver))) and receiver not in self.unborn

    def take(self, sender: int, receiver: int) -> None:
        """Let a link deliver one frame."""
        message = self.links[sender, receiver].popleft()
        node = self.nodes.get(receiver)
        if node is not None and node.is_running:
            self.note(f"{receiver} {self._fate(node.member, sender, message)} {shown(message)} of {sender}")
            node.member.receive(sender, message.version, message.edge, message)
        self.check()

    @staticmethod
    def _fate(member: Member, sender: int, message: Frame) -> str:
        """Return a description of a frame's fate, for the notes."""
        if message.version > member.view.version:
            return "holds"
        is_wanted = not member._awaits_catch_up or isinstance(message, CatchUp)
        is_of_left = (sender, message.edge) == (member.left, member._edge)
        return "hears" if is_of_left and is_wanted else "ignores"

    def settle(self) -> None:
        """Run until nothing is on its way: views, frames, proposals."""
        for _ in range(10_000):
            self.catch_up_views()
            is_quiet = True
            for node in list(self.nodes.values()):
                if node.is_running:
                    is_quiet &= not node.member.has_output
                    self.flush(node.id)
            for link in list(self.links):
                while self.can_take(*link):
                    is_quiet = False
                    self.take(*link)
            while self.proposals:
                is_quiet &= not self.commit(self.proposals.pop(0))
            if is_quiet:
                return
        raise AssertionError("never settles")

    # --- what must hold ---

    def delivered(self, node: Node, origin: int, first: int, payloads: Sequence[bytes]) -> None:
        """Check that payloads are what was broadcast, and that what their origin had received before is here too."""
        said = self.spoken[origin][first : first + len(payloads)]
        assert list(payloads) == said
        last = first + len(payloads) - 1
        self.note(f"{node.id} is delivered {origin}:{first}" + (f"–{last}" if last > first else ""))
        for payload in payloads:
            _, _, known = json.loads(payload)
            for each, number in known.items():
                if int(each) in node.member.origins:
                    assert node.member.last_of(int(each)) >= number, "not causal"

    def confirmed(self, node: Node, upto: int) -> None:
        """I3: all alive members of the view that the origin sees have it."""
        self.note(f"{node.id} is confirmed {upto}")
        for member in node.member.view.ring:
            other = self.nodes.get(member.id)
            if other is None or not other.is_running or member.status != "alive" or member.id == node.id:
                continue
            # Whoever has seen its erasure has forgotten how much it had.
            if node.id in other.member.origins:
                assert other.member.last_of(node.id) >= upto, f"I3: {member.id} lacks {node.id}:{upto}"

    def check_durable(self, node: Node, upto: int) -> None:
        """On the disk of every synchronised member of the view that the master sees.

        Others have no use for marks; of a copy that was promoted without being synchronised theirs may be wrong.
        """
        if node.member.view.master != node.id:
            return
        for member in node.member.view.ring:
            other = self.nodes.get(member.id)
            if other is None or not other.is_running or node.id not in other.member.origins:
                continue
            if member.id in node.member.view.synced:
                assert other.member.origins[node.id].disk >= upto, f"{member.id}'s disk lacks {upto}"

    def check(self) -> None:
        """Check the invariants that hold after each step."""
        for node in self.nodes.values():
            member = node.member
            if not node.is_running:
                if node.lost_because is not None:
                    assert "is without it" in node.lost_because, node.lost_because
                    assert not member.origins
                    assert member.pending_bytes == 0
                continue
            waiting = 0
            for known in member.origins.values():  # I6
                assert known.retired <= known.acked <= known.last
                assert len(known.pending) == known.last - known.acked
                waiting += sum(map(len, known.pending))
                assert list(known.pending) == self.spoken.get(known.id, [])[known.acked + 1 : known.last + 1]
            assert member.pending_bytes == waiting
            for each in member.view.members:  # I2
                owner = member.view.member(member.view.owner_of(each.id))
                assert owner is None or owner.status == "alive"
        self._check_prefixes()

    def _check_prefixes(self) -> None:
        """I5: from the owner on, nobody knows more than its left neighbour, whatever views they see.

        Of those who have caught up in the same view.
        """
        running = [node.member for node in self.nodes.values() if node.is_running]
        for member in running:
            left = self.nodes.get(member.left)
            if left is None or left.member is member or not left.is_running:
                continue
            if left.member.view is not member.view or member._awaits_catch_up:
                continue
            for known in member.origins.values():
                if not known.is_mine:
                    assert left.member.last_of(known.id) >= known.last, "I5"
                    assert left.member.origins[known.id].acked >= known.acked, "I5"

    def check_settled(self) -> None:
        """I11: nobody dead or joining, nothing kept, and all have the same of everybody."""
        if self.view.state == "down":
            return
        assert all(member.status == "alive" for member in self.view.members), self.view
        assert self.view.master
        running = [node for node in self.nodes.values() if node.is_running]
        assert {node.id for node in running} == {member.id for member in self.view.members}
        for node in running:
            assert node.member.pending_bytes == 0
            assert not node.member.has_output
            for id_, known in node.member.origins.items():
                assert known.last == known.acked == len(self.spoken.get(id_, [])) - 1
                if id_ == node.id:
                    assert node.confirmed_upto == known.last
                else:
                    self._check_got(node, id_)

    def _check_got(self, node: Node, origin: int) -> None:
        """A member got everything that was said since it became active."""
        said = self.spoken.get(origin, [])
        got = node.received.get(origin, [])
        since = node.had.get(origin, -1) + 1
        assert len(got) >= len(said) - since
        assert got == said[len(said) - len(got) :]


# --- choices ----------------------------------------------------------------------------------------------


class Driver:
    """Offers the steps that a ring can do now, in an order that depends on nothing but its state."""

    def __init__(self, ring: Ring, *, members_max: int = 5) -> None:
        self.ring = ring
        self.members_max = members_max

    def work(self) -> Iterator[Step]:
        """Yield the steps that continue the work: views, frames, proposals, disks."""
        ring = self.ring
        for id_ in list(ring.unborn):
            yield f"begin {id_}", partial(ring.begin, id_)
            if any(member.id == id_ for member in ring.view.ring):
                yield f"begin {id_} late", partial(ring.begin, id_, is_late=True)
        for link in ring.links:
            if ring.can_take(*link):
                yield f"take {link}", partial(ring.take, *link)
        for id_, node in ring.nodes.items():
            if not node.is_running:
                continue
            if node.views < len(ring.views) - 1:
                yield f"see {id_}", partial(ring.see, id_)
            if node.views < len(ring.views) - 2:
                yield f"jump {id_}", partial(self.jump, node)
            if node.member.has_output:
                yield f"flush {id_}", partial(ring.flush, id_)
            for origin, known in node.member.origins.items():
                if known.disk < known.last and not known.is_dead:
                    yield f"disk {id_}", partial(ring.on_disk, id_, origin)
        for change in ring.proposals:
            yield f"commit {change}", partial(self.commit, change)

    def broadcasts(self) -> Iterator[Step]:
        """Return the members that may broadcast."""
        for id_, node in self.ring.nodes.items():
            if node.is_running and node.member._may_broadcast():
                yield f"broadcast {id_}", partial(self.ring.broadcast, id_)

    def commit(self, change: ViewChange) -> None:
        """Apply a proposal."""
        self.ring.proposals.remove(change)
        self.ring.commit(change)

    def troubles(self) -> Iterator[Step]:
        """Members that come and go, masters that move, proposals that get lost."""
        ring, view = self.ring, self.ring.view
        if view.state == "down":
            return
        if len(view.ring) < self.members_max and view.master and not view.previous:
            yield "add", ring.add
        there = [member.id for member in view.ring]
        for id_ in there:
            if len([each for each in view.ring if each.status == "alive"]) > 1:
                yield f"kill {id_}", partial(ring.kill, id_)
                yield f"cut {id_}", partial(ring.declare_dead, id_, may_lose=True)
                if id_ != view.master:
                    yield f"drop {id_}", partial(ring.commit, DropMirror(id_))
            node = ring.nodes.get(id_)
            if node is not None and node.is_running and id_ not in view.synced:
                member = view.member(id_)
                if member is not None and member.status == "alive":
                    yield f"sync {id_}", partial(self.synchronise, node)
            if id_ != view.master and id_ in view.synced and view.master and not view.previous:
                yield f"transfer {id_}", partial(ring.commit, TransferMaster(view.master, id_))
        if view.previous:
            yield "took over", partial(ring.commit, TookOver(view.since))
        if ring.proposals:
            yield "lose a proposal", partial(ring.proposals.pop, 0)

    def jump(self, node: Node) -> None:
        """Let a member see only the latest view, as after a snapshot of the catalogue."""
        node.views = len(self.ring.views) - 2
        self.ring.see(node.id)

    def synchronise(self, node: Node) -> None:
        """Count; when no mark that passed before is ahead of the disk, ask for it."""
        node.member.counts = True
        is_level = all(known.mark <= known.disk for known in node.member.origins.values())
        if is_level and not node.member.is_lost:
            self.ring.commit(MirrorSynced(node.id))

    def finish(self) -> None:
        """No more trouble: all that was lost is proposed again, until nothing is under way."""
        for _ in range(50):
            self.ring.settle()
            for node in self.ring.nodes.values():
                if node.is_running:
                    node.member.retry()
            if not self.ring.proposals:
                break
        self.ring.check_settled()


def _one_kind(random: Random, steps: Iterator[Step]) -> list[Step]:
    """The steps of one kind, so that as many come as go, however many could go."""
    kinds: dict[str, list[Step]] = {}
    for step in steps:
        kinds.setdefault(step[0].split()[0], []).append(step)
    weights = [4 if kind in ("add", "sync", "took") else 1 for kind in kinds]
    return kinds[random.choices(list(kinds), weights)[0]] if kinds else []


def drive(seed: int, length: int, member_class: MemberClass = Member, *, trouble: float = 0.05) -> Ring:
    """Return a ring after random steps, settled and checked.   trouble: the share of faults among the steps."""
    random = Random(seed)
    ring = Ring(random.randint(1, 4), member_class)
    driver = Driver(ring)
    for number in range(length):
        luck = random.random()
        if luck < trouble and number < length - 50:  # what the last one did has no other to heal it
            steps_now = _one_kind(random, driver.troubles())
        elif luck < trouble + 0.25:
            steps_now = list(driver.broadcasts())
        else:
            steps_now = list(driver.work())
        if steps_now:
            random.choice(steps_now)[1]()
    driver.finish()
    return ring


# --- showing ----------------------------------------------------------------------------------------------


def shown(message: Frame) -> str:
    """Return a frame as text: kind, version and edge, then by origin the payloads and how far all members have them."""
    kind, items = (
        ("activity", message.items) if isinstance(message, Activity) else ("catch-up", message.origins)
    )
    words = [f"{kind} v{message.version} e{message.edge}"]
    for origin, upto, payloads, ack, mark in items:
        numbers = f"..{upto}" if not payloads else f"+{upto - len(payloads) + 1}–{upto}"
        if len(payloads) == 1:
            numbers = f"+{upto}"
        word = f"{origin}:{numbers}"
        word += f" ack {ack}" if ack >= 0 else ""
        word += f" mark {mark}" if mark >= 0 else ""
        words.append(f"[{word}]")
    return " ".join(words)


def shown_view(view: View) -> str:
    """Return a view as text: M is the master, † a dead member, ? a member that joins."""
    signs = {"alive": "", "dead": "†", "joining": "?"}
    members = " ".join(
        f"{member.id}{signs[member.status]}{'M' if member.id == view.master else ''}"
        for member in view.members
    )
    return f"{view.version} {view.state}: {members}"
