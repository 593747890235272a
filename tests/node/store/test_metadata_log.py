"""The catalogue survives restarts, kill -9 and power loss (amqp-behaviour §7.6)."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.catalogue.catalogue import Catalogue
from node.catalogue.command_codec import encode_command
from node.catalogue.commands import (
    Bind,
    Command,
    DeclareExchange,
    DeclareQueue,
    DeleteQueue,
    PutUser,
    PutVhost,
    SetPermission,
)
from node.catalogue.events import Event
from node.catalogue.replicated_log import NOT_WRITTEN, DurableLog
from node.store.disk import Append, MakeDir, RemoveTree, Sync
from node.store.metadata_log import MetadataLog, MetadataUnreadable
from node.store.records import METADATA_HEADER, NewerFormat, record
from tests.kit.commands_at_random import BEGINNING, build, durable_part, histories
from tests.kit.disk import SimulatedDisk

PATH = "metadata.log"
NEW_PATH = "metadata.log.tmp"


class Node:
    """A catalogue on a disk.   reports: what was damaged.   events: what came to life at the start."""

    def __init__(self, disk: SimulatedDisk, compact_min_bytes: int = 1 << 20) -> None:
        self.disk = disk
        self.catalogue = Catalogue()
        self.reports: list[tuple[str, int, str]] = []
        self.events: list[Event] = []
        self.metadata = MetadataLog(disk, self.catalogue, compact_min_bytes=compact_min_bytes)
        self.log = DurableLog(self.catalogue, self._react, self.metadata)
        self.found = self.metadata.load(self.log.replay, self._report)

    def _react(self, events: Sequence[Event]) -> None:
        self.events += events

    def _report(self, path: str, offset: int, what: str) -> None:
        self.reports.append((path, offset, what))

    def submit(self, *commands: Command[Any]) -> list[object]:
        """Submit commands; the list of their results, as they come."""
        results: list[object] = []
        for command in commands:
            self.log.submit(command, results.append)
        return results

    def queues(self) -> list[str]:
        return [queue.name for queue in self.catalogue.queues("/")]


def queue(name: str, uid: str = "00", *, durable: bool = True) -> DeclareQueue:
    return DeclareQueue("/", name, uid, durable=durable)


def file_of(*changes: Sequence[Command[Any]] | bytes) -> bytes:
    """A metadata file with these changes, or what stands there instead."""
    data = METADATA_HEADER
    for change in changes:
        if isinstance(change, bytes):
            data += change
        else:
            data += b"".join(record([b"\n".join(map(encode_command, change))]))
    return data


def disk_with(data: bytes) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.write(PATH, data)
    return disk


# --- writing ---


def test_a_new_node_has_nothing_and_then_what_was_declared() -> None:
    """The whole way: declared, answered, killed, there again with all that belongs to it."""
    node = Node(SimulatedDisk())
    assert not node.found
    commands: list[Command[Any]] = [
        PutVhost("/", "text"),
        PutUser("u", "hash", "a", ("administrator",)),
        SetPermission("/", "u", "", ".*", ""),
        DeclareExchange("/", "x", "topic", durable=True),
        queue("q"),
        Bind("/", "x", "queue", "q", "k"),
    ]
    results = node.submit(*commands, queue("t", durable=False))
    node.disk.settle()
    assert len(results) == 7
    again = Node(node.disk.kill())
    assert again.found
    assert again.reports == []
    assert durable_part(again.catalogue) == durable_part(build(commands))
    assert [type(event).__name__ for event in again.events[-3:]] == [
        "ExchangeCreated",
        "QueueCreated",
        "BindingAdded",
    ]


def test_an_answer_waits_for_the_sync() -> None:
    """Written is not enough."""
    node = Node(SimulatedDisk())
    results = node.submit(PutVhost("/"))
    node.disk.execute()
    node.disk.answer()
    assert results == []
    assert [type(step) for step in node.disk.waiting] == [Sync]
    node.disk.settle()
    assert results == [True]


def test_what_comes_while_a_job_is_under_way_shares_the_next() -> None:
    """Three changes, two syncs; so do those that come in answer to one sync."""
    node = Node(SimulatedDisk())
    node.submit(PutVhost("/"), queue("a"), queue("b"))
    assert node.disk.jobs == 1
    syncs = count_syncs(node.disk)
    assert syncs == 2
    for name in "cd":
        node.log.submit(queue(name), lambda _, name=name: node.log.submit(queue(name * 2)))  # type: ignore[misc]
    node.log.submit(queue("e"), lambda _: node.log.submit(queue("ee")))
    assert count_syncs(node.disk) == 3, "c; cc, d, e; dd, ee"
    assert node.queues() == ["a", "b", "c", "d", "e", "cc", "dd", "ee"]


def count_syncs(disk: SimulatedDisk) -> int:
    """Settle; how many syncs that took."""
    syncs = 0
    while disk.jobs:
        syncs += isinstance(disk.waiting[0], Sync)
        disk.step()
    return syncs


def test_nothing_that_others_write_comes_before_the_queue_it_belongs_to() -> None:
    """Changes that gather are handed over first; reading and removing hurry nobody."""
    node = Node(SimulatedDisk())
    node.submit(PutVhost("/"))
    disk = node.metadata.ahead_of(node.disk)
    node.submit(queue("q"))
    disk.submit([RemoveTree("queues/01")], _ignore, _ignore)
    assert [type(step) for step in node.disk.waiting] == [Append, Sync, RemoveTree]
    disk.submit([MakeDir("queues/00")], _ignore, _ignore)
    assert [type(step) for step in node.disk.waiting] == [Append, Sync, RemoveTree, Append, Sync, MakeDir]
    disk.submit([MakeDir("queues/00")], _ignore, _ignore)
    assert [type(step) for step in node.disk.waiting[5:]] == [MakeDir, MakeDir]
    assert disk.pending_bytes == node.disk.pending_bytes > 0
    node.disk.settle()
    assert disk.names("") == [PATH, "queues"]
    assert disk.size(PATH) == len(disk.run([]) or node.disk.content(PATH))
    assert Node(node.disk.crash(Random(1))).queues() == ["q"]


def _ignore(_: object) -> None:
    pass


def test_a_broken_disk_refuses_durable_changes_only() -> None:
    """541 for what was under way and for all that comes; transient queues go on."""
    node = Node(SimulatedDisk())
    node.submit(PutVhost("/"))
    node.disk.settle()
    node.disk.fail_sync(PATH)
    results = node.submit(queue("a"), queue("b"))
    node.disk.settle()
    later = node.submit(queue("c"))
    node.disk.settle()
    assert results + later == [NOT_WRITTEN] * 3
    assert len(node.submit(queue("t", durable=False))) == 1
    assert Node(node.disk.crash(Random(1))).found


def test_a_full_disk_holds_the_answers() -> None:
    """Commands are not answered while the disk is full, until there is room."""
    node = Node(SimulatedDisk())
    node.disk.fill_up()
    results = node.submit(PutVhost("/"), queue("a"))
    node.disk.settle()
    assert results == []
    node.disk.free()
    node.disk.settle()
    assert len(results) == 2
    assert Node(node.disk.kill()).queues() == ["a"]


# --- reading ---


def test_what_was_deleted_does_not_come_to_life() -> None:
    disk = disk_with(file_of([PutVhost("/")], [queue("a", "1")], [DeleteQueue("/", "a")], [queue("a", "2")]))
    node = Node(disk)
    created = [event for event in node.events if type(event).__name__ == "QueueCreated"]
    assert [event.queue.uid for event in created] == ["2"]  # type: ignore[union-attr]


@pytest.mark.parametrize("tail", [b"\0", b"\0" * 100, b"".join(record([b"x" * 50]))[:-1], b"\0\0\0\5abcd"])
def test_a_torn_end_is_cut(tail: bytes) -> None:
    """Without a word, and before anything is appended."""
    disk = disk_with(file_of([PutVhost("/")], [queue("a")], tail))
    node = Node(disk)
    assert node.found
    assert node.reports == []
    assert disk.content(PATH) == file_of([PutVhost("/")], [queue("a")])
    node.submit(queue("b"))
    disk.settle()
    assert Node(disk.kill()).queues() == ["a", "b"]


@pytest.mark.parametrize("size", range(len(METADATA_HEADER)))
def test_a_file_that_was_never_finished(size: int) -> None:
    """The first start ended before the header was written."""
    disk = disk_with(METADATA_HEADER[:size])
    node = Node(disk)
    assert not node.found
    assert node.reports == []
    assert disk.content(PATH) == METADATA_HEADER


def test_a_corrupt_record_costs_what_it_said() -> None:
    """A corrupt record is reported, the file is copied, and the rest is read; the next start finds a good file."""
    data = file_of(
        [PutVhost("/")], [queue("a")], [queue("b")], [queue("c")], [Bind("/", "amq.direct", "queue", "b", "")]
    )
    start, length = (
        data.index(b'{"command":"DeclareQueue","vhost":"/","name":"b"') - 8,
        len(file_of([queue("b")])) - 8,
    )
    disk = disk_with(data)
    disk.flip_bit(PATH, start + 20)
    damaged = disk.content(PATH)
    node = Node(disk)
    assert node.found
    assert node.queues() == ["a", "c"]
    assert sorted(node.reports) == [
        (PATH, start, f"{length} bytes are no record"),
        (PATH, data.rindex(b'{"command":"Bind"') - 8, "Bind is refused: no queue 'b' in vhost '/'"),
    ]
    assert not node.metadata.is_whole
    assert disk.content("corrupt/metadata.log") == damaged
    again = Node(disk.crash(Random(1)))
    assert again.reports == []
    assert again.metadata.is_whole
    assert durable_part(again.catalogue) == durable_part(node.catalogue)


def test_copies_of_damaged_files_are_never_overwritten() -> None:
    disk = SimulatedDisk()
    disk.write("corrupt/metadata.log", b"1")
    disk.write("corrupt/metadata.log.2", b"2")
    data = file_of([PutVhost("/")], b"".join(record([b"x" * 50]))[:-1] + b"?", [queue("a")])
    disk.write(PATH, data)
    assert Node(disk).queues() == ["a"]
    assert [disk.content(f"corrupt/metadata.log{end}") for end in ("", ".2", ".3")] == [b"1", b"2", data]


def test_a_lost_vhost_does_not_cost_what_is_in_it() -> None:
    """A lost vhost is made anew under its name, with what is in it."""
    data = file_of([PutVhost("/", "text")], [queue("a")], [queue("b")])
    disk = disk_with(data)
    disk.flip_bit(PATH, 20)
    node = Node(disk)
    assert node.queues() == ["a", "b"]
    assert "vhost '/' was missing and has been created again" in [what for _, _, what in node.reports]


def test_a_damaged_header() -> None:
    """The records are read all the same."""
    disk = disk_with(b"?" + file_of([PutVhost("/")], [queue("a")])[1:])
    node = Node(disk)
    assert node.queues() == ["a"]
    assert node.reports == [(PATH, 0, "the header is damaged")]
    assert disk.content(PATH) == file_of([PutVhost("/")], [queue("a")])


def test_reports_have_an_end() -> None:
    """When many commands are refused for one that is lost, the first hundred are told one by one."""
    binds = [[Bind("/", "x", "queue", "a", str(key))] for key in range(150)]
    node = Node(disk_with(file_of([PutVhost("/")], [queue("a")], *binds)))
    assert len(node.reports) == 101
    assert node.reports[-1] == (PATH, 0, "150 commands are refused in all")


def test_a_file_of_which_nothing_is_left_stops_the_start() -> None:
    """An empty catalogue would cost all messages too."""
    disk = disk_with(
        METADATA_HEADER + b"".join(record([b"x" * 50]))[:-1] + b"?" * 9 + b"".join(record([b"y"]))
    )
    before = disk.content(PATH)
    with pytest.raises(MetadataUnreadable):
        Node(disk)
    assert disk.content(PATH) == before


def test_a_newer_format_is_refused() -> None:
    """The file stays as it is."""
    data = METADATA_HEADER[:-1] + b"\2" + file_of([PutVhost("/")])[8:]
    disk = disk_with(data)
    with pytest.raises(NewerFormat, match=r"^metadata\.log: format 2 of FLFC, known up to 1$"):
        Node(disk)
    assert disk.content(PATH) == data


def test_a_command_of_a_newer_version_is_refused() -> None:
    """A good record that cannot be understood is not skipped: what it did would be lost."""
    data = file_of([PutVhost("/")], b"".join(record([b'{"command":"BreedRabbits"}'])))
    disk = disk_with(data)
    with pytest.raises(MetadataUnreadable) as caught:
        Node(disk)
    assert str(caught.value) == (
        f"metadata.log: record at byte {data.index(b'BreedRabbits') - 20}: unknown command BreedRabbits; "
        "was it written by a later version?"
    )
    assert disk.content(PATH) == data


# --- compacting ---


def churn(node: Node, rounds: int) -> None:
    """Declare a queue and delete it, again and again."""
    for number in range(rounds):
        node.submit(queue("churn", str(number)), DeleteQueue("/", "churn"))
        node.disk.settle()


def test_a_file_that_has_grown_is_compacted() -> None:
    """Compaction keeps the durable objects of the file and makes it short."""
    node = Node(SimulatedDisk(), compact_min_bytes=4000)
    node.submit(PutVhost("/"), *(queue(name) for name in "abc"))
    churn(node, 100)
    assert node.disk.size(PATH) < 4000
    assert NEW_PATH not in node.disk.names("")
    again = Node(node.disk.crash(Random(1)))
    assert again.queues() == ["a", "b", "c"]
    assert again.reports == []


def test_a_big_catalogue_is_not_compacted_again_and_again() -> None:
    """Only when the file is twice the size of its snapshot."""
    node = Node(SimulatedDisk(), compact_min_bytes=1000)
    node.submit(PutVhost("/"), *(queue(f"queue {number}", str(number)) for number in range(300)))
    node.disk.settle()
    renames = 0
    size = node.disk.size(PATH)
    for number in range(300):
        node.submit(queue("churn", str(number)), DeleteQueue("/", "churn"))
        node.disk.settle()
        renames += node.disk.size(PATH) < size
        size = node.disk.size(PATH)
    assert 1 <= renames <= 2, "it depends on a few bytes"


def test_after_a_restart_the_size_is_judged_by_what_is_alive() -> None:
    """A file that was small for what it holds is not rewritten because the node started."""
    node = Node(SimulatedDisk(), compact_min_bytes=1000)
    node.submit(PutVhost("/"), *(queue(f"queue {number}", str(number)) for number in range(50)))
    node.disk.settle()
    size = node.disk.size(PATH)
    again = Node(node.disk.kill(), compact_min_bytes=1000)
    again.submit(queue("one more"))
    again.disk.settle()
    assert again.disk.size(PATH) > size


def test_changes_during_a_compaction_are_in_the_new_file() -> None:
    """A snapshot of many pieces, and a change between any two steps."""
    node = Node(SimulatedDisk(), compact_min_bytes=1 << 20)
    node.submit(PutVhost("/"), *(queue(f"queue {number}", str(number)) for number in range(1200)))
    node.disk.settle()
    again = Node(node.disk.kill(), compact_min_bytes=1000)
    churned = 0
    while NEW_PATH not in again.disk.names(""):
        again.submit(queue("churn", str(churned)), DeleteQueue("/", "churn"))
        again.disk.step()
        churned += 1
    number = 0
    while NEW_PATH in again.disk.names(""):
        again.submit(queue(f"late {number}", "1"), DeleteQueue("/", f"queue {number}"))
        again.disk.step()
        number += 1
    assert number > 5
    again.disk.settle()
    last = Node(again.disk.kill())
    assert durable_part(last.catalogue) == durable_part(again.catalogue)
    assert sum(name.startswith("late") for name in last.queues()) == number


def test_a_compaction_that_a_broken_disk_ends() -> None:
    """The old file is what counts."""
    node = Node(SimulatedDisk(), compact_min_bytes=100)
    node.disk.fail(Append, NEW_PATH)
    results = node.submit(PutVhost("/"), *(queue(f"queue {number}", "1") for number in range(300)))
    node.disk.settle()
    later = node.submit(queue("a"))
    node.disk.settle()
    assert len(results) == 301
    assert later == [NOT_WRITTEN]
    assert Node(node.disk.kill()).reports == []


def test_what_a_compaction_left_behind_is_removed() -> None:
    disk = disk_with(file_of([PutVhost("/")]))
    disk.write(NEW_PATH, b"half a snapshot")
    Node(disk)
    assert disk.names("") == [PATH]


# --- all together ---


@settings(max_examples=150, deadline=None)
@given(histories, st.integers(0, 2**32), st.sampled_from([150, 600, 1 << 20]), st.booleans())
def test_nothing_answered_is_lost_whenever_the_power_goes(
    history: list[Command[Any]], seed: int, compact_min_bytes: int, is_killed: bool
) -> None:
    """A crash leaves the durable part after some command, and no answered command came later.

    And so again after a second crash.
    """
    random = Random(seed)
    states: list[object] = [durable_part(Catalogue())]
    node = Node(SimulatedDisk(), compact_min_bytes)
    for _ in range(2):
        answered = _work(node, history, states, random)
        node = Node(node.disk.kill(random) if is_killed else node.disk.crash(random), compact_min_bytes)
        assert node.reports == []
        found = durable_part(node.catalogue)
        assert found in states[answered:]
        states = [found]


def _work(node: Node, history: list[Command[Any]], states: list[object], random: Random) -> int:
    """Submit commands, executing steps of the disk meanwhile, and stop somewhere.

    states: gets the durable part after each command.
    Returns: the index of the state that the last answered command led to.
    """
    answered = [0]

    def answer(index: int) -> Callable[[object], None]:
        return lambda _: answered.append(index)

    for command in BEGINNING + history:
        node.log.submit(command, answer(len(states)))
        states.append(durable_part(node.catalogue))
        for _ in range(random.choice((0, 0, 1, 2, 5, 9))):
            node.disk.step()
        if random.random() < 0.01:
            break
    return max(index for index in answered if _is_written(index, answered, states))


def _is_written(index: int, answered: list[int], states: list[object]) -> bool:
    """Whether an answered command is one that had something to wait for."""
    return index == 0 or states[index] != states[index - 1]
