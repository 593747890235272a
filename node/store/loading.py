"""Loads: contents that come back from disk for absent runs.

A record is read once, however many of the runs stand in it. One job reads everything; if the disk refuses it, each part
is tried by itself, so that one bad sector costs the runs on it and no other. Unreadable messages are reported to the
index.
Source: docs/internals/disk.md, "Paging" and "Faults".
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from node.queue.run import Absent, Place, Run
from node.store.damage import UNREADABLE, tell_unreadable
from node.store.directory import MESSAGES
from node.store.disk import Read
from node.store.rereading import read
from node.store.segment import contents_of

if TYPE_CHECKING:
    from node.store.queue_index import QueueIndex


class _Part:
    """Absent runs that are read together: those of one record, or one whose contents are in the message store.

    indexes: positions of the runs among all that are loaded.
    """

    __slots__ = ("indexes", "reads")

    def __init__(self, indexes: list[int], reads: list[Read]) -> None:
        self.indexes = indexes
        self.reads = reads


class Load:
    """Fetches the contents of some absent runs, once.

    done: gets a run for each, in order, or None.
    """

    __slots__ = ("_absents", "_done", "_host", "_index", "_is_short", "_runs", "_waiting")

    def __init__(
        self, index: "QueueIndex", absents: Sequence[Absent], done: Callable[[list[Run | None]], None]
    ) -> None:
        self._index = index
        self._host = index.host
        self._absents = list(absents)
        self._done = done
        self._runs: list[Run | None] = [None] * len(self._absents)
        self._is_short = False  # True if some content was not found
        self._waiting = 0  # the number of parts that are read one by one

    def start(self) -> None:
        """Submit the reads."""
        parts = self._parts()

        def arrived(results: list[Any]) -> None:
            for part in parts:
                self._take(part, results[: len(part.reads)])
                del results[: len(part.reads)]
            self._answer()

        def failed(_error: OSError) -> None:
            if not self._host.is_over():
                self._try_apart()

        self._host.disk.submit([read for part in parts for read in part.reads], arrived, failed)

    def _parts(self) -> list[_Part]:
        records: dict[tuple[int, int], list[int]] = {}
        parts: list[_Part] = []
        for index, absent in enumerate(self._absents):
            place = absent.place
            if place is None:
                parts.append(_Part([index], []))
                continue
            known = records.get((place.segment, place.offset))
            if known is None:
                known = records[place.segment, place.offset] = []
                parts.append(_Part(known, []))
            known.append(index)
        for part in parts:
            part.reads = self._reads_of(part)
        return parts

    def _reads_of(self, part: _Part) -> list[Read]:
        first = self._absents[part.indexes[0]]
        if first.place is None:
            return self._stored_reads(first)
        return [self._record_read(first.place, part.indexes)]

    def _stored_reads(self, absent: Absent) -> list[Read]:
        self._host.counters.msg_store_read_count += len(absent)
        return self._host.contents(absent.store_id).read_steps(absent.store_id, len(absent))

    def _record_read(self, place: Place, indexes: list[int]) -> Read:
        wanted = tuple(
            (absent.seqs.start, absent.place.skipped, len(absent))
            for absent in (self._absents[index] for index in indexes)
            if absent.place is not None
        )
        self._host.counters.queue_index_read_count += 1
        then = partial(contents_of, parts=wanted)
        return Read(self._index.path(place.segment), place.offset, place.length, then)

    def _take(self, part: _Part, results: list[Any]) -> None:
        """Make runs of what was read; report messages without contents."""
        if self._absents[part.indexes[0]].place is None:
            found = [[content for result in results for content in result]]
        else:
            [found] = results
        for index, contents in zip(part.indexes, found, strict=True):
            absent = self._absents[index]
            if contents is None or len(contents) != len(absent) or None in contents:
                self._miss(absent, part.reads, _missing(absent, contents), UNREADABLE)
                continue
            self._runs[index] = Run(
                absent.envelope,
                absent.seqs,
                contents,
                absent.size,
                absent.expiry,
                absent.deliveries,
                absent.store_id,
                is_indexed=True,
            )

    def _miss(self, absent: Absent, reads: list[Read], seqs: Iterable[range], reason: str) -> None:
        self._is_short = True
        if self._host.is_over():
            return
        path, offset = (reads[0].path, reads[0].offset) if reads else (MESSAGES, 0)
        if absent.place is None:
            self._host.contents(absent.store_id).leave(path)
        tell_unreadable(self._index, seqs, path, offset, reason)

    def _try_apart(self) -> None:
        parts = self._parts()
        self._waiting = len(parts)
        for part in parts:
            read(
                self._host,
                partial(self._again, part),
                partial(self._arrived_apart, part),
                partial(self._failed_apart, part),
            )

    def _again(self, part: _Part) -> list[Read]:
        part.reads = self._reads_of(part)
        return part.reads

    def _arrived_apart(self, part: _Part, results: list[Any]) -> None:
        self._take(part, results)
        self._one_less()

    def _failed_apart(self, part: _Part, error: OSError) -> None:
        for index in part.indexes:
            absent = self._absents[index]
            self._miss(absent, part.reads, [absent.seqs], str(error))
        self._one_less()

    def _one_less(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._answer()

    def _answer(self) -> None:
        if not (self._is_short and self._host.is_over()):  # see `node.store.rereading`
            self._done(self._runs)


def _missing(absent: Absent, contents: list[bytes | None] | None) -> list[range]:
    """Return the numbers of the messages whose contents were not found."""
    if contents is None or len(contents) != len(absent):
        return [absent.seqs]
    first = absent.seqs.start
    return [range(seq, seq + 1) for seq, content in enumerate(contents, first) if content is None]
