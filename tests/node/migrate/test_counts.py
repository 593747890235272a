"""Accounts of queues: sums of counters that begin anew, and what they leave unexplained."""

from node.migrate.counts import Account, Reading


def account(*readings: tuple[int, int | None, int | None]) -> Account:
    """The account of readings of messages, publishes and messages that went, one a second."""
    found = Account()
    for at_s, (messages, publish, out) in enumerate(readings):
        found.take(Reading(("/", "q"), messages, publish, out), float(at_s))
    return found


def test_what_was_there_counts_as_before() -> None:
    found = account((5, 100, 95), (8, 110, 102), (0, 110, 110))
    assert (found.before, found.came, found.went, found.waiting, found.unexplained) == (5, 10, 15, 0, 0)


def test_counters_that_lag_at_the_first_reading() -> None:
    """Three messages had gone already, and were not counted yet; in the end all that ever came has gone."""
    found = account((0, 100, 97), (0, 110, 110))
    assert (found.begin, found.arrived, found.went, found.unexplained) == (3, 10, 13, 0)


def test_consumers_that_report_before_publishers() -> None:
    """Two messages had gone by the counters before they had come."""
    found = account((0, 100, 102), (0, 110, 110))
    assert (found.begin, found.arrived, found.went, found.unexplained) == (0, 8, 8, 0)


def test_a_lost_message_is_unexplained() -> None:
    assert account((5, 100, 95), (3, 100, 96)).unexplained == 1


def test_a_counter_that_is_less_has_begun_anew() -> None:
    """A master that moves forgets its counters; lengths stay exact."""
    found = account((5, 100, 95), (6, 104, 98), (7, 3, 2))
    assert (found.came, found.went, found.restarts, found.unexplained) == (7, 5, 1, 0)


def test_counters_that_are_not_there_yet_are_zero() -> None:
    """RabbitMQ shows no counters of a queue before its first message."""
    found = account((0, None, None), (2, 5, 3))
    assert (found.before, found.came, found.went, found.unexplained, found.is_counted) == (0, 5, 3, 0, True)
    assert not account((0, None, None), (2, None, None)).is_counted


def test_the_rate_is_how_fast_a_queue_shrinks() -> None:
    assert account((10, 0, 0)).rate is None
    assert account((10, 0, 0), (4, 0, 6)).rate == 6.0
    assert account((4, 0, 0), (10, 6, 0)).rate == -6.0


def test_only_other_readings_are_news() -> None:
    """The journal gets no reading twice."""
    found = account((10, None, None))
    assert not found.is_news(Reading(("/", "q"), 10, None, None))
    assert found.is_news(Reading(("/", "q"), 10, 0, 0))
