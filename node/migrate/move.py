"""One look at a migration under way: both ends, what was done, and what is left to do."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from node.migrate.answers import Row, is_set, rows, text
from node.migrate.clients import Client, foreign_consumers
from node.migrate.counts import Side
from node.migrate.ends import Direction, End, Ends
from node.migrate.history import History
from node.migrate.queues import Key, Queue
from node.migrate.shovels import Shovel
from node.migrate.site import ShovelStatus, Site
from node.migrate.ways import QueuePlan, Selection, queue_plan


@dataclass(frozen=True, slots=True)
class Move:
    """Both ends at one moment, with what was done.

    consumed: how many consumers queues had when the plan was made.
    """

    ends: Ends
    history: History
    rabbitmq: Site
    fluffle: Site
    selection: Selection
    consumed: Mapping[Key, int]

    @property
    def direction(self) -> Direction:
        """The direction in which messages go now."""
        return self.history.direction

    @property
    def source(self) -> Site:
        """The end that messages leave."""
        return self.rabbitmq if self.direction == "out" else self.fluffle

    @property
    def target(self) -> Site:
        """The end that messages go to."""
        return self.fluffle if self.direction == "out" else self.rabbitmq

    @property
    def source_side(self) -> Side:
        """The name of the end that messages leave."""
        return "rabbitmq" if self.direction == "out" else "fluffle"

    @property
    def source_end(self) -> End:
        """The addresses of the end that messages leave."""
        return self.ends.source(self.direction)

    @property
    def target_end(self) -> End:
        """The addresses of the end that messages go to."""
        return self.ends.target(self.direction)

    def plans(self) -> list[QueuePlan]:
        """Return how each selected queue of the source moves now: its consumers may have left since the plan."""
        consumers = self.consumers()
        return [
            queue_plan(queue, consumers.get(queue.key, 0), ())
            for queue in sorted(
                self.selection.takes(self.source.queues.values()), key=lambda each: (each.vhost, each.name)
            )
            if queue.key in self.target.queues
        ]

    def queues(self) -> list[Queue]:
        """Return the selected queues of the source that can move."""
        return [each.queue for each in self.plans() if each.way != "stays"]

    def consumers(self) -> dict[Key, int]:
        """Return the connections of clients that consume at the source, by queue."""
        return foreign_consumers(self.source.clients)

    def shovel(self, key: Key) -> Shovel:
        """Return the shovel of a queue in the present direction."""
        return Shovel(*key, self.direction)

    def without_shovel(self) -> Iterator[QueuePlan]:
        """Yield the queues that have no shovel yet, whether they are to get one now or later."""
        for each in self.plans():
            if each.way != "stays" and self.shovel(each.key) not in self.history.shovels:
                yield each

    def to_begin(self) -> list[Shovel]:
        """Return the shovels that can be made now: of queues that no client consumes from."""
        return [self.shovel(each.key) for each in self.without_shovel() if each.way == "now"]

    def present_shovels(self) -> list[Shovel]:
        """Return the shovels of the present direction that are meant to run."""
        found = (each for each in self.history.shovels if each.direction == self.direction)
        return sorted(found, key=lambda each: each.key)

    def status(self, shovel: Shovel) -> ShovelStatus | None:
        """Return a shovel's state. None: its host does not tell; state "missing": the host does not have it."""
        host = self.rabbitmq if self.ends.host == "rabbitmq" else self.fluffle
        if host.shovels is None:
            return None
        return host.shovels.get((shovel.vhost, shovel.name), ShovelStatus("missing"))

    def clients(self) -> list[Client]:
        """Return the clients at the source, without the shovels."""
        return [
            each
            for each in self.source.clients
            if not each.is_mover and (not self.selection.vhosts or each.vhost in self.selection.vhosts)
        ]


def missing_objects(document: Row, target: Row) -> Iterator[str]:
    """Yield the subject of each object of a document that the definitions of the target lack.

    Queues and exchanges that come and go with their clients are not meant: the clients declare them.
    """
    passing: set[tuple[str, str, str]] = set()
    for section, noun in (
        ("vhosts", "virtual host"),
        ("users", "user"),
        ("exchanges", "exchange"),
        ("queues", "queue"),
    ):
        there = {_key(row) for row in rows(target.get(section))}
        for row in rows(document.get(section)):
            vhost, name = text(row, "vhost"), text(row, "name")
            if is_set(row, "auto_delete") or row.get("durable") is False:
                passing.add((noun, vhost, name))
            elif _key(row) not in there:
                yield f"{noun} {name!r}" + (f" in {vhost!r}" if vhost else "")
    yield from _missing_bindings(document, target, passing)


def _missing_bindings(document: Row, target: Row, passing: Collection[tuple[str, str, str]]) -> Iterator[str]:
    there = {_binding(row) for row in rows(target.get("bindings"))}
    for row in rows(document.get("bindings")):
        ends = (
            ("exchange", text(row, "vhost"), text(row, "source")),
            (text(row, "destination_type"), text(row, "vhost"), text(row, "destination")),
        )
        if _binding(row) not in there and not any(end in passing for end in ends):
            vhost, source, destination = (text(row, key) for key in ("vhost", "source", "destination"))
            yield f"binding {source!r} → {destination!r} with key {text(row, 'routing_key')!r} in {vhost!r}"


def missing_document(document: Row, target: Row, sections: Collection[str]) -> dict[str, list[Row]]:
    """Return the objects of these sections that the target lacks, as a document."""
    found: dict[str, list[Row]] = {}
    for section in sections:
        key = _binding if section == "bindings" else _key
        there = {key(row) for row in rows(target.get(section))}
        found[section] = [row for row in rows(document.get(section)) if key(row) not in there]
    return found


def _key(row: Row) -> tuple[str, ...]:
    return text(row, "vhost"), text(row, "name")


def _binding(row: Row) -> tuple[str, ...]:
    keys = ("vhost", "source", "destination", "destination_type", "routing_key")
    arguments = row.get("arguments")
    return (*(text(row, key) for key in keys), repr(arguments or {}))
