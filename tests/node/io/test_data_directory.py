"""Steps on real files, the lock, and what must not leave the data directory."""

import errno
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.io.data_directory import (
    DataDirectory,
    DataDirectoryError,
    is_locked,
    open_data_directory,
    open_for_reading,
)
from node.store.disk import TO_THE_END, Append, MakeDir, Read, Remove, RemoveTree, Rename, Step, Sync, SyncDir
from tests.kit.disk import SimulatedDisk


@pytest.fixture
def directory(tmp_path: Path) -> Any:
    directory = open_data_directory(str(tmp_path / "data"), files_max=4)
    yield directory
    directory.close()


def content(directory: DataDirectory, path: str) -> bytes:
    return (Path(directory.path) / path).read_bytes()


def open_descriptors() -> set[int]:
    names = os.listdir("/proc/self/fd")  # one of them is the listing's own
    return {int(name) for name in names if os.path.lexists(f"/proc/self/fd/{name}")}


def short_writes(most: int) -> Callable[[int, Sequence[bytes]], int]:
    """A writev that writes no more than `most` bytes."""

    def writev(fd: int, parts: Sequence[bytes]) -> int:
        assert len(parts) <= os.sysconf("SC_IOV_MAX")
        return os.write(fd, b"".join(parts)[:most])

    return writev


# ---- steps ----


def test_appends_add_up(directory: DataDirectory) -> None:
    """Each append comes after the one before, also when the file was there at the start."""
    (Path(directory.path) / "f").write_bytes(b"old ")
    assert directory.execute(Append("f", [b"one", b"", b" two"])) == 7
    directory.execute(Append("f", [b" three"]))
    assert content(directory, "f") == b"old one two three"


def test_more_parts_than_one_system_call_takes(directory: DataDirectory) -> None:
    """Parts go out in pieces of IOV_MAX."""
    parts = [str(number).encode() for number in range(5000)]
    directory.execute(Append("f", parts))
    assert content(directory, "f") == b"".join(parts)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.binary(max_size=12), max_size=12), st.integers(1, 20))
def test_short_writes_are_continued(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], most: int
) -> None:
    """Whatever the system writes at a time, the file has all of it in order."""
    directory = open_data_directory(str(tmp_path_factory.mktemp("short")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "writev", short_writes(most))
        directory.execute(Append("f", parts))
    assert content(directory, "f") == b"".join(parts)
    directory.close()


@pytest.mark.parametrize(
    ("offset", "size", "expected"),
    [(0, 4, b"0123"), (4, TO_THE_END, b"456789"), (8, 10, b"89"), (10, 1, b""), (20, TO_THE_END, b"")],
)
def test_reads(directory: DataDirectory, offset: int, size: int, expected: bytes) -> None:
    """A read returns the bytes asked for, or fewer where the file ends; `then` makes the result."""
    directory.execute(Append("f", [b"0123456789"]))
    assert directory.execute(Read("f", offset, size)) == expected
    assert directory.execute(Read("f", offset, size, then=len)) == len(expected)


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="the system has no such call")
def test_fresh_reads_do_not_come_from_the_cache(
    directory: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pages of what is read are let go of before; the bytes are the same, written to the medium or not."""
    asked: list[tuple[int, int, int]] = []
    fadvise = os.posix_fadvise

    def advise(fd: int, offset: int, size: int, advice: int) -> None:
        asked.append((offset, size, advice))
        fadvise(fd, offset, size, advice)

    monkeypatch.setattr(os, "posix_fadvise", advise)
    page = os.sysconf("SC_PAGESIZE")
    data = os.urandom(3 * page)
    directory.execute(Append("f", [data]))
    for _ in range(2):
        assert directory.execute(Read("f", page + 1, page, is_fresh=True)) == data[page + 1 : 2 * page + 1]
        directory.execute(Sync("f"))
    assert asked == [(page, 2 * page, os.POSIX_FADV_DONTNEED)] * 2
    directory.execute(Read("f", 0, page))
    assert len(asked) == 2


def test_short_reads_are_continued(directory: DataDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system call that gives less than was asked for is followed by another."""
    directory.execute(Append("f", [b"0123456789"]))
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, offset: pread(fd, min(size, 3), offset))
    assert directory.execute(Read("f", 1, 8)) == b"12345678"
    assert directory.execute(Read("f", 1, TO_THE_END)) == b"123456789"


def test_a_missing_file_cannot_be_read_or_synced(directory: DataDirectory) -> None:
    """Only an append creates files."""
    for step in (Read("f", 0, 1), Sync("f")):
        with pytest.raises(FileNotFoundError):
            directory.execute(step)
    assert directory.names("") == ["lock"]


def test_directories(directory: DataDirectory) -> None:
    """Made with those above them, for our user only; fine if they are there."""
    for _ in range(2):
        directory.execute(MakeDir("a/b/c"))
    directory.execute(Append("a/b/c/f", [b"x"]))
    directory.execute(SyncDir("a/b/c"))
    directory.execute(SyncDir(""))
    root = Path(directory.path)
    assert [stat.S_IMODE((root / path).stat().st_mode) for path in ("", "a", "a/b/c", "a/b/c/f")] == [
        0o700,
        0o700,
        0o700,
        0o600,
    ]
    assert directory.names("") == ["a", "lock"]
    assert directory.names("a/b/c") == ["f"]
    assert directory.names("a/z") == []
    assert directory.size("a/b/c/f") == 1
    with pytest.raises(FileNotFoundError):
        directory.size("a/z")


def test_names_change_while_files_are_open(directory: DataDirectory) -> None:
    """A file is the one that has the name now, whatever was open under it."""
    directory.execute(MakeDir("d"))
    directory.execute(Append("d/new", [b"new"]))
    directory.execute(Append("d/old", [b"old"]))
    directory.execute(Rename("d/new", "d/old"))
    assert directory.execute(Read("d/old", 0, TO_THE_END)) == b"new"
    directory.execute(Append("d/new", [b"newer"]))
    assert directory.execute(Read("d/new", 0, TO_THE_END)) == b"newer"
    directory.execute(Remove("d/new"))
    directory.execute(Append("d/new", [b"newest"]))
    assert content(directory, "d/new") == b"newest"
    directory.execute(Rename("d", "e"))
    assert directory.execute(Read("e/old", 0, TO_THE_END)) == b"new"
    directory.execute(RemoveTree("e"))
    with pytest.raises(FileNotFoundError):
        directory.execute(Read("e/old", 0, TO_THE_END))


@pytest.mark.parametrize("is_open", [True, False])
def test_a_file_that_was_removed_by_others(directory: DataDirectory, is_open: bool) -> None:
    """Writes to a file that others removed would be lost without a word, so the disk counts as failed."""
    directory.execute(Append("f", [b"ab"]))
    os.unlink(f"{directory.path}/f")
    if is_open:
        directory.execute(Append("f", [b"c"], creates=False))
        with pytest.raises(OSError, match="f has been removed while it was in use") as raised:
            directory.execute(Sync("f"))
    else:
        for number in range(4):  # as many as stay open
            directory.execute(Append(f"g{number}", [b"x"]))
        with pytest.raises(OSError, match="f has been removed while it was in use") as raised:
            directory.execute(Append("f", [b"c"], creates=False))
    assert raised.value.errno == errno.EIO


def test_removing_what_is_not_there(directory: DataDirectory) -> None:
    """Is fine."""
    directory.execute(Remove("f"))
    directory.execute(Remove("d/f"))
    directory.execute(RemoveTree("d"))


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../../x", "a/.."])
@pytest.mark.parametrize(
    "step",
    [
        lambda path: Append(path, [b"x"]),
        Sync,
        MakeDir,
        Remove,
        RemoveTree,
        lambda path: Rename("f", path),
        lambda path: Rename(path, "f"),
        lambda path: Read(path, 0, 1),
    ],
)
def test_paths_stay_inside(directory: DataDirectory, step: Callable[[str], Step], path: str) -> None:
    """No step leaves the data directory, or removes it."""
    with pytest.raises(ValueError, match="not in the data directory"):
        directory.execute(step(path))


def test_a_file_in_the_place_of_a_directory(directory: DataDirectory) -> None:
    """A file in the place of a directory has no names in it, and is removed with it."""
    directory.execute(Append("f", [b"x"]))
    assert directory.names("f") == []
    directory.execute(RemoveTree("f"))
    assert directory.names("") == ["lock"]


FILES = st.sampled_from(["a", "b", "d/a", "d/e/a", "g/a"])
DIRECTORIES = st.sampled_from(["d", "d/e", "g"])
STEPS = st.one_of(
    st.builds(Append, FILES, st.lists(st.binary(max_size=3), max_size=3), st.booleans()),
    st.builds(Read, FILES, st.integers(0, 6), st.integers(-1, 6)),
    st.builds(Sync, FILES),
    st.builds(SyncDir, DIRECTORIES),
    st.builds(MakeDir, DIRECTORIES),
    st.builds(Rename, FILES, FILES),
    st.sampled_from([Rename("d", "g"), Rename("g", "d")]),
    st.builds(Remove, FILES),
    st.builds(RemoveTree, DIRECTORIES),
)


def outcome(disk: DataDirectory | SimulatedDisk, step: Step) -> object:
    try:
        if isinstance(disk, SimulatedDisk):
            return disk.run([step])
        result = disk.execute(step)
        return [result] if isinstance(step, Read) else []
    except OSError as error:
        return error.errno


@settings(max_examples=100, deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_the_simulation_does_the_same(tmp_path_factory: pytest.TempPathFactory, steps: list[Step]) -> None:
    """The simulated disk has the outcome of the real one at each step, so the store's tests hold for both."""
    real = open_data_directory(str(tmp_path_factory.mktemp("real")), files_max=2)
    simulated = SimulatedDisk()
    for step in steps:
        assert outcome(real, step) == outcome(simulated, step), step
    for path in ("d", "d/e", "g"):
        assert real.names(path) == simulated.names(path)
    for path in simulated.paths():
        assert content(real, path) == simulated.content(path)
        assert real.size(path) == simulated.size(path)
    real.close()


# ---- descriptors ----


def test_few_files_stay_open(directory: DataDirectory) -> None:
    """The least recently used one is closed; nothing is inherited by other processes."""
    before = open_descriptors()
    for number in range(10):
        directory.execute(Append(f"{number}", [b"x"]))
        directory.execute(Append("0", [b"y"]))
    opened = open_descriptors() - before
    assert {os.path.basename(os.readlink(f"/proc/self/fd/{fd}")) for fd in opened} == {"0", "7", "8", "9"}
    assert not any(os.get_inheritable(fd) for fd in opened)
    assert content(directory, "0") == b"x" + b"y" * 10
    directory.execute(Sync("1"))


def test_closing_gives_everything_back(tmp_path: Path) -> None:
    """No descriptor stays."""
    before = open_descriptors()
    directory = open_data_directory(str(tmp_path))
    directory.execute(Append("f", [b"x"]))
    assert not any(os.get_inheritable(fd) for fd in open_descriptors() - before)
    directory.close()
    assert open_descriptors() == before


def test_files_that_rest_make_room_for_descriptors(
    directory: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When sockets have taken all descriptors a file is opened at the cost of others; without others it fails."""
    for name in "abc":
        directory.execute(Append(name, [b"x"]))
    free = 0
    really_open, really_close = os.open, os.close

    def counting_open(*arguments: Any, **names: Any) -> int:
        nonlocal free
        if not free:
            raise OSError(errno.EMFILE, "Too many open files")
        free -= 1
        return really_open(*arguments, **names)

    def counting_close(fd: int) -> None:
        nonlocal free
        free += 1
        really_close(fd)

    monkeypatch.setattr(os, "open", counting_open)
    monkeypatch.setattr(os, "close", counting_close)
    directory.execute(Append("d", [b"y"]))
    assert content(directory, "d") == b"y"
    for name in "abcd":
        directory.execute(Remove(name))
    free = 0
    with pytest.raises(OSError, match="Too many open files"):
        directory.execute(Append("e", [b"y"]))


# ---- a full disk ----


def test_nothing_remains_of_an_append_without_room(
    directory: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file ends where it ended before, and the next append comes there."""
    directory.execute(Append("f", [b"before"]))

    def writev(fd: int, parts: Sequence[bytes]) -> int:
        if len(parts[0]) < 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        return os.write(fd, parts[0][:2])

    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", writev)
        with pytest.raises(OSError, match="No space left"):
            directory.execute(Append("f", [b"lost", b"x"]))
    assert content(directory, "f") == b"before"
    directory.execute(Append("f", [b" and after"]))
    assert content(directory, "f") == b"before and after"


def test_half_an_append_that_stays_is_another_error(
    directory: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half an append that stays must not look like a full disk, after which one tries again."""

    def full(*arguments: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "writev", full)
    monkeypatch.setattr(os, "ftruncate", full)
    with pytest.raises(OSError, match="No space left") as caught:
        directory.execute(Append("f", [b"x"]))
    assert caught.value.errno == errno.EIO


# ---- whose directory ----


def test_one_node_at_a_time(tmp_path: Path) -> None:
    """A second node is told of the first; when that ends the directory is free."""
    first = open_data_directory(str(tmp_path))
    with pytest.raises(DataDirectoryError, match=rf"is in use by another node \(pid {os.getpid()}\)$"):
        open_data_directory(str(tmp_path))
    first.close()
    open_data_directory(str(tmp_path)).close()


def test_an_older_longer_process_id_leaves_no_trace(tmp_path: Path) -> None:
    """The lock file is written over, not cut, so that it works on a full disk."""
    open_data_directory(str(tmp_path)).close()
    (tmp_path / "lock").write_bytes(b"4194304999 \n")
    directory = open_data_directory(str(tmp_path))
    assert (tmp_path / "lock").read_text().split() == [str(os.getpid())]
    directory.close()


def test_missing_directories_are_made_for_us_only(tmp_path: Path) -> None:
    """Missing directories, also those above, are made with mode 0700."""
    open_data_directory(str(tmp_path / "a" / "b")).close()
    assert [stat.S_IMODE((tmp_path / path).stat().st_mode) for path in ("a", "a/b")] == [0o700, 0o700]


def test_what_cannot_be_a_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is for the operator; nothing stays open."""
    before = open_descriptors()
    (tmp_path / "file").write_text("")
    with pytest.raises(DataDirectoryError, match=r"/file cannot be used: File exists$"):
        open_data_directory(str(tmp_path / "file"))
    with pytest.raises(DataDirectoryError, match=r"/file/below cannot be used: File exists$"):
        open_data_directory(str(tmp_path / "file" / "below"))
    # Root may write anywhere, so the system's answer is played.
    monkeypatch.setattr(os, "access", lambda *arguments, **names: False)
    with pytest.raises(DataDirectoryError, match=r"cannot be written$"):
        open_data_directory(str(tmp_path))
    assert open_descriptors() == before


def test_a_lock_that_the_system_does_not_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather no node than two."""

    def flock(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.raises(DataDirectoryError, match=r"cannot be locked: No locks available$"):
        open_data_directory(str(tmp_path))


def test_reading_takes_no_lock_and_changes_nothing(tmp_path: Path) -> None:
    """Opening for reading takes no lock, works beside a node and cannot write."""
    (tmp_path / "f").write_bytes(b"content")
    assert not is_locked(str(tmp_path))
    reader = open_for_reading(str(tmp_path))
    assert reader.names("") == ["f"]
    node = open_data_directory(str(tmp_path))
    assert is_locked(str(tmp_path))
    assert reader.execute(Read("f", 0, TO_THE_END)) == b"content"
    for step in (Append("f", [b"x"]), Remove("f"), Sync("f"), MakeDir("d")):
        with pytest.raises(OSError, match="for reading only"):
            reader.execute(step)
    node.close()
    assert not is_locked(str(tmp_path))
    reader.close()
    assert (tmp_path / "f").read_bytes() == b"content"


def test_reading_a_directory_that_is_not_there(tmp_path: Path) -> None:
    """A directory that is not there is not made for reading."""
    with pytest.raises(DataDirectoryError, match=r"cannot be read: No such file or directory$"):
        open_for_reading(str(tmp_path / "no"))
    assert not (tmp_path / "no").exists()
