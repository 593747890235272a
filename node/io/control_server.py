"""The node's side of the control socket answers one request in each connection (`node.io.control` is the client's).

The socket exists from before the broker starts until after it has stopped. The process that has it also holds the data
directory, by a lock on the directory itself; the broker's lock is on a file in it.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final

from node.io.control import (
    EX_SOFTWARE,
    EX_TEMPFAIL,
    EX_UNAVAILABLE,
    EX_USAGE,
    REPLY_MAX_BYTES,
    REQUEST_MAX_BYTES,
    SOCKET_NAME,
    ControlError,
    short_path,
)
from node.io.data_directory import DIRECTORY_MODE, LOCK_NAME, DataDirectoryError
from node.io.json_pieces import json_pieces
from node.io.turns import taken
from node.log.log import category_logger

REQUESTS_MAX: Final = 64
"""The most requests at the same time; more are refused with an error, and beyond twice as many without one."""
READ_S: Final = 10.0
"""The time that a request may take to arrive, and its answer to be read."""
DEFAULT_TIMEOUT_S: Final = 60.0
TIMEOUT_MAX_S: Final = 24 * 3600.0

SOCKET_MODE: Final = 0o600

Handler = Callable[[str, dict[str, Any], float], Awaitable[Any]]
"""Carries out an operation, given its arguments and its time in seconds. Returns a JSON value; raises ControlError."""


class ControlServer:
    """The server of the control socket in one data directory. `start` it on the loop; `close` it."""

    def __init__(self, data_dir: str, handler: Handler) -> None:
        self.data_dir = os.path.abspath(data_dir)
        self._handler = handler
        self._directory: int | None = None
        self._socket: socket.socket | None = None
        self._inode = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Lock the directory and accept requests. Raises: DataDirectoryError."""
        try:
            os.makedirs(self.data_dir, DIRECTORY_MODE, exist_ok=True)
            self._directory = os.open(self.data_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise DataDirectoryError(
                f"the data directory {self.data_dir} cannot be used: {error.strerror}"
            ) from error
        try:
            self._lock()
            self._bind()
        except OSError as error:
            await self.close()
            if isinstance(error, DataDirectoryError):
                raise
            raise DataDirectoryError(
                f"the data directory {self.data_dir} cannot be written: {error.strerror}"
            ) from error
        self._server = await asyncio.start_unix_server(
            self._accepted, sock=self._socket, limit=REQUEST_MAX_BYTES
        )

    async def close(self) -> None:
        """Accept no more requests, cancel those in progress, and release the directory."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._socket is not None:
            self._unlink()
            self._socket.close()
            self._socket = None
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)
        if self._directory is not None:
            os.close(self._directory)
            self._directory = None

    def _lock(self) -> None:
        assert self._directory is not None
        try:
            fcntl.flock(self._directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = "unknown"
            with contextlib.suppress(OSError), open(os.path.join(self.data_dir, LOCK_NAME)) as file:
                owner = file.read(12).strip() or owner
            raise DataDirectoryError(
                f"the data directory {self.data_dir} is in use by another node (pid {owner})"
            ) from error

    def _bind(self) -> None:
        """Listen on the socket, and replace one that a killed node has left. Raises: OSError."""
        self._socket = sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with contextlib.suppress(OSError):
            os.fchmod(
                sock.fileno(), SOCKET_MODE
            )  # before the socket has a name: on Linux no other user can connect in between
        with contextlib.suppress(FileNotFoundError):
            os.unlink(SOCKET_NAME, dir_fd=self._directory)
        with short_path(self.data_dir) as path:
            sock.bind(path)
        os.chmod(SOCKET_NAME, SOCKET_MODE, dir_fd=self._directory)
        self._inode = os.stat(SOCKET_NAME, dir_fd=self._directory).st_ino
        sock.listen(REQUESTS_MAX)
        sock.setblocking(False)

    def _unlink(self) -> None:
        """Remove the socket's name, unless it belongs to another node by now."""
        with contextlib.suppress(OSError):
            if self._inode and os.stat(SOCKET_NAME, dir_fd=self._directory).st_ino == self._inode:
                os.unlink(SOCKET_NAME, dir_fd=self._directory)

    # --- requests ---

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= 2 * REQUESTS_MAX:
            writer.transport.abort()
            return
        is_full = len(self._tasks) >= REQUESTS_MAX
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer, is_full=is_full))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_full: bool
    ) -> None:
        try:
            answer = await self._answer(reader, is_full=is_full)
            pieces = await _encoded(answer)
            async with asyncio.timeout(READ_S):
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
        except OSError:  # also TimeoutError: the client has gone, or does not read
            pass
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, *, is_full: bool) -> dict[str, Any]:
        try:
            async with asyncio.timeout(READ_S):
                line = await reader.readline()
        except TimeoutError:
            return _error(EX_USAGE, f"no request came within {READ_S:g} s")
        except ValueError:
            return _error(EX_USAGE, f"the request has more than {REQUEST_MAX_BYTES} bytes")
        if is_full:
            return _error(EX_UNAVAILABLE, f"the node is busy with {REQUESTS_MAX} other requests")
        try:
            operation, arguments, timeout_s = _parsed(line)
        except ControlError as error:
            return _error(error.exit_code, error.text)
        return await self._handle(operation, arguments, timeout_s)

    async def _handle(self, operation: str, arguments: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        try:
            async with asyncio.timeout(timeout_s):
                return {"result": await self._handler(operation, arguments, timeout_s)}
        except ControlError as error:
            return _error(error.exit_code, error.text)
        except TimeoutError:
            return _error(EX_TEMPFAIL, f"{operation}: not done within {timeout_s:g} s")
        except Exception as fault:  # noqa: BLE001 - a fault of ours in one operation must not end the node
            category_logger().error(
                "A fault in the control operation %s: %r", operation, fault, exc_info=fault
            )
            return _error(EX_SOFTWARE, f"{operation}: a fault of ours: {fault!r}")


def _parsed(line: bytes) -> tuple[str, dict[str, Any], float]:
    """Decode a request. Raises: ControlError."""
    if not line.endswith(b"\n"):
        raise ControlError(EX_USAGE, "the request ended before its line did")
    try:
        asked = json.loads(line)
    except (ValueError, RecursionError):
        raise ControlError(EX_USAGE, "the request is no JSON") from None
    if not isinstance(asked, dict):
        raise ControlError(EX_USAGE, "the request is no JSON object")
    operation, arguments = asked.get("operation"), asked.get("arguments", {})
    timeout_s = asked.get("timeout_s", DEFAULT_TIMEOUT_S)
    if not isinstance(operation, str) or not isinstance(arguments, dict):
        raise ControlError(EX_USAGE, "the request needs an operation (text) and arguments (object)")
    if type(timeout_s) not in (int, float) or not 0 < timeout_s <= TIMEOUT_MAX_S:
        raise ControlError(EX_USAGE, f"timeout_s must be a number up to {TIMEOUT_MAX_S:g}")
    return operation, arguments, float(timeout_s)


def _error(exit_code: int, text: str) -> dict[str, Any]:
    return {"error": {"exit_code": exit_code, "text": text}}


async def _encoded(answer: dict[str, Any]) -> list[bytes]:
    """Encode an answer as a line, in pieces."""
    pieces = [*await taken(json_pieces(answer, _dumps), between_looks=1), b"\n"]
    size = sum(map(len, pieces))
    if size > REPLY_MAX_BYTES:
        return [_dumps(_error(EX_SOFTWARE, f"the answer has {size} bytes: too many")), b"\n"]
    return pieces


def _dumps(value: Any) -> bytes:
    return json.dumps(value).encode()
