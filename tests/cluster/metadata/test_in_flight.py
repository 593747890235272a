"""Appends that are not answered yet."""

from cluster.metadata.in_flight import PATIENCE_S, AppendsInFlight


def test_a_follower_is_busy_until_it_has_answered_all() -> None:
    appends = AppendsInFlight()
    assert not appends.is_busy("b", 0.0)
    appends.sent("b", 1.0)
    appends.sent("b", 1.1)
    assert appends.is_busy("b", 1.2)
    appends.answered("b")
    assert appends.is_busy("b", 1.2)
    assert not appends.is_busy("c", 1.2)
    appends.answered("b")
    assert not appends.is_busy("b", 1.2)


def test_a_follower_that_does_not_answer_is_not_waited_for() -> None:
    appends = AppendsInFlight()
    appends.sent("b", 1.0)
    assert appends.is_busy("b", 1.0 + PATIENCE_S)
    assert not appends.is_busy("b", 1.001 + PATIENCE_S)


def test_an_answer_too_many_and_a_lost_session_count_for_nothing() -> None:
    appends = AppendsInFlight()
    appends.answered("b")
    appends.sent("b", 1.0)
    assert appends.is_busy("b", 1.0)
    appends.forget("b")
    assert not appends.is_busy("b", 1.0)
