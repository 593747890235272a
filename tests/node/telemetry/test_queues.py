"""Rows of queues: what they say, and how often."""

from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.amqp.field_table import Table, long, longstr
from node.amqp.methods import BasicConsume, BasicGet, BasicQos, QueueDeclare, QueueDelete
from node.catalogue.commands import SetPolicy
from node.catalogue.mirrors.views import DropMirror, TransferMaster, View, changed, created, died
from node.catalogue.records import QueueRecord
from node.queue.metering import PUBLISHED_S, Meter
from node.queue.mirroring import ReplicaFacts
from node.telemetry.queues import (
    BUSY_MS,
    EARLY_MS,
    IDLE_MS,
    ROWS_SLICE,
    SLICE,
    QueueRows,
    heir_of,
    is_due,
    queue_id,
)
from node.telemetry.rows import Rows
from tests.kit.synthetic.model import queue_id as collectors_queue_id
from tests.kit.world import Client, World
from tests.node.telemetry.schema_check import Row, parse

OWN = "rabbit@localhost"
TICK_S = 10.0


class Watched:
    """A world whose queues are looked at every ten seconds."""

    def __init__(self) -> None:
        self.world = World()
        looks = count()
        meter = self.world.broker.meter = Meter(lambda: next(looks) * 1000, lambda: next(looks) * 1000)
        while not meter.windows.is_open:
            meter.windows.end_turn()
        rows = Rows("c", OWN, "boot", wall=lambda: self.world.now, monotonic=lambda: self.world.now)
        self.rows = rows
        self.queues = QueueRows(self.world.broker, meter, rows)
        self.client: Client = self.world.client(1)

    def look(self) -> list[Row]:
        """Let the interval pass, and look."""
        self.world.advance(TICK_S)
        slices = list(self.queues.tick(self.rows.now, self.world.now))
        return parse(row for rows in slices for row in rows)

    def declare(self, *names: str) -> None:
        for name in names:
            self.client.ask(1, QueueDeclare(queue=name))


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_a_master_has_everything(watched: Watched) -> None:
    """spark §2.3: counters, gauges, places, and what the policy wants."""
    client = watched.client
    client.ask(1, QueueDeclare(queue="q", durable=True))
    client.ask(1, BasicQos(prefetch_count=2))
    client.publish(1, "q", b"12345", b"12345", b"12345")
    client.send(1, BasicConsume(queue="q", consumer_tag="c"))
    client.received()
    (row,) = watched.look()
    assert row["cpu_us_total"] > 0
    del row["cpu_us_total"], row["mem_bytes"], row["ts"], row["mono_ms"]
    assert row == {
        "v": 1,
        "kind": "queue",
        "cluster": "c",
        "node": OWN,
        "boot_id": "boot",
        "seq": 0,
        "vhost": "/",
        "queue": "q",
        "qid": queue_id("/", "q"),
        "type": "classic",
        "durable": True,
        "exclusive": False,
        "want_mirrors": 0,
        "role": "master",
        "master_node": OWN,
        "epoch": 0,
        "ring": [OWN],
        "synced": [OWN],
        "ring_pos": 0,
        "ring_size": 1,
        "sync_state": "synced",
        "sync_progress": 1.0,
        "ready": 1,
        "unacked": 2,
        "msg_bytes": 15,
        "disk_bytes": 0,
        "client_us_total": 0,
        "disk_us_total": 0,
        "head_age_ms": 10_000,
        "pub_total": 3,
        "pub_bytes_total": 15,
        "dlv_total": 2,
        "dlv_bytes_total": 10,
        "ack_total": 0,
        "redeliver_total": 0,
        "get_total": 0,
        "dead_lettered_total": 0,
        "dead_letters_lost_total": 0,
        "expired_total": 0,
        "dropped_total": 0,
        "consumers": 1,
        "consumer_util": 0.5,
        "prefetch_sum": 2,
        "consumers_on": {OWN: 1},
        "publishers_on": {OWN: 1},
    }


def test_a_queue_tells_from_which_nodes_messages_came(watched: Watched) -> None:
    """Each node counts once. A node is forgotten five minutes after its last message; then nothing is known."""
    meter = watched.world.broker.meter
    assert meter is not None
    watched.declare("q")
    (row,) = watched.look()
    assert "publishers_on" not in row
    watched.client.publish(1, "q", b"1", b"2")
    watched.world.settle()
    watched.world.advance(PUBLISHED_S / 2)
    meter.windows.remote_node = "rabbit@other"
    watched.client.publish(1, "q", b"3")
    watched.world.settle()
    meter.windows.remote_node = ""
    (row,) = watched.look()
    assert row["publishers_on"] == {OWN: 1, "rabbit@other": 1}
    watched.world.advance(PUBLISHED_S / 2)
    (row,) = watched.look()
    assert row["publishers_on"] == {"rabbit@other": 1}
    watched.world.advance(PUBLISHED_S)
    (row,) = watched.look()
    assert "publishers_on" not in row


def test_outside_of_windows_no_publisher_is_noted(watched: Watched) -> None:
    """Four turns of five do nothing for it."""
    meter = watched.world.broker.meter
    assert meter is not None
    meter.windows.end_turn()
    watched.declare("q")
    watched.client.publish(1, "q", b"1")
    watched.world.settle()
    (row,) = watched.look()
    assert row["pub_total"] == 1
    assert "publishers_on" not in row


def test_lost_dead_letters_are_told_by_cause(watched: Watched) -> None:
    """A queue without any says so without the causes; one with some gets a row within a minute."""
    arguments: Table = {"x-dead-letter-exchange": longstr("missing"), "x-max-length": long(0)}
    watched.client.ask(1, QueueDeclare(queue="q", arguments=arguments))
    (row,) = watched.look()
    assert (row["dead_letters_lost_total"], row.get("dead_letters_lost_by")) == (0, None)
    watched.client.publish(1, "q", b"1", b"2")
    (row,) = watched.look()
    assert (row["dead_letters_lost_total"], row["dead_letters_lost_by"]) == (2, {"no-exchange": 2})
    assert row["dead_letter_exchange"] == "missing"


def test_what_the_policy_says(watched: Watched) -> None:
    """A policy's name is in the next row after it came."""
    watched.declare("q")
    watched.look()
    definition = {"max-length": 5, "dead-letter-exchange": "dead"}
    watched.world.submit(SetPolicy("/", "limits", "q", definition))
    watched.client.publish(1, "q", b"x")
    (row,) = watched.look()
    assert (row["policy"], row["dead_letter_exchange"]) == ("limits", "dead")


def test_rows_come_where_something_happens(watched: Watched) -> None:
    """Traffic: at each look. Messages that wait: each minute. Nothing: every five minutes."""
    watched.declare("busy", "waits", "idle")
    watched.client.publish(1, "waits", b"x")
    assert {row["queue"] for row in watched.look()} == {"busy", "waits", "idle"}
    seen: dict[str, list[int]] = {"busy": [], "waits": [], "idle": []}
    for number in range(1, 61):
        watched.client.publish(1, "busy", b"x")
        watched.client.ask(1, BasicGet(queue="busy", no_ack=True))
        for row in watched.look():
            seen[row["queue"]].append(number)
            assert row["interval_ms"] == {"busy": 10_000, "waits": BUSY_MS, "idle": IDLE_MS}[row["queue"]]
    assert seen == {"busy": list(range(1, 61)), "waits": list(range(6, 61, 6)), "idle": [30, 60]}


def test_the_last_traffic_is_told(watched: Watched) -> None:
    """A queue that falls idle between two looks gets its row."""
    watched.declare("q")
    watched.look()
    watched.client.publish(1, "q", b"x")
    watched.client.ask(1, BasicGet(queue="q", no_ack=True))
    (row,) = watched.look()
    assert (row["pub_total"], row["ready"]) == (1, 0)
    assert watched.look() == []


@given(
    st.none() | st.integers(0, 2 * IDLE_MS), st.booleans(), st.booleans(), st.booleans(), st.integers(0, 1000)
)
def test_who_was_due_stays_due(
    since: int | None, has_moved: bool, is_changed: bool, has_messages: bool, more: int
) -> None:
    """Time and changes only bring rows nearer; nothing is silent for longer than five minutes."""
    due = is_due(since, has_moved=has_moved, is_changed=is_changed, has_messages=has_messages)
    if due and since is not None:
        assert is_due(since + more, has_moved=has_moved, is_changed=is_changed, has_messages=has_messages)
    assert due or not has_moved
    assert due or (since is not None and since < IDLE_MS - EARLY_MS)


def test_what_is_gone_is_forgotten(watched: Watched) -> None:
    """The account of a deleted queue goes too; a queue declared anew begins with 0."""
    watched.declare("q")
    watched.client.publish(1, "q", b"x")
    watched.look()
    watched.client.ask(1, QueueDelete(queue="q"))
    assert watched.look() == []
    meter = watched.world.broker.meter
    assert meter is not None
    assert meter.accounts == {}
    watched.declare("q")
    (row,) = watched.look()
    assert row["pub_total"] == 0
    assert "interval_ms" not in row


def test_many_queues_are_looked_at_in_slices(watched: Watched) -> None:
    """The loop is given back after each."""
    watched.declare(*(f"q{number}" for number in range(2 * SLICE + 2)))
    watched.world.advance(TICK_S)
    slices = list(watched.queues.tick(watched.rows.now, watched.world.now))
    assert [len(rows) for rows in slices if rows] == [ROWS_SLICE] * (2 * SLICE // ROWS_SLICE) + [2]
    assert watched.queues.masters == 2 * SLICE + 2
    slices = list(watched.queues.tick(watched.rows.now, watched.world.now))
    assert len(slices) >= 3


# --- mirrors ----------------------------------------------------------------------------------------------


class FakeMirrors:
    """Copies of this node."""

    has_work = False

    def __init__(self) -> None:
        self.facts: dict[str, ReplicaFacts] = {}

    def replica(self, record: QueueRecord) -> ReplicaFacts | None:
        return self.facts.get(record.uid)

    def settings_changed(self, record: QueueRecord) -> None:
        pass

    def turn(self, now: float) -> None:
        pass


class FakeLive:
    """The near end of a queue whose master is elsewhere."""

    is_local = False

    def __init__(self, record: QueueRecord) -> None:
        self.record = record


@pytest.fixture
def mirror(watched: Watched) -> tuple[Watched, FakeMirrors, FakeLive]:
    view = created(0, [("a@h", 1), (OWN, 2), ("b@h", 3)])
    record = QueueRecord("/", "m", "0" * 32, durable=True, home="a@h", view=view)
    mirrors, live = FakeMirrors(), FakeLive(record)
    watched.world.broker.mirrors = mirrors  # type: ignore[assignment]
    watched.world.broker.vhosts["/"].queues["m"] = live  # type: ignore[assignment]
    mirrors.facts[record.uid] = ReplicaFacts(False, 10, 0, 0.0, 500)
    return watched, mirrors, live


def test_a_mirror_has_its_own_columns(mirror: tuple[Watched, FakeMirrors, FakeLive]) -> None:
    """spark §2.3: what the master tells it does not repeat."""
    watched, _, _ = mirror
    (row,) = watched.look()
    assert row["role"] == "mirror"
    assert row["ring"] == ["a@h", OWN, "b@h"]
    assert (row["master_node"], row["heir"], row["ring_pos"], row["ring_size"]) == ("a@h", OWN, 1, 3)
    assert (row["sync_state"], row["sync_progress"], row["mirror_lag_ops"]) == ("synced", 1.0, 0)
    assert "ready" not in row
    assert "pub_total" not in row
    assert (watched.queues.masters, watched.queues.mirrors) == (0, 1)
    assert watched.look() == []


def test_a_mirror_that_synchronises(mirror: tuple[Watched, FakeMirrors, FakeLive]) -> None:
    """By how much of what it lacked has come."""
    watched, mirrors, live = mirror
    uid = live.record.uid
    assert live.record.view is not None
    live.record = replace(live.record, view=replace(live.record.view, synced=(1,)))
    seen = []
    for behind in (None, 100, 50, 50, 25):
        mirrors.facts[uid] = ReplicaFacts(False, 10, behind, 0.0, 500)
        seen += [(row["sync_state"], row.get("sync_progress")) for row in watched.look()]
    assert seen == [("unsynced", None), ("unsynced", 0.0), ("syncing", 0.5), ("syncing", 0.75)]


def test_the_account_of_a_copy_that_moves_away_stays(mirror: tuple[Watched, FakeMirrors, FakeLive]) -> None:
    """The account of a copy that moves away stays, or its counters would fall when it comes back in one boot_id."""
    watched, _, _ = mirror
    watched.declare("q")
    watched.client.publish(1, "q", b"x")
    watched.look()
    record = watched.world.queue("q").record
    meter = watched.world.broker.meter
    assert meter is not None
    mine = meter.account(record)
    watched.world.broker.vhosts["/"].queues["q"] = FakeLive(record)  # type: ignore[assignment]
    watched.look()
    assert meter.account(record) is mine


# --- names and heirs --------------------------------------------------------------------------------------


@given(st.text(), st.text())
def test_collectors_and_nodes_give_queues_the_same_number(vhost: str, name: str) -> None:
    """Synthetic and real telemetry can be joined."""
    assert queue_id(vhost, name) == collectors_queue_id(vhost, name)


@st.composite
def _views(draw: st.DrawFn) -> View:
    """Draw a view of some copies, after handovers and losses."""
    size = draw(st.integers(1, 5))
    view = created(0, [(f"n{number}@h", number + 1) for number in range(size)])
    view = replace(
        view, synced=tuple(id_ for id_ in view.synced if id_ == view.master or draw(st.booleans()))
    )
    for _ in range(draw(st.integers(0, 4))):
        member = draw(st.sampled_from(view.members)).id
        after = changed(
            view, draw(st.sampled_from([TransferMaster(view.master, member), DropMirror(member)]))
        )
        view = after or view
        view = replace(view, previous=0, handover=0)
    return view


@given(_views())
def test_the_heir_is_who_is_promoted(view: View) -> None:
    """If the master dies and all that it said has gone round."""
    from node.catalogue.mirrors.views import EraseMirror

    heir = heir_of(view)
    after: View | None = died(view, (view.master,), may_lose=False)
    while after is not None and after.state == "flushing":
        dead = next(member.id for member in after.members if member.status == "dead")
        after = changed(after, EraseMirror(dead, after.owner_of(dead)))
    assert after is not None
    assert heir == (after.master_node if after.state == "live" else None)
