"""One member of the Raft group: PySyncObj's core, the journal, and the checks around both.

    peers ── receive ─► firewall ─► Core ─► StateMachine.apply
    peers ◄─ WriteBarrier ◄── send ◄────┘  └──► RaftJournal ─► disk ─► synced: the WriteBarrier sends

Everything happens in `tick`, which runs the core until it has nothing more to do; between ticks the member only queues
input. `wake` asks for a tick at the end of the turn of the loop, so all messages of one turn share one.
Source: reliability §3.9, ring §3.
"""

from collections.abc import Callable, Iterable
from math import inf
from typing import Final

from cluster.metadata.core import Core
from cluster.metadata.debts import Debts
from cluster.metadata.disk_watch import DiskWatch
from cluster.metadata.elections import Elections
from cluster.metadata.entries import COMMAND_MAX_BYTES, REGULAR, ChangeKind
from cluster.metadata.journal import RaftJournal
from cluster.metadata.journal_file import Image
from cluster.metadata.match_indexes import TELLING_MAX, MatchIndexes
from cluster.metadata.notices import Notices
from cluster.metadata.options import Options
from cluster.metadata.outgoing import Outgoing, Send
from cluster.metadata.raft_pb2 import AnswerVote, Applied, AskVote, Propose, Remembered, Resign
from cluster.metadata.snapshots import Snapshots
from cluster.metadata.state_machine import SnapshotUnreadable, StateMachine
from cluster.metadata.voter_changes import Done, VoterChanges
from cluster.metadata.wire import (
    QUIET,
    VOTERS_ONLY,
    BadMessage,
    CoreMessage,
    Received,
    decode,
    encode,
    encode_own,
    to_core,
)
from node.store.disk import Disk

_ROUNDS_MAX: Final = 64
"""How often one tick runs the core; what is left is for the next turn."""

_CHANGE_RETRY_HEARTBEATS: Final = 1.2
"""After so many heartbeats a change of the voters is proposed again."""

_RANK_S: Final = 0.1
"""The delay between voters' elections, by the order of their names, when the leader is known to be dead: if all stood
at the same time, none would win."""

_CORE_S: Final = 1.0
"""How often the core gets a tick at the least: it writes then how far the log is committed."""

_ORPHAN_ELECTIONS: Final = 3
"""After so many times of the longest election without a leader that it knows for a voter, a member listens to others:
it may have missed a change of the voters."""

_BAD_MESSAGES_REPORTED: Final = 20


class RaftMember:
    """One member of the Raft group. It begins with an image that `founding` makes or reads.

    disk: of the directory DATA/raft; None: the node keeps nothing, and never votes.
    send: takes a message for a peer.   now: monotonic seconds.   random: from 0 to 1.
    wake: asks for a call of `tick` soon.   report: takes a line for the log.
    on_broken: called once, with the reason, when this member cannot take part any more: its disk failed, or a log or
        message contradicts what is safe. The node has to stop.
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
        self._changes = VoterChanges(_CHANGE_RETRY_HEARTBEATS * options.heartbeat_s)
        self._notices = Notices(self._say_applied)
        self._leaves = False
        self._bad_messages = 0
        self._has_majority = False
        self._leader_known: str | None = None
        self._is_core_due = True
        """True if the core has something to do."""
        self._core_at = 0.0
        """The time at which the core gets a tick in any case."""
        self._stands = False
        """True if the core begins an election in this tick."""
        self._elections = Elections(name, options.election_min_s, options.ask_s, random)
        self._own_disk = DiskWatch(options.stuck_disk_s)
        self._debts = Debts(report)
        self._journal = RaftJournal(image, disk, self._synced, self._disk_failed)
        self._out = Outgoing(send, self._journal)
        self._matches = MatchIndexes()
        self._snapshots = Snapshots(self._journal, disk, state, self._disk_failed, self._snapshot_ready)
        self._core = Core(name, self._journal, self._snapshots, self, now, random, options)
        self._elections.expect_leader(now())
        if self.voters != {name}:
            self._core.postpone_election(now() + options.ask_s * (1 + random()))
        self._count_links()
        restoring = state.begin_restore()
        for items in image.items():
            restoring.add(items)
        restoring.install()
        image.pieces = []

    # --- state ---

    @property
    def voters(self) -> frozenset[str]:
        """The names of the voters."""
        return self._journal.current_voters

    @property
    def is_voter(self) -> bool:
        """True if this member votes."""
        return self.name in self.voters

    @property
    def is_leader(self) -> bool:
        """True if this member leads, as far as it knows: there may be a newer leader."""
        return self._core.is_leader() and not self.is_broken

    @property
    def leader(self) -> str | None:
        """The name of the leader, as far as this member knows; None if it knows none or cannot reach it."""
        leader = self._core.leader_name()
        return leader if leader == self.name or leader in self._links else None

    @property
    def term(self) -> int:
        """The term of the group."""
        return self._core.term()

    @property
    def has_majority(self) -> bool:
        """True if a majority of the voters can be reached, including this member."""
        return self._has_majority

    @property
    def applied_index(self) -> int:
        """The index of the last entry that was applied here."""
        return self._core.applied()

    @property
    def links(self) -> frozenset[str]:
        """The peers that can be reached."""
        return frozenset(self._links)

    @property
    def written(self) -> int:
        """The number of journal changes that must be kept, as counted by `synced`."""
        return self._journal.written

    @property
    def synced(self) -> int:
        """The number of journal changes that are synced."""
        return self._journal.synced

    def waits_for_disk_s(self, now: float) -> float:
        """Return for how many seconds the oldest unsynced change has waited."""
        return self._own_disk.waits_s(now)

    # --- messages and links ---

    def receive(self, peer: str, messages: Iterable[bytes]) -> None:
        """Take the Raft messages of one read, and write what they add. Impossible ones are dropped and reported."""
        is_due = False
        for message in messages:
            if self.is_broken:
                return
            try:
                is_due = self._take(peer, decode(message)) or is_due
            except BadMessage as bad:
                self._bad_messages += 1
                if self._bad_messages <= _BAD_MESSAGES_REPORTED:
                    self._report(f"a Raft message of {peer} was dropped: {bad}")
            except SnapshotUnreadable as unreadable:
                self._break(f"the snapshot of {peer} cannot be read: {unreadable}")
        if self._journal.has_gathered:
            self._write(self._now())
        self._is_core_due = self._is_core_due or self._core.has_work()
        if is_due or self._is_core_due or self.leader != self._leader_known:
            self._wake()

    def link_up(self, peer: str) -> None:
        """Note that a peer can be reached, both ways."""
        had_majority, now = self.has_majority, self._now()
        self._links.add(peer)
        self._count_links()
        self._core.enter()
        if self.has_majority and not had_majority and not self._elections.hears_leader(now):
            # An election only after the leader, if there is one, had time to be heard.
            self._core.postpone_election(now + self._options.ask_s * (1 + self._random()))
        self._out.in_flight.forget(peer)
        if self._debts.of(peer):
            self._out.promise(peer, encode_own(self._core.term(), Remembered(index=self._debts.of(peer))))
        self._core.relink(self._links)
        self._core.hurry()
        self._notices.tell_one(peer, self.applied_index)
        self._wake_core()

    def link_down(self, peer: str, *, is_gone: bool = False) -> None:
        """Note that a peer cannot be reached any more; messages on the way are lost.   is_gone: its process is dead."""
        self._links.discard(peer)
        self._count_links()
        self._core.enter()
        self._out.forget(peer)
        self._matches.forget(peer)
        self._snapshots.cancel(peer)
        self._core.relink(self._links)
        if self._core.leader_name() == peer:
            self._elections.lost_leader()
            if is_gone:
                left = sorted(self.voters & (self._links | {self.name}))
                soon = self._now() + _RANK_S * (left.index(self.name) if self.is_voter else 0)
            else:
                soon = self._now() + 0.1 * self._options.ask_s * (1 + 4 * self._random())
            if soon < self._core.election_deadline():
                self._core.postpone_election(soon)
            self._elections.hurry(soon)
        self._wake_core()

    def close(self) -> None:
        """Stop using the disk, which ends."""
        self._journal.close()

    def tick(self, now: float) -> float:
        """Do all that can be done now. Returns when to be called again at the latest."""
        if self.is_broken:
            return inf
        self._core.enter()
        self._leader_known = self.leader
        self._state.before(now)
        self._advance_changes(now)
        if self._is_core_due or now >= self._core_due():
            self._core_at = now + _CORE_S
            self._run()
            if self.is_broken:
                return inf
            if self._leaves:
                self._leave()
            self._compact()
        self._write(now)
        self.tell_applied(self.applied_index)
        if self.leader != self._leader_known:
            self._wake()  # the next tick proposes pending commands to the new leader
        due = self._state.after(now)
        return min(due, self._next_tick(now))

    def _write(self, now: float) -> None:
        """Write what has gathered. Step down if this leader's disk is stuck and the others' disks work."""
        journal = self._journal
        journal.flush()
        self._own_disk.observe(now, journal.written, journal.synced, journal.last[1])
        if self.is_leader and self._own_disk.holds_up(now, self._core.others_have) and self._leave():
            self._report("the disk of the Raft journal is stuck: another node is to lead")

    # --- requests ---

    def propose(self, command: bytes) -> bool:
        """Pass a command to the leader; False if there is none. Only the state shows whether the command was applied:
        it may get lost, or be applied twice if it is proposed twice.
        """
        assert len(command) < COMMAND_MAX_BYTES
        return self._propose(bytes([REGULAR]) + command)

    def add_voter(self, name: str, done: Done) -> None:
        """Make a member a voter that follows the log already."""
        self._change("add", name, done)

    def remove_voter(self, name: str, done: Done) -> None:
        """Make a member cease to vote."""
        self._change("remove", name, done)

    def tell_applied(self, index: int) -> None:
        """Tell submitters what is applied here, or will be before the node does anything else: so it is visible."""
        self._notices.tell(index, self._state.take_submitters(), self._links, self.leader, self._now())

    def resign(self) -> None:
        """Step down, if this member leads."""
        self._leaves = self._leaves or self.is_leader
        self._wake_core()

    def _propose(self, command: bytes) -> bool:
        leader = self.leader
        if leader is None or self.is_broken or (leader == self.name and self._journal.is_full):
            return False
        if leader == self.name:
            self._core.propose(command)
            self._is_core_due = True
        else:
            # A proposal promises nothing, so it need not wait for the disk.
            return self._out.now(leader, encode_own(self.term, Propose(command=command)))
        return True

    def _change(self, kind: ChangeKind, name: str, done: Done) -> None:
        self._changes.add(kind, name, done, self._now())
        self._wake()

    def _advance_changes(self, now: float) -> None:
        changes = self._changes
        if not changes.is_empty:
            is_current = self.is_leader or self._elections.hears_leader(now, changes.retry_s)
            in_force = self._journal.voters(self.applied_index)
            changes.advance(now, in_force, is_current=is_current, propose=self._propose)

    # --- the core's host ---

    def send(self, peer: str, message: CoreMessage) -> None:
        """Send a message of the core to a peer, once the journal is synced as far as the message promises."""
        if peer not in self._links:
            return
        data = encode(self._core.term(), message)
        if message["type"] == "append_entries":
            is_answered = "serialized" not in message and not message["is_notice"]
            self._out.append(peer, data, self._now() if is_answered else None)
            return
        self._out.promise(peer, data)
        if message["type"] == "next_node_idx" and message["success"]:
            self._tell_voters(message["next_node_idx"] - 1, data, besides=peer)

    def apply(self, index: int, command: bytes, *, is_last: bool) -> None:
        """Apply a committed entry to the state."""
        self._state.apply(index, command, is_last=is_last)

    def committed(self) -> None:
        """Tell the others how far this leader's log is committed, before it is applied here."""
        if self.is_leader and self._can_announce():
            self._core.announce()

    def may_campaign(self) -> bool:
        """Return True if an election has a chance; ask the other voters if their answers are not known."""
        voters, term = self.voters, self._core.term()
        if voters != {self.name} and (self._own_disk.is_stuck(self._now()) or self._owes()):
            return False  # its own vote could not be kept, or does not count
        if self._elections.may_begin(term + 1, voters) or voters == {self.name}:
            self._stands = True
            return True
        if self.has_majority and self._elections.asks(term + 1, self._now()):
            last = self._journal.last
            question = AskVote(term=term + 1, last_index=last[1], last_term=last[2])
            for peer in sorted(voters & self._links):
                self._out.promise(peer, encode_own(term, question))
        return False

    def reconfigured(self) -> None:
        """Follow a change of the voters."""
        self._core.relink(self._links)
        self._count_links()
        self._debts.keep(self.voters)
        self._wake_core()

    def asked_to_leave(self) -> None:
        """Step down at the end of the tick, as this leader is to cease to vote."""
        self._leaves = True

    # --- messages ---

    def _take(self, peer: str, received: Received) -> bool:
        """Take a message of a peer. Returns: True if `tick` should follow soon for it alone. Raises BadMessage."""
        (kind, term, body), now = received, self._now()
        self._core.enter()
        if kind in VOTERS_ONLY and not self._may_lead(peer, now):
            raise BadMessage(f"{kind} of a member that does not vote")
        if kind == "ask_vote":
            self._answer(peer, body, now)
        elif kind == "answer_vote":
            self._hear_answer(peer, term, body)
        elif kind == "applied":
            return self._hear_applied(peer, body)
        elif kind == "resign":
            self._hear_resignation(peer, term, now)
        elif kind in ("append", "piece"):
            self._hear_leader(peer, term, received, now)
        elif kind == "grant_vote":
            if peer in self.voters and self._elections.counts(peer, term):
                self._core.deliver(peer, to_core(received))
        elif kind == "remembered":
            self._debts.told(body.index, self._journal.last[1])
        elif kind == "request_vote":
            if not self._owes():
                self._core.deliver(peer, to_core(received))
        elif kind == "next_index":
            self._hear_follower(peer, term, received)
        elif self.is_leader and not self._journal.is_full:
            # A proposal. A former leader drops it, since forwarding could go in circles.
            self._core.deliver(peer, to_core(received))
        self._is_core_due = self._is_core_due or kind not in QUIET
        return False

    def _may_lead(self, peer: str, now: float) -> bool:
        """Return True if messages that only voters may send are accepted from this peer."""
        if peer in self.voters or peer == self._core.leader_name():
            return True
        patience_s = _ORPHAN_ELECTIONS * self._options.election_max_s
        return not self.is_leader and not self._elections.hears_leader(now, patience_s)

    def _hear_leader(self, peer: str, term: int, received: Received, now: float) -> None:
        if term < self._core.term():
            # PySyncObj would not answer, and the old leader would never learn that it is not the leader any more.
            self._out.promise(peer, encode_own(self._core.term(), AnswerVote(term=term, is_granted=False)))
            return
        if self._core.is_leader() and term == self._core.term():
            raise BadMessage(f"{peer} claims to lead in term {term}, in which this node does")
        self._elections.heard_leader(now)
        applied = self.applied_index
        self._core.deliver(peer, to_core(received))
        if self.applied_index != applied:
            self._notices.soon(now)
        self._owes()  # it reports when this member has caught up

    def _hear_follower(self, peer: str, term: int, received: Received) -> None:
        self._out.in_flight.answered(peer)
        if term == self._core.term() and self._core.is_leader():
            self._core.deliver(peer, to_core(received))
            if peer in self.voters:
                self._debts.heard(peer, self._core.acknowledged(peer))
                self._own_disk.look_at_others(self._now(), self._core.others_have)
            self._is_core_due = self._is_core_due or received.body.reset or self._can_announce()
        elif term == self._core.term() and peer in self.voters and received.body.success:
            self._matches.note(peer, term, received.body.next_index - 1)
            self._learn()

    def _tell_voters(self, index: int, answer: bytes, besides: str) -> None:
        """Tell the other voters, too, what this one has safe, if they may learn from it what is committed."""
        if self.is_voter and len(self.voters) <= TELLING_MAX and index > self._journal.getRaftCommitIndex():
            for voter in sorted(self.voters & self._links - {besides}):
                self._out.promise(voter, answer)

    def _learn(self) -> None:
        """Note, as a follower that votes, which entries are committed, as far as the other followers have told."""
        if self.is_voter and not self._core.is_leader():
            own = self._journal.synced_index
            self._core.learn_committed(self._matches.safe_index(self.term, self.voters, own))
            self._debts.heard_all(self._matches.told_in(self.term), self._journal.getRaftCommitIndex())

    def _hear_resignation(self, peer: str, term: int, now: float) -> None:
        if term == self._core.term() and self._core.leader_name() == peer:
            self._core.forget_leader()
            self._elections.lost_leader()
            soon = now + 0.1 * self._options.ask_s * self._random()
            self._core.postpone_election(soon)
            self._elections.hurry(soon)

    def _answer(self, peer: str, question: AskVote, now: float) -> None:
        """Tell a peer whether this member would vote for it."""
        is_granted = not (
            self._core.is_leader()
            or self._owes()
            or self._elections.hears_leader(now)
            or self._core.lags(question.last_term, question.last_index)
            or question.term <= self._core.term()
        )
        answer = AnswerVote(term=question.term, is_granted=is_granted)
        self._out.promise(peer, encode_own(self._core.term(), answer))

    def _hear_answer(self, peer: str, term: int, answer: AnswerVote) -> None:
        if term > self._core.term():
            self._core.step_down(term)
        elif answer.is_granted and peer in self.voters:
            self._elections.granted(peer, answer.term)

    def _owes(self) -> bool:
        return self._debts.owes(self._journal.last[1])

    def _count_links(self) -> None:
        self._has_majority = 2 * len(self.voters & (self._links | {self.name})) > len(self.voters)

    def _wake_core(self) -> None:
        self._is_core_due = True
        self._wake()

    # --- a tick ---

    def _run(self) -> None:
        """Run the core, again if its term or role has changed, and send the news."""
        core = self._core
        for _ in range(_ROUNDS_MAX):
            self._is_core_due = False
            before = core.term(), core.is_leader()
            try:
                core.run()
            except SnapshotUnreadable as unreadable:
                self._break(str(unreadable))
                return
            except Exception:
                # A bug: without a stop the entry would be applied again and again.
                self._break("an entry of the log could not be applied")
                raise
            if self._stands:
                self._stands = False
                core.postpone_election(self._now() + self._options.ask_s * (0.5 + self._random()))
            if core.is_leader() and self._can_announce():
                core.announce()
            if before == (core.term(), core.is_leader()):
                self._is_core_due = self._is_core_due or core.has_entries_left
                return
        self._wake_core()

    def _can_announce(self) -> bool:
        """Return True if this leader has news that a majority would get at once. Else more news gathers meanwhile."""
        voters, now = self.voters, self._now()
        idle = 1 + sum(not self._out.in_flight.is_busy(voter, now) for voter in self._links & voters)
        return 2 * idle > len(voters) and not self._core.is_announced()

    def _leave(self) -> bool:
        """Step down, and tell the other voters at once: this needs no promise of the disk. Returns: True if it led."""
        self._leaves = False
        if not self.is_leader or self.voters == {self.name}:
            return False
        for peer in sorted(self.voters & self._links):
            self._out.now(peer, encode_own(self._core.term(), Resign()))
        self._core.step_down()
        self._elections.lost_leader()
        self._core.postpone_election(self._now() + 2 * self._options.election_min_s)
        return True

    def _compact(self) -> None:
        """Begin a snapshot when the journal has grown enough."""
        journal, options = self._journal, self._options
        is_grown = journal.size_bytes > max(options.compact_min_bytes, 2 * journal.snapshot_bytes)
        if (is_grown or len(journal) > options.compact_entries) and self._snapshots.is_idle:
            self._core.compact()
            self._is_core_due = True
        if self._core.has_pieces_left and self.is_leader:
            self._snapshot_ready()

    def _say_applied(self, peer: str, notice: Applied) -> None:
        """Send a notice, which promises nothing, so it need not wait for the disk."""
        self._out.now(peer, encode_own(self._core.term(), notice))

    def _hear_applied(self, peer: str, notice: Applied) -> bool:
        if notice.receiver:
            if self.is_leader and notice.receiver in self._links:
                self._notices.relay(peer, notice)
            return False
        if notice.member and peer != self.leader:
            return False
        return self._state.peer_applied(notice.member or peer, notice.index)

    def _core_due(self) -> float:
        due = self._core_at
        if self._core.is_leader():
            due = min(due, self._core.next_heartbeat())
            if len(self.voters) > 1:
                due = min(due, self._own_disk.due())
        elif self._has_majority and self.is_voter:
            due = min(due, max(self._core.election_deadline(), self._elections.asks_again_at))
        return due

    def _next_tick(self, now: float) -> float:
        due = now if self._is_core_due else min(self._core_due(), self._changes.due())
        return max(min(due, self._notices.due(self.applied_index)), now + 0.001)

    def _snapshot_ready(self) -> None:
        """Send pieces of a snapshot, which are ready."""
        self._core.hurry()
        self._wake_core()

    # --- the disk ---

    def _synced(self) -> None:
        self._out.release()
        self._learn()
        if self._core.has_work():
            self._wake_core()
        elif self._state.synced():
            self._wake()

    def _disk_failed(self, error: OSError) -> None:
        self._break(f"the Raft journal could not be written: {error}")

    def _break(self, reason: str) -> None:
        if not self.is_broken:
            self.is_broken = True
            self._state.broken(reason)
            self._on_broken(reason)
