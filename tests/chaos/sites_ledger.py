"""A ledger of messages of two sites: what each publisher sent and had confirmed, and what came to which book.

A message is its publisher's name and a number, which are its body. Each is published once: one without a confirm may
come or not. A *book* is a place that has to get a message once: a queue of one site for a federated exchange, both
queues together for a federated queue. All of it is pure; calls come from many threads, so each holds the lock.
"""

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tests.chaos.ledger import gap_in

SHOWN_MAX: Final = 8
"""So many lost or unexpected messages of a book are named; all are counted."""


class Value(NamedTuple):
    """The identity of a message."""

    publisher: str
    number: int

    def text(self) -> str:
        """Return the identity as people read it, which is the message's body."""
        return f"{self.publisher}/{self.number}"


@dataclass(slots=True)
class Story:
    """A publisher.   site: where it publishes.   books: all of them get its messages.   sent: the last number."""

    site: str
    books: tuple[str, ...]
    sent: int = 0
    confirmed: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Book:
    """The messages that one place got.

    copies: how often each came.   last: the highest number of each publisher.   redelivered: copies of messages that
    had come before, which say so.   again: those that do not say so: a link or a broker has made them.   late: first
    copies that came behind a higher number.   waiting: copies that nobody had consumed at the end.
    """

    copies: Counter[Value] = field(default_factory=Counter)
    last: dict[str, int] = field(default_factory=dict)
    redelivered: int = 0
    again: int = 0
    late: int = 0
    waiting: Counter[Value] = field(default_factory=Counter)
    strangers: list[str] = field(default_factory=list)


class Account(NamedTuple):
    """The sums of one book, in messages; `redelivered`, `again` and `waiting_again` are copies beyond the first.

    confirmed: by site.   recovered: messages without a confirm that came nevertheless.
    """

    book: str
    confirmed: dict[str, int]
    recovered: int
    consumed: int
    waiting: int
    lost: int
    redelivered: int
    again: int
    waiting_again: int
    late: int
    unexpected: int

    @property
    def balances(self) -> bool:
        """True if each confirmed message is consumed or waits, and nothing came that must not."""
        total = sum(self.confirmed.values()) + self.recovered
        return total == self.consumed + self.waiting and not self.lost and not self.unexpected

    def text(self) -> str:
        """Return the equation in words."""
        sites = " + ".join(f"{count:,} at {site}" for site, count in self.confirmed.items())
        return (
            f"{self.book}: confirmed {sites or 0} + unconfirmed that came {self.recovered:,} = consumed "
            f"{self.consumed:,} + waiting {self.waiting:,} + lost {self.lost:,}; more than once: redelivered "
            f"{self.redelivered:,}, by links {self.again:,}, waiting {self.waiting_again:,}; out of order "
            f"{self.late:,}; unexpected {self.unexpected:,}"
        )


class SitesLedger:
    """All publishers and books.   confirmed_at: when confirms came, by site, since `forget_times`."""

    def __init__(self, books: Sequence[str]) -> None:
        self._lock = threading.Lock()
        self._stories: dict[str, Story] = {}
        self._books = {name: Book() for name in books}
        self._confirmed_at: dict[str, list[float]] = {}

    # --- what happens ---

    def add(self, publisher: str, site: str, books: Sequence[str]) -> None:
        """Add a publisher, whose messages each of the books has to get."""
        assert publisher not in self._stories
        assert set(books) <= self._books.keys()
        self._stories[publisher] = Story(site, tuple(books))
        self._confirmed_at.setdefault(site, [])

    def send(self, publisher: str) -> bytes:
        """Note the next message of a publisher.   Returns: its body."""
        with self._lock:
            story = self._stories[publisher]
            story.sent += 1
            return Value(publisher, story.sent).text().encode()

    def confirm(self, body: bytes, now: float) -> None:
        """Note that the site has confirmed a message."""
        value = _value_of(body)
        assert value is not None
        with self._lock:
            story = self._stories[value.publisher]
            story.confirmed.add(value.number)
            self._confirmed_at[story.site].append(now)

    def take(self, name: str, body: bytes, *, is_redelivered: bool) -> None:
        """Note that a consumer of a book got a copy."""
        with self._lock:
            book = self._books[name]
            value = self._expected(name, body)
            if value is None:
                book.strangers.append(f"{name} got {body[:60]!r}")
                return
            book.copies[value] += 1
            if book.copies[value] > 1:
                book.redelivered += is_redelivered
                book.again += not is_redelivered
                return
            last = book.last.get(value.publisher, 0)
            book.late += value.number < last
            book.last[value.publisher] = max(last, value.number)

    def leave(self, name: str, body: bytes) -> None:
        """Note a copy that waits for a book when all is over."""
        with self._lock:
            value = self._expected(name, body)
            if value is None:
                self._books[name].strangers.append(f"{body[:60]!r} waits for {name}")
            else:
                self._books[name].waiting[value] += 1

    def _expected(self, name: str, body: bytes) -> Value | None:
        """Return the identity of a message; None: the book must not get it, or nobody has sent it."""
        value = _value_of(body)
        story = None if value is None else self._stories.get(value.publisher)
        if value is None or story is None or name not in story.books or not 1 <= value.number <= story.sent:
            return None
        return value

    # --- while it goes on ---

    def mark(self) -> dict[str, int]:
        """Return the number of each publisher's last message."""
        with self._lock:
            return {name: story.sent for name, story in self._stories.items()}

    def behind(self, mark: dict[str, int]) -> list[str]:
        """Return the ways, in words, by which nothing has come that was sent after the mark."""
        with self._lock:
            return [
                f"{publisher} to {name}"
                for publisher, story in self._stories.items()
                for name in story.books
                if self._books[name].last.get(publisher, 0) <= mark[publisher]
            ]

    def forget_times(self) -> None:
        """Begin to note times of confirms anew."""
        with self._lock:
            for times in self._confirmed_at.values():
                times.clear()

    def longest_gap(self, sites: Sequence[str], since: float, until: float) -> float:
        """Return the longest time without a confirm at one of these sites, in s.   since: not before `forget_times`."""
        with self._lock:
            return max((gap_in(self._confirmed_at[site], since, until) for site in sites), default=0.0)

    # --- what became of it ---

    def missing(self, name: str) -> list[Value]:
        """Return the confirmed messages that a book did not get, and that do not wait for it."""
        with self._lock:
            return self._missing(name)

    def _missing(self, name: str) -> list[Value]:
        book = self._books[name]
        return [
            value
            for publisher, story in self._stories.items()
            if name in story.books
            for number in sorted(story.confirmed)
            if (value := Value(publisher, number)) not in book.copies and value not in book.waiting
        ]

    def is_complete(self) -> bool:
        """Return whether all books have all that was confirmed."""
        return not any(self.missing(name) for name in self._books)

    def accounts(self) -> list[Account]:
        """Return the sums of each book."""
        return [self._account(name) for name in self._books]

    def _account(self, name: str) -> Account:
        with self._lock:
            book, confirmed = self._books[name], Counter[str]()
            for story in self._stories.values():
                if name in story.books:
                    confirmed[story.site] += len(story.confirmed)
            arrived = book.copies.keys() | book.waiting.keys()
            return Account(
                name,
                dict(sorted(confirmed.items())),
                recovered=sum(
                    value.number not in self._stories[value.publisher].confirmed for value in arrived
                ),
                consumed=len(book.copies),
                waiting=len(book.waiting.keys() - book.copies.keys()),
                lost=len(self._missing(name)),
                redelivered=book.redelivered,
                again=book.again,
                waiting_again=book.waiting.total() - len(book.waiting.keys() - book.copies.keys()),
                late=book.late,
                unexpected=len(book.strangers),
            )

    def problems(self) -> list[str]:
        """Return what is wrong, in words."""
        found: list[str] = []
        for name, book in self._books.items():
            lost = self.missing(name)
            if lost:
                shown = ", ".join(value.text() for value in lost[:SHOWN_MAX])
                found.append(f"LOST: {len(lost):,} confirmed messages did not come to {name}: {shown}")
            if book.strangers:
                shown = "; ".join(book.strangers[:SHOWN_MAX])
                found.append(f"UNEXPECTED: {len(book.strangers):,} messages: {shown}")
        return found


def _value_of(body: bytes) -> Value | None:
    """Return the identity of a message; None: it has none."""
    publisher, _, digits = body.decode("ascii", "replace").rpartition("/")
    return Value(publisher, int(digits)) if digits.isdecimal() else None
