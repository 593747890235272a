"""Data directories that a node must not touch: it says why, ends with 69, and changes nothing."""

import asyncio
import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from node.store.records import JOURNAL_HEADER, MESSAGES_HEADER, METADATA_HEADER, SEGMENT_HEADER
from tests.durability.scene import Scene
from tests.kit.ledger import Kind
from tests.kit.node_process import NodeProcess, StartFailed, copy_data

pytestmark = pytest.mark.slow

MakeNode = Callable[..., NodeProcess]
EX_UNAVAILABLE: Final = 69
SETTINGS: Final = {"store.journal_file_size": "65536", "msg_store_file_size_limit": "65536"}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data of a killed node, with files of each kind."""
    node = NodeProcess(tmp_path_factory.mktemp("base"))
    scene = Scene(node)

    async def act() -> None:
        node.start(SETTINGS)
        await scene.declare("q")
        for number in range(20):
            await scene.fill("q", f"p{number}", Kind((1000, 5000)), 20)

    try:
        asyncio.run(act())
    finally:
        node.kill()
    for pattern in ("journal/*", "queues/*/*", "messages/*", "metadata.log"):
        assert list(node.data.glob(pattern)), pattern
    return node.data


def listing(directory: Path) -> dict[str, str]:
    """All that is there: names, modes, times and what is in the files. The lock file says who looked last."""
    found = {}
    for path in sorted(directory.rglob("*")):
        status = path.stat()
        name = str(path.relative_to(directory))
        if name != "lock":
            content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "directory"
            found[name] = f"{status.st_mode:o} {status.st_size} {status.st_mtime_ns} {content}"
    return found


def refused(node: NodeProcess) -> str:
    """Start a node that must refuse, and see that it changed nothing. Returns: what it says."""
    before = listing(node.data)
    with pytest.raises(StartFailed):
        node.start(SETTINGS)
    assert node.exit_code == EX_UNAVAILABLE, node.log_text()
    assert listing(node.data) == before
    text = node.log_text()
    assert "Traceback" not in text
    [line] = [line for line in text.splitlines() if line.startswith("fluffle: ")]
    assert "[Errno" not in line, line
    return line


@pytest.fixture
def node(base: Path, make_node: MakeNode) -> NodeProcess:
    """A node on a copy of the data."""
    made = make_node()
    copy_data(base, made.data)
    return made


def test_another_nodes_directory(base: Path, make_node: MakeNode) -> None:
    """A directory of a node of another name is refused."""
    node = make_node(name="other")
    copy_data(base, node.data)
    line = refused(node)
    assert "belongs to node t1@" in line
    assert "this is other@" in line


def test_a_second_node(node: NodeProcess, make_node: MakeNode) -> None:
    """While a node runs on it. That one notices nothing."""
    node.start(SETTINGS)
    second = make_node(data=node.data)
    assert f"in use by another node (pid {node.pid})" in refused(second)
    scene = Scene(node)

    async def act() -> None:
        await scene.declare("still-here")
        await scene.fill("still-here", "p", Kind((100,)), 10)

    asyncio.run(act())
    assert node.stop() == 0


def test_newer_store(node: NodeProcess) -> None:
    """store.json says a format that we don't know."""
    path = node.data / "store.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 7'))
    line = refused(node)
    assert "store.json" in line
    assert "format 7" in line
    assert "later version" in line


@pytest.mark.parametrize(
    ("pattern", "header"),
    [
        ("journal/*.journal", JOURNAL_HEADER),
        ("queues/*/*.idx", SEGMENT_HEADER),
        ("messages/*.rdq", MESSAGES_HEADER),
        ("metadata.log", METADATA_HEADER),
    ],
)
def test_newer_file(node: NodeProcess, pattern: str, header: bytes) -> None:
    """Any one file has a later format: it was written by a later version of the node."""
    path = sorted(node.data.glob(pattern))[-1]
    content = path.read_bytes()
    assert content.startswith(header)
    path.write_bytes(header[:-1] + b"\x02" + content[len(header) :])
    line = refused(node)
    assert str(path.relative_to(node.data)) in line, line


@pytest.mark.parametrize("damage", ["", "{", '{"format": "one"}', "\0\0\0\0"])
def test_damaged_store_file(node: NodeProcess, damage: str) -> None:
    """store.json is not what we wrote."""
    (node.data / "store.json").write_text(damage)
    assert "store.json is damaged" in refused(node)


def test_store_file_is_missing(node: NodeProcess) -> None:
    """A directory has our files, but not the one that says so, and is refused."""
    (node.data / "store.json").unlink()
    assert "store.json is missing" in refused(node)


def test_something_else(make_node: MakeNode) -> None:
    """A directory full of other things."""
    node = make_node()
    node.data.mkdir()
    (node.data / "holiday.jpg").write_bytes(b"beach")
    (node.data / "sub").mkdir()
    assert "holiday.jpg" in refused(node)


def test_a_file(make_node: MakeNode) -> None:
    """No directory at all."""
    node = make_node()
    node.data.write_text("a file")
    with pytest.raises(StartFailed):
        node.start()
    assert node.exit_code == EX_UNAVAILABLE
    assert str(node.data) in node.log_text()
    assert node.data.read_text() == "a file"


def test_metadata_without_anything_good(node: NodeProcess) -> None:
    """No record of metadata.log can be read: starting empty would remove everything."""
    path = node.data / "metadata.log"
    path.write_bytes(b"\xff" * path.stat().st_size)
    assert "metadata.log" in refused(node)


def test_read_only(node: NodeProcess, small_disk: Path) -> None:
    """A file system that takes no writes; also where nothing is there yet."""
    data = small_disk / "data"
    copy_data(node.data, data)
    node.data = data
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    line = refused(node)
    assert str(data) in line
    assert "written" in line or "Read-only" in line
    node.data = small_disk / "new"
    with pytest.raises(StartFailed):
        node.start()
    assert node.exit_code == EX_UNAVAILABLE
    assert "Read-only file system" in node.log_text()
