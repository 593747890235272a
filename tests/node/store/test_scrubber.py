"""Rot on disk is found at a rate before somebody needs it, and files that only change are not reported."""

from collections.abc import Callable
from random import Random

import pytest

from node.queue.number_set import NumberSet
from node.queue.run import Absent, Run
from node.store.disk import Read
from node.store.queue_index import QueueIndex
from node.store.records import BEGINNING, follow, record
from node.store.scrubber import BUSY_MAX_S, CHUNK_BYTES, JOB_COST_BYTES, REST_S
from tests.kit.store_bench import ENVELOPE, Bench, lost_contents, remains, uid_of

RATE = 1024 * 1024
LARGE = b"L" * 2000
SECONDS = 5.0
"""Longer than a round takes here."""


class Owner:
    """Has a queue's messages, and is told."""

    def __init__(self, index: QueueIndex) -> None:
        self.reasons: list[str] = []
        index.belong_to(self)

    def unreadable(self, reason: str) -> None:
        self.reasons.append(reason)


class World(Bench):
    """A store that is looked through; time passes as the test wants.   reads: when, where, and bytes."""

    def __init__(self, **options: object) -> None:
        super().__init__(**{"scrub_rate": RATE, "segment_entries": 8, **options})
        self.reads: list[tuple[float, str, int]] = []

    def pass_time(self, seconds: float, *, each: Callable[[], None] = lambda: None) -> None:
        """As the shell does: timers when they are due, turns, and a disk that does what it is given.

        each: called between what is asked of the disk and its answers.
        """
        end = self.now + seconds
        self.turn()
        self.disk.settle()
        while (due := self.timers.next_deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.turn()
            for step in self.disk.waiting:
                if isinstance(step, Read) and step.is_fresh:
                    self.reads.append((self.now, step.path, step.size))
            each()
            self.disk.settle()
            self.turn()
            self.disk.settle()
        self.now = end

    def stored(self, queue: int, *bodies: bytes) -> range:
        """Messages that are in segments, and synced."""
        seqs = self.keep(queue, *bodies)
        self.queue(queue).page_out([Run(ENVELOPE, seqs, [], 0, is_indexed=True)])
        self.pass_time(0.2)
        return seqs

    def a_round(self) -> None:
        self.pass_time(REST_S + SECONDS)

    @property
    def findings(self) -> int:
        return self.store.scrubbing.findings


def segment(queue: int, number: int) -> str:
    return f"queues/{uid_of(queue)}/{number}.idx"


def flip(world: World, path: str, ratio: float = 0.5) -> None:
    world.disk.flip_bit(path, int(len(world.disk.content(path)) * ratio))


# --- what is found ---


@pytest.mark.parametrize("ratio", [0.0, 0.3, 0.5, 0.999])
def test_rot_in_a_segment(ratio: float) -> None:
    """Owners of rotten messages are told once; it counts, and the file is known to be damaged."""
    world = World()
    world.stored(1, *[b"message"] * 20)
    owner = Owner(world.queue(1))
    world.a_round()
    assert (world.findings, owner.reasons, world.reports) == (0, [], [])
    flip(world, segment(1, 1), ratio)
    for _ in range(3):
        world.a_round()
    assert world.findings == 1
    assert world.store.damaged_files() == [segment(1, 1)]
    assert world.reports
    if ratio:
        assert len(owner.reasons) == 1
        unreadable = world.queue(1).unreadable
        assert unreadable is not None
        assert unreadable.intersection(range(8, 16)) == unreadable.ranges() != []


def test_a_segment_that_was_cut_off() -> None:
    """Messages whose record was cut off are reported as unreadable."""
    world = World()
    world.stored(1, *[b"message"] * 7)
    path = segment(1, 0)
    world.disk.truncate(path, len(world.disk.content(path)) - 1)
    world.a_round()
    assert world.queue(1).unreadable == NumberSet([range(1, 8)])


def test_a_file_that_is_gone() -> None:
    """A file that was removed by others leaves its messages unreadable."""
    world = World()
    world.stored(1, b"message")
    world.disk._remove(segment(1, 0))
    world.a_round()
    assert world.queue(1).unreadable == NumberSet([range(1, 2)])


def test_rot_in_the_message_store() -> None:
    """Damage in the message store is told to all queues that have the contents, be they in segments or not yet."""
    world = World()
    world.stored(1, *[LARGE] * 4)
    world.keep(2, *[LARGE] * 4)
    world.pass_time(1.0)
    owners = [Owner(world.queue(number)) for number in (1, 2)]
    size = len(world.disk.content("messages/1.rdq"))
    world.disk.flip_bit("messages/1.rdq", size * 3 // 8 + 100)
    world.disk.flip_bit("messages/1.rdq", size * 5 // 8 + 100)
    for _ in range(3):
        world.a_round()
    assert world.queue(1).unreadable == NumberSet([range(4, 5)])
    assert world.queue(2).unreadable == NumberSet([range(2, 3)])
    assert [len(owner.reasons) for owner in owners] == [1, 1]
    assert world.findings == 1
    assert world.store.damaged_files() == ["messages/1.rdq"]


@pytest.mark.parametrize("is_scrubbed", [True, False])
def test_what_comes_after_damage_goes_elsewhere(is_scrubbed: bool) -> None:
    """A file that is gone, by whoever it was noticed, would come again without its beginning."""
    world = World(scrub_rate=RATE if is_scrubbed else 0)
    seqs = world.stored(1, LARGE)
    world.disk.lose("messages/1.rdq")
    if is_scrubbed:
        world.a_round()
    else:
        scanned: list[Absent] = []
        world.queue(1).scan(0, seqs.start, seqs.stop - 1, scanned.extend)
        world.disk.settle()
        world.queue(1).load(scanned, lambda runs: None)
        world.disk.settle()
    assert world.queue(1).unreadable == NumberSet([seqs])
    world.stored(2, LARGE)
    assert "messages/1.rdq" not in world.disk.paths()
    assert lost_contents(world.disk, remains(world.disk)) == [(uid_of(1), seqs.start)]


def test_contents_that_nobody_refers_to_are_not_looked_at() -> None:
    """Damage to contents that nobody refers to is no damage of their file."""
    world = World()
    world.stored(1, *[LARGE] * 4)
    world.forget(1, 2)
    world.pass_time(1.0)
    flip(world, "messages/1.rdq", 0.3)
    world.a_round()
    assert (world.findings, world.store.damaged_files()) == (0, [])


def test_rot_in_a_complete_journal_file() -> None:
    """Rot in a complete journal file is reported; the checkpoint that makes the file superfluous is under way."""
    world = World(journal_file_bytes=2000)
    for _ in range(30):
        world.keep(1, b"m" * 100)
        world.turn(1.0)
        while not world.store._journal.older and world.disk.step():
            pass
        if world.store._journal.older:
            break
    assert world.store._journal.older == [1]
    flip(world, "journal/1.journal")
    job = next(job for job in world.store._scrubber._check_journal(1))
    ended = []
    assert job(lambda: ended.append(True)) == world.store._journal.sizes[1]
    while not ended:
        assert world.disk.step()
    assert [path for path, _, _ in world.reports] == ["journal/1.journal"]
    assert world.findings == 1


def test_an_error_of_reading_that_stays_is_a_finding_and_one_that_passes_is_none() -> None:
    """An error of reading is tried again as in any other read, and is a finding if it stays."""
    world = World()
    world.stored(1, *[b"message"] * 7)
    world.disk.fail(Read, segment(1, 0))
    world.a_round()
    assert world.findings == 0
    world.disk.fail_always(Read, segment(1, 0))
    world.pass_time(REST_S + 10 * SECONDS)
    assert world.findings == 1
    assert world.queue(1).unreadable == NumberSet([range(1, 8)])


# --- how much ---


def test_nothing_is_read_where_nothing_is_stored() -> None:
    """Not even where there are queues."""
    world = World()
    for number in range(1500):
        world.queue(number)
    world.pass_time(10 * REST_S)
    assert world.reads == []
    assert len(world.timers) <= 1


def test_no_rate_no_reads() -> None:
    world = World(scrub_rate=0)
    world.stored(1, *[b"message"] * 7)
    world.a_round()
    assert world.reads == []
    assert len(world.timers) == 0


def test_the_rate() -> None:
    """No more bytes in any stretch of time than allowed, but for one read; all of it in a round."""
    rate = 200_000
    world = World(scrub_rate=rate, segment_entries=4096)
    world.stored(1, *[Random(7).randbytes(900)] * 4000)
    world.reads.clear()
    world.pass_time(REST_S + 30)
    size = len(world.disk.content(segment(1, 0)))
    assert size > 10 * CHUNK_BYTES
    assert sum(count for _, _, count in world.reads) == size
    assert max(count for _, _, count in world.reads) == CHUNK_BYTES
    for (at, _, count), (later, _, _) in zip(world.reads, world.reads[1:], strict=False):
        assert later - at >= count / rate * 0.999
    assert world.store.scrubbing.checked_bytes == size
    assert world.store.scrubbing.rounds == 1
    assert world.store.scrubbing.last_round_s > 0


def test_small_files_do_not_take_all_of_a_disks_time() -> None:
    """Each counts as much as some larger read."""
    world = World()
    for number in range(40):
        world.stored(number, b"message")
    world.reads.clear()
    world.pass_time(REST_S + 10)
    assert len(world.reads) == 40
    assert world.reads[-1][0] - world.reads[0][0] >= 39 * JOB_COST_BYTES / RATE * 0.999


def test_a_busy_disk_is_left_alone_for_a_while() -> None:
    """Nothing is read while a batch is on its way; a node that is always busy has its rounds all the same."""
    world = World()
    world.stored(1, *[b"message"] * 7)
    world.pass_time(REST_S - 5)
    world.disk.hang()
    world.keep(2, b"new")
    world.pass_time(10.0)
    world.reads.clear()
    world.pass_time(20.0)
    assert world.reads == []
    world.pass_time(BUSY_MAX_S)
    assert [path for _, path, _ in world.reads[:1]] == [segment(1, 0)]


# --- what is none ---


def test_what_goes_or_grows_while_it_is_read() -> None:
    """Segments that are removed, queues that are deleted, files that are appended to: no finding, no report."""
    world = World(segment_entries=64)
    random = Random(5)
    for number in range(6):
        world.stored(number, *[b"m" * 500] * 60)

    def change() -> None:
        number = random.randrange(6)
        index = world.queue(number)
        kind = random.random()
        if kind < 0.3:
            world.forget(number, *range(1, 61))
        elif kind < 0.4:
            index.drop()
        elif kind < 0.8:
            seqs = world.keep(number, b"m" * 500)
            index.page_out([Run(ENVELOPE, seqs, [], 0, is_indexed=True)])
        world.store.turn(world.now)

    for _ in range(10):
        world.pass_time(REST_S + SECONDS, each=change)
    assert world.reads
    assert (world.findings, world.reports) == (0, [])


def test_files_of_the_message_store_that_are_merged_while_they_are_read() -> None:
    """Contents that a merge has copied elsewhere are not reported as missing."""
    world = World(store_file_bytes=8000)
    alive = [seq for _ in range(60) for seq in world.stored(1, LARGE, LARGE)]
    before = set(world.disk.paths())
    random = Random(2)

    def change() -> None:
        if len(alive) > 10 and random.random() < 0.5:
            world.forget(1, alive.pop(random.randrange(len(alive))))
            world.store.turn(world.now)

    for _ in range(5):
        world.pass_time(REST_S + 2 * SECONDS, each=change)
    assert len(alive) == 10
    assert [path for path in set(world.disk.paths()) - before if path.endswith(".rdq")], "some were merged"
    assert {path for _, path, _ in world.reads if path.endswith(".rdq")} & before
    assert (world.findings, world.reports) == (0, [])


# --- records in pieces ---


def test_records_that_are_read_in_pieces() -> None:
    """However they are cut, good ones are good, and one flipped bit is found."""
    random = Random(3)
    raw = b"".join(part for size in (1, 7, 8, 300, 5000, 2) for part in record([random.randbytes(size)]))
    for _ in range(200):
        flipped = random.randrange(len(raw)) if random.random() < 0.5 else None
        data = bytearray(raw)
        if flipped is not None:
            data[flipped] ^= 1 << random.randrange(8)
        course = BEGINNING
        at = 0
        while course is not None and at < len(data):
            size = random.choice((1, 3, 8, 100, 10_000))
            course = follow(course, bytes(data[at : at + size]))  # type: ignore[assignment]
            at += size
        is_good = course is not None and course.is_between
        assert is_good is (flipped is None), flipped


def test_nothing_is_read_once_the_store_is_closed() -> None:
    """The disk takes no job then."""
    world = World()
    world.stored(1, *[b"message"] * 7)
    world.store.close()
    world.reads.clear()
    world.pass_time(3 * REST_S)
    assert world.reads == []
    assert len(world.timers) == 0
