"""A disk that cannot read some of a mirrored queue's messages costs one copy, and no message."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from node.amqp.methods import BasicConsume, BasicGet
from node.store.disk import Read
from node.store.scrubber import REST_S
from tests.kit import disk_cluster
from tests.kit.disk_cluster import (
    DiskCluster,
    DiskNode,
    id_on,
    mirrored,
    publish,
)
from tests.kit.world import Client
from tests.sim.mirror_bugs import bug

COUNT = 60
BODIES = [b"%03d" % number for number in range(COUNT)]
LARGE = [body.ljust(300, b".") for body in BODIES]


@pytest.fixture(autouse=True)
def reports(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that gets what stores find to be unreadable."""
    found: list[Any] = []
    monkeypatch.setattr(DiskNode, "_report", staticmethod(lambda *what: found.append(what)))
    return found


def filled(*names: str, bodies: list[bytes] = BODIES) -> DiskCluster:
    """`q` on all of these nodes, its master on the first; on its disk, and nowhere else there, 60 messages."""
    cluster = mirrored(*names)
    for body in bodies:
        publish(cluster, names[0], body)
    cluster.queue(names[0]).backlog.page_out(1 << 40, 0)
    for name in names:
        cluster[name].page_out()
    cluster.settle()
    assert cluster.queue(names[0]).backlog.at_hand == 0
    return cluster


def paths(cluster: DiskCluster, node: str, ending: str = ".idx") -> list[str]:
    return [path for path in cluster[node].disk.paths() if path.endswith(ending)]


def flip(cluster: DiskCluster, node: str, ending: str = ".idx") -> None:
    """Damage a byte in the middle of one file."""
    files = paths(cluster, node, ending)
    path = files[len(files) // 2]
    disk = cluster[node].disk
    disk.flip_bit(path, len(disk.content(path)) // 2)


def consumer_of(node: DiskNode) -> Client:
    client = node.client()
    client.send(1, BasicConsume(queue="q", consumer_tag="c", no_ack=True, nowait=True))
    return client


def pass_time(cluster: DiskCluster, seconds: float = 15.0) -> None:
    for _ in range(int(seconds * 2)):
        cluster.advance(0.5)


def is_whole(cluster: DiskCluster, *nodes: str) -> bool:
    """Whether all these nodes have a synchronised copy, and the view is settled."""
    view = cluster.view()
    synced = {member.node for member in view.ring if member.id in view.synced}
    return synced == set(nodes) and view.is_settled and view.state == "live"


def losses(cluster: DiskCluster) -> int:
    return sum(node.broker.counters.messages_unreadable for node in cluster)


@pytest.mark.parametrize("ending", [".idx", ".rdq"])
@pytest.mark.parametrize("where", ["n1", "n2"])
def test_one_flipped_bit_on_the_masters_disk(ending: str, where: str, reports: list[Any]) -> None:
    """A consumer gets all messages, in order, from a master that can read them; the node gets another copy."""
    bodies = BODIES if ending == ".idx" else LARGE
    cluster = filled("n1", "n2", "n3", bodies=bodies)
    damaged = id_on(cluster, "n1")
    flip(cluster, "n1", ending)
    consumer = consumer_of(cluster[where])
    pass_time(cluster)
    assert consumer.bodies() == bodies
    assert reports
    assert losses(cluster) == 0
    assert cluster.view().master_node in ("n2", "n3")
    assert is_whole(cluster, "n1", "n2", "n3"), cluster.view()
    assert id_on(cluster, "n1") != damaged


def test_what_was_handed_over_is_in_every_copy() -> None:
    """A get without consumers finds the damage, and afterwards each node alone has all messages."""
    cluster = filled("n1", "n2", "n3")
    flip(cluster, "n1")
    client = cluster["n1"].client()
    client.send(1, BasicConsume(queue="q", consumer_tag="c", nowait=True))
    pass_time(cluster)
    client.lose()
    pass_time(cluster, 1.0)
    assert is_whole(cluster, "n1", "n2", "n3"), cluster.view()
    for node in ("n2", "n3"):
        cluster.crash(node)
        pass_time(cluster)
    assert [body for body, _ in cluster.contents("n1")] == BODIES


def test_an_error_of_reading_that_passes() -> None:
    """All messages come from the same master."""
    cluster = filled("n1", "n2", "n3")
    for path in paths(cluster, "n1"):
        cluster["n1"].disk.fail(Read, path)
    consumer = consumer_of(cluster["n1"])
    pass_time(cluster, 20.0)
    assert consumer.bodies() == BODIES
    assert cluster.view().master_node == "n1"


def test_an_error_of_reading_that_stays() -> None:
    """After a few tries another node is master."""
    cluster = filled("n1", "n2", "n3")
    cluster["n1"].disk.fail_always(Read)
    consumer = consumer_of(cluster["n1"])
    pass_time(cluster)
    assert consumer.bodies() == BODIES
    assert cluster.view().master_node != "n1"


def test_a_master_without_a_synchronised_mirror_goes_on_without_them() -> None:
    """The loss is counted; mirrors that come later are synchronised, and owe nothing."""
    cluster = filled("n1", "n2")
    cluster.crash("n2")
    pass_time(cluster, 2.0)
    flip(cluster, "n1")
    cluster.start("n2")
    pass_time(cluster)
    assert is_whole(cluster, "n1", "n2"), cluster.view()
    lost = losses(cluster)
    assert 0 < lost <= 16
    consumer = consumer_of(cluster["n1"])
    pass_time(cluster, 2.0)
    got = consumer.bodies()
    assert len(got) == COUNT - lost
    assert got == sorted(got)
    assert losses(cluster) == lost


def test_the_one_that_was_to_take_over_dies() -> None:
    """A queue goes on without its damaged messages when the mirror that was to take over dies."""
    cluster = filled("n1", "n2")
    flip(cluster, "n1")
    cluster.is_held = True
    consumer = consumer_of(cluster["n1"])
    cluster["n1"].turn()
    cluster.is_held = False
    cluster.crash("n2")
    pass_time(cluster)
    got = consumer.bodies()
    assert cluster.view().master_node == "n1"
    assert len(got) == COUNT - losses(cluster)
    assert losses(cluster) > 0


def test_a_mirror_that_takes_over_and_cannot_read_hands_over_in_turn() -> None:
    """A mirror whose damage shows when it is master hands over to the third, which has all messages."""
    cluster = filled("n1", "n2", "n3")
    flip(cluster, "n2")
    cluster.crash("n1")
    consumer = consumer_of(cluster["n3"])
    pass_time(cluster)
    assert [text for text in cluster["n2"].events if "Promoting mirror" in text]
    assert cluster.view().master_node == "n3"
    assert consumer.bodies() == BODIES
    assert losses(cluster) == 0
    assert is_whole(cluster, "n2", "n3"), cluster.view()


def test_a_mirror_that_must_read_before_it_takes_over() -> None:
    """Messages that can't be read at the promotion aren't lost, and nothing overtakes them.

    Some of several sizes are gone, so that segments have to be read.
    """
    bodies = [body * (1 + number % 3) for number, body in enumerate(BODIES)]
    cluster = filled("n1", "n2", "n3", bodies=bodies)
    client = cluster["n1"].client()
    for number in range(20):
        client.send(1, BasicGet(queue="q", no_ack=True))
        cluster.settle()
        assert client.bodies() == bodies[number : number + 1]
    cluster.advance(0.1)
    cluster["n2"].disk.fail_always(Read, paths(cluster, "n2")[0])
    consumer = consumer_of(cluster["n2"])
    cluster.crash("n1")
    pass_time(cluster)
    assert cluster.view().master_node == "n3"
    assert consumer.bodies() == bodies[20:]
    assert losses(cluster) == 0


# --- nobody reads but the node itself ---


@pytest.fixture
def scrubbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes look for what has rotted."""
    monkeypatch.setattr(disk_cluster, "OPTIONS", replace(disk_cluster.OPTIONS, scrub_rate=1 << 20))


@pytest.mark.usefixtures("scrubbed")
@pytest.mark.parametrize("ending", [".idx", ".rdq"])
@pytest.mark.parametrize("damaged", ["n1", "n2"])
def test_rot_that_nobody_has_read_costs_one_copy_before_a_failover_needs_it(
    damaged: str, ending: str
) -> None:
    """The copy on that node, be it the master's or a mirror's, is given up, and there is a whole one again."""
    bodies = BODIES if ending == ".idx" else LARGE
    cluster = filled("n1", "n2", "n3", bodies=bodies)
    former = id_on(cluster, damaged)
    flip(cluster, damaged, ending)
    pass_time(cluster, REST_S + 15)
    assert is_whole(cluster, "n1", "n2", "n3"), cluster.view()
    assert id_on(cluster, damaged) != former
    pass_time(cluster, REST_S + 5)  # until all was looked at again
    assert cluster[damaged].store.damaged_files() == []
    assert cluster[damaged].store.scrubbing.findings == 1
    for node in {"n1", "n2", "n3"} - {damaged}:
        cluster.crash(node)
        pass_time(cluster, 3.0)
    assert [body for body, _ in cluster.contents(damaged)] == bodies
    assert losses(cluster) == 0


@pytest.mark.usefixtures("scrubbed")
def test_copies_that_have_not_rotted_stay() -> None:
    """However often they are looked through, while messages come and go."""
    cluster = filled("n1", "n2")
    ids = [id_on(cluster, node) for node in ("n1", "n2")]
    for round_number in range(3):
        publish(cluster, "n1", b"new %d" % round_number)
        pass_time(cluster, REST_S + 5)
    assert [id_on(cluster, node) for node in ("n1", "n2")] == ids
    assert all(node.store.scrubbing.rounds >= 2 for node in cluster)
    assert all(node.store.scrubbing.findings == 0 for node in cluster)


# --- what these stories are worth ---


@pytest.mark.usefixtures("scrubbed")
@pytest.mark.parametrize(
    ("name", "story"),
    [
        ("unreadable dropped", test_an_error_of_reading_that_stays),
        ("losses untold", test_a_master_without_a_synchronised_mirror_goes_on_without_them),
        ("read errors stay", test_an_error_of_reading_that_passes),
        ("unreadable at promotion is gone", test_a_mirror_that_must_read_before_it_takes_over),
        (
            "findings ignored",
            lambda: test_rot_that_nobody_has_read_costs_one_copy_before_a_failover_needs_it("n2", ".idx"),
        ),
    ],
)
def test_a_bug_that_is_put_back_is_found(name: str, story: Callable[[], None]) -> None:
    """The story is well without it, and not with it."""
    story()
    with bug(name), pytest.raises(AssertionError):
        story()
