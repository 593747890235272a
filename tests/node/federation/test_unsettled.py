"""Confirms of publishes become acknowledgements of deliveries, each once, and never of one that has no confirm."""

import random

from node.federation.unsettled import Unsettled


def test_confirms_in_order_are_one_acknowledgement() -> None:
    """A range of confirms acknowledges up to the tag of its last message."""
    unsettled = Unsettled()
    unsettled.add(10, 5)
    assert unsettled.confirmed(1, 3) == 12
    assert unsettled.confirmed(4, 5) == 14
    assert unsettled.count == 0


def test_confirms_out_of_order_wait_for_the_first() -> None:
    """Nothing is acknowledged while a message before it has no confirm."""
    unsettled = Unsettled()
    unsettled.add(1, 2)
    unsettled.add(5, 2)
    assert unsettled.confirmed(3, 4) == 0
    assert unsettled.count == 2
    assert unsettled.confirmed(1, 2) == 6
    assert unsettled.count == 0


def test_refused_message_is_given_back_first() -> None:
    """The tags of refused publishes are told, and no longer hold up those behind them."""
    unsettled = Unsettled()
    unsettled.add(1, 4)
    assert unsettled.confirmed(3, 4) == 0
    assert unsettled.refused(2, 2) == ([2], 0)
    assert unsettled.confirmed(1, 1) == 4


def test_any_order_settles_each_message_once() -> None:
    """With gaps in the tags and confirms in any order all are settled in the end, and none too early."""
    for seed in range(200):
        chance = random.Random(seed)
        unsettled, tags, tag = Unsettled(), dict[int, int](), 1
        number = 1
        while number <= 40:
            count = chance.randint(1, 5)
            unsettled.add(tag, count)
            for _ in range(count):
                tags[number] = tag
                number, tag = number + 1, tag + 1
            tag += chance.choice((0, 0, 1, 3))
        left = list(tags)
        chance.shuffle(left)
        settled: set[int] = set()
        nacked: set[int] = set()
        acked_to = 0
        for each in left:
            if chance.random() < 0.2:
                given_back, ack_to = unsettled.refused(each, each)
                assert given_back == [tags[each]]
                nacked.add(tags[each])
            else:
                ack_to = unsettled.confirmed(each, each)
            settled.add(tags[each])
            if ack_to:
                assert ack_to > acked_to
                acked_to = ack_to
                assert all(one in settled for one in tags.values() if one <= ack_to)
                assert ack_to not in nacked
        assert unsettled.count == 0
        good = [one for one in tags.values() if one not in nacked]
        assert acked_to == max(good, default=0)
