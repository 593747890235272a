"""Numbers of publishes, and the ranges that a broker settles."""

import random

import pytest

from node.amqp.errors import ProtocolError
from node.amqp_client.unconfirmed import Unconfirmed


def test_numbers_are_settled_in_order() -> None:
    numbers = Unconfirmed()
    assert (numbers.add(3), numbers.add(2)) == (1, 4)
    assert numbers.settle(1, 2) == [(1, 2)]
    assert numbers.settle_up_to(5) == [(3, 5)]
    assert (len(numbers), numbers.lowest) == (0, 6)


def test_gaps_are_told_once() -> None:
    numbers = Unconfirmed()
    numbers.add(10)
    assert numbers.settle(3, 4) == [(3, 4)]
    assert numbers.settle(7, 7) == [(7, 7)]
    assert len(numbers) == 7
    assert numbers.settle_up_to(8) == [(1, 2), (5, 6), (8, 8)]
    assert numbers.settle_up_to(8) == []
    assert (len(numbers), numbers.lowest) == (2, 9)


def test_zero_means_all() -> None:
    numbers = Unconfirmed()
    assert numbers.settle_up_to(0) == []
    numbers.add(4)
    assert numbers.settle_up_to(0) == [(1, 4)]


@pytest.mark.parametrize(("first", "last"), [(0, 0), (1, 3), (3, 3)])
def test_a_number_that_was_not_published_is_a_fault(first: int, last: int) -> None:
    numbers = Unconfirmed()
    numbers.add(2)
    with pytest.raises(ProtocolError):
        numbers.settle(first, last)


@pytest.mark.parametrize("seed", range(20))
def test_any_order_tells_each_number_once(seed: int) -> None:
    chance = random.Random(seed)
    numbers, left, told = Unconfirmed(), set[int](), list[int]()
    while numbers.published < 300 or left:
        if numbers.published < 300:
            first = numbers.add(count := chance.randint(1, 20))
            left.update(range(first, first + count))
        if not left:
            continue
        if chance.random() < 0.2:
            ranges = numbers.settle_up_to(chance.choice(sorted(left)))
        else:
            first = chance.choice(sorted(left))
            last = min(first + chance.randint(0, 3), numbers.published)
            ranges = numbers.settle(first, last)
        for first, last in ranges:
            told += range(first, last + 1)
            left.difference_update(range(first, last + 1))
        assert len(numbers) == len(left)
        assert numbers.lowest == min(left, default=numbers.published + 1)
    assert sorted(told) == list(range(1, numbers.published + 1))
