"""A step is refused while messages would be lost or stranded, and the reason says where."""

from typing import Any

import pytest

from node.migrate.counts import Reading
from node.migrate.cut_over import SETTLED_S, Step, is_settled, overtaking
from node.migrate.history import Record, shovel_record, stage_record
from node.migrate.move import Move
from node.migrate.procedure import Balancer, procedure
from node.migrate.shovels import Shovel
from node.migrate.ways import Selection
from tests.node.migrate.moves import move, reasons
from tests.node.migrate.sites import channel_row, connection_row, consumer_row, fluffle, queue_row, rabbit

ORDERS = Shovel("/", "orders", "out")
STARTED = stage_record("started", "out")
CARRIED = [STARTED, shovel_record(ORDERS, is_put=True)]
LET_GO = [*CARRIED, stage_record("publishers", "out")]
RUNNING = [{"vhost": "/", "name": ORDERS.name, "state": "running"}]


def there(records: list[Record], *, messages: int = 0, shovels: Any = RUNNING, **more: Any) -> Move:
    """One queue at both ends.   messages: at RabbitMQ.   more: of RabbitMQ."""
    source = rabbit([queue_row("orders", messages)], shovels=shovels, **more)
    return move(source, fluffle([queue_row("orders")]), records)


def consuming(**more: Any) -> dict[str, Any]:
    return {"connections": [connection_row("c", **more)], "consumers": [consumer_row("c", "orders")]}


@pytest.mark.parametrize("step", ["consumers", "publishers", "finish"])
def test_nothing_is_in_the_way(step: Step) -> None:
    assert reasons(there(LET_GO), step) == []


@pytest.mark.parametrize("stage", ["planned", "finished"])
def test_there_is_nothing_to_do(stage: Any) -> None:
    [reason] = reasons(there([stage_record(stage, "out")]), "consumers")
    assert "begun" in reason or "finished" in reason


def test_objects_that_came_after_the_start() -> None:
    """A message that is routed by a binding which the target lacks would be dropped there."""
    rows = [queue_row("orders"), queue_row("fresh")]
    bound = {"vhost": "/", "source": "amq.topic", "destination": "orders", "destination_type": "queue"}
    definitions = {"bindings": [{**bound, "routing_key": "a", "arguments": {}}]}
    found = reasons(move(rabbit(rows, definitions=definitions), fluffle(rows[:1]), CARRIED), "consumers")
    assert any("queue 'fresh'" in each and "start" in each for each in found)
    assert any("binding 'amq.topic' → 'orders'" in each for each in found)


def test_passing_queues_are_declared_by_their_clients() -> None:
    """A queue that goes with its last consumer is nothing to wait for, and neither are its bindings."""
    rows = [queue_row("reply", auto_delete=True)]
    bound = {"vhost": "/", "source": "amq.topic", "destination": "reply", "destination_type": "queue"}
    definitions = {"bindings": [{**bound, "routing_key": "a", "arguments": {}}]}
    assert reasons(move(rabbit(rows, definitions=definitions), fluffle(), [STARTED]), "consumers") == []


def test_the_target_takes_no_messages() -> None:
    source = rabbit([queue_row("orders")])
    target = fluffle([queue_row("orders")], node={"disk_free_alarm": True})
    assert "disk alarm" in reasons(move(source, target, [STARTED]), "consumers")[0]


def test_clients_that_the_target_refuses() -> None:
    assert any("TLS" in each for each in reasons(there(CARRIED, **consuming(ssl=True)), "consumers"))


@pytest.mark.parametrize(
    ("shovels", "word"),
    [
        ([], "missing"),
        ([{**RUNNING[0], "state": "terminated", "reason": "{auth_failure,…}"}], "auth_failure"),
    ],
)
def test_a_shovel_that_does_not_run(shovels: Any, word: str) -> None:
    [reason] = reasons(there(CARRIED, shovels=shovels), "publishers")
    assert "'orders'" in reason
    assert word in reason


def test_without_the_state_of_shovels_none_is_missed() -> None:
    assert reasons(there(CARRIED, shovels=None), "publishers") == []


def test_publishers_wait_for_consumers() -> None:
    """Messages that are published at the target would not reach consumers at the source."""
    [reason] = reasons(there([STARTED], **consuming()), "publishers")
    assert "1 consumer at RabbitMQ still" in reason
    [reason] = reasons(there([STARTED]), "publishers")
    assert "no shovel" in reason


def test_a_queue_that_drops_what_waits_needs_a_consumer() -> None:
    """Consumers that were at the source and are nowhere would find a part of the messages later."""
    row = queue_row("orders", arguments={"x-max-length": 100})
    source = rabbit([row], shovels=RUNNING)
    for consumers, count in ((0, 1), (1, 0)):
        target = fluffle([{**row, "consumers": consumers}])
        found = reasons(move(source, target, CARRIED, consumed={("/", "orders"): 1}), "publishers")
        assert len(found) == count


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"messages": 3}, "3 messages at RabbitMQ"),
        ({"connections": [connection_row("p")], "channels": [channel_row("p", 5)]}, "connection 'p'"),
        ({"exchanges": [{"vhost": "/", "name": "later", "messages_delayed": 4}]}, "delays 4 messages"),
    ],
)
def test_the_end_waits_for_what_is_left(more: dict[str, Any], word: str) -> None:
    [reason] = reasons(there(LET_GO, **more), "finish")
    assert word in reason


def test_the_end_waits_for_queues_that_were_never_moved() -> None:
    """A queue that came after the start and has messages would be left behind."""
    source = rabbit([queue_row("orders"), queue_row("fresh", 5, durable=False)], shovels=RUNNING)
    [reason] = reasons(move(source, fluffle([queue_row("orders")]), LET_GO), "finish")
    assert "'fresh'" in reason


def test_a_part_of_the_queues_does_not_wait_for_all_clients() -> None:
    """Connections of queues that stay for now are not counted; queues that still get messages are."""
    busy = {"message_stats": {"publish": 9, "publish_details": {"rate": 2.0}}}
    source = rabbit([queue_row("orders", **busy)], connections=[connection_row("p")], shovels=RUNNING)
    [reason] = reasons(
        move(source, fluffle([queue_row("orders")]), LET_GO, selection=Selection((), "^orders$")), "finish"
    )
    assert "2.0 messages/s" in reason


def test_empty_once_is_not_empty() -> None:
    """RabbitMQ's numbers are some seconds old: two looks have to agree, and nothing may have come in between."""
    key = ("/", "q")
    empty = {key: Reading(key, 0, 5, 5)}
    assert is_settled(empty, empty, SETTLED_S)
    assert not is_settled(empty, empty, SETTLED_S - 1)
    assert not is_settled(empty, {key: Reading(key, 0, 6, 6)}, SETTLED_S)
    assert not is_settled(empty, {key: Reading(key, 1, 5, 5)}, SETTLED_S)
    assert not is_settled(empty, {}, SETTLED_S)


def test_overtaking_is_told() -> None:
    """A message that is overtaken is not lost: that is no reason to refuse."""
    found = there(CARRIED, messages=50)
    assert reasons(found, "publishers") == []
    assert "50 messages of 1 queue are" in overtaking(found)
    assert overtaking(there(CARRIED)) == ""


def test_a_way_back_is_judged_from_the_other_end() -> None:
    back = Shovel("/", "orders", "back")
    records = [stage_record("publishers", "back"), shovel_record(back, is_put=True)]
    shovels = [{"vhost": "/", "name": back.name, "state": "running"}]
    found = move(rabbit([queue_row("orders")], shovels=shovels), fluffle([queue_row("orders", 7)]), records)
    assert reasons(found, "finish") == ["queue 'orders' in '/' has 7 messages at Fluffle"]


# --- the commands -------------------------------------------------------------------------------------------


def test_consumers_go_before_publishers_through_one_address() -> None:
    """New connections go to the target, and only connections that consume are closed."""
    rows = [connection_row(name) for name in ("c", "p 1 -> 2")]
    found = there(
        CARRIED,
        connections=rows,
        consumers=[consumer_row("c", "orders")],
        channels=[channel_row("p 1 -> 2", 1)],
    )
    lines = procedure(found, "consumers", Balancer("brokers", "/s"))
    assert 'echo "set server brokers/fluffle1 state ready" | socat stdio /s' in lines
    assert 'echo "set server brokers/rabbitmq2 state drain" | socat stdio /s' in lines
    assert [each for each in lines if "disabled" in each and "server fluffle1 f1:5672" in each]
    closing = [each for each in lines if each.startswith("curl")]
    assert len(closing) == 1
    assert "'http://r:15672/api/connections/c'" in closing[0]
    rest = [each for each in procedure(found, "publishers", Balancer()) if each.startswith("curl")]
    assert any("/connections/p%201%20-%3E%202'" in each for each in rest)


def test_names_of_clients_cannot_add_commands() -> None:
    """A client chooses the name that it shows: it stands behind a comment, on one line."""
    found = there(CARRIED, **consuming(user_provided_name="x\nrm -rf /'"))
    lines = procedure(found, "consumers", Balancer())
    assert all("\n" not in each for each in lines)
    assert [each.partition("  # ")[2] for each in lines if "rm -rf" in each] == [
        "app@/, consumes, x?rm -rf /'"
    ]


def test_many_connections_are_not_listed() -> None:
    found = there(CARRIED, connections=[connection_row(f"c{number}") for number in range(51)])
    assert procedure(found, "publishers", Balancer())[-1] == "fluffle migrate cut-over publishers --close"


def test_a_group_alone() -> None:
    rows = [connection_row("a", user="a"), connection_row("b", user="b")]
    consumers = [consumer_row("a", "orders"), consumer_row("b", "orders")]
    lines = procedure(there(CARRIED, connections=rows, consumers=consumers), "consumers", Balancer(), ["a@/"])
    assert next(each for each in lines if each.startswith("curl")).endswith("# a@/, consumes, pika 1.3.2")
