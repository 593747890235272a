"""The ledger of two sites finds what is lost, doubled, out of order, and what bindings do not ask for."""

from tests.chaos.sites_ledger import SitesLedger

EAST = "events at b"
WORK = "work"


def ledger(sent: int = 3) -> SitesLedger:
    """A publisher at each site for `work`, and one at site a whose messages are for site b only."""
    made = SitesLedger([WORK, EAST])
    made.add("a/work", "a", [WORK])
    made.add("b/work", "b", [WORK])
    made.add("a/far", "a", [EAST])
    for publisher in ("a/work", "b/work", "a/far"):
        bodies = [made.send(publisher) for _ in range(sent)]
        assert bodies == [f"{publisher}/{number}".encode() for number in range(1, sent + 1)]
    return made


def take(book: SitesLedger, name: str, *bodies: bytes, is_redelivered: bool = False) -> None:
    for body in bodies:
        book.take(name, body, is_redelivered=is_redelivered)


def test_confirmed_at_both_sites_is_consumed_or_waits() -> None:
    book = ledger()
    for body in (b"a/work/1", b"a/work/2", b"b/work/1"):
        book.confirm(body, 0.0)
    take(book, WORK, b"a/work/1", b"b/work/1")
    assert not book.is_complete()
    book.leave(WORK, b"a/work/2")
    account = book.accounts()[0]
    assert book.is_complete()
    assert account.balances
    assert account.text() == (
        "work: confirmed 2 at a + 1 at b + unconfirmed that came 0 = consumed 2 + waiting 1 + lost 0; more than once: "
        "redelivered 0, by links 0, waiting 0; out of order 0; unexpected 0"
    )
    assert book.problems() == []


def test_a_confirmed_message_that_neither_came_nor_waits_is_lost() -> None:
    book = ledger()
    book.confirm(b"a/far/2", 0.0)
    account = book.accounts()[1]
    assert (account.lost, account.balances) == (1, False)
    assert book.problems() == ["LOST: 1 confirmed messages did not come to events at b: a/far/2"]


def test_a_message_without_a_confirm_may_come_or_not() -> None:
    book = ledger()
    take(book, WORK, b"b/work/3")
    account = book.accounts()[0]
    assert (account.recovered, account.consumed, account.balances) == (1, 1, True)
    assert book.problems() == []


def test_copies_that_say_redelivered_are_told_from_those_of_links() -> None:
    book = ledger()
    take(book, WORK, b"a/work/1", b"a/work/1")
    take(book, WORK, b"a/work/1", b"a/work/2", is_redelivered=True)
    book.leave(WORK, b"a/work/2")
    account = book.accounts()[0]
    assert (account.redelivered, account.again, account.waiting_again) == (1, 1, 1)
    assert (account.consumed, account.waiting) == (2, 0)
    assert account.balances


def test_first_copies_behind_higher_numbers_are_counted() -> None:
    book = ledger()
    take(book, WORK, b"a/work/2", b"a/work/1", b"a/work/2", b"a/work/3", b"b/work/1")
    assert book.accounts()[0].late == 1


def test_a_message_that_a_site_has_no_binding_for_is_unexpected() -> None:
    """So is one that nobody has sent, one with a number that is to come, and one that is no message of ours."""
    book = ledger()
    take(book, EAST, b"a/work/1", b"c/far/1", b"a/far/4", b"a/far/0", b"a/far/x", b"\xff", b"")
    book.leave(EAST, b"b/work/1")
    account = book.accounts()[1]
    assert (account.unexpected, account.consumed, account.balances) == (8, 0, False)
    (text,) = book.problems()
    assert text.startswith("UNEXPECTED: 8 messages: events at b got b'a/work/1'; ")


def test_each_way_has_to_bring_something_that_was_sent_after_a_mark() -> None:
    book = ledger()
    mark = book.mark()
    take(book, WORK, b"a/work/3")
    assert book.behind(mark) == ["a/work to work", "b/work to work", "a/far to events at b"]
    for publisher in mark:
        book.send(publisher)
    take(book, WORK, b"a/work/4", b"b/work/4")
    assert book.behind(mark) == ["a/far to events at b"]
    take(book, EAST, b"a/far/4")
    assert book.behind(mark) == []


def test_the_longest_time_without_a_confirm_is_that_of_the_worst_site() -> None:
    book = ledger()
    for now in (1.0, 2.0, 4.0):
        book.confirm(b"a/work/1", now)
    book.confirm(b"b/work/1", 4.5)
    assert book.longest_gap(["a"], 0.0, 5.0) == 2.0
    assert book.longest_gap(["a", "b"], 0.0, 5.0) == 4.5
    book.forget_times()
    assert book.longest_gap(["a"], 5.0, 8.0) == 3.0
    assert book.longest_gap([], 5.0, 8.0) == 0.0
