"""The pages of messages that leave memory: their numbers, by the segments of the disk."""

from node.queue.run import Absent, Run
from node.queue.storage import Page


def pages_of(run: Run | Absent, priority: int | None, segment_entries: int) -> list[Page]:
    """Return one page for each segment that the run has a part in.

    priority: of the backlog, None for all.   segment_entries: the numbers in a segment.
    """
    pages: list[Page] = []
    while run.seqs[0] // segment_entries != run.seqs[-1] // segment_entries:
        fitting = segment_entries - run.seqs[0] % segment_entries
        pages.append(_page_of(run[:fitting], priority, segment_entries))
        run = run[fitting:]
    return [*pages, _page_of(run, priority, segment_entries)]


def _page_of(run: Run | Absent, priority: int | None, segment_entries: int) -> Page:
    first, last = run.seqs[0], run.seqs[-1]
    return Page(first // segment_entries, priority or 0, first, last, len(run), run.body_bytes)
