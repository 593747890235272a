"""Files of a killed node are damaged: it starts, says what is broken and where, keeps a copy, and has everything else.

`FLUFFLE_FAULT_SEEDS=20` tries more places than one of each kind.
"""

import asyncio
import copy
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import pytest

from node.queue.operations import Enqueue, decode
from node.store.records import read_records
from tests.durability.ledger import Ledger
from tests.durability.load import LARGE, SMALL
from tests.durability.scene import Scene, until
from tests.kit.ledger import SETTLED, Kind, Value
from tests.kit.node_process import NodeProcess, copy_data

pytestmark = pytest.mark.slow

SEEDS: Final = range(int(os.environ.get("FLUFFLE_FAULT_SEEDS", "1")))
SETTINGS: Final = {"store.journal_file_size": "65536", "msg_store_file_size_limit": "65536"}
UID_BYTES: Final = 16
ID_BYTES: Final = 8
VALUE: Final = re.compile(rb"((?:small|large|second|third|quiet|later)-[a-h]):(\d+)\|")


@dataclass(frozen=True, slots=True)
class Base:
    """Data as a killed node has left them, and what is in there."""

    data: Path
    ledger: Ledger


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a file.   values: that a queue may lose with it.   stop: of its bytes."""

    start: int
    stop: int
    values: frozenset[Value]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    """Journal, segments and message store with several records each."""
    directory = tmp_path_factory.mktemp("base")
    node = NodeProcess(directory)
    scene = Scene(node)

    async def act() -> None:
        node.start(SETTINGS)
        await scene.declare("small", "large", "quiet", "later")
        for number in range(8):
            await scene.fill("small", f"small-{'abcdefgh'[number]}", Kind(SMALL), 60)
            await scene.fill("large", f"large-{'abcdefgh'[number]}", Kind(LARGE), 12)
        # A part is acknowledged, so that there are records of that, too.
        reader = await scene.consume("small", acks=True)
        await until(lambda: len(reader.values) == 480, "all messages")
        await reader.client.close()
        # So much that it is in segments, and then something for the journal.
        for number in range(8):
            await scene.fill("small", f"second-{'abcdefgh'[number]}", Kind(SMALL), 60)
            await scene.fill("quiet", f"quiet-{'abcdefgh'[number]}", Kind((200,)), 2)
            await scene.fill("later", f"later-{'abcdefgh'[number]}", Kind((200,)), 2)
            await scene.fill("large", f"third-{'abcdefgh'[number]}", Kind(LARGE), 4)

    try:
        asyncio.run(act())
    finally:
        node.kill()
    return Base(node.data, scene.ledger)


@pytest.fixture
def node(base: Base, make_node: Callable[..., NodeProcess]) -> NodeProcess:
    """A node on a copy of the data."""
    made = make_node()
    copy_data(base.data, made.data)
    return made


def _stored(data: Path) -> dict[int, Value]:
    """The contents of the message store, by id."""
    found = {}
    for path in data.glob("messages/*.rdq"):
        for _, payload in read_records(path.read_bytes()):
            match = VALUE.search(payload)
            assert match
            found[int.from_bytes(payload[:ID_BYTES], "big")] = _value(match)
    return found


def _value(match: re.Match[bytes]) -> Value:
    return Value(match[1].decode(), int(match[2]))


def _records(data: Path, path: Path) -> list[Record]:
    """The records of a file, in order."""
    stored = _stored(data)
    found = []
    for start, payload in read_records(path.read_bytes()):
        values = {_value(match) for match in VALUE.finditer(payload)}
        if path.suffix != ".rdq":
            operation = decode(bytes(payload[UID_BYTES if path.suffix == ".journal" else 0 :]))
            if isinstance(operation, Enqueue) and operation.store_id:
                ids = range(operation.store_id, operation.store_id + operation.count)
                values |= {stored[each] for each in ids if each in stored}
        found.append(Record(start, start + 8 + len(payload), frozenset(values)))
    return found


def _largest(data: Path, pattern: str) -> Path:
    return max(data.glob(pattern), key=lambda path: path.stat().st_size)


FILES: Final = {"journal": "journal/*.journal", "segment": "queues/*/*.idx", "contents": "messages/*.rdq"}


def _flip(content: bytearray, records: list[Record], random: Random) -> int:
    """One bit, in a record that others follow. Returns: where the damage begins."""
    record = random.choice(records[:-1])
    at = random.randrange(record.start, record.stop)
    content[at] ^= 1 << random.randrange(8)
    return record.start


def _cut(content: bytearray, records: list[Record], random: Random) -> int:
    """The end is missing, from the middle of a record on."""
    record = random.choice(records[-5:])
    del content[random.randrange(record.start + 1, record.stop) :]
    return record.start


def _zero(content: bytearray, records: list[Record], random: Random) -> int:
    """The end is zeros, from the middle of a record on."""
    record = random.choice(records[-5:])
    at = random.randrange(record.start + 1, record.stop - 1)
    content[at:] = bytes(len(content) - at)
    return record.start


def _garble(content: bytearray, records: list[Record], random: Random) -> int:
    """A block in the middle is another one."""
    record = random.choice(records[: len(records) // 2])
    at = random.randrange(record.start, record.stop)
    content[at : at + 4096] = random.randbytes(len(content[at : at + 4096]))
    return record.start


def _append(content: bytearray, records: list[Record], random: Random) -> int:
    """Something stands behind the end."""
    content += random.randbytes(random.randrange(1, 5000))
    return records[-1].stop


DEEDS: Final = (_flip, _cut, _zero, _garble, _append)


CASES: Final = [
    pytest.param(file, deed, seed, id=f"{file}{deed.__name__}-{seed}")
    for file in FILES
    for deed in DEEDS
    for seed in SEEDS
]


@pytest.mark.parametrize(("file", "deed", "seed"), CASES)
def test_damage(
    base: Base,
    node: NodeProcess,
    file: str,
    deed: Callable[[bytearray, list[Record], Random], int],
    seed: int,
) -> None:
    """Only the messages of the damaged records may be missing."""
    path = _largest(node.data, FILES[file])
    name = str(path.relative_to(node.data))
    records = _records(node.data, path)
    content = bytearray(path.read_bytes())
    before = bytes(content)
    offset = deed(content, records, Random(f"{file}{deed.__name__}{seed}"))
    path.write_bytes(content)
    hurt = [
        record
        for record in records
        if content[record.start : record.stop] != before[record.start : record.stop]
    ]
    scene = Scene(node)
    scene.ledger = copy.deepcopy(base.ledger)
    is_lost = False
    for queue in scene.ledger.queues.values():
        for value in set().union(*(record.values for record in hurt)) & queue.marks.keys():
            is_lost = is_lost or value in queue.must()
            queue.mark(value, SETTLED)
    has_torn_contents = file == "contents" and deed in (_cut, _zero, _append)
    if has_torn_contents:
        # A crash leaves such an end; what is missing is told by the queue that misses it.
        signs = re.compile("no longer in the message store" if is_lost else "")
    else:
        signs = re.compile(rf"{re.escape(name)}.*\b{offset}\b")
    code, text = node.check_store()
    # A torn end alone is what any crash may leave.
    assert code == int(re.search(r"^(corrupt|missing|unknown): ", text, re.MULTILINE) is not None), text
    assert code == 1 or (not is_lost or deed in (_cut, _zero, _garble, _append)), text
    assert signs.search(text), text

    node.start(SETTINGS)
    count = asyncio.run(scene.check())
    assert count.problems == []
    assert count.recovered > 100
    assert signs.search(node.log_text()), node.log_text()
    assert "Traceback" not in node.log_text()
    if not has_torn_contents and content[offset:].strip(b"\0"):
        copied = (node.data / "corrupt" / name).read_bytes()
        assert copied == content or bytes(content[offset : offset + 20]) in copied
    node.kill()
    node.start(SETTINGS)
    assert asyncio.run(scene.check()).problems == [], "the same after one more crash"


def test_a_file_of_contents_is_gone(base: Base, node: NodeProcess) -> None:
    """Messages of a missing file of the message store are gone, and each is named in the log."""
    path = _largest(node.data, FILES["contents"])
    values = set().union(*(record.values for record in _records(node.data, path)))
    path.unlink()
    code, text = node.check_store()
    assert code == 1, text
    scene = Scene(node)
    scene.ledger = copy.deepcopy(base.ledger)
    queue = scene.ledger.queues["large"]
    lost = values & queue.must()
    assert lost
    for value in values & queue.marks.keys():
        queue.mark(value, SETTLED)
    node.start(SETTINGS)
    assert asyncio.run(scene.check()).problems == []
    assert "no longer in the message store" in node.log_text()


@pytest.mark.parametrize("name", ["quiet", "later"])
def test_metadata_are_damaged(base: Base, node: NodeProcess, name: str) -> None:
    """A queue's declaration is broken: what belonged to it is kept in corrupt/, everything else is there."""
    path = node.data / "metadata.log"
    content = bytearray(path.read_bytes())
    at = content.index(f'"{name}"'.encode())
    offset = max(start for start, _ in read_records(bytes(content)) if start < at)
    content[at + 1] ^= 1
    path.write_bytes(content)
    # A damaged last record may be one that a crash has left; only what belongs to nobody says that it isn't.
    is_last = name == "later"
    signs = re.compile("not in the .*metadata" if is_last else rf"metadata\.log.*\b{offset}\b")
    code, text = node.check_store()
    assert code == 1, text
    assert signs.search(text), text
    scene = Scene(node)
    scene.ledger = copy.deepcopy(base.ledger)
    del scene.ledger.queues[name]
    node.start(SETTINGS)
    assert asyncio.run(scene.check()).problems == []
    assert signs.search(node.log_text()), node.log_text()
    kept = b"".join(each.read_bytes() for each in node.data.glob("corrupt/**/*") if each.is_file())
    for value in base.ledger.queues[name].must():
        assert base.ledger.kinds[value.publisher].body(value) in kept, value
