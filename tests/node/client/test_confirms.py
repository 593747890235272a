"""Publisher confirms: what is told, how it is coalesced, and that each number is told once (amqp-behaviour §4.3)."""

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from node.amqp.methods import BasicAck, BasicNack
from node.client.confirms import Confirms, Spans
from node.client.counters import ExchangePair


def nack(tag: int, multiple: bool = False) -> BasicNack:
    return BasicNack(tag, multiple, requeue=True)


def test_numbers_start_at_1() -> None:
    confirms = Confirms()
    assert [confirms.expect(3), confirms.expect(1)] == [1, 4]
    assert confirms.outstanding == 4


def test_nothing_to_tell() -> None:
    confirms = Confirms()
    confirms.expect(2)
    assert confirms.flush() == []


def test_exactly_one_is_not_multiple() -> None:
    """§4.3 trap: an ack batch of 1 has multiple=false."""
    confirms = Confirms()
    confirms.confirm_at_once(1)
    assert confirms.flush() == [BasicAck(1, False)]
    assert confirms.flush() == []


def test_a_batch_is_one_ack() -> None:
    """§4.3: 50 persistent → single ack 50 multiple."""
    confirms = Confirms()
    confirms.expect(50)
    for number in range(50, 0, -1):
        confirms.confirm(number, number)
    assert confirms.flush() == [BasicAck(50, True)]


def test_what_lies_behind_an_outstanding_one_is_told_one_by_one() -> None:
    confirms = Confirms()
    confirms.expect(6)
    confirms.confirm(5, 6)
    confirms.confirm(1, 2)
    assert confirms.flush() == [BasicAck(2, True), BasicAck(5, False), BasicAck(6, False)]
    assert confirms.outstanding == 2


def test_nothing_below_the_cutoff() -> None:
    confirms = Confirms()
    confirms.expect(3)
    confirms.confirm(2, 3)
    assert confirms.flush() == [BasicAck(2, False), BasicAck(3, False)]


def test_acks_come_before_nacks() -> None:
    """§4.3: nacks 2, 3 after ack 1 individual."""
    confirms = Confirms()
    confirms.expect(3)
    confirms.reject(2, 3)
    confirms.confirm(1, 1)
    assert confirms.flush() == [BasicAck(1, False), nack(2), nack(3)]


def test_a_lone_nack_can_be_multiple() -> None:
    """§4.3: a lone nack can carry multiple=true."""
    confirms = Confirms()
    confirms.expect(4)
    confirms.confirm(1, 3)
    confirms.flush()
    confirms.reject(4, 4)
    assert confirms.flush() == [nack(4, True)]


def test_acks_and_nacks_mixed() -> None:
    confirms = Confirms()
    confirms.expect(5)
    confirms.reject(3, 3)
    confirms.confirm(1, 2)
    confirms.confirm(4, 5)
    assert confirms.flush() == [BasicAck(2, True), BasicAck(4, False), BasicAck(5, False), nack(3)]


def test_settled_at_once_behind_an_outstanding_one() -> None:
    confirms = Confirms()
    confirms.expect(1)
    confirms.confirm_at_once(2)
    assert confirms.flush() == [BasicAck(2, False), BasicAck(3, False)]
    confirms.confirm(1, 1)
    assert confirms.flush() == [BasicAck(1, False)]


def test_only_what_is_outstanding_is_settled() -> None:
    confirms = Confirms()
    confirms.expect(3)
    confirms.confirm(1, 2)
    confirms.reject(1, 9)
    confirms.confirm(1, 9)
    assert confirms.outstanding == 0
    assert confirms.flush() == [BasicAck(2, True), nack(3)]


class ConfirmsMachine(RuleBasedStateMachine):
    """The model: the verdict of each number. The client believes what it is told, as the protocol says."""

    def __init__(self) -> None:
        super().__init__()
        self.confirms = Confirms()
        self.verdicts: dict[int, bool | None] = {}
        """None: outstanding; True: safe."""
        self.told: dict[int, bool] = {}

    @rule(count=st.integers(1, 5))
    def expect(self, count: int) -> None:
        first = self.confirms.expect(count)
        assert first == len(self.verdicts) + 1
        self.verdicts.update(dict.fromkeys(range(first, first + count)))

    @rule(count=st.integers(1, 5))
    def confirm_at_once(self, count: int) -> None:
        first = len(self.verdicts) + 1
        self.confirms.confirm_at_once(count)
        self.verdicts.update(dict.fromkeys(range(first, first + count), True))

    @precondition(lambda self: self.verdicts)
    @rule(data=st.data(), length=st.integers(1, 6), is_safe=st.booleans())
    def settle(self, data: st.DataObject, length: int, is_safe: bool) -> None:
        first = data.draw(st.integers(1, len(self.verdicts)))
        (self.confirms.confirm if is_safe else self.confirms.reject)(first, first + length - 1)
        for number in range(first, first + length):
            if number in self.verdicts and self.verdicts[number] is None:
                self.verdicts[number] = is_safe

    @rule()
    def flush(self) -> None:
        methods = self.confirms.flush()
        kinds = [isinstance(method, BasicAck) for method in methods]
        assert kinds == sorted(kinds, reverse=True), "acks come first"
        for method in methods:
            is_safe = isinstance(method, BasicAck)
            numbers = [method.delivery_tag]
            if method.multiple:
                numbers = [number for number in range(1, method.delivery_tag + 1) if number not in self.told]
            assert method.delivery_tag not in self.told
            for number in numbers:
                assert self.verdicts[number] is is_safe, f"{number} was told wrongly by {method}"
                self.told[number] = is_safe
        assert self.told == {
            number: verdict for number, verdict in self.verdicts.items() if verdict is not None
        }

    @invariant()
    def count(self) -> None:
        assert self.confirms.outstanding == list(self.verdicts.values()).count(None)

    def teardown(self) -> None:
        self.flush()


TestConfirmsAgainstTheClient = ConfirmsMachine.TestCase
TestConfirmsAgainstTheClient.settings = settings(max_examples=100, stateful_step_count=25, deadline=None)


@pytest.mark.parametrize("seed", range(20))
def test_spans_know_of_which_exchange_each_number_was(seed: int) -> None:
    """Whatever is settled in whatever order; nothing is kept of what is settled."""
    random, spans = Random(seed), Spans()
    pairs = [ExchangePair() for _ in range(3)]
    owner: dict[int, ExchangePair] = {}
    expected = [0, 0, 0]
    number = 1
    for _ in range(300):
        pair = random.choice(pairs)
        count = random.randint(1, 4)
        spans.add(number, count, pair)
        owner.update(dict.fromkeys(range(number, number + count), pair))
        number += count
        while owner and random.random() < 0.6:
            first = last = random.choice(list(owner))
            while last + 1 in owner and random.random() < 0.7:
                last += 1
            is_confirmed = random.random() < 0.8
            spans.settle(first, last, is_confirmed=is_confirmed)
            for each in range(first, last + 1):
                expected[next(at for at, one in enumerate(pairs) if one is owner[each])] += is_confirmed
                del owner[each]
            assert [one.confirm for one in pairs] == expected
            assert len(spans) <= len(owner)
    for each in owner:
        spans.settle(each, each, is_confirmed=False)
    assert len(spans) == 0
