"""The plan of a migration: what differs, how each queue moves, who has to move, and in which order.

A plan changes nothing. It is made of what both brokers show (`node.migrate.site`), and kept as JSON without passwords.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from node.catalogue.records import Json
from node.migrate.answers import count, inner, rows, text, texts
from node.migrate.client_needs import client_findings
from node.migrate.clients import Client, foreign_consumers
from node.migrate.document import Document, document, of_vhosts
from node.migrate.ends import SHOVEL_PLUGIN, End, Ends, Host, end_from_json, host_from_json, shovel_host
from node.migrate.features import abilities, feature_findings
from node.migrate.findings import Finding, ordered
from node.migrate.groups import Group, groups
from node.migrate.shovels import QUEUE_MAX
from node.migrate.site import Site
from node.migrate.tables import counted
from node.migrate.target_check import target_findings
from node.migrate.ways import QueuePlan, Selection, queue_plan, way_findings

FORMAT: Final = 1


class PlanInvalid(ValueError):
    """The file is no plan of a version that is known; the text is one line."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The part of a plan that the later steps go by.   host: None while neither end can run shovels."""

    rabbitmq: End
    fluffle: End | None
    host: Host | None
    selection: Selection

    def ends(self) -> Ends:
        """Return both ends. Raises: PlanInvalid, if the plan has one only, or no end for shovels."""
        if self.fluffle is None:
            raise PlanInvalid(
                "the plan was made without --to: make it again with the address of Fluffle's API"
            )
        if self.host is None:
            raise PlanInvalid(
                f"no end has the plug-in {SHOVEL_PLUGIN} enabled: run `rabbitmq-plugins enable {SHOVEL_PLUGIN}` at "
                "RabbitMQ, and make the plan again"
            )
        return Ends(self.rabbitmq, self.fluffle, self.host)


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan.   document: the definitions to import; not kept in the file."""

    settled: Settled
    queues: tuple[QueuePlan, ...]
    clients: tuple[Client, ...]
    groups: tuple[Group, ...]
    findings: tuple[Finding, ...]
    order: tuple[str, ...]
    document: Document

    @property
    def blocking(self) -> list[Finding]:
        """The findings that block."""
        return [each for each in self.findings if each.weight == "blocks"]


def plan(
    source: Site, target: Site | None, settled: Settled, taken_users: Mapping[str, str] | None = None
) -> Generator[None, None, Plan]:
    """Make the plan, in steps.   taken_users: password hashes of the users whom Fluffle has. Raises: PatternInvalid."""
    found = yield from document(
        source.definitions, abilities(target), users_of(target) if taken_users is None else taken_users
    )
    of_vhosts(found, settled.selection.vhosts)
    consumers = foreign_consumers(source.clients)
    chosen = sorted(settled.selection.takes(source.queues.values()), key=lambda each: each.key)
    plans = tuple(queue_plan(each, consumers.get(each.key, 0), found.left_queues) for each in chosen)
    findings = [
        *found.findings,
        *feature_findings(source, target),
        *client_findings(source, target),
        *way_findings(plans),
        *_of_shovels(settled, plans, source, target),
    ]
    if target is not None:
        findings += target_findings(source, target, [each.queue for each in plans if each.way != "stays"])
    clients = tuple(each for each in source.clients if not each.is_mover)
    together = tuple(groups(plans, clients))
    return Plan(
        settled, plans, clients, together, ordered(findings), _order(settled, plans, clients, together), found
    )


def users_of(target: Site | None) -> dict[str, str]:
    """Return the password hashes of the users whom the target has."""
    return (
        {}
        if target is None
        else {text(row, "name"): text(row, "password_hash") for row in rows(target.definitions.get("users"))}
    )


def _of_shovels(
    settled: Settled, plans: Sequence[QueuePlan], source: Site, target: Site | None
) -> list[Finding]:
    found = []
    moving = sum(each.way != "stays" for each in plans)
    if moving > QUEUE_MAX:
        found.append(
            Finding(
                "blocks",
                "queues",
                "",
                f"{moving:,} are too many at a time: at most {QUEUE_MAX:,} shovels",
                advice="move them in parts, by --vhost and --queues",
            )
        )
    if settled.host is None and shovel_host(source, target) is None:
        found.append(
            Finding(
                "blocks",
                "shovels",
                "",
                "can run at neither end",
                advice=f"rabbitmq-plugins enable {SHOVEL_PLUGIN} {SHOVEL_PLUGIN}_management, on each node of RabbitMQ",
            )
        )
    if settled.host == "rabbitmq" and source.shovels is None:
        found.append(
            Finding(
                "note",
                "shovels",
                "",
                "at RabbitMQ have no state over HTTP, so that why one fails is in RabbitMQ's log alone",
                advice=f"rabbitmq-plugins enable {SHOVEL_PLUGIN}_management",
            )
        )
    return found


def _order(
    settled: Settled, plans: Sequence[QueuePlan], clients: Sequence[Client], together: Sequence[Group]
) -> tuple[str, ...]:
    """Return the proposed order, a line for each step."""
    now = [each.queue for each in plans if each.way == "now"]
    later = [each.queue for each in plans if each.way == "after-consumers"]
    publishers = [each for each in clients if each.role != "consumes"]
    lines = [
        "take care of what blocks, and look at what differs",
        "start: definitions, then shovels for "
        f"{counted(len(now), 'queue')} without consumers ({counted(sum(each.messages for each in now), 'message')})",
    ]
    for number, group in enumerate(together, 1):
        lines.append(
            f"cut-over consumers, group {number} of {len(together)}: {', '.join(group.users)}, "
            f"{counted(group.connections, 'connection')}, {counted(len(group.queues), 'queue')}, "
            f"{group.rate:,.0f} messages/s"
        )
    if later and not together:
        lines.append(f"cut-over consumers: {len(later):,} queues")
    lines += [
        f"cut-over publishers: {counted(len(publishers), 'connection')}, when consumers are at Fluffle",
        "cut-over finish: when RabbitMQ's queues are empty, the shovels and their user are removed",
        "report; keep RabbitMQ, stopped, until you are sure",
    ]
    return tuple(lines)


# --- as JSON -----------------------------------------------------------------------------------------------


def as_json(made: Plan, created: str) -> dict[str, Json]:
    """Return the plan as JSON.   created: the time, as text."""
    settled = made.settled
    return {
        "format": FORMAT,
        "created": created,
        "rabbitmq": settled.rabbitmq.as_json(),
        "fluffle": None if settled.fluffle is None else settled.fluffle.as_json(),
        "shovels_at": settled.host,
        "selection": {"vhosts": list(settled.selection.vhosts), "pattern": settled.selection.pattern},
        "findings": [each.as_json() for each in made.findings],
        "queues": [_queue_json(each) for each in made.queues],
        "clients": [_client_json(each) for each in made.clients],
        "groups": [
            {
                "users": list(each.users),
                "queues": [list(key) for key in each.queues],
                "connections": each.connections,
                "rate": each.rate,
            }
            for each in made.groups
        ],
        "order": list(made.order),
    }


def _queue_json(planned: QueuePlan) -> Json:
    queue = planned.queue
    return {
        "vhost": queue.vhost,
        "name": queue.name,
        "type": queue.type,
        "way": planned.way,
        "reason": planned.reason,
        "messages": queue.messages,
        "messages_persistent": queue.persistent,
        "bytes": queue.bytes,
        "consumers": planned.consumers,
        "copies": queue.copies,
        "publish_rate": queue.publish_rate,
        "out_rate": queue.out_rate,
    }


def _client_json(client: Client) -> Json:
    return {
        "name": client.name,
        "user": client.user,
        "vhost": client.vhost,
        "protocol": client.protocol,
        "product": client.product,
        "label": client.label,
        "peer": client.peer,
        "node": client.node,
        "mechanism": client.mechanism,
        "tls": client.has_tls,
        "role": client.role,
        "queues": [list(key) for key in client.consumes],
    }


def settled_from_json(document: Json) -> Settled:
    """Return the part of a plan's JSON that later steps go by. Raises: PlanInvalid."""
    if not isinstance(document, dict) or count(document, "format") != FORMAT:
        raise PlanInvalid(f"is no plan of format {FORMAT}")
    selection = inner(document, "selection")
    try:
        rabbitmq = end_from_json(document, "rabbitmq")
        if rabbitmq is None:
            raise ValueError("rabbitmq is missing")
        return Settled(
            rabbitmq,
            end_from_json(document, "fluffle"),
            host_from_json(document),
            Selection(texts(selection.get("vhosts")), text(selection, "pattern")),
        )
    except ValueError as error:
        raise PlanInvalid(f"is no plan: {error}") from None
