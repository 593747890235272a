"""Open deliveries, against a dictionary of tags (amqp-behaviour §4.10)."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from node.amqp.errors import ProtocolError
from node.client.unacked import Delivery, Unacked, unknown_delivery_tag
from tests.kit.messages import bodies_of, make_queue, run_of

QUEUE = make_queue()


def delivered(*lengths: int) -> Unacked:
    """Runs of these lengths; the body of each message is its tag."""
    unacked, tag = Unacked(), 1
    for length in lengths:
        add(unacked, tag, length)
        tag += length
    return unacked


def add(unacked: Unacked, tag: int, length: int) -> None:
    run = run_of(*(b"%d" % number for number in range(tag, tag + length)), first_seq=tag)
    unacked.add(Delivery(tag, run, QUEUE, None, at=float(tag)))


def tags(deliveries: list[Delivery]) -> list[int]:
    """The tags of settled messages, from their bodies."""
    for delivery in deliveries:
        numbers = [int(body) for body in bodies_of(delivery.run)]
        assert list(delivery.run.seqs) == numbers
        assert (delivery.first_tag, delivery.last_tag, delivery.open) == (
            numbers[0],
            numbers[-1],
            len(numbers),
        )
    return [int(body) for delivery in deliveries for body in bodies_of(delivery.run)]


def test_a_run_is_settled_as_a_run() -> None:
    settled = delivered(3).settle(1, 3)
    assert len(settled) == 1
    assert tags(settled) == [1, 2, 3]


def test_settling_goes_on_over_several_runs() -> None:
    unacked = delivered(2, 2, 2)
    assert tags(unacked.settle(2, 5)) == [2, 3, 4, 5]
    assert unacked.count == 2


@pytest.mark.parametrize(("first", "last"), [(0, 0), (7, 7), (99, 99)])
def test_an_unknown_tag_settles_nothing(first: int, last: int) -> None:
    unacked = delivered(3, 3)
    assert unacked.settle(first, last) == []
    assert unacked.count == 6


def test_settling_ends_at_the_first_unknown_tag() -> None:
    unacked = delivered(5)
    unacked.settle(3, 3)
    assert tags(unacked.settle(1, 5)) == [1, 2]
    assert tags(unacked.settle(4, 9)) == [4, 5]


def test_nothing_is_settled_twice() -> None:
    unacked = delivered(3)
    unacked.settle(1, 3)
    assert unacked.settle(1, 1) == []
    assert Unacked().settle(1, 1) == []


def test_multiple_settles_everything_up_to_its_tag() -> None:
    unacked = delivered(2, 3, 2)
    unacked.settle(2, 2)
    assert tags(unacked.settle_through(4)) == [1, 3, 4]
    assert unacked.count == 3


def test_multiple_ends_inside_a_run_that_is_partly_settled() -> None:
    unacked = delivered(6)
    unacked.settle(2, 2)
    assert tags(unacked.settle_through(4)) == [1, 3, 4]
    assert tags(unacked.drain()) == [5, 6]


def test_multiple_with_tag_0_settles_all() -> None:
    """§4.10: OK with none."""
    unacked = delivered(2, 2)
    assert tags(unacked.settle_through(0)) == [1, 2, 3, 4]
    assert unacked.settle_through(0) == []


@pytest.mark.parametrize("tag", [2, 5, 6])
def test_multiple_needs_exactly_its_tag(tag: int) -> None:
    """§4.10: even if lower tags are outstanding."""
    unacked = delivered(2, 3)
    unacked.settle(2, 2)
    unacked.settle(5, 5)
    with pytest.raises(ProtocolError) as raised:
        unacked.settle_through(tag)
    assert raised.value.reply_text == f"PRECONDITION_FAILED - unknown delivery tag {tag}"
    assert unacked.count == 3


def test_drained_in_order() -> None:
    unacked = delivered(2, 3)
    unacked.settle(4, 4)
    assert tags(unacked.drain()) == [1, 2, 3, 5]
    assert (unacked.count, unacked.oldest, entries(unacked)) == (0, None, 0)


def test_restored_between_the_others() -> None:
    """§4.4: after a rollback they are unacknowledged again, and can be settled as before."""
    unacked = delivered(4, 2)
    taken = unacked.settle(2, 3) + unacked.settle(6, 6)
    add(unacked, 7, 2)
    unacked.restore(taken)
    assert unacked.count == 8
    assert tags(unacked.settle_through(7)) == [1, 2, 3, 4, 5, 6, 7]


def test_the_oldest_is_the_first_that_is_open() -> None:
    unacked = delivered(1, 2, 1)
    unacked.settle(1, 1)
    unacked.settle(2, 2)
    assert unacked.oldest is not None
    assert unacked.oldest.at == 2.0
    unacked.settle(3, 3)
    assert unacked.oldest is not None
    assert unacked.oldest.at == 4.0


def test_the_error_for_an_unknown_tag() -> None:
    assert unknown_delivery_tag(5).reply_text == "PRECONDITION_FAILED - unknown delivery tag 5"


# --- memory -----------------------------------------------------------------------------------------------


def entries(unacked: Unacked) -> int:
    return len(unacked._deliveries)


def test_settled_entries_do_not_pile_up_behind_an_open_one() -> None:
    unacked = delivered(1)
    for tag in range(2, 10_000):
        add(unacked, tag, 1)
        unacked.settle(tag, tag)
        assert entries(unacked) <= 1100
    assert tags(unacked.drain()) == [1]


def test_settled_entries_do_not_pile_up_before_the_open_ones() -> None:
    unacked = delivered(1)
    for tag in range(2, 10_000):
        add(unacked, tag, 1)
        unacked.settle(tag - 1, tag - 1)
        assert entries(unacked) <= 2100
    assert tags(unacked.drain()) == [9_999]


def test_nothing_is_kept_when_all_is_settled() -> None:
    unacked = delivered(2, 1)
    unacked.settle(3, 3)
    unacked.settle(1, 2)
    assert entries(unacked) == 0


def test_settled_messages_let_go_of_their_bytes() -> None:
    """One message that is never acknowledged must not pin the contents of those around it."""
    unacked = delivered(1, 1, 3, 1)
    unacked.settle(2, 2)
    unacked.settle(3, 4)
    held = [raw for delivery in unacked._deliveries for raw in delivery.run.contents if raw is not None]
    assert len(held) == unacked.count


# --- against the model ------------------------------------------------------------------------------------


class UnackedMachine(RuleBasedStateMachine):
    """The model: the open tags, and those taken out under a transaction."""

    def __init__(self) -> None:
        super().__init__()
        self.unacked = Unacked()
        self.next_tag = 1
        self.open: list[int] = []
        self.taken: list[Delivery] = []

    @rule(length=st.integers(1, 6), skipped=st.integers(0, 2))
    def deliver(self, length: int, skipped: int) -> None:
        """Tags of no_ack consumers are skipped."""
        self.next_tag += skipped
        add(self.unacked, self.next_tag, length)
        self.open += range(self.next_tag, self.next_tag + length)
        self.next_tag += length

    @rule(data=st.data(), length=st.integers(1, 8), in_transaction=st.booleans())
    def settle(self, data: st.DataObject, length: int, in_transaction: bool) -> None:
        first = data.draw(st.integers(0, self.next_tag + 1))
        settled = self.unacked.settle(first, first + length - 1)
        expected = []
        for tag in range(first, first + length):
            if tag not in self.open:
                break
            expected.append(tag)
        self._settled(settled, expected, in_transaction)

    @rule(data=st.data(), in_transaction=st.booleans())
    def settle_through(self, data: st.DataObject, in_transaction: bool) -> None:
        tag = data.draw(st.integers(1, self.next_tag + 1))
        if tag in self.open:
            expected = [open_tag for open_tag in self.open if open_tag <= tag]
            self._settled(self.unacked.settle_through(tag), expected, in_transaction)
        else:
            with pytest.raises(ProtocolError):
                self.unacked.settle_through(tag)

    @rule()
    def settle_all(self) -> None:
        self._settled(self.unacked.settle_through(0), list(self.open), in_transaction=False)

    @precondition(lambda self: self.taken)
    @rule()
    def roll_back(self) -> None:
        self.open = sorted([*self.open, *tags(self.taken)])
        self.unacked.restore(self.taken)
        self.taken = []

    def _settled(self, settled: list[Delivery], expected: list[int], in_transaction: bool) -> None:
        assert tags(settled) == expected
        self.open = [tag for tag in self.open if tag not in expected]
        if in_transaction:
            self.taken += settled

    @invariant()
    def counts(self) -> None:
        assert self.unacked.count == len(self.open)
        oldest = self.unacked.oldest
        assert (oldest is None) == (not self.open)
        if oldest is not None:
            assert oldest.first_tag <= self.open[0] <= oldest.last_tag

    def teardown(self) -> None:
        assert tags(self.unacked.drain()) == self.open


TestUnackedAgainstADictionary = UnackedMachine.TestCase
TestUnackedAgainstADictionary.settings = settings(max_examples=80, stateful_step_count=25, deadline=None)
