"""The load at two sites that are both active: publishers and consumers at each, with one ledger for all.

Names that begin with `SHARED` are federated in both directions; all other queues are only mirrored within their site.

    site.work     a federated queue: publishers and a consumer at each site
    site.jobs     a federated queue: publishers at each site, a consumer at site b alone, so all of site a has to cross
    site.events   a federated topic exchange; at each site it has a queue `own.events` with keys for both and its own

Keys of events: `both` is wanted at each site, `a` and `b` at that site alone, wherever the message is published.
"""

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import pika
import pika.exceptions

from tests.chaos.sites_ledger import SitesLedger
from tests.kit.steady_clients import PERSISTENT, Address, Client

SITES: Final = ("a", "b")
SHARED: Final = "site."
WORK: Final = "site.work"
JOBS: Final = "site.jobs"
EVENTS: Final = "site.events"
OWN: Final = "own.events"
KEYS: Final = ("both", *SITES)
USER: Final = "app"
PREFETCH: Final = 20
CONNECT_S: Final = 5.0

LOST: Final = (pika.exceptions.AMQPError, OSError)
"""The errors of a connection that is gone or refused."""

Places = Mapping[str, Sequence[Address]]


class Way(NamedTuple):
    """Messages of one publisher.   books: of the ledger, each of which has to get them."""

    publisher: str
    site: str
    exchange: str
    key: str
    books: tuple[str, ...]


def events_at(site: str) -> str:
    """Return the name of the book for the events of a site."""
    return f"events at {site}"


BOOKS: Final = (WORK, JOBS, *(events_at(site) for site in SITES))


def wants(site: str, key: str) -> bool:
    """Whether a site has a binding for events with this key."""
    return key in ("both", site)


def ways() -> list[Way]:
    """Return all that is published."""
    found = []
    for site in SITES:
        found += [Way(f"{site}/{queue}", site, "", queue, (queue,)) for queue in (WORK, JOBS)]
        for key in KEYS:
            books = tuple(events_at(other) for other in SITES if wants(other, key))
            found.append(Way(f"{site}/{EVENTS}/{key}", site, EVENTS, key, books))
    return found


def consumed() -> list[tuple[str, str, str]]:
    """Return the consumers: site, queue, and book."""
    found = [(site, WORK, WORK) for site in SITES]
    found.append(("b", JOBS, JOBS))
    return found + [(site, OWN, events_at(site)) for site in SITES]


def may_wait() -> list[tuple[str, str, str]]:
    """Return the queues in which messages may wait at the end: site, queue, and book."""
    found = [(site, queue, queue) for site in SITES for queue in (WORK, JOBS)]
    found += [(site, OWN, events_at(site)) for site in SITES]
    return found + [(site, waiting_room(other), events_at(other)) for site, other in (SITES, SITES[::-1])]


def waiting_room(other: str) -> str:
    """Return the name of the queue in which events wait for the other site."""
    return f"federation: {EVENTS} -> site-{other}"


class SitePublisher(Client):
    """Publishes each message once.   returned: how many no queue wanted, not even the one for the other site."""

    def __init__(self, addresses: Sequence[Address], way: Way, ledger: SitesLedger, rate: float) -> None:
        super().__init__(addresses, USER, f"publisher of {way.publisher}")
        self._way, self._ledger, self._rate = way, ledger, rate
        self.returned = 0
        self.nacked = 0

    def _work(self, connection: pika.BlockingConnection) -> None:
        channel = connection.channel()
        channel.confirm_delivery()
        while not self._ends.is_set():
            body = self._ledger.send(self._way.publisher)
            try:
                channel.basic_publish(self._way.exchange, self._way.key, body, PERSISTENT, mandatory=True)
            except pika.exceptions.UnroutableError:
                self.returned += 1
            except pika.exceptions.NackError:
                self.nacked += 1
            else:
                self._ledger.confirm(body, time.monotonic())
            connection.process_data_events(0)
            self._ends.wait(1 / self._rate)


class SiteConsumer(Client):
    """Consumes a queue of one site for a book of the ledger."""

    def __init__(self, addresses: Sequence[Address], queue: str, book: str, ledger: SitesLedger) -> None:
        super().__init__(addresses, USER, f"consumer of {queue}")
        self._queue, self._book, self._ledger = queue, book, ledger

    def _work(self, connection: pika.BlockingConnection) -> None:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=PREFETCH)
        for method, _properties, body in channel.consume(self._queue, inactivity_timeout=0.1):
            if method is not None:
                self._ledger.take(self._book, body, is_redelivered=method.redelivered)
                channel.basic_ack(method.delivery_tag)
            if self._ends.is_set():
                break
        channel.cancel()


class SitesLoad:
    """All clients of both sites.   rate: messages a second of each publisher.   problems: of ends, in words."""

    def __init__(self, places: Places, ledger: SitesLedger, rate: float) -> None:
        self._places = places
        self._ledger = ledger
        self.problems: list[str] = []
        for way in ways():
            ledger.add(way.publisher, way.site, way.books)
        self._publishers = [SitePublisher(places[way.site], way, ledger, rate) for way in ways()]
        self._consumers = [
            SiteConsumer(places[site], queue, book, ledger) for site, queue, book in consumed()
        ]

    def is_declared(self, site: str) -> bool:
        """Declare the queues, the exchange and the bindings of a site.   Returns: whether that went well."""
        try:
            with connected(self._places[site]) as connection:
                channel = connection.channel()
                for queue in (WORK, JOBS, OWN):
                    channel.queue_declare(queue, durable=True)
                channel.exchange_declare(EVENTS, "topic", durable=True)
                for key in KEYS:
                    if wants(site, key):
                        channel.queue_bind(OWN, EVENTS, key)
        except LOST:
            return False
        return True

    def start_consumers(self) -> None:
        """Start all consumers."""
        for consumer in self._consumers:
            consumer.start()

    def start_publishers(self) -> None:
        """Start all publishers.   All links run."""
        for publisher in self._publishers:
            publisher.start()

    def stop_publishers(self) -> None:
        """End all publishers."""
        self._stop(self._publishers)

    def stop_consumers(self) -> None:
        """End all consumers."""
        self._stop(self._consumers)

    def _stop(self, clients: Sequence[Client]) -> None:
        for client in clients:
            try:
                client.stop()
            except AssertionError:
                self.problems.append(f"STUCK: a client did not end: {type(client).__name__}")

    @property
    def returned(self) -> int:
        """The number of messages that no queue wanted."""
        return sum(publisher.returned for publisher in self._publishers)

    @property
    def nacked(self) -> int:
        """The number of messages that a site refused."""
        return sum(publisher.nacked for publisher in self._publishers)

    def note_waiting(self) -> None:
        """Tell the ledger what waits in all queues.   It stays there: the copies go back when the connection ends."""
        for site, queue, book in may_wait():
            try:
                with connected(self._places[site]) as connection:
                    channel = connection.channel()
                    while True:
                        method, _properties, body = channel.basic_get(queue)
                        if method is None:
                            break
                        self._ledger.leave(book, body)
            except LOST as error:
                self.problems.append(f"STUCK: {queue} of site {site} could not be read: {error!r}")

    def depths(self) -> dict[str, int] | None:
        """Return how many messages wait in each queue that is not empty; None: a site does not answer."""
        found: dict[str, int] = {}
        for site, queue, _ in may_wait():
            try:
                with connected(self._places[site]) as connection:
                    count = connection.channel().queue_declare(queue, passive=True).method.message_count
            except LOST:
                return None
            if count:
                found[f"{queue} at {site}"] = count
        return found


def connected(addresses: Sequence[Address]) -> pika.BlockingConnection:
    """Return a connection to the first of these places that accepts one.   Raises: what the last one did."""
    for address in addresses[:-1]:
        with contextlib.suppress(*LOST):
            return pika.BlockingConnection(_parameters(address))
    return pika.BlockingConnection(_parameters(addresses[-1]))


def _parameters(address: Address) -> pika.ConnectionParameters:
    return pika.ConnectionParameters(
        address.host,
        address.port,
        credentials=pika.PlainCredentials(USER, USER),
        socket_timeout=CONNECT_S,
        stack_timeout=2 * CONNECT_S,
        blocked_connection_timeout=4 * CONNECT_S,
    )
