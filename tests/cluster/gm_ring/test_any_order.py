"""Rings in any order of events: what reliability §2.1 names gm_qc and gm_soak, and that each rule is needed for it."""

from collections.abc import Sequence
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.gm_ring import member, parts
from cluster.gm_ring.member import Member
from cluster.gm_ring.messages import Item
from cluster.gm_ring.origin import Origin
from tests.kit.ring import Driver, MemberClass, Ring, drive


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    size=st.integers(1, 3),
    choices=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99)), min_size=40, max_size=200),
)
def test_gm_qc(size: int, choices: Sequence[tuple[int, int]]) -> None:
    """Members join, leave, die and broadcast, each link delivers when it likes: at the end all who stayed have received
    all that was said while they were members.
    """
    ring = Ring(size)
    driver = Driver(ring, members_max=5)
    for kind, index in choices:
        offered = driver.troubles() if kind == 0 else driver.broadcasts() if kind < 4 else driver.work()
        steps = list(offered)
        if steps:
            steps[index % len(steps)][1]()
    driver.finish()


@pytest.mark.parametrize("seed", range(60))
def test_gm_soak(seed: int) -> None:
    """A longer life with more trouble. Nothing posthumous, premature, twice or out of order: `Node.deliver`."""
    drive(seed, 500, trouble=0.04 + seed % 4 * 0.04)


@pytest.mark.parametrize("bytes_max", [0, 3])
@pytest.mark.parametrize("seed", range(20))
def test_gm_soak_of_messages_that_are_cut(seed: int, bytes_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is told is too large for one message."""
    for module in (parts, member):
        monkeypatch.setattr(module, "PART_MAX_BYTES", bytes_max)
    drive(seed, 400, trouble=0.04 + seed % 4 * 0.04)


# --- without a rule -------------------------------------------------------------------------------------


class NoGating(Member):
    """Without R1."""

    def _is_early(self, version: int) -> bool:
        return False


class AnySender(Member):
    """Without half of R2."""

    def _is_from_left(self, sender: int, edge: int) -> bool:
        return edge <= self._edge


class NoWaiting(Member):
    """Without the other half: neither edges nor the wait for a catch-up. Links keep order, so one of them would do."""

    def _is_from_left(self, sender: int, edge: int) -> bool:
        return sender == self.left

    def _new_left(self) -> None:
        pass


class ConfirmEarly(Member):
    """Without R3: what was said counts as being everywhere."""

    def _report_confirmed(self) -> None:
        if self._own.last > self._own_confirmed:
            self._own_confirmed = self._own.last
            self._host.confirmed(self._own_confirmed)


class NoRelay(Member):
    """Without R4's passing on."""

    def _gather(self, known: Origin, payloads: Sequence[bytes]) -> None:
        if known is self._own:
            super()._gather(known, payloads)


class NoAcknowledgement(Member):
    """Without R5's second round."""

    def _relay_ack(self, known: Origin, ack: int) -> None:
        self._release(known, ack)


class DeliverTheState(Member):
    """Without R6: a state's payloads are delivered though they belong to the past."""

    def _adopt(self, items: Sequence[Item]) -> None:
        super()._adopt(items)
        for item in items:
            if item.payloads and item.origin in self.origins:
                self._host.deliver(item.origin, item.upto - len(item.payloads) + 1, item.payloads)
                self._host.deliver(item.origin, item.upto - len(item.payloads) + 1, item.payloads)


class NoCatchUp(Member):
    """Without R7: a new neighbour just hears what comes."""

    def _new_right(self) -> None:
        pass


class EraseAtOnce(Member):
    """Without R8: the dead are erased before all has come round."""

    def _erase_finished(self) -> None:
        for known in self.origins.values():
            if known.is_dead:
                known.retired = known.last
        super()._erase_finished()


class NeverErase(Member):
    """Without R8 at all."""

    def _erase_finished(self) -> None:
        pass


class NeverAlone(Member):
    """Without R10."""

    def _settle_alone(self) -> None:
        self._forget_gathered()


class OldestOriginFirst(Member):
    """Catch-ups tell each origin's payloads by themselves."""

    def _state(self) -> list[Item]:
        return sorted(super()._state(), key=lambda item: item.origin)


class ForgetOrder(Member):
    """One's own come before the others'."""

    def flush(self) -> None:
        self._segments.sort(key=lambda segment: segment[0] is not self._own)
        super().flush()


@pytest.mark.parametrize(
    "member_class",
    [
        NoGating,
        AnySender,
        NoWaiting,
        ConfirmEarly,
        NoRelay,
        NoAcknowledgement,
        DeliverTheState,
        NoCatchUp,
        EraseAtOnce,
        NeverErase,
        NeverAlone,
        OldestOriginFirst,
        ForgetOrder,
    ],
)
def test_each_rule_is_needed(member_class: MemberClass) -> None:
    """Without it some seed fails soon: the checks see what the rule prevents."""
    for seed in count():
        assert seed < 400, "nothing notices"
        try:
            drive(seed, 400, member_class, trouble=0.08)
        except (AssertionError, KeyError, IndexError):
            return
