"""Messages that are due by the same turn: which of them go out together, and which do not."""

import pytest

from node.amqp.field_table import long
from node.amqp.methods import QueueBind, QueueDeclare
from node.broker.delayed_messages import RULED_MAX, joined
from node.queue.intake import Targets
from node.queue.pending_publish import PendingPublish
from node.queue.run import Batch, Envelope, Run
from tests.kit.world import World
from tests.node.broker.delayed_scene import fabric, fetched, later, publish, ready, waiting


def batches_given(world: World, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the batches that go out from now on."""
    give, sizes = world.broker.intake.give, list[int]()

    def noted(batch: Batch, targets: Targets, pending: PendingPublish | None) -> None:
        sizes.append(len(batch.contents))
        give(batch, targets, pending)

    monkeypatch.setattr(world.broker.intake, "give", noted)
    return sizes


def test_what_is_due_by_the_same_turn_goes_out_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of their times, whatever their delays were."""
    world, client = fabric()
    for delay in range(30, 0, -1):
        publish(client, delay, b"%d" % delay)
    sizes = batches_given(world, monkeypatch)
    world.now += 1.0  # the node was busy until then
    later(world, 0.0)
    assert fetched(client) == [b"%d" % delay for delay in range(1, 31)]
    assert sizes == [30]
    assert waiting(world) == 0


def test_messages_with_other_keys_or_traits_go_out_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with its own, and all in order."""
    world, client = fabric("direct", "k", "l")
    for number, key in enumerate("kkllk"):
        publish(client, 10, b"%d" % number, key, delivery_mode=2 if number == 1 else None)
    sizes = batches_given(world, monkeypatch)
    later(world, 1.0)
    assert fetched(client) == [b"0", b"1", b"2", b"3", b"4"]
    assert sizes == [1, 1, 2, 1]


def test_a_queue_with_rules_gets_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules look at each message, so the clock is looked at in between."""
    world, client = fabric()
    client.ask(1, QueueDeclare(queue="short", arguments={"x-max-length": long(5)}))
    client.ask(1, QueueBind(queue="short", exchange="x", routing_key="k"))
    for number in range(RULED_MAX + 5):
        publish(client, 10, b"%d" % number)
    sizes = batches_given(world, monkeypatch)
    later(world, 1.0)
    assert sizes == [RULED_MAX, 5]
    assert fetched(client, "short") == [b"%d" % number for number in range(RULED_MAX, RULED_MAX + 5)]
    assert ready(world) == RULED_MAX + 5


def test_runs_that_follow_each_other_are_forgotten_as_one() -> None:
    envelope = Envelope("x", "k", channel=1, frame_max_bytes=0)

    def run(seqs: range, store_id: int = 0, *, is_indexed: bool = True) -> Run:
        return Run(envelope, seqs, [b"m"] * len(seqs), 1, store_id=store_id, is_indexed=is_indexed)

    runs = [
        run(range(7, 9)),
        run(range(3, 5)),
        run(range(1, 3)),
        run(range(9, 10), 5),
        run(range(10, 12), 6),
        run(range(12, 13), 9),
        run(range(13, 14), is_indexed=False),
    ]
    found = [(each.seqs, each.store_id, each.is_indexed) for each in joined(runs)]
    assert found == [
        (range(1, 5), 0, True),
        (range(7, 9), 0, True),
        (range(9, 12), 5, True),
        (range(12, 13), 9, True),
        (range(13, 14), 0, False),
    ]
    assert runs[2].seqs == range(1, 3), "they are as they were"
