"""Followers that know of each other's journals know what is committed."""

from cluster.metadata.match_indexes import MatchIndexes

VOTERS = frozenset("abcde")


def test_an_entry_is_safe_once_a_majority_has_it() -> None:
    """This member is one of five; the leader is never among those that are counted."""
    indexes = MatchIndexes()
    assert indexes.safe_index(1, VOTERS, 7) == 0
    indexes.note("b", 1, 5)
    assert indexes.safe_index(1, VOTERS, 7) == 0
    indexes.note("c", 1, 6)
    assert indexes.safe_index(1, VOTERS, 7) == 5
    indexes.note("d", 1, 9)
    assert indexes.safe_index(1, VOTERS, 7) == 6
    assert indexes.safe_index(1, VOTERS, 4) == 5, "the others are a majority without this member"


def test_of_three_this_member_and_another_one_are_enough() -> None:
    indexes = MatchIndexes()
    indexes.note("b", 1, 5)
    assert indexes.safe_index(1, frozenset("abc"), 7) == 5
    assert indexes.safe_index(1, frozenset("abc"), 3) == 3


def test_what_was_told_in_another_term_does_not_count() -> None:
    indexes = MatchIndexes()
    indexes.note("b", 1, 5)
    assert indexes.safe_index(2, frozenset("abc"), 7) == 0
    assert indexes.told_in(2) == {}
    indexes.note("c", 2, 4)
    assert indexes.told_in(2) == {"c": 4}
    assert indexes.safe_index(2, frozenset("abc"), 7) == 4
    assert indexes.safe_index(1, frozenset("abc"), 7) == 0


def test_a_member_that_does_not_vote_any_more_does_not_count() -> None:
    indexes = MatchIndexes()
    indexes.note("b", 1, 5)
    assert indexes.safe_index(1, frozenset("acd"), 7) == 0


def test_a_member_without_a_link_does_not_count() -> None:
    """Such a member may come back with less than it had."""
    indexes = MatchIndexes()
    indexes.note("b", 1, 5)
    indexes.forget("b")
    indexes.forget("c")
    assert indexes.safe_index(1, frozenset("abc"), 7) == 0


def test_a_late_message_takes_nothing_back() -> None:
    indexes = MatchIndexes()
    indexes.note("b", 1, 5)
    indexes.note("b", 1, 3)
    assert indexes.safe_index(1, frozenset("abc"), 7) == 5
