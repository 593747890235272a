"""One node among others: its lease, its heartbeats, what it sees of its peers."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from cluster.membership.heartbeat import STATUS_MAX_BYTES
from cluster.membership.membership import Membership, State
from cluster.membership.outputs import (
    Hung,
    Output,
    PartitionHealed,
    PartitionSeen,
    Pause,
    Recovered,
    Refused,
    Rejoin,
    Resume,
    StatusChanged,
)
from node.catalogue.events import LeasesRenewed, MemberDown, MemberPut, MemberRemoved, MemberUp, VhostDeleted
from tests.kit.scene import BOOTED_S, OPTIONS, SELF, Scene, member, of

NO_MAJORITY = Pause("no majority of the cluster's disk nodes can be reached")
NO_LEADER = Pause("the cluster's disk nodes have no leader")
NOT_RENEWED = Pause("'n2', the leader of the cluster's disk nodes, did not renew its lease in time")
DECLARED_DOWN = Rejoin("the cluster declared this node down")


# --- options ---


@pytest.mark.parametrize(
    "arguments", [{"lease_s": 0.9}, {"heartbeat_s": 0.0}, {"heartbeat_s": -1.0}, {"margin_s": -0.1}]
)
def test_options_that_make_no_sense(arguments: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"a lease must|the margin can't"):
        replace(OPTIONS, **arguments)


def test_the_leader_waits_for_longer_than_any_lease_lasts() -> None:
    """reliability §4.2: T_lease * (1 + rho) + margin. Both clocks may be off by rho: the margin covers one."""
    slow, fast = 0.99, 1.01
    assert OPTIONS.expiry_s == pytest.approx(2.52)
    assert OPTIONS.expiry_s / fast > OPTIONS.lease_s / slow


# --- from the start to the first lease ---


def test_a_node_serves_once_it_is_up() -> None:
    """NodeUp is a sign of life too: its lease began when it was submitted."""
    scene = Scene()
    scene.node.members_changed({SELF: member(SELF), "n2": member("n2")}, scene.now)
    scene.node.leader_changed("n2", scene.now)
    scene.node.starting(scene.now)
    assert not scene.node.has_lease(scene.now)
    scene.now += 0.5
    scene.apply(MemberUp(member(SELF, 1)))
    scene.took()
    scene.node.up(1, scene.now)
    scene.took(Resume())
    assert scene.node.has_lease(BOOTED_S + 1.99)
    assert not scene.node.has_lease(BOOTED_S + 2.0)


def test_the_result_of_node_up_may_come_before_its_event() -> None:
    scene = Scene()
    scene.node.members_changed({SELF: member(SELF), "n2": member("n2")}, scene.now)
    scene.node.starting(scene.now)
    scene.node.up(1, scene.now)
    scene.took(Resume())
    scene.apply(MemberUp(member(SELF, 1)))
    scene.took()
    assert scene.node.state is State.SERVING


def test_a_start_that_took_longer_than_a_lease_waits_for_one() -> None:
    scene = Scene()
    scene.node.members_changed({SELF: member(SELF), "n2": member("n2")}, scene.now)
    scene.node.leader_changed("n2", scene.now)
    scene.node.starting(scene.now)
    scene.now += 2.0
    scene.apply(MemberUp(member(SELF, 1)))
    scene.node.up(1, scene.now)
    scene.took()
    scene.renew()
    scene.took(Resume())


def test_a_starting_node_says_that_it_lives_before_it_knows_that_it_is_up() -> None:
    """NodeUp's result waits until all that are up have applied it, which may take longer than a lease."""
    scene = Scene()
    scene.node.members_changed({SELF: member(SELF), "n2": member("n2", 2)}, scene.now)
    scene.node.link_up("n2", 2, scene.now)
    scene.node.starting(scene.now)
    scene.take()
    scene.apply(MemberUp(member(SELF, 1)))
    scene.took()
    assert [(to, beat.incarnation) for to, beat in scene.beats] == [("n2", 1)]


def test_former_lives_that_are_read_from_the_log_are_over() -> None:
    """reliability §4.7 S9. The last incarnation that the log brings is ours; its former leases are nobody's."""
    scene = Scene()
    scene.node.members_changed({SELF: member(SELF), "n2": member("n2")}, scene.now)
    scene.node.leader_changed("n2", scene.now)
    scene.node.starting(scene.now)
    scene.apply(MemberUp(member(SELF, 5)), LeasesRenewed((("n2", 2, 1.0), (SELF, 5, scene.now))))
    scene.apply(MemberDown(member(SELF, 5)), MemberUp(member(SELF, 9)))
    scene.now += 1.0
    scene.node.up(9, scene.now)
    scene.took(Resume())
    scene.renew(incarnation=5)
    assert scene.node.has_lease(BOOTED_S + 1.9)
    assert not scene.node.has_lease(BOOTED_S + 2.0)


def test_declared_down_before_it_knew_that_it_was_up() -> None:
    scene = Scene()
    scene.node.members_changed({SELF: member(SELF), "n2": member("n2")}, scene.now)
    scene.node.starting(scene.now)
    scene.apply(MemberUp(member(SELF, 1)), MemberDown(member(SELF, 1)))
    scene.node.up(1, scene.now)
    scene.took(DECLARED_DOWN)
    assert scene.node.state is State.OFF


# --- the lease ---


def test_a_lease_lasts_from_when_the_node_spoke() -> None:
    """reliability §4.2: lease_until = t + T_lease, however late that is applied."""
    scene = Scene.up("n2", "n3")
    scene.now += 1.5
    scene.renew(sent_s=scene.now - 1.0)
    assert scene.wait(0.99) == []
    assert scene.wait(0.01) == [NOT_RENEWED]
    assert scene.now == BOOTED_S + 2.5


def test_own_heartbeats_renew_nothing() -> None:
    scene = Scene.up("n2", "n3")
    outputs = scene.wait(2.0, "n2", "n3")
    assert outputs == [NOT_RENEWED]
    assert not scene.node.has_lease(scene.now)


def test_renewed_again_and_again() -> None:
    scene = Scene.up("n2", "n3")
    for _ in range(20):
        assert scene.wait(0.5, "n2", "n3") == []
        scene.renew(sent_s=scene.now - 0.25)
        scene.took()


def test_a_paused_node_resumes_when_its_lease_is_renewed() -> None:
    """amqp-behaviour §9.6: it comes back by itself, as a paused node of RabbitMQ does."""
    scene = Scene.up("n2", "n3")
    scene.wait(10.0, "n2", "n3")
    assert scene.node.state is State.PAUSED
    scene.renew()
    scene.took(Resume())


def test_a_pause_that_lasts_ends_the_incarnation() -> None:
    """A node whose disk hangs is heard and gets no lease: what it is master of goes to others all the same."""
    scene = Scene.up("n2", "n3")
    scene.wait(16.0, "n2", "n3")
    assert scene.node.state is State.OFF
    assert scene.node.incarnation == 0, "its heartbeats renew nothing"


def test_pausing_says_why() -> None:
    scene = Scene.up("n2", "n3")
    scene.node.majority_changed(False, scene.now)
    scene.node.leader_changed(None, scene.now)
    assert scene.wait(2.0, "n2", "n3") == [NO_MAJORITY]
    scene = Scene.up("n2", "n3")
    scene.node.leader_changed(None, scene.now)
    assert scene.wait(2.0, "n2", "n3") == [NO_LEADER]


@pytest.mark.parametrize(
    "sent",
    [
        (),
        (("n2", 2, 1.0),),
        (("n2", 2, 1.0), ("n3", 1, BOOTED_S + 1)),
        (("n2", 2, 1.0), (SELF, 7, BOOTED_S + 1)),
        (("n2", 2, 1.0), (SELF, 1, BOOTED_S + 1000)),
        (("n3", 2, 1.0), (SELF, 1, BOOTED_S + 1)),
        (("n2", 2, 1.0), (SELF, 1, BOOTED_S - 1)),
    ],
    ids=[
        "nobody",
        "leader only",
        "another",
        "another life",
        "the future",
        "not our leader's",
        "before it led",
    ],
)
def test_what_renews_nothing(sent: tuple[tuple[str, int, float], ...]) -> None:
    scene = Scene.up("n2", "n3")
    scene.now += 1.0
    scene.apply(LeasesRenewed(sent))
    assert scene.wait(1.0, "n2", "n3") == [NOT_RENEWED]


def test_what_an_earlier_leader_heard_renews_nothing() -> None:
    """The present leader may know nothing of it, and may be about to declare this node down."""
    scene = Scene.up("n2", "n3")
    spoke_s = scene.now = BOOTED_S + 1.0
    scene.node.leader_changed("n3", scene.now + 0.1)
    scene.now += 0.1
    scene.renew(sent_s=spoke_s, leader="n2")
    scene.renew(sent_s=spoke_s, leader="n3")
    assert scene.wait(0.9) == [
        Pause("'n3', the leader of the cluster's disk nodes, did not renew its lease in time")
    ]
    scene.renew(leader="n3")
    scene.took(Resume())


def test_s20_frozen_for_longer_than_the_lease() -> None:
    """reliability §4.7 S20: whatever is read first after it woke up, the pause comes before."""
    for wake in ("link", "log", "heartbeat", "tick"):
        scene = Scene.up("n2", "n3")
        spoke_s, scene.now = scene.now, scene.now + 60.0
        match wake:
            case "link":
                scene.node.link_down("n2", is_gone=False, now=scene.now)
            case "log":
                scene.renew(sent_s=spoke_s)
            case "heartbeat":
                scene.hear("n2")
            case "tick":
                scene.node.tick(scene.now)
        scene.took(NOT_RENEWED)


def test_s20_declared_down_meanwhile() -> None:
    scene = Scene.up("n2", "n3")
    scene.now += 60.0
    scene.apply(MemberDown(member(SELF, 1)))
    scene.took(NOT_RENEWED, DECLARED_DOWN)
    assert scene.node.incarnation == 0


def test_declared_down_while_it_serves() -> None:
    scene = Scene.up("n2", "n3")
    scene.apply(MemberDown(member(SELF, 1)))
    scene.took(DECLARED_DOWN)
    scene.renew()
    assert scene.wait(5.0, "n2", "n3") == []
    scene.node.starting(scene.now)
    scene.apply(MemberUp(member(SELF, 4)))
    scene.node.up(4, scene.now)
    scene.took(Resume())


def test_s9_another_process_took_its_place() -> None:
    scene = Scene.up("n2", "n3")
    scene.apply(MemberDown(member(SELF, 1)), MemberUp(member(SELF, 4)))
    scene.took(DECLARED_DOWN)


def test_a_snapshot_tells_that_it_is_down() -> None:
    scene = Scene.up("n2", "n3")
    scene.node.members_changed({SELF: member(SELF, 1, is_up=False), "n2": member("n2", 2)}, scene.now)
    scene.took(DECLARED_DOWN)


def test_removed_from_the_cluster() -> None:
    scene = Scene.up("n2", "n3")
    scene.apply(MemberRemoved(member(SELF, 1)))
    scene.took(Rejoin("this node was removed from the cluster"))
    scene = Scene.up("n2", "n3")
    scene.node.members_changed({"n2": member("n2", 2)}, scene.now)
    scene.took(Rejoin("this node was removed from the cluster"))


def test_a_changed_record_of_its_own_is_no_news() -> None:
    scene = Scene.up("n2", "n3")
    scene.apply(MemberPut(member(SELF, 1)), VhostDeleted("v"))
    scene.took()


def test_a_clean_stop_is_not_answered_by_a_restart() -> None:
    scene = Scene.up("n2", "n3")
    scene.node.stopped(scene.now)
    scene.apply(MemberDown(member(SELF, 1)))
    assert scene.wait(5.0, "n2", "n3") == []
    assert {beat.incarnation for _, beat in scene.beats} == {0}


def test_a_node_alone_needs_no_lease() -> None:
    scene = Scene.up(leader=SELF)
    assert scene.wait(10.0) == []
    scene.now += 3600.0
    assert scene.node.has_lease(scene.now)
    scene.node.tick(scene.now)
    scene.took()


def test_a_second_member_ends_that() -> None:
    scene = Scene.up(leader=SELF)
    scene.wait(1.0)
    scene.join("n2")
    assert len(scene.take()) == 1  # renews its own
    scene.node.leader_changed(None, scene.now)
    assert scene.wait(1.99) == []
    assert scene.wait(0.01) == [NO_LEADER]


# --- heartbeats ---


def test_heartbeats_four_times_a_second() -> None:
    scene = Scene.up("n2", "n3")
    scene.wait(0.1)
    times = []
    for _ in range(8):
        scene.wait(scene.node.next_deadline() - scene.now)
        times.append(scene.now - BOOTED_S)
        assert [to for to, _ in scene.beats] == ["n2", "n3"]
        beat = scene.beats[0][1]
        assert (beat.incarnation, beat.sent_s, beat.leader) == (1, scene.now, "n2")
        assert beat.reachable == {"n2", "n3"}
        scene.hear("n2")
        scene.hear("n3")
        scene.renew()
    assert times == [0.25 * number for number in range(1, 9)]


def test_heartbeats_go_where_there_is_a_link() -> None:
    scene = Scene.up("n2", "n3")
    scene.node.link_down("n3", is_gone=False, now=scene.now)
    scene.take()
    scene.wait(0.25)
    assert [(to, sorted(beat.reachable)) for to, beat in scene.beats] == [("n2", ["n2"])]
    scene.node.link_up("n3", 3, scene.now)
    scene.take()
    assert [to for to, _ in scene.beats] == ["n3"]


def test_a_new_leader_hears_of_us_at_once() -> None:
    scene = Scene.up("n2", "n3")
    scene.now += 0.1
    scene.node.leader_changed("n3", scene.now)
    scene.take()
    assert [(to, beat.leader) for to, beat in scene.beats] == [("n2", "n3"), ("n3", "n3")]


def test_links_of_those_that_are_no_members_yet() -> None:
    """A link may come up before the log says who that is, and its end leaves nothing behind."""
    scene = Scene.up("n2")
    scene.node.link_up("n3", 0, scene.now)
    assert scene.wait(2.0 - 0.25, "n2") == []
    assert "n3" in scene.node.reachable
    scene.node.link_down("n3", is_gone=False, now=scene.now)
    scene.node.link_down("n4", is_gone=False, now=scene.now)
    assert scene.node.reachable == ["n2"]


# --- garbage ---


def test_garbage_is_refused_once_a_link() -> None:
    scene = Scene.up("n2", "n3")
    scene.node.received("n2", b"\xff", scene.now)
    scene.took(Refused("n2", "not a heartbeat: ignored"))
    scene.node.received("n2", b"\xff", scene.now)
    scene.node.received("n9", b"\xff", scene.now)
    scene.took()
    scene.node.link_up("n2", 2, scene.now)
    scene.node.received("n2", b"\xff", scene.now)
    scene.took(Refused("n2", "not a heartbeat: ignored"))


def test_a_clock_that_goes_back_is_refused() -> None:
    scene = Scene.up("n2", "n3")
    scene.hear("n2", sent_s=50.0)
    scene.hear("n2", sent_s=49.0)
    scene.took(Refused("n2", "its clock went back from 50.0 to 49.0: ignored"))
    scene.node.link_up("n2", 0, scene.now)
    scene.hear("n2", sent_s=3.0)
    scene.took()


def test_what_is_refused_is_no_sign_of_life() -> None:
    scene = Scene.up("n2", "n3")
    outputs = []
    for _ in range(6):
        scene.node.received("n2", b"\xff", scene.now)
        outputs += scene.wait(0.25, "n3")
    assert Hung("n2") in outputs


# --- statuses ---


def test_a_status_goes_out_whole_when_it_is_new() -> None:
    scene = Scene.up("n2", "n3")
    scene.node.set_status({"alarms": ["memory"]}, scene.now)
    scene.take()  # at once: limits and alarms of other nodes depend on it
    assert [(beat.status_version, beat.status) for _, beat in scene.beats] == [
        (1, b'{"alarms":["memory"]}')
    ] * 2
    scene.node.set_status({"alarms": ["memory"]}, scene.now)
    scene.wait(0.25)
    assert [(beat.status_version, beat.status) for _, beat in scene.beats] == [(1, None)] * 2
    scene.node.set_status({}, scene.now)
    scene.take()
    assert [(beat.status_version, beat.status) for _, beat in scene.beats] == [(2, b"{}")] * 2


def test_a_status_goes_out_whole_when_a_link_comes_up_or_the_peer_lacks_it() -> None:
    scene = Scene.up("n2", "n3")
    scene.node.set_status({}, scene.now)
    scene.wait(0.25)
    scene.node.link_up("n3", 3, scene.now)
    scene.take()
    assert [(to, beat.status) for to, beat in scene.beats] == [("n3", b"{}")]
    scene.hear("n2", lacks_status=True)
    scene.wait(0.25)
    assert [(to, beat.status) for to, beat in scene.beats] == [("n2", b"{}"), ("n3", None)]


def test_a_status_that_is_too_large_leaves_the_old_one() -> None:
    scene = Scene.up("n2", "n3")
    scene.node.set_status({"a": 1}, scene.now)
    scene.take()
    assert scene.beats[0][1].status == b'{"a":1}'
    large = {"a": "x" * STATUS_MAX_BYTES}
    scene.node.set_status(large, scene.now)
    scene.node.set_status(large, scene.now)
    text = "its status has 65544 bytes, more than 65536: others see the former one"
    scene.took(Refused(SELF, text))
    scene.wait(0.25)
    assert (scene.beats[0][1].status_version, scene.beats[0][1].status) == (1, None)
    scene.node.set_status({"a": 2}, scene.now)
    scene.node.set_status(large, scene.now)
    scene.took(Refused(SELF, text))


def test_changes_of_a_status_are_told() -> None:
    scene = Scene.up("n2", "n3")
    scene.hear("n2", version=4, status=b'{"a":1}')
    scene.took(StatusChanged("n2", {"a": 1}))
    scene.hear("n2", version=4)
    scene.hear("n2", version=5, status=b'{"a":1}')
    scene.took()
    scene.hear("n2", version=6, status=b'{"a":2}')
    scene.took(StatusChanged("n2", {"a": 2}))
    assert scene.node.statuses == {"n2": {"a": 2}}


def test_a_status_that_got_lost_is_asked_for() -> None:
    scene = Scene.up("n2", "n3")
    scene.hear("n2", version=4)
    scene.wait(0.25)
    assert [(to, beat.lacks_status) for to, beat in scene.beats] == [("n2", True), ("n3", False)]
    scene.hear("n2", version=4, status=b"{}")
    scene.took(StatusChanged("n2", {}))
    scene.wait(0.25)
    assert [beat.lacks_status for _, beat in scene.beats] == [False, False]


def test_a_status_ends_with_its_node() -> None:
    """A status ends with its node, or the alarm of a node that is gone would block publishers for ever."""
    scene = Scene.up("n2", "n3")
    scene.hear("n3", version=1, status=b'{"alarms":["disk"]}')
    scene.take()
    scene.apply(MemberDown(member("n3", 3)))
    scene.took(StatusChanged("n3", None))
    scene.hear("n3", version=2, status=b'{"alarms":["disk"]}')  # it doesn't know yet
    scene.took()
    scene.hear(
        "n3", incarnation=0, version=3, status=b'{"is_running":false}'
    )  # it knows: its app has stopped
    scene.took(StatusChanged("n3", {"is_running": False}))
    scene.apply(MemberRemoved(member("n3", 3)))
    scene.took(StatusChanged("n3", None))


def test_a_status_of_a_node_that_is_not_up_ends_with_its_link() -> None:
    """A node that stops says so first, and may have an alarm until its process ends."""
    scene = Scene.up("n2", "n3")
    scene.apply(MemberDown(member("n3", 3)))
    scene.hear("n3", incarnation=0, version=1, status=b'{"alarms":["disk"]}')
    scene.take()
    scene.node.link_down("n3", is_gone=True, now=scene.now)
    scene.took(StatusChanged("n3", None))
    assert scene.node.statuses == {}


@pytest.mark.parametrize(
    "story",
    [test_a_status_ends_with_its_node, test_a_status_of_a_node_that_is_not_up_ends_with_its_link],
)
def test_an_alarm_that_outlives_its_node_is_found(
    story: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Membership, "_forget_status", lambda self, peer: None)
    with pytest.raises(AssertionError):
        story()


def test_a_broken_status_is_no_heartbeat() -> None:
    scene = Scene.up("n2", "n3")
    scene.hear("n2", version=1, status=b"[]")
    scene.took(Refused("n2", "a status that isn't a JSON object: ignored"))
    assert scene.node.statuses == {}


# --- hung loops ---


def test_a_loop_that_hangs() -> None:
    """ring §4: keepalive answers while a peer's Python loop spins; only the heartbeats are missing."""
    scene = Scene.up("n2", "n3")
    assert scene.wait(1.0, "n2") == []
    assert of(Hung, scene.wait(0.25, "n2")) == [Hung("n3")]
    scene.renew()
    assert of(Hung, scene.wait(1.5, "n2")) == []
    assert scene.beats[0][1].reachable == {"n2"}
    scene.hear("n3")
    assert scene.take() == [Recovered("n3")]


def test_who_was_frozen_itself_suspects_nobody() -> None:
    scene = Scene.up("n2", "n3")
    scene.now += 60.0
    assert of(Hung, scene.wait(1.0)) == []
    assert of(Hung, scene.wait(0.5, "n2")) == [Hung("n3")]


def test_a_link_that_is_down_does_not_hang() -> None:
    scene = Scene.up("n2", "n3")
    scene.node.link_down("n3", is_gone=False, now=scene.now)
    assert of(Hung, scene.wait(1.5, "n2")) == []


# --- partial partitions ---


def cut_off(scene: Scene) -> list[Output]:
    """n3 is out of reach; the leader n2 reaches it."""
    outputs = []
    scene.node.link_down("n3", is_gone=False, now=scene.now)
    for _ in range(6):
        scene.renew()
        outputs += scene.wait(0.25)
        scene.hear("n2", reachable=(SELF, "n3"))
    return outputs + scene.take()


def test_a_partial_partition_is_listed_and_nobody_pauses() -> None:
    """reliability §2.4 partial_pause_minority, partial_false_positive: A-B is cut: all go on and say what they see."""
    scene = Scene.up("n2", "n3")
    assert cut_off(scene) == [PartitionSeen("n3")]
    assert scene.node.partitions == ["n3"]
    assert scene.node.state is State.SERVING
    scene.node.link_up("n3", 3, scene.now)
    scene.took(PartitionHealed("n3"))
    assert scene.node.partitions == []


def test_a_partition_ends_when_its_node_is_down() -> None:
    scene = Scene.up("n2", "n3")
    cut_off(scene)
    scene.apply(MemberDown(member("n3", 3)))
    scene.took(PartitionHealed("n3", is_down=True))


def test_a_node_that_nobody_reaches_is_no_partition() -> None:
    scene = Scene.up("n2", "n3")
    scene.node.link_down("n3", is_gone=False, now=scene.now)
    for _ in range(10):
        scene.renew()
        assert scene.wait(0.25, "n2") == []


def test_a_link_that_is_soon_back_is_no_partition() -> None:
    scene = Scene.up("n2", "n3")
    scene.node.link_down("n3", is_gone=False, now=scene.now)
    for _ in range(4):
        scene.hear("n2", reachable=(SELF, "n3"))
        assert scene.wait(0.25) == []


# --- clocks ---


def test_the_clock_may_say_anything() -> None:
    """A story gives the same outputs when the clock shows an hour more."""

    def story(booted_s: float) -> list[object]:
        scene = Scene.up("n2", "n3", booted_s=booted_s)
        outputs: list[object] = [*scene.wait(3.0, "n2")]
        scene.hear("n3")
        scene.renew()
        return [*outputs, *scene.take(), *scene.wait(3.0, "n3")]

    assert story(BOOTED_S) == story(BOOTED_S + 3600) == story(0.0)
    assert story(0.0) == [Hung("n3"), NOT_RENEWED, Recovered("n3"), Resume(), Hung("n2"), NOT_RENEWED]


def test_a_clock_that_goes_back_is_our_own_bug() -> None:
    node = Membership(SELF, OPTIONS)
    node.tick(5.0)
    with pytest.raises(AssertionError):
        node.tick(4.0)
