"""The disk's thread: order, answers, a disk without room, a disk that breaks."""

import asyncio
import errno
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from node.io.data_directory import DataDirectoryError
from node.io.disk import FileDisk, ReadOnlyDisk
from node.store.disk import (
    TO_THE_END,
    Append,
    MakeDir,
    Read,
    Remove,
    RemoveTree,
    Rename,
    Step,
    Sync,
    SyncDir,
)

NO_ROOM = OSError(errno.ENOSPC, "No space left on device")
TIMEOUT_S = 20.0
RETRY_S = 0.005


class Room:
    """Plays `os.writev` on a disk that may be full. written: all that went through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full = False
        self.error = NO_ROOM
        self.tries = 0
        self.written: list[bytes] = []
        self._writev = os.writev
        monkeypatch.setattr(os, "writev", self.writev)

    def writev(self, fd: int, parts: Sequence[bytes]) -> int:
        self.tries += 1
        if self.is_full:
            raise OSError(self.error.errno, self.error.strerror)
        self.written.append(b"".join(parts))
        return self._writev(fd, parts)


class Gate:
    """A `then` of a read that holds up the thread until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self, data: bytes) -> bytes:
        self.reached.set()
        assert self.opened.wait(TIMEOUT_S)
        return data


class Client:
    """Submits jobs to a started disk, and keeps what it is told: (name, results or error), in order."""

    def __init__(self, disk: FileDisk) -> None:
        self.disk = disk
        self.told: list[tuple[str, Any]] = []
        self._changed = asyncio.Event()
        disk.start(
            asyncio.get_running_loop(),
            on_stalled=lambda reason: self._tell("stalled", reason),
            on_resumed=lambda: self._tell("resumed", None),
        )

    def _tell(self, name: str, what: Any) -> None:
        self.told.append((name, what))
        self._changed.set()

    def submit(self, name: str, *steps: Step) -> None:
        self.disk.submit(
            steps,
            lambda results: self._tell(name, results),
            lambda error: self._tell(name, error),
        )

    async def until(self, name: str) -> Any:
        """Wait until `name` is told of, and return what was told."""
        while name not in dict(self.told):
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), TIMEOUT_S)
        return dict(self.told)[name]

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.told]


def serve(path: Path, body: Callable[[Client], Awaitable[None]]) -> None:
    """Run `body` with a disk, on a loop."""

    async def run() -> None:
        disk = FileDisk.open(str(path))
        disk._retry_s = RETRY_S
        client = Client(disk)
        try:
            await body(client)
        finally:
            assert disk.close(TIMEOUT_S)

    asyncio.run(run())


# ---- counters ----


def test_steps_are_counted(tmp_path: Path) -> None:
    """Appends, syncs and reads, with bytes and seconds; other steps are not."""

    async def body(client: Client) -> None:
        client.submit("write", MakeDir("d"), Append("d/f", [b"one", b"two"]), Sync("d/f"), SyncDir("d"))
        client.submit("read", Read("d/f", 0, TO_THE_END), Read("d/f", 3, 2, then=len), Remove("d/f"))
        await client.until("read")
        counters = client.disk.counters
        assert (counters.io_write_count, counters.io_write_bytes) == (1, 6)
        assert (counters.io_read_count, counters.io_read_bytes) == (2, 8)
        assert counters.io_sync_count == 2
        for seconds in (counters.io_write_time, counters.io_read_time, counters.io_sync_time):
            assert 0 < seconds < TIMEOUT_S

    serve(tmp_path, body)


# ---- order and answers ----


def test_jobs_are_executed_and_answered_in_order(tmp_path: Path) -> None:
    """The results are those of the reads, in order."""

    async def body(client: Client) -> None:
        client.submit("make", MakeDir("d"), Append("d/f", [b"one"]), SyncDir("d"))
        client.submit("read", Read("d/f", 0, 1), Sync("d/f"), Read("d/f", 1, TO_THE_END, then=len))
        client.submit("append", Append("d/f", [b"two"]))
        client.submit("read more", Read("d/f", 0, TO_THE_END))
        client.submit("nothing")
        await client.until("nothing")
        assert client.told == [
            ("make", []),
            ("read", [b"o", 2]),
            ("append", []),
            ("read more", [b"onetwo"]),
            ("nothing", []),
        ]

    serve(tmp_path, body)


def test_pending_bytes_are_those_of_appends_not_yet_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pending bytes are those of appends that are not yet executed, also in jobs that fail."""

    async def body(client: Client) -> None:
        gate = Gate()
        client.disk.run([Append("f", [b"x"])])
        client.submit("held", Read("f", 0, 1, then=gate))
        client.submit("one", Append("f", [b"12345", b"678"]), Sync("f"))
        client.submit("two", Append("g", [b"90"]), Sync("missing"), Append("g", [b"never"]))
        client.submit("three", Append("g", [b"neither"]))
        assert client.disk.pending_bytes == 8 + 2 + 5 + 7
        gate.opened.set()
        await client.until("three")
        assert client.disk.pending_bytes == 0
        assert (tmp_path / "g").read_bytes() == b"90"

    serve(tmp_path, body)


def test_one_wake_for_all_that_is_finished(tmp_path: Path) -> None:
    """However many jobs are done until the loop has time, it is woken once."""

    class SlowLoop:
        def __init__(self) -> None:
            self.calls: list[Callable[[], None]] = []

        def call_soon_threadsafe(self, call: Callable[[], None]) -> None:
            self.calls.append(call)

    loop = SlowLoop()
    disk = FileDisk.open(str(tmp_path))
    disk.start(loop, on_stalled=lambda reason: None, on_resumed=lambda: None)
    told: list[int] = []
    for number in range(50):
        disk.submit([Append("f", [b"x"])], lambda results, n=number: told.append(n), lambda error: None)
    assert disk.close(TIMEOUT_S)
    assert len(loop.calls) == 1
    assert told == list(range(50))


def test_a_fault_of_who_waits_leaves_the_others_their_answers(tmp_path: Path) -> None:
    """The loop reports it."""

    async def body(client: Client) -> None:
        reported: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))

        def faulty(results: list[Any]) -> None:
            raise ZeroDivisionError

        gate = Gate()
        client.disk.run([Append("f", [b"x"])])
        client.submit("held", Read("f", 0, 1, then=gate))
        client.disk.submit([], faulty, lambda error: None)
        client.submit("next")
        gate.opened.set()
        await client.until("next")
        assert [type(context["exception"]) for context in reported] == [ZeroDivisionError]

    serve(tmp_path, body)


def test_a_fault_of_ours_fails_its_job_only(tmp_path: Path) -> None:
    """The thread goes on, and the loop reports the fault."""

    async def body(client: Client) -> None:
        reported: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
        client.disk.run([Append("f", [b"x"])])
        client.submit("faulty", Read("f", 0, 1, then=lambda data: 1 // 0))
        client.submit("next", Append("f", [b"y"]))
        assert await client.until("next") == []
        assert (await client.until("faulty")).errno == errno.EIO
        assert [type(context["exception"]) for context in reported] == [ZeroDivisionError]

    serve(tmp_path, body)


def test_run_before_and_between_jobs(tmp_path: Path) -> None:
    """Synchronous work needs a thread that has nothing to do."""
    disk = FileDisk.open(str(tmp_path))
    assert disk.run([MakeDir("d"), Append("d/f", [b"abc"]), Read("d/f", 1, 1)]) == [b"b"]
    assert (disk.names("d"), disk.size("d/f")) == (["f"], 3)
    with pytest.raises(FileNotFoundError):
        disk.run([Read("d/g", 0, 1)])

    async def submit() -> None:
        client = Client(disk)
        client.submit("append", Append("d/f", [b"def"]))
        await disk.drain()
        assert client.names == ["append"]
        assert disk.run([Read("d/f", 0, TO_THE_END)]) == [b"abcdef"]

    asyncio.run(submit())
    assert disk.close(TIMEOUT_S)


def test_drain_waits_for_what_answers_bring_up(tmp_path: Path) -> None:
    """A job that is submitted by an answer is waited for too."""

    async def body(client: Client) -> None:
        def again(left: int) -> None:
            if left:
                client.disk.submit([Append("f", [b"x"])], lambda results: again(left - 1), lambda error: None)

        again(5)
        await client.disk.drain()
        assert (tmp_path / "f").read_bytes() == b"xxxxx"

    serve(tmp_path, body)


def test_close_executes_and_answers_what_there_is(tmp_path: Path) -> None:
    """Closing a disk executes its jobs, frees the directory for another node and ends the thread."""

    async def body() -> None:
        before = set(threading.enumerate())
        disk = FileDisk.open(str(tmp_path))
        client = Client(disk)
        client.submit("append", Append("f", [b"x"]))
        with pytest.raises(DataDirectoryError, match="in use"):
            FileDisk.open(str(tmp_path))
        assert disk.close(TIMEOUT_S)
        assert client.told == [("append", [])]
        assert set(threading.enumerate()) <= before
        FileDisk.open(str(tmp_path)).close()

    asyncio.run(body())


def test_close_gives_up_on_a_disk_that_hangs(tmp_path: Path) -> None:
    """After a while it says so; the process may end, the thread is a daemon."""

    async def body(client: Client) -> None:
        gate = Gate()
        client.disk.run([Append("f", [b"x"])])
        client.submit("held", Read("f", 0, 1, then=gate))
        gate.reached.wait(TIMEOUT_S)
        assert not client.disk.close(0.0)
        gate.opened.set()

    serve(tmp_path, body)


def test_a_disk_that_hangs_is_not_drained_for_ever(tmp_path: Path) -> None:
    """A stop ends within a bound, whatever the disk does; one that goes on is waited for."""

    async def body(client: Client) -> None:
        gate = Gate()
        client.disk.run([Append("f", [b"x"])])
        client.submit("held", Read("f", 0, 1, then=gate))
        gate.reached.wait(TIMEOUT_S)
        assert not await client.disk.drain(hung_s=0.01)
        assert not await client.disk.drain(0.01)
        gate.opened.set()
        assert await client.disk.drain(TIMEOUT_S)

    serve(tmp_path, body)


def test_a_loop_that_is_closed_stops_no_job(tmp_path: Path) -> None:
    """Jobs that were submitted are executed though their loop is closed and cannot be told."""
    gate = Gate()
    disk = FileDisk.open(str(tmp_path))
    disk.run([Append("f", [b"x"])])

    async def submit() -> None:
        client = Client(disk)
        client.submit("held", Read("f", 0, 1, then=gate))
        client.submit("append", Append("f", [b"y"]))

    asyncio.run(submit())
    gate.opened.set()
    assert disk.close(TIMEOUT_S)
    assert (tmp_path / "f").read_bytes() == b"xy"


# ---- no room ----


@pytest.mark.parametrize(
    ("code", "reason"), [(errno.ENOSPC, "No space left on device"), (errno.EDQUOT, "Disk quota exceeded")]
)
def test_a_full_disk_stalls_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, reason: str
) -> None:
    """Jobs keep their order; nothing is written twice; the node is told once of the end of all waiting."""
    room = Room(monkeypatch)
    room.error = OSError(code, reason)

    async def body(client: Client) -> None:
        client.disk.run([Append("f", [b"0"])])
        room.is_full = True
        client.submit("one", Append("f", [b"1"]), Sync("f"))
        client.submit("two", Append("f", [b"2"]))
        assert await client.until("stalled") == reason
        client.submit("three", Append("g", [b"3"]))
        assert client.disk.pending_bytes == 3
        room.is_full = False
        await client.until("resumed")
        assert client.names[:3] == ["stalled", "one", "two"]
        await client.until("three")
        assert client.names.count("resumed") == 1
        assert (tmp_path / "f").read_bytes() == b"012"
        assert client.disk.pending_bytes == 0
        assert not client.disk.is_broken

    serve(tmp_path, body)


def test_a_job_goes_on_where_it_found_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that found no room goes on where it was; its first steps are not executed again."""
    room = Room(monkeypatch)

    async def body(client: Client) -> None:
        def fill(data: bytes) -> bytes:
            room.is_full = True
            return data

        client.submit("job", Append("f", [b"first"]), Read("f", 0, 5, then=fill), Append("f", [b" second"]))
        await client.until("stalled")
        room.is_full = False
        assert await client.until("job") == [b"first"]
        assert (tmp_path / "f").read_bytes() == b"first second"

    serve(tmp_path, body)


@pytest.mark.parametrize(
    "step",
    [
        Read("there", 0, TO_THE_END),
        Read("stalled", 0, 4),
        Read("d/there", 0, 1),
        Remove("there"),
        RemoveTree("e"),
    ],
)
def test_what_reads_and_removes_goes_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: Step
) -> None:
    """Reads and removals go ahead unless a waiting job needs what they touch; bytes in a file stay what they are."""
    room = Room(monkeypatch)

    async def body(client: Client) -> None:
        client.disk.run([MakeDir("d"), MakeDir("e"), *(Append(p, [b"text"]) for p in ("there", "stalled"))])
        client.disk.run([Append("d/there", [b"text"]), Append("e/f", [b"text"])])
        room.is_full = True
        client.submit("stalled job", Append("stalled", [b"x"]), Sync("stalled"), SyncDir("d"), MakeDir("d"))
        await client.until("stalled")
        client.submit("step", step)
        assert not isinstance(await client.until("step"), OSError)
        assert "stalled job" not in client.names
        room.is_full = False
        await client.until("resumed")

    serve(tmp_path, body)


@pytest.mark.parametrize(
    "step",
    [
        Read("d/stalled", 0, TO_THE_END),
        Read("d/stalled", 2, 3),
        Read("d/new", 0, 1),
        Read("d/moved/f", 0, 1),
        Remove("d/stalled"),
        Remove("d/synced"),
        RemoveTree("d"),
        RemoveTree("d/moved"),
    ],
)
def test_what_touches_waiting_work_waits_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: Step
) -> None:
    """Whatever passes, each job finds the files as if none had."""
    room = Room(monkeypatch)

    async def body(client: Client) -> None:
        client.disk.run(
            [MakeDir("d/moved"), *(Append(f"d/{name}", [b"text"]) for name in ("stalled", "synced"))]
        )
        client.disk.run([Append("d/moved/f", [b"x"]), Append("other", [b"y"])])
        room.is_full = True
        client.submit("stalled job", Append("d/stalled", [b"x"]))
        client.submit("held job", Sync("d/synced"), Append("d/new", [b"n"]), Rename("d/moved", "d/place"))
        await client.until("stalled")
        client.submit("step", step)
        client.submit("passing", Read("other", 0, 1))
        await client.until("passing")
        assert "step" not in client.names
        room.is_full = False
        await client.until("step")
        assert client.names[:4] == ["stalled", "passing", "stalled job", "held job"]
        assert await client.until("held job") == []

    serve(tmp_path, body)


def test_jobs_that_wait_for_each_other_keep_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A removal that waits holds back who would read the file before and after it."""
    room = Room(monkeypatch)

    async def body(client: Client) -> None:
        client.disk.run([Append("a", [b"a"]), Append("b", [b"b"]), Append("c", [b"c"])])
        room.is_full = True
        client.submit("stalled job", Append("new", [b"x"]))
        await client.until("stalled")
        client.submit("held", Read("new", 0, 1), Remove("b"))
        client.submit("behind", Read("b", 0, 1))
        client.submit("reader", Read("new", 0, 1), Read("c", 0, 1))
        client.submit("remover", Remove("c"))
        client.submit("passing", Read("a", 0, 1))
        await client.until("passing")
        assert client.names == ["stalled", "passing"]
        room.is_full = False
        await client.until("resumed")
        assert client.names[2:] == ["stalled job", "held", "behind", "reader", "remover", "resumed"]
        assert isinstance(await client.until("behind"), FileNotFoundError)
        assert await client.until("reader") == [b"x", b"c"]

    serve(tmp_path, body)


def test_too_many_open_files_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that take all descriptors break nothing, be the job one that writes or one that reads."""

    async def body(client: Client) -> None:
        client.disk.run([Append("f", [b"x"]), Remove("f"), MakeDir("d")])
        (tmp_path / "g").write_bytes(b"g")
        really_open, has_descriptors = os.open, threading.Event()

        def scarce_open(*arguments: Any, **names: Any) -> int:
            if not has_descriptors.is_set():
                raise OSError(errno.EMFILE, "Too many open files")
            return really_open(*arguments, **names)

        monkeypatch.setattr(os, "open", scarce_open)
        client.submit("sync", SyncDir("d"))
        assert await client.until("stalled") == "Too many open files"
        client.submit("read", Read("g", 0, 1))
        client.submit("remove", Remove("f"))
        await client.until("remove")
        has_descriptors.set()
        assert await client.until("read") == [b"g"]
        assert client.names[:4] == ["stalled", "remove", "sync", "read"]

    serve(tmp_path, body)


def test_the_end_of_the_node_does_not_wait_for_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that finds no room while the node ends fails, and so do all that come after it."""
    room = Room(monkeypatch)

    async def body(client: Client) -> None:
        room.is_full = True
        client.submit("one", Append("f", [b"x"]))
        client.submit("two", Append("f", [b"y"]))
        await client.until("stalled")
        await client.disk.drain()
        assert client.names == ["stalled", "one", "two"]
        assert (await client.until("one")).errno == errno.ENOSPC
        assert client.disk.is_broken
        assert client.disk.pending_bytes == 0

    serve(tmp_path, body)


def test_close_ends_a_stall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without drain too."""
    room = Room(monkeypatch)

    async def body() -> None:
        client = Client(FileDisk.open(str(tmp_path)))
        room.is_full = True
        client.submit("one", Append("f", [b"x"]))
        await client.until("stalled")
        assert client.disk.close(TIMEOUT_S)
        assert client.names == ["stalled", "one"]

    asyncio.run(body())


# ---- other errors ----


def fail(*arguments: Any) -> None:
    raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("call", ["fdatasync", "fsync", "writev", "rename"])
def test_an_error_of_writing_breaks_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """After an error of writing that job and all later ones that write fail, be it gone or not; reading goes on."""
    steps = {
        "fdatasync": Sync("f"),
        "fsync": SyncDir(""),
        "writev": Append("f", [b"y"]),
        "rename": Rename("f", "g"),
    }

    async def body(client: Client) -> None:
        client.disk.run([Append("f", [b"x"])])
        with monkeypatch.context() as patch:
            patch.setattr(os, call, lambda *arguments, **names: fail())
            client.submit("first", steps[call])
            assert (await client.until("first")).errno == errno.EIO
        client.submit("second", Append("f", [b"lost"]))
        client.submit("third", Read("f", 0, TO_THE_END))
        client.submit("fourth", Remove("f"))
        await client.until("fourth")
        assert (await client.until("second")).errno == errno.EIO
        assert await client.until("third") == [b"x"]
        assert await client.until("fourth") == []
        assert client.disk.is_broken
        with pytest.raises(OSError, match="Input/output error"):
            client.disk.run([MakeDir("d")])
        assert client.disk.names("") == ["lock"]

    serve(tmp_path, body)


def test_a_sync_without_room_breaks_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed sync may have lost its pages: another sync that succeeds would say nothing, so the disk is broken."""

    async def body(client: Client) -> None:
        def full(fd: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "fdatasync", full)
        client.submit("sync", Append("f", [b"x"]), Sync("f"))
        assert (await client.until("sync")).errno == errno.ENOSPC
        assert client.disk.is_broken
        assert "stalled" not in client.names

    serve(tmp_path, body)


def test_an_error_of_reading_fails_its_job_only(tmp_path: Path) -> None:
    """If that job writes nothing; else what it was to write is missing."""

    async def body(client: Client) -> None:
        client.submit("read", Read("missing", 0, 1))
        client.submit("append", Append("f", [b"x"]))
        assert isinstance(await client.until("read"), FileNotFoundError)
        assert await client.until("append") == []
        client.submit("both", Read("missing", 0, 1), Append("f", [b"y"]))
        client.submit("later", Append("f", [b"z"]))
        await client.until("later")
        assert isinstance(await client.until("both"), FileNotFoundError)
        assert isinstance(await client.until("later"), FileNotFoundError)
        assert (tmp_path / "f").read_bytes() == b"x"

    serve(tmp_path, body)


# ---- for tools ----


def test_a_tool_reads_beside_a_node(tmp_path: Path) -> None:
    """A tool beside a node sees its files, says that a node runs, and cannot write."""
    node = FileDisk.open(str(tmp_path))
    node.run([Append("f", [b"content"])])
    disk = ReadOnlyDisk(str(tmp_path))
    assert disk.is_locked
    assert (disk.run([Read("f", 0, 3, then=bytes.upper)]), disk.names(""), disk.size("f")) == (
        [b"CON"],
        ["f", "lock"],
        7,
    )
    with pytest.raises(OSError, match="for reading only"):
        disk.run([Remove("f")])
    node.close()
    disk.close()
    disk = ReadOnlyDisk(str(tmp_path))
    assert not disk.is_locked
    disk.close()
