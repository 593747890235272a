"""The disk executes jobs, which consist of steps, in a thread of its own, and answers them on the loop.

    loop:    submit ─► jobs ─┐                                    ┌─► done, failed, on_stalled, on_resumed
    thread:                  └─► next job, step by step ─► answers┘     (one wake for all that are there)

Jobs are executed in the order of their submission. When there is no room (disk full, or no descriptor left to
open a file) the thread *stalls*: the job stays where it is and is tried again every second. Jobs that only read
or remove go ahead meanwhile, unless they touch what a waiting job needs: that is how room comes back. Any other
error of a job that writes *breaks* the disk: that job fails, and every later one that writes.
Source: node/store/disk.py.
"""

import asyncio
import errno
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final

from node.io.data_directory import (
    DataDirectory,
    DataDirectoryError,
    is_locked,
    lacks_descriptors,
    open_data_directory,
    open_for_reading,
)
from node.queue.counters import DiskCounters
from node.store.disk import READING, Append, Read, Remove, RemoveTree, Rename, Step, Sync, SyncDir, is_full

__all__ = ["DataDirectoryError", "FileDisk", "ReadOnlyDisk"]

RETRY_S: Final = 1.0
"""The time that a job without room waits before the next try."""

_SYNCS: Final = (Sync, SyncDir)

HUNG_S: Final = 20.0
"""The time for one step after which a node that stops no longer waits for its disk."""


class _Job:
    """The steps of a job, its position in them, and the callbacks for its end.

    position: of the next step.   bytes_left: of the appends that were not executed yet.
    """

    __slots__ = ("bytes_left", "done", "failed", "position", "results", "steps", "writes")

    def __init__(
        self,
        steps: Sequence[Step],
        done: Callable[[list[Any]], None],
        failed: Callable[[OSError], None],
        size: int,
    ) -> None:
        self.steps = steps
        self.done = done
        self.failed = failed
        self.position = 0
        self.results: list[Any] = []
        self.bytes_left = size
        self.writes = not all(isinstance(step, READING) for step in steps)


class FileDisk:
    """A `node.store.disk.Disk` on the files of a data directory.

    The synchronous methods (`run`, `names`, `size`) work from the beginning; `submit` after `start`. All methods are
    for one thread, that of the loop.   retry_s: see `RETRY_S`.
    """

    def __init__(self, directory: DataDirectory, *, retry_s: float = RETRY_S) -> None:
        self.counters = DiskCounters()
        """Counts of the steps that the thread has executed."""
        self._directory = directory
        self._retry_s = retry_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._on_stalled: Callable[[str], None] = lambda reason: None
        self._on_resumed: Callable[[], None] = lambda: None
        # Each counter is written by one thread only, so that their difference can be read without a lock.
        self._submitted_jobs = 0
        self._submitted_bytes = 0
        self._finished_jobs = 0
        self._steps_done = 0
        self._progress = 0
        self._finished_bytes = 0
        # From the loop to the thread. Each flag is set before the None that wakes the thread to look at it. A
        # `threading.Condition` would take 6 µs more for each job.
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._gives_up = False
        self._is_closing = False
        # From the thread to the loop; both ends of a deque are safe without a lock.
        self._answers: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._is_woken = False
        # The thread's own.
        self._held: deque[_Job] = deque()
        self._obstacles = _Obstacles()
        self._is_stalled = False
        self._lack = OSError(errno.ENOSPC, "")
        self._broken: OSError | None = None

    @classmethod
    def open(cls, data_dir: str) -> "FileDisk":
        """Open the disk of a node and take the lock of its data directory. Raises: DataDirectoryError."""
        return cls(open_data_directory(data_dir))

    def start(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        on_stalled: Callable[[str], None],
        on_resumed: Callable[[], None],
    ) -> None:
        """Start the thread that executes jobs.

        on_stalled: called once with the reason when a job finds no room.   on_resumed: called when all that had to
        wait is written.
        """
        assert self._thread is None, "it is started once"
        self._loop = loop
        self._on_stalled, self._on_resumed = on_stalled, on_resumed
        self._thread = threading.Thread(target=self._work, name="disk", daemon=True)
        self._thread.start()

    @property
    def pending_bytes(self) -> int:
        """The bytes of submitted appends that are not executed yet."""
        return self._submitted_bytes - self._finished_bytes

    @property
    def is_busy(self) -> bool:
        """True if a job is not done."""
        return self._submitted_jobs != self._finished_jobs

    @property
    def progress(self) -> int:
        """A number that grows with each step; while jobs wait for room, only with the steps of jobs that write."""
        return self._progress

    @property
    def thread_id(self) -> int | None:
        """The kernel's number of the thread that executes jobs; None: it does not run."""
        thread = self._thread
        return thread.native_id if thread is not None and thread.is_alive() else None

    @property
    def is_broken(self) -> bool:
        """True if an error of writing has ended all writing until the next start."""
        return self._broken is not None

    def submit(
        self,
        steps: Sequence[Step],
        done: Callable[[list[Any]], None],
        failed: Callable[[OSError], None],
    ) -> None:
        """Have the thread execute the steps, then call `done` or `failed` on the loop.

        The steps and their parts must not be changed before the answer.
        """
        assert self._thread is not None, "the disk takes jobs between start and close"
        size = 0
        for step in steps:
            if type(step) is Append:
                size += sum(map(len, step.parts))
        job = _Job(steps, done, failed, size)
        self._submitted_jobs += 1
        self._submitted_bytes += size
        self._jobs.put(job)

    def run(self, steps: Sequence[Step]) -> list[Any]:
        """Execute the steps at once, and return the results of reads. No job may be in progress. Raises: OSError."""
        assert self._submitted_jobs == self._finished_jobs, "the thread has the files"
        if self._broken is not None and not all(isinstance(step, READING) for step in steps):
            raise self._broken
        results = []
        for step in steps:
            result = self._directory.execute(step)
            if type(step) is Read:
                results.append(result)
        return results

    def names(self, directory: str) -> list[str]:
        """Return the sorted names in a directory; none if it does not exist."""
        return self._directory.names(directory)

    def size(self, path: str) -> int:
        """Return the size of a file in bytes. Raises: FileNotFoundError."""
        return self._directory.size(path)

    async def drain(self, timeout_s: float | None = None, *, hung_s: float = HUNG_S) -> bool:
        """Wait until all jobs are answered, and also the jobs that the answers submit. For the end of a node.

        From this call on no job waits for room: one that finds none breaks the disk.
        timeout_s: how long that may take; None: for ever.   hung_s: how long one step may take.
        Returns: False if that took longer.
        """
        assert self._loop is not None
        deadline = float("inf") if timeout_s is None else self._loop.time() + timeout_s
        self._give_up(is_closing=False)
        reached = asyncio.Event()
        number = -1
        while self._submitted_jobs != number:
            reached.clear()
            self.submit([], lambda results: reached.set(), lambda error: None)
            number = self._submitted_jobs
            while not reached.is_set():
                before = self._steps_done
                try:
                    async with asyncio.timeout(min(hung_s, deadline - self._loop.time())):
                        await reached.wait()
                except TimeoutError:
                    if self._steps_done == before or self._loop.time() >= deadline:
                        return False
        return True

    def close(self, timeout_s: float | None = None) -> bool:
        """End the thread after its present jobs, answer these, close the files and release the lock.

        timeout_s: how long the disk may take; None: for ever.   Returns: False if it took longer; then the files stay
        open until the process ends.
        """
        if self._thread is not None:
            self._give_up(is_closing=True)
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                return False
            self._thread = None
        try:
            self._deliver()
        finally:
            self._directory.close()
        return True

    def _give_up(self, *, is_closing: bool) -> None:
        self._gives_up = True
        self._is_closing = is_closing
        self._jobs.put(None)

    # --- answers ---

    def _deliver(self) -> None:
        """Call the callbacks of finished jobs; on the loop."""
        self._is_woken = False  # first: what comes after the last look below wakes us again
        try:
            while self._answers:
                call, arguments = self._answers.popleft()
                call(*arguments)
        finally:
            # After a fault of theirs, which the loop reports, the others still get their answers.
            if self._answers and self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon(self._deliver)

    def _tell(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Have a function called on the loop; for the thread."""
        assert self._loop is not None
        self._answers.append((call, arguments))
        if not self._is_woken:
            self._is_woken = True
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:
                # The loop was closed before the disk, so no callback can run. The jobs are executed all the same.
                return

    # --- the thread ---

    def _work(self) -> None:
        while (job := self._next()) is not None:
            while not self._attempt(job):
                self._stall(job)

    def _next(self) -> _Job | None:
        """Return the next job, held ones first; None at the end."""
        if self._held:
            return self._held.popleft()
        if self._is_stalled:
            self._is_stalled = False
            self._obstacles = _Obstacles()
            if self._broken is None:
                self._tell(self._on_resumed)
        while not (self._is_closing and self._jobs.empty()):
            job = self._jobs.get()
            if job is not None:
                return job
        return None

    def _next_before(self, deadline: float) -> _Job | None:
        """Return the next job before the deadline (monotonic clock), while another job waits for room."""
        while not self._gives_up:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                break
            try:
                job = self._jobs.get(timeout=left_s)
            except Empty:
                break
            if job is not None:
                return job
        return None

    def _attempt(self, job: _Job) -> bool:
        """Continue a job. Returns: False if there was no room (see `_lack`); True once the job is answered."""
        if self._broken is not None and job.writes:
            self._fail(job, self._broken)
            return True
        steps = job.steps
        try:
            for position in range(job.position, len(steps)):
                step = steps[position]
                job.position = position
                started = time.monotonic()
                result = self._directory.execute(step)
                self._steps_done += 1
                if job.writes or not self._is_stalled:
                    self._progress += 1
                self._count(step, result, time.monotonic() - started)
                if type(step) is Read:
                    job.results.append(result)
                elif type(step) is Append:
                    job.bytes_left -= result
                    self._finished_bytes += result
        except OSError as error:
            if _may_wait(error, steps[job.position]) and not self._gives_up:
                self._lack = error
                return False
            self._fail(job, error)
        except Exception as fault:  # noqa: BLE001 - as the loop does: a fault in one job must not end the thread
            assert self._loop is not None
            context = {"message": "A fault in a job of the disk", "exception": fault}
            self._tell(self._loop.call_exception_handler, context)
            self._fail(job, OSError(errno.EIO, f"a fault of ours: {fault!r}"))
        else:
            self._answer(job, job.done, job.results)
        return True

    def _count(self, step: Step, result: Any, seconds: float) -> None:
        """Count a step that was executed, and its time."""
        counters = self.counters
        if isinstance(step, Append):
            counters.io_write_count += 1
            counters.io_write_bytes += result
            counters.io_write_time += seconds
        elif isinstance(step, _SYNCS):
            counters.io_sync_count += 1
            counters.io_sync_time += seconds
        elif isinstance(step, Read):
            counters.io_read_count += 1
            counters.io_read_bytes += len(result) if step.then is None else max(step.size, 0)
            counters.io_read_time += seconds

    def _fail(self, job: _Job, error: OSError) -> None:
        if job.writes and self._broken is None:
            self._broken = error
        self._finished_bytes += job.bytes_left
        self._answer(job, job.failed, error)

    def _answer(self, job: _Job, call: Callable[[Any], None], argument: Any) -> None:
        job.steps = ()  # the parts are not needed until the loop has time
        self._finished_jobs += 1
        self._tell(call, argument)

    def _stall(self, job: _Job) -> None:
        """Wait for the next try of a job that found no room; meanwhile execute jobs that may pass it."""
        if not self._is_stalled:
            self._is_stalled = True
            self._obstacles.add(job.steps)
            self._tell(self._on_stalled, self._lack.strerror or str(self._lack))
        deadline = time.monotonic() + self._retry_s
        while (other := self._next_before(deadline)) is not None:
            if other.writes or self._obstacles.meet(other.steps, self._directory) or not self._attempt(other):
                self._held.append(other)
                self._obstacles.add(other.steps)


def _may_wait(error: OSError, step: Step) -> bool:
    """Return whether the step has done nothing, and may succeed once there is room.

    A sync that failed for want of room has lost pages, so another try would prove nothing.
    """
    if is_full(error):
        return not isinstance(step, Sync | SyncDir)
    return lacks_descriptors(error)


class _Obstacles:
    """The paths that waiting jobs use; a job that uses one of them must wait behind these."""

    def __init__(self) -> None:
        self._needed: set[str] = set()
        """Paths whose removal would spoil a waiting job, with the directories above them."""
        self._appended: set[str] = set()
        self._gone: set[str] = set()
        """Paths that waiting jobs will remove or rename, with all that is in them."""

    def add(self, steps: Sequence[Step]) -> None:
        """Add the paths of a job that waits."""
        for step in steps:
            paths = (step.old, step.new) if isinstance(step, Rename) else (step.path,)
            if isinstance(step, Rename | Remove | RemoveTree):
                self._gone.update(paths)
            elif isinstance(step, Append):
                self._appended.update(paths)
            if not isinstance(step, Remove | RemoveTree):
                for path in paths:
                    self._needed.add(path)
                    self._needed.update(_above(path))

    def meet(self, steps: Sequence[Step], directory: DataDirectory) -> bool:
        """Return whether a job that only reads and removes must wait, too."""
        return any(self._meet_one(step, directory) for step in steps)

    def _meet_one(self, step: Step, directory: DataDirectory) -> bool:
        assert not isinstance(step, Rename)
        if not self._gone.isdisjoint(_above(step.path)):
            return True
        if not isinstance(step, Read):
            return step.path in self._needed
        if step.path in self._gone:
            return True
        # Files only grow: bytes that a file has already are the same after the append.
        return step.path in self._appended and not _is_there(step, directory)


def _is_there(read: Read, directory: DataDirectory) -> bool:
    """Return whether a file has all the bytes that a read asks for."""
    try:
        return 0 <= read.size <= directory.size(read.path) - read.offset
    except FileNotFoundError:
        return False


def _above(path: str) -> Iterator[str]:
    """Yield the directories that contain a path, without the data directory."""
    while path := path.rpartition("/")[0]:
        yield path


class ReadOnlyDisk:
    """A `node.store.disk.Disk` for tools that reads synchronously and takes no lock.

    is_locked: whether a node runs on the data directory, so that the files may change meanwhile.
    """

    pending_bytes = 0

    def __init__(self, data_dir: str) -> None:
        """Open the directory for reading. Raises: DataDirectoryError."""
        self._directory = open_for_reading(data_dir)
        self.is_locked = is_locked(data_dir)

    def submit(
        self,
        steps: Sequence[Step],
        done: Callable[[list[Any]], None],
        failed: Callable[[OSError], None],
    ) -> None:
        """Raise AssertionError: a tool has no loop to be answered on."""
        raise AssertionError("a tool runs its jobs at once")

    def run(self, steps: Sequence[Step]) -> list[Any]:
        """Execute the steps, and return their results. Raises: OSError (EROFS) for every step but Read."""
        return [self._directory.execute(step) for step in steps]

    def names(self, directory: str) -> list[str]:
        """Return the sorted names in a directory; none if it does not exist."""
        return self._directory.names(directory)

    def size(self, path: str) -> int:
        """Return the size of a file in bytes. Raises: FileNotFoundError."""
        return self._directory.size(path)

    def close(self) -> None:
        """Close the files."""
        self._directory.close()
