"""One ACK settles all deliveries of its subscription before it."""

import pytest

from node.stomp.subscriptions import CLIENT, Subscription


@pytest.mark.parametrize(
    ("tag", "taken", "left"),
    [
        (1, [1], [3, 4, 8]),
        (4, [1, 3, 4], [8]),
        (8, [1, 3, 4, 8], []),
        (5, [1, 3, 4, 5], [8]),
        (0, [0], [1, 3, 4, 8]),
    ],
)
def test_deliveries_up_to_one(tag: int, taken: list[int], left: list[int]) -> None:
    """A tag between those of the subscription is another one's; the broker decides what becomes of it."""
    subscription = Subscription("T_1", "", CLIENT, None, "q")
    subscription.unacked.extend([1, 3, 4, 8])
    assert subscription.take_up_to(tag) == taken
    assert list(subscription.unacked) == left


def test_a_message_without_a_subscription_of_its_own_is_settled_alone() -> None:
    assert Subscription("T_1", "", CLIENT, None, "q").take_up_to(7) == [7]
