"""The check whether a store that starts has all that was safe in it.

Damaged bytes are found by their checksums. A missing end of a file, or a missing file, is found by comparing with
`synced.log`. Bytes that were never synced may be gone after a crash, which is no loss.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from node.store import journal
from node.store.disk import Step
from node.store.findings import Damage, Finding, Isolation
from node.store.record_file import RecordFile
from node.store.synced import Synced, about_journal, about_queue, renewal

_ANY_QUEUE: Final = "persistent messages of any queue may be missing"
_ONE_QUEUE: Final = "persistent messages of the queue may be missing"


class Completeness:
    """The findings of one recovery about what is missing.   is_whole: the journal has all that was safe in it.

    copies: uids of queues for which losses are remembered.
    """

    def __init__(self, synced: Synced, isolation: Isolation, copies: Iterable[str]) -> None:
        self.is_whole = True
        self._synced = synced
        self._isolation = isolation
        self._copies = dict.fromkeys(copies)
        self._lossy = set(synced.lossy)
        self._noted = set(synced.lossy)
        self._found: dict[str, set[int]] = {}
        self._going: dict[str, set[int]] = {}

    def is_clean(self, uid: str) -> bool:
        """True if a queue has all that was safe of it, and had at earlier starts."""
        return self.is_whole and uid not in self._lossy

    def see_journal_file(self, number: int, file: RecordFile, *, is_last: bool) -> None:
        """Check a journal file that was read. It was synced to its end before the next one began."""
        has_all = self._has_all(file, self._synced.journal.get(number, 0), _ANY_QUEUE)
        if not has_all or (file.findings and (not is_last or _is_corrupt(file))):
            self.is_whole = False

    def saw_journal(self, numbers: list[int]) -> None:
        """Check that no journal file is missing, after all were read.

        The oldest are removed first, at a checkpoint, and one is always there.
        """
        if not numbers and not self._synced.is_known:
            self.is_whole = False
        for number, size in self._synced.journal.items():
            if number not in numbers and not (numbers and number < numbers[0]):
                self._note_loss(journal.file_path(number), 0, size, _ANY_QUEUE)
                self.is_whole = False

    def see_segment(self, uid: str, number: int, file: RecordFile) -> None:
        """Check a segment that was read, and note it as found."""
        self._found.setdefault(uid, set()).add(number)
        if not self._has_all(file, self._safe_bytes(uid, number), _ONE_QUEUE) or _is_corrupt(file):
            self._lossy.add(uid)

    def saw_segments(self, uid: str, directory: str) -> None:
        """Check that no segment of a queue is missing, after all were read. Removals are written down in advance."""
        found = self._found.pop(uid, set())
        for number, size in self._synced.segments.get(uid, {}).items():
            if number not in found:
                self._note_loss(f"{directory}/{number}.idx", 0, size, _ONE_QUEUE)
                self._lossy.add(uid)

    def segment_goes(self, uid: str, number: int) -> None:
        """Note that a segment has nothing alive and will be removed."""
        if self._safe_bytes(uid, number):
            self._going.setdefault(uid, set()).add(number)

    def has_news(self, uid: str) -> bool:
        """True if something is missing of a mirrored queue's copy, and that is not written down yet."""
        return uid in self._copies and uid not in self._noted and not self.is_clean(uid)

    def may_go_before(self, uid: str, number: int) -> bool:
        """True if a segment may be removed before `steps_before_change` is executed.

        The next recovery takes its absence for a loss, or there is no loss of the queue to be hidden by the removal.
        """
        return number in self._going.get(uid, ()) or not self.has_news(uid)

    def steps_before_change(self) -> list[Step]:
        """Return steps that write down losses, and segments to be removed; none if nothing is new.

        They come before any change to a file that shows a loss: the next recovery must know of it if this one is cut
        short. Losses in the journal are not written down here: it stays until the end.
        """
        known = self._synced
        news = {uid: None for uid in self._copies if self.has_news(uid)}
        if not self._going and not news:
            return []
        parts = about_journal(known.journal)
        for uid in dict.fromkeys([*known.segments, *news]):
            going = self._going.get(uid, ())
            places = [place for place in known.segments.get(uid, {}).items() if place[0] not in going]
            parts += about_queue(uid, places, is_lossy=uid in self._noted or uid in news)
        return renewal(parts)

    def is_written_down(self) -> None:
        """Note that the steps of `steps` or of `steps_before_change` were executed."""
        self._noted.update(uid for uid in self._copies if self.has_news(uid))
        for uid, numbers in self._going.items():
            for number in numbers:
                del self._synced.segments[uid][number]
        self._going.clear()

    def missed_contents(self, uid: str, number: int | None, offset: int) -> None:
        """Note that contents of messages are not in the message store.

        number, offset: where a segment has the messages; number None: the journal has them, too or only.
        Contents are synced before the journal is, and before a segment is; what is paged out waits for no sync.
        """
        if number is None or offset < self._safe_bytes(uid, number):
            self._lossy.add(uid)

    def steps(self, sizes: Mapping[str, Mapping[int, int]]) -> list[Step]:
        """Return steps that write down, after a recovery, what is safe and what is lost.

        The next start could not see the losses.
        sizes: of the segments of each queue, in bytes.
        """
        parts: list[bytes] = []
        for uid, places in sizes.items():
            is_lossy = uid in self._copies and not self.is_clean(uid)
            parts += about_queue(uid, places.items(), is_lossy=is_lossy)
        return renewal(parts)

    def _safe_bytes(self, uid: str, number: int) -> int:
        return self._synced.segments.get(uid, {}).get(number, 0)

    def _has_all(self, file: RecordFile, size: int, meaning: str) -> bool:
        """True if a file is good as far as it was safe; else the loss is reported."""
        good = min((finding.offset for finding in file.findings), default=len(file.data))
        if good < size:
            self._note_loss(file.path, good, size, meaning)
        return good >= size

    def _note_loss(self, path: str, good: int, size: int, meaning: str) -> None:
        text = f"{size - good:,} bytes that were safe are gone or damaged: {meaning}"
        self._isolation.note(Finding(Damage.MISSING, path, good, 0, text))


def _is_corrupt(file: RecordFile) -> bool:
    return any(finding.damage is Damage.CORRUPT for finding in file.findings)
