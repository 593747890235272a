"""Stories of one node, n1, among others: what happens to it and what it wants to be done, without the heartbeats.

    n1 is up with n2 n3                  all serve; the others have the incarnations 2 and 3
    leader n2                            whom n1 follows; `leader -` for nobody
    wait 2.5 n2 n3                       seconds go by; these send heartbeats meanwhile
    hear n2 reaching n1,n3               one heartbeat
    renewed by n2                        the log renews n1's lease: n1 has just spoken
    link n3 up|down|gone                 gone: with proof that the process has ended
    n3 is down                           the log says so
    n1 starts as 4                       asks to count as up, and does
        1.25 Pause …                     indented: what came of it, and when, in seconds since the story began

A leader's own commands are applied at once. Write a story without the indented lines and let

    python -m tests.transcripts.membership.story --rewrite

fill them in: then read the difference.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cluster.membership.outputs import Output, Submit
from node.catalogue.commands import NodeDown
from node.catalogue.events import MemberDown, MemberUp
from tests.kit.scene import BOOTED_S, SELF, Scene, member
from tests.transcripts.script import INDENT, main, retold

STORIES: Final = sorted(Path(__file__).parent.glob("*.txt"))
_STEP_S: Final = 0.01


class Story:
    """The node, and the incarnations of the others."""

    def __init__(self) -> None:
        self.scene = Scene()
        self.incarnations: dict[str, int] = {}

    def tell(self, line: str) -> Iterator[str]:
        """Do what the line says; what came of it."""
        scene, now = self.scene, self.scene.now
        match line.split():
            case [_, "is", "up", "with", *others]:
                self.scene = scene = Scene.up(*others, leader=None)
                self.incarnations = {name: int(name[1:]) for name in (SELF, *others)}
            case ["leader", name]:
                scene.node.leader_changed(None if name == "-" else name, now)
            case ["wait", seconds, *alive]:
                yield from self._wait(float(seconds), alive)
            case ["hear", name, *reaching]:
                scene.hear(
                    name,
                    incarnation=self.incarnations[name],
                    reachable=tuple("".join(reaching[1:]).split(",")),
                )
            case ["renewed", "by", leader]:
                scene.renew(leader=leader, incarnation=scene.node.incarnation)
            case ["link", name, "up"]:
                scene.node.link_up(name, self.incarnations[name], now)
            case ["link", name, how]:
                scene.node.link_down(name, is_gone=how == "gone", now=now)
            case [name, "is", "down"]:
                scene.apply(MemberDown(member(name, self.incarnations[name])))
            case [_, "starts", "as", number]:
                self.incarnations[SELF] = int(number)
                scene.node.starting(now)
                scene.apply(MemberUp(member(SELF, int(number))))
                scene.node.up(int(number), now)
            case _:
                raise AssertionError(line)
        yield from self._shown()

    def _wait(self, seconds: float, alive: list[str]) -> Iterator[str]:
        steps = round(seconds / _STEP_S)
        start_s = self.scene.now
        for step in range(1, steps + 1):
            self.scene.now = start_s + step * _STEP_S
            if not step % 25:
                for name in alive:
                    self.scene.hear(name, incarnation=self.incarnations[name])
            self.scene.node.tick(self.scene.now)
            yield from self._shown()

    def _shown(self) -> Iterator[str]:
        while outputs := self.scene.take():
            for output in outputs:
                shown = _shown(output)
                if shown:
                    yield f"{INDENT}{self.scene.now - BOOTED_S:.2f} {shown}"
            self.scene.answer(outputs)


def _shown(output: Output) -> str:
    """Renewals are as regular as heartbeats, and left out too."""
    if isinstance(output, Submit):
        return str(output.command) if isinstance(output.command, NodeDown) else ""
    return str(output)


def play(text: str) -> str:
    """Return the story with the present outcome of each line."""
    return retold(text, Story().tell)


if __name__ == "__main__":
    main(STORIES, play)
