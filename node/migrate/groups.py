"""The order in which clients move: groups of users whose consumers share queues, directly or through others.

A group moves at once. Publishers cannot be told by queue from RabbitMQ's API, so that they follow all consumers.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from node.migrate.clients import Client
from node.migrate.queues import Key
from node.migrate.ways import QueuePlan


@dataclass(frozen=True, slots=True)
class Group:
    """Users whose consumers share queues, directly or through others: they move together.

    users: with their vhosts.   connections: how many.   rate: of deliveries, in messages a second.
    """

    users: tuple[str, ...]
    queues: tuple[Key, ...]
    connections: int
    rate: float


def groups(plans: Iterable[QueuePlan], clients: Iterable[Client]) -> list[Group]:
    """Return the groups of consumers, those with the least traffic first: what is learnt there spares the others."""
    by_key = {plan.key: plan.queue for plan in plans if plan.way != "stays"}
    parents: dict[str, str] = {}

    def root(member: str) -> str:
        while parents.setdefault(member, member) != member:
            parents[member] = parents[parents[member]]
            member = parents[member]
        return member

    users_of: dict[str, set[str]] = {}
    queues_of: dict[str, set[Key]] = {}
    count_of: dict[str, int] = {}
    for client in clients:
        keys = [key for key in client.consumes if key in by_key]
        if client.is_mover or not keys:
            continue
        user = f"{client.user}@{client.vhost}"
        count_of[user] = count_of.get(user, 0) + 1
        queues_of.setdefault(user, set()).update(keys)
        for key in keys:
            parents[root(f"q{key}")] = root(f"u{user}")
    for user in count_of:
        users_of.setdefault(root(f"u{user}"), set()).add(user)
    found = []
    for users in users_of.values():
        keys = sorted(set().union(*(queues_of[user] for user in users)))
        rate = sum(by_key[key].out_rate for key in keys)
        found.append(Group(tuple(sorted(users)), tuple(keys), sum(count_of[user] for user in users), rate))
    return sorted(found, key=lambda each: (each.rate, each.users))
