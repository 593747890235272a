"""Whether a store that starts has all that was safe in it.

Bytes that are damaged show by themselves; that the end of a file is missing, or a whole one, shows by what `synced.log`
says. What was never synced may be gone after a crash, and is no loss.
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
    """What a recovery finds out about it.   is_whole: the journal has all.

    copies: queues of which losses are remembered, by uid.
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
        """Whether a queue has all that was safe of it, and had at earlier starts."""
        return self.is_whole and uid not in self._lossy

    def see_journal_file(self, number: int, file: RecordFile, *, is_last: bool) -> None:
        """A file of the journal was read. It is synced to its end before the next one begins."""
        has_all = self._has_all(file, self._synced.journal.get(number, 0), _ANY_QUEUE)
        if not has_all or (file.findings and (not is_last or _is_corrupt(file))):
            self.is_whole = False

    def saw_journal(self, numbers: list[int]) -> None:
        """All files of the journal were read. The oldest go first, at a checkpoint, and one is always there."""
        if not numbers and not self._synced.is_known:
            self.is_whole = False
        for number, size in self._synced.journal.items():
            if number not in numbers and not (numbers and number < numbers[0]):
                self._note_loss(journal.file_path(number), 0, size, _ANY_QUEUE)
                self.is_whole = False

    def see_segment(self, uid: str, number: int, file: RecordFile) -> None:
        """A segment was read."""
        self._found.setdefault(uid, set()).add(number)
        if not self._has_all(file, self._safe_bytes(uid, number), _ONE_QUEUE) or _is_corrupt(file):
            self._lossy.add(uid)

    def saw_segments(self, uid: str, directory: str) -> None:
        """All segments of a queue were read. One that goes is told before, so that none may be missing."""
        found = self._found.pop(uid, set())
        for number, size in self._synced.segments.get(uid, {}).items():
            if number not in found:
                self._note_loss(f"{directory}/{number}.idx", 0, size, _ONE_QUEUE)
                self._lossy.add(uid)

    def segment_goes(self, uid: str, number: int) -> None:
        """Nothing is alive in a segment, which will be removed."""
        if self._safe_bytes(uid, number):
            self._going.setdefault(uid, set()).add(number)

    def has_news(self, uid: str) -> bool:
        """Whether something is missing of a copy, and that is not written down yet."""
        return uid in self._copies and uid not in self._noted and not self.is_clean(uid)

    def may_go_before(self, uid: str, number: int) -> bool:
        """Whether a segment that goes hides no loss, though it is not written down yet that it does: the next recovery
        takes its absence for one, or there is none.
        """
        return number in self._going.get(uid, ()) or not self.has_news(uid)

    def steps_before_change(self) -> list[Step]:
        """Write down what is lost, and which segments go, before anything that shows it is changed or removed: should
        this recovery be cut short, the next one must know of it. Nothing if nothing is new.

        What the journal says needs no words here: it stays until the end.
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
        """The steps were executed, those of `steps` or of `steps_before_change`."""
        self._noted.update(uid for uid in self._copies if self.has_news(uid))
        for uid, numbers in self._going.items():
            for number in numbers:
                del self._synced.segments[uid][number]
        self._going.clear()

    def missed_contents(self, uid: str, number: int | None, offset: int) -> None:
        """The contents of messages are not in the message store.   number, offset: where a segment has the messages;
        None: the journal has them, too or only.

        They are synced before the journal is, and before a segment is; what is paged out waits for no sync.
        """
        if number is None or offset < self._safe_bytes(uid, number):
            self._lossy.add(uid)

    def steps(self, sizes: Mapping[str, Mapping[int, int]]) -> list[Step]:
        """Write down what is safe once a recovery is over, and what is lost: the next start cannot see it.

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
        """Whether a file is good as far as it was safe; else that is reported."""
        good = min((finding.offset for finding in file.findings), default=len(file.data))
        if good < size:
            self._note_loss(file.path, good, size, meaning)
        return good >= size

    def _note_loss(self, path: str, good: int, size: int, meaning: str) -> None:
        text = f"{size - good:,} bytes that were safe are gone or damaged: {meaning}"
        self._isolation.note(Finding(Damage.MISSING, path, good, 0, text))


def _is_corrupt(file: RecordFile) -> bool:
    return any(finding.damage is Damage.CORRUPT for finding in file.findings)
