"""Reads that are tried again when the disk refuses them: the fault of a cable or a controller may be over soon.

A bad checksum is no error of reading: the bytes are there, and stay as they are.

Once a write has failed, bytes that a read does not find may never have been written: then no reader is answered, and
the next start tells whether they are lost. The answer to a write comes before those to the reads behind it.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from node.store.disk import Read

if TYPE_CHECKING:
    from node.store.index_host import IndexHost

PAUSES_S: Final = (0.1, 0.4, 1.5)
"""The seconds before each further try: two seconds in all, in which a queue waits."""


def read(
    host: "IndexHost",
    reads: Callable[[], Sequence[Read]],
    done: Callable[[list[Any]], None],
    failed: Callable[[OSError], None],
) -> None:
    """Read; try again after each of `PAUSES_S` while there is an error.

    reads: returns the steps, anew for each try: the place of contents may change in between.
    done, failed: as for `Disk.submit`; failed gets the error of the last try, unless the store is over by then.
    """
    _try(host, reads, done, failed, 0)


def _try(
    host: "IndexHost",
    reads: Callable[[], Sequence[Read]],
    done: Callable[[list[Any]], None],
    failed: Callable[[OSError], None],
    tries: int,
) -> None:
    def refused(error: OSError) -> None:
        if host.is_over():
            return
        if tries == len(PAUSES_S) or isinstance(error, FileNotFoundError):
            failed(error)
        else:
            host.later(PAUSES_S[tries], lambda: _try(host, reads, done, failed, tries + 1))

    host.disk.submit(reads(), done, refused)
