"""The invariants of the metadata's Raft group: I15 of reliability §4.12, and the guarantees of RaftLog.

one leader a term · a vote a term, terms never go back, also across power losses · what was acknowledged is on disk
logs match · a leader has all that is committed · what is applied is applied everywhere in one order, once a number
an answer means: every member that is up has applied it · what was refused at once is never applied
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cluster.metadata.journal_file import Image
from cluster.metadata.options import Options
from cluster.metadata.raft_log import RaftLog
from cluster.metadata.raft_pb2 import Batch
from cluster.metadata.wire import decode
from node.catalogue.command_codec import decode_command
from node.catalogue.commands import Command, Refused, SetGlobalParameter

if TYPE_CHECKING:
    from tests.kit.raft_world import Process, World


class Violation(AssertionError):
    """An invariant does not hold."""


class WatchedLog(RaftLog):
    """A log that reports the commands that it applies."""

    on_apply: Callable[[int, bytes], None]
    on_batch: Callable[[int, Batch], None]
    applies_now = 0

    def apply(self, index: int, command: bytes, *, is_last: bool) -> None:
        self.applies_now = index
        self.on_apply(index, command)
        super().apply(index, command, is_last=is_last)

    def _apply_one(self, index: int, text: bytes) -> object:
        self.on_text(index, text)
        return super()._apply_one(index, text)

    on_text: Callable[[int, bytes], None]


class Checks:
    """The known facts of a world, and the checks of its invariants."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.leaders: dict[int, str] = {}
        self.votes: dict[tuple[str, int], str] = {}
        self.terms: dict[str, int] = {}
        self.acknowledged: dict[str, tuple[int, int]] = {}
        """By member: how far it said that its log goes, and in which term."""
        self.committed: dict[int, tuple[int, bytes]] = {}
        self.commits: dict[str, int] = {}
        self.texts: dict[tuple[int, int], bytes] = {}
        self.executed: dict[bytes, int] = {}
        """Commands that may be there once, with the entry that brought them."""
        self.answered_names: dict[str, str] = {}
        self.refused_at_once: set[str] = set()
        self.submitters: dict[str, int] = {}
        """By parameter: the process that set it."""
        self.last_of: dict[int, tuple[int, int]] = {}
        """By process: the number of the last of its parameters that was applied, and the entry."""
        self.open: list[tuple[Process, str, list[Any]]] = []
        """Commands with where their answers will be."""
        self.positions: dict[int, int] = {}
        self.answer_count = 0
        self.applied_count = 0

    def fail(self, text: str) -> None:
        raise Violation(f"seed {self._world.seed}, step {self._world.steps}, t={self._world.now:.4f}: {text}")

    def make_log(
        self,
        name: str,
        number: int,
        *,
        now: Callable[[], float],
        new_session: Callable[[], str],
        options: Options,
    ) -> RaftLog:
        log = WatchedLog(name, now=now, new_session=new_session, options=options)
        log.on_apply = lambda index, command: self._applied(name, index, command)
        log.on_text = lambda index, text: self._executed(name, number, index, text)
        return log

    # --- what happens ---

    def started(self, process: "Process") -> None:
        """Watch a new member for entries that it cuts off its log."""
        self.commits.pop(process.name, None)
        journal = process.raft._journal
        cut_off = journal.deleteEntriesFrom

        def watched(position: int) -> None:
            for command, index, term in journal[position:]:
                if self.committed.get(index) == (term, command):
                    self.fail(f"{process.name} cuts off entry {index}, which is committed")
            cut_off(position)

        journal.deleteEntriesFrom = watched  # type: ignore[method-assign]

    def loaded(self, name: str, image: Image) -> None:
        """Check that a member that starts from its disk has kept its promises."""
        if image.term < self.terms.get(name, 0):
            self.fail(f"{name} forgot term {self.terms[name]}, it starts in {image.term}")
        vote = self.votes.get((name, image.term))
        if vote is not None and image.vote != vote:
            self.fail(f"{name} forgot its vote for {vote} in term {image.term}: {image.vote}")
        index, term = self.acknowledged.get(name, (0, 0))
        if image.term == term and image.entries[-1][1] < index:
            self.fail(f"{name} acknowledged entry {index} in term {term} and has only {image.entries[-1][1]}")

    def sent(self, process: "Process", peer: str, data: bytes) -> None:
        """Record the promises in a message that is sent."""
        name = process.name
        kind, term, body = decode(data)
        if kind in ("applied", "propose"):
            return  # nobody looks at the term of these
        if term > self.terms.get(name, 0):
            self.terms[name] = term
        if kind in ("grant_vote", "request_vote"):
            vote = peer if kind == "grant_vote" else name
            if self.votes.setdefault((name, term), vote) != vote:
                self.fail(f"{name} voted twice in term {term}: {self.votes[name, term]} and {vote}")
        if kind == "next_index" and body.success:
            index, in_term = self.acknowledged.get(name, (0, 0))
            if term > in_term or body.next_index - 1 > index:
                self.acknowledged[name] = (body.next_index - 1, term)

    def submitted(self, process: "Process", command: Command[Any], answers: list[Any]) -> None:
        """Record that a node got a command."""
        assert isinstance(command, SetGlobalParameter)
        self.submitters[command.name] = process.number
        self.open.append((process, command.name, answers))

    def answered(
        self, process: "Process", command: Command[Any], result: object, *, at_once: bool = False
    ) -> None:
        """Check that an answered command is visible on each node where a client may connect, and was executed once."""
        self.answer_count += 1
        assert isinstance(command, SetGlobalParameter)
        if isinstance(result, Refused):
            if at_once:
                self.refused_at_once.add(command.name)
            return
        self.answered_names[command.name] = process.name
        if self._world.up.get(process.name) is not process:
            self.fail(f"{process.name} answers after its end")
        for member in process.log.catalogue.members.values():
            other = self._world.up.get(member.name)
            if not member.is_up or other is None or other.incarnation != member.incarnation:
                continue
            if other.log.catalogue.global_parameter(command.name) is None:
                self.fail(f"{process.name} says that {command.name} is there, {other.name} does not know it")

    def _applied(self, name: str, index: int, command: bytes) -> None:
        self.applied_count += 1
        known = self.committed.get(index)
        if known is not None and known[1] != b"\0" + command:
            self.fail(f"{name} applies another entry {index}")

    def _executed(self, name: str, number: int, index: int, text: bytes) -> None:
        """Each of our parameters is set by one entry, those of one process in the order in which it got them."""
        if b'"SetGlobalParameter"' not in text:
            return
        if self.executed.setdefault(text, index) != index:
            self.fail(f"{name} applies {text[:60]!r} of entry {self.executed[text]} again with entry {index}")
        command = decode_command(text)
        assert isinstance(command, SetGlobalParameter)
        turn, submitter = int(command.name[1:]), self.submitters[command.name]
        before, entry = self.last_of.get(submitter, (0, 0))
        if turn < before and index > entry:
            self.fail(f"{name} applies p{turn} after p{before}, which was submitted after it")
        if turn > before:
            self.last_of[submitter] = (turn, index)

    # --- after each step ---

    def step(self) -> None:
        for process in self._world.up.values():
            position = process.raft._core.position()
            key = hash(position)
            if self.positions.get(process.number) == key:
                continue
            self.positions[process.number] = key
            if position.is_leader and self.leaders.setdefault(position.term, process.name) != process.name:
                self.fail(f"{self.leaders[position.term]} and {process.name} lead in term {position.term}")
            self._check_log(process, position.committed, is_leader=position.is_leader)

    def _check_log(self, process: "Process", committed: int, *, is_leader: bool) -> None:
        """Check that committed entries are equal everywhere, and that a leader has all of them."""
        log = process.raft._journal
        first = log[0][1]
        begin = max(first, self.commits.get(process.name, 0) + 1)
        for command, index, term in log[begin - first : committed - first + 1]:
            if index < first + 2:
                continue
            if self.committed.setdefault(index, (term, command)) != (term, command):
                self.fail(f"{process.name} has another committed entry {index}")
        self.commits[process.name] = max(committed, self.commits.get(process.name, 0))
        if is_leader:
            highest = max(self.committed, default=0)
            if log.last[1] < highest and process.raft.term >= max(self.leaders):
                self.fail(f"{process.name} leads without entry {highest}, which is committed")

    def check_logs_match(self) -> None:
        """Check log matching: if two logs have an entry of the same term, all entries before it are equal."""
        logs = [process.raft._journal for process in self._world.up.values()]
        for number, one in enumerate(logs):
            for other in logs[:number]:
                self._match(one, other)

    def _match(self, one: Any, other: Any) -> None:
        first = max(one[0][1], other[0][1]) + 2
        last = min(one.last[1], other.last[1])
        is_same = False
        for index in range(last, first - 1, -1):
            a, b = one[index - one[0][1]], other[index - other[0][1]]
            is_same = is_same or a[2] == b[2]
            if is_same and a != b:
                self.fail(f"logs differ at entry {index} and agree behind it")

    def at_rest(self) -> None:
        """Check a healed and idle world: every answered command is on all nodes."""
        for process, parameter, answers in self.open:
            if len(answers) != 1 and self._world.up.get(process.name) is process:
                self.fail(f"{process.name} gave {len(answers)} answers for {parameter}")
        names = list(self._world.up)
        prints = {name: self._world.fingerprint(name) for name in names}
        for name in names[1:]:
            if prints[name] != prints[names[0]]:
                difference = set(prints[name]) ^ set(prints[names[0]])
                self.fail(f"{names[0]} and {name} differ: {sorted(difference)[:4]}")
        for name in names:
            catalogue = self._world.up[name].log.catalogue
            for parameter, by in self.answered_names.items():
                if catalogue.global_parameter(parameter) is None:
                    self.fail(f"{parameter} was answered by {by} and is lost")
            for parameter in self.refused_at_once:
                if catalogue.global_parameter(parameter) is not None:
                    self.fail(f"{parameter} was refused at once and is there")
