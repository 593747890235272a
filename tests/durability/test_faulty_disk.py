"""The faulty disk itself: what it is told to do happens to the files that were named, and to no others."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.faulty_disk import SLOW_S, FaultyDisk, NoCompiler

PROGRAM = """
import os, sys
for line in sys.stdin:
    what, path = line.split()
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    try:
        {"sync": lambda: os.fdatasync(file), "write": lambda: os.writev(file, [b"x"]),
         "read": lambda: os.pread(file, 1, 0)}[what]()
        print("done", flush=True)
    except OSError as error:
        print(error.errno, flush=True)
    os.close(file)
"""
EIO = "5"


@pytest.fixture
def disk(tmp_path: Path) -> FaultyDisk:
    """The disk of the directory `data`, which has two folders."""
    for folder in ("raft", "queues"):
        (tmp_path / "data" / folder).mkdir(parents=True)
    try:
        return FaultyDisk(tmp_path, tmp_path / "data", takes_notes=False)
    except NoCompiler as error:
        pytest.skip(str(error))


@pytest.fixture
def does(tmp_path: Path, disk: FaultyDisk) -> Callable[..., str]:
    """Have a process do something to a file below `data`. Returns: what came of it; empty: it still hangs."""

    def do(what: str, path: str, *, wait_s: float | None = None) -> str:
        command = [sys.executable, "-c", PROGRAM]
        process = subprocess.Popen(
            command, env=disk.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            return process.communicate(f"{what} {tmp_path / 'data' / path}\n", timeout=wait_s)[0].strip()
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return ""

    return do


@pytest.mark.parametrize("what", ["sync", "write", "read"])
def test_it_fails_where_it_is_told_to(disk: FaultyDisk, does: Callable[..., str], what: str) -> None:
    disk.fail(what, "raft", "journal")
    assert (does(what, "raft/a"), does(what, "queues/a"), does(what, "rafter")) == (EIO, "done", "done")
    assert does(what, "raft/a") == EIO, "until it is mended"
    disk.mend()
    assert does(what, "raft/a") == "done"


def test_it_fails_everywhere(disk: FaultyDisk, does: Callable[..., str]) -> None:
    disk.fail("write")
    assert (does("write", "raft/a"), does("write", "queues/a"), does("sync", "queues/a")) == (
        EIO,
        EIO,
        "done",
    )


def test_it_fails_once(disk: FaultyDisk, does: Callable[..., str]) -> None:
    disk.fail("sync", "queues", once=True)
    assert does("sync", "raft/a") == "done"
    assert not disk.has_failed("sync")
    assert does("sync", "queues/a") == EIO
    assert disk.has_failed("sync")
    assert does("sync", "queues/a") == "done"


@pytest.mark.slow
def test_it_hangs_until_it_is_mended(disk: FaultyDisk, does: Callable[..., str]) -> None:
    disk.hang("sync", "raft")
    assert does("sync", "queues/a") == "done"
    assert does("sync", "raft/a", wait_s=1) == ""
    disk.mend()
    assert does("sync", "raft/a") == "done"


@pytest.mark.slow
def test_a_slow_sync_takes_longer_and_succeeds(disk: FaultyDisk, does: Callable[..., str]) -> None:
    disk.slow("raft")
    begun = time.monotonic()
    assert does("sync", "raft/a") == "done"
    assert time.monotonic() - begun >= SLOW_S
    assert does("write", "raft/a") == "done"
    disk.mend()
    assert does("sync", "raft/a") == "done"
