"""Spreading masters evenly over the nodes, by their number alone, as RabbitMQ does.

    queues with a view ─► by node of their master, the shortest first
        a node has more than its share ─► its shortest queue that isn't settled ─► the mirror's node with the fewest

The share is the number of queues by the number of nodes, rounded up. A queue moves to a synchronised mirror or stays;
no copy is made or dropped. Source: reliability §2.2 (rebalance_*); management §2.5; rabbitmq-queues rebalance.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from node.catalogue.mirrors.views import TransferMaster, View
from node.catalogue.patterns import matches
from node.catalogue.records import QueueRecord

MOVING_MAX: Final = 10
"""The limit of queues that move at the same time."""

MOVE_S_MAX: Final = 30.0
"""The seconds for which a moving queue is waited for. After that it is left alone, wherever it is."""

QueueKind: TypeAlias = Literal["all", "classic", "quorum"]


@dataclass(frozen=True, slots=True)
class Move:
    """A proposal to move the master of a queue: a `ChangeView`.

    source, target: nodes, with the number of masters that they have at the time.
    """

    vhost: str
    name: str
    uid: str
    change: TransferMaster
    source: tuple[str, int]
    target: tuple[str, int]

    @property
    def text(self) -> str:
        """The line for the log."""
        return (
            f"Migrating queue '{self.name}' in vhost '{self.vhost}' from node {self.source[0]} "
            f"with {self.source[1]} queues to node {self.target[0]} with {self.target[1]} queues"
        )


@dataclass(frozen=True, slots=True)
class Share:
    """The number of masters of mirrored queues that a node has."""

    node: str
    classic: int
    quorum: int


@dataclass(slots=True)
class _Candidate:
    record: QueueRecord
    messages: int
    moved: bool = False


def selected(
    records: Iterable[QueueRecord], kind: QueueKind, vhost_pattern: str, queue_pattern: str
) -> list[QueueRecord]:
    """Return the mirrored queues that an operator's patterns match. The patterns have been checked."""
    return [
        record
        for record in records
        if record.view is not None
        and record.view.state == "live"
        and kind in ("all", record.type)
        and matches(vhost_pattern, record.vhost)
        and matches(queue_pattern, record.name)
    ]


def plan(queues: Iterable[tuple[QueueRecord, int]], nodes: Sequence[str]) -> list[Move]:
    """Return the moves that spread the masters, in order.

    queues: `selected` ones with their number of messages, as far as known.
    nodes: those that are up, may hold queues and aren't in maintenance mode. Masters elsewhere are left alone.
    """
    by_node: dict[str, list[_Candidate]] = {node: [] for node in sorted(nodes)}
    count = 0
    for record, messages in queues:
        node = None if record.view is None else record.view.master_node
        if node in by_node:
            by_node[node].append(_Candidate(record, messages))
        count += 1
    if not by_node:
        return []
    for candidates in by_node.values():
        candidates.sort(key=lambda each: (each.messages, each.record.vhost, each.record.name))
    share = -(-count // len(by_node))
    moves: list[Move] = []
    for node, candidates in by_node.items():
        for candidate in candidates.copy():
            if len(candidates) <= share:
                break
            move = None if candidate.moved else _move(candidate.record, node, by_node)
            if move is not None:
                moves.append(move)
                candidates.remove(candidate)
                candidate.moved = True
                by_node[move.target[0]].append(candidate)
    return moves


def _move(record: QueueRecord, node: str, by_node: dict[str, list[_Candidate]]) -> Move | None:
    """Return the move to the synchronised mirror whose node has the fewest masters; None if it gains nothing."""
    view = record.view
    assert view is not None
    able = [
        member
        for member in view.ring
        if member.id in view.synced and member.id != view.master and member.node in by_node
    ]
    if view.previous or not able:
        return None
    target = min(able, key=lambda member: (len(by_node[member.node]), member.node))
    source_count, target_count = len(by_node[node]), len(by_node[target.node])
    if target_count + 1 >= source_count:
        return None
    return Move(
        record.vhost,
        record.name,
        record.uid,
        TransferMaster(view.master, target.id),
        (node, source_count),
        (target.node, target_count),
    )


def shares(records: Iterable[QueueRecord], nodes: Iterable[str]) -> list[Share]:
    """Return the number of masters of each node: the table that the operator gets."""
    counts = {node: [0, 0] for node in sorted(nodes)}
    for record in records:
        node = None if record.view is None else record.view.master_node
        if node in counts:
            counts[node][record.type == "quorum"] += 1
    return [Share(node, classic, quorum) for node, (classic, quorum) in counts.items()]


@dataclass(slots=True)
class Rebalancer:
    """Carries out one plan at a time.

    The caller proposes its moves to the catalogue and reports changes of views to it.
    """

    _waiting: list[Move] = field(default_factory=list)
    _moving: dict[str, tuple[Move, float]] = field(default_factory=dict)

    @property
    def is_running(self) -> bool:
        """True if a plan is being carried out."""
        return bool(self._waiting or self._moving)

    def begin(self, moves: Sequence[Move]) -> bool:
        """Begin to carry out a plan. False: one is being carried out, the answer is `rebalance_in_progress`."""
        if self.is_running:
            return False
        self._waiting = list(reversed(moves))
        return True

    def see(self, uid: str, view: View | None) -> None:
        """Note that a queue has another view, or was deleted (None). Queues that do not move may be reported too."""
        moving = self._moving.get(uid)
        if moving is not None and (
            view is None
            or view.state != "live"
            or (view.master != moving[0].change.master and not view.previous)
            or view.member(moving[0].change.to) is None
        ):
            del self._moving[uid]

    def look(self, now: float) -> list[Move]:
        """Return the moves to propose now, and give up those that have taken `MOVE_S_MAX`."""
        for uid in [uid for uid, (_, began_s) in self._moving.items() if now - began_s >= MOVE_S_MAX]:
            del self._moving[uid]
        moves: list[Move] = []
        while self._waiting and len(self._moving) < MOVING_MAX:
            move = self._waiting.pop()
            self._moving[move.uid] = move, now
            moves.append(move)
        return moves

    def next_look(self, now: float) -> float | None:
        """Return when to call `look` again if no view changes until then; None: not at all."""
        if self._waiting and len(self._moving) < MOVING_MAX:
            return now
        return min((began_s + MOVE_S_MAX for _, began_s in self._moving.values()), default=None)
