"""PySyncObj 0.3.17 without its threads, sockets, files, clocks and pickles.

`Core` is PySyncObj's `SyncObj` with some of its private methods replaced, each for a reason that stands there, and
its clock and dice given by us. They are named in `PRIVATE_METHODS` and `PRIVATE_FIELDS`, and a test looks for each:
another version of PySyncObj must fail loudly, not do something else.
Source: reliability §3 (what is wrong with PySyncObj), ring §3 (how to drive it).
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

from pysyncobj import SyncObjConf, syncobj  # type: ignore[import-untyped]
from pysyncobj.node import Node  # type: ignore[import-untyped]
from pysyncobj.syncobj import SyncObj  # type: ignore[import-untyped]

from cluster.metadata.ambient import AMBIENT
from cluster.metadata.core_host import CoreHost, CoreTransport, NoPoller, Position
from cluster.metadata.entries import BATCH_BYTES, REGULAR, Change, LogEntry, decode_change
from cluster.metadata.journal import RaftJournal
from cluster.metadata.options import Options
from cluster.metadata.snapshots import Snapshots
from cluster.metadata.wire import BadMessage, CoreMessage

APPLY_S: Final = 0.020
"""How long entries are applied in one tick, looked at after each."""

PRIVATE_METHODS: Final = (
    "__connectedToAnyone",
    "__parseChangeClusterRequest",
    "__changeCluster",
    "__doChangeCluster",
    "__doApplyCommand",
    "__applyLogEntries",
    "__getEntries",
    "__sendAppendEntries",
    "__sendNextNodeIdx",
    "__loadDumpFile",
    "__generateRaftTimeout",
    "__setCurrentTerm",
    "__setState",
    "__getPrevLogIndexTerm",
    "__onMessageReceived",
)
PRIVATE_FIELDS: Final = (
    "__selfNode",
    "__otherNodes",
    "__readonlyNodes",
    "__connectedNodes",
    "__raftState",
    "__raftCurrentTerm",
    "__raftLeader",
    "__raftElectionDeadline",
    "__raftCommitIndex",
    "__raftLastApplied",
    "__raftNextIndex",
    "__raftMatchIndex",
    "__lastResponseTime",
    "__noopIDx",
    "__newAppendEntriesTime",
    "__serializer",
    "__forceLogCompaction",
)

_FOLLOWER: Final = syncobj._RAFT_STATE.FOLLOWER
_LEADER: Final = syncobj._RAFT_STATE.LEADER

_APPENDS_AT_ONCE: Final = 4
_PIECES_AT_ONCE: Final = 8
"""The most messages to one member in one round."""

CATCH_UP_ENTRIES: Final = 64
"""The most committed entries that a member may lack when it becomes a voter: one that lacks more would raise the
majority and not help to reach it."""


class Peer(Node):  # type: ignore[misc]  # PySyncObj has no types
    """A member of the group. Its hash is the same in every run, and with it the order of sets of peers."""

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self._hash = crc32(id.encode())

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Node) and bool(self._id == other._id))


@dataclass(slots=True)
class _Trimmed:
    """An append without the entries that are here already."""

    message: CoreMessage
    keeps_suffix: bool


class Core(SyncObj):  # type: ignore[misc]  # PySyncObj has no types
    """A Raft member, as PySyncObj's `SyncObj`. Call `enter` before anything else if one process has several."""

    _SyncObj__selfNode: Any
    _SyncObj__otherNodes: Any
    _SyncObj__readonlyNodes: Any
    _SyncObj__connectedNodes: Any
    _SyncObj__raftElectionDeadline: Any
    _SyncObj__newAppendEntriesTime: Any

    def __init__(
        self,
        name: str,
        journal: RaftJournal,
        snapshots: Snapshots,
        host: CoreHost,
        now: Callable[[], float],
        random: Callable[[], float],
        options: Options,
    ) -> None:
        self._name = name
        self._host = host
        self._journal = journal
        self._snapshots = snapshots
        self._now, self._dice = now, random
        self._options = options
        self._keeps_suffix = False
        self._is_applying = False
        self.has_entries_left = False
        """True if the last tick had no time for all entries that are committed."""
        self._is_ticking = False
        self._is_counting = False
        """True while this leader counts, in a tick, which members have an entry."""
        self._is_announcing = False
        self._has_commands = False
        """True if the next tick appends commands as the leader."""
        self._is_notice = False
        """True if the append that is being received needs no answer unless it is refused."""
        self.has_pieces_left = False
        """True if the last round left pieces of a snapshot that could have been sent."""
        self._announced = (0, 0)
        """The last entry and commit index that went out with the last round of appends."""
        self._peers: dict[str, Peer] = {}
        """The only object for each peer, by name, so that sets find it by identity."""
        self.enter()
        voters = journal.current_voters
        super().__init__(
            self._peer(name) if name in voters else None,
            [self._peer(voter) for voter in sorted(voters) if voter != name],
            conf=_conf(options, journal),
            transport=CoreTransport(host),
            nodeClass=Peer,
        )
        self._poller = NoPoller()
        self._SyncObj__serializer = snapshots
        self._SyncObj__raftLastApplied = journal.base_index
        self._SyncObj__raftCommitIndex = max(journal.base_index, journal.getRaftCommitIndex())
        if voters == {name}:
            self._SyncObj__raftElectionDeadline = 0
        journal.on_voters = self._reconfigure

    def enter(self) -> None:
        """Make PySyncObj's module use this member's clock and dice from now on."""
        AMBIENT.now, AMBIENT.random = self._now, self._dice

    # --- state ---

    def position(self) -> Position:
        """Return the progress of the member."""
        return Position(
            self._journal.last[1],
            self._SyncObj__raftCommitIndex,
            self._SyncObj__raftLastApplied,
            self._SyncObj__raftCurrentTerm,
            self._SyncObj__raftState == _LEADER,
        )

    def is_leader(self) -> bool:
        """Return True if the member leads, as far as it knows."""
        return bool(self._SyncObj__raftState == _LEADER)

    def applied(self) -> int:
        """Return the index of the last applied entry."""
        return int(self._SyncObj__raftLastApplied)

    def term(self) -> int:
        """Return the member's term."""
        return int(self._SyncObj__raftCurrentTerm)

    def leader_name(self) -> str | None:
        """Return the name of the leader, as far as the member knows; None: it knows none."""
        leader = self._SyncObj__raftLeader
        return None if leader is None else leader.id

    def election_deadline(self) -> float:
        """Return when the member asks for votes if it hears no leader until then."""
        return float(self._SyncObj__raftElectionDeadline)

    def next_heartbeat(self) -> float:
        """Return when this leader sends the next round of appends."""
        return float(self._SyncObj__newAppendEntriesTime)

    def is_announced(self) -> bool:
        """Return True if the last round of appends had this leader's last entry and commit index."""
        return self._announced == (self._journal.last[1], self._SyncObj__raftCommitIndex)

    def has_work(self) -> bool:
        """Return True if a tick would apply entries, or, in a leader, commit some."""
        committed = self._SyncObj__raftCommitIndex
        if self._SyncObj__raftLastApplied < committed:
            return True
        if self._SyncObj__raftState != _LEADER or self._journal.synced_index <= committed:
            return False
        others, match_index = self._SyncObj__otherNodes, self._SyncObj__raftMatchIndex
        return bool(2 * (1 + sum(match_index[node] > committed for node in others)) > len(others) + 1)

    def acknowledged(self, peer: str) -> int:
        """Return the index up to which a peer has all committed entries, as far as this leader knows."""
        matched: int = self._SyncObj__raftMatchIndex.get(self._peer(peer), 0)
        return int(min(matched, self._SyncObj__raftCommitIndex))

    def others_have(self, index: int) -> bool:
        """Return True if a majority of the voters, without this leader, is known to have an entry safe."""
        others, match_index = self._SyncObj__otherNodes, self._SyncObj__raftMatchIndex
        return bool(2 * sum(match_index[node] >= index for node in others) > len(others) + 1)

    def lags(self, term: int, index: int) -> bool:
        """Return True if a log that ends with this term and index is behind ours, so that its member may not lead."""
        return (term, index) < (self._journal.last[2], self._journal.last[1])

    def _peer(self, name: str) -> Peer:
        return self._peers.get(name) or self._peers.setdefault(name, Peer(name))

    # --- actions ---

    def run(self) -> None:
        """Run one tick of the core, which does a part of the pending work."""
        self._is_ticking = True
        self._is_counting = self._SyncObj__raftState == _LEADER
        self.doTick(0.0)
        self._is_ticking = self._is_counting = self._has_commands = False

    def propose(self, command: bytes) -> None:
        """Append a command of any kind, as the leader, with the next tick."""
        self._has_commands = True
        self._applyCommand(command, None)

    def hurry(self) -> None:
        """As a leader, send a round of appends with the next tick."""
        self._SyncObj__newAppendEntriesTime = 0

    def announce(self) -> None:
        """Send a round of appends now, as the leader. An append with nothing but a new commit index gets no answer:
        members apply the entries instead.
        """
        self._is_announcing = True
        self._SyncObj__sendAppendEntries()
        self._is_announcing = False

    def learn_committed(self, index: int) -> None:
        """Note, as a follower, that a majority has all safe that the leader of this term has sent up to an entry."""
        index, log = min(index, self._journal.last[1]), self._journal
        if index > self._SyncObj__raftCommitIndex and log[index - log[0][1]][2] == self.term():
            self._SyncObj__raftCommitIndex = index
            log.setRaftCommitIndex(index)

    def compact(self) -> None:
        """Begin a snapshot with the next tick."""
        self._SyncObj__forceLogCompaction = True

    def postpone_election(self, at_s: float | None = None) -> None:
        """Set when to ask for votes; None: after a random time without a leader from now on."""
        if at_s is None:
            at_s = self._now() + self._SyncObj__generateRaftTimeout()
        self._SyncObj__raftElectionDeadline = at_s

    def step_down(self, term: int | None = None) -> None:
        """Become a follower without a leader.   term: a newer one that was heard of."""
        if term is not None and term > self._SyncObj__raftCurrentTerm:
            self._SyncObj__setCurrentTerm(term, None)
        self._SyncObj__setState(_FOLLOWER)
        self._SyncObj__raftLeader = None

    def forget_leader(self) -> None:
        """Note that the leader is gone."""
        self._SyncObj__raftLeader = None

    def relink(self, linked: Collection[str]) -> None:
        """Set the peers that can be reached. Voters among them are followers or leaders; the others are observers,
        which a voter keeps up to date if it becomes the leader. An observer sends other observers nothing.
        """
        others = {node.id: node for node in self._SyncObj__otherNodes}
        is_voter = self._SyncObj__selfNode is not None
        connected = {self._peer(name) for name in sorted(linked) if name in others or is_voter}
        observers = {node for node in connected if node.id not in others}
        next_index, match_index = self._SyncObj__raftNextIndex, self._SyncObj__raftMatchIndex
        for node in self._SyncObj__readonlyNodes - observers:
            if node.id not in others:
                next_index.pop(node, None)
                match_index.pop(node, None)
        for node in observers - self._SyncObj__readonlyNodes:
            next_index[node] = self._journal.last[1] + 1
            match_index[node] = 0
        self._SyncObj__readonlyNodes = observers
        self._SyncObj__connectedNodes = connected

    def deliver(self, peer: str, message: CoreMessage) -> None:
        """Take a message of a peer that may send it. Raises BadMessage."""
        node = self._peer(peer)
        if message["type"] == "append_entries" and "prevLogIdx" in message:
            trimmed = self._trim(message)
            self._keeps_suffix = trimmed.keeps_suffix
            message = trimmed.message
            self._is_notice = message["is_notice"]
        elif message["type"] == "append_entries":
            # A piece of a snapshot proves nothing about the entries of the log here.
            message = {**message, "commit_index": 0}
        elif message["type"] == "next_node_idx":
            if node not in self._SyncObj__raftNextIndex:
                return
            self._check_next_index(node, message)
        elif message["type"] == "apply_command":
            self._has_commands = True
        try:
            self._SyncObj__onMessageReceived(node, message)
        finally:
            self._keeps_suffix = self._is_notice = False
        if message["type"] == "next_node_idx" and message["reset"]:
            self.hurry()

    # --- appends ---

    def _trim(self, message: CoreMessage) -> _Trimmed:
        """Return an append without the entries that are here already.

        PySyncObj always cuts its log off behind the entry at which an append begins, and sends entries again that are
        on their way. So for a moment a member would lack entries that it has acknowledged, and a crash would make
        that permanent. Here the log is only cut off where an entry contradicts it, as in Raft. Entries count as
        committed only as far as the append shows that they are the leader's.
        Source: reliability §3.3, ring §3 (the receiver filter); Raft §5.3.
        """
        log = self._journal
        first, last = log[0][1], log.last[1]
        previous, previous_term = message["prevLogIdx"], message["prevLogTerm"]
        entries: list[LogEntry] = [] if log.is_full else message["entries"]
        if not previous or previous > last:
            return _Trimmed({**message, "prevLogIdx": last + 1, "entries": []}, False)
        if previous < first:
            # The entries that the snapshot replaced are committed, so the leader has the same.
            entries = [entry for entry in entries if entry[1] > first]
            previous, previous_term = first, log[0][2]
        elif log[previous - first][2] != previous_term:
            if previous <= self._SyncObj__raftCommitIndex:
                raise BadMessage(f"entry {previous} of term {previous_term} contradicts a committed one")
            return _Trimmed({**message, "entries": []}, False)
        if log.last[2] == message["term"]:
            # The last entry is of the leader's term, so the leader has the same log up to it.
            entries = [entry for entry in entries if entry[1] > last]
            previous, previous_term = max((last, log.last[2]), (previous, previous_term))
        else:
            known = 0
            while known < len(entries) and self._has(entries[known]):
                known += 1
            if known:
                previous, previous_term = entries[known - 1][1], entries[known - 1][2]
                entries = entries[known:]
        contradicts = bool(entries) and entries[0][1] <= last
        if contradicts and entries[0][1] <= self._SyncObj__raftCommitIndex:
            raise BadMessage(f"entry {entries[0][1]} of term {entries[0][2]} contradicts a committed one")
        verified = entries[-1][1] if entries else previous
        return _Trimmed(
            {
                **message,
                "prevLogIdx": previous,
                "prevLogTerm": previous_term,
                "entries": entries,
                "commit_index": min(message["commit_index"], verified),
            },
            not contradicts,
        )

    def _has(self, entry: LogEntry) -> bool:
        position = entry[1] - self._journal[0][1]
        return bool(position < len(self._journal) and self._journal[position][2] == entry[2])

    def _check_next_index(self, node: Peer, message: CoreMessage) -> None:
        """Limit the next index of a follower whose log is longer than ours to the end of our log."""
        beyond = self._journal.last[1] + 1
        if message["next_node_idx"] > beyond:
            if message["success"]:
                raise BadMessage(f"{node.id} has entry {message['next_node_idx'] - 1}, which no leader sent")
            message["next_node_idx"] = beyond
        message["next_node_idx"] = max(message["next_node_idx"], 1)
        match_index = self._SyncObj__raftMatchIndex
        if message["reset"]:
            # A member that has lost entries no longer counts for these.
            match_index[node] = min(match_index[node], message["next_node_idx"] - 1)

    def _SyncObj__getEntries(
        self, fromIDx: int, count: int | None = None, maxSizeBytes: int | None = None
    ) -> list[LogEntry]:
        """Return entries of the log, without those that PySyncObj must not see.

        During an append that contradicts nothing, these are the entries behind the one at which it begins, as
        PySyncObj would cut them off. Only there it asks without a count or a size. When a leader counts which members
        have an entry, one entry at a time, these are the entries that are not synced here, as it always counts
        itself. While entries are applied these are all but the next one, so that the clock is looked at after each.
        """
        if self._is_applying:
            return SyncObj._SyncObj__getEntries(self, fromIDx, 1)  # type: ignore[no-any-return]
        if self._keeps_suffix and count is None and maxSizeBytes is None:
            count = 1
        if count == 1 and self._is_counting and fromIDx > self._journal.synced_index:
            return []
        entries: list[LogEntry] = SyncObj._SyncObj__getEntries(self, fromIDx, count, maxSizeBytes)
        return entries

    def _SyncObj__applyLogEntries(self) -> bool:
        """Apply committed entries for `APPLY_S`: each may delete fifty queues, and no client is served meanwhile.

        The host hears of them first, so that the other members apply them at the same time. It does not if new
        entries are about to be appended: they and the commit index share a message.
        """
        if not self._has_commands and self.applied() < self._SyncObj__raftCommitIndex:
            self._host.committed()
        ends_at, before = self._now() + APPLY_S, -1
        self._is_applying = True
        try:
            while before < self.applied() < self._SyncObj__raftCommitIndex and self._now() <= ends_at:
                before = self.applied()  # an entry that is not in the journal yet ends the loop
                SyncObj._SyncObj__applyLogEntries(self)
        finally:
            self._is_applying = False
        self.has_entries_left = before < self.applied() < self._SyncObj__raftCommitIndex
        return False  # as PySyncObj does for batches

    def _SyncObj__sendAppendEntries(self) -> None:
        """Send a round of appends. PySyncObj's own loops until its time is over when a member needs a snapshot that
        is not ready, and it sends large entries in parts, in a way that breaks.
        """
        self._is_counting = False
        self.has_pieces_left = False
        self._announced = (self._journal.last[1], self._SyncObj__raftCommitIndex)
        self._SyncObj__newAppendEntriesTime = self._now() + self._options.heartbeat_s
        for node in sorted(
            self._SyncObj__otherNodes | self._SyncObj__readonlyNodes, key=lambda node: node.id
        ):
            if node not in self._SyncObj__connectedNodes:
                self._snapshots.cancelTransmisstion(node)
            elif self._SyncObj__raftNextIndex[node] > self._journal[0][1]:
                self._snapshots.cancelTransmisstion(node)
                self._send_entries(node)
            else:
                self.has_pieces_left |= self._send_pieces(node)
        # A single member that becomes the leader in this tick sends first, and counts after that.
        self._is_counting = self._is_ticking

    def _send_entries(self, node: Peer) -> None:
        """Send a member the entries that it lacks, or an append without any, so that it hears its leader."""
        next_index = self._SyncObj__raftNextIndex
        for _ in range(_APPENDS_AT_ONCE):
            previous, previous_term = self._SyncObj__getPrevLogIndexTerm(next_index[node])
            entries = self._SyncObj__getEntries(next_index[node], None, BATCH_BYTES)
            if entries:
                next_index[node] = entries[-1][1] + 1
            # Without entries the answer is needed only if the entry at which the append begins is not committed.
            is_news = self._is_announcing and not entries and previous is not None
            is_notice = is_news and previous <= self._SyncObj__raftCommitIndex
            message = self._append(
                prevLogIdx=previous, prevLogTerm=previous_term, entries=entries, is_notice=is_notice
            )
            self._host.send(node.id, message)
            if next_index[node] > self._journal.last[1]:
                return

    def _send_pieces(self, node: Peer) -> bool:
        """Send pieces of a snapshot to a member that lacks entries which the log has no more. True: there are more."""
        for _ in range(_PIECES_AT_ONCE):
            piece = self._snapshots.getTransmissionData(node)
            self._host.send(node.id, self._append(serialized=piece))
            if piece is None:
                return False
            if piece.is_last:
                self._SyncObj__raftNextIndex[node] = self._journal[1][1] + 1
                return False
        return True

    def _append(self, **fields: Any) -> CoreMessage:
        term, commit_index = self._SyncObj__raftCurrentTerm, self._SyncObj__raftCommitIndex
        return {"type": "append_entries", "term": term, "commit_index": commit_index, **fields}

    def _SyncObj__sendNextNodeIdx(
        self, node: Peer, reset: bool = False, nextNodeIdx: int | None = None, success: bool = False
    ) -> None:
        """Answer an append if needed. After a snapshot, PySyncObj would claim to have all of its own log."""
        if success and self._is_notice:
            return
        if nextNodeIdx is None and success:
            nextNodeIdx = self._SyncObj__raftCommitIndex + 1
        SyncObj._SyncObj__sendNextNodeIdx(self, node, reset, nextNodeIdx, success)

    # --- snapshots ---

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> None:
        """Install a received snapshot, unless the log has its last entry: later ones may be acknowledged already."""
        head = self._snapshots.incoming_head
        assert head is not None
        last = head.last.index
        position = last - self._journal[0][1]
        if position < 0 or (position < len(self._journal) and self._journal[position][2] == head.last.term):
            self._snapshots.forget()
            last = min(last, self._journal.last[1])
        else:
            self._snapshots.install()
            self._SyncObj__raftLastApplied = last
        self._SyncObj__raftCommitIndex = max(last, self._SyncObj__raftCommitIndex)
        self._journal.setRaftCommitIndex(self._SyncObj__raftCommitIndex)

    # --- commands ---

    def _SyncObj__doApplyCommand(self, command: bytes) -> None:
        """Apply a command. There are no pickles or code versions; the voters follow from the log alone."""
        if command[0] == REGULAR:
            index = self._SyncObj__raftLastApplied + 1
            self._host.apply(index, command[1:], is_last=index == self._SyncObj__raftCommitIndex)

    def _SyncObj__parseChangeClusterRequest(self, command: bytes) -> Change | None:
        return decode_change(command)

    def _SyncObj__doChangeCluster(self, request: Change, reverse: bool = False) -> bool:
        """Do nothing: `_reconfigure` follows the log when entries are appended or cut off."""
        return True

    def _SyncObj__changeCluster(self, request: Change) -> bool:
        """Return True if this leader takes a change of the voters now.

        It takes one at a time, after its first entry is applied (in PySyncObj an earlier change never counts as
        pending), and only changes that make a difference.
        """
        kind, name = request
        voters = self._journal.current_voters
        is_settled: bool = (
            self._SyncObj__raftLastApplied >= self._SyncObj__noopIDx
            and self._journal.last_change_index <= self._SyncObj__raftCommitIndex
        )
        if not is_settled or (name in voters) == (kind == "add"):
            return False
        if kind == "remove":
            if name == self._name:
                self._host.asked_to_leave()
            return bool(name != self._name)
        matched: int = self._SyncObj__raftMatchIndex.get(self._peer(name), 0)
        return bool(matched + CATCH_UP_ENTRIES >= self._SyncObj__raftCommitIndex)

    def _reconfigure(self) -> None:
        """Set the voters to those of the log."""
        voters = self._journal.current_voters
        others = {self._peer(name) for name in sorted(voters) if name != self._name}
        for node in others - self._SyncObj__otherNodes:
            self._SyncObj__raftNextIndex[node] = self._journal.last[1] + 1
            self._SyncObj__raftMatchIndex[node] = 0
            self._SyncObj__lastResponseTime[node] = self._now()
        for node in self._SyncObj__otherNodes - others:
            self._SyncObj__raftNextIndex.pop(node, None)
            self._SyncObj__raftMatchIndex.pop(node, None)
        self._SyncObj__otherNodes = others
        was_voter = self._SyncObj__selfNode is not None
        self._SyncObj__selfNode = self._peer(self._name) if self._name in voters else None
        if was_voter != (self._name in voters):
            self.postpone_election()
            if was_voter:
                self._SyncObj__setState(_FOLLOWER)
        self._host.reconfigured()

    # --- elections ---

    def _SyncObj__connectedToAnyone(self) -> bool:
        """Return True if an election may begin: PySyncObj asks when it has not heard a leader for long enough."""
        return self._host.may_campaign()


def _conf(options: Options, journal: RaftJournal) -> SyncObjConf:
    never = 1e9
    return SyncObjConf(
        autoTick=False,
        useFork=False,
        dynamicMembershipChange=True,
        appendEntriesUseBatch=True,
        # Appends are sent by our own times. PySyncObj only requires an election to take three times as long as this.
        appendEntriesPeriod=min(options.heartbeat_s, options.election_min_s / 4),
        appendEntriesBatchSizeBytes=BATCH_BYTES,
        raftMinTimeout=options.election_min_s,
        raftMaxTimeout=options.election_max_s,
        connectionTimeout=max(options.election_max_s, 3.5),
        leaderFallbackTimeout=options.fallback_s,
        journalFile=journal,
        logCompactionMinEntries=never,
        logCompactionMinTime=never,
    )
