"""Faults between two sites and in them: the link is cut, flaps, loses packets; nodes and whole sites are killed.

Everything is done by deploy/two-sites/sites, whose commands are given in, as is the wait between them. A fault undoes
what it has done, and draws where and how long from its own seed, so a schedule does the same things again.
"""

from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple, Protocol

from tests.chaos.schedule import Planned

SITES: Final = ("a", "b")
KINDS: Final = (
    "cut",
    "long-cut",
    "flap",
    "loss",
    "slow",
    "kill-node",
    "kill-one-each",
    "kill-site",
    "kill-both",
    "cut-and-kill-node",
    "cut-and-kill-site",
)
NEEDS_NETEM: Final = "slow"


class Run(Protocol):
    """Runs a command of deploy/two-sites/sites, and raises what says why it failed."""

    def __call__(self, *words: str) -> None: ...


class Done(NamedTuple):
    """A fault that is over.   untouched: the sites whose nodes all ran meanwhile."""

    text: str
    untouched: tuple[str, ...]


class SitesFaults:
    """Does faults.   sleep: waits so many seconds.   scale: of all times, 1 for a real run."""

    def __init__(self, run: Run, sleep: Callable[[float], None], scale: float = 1.0) -> None:
        self._run = run
        self._sleep = sleep
        self._scale = scale

    def do(self, planned: Planned) -> Done:
        """Do a fault, and undo it.   Raises: what `run` raises."""
        random = Random(planned.arguments["seed"])
        under = planned.arguments["under"]
        if under:
            self._make_bad(under, random)
        done: Done = getattr(self, "_" + planned.kind.replace("-", "_"))(random)
        self._run("heal")
        return done

    def _make_bad(self, kind: str, random: Random) -> str:
        """Make the link lossy or slow, and say how."""
        if kind == "loss":
            part = random.choice((1, 5, 20))
            self._run("loss", str(part))
            return f"{part} % of the packets lost"
        delay_ms = random.choice((20, 50, 150))
        self._run("delay", str(delay_ms))
        return f"{delay_ms} ms in each direction"

    def _wait(self, random: Random, least_s: float, most_s: float) -> float:
        """Wait for some time, and return it."""
        lasts_s = round(self._scale * random.uniform(least_s, most_s), 1)
        self._sleep(lasts_s)
        return lasts_s

    # --- the link ---

    def _cut(self, random: Random) -> Done:
        self._run("cut")
        return Done(f"for {self._wait(random, 5, 20)} s", SITES)

    def _long_cut(self, random: Random) -> Done:
        self._run("cut")
        return Done(f"for {self._wait(random, 60, 180)} s", SITES)

    def _flap(self, random: Random) -> Done:
        times = random.randint(5, 15)
        for _ in range(times):
            self._run("cut")
            self._wait(random, 0.2, 3)
            self._run("heal")
            self._wait(random, 0.2, 3)
        return Done(f"{times} times", SITES)

    def _loss(self, random: Random) -> Done:
        text = self._make_bad("loss", random)
        return Done(f"{text} for {self._wait(random, 5, 20)} s", SITES)

    def _slow(self, random: Random) -> Done:
        text = self._make_bad("slow", random)
        return Done(f"{text} for {self._wait(random, 5, 20)} s", SITES)

    # --- nodes ---

    def _kill_node(self, random: Random) -> Done:
        site = random.choice(SITES)
        node = f"{site}{random.randint(1, 3)}"
        lasts_s = self._kill(random, (node,), 1, 8)
        return Done(f"{node} for {lasts_s} s", _others(site))

    def _kill_one_each(self, random: Random) -> Done:
        nodes = tuple(f"{site}{random.randint(1, 3)}" for site in SITES)
        return Done(f"{' and '.join(nodes)} for {self._kill(random, nodes, 1, 8)} s", ())

    def _kill_site(self, random: Random) -> Done:
        site = random.choice(SITES)
        return Done(f"{site} for {self._kill(random, (site,), 3, 40)} s", _others(site))

    def _kill_both(self, random: Random) -> Done:
        return Done(f"for {self._kill(random, SITES, 1, 5)} s", ())

    def _kill(self, random: Random, names: tuple[str, ...], least_s: float, most_s: float) -> float:
        """Kill nodes or whole sites, and start them again after some time, which is returned."""
        for name in names:
            self._run("kill", name)
        lasts_s = self._wait(random, least_s, most_s)
        self._run("start")
        return lasts_s

    # --- both ---

    def _cut_and_kill_node(self, random: Random) -> Done:
        self._run("cut")
        self._wait(random, 1, 10)
        done = self._kill_node(random)
        self._wait(random, 1, 10)
        return done

    def _cut_and_kill_site(self, random: Random) -> Done:
        self._run("cut")
        self._wait(random, 1, 10)
        done = self._kill_site(random)
        self._wait(random, 1, 10)
        return done


def _others(site: str) -> tuple[str, ...]:
    return tuple(each for each in SITES if each != site)
