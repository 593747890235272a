"""The schedule of a chaos run: a seed says all of it."""

import itertools
from collections import Counter

import pytest

from tests.chaos.chaos_nemesis import (
    DISK,
    NEEDS,
    RAFT,
    SHIM,
    WHY_NOT,
    ChaosNemesis,
    all_kinds,
    possible,
)
from tests.chaos.mirror_nemesis import mirror_kinds
from tests.chaos.schedule import ALONE, INTERVAL_S, UNDER, episodes, from_json, schedule, to_json
from tests.kit.network import CUT, SLOW

KINDS = ("kill-master", "isolate", "slow", "loss", "kill-all")


def test_a_seed_is_a_schedule() -> None:
    assert schedule(7, 60, KINDS) == schedule(7, 60, KINDS)
    assert schedule(7, 60, KINDS) != schedule(8, 60, KINDS)


def test_each_kind_comes_before_any_comes_again() -> None:
    planned = schedule(1, 60, KINDS)
    for start in range(0, len(planned) - len(KINDS), len(KINDS)):
        assert sorted(each.kind for each in planned[start : start + len(KINDS)]) == sorted(KINDS)


def test_times() -> None:
    """In order, some seconds apart, all within the run and none at the end of an episode."""
    planned = schedule(2, 45, KINDS, episode_s=300)
    times = [each.at_s for each in planned]
    assert times == sorted(times)
    assert times[0] > 0
    assert times[-1] < 45 * 60
    assert min(after - before for before, after in itertools.pairwise(times)) >= INTERVAL_S[0] - 0.1
    assert all(300 - at_s % 300 >= INTERVAL_S[0] - 0.1 for at_s in times[1:])
    assert len(planned) > 45 * 60 / INTERVAL_S[1] * 0.9


def test_a_short_run_has_a_fault() -> None:
    assert all(schedule(seed, 0.2, KINDS) for seed in range(50))


def test_bad_links_are_under_some_faults_only() -> None:
    planned = schedule(3, 600, KINDS)
    under = Counter((each.kind, each.arguments["under"]) for each in planned)
    assert {name for _, name in under} == {"", *UNDER}
    assert all(not name or kind not in ALONE for kind, name in under)
    assert not any(each.arguments["under"] for each in schedule(3, 600, ("kill-master", "isolate")))


def test_it_can_be_written_and_read() -> None:
    planned = schedule(4, 10, KINDS)
    assert from_json(to_json(planned)) == planned


@pytest.mark.parametrize("text", ["{", "[1]", '[{"at_s": 1}]', '[{"at_s": 1, "kind": "x", "arguments": {}}]'])
def test_what_is_no_schedule(text: str) -> None:
    with pytest.raises(ValueError, match=r"schedule|Expecting"):
        from_json(text)


@pytest.mark.parametrize("minutes", [0.5, 5, 10, 12.5, 30])
def test_episodes_have_all_of_it(minutes: float) -> None:
    planned = schedule(5, minutes, KINDS, episode_s=300)
    dealt = episodes(planned, minutes, episode_s=300)
    assert [each for own in dealt for each in own] == planned
    assert len(dealt) == max(1, -(-int(minutes * 60) // 300))
    for number, own in enumerate(dealt):
        assert all(number * 300 <= each.at_s < (number + 1) * 300 for each in own)


def test_each_kind_is_there_and_known() -> None:
    kinds = all_kinds()
    assert len(set(kinds)) == len(kinds)
    assert set(mirror_kinds()) < set(kinds)
    assert {"one-way", "ring", "swizzle", "slow", "loss", "clock", "memory-alarm", "haproxy-kill"} <= set(
        kinds
    )
    assert all(hasattr(ChaosNemesis, "_kind_" + kind.replace("-", "_")) for kind in kinds)
    assert set(NEEDS) <= set(kinds)
    assert {need for needs in NEEDS.values() for need in needs} == set(WHY_NOT)
    assert set(kinds) >= ALONE


def test_what_cannot_be_done_is_told() -> None:
    can, lacking = possible(["kill", "pair", "isolate", "loss", "slow"], {CUT, SLOW})
    assert can == ["kill", "pair", "isolate", "slow"]
    assert lacking == ["loss: packets are lost by iptables in network namespaces only"]


def test_a_kind_may_need_several_things() -> None:
    """A fault that needs several things is refused with the first that is missing."""
    assert possible(["disk-full-leader", "disk-hang"], {DISK, RAFT, SHIM}) == (
        ["disk-full-leader", "disk-hang"],
        [],
    )
    can, lacking = possible(["disk-full-leader", "disk-full", "raft-disk-hang"], {DISK})
    assert can == ["disk-full"]
    assert [text.partition(":")[0] for text in lacking] == ["disk-full-leader", "raft-disk-hang"]
