"""A simulated disk with one queue's copy: what is written is safe when it is synced.

A power loss leaves what was synced and the first ones of what was written since; a killed process leaves all.
Source: reliability §5.2.
"""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.sim.ring_mirror import Message


class Disk:
    """written, synced: steps so far.   stable: messages of the synced copy, by number.   copy: its name.

    ask: called when there is something to sync and no sync is under way.
    """

    def __init__(self, ask: Callable[["Disk"], None]) -> None:
        self.stable: dict[int, Message] = {}
        self.stable_ids: dict[int, bool] = {}
        self.copy = 0
        self.written = self.synced = 0
        self.is_stuck = False
        self.life = 0
        """How often it has been found after a crash: what was asked before that is void."""
        self.is_syncing = False
        self._steps: list[tuple[Any, ...]] = []
        self._ask = ask

    def write(self, step: tuple[Any, ...]) -> None:
        """("add", number, message), ("rem", number) or ("begin", copy): another copy, without messages."""
        self.written += 1
        self._steps.append(step)
        if not self.is_syncing:
            self.is_syncing = True
            self._ask(self)

    def sync(self, upto: int) -> None:
        """Steps up to this one are safe."""
        count = upto - self.synced
        self._keep(self._steps[:count])
        del self._steps[:count]
        self.synced = upto

    def _keep(self, steps: list[tuple[Any, ...]]) -> None:
        for step in steps:
            _do(self.stable, step)
            if step[0] == "begin":
                self.copy = step[1]
        self.stable_ids = {message.id: True for message in self.stable.values()}

    def state(self, copy: int) -> dict[int, "Message"]:
        """What a process reads of a copy, in order of numbers."""
        state, found = dict(self.stable), self.copy
        for step in self._steps:
            _do(state, step)
            if step[0] == "begin":
                found = step[1]
        return dict(sorted(state.items())) if found == copy else {}

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to be removed."""
        return not self.stable and not self._steps

    def crash(self, random: Random, *, power_loss: bool) -> None:
        """Its process has ended, or the power went."""
        steps = self._steps
        if power_loss:
            steps = steps[: int(random.random() * (len(steps) + 1))]
        self._keep(steps)
        self._steps = []
        self.synced = self.written
        self.life += 1
        self.is_syncing = False


def _do(state: dict[int, "Message"], step: tuple[Any, ...]) -> None:
    match step[0]:
        case "add":
            state[step[1]] = step[2]
        case "rem":
            state.pop(step[1], None)
        case "begin":
            state.clear()
