"""A schedule says what is done to nodes, and when: made of a seed before anything runs, printed, written, run again.

It is pure. A fault draws whatever it needs from its own seed: which node, how long, in what order. So the same schedule
does the same things again, although a fault may begin later than planned: when the one before has not healed.
"""

import json
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, Final, NamedTuple

EPISODE_S: Final = 600.0
"""A cluster lives so long; then everything is drained and compared, and a new one begins."""
INTERVAL_S: Final = (6.0, 20.0)
"""From one fault to the next: most heal in less (reliability §5.3)."""
TOGETHER: Final = 0.2
"""The part of the faults that come while links are bad, if links can be."""
UNDER: Final = ("slow", "loss")
"""These faults can go on beneath another one: they take no node away."""
HALF: Final = frozenset(
    {"disk-hang", "raft-disk-hang", "disk-error", "raft-disk-error", "read-error", "pair-long"}
    | {"rot-running", "rot-stopped", "folders-gone", "old-backup"}
)
"""These faults leave a copy that is of no use. Bad links may take another one, and an undamaged one has to be left."""
ALONE: Final = HALF | {"slow", "loss", "one-way", "ring", "swizzle", "kill-all", "rolling", "resets"}
"""These are not done while links are bad: they would cost the last good copy, be of the same kind, or show nothing."""


class Planned(NamedTuple):
    """A fault to come.   at_s: since the load began.   arguments: its `seed`, and what it is done `under`."""

    at_s: float
    kind: str
    arguments: dict[str, Any]

    def text(self) -> str:
        """A line of the printed schedule."""
        under = f" under {self.arguments['under']}" if self.arguments["under"] else ""
        return f"{self.at_s:8.1f} s  {self.kind}{under}  seed {self.arguments['seed']}"


def schedule(
    seed: int, minutes: float, kinds: Sequence[str], *, episode_s: float = EPISODE_S
) -> list[Planned]:
    """All faults of a run, in order.

    minutes: of load.   kinds: each comes once before any comes again.   episode_s: none begins shortly before a
    multiple of it, so that the last one of an episode can heal.
    """
    random = Random(f"schedule {seed}")
    below = [each for each in UNDER if each in kinds]
    planned: list[Planned] = []
    cards: list[str] = []
    at_s = random.uniform(1, INTERVAL_S[0])
    while kinds and at_s < minutes * 60:
        if episode_s - at_s % episode_s >= INTERVAL_S[0] or not planned:
            if not cards:
                cards = list(kinds)
                random.shuffle(cards)
            kind = cards.pop()
            is_under = bool(below) and kind not in ALONE and random.random() < TOGETHER
            under = random.choice(below) if is_under else ""
            arguments = {"seed": random.randrange(1 << 32), "under": under}
            planned.append(Planned(round(at_s, 1), kind, arguments))
        at_s += random.uniform(*INTERVAL_S)
    return planned


def episodes(
    planned: Iterable[Planned], minutes: float, *, episode_s: float = EPISODE_S
) -> list[list[Planned]]:
    """Return the faults by episodes, also those that have none."""
    count = max(1, -(-int(minutes * 60) // int(episode_s)))
    found: list[list[Planned]] = [[] for _ in range(count)]
    for each in planned:
        found[min(count - 1, int(each.at_s // episode_s))].append(each)
    return found


def to_json(planned: Sequence[Planned]) -> str:
    """Return the text that `from_json` reads."""
    return json.dumps([each._asdict() for each in planned], indent=1)


def from_json(text: str) -> list[Planned]:
    """Raises: ValueError if it is no schedule."""
    try:
        found = [
            Planned(float(row["at_s"]), str(row["kind"]), dict(row["arguments"])) for row in json.loads(text)
        ]
    except (TypeError, KeyError) as error:
        raise ValueError(f"no schedule: {error!r}") from error
    if any(set(each.arguments) != {"seed", "under"} for each in found):
        raise ValueError("no schedule: arguments are a seed and what is under")
    return sorted(found, key=lambda each: each.at_s)
