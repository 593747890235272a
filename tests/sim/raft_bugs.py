"""Known bugs that the metadata simulator must find, put back one at a time: else it is no evidence.

Source: reliability §5.2 (mutation audit), §3 (the bugs of PySyncObj that we guard against).
"""

from collections.abc import Collection
from functools import partial
from typing import Any

import pytest

from cluster.metadata import journal_file
from cluster.metadata.core import Core, _Trimmed
from cluster.metadata.debts import Debts
from cluster.metadata.disk_watch import DiskWatch
from cluster.metadata.journal import RaftJournal
from cluster.metadata.match_indexes import MatchIndexes
from cluster.metadata.raft_log import RaftLog
from cluster.metadata.raft_member import RaftMember
from cluster.metadata.raft_pb2 import Batch
from cluster.metadata.sessions import Sessions
from cluster.metadata.wire import CoreMessage
from cluster.metadata.write_barrier import WriteBarrier
from tests.sim.audit import put_back


def _no_barrier(patch: pytest.MonkeyPatch) -> None:
    """Promises leave before they are synced."""

    def push(self: WriteBarrier, peer: str, message: bytes, needed: int, synced: int) -> None:
        self._send(peer, message)

    patch.setattr(WriteBarrier, "push", push)


def _no_dedup(patch: pytest.MonkeyPatch) -> None:
    """A batch that is proposed twice is applied twice."""

    def takes(self: Sessions, batch: Batch) -> bool:
        return True

    patch.setattr(Sessions, "takes", takes)


def _no_filter(patch: pytest.MonkeyPatch) -> None:
    """A follower cuts its log off behind whatever an append goes on from, as PySyncObj does."""

    def trim(self: Core, message: CoreMessage) -> _Trimmed:
        return _Trimmed(message if message["prevLogIdx"] else {**message, "prevLogIdx": 2**40}, False)

    patch.setattr(Core, "_trim", trim)


def _no_vote(patch: pytest.MonkeyPatch) -> None:
    """A vote is not written."""

    def set_term(self: RaftJournal, term: int, vote: str | None) -> None:
        self._term, self._vote = term, vote

    patch.setattr(RaftJournal, "setCurrentTerm", set_term)


def _no_visibility(patch: pytest.MonkeyPatch) -> None:
    """An answer does not wait for the other members."""

    def everywhere(self: RaftLog) -> int:
        return self.raft.applied_index

    patch.setattr(RaftLog, "_applied_everywhere", everywhere)


def _unsafe_count(patch: pytest.MonkeyPatch) -> None:
    """A leader counts itself for what it has not synced."""
    run = Core.doTick

    def tick(self: Core) -> None:
        run(self, 0.0)

    patch.setattr(Core, "run", tick)
    patch.setattr(Core, "has_work", lambda self: True)


def _unsafe_learning(patch: pytest.MonkeyPatch) -> None:
    """A follower that hears what the others have counts itself for what it has not synced."""
    whole = MatchIndexes.safe_index

    def safe_index(self: MatchIndexes, term: int, voters: Collection[str], own: int) -> int:
        return whole(self, term, voters, 2**40)

    patch.setattr(MatchIndexes, "safe_index", safe_index)


def _no_order(patch: pytest.MonkeyPatch) -> None:
    """Numbers may be left out, so what comes late is lost."""

    def takes(self: Sessions, batch: Batch) -> bool:
        before = self.applied_number(batch.node, batch.session)
        if batch.number > before + 1 and before:
            self._by_node[batch.node].number = batch.number - 1
        return whole(self, batch)

    whole = Sessions.takes
    patch.setattr(Sessions, "takes", takes)


def _stuck_leader_stays(patch: pytest.MonkeyPatch) -> None:
    """A leader whose disk is stuck leads on, and commits nothing."""
    patch.setattr(DiskWatch, "holds_up", lambda self, now, have_others: False)


def _resignation_waits(patch: pytest.MonkeyPatch) -> None:
    """A leader that steps down tells the others when its disk has written all else."""
    whole = RaftMember._leave

    def leave(self: RaftMember) -> bool:
        send_now, self._out.now = self._out.now, self._out.promise  # type: ignore[assignment]
        try:
            return whole(self)
        finally:
            self._out.now = send_now

    patch.setattr(RaftMember, "_leave", leave)


def _hole_is_damage(patch: pytest.MonkeyPatch) -> None:
    """A page of the last write that never reached the disk keeps the member from starting."""
    patch.setattr(journal_file, "_is_unwritten", lambda data, bad_at, length, behind: False)


def _old_copy_votes(patch: pytest.MonkeyPatch) -> None:
    """A member whose data directory went back in time votes at once."""
    patch.setattr(Debts, "owes", lambda self, last_index: False)


BUGS: dict[str, Any] = {
    "no barrier": _no_barrier,
    "no dedup": _no_dedup,
    "no filter": _no_filter,
    "no vote": _no_vote,
    "no visibility": _no_visibility,
    "unsafe count": _unsafe_count,
    "unsafe learning": _unsafe_learning,
    "no order": _no_order,
    "stuck leader stays": _stuck_leader_stays,
    "resignation waits": _resignation_waits,
    "hole is damage": _hole_is_damage,
    "old copy votes": _old_copy_votes,
}

LIVENESS_BUGS = ("stuck leader stays", "resignation waits")
"""These bugs lose nothing, and stand still."""


bug = partial(put_back, BUGS)
"""`with bug(name):` has it while the context lasts."""
