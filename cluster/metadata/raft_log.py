"""The catalogue's log in a cluster: a `ReplicatedLog` over a member of the Raft group.

    submit ─► gathered ─ tick ─► Batch ─► RaftMember ─► … committed … ─► apply ─► react ─► everywhere ─► on_applied

Commands of one turn of the loop share a batch, and a batch is proposed again, under the same number, until it is
applied or its commands are too old. An answer waits until this member's journal is safe and every member that is up
has applied the command: then a client finds the change on any node.
Source: reliability §3.4 (outcomes), §4.1; docs/internals/raft.md, "A command's way".
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError

from cluster.metadata.options import Options
from cluster.metadata.raft_member import RaftMember
from cluster.metadata.raft_pb2 import Batch, SnapshotItem
from cluster.metadata.sessions import Sessions
from cluster.metadata.state_machine import SnapshotUnreadable
from node.amqp.constants import ReplyCode
from node.catalogue.catalogue import Catalogue
from node.catalogue.command_codec import CommandUnreadable, decode_command, encode_command
from node.catalogue.commands import Command, Refused, RemoveMember
from node.catalogue.events import Event, MemberDown, MemberPut, MemberRemoved, MemberUp
from node.catalogue.replicated_log import NOT_WRITTEN
from node.catalogue.snapshot import snapshot

ResultT = TypeVar("ResultT")

Answer = Callable[[Any], None]
React = Callable[[Sequence[Event]], None]

NO_MAJORITY: Final = Refused(
    ReplyCode.PRECONDITION_FAILED,
    "the cluster has no majority of its disk nodes: metadata cannot be changed",
)
NO_OUTCOME: Final = Refused(
    ReplyCode.PRECONDITION_FAILED,
    "the cluster did not agree on a change of metadata in time: it may still come",
)
REPLACED: Final = Refused(
    ReplyCode.INTERNAL_ERROR,
    "the outcome of a change of metadata is not known: this node was behind and received a snapshot of all metadata",
)
TOO_MANY: Final = Refused(ReplyCode.RESOURCE_ERROR, "too many changes of metadata wait for the cluster")

COMMAND_MAX_BYTES: Final = 1024 * 1024
"""The largest command, as JSON."""

BATCH_MAX_BYTES: Final = 64 * 1024
BATCH_MAX_COMMANDS: Final = 50
"""The most commands of a batch: applying it holds the loop for some milliseconds."""

WINDOW: Final = 16
"""The most batches that may be on their way at once."""

WAITING_MAX: Final = 100_000
WAITING_MAX_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of commands without an outcome; further commands are refused."""


@dataclass(slots=True)
class _Submitted:
    """A command and its callback.   on_applied: None: no caller waits, or the answer was given."""

    text: bytes
    on_applied: Answer | None
    deadline: float


@dataclass(slots=True)
class _Sent:
    """A batch of ours.   is_proposed: the present leader has got it."""

    number: int
    commands: list[_Submitted]
    is_proposed: bool = False


@dataclass(slots=True)
class _Applied:
    """Answers that wait until their commands are visible everywhere.

    index: the entry that every member must have applied.   written: how far the journal must be synced.
    """

    index: int
    written: int
    deadline: float
    answers: list[tuple[Answer, Any]] = field(default_factory=list)


class RaftLog:
    """The log and the catalogue of one node. Also the `StateMachine` of its `RaftMember`, which is bound after it.

    name: of this node.   now: monotonic seconds.   new_session: makes an id that no other process ever had.

    observers: get the events of each command, whether or not a broker is attached.
    on_replaced: called when a snapshot replaced the catalogue while a broker was attached. The broker is detached then:
        it knows the old catalogue and has to begin anew. The observers always get the differences between the members.
    """

    def __init__(
        self,
        name: str,
        *,
        now: Callable[[], float],
        new_session: Callable[[], str],
        options: Options = Options(),  # noqa: B008  # frozen
    ) -> None:
        self.catalogue = Catalogue()
        self.observers: list[Callable[[Sequence[Event]], None]] = []
        self.on_replaced: Callable[[], None] = lambda: None
        self._name = name
        self._now = now
        self._new_session = new_session
        self._options = options
        self._raft: RaftMember | None = None
        self._wake: Callable[[], None] = lambda: None
        self._sessions = Sessions()
        self._react: React | None = None
        self._is_broken = False
        self._session = new_session()
        self._next_number = 1
        self._gathered: deque[_Submitted] = deque()
        self._sent: deque[_Sent] = deque()
        self._waiting_bytes = 0
        self._waiting_count = 0
        self._leader: str | None = None
        self._retry_at = 0.0
        self._answers: deque[_Applied] = deque()
        self._unsafe: deque[tuple[int, Callable[[bool], None]]] = deque()
        self._peer_applied: dict[str, int] = {}
        self._submitters: set[str] = set()

    def bind(self, raft: RaftMember, wake: Callable[[], None]) -> None:
        """Set the Raft member that orders the commands.   wake: asks for a tick of it."""
        self._raft = raft
        self._wake = wake

    @property
    def raft(self) -> RaftMember:
        """The Raft member that orders the commands."""
        assert self._raft is not None, "bind comes first"
        return self._raft

    # --- the broker's side ---

    def attach(self, react: React) -> None:
        """Pass the events of each command to the broker from now on, before the command is answered."""
        self._react = react

    def detach(self) -> None:
        """Pass nothing to the broker any more: it ends."""
        self._react = None

    def submit(
        self,
        command: Command[ResultT],
        on_applied: Callable[[ResultT | Refused], None] | None = None,
    ) -> None:
        """Submit a command.   on_applied: called once with its result; before this returns if there is no majority."""
        refusal, text = self._why_not(), b""
        if refusal is None:
            text = encode_command(command)
            if len(text) > COMMAND_MAX_BYTES:
                refusal = Refused(
                    ReplyCode.PRECONDITION_FAILED,
                    f"{type(command).__name__} of {len(text)} bytes is larger than the {COMMAND_MAX_BYTES} bytes "
                    "that one change of metadata may have",
                )
        if refusal is not None:
            if on_applied is not None:
                on_applied(refusal)
            return
        self._gathered.append(_Submitted(text, on_applied, self._now() + self._options.command_s))
        self._waiting_bytes += len(text)
        self._waiting_count += 1
        self._wake()

    def await_safety(self, on_safe: Callable[[bool], None]) -> None:
        """Call back once all that was written by now is synced; with False if the journal has failed."""
        written = self.raft.written
        if self._is_broken:
            on_safe(False)
        elif self.raft.synced >= written:
            on_safe(True)
        else:
            self._unsafe.append((written, on_safe))

    def _why_not(self) -> Refused | None:
        if self._is_broken:
            return NOT_WRITTEN
        if not self.raft.has_majority:
            return NO_MAJORITY
        if self._waiting_count >= WAITING_MAX or self._waiting_bytes >= WAITING_MAX_BYTES:
            return TOO_MANY
        return None

    # --- proposing ---

    def before(self, now: float) -> None:
        """Begin a tick: propose the commands that have gathered, and refuse those that are too old."""
        self._give_up(now)
        leader = self.raft.leader
        if leader != self._leader or now >= self._retry_at:
            self._leader = leader
            self._retry_at = now + self._options.retry_s
            for sent in self._sent:
                sent.is_proposed = False
        while self._gathered and len(self._sent) < WINDOW:
            self._sent.append(_Sent(self._next_number, self._next_batch()))
            self._next_number += 1
        for sent in self._sent:
            if not sent.is_proposed:
                sent.is_proposed = self.raft.propose(self._encoded(sent))
                if not sent.is_proposed:
                    break

    def _next_batch(self) -> list[_Submitted]:
        batch: list[_Submitted] = []
        size = 0
        while self._gathered and size < BATCH_MAX_BYTES and len(batch) < BATCH_MAX_COMMANDS:
            if batch and size + len(self._gathered[0].text) > BATCH_MAX_BYTES:
                break
            batch.append(self._gathered.popleft())
            size += len(batch[-1].text)
        return batch

    def _encoded(self, sent: _Sent) -> bytes:
        return Batch(
            node=self._name,
            session=self._session,
            number=sent.number,
            commands=[each.text for each in sent.commands],
        ).SerializeToString()

    def _give_up(self, now: float) -> None:
        """Refuse commands that are too old. A batch that may be on its way is proposed again without its commands,
        under the same number: they are applied before that, or never.
        """
        overdue: list[_Submitted] = []
        while self._gathered and self._gathered[0].deadline <= now:
            overdue.append(self._gathered.popleft())
        for sent in self._sent:
            if sent.commands and sent.commands[-1].deadline <= now:
                overdue += sent.commands
                sent.commands = []
                sent.is_proposed = False
        if not overdue:
            return
        refusal = NO_OUTCOME if self.raft.has_majority else NO_MAJORITY
        for each in overdue:
            self._settled(each)
        for each in overdue:
            if each.on_applied is not None:
                each.on_applied(refusal)

    def _settled(self, command: _Submitted) -> None:
        self._waiting_bytes -= len(command.text)
        self._waiting_count -= 1

    # --- applying ---

    def apply(self, index: int, command: bytes, *, is_last: bool) -> None:
        """Apply a batch that is committed. Its submitter hears of the last one before that: it waits for all nodes.

        Raises SnapshotUnreadable for a command of a newer version: without it this node's catalogue would differ from
        the others'.
        """
        batch = Batch()
        try:
            batch.ParseFromString(command)
        except DecodeError:
            raise SnapshotUnreadable(f"entry {index} of the log cannot be decoded") from None
        is_mine = batch.node == self._name and batch.session == self._session
        if not self._sessions.takes(batch):
            if self._sessions.is_over(self._name, self._session):
                self._begin_session()
            return
        if batch.node != self._name:
            self._submitters.add(batch.node)
        if is_last:
            self.raft.tell_applied(index)
        answers = self._own_answers(batch.number) if is_mine else []
        results = [self._apply_one(index, text) for text in batch.commands]
        if len(answers) == len(results):
            self._answer(index, [pair for pair in zip(answers, results, strict=True) if pair[0] is not None])
        if self._sessions.is_over(self._name, self._session):
            self._begin_session()

    def _apply_one(self, index: int, text: bytes) -> object:
        try:
            command = decode_command(text)
        except CommandUnreadable as unreadable:
            raise SnapshotUnreadable(
                f"entry {index} of the log: {unreadable}; was it written by a later version?"
            ) from None
        result = self.catalogue.apply(command)
        if isinstance(command, RemoveMember) and result is True:
            self._sessions.forget(command.name)
            self._peer_applied.pop(command.name, None)
        events = self.catalogue.take_events()
        if events:
            if self._react is not None:
                self._react(events)
            for observer in self.observers:
                observer(events)
        return result

    def _own_answers(self, number: int) -> list[Answer | None]:
        """Return the callbacks of a batch of ours that is applied now; none if its commands were refused."""
        while self._sent and self._sent[0].number <= number:
            sent = self._sent.popleft()
            for each in sent.commands:
                self._settled(each)
            if sent.number == number:
                return [each.on_applied for each in sent.commands]
        return []

    def _answer(self, index: int, answers: list[tuple[Any, Any]]) -> None:
        if answers:
            deadline = self._now() + self._options.visible_s
            self._answers.append(_Applied(index, self.raft.written, deadline, answers))

    def _begin_session(self) -> None:
        """Number the pending batches under a new session: another process has used this node's name."""
        self._session = self._new_session()
        for number, sent in enumerate(self._sent, 1):
            sent.number = number
            sent.is_proposed = False
        self._next_number = len(self._sent) + 1
        self._wake()

    # --- answering ---

    def after(self, now: float) -> float:
        """End a tick: answer the commands that are visible everywhere."""
        synced = self.raft.synced
        while self._unsafe and self._unsafe[0][0] <= synced:
            self._unsafe.popleft()[1](True)
        while self._answers:
            oldest = self._answers[0]
            is_visible = self._is_visible(oldest)
            if not is_visible and now < oldest.deadline:
                break
            self._answers.popleft()
            for answer, result in oldest.answers:
                answer(result if is_visible else NO_OUTCOME)
        if self._gathered and len(self._sent) < WINDOW:
            return now  # callbacks have submitted commands
        return self._due()

    def _is_visible(self, applied: _Applied) -> bool:
        return applied.written <= self.raft.synced and applied.index <= self._applied_everywhere()

    def _applied_everywhere(self) -> int:
        """Return the last entry that all members that are up have applied."""
        own = self.raft.applied_index
        others = (
            self._peer_applied.get(member.name, 0)
            for member in self.catalogue.members.values()
            if member.is_up and member.name != self._name
        )
        return min(own, *others, own)

    def _due(self) -> float:
        due = inf
        if self._sent:
            due = self._retry_at
            for sent in self._sent:
                if sent.commands:
                    due = min(due, sent.commands[-1].deadline)
        if self._gathered:
            due = min(due, self._gathered[0].deadline)
        if self._answers:
            due = min(due, self._answers[0].deadline)
        return due

    def peer_applied(self, name: str, index: int) -> bool:
        """Note how far a member has applied the log. True if an answer may be given now."""
        if name in self.catalogue.members and index > self._peer_applied.get(name, 0):
            self._peer_applied[name] = index
        return bool(self._answers) and index >= self._answers[0].index and self._is_visible(self._answers[0])

    def synced(self) -> bool:
        """Return True if `after` has something to do, now that more of the journal is synced."""
        return bool(self._unsafe) or (bool(self._answers) and self._is_visible(self._answers[0]))

    def take_submitters(self) -> set[str]:
        """Return the other nodes whose commands were applied since the last call."""
        submitters, self._submitters = self._submitters, set()
        return submitters

    def broken(self, reason: str) -> None:
        """Refuse all pending commands: this member keeps nothing any more."""
        self._is_broken = True
        commands = [*self._gathered, *(each for sent in self._sent for each in sent.commands)]
        answers = [answer for applied in self._answers for answer, _ in applied.answers]
        unsafe = [on_safe for _, on_safe in self._unsafe]
        self._gathered.clear()
        self._sent.clear()
        self._answers.clear()
        self._unsafe.clear()
        answers += [each.on_applied for each in commands if each.on_applied is not None]
        for answer in answers:
            answer(NOT_WRITTEN)
        for on_safe in unsafe:
            on_safe(False)

    # --- snapshots ---

    def snapshot(self) -> Iterator[bytes]:
        """Return the state as items, which are made as they are asked for."""
        return _items(self._sessions, snapshot(self.catalogue, whole=True))

    def begin_restore(self) -> "Restoration":
        """Return an empty catalogue that the items of a snapshot are added to."""
        return Restoration(self)

    def replace(self, catalogue: Catalogue, sessions: Sessions) -> None:
        """Replace the catalogue and the sessions by those of a snapshot."""
        former, self.catalogue = self.catalogue, catalogue
        self._sessions = sessions
        was_attached = self._react is not None
        self._react = None
        applied = sessions.applied_number(self._name, self._session)
        unknown: list[Answer] = []
        while self._sent and self._sent[0].number <= applied:
            for each in self._sent.popleft().commands:
                self._settled(each)
                if each.on_applied is not None:
                    unknown.append(each.on_applied)
        if sessions.is_over(self._name, self._session):
            self._begin_session()
        if self._raft is None:
            return  # at the start: no object uses an earlier catalogue
        events = list(_member_changes(former, catalogue))
        for observer in self.observers:
            observer(events)
        if was_attached:
            self.on_replaced()
        for answer in unknown:
            answer(REPLACED)


class Restoration:
    """A catalogue that is being received as a snapshot."""

    def __init__(self, log: RaftLog) -> None:
        self._log = log
        self._catalogue = Catalogue()
        self._sessions = Sessions()

    def add(self, items: Sequence[bytes]) -> None:
        """Apply the next items of the snapshot. Raises SnapshotUnreadable."""
        for data in items:
            item = SnapshotItem()
            try:
                item.ParseFromString(data)
            except DecodeError:
                raise SnapshotUnreadable("an item cannot be decoded") from None
            if item.WhichOneof("kind") == "client":
                self._sessions.restore(item.client)
                continue
            try:
                command = decode_command(item.command)
            except CommandUnreadable as unreadable:
                raise SnapshotUnreadable(f"{unreadable}; was it written by a later version?") from None
            result = self._catalogue.apply(command)
            if isinstance(result, Refused):
                raise SnapshotUnreadable(f"{type(command).__name__} is refused: {result.text}")
        self._catalogue.take_events()

    def install(self) -> None:
        """Replace the present catalogue by this one."""
        self._log.replace(self._catalogue, self._sessions)


def _member_changes(former: Catalogue, catalogue: Catalogue) -> Iterator[Event]:
    """Yield the events that turn the members of one catalogue into those of another one."""
    for member in former.members.values():
        now = catalogue.members.get(member.name)
        if member.is_up and (now is None or not now.is_up or now.incarnation != member.incarnation):
            yield MemberDown(member)
        if now is None:
            yield MemberRemoved(member)
    for member in catalogue.members.values():
        before = former.members.get(member.name)
        if member != before:
            yield MemberPut(member)
            if member.is_up and (before is None or before.incarnation != member.incarnation):
                yield MemberUp(member)


def import_catalogue(commands: Iterable[Command[Any]]) -> Iterator[bytes]:
    """Yield the items that a new group begins with if its node had a catalogue: for `founding.create`."""
    return _items(Sessions(), iter(commands))


def _items(sessions: Sessions, commands: Iterator[Command[Any]]) -> Iterator[bytes]:
    """Return the items of a snapshot. The sessions are those of now; the commands are encoded as they are asked for."""
    clients = [SnapshotItem(client=client).SerializeToString() for client in sessions.clients()]
    texts = (SnapshotItem(command=encode_command(command)).SerializeToString() for command in commands)

    def items() -> Iterator[bytes]:
        yield from clients
        yield from texts

    return items()
