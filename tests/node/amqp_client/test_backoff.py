"""The waits between attempts."""

from node.amqp_client.backoff import LONGEST_S, SPREAD, Backoff


def test_waits_grow_to_a_bound_and_begin_again() -> None:
    backoff = Backoff(1.0, lambda: 0.0)
    assert [backoff.next_wait_s() for _ in range(7)] == [1, 2, 4, 8, 16, LONGEST_S, LONGEST_S]
    assert backoff.failures == 7
    backoff.succeeded()
    assert backoff.next_wait_s() == 1


def test_waits_are_spread() -> None:
    numbers = iter([0.0, 0.5, 0.999])
    backoff = Backoff(100.0, lambda: next(numbers))
    waits = [backoff.next_wait_s() for _ in range(3)]
    assert waits == [100.0, 100.0 * (1 - SPREAD / 2), 100.0 * (1 - SPREAD * 0.999)]


def test_no_number_of_failures_overflows() -> None:
    backoff = Backoff(0.001, lambda: 0.0)
    assert max(backoff.next_wait_s() for _ in range(5000)) == LONGEST_S
