"""The simulated disk does what the contract of `node.store.disk` says, and loses what a real one may lose."""

import errno
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from node.store.disk import Append, Disk, MakeDir, Read, Remove, RemoveTree, Rename, Step, Sync, SyncDir
from tests.kit.disk import PAGE_BYTES, PowerLost, SimulatedDisk

SAFE = [MakeDir("d"), SyncDir(""), Append("d/f", [b"safe"]), Sync("d/f"), SyncDir("d")]


class Answers:
    """Records what a disk answered, in order."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.list: list[Any] = []

    def submit(self, *steps: Step) -> None:
        self.disk.submit(steps, self.list.append, lambda error: self.list.append(error.errno))


def disk_with(*steps: Step) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.run([*SAFE, *steps])
    return disk


def crashes(steps: Sequence[Step], count: int = 300) -> list[SimulatedDisk]:
    """The disk after as many power losses behind these steps."""
    return [disk_with(*steps).crash(Random(seed)) for seed in range(count)]


def contents(disks: list[SimulatedDisk], path: str = "d/f") -> set[bytes]:
    return {disk.content(path) for disk in disks}


def test_it_is_a_disk() -> None:
    """The simulation has the interface that the store asks for."""
    disk: Disk = SimulatedDisk()
    assert disk.names("") == []


def test_jobs_are_executed_step_by_step_and_answered_in_order() -> None:
    """Nothing happens before the test says so; results are those of the reads."""
    disk = disk_with()
    answers = Answers(disk)
    answers.submit(Append("d/f", [b"1", b"23"]), Read("d/f", 4, 2), Read("d/f", 0, -1, then=len))
    answers.submit(Read("d/f", 6, 100))
    assert (disk.pending_bytes, disk.jobs, disk.content("d/f")) == (3, 2, b"safe")
    assert disk.step()
    assert (disk.pending_bytes, answers.list) == (0, [])
    disk.settle()
    assert answers.list == [[b"12", 7], [b"3"]]
    assert not disk.step()


def test_an_answer_may_bring_up_a_job() -> None:
    """`settle` executes that one too."""
    disk = disk_with()
    answers = Answers(disk)
    disk.submit([], lambda results: answers.submit(Read("d/f", 0, 1)), lambda error: None)
    disk.settle()
    assert answers.list == [[b"s"]]


def test_names() -> None:
    """Directories are made with those above, and removed with all that is in them."""
    disk = disk_with(MakeDir("a/b/c"), MakeDir("a/b"), Append("a/b/x", [b"12"]), Append("a/b/y", [b""]))
    assert (disk.names(""), disk.names("a/b"), disk.names("no")) == (["a", "d"], ["c", "x", "y"], [])
    assert disk.size("a/b/x") == 2
    disk.run([Rename("a/b/x", "d/f"), Remove("a/b/y"), Remove("a/b/y"), Remove("no/no")])
    assert (disk.content("d/f"), disk.names("a/b")) == (b"12", ["c"])
    disk.run([Rename("a", "z"), RemoveTree("no"), RemoveTree("d")])
    assert (disk.names(""), disk.names("z/b"), disk.paths()) == (["z"], ["c"], [])
    with pytest.raises(FileNotFoundError):
        disk.size("d/f")


@pytest.mark.parametrize(
    "step",
    [Append("no/f", [b""]), Read("d/no", 0, 1), Sync("d/no"), SyncDir("no"), Rename("no", "d/x")],
)
def test_what_is_missing_is_an_error(step: Step) -> None:
    """Only removing something twice is fine."""
    with pytest.raises(FileNotFoundError):
        disk_with().run([step])


# --- power losses ---


def test_what_was_synced_stays() -> None:
    """File and name were synced."""
    assert contents(crashes([])) == {b"safe"}


def test_of_unsynced_appends_the_first_ones_stay_and_one_is_torn() -> None:
    """Any number of whole ones, then a part or zeros of the next."""
    found = contents(crashes([Append("d/f", [b"1", b"2"]), Append("d/f", [b"34"])]))
    expected = {
        "safe", "safe1", "safe12", "safe123", "safe1234",
        "safe\0\0", "safe1\0", "safe12\0\0", "safe123\0",
    }  # fmt: skip
    assert found == {text.encode() for text in expected}


def test_a_disk_that_reorders_may_keep_later_pages_only() -> None:
    """Synced bytes outlive a crash; behind them there may be zeros, and then good bytes."""
    appends = [Append("d/f", [bytes([number]) * PAGE_BYTES]) for number in (1, 2, 3)]
    found = {disk_with(*appends).crash(Random(seed), reorders=True).content("d/f") for seed in range(200)}
    assert all(content.startswith(b"safe") for content in found)
    assert any(b"\0\2" in content or b"\0\3" in content for content in found)


def test_a_name_needs_a_sync_of_its_directory() -> None:
    """Syncing a new file makes its content safe and not its name."""
    steps = [Append("d/new", [b"x"]), Sync("d/new")]
    assert {"new" in disk.names("d") for disk in crashes(steps)} == {True, False}
    assert {"new" in disk.names("d") for disk in crashes([*steps, SyncDir("d")])} == {True}


def test_a_new_directory_needs_a_sync_of_the_one_above() -> None:
    """A new directory is gone with all that was synced in it unless the one above is synced."""
    steps = [MakeDir("e"), Append("e/f", [b"x"]), Sync("e/f"), SyncDir("e")]
    assert {tuple(disk.names("e")) for disk in crashes(steps)} == {(), ("f",)}


def test_changes_of_names_stay_from_the_first_on() -> None:
    """A later change of names in a directory never outlives a crash without the earlier ones."""
    steps = [Remove("d/f"), Append("d/a", [b""]), Append("d/b", [b""]), Rename("d/b", "d/c")]
    found = {tuple(disk.names("d")) for disk in crashes(steps)}
    assert found == {("f",), (), ("a",), ("a", "b"), ("a", "c")}


def test_what_was_removed_may_be_back_with_its_content() -> None:
    """A Remove is safe after a SyncDir only."""
    assert {disk.paths() == ["d/f"] for disk in crashes([Remove("d/f")])} == {True, False}
    assert {len(disk.paths()) for disk in crashes([Remove("d/f"), SyncDir("d")])} == {0}


def test_a_replaced_file_is_the_old_or_the_new_one() -> None:
    """The usual way to replace a file: write, sync, rename."""
    assert contents(crashes([Append("d/n", [b"new"]), Sync("d/n"), Rename("d/n", "d/f")])) == {
        b"safe",
        b"new",
    }


def test_a_file_that_moves_is_never_lost() -> None:
    """Between directories it may be here, there, or for a moment in both."""
    steps = [MakeDir("e"), SyncDir(""), Rename("d/f", "e/f")]
    assert {tuple(disk.paths()) for disk in crashes(steps)} == {("d/f",), ("e/f",), ("d/f", "e/f")}


def test_a_tree_may_be_removed_in_part() -> None:
    """The names in it go one by one."""
    found = {tuple(disk.paths()) for disk in crashes([Append("d/g", [b""]), SyncDir("d"), RemoveTree("d")])}
    assert {("d/f", "d/g"), ("d/g",), ()} <= found


def test_kill_keeps_what_was_executed() -> None:
    """Jobs that were not are lost, an Append may be cut off."""
    found = set()
    for seed in range(50):
        disk = disk_with()
        Answers(disk).submit(Append("d/f", [b"1"]), Append("d/f", [b"234"]))
        disk.step()
        found.add(disk.kill(Random(seed)).content("d/f"))
    assert found == {b"safe1", b"safe12", b"safe123", b"safe1234"}
    disk = disk_with(Append("d/f", [b"1"]))
    Answers(disk).submit(Append("d/f", [b"2"]))
    assert disk.kill().content("d/f") == b"safe1"


def test_all_can_be_made_safe() -> None:
    """As when a system had time."""
    disk = disk_with(Append("d/g", [b"12"]))
    disk.sync_all()
    assert disk.crash(Random(1)).paths() == ["d/f", "d/g"]


def test_the_power_may_go_off_in_the_middle_of_a_start() -> None:
    """Steps that are run at once can be cut off anywhere too."""
    disk = disk_with()
    disk.cut_power_after(1)
    with pytest.raises(PowerLost):
        disk.run([Append("d/f", [b"1"]), Append("d/f", [b"2"])])
    assert disk.kill().content("d/f") == b"safe1"


# --- faults ---


def test_a_full_disk_stalls() -> None:
    """The job waits at the head, nothing of its append remains, and it goes on when there is room."""
    disk = disk_with()
    said: list[str] = []
    disk.on_stalled = said.append
    disk.on_resumed = lambda: said.append("resumed")
    answers = Answers(disk)
    disk.fill_up(3)
    answers.submit(Append("d/f", [b"123"]), Append("d/f", [b"4"]), Sync("d/f"))
    answers.submit(Append("d/g", [b"5"]))
    disk.settle()
    assert (disk.content("d/f"), disk.jobs, answers.list) == (b"safe123", 2, [])
    assert said == ["No space left on device"]
    disk.free()
    disk.settle()
    assert (disk.content("d/f"), disk.content("d/g"), answers.list) == (b"safe1234", b"5", [[], []])
    assert said[1:] == ["resumed"]


def test_what_needs_no_room_passes_a_stalled_job() -> None:
    """Reads and removals of other files; the room that they make is used."""
    disk = disk_with(Append("d/g", [b"1234"]), MakeDir("e"), Append("e/i", [b"9"]))
    answers = Answers(disk)
    disk.fill_up()
    answers.submit(Append("d/f", [b"567"]))
    answers.submit(Append("d/h", [b"8"]))
    answers.submit(Read("d/f", 0, 5))  # waits, as this is to be written
    answers.submit(RemoveTree("d"))  # waits, as something in it is to be written
    assert disk.step(), "the disk says that it is full"
    assert not disk.step()
    answers.submit(Read("e/i", 0, 1), RemoveTree("e"))
    disk.settle()
    assert (answers.list, disk.names(""), disk.jobs) == ([[b"9"]], ["d"], 4)
    answers.submit(Read("d/g", 0, 1))  # waits, as it is to be removed
    disk.settle()
    assert disk.jobs == 5
    disk.free()
    disk.settle()
    assert answers.list[1:] == [[], [], [b"safe5"], [], errno.ENOENT]


def test_what_was_written_before_can_be_read_while_more_waits() -> None:
    """Messages that are on disk can be had though the disk is full."""
    disk = disk_with()
    answers = Answers(disk)
    disk.fill_up()
    answers.submit(Append("d/f", [b"567"]))
    answers.submit(Read("d/f", 1, 3))
    answers.submit(Read("d/f", 1, -1))
    answers.submit(Remove("d/f"))
    disk.settle()
    assert (answers.list, disk.jobs) == ([[b"afe"]], 3)


def test_what_is_removed_makes_room() -> None:
    """Removing a file makes room, so a full disk may go on by itself."""
    disk = disk_with(Append("d/g", [b"1234"]))
    answers = Answers(disk)
    disk.fill_up()
    answers.submit(Append("d/f", [b"56"]))
    disk.settle()
    answers.submit(Remove("d/g"))
    disk.settle()
    assert (answers.list, disk.content("d/f")) == ([[], []], b"safe56")


def test_a_failed_sync_breaks_the_disk() -> None:
    """After a failed sync that job and all later ones that write fail; others go on."""
    disk = disk_with()
    answers = Answers(disk)
    disk.fail_sync("d/f")
    answers.submit(Append("d/f", [b"x"]), Sync("d/f"), Append("d/f", [b"y"]))
    answers.submit(Append("d/g", [b"z"]))
    answers.submit(Read("d/f", 0, 5))
    disk.settle()
    assert answers.list == [errno.EIO, errno.EIO, [b"safex"]]
    with pytest.raises(OSError, match="a fault"):
        disk.run([Sync("d/f")])


def test_a_failed_read_fails_its_job_only() -> None:
    """Reading on may succeed."""
    disk = disk_with()
    answers = Answers(disk)
    disk.fail(Read, "d/f")
    answers.submit(Read("d/f", 0, 1))
    answers.submit(Append("d/f", [b"x"]), Read("d/f", 4, 1))
    disk.settle()
    assert answers.list == [errno.EIO, [b"x"]]


def test_a_fault_that_lasts() -> None:
    """All steps of a kind fail until the disk is well again."""
    disk = disk_with()
    answers = Answers(disk)
    disk.fail_always(Read)
    answers.submit(Read("d/f", 0, 1))
    answers.submit(Read("d/f", 0, 1))
    disk.settle()
    disk.mend()
    answers.submit(Read("d/f", 0, 1))
    disk.settle()
    assert answers.list == [errno.EIO, errno.EIO, [b"s"]]


def test_a_clone_goes_its_own_way() -> None:
    """A clone and its original change independently, and what was not synced is not synced in either."""
    disk = disk_with(Append("d/f", [b"x"]))
    other = disk.clone()
    disk.flip_bit("d/f", 0)
    assert other.content("d/f") == b"safex"
    assert contents([other.clone().crash(Random(seed)) for seed in range(50)]) == {
        b"safe",
        b"safex",
        b"safe\0",
    }


def test_damage() -> None:
    """A flipped bit, a cut, zeros."""
    disk = disk_with()
    disk.flip_bit("d/f", 1)
    assert disk.content("d/f") == b"s`fe"
    disk.zero("d/f", 2, 9)
    assert disk.content("d/f") == b"s`\0\0"
    disk.truncate("d/f", 3)
    assert disk.content("d/f") == b"s`\0"
    disk.write("x/y", b"12")
    assert disk.crash(Random(1)).content("x/y") == b"12"


def test_a_fault_that_lasts_and_a_disk_that_hangs_until_they_are_mended() -> None:
    """Reads fail each time, or nothing happens at all; afterwards all is as before."""
    disk = SimulatedDisk()
    disk.write("d/f", b"content")
    errors: list[OSError] = []
    results: list[list[object]] = []
    disk.fail_always(Read, "d/f")
    for _ in range(3):
        disk.submit([Read("d/f", 0, 7)], results.append, errors.append)
    disk.settle()
    assert ([error.errno for error in errors], results) == ([errno.EIO] * 3, [])
    disk.mend()
    disk.hang()
    disk.submit([Read("d/f", 0, 7)], results.append, errors.append)
    disk.settle()
    assert (disk.jobs, results) == (1, [])
    disk.mend()
    disk.settle()
    assert results == [[b"content"]]
