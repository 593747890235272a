"""`fluffle store check` and `dump`, on real files."""

import fcntl
import json
from pathlib import Path
from typing import Any

import pytest

from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import DeclareQueue, PutVhost
from node.catalogue.replicated_log import DurableLog
from node.cli.main import main
from node.queue.operations import Operation
from node.store.metadata_log import MetadataLog
from tests.kit.disk import SimulatedDisk
from tests.kit.messages import content
from tests.kit.stored import (
    ENTRIES,
    NODE,
    OTHER_UID,
    TRANSIENT,
    UID,
    UNKNOWN_UID,
    contents_bytes,
    delivered,
    enqueue,
    enqueue_stored,
    journal_bytes,
    offset_of,
    remove,
    segment_bytes,
    urgent,
)


class DataDir:
    """A data directory with two durable queues, `q1` in vhost `/` and `q2` in vhost `v`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write(
            "store.json",
            json.dumps({"format": 1, "node": NODE, "segment_entries": ENTRIES}).encode(),
        )
        self.write("metadata.log", metadata_bytes())
        (path / "lock").touch()

    def write(self, name: str, data: bytes) -> None:
        """Write a file."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def journal(self, *operations: tuple[str, Operation], is_clean: bool = True) -> None:
        """Write the journal."""
        self.write("journal/1.journal", journal_bytes(operations, is_clean=is_clean))

    def segment(self, *operations: Operation, number: int = 0, uid: str = UID) -> None:
        """Write a segment."""
        self.write(f"queues/{uid}/{number}.idx", segment_bytes(operations))

    def flip(self, name: str, offset: int) -> None:
        """Damage a byte."""
        path = self.path / name
        data = bytearray(path.read_bytes())
        data[offset] ^= 1
        path.write_bytes(data)

    def state(self) -> dict[str, bytes]:
        """All files."""
        return {
            str(path.relative_to(self.path)): path.read_bytes()
            for path in sorted(self.path.rglob("*"))
            if path.is_file()
        }


def metadata_bytes() -> bytes:
    """Return the metadata log that a node writes when the two queues are declared."""
    disk, catalogue = SimulatedDisk(), Catalogue()
    metadata = MetadataLog(disk, catalogue)
    metadata.load(lambda command, answer: answer(catalogue.apply(command)), lambda *damage: None)
    log = DurableLog(catalogue, lambda events: None, metadata)
    for vhost in ("/", "v"):
        log.submit(PutVhost(vhost))
    for vhost, name, uid in (("/", "q1", UID), ("v", "q2", OTHER_UID)):
        log.submit(DeclareQueue(vhost, name, uid, durable=True))
    disk.settle()
    return disk.content("metadata.log")


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    return DataDir(tmp_path / "data")


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, list[str], str]:
    """Run `fluffle store …`: exit code, lines of the output, all of the errors."""
    try:
        code = main(["store", *map(str, arguments)])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else -1
    output = capsys.readouterr()
    return code, output.out.splitlines(), output.err


def dumped(capsys: pytest.CaptureFixture[str], data: DataDir, *options: str) -> list[dict[str, Any]]:
    """Return the rows that `dump` prints for an undamaged store."""
    code, lines, errors = run(capsys, "dump", data.path, *options)
    assert (code, errors) == (0, "")
    return [json.loads(line) for line in lines]


# --- check ---


def test_check_says_what_is_there(capsys: pytest.CaptureFixture[str], data: DataDir) -> None:
    """`check` of a whole store prints what the next start will find."""
    data.segment(enqueue(1, b"a", b"bb"), enqueue(3, b"x", envelope=TRANSIENT))
    data.journal((UID, enqueue(4, b"c")), (UID, remove(1)), (OTHER_UID, enqueue_stored(1, 1, 2)))
    data.write("messages/1.rdq", contents_bytes({1: content(b"x"), 2: content(b"y")}))
    before = data.state()
    code, lines, errors = run(capsys, "check", data.path)
    assert (code, errors) == (0, "")
    assert data.state() == before
    journal_bytes_count = len(before["journal/1.journal"])
    store_bytes_count = len(before["messages/1.rdq"])
    assert lines == [
        f"directory      {data.path}",
        f"node           {NODE}",
        "format         1",
        "stopped        cleanly",
        f"journal        1 files, {journal_bytes_count} bytes, 3 operations",
        f"message store  1 files, {store_bytes_count} bytes, 0 of them garbage",
        "messages       4, 10,003 bytes",
        "",
        "vhost  queue  messages   bytes  segments  journaled",
        "/      q1            2       3         1          2",
        "v      q2            2  10,000         0          1",
        "",
        "nothing is broken",
    ]


def test_check_of_an_empty_store(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    (tmp_path / "metadata.log").unlink()
    code, lines, _ = run(capsys, "check", data.path)
    assert code == 0
    assert "no durable queues" in lines


def test_check_finds_what_is_broken(capsys: pytest.CaptureFixture[str], data: DataDir) -> None:
    """By file and offset. Nothing is repaired, nothing is copied."""
    data.segment(enqueue(1, b"a"), enqueue(2, b"b"), enqueue_stored(3, 9, 1))
    offset = offset_of((data.path / f"queues/{UID}/0.idx").read_bytes(), 1)
    data.flip(f"queues/{UID}/0.idx", offset + 20)
    data.journal((UID, enqueue(4, b"d")), is_clean=False)
    data.write("journal/1.journal", (data.path / "journal/1.journal").read_bytes() + b"torn")
    before = data.state()
    code, lines, _ = run(capsys, "check", data.path)
    assert code == 1
    assert data.state() == before
    assert "stopped        not cleanly: the next start marks all messages as redelivered" in lines
    broken = [line for line in lines if line.startswith(("corrupt: ", "torn: ", "missing: "))]
    assert [line.split(",")[0] for line in broken] == [
        "torn: journal/1.journal",
        f"missing: queues/{UID}/0.idx",
        f"corrupt: queues/{UID}/0.idx",
    ]
    assert f"offset {offset}, " in broken[2]
    assert "kept as" not in "".join(lines)


def test_check_without_metadata(capsys: pytest.CaptureFixture[str], data: DataDir) -> None:
    """Queues have no names then, but their messages can be seen."""
    data.segment(enqueue(1, b"a"))
    data.write("metadata.log", b"nonsense" * 100)
    code, lines, _ = run(capsys, "check", data.path)
    assert code == 1
    assert any(UID in line and line.split()[1:] == ["1", "1", "1", "0"] for line in lines)
    assert any(line.startswith("corrupt: metadata.log") for line in lines)


def test_check_tells_of_queues_that_are_gone(capsys: pytest.CaptureFixture[str], data: DataDir) -> None:
    """Queues that no longer exist are left over and no damage."""
    data.segment(enqueue(1, b"a"), uid=UNKNOWN_UID)
    code, lines, _ = run(capsys, "check", data.path)
    assert code == 0
    assert lines[7] == "left over      1 queues that no longer exist; the next start removes their files"


# --- dump ---


def test_dump_gives_each_message(capsys: pytest.CaptureFixture[str], data: DataDir) -> None:
    """Messages in segments are dumped first. Those that a start would not find are left out."""
    data.segment(
        enqueue(2, b"bb", b"c"),
        enqueue(1, b"a", envelope=urgent(3), expires_at_ms=5),
        enqueue(4, b"x", envelope=TRANSIENT),
        delivered(2, 3),
    )
    data.journal(
        (OTHER_UID, enqueue(1, b"z", deliveries=1)),
        (UID, enqueue(2, b"bb", b"c")),
        (UID, enqueue(5, b"d", b"e", b"f")),
        (UID, remove(6)),
        (UID, delivered(7, 7)),
    )
    messages = dumped(capsys, data)
    assert [(each["queue"], each["seq"], each["payload_bytes"], each["deliveries"]) for each in messages] == [
        ("q1", 1, 1, 0),
        ("q1", 2, 2, 0),
        ("q1", 3, 1, 2),
        ("q2", 1, 1, 1),
        ("q1", 5, 1, 0),
        ("q1", 7, 1, 7),
    ]
    assert messages[0] == {
        "vhost": "/",
        "queue": "q1",
        "seq": 1,
        "exchange": "",
        "routing_key": "q",
        "priority": 3,
        "payload_bytes": 1,
        "expires_at_ms": 5,
        "deliveries": 0,
        "store_id": None,
    }


def test_dump_with_bodies(capsys: pytest.CaptureFixture[str], data: DataDir) -> None:
    """Embedded and stored ones; text, bytes, and what is lost."""
    data.write("store.json", json.dumps({"format": 1, "node": NODE, "segment_entries": 128}).encode())
    data.segment(enqueue(1, "é".encode(), b"\xff"), enqueue_stored(3, 1, 70, 5))
    data.write("messages/1.rdq", contents_bytes({number: content(b"large") for number in range(1, 70)}))
    messages = dumped(capsys, data, "--bodies")
    assert [(each["payload"], each["payload_encoding"]) for each in messages] == [
        ("é", "string"),
        ("/w==", "base64"),
        *[("large", "string")] * 69,
        (None, "lost"),
    ]
    assert messages[-1]["store_id"] == 70


def test_dump_of_one_queue(capsys: pytest.CaptureFixture[str], data: DataDir) -> None:
    """By name, by uid, or all of a vhost."""
    data.journal((UID, enqueue(1, b"a")), (OTHER_UID, enqueue(1, b"b")))
    for options in (("--queue", "q2"), ("--queue", OTHER_UID), ("--vhost", "v")):
        assert [each["queue"] for each in dumped(capsys, data, *options)] == ["q2"]
    code, lines, errors = run(capsys, "dump", data.path, "--queue", "q2", "--vhost", "/")
    assert (code, lines, errors) == (2, [], "fluffle: there is no such durable queue\n")


def test_dump_goes_on_around_damage(capsys: pytest.CaptureFixture[str], data: DataDir) -> None:
    """`dump` prints the messages around damage and reports the damaged file."""
    data.segment(enqueue(1, b"a"), enqueue(2, b"b"))
    data.flip(f"queues/{UID}/0.idx", 30)
    code, lines, errors = run(capsys, "dump", data.path)
    assert code == 1
    assert [json.loads(line)["seq"] for line in lines] == [2]
    assert f"damaged: queues/{UID}/0.idx; see `fluffle store check`" in errors


# --- nothing to look at ---


@pytest.mark.parametrize("command", ["check", "dump"])
def test_a_running_node_is_left_alone(
    capsys: pytest.CaptureFixture[str], data: DataDir, command: str
) -> None:
    """A store whose node holds the lock is left alone."""
    with open(data.path / "lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, lines, errors = run(capsys, command, data.path)
    assert (code, lines) == (2, [])
    assert errors == f"fluffle: a node runs on {data.path}: stop it first\n"


@pytest.mark.parametrize("command", ["check", "dump"])
def test_what_is_no_store(capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str) -> None:
    """No directory, an empty one, one of somebody else."""
    missing = tmp_path / "missing"
    assert run(capsys, command, missing) == (
        2,
        [],
        f"fluffle: the data directory {missing} cannot be read: No such file or directory\n",
    )
    assert run(capsys, command, tmp_path) == (2, [], f"fluffle: {tmp_path} holds no store\n")
    (tmp_path / "PG_VERSION").touch()
    code, _, errors = run(capsys, command, tmp_path)
    assert code == 2
    assert "holds something else than a store (PG_VERSION)" in errors


@pytest.mark.parametrize("command", ["check", "dump"])
@pytest.mark.parametrize("name", ["journal/1.journal", f"queues/{UID}/0.idx"])
def test_a_newer_format(capsys: pytest.CaptureFixture[str], data: DataDir, command: str, name: str) -> None:
    """Is named."""
    data.segment(enqueue(1, b"a"))
    data.journal((UID, enqueue(2, b"a")))
    path = data.path / name
    path.write_bytes(path.read_bytes()[:7] + b"\2" + path.read_bytes()[8:])
    code, _, errors = run(capsys, command, data.path)
    assert code == 2
    assert errors.startswith(f"fluffle: {name}: format 2 of FLF")


def test_bad_command_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 64, as of all commands."""
    assert run(capsys)[0] == 64
    assert run(capsys, "check")[0] == 64
    assert run(capsys, "repair", "x")[0] == 64
