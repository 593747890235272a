"""Many random histories of a cluster: see simulator.py for what must never happen.

Told by the environment which ones:
    FLUFFLE_MEMBERSHIPS=2000        the first 2000
    FLUFFLE_MEMBERSHIPS=seed:123    history 123, for instance one that went wrong
"""

import os

import pytest

from cluster.membership.membership import Membership
from node.catalogue.commands import RenewLeases
from tests.cluster.membership.bugs import BUGS, CountsFromTheApplying
from tests.cluster.membership.simulator import Simulator, Violation

HISTORIES = 25
MISCHIEF_S = 15.0
BUG_SEEDS_MAX = 60
"""More than five times what the rarest of the bugs needed."""


def _seeds() -> range:
    wanted = os.environ.get("FLUFFLE_MEMBERSHIPS", str(HISTORIES))
    if wanted.startswith("seed:"):
        seed = int(wanted.removeprefix("seed:"))
        return range(seed, seed + 1)
    return range(int(wanted))


@pytest.mark.slow
def test_no_history_goes_wrong() -> None:
    failures = []
    downs = pauses = 0
    for seed in _seeds():
        # A renewal that a leader of former days hands on must renew nothing that the present one doesn't know of.
        simulator = Simulator(seed, forwards=(RenewLeases,) if seed % 2 else ())
        try:
            simulator.story(MISCHIEF_S)
        except Violation as violation:
            failures.append(f"FLUFFLE_MEMBERSHIPS=seed:{seed} pytest {__file__}: {violation}")
        downs += simulator.downs
        pauses += simulator.pauses
    assert failures == []
    if len(_seeds()) > 1:
        assert downs > 0.5 * len(_seeds()), "hardly anything went wrong"
        assert pauses > len(_seeds())


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_the_simulator_finds(bug: type[Membership]) -> None:
    for seed in range(BUG_SEEDS_MAX):
        try:
            Simulator(seed, bug).story(MISCHIEF_S)
        except Violation:
            return
    pytest.fail(f"{BUG_SEEDS_MAX} histories went well with this bug")


def _cut_off_with_a_slow_disk(machine: type[Membership]) -> None:
    """Cut off a node that goes on applying renewals while nobody hears it any more."""
    for seed in range(5):
        simulator = Simulator(seed, machine)
        for name in simulator.nodes:
            simulator.start(name)
        simulator.step()
        simulator.run(5.0)
        simulator.slow_disk(next(name for name in simulator.nodes if name != simulator.raft.leader), 1.5)
        simulator.run(7.0)


def test_a_lease_counts_from_when_the_node_spoke() -> None:
    _cut_off_with_a_slow_disk(Membership)
    with pytest.raises(Violation, match="is declared down"):
        _cut_off_with_a_slow_disk(CountsFromTheApplying)


def test_a_history_can_be_told_again() -> None:
    def told() -> tuple[int, list[object]]:
        simulator = Simulator(7)
        simulator.story(3.0)
        return simulator.downs, [entry.command for entry in simulator.raft.entries]

    assert told() == told()
