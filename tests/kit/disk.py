"""A disk in memory that executes the store's steps when a test says so, and can lose what a real disk may lose.

    disk.step()      one step of the job at the head, and the answer if that was its last one
    disk.settle()    all jobs, and those that their answers bring up
    disk.crash(r)    the disk after a power loss        disk.kill()    the disk after kill -9

What a power loss leaves is told per file and per directory. Of a file: what was synced, and of the appends since
then the first ones, the last of these perhaps torn at any byte or with zeros in place of its bytes. Of a
directory: the names as they were at its last SyncDir, and of the changes since then the first ones. Syncing a
file does not make its name safe. Only a rename between directories never loses the file altogether. A disk that
reorders pages keeps any of those that were not synced: good bytes may follow zeros.
"""

import errno
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from node.store.disk import (
    READING,
    TO_THE_END,
    Append,
    MakeDir,
    Read,
    Remove,
    RemoveTree,
    Rename,
    Step,
    Sync,
    SyncDir,
)

PAGE_BYTES: Final = 4096
"""A disk that reorders writes so much at once."""


class PowerLost(Exception):
    """The power went off inside `SimulatedDisk.run`; see `SimulatedDisk.cut_power_after`."""


class _File:
    """A file, which has no name of its own.   unsynced: appends since the last sync."""

    def __init__(self, synced: bytes = b"") -> None:
        self.synced = bytearray(synced)
        self.unsynced: list[bytes] = []

    @property
    def content(self) -> bytes:
        return b"".join((self.synced, *self.unsynced))

    def __len__(self) -> int:
        return len(self.synced) + sum(map(len, self.unsynced))

    def sync(self) -> None:
        self.synced += b"".join(self.unsynced)
        self.unsynced.clear()


@dataclass(eq=False)
class _Change:
    """A change of names in one directory: each name with its new entry (None: removed).

    after: a change elsewhere without which this one can't have happened.
    """

    names: dict[str, "_File | _Directory | None"]
    after: "tuple[_Directory, _Change] | None" = None


@dataclass(eq=False)
class _Directory:
    """A directory.   names: as a program sees them.   synced: as of the last SyncDir.   changes: since then."""

    names: dict[str, "_File | _Directory"] = field(default_factory=dict)
    synced: dict[str, "_File | _Directory"] = field(default_factory=dict)
    changes: list[_Change] = field(default_factory=list)

    def change(self, change: _Change) -> None:
        _follow(self.names, change)
        self.changes.append(change)

    def sync(self) -> None:
        for change in self.changes:
            _follow(self.synced, change)
        self.changes.clear()


def _follow(names: dict[str, "_File | _Directory"], change: _Change) -> None:
    for name, node in change.names.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


@dataclass(eq=False)
class _Job:
    steps: Sequence[Step]
    done: Callable[[list[Any]], None]
    failed: Callable[[OSError], None]
    position: int = 0
    results: list[Any] = field(default_factory=list)

    @property
    def writes(self) -> bool:
        return not all(isinstance(step, READING) for step in self.steps)

    @property
    def left(self) -> Sequence[Step]:
        return self.steps[self.position :]


class SimulatedDisk:
    """A `node.store.disk.Disk` in memory.

    executed: how many steps were executed, whether submitted or run.   progress: as of `node.io.disk.FileDisk`.
    on_stalled, on_resumed: called when a job finds no room, and when it found it.
    reorders: whether pages that were not synced are kept in any order.
    """

    def __init__(self, *, reorders: bool = False) -> None:
        self._reorders = reorders
        self._root = _Directory()
        self._jobs: deque[_Job] = deque()
        self._answers: deque[Callable[[], None]] = deque()
        self._capacity_bytes: int | None = None
        self._faults: list[tuple[type, str | None, OSError]] = []
        self._lasting_faults: list[tuple[type, str | None, OSError]] = []
        self._hangs = False
        self._gives_up = False
        self._broken: OSError | None = None
        self._is_stalled = False
        self._is_gone = False
        self._power_ends_at: int | None = None
        self.executed = self.progress = 0
        self.on_stalled: Callable[[str], None] = lambda reason: None
        self.on_resumed: Callable[[], None] = lambda: None

    # --- the interface ---

    @property
    def pending_bytes(self) -> int:
        """The bytes of submitted jobs that are not executed yet."""
        return sum(
            len(part)
            for job in self._jobs
            for step in job.left
            if isinstance(step, Append)
            for part in step.parts
        )

    def submit(
        self,
        steps: Sequence[Step],
        done: Callable[[list[Any]], None],
        failed: Callable[[OSError], None],
    ) -> None:
        """Submit a job, which waits until a test lets it be executed."""
        assert not self._is_gone, "the power is off"
        self._jobs.append(_Job(list(steps), done, failed))

    def run(self, steps: Sequence[Step]) -> list[Any]:
        """Execute steps at once."""
        assert not self._is_gone, "the power is off"
        assert not self._jobs, "the thread has the files"
        results = []
        for step in steps:
            if self._broken is not None and not isinstance(step, READING):
                raise self._broken
            result = self._execute(step)
            if isinstance(step, Read):
                results.append(result)
        return results

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory, sorted."""
        node = self._find(directory)
        return sorted(node.names) if isinstance(node, _Directory) else []

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        return len(self._file(path))

    # --- what a test does ---

    def step(self) -> bool:
        """Execute one step and give the answers that are due. Returns: False if there was nothing to do, or no
        room to do it.
        """
        has_moved = self.execute()
        return self.answer() or has_moved

    def settle(self) -> None:
        """Execute all jobs, and those that their answers submit; jobs without space stay."""
        while self.step():
            pass

    def execute(self) -> bool:
        """Execute one step without giving answers. Returns: as `step`."""
        assert not self._is_gone, "the power is off"
        if self._hangs:
            return False
        for job in list(self._jobs):
            if job is not self._jobs[0] and not self._may_pass(job):
                continue
            if self._attempt(job):
                return True
        return False

    def answer(self) -> bool:
        """Give the answers that are due. Returns: whether there were some."""
        had = bool(self._answers)
        while self._answers:
            self._answers.popleft()()
        return had

    @property
    def jobs(self) -> int:
        """The number of jobs that are not executed yet."""
        return len(self._jobs)

    @property
    def waiting(self) -> list[Step]:
        """The steps that are not executed yet."""
        return [step for job in self._jobs for step in job.left]

    def paths(self) -> list[str]:
        """Return the paths of all files, sorted."""
        return sorted(path for path, _ in self._files())

    def content(self, path: str) -> bytes:
        """Return all bytes of a file."""
        return self._file(path).content

    def write(self, path: str, content: bytes) -> None:
        """Write a file that is safe at once, with its directories; or replace the bytes of an existing one."""
        if isinstance(self._find(path), _File):
            self._replace(path, content)
            return
        *directories, name = path.split("/")
        parent = self._root
        for each in directories:
            inner = parent.names.setdefault(each, _Directory())
            assert isinstance(inner, _Directory), path
            parent.synced[each] = inner
            parent = inner
        parent.names[name] = parent.synced[name] = _File(content)

    # --- what a disk does ---

    def clone(self) -> "SimulatedDisk":
        """Return another disk with the same files in the same state, without the jobs."""
        other = SimulatedDisk()
        other._root = deepcopy(self._root)
        return other

    def crash(self, random: Random, *, reorders: bool = False) -> "SimulatedDisk":
        """Return the disk after a power loss now. Do not use this disk again.   reorders: see the module."""
        self._is_gone = True
        other = SimulatedDisk(reorders=self._reorders)
        keeps = {
            directory: random.randint(0, len(directory.changes)) for directory in _all_directories(self._root)
        }
        _keep_renamed(keeps)
        reorders = reorders or (self._reorders and random.random() < 0.5)
        left = _pages_that_are_left if reorders else _what_is_left
        other._root = _survivor(self._root, keeps, random, {}, left)
        return other

    def kill(self, random: Random | None = None) -> "SimulatedDisk":
        """The disk after kill -9 now: what was executed is there, what wasn't isn't. This one is not to be used
        again.   random: to have an Append that is next cut off at any byte.
        """
        self._is_gone = True
        if random is not None and self._jobs and self._broken is None:
            step = next(iter(self._jobs[0].left), None)
            if isinstance(step, Append) and self._capacity_bytes is None:
                raw = b"".join(step.parts)
                self._append(step.path, raw[: random.randint(0, len(raw))])
        other = SimulatedDisk(reorders=self._reorders)
        other._root = self._root
        return other

    def cut_power_after(self, steps: int) -> None:
        """Raise PowerLost after this many more steps. Then call `crash` or `kill`."""
        self._power_ends_at = self.executed + steps

    def sync_all(self) -> None:
        """Make all data safe, as an operating system does after a while."""
        for directory in _all_directories(self._root):
            directory.sync()
        for _, file in self._files():
            file.sync()

    def fill_up(self, after_bytes: int = 0) -> None:
        """Leave space for this many more bytes."""
        self._capacity_bytes = self._used_bytes() + after_bytes

    def free(self) -> None:
        """Remove the limit of space."""
        self._capacity_bytes = None

    def give_up(self) -> None:
        """Let steps without space fail from now on, as at the end of a node: see `FileDisk.drain`."""
        self._gives_up = True

    def fail(self, kind: type, path: str | None = None, code: int = errno.EIO) -> None:
        """Let the next step of a kind, on this or any path, fail with an error other than a full disk."""
        self._faults.append((kind, path, OSError(code, "a fault that the test wants", path)))

    def fail_always(self, kind: type, path: str | None = None, code: int = errno.EIO) -> None:
        """Let every step of a kind, on this or any path, fail until `mend`."""
        self._lasting_faults.append((kind, path, OSError(code, "a fault that the test wants", path)))

    def hang(self) -> None:
        """Execute nothing until `mend`; submitted jobs wait."""
        self._hangs = True

    def mend(self) -> None:
        """End the faults of `fail_always` and `hang`."""
        self._lasting_faults.clear()
        self._hangs = False

    def fail_sync(self, path: str | None = None) -> None:
        """Let the next Sync fail: its data never becomes safe."""
        self.fail(Sync, path)

    def flip_bit(self, path: str, offset: int, bit: int = 0) -> None:
        """Damage a byte of a file."""
        content = bytearray(self.content(path))
        content[offset] ^= 1 << bit
        self._replace(path, bytes(content))

    def truncate(self, path: str, size: int) -> None:
        """Cut a file off."""
        self._replace(path, self.content(path)[:size])

    def zero(self, path: str, offset: int, size: int) -> None:
        """Overwrite bytes of a file with zeros."""
        content = bytearray(self.content(path))
        content[offset : offset + size] = bytes(len(content[offset : offset + size]))
        self._replace(path, bytes(content))

    def lose(self, path: str) -> None:
        """Remove a file, which is also gone after a power loss."""
        directory, _, name = path.rpartition("/")
        parent = self._directory(directory)
        parent.change(_Change({name: None}))
        parent.synced.pop(name, None)

    def _replace(self, path: str, content: bytes) -> None:
        file = self._file(path)
        file.synced[:] = content
        file.unsynced.clear()

    # --- jobs ---

    def _attempt(self, job: _Job) -> bool:
        """Execute a job's next step. Returns: False if there was no room."""
        if self._broken is not None and job.writes:
            self._finish(job, self._broken)
            return True
        if job.position < len(job.steps):
            step = job.steps[job.position]
            try:
                result = self._execute(step)
            except OSError as error:
                is_full = error.errno in (errno.ENOSPC, errno.EDQUOT) and not isinstance(step, Sync | SyncDir)
                if is_full and not self._gives_up:
                    self._stall(error)
                    return False
                if job.writes:
                    self._broken = error
                self._finish(job, error)
                return True
            job.position += 1
            if job.writes or not self._is_stalled:
                self.progress += 1
            if isinstance(step, Read):
                job.results.append(result)
            if self._is_stalled and job is self._jobs[0]:
                self._is_stalled = False
                self._answers.append(self.on_resumed)
        if job.position == len(job.steps):
            self._finish(job, None)
        return True

    def _finish(self, job: _Job, error: OSError | None) -> None:
        self._jobs.remove(job)
        if error is None:
            self._answers.append(lambda: job.done(job.results))
        else:
            self._answers.append(lambda: job.failed(error))

    def _stall(self, error: OSError) -> None:
        if not self._is_stalled:
            self._is_stalled = True
            self._answers.append(lambda: self.on_stalled(error.strerror or ""))

    def _may_pass(self, job: _Job) -> bool:
        """Return whether the disk is full and the job needs no space and concerns no waiting job."""
        if not self._is_stalled or job.writes:
            return False
        before = list(self._jobs)[: self._jobs.index(job)]
        waiting = [step for other in before for step in other.left]
        return not any(self._collide(step, earlier) for step in job.left for earlier in waiting)

    def _collide(self, step: Step, earlier: Step) -> bool:
        """Return whether a Read, Remove or RemoveTree must wait for a step that was submitted earlier."""
        assert isinstance(step, READING)
        if isinstance(step, Read):
            if isinstance(earlier, Read):
                return False
            if isinstance(earlier, Append) and 0 <= step.size <= self._size_if_there(step.path) - step.offset:
                return False  # files only grow: these bytes are there, and stay as they are
        paths = (earlier.old, earlier.new) if isinstance(earlier, Rename) else (earlier.path,)
        return any(_is_within(path, step.path) or _is_within(step.path, path) for path in paths)

    def _size_if_there(self, path: str) -> int:
        node = self._find(path)
        return len(node) if isinstance(node, _File) else 0

    # --- steps ---

    def _execute(self, step: Step) -> Any:
        for fault in self._faults:
            kind, path, error = fault
            if isinstance(step, kind) and (path is None or path == getattr(step, "path", None)):
                self._faults.remove(fault)
                raise error
        for kind, path, error in self._lasting_faults:
            if isinstance(step, kind) and (path is None or path == getattr(step, "path", None)):
                raise error
        if self.executed == self._power_ends_at:
            raise PowerLost
        self.executed += 1
        match step:
            case Append(path, parts, creates):
                if not creates and self._find(path) is None:
                    raise OSError(errno.EIO, "has been removed", path)
                self._append(path, b"".join(parts))
            case Sync(path):
                self._file(path).sync()
            case SyncDir(path):
                self._directory(path).sync()
            case MakeDir(path):
                self._make(path)
            case Rename(old, new):
                self._rename(old, new)
            case Remove(path):
                self._remove(path)
            case RemoveTree(path):
                self._remove_tree(path)
            case Read(path, offset, size, then):
                content = self._file(path).content
                data = content[offset:] if size == TO_THE_END else content[offset : offset + size]
                return data if then is None else then(data)
        return None

    def _append(self, path: str, data: bytes) -> None:
        if self._capacity_bytes is not None and self._used_bytes() + len(data) > self._capacity_bytes:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        directory, _, name = path.rpartition("/")
        parent = self._directory(directory)
        file = parent.names.get(name)
        if file is None:
            file = _File()
            parent.change(_Change({name: file}))
        if isinstance(file, _Directory):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        file.unsynced.append(data)

    def _rename(self, old: str, new: str) -> None:
        node = self._find(old)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", old)
        old_directory, _, old_name = old.rpartition("/")
        new_directory, _, new_name = new.rpartition("/")
        source, target = self._directory(old_directory), self._directory(new_directory)
        replaced = target.names.get(new_name)
        if replaced is node:
            return
        if isinstance(replaced, _Directory) and replaced.names:
            raise OSError(errno.ENOTEMPTY, "Directory not empty", new)
        if source is target:
            source.change(_Change({old_name: None, new_name: node}))
            return
        arrival = _Change({new_name: node})
        target.change(arrival)
        source.change(_Change({old_name: None}, after=(target, arrival)))

    def _remove(self, path: str) -> None:
        node = self._find(path)
        if isinstance(node, _Directory):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        if node is not None:
            directory, _, name = path.rpartition("/")
            self._directory(directory).change(_Change({name: None}))

    def _remove_tree(self, path: str) -> None:
        node = self._find(path)
        if node is None:
            return
        if isinstance(node, _Directory):
            for inner in list(_all_directories(node)):
                for name in list(inner.names):
                    inner.change(_Change({name: None}))
        directory, _, name = path.rpartition("/")
        self._directory(directory).change(_Change({name: None}))

    def _make(self, path: str) -> _Directory:
        node = self._root
        for name in path.split("/") if path else ():
            inner = node.names.get(name)
            if inner is None:
                inner = _Directory()
                node.change(_Change({name: inner}))
            if isinstance(inner, _File):
                raise FileExistsError(errno.EEXIST, "File exists", path)
            node = inner
        return node

    # --- where things are ---

    def _find(self, path: str) -> _File | _Directory | None:
        node: _File | _Directory | None = self._root
        for name in path.split("/") if path else ():
            node = node.names.get(name) if isinstance(node, _Directory) else None
        return node

    def _file(self, path: str) -> _File:
        node = self._find(path)
        if not isinstance(node, _File):
            raise FileNotFoundError(errno.ENOENT, "No such file", path)
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._find(path)
        if not isinstance(node, _Directory):
            raise FileNotFoundError(errno.ENOENT, "No such directory", path)
        return node

    def _files(self) -> Iterator[tuple[str, _File]]:
        waiting: list[tuple[str, _Directory]] = [("", self._root)]
        while waiting:
            above, directory = waiting.pop()
            for name, node in directory.names.items():
                if isinstance(node, _Directory):
                    waiting.append((f"{above}{name}/", node))
                else:
                    yield above + name, node

    def _used_bytes(self) -> int:
        return sum(len(file) for _, file in self._files())


def _is_within(path: str, above: str) -> bool:
    return path == above or path.startswith(f"{above}/")


def _all_directories(top: _Directory) -> list[_Directory]:
    """Return all directories that can be reached from here by old or new names, the inner ones first."""
    found: dict[_Directory, None] = {}

    def visit(directory: _Directory) -> None:
        if directory in found:
            return
        changed = (node for change in directory.changes for node in change.names.values())
        for node in (*directory.names.values(), *directory.synced.values(), *changed):
            if isinstance(node, _Directory):
                visit(node)
        found[directory] = None

    visit(top)
    return list(found)


def _keep_renamed(keeps: dict[_Directory, int]) -> None:
    """Keep a file that left a directory for another one: it has arrived there."""
    has_changed = True
    while has_changed:
        has_changed = False
        for directory, count in list(keeps.items()):
            for change in directory.changes[:count]:
                if change.after is None:
                    continue
                target, arrival = change.after
                if arrival in target.changes:
                    needed = target.changes.index(arrival) + 1
                    if keeps.get(target, 0) < needed:
                        keeps[target] = needed
                        has_changed = True


def _survivor(
    directory: _Directory,
    keeps: dict[_Directory, int],
    random: Random,
    copies: dict[_File | _Directory, _File | _Directory],
    left: Callable[[_File, Random], bytes],
) -> _Directory:
    """Return a directory as it is after a power loss.

    keeps: how many of its changes each has.   copies: of what was seen already.   left: what a file has then.
    """
    names = dict(directory.synced)
    for change in directory.changes[: keeps[directory]]:
        _follow(names, change)
    survivor = _Directory()
    for name, node in names.items():
        if node not in copies:
            copies[node] = (
                _survivor(node, keeps, random, copies, left)
                if isinstance(node, _Directory)
                else _File(left(node, random))
            )
        survivor.names[name] = copies[node]
    survivor.synced = dict(survivor.names)
    return survivor


def _what_is_left(file: _File, random: Random) -> bytes:
    """Return the content of a file after a power loss."""
    whole = random.randint(0, len(file.unsynced))
    parts = [bytes(file.synced), *file.unsynced[:whole]]
    if whole < len(file.unsynced):
        torn = file.unsynced[whole]
        good = random.randint(0, len(torn))
        kind = random.choice(("none", "short", "zeros", "short and zeros"))
        if kind in ("short", "short and zeros"):
            parts.append(torn[:good])
        if kind == "zeros":
            parts.append(bytes(len(torn)))
        if kind == "short and zeros":
            parts.append(bytes(len(torn) - good))
    return b"".join(parts)


def _pages_that_are_left(file: _File, random: Random) -> bytes:
    """Return the content of a file after a power loss in which any page that was not synced may be zeros."""
    content = bytearray(file.content)
    at, end = len(file.synced), len(content)
    while at < end:
        beyond = min(at - at % PAGE_BYTES + PAGE_BYTES, end)
        if random.random() < 0.4:
            content[at:beyond] = bytes(beyond - at)
        at = beyond
    return bytes(content)
