"""Segments on a disk of a test: names, ends, bounds, and what a former start left."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.store.disk import Append, Remove, Rename, Step
from node.telemetry.segments import FLUSH_BYTES, PENDING_MAX_BYTES, SEGMENT_BYTES, SEGMENT_S, Segments

BOOT = "0123456789abcdef"


class MemoryDisk:
    """Executes at once, unless it is held."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.pending_bytes = 0
        self.error: OSError | None = None

    def submit(
        self, steps: Sequence[Step], done: Callable[[list[Any]], None], failed: Callable[[OSError], None]
    ) -> None:
        if self.error is not None:
            failed(self.error)
            return
        self.run(steps)
        done([])

    def run(self, steps: Sequence[Step]) -> list[Any]:
        for step in steps:
            match step:
                case Append(path, parts, _):
                    self.files[path] = self.files.get(path, b"") + b"".join(parts)
                case Rename(old, new):
                    self.files[new] = self.files.pop(old)
                case Remove(path):
                    self.files.pop(path, None)
                case _:
                    raise AssertionError(step)
        return []

    def names(self, directory: str) -> list[str]:
        return sorted(self.files)

    def size(self, path: str) -> int:
        return len(self.files[path])


class World:
    def __init__(self, max_bytes: int = 1 << 30) -> None:
        self.disk = MemoryDisk()
        self.max_bytes = max_bytes
        self.errors: list[OSError] = []
        self.begin()

    def begin(self, boot_id: str = BOOT, time_text: str = "20261122T120000") -> None:
        """A start of the node."""
        self.segments = Segments(
            self.disk,
            boot_id,
            self.max_bytes,
            exists=lambda name: name in self.disk.files,
            time_text=lambda: time_text,
            on_broken=self.errors.append,
        )
        self.segments.take_over()


@pytest.fixture
def world() -> World:
    return World()


def test_a_segment_is_open_until_its_minute_is_over(world: World) -> None:
    """spark §2.7: rotated each minute; readers tell an open one by its name."""
    name = f"{BOOT}-20261122T120000-1.ndjson"
    world.segments.write([b"a\n"], 100.0)
    assert world.disk.files == {}
    world.segments.tick(100.5)
    assert world.disk.files == {f"{name}.open": b"a\n"}
    world.segments.write([b"b\n"], 101.0)
    world.segments.tick(100.5 + SEGMENT_S - 0.1)
    assert list(world.disk.files) == [f"{name}.open"]
    world.segments.tick(100.5 + SEGMENT_S)
    assert world.disk.files == {name: b"a\nb\n"}
    world.segments.tick(300.0)
    assert list(world.disk.files) == [name]
    world.segments.write([b"c\n"], 301.0)
    world.segments.tick(301.0)
    assert f"{BOOT}-20261122T120000-2.ndjson.open" in world.disk.files


def test_a_large_segment_ends_early(world: World) -> None:
    """A segment that has grown large ends early, and much is handed over before the tick."""
    row = b"x" * FLUSH_BYTES
    world.segments.write([row], 1.0)
    assert len(world.disk.files) == 1
    for _ in range(SEGMENT_BYTES // FLUSH_BYTES):
        world.segments.write([row], 1.0)
    world.segments.tick(1.0)
    assert not any(name.endswith(".open") for name in world.disk.files)


def test_what_a_former_start_left_is_closed(world: World) -> None:
    """A torn last line is for readers."""
    world.segments.write([b"a\n", b"tor"], 1.0)
    world.segments.tick(1.0)
    world.begin("ffff")
    assert world.disk.files == {f"{BOOT}-20261122T120000-1.ndjson": b"a\ntor"}


def test_the_oldest_go_when_nobody_collects() -> None:
    """Told in segments_dropped_total; also those of former starts, by their time."""
    world = World(max_bytes=25)
    for boot, hour in (("zz", "08"), ("aa", "09"), ("mm", "10")):
        world.begin(boot, f"20261122T{hour}0000")
        for number in range(2):
            world.segments.write([b"123456789\n"], 100.0 * number)
            world.segments.tick(100.0 * number)
            world.segments.close()
    assert sorted(world.disk.files) == [
        "mm-20261122T100000-1.ndjson",
        "mm-20261122T100000-2.ndjson",
    ]
    assert world.segments.dropped_total == 2


def test_what_was_collected_is_not_dropped() -> None:
    """A collector removes what it has taken."""
    world = World(max_bytes=25)
    for number in range(5):
        world.segments.write([b"123456789\n"], 100.0 * number)
        world.segments.tick(100.0 * number)
        world.segments.close()
        world.disk.files.clear()
    assert world.segments.dropped_total == 0


def test_rows_are_lost_when_the_disk_takes_none(world: World) -> None:
    """Memory is bounded."""
    world.disk.pending_bytes = PENDING_MAX_BYTES
    world.segments.write([b"a\n", b"b\n"], 1.0)
    world.segments.tick(1.0)
    assert world.segments.lost_rows == 2
    world.disk.pending_bytes = 0
    world.segments.write([b"c\n"], 2.0)
    world.segments.tick(2.0)
    assert list(world.disk.files.values()) == [b"c\n"]


def test_a_broken_disk_is_told_once(world: World) -> None:
    """Nothing is tried any more."""
    world.disk.error = OSError(5, "Input/output error")
    for number in range(3):
        world.segments.write([b"a\n"], 100.0 * number)
        world.segments.tick(100.0 * number)
    assert world.errors == [world.disk.error]
    assert world.segments.lost_rows == 2


@given(
    st.lists(st.tuples(st.floats(0, 50), st.integers(0, 3), st.booleans()), max_size=60),
    st.integers(10, 200),
)
def test_no_row_is_lost_or_doubled_and_room_is_bounded(
    steps: list[tuple[float, int, bool]], max_bytes: int
) -> None:
    """Whatever is written when: all rows that are left are in order, and the oldest are missing if any are."""
    world, now, written = World(max_bytes), 0.0, 0
    for number, (pause, count, is_start) in enumerate(steps):
        now += pause
        if is_start:
            world.segments.flush(now)
            world.begin(f"boot{number}", f"20261122T12{number + 1:04}")
        world.segments.write([b"%d\n" % (written + each) for each in range(count)], now)
        written += count
        world.segments.tick(now)
    world.segments.flush(now)
    world.segments.close()

    def age(name: str) -> tuple[str, int]:
        _, time, number = name.removesuffix(".ndjson").split("-")
        return time, int(number)

    numbers = [
        int(line) for name in sorted(world.disk.files, key=age) for line in world.disk.files[name].split()
    ]
    assert numbers == list(range(written - len(numbers), written))
    sizes = [len(data) for data in world.disk.files.values()]
    assert sum(sizes) <= max_bytes + max(sizes, default=0)
