"""The logs of nodes say when they had no broker, and the books excuse what docs/ state for that, and nothing else."""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.chaos.broker import FLUFFLE, RABBITMQ
from tests.chaos.cluster import ChaosNode
from tests.chaos.mirror_ledger import MUST_BE_0, Ledger, PublisherStory, QueueStory, Trace
from tests.chaos.outages import Outages, Span, common, outages_of, spans
from tests.kit.ledger import CONFIRMED, DELIVERED, SETTLED, Kind, Value

BASE = 1_795_867_200.0
"""2026-11-28 12:00:00 UTC."""


def line(second: int, text: str) -> str:
    """Return a line of a node's log."""
    return f"2026-11-28 12:00:{second:02}.500000+00:00 [info] <0.0.0> {text}\n"


UP = "started TCP listener on 127.0.0.1:10416"
PAUSE = "this node serves no clients for now: 'n1@localhost', the leader, did not renew its lease in time"


def told(*logs: str) -> list[tuple[float, float]]:
    """Return the outages that these logs tell, in seconds after `BASE`."""
    return [(began - BASE, ended - BASE) for began, ended in spans(logs)]


def test_the_first_start_is_no_outage() -> None:
    assert told(line(1, "Starting message stores") + line(2, UP)) == []


def test_a_pause_lasts_until_the_listener_is_there_again() -> None:
    """The store stops and starts within it, and the listeners of plug-ins say nothing about the broker."""
    log = line(1, UP) + line(3, PAUSE) + line(4, "Stopping message store for directory '/n1'")
    log += "a line of a traceback\n" + line(5, "started stomp TCP listener on 127.0.0.1:10426") + line(6, UP)
    assert told(log) == [(3.5, 6.5)]


@pytest.mark.parametrize(
    "text",
    [
        PAUSE,
        "this node restarts its broker: the cluster declared this node down",
        "Stopping message store for directory '/n1'",
    ],
)
def test_an_outage_that_lasts_has_no_end(text: str) -> None:
    assert told(line(1, UP) + line(3, text)) == [(3.5, math.inf)]


def test_a_killed_node_is_known_to_be_down_from_its_next_start() -> None:
    assert told(line(1, UP), line(7, "Starting") + line(9, UP)) == [(7.5, 9.5)]


def test_a_node_that_paused_and_was_killed_has_one_outage() -> None:
    assert told(line(1, UP) + line(3, PAUSE), line(7, "Starting") + line(9, UP)) == [(3.5, 9.5)]


def test_a_text_of_a_client_is_no_outage() -> None:
    """A client chooses what stands in the middle of a line."""
    assert told(line(1, UP) + line(3, f"channel exception: no queue 'q {PAUSE}'")) == []


@pytest.mark.parametrize(
    ("found", "shared"),
    [
        ([], []),
        ([[(1, 5)], [(3, 8)], [(2, 4)]], [(3, 4)]),
        ([[(1, 2)], [(3, 8)], [(2, 4)]], []),
        ([[(1, 9)], [(2, 3), (5, 6)], [(0, 9)]], [(2, 3), (5, 6)]),
        ([[(1, 9)], [], [(0, 9)]], []),
    ],
)
def test_all_nodes_are_down_when_each_of_them_is(
    found: Sequence[Sequence[tuple[float, float]]], shared: list[tuple[float, float]]
) -> None:
    assert common([[Span(*each) for each in own] for own in found]) == shared


def test_an_outage_is_near_while_it_lasts() -> None:
    outages = Outages([[], [Span(10, 20)], []])
    assert [outages.is_near(*span) for span in ((0, 9), (0, 10), (12, 13), (20, 30), (21, 30))] == [
        False,
        True,
        True,
        True,
        False,
    ]
    assert outages.note() == "nodes were without a broker 1 times, all at the same time 0 times"
    assert not Outages().is_near(0, 100)


def test_the_logs_of_all_starts_are_read_and_told_in_monotonic_time(tmp_path: Path) -> None:
    node = ChaosNode.__new__(ChaosNode)
    node.directory, node._log_name, node.starts = tmp_path, "n1", 2
    (tmp_path / "n1.1.log").write_text(line(1, UP) + line(3, PAUSE) + line(5, UP))
    (tmp_path / "n1.2.log").write_text(line(7, "Starting") + line(9, UP))
    (tmp_path / "n1.3.log").write_text(line(20, PAUSE))
    cluster = cast(Any, SimpleNamespace(kind=FLUFFLE, nodes=[node]))
    offset_s = time.time() - time.monotonic()
    (found,) = outages_of(cluster).nodes
    assert [(each.began, each.ended) for each in found] == [
        pytest.approx((BASE + began - offset_s, BASE + ended - offset_s), abs=1.0)
        for began, ended in ((3.5, 5.5), (7.5, 9.5))
    ]
    cluster.kind = RABBITMQ
    assert outages_of(cluster) == Outages()


# --- a queue in memory (A7 of docs/mirrors.md) ---


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """With a queue in memory, a durable one, and a publisher of each, whose 4 messages were confirmed."""
    made = Ledger(Trace(tmp_path / "trace"))
    for name in ("brief", "hot"):
        made.queues[name] = QueueStory(name, is_durable=name == "hot")
        story = made.publishers[name] = PublisherStory(name, 0, Kind((20,)), (name,))
        for _ in range(4):
            story.marks[made.sent(story)] |= CONFIRMED | DELIVERED | SETTLED
    return made


def bad(ledger: Ledger) -> dict[str, int]:
    """Return the counts that must be 0 and are not."""
    return {name: number for name in MUST_BE_0 if (number := getattr(ledger.count, name))}


def lose(ledger: Ledger, queue: str, number: int) -> None:
    """Make a message one that no consumer got."""
    ledger.publishers[queue].marks[number] = CONFIRMED


def sent_s(ledger: Ledger, queue: str, number: int) -> float:
    """Return when a message was sent, monotonic."""
    value = Value(queue, number)
    return ledger.trace.sent_s([value])[value]


def test_what_was_in_memory_is_gone_when_all_copies_were_down(ledger: Ledger) -> None:
    lose(ledger, "brief", 3)
    after = sent_s(ledger, "brief", 3) + 1
    ledger.compare([], all_down=[Span(after, after + 1)])
    assert (bad(ledger), ledger.count.spared) == ({}, 1)


def test_what_was_in_memory_is_lost_if_one_copy_was_there(ledger: Ledger) -> None:
    lose(ledger, "brief", 3)
    ledger.compare([])
    assert (bad(ledger), ledger.count.spared) == ({"lost": 1}, 0)


def test_what_was_sent_afterwards_is_lost(ledger: Ledger) -> None:
    lose(ledger, "brief", 3)
    before = sent_s(ledger, "brief", 3) - 1
    ledger.compare([], all_down=[Span(before, before + 30)])
    assert (bad(ledger), ledger.count.spared) == ({"lost": 1}, 0)


def test_what_a_later_message_had_overtaken_was_lost_before(ledger: Ledger) -> None:
    """A queue gives messages in their order, so the fourth says that the third was not there any more."""
    lose(ledger, "brief", 3)
    after = sent_s(ledger, "brief", 3) + 1
    story = ledger.publishers["brief"]
    story.delivered_s[4] = after - 0.5
    ledger.compare([], all_down=[Span(after, after + 1)])
    assert bad(ledger) == {"lost": 1}


def test_what_was_taken_and_not_settled_may_be_overtaken(ledger: Ledger) -> None:
    lose(ledger, "brief", 3)
    after = sent_s(ledger, "brief", 3) + 1
    story = ledger.publishers["brief"]
    story.marks[3] |= DELIVERED
    story.delivered_s[4] = after - 0.5
    ledger.compare([], all_down=[Span(after, after + 1)])
    assert (bad(ledger), ledger.count.spared) == ({}, 1)


def test_a_durable_queue_keeps_what_was_confirmed(ledger: Ledger) -> None:
    lose(ledger, "hot", 3)
    after = sent_s(ledger, "hot", 3) + 1
    ledger.compare([], all_down=[Span(after, after + 1)])
    assert (bad(ledger), ledger.count.spared) == ({"lost": 1}, 0)
