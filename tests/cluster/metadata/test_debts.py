"""A member that comes back with less than it had acknowledged owes the rest until it has caught up."""

from cluster.metadata.debts import Debts


def test_a_member_with_less_than_it_had_owes_until_it_has_caught_up() -> None:
    reports: list[str] = []
    debts = Debts(reports.append)
    debts.told(7, last_index=7)
    assert not debts.owes(7)
    debts.told(9, last_index=5)
    debts.told(8, last_index=5)
    assert debts.owes(8)
    assert len(reports) == 1
    assert not debts.owes(9)
    assert len(reports) == 2


def test_what_a_voter_acknowledged_is_remembered_while_it_votes() -> None:
    debts = Debts(lambda line: None)
    debts.heard("a", 5)
    debts.heard("a", 3)
    assert (debts.of("a"), debts.of("b")) == (5, 0)
    debts.keep(frozenset("b"))
    assert debts.of("a") == 0


def test_what_is_not_committed_is_not_owed() -> None:
    """An entry that no majority has may be cut off, wherever it is."""
    debts = Debts(lambda line: None)
    debts.heard_all({"a": 5, "b": 9}, committed=7)
    assert (debts.of("a"), debts.of("b")) == (5, 7)
