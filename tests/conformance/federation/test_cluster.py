"""Links of a cluster of three processes: they are spread, and move when the node that runs one is killed.

RabbitMQ's links move too; what is promised here is docs/federation.md's.
"""

import json
from collections.abc import Iterator
from typing import Any, cast

import pytest

from node.amqp import methods as m
from node.catalogue.commands import SetParameter
from node.io.control import ControlError, request
from tests.conformance.federation.place import Place
from tests.kit.amqp_client import Connection, ConnectionEnded
from tests.kit.fluffle_cluster import FluffleNode
from tests.kit.mirror_steps import set_mirroring
from tests.kit.patience import wait_until
from tests.kit.server_cluster import Cluster, ClusterNode, is_rabbitmq, start_cluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(is_rabbitmq(), reason="where a link runs is Fluffle's own"),
]

EXCHANGES = tuple(f"moved-{number}" for number in range(6))


@pytest.fixture(scope="module")
def up() -> Iterator[Place]:
    """An upstream outside of the cluster."""
    place = Place("fluffle", "west")
    yield place
    place.stop()


@pytest.fixture(scope="module")
def down(up: Place) -> Iterator[Cluster]:
    """A cluster with a federated exchange for each name, all bound to one mirrored queue."""
    cluster = start_cluster({"cluster_name": "east"})
    first = cluster[0]
    first.admin.enable_plugin("rabbitmq_federation")  # type: ignore[attr-defined]
    set_mirroring(first, "^moved-q$", "all", ha_sync_mode="automatic")
    connection = connected(first)
    channel = connection.channel()
    channel.call(m.QueueDeclare, queue="moved-q", durable=True)
    for exchange in EXCHANGES:
        channel.call(m.ExchangeDeclare, exchange=exchange, type="fanout", durable=True)
        channel.call(m.QueueBind, queue="moved-q", exchange=exchange)
    connection.abandon()
    control(cluster, 0, "set_parameter", SetParameter("/", "federation-upstream", "west", {"uri": up.uri}))
    first.admin.set_policy(
        "/", "moved", "^moved-[0-9]$", {"federation-upstream": "west"}, apply_to="exchanges"
    )
    yield cluster
    cluster.stop()


def connected(node: ClusterNode) -> Connection:
    """Connect to a node, which may be paused for a moment on a busy machine."""

    def connect() -> Connection | None:
        try:
            return Connection(node)
        except (ConnectionEnded, OSError):
            return None

    found = wait_until(connect, f"a connection to {node.name}")
    assert found is not None
    return found


def control(cluster: Cluster, at: int, operation: str, command: SetParameter) -> None:
    """Set a parameter as `fluffle ctl` does."""
    arguments = {
        "vhost": command.vhost,
        "component": command.component,
        "name": command.name,
        "value": json.dumps(command.value),
    }
    request(cast(FluffleNode, cluster[at]).data, operation, arguments, timeout_s=30.0)


def links(node: object) -> list[dict[str, Any]]:
    """Return the links that a node runs; none if it is not there."""
    try:
        answer = request(cast(FluffleNode, node).data, "federation_status", {}, timeout_s=10.0)
    except (ControlError, OSError):
        return []
    return list(answer["rows"])


def running(cluster: Cluster, *at: int) -> dict[str, int]:
    """Return the nodes of the links that run, by exchange."""
    return {
        row["exchange"]: number
        for number in at
        for row in links(cluster[number])
        if row["status"] == "running"
    }


def test_links_are_spread_and_move_without_a_loss(up: Place, down: Cluster) -> None:
    """All links run, on more than one node; those of a killed node go on elsewhere, and no message is lost."""
    wait_until(
        lambda: running(down, 0, 1, 2).keys() == set(EXCHANGES), lambda: f"links: {running(down, 0, 1, 2)}"
    )
    before = running(down, 0, 1, 2)
    assert len(set(before.values())) > 1
    victim = next(number for number in (2, 1) if number in before.values())
    others = [number for number in (0, 1, 2) if number != victim]
    sent = []

    def publish(round_: int) -> None:
        for exchange in EXCHANGES:
            bodies = [f"{exchange}-{round_}-{number}".encode() for number in range(20)]
            up.publish(exchange, "", *bodies)
            sent.extend(bodies)

    publish(0)
    down[victim].kill()
    publish(1)
    wait_until(
        lambda: running(down, *others).keys() == set(EXCHANGES), lambda: f"links: {running(down, *others)}"
    )
    publish(2)
    after = running(down, *others)
    assert all(after[each] == before[each] for each in EXCHANGES if before[each] != victim)
    connection = connected(down[others[0]])
    channel = connection.channel()
    seen: list[bytes] = []

    def have_come() -> bool:
        while (content := channel.get("moved-q")) is not None:
            seen.append(content.body)
        return set(seen) == set(sent)

    wait_until(have_come, lambda: f"{len(set(sent) - set(seen))} of {len(sent)} are missing")
    connection.abandon()
    down.heal()
