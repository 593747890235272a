"""A schedule is an order of net moves, in waves, in which each one is legal after those before it.

A move that finds no room waits for later waves, which may use the room that earlier waves have freed. Moves that wait
for each other for ever are left out: they could be made only with a detour over a third node, and a queue moves at
most once. Source: spark §6.3, §6.5, §6.25.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from spark_ops.planning.goals import Settings
from spark_ops.planning.net_moves import NetMove
from spark_ops.planning.state import SLACK, Effect, State

RETRIED: Final = 200
"""The most moves that are tried again at the begin of a wave, the oldest first; all, when no others are left."""


@dataclass(slots=True)
class Schedule:
    """Moves in order, the wave of each from 0, and the moves that are left out."""

    moves: list[NetMove] = field(default_factory=list)
    wave: list[int] = field(default_factory=list)
    left: list[NetMove] = field(default_factory=list)


def scheduled(state: State, moves: Sequence[NetMove], settings: Settings) -> Schedule:
    """Return the schedule of moves. The state gets all of its moves.

    moves: of different queues, the preferred ones first.
    """
    found = Schedule()
    waiting, blocked = deque(moves), list[NetMove]()
    number = 0
    while waiting or blocked:
        state.begin_wave()
        tried = len(blocked) if not waiting else min(len(blocked), RETRIED)
        waiting.extendleft(reversed(blocked[:tried]))
        blocked = blocked[tried:]
        again: list[NetMove] = []
        count = size = 0
        while waiting and count < settings.wave_moves:
            move = waiting[0]
            copied = int(state.fleet.size[move.queue]) * len(move.adds)
            if count and size + copied > settings.wave_bytes:
                break
            waiting.popleft()
            effect = state.effect_of(move.queue, move.target, move.adds, move.drops)
            if not _is_legal(state, move, effect):
                again.append(move)
                continue
            state.apply(effect)
            found.moves.append(move)
            found.wave.append(number)
            count, size = count + 1, size + copied
        blocked = again + blocked
        if not count and len(again) == len(blocked):
            found.left = blocked  # all were tried, and nothing will free more room
            break
        number += bool(count)
    return found


def _is_legal(state: State, move: NetMove, effect: Effect) -> bool:
    return state.has_room_for(effect) and (move.may_cost or state.loss_change_of(effect) <= SLACK)
