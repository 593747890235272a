"""Contents that come back from disk for absent runs.

What is near is read together: a record once, however many of the runs stand in it. One job reads everything; if
the disk refuses it, each part is tried by itself, so that one bad sector costs the runs on it and no other.
Source: architecture §2.2.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from node.broker.run import Absent, Place, Run
from node.store.directory import MESSAGES
from node.store.disk import Read
from node.store.segment import contents_of

if TYPE_CHECKING:
    from node.store.index_host import IndexHost


class _Part:
    """Absent runs that are read together: those of one record, or one whose contents are in the message store.

    indexes: of the runs, among all that are loaded.
    """

    __slots__ = ("indexes", "reads")

    def __init__(self, indexes: list[int], reads: list[Read]) -> None:
        self.indexes = indexes
        self.reads = reads


class Load:
    """Fetches the contents of some absent runs, once.

    path_of: gives a segment's path by its number.   done: gets a run for each, in order, or None.
    """

    __slots__ = ("_absents", "_done", "_host", "_path_of", "_runs", "_waiting")

    def __init__(
        self,
        host: "IndexHost",
        path_of: Callable[[int], str],
        absents: Sequence[Absent],
        done: Callable[[list[Run | None]], None],
    ) -> None:
        self._host = host
        self._path_of = path_of
        self._absents = list(absents)
        self._done = done
        self._runs: list[Run | None] = [None] * len(self._absents)
        self._waiting = 0  # parts that are tried by themselves

    def start(self) -> None:
        """Submit the reads."""
        parts = self._parts()

        def arrived(results: list[Any]) -> None:
            for part in parts:
                self._take(part, results[: len(part.reads)])
                del results[: len(part.reads)]
            self._done(self._runs)

        def failed(error: OSError) -> None:
            self._try_apart(error)

        self._host.disk.submit([read for part in parts for read in part.reads], arrived, failed)

    def _parts(self) -> list[_Part]:
        records: dict[tuple[int, int], list[int]] = {}
        parts: list[_Part] = []
        for index, absent in enumerate(self._absents):
            place = absent.place
            if place is None:
                parts.append(_Part([index], self._stored_reads(absent)))
                continue
            known = records.get((place.segment, place.offset))
            if known is None:
                known = records[place.segment, place.offset] = []
                parts.append(_Part(known, []))
            known.append(index)
        for part in parts:
            first = self._absents[part.indexes[0]].place
            if first is not None:
                part.reads = [self._record_read(first, part.indexes)]
        return parts

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
        return Read(self._path_of(place.segment), place.offset, place.length, then)

    def _take(self, part: _Part, results: list[Any]) -> None:
        """Make runs of what was read."""
        if self._absents[part.indexes[0]].place is None:
            found = [[content for result in results for content in result]]
        else:
            [found] = results
        for index, contents in zip(part.indexes, found, strict=True):
            absent = self._absents[index]
            if contents is None or len(contents) != len(absent) or None in contents:
                self._report(absent, part.reads, "contents are missing or damaged")
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

    def _report(self, absent: Absent, reads: list[Read], what: str) -> None:
        path, offset = (reads[0].path, reads[0].offset) if reads else (MESSAGES, 0)
        seqs = absent.seqs
        self._host.report(path, offset, f"{what}, of messages {seqs.start} to {seqs[-1]}")

    def _try_apart(self, error: OSError) -> None:
        parts = self._parts()
        if len(parts) == 1:
            self._give_up(parts[0], error)
            self._done(self._runs)
            return
        self._waiting = len(parts)
        for part in parts:
            self._host.disk.submit(
                part.reads, partial(self._arrived_apart, part), partial(self._failed_apart, part)
            )

    def _give_up(self, part: _Part, error: OSError) -> None:
        for index in part.indexes:
            self._report(self._absents[index], part.reads, str(error))

    def _arrived_apart(self, part: _Part, results: list[Any]) -> None:
        self._take(part, results)
        self._one_less()

    def _failed_apart(self, part: _Part, error: OSError) -> None:
        self._give_up(part, error)
        self._one_less()

    def _one_less(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._done(self._runs)
