"""One member of the Raft group: PySyncObj's core, the journal, and what keeps both honest.

    peers ── receive ─► firewall ─► Core ─► StateMachine.apply
    peers ◄─ Outbox ◄── send ◄─────┘  └──► RaftJournal ─► disk ─► synced: the Outbox lets go

Everything happens in `tick`, which runs the core until it has nothing more to do; between ticks the member only takes
what comes. `wake` asks for a tick at the end of the turn of the loop, so what came in one turn shares one.
Source: reliability §3.9, ring §3.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from typing import Final

from cluster.metadata.core import Core
from cluster.metadata.elections import Elections
from cluster.metadata.entries import (
    COMMAND_MAX_BYTES,
    NO_OP_COMMAND,
    REGULAR,
    Change,
    ChangeKind,
    encode_change,
)
from cluster.metadata.journal import RaftJournal
from cluster.metadata.journal_file import (
    Image,
    new_head,
    piece_payloads,
    read_image,
    write_image,
)
from cluster.metadata.options import Options
from cluster.metadata.outbox import Outbox
from cluster.metadata.raft_pb2 import AnswerVote, Applied, AskVote, Propose, Resign
from cluster.metadata.snapshots import Snapshots, first_entries
from cluster.metadata.state_machine import SnapshotUnreadable, StateMachine
from cluster.metadata.wire import BadMessage, CoreMessage, Received, decode, encode, encode_own, to_core
from node.store.disk import Disk

Send = Callable[[str, bytes], bool]
"""Hands a message to the link to a peer; False when there is none."""

Done = Callable[[str | None], None]
"""Gets None when it is done, else why it was not."""

_ROUNDS_MAX: Final = 64
"""How often one tick runs the core; what is left is for the next turn."""

_CHANGE_S: Final = 15.0
"""For how long a change of who votes is tried."""

_CHANGE_RETRY_S: Final = 0.3

_ORPHAN_ELECTIONS: Final = 3
"""After so many times of the longest election without a leader that it knows for a voter, a member listens to others:
it may have missed who votes by now."""

_IN_FLIGHT_S: Final = 0.5
"""A follower that has not answered for so long is not waited for."""

_APPLIED_S: Final = 0.5
"""How often the others are told what is applied here, besides those who wait for it."""

_BAD_MESSAGES_REPORTED: Final = 20

_VOTERS_ONLY: Final = frozenset(
    {"request_vote", "grant_vote", "ask_vote", "answer_vote", "append", "piece", "resign"}
)
"""Observers may only propose, and say how far they are (reliability §3.5: no role check in PySyncObj)."""


@dataclass(slots=True)
class _Pending:
    """A change of who votes that somebody wants.   is_proposed: whether a leader got it."""

    change: Change
    done: Done
    deadline: float
    retry_at: float
    is_proposed: bool = False


class Replica:
    """A member. Made by `create`, `load` or `join`.

    disk: of the directory DATA/raft; None: of a node that keeps nothing, and never votes.
    send: takes a message for a peer.   now: monotonic seconds.   random: from 0 to 1.
    wake: asks for a call of `tick` soon.   report: takes a line for the log.
    on_broken: called once, with the reason, when this member can take part no more: a disk that fails, a log or a
        message that contradicts what is safe. The node has to stop.
    """

    def __init__(
        self,
        name: str,
        image: Image,
        disk: Disk | None,
        state: StateMachine,
        send: Send,
        *,
        now: Callable[[], float],
        random: Callable[[], float],
        wake: Callable[[], None],
        options: Options,
        report: Callable[[str], None],
        on_broken: Callable[[str], None],
    ) -> None:
        self.name = name
        self.is_broken = False
        self._state = state
        self._now = now
        self._random = random
        self._wake = wake
        self._options = options
        self._report = report
        self._on_broken = on_broken
        self._links: set[str] = set()
        self._in_flight: dict[str, tuple[int, float]] = {}
        """Appends that a follower has not answered, and when the last one went out."""
        self._pending: list[_Pending] = []
        self._applied_told = 0
        self._tells_applied_at = 0.0
        self._leaves = False
        self._bad_messages = 0
        self._elections = Elections(name, options.election_min_s, random)
        self._outbox = Outbox(send)
        self._send_now = send
        self._journal = RaftJournal(image, disk, self._synced, self._disk_failed)
        self._snapshots = Snapshots(self._journal, disk, state, self._disk_failed, self._snapshot_ready)
        self._core = Core(name, self._journal, self._snapshots, self, now, random, options)
        self._elections.heard_leader(now())
        restoring = state.begin_restore()
        for items in image.items():
            restoring.add(items)
        restoring.install()
        image.pieces = []

    # --- what it is ---

    @property
    def voters(self) -> frozenset[str]:
        """Who votes."""
        return self._journal.current_voters

    @property
    def is_voter(self) -> bool:
        """Whether this member votes."""
        return self.name in self.voters

    @property
    def is_leader(self) -> bool:
        """Whether it leads, as far as it knows: there may be a newer leader."""
        return self._core.is_leader() and not self.is_broken

    @property
    def leader(self) -> str | None:
        """Who leads, as far as it knows, and can be reached."""
        leader = self._core.leader_name()
        return leader if leader == self.name or leader in self._links else None

    @property
    def term(self) -> int:
        """The term of the group."""
        return self._core.term()

    @property
    def has_majority(self) -> bool:
        """Whether a majority of the voters can be reached, itself counted."""
        voters = self.voters
        return 2 * len(voters & (self._links | {self.name})) > len(voters)

    @property
    def applied_index(self) -> int:
        """The last entry that was applied here."""
        return self._core.applied()

    @property
    def links(self) -> frozenset[str]:
        """The peers that can be reached."""
        return frozenset(self._links)

    @property
    def written(self) -> int:
        """How much was promised to be kept, see `synced`."""
        return self._journal.written

    @property
    def synced(self) -> int:
        """How much of that is safe."""
        return self._journal.synced

    # --- what comes ---

    def receive(self, peer: str, message: bytes) -> None:
        """A message on the topic RAFT. What is no message, or not this peer's to send, is dropped and reported."""
        if self.is_broken:
            return
        try:
            self._take(peer, decode(message))
        except BadMessage as bad:
            self._bad_messages += 1
            if self._bad_messages <= _BAD_MESSAGES_REPORTED:
                self._report(f"a Raft message of {peer} was dropped: {bad}")
        except SnapshotUnreadable as unreadable:
            self._break(f"the snapshot of {peer} cannot be read: {unreadable}")
        self._wake()

    def link_up(self, peer: str) -> None:
        """A peer can be reached, both ways."""
        had_majority = self.has_majority
        self._links.add(peer)
        self._core.enter()
        if self.has_majority and not had_majority and not self._elections.hears_leader(self._now()):
            # Whoever leads shall be heard first.
            self._core.postpone_election()
        self._in_flight.pop(peer, None)
        self._core.relink(self._links)
        self._core.hurry()
        self._tell_applied(peer)
        self._wake()

    def link_down(self, peer: str) -> None:
        """A peer cannot be reached any more; what was on its way is lost."""
        self._links.discard(peer)
        self._core.enter()
        self._in_flight.pop(peer, None)
        self._outbox.forget(peer)
        self._snapshots.cancel(peer)
        self._core.relink(self._links)
        if self._core.leader_name() == peer:
            self._elections.lost_leader()
            soon = self._now() + 0.1 * self._options.election_min_s * (1 + 4 * self._random())
            if soon < self._core.election_deadline():
                self._core.postpone_election(soon)
            self._elections.hurry(soon)
        self._wake()

    def tick(self, now: float) -> float:
        """Do all that can be done now. Gives when to be called again at the latest."""
        if self.is_broken:
            return inf
        self._core.enter()
        self._state.before(now)
        self._advance_changes(now)
        self._run()
        if self.is_broken:
            return inf
        if self._leaves:
            self._leave()
        self._compact()
        self._journal.flush()
        self._outbox.release(self._journal.synced)
        self._tell_all_applied(now)
        due = self._state.after(now)
        return min(due, self._next_tick(now))

    # --- what it is asked for ---

    def propose(self, command: bytes) -> bool:
        """Hand a command to the leader; False when nobody can take it. Whether it was applied, the state tells; it
        may get lost, or be applied twice when it is proposed twice.
        """
        assert len(command) < COMMAND_MAX_BYTES
        return self._propose(bytes([REGULAR]) + command)

    def add_voter(self, name: str, done: Done) -> None:
        """Have a member vote that follows already."""
        self._change("add", name, done)

    def remove_voter(self, name: str, done: Done) -> None:
        """Have a member vote no more."""
        self._change("remove", name, done)

    def resign(self) -> None:
        """Have somebody else lead, if this member does."""
        self._leaves = self._leaves or self.is_leader
        self._wake()

    def _propose(self, command: bytes) -> bool:
        leader = self.leader
        if leader is None or self.is_broken:
            return False
        if leader == self.name:
            self._core.propose(command)
        else:
            self._push(leader, encode_own(self.term, Propose(command=command)))
        return True

    def _change(self, kind: ChangeKind, name: str, done: Done) -> None:
        now = self._now()
        self._pending.append(_Pending((kind, name), done, now + _CHANGE_S, now))
        self._wake()

    def _advance_changes(self, now: float) -> None:
        """Propose changes of who votes again and again until they are in force.

        What is in force here may be old news; so it counts only a while after a leader was asked, while it is heard.
        """
        if not self._pending:
            return
        in_force = self._journal.voters(self.applied_index)
        is_current = self.is_leader or self._elections.hears_leader(now, _CHANGE_RETRY_S)
        for each in list(self._pending):
            kind, name = each.change
            if now >= each.deadline:
                self._pending.remove(each)
                each.done(f"the cluster did not {kind} '{name}' as a voter within {_CHANGE_S:g} s")
            elif now >= each.retry_at:
                if each.is_proposed and is_current and (name in in_force) == (kind == "add"):
                    self._pending.remove(each)
                    each.done(None)
                    continue
                each.is_proposed = self._propose(encode_change(kind, name)) or each.is_proposed
                each.retry_at = now + _CHANGE_RETRY_S

    # --- the core's host ---

    def send(self, peer: str, message: CoreMessage) -> None:
        """See `Host.send`."""
        if peer not in self._links:
            return
        if message["type"] == "append_entries" and "serialized" not in message:
            count, _ = self._in_flight.get(peer, (0, 0.0))
            self._in_flight[peer] = (count + 1, self._now())
        self._push(peer, encode(self._core.term(), message))

    def apply(self, index: int, command: bytes) -> None:
        """See `Host.apply`."""
        self._state.apply(index, command)

    def may_campaign(self) -> bool:
        """See `Host.may_campaign`."""
        voters, now, position = self.voters, self._now(), self._core.position()
        if self._elections.may_begin(position.term + 1, voters) or voters == {self.name}:
            return True
        if self.has_majority and self._elections.asks(position.term + 1, now):
            last = self._journal.last
            question = AskVote(term=position.term + 1, last_index=last[1], last_term=last[2])
            for peer in sorted(voters & self._links):
                self._push(peer, encode_own(position.term, question))
        return False

    def reconfigured(self) -> None:
        """See `Host.reconfigured`."""
        self._core.relink(self._links)

    def asked_to_leave(self) -> None:
        """See `Host.asked_to_leave`."""
        self._leaves = True

    # --- messages ---

    def _take(self, peer: str, received: Received) -> None:
        """A message of a peer. Raises BadMessage."""
        kind, term, body = received
        now = self._now()
        self._core.enter()
        if kind in _VOTERS_ONLY and not self._may_lead(peer, now):
            raise BadMessage(f"{kind} of a member that does not vote")
        if kind == "ask_vote":
            self._answer(peer, body, now)
        elif kind == "answer_vote":
            self._hear_answer(peer, term, body)
        elif kind == "applied":
            self._state.peer_applied(peer, body.index)
        elif kind == "resign":
            self._hear_resignation(peer, term, now)
        elif kind in ("append", "piece"):
            self._hear_leader(peer, term, received, now)
        elif kind == "grant_vote":
            if peer in self.voters and self._elections.counts(peer, term):
                self._core.deliver(peer, to_core(received))
        elif kind == "request_vote":
            self._core.deliver(peer, to_core(received))
        elif kind == "next_index":
            self._hear_follower(peer, term, received)
        elif (
            self.is_leader
        ):  # a proposal: whoever is no leader any more drops it, as forwarding could go round
            self._core.deliver(peer, to_core(received))

    def _may_lead(self, peer: str, now: float) -> bool:
        """Whether to listen to a peer in what only voters say."""
        if peer in self.voters or peer == self._core.leader_name():
            return True
        patience_s = _ORPHAN_ELECTIONS * self._options.election_max_s
        return not self.is_leader and not self._elections.hears_leader(now, patience_s)

    def _hear_leader(self, peer: str, term: int, received: Received, now: float) -> None:
        if term < self._core.term():
            # PySyncObj says nothing, and the old leader would go on for ever.
            self._push(peer, encode_own(self._core.term(), AnswerVote(term=term, is_granted=False)))
            return
        if self._core.is_leader() and term == self._core.term():
            raise BadMessage(f"{peer} claims to lead in term {term}, in which this node does")
        self._elections.heard_leader(now)
        self._core.deliver(peer, to_core(received))

    def _hear_follower(self, peer: str, term: int, received: Received) -> None:
        count, sent_at = self._in_flight.get(peer, (0, 0.0))
        self._in_flight[peer] = (max(count - 1, 0), sent_at)
        if term == self._core.term() and self._core.is_leader():
            self._core.deliver(peer, to_core(received))

    def _hear_resignation(self, peer: str, term: int, now: float) -> None:
        if term == self._core.term() and self._core.leader_name() == peer:
            self._core.forget_leader()
            self._elections.lost_leader()
            soon = now + 0.1 * self._options.election_min_s * self._random()
            self._core.postpone_election(soon)
            self._elections.hurry(soon)

    def _answer(self, peer: str, question: AskVote, now: float) -> None:
        """Whether we would vote for a peer."""
        is_granted = not (
            self._core.is_leader()
            or self._elections.hears_leader(now)
            or self._core.lags(question.last_term, question.last_index)
            or question.term <= self._core.term()
        )
        answer = AnswerVote(term=question.term, is_granted=is_granted)
        self._push(peer, encode_own(self._core.term(), answer))

    def _hear_answer(self, peer: str, term: int, answer: AnswerVote) -> None:
        if term > self._core.term():
            self._core.step_down(term)
        elif answer.is_granted and peer in self.voters:
            self._elections.granted(peer, answer.term)

    def _push(self, peer: str, message: bytes) -> None:
        self._outbox.push(peer, message, self._journal.written, self._journal.synced)

    # --- a tick ---

    def _run(self) -> None:
        """Run the core until nothing moves: each of its ticks does only a part."""
        for _ in range(_ROUNDS_MAX):
            before = self._core.position()
            try:
                self._core.run()
            except SnapshotUnreadable as unreadable:
                self._break(str(unreadable))
                return
            except Exception:
                # A fault of the program: the entry would be applied again and again.
                self._break("an entry of the log could not be applied")
                raise
            position = self._core.position()
            if position.is_leader and not self._core.is_announced() and self._is_gate_open():
                self._core.hurry()
            elif position == before:
                return
        self._wake()

    def _is_gate_open(self) -> bool:
        """Whether a majority would get what is new at once: while it is busy with what went out before, more gathers
        for the next round (ring §3: PySyncObj sends again what is in flight).
        """
        voters, now = self.voters, self._now()
        idle = 1
        for voter in voters - {self.name}:
            count, sent_at = self._in_flight.get(voter, (0, 0.0))
            if voter in self._links and (not count or now - sent_at > _IN_FLIGHT_S):
                idle += 1
        return 2 * idle > len(voters)

    def _leave(self) -> None:
        """Lead no more, and let the others know at once."""
        self._leaves = False
        if not self.is_leader or self.voters == {self.name}:
            return
        for peer in sorted(self.voters & self._links):
            self._push(peer, encode_own(self._core.term(), Resign()))
        self._core.step_down()
        self._elections.lost_leader()
        self._core.postpone_election(self._now() + 2 * self._options.election_max_s)

    def _compact(self) -> None:
        """Begin a snapshot when the journal has grown enough."""
        journal, options = self._journal, self._options
        is_grown = journal.size_bytes > max(options.compact_min_bytes, 2 * journal.snapshot_bytes)
        if (is_grown or len(journal) > options.compact_entries) and self._snapshots.is_idle:
            self._core.compact()
        if self._core.has_pieces_left and self.is_leader:
            self._snapshot_ready()

    def _tell_all_applied(self, now: float) -> None:
        applied = self.applied_index
        submitters = self._state.take_submitters() & self._links
        if applied == self._applied_told:
            return
        if now >= self._tells_applied_at:
            self._tells_applied_at = now + _APPLIED_S
            self._applied_told = applied
            submitters = self._links
        for peer in sorted(submitters):
            self._tell_applied(peer)

    def _tell_applied(self, peer: str) -> None:
        """No promise: it need not wait for the disk."""
        self._send_now(peer, encode_own(self._core.term(), Applied(index=self.applied_index)))

    def _next_tick(self, now: float) -> float:
        due = now + 1.0
        if self._pending:
            due = min(due, *(each.retry_at for each in self._pending))
        if self._applied_told != self.applied_index:
            due = min(due, self._tells_applied_at)
        if self._core.is_leader():
            due = min(due, self._core.next_heartbeat())
        elif self.is_voter and self.has_majority:
            due = min(due, max(self._core.election_deadline(), self._elections.asks_again_at))
        return max(due, now + 0.001)

    def _snapshot_ready(self) -> None:
        """There are pieces of a snapshot to send."""
        self._core.hurry()
        self._wake()

    # --- the disk ---

    def _synced(self) -> None:
        self._outbox.release(self._journal.synced)
        self._wake()

    def _disk_failed(self, error: OSError) -> None:
        self._break(f"the Raft journal could not be written: {error}")

    def _break(self, reason: str) -> None:
        if not self.is_broken:
            self.is_broken = True
            self._state.broken(reason)
            self._on_broken(reason)


# --- how a member comes to be -----------------------------------------------------------------------------


def create(disk: Disk, name: str, items: Iterable[bytes] = ()) -> None:
    """Write the journal of a new group of one.   items: the state that it begins with. Raises OSError."""
    previous, last = first_entries()
    image = Image(new_head(previous, last, [name]), list(piece_payloads(items)), term=1)
    write_image(disk, image)


def join(disk: Disk | None, voters: Iterable[str]) -> Image:
    """The journal of a member that is to follow these voters, until it is added to them: written, if it has a disk.
    Raises OSError.
    """
    image = _empty(voters)
    if disk is not None:
        write_image(disk, image)
    return image


def load(disk: Disk) -> Image:
    """The journal that is there. Raises JournalUnreadable, NewerFormat, OSError."""
    return read_image(disk)


def _empty(voters: Iterable[str]) -> Image:
    return Image(new_head((NO_OP_COMMAND, 1, 0), (NO_OP_COMMAND, 2, 0), voters))
