"""Sites are read from answers of whatever form, and a broker is told from something else."""

from typing import Any

import pytest

from node.migrate.clients import MOVER
from node.migrate.site import PATHS, SiteUnreadable, site
from tests.node.migrate.sites import (
    answers,
    channel_row,
    connection_row,
    consumer_row,
    counters,
    fluffle,
    queue_row,
    rabbit,
)


def test_a_queue_has_its_counters_and_rates() -> None:
    """All ways out of a queue count: acknowledged, and taken without."""
    row = queue_row("orders", 7, **counters(100, 80, 3))
    row["message_stats"] |= {"deliver_no_ack": 10, "get_no_ack": 3, "publish_details": {"rate": 5.5}}
    queue = rabbit([row]).queues["/", "orders"]
    assert (queue.messages, queue.publish, queue.out, queue.redelivered) == (7, 100, 93, 3)
    assert (queue.publish_rate, queue.out_rate) == (5.5, 0.0)


def test_a_queue_without_statistics_has_no_counters() -> None:
    queue = rabbit([queue_row("orders", 7)]).queues["/", "orders"]
    assert (queue.messages, queue.publish, queue.out) == (7, None, None)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"type": "rabbit_quorum_queue"}, "quorum"),
        ({"type": "quorum"}, "quorum"),
        ({"type": "rabbit_stream_queue"}, "stream"),
        ({"type": "", "arguments": {"x-queue-type": "quorum"}}, "quorum"),
        ({"type": ""}, "classic"),
    ],
)
def test_types_of_all_versions_are_known(row: dict[str, Any], expected: str) -> None:
    assert rabbit([queue_row("orders", **row)]).queues["/", "orders"].type == expected


def test_empty_objects_may_be_lists() -> None:
    """RabbitMQ writes `[]` for no arguments and no client properties."""
    found = rabbit(
        [queue_row("orders", arguments=[])], connections=[connection_row("c", client_properties=[])]
    )
    assert found.queues["/", "orders"].arguments == {}
    assert found.clients[0].product == "unknown client"


def test_nonsense_gives_defaults() -> None:
    """Values of wrong types are like missing ones."""
    wrong = {
        "name": "orders",
        "vhost": "/",
        "messages": "many",
        "consumers": -3,
        "message_stats": "undefined",
    }
    queue = site({**answers(), "queues": [wrong, 5, None]}).queues["/", "orders"]
    assert (queue.messages, queue.consumers, queue.publish) == (0, 0, 0)
    assert site(
        {
            "overview": {"rabbitmq_version": "3.8.9"},
            **dict.fromkeys(set(PATHS) - {"overview", "definitions"}, 5),
        }
    )


@pytest.mark.parametrize("overview", [None, [], {}, {"rabbitmq_version": 3}, "<html>"])
def test_something_else_is_no_broker(overview: Any) -> None:
    with pytest.raises(SiteUnreadable):
        site({"overview": overview})


def test_products_are_told_apart() -> None:
    assert not rabbit().is_fluffle
    assert fluffle().is_fluffle
    assert rabbit(version="4.1.0-rc.1").release == (4, 1)


def test_clients_have_a_role() -> None:
    """A channel in confirm mode publishes, though it has not yet."""
    found = rabbit(
        connections=[connection_row(name) for name in ("a", "b", "c", "d")],
        channels=[channel_row("a", 5), channel_row("c", confirm=True), channel_row("d")],
        consumers=[consumer_row("b", "orders"), consumer_row("c", "orders"), consumer_row("c", "orders")],
    )
    assert {client.name: client.role for client in found.clients} == {
        "a": "publishes",
        "b": "consumes",
        "c": "both",
        "d": "idle",
    }
    assert found.clients[2].consumes == (("/", "orders"),)


@pytest.mark.parametrize(
    "more", [{"user": MOVER}, {"user_provided_name": f"Shovel {MOVER} orders"}], ids=["user", "name"]
)
def test_shovels_of_the_migration_are_no_clients(more: dict[str, str]) -> None:
    """A shovel at RabbitMQ has its creator's user and a name, one at Fluffle the user of the migration."""
    assert rabbit(connections=[connection_row("a", **more)]).clients[0].is_mover


def test_plugins_are_those_of_all_running_nodes() -> None:
    found = answers()
    found["nodes"] = [
        {"name": "a", "running": True, "enabled_plugins": ["x", "y"]},
        {"name": "b", "running": True, "enabled_plugins": ["y"]},
        {"name": "c", "running": False, "enabled_plugins": []},
    ]
    assert site(found).plugins == {"y"}


def test_no_shovel_plugin_is_not_the_same_as_no_shovel() -> None:
    assert rabbit(shovels=None).shovels is None
    assert rabbit(shovels=[]).shovels == {}
