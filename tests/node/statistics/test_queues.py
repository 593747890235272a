"""Rows of queues: what only their master's node knows (management §1.3, §1.12)."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from node.amqp.field_table import boolean, long, longstr
from node.amqp.methods import (
    BasicAck,
    BasicConsume,
    BasicGet,
    BasicQos,
    ConfirmSelect,
    QueueDeclare,
    QueueDelete,
)
from node.amqp.properties import Properties
from node.broker.broker import Broker
from node.queue.mirroring import MirrorStatus, QueueReplicator, SyncProgress
from node.queue.queue import Queue
from node.statistics.options import StatisticsOptions
from node.statistics.query import Query, Range, Ranges
from node.statistics.queues import MESSAGES_LOOKED_AT, RUNS_LOOKED_AT
from tests.kit.statistics_samples import TIME_MS, Watched

PERSISTENT = Properties(delivery_mode=2)


def watched(*names: str, durable: bool = True) -> Any:
    found = Watched()
    client = found.world.client(1, 2)
    for name in names:
        client.ask(1, QueueDeclare(queue=name, durable=durable))
    return found, client


def test_a_fresh_queue_has_all_of_it_at_once() -> None:
    """§1.0: zeros at once, where RabbitMQ has nothing until its first tick."""
    found, _ = watched("q")
    row = found.queue("q")
    assert {
        name: row[name] for name in row if isinstance(row[name], int) and name != "memory"
    } == dict.fromkeys(
        (
            *("messages", "messages_ready", "messages_unacknowledged"),
            *("messages_ready_ram", "messages_unacknowledged_ram", "messages_ram"),
            *("messages_persistent", "messages_paged_out", "message_bytes", "message_bytes_ready"),
            *("message_bytes_unacknowledged", "message_bytes_ram", "message_bytes_persistent"),
            *("message_bytes_paged_out", "consumers", "consumer_capacity", "consumer_utilisation"),
            "reductions",
        ),
        0,
    )
    assert row["memory"] > 0
    assert row["state"] == "running"
    assert row["messages_details"] == {"rate": 0.0}
    for name in ("exclusive_consumer_tag", "single_active_consumer_tag", "head_message_timestamp"):
        assert row[name] is None
    assert row["backing_queue_status"]["mode"] == "default"
    assert set(row["garbage_collection"].values()) == {-1}
    assert not {"message_stats", "idle_since", "owner_pid_details", "mirrors"} & set(row)


def test_lengths_and_their_rates() -> None:
    found, client = watched("q")
    found.tick()
    client.publish(1, "q", b"abc", b"de")
    client.ask(2, BasicGet(queue="q"))
    found.tick()
    row = found.queue("q")
    assert (row["messages"], row["messages_ready"], row["messages_unacknowledged"]) == (2, 1, 1)
    assert (row["message_bytes"], row["message_bytes_ready"], row["message_bytes_unacknowledged"]) == (
        5,
        2,
        3,
    )
    assert row["messages_ram"] == 2
    assert row["messages_details"] == {"rate": 0.4}
    assert row["messages_unacknowledged_details"] == {"rate": 0.2}


def test_counters_of_a_table_appear_together_once_one_has_moved() -> None:
    """§1.12: publish by itself; deliveries, gets and acknowledgements together, as a live RabbitMQ has it."""
    found, client = watched("q")
    client.publish(1, "q", b"a")
    assert found.queue("q")["message_stats"] == {"publish": 1, "publish_details": {"rate": 0.0}}
    client.ask(2, BasicGet(queue="q"))
    stats = found.queue("q")["message_stats"]
    assert {name: stats[name] for name in stats if not name.endswith("_details")} == {
        "publish": 1,
        "get": 1,
        "deliver_get": 1,
        **dict.fromkeys(("deliver", "deliver_no_ack", "get_no_ack", "get_empty", "redeliver", "ack"), 0),
    }
    assert set(stats) == {name + end for name in stats for end in ("", "_details") if "_details" not in name}


def test_message_rates() -> None:
    found, client = watched("q")
    client.send(2, BasicConsume(queue="q", consumer_tag="t"))
    client.received()
    found.tick()
    client.publish(1, "q", *[b"x"] * 10)
    client.received()
    client.send(2, BasicAck(5, multiple=True))
    found.tick()
    stats = found.queue("q")["message_stats"]
    assert (stats["publish"], stats["deliver"], stats["deliver_get"], stats["ack"]) == (10, 10, 10, 5)
    assert stats["publish_details"] == {"rate": 2.0}
    assert stats["deliver_get_details"] == {"rate": 2.0}
    assert stats["ack_details"] == {"rate": 1.0}
    flows = found.queue("q")["backing_queue_status"]
    assert (flows["avg_ingress_rate"], flows["avg_egress_rate"]) == (2.0, 2.0)
    assert (flows["avg_ack_ingress_rate"], flows["avg_ack_egress_rate"]) == (2.0, 1.0)


def test_numbers_of_messages_begin_with_0() -> None:
    """As RabbitMQ's: next_seq_id is how many came, next_deliver_seq_id how many of them left."""
    found, client = watched("q")
    client.publish(1, "q", b"a", b"b", b"c")
    client.ask(2, BasicGet(queue="q"))
    status = found.queue("q")["backing_queue_status"]
    assert (status["next_seq_id"], status["next_deliver_seq_id"], status["len"]) == (3, 1, 2)


def test_idle_since() -> None:
    """§1.3: only while it is idle; the state stays running."""
    found, client = watched("q")
    found.tick()
    assert "idle_since" in found.queue("q")
    client.publish(1, "q", b"a")
    assert "idle_since" not in found.queue("q")  # at once
    found.tick()
    assert "idle_since" not in found.queue("q")
    found.tick(2)
    row = found.queue("q")
    assert row["idle_since"] == "2023-11-14T22:13:30.000+00:00"
    assert row["state"] == "running"


def test_samples() -> None:
    """§1.0: lengths_* for messages, msg_rates_* for message_stats; the others have their rate alone."""
    found, client = watched("q")
    found.tick()
    client.publish(1, "q", b"a", b"b")
    found.tick()
    row = found.queue("q", Query(ranges=Ranges(lengths=Range(10, 5))))
    assert row["messages_details"] == {
        "rate": 0.4,
        "samples": [
            {"sample": 2, "timestamp": TIME_MS + 10_000},
            {"sample": 0, "timestamp": TIME_MS + 5_000},
            {"sample": 0, "timestamp": TIME_MS},
        ],
        "avg": 2 / 3,
        "avg_rate": 0.2,
    }
    assert row["message_stats"]["publish_details"] == {"rate": 0.4}
    row = found.queue("q", Query(ranges=Ranges(msg_rates=Range(10, 5))))
    assert row["messages_details"] == {"rate": 0.4}
    assert [each["sample"] for each in row["message_stats"]["publish_details"]["samples"]] == [2, 0, 0]


def test_persistent_messages() -> None:
    """Persistent messages are those that would survive: in a durable queue."""
    found, client = watched("q")
    client.publish(1, "q", b"12345", properties=PERSISTENT)
    client.publish(1, "q", b"123")
    row = found.queue("q")
    assert (row["messages_persistent"], row["message_bytes_persistent"]) == (1, 5)
    client.ask(1, QueueDeclare(queue="transient"))
    client.publish(1, "transient", b"12345", properties=PERSISTENT)
    assert found.queue("transient")["messages_persistent"] == 0


def test_persistent_messages_of_a_long_queue_are_reckoned_from_its_head() -> None:
    found, client = watched("q")
    for number in range(RUNS_LOOKED_AT * 2):
        client.publish(1, "q", b"a" * 10, properties=PERSISTENT if number % 2 else None)
    row = found.queue("q")
    assert row["messages_persistent"] == RUNS_LOOKED_AT
    assert row["message_bytes_persistent"] == RUNS_LOOKED_AT * 10
    assert MESSAGES_LOOKED_AT > RUNS_LOOKED_AT


def test_persistent_messages_that_are_out_with_clients() -> None:
    found, client = watched("q")
    client.publish(1, "q", b"12345", properties=PERSISTENT)
    client.ask(2, BasicGet(queue="q"))
    assert found.queue("q")["messages_persistent"] == 1


def test_head_message_timestamp() -> None:
    """§1.3: of the next message to go out, in seconds; null without."""
    found, client = watched("q")
    client.publish(1, "q", b"a", properties=Properties(timestamp=1_600_000_000, app_id="x"))
    client.publish(1, "q", b"b", properties=Properties(app_id="x", headers={"t": long(5)}))
    assert found.queue("q")["head_message_timestamp"] == 1_600_000_000
    client.ask(2, BasicGet(queue="q"))
    assert found.queue("q")["head_message_timestamp"] is None


def test_head_message_timestamp_of_the_highest_priority() -> None:
    found, client = watched()
    client.ask(1, QueueDeclare(queue="q", arguments={"x-max-priority": long(5)}))
    client.publish(1, "q", b"a", properties=Properties(timestamp=1, priority=1))
    client.publish(1, "q", b"b", properties=Properties(timestamp=4, priority=4))
    row = found.queue("q")
    assert row["head_message_timestamp"] == 4
    assert row["backing_queue_status"]["priority_lengths"]["4"] == 1


def test_consumers() -> None:
    found, client = watched("q")
    client.send(1, BasicConsume(queue="q", consumer_tag="only", exclusive=True))
    client.received()
    row = found.queue("q", Query(is_detailed=True))
    assert (row["consumers"], row["exclusive_consumer_tag"]) == (1, "only")
    assert row["consumer_capacity"] == row["consumer_utilisation"] == 1.0
    [consumer] = row["consumer_details"]
    assert (consumer["consumer_tag"], consumer["queue"]) == ("only", {"name": "q", "vhost": "/"})
    assert row["incoming"] == row["deliveries"] == []


def test_single_active_consumer() -> None:
    found, client = watched()
    client.ask(1, QueueDeclare(queue="q", arguments={"x-single-active-consumer": boolean(True)}))
    for tag in ("first", "second"):
        client.send(1, BasicConsume(queue="q", consumer_tag=tag))
    client.received()
    row = found.queue("q", Query(is_detailed=True))
    assert row["single_active_consumer_tag"] == "first"
    assert [
        (each["consumer_tag"], each["active"], each["activity_status"]) for each in row["consumer_details"]
    ] == [
        ("first", True, "single_active"),
        ("second", False, "waiting"),
    ]


def test_groups() -> None:
    found, client = watched()
    client.ask(1, QueueDeclare(queue="q", arguments={"x-group-header": longstr("g")}))
    client.ask(1, QueueDeclare(queue="plain"))
    client.ask(1, BasicQos(prefetch_count=1))
    for tag in ("first", "second"):
        client.send(1, BasicConsume(queue="q", consumer_tag=tag))
    for group in ("a", "a", "a", "b", "a"):
        client.publish(1, "q", b"m", properties=Properties(headers={"g": longstr(group)}))
    client.received()
    assert found.queue("q")["message_groups"] == {"held": 2, "blocked": 3}
    assert "message_groups" not in found.queue("plain")


def test_deduplication() -> None:
    found, client = watched()
    client.ask(1, QueueDeclare(queue="q", arguments={"x-message-deduplication": boolean(True)}))
    client.ask(1, QueueDeclare(queue="plain"))
    for id_ in ("a", "b", "a"):
        headers = {"x-deduplication-header": longstr(id_)}
        client.publish(1, "q", b"m", properties=Properties(headers=headers))
    client.received()
    row = found.queue("q")
    assert (row["message_deduplication"], row["messages"]) == ({"ids": 2, "duplicates": 1}, 2)
    assert "message_deduplication" not in found.queue("plain")


def test_consumers_that_cannot_take_messages() -> None:
    """§1.3: the part of the time in which one could."""
    found, client = watched("q")
    client.ask(1, BasicQos(prefetch_count=1))
    client.send(1, BasicConsume(queue="q"))
    client.publish(2, "q", b"a", b"b")
    client.received()
    found.tick()
    assert found.queue("q")["consumer_utilisation"] == 0.5
    found.tick(3)
    assert found.queue("q")["consumer_capacity"] < 0.1
    for tag in (1, 2):
        client.send(1, BasicAck(tag))
        client.received()
    found.tick(20)
    assert found.queue("q")["consumer_utilisation"] == 1.0


def test_the_owner_of_an_exclusive_queue() -> None:
    found, client = watched()
    client.ask(1, QueueDeclare(queue="q", exclusive=True))
    assert found.queue("q")["owner_pid_details"] == {
        "name": client.connection.name,
        "peer_host": "127.0.0.1",
        "peer_port": 0,
    }


def test_only_what_is_asked_for() -> None:
    found, client = watched("q", "other")
    client.publish(1, "q", b"a")
    uid = found.world.queue("q").record.uid
    fields = frozenset({"messages", "consumers", "nothing"})
    assert found.rows("queues", Query(ids=(uid, "gone"), fields=fields)) == [
        {"id": uid, "messages": 1, "consumers": 0}
    ]
    assert [set(row) for row in found.rows("queues", Query(fields=frozenset()))] == [{"id"}] * 2
    assert found.rows("queues", Query(vhost="elsewhere")) == []
    assert found.rows("queues", Query(ids=())) == []


def test_a_new_queue_is_found_by_its_id_and_a_deleted_one_is_not() -> None:
    found, client = watched("q")
    uid = found.world.queue("q").record.uid
    assert len(found.rows("queues", Query(ids=(uid,)))) == 1
    client.ask(1, QueueDelete(queue="q"))
    client.ask(1, QueueDeclare(queue="q"))
    assert found.rows("queues", Query(ids=(uid,))) == []
    assert len(found.rows("queues", Query(ids=(found.world.queue("q").record.uid,)))) == 1


def test_queues_that_come_and_go_while_rows_are_taken() -> None:
    found, client = watched("a", "b", "c")
    rows = found.statistics.rows("queues", Query(fields=frozenset({"messages"})))
    next(rows)
    client.ask(1, QueueDeclare(queue="new"))
    client.ask(1, QueueDelete(queue="c"))
    assert len(list(rows)) == 1


def test_a_deleted_queue_drops_its_series() -> None:
    found, client = watched("q")
    client.publish(1, "q", b"a")
    found.tick(2)
    uid = found.world.queue("q").record.uid
    assert found.statistics._watches.queues.get(uid) is not None
    client.ask(1, QueueDelete(queue="q"))
    found.tick()
    assert found.statistics._watches.queues.get(uid) is None


def test_a_quorum_queue_has_no_backing_queue() -> None:
    found, _ = watched("q")
    queue = found.world.queue("q")
    queue.record = replace(queue.record, type="quorum")
    assert "backing_queue_status" not in found.queue("q")


def test_without_counters_of_messages() -> None:
    """rates_mode none."""
    found = Watched(StatisticsOptions(rates_mode="none"))
    client = found.world.client()
    client.ask(1, QueueDeclare(queue="q"))
    client.publish(1, "q", b"a")
    found.tick(2)
    row = found.queue("q")
    assert row["messages_details"] == {"rate": 0.0}
    assert "message_stats" not in row


def test_without_statistics() -> None:
    """Counts are there, nothing over time is."""
    found = Watched(StatisticsOptions(is_on=False))
    client = found.world.client()
    client.ask(1, QueueDeclare(queue="q"))
    client.ask(1, ConfirmSelect())
    client.publish(1, "q", b"a")
    found.tick(2)
    row = found.queue("q", Query(ranges=Ranges(Range(10, 5), Range(10, 5))))
    assert row["messages"] == 1
    assert row["message_stats"] == {"publish": 1}
    assert not [name for name in row if name.endswith("_details")] or set(row) & {"reductions_details"}
    assert "messages_details" not in row


# --- mirrors ---


class FakeMirrors:
    """Says how far the mirrors of all queues are."""

    def __init__(self, status: MirrorStatus) -> None:
        self._status = status

    def status(self, record: object) -> MirrorStatus:
        return self._status


def mirrored(queue: Queue, broker: Broker, **status: Any) -> None:
    queue.replicator = cast(QueueReplicator, SimpleNamespace())
    base = MirrorStatus(3, "live", "a@h", ("b@h", "c@h"), ("a@h", "b@h"), ("a@h", "b@h", "c@h"))
    broker.mirrors = cast(Any, FakeMirrors(replace(base, **status)))


def test_mirrors() -> None:
    """management §4.4 rows 1, 2: how far each is, and how many messages an unsynchronised one lacks."""
    found, _ = watched("q")
    sync = {"c@h": SyncProgress(5, 17, True)}
    mirrored(found.world.queue("q"), found.broker, pending=4, sync=sync, lacks={"c@h": 12})
    row = found.queue("q")
    assert row["mirrors"] == [
        {"node": "b@h", "synced": True, "behind": 4, "lacks": 0, "sync": None},
        {
            "node": "c@h",
            "synced": False,
            "behind": 4,
            "lacks": 12,
            "sync": {"installed": 5, "total": 17, "is_running": True},
        },
    ]


def test_a_synchronisation_shows_as_the_state() -> None:
    """§1.3: syncing, with the messages that have been copied."""
    found, _ = watched("q")
    queue = found.world.queue("q")
    mirrored(queue, found.broker, sync={"c@h": SyncProgress(5, 17, True)})
    row = found.queue("q")
    assert (row["state"], row["sync_messages"]) == ("syncing", 5)
    mirrored(queue, found.broker, sync={"c@h": SyncProgress(17, 17, False)})
    row = found.queue("q")
    assert row["state"] == "running"
    assert "sync_messages" not in row
