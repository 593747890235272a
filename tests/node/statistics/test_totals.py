"""A node's totals are sums over its queues, channels and connections (management §1.1)."""

from types import SimpleNamespace
from typing import Any, cast

from node.amqp.methods import BasicConsume, ChannelClose, QueueDeclare, QueueDelete
from node.catalogue.commands import NodeDown, NodeUp, PutMember, PutVhost
from node.statistics.options import StatisticsOptions
from node.statistics.query import Query, Range, Ranges
from tests.kit.statistics_samples import Watched


def test_before_the_first_tick() -> None:
    """§1.1: queue_totals is {} when nothing has reported."""
    found = Watched()
    assert found.statistics.totals(Query()) == {
        "message_stats": {},
        "churn_rates": {},
        "queue_totals": {},
        "object_totals": {"connections": 0, "channels": 0, "consumers": 0, "exchanges": 7, "queues": 0},
    }


def test_totals() -> None:
    found = Watched()
    client = found.world.client(1, 2)
    found.tick()
    client.ask(1, QueueDeclare(queue="q"))
    client.ask(1, QueueDeclare(queue="q", passive=True))
    client.publish(1, "q", b"a", b"b")
    client.received()
    found.tick()
    totals = found.statistics.totals(Query())
    assert totals["queue_totals"] == {
        "messages": 2,
        "messages_details": {"rate": 0.4},
        "messages_ready": 2,
        "messages_ready_details": {"rate": 0.4},
        "messages_unacknowledged": 0,
        "messages_unacknowledged_details": {"rate": 0.0},
    }
    stats = totals["message_stats"]
    assert stats["publish"] == 2
    assert stats["publish_details"] == {"rate": 0.4}
    churn = totals["churn_rates"]
    assert {name: churn[name] for name in churn if not name.endswith("_details")} == {
        "connection_created": 1,
        "connection_closed": 0,
        "channel_created": 2,
        "channel_closed": 0,
        "queue_declared": 2,
        "queue_created": 1,
        "queue_deleted": 0,
    }
    assert churn["queue_declared_details"] == {"rate": 0.4}
    assert totals["object_totals"] == {
        "connections": 1,
        "channels": 2,
        "consumers": 0,
        "exchanges": 7,
        "queues": 1,
    }


def test_what_is_gone_still_counts() -> None:
    """Counters never fall, whatever ends."""
    found = Watched()
    client = found.world.client(1, 2)
    client.ask(1, QueueDeclare(queue="q"))
    client.send(2, BasicConsume(queue="q", no_ack=True))
    client.publish(1, "q", b"a", b"b")
    client.received()
    found.tick()
    client.ask(1, QueueDelete(queue="q"))
    client.received()
    client.send(1, ChannelClose(200, "bye", 0, 0))
    client.received()
    client.lose()
    found.tick()
    stats = found.statistics.totals(Query())["message_stats"]
    assert (stats["publish"], stats["deliver_no_ack"]) == (2, 2)
    assert stats["publish_details"] == {"rate": 0.0}


def test_a_channel_that_ends_during_a_tick_counts_once() -> None:
    """The broker goes on between slices: what was seen never falls, what was not seen counts in the next tick."""
    found = Watched()
    client = found.world.client()
    client.publish(1, "nowhere", b"a")
    found.tick()
    found.world.advance(5)
    slices = found.statistics.sample(found.world.now, found.time_ms)
    next(slices)
    client.send(1, ChannelClose(200, "bye", 0, 0))
    found.world.settle()
    for _ in slices:
        pass
    stats = found.statistics.totals(Query())["message_stats"]
    assert (stats["publish"], stats["publish_details"]) == (1, {"rate": 0.0})
    found.tick()
    stats = found.statistics.totals(Query())["message_stats"]
    assert (stats["publish"], stats["publish_details"]) == (1, {"rate": 0.0})


def test_reads_and_writes_of_queues() -> None:
    """§1.12: disk_reads, disk_writes, shown as soon as there is a queue; those of deleted ones stay."""
    found = Watched()
    client = found.world.client()
    found.tick()
    assert found.statistics.totals(Query())["message_stats"] == {}
    client.ask(1, QueueDeclare(queue="q"))
    storage = SimpleNamespace(disk_reads=1, disk_writes=7)
    found.world.queue("q").storage = cast(Any, storage)
    found.tick()
    storage.disk_writes = 12
    found.tick(2)
    stats = found.statistics.totals(Query())["message_stats"]
    assert (stats["disk_reads"], stats["disk_writes"]) == (1, 12)
    client.ask(1, QueueDeclare(queue="other"))
    found.world.queue("q").storage = found.broker.storage.open(found.world.queue("q").record)
    client.ask(1, QueueDelete(queue="q"))
    found.tick()
    assert found.statistics.totals(Query())["message_stats"]["disk_writes"] == 12


def test_handshakes_are_not_counted() -> None:
    found = Watched()
    found.world.connect()
    assert found.statistics.totals(Query())["object_totals"]["connections"] == 0


def test_samples_of_a_day() -> None:
    """§1.0: what is of the whole node is kept for 86,400 s."""
    found = Watched(StatisticsOptions(interval_s=600))
    client = found.world.client()
    client.ask(1, QueueDeclare(queue="q"))
    for number in range(150):
        client.publish(1, "q", b"a")
        found.world.settle()
        for _ in found.statistics.sample(0, 1_700_000_000_000 // 1_800_000 * 1_800_000 + number * 600_000):
            pass
    ranges = Ranges(lengths=Range(86_400, 1800))
    samples = found.statistics.totals(Query(ranges=ranges))["queue_totals"]["messages_details"]["samples"]
    assert len(samples) == 49
    assert [each["sample"] for each in samples] == [148 - 3 * number for number in range(49)]


def test_of_one_vhost() -> None:
    """§1.1: users who may not look at everything."""
    found = Watched()
    found.world.submit(PutVhost("v"))
    client = found.world.client()
    client.ask(1, QueueDeclare(queue="q"))
    client.publish(1, "q", b"a")
    found.tick()
    mine = found.statistics.totals(Query(vhost="/"))
    assert mine["queue_totals"]["messages"] == 1
    assert mine["message_stats"]["publish"] == 1
    assert "churn_rates" not in mine
    other = found.statistics.totals(Query(vhost="v", user="other"))
    assert other["message_stats"] == {}
    assert other["object_totals"] == {
        "connections": 0,
        "channels": 0,
        "consumers": 0,
        "exchanges": 7,
        "queues": 0,
    }


def test_only_what_is_asked_for() -> None:
    found = Watched()
    assert set(found.statistics.totals(Query(fields=frozenset({"churn_rates"})))) == {"churn_rates"}


def test_the_past_of_lengths_is_unknown_before_the_members_changed() -> None:
    """When a node dies its queues' messages appear here: the sum of before would be without them, which is no fall."""
    found = Watched()
    ranges = Query(ranges=Ranges(lengths=Range(60, 5), msg_rates=Range(60, 5)))
    members = found.broker.catalogue
    for name in ("n1@h", "n2@h"):
        members.apply(PutMember(name, "h:1", f"id of {name}"))
        members.apply(NodeUp(name, f"id of {name}", "h:1"))
    client = found.world.client(1)
    client.ask(1, QueueDeclare(queue="q"))
    found.tick(20)
    before = found.statistics.totals(ranges)["queue_totals"]["messages_details"]
    assert len(before["samples"]) == 13
    assert "known_since" not in before
    members.apply(NodeDown("n2@h", members.members["n2@h"].incarnation))
    client.publish(1, "q", b"a")
    found.tick(4)
    totals = found.statistics.totals(ranges)
    details = totals["queue_totals"]["messages_details"]
    oldest = details["samples"][-1]["timestamp"]
    assert (details["known_since"], len(details["samples"])) == (oldest, 3)
    assert oldest - details["asked_since"] == 50_000
    assert [each["sample"] for each in details["samples"]] == [1, 1, 1]
    assert len(totals["message_stats"]["publish_details"]["samples"]) == 13
    of_vhost = found.statistics.totals(Query(vhost="/", ranges=ranges.ranges))
    assert of_vhost["queue_totals"]["messages_details"]["known_since"] == oldest
