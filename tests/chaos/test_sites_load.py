"""The load of two sites: each message is expected where bindings ask for it, and nowhere else. Nothing is run here."""

import re

from tests.chaos.sites_ledger import SitesLedger
from tests.chaos.sites_load import (
    BOOKS,
    JOBS,
    OWN,
    SHARED,
    SITES,
    WORK,
    SitesLoad,
    consumed,
    may_wait,
    waiting_room,
    ways,
)
from tests.kit.steady_clients import Address


def books_of(publisher: str) -> tuple[str, ...]:
    (found,) = [way.books for way in ways() if way.publisher == publisher]
    return found


def test_events_are_expected_as_bindings_ask() -> None:
    assert books_of("a/site.events/both") == ("events at a", "events at b")
    assert books_of("a/site.events/a") == ("events at a",)
    assert books_of("a/site.events/b") == ("events at b",), "it crosses, and stays nowhere on its way"
    assert books_of("b/site.events/b") == ("events at b",), "it does not cross"


def test_a_message_of_a_federated_queue_is_expected_once_for_both_sites() -> None:
    for site in SITES:
        assert books_of(f"{site}/{WORK}") == (WORK,)
        assert books_of(f"{site}/{JOBS}") == (JOBS,)
    assert [site for site, queue, _ in consumed() if queue == JOBS] == ["b"]


def test_each_book_is_read_and_looked_at_in_the_end() -> None:
    assert {book for _, _, book in consumed()} == set(BOOKS)
    assert {book for _, _, book in may_wait()} == set(BOOKS)
    assert {book for way in ways() for book in way.books} == set(BOOKS)


def test_only_shared_names_are_federated() -> None:
    """The queues of events would take each other's messages if they were."""
    federated = re.compile(f"^{re.escape(SHARED)}")
    assert federated.match(WORK)
    assert federated.match(JOBS)
    assert not federated.match(OWN)
    assert not federated.match(waiting_room("b"))


def test_all_publishers_are_in_the_ledger() -> None:
    places = {site: [Address(1)] for site in SITES}
    ledger = SitesLedger(BOOKS)
    SitesLoad(places, ledger, 1.0)
    assert ledger.mark() == {way.publisher: 0 for way in ways()}
