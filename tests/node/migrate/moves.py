"""Migrations under way, for tests: two ends, and a history."""

from collections.abc import Mapping, Sequence

from node.definitions.reading import finish
from node.migrate.cut_over import Step, objections
from node.migrate.document import document
from node.migrate.ends import End, Ends, Host
from node.migrate.features import abilities
from node.migrate.history import Record, history
from node.migrate.move import Move
from node.migrate.queues import Key
from node.migrate.site import Site
from node.migrate.ways import Selection

RABBITMQ = End(("http://r:15672",), ("r1:5672", "r2:5672"), "RabbitMQ")
FLUFFLE = End(("http://f:15672",), ("f1:5672",), "Fluffle")


def move(
    rabbitmq: Site,
    fluffle: Site,
    records: Sequence[Record] = (),
    *,
    host: Host = "rabbitmq",
    selection: Selection | None = None,
    consumed: Mapping[Key, int] | None = None,
) -> Move:
    """A migration."""
    past = history(records)
    return Move(
        Ends(RABBITMQ, FLUFFLE, host), past, rabbitmq, fluffle, selection or Selection(), consumed or {}
    )


def reasons(found: Move, step: Step) -> list[str]:
    """The reasons against a step."""
    wanted = finish(document(found.source.definitions, abilities(found.target)))
    wanted.sections["users"] = []
    return [each.text for each in objections(found, step, wanted.json)]
