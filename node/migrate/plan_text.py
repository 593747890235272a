"""A plan as text for a terminal."""

from collections.abc import Iterable, Sequence
from typing import Final

from node.migrate.clients import Client
from node.migrate.findings import count_by_weight
from node.migrate.findings import lines as finding_lines
from node.migrate.plan import Plan
from node.migrate.tables import amount, octets, shown, table
from node.migrate.ways import QueuePlan

QUEUES_SHOWN: Final = 40
CLIENTS_SHOWN: Final = 40
"""The most rows of a table; the JSON has all."""

_WAYS: Final = {"now": "from start on", "after-consumers": "when its consumers have left", "stays": "stays"}


def plan_text(plan: Plan, created: str) -> str:
    """Return the plan as text, each line ended."""
    settled, counts = plan.settled, count_by_weight(plan.findings)
    to = "not given (--to), so that only RabbitMQ was looked at"
    if settled.fluffle is not None:
        to = f"{settled.fluffle.url}  {settled.fluffle.product} {settled.fluffle.cluster_name}"
    rabbitmq = settled.rabbitmq
    lines = [
        f"Plan of {created}",
        "",
        f"from     {rabbitmq.url}  {rabbitmq.product} {rabbitmq.version} {rabbitmq.cluster_name}",
        f"         AMQP at {', '.join(rabbitmq.amqp) or 'no address'}",
        f"to       {to}",
    ]
    if settled.fluffle is not None:
        lines.append(f"         AMQP at {', '.join(settled.fluffle.amqp) or 'no address'}")
    lines.append(f"shovels  {'at ' + settled.host if settled.host else 'at neither end yet'}")
    lines += ["", *_sizes(plan), ""]
    lines.append(
        f"What differs or is not supported: {counts['blocks']:,} block, {counts['differs']:,} differ, "
        f"{counts['note']:,} notes"
    )
    lines += [f"  {line}" for line in finding_lines(plan.findings)] or ["  nothing"]
    lines += [
        "",
        "Queues",
        *_indented(_queues(plan.queues)),
        "",
        "Clients",
        *_indented(_clients(plan.clients)),
    ]
    lines += ["", "The order"]
    lines += [f"  {number}. {line}" for number, line in enumerate(plan.order, 1)]
    return "".join(f"{line}\n" for line in lines)


def _sizes(plan: Plan) -> list[str]:
    moving = [each.queue for each in plan.queues if each.way != "stays"]
    return [
        f"{len(moving):,} queues move, with {sum(each.messages for each in moving):,} messages of "
        f"{octets(sum(each.bytes for each in moving))}; {amount(sum(each.publish_rate for each in moving))}/s come in, "
        f"{amount(sum(each.out_rate for each in moving))}/s go out; {len(plan.clients):,} connections"
    ]


def _queues(plans: Sequence[QueuePlan]) -> list[str]:
    if not plans:
        return ["none"]
    longest = sorted(plans, key=lambda each: (-each.queue.messages, each.key))
    rows = [
        (
            shown(each.queue.vhost),
            shown(each.queue.name),
            each.queue.type,
            f"{each.queue.messages:,}",
            octets(each.queue.bytes),
            amount(each.queue.publish_rate),
            amount(each.queue.out_rate),
            f"{each.consumers:,}",
            _WAYS[each.way],
        )
        for each in longest[:QUEUES_SHOWN]
    ]
    head = ("vhost", "queue", "type", "messages", "size", "in/s", "out/s", "consumers", "moves")
    found = table(head, rows, right=(3, 4, 5, 6, 7))
    if len(plans) > QUEUES_SHOWN:
        found.append(f"and {len(plans) - QUEUES_SHOWN:,} with fewer messages; --json has all")
    return found


def _clients(clients: Sequence[Client]) -> list[str]:
    """Return a row for connections that differ in nothing that matters."""
    if not clients:
        return ["none"]
    alike: dict[tuple[str, ...], int] = {}
    for client in clients:
        row = (
            shown(client.vhost),
            shown(client.user),
            client.role,
            client.protocol + (" TLS" if client.has_tls else ""),
            client.mechanism,
            shown(client.product),
            shown(client.label or client.peer),
            _names(name for _, name in client.consumes),
        )
        alike[row] = alike.get(row, 0) + 1
    rows = [(str(number), *row) for row, number in list(alike.items())[:CLIENTS_SHOWN]]
    head = ("", "vhost", "user", "does", "protocol", "login", "library", "name", "consumes")
    found = table(head, rows, right=(0,))
    if len(alike) > CLIENTS_SHOWN:
        found.append(f"and {len(alike) - CLIENTS_SHOWN:,} more; --json has all")
    return found


def _names(names: Iterable[str]) -> str:
    found = [shown(name) for name in names]
    return ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]
