"""The part of the load that waits, comes back, dies, deduplicates, has groups or a hash: a short run, and its books."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.feature_books import KINDS, MARGIN_S, FeatureBooks
from tests.chaos.mirror_faults import KILL, Episode
from tests.chaos.mirror_ledger import MUST_BE_0, Ledger, PublisherStory, Trace
from tests.chaos.outages import Outages, Span
from tests.kit.ledger import CONFIRMED, NACKED, Kind, Value
from tests.kit.network import LoopbackNetwork

KIND = Kind((20,))
ROUNDS = 2
"""So few, as this is in the gate: `make mirror-faults ROUNDS=300` has more."""


@pytest.mark.slow
def test_masters_are_killed_while_messages_wait(tmp_path: Path) -> None:
    """Nothing is lost, early, at two consumers, or twice without a cause."""
    network = LoopbackNetwork()
    episode = Episode(tmp_path, network, "features", KILL * ROUNDS)
    try:
        outcome = asyncio.run(episode.run(0, load=0.3, calm_s=1.0))
    finally:
        episode.close()
        network.close()
    count = outcome.count
    assert not count.problems, "\n".join(count.problems)
    assert len(outcome.rows) == ROUNDS
    for name in ("delayed", "retried", "letters", "dropped"):
        assert getattr(count, name) > 0, name


# --- the books ---


class Scene:
    """Books with a publisher whose messages go to one kind.   now: monotonic.   outages: of the nodes."""

    outages = Outages()

    def __init__(self, path: Path, kind: str) -> None:
        self.books = FeatureBooks(Ledger(Trace(path)))
        self.story = self.books.publishers["p"] = PublisherStory("p", 0, KIND, (kind,))
        self.kind = kind
        self.now = 100.0

    def publish(self, *, delay_s: float = 0.0, same: str = "", mark: int = CONFIRMED) -> Value:
        value = Value("p", self.books.sent(self.story))
        self.books.tell(value, self.kind, delay_s=delay_s, same=same)
        if mark:
            self.books.outcome(self.story, value.number, mark, 0.1)
        return value

    def take(
        self, value: Value, session: str = "s", queue: str = "", *, again: bool = False, count: int = 0
    ) -> None:
        headers = {"x-delivery-count": count} if count else {}
        body = KIND.body(value)
        self.books.took(queue or self.kind, session, headers, body, is_redelivered=again)

    @property
    def bad(self) -> dict[str, int]:
        """The counts that must be 0 and are not, as the nodes' logs let them be judged."""
        self.books.judge(self.outages)
        return {name: number for name in MUST_BE_0 if (number := getattr(self.books.count, name))}


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Scene]:
    """Makes a scene of a kind."""
    made: list[Scene] = []

    def make(kind: str) -> Scene:
        made.append(Scene(tmp_path / "trace", kind))
        return made[-1]

    monkeypatch.setattr("tests.chaos.feature_books.time.monotonic", lambda: made[-1].now)
    return make


def test_a_delayed_message_is_early_late_or_in_time(scene: Callable[[str], Scene]) -> None:
    own = scene("late")
    one, other = own.publish(delay_s=1.0), own.publish(delay_s=1.0)
    own.now += 0.9
    own.take(one)
    assert own.bad == {"early": 1}
    own.now += 0.2
    own.take(other)
    assert own.bad == {"early": 1}
    assert own.books.count.delayed == 2
    assert "no fault was near: p50 0 ms" in own.books.note()
    assert "of 2" in own.books.note()


def test_a_delayed_message_is_late_for_an_outage(scene: Callable[[str], Scene]) -> None:
    own = scene("late")
    value = own.publish(delay_s=1.0)
    own.now += 3.0
    own.take(value)
    own.outages = Outages([[Span(101.0, 102.0)]])
    assert own.bad == {}
    assert len(own.books.late) == 0
    assert len(own.books.late_in_faults) == 1


def test_no_message_is_early_for_a_clock_that_jumped(scene: Callable[[str], Scene]) -> None:
    own = scene("late")
    value = own.publish(delay_s=1.0)
    own.books.look("clock")
    own.take(value)
    assert own.bad == {}


@pytest.mark.parametrize(("fault", "found"), [(None, {"twice": 1}), ("kill-master", {})])
def test_a_delayed_message_that_comes_as_new_once_more(
    scene: Callable[[str], Scene], fault: str | None, found: dict[str, int]
) -> None:
    own = scene("late")
    value = own.publish()
    own.take(value)
    own.books.settled(value)
    own.books.look(fault)
    own.take(value)
    assert own.bad == found


OUTAGES = [
    (Outages(), {"twice": 1}),
    (Outages([[], [], [Span(94.0, 94.9)]]), {"twice": 1}),
    (Outages([[], [], [Span(96.0, 99.0)]]), {}),
    (Outages([[Span(101.0, 102.0)]]), {"twice": 1}),
]
"""Outages, and what is wrong with a second copy of a message that was taken at 100 s."""


@pytest.mark.parametrize(("outages", "found"), OUTAGES)
def test_a_delayed_message_comes_twice_where_a_node_lost_its_lease(
    scene: Callable[[str], Scene], outages: Outages, found: dict[str, int]
) -> None:
    """No fault was near, but the queue in which it waited had another master: docs/delayed.md states it."""
    own = scene("late")
    value = own.publish()
    own.take(value, again=True)
    own.take(value)
    own.outages = outages
    assert own.bad == found
    assert own.books.count.stated == (not found)


@pytest.mark.parametrize(("outages", "found"), OUTAGES)
def test_a_message_dies_twice_where_a_node_lost_its_lease(
    scene: Callable[[str], Scene], outages: Outages, found: dict[str, int]
) -> None:
    """A letter is ready again in the queue in which it died, at another master: docs/dead_letters.md states it."""
    own = scene("safe")
    value = own.publish()
    own.take(value)
    own.books.died(value)
    own.take(value, queue="grave")
    own.take(value, again=True)
    own.books.died(value)
    own.take(value, queue="grave")
    own.outages = outages
    assert own.bad == found
    assert own.books.count.stated == (not found)


def test_an_exchange_that_deduplicates_passes_one_of_an_id_whatever_happens(
    scene: Callable[[str], Scene],
) -> None:
    own = scene("passed")
    one, other = own.publish(same="x"), own.publish(same="x")
    own.take(one)
    own.take(other)
    own.outages = Outages([[Span(0.0, 1000.0)]])
    assert own.bad == {"twice": 1}


def test_the_history_of_a_message_tells_of_lost_sessions(scene: Callable[[str], Scene]) -> None:
    own = scene("retry")
    value = own.publish()
    own.take(value)
    own.books.returned(value, is_asked=False)
    assert any("lost-session retry" in line for line in own.books.trace.histories([value]))


def test_a_returned_message_waits_and_its_count_goes_on(scene: Callable[[str], Scene]) -> None:
    own = scene("retry")
    value = own.publish()
    own.take(value)
    own.books.returned(value, is_asked=True)
    own.now += 0.6
    own.take(value, again=True, count=1)
    assert own.bad == {}
    own.books.returned(value, is_asked=True)
    own.now += 0.6
    own.take(value, again=True, count=1)
    assert own.bad == {"early": 1, "forgotten": 1}
    own.books.returned(value, is_asked=False)
    own.take(value, again=True)
    assert own.bad == {"early": 1, "forgotten": 1}
    assert own.books.count.retried == 2


def test_a_message_at_two_consumers(scene: Callable[[str], Scene]) -> None:
    own = scene("retry")
    value = own.publish()
    own.take(value, "a")
    own.take(value, "b", again=True)
    assert own.bad == {"twice": 1}
    own.books.look("kill")
    own.take(value, "c", again=True)
    assert own.bad == {"twice": 1}


@pytest.mark.parametrize(
    ("kind", "is_settled", "found"),
    [("once", False, {"twice": 1}), ("once", True, {}), ("passed", True, {"twice": 1})],
)
def test_a_second_message_of_an_id(
    scene: Callable[[str], Scene], kind: str, is_settled: bool, found: dict[str, int]
) -> None:
    """A duplicate may come to a queue when the first one is settled; by an exchange never, whatever happens."""
    own = scene(kind)
    one, other = own.publish(same="x"), own.publish(same="x")
    own.take(one)
    if is_settled:
        own.books.settled(one)
    own.books.look("kill-master")
    own.take(other)
    assert own.bad == found


def test_a_dropped_duplicate_is_not_lost(scene: Callable[[str], Scene]) -> None:
    own = scene("once")
    one, _ = own.publish(same="x"), own.publish(same="x")
    own.publish(same="y")
    own.take(one)
    own.books.settled(one)
    own.books.compare_all()
    assert (own.bad, own.books.count.dropped) == ({"lost": 1}, 2)


def test_a_group_at_two_consumers_and_out_of_order(scene: Callable[[str], Scene]) -> None:
    own = scene("grouped")
    values = [own.publish(same="g") for _ in range(3)]
    own.take(values[1], "a")
    own.take(values[2], "b")
    assert own.bad == {"shared": 1}
    for value in values[1:]:
        own.books.settled(value)
    own.take(values[0], "b")
    assert own.bad == {"shared": 1, "disorder": 1}
    own.now += MARGIN_S


def test_a_key_leads_to_one_queue(scene: Callable[[str], Scene]) -> None:
    own = scene("hash")
    for queue in ("hash.1", "hash.1", "hash.2"):
        own.take(own.publish(same="k"), queue=queue)
    assert own.bad == {"unexpected": 1}


def test_what_is_lost(scene: Callable[[str], Scene]) -> None:
    """A rejected message has to come as a dead letter, or again."""
    own = scene("safe")
    acked, dead, lost, nacked = own.publish(), own.publish(), own.publish(), own.publish(mark=NACKED)
    for value in (acked, dead, lost):
        own.take(value)
    own.books.settled(acked)
    for value in (dead, lost):
        own.books.died(value)
    own.take(dead, queue="grave")
    assert list(own.books.left()) == [lost]
    own.books.compare_all()
    assert (own.bad, own.books.count.letters) == ({"lost": 1}, 1)
    assert nacked not in own.books.left()


def test_wrong_bytes_and_messages_that_nobody_sent(scene: Callable[[str], Scene]) -> None:
    own = scene("late")
    own.take(Value("p", 7))
    own.take(Value("nobody", 1))
    value = own.publish()
    own.books.took("late", "s", {}, KIND.body(value) + b"!", is_redelivered=False)
    own.take(own.publish(), queue="retry")
    assert own.bad == {"wrong": 3, "unexpected": 1}


def test_each_kind_has_its_rules(scene: Callable[[str], Scene]) -> None:
    """A message of each kind that is taken once and acknowledged is no problem."""
    for kind in KINDS:
        own = scene(kind)
        value = own.publish(same="x")
        own.take(value, queue="hash.1" if kind == "hash" else kind)
        own.books.settled(value)
        own.books.compare_all()
        assert own.bad == {}, kind
