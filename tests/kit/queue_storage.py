"""Storages of queues in memory, which page and answer when a test says so."""

from collections import deque
from collections.abc import Callable, Sequence

from node.amqp.reader import MIXED_SIZES
from node.queue.run import Absent, Batch, Place, Run, bytes_of
from node.queue.storage import MemoryStorage

MUCH = 1 << 30


class FakeQueueStorage(MemoryStorage):
    """A storage with segments in memory, whose requests wait for `answer`."""

    can_page = True
    segment_entries = 8

    def __init__(self) -> None:
        self.entries: dict[int, Run] = {}
        """Single messages by number: indexed ones that aren't forgotten."""
        self.questions: deque[Callable[[], None]] = deque()

    def keep(self, batch: Batch, first_seq: int, expiry: float) -> None:
        seqs = range(first_seq, first_seq + len(batch.contents))
        self._put(Run(batch.envelope, seqs, batch.contents, batch.size, expiry, 0, batch.store_id, True))

    def _put(self, run: Run) -> None:
        for single in run.singles():
            assert single.seqs[0] not in self.entries
            self.entries[single.seqs[0]] = single

    def forget(self, seqs: range, store_id: int) -> None:
        for seq in seqs:
            del self.entries[seq]

    def page_out(self, runs: Sequence[Run | Absent]) -> None:
        assert runs
        for run in runs:
            if isinstance(run, Run) and not run.is_indexed:
                run.is_indexed = True
                self._put(run)
            assert all(seq in self.entries for seq in run.seqs)

    def scan(self, segment: int, first_seq: int, last_seq: int, done: Callable[[list[Absent]], None]) -> None:
        def answer() -> None:
            done(
                [
                    Absent(
                        run.envelope,
                        run.seqs,
                        run.size,
                        run.body_bytes,
                        run.expiry,
                        run.deliveries,
                        run.store_id,
                        None if run.store_id else Place(segment, 0, 0, 0),
                    )
                    for seq, run in sorted(self.entries.items())
                    if first_seq <= seq <= last_seq and seq // self.segment_entries == segment
                ]
            )

        self.questions.append(answer)

    def load(self, absent: Sequence[Absent], done: Callable[[list[Run | None]], None]) -> None:
        asked = list(absent)
        self.questions.append(lambda: done([self._loaded(each) for each in asked]))

    def _loaded(self, absent: Absent) -> Run | None:
        if any(seq not in self.entries for seq in absent.seqs):
            return None
        contents = [self.entries[seq].contents[0] for seq in absent.seqs]
        return Run(
            absent.envelope,
            absent.seqs,
            contents,
            absent.size,
            absent.expiry,
            absent.deliveries,
            absent.store_id,
            True,
        )

    def clear(self, first_seq: int, last_seq: int) -> None:
        for seq in [seq for seq in self.entries if first_seq <= seq <= last_seq]:
            del self.entries[seq]

    def answer(self) -> None:
        self.questions.popleft()()

    def answer_all(self) -> None:
        while self.questions:
            self.answer()


class SegmentStorage(FakeQueueStorage):
    """Finds messages in runs, as a segment does; counts scans and loaded messages.

    torn: numbers that were not loaded because of others of their run, which were forgotten meanwhile.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scans: list[int] = []
        self.loaded = 0
        self.torn: set[int] = set()

    def scan(self, segment: int, first_seq: int, last_seq: int, done: Callable[[list[Absent]], None]) -> None:
        self.scans.append(segment)

        def answer() -> None:
            groups: list[list[Run]] = []
            for seq, run in sorted(self.entries.items()):
                if not first_seq <= seq <= last_seq:
                    continue
                last = groups[-1][-1] if groups else None
                if (
                    last is not None
                    and last.seqs[0] == seq - 1
                    and last.envelope is run.envelope
                    and not run.store_id
                    and not last.store_id
                ):
                    groups[-1].append(run)
                else:
                    groups.append([run])
            done([_absent(segment, group) for group in groups])

        self.questions.append(answer)

    def load(self, absent: Sequence[Absent], done: Callable[[list[Run | None]], None]) -> None:
        """Load messages. Unknown ones raise an error, since a store would report them as damage."""
        assert all(seq in self.entries for each in absent for seq in each.seqs)
        super().load(absent, done)

    def _loaded(self, absent: Absent) -> Run | None:
        if any(seq not in self.entries for seq in absent.seqs):
            self.torn.update(seq for seq in absent.seqs if seq in self.entries)
            return None
        self.loaded += len(absent)
        return super()._loaded(absent)


def _absent(segment: int, runs: list[Run]) -> Absent:
    first = runs[0]
    sizes = [bytes_of(run.contents, MIXED_SIZES) for run in runs]
    seqs = range(first.seqs[0], runs[-1].seqs[0] + 1)
    size = sizes[0] if len(set(sizes)) == 1 else MIXED_SIZES
    place = None if first.store_id else Place(segment, 0, 0, 0)
    return Absent(first.envelope, seqs, size, sum(sizes), first.expiry, 0, first.store_id, place)
