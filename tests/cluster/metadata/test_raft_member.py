"""Members of a Raft group, in memory and in virtual time."""

import pytest

from cluster.metadata.core import APPLY_S
from cluster.metadata.entries import BATCH_BYTES
from cluster.metadata.journal import UNSYNCED_MAX_BYTES
from cluster.metadata.journal_file import PATH
from cluster.metadata.raft_log import BATCH_MAX_COMMANDS, RaftLog
from cluster.metadata.raft_pb2 import (
    AnswerVote,
    Append,
    Batch,
    GrantVote,
    NextIndex,
    Piece,
    RaftMessage,
    RequestVote,
    Resign,
)
from cluster.metadata.wire import decode
from node.catalogue.commands import Refused
from node.catalogue.replicated_log import NOT_WRITTEN
from tests.kit.disk import SimulatedDisk
from tests.kit.raft_world import FULL_RETRY_S, Process, Profile, World, parameter


def _group(*names: str, observers: tuple[str, ...] = (), seed: int = 1) -> World:
    world = World(seed, names, observers)
    world.form(names[0])
    assert world.run(5, lambda: world.up[names[0]].incarnation > 0)
    for name in (*names[1:], *observers):
        world.admit(name, names[0])
    assert world.run(20, world.is_settled), [
        (p.name, p.incarnation, p.is_joining, p.raft.applied_index, p.raft.leader) for p in world.up.values()
    ]
    return world


def test_a_group_of_one_answers_when_it_is_synced() -> None:
    world = _group("a")
    answers = world.submit("a", parameter(1))
    assert world.run(1, lambda: bool(answers))
    assert answers == [True]
    assert not world.up["a"].disk.jobs  # type: ignore[union-attr]


def test_entries_are_applied_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may delete fifty queues with all their messages. A leader that applied hundreds renewed no leases."""
    world = _group("a")
    process = world.up["a"]
    applied = RaftLog.apply
    counts: list[int] = []

    def slow(self: RaftLog, index: int, command: bytes, *, is_last: bool) -> None:
        world.now += 0.4 * APPLY_S
        counts[-1] += 1
        applied(self, index, command, is_last=is_last)

    def tick(now: float) -> float:
        counts.append(0)
        due = whole(now)
        assert due <= now + 0.001 or not process.raft._core.has_entries_left
        return due

    whole = process.raft.tick
    monkeypatch.setattr(process.raft, "tick", tick)
    monkeypatch.setattr(RaftLog, "apply", slow)
    answers = [world.submit("a", parameter(number)) for number in range(10 * BATCH_MAX_COMMANDS)]
    assert world.run(5, lambda: all(answers))
    assert sum(counts) >= 10
    assert max(counts) <= 3


def test_a_leader_counts_itself_for_what_is_synced() -> None:
    """A leader does not count its own unsynced entries, even in the tick in which it begins to lead, alone."""
    world = World(1, ("a",))
    process = world.form("a")
    world.run(0.00005)
    position = process.raft._core.position()
    assert position.is_leader
    assert position.committed < position.last
    world.run(0.1)
    assert process.raft._core.position().committed == position.last


def test_entries_leave_before_they_are_synced_here() -> None:
    """The leader's disk works while the others' do; its own counts when it is done (Ongaro's thesis, §10.2.1)."""
    world = _group("a", "b", "c")
    leader = next(process for process in world.up.values() if process.raft.is_leader)
    followers = [process for process in world.up.values() if process is not leader]
    last = leader.raft._journal.last[1]
    leader.is_disk_busy = True  # as if one step took for ever
    answers = world.submit(leader.name, parameter(1))
    world.run(0.1)
    assert {each.raft._journal.last[1] for each in followers} == {last + 1}
    assert leader.raft._core.position().committed == last
    assert {each.raft._core.position().committed for each in followers} == {last + 1}
    assert not answers
    leader.is_disk_busy = False
    world._drive_disk(leader)
    assert world.run(1, lambda: bool(answers))


def test_a_pair_without_a_link_hears_by_way_of_the_leader() -> None:
    """Both are up, as the leader reaches both: a command of one waits for the other (reliability §2.4, partial)."""
    world = _group("a", "b", "c")
    leader = next(name for name, process in world.up.items() if process.raft.is_leader)
    one, other = sorted(set(world.up) - {leader})
    world.block(one, other)
    world.run(2)
    answers = world.submit(one, parameter(1))
    assert world.run(1, lambda: bool(answers))
    assert answers == [True]


def test_a_commit_takes_ten_messages() -> None:
    """A commit of three members takes the entry, the answers, and the news that it is committed and applied."""
    world = _group("a", "b", "c")
    leader = next(name for name, process in world.up.items() if process.raft.is_leader)
    world.run(10)
    world.submit(leader, parameter(0))  # all tell all what they have applied, once in a while
    world.run(1)
    sent: list[str] = []
    pass_on = world.checks.sent

    def count(process: Process, peer: str, data: bytes) -> None:
        sent.append(decode(data).kind)
        pass_on(process, peer, data)

    world.checks.sent = count  # type: ignore[method-assign]
    answers = world.submit(leader, parameter(1))
    assert world.run(0.1, lambda: bool(answers))
    assert sorted(sent) == 4 * ["append"] + 2 * ["applied"] + 4 * ["next_index"]


def test_a_commit_of_a_follower_takes_the_proposal_besides() -> None:
    """The submitter tells no member what it has applied itself: none waits for that."""
    world = _group("a", "b", "c")
    leader = next(name for name, process in world.up.items() if process.raft.is_leader)
    follower = next(name for name in "abc" if name != leader)
    world.run(10)
    world.submit(follower, parameter(0))  # all tell all what they have applied, once in a while
    world.run(1)
    sent: list[str] = []
    pass_on = world.checks.sent

    def count(process: Process, peer: str, data: bytes) -> None:
        sent.append(decode(data).kind)
        pass_on(process, peer, data)

    world.checks.sent = count  # type: ignore[method-assign]
    answers = world.submit(follower, parameter(1))
    assert world.run(0.1, lambda: bool(answers))
    assert sorted(sent) == 4 * ["append"] + 2 * ["applied"] + 4 * ["next_index"] + ["propose"]


def test_a_submitter_hears_of_the_last_entry_before_it_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member does nothing between its notice and the entry, so no client can find it without the entry."""
    world = _group("a", "b", "c")
    leader = next(name for name, process in world.up.items() if process.raft.is_leader)
    follower = next(process for process in world.up.values() if process.name != leader)
    events: list[str] = []
    pass_on, apply = world.checks.sent, follower.log._apply_one

    def sent(process: Process, peer: str, data: bytes) -> None:
        if process is follower and decode(data).kind == "applied" and peer == leader:
            events.append("told")
        pass_on(process, peer, data)

    def applied(index: int, text: bytes) -> object:
        events.append("applied")
        return apply(index, text)

    monkeypatch.setattr(world.checks, "sent", sent)
    monkeypatch.setattr(follower.log, "_apply_one", applied)
    answers = [world.submit(leader, parameter(number)) for number in range(2)]
    assert world.run(0.1, lambda: all(answers))
    assert events == ["told", "applied", "applied"], "both commands are in one entry"


def _leader_and_events(world: World, monkeypatch: pytest.MonkeyPatch) -> tuple[Process, list[str]]:
    """Return the leader, and a list that will have the appends that it sends and the commands that it applies."""
    leader = next(process for process in world.up.values() if process.raft.is_leader)
    events: list[str] = []
    pass_on, apply = world.checks.sent, leader.log.apply

    def sent(process: Process, peer: str, data: bytes) -> None:
        received = decode(data)
        if process is leader and received.kind == "append":
            events.append("entry" if received.body.entries else "commit")
        pass_on(process, peer, data)

    def applied(index: int, command: bytes, *, is_last: bool) -> None:
        events.append("applied")
        apply(index, command, is_last=is_last)

    monkeypatch.setattr(world.checks, "sent", sent)
    monkeypatch.setattr(leader.log, "apply", applied)
    return leader, events


def test_a_leader_tells_what_is_committed_before_it_applies_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The followers apply an entry at the same time: a command is answered when all have."""
    world = _group("a", "b", "c")
    leader, events = _leader_and_events(world, monkeypatch)
    answers = world.submit(leader.name, parameter(1))
    assert world.run(0.1, lambda: bool(answers))
    assert events == ["entry", "entry", "commit", "commit", "applied"]


def test_news_of_a_commit_goes_with_entries_that_are_about_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader with more commands sends one message to a follower, not two."""
    world = _group("a", "b", "c")
    leader, events = _leader_and_events(world, monkeypatch)
    first = world.submit(leader.name, parameter(1))
    assert world.run(0.1, leader.raft._core.has_work), "the entry can be committed in the next tick"
    second = world.submit(leader.name, parameter(2))
    assert world.run(0.1, lambda: bool(first and second))
    assert events[:5] == ["entry", "entry", "applied", "entry", "entry"]


def test_entries_go_to_the_disk_with_the_read_that_brings_them() -> None:
    """A follower needs no tick for them: it has nothing to add."""
    world = _group("a", "b", "c")
    leader = next(process for process in world.up.values() if process.raft.is_leader)
    follower = next(process for process in world.up.values() if process is not leader)
    assert follower.disk is not None
    world.run(10)  # the rest of the first second's notices
    last = follower.raft._journal.last[1]
    answers = world.submit(leader.name, parameter(1))
    assert world.run(0.1, lambda: follower.raft._journal.last[1] > last)
    assert follower.disk.jobs
    assert not follower.is_tick_asked
    assert world.run(0.1, lambda: bool(answers))


def test_followers_know_what_is_committed_without_the_leaders_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each hears of the other's journal; the leader's word would come a hop later."""
    world = _group("a", "b", "c")
    leader = next(process for process in world.up.values() if process.raft.is_leader)
    followers = [process for process in world.up.values() if process is not leader]
    last = leader.raft._journal.last[1]
    monkeypatch.setattr(leader.raft._core, "announce", lambda: None)
    leader.raft._core.propose(b"\0" + Batch(node="x", session="x", number=1).SerializeToString())
    leader.raft._wake_core()
    assert world.run(0.1, lambda: leader.raft._journal.last[1] > last)
    leader.raft._core.hurry()  # once, as no news is announced
    leader.raft._wake_core()
    assert world.run(0.1, lambda: all(each.raft.applied_index == last + 1 for each in followers))


def test_a_follower_counts_itself_for_what_is_synced() -> None:
    """The other follower's answer alone is no majority."""
    world = _group("a", "b", "c")
    leader = next(process for process in world.up.values() if process.raft.is_leader)
    slow, quick = (process for process in world.up.values() if process is not leader)
    last = leader.raft._journal.last[1]
    leader.is_disk_busy = slow.is_disk_busy = True  # as if one step took for ever
    answers = world.submit(leader.name, parameter(1))
    world.run(0.1)
    assert quick.raft._journal.synced_index == last + 1
    assert {each.raft._core.position().committed for each in world.up.values()} == {last}
    slow.is_disk_busy = False
    world._drive_disk(slow)
    world.run(0.1)
    assert {each.raft._core.position().committed for each in (slow, quick)} == {last + 1}
    assert not answers
    leader.is_disk_busy = False
    world._drive_disk(leader)
    assert world.run(1, lambda: bool(answers))


def test_three_members_agree() -> None:
    world = _group("a", "b", "c")
    for number, name in enumerate("abc"):
        answers = world.submit(name, parameter(number))
        begun = world.now
        assert world.run(1, lambda: bool(answers))  # noqa: B023
        assert answers == [True]
        assert world.now - begun < 0.05
    world.run(1)
    world.checks.at_rest()
    assert world.up["a"].raft.voters == {"a", "b", "c"}


def test_without_a_majority_commands_are_refused_at_once() -> None:
    world = _group("a", "b", "c")
    world.stop("b")
    world.stop("c")
    world.run(1)
    answers = world.submit("a", parameter(1))
    (refused,) = answers
    assert isinstance(refused, Refused)
    assert refused.text == "the cluster has no majority of its disk nodes: metadata cannot be changed"


def test_a_leader_that_dies_is_followed_by_another() -> None:
    world = _group("a", "b", "c")
    leader = next(name for name, process in world.up.items() if process.raft.is_leader)
    world.stop(leader)
    begun = world.now
    other = next(iter(world.up))
    answers = world.submit(other, parameter(1))
    # Waits while an election is on; the answer waits until the dead one is declared down.
    assert world.run(5, lambda: bool(answers))
    assert answers == [True]
    assert world.now - begun < 4


def test_a_dead_leader_is_followed_at_once() -> None:
    """Proof of death needs no time-out: the first voter by name stands at once, the next only if that one cannot."""
    for seed in range(5):
        world = _group("a", "b", "c", seed=seed)
        leader = next(name for name, process in world.up.items() if process.raft.is_leader)
        world.stop(leader)
        assert world.run(0.3, lambda: any(each.raft.is_leader for each in world.up.values()))  # noqa: B023


def test_an_observer_submits_and_follows() -> None:
    world = _group("a", "b", observers=("ram",))
    answers = world.submit("ram", parameter(1))
    assert world.run(1, lambda: bool(answers))
    assert answers == [True]
    assert not world.up["ram"].raft.is_voter
    assert world.up["a"].raft.voters == {"a", "b"}
    world.run(1)
    world.checks.at_rest()


def test_a_restarted_member_knows_what_it_knew() -> None:
    world = _group("a", "b", "c")
    for number in range(5):
        world.submit("a", parameter(number))
    world.run(2)
    for name in "abc":
        world.stop(name, power_loss=True)
    for name in "abc":
        world.start(name)
    assert world.run(20, world.is_settled)
    world.checks.at_rest()
    assert world.up["b"].log.catalogue.global_parameter("p4") == ""


def test_a_member_far_behind_gets_a_snapshot() -> None:
    world = _group("a", "b", "c")
    world.stop("c")
    world.run(3)
    for number in range(300):
        world.submit("a", parameter(number, 200))
        world.run(0.02)
    world.run(1)
    assert world.up["a"].raft._journal.base_index > 100
    reacted: list[object] = []
    process = world.start("c")
    process.log.attach(reacted.append)
    process.log.on_replaced = lambda: reacted.append("replaced")
    assert world.run(20, world.is_settled)
    assert reacted.index("replaced") == len(reacted) - 1, "the broker knows the old catalogue"
    world.checks.at_rest()


def test_voters_come_and_go() -> None:
    world = _group("a", "b", "c")
    for name in ("a", "b", "c"):
        told: list[str | None] = []
        by = next(other for other in "abc" if other != name)
        world.up[by].raft.remove_voter(name, told.append)
        assert world.run(15, lambda: bool(told)), name  # noqa: B023
        assert told == [None]
        assert name not in world.up[by].raft.voters
        told.clear()
        world.up[name].raft.add_voter(name, told.append)
        assert world.run(15, lambda: bool(told)), name  # noqa: B023
        assert told == [None]
    world.run(2)
    assert world.up["a"].raft.voters == {"a", "b", "c"}


def test_the_only_voter_stays() -> None:
    world = _group("a")
    told: list[str | None] = []
    world.up["a"].raft.remove_voter("a", told.append)
    assert world.run(20, lambda: bool(told))
    assert told == ["the cluster did not remove 'a' as a voter within 15 s"]


def test_a_member_with_one_broken_link_deposes_nobody() -> None:
    """PySyncObj has no PreVote: a node that hears no leader deposes a healthy one (reliability §3.2)."""
    world = _group("a", "b", "c")
    leader = next(name for name, process in world.up.items() if process.raft.is_leader)
    follower = next(name for name in "abc" if name != leader)
    term = world.up[leader].raft.term
    world.block(leader, follower)
    world.run(10)
    world.heal()
    world.run(2)
    assert world.up[leader].raft.is_leader
    assert world.up[leader].raft.term == term


def _from(world: World, peer: str, to: str, data: bytes) -> None:
    world.up[to].raft.receive(peer, [data])


def test_an_observer_cannot_lead_or_vote() -> None:
    """An append of term 999 from an observer was obeyed by all voters (reliability §3.5)."""
    world = _group("a", "b", "c", observers=("ram",))
    term = world.up["a"].raft.term
    append = RaftMessage(term=999, append=Append(previous_index=11, previous_term=1, commit_index=99))
    for message in (
        append,
        RaftMessage(term=999, request_vote=RequestVote(last_index=999, last_term=999)),
        RaftMessage(term=999, answer_vote=AnswerVote(term=1)),
        RaftMessage(term=term, grant_vote=GrantVote()),
        RaftMessage(term=term, resign=Resign()),
        RaftMessage(term=999, piece=Piece(data=b"", is_last=True)),
    ):
        for name in "abc":
            _from(world, "ram", name, message.SerializeToString())
    world.run(1)
    assert {world.up[name].raft.term for name in "abc"} == {term}
    assert any("append of a member that does not vote" in line for line in world.reports)
    world.checks.at_rest()


def test_a_late_answer_of_another_term_does_not_count() -> None:
    """`next_node_idx` carries no term in PySyncObj (reliability §3.3)."""
    world = _group("a", "b", "c")
    leader = next(process for process in world.up.values() if process.raft.is_leader)
    followers = [name for name in "abc" if name != leader.name]
    for name in followers:
        world.stop(name)
    leader.log.submit(parameter(1))
    world.run(0.02)
    last = leader.raft._journal.last[1]
    before = leader.raft._core.position().committed
    late = RaftMessage(term=leader.raft.term - 1, next_index=NextIndex(next_index=last + 1, success=True))
    for name in followers:
        _from(world, name, leader.name, late.SerializeToString())
    world.run(0.02)
    assert leader.raft._core.position().committed == before


def test_a_disk_that_fails_ends_the_member() -> None:
    world = _group("a", "b", "c")
    process = world.up["a"]
    assert process.disk is not None
    process.disk.fail_sync()
    answers = world.submit("a", parameter(1))
    world.run(1)
    assert process.broken is not None
    assert "the Raft journal could not be written" in process.broken
    assert answers == [NOT_WRITTEN]
    assert "a" not in world.up


def test_a_command_that_is_too_large_is_refused() -> None:
    world = _group("a")
    (refused,) = world.submit("a", parameter(1, 2_000_000))
    assert isinstance(refused, Refused)
    assert "larger than the 1048576 bytes" in refused.text


def test_a_large_command_passes() -> None:
    """A command near a multiple of 64 KiB broke PySyncObj's receiver (reliability §3.3)."""
    world = _group("a", "b", "c")
    for number, size in enumerate((131_012, 65_500, 1_000_000)):
        answers = world.submit("b", parameter(number, size))
        assert world.run(2, lambda: bool(answers))  # noqa: B023
        assert answers == [True]
    world.run(1)
    world.checks.at_rest()


def test_garbage_is_dropped_and_reported() -> None:
    world = _group("a", "b")
    for data in (b"\xff", b"", b"\x80\x04cos\nsystem\n."):
        _from(world, "b", "a", data)
    world.run(1)
    assert len(world.reports) == 3
    assert world.up["a"].raft.leader is not None


def test_a_snapshot_of_a_newer_version_ends_the_member() -> None:
    world = _group("a")
    batch = Batch(node="z", session="s", number=1, commands=[b'{"command":"FromTheFuture"}'])
    world.up["a"].raft.propose(batch.SerializeToString())
    process = world.up["a"]
    world.up["a"].raft.tick(world.now)
    world.run(1)
    assert process.broken is not None
    assert "was it written by a later version?" in process.broken


def test_a_change_of_who_votes_leaves_when_its_leader_has_it_safe() -> None:
    """Others heed it once they have it. If the leader forgot it in a power loss, it would need the vote of one whose
    log is longer than its own, and who does not vote any more.
    """
    world = _group("a", "b")
    leader = _leader(world)
    (other,) = set("ab") - {leader}
    world.hang_disk(leader)
    world.up[leader].raft.remove_voter(other, lambda why: None)
    world.run(1)
    assert world.up[leader].raft.voters == {leader}
    assert world.up[other].raft.voters == {"a", "b"}
    world.let_disk_go_on(leader)
    world.run(1)
    assert world.up[other].raft.voters == {leader}


# --- a disk that is stuck ---

LEASE_S = 4.0
"""For how long no entry may be committed, or all nodes pause."""


def _leader(world: World) -> str:
    (leader,) = (name for name, process in world.up.items() if process.raft.is_leader)
    return leader


def _commits(world: World, name: str, number: int, within_s: float) -> None:
    """A node's command is applied everywhere within a time."""
    answers = world.submit(name, parameter(number))
    assert world.run(within_s, lambda: bool(answers)), number
    assert answers == [True]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("is_full", [False, True])
def test_a_leader_whose_disk_is_stuck_lets_another_lead(seed: int, is_full: bool) -> None:
    """A leader with a stuck disk gives up, or it would commit nothing for ever and nobody would miss it."""
    world = _group("a", "b", "c", seed=seed)
    stuck = _leader(world)
    if is_full:
        world.disks[stuck].fill_up()
    else:
        world.hang_disk(stuck)
    others = sorted(set("abc") - {stuck})
    _commits(world, others[0], 1, LEASE_S / 2)
    leader = _leader(world)
    assert leader != stuck
    for number in range(2, 40):
        _commits(world, others[number % 2], number, 0.1)
        world.run(1)
    assert _leader(world) == leader
    assert world.up[stuck].raft.applied_index == world.up[leader].raft.applied_index
    assert any(line.startswith(f"{stuck}: ") and "disk" in line for line in world.reports)
    world.let_disk_go_on(stuck)
    _commits(world, stuck, 40, FULL_RETRY_S + 0.1)
    assert _leader(world) == leader
    world.run(1)
    world.checks.at_rest()


def test_a_follower_whose_disk_is_stuck_is_not_missed() -> None:
    world = _group("a", "b", "c")
    leader = _leader(world)
    stuck, other = sorted(set("abc") - {leader})
    world.hang_disk(stuck)
    for number in range(40):
        _commits(world, other, number, 0.1)
        world.run(1)
    assert _leader(world) == leader
    assert world.up[stuck].raft.applied_index == world.up[leader].raft.applied_index


@pytest.mark.parametrize("step_s", [0.1, 0.3, 0.5])
def test_disks_that_are_slow_alike_keep_their_leader(step_s: float) -> None:
    """The others' disks need as long: another leader would be no better."""
    world = _group("a", "b", "c")
    leader, term = _leader(world), world.up["a"].raft.term
    world.disk_profile = Profile(step_s, step_s)
    before = world.up[leader].raft._core.position().committed
    for number in range(60):
        world.submit("abc"[number % 3], parameter(number))
        world.run(1)
    assert (_leader(world), world.up["a"].raft.term) == (leader, term)
    assert world.up[leader].raft._core.position().committed > before + 10


def test_without_a_majority_of_disks_nothing_is_committed() -> None:
    """One of three is dead and the leader's disk is stuck: what the third has is no majority. All is well again as
    soon as the disk is.
    """
    world = _group("a", "b", "c")
    stuck = _leader(world)
    dead, other = sorted(set("abc") - {stuck})
    world.stop(dead)
    world.hang_disk(stuck)
    answers = world.submit(other, parameter(1))
    world.run(30)
    assert isinstance(answers[0], Refused)
    world.let_disk_go_on(stuck)
    world.run(3)
    _commits(world, other, 2, 1)
    world.start(dead)
    assert world.run(20, world.is_settled)
    world.checks.at_rest()


def test_a_stuck_leader_that_only_a_minority_hears_gives_up() -> None:
    """A leader gives up if its disk is stuck and one of two followers is cut off from it.

    These two could go on without it, and the other one is told by it, again and again, that there is a leader.
    """
    world = _group("a", "b", "c")
    stuck = _leader(world)
    one, other = sorted(set("abc") - {stuck})
    world.hang_disk(stuck)
    world.block(stuck, one)
    world.submit(other, parameter(1))
    world.run(15)
    assert _leader(world) in (one, other)
    assert world.up[one].log.catalogue.global_parameter("p1") is not None


@pytest.mark.parametrize("leads", [False, True])
def test_what_waits_for_a_stuck_disk_is_bounded(leads: bool) -> None:
    """Beyond the bound a follower takes no entries, and a leader no commands."""
    world = _group("a", "b", "c")
    leader = _leader(world)
    others = sorted(set("abc") - {leader})
    stuck = leader if leads else others[0]
    if leads:
        world.stop(others[0])
    world.hang_disk(stuck)
    for number in range(100):
        world.submit(others[1], parameter(number, 400_000))
        world.run(0.5)
    journal = world.up[stuck].raft._journal
    assert UNSYNCED_MAX_BYTES / 2 < journal.unsynced_bytes < UNSYNCED_MAX_BYTES + 4 * BATCH_BYTES
    assert len(journal) < 200
    world.let_disk_go_on(stuck)
    if leads:
        world.start(others[0])
    assert world.run(40, lambda: world.is_settled() and not world.is_busy())
    world.checks.at_rest()


def test_a_group_of_one_waits_for_its_disk() -> None:
    """A group of one waits for its disk, as there is nobody else, and does not spin meanwhile."""
    world = _group("a")
    world.hang_disk("a")
    world.submit("a", parameter(1))
    world.run(30)
    steps = world.steps
    world.run(10)
    assert world.steps - steps < 200
    world.let_disk_go_on("a")
    _commits(world, "a", 2, 0.1)


# --- a data directory that went back in time ---


def test_who_comes_back_with_less_than_it_had_does_not_vote() -> None:
    """An old copy of its data directory: a majority was counted with it, and it could vote away what was committed."""
    world = _group("a", "b", "c", seed=2)
    leader = _leader(world)
    old, behind = sorted(set("abc") - {leader})
    copy = world.disks[old].content(PATH)
    world.run(1)
    world.block(leader, behind)
    world.block(old, behind)
    world.run(2)
    world.submit(leader, parameter(1))
    world.run(2)
    assert world.up[leader].log.catalogue.global_parameter("p1") is not None
    world.stop(old)
    world.disks[old].write(PATH, copy)
    world.checks.acknowledged.pop(old)
    world.run(1)
    world.start(old)
    assert world.run(1, lambda: any("it has only" in line for line in world.reports))
    world.stop(leader)
    world.heal()
    world.run(20)
    assert not any(process.raft.is_leader for process in world.up.values())
    world.start(leader)
    assert world.run(20, world.is_settled)
    assert f"{old}: this node has caught up with the Raft log, and votes again" in world.reports
    assert world.up[behind].log.catalogue.global_parameter("p1") is not None


def test_who_was_removed_may_come_back_with_nothing() -> None:
    """A node that was forgotten joins again under its name, with an empty disk."""
    world = _group("a", "b", "c")
    told: list[str | None] = []
    leader = _leader(world)
    gone = next(name for name in "abc" if name != leader)
    world.stop(gone)
    world.up[leader].raft.remove_voter(gone, told.append)
    assert world.run(15, lambda: bool(told))
    world.disks[gone] = SimulatedDisk()
    world.checks.acknowledged.pop(gone)
    world.checks.terms.pop(gone)
    world.start(gone, sorted(set("abc") - {gone}))
    assert world.run(20, lambda: world.is_settled() and gone in world.up[leader].raft.voters)
    assert not any("it has only" in line for line in world.reports)
