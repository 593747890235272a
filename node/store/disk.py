"""The disk as the store sees it: jobs of steps, and the interface of their executor.

A *job* is a list of steps. Jobs are executed strictly in order, one step after the other, by a thread of their
own (`node.io.disk`) or by a simulation that can crash. The store never touches a file itself.

    submit([Append, Append, Sync], done, failed) ─► … the disk … ─► done(results), on the loop

Paths are strings relative to the data directory, with "/" between their parts.

**When the disk fails.** A disk that is full (ENOSPC, EDQUOT) when something is written stalls: the job stays at
the head and is tried again until there is room. Meanwhile jobs of nothing but Read, Remove and RemoveTree go
ahead, unless they touch a path (or a directory above it) that a waiting job writes. Any other OSError of a
writing step breaks the disk: that job fails, and every later one that writes. A page that could not be synced
may be gone from the system's cache, so trying again would prove nothing. An OSError of a Read fails its own job
only, if that job writes nothing.
Source: docs/internals/disk.md, "Faults"; fsyncgate (what Linux does after a failed fsync).
"""

import errno
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

TO_THE_END: Final = -1
"""The size of a `Read` that reads all from its offset on."""


@dataclass(frozen=True, slots=True)
class Append:
    """Write the parts at the end of a file; its directory must be there. Fails with EIO if the file has been removed.

    When the disk is full, no part of them remains in the file.
    creates: the file is created if there is none. Else the caller knows that it exists, with all earlier bytes.
    """

    path: str
    parts: Sequence[bytes]
    creates: bool = True


@dataclass(frozen=True, slots=True)
class Sync:
    """Make what was appended to the file outlive a power loss. Its name needs a `SyncDir` for that.

    Fails with EIO if the file has been removed: what is in it then is gone once it is closed.
    """

    path: str


@dataclass(frozen=True, slots=True)
class SyncDir:
    """Make names that were created, renamed or removed in the directory outlive a power loss."""

    path: str


@dataclass(frozen=True, slots=True)
class MakeDir:
    """Create the directory and those above it; fine if it is there."""

    path: str


@dataclass(frozen=True, slots=True)
class Rename:
    """Give a file or a directory another name. A file that has the new name is replaced; its directory must exist."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove a file; fine if there is none."""

    path: str


@dataclass(frozen=True, slots=True)
class RemoveTree:
    """Remove a directory with all that is in it; fine if there is none."""

    path: str


@dataclass(frozen=True, slots=True)
class Read:
    """Read bytes of a file: fewer than `size` where the file ends. A missing file is an OSError.

    size: in bytes, or `TO_THE_END`.
    then: makes the step's result of the bytes, on the disk's thread: a pure function, to keep work off the
        loop. Without it the bytes are the result. What it raises is a fault of the program.
    is_fresh: the bytes come from the medium, where the system can do that, and not from its cache.
    """

    path: str
    offset: int
    size: int
    then: Callable[[bytes], Any] | None = None
    is_fresh: bool = False


Step: TypeAlias = Append | Sync | SyncDir | MakeDir | Rename | Remove | RemoveTree | Read

READING: Final = (Read, Remove, RemoveTree)
"""Steps that need no room on the disk: jobs of nothing else pass a stalled one."""


def appends(gathered: Iterable[tuple[str, Sequence[bytes]]], header: bytes) -> list[Step]:
    """Append the parts to each path. A file whose parts begin with the header is a new one.

    header: the object itself that the caller puts first, so that nothing is compared.
    """
    return [Append(path, parts, creates=parts[0] is header) for path, parts in gathered]


_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def is_full(error: OSError) -> bool:
    """True if there was no room to write."""
    return error.errno in _FULL


class Disk(Protocol):
    """An executor of jobs."""

    @property
    def pending_bytes(self) -> int:
        """The number of bytes of `Append` steps that were submitted and are not executed yet."""

    def submit(
        self,
        steps: Sequence[Step],
        done: Callable[[list[Any]], None],
        failed: Callable[[OSError], None],
    ) -> None:
        """Have a job executed after all that were submitted before it.

        Exactly one of `done` and `failed` is called, later, on the loop, in the order of submission (but for jobs that
        pass a stalled one).   done: gets the results of the `Read` steps, in order.
        """

    def run(self, steps: Sequence[Step]) -> list[Any]:
        """Execute a job at once; return the results of its `Read` steps.

        Only while nothing is submitted: at a node's start and stop. Raises OSError, for a full disk too.
        """

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory, sorted; none if there is no directory. The data directory itself is "".

        For the start, synchronous.
        """

    def size(self, path: str) -> int:
        """Return the size of a file in bytes. For the start, synchronous. Raises FileNotFoundError."""
