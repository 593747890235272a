"""The data directory consists of a lock and files; disk steps are executed on it synchronously.

One node owns a data directory: it holds `flock` on the file `lock` in it, which also says the node's process id.
All paths are relative to the directory and are opened below its descriptor. What we create is for our user only.

Files stay open between steps, the least recently used are closed. Nothing is inherited by a process that the
node starts. Source: flock(2), writev(2), fsync(2).
"""

import contextlib
import errno
import fcntl
import os
import shutil
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from node.store.disk import (
    Append,
    MakeDir,
    Read,
    Remove,
    RemoveTree,
    Rename,
    Step,
    Sync,
    SyncDir,
    is_full,
)

LOCK_NAME: Final = "lock"
FILES_MAX: Final = 256
"""The most files that stay open: the journal, the ends of both message stores, and the segments of busy queues. It is
a quarter of what even a system with a limit of 1024 allows.
"""

DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600

_IOV_MAX: Final = os.sysconf("SC_IOV_MAX") if "SC_IOV_MAX" in os.sysconf_names else 1024
"""The most buffers that one writev takes."""
_PID_BYTES: Final = 12
_PAGE_BYTES: Final = os.sysconf("SC_PAGESIZE")
_READ_MAX_BYTES: Final = 1 << 30
"""The most bytes that one read asks for: Linux returns no more than 2 GiB."""
_NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})


class DataDirectoryError(OSError):
    """The data directory cannot be used; the text is for the operator."""


def lacks_descriptors(error: OSError) -> bool:
    """Return whether a file could not be opened because too many files and sockets are open."""
    return error.errno in _NO_DESCRIPTOR


_Opened = TypeVar("_Opened")


class _File:
    """An open file. size: in bytes, without the remains of a failed append."""

    __slots__ = ("fd", "size")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.size = os.fstat(fd).st_size


class DataDirectory:
    """The files of one node's data directory, for one thread at a time.

    root: descriptor of the directory.   lock: of the lock file, None when opened for reading only.
    """

    def __init__(self, path: str, root: int, lock: int | None, *, files_max: int = FILES_MAX) -> None:
        self.path = path
        self._root = root
        self._lock = lock
        self._files: OrderedDict[str, _File] = OrderedDict()
        self._files_max = files_max
        self._flags = os.O_CLOEXEC | (os.O_RDONLY if lock is None else os.O_RDWR | os.O_APPEND)

    def close(self) -> None:
        """Close all files and release the lock."""
        for file in self._files.values():
            os.close(file.fd)
        self._files.clear()
        os.close(self._root)
        if self._lock is not None:
            os.close(self._lock)

    def execute(self, step: Step) -> Any:
        """Execute a step. Returns: the result of a Read, the number of bytes of an Append.

        Raises: OSError; ValueError for a path that leaves the directory; what the `then` of a Read raises.
        """
        if type(step) is Read:
            return self._read(step)
        if self._lock is None:
            raise OSError(errno.EROFS, "the data directory was opened for reading only")
        if type(step) is Append:
            return self._append(step)
        return self._execute_other(step)

    def _execute_other(self, step: Step) -> None:
        match step:
            case Sync(path):
                fd = self._open(path).fd
                _sync(fd)
                if os.fstat(fd).st_nlink == 0:
                    raise _removed(path)
            case SyncDir(path):
                self._sync_directory(path)
            case MakeDir(path):
                self._make_directory(_inside(path))
            case Rename(old, new):
                self._close_below(old)
                self._close_below(new)
                os.rename(_inside(old), _inside(new), src_dir_fd=self._root, dst_dir_fd=self._root)
            case Remove(path):
                self._close(path)
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(_inside(path), dir_fd=self._root)
            case RemoveTree(path):
                self._close_below(path)
                self._remove_tree(_inside(path))
            case _:
                raise AssertionError(f"{step} is no step")

    def names(self, directory: str) -> list[str]:
        """Return the sorted names in a directory; none if it does not exist. The data directory itself is ""."""
        try:
            fd = self._open_directory(directory)
        except (FileNotFoundError, NotADirectoryError):
            return []
        try:
            return sorted(os.listdir(fd))
        finally:
            os.close(fd)

    def size(self, path: str) -> int:
        """Return the size of a file in bytes. Raises: FileNotFoundError."""
        return os.stat(_inside(path), dir_fd=self._root).st_size

    # --- steps ---

    def _append(self, step: Append) -> int:
        try:
            file = self._open(step.path, os.O_CREAT if step.creates else 0)
        except FileNotFoundError:
            if step.creates:
                raise
            raise _removed(step.path) from None
        try:
            written = _write(file.fd, step.parts)
        except OSError as error:
            if is_full(error):
                self._take_back(file, error)
            raise
        file.size += written
        return written

    def _take_back(self, file: _File, error: OSError) -> None:
        """Remove what a failed append has written. Raises: OSError, with another code than that of a full disk."""
        try:
            os.ftruncate(file.fd, file.size)
        except OSError as second:
            # Half a record must not stay before others: better to stop here.
            raise OSError(errno.EIO, f"{error.strerror}, then {second.strerror}") from second

    def _read(self, step: Read) -> Any:
        file = self._open(step.path)
        left = step.size if step.size >= 0 else max(0, os.fstat(file.fd).st_size - step.offset)
        if step.is_fresh:
            _forget_cached(file.fd, step.offset, left)
        data = os.pread(file.fd, min(left, _READ_MAX_BYTES), step.offset)
        if len(data) < left and data:
            data = _read_on(file.fd, step.offset, left, data)
        return data if step.then is None else step.then(data)

    def _sync_directory(self, path: str) -> None:
        fd = self._open_directory(path)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def _make_directory(self, path: str) -> None:
        try:
            os.mkdir(path, DIRECTORY_MODE, dir_fd=self._root)
        except FileExistsError:
            pass
        except FileNotFoundError:
            above = os.path.dirname(path)
            if not above:
                raise
            self._make_directory(above)
            self._make_directory(path)

    def _remove_tree(self, path: str) -> None:
        try:
            shutil.rmtree(path, dir_fd=self._root)
        except FileNotFoundError:
            pass
        except NotADirectoryError:
            os.unlink(path, dir_fd=self._root)

    # --- open files ---

    def _open(self, path: str, extra_flags: int = 0) -> _File:
        """Return an open file. Raises: FileNotFoundError unless `extra_flags` create it; EMFILE if no descriptor can
        be freed.

        A failed write-back that was not reported yet is reported to the first sync of any descriptor, so a file may
        be closed between append and sync.
        """
        file = self._files.get(path)
        if file is not None:
            self._files.move_to_end(path)
            return file
        while len(self._files) >= self._files_max:
            self._close(next(iter(self._files)))
        name = _inside(path)
        file = self._with_descriptor(
            lambda: _File(os.open(name, self._flags | extra_flags, FILE_MODE, dir_fd=self._root))
        )
        self._files[path] = file
        return file

    def _open_directory(self, path: str) -> int:
        name = _inside(path) if path else "."
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        return self._with_descriptor(lambda: os.open(name, flags, dir_fd=self._root))

    def _with_descriptor(self, opened: Callable[[], _Opened]) -> _Opened:
        """Call a function that opens a file; without descriptors close the older half of the open files and retry."""
        try:
            return opened()
        except OSError as error:
            if not lacks_descriptors(error) or not self._files:
                raise
        for name in list(self._files)[: len(self._files) // 2 + 1]:
            self._close(name)
        return opened()

    def _close(self, path: str) -> None:
        file = self._files.pop(path, None)
        if file is not None:
            os.close(file.fd)

    def _close_below(self, path: str) -> None:
        """Close a file, or all open files in a directory."""
        start = f"{path}/"
        for name in [name for name in self._files if name == path or name.startswith(start)]:
            self._close(name)


def open_data_directory(path: str, *, files_max: int = FILES_MAX) -> DataDirectory:
    """Make the directory if it is missing, and take its lock.

    Raises: DataDirectoryError when it cannot be made, written or locked, or another node has it.
    """
    path = os.path.abspath(path)
    try:
        _create(path)
        root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise DataDirectoryError(f"the data directory {path} cannot be used: {error.strerror}") from error
    try:
        lock = _take_lock(path, root)
    except DataDirectoryError:
        os.close(root)
        raise
    return DataDirectory(path, root, lock, files_max=files_max)


def open_for_reading(path: str) -> DataDirectory:
    """Open a data directory without its lock, and without changing anything. Raises: DataDirectoryError."""
    try:
        root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise DataDirectoryError(f"the data directory {path} cannot be read: {error.strerror}") from error
    return DataDirectory(path, root, None)


def is_locked(path: str) -> bool:
    """Return whether a node runs on the data directory."""
    try:
        fd = os.open(os.path.join(path, LOCK_NAME), os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _create(path: str) -> None:
    """Make a directory and its parents, and sync their names. Raises: OSError."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    _create(above)
    os.mkdir(path, DIRECTORY_MODE)
    fd = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _take_lock(path: str, root: int) -> int:
    """Take the lock and return its descriptor. Raises: DataDirectoryError."""
    if not os.access(".", os.W_OK | os.X_OK, dir_fd=root, effective_ids=True):
        raise DataDirectoryError(f"the data directory {path} cannot be written")
    try:
        fd = os.open(LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE, dir_fd=root)
    except OSError as error:
        raise DataDirectoryError(f"the data directory {path} cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        owner = os.pread(fd, _PID_BYTES, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(fd)
        reason = (
            f"is in use by another node (pid {owner})"
            if isinstance(error, BlockingIOError)
            else f"cannot be locked: {error.strerror}"
        )
        raise DataDirectoryError(f"the data directory {path} {reason}") from error
    # The length is constant, so that a node starts on a full disk too. The lock holds even if this write fails.
    with contextlib.suppress(OSError):
        os.pwrite(fd, f"{os.getpid():<{_PID_BYTES - 1}}\n".encode(), 0)
    return fd


def _inside(path: str) -> str:
    """Return the path. Raises: ValueError for one that is empty or leaves the data directory."""
    if not path or path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"{path!r} is not in the data directory")
    return path


def _write(fd: int, parts: Sequence[bytes]) -> int:
    """Write all parts, and return the number of their bytes. Raises: OSError; then some bytes may be written."""
    total = 0
    for start in range(0, len(parts), _IOV_MAX):
        chunk: Sequence[bytes | memoryview] = parts[start : start + _IOV_MAX]
        left = sum(map(len, chunk))
        total += left
        while left:
            written = os.writev(fd, chunk)
            if not written:
                raise OSError(errno.EIO, "the system wrote nothing")
            left -= written
            if left:
                chunk = _after(chunk, written)
    return total


def _after(parts: Sequence[bytes | memoryview], count: int) -> list[bytes | memoryview]:
    """Return the parts without their first `count` bytes."""
    for number, part in enumerate(parts):
        if count < len(part):
            return [memoryview(part)[count:], *parts[number + 1 :]]
        count -= len(part)
    return []


def _forget_cached(fd: int, offset: int, size: int) -> None:
    """Drop these bytes from the page cache, so that the next read comes from the medium. Unwritten pages stay."""
    if hasattr(os, "posix_fadvise"):
        start = offset - offset % _PAGE_BYTES
        stop = -(-(offset + size) // _PAGE_BYTES) * _PAGE_BYTES
        os.posix_fadvise(fd, start, stop - start, os.POSIX_FADV_DONTNEED)


def _read_on(fd: int, offset: int, size: int, data: bytes) -> bytes:
    """Return `data` with the rest of a read that the system cut short; less where the file ends."""
    pieces, got = [data], len(data)
    while got < size:
        piece = os.pread(fd, min(size - got, _READ_MAX_BYTES), offset + got)
        if not piece:
            break
        pieces.append(piece)
        got += len(piece)
    return b"".join(pieces)


def _removed(path: str) -> OSError:
    return OSError(errno.EIO, f"{path} has been removed while it was in use")


def _sync(fd: int) -> None:
    """Make what was written outlive a power loss, and the file's size, but not its times."""
    getattr(os, "fdatasync", os.fsync)(fd)
