"""Faults of two sites undo what they do, and do the same again for the same seed. Nothing is run here."""

import pytest

from tests.chaos.schedule import Planned
from tests.chaos.sites_faults import KINDS, SITES, Done, SitesFaults

SEEDS = range(20)


class Script:
    """A script that notes commands, and knows the state that they leave behind."""

    def __init__(self) -> None:
        self.done: list[tuple[str, ...]] = []
        self.waited: list[float] = []
        self.killed: set[str] = set()
        self.ever_killed: set[str] = set()
        self.bad: set[str] = set()
        self.ever_bad: set[str] = set()

    def __call__(self, *words: str) -> None:
        self.done.append(words)
        match words:
            case ("cut",) | ("loss", _) | ("delay", _):
                self.bad.add(words[0])
                self.ever_bad.add(words[0])
            case ("heal",):
                self.bad.clear()
            case ("kill", name):
                self.killed.add(name)
                self.ever_killed.add(name[0])
            case ("start",):
                self.killed.clear()
            case _:
                raise AssertionError(words)


def do(kind: str, seed: int, under: str = "", scale: float = 1.0) -> tuple[Script, Done]:
    script = Script()
    faults = SitesFaults(script, script.waited.append, scale)
    return script, faults.do(Planned(1.0, kind, {"seed": seed, "under": under}))


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_undoes_what_it_does(kind: str) -> None:
    for seed in SEEDS:
        script, done = do(kind, seed)
        assert not script.killed
        assert not script.bad
        assert script.ever_killed | script.ever_bad, "something was done"
        assert script.waited
        assert all(waited > 0 for waited in script.waited)
        assert set(done.untouched) == set(SITES) - script.ever_killed
        assert done.text


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_does_the_same_again(kind: str) -> None:
    found = [(script.done, script.waited, done) for script, done in (do(kind, 7), do(kind, 7))]
    assert found[0] == found[1]


def test_a_fault_happens_while_the_link_is_bad() -> None:
    script, _ = do("kill-node", 3, under="loss")
    assert [words[0] for words in script.done] == ["loss", "kill", "start", "heal"]
    script, _ = do("kill-node", 3, under="slow")
    assert [words[0] for words in script.done] == ["delay", "kill", "start", "heal"]


def test_all_of_a_cut_site_is_killed_behind_the_cut() -> None:
    script, _ = do("cut-and-kill-site", 5)
    assert [words[0] for words in script.done] == ["cut", "kill", "start", "heal"]


def test_times_are_scaled() -> None:
    (long,), (short,) = do("long-cut", 2)[0].waited, do("long-cut", 2, scale=0.1)[0].waited
    assert 60 <= long <= 180
    assert short == pytest.approx(long / 10, abs=0.1)
