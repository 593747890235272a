"""Stories of one ring: what happens to its members, what they tell each other, and what comes of it.

    ring of 3                   a new queue with three copies: the members 1, 2 and 3; 1 is master
    1 broadcasts 2              two payloads
    1 has 1 on disk             all of member 1's payloads are on the disk of member 1
    1 flushes                   it sends what has gathered
    2 hears 1                   the link from 1 to 2 delivers one frame; `2 hears 1 2` two
    2 sees                      it sees the views that it has not seen; `2 sees 1` the next one only
    4 begins                    the node of member 4 hears of the first view that has it
    3 dies                      its process ends, and the catalogue says so; `3 ends`: nobody knows yet
    3 is declared dead          the catalogue says so, true or not
    add, drop 3, transfer 1 2, took over, synchronise 3
                                the catalogue is asked for a change
    the catalogue applies       what was proposed, in order
    2 retries                   it proposes again
    rest                        everything that is under way goes on until nothing is

What comes of a line is indented. `1:+3–5` are payloads 3 to 5 of member 1; `1:..5`: all up to 5 are there. v is the
version of the sender's view, e the edge. In a view M is the master, † who is dead, ? who is joining. Frames are
held (for their view), ignored or heard.

Write a story without the indented lines and let

    python -m tests.transcripts.ring.story --rewrite

fill them in: then read the difference. After every step all that must hold always is checked (`Ring.check`).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from node.catalogue.mirrors.views import DropMirror, EraseMirror, MirrorSynced, TookOver, TransferMaster
from tests.kit.ring import Ring
from tests.transcripts.script import INDENT, main, retold

STORIES: Final = sorted(Path(__file__).parent.glob("*.txt"))


class Story:
    """A ring."""

    def __init__(self) -> None:
        self.ring = Ring(1)

    def tell(self, line: str) -> Iterator[str]:
        """Do what the line says; what came of it."""
        ring = self.ring
        match line.split():
            case ["ring", "of", size]:
                self.ring = ring = Ring(int(size))
                ring.catch_up_views()
            case ["add"]:
                ring.add()
            case ["drop", id_]:
                ring.commit(DropMirror(int(id_)))
            case ["erase", id_, "by", owner]:
                ring.commit(EraseMirror(int(id_), int(owner)))
            case ["transfer", master, to]:
                ring.commit(TransferMaster(int(master), int(to)))
            case ["took", "over"]:
                ring.commit(TookOver(ring.view.since))
            case ["synchronise", id_]:
                ring.commit(MirrorSynced(int(id_)))
            case ["the", "catalogue", "applies"]:
                while ring.proposals:
                    ring.commit(ring.proposals.pop(0))
            case ["rest"]:
                ring.settle()
                ring.check_settled()
            case [id_, *words]:
                self._tell_member(int(id_), words)
            case _:
                raise AssertionError(line)
        notes, ring.notes = ring.notes, []
        for note in notes:
            yield INDENT + note

    def _tell_member(self, id_: int, words: list[str]) -> None:
        ring = self.ring
        match words:
            case ["broadcasts", *count]:
                ring.broadcast(id_, int(count[0]) if count else 1)
            case ["has", origin, "on", "disk"]:
                ring.on_disk(id_, int(origin))
            case ["flushes"]:
                ring.flush(id_)
            case ["hears", sender, *count]:
                for _ in range(int(count[0]) if count else 1):
                    ring.take(int(sender), id_)
            case ["sees", *count]:
                views = len(ring.views) - 1 - ring.nodes[id_].views
                ring.see(id_, int(count[0]) if count else views)
            case ["begins"]:
                ring.begin(id_)
            case ["dies"]:
                ring.kill(id_)
            case ["ends"]:
                ring.kill(id_, is_known=False)
            case ["is", "declared", "dead"]:
                ring.declare_dead(id_)
            case ["retries"]:
                ring.nodes[id_].member.retry()
            case _:
                raise AssertionError(words)


def play(text: str) -> str:
    """Return the story with the present outcome of each line."""
    return retold(text, Story().tell)


if __name__ == "__main__":
    main(STORIES, play)
